//! `flatout cat`: objects to standard output, one after the other.

use std::time::Instant;

use flatout_engine::{Dialect, LimitedBy};

use crate::args::Cat;
use crate::commands::cp::object_event;
use crate::console::{Carries, Console};
use crate::download::Download;
use crate::events::Summary;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::limited::{self, Limited};
use crate::{origin, outages};

/// The first failure ends it: what came after a hole would be taken for a whole.
pub fn run(args: &Cat, console: &Console) -> Result<Exit, Failure> {
    let typed = args.sources.iter();
    let locations: Vec<_> = typed.map(|typed| origin::location("read", typed)).collect::<Result<_, _>>()?;
    let dialects: Vec<_> = locations.iter().map(Dialect::of).collect();
    let client = origin::client(console, &args.knobs, &dialects)?;
    outages::tell(&client, console, Carries::Bytes);
    let typed = args.sources.iter();
    let sources: Vec<_> =
        typed.map(|typed| origin::object_or_mark(&client, "read", typed)).collect::<Result<_, _>>()?;
    let start = Instant::now();
    let mut summary = Summary { action: "download", objects: sources.len() as u64, ..Default::default() };
    // What held back the object that took longest, and its seconds.
    let mut longest: Option<(f64, LimitedBy)> = None;
    let mut exit = Exit::Clean;
    for location in &sources {
        let download = Download { client: &client, location, span: args.range.as_ref(), console };
        let outcome = download.to_stdout();
        if let Err(failure) = &outcome.result
            && failure.is_silent()
        {
            origin::remember_of(console, &client);
            return Ok(failure.exit);
        }
        console.event(Carries::Bytes, &object_event(location, None, &outcome))?;
        summary.fetched += outcome.fetched_bytes;
        match outcome.result {
            Ok(done) => {
                summary.ok += 1;
                summary.bytes += done.bytes;
                if let Some(by) = done.limited_by
                    && longest.is_none_or(|(seconds, _)| done.seconds > seconds)
                {
                    longest = Some((done.seconds, by));
                }
            }
            Err(failure) => {
                summary.failed += 1;
                console.failure(Carries::Bytes, &failure);
                exit = failure.exit;
                break;
            }
        }
    }
    origin::remember_of(console, &client);
    summary.skipped = summary.objects - summary.ok - summary.failed;
    summary.seconds = start.elapsed().as_secs_f64();
    let limited_by = longest.map(|(_, by)| by);
    summary.limited_by = limited_by.map(Limited::from);
    summary.exit = exit.code();
    // Beside the bar, where somebody looks on.
    if let Some(line) =
        limited::line(limited_by, summary.seconds).filter(|_| console.bar_wanted(Carries::Bytes))
    {
        console.warn(&line);
    }
    console.event(Carries::Bytes, &summary)?;
    Ok(exit)
}
