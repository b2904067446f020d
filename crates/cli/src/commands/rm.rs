//! `flatout rm`: single objects, the matches of a pattern, or everything below a prefix.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flatout_engine::{
    Client, Deleted, DeletedMany, Deletion, Dialect, Entry, Error, ErrorKind, ManyProgress,
};
use flatout_settings::format_size;
use flatout_wire::location::Location;

use crate::args::Rm;
use crate::commands::copied::all_left_out;
use crate::commands::failures::Failures;
use crate::commands::repeats::{counted, grouped};
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::progress::Bar;
use crate::select::{Filters, Source};
use crate::{origin, outages};

/// What one argument means.
enum Plan {
    One(Location),
    Many(Source),
}

pub fn run(args: &Rm, console: &Console) -> Result<Exit, Failure> {
    let locations: Vec<Location> =
        args.sources.iter().map(|typed| origin::location("delete", typed)).collect::<Result<_, _>>()?;
    // All of it before anything is deleted.
    for location in &locations {
        check(args, location)?;
    }
    let dialects: Vec<_> = locations.iter().map(Dialect::of).collect();
    let client = origin::client(console, &args.knobs, &dialects)?;
    outages::tell(&client, console, Carries::Lines);
    let plans: Vec<Plan> =
        locations.into_iter().map(|location| plan(args, location, &client)).collect::<Result<_, _>>()?;
    let mut removal = Removal::new(console, args.verbose);
    for plan in plans {
        match plan {
            Plan::One(location) if args.dry_run => removal.would_delete_one(&client, &location, args)?,
            Plan::One(location) => removal.delete_one(&client, &location, args)?,
            Plan::Many(source) if args.dry_run => removal.would_delete(&client, &source, &args.filters)?,
            Plan::Many(source) => removal.delete_many(&client, &source, &args.filters)?,
        }
        if console.interrupt.raised() {
            break;
        }
    }
    removal.conclude(args.dry_run)
}

fn check(args: &Rm, location: &Location) -> Result<(), Failure> {
    let Some((bucket, key)) = location.in_bucket() else {
        let failure = Failure::usage(format!("delete: {location}: a plain URL cannot be deleted"));
        return Err(failure.with_hint("name the object by s3:// or oss://"));
    };
    let (scheme, is_pattern) = (location.scheme(), Source::is_pattern(location));
    if args.recursive || is_pattern {
        return Ok(());
    }
    if !args.filters.is_empty() {
        let failure =
            Failure::usage(format!("delete: {location}: --include and --exclude choose among many objects"));
        return Err(failure.with_hint("add -r to delete below a folder"));
    }
    if key.is_empty() {
        let failure = Failure::usage(format!("delete: {location}: this names a bucket"));
        return Err(failure.with_hint(format!(
            "to delete all that it holds: `flatout rm -r --all {scheme}://{bucket}`; the bucket: `flatout rb`"
        )));
    }
    Ok(())
}

/// Wildcards may be part of a key: an object that is called so comes first.
fn plan(args: &Rm, location: Location, client: &Client) -> Result<Plan, Failure> {
    let is_pattern = Source::is_pattern(&location)
        && args.version_id.is_none()
        && (args.recursive || !is_object(client, &location)?);
    let source = match (is_pattern, args.recursive) {
        (true, _) => Source::pattern(&location, args.recursive)?,
        (false, true) => Source::folder(&location),
        (false, false) => {
            let names_prefix = location.key().ends_with('/') && args.version_id.is_none();
            if names_prefix && !is_object(client, &location)? {
                return Err(no_mark(&location));
            }
            return Ok(Plan::One(location));
        }
    };
    let source = source.expect("only buckets come so far");
    if source.location.key().is_empty() && !args.all {
        let failure = Failure::usage(format!("delete: {location}: this may be everything in the bucket"));
        return Err(failure.with_hint("--all lets it; --dry-run prints what it would delete"));
    }
    Ok(Plan::Many(source))
}

/// Below a folder without a mark there may be much: that has to be asked for.
fn no_mark(location: &Location) -> Failure {
    let failure =
        Failure::usage(format!("delete: {location}: this names a prefix, and no object has this key"));
    failure.with_hint(format!("`flatout rm -r {location}` deletes everything below it"))
}

/// Whether there is such an object. What could not be asked is not taken for a pattern: that deletes more.
fn is_object(client: &Client, location: &Location) -> Result<bool, Failure> {
    match client.stat(location) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Objects of a source, as they are listed.
struct Listed {
    listing: flatout_engine::Listing,
    source: Source,
    filters: Filters,
    /// How many objects those have left out.
    filtered: Arc<AtomicU64>,
    found: Arc<AtomicU64>,
    found_bytes: Arc<AtomicU64>,
    /// Only what was written by then, in Unix seconds by the origin's clock.
    newest_s: u64,
}

impl Iterator for Listed {
    type Item = Result<Deletion, Error>;

    fn next(&mut self) -> Option<Result<Deletion, Error>> {
        loop {
            let entry = match self.listing.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            if !self.source.means(&entry) {
                continue;
            }
            let Entry::Object(listed) = entry else { continue };
            if !self.filters.take(listed.key.get(self.source.folder_bytes..).unwrap_or_default()) {
                self.filtered.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let Some(location) = self.source.location.with_key(listed.key) else { continue };
            if listed.last_modified > self.newest_s {
                continue;
            }
            self.found.fetch_add(1, Ordering::Relaxed);
            self.found_bytes.fetch_add(listed.size, Ordering::Relaxed);
            return Some(Ok(Deletion { location, bytes: listed.size }));
        }
    }
}

/// Deletes objects until a signal comes or `tell` fails, which hears of each; its failure is returned.
pub fn delete_each(
    client: &Client,
    console: &Console,
    deletions: impl Iterator<Item = Result<Deletion, Error>> + Send + 'static,
    mut tell: impl FnMut(&Bar, &[Deleted]) -> Result<(), Failure>,
) -> Result<DeletedMany, Failure> {
    let _armed = console.interrupt.arm();
    let bar = Bar::new(console, Carries::Lines, "");
    let mut refused = None;
    let done = client.delete_many(deletions, &mut |ended| match tell(&bar, &ended)
        .and_then(|()| console.flush())
    {
        Ok(()) if !console.interrupt.raised() => ControlFlow::Continue(()),
        Ok(()) => ControlFlow::Break(()),
        Err(failure) => {
            refused.get_or_insert(failure);
            ControlFlow::Break(())
        }
    })?;
    refused.map_or(Ok(done), Err)
}

/// Objects that are deleted, and what has been told of them so far.
pub struct Removal<'a> {
    console: &'a Console,
    verbose: bool,
    summary: events::DeleteSummary,
    failures: Failures<'a>,
    /// A source had nothing.
    missed: Vec<Location>,
    /// How many objects the filters left of sources of which nothing else was there.
    filtered: u64,
    /// Whether a source stands for what is listed, so that no object had its own line.
    is_of_many: bool,
    start: Instant,
}

impl<'a> Removal<'a> {
    pub fn new(console: &'a Console, verbose: bool) -> Removal<'a> {
        Removal {
            console,
            verbose,
            summary: events::DeleteSummary { action: "delete", ..Default::default() },
            failures: Failures::new(console, "rm", verbose),
            missed: Vec::new(),
            filtered: 0,
            is_of_many: false,
            start: Instant::now(),
        }
    }

    /// One object, which has to be there.
    fn delete_one(&mut self, client: &Client, location: &Location, args: &Rm) -> Result<(), Failure> {
        let _armed = self.console.interrupt.arm();
        let version_id = args.version_id.as_deref();
        let (bytes, is_seen) = match look(client, location, version_id) {
            Ok(found) => found,
            Err(error) => return self.failed_one(location, version_id, error),
        };
        if let Err(error) = client.delete(location, version_id) {
            return self.failed_one(location, version_id, error);
        }
        self.summary.objects += 1;
        self.summary.ok += 1;
        self.summary.bytes += bytes.unwrap_or(0);
        let unseen = if is_seen { "" } else { ", if it was there: it could not be looked at" };
        self.console.say(&format!("deleted {}{unseen}", shown(location)))?;
        self.event("ok", location, version_id, bytes)
    }

    fn would_delete_one(&mut self, client: &Client, location: &Location, args: &Rm) -> Result<(), Failure> {
        let version_id = args.version_id.as_deref();
        match look(client, location, version_id) {
            Ok((bytes, _)) => self.would(location, version_id, bytes),
            Err(error) => self.failed_one(location, version_id, error),
        }
    }

    fn failed_one(
        &mut self,
        location: &Location,
        version_id: Option<&str>,
        error: Error,
    ) -> Result<(), Failure> {
        self.summary.objects += 1;
        self.summary.failed += 1;
        self.event("failed", location, version_id, None)?;
        let failure = Failure::from(error);
        // It was looked at in order to be deleted.
        let message = match failure.message.strip_prefix("stat: ") {
            Some(rest) => format!("delete: {rest}"),
            None => failure.message,
        };
        self.failures.of_all(&Failure { message, ..failure });
        Ok(())
    }

    fn would(
        &mut self,
        location: &Location,
        version_id: Option<&str>,
        bytes: Option<u64>,
    ) -> Result<(), Failure> {
        self.summary.objects += 1;
        self.summary.bytes += bytes.unwrap_or(0);
        self.console.answer(&format!("would delete {}", shown(location)))?;
        self.event("planned", location, version_id, bytes)
    }

    fn would_delete(&mut self, client: &Client, source: &Source, filters: &Filters) -> Result<(), Failure> {
        let before = self.summary.objects;
        let deletions = listed(client, source, filters)?;
        let filtered = deletions.filtered.clone();
        for deletion in deletions {
            match deletion {
                Ok(deletion) => self.would(&deletion.location, None, Some(deletion.bytes))?,
                Err(error) => {
                    self.broke_off(error, "named");
                    return Ok(());
                }
            }
        }
        self.note_missed(source, before, &filtered);
        Ok(())
    }

    /// Everything that the source means.
    pub fn delete_many(
        &mut self,
        client: &Client,
        source: &Source,
        filters: &Filters,
    ) -> Result<(), Failure> {
        self.delete_listed(client, source, listed(client, source, filters)?)
    }

    /// Everything below the source that was written by then, in Unix seconds by the origin's clock.
    pub fn delete_up_to(&mut self, client: &Client, source: &Source, newest_s: u64) -> Result<(), Failure> {
        let listed = Listed { newest_s, ..listed(client, source, &Filters::default())? };
        self.delete_listed(client, source, listed)
    }

    fn delete_listed(&mut self, client: &Client, source: &Source, deletions: Listed) -> Result<(), Failure> {
        self.is_of_many = true;
        let (console, before) = (self.console, self.summary.objects);
        let (found, found_bytes) = (deletions.found.clone(), deletions.found_bytes.clone());
        let filtered = deletions.filtered.clone();
        let done = delete_each(client, console, deletions, |bar, ended| {
            let told = bar.above(|| ended.iter().try_for_each(|deleted| self.tell(deleted)));
            bar.show_many(&ManyProgress {
                objects: found.load(Ordering::Relaxed),
                total_bytes: found_bytes.load(Ordering::Relaxed),
                ok: self.summary.ok,
                failed: self.summary.failed,
                landed_bytes: self.summary.bytes,
                ..ManyProgress::default()
            });
            told
        })?;
        self.failures.tell_repeats();
        self.summary.unknown += done.unknown;
        if console.interrupt.raised() {
            self.interrupted(&source.location);
        } else if let Some(error) = done.incomplete {
            self.broke_off(error, "deleted");
        } else {
            self.note_missed(source, before, &filtered);
        }
        Ok(())
    }

    fn note_missed(&mut self, source: &Source, before: u64, filtered: &AtomicU64) {
        if self.summary.objects > before {
            return;
        }
        match filtered.load(Ordering::Relaxed) {
            0 => self.missed.push(source.location.clone()),
            filtered => self.filtered += filtered,
        }
    }

    fn tell(&mut self, deleted: &Deleted) -> Result<(), Failure> {
        let Deletion { location, bytes } = &deleted.deletion;
        self.summary.objects += 1;
        match &deleted.result {
            Ok(()) => {
                self.summary.ok += 1;
                self.summary.bytes += bytes;
                if self.verbose {
                    self.console.say(&format!("deleted {}", shown(location)))?;
                }
                self.event("ok", location, None, Some(*bytes))
            }
            Err(error) => {
                self.summary.failed += 1;
                self.event("failed", location, None, Some(*bytes))?;
                self.failures.of_object(error)
            }
        }
    }

    fn event(
        &self,
        status: &'static str,
        location: &Location,
        version_id: Option<&str>,
        bytes: Option<u64>,
    ) -> Result<(), Failure> {
        if !self.console.wants_events() {
            return Ok(());
        }
        self.console.event(
            Carries::Lines,
            &events::DeletedObject {
                action: "delete",
                status,
                key: location.key().to_owned(),
                source: location.to_string(),
                version_id: version_id.map(str::to_owned),
                bytes,
            },
        )
    }

    /// The listing ended early: what it named before is done, what else there is stays unknown.
    fn broke_off(&mut self, error: Error, done: &str) {
        let count = if done == "deleted" { self.summary.ok } else { self.summary.objects };
        let failure = Failure::from(&error);
        let failure = match error.kind() {
            // Nothing was found at all: that there is nothing, or that it may not be seen, is known.
            _ if self.summary.objects == 0 => return self.failures.of_all(&failure),
            ErrorKind::Denied => failure,
            _ => Failure { exit: Exit::Incomplete, ..failure },
        };
        let were = if count == 1 { "was" } else { "were" };
        let message = format!("{}: {} {were} {done} before", failure.message, counted(count, "object"));
        self.failures.of_all(&Failure { message, ..failure });
    }

    fn interrupted(&mut self, source: &Location) {
        let events::DeleteSummary { ok, unknown, .. } = self.summary;
        let unsure = match unknown {
            0 => String::new(),
            _ => format!(", {} more were asked for and may be gone", grouped(unknown)),
        };
        let why = format!("rm: {source}: interrupted: {} deleted{unsure}", counted(ok, "object"));
        self.failures.of_all(&Failure::interrupted(why));
    }

    /// The last line, and the code to exit with.
    pub fn conclude(mut self, is_dry: bool) -> Result<Exit, Failure> {
        for source in std::mem::take(&mut self.missed) {
            let failure = Failure::not_found(format!("delete: {source}: nothing to delete there"));
            self.failures.of_all(&failure.with_hint("`flatout ls` shows what there is"));
        }
        self.summary.seconds = self.start.elapsed().as_secs_f64();
        self.summary.exit = self.failures.exit().code();
        let events::DeleteSummary { objects, ok, failed, bytes, seconds, .. } = self.summary;
        // A single object has its own line.
        if objects == 0 && self.filtered > 0 && self.failures.exit() == Exit::Clean {
            let deleted = if is_dry { "" } else { "deleted " };
            self.console.say(&format!("{deleted}{}", all_left_out(&grouped(self.filtered))))?;
        } else if is_dry && objects > 1 {
            self.console.say(&format!("{}, {}", counted(objects, "object"), format_size(bytes)))?;
        } else if ok > 0 && (self.is_of_many || ok > 1 || failed > 0) {
            let failed = if failed > 0 { format!(", {} failed", grouped(failed)) } else { String::new() };
            let (ok, size) = (counted(ok, "object"), format_size(bytes));
            self.console.say(&format!("deleted {ok}{failed}, {size} in {seconds:.2} s"))?;
        }
        self.console.event(Carries::Lines, &self.summary)?;
        Ok(self.failures.exit())
    }

    /// How it went so far.
    pub fn exit(&self) -> Exit {
        self.failures.exit()
    }
}

/// The size of an object, and whether it could be looked at: who may delete may not always read.
fn look(
    client: &Client,
    location: &Location,
    version_id: Option<&str>,
) -> Result<(Option<u64>, bool), Error> {
    match client.stat_version(location, version_id) {
        Ok(stat) => Ok((stat.version.size, true)),
        Err(error) if error.kind() == ErrorKind::Denied => Ok((None, false)),
        // The mark of a deletion is a version, too, and cannot be looked at.
        Err(error) if error.kind() == ErrorKind::Unsupported && version_id.is_some() => Ok((None, true)),
        Err(error) => Err(error.during("delete", location)),
    }
}

fn listed(client: &Client, source: &Source, filters: &Filters) -> Result<Listed, Failure> {
    Ok(Listed {
        listing: client.list(&source.location, source.deep)?,
        source: source.clone(),
        filters: filters.clone(),
        filtered: Arc::default(),
        found: Arc::default(),
        found_bytes: Arc::default(),
        newest_s: u64::MAX,
    })
}

fn shown(location: &Location) -> String {
    one_line(&location.to_string())
}
