//! From what was typed to an engine and a location, with every refusal in the user's terms.

use std::sync::Arc;

use flatout_ambient::Ambient;
use flatout_engine::{Client, Dialect, ErrorKind};
use flatout_wire::location::{Location, LocationError};
pub use flatout_wire::words::masked;

use crate::console::Console;
pub use crate::engines::{client_of, remember};
use crate::failure::Failure;
use crate::hint;
use crate::knobs::Knobs;

/// An engine with the settings and keys of flags and environment, for locations of these dialects; what the
/// user should know of them is said. It starts nothing before its first use. Lines of `flatout run` with the
/// same settings share one.
pub fn client(console: &Console, knobs: &Knobs, dialects: &[Dialect]) -> Result<Arc<Client>, Failure> {
    match console.line_of_run() {
        Some(line) => line.engines.client(&|warning| console.warn(warning), knobs, dialects),
        None => own_client(console, knobs, dialects).map(Arc::new),
    }
}

fn own_client(console: &Console, knobs: &Knobs, dialects: &[Dialect]) -> Result<Client, Failure> {
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

/// [`remember`], of a command that may be a line of `flatout run`, which does it once for all its lines.
pub fn remember_of(console: &Console, client: &Client) {
    if console.line_of_run().is_none() {
        remember(client);
    }
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
    Err(no_object(doing, &location, bucket, key))
}

/// As [`object`], but a key that ends in '/' names the object of that very key, the mark of a folder, where
/// there is one. Who names a version knows of one.
pub fn object_or_mark(
    client: &Client,
    doing: &str,
    typed: &str,
    version_id: Option<&str>,
) -> Result<Location, Failure> {
    let location = location(doing, typed)?;
    let Some((bucket, key)) = location.in_bucket() else { return Ok(location) };
    let may_be_prefix = key.ends_with('/') && version_id.is_none();
    if key.is_empty() || may_be_prefix && !is_mark(client, &location)? {
        return Err(no_object(doing, &location, bucket, key));
    }
    Ok(location)
}

/// Whether there is an object whose key ends in '/'. To who may not list, a missing one is forbidden, too.
fn is_mark(client: &Client, location: &Location) -> Result<bool, Failure> {
    match client.stat(location) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Denied) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The refusal of a bucket or a prefix where one object is wanted.
pub fn no_object(doing: &str, location: &Location, bucket: &str, key: &str) -> Failure {
    let what = if key.is_empty() { "a bucket" } else { "a prefix" };
    let failure = Failure::usage(format!("{doing}: {location}: this names {what}, and one object is wanted"));
    let whole = if doing == "read" { "; `flatout cp -r` copies all below it" } else { "" };
    let scheme = location.scheme();
    failure.with_hint(format!(
        "name an object; `flatout ls {scheme}://{bucket}/{key}` shows what there is{whole}"
    ))
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
