//! `flatout mb` and `flatout rb`: buckets made, and deleted.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::Arc;

use flatout_engine::{Client, Dialect, Entry};
use flatout_settings::format_size;
use flatout_wire::location::Location;

use crate::args::{Mb, Rb};
use crate::commands::repeats::counted;
use crate::commands::rm::Removal;
use crate::commands::uploads::{by_origins_clock, unix_seconds};
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::select::Source;
use crate::{origin, outages};

/// What a bucket holds.
#[derive(Default)]
struct Contents {
    objects: u64,
    bytes: u64,
    uploads: u64,
    /// When the newest of the objects was written, in Unix seconds by the origin's clock.
    newest_s: u64,
    /// When they were counted.
    limit_s: u64,
}

pub fn make(args: &Mb, console: &Console) -> Result<Exit, Failure> {
    let (bucket, client) = bucket("make", &args.bucket, &args.knobs, console)?;
    client.create_bucket(&bucket)?;
    console.say(&format!("made {bucket}"))?;
    tell(&bucket, "make", "ok", None, console)?;
    Ok(Exit::Clean)
}

pub fn remove(args: &Rb, console: &Console) -> Result<Exit, Failure> {
    let (bucket, client) = bucket("delete", &args.bucket, &args.knobs, console)?;
    let mut contents = None;
    if args.force {
        let counted = count(&bucket, &client)?;
        let will = format!("{bucket}: {}", worded(&counted));
        if !args.yes {
            ask(&will)?;
        } else if counted.objects + counted.uploads > 0 {
            console.say(&format!("deleting {will}"))?;
            console.flush()?;
        }
        tell(&bucket, "delete", "planned", Some(&counted), console)?;
        if let Some(exit) = empty(&bucket, &client, &counted, console)? {
            return Ok(exit);
        }
        contents = Some(counted);
    }
    client.delete_bucket(&bucket).map_err(|error| {
        let failure = Failure::from(error);
        match (failure.message.contains("not empty"), args.force) {
            (true, false) => {
                failure.with_hint(format!("to delete what it holds, too: `flatout rb --force {bucket}`"))
            }
            (true, true) => failure.with_hint(
                "what came meanwhile is left, or older versions of objects: `flatout ls -r` shows the former",
            ),
            _ => failure,
        }
    })?;
    console.say(&format!("deleted {bucket}"))?;
    tell(&bucket, "delete", "ok", contents.as_ref(), console)?;
    Ok(Exit::Clean)
}

fn bucket(
    doing: &'static str,
    typed: &str,
    knobs: &Knobs,
    console: &Console,
) -> Result<(Location, Arc<Client>), Failure> {
    let location = origin::location(doing, typed)?;
    let Some((_, key)) = location.in_bucket() else {
        let failure = Failure::usage(format!("{doing}: {location}: a plain http server has no buckets"));
        return Err(failure.with_hint("name a bucket: s3://BUCKET or oss://BUCKET"));
    };
    if !key.is_empty() {
        let failure = Failure::usage(format!("{doing}: {location}: this names what is in a bucket"));
        let hint = match doing {
            "delete" => "to delete objects: `flatout rm`",
            _ => "folders need not be made: they are part of the keys of objects",
        };
        return Err(failure.with_hint(hint));
    }
    let bucket = location.with_key("").expect("it is in a bucket");
    let client = origin::client(console, knobs, &[Dialect::of(&bucket)])?;
    outages::tell_without_bar(&client, console);
    Ok((bucket, client))
}

fn count(bucket: &Location, client: &Client) -> Result<Contents, Failure> {
    let mut contents = Contents::default();
    let begun_s = unix_seconds();
    for entry in client.list(bucket, true)? {
        if let Entry::Object(listed) = entry? {
            contents.objects += 1;
            contents.newest_s = contents.newest_s.max(listed.last_modified);
            contents.bytes += listed.size;
        }
    }
    for upload in client.uploads(bucket)? {
        upload?;
        contents.uploads += 1;
    }
    // An object that is written during the listing may be missing in the count. Clocks state whole seconds.
    contents.limit_s = by_origins_clock(client, begun_s) + 1;
    contents.newest_s = contents.newest_s.min(contents.limit_s);
    Ok(contents)
}

fn worded(contents: &Contents) -> String {
    let Contents { objects, bytes, uploads, .. } = contents;
    let (objects, uploads) = (counted(*objects, "object"), counted(*uploads, "unfinished upload"));
    format!("{objects} ({}) and {uploads}", format_size(*bytes))
}

/// Goes on only where the terminal says so.
fn ask(will: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        let failure = Failure::usage(format!("delete: {will} would be deleted, and nobody is there to ask"));
        return Err(failure.with_hint("--yes lets it"));
    }
    // A question that cannot be written is not answered either.
    let _ = write!(io::stderr().lock(), "delete {will}? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::local("read", "standard input", &error))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::interrupted(format!("delete: {will}: left as they are"))),
    }
}

/// Deletes what the bucket holds; the exit code where that did not go well.
fn empty(
    bucket: &Location,
    client: &Client,
    contents: &Contents,
    console: &Console,
) -> Result<Option<Exit>, Failure> {
    if contents.uploads > 0 {
        for upload in client.uploads(bucket)? {
            let upload = upload?;
            if upload.begun_s.is_some_and(|begun_s| begun_s > contents.limit_s) {
                continue;
            }
            client.abort_upload(&upload.location, &upload.id)?;
        }
    }
    if contents.objects > 0 {
        let mut removal = Removal::new(console, false);
        let source = Source::folder(bucket).expect("a bucket can be listed");
        removal.delete_up_to(client, &source, contents.newest_s)?;
        let exit = removal.exit();
        if exit != Exit::Clean {
            return removal.conclude(false).map(Some);
        }
    }
    Ok(None)
}

fn tell(
    bucket: &Location,
    action: &'static str,
    status: &'static str,
    contents: Option<&Contents>,
    console: &Console,
) -> Result<(), Failure> {
    console.event(
        Carries::Lines,
        &events::Bucket {
            action,
            status,
            bucket: bucket.bucket().unwrap_or_default().to_owned(),
            region: None,
            objects: contents.map(|contents| contents.objects),
            bytes: contents.map(|contents| contents.bytes),
            uploads: contents.map(|contents| contents.uploads),
        },
    )
}
