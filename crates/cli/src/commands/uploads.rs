//! `flatout uploads`: uploads that were neither completed nor aborted, listed and cleared.

use std::time::{SystemTime, UNIX_EPOCH};

use flatout_engine::{Client, Dialect, UnfinishedUpload};
use flatout_wire::time;

use crate::args::Uploads;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::{origin, outages};

pub fn run(args: &Uploads, console: &Console) -> Result<Exit, Failure> {
    let location = origin::location("list uploads", &args.location)?;
    if location.bucket().is_none() {
        let failure = Failure::usage(format!("list uploads: {location}: a plain http server has no uploads"));
        return Err(failure.with_hint("name a bucket by s3:// or oss://"));
    }
    if args.abort && args.older_than.is_none() && location.key().is_empty() {
        let why =
            format!("list uploads: {location}: --abort of a whole bucket ends uploads that are running, too");
        return Err(Failure::usage(why).with_hint("add --older-than 1d, or 0s for all that there are"));
    }
    let client = origin::client(console, &args.knobs, &[Dialect::of(&location)])?;
    outages::tell_without_bar(&client, console);
    let mut summary = events::UploadsSummary { action: "uploads", ..Default::default() };
    let mut exit = Exit::Clean;
    for upload in client.uploads(&location)? {
        let upload = match upload {
            Ok(upload) => upload,
            Err(error) if summary.uploads == 0 => return Err(error.into()),
            Err(error) => {
                let failure = Failure::from(error);
                let kept = if failure.exit == Exit::Refused { Exit::Refused } else { Exit::Incomplete };
                let failure = Failure { exit: kept, ..failure };
                console.failure(Carries::Lines, &failure);
                exit = exit.max(failure.exit);
                break;
            }
        };
        if !is_meant(args, &upload, &client) {
            continue;
        }
        summary.uploads += 1;
        let mut status = "unfinished";
        if args.abort {
            status = match client.abort_upload(&upload.location, &upload.id) {
                Ok(()) => "aborted",
                Err(error) => {
                    let failure = Failure::from(error);
                    console.failure(Carries::Lines, &failure);
                    exit = exit.max(failure.exit);
                    "failed"
                }
            };
            summary.aborted += u64::from(status == "aborted");
            summary.failed += u64::from(status == "failed");
        }
        tell(&upload, status, args.abort, console)?;
    }
    summary.exit = exit.code();
    console.event(Carries::Lines, &summary)?;
    Ok(exit)
}

/// Whether it is old enough, by the origin's clock.
fn is_meant(args: &Uploads, upload: &UnfinishedUpload, client: &Client) -> bool {
    let Some(older_than) = args.older_than.filter(|age| !age.is_zero()) else { return true };
    let there = by_origins_clock(client, unix_seconds());
    upload.begun_s.is_some_and(|begun_s| begun_s.saturating_add(older_than.as_secs()) <= there)
}

/// A time of this machine's clock by that of the origin, as far as that is known. Both in Unix seconds.
pub fn by_origins_clock(client: &Client, here_s: u64) -> u64 {
    here_s.saturating_add_signed(client.origin_ahead_s().unwrap_or(0))
}

/// Now.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn tell(
    upload: &UnfinishedUpload,
    status: &'static str,
    is_report: bool,
    console: &Console,
) -> Result<(), Failure> {
    let begun = upload.begun_s.map(time::format_iso);
    let (when, name) = (begun.as_deref().unwrap_or("-"), one_line(&upload.location.to_string()));
    let line = format!("{when:20} {} {name}", one_line(&upload.id));
    match (is_report, status) {
        (false, _) => console.answer(&line)?,
        // That of one that failed has its error.
        (true, "aborted") => console.say(&format!("aborted {line}"))?,
        (true, _) => {}
    }
    console.event(
        Carries::Lines,
        &events::Upload {
            status,
            key: upload.location.key().to_owned(),
            source: upload.location.to_string(),
            upload_id: upload.id.clone(),
            begun,
        },
    )
}
