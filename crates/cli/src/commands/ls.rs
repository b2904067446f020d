//! `flatout ls`: buckets, or what lies under a prefix, line by line as the pages arrive.

use flatout_engine::{Client, Dialect, Entry, Listed};
use flatout_settings::format_size;
use flatout_wire::location::Location;
use flatout_wire::time;

use crate::args::Ls;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::select::Source;
use crate::{origin, outages};

pub fn run(args: &Ls, console: &Console) -> Result<Exit, Failure> {
    let is_oss = args.location.as_deref().is_some_and(|typed| typed.starts_with("oss://"));
    let client = origin::client(console, &args.knobs, &[if is_oss { Dialect::Oss } else { Dialect::S3 }])?;
    outages::tell_without_bar(&client, console);
    let mut summary = events::ListSummary { action: "list", ..Default::default() };
    let outcome = match args.location.as_deref() {
        None | Some("s3://" | "s3:///") => buckets(args, Dialect::S3, &client, console, &mut summary),
        Some("oss://" | "oss:///") => buckets(args, Dialect::Oss, &client, console, &mut summary),
        Some(typed) => entries(args, &origin::location("list", typed)?, &client, console, &mut summary),
    };
    let exit = match outcome {
        Ok(()) => Exit::Clean,
        Err(failure) if failure.is_silent() => return Ok(failure.exit),
        Err(failure) => {
            console.failure(Carries::Lines, &failure);
            failure.exit
        }
    };
    summary.exit = exit.code();
    console.event(Carries::Lines, &summary)?;
    Ok(exit)
}

fn buckets(
    args: &Ls,
    dialect: Dialect,
    client: &Client,
    console: &Console,
    summary: &mut events::ListSummary,
) -> Result<(), Failure> {
    let scheme = if dialect == Dialect::Oss { "oss" } else { "s3" };
    for bucket in client.buckets(dialect)? {
        let created = stamp(bucket.created);
        let name = one_line(&bucket.name);
        let line = if long(args) {
            format!("{} {scheme}://{name}", created.text)
        } else {
            format!("{scheme}://{name}")
        };
        console.answer(&line)?;
        summary.buckets += 1;
        console.event(
            Carries::Lines,
            &events::Entry {
                kind: "bucket",
                key: bucket.name,
                bytes: None,
                last_modified: created.json,
                etag: None,
                storage_class: None,
            },
        )?;
    }
    Ok(())
}

fn entries(
    args: &Ls,
    location: &Location,
    client: &Client,
    console: &Console,
    summary: &mut events::ListSummary,
) -> Result<(), Failure> {
    let source = match Source::is_pattern(location) {
        true => Source::pattern(location, args.recursive)?,
        false => Source::prefix(location, args.recursive),
    };
    let Some(source) = source else {
        let failure = Failure::usage(format!("list: {location}: plain HTTP has no listing"));
        return Err(failure.with_hint("for a bucket write s3://BUCKET/PREFIX and --endpoint-url"));
    };
    // Names are shown from the folder that was asked for, as ls shows them; events hold whole keys.
    let folder_bytes = source.folder_bytes;
    for entry in client.list(&source.location, source.deep)? {
        let entry = entry?;
        let path = entry.name().get(folder_bytes..).unwrap_or_default();
        if !source.means(&entry) || matches!(entry, Entry::Object(_)) && !args.filters.take(path) {
            continue;
        }
        match entry {
            Entry::Prefix(name) => {
                summary.prefixes += 1;
                console.answer(&prefix_line(args, shown(&name, folder_bytes)))?;
                console.event(Carries::Lines, &prefix_event(name))?;
            }
            Entry::Object(Listed { key, size, etag, last_modified, storage_class }) => {
                summary.objects += 1;
                summary.bytes += size;
                let modified = stamp(last_modified);
                console.answer(&object_line(args, shown(&key, folder_bytes), size, &modified.text))?;
                let (kind, bytes) = ("object", Some(size));
                let last_modified = modified.json;
                console.event(
                    Carries::Lines,
                    &events::Entry { kind, key, bytes, last_modified, etag, storage_class },
                )?;
            }
        }
    }
    if summary.objects + summary.prefixes > 0 || location.key().is_empty() {
        return Ok(());
    }
    Err(Failure {
        exit: Exit::Failed,
        kind: "not_found".into(),
        message: format!("list: {location}: nothing there"),
        hint: Some(match Source::is_pattern(location) {
            true => {
                format!("no key matches this pattern; `flatout ls {}` shows what there is", source.location)
            }
            false => "a prefix is part of a key: look one level up".into(),
        }),
    })
}

fn long(args: &Ls) -> bool {
    args.long || args.human_readable
}

fn shown(key: &str, folder_bytes: usize) -> String {
    one_line(key.get(folder_bytes..).filter(|name| !name.is_empty()).unwrap_or(key))
}

fn prefix_line(args: &Ls, name: String) -> String {
    if long(args) { format!("{:20} {:>14} {name}", "", "-") } else { name }
}

fn object_line(args: &Ls, name: String, bytes: u64, modified: &str) -> String {
    match (long(args), args.human_readable) {
        (false, _) => name,
        (true, false) => format!("{modified:20} {bytes:>14} {name}"),
        (true, true) => format!("{modified:20} {:>14} {name}", format_size(bytes)),
    }
}

fn prefix_event(key: String) -> events::Entry {
    events::Entry { kind: "prefix", key, bytes: None, last_modified: None, etag: None, storage_class: None }
}

/// A time for people, and for JSON where it is absent if the origin did not state it.
struct Stamp {
    text: String,
    json: Option<String>,
}

fn stamp(unix_seconds: u64) -> Stamp {
    match unix_seconds {
        0 => Stamp { text: "-".into(), json: None },
        seconds => {
            let text = time::format_iso(seconds);
            Stamp { json: Some(text.clone()), text }
        }
    }
}
