//! From what was typed to an engine and a location, with every refusal in the user's terms.

use flatout_ambient::{Ambient, SettingRow};
use flatout_engine::{Client, Config, Dialect};
use flatout_wire::location::{Location, LocationError};
pub use flatout_wire::words::masked;

use crate::console::Console;
use crate::failure::Failure;
use crate::hint;
use crate::knobs::Knobs;

/// An engine with the settings and keys of flags and environment, for locations of these dialects; what the
/// user should know of them is said. It starts nothing before its first use.
pub fn client(console: &Console, knobs: &Knobs, dialects: &[Dialect]) -> Result<Client, Failure> {
    let found = flatout_ambient::gather(knobs.given())?;
    for (_, warning) in found.warnings.iter().filter(|(dialect, _)| dialects.contains(dialect)) {
        console.warn(warning);
    }
    let client = made(found, dialects)?;
    if let Some(note) = client.note() {
        console.warn(&hint::worded(note));
    }
    Ok(client)
}

/// As [`client`], but without warnings: for measurements, which make many clients.
pub fn silent_client(knobs: &Knobs, dialects: &[Dialect]) -> Result<Client, Failure> {
    made(flatout_ambient::gather(knobs.given())?, dialects)
}

fn made(found: Ambient, dialects: &[Dialect]) -> Result<Client, Failure> {
    let rows = found.table();
    client_of(found.into(), &rows, dialects)
}

/// An engine with these settings and keys; `rows` say where the settings came from. Those of OSS that are
/// wrong are wrong only where `dialects` has OSS: they may be another program's.
pub fn client_of(config: Config, rows: &[SettingRow], dialects: &[Dialect]) -> Result<Client, Failure> {
    let client = Client::new(config).map_err(|error| wrong_setting(&error, rows))?;
    if dialects.contains(&Dialect::Oss)
        && let Err(error) = client.way_to_buckets(Dialect::Oss)
        && error.setting().is_some()
    {
        return Err(wrong_setting(&error, rows));
    }
    Ok(client)
}

/// Keeps for the next run what this one found of its origins.
pub fn remember(client: &Client) {
    flatout_ambient::remember(&client.paces());
}

/// A setting is named by where its value came from: `--region`, `AWS_REGION`, a place in a file.
fn wrong_setting(error: &flatout_engine::Error, rows: &[SettingRow]) -> Failure {
    let failure = Failure::from(error);
    let name = match error.setting() {
        Some(name) => name,
        None if error.doing().is_empty() => {
            return Failure { message: format!("settings: {}", failure.message), ..failure };
        }
        None => return failure,
    };
    // The variables of proxies are rows of their own.
    let others = ["https-proxy", "http-proxy"].iter().filter(|_| name == "proxy");
    let names = std::iter::once(&name).chain(others);
    let row =
        names.filter_map(|name| rows.iter().find(|row| row.name == *name && !row.place.is_empty())).next();
    let place = row.map_or(name, |row| row.place.as_str());
    Failure { message: format!("settings: {place}: {}", error.cause()), ..failure }
}

/// The location that `typed` means.
pub fn location(doing: &str, typed: &str) -> Result<Location, Failure> {
    Location::parse(typed).map_err(|wrong| {
        if matches!(wrong, LocationError::NotALocation { .. }) && is_a_path(typed) {
            let failure = Failure::usage(format!("{doing}: {typed}: this is a path, and a URL is wanted"));
            return failure.with_hint(FORMS);
        }
        let failure = Failure::usage(format!("{doing}: {}: {wrong}", masked(typed)));
        match ["write s3://", "write oss://"].iter().any(|form| failure.message.contains(form)) {
            true => failure,
            false => failure.with_hint(FORMS),
        }
    })
}

const FORMS: &str = "objects are named s3://BUCKET/KEY, oss://BUCKET/KEY or https://HOST[:PORT]/PATH";

/// Whether what is no location is the path of a file for certain, or standard input: no bucket is called so.
pub fn is_a_path(typed: &str) -> bool {
    typed == "-" || ["./", "../", "/", "~/"].iter().any(|start| typed.starts_with(start))
}

/// The location of one object: a bucket or a prefix is refused with what to do instead.
pub fn object(doing: &str, typed: &str) -> Result<Location, Failure> {
    let location = location(doing, typed)?;
    let Some((bucket, key)) = location.in_bucket() else { return Ok(location) };
    if !key.is_empty() && !key.ends_with('/') {
        return Ok(location);
    }
    let what = if key.is_empty() { "a bucket" } else { "a prefix" };
    let failure = Failure::usage(format!("{doing}: {location}: this names {what}, and one object is wanted"));
    let whole = if doing == "read" { "; `flatout cp -r` copies all below it" } else { "" };
    let scheme = location.scheme();
    Err(failure.with_hint(format!(
        "name an object; `flatout ls {scheme}://{bucket}/{key}` shows what there is{whole}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_is_wanted() {
        let check = |typed: &str, why: &str| {
            let failure = object("read", typed).unwrap_err();
            assert!(failure.message.contains(why), "{}", failure.message);
            assert!(failure.hint.is_some() || failure.message.contains("write "), "{}", failure.message);
        };
        check("s3://bucket", "a bucket");
        check("s3://bucket/folder/", "a prefix");
        check("oss://bucket", "a bucket");
        check("folder/file", "is no location");
        check("./a", "./a: this is a path, and a URL is wanted");
        check("-", "-: this is a path");
        check("s3:/bucket/key", "write s3://bucket/key");
        assert!(object("read", "s3://bucket/key").is_ok());
        assert!(object("read", "http://host/").is_ok());
    }
}
