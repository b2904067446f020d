//! `flatout cat`: objects to standard output, one after the other.

use std::time::Instant;

use flatout_engine::{Client, Dialect, Entry, LimitedBy};
use flatout_wire::location::Location;

use crate::args;
use crate::commands::cp::object_event;
use crate::commands::cp_many::no_listing;
use crate::console::{Carries, Console};
use crate::download::Download;
use crate::events::Summary;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::limited::{self, Limited};
use crate::select::Source;
use crate::{origin, outages};

/// What one argument means.
enum Plan {
    One(Location),
    /// As it was asked for, in the order of the listing, which is that of keys.
    Many(Location, Source),
}

pub fn run(args: &args::Cat, console: &Console) -> Result<Exit, Failure> {
    refuse_version_of_many(args)?;
    let typed = args.sources.iter();
    let locations: Vec<_> = typed.map(|typed| origin::location("read", typed)).collect::<Result<_, _>>()?;
    let dialects: Vec<_> = locations.iter().map(Dialect::of).collect();
    let client = origin::client(console, &args.knobs, &dialects)?;
    outages::tell(&client, console, Carries::Bytes);
    let typed = args.sources.iter();
    let plans: Vec<Plan> = typed.map(|typed| plan(args, typed, &client)).collect::<Result<_, _>>()?;
    let mut cat = Cat {
        args,
        client: &client,
        console,
        summary: Summary { action: "download", ..Default::default() },
        longest: None,
        ended: None,
        start: Instant::now(),
    };
    for plan in &plans {
        match plan {
            // Those behind a failure are named, and not tried.
            Plan::One(_) if cat.ended.is_some() => cat.summary.objects += 1,
            Plan::Many(..) if cat.ended.is_some() => {}
            Plan::One(location) => cat.write(location)?,
            Plan::Many(typed, source) => cat.write_all(typed, source)?,
        }
    }
    origin::remember(&client);
    cat.conclude()
}

fn refuse_version_of_many(args: &args::Cat) -> Result<(), Failure> {
    match (&args.version_id, args.sources.len()) {
        (Some(_), 2..) => {
            let failure = Failure::usage("read: --version-id is about one object");
            Err(failure.with_hint("name one object, or write `flatout cat` for each"))
        }
        _ => Ok(()),
    }
}

/// Wildcards may be part of a key: an object that is called so comes first.
fn plan(args: &args::Cat, typed: &str, client: &Client) -> Result<Plan, Failure> {
    let (location, version_id) = (origin::location("read", typed)?, args.version_id.as_deref());
    let is_pattern = Source::is_pattern(&location)
        && version_id.is_none()
        && (args.recursive || client.stat(&location).is_err());
    let source = match (is_pattern, args.recursive) {
        (true, _) => Source::pattern(&location, args.recursive)?,
        (false, true) => Source::folder(&location),
        (false, false) => {
            return origin::object_or_mark(client, "read", typed, version_id).map(Plan::One);
        }
    };
    match source {
        Some(source) => Ok(Plan::Many(location, source)),
        None => Err(no_listing("read", &location)),
    }
}

/// How a run ends before its last object.
enum Ended {
    Failed(Exit),
    /// The reader has enough: a clean end without a word.
    ReaderGone(Exit),
}

/// Objects that are written, and what has been told of them so far.
struct Cat<'a> {
    args: &'a args::Cat,
    client: &'a Client,
    console: &'a Console,
    summary: Summary,
    /// What held back the object that took longest, and its seconds.
    longest: Option<(f64, LimitedBy)>,
    /// The first failure ends it: what came after a hole would be taken for a whole.
    ended: Option<Ended>,
    start: Instant,
}

impl Cat<'_> {
    fn write_all(&mut self, typed: &Location, source: &Source) -> Result<(), Failure> {
        let before = self.summary.objects;
        for entry in self.client.list(&source.location, source.deep)? {
            let entry = match entry {
                Ok(entry) if source.means(&entry) => entry,
                Ok(_) => continue,
                Err(error) => {
                    let failure = Failure::from(error);
                    let is_known = self.summary.objects == before || failure.exit == Exit::Refused;
                    let exit = if is_known { failure.exit } else { Exit::Incomplete };
                    self.fail(&Failure { exit, ..failure });
                    return Ok(());
                }
            };
            let Entry::Object(listed) = entry else { continue };
            let Some(location) = source.location.with_key(listed.key) else { continue };
            if self.console.interrupt.raised() {
                self.fail(&Failure::interrupted(format!("read: {location}: interrupted")));
                return Ok(());
            }
            self.write(&location)?;
            if self.ended.is_some() {
                return Ok(());
            }
        }
        if self.summary.objects == before {
            let failure = Failure::not_found(format!("read: {typed}: no object there"));
            self.fail(&failure.with_hint("`flatout ls` shows what there is"));
        }
        Ok(())
    }

    fn write(&mut self, location: &Location) -> Result<(), Failure> {
        self.summary.objects += 1;
        let download = Download {
            client: self.client,
            location,
            version_id: self.args.version_id.as_deref(),
            span: self.args.range.as_ref(),
            console: self.console,
        };
        let outcome = download.to_stdout();
        if let Err(failure) = &outcome.result
            && failure.is_silent()
        {
            self.ended = Some(Ended::ReaderGone(failure.exit));
            return Ok(());
        }
        self.console.event(Carries::Bytes, &object_event(location, None, &outcome))?;
        self.summary.fetched += outcome.fetched_bytes;
        match outcome.result {
            Ok(done) => {
                self.summary.ok += 1;
                self.summary.bytes += done.bytes;
                if let Some(by) = done.limited_by
                    && self.longest.is_none_or(|(seconds, _)| done.seconds > seconds)
                {
                    self.longest = Some((done.seconds, by));
                }
            }
            Err(failure) => {
                self.summary.failed += 1;
                self.fail(&failure);
            }
        }
        Ok(())
    }

    fn fail(&mut self, failure: &Failure) {
        self.console.failure(Carries::Bytes, failure);
        self.ended = Some(Ended::Failed(failure.exit));
    }

    /// The last event, and the code to exit with.
    fn conclude(mut self) -> Result<Exit, Failure> {
        let exit = match self.ended {
            Some(Ended::ReaderGone(exit)) => return Ok(exit),
            Some(Ended::Failed(exit)) => exit,
            None => Exit::Clean,
        };
        self.summary.skipped = self.summary.objects - self.summary.ok - self.summary.failed;
        self.summary.seconds = self.start.elapsed().as_secs_f64();
        let limited_by = self.longest.map(|(_, by)| by);
        self.summary.limited_by = limited_by.map(Limited::from);
        self.summary.exit = exit.code();
        // Beside the bar, where somebody looks on.
        if let Some(line) = limited::line(limited_by, self.summary.seconds)
            .filter(|_| self.console.bar_wanted(Carries::Bytes))
        {
            self.console.warn(&line);
        }
        self.console.event(Carries::Bytes, &self.summary)?;
        Ok(exit)
    }
}
