//! `flatout stat`: what the origin says about an object, or about a bucket.

use flatout_engine::{BucketStat, Client, Dialect, Stat};
use flatout_settings::format_size;
use flatout_wire::checksum;
use flatout_wire::head::{Checksum, Coverage};
use flatout_wire::location::Location;

use crate::args;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::{origin, outages};

pub fn run(args: &args::Stat, console: &Console) -> Result<Exit, Failure> {
    let location = origin::location("stat", &args.source)?;
    let client = origin::client(console, &args.knobs, &[Dialect::of(&location)])?;
    outages::tell_without_bar(&client, console);
    if location.in_bucket().is_some_and(|(_, key)| key.is_empty()) {
        return bucket(&location, args, &client, console);
    }
    let version_id = args.version_id.as_deref();
    let location = origin::object_or_mark(&client, "stat", &args.source, version_id)?;
    let stat = client.stat_version(&location, version_id)?;
    console.answer(&one_line(&location.to_string()))?;
    for (name, value) in rows(&stat) {
        console.answer(&format!("  {name:14} {}", one_line(&value)))?;
    }
    console.event(Carries::Lines, &event(&location, stat))?;
    Ok(Exit::Clean)
}

fn bucket(
    location: &Location,
    args: &args::Stat,
    client: &Client,
    console: &Console,
) -> Result<Exit, Failure> {
    if args.version_id.is_some() {
        let failure = Failure::usage(format!("stat: {location}: --version-id is about one object"));
        return Err(failure.with_hint("name an object, or leave it out"));
    }
    let BucketStat { region } = client.stat_bucket(location)?;
    console.answer(&one_line(&location.to_string()))?;
    if let Some(region) = &region {
        console.answer(&format!("  {:14} {}", "region", one_line(region)))?;
    }
    let bucket = location.bucket().unwrap_or_default().to_owned();
    let event = events::Bucket { action: "stat", status: "ok", bucket, region, ..Default::default() };
    console.event(Carries::Lines, &event)?;
    Ok(Exit::Clean)
}

/// What is known, in the order in which it is asked for most.
fn rows(stat: &Stat) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: Option<String>| {
        rows.extend(value.map(|value| (name.to_owned(), value)));
    };
    row("size", stat.version.size.map(|bytes| format!("{bytes} ({})", format_size(bytes))));
    row("modified", stat.version.last_modified.clone());
    row("etag", stat.version.etag.clone());
    row("type", stat.content_type.clone());
    row("class", stat.storage_class.clone());
    row("made", stat.object_type.clone());
    row("parts", stat.parts_count.map(|parts| parts.to_string()));
    for checksum in &stat.checksums {
        let composite = match checksum.kind {
            Coverage::Full => String::new(),
            Coverage::Composite { parts } => format!(" (of {parts} parts' checksums)"),
        };
        row(checksum.algorithm.name(), Some(format!("{}{composite}", encoded(checksum))));
    }
    for (name, value) in &stat.metadata {
        row(name, Some(value.clone()));
    }
    rows
}

fn event(location: &Location, stat: Stat) -> events::Stat {
    events::Stat {
        key: location.key().to_owned(),
        source: location.to_string(),
        bytes: stat.version.size,
        etag: stat.version.etag,
        last_modified: stat.version.last_modified,
        content_type: stat.content_type,
        storage_class: stat.storage_class,
        object_type: stat.object_type,
        parts_count: stat.parts_count,
        checksums: stat.checksums.iter().map(checksum_event).collect(),
        metadata: stat.metadata.into_iter().collect(),
    }
}

pub fn checksum_event(checksum: &Checksum) -> events::Checksum {
    let composite_of = match checksum.kind {
        Coverage::Full => None,
        Coverage::Composite { parts } => Some(parts),
    };
    events::Checksum { algorithm: checksum.algorithm.name(), value: encoded(checksum), composite_of }
}

fn encoded(checksum: &Checksum) -> String {
    checksum::Algorithm::encode(checksum.algorithm, checksum.value)
}
