//! `flatout cp -r` from bucket to bucket: many objects, copied by the service itself, many at a time.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use flatout_engine::{
    CancelSwitch, Client, Entry, Error, ErrorKind, Listing, ManyProgress, Report, ServerCopy, Transfer,
    Verified,
};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

use crate::args::Cp;
use crate::commands::copied::amount;
use crate::commands::cp_upload::condition;
use crate::commands::failures::Failures;
use crate::commands::repeats::counted;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::progress::{Bar, POLL};
use crate::select::{Filters, Source};
use crate::stored_as::options;

/// Copies at a time. A small object takes two requests of some ten milliseconds, so that 32 make about a
/// thousand objects a second; S3 takes 3,500 writes a second of a prefix.
const IN_FLIGHT: usize = 32;

/// The switches of the copies on their way, for a signal.
type Switches = Arc<Mutex<HashMap<u64, CancelSwitch>>>;

pub fn run(args: &Cp, source: Source, client: &Client, console: &Console) -> Result<Exit, Failure> {
    if let Some(etag) = &args.stored_as.if_match {
        let failure = Failure::usage(format!("--if-match {etag}: no two of many objects have one ETag"));
        return Err(failure.with_hint("leave it out, or copy one object"));
    }
    let to = target(&args.target, &source)?;
    let (tell, told) = mpsc::channel();
    let armed = console.interrupt.arm();
    let switches = Switches::default();
    let stopped = switches.clone();
    armed.on_signal(move || {
        stopped.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(CancelSwitch::cancel);
    });
    let mut copy = Copies {
        client,
        console,
        to,
        listing: client.list(&source.location, source.deep)?,
        source,
        filters: args.filters.clone(),
        options: options(&args.stored_as, None)?,
        condition: condition(&args.stored_as, args.no_clobber)?,
        no_clobber: args.no_clobber,
        is_listed: false,
        next_number: 0,
        running: HashMap::new(),
        switches,
        tell,
        told,
        progress: ManyProgress::default(),
        unverified: 0,
        summary: events::Summary { action: "copy", ..Default::default() },
        failures: Failures::new(console, "cp", args.verbose),
    };
    if args.dry_run {
        copy.only_say()?
    } else {
        copy.copy_all()?
    }
    copy.conclude()
}

/// The prefix that keys get in place of that of their source.
fn target(typed: &str, source: &Source) -> Result<Location, Failure> {
    let to = crate::origin::location("copy", typed)?;
    let mut prefix = to.key().to_owned();
    if !prefix.is_empty() && !prefix.ends_with('/') {
        prefix.push('/');
    }
    let Some(to) = to.with_key(prefix) else {
        let failure = Failure::usage(format!("copy: {to}: a plain URL cannot be written to"));
        return Err(failure.with_hint("name a bucket by s3:// or oss://"));
    };
    // What is copied would be listed, and copied again.
    if to.in_bucket().map(|(bucket, _)| bucket) == source.location.bucket()
        && to.key().starts_with(source.location.key())
    {
        let failure = Failure::usage(format!("copy: {to}: lies within what is copied"));
        return Err(failure.with_hint("name a target outside of the source"));
    }
    Ok(to)
}

/// One object on its way.
struct OneCopy {
    transfer: Transfer,
    from: Location,
    to: Location,
    begun: Instant,
}

struct Copies<'a> {
    client: &'a Client,
    console: &'a Console,
    listing: Listing,
    source: Source,
    filters: Filters,
    to: Location,
    options: ObjectOptions,
    condition: Condition,
    no_clobber: bool,
    is_listed: bool,
    next_number: u64,
    running: HashMap<u64, OneCopy>,
    switches: Switches,
    tell: Sender<u64>,
    told: Receiver<u64>,
    progress: ManyProgress,
    unverified: u64,
    summary: events::Summary,
    failures: Failures<'a>,
}

impl Copies<'_> {
    fn copy_all(&mut self) -> Result<(), Failure> {
        let (start, bar) = (Instant::now(), Bar::new(self.console, Carries::Lines, ""));
        while !self.is_listed || !self.running.is_empty() {
            let is_stopped = self.console.interrupt.raised();
            self.is_listed |= is_stopped;
            if !self.is_listed && self.running.len() < IN_FLIGHT {
                bar.above(|| self.start_next())?;
                if !self.is_listed && self.running.len() < IN_FLIGHT {
                    // Those that have ended meanwhile.
                    while let Ok(number) = self.told.try_recv() {
                        bar.above(|| self.finish(number))?;
                    }
                    bar.show_many(&self.progress);
                    continue;
                }
            }
            if let Ok(number) = self.told.recv_timeout(POLL) {
                bar.above(|| self.finish(number))?;
            }
            bar.show_many(&self.progress);
            self.console.flush()?;
        }
        drop(bar);
        self.failures.tell_repeats();
        self.summary.seconds = start.elapsed().as_secs_f64();
        if self.console.interrupt.raised() {
            let done = counted(self.summary.ok, "object");
            let why = format!("cp: {}: interrupted: {done} copied", self.source.location);
            self.failures.of_all(&Failure::interrupted(why));
        }
        Ok(())
    }

    /// The next object that is meant, and where it goes.
    fn next(&mut self) -> Option<Result<(Location, Location, u64), Error>> {
        loop {
            let entry = match self.listing.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let path = entry.name().get(self.source.folder_bytes..).unwrap_or_default();
            if !self.source.means(&entry) || !self.filters.take(path) {
                continue;
            }
            let to = self.to.with_key(format!("{}{path}", self.to.key()));
            let Entry::Object(listed) = entry else { continue };
            let from = self.source.location.with_key(listed.key);
            let (Some(from), Some(to)) = (from, to) else { continue };
            // The mark of the folder itself has no name in a bucket's root.
            if !to.key().is_empty() {
                return Some(Ok((from, to, listed.size)));
            }
        }
    }

    fn start_next(&mut self) -> Result<(), Failure> {
        let (from, to, bytes) = match self.next() {
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                self.broke_off(&error);
                return Ok(());
            }
            None => {
                self.is_listed = true;
                self.progress.is_complete = true;
                return Ok(());
            }
        };
        self.progress.objects += 1;
        self.progress.total_bytes += bytes;
        if self.no_clobber {
            match self.client.stat(&to) {
                Ok(_) => return self.left_out(&from, &to),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return self.failed(&from, &to, &error, 0.0),
            }
        }
        let (number, tell, begun) = (self.next_number, self.tell.clone(), Instant::now());
        self.next_number += 1;
        let copy = ServerCopy::new(from.clone(), to.clone()).with_options(self.options.clone());
        let copy = copy.on_condition(self.condition.clone()).on_end(move || {
            // Whoever waits may have gone.
            let _ = tell.send(number);
        });
        match self.client.copy(copy) {
            Ok(transfer) => {
                let switch = transfer.cancel_switch();
                self.switches.lock().unwrap_or_else(PoisonError::into_inner).insert(number, switch.clone());
                if self.console.interrupt.raised() {
                    switch.cancel();
                }
                self.running.insert(number, OneCopy { transfer, from, to, begun });
                Ok(())
            }
            Err(error) => self.failed(&from, &to, &error, 0.0),
        }
    }

    fn finish(&mut self, number: u64) -> Result<(), Failure> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        let Some(OneCopy { transfer, from, to, begun }) = self.running.remove(&number) else {
            return Ok(());
        };
        match transfer.wait() {
            Ok(done) => self.copied(&from, &to, &done),
            // It is in no count, as the interrupt says.
            Err(error) if error.kind() == ErrorKind::Cancelled => Ok(()),
            Err(error) => self.failed(&from, &to, &error, begun.elapsed().as_secs_f64()),
        }
    }

    fn copied(&mut self, from: &Location, to: &Location, done: &Report) -> Result<(), Failure> {
        self.summary.objects += 1;
        self.summary.ok += 1;
        self.summary.bytes += done.bytes;
        self.progress.ok += 1;
        self.progress.landed_bytes += done.bytes;
        self.progress.fetched_bytes += done.bytes;
        self.unverified += u64::from(matches!(done.verified, Verified::None(_)));
        self.event(events::Object {
            bytes: done.bytes,
            verified: Some(done.verified.to_string()),
            etag: done.version.etag.clone(),
            seconds: done.seconds,
            retries: done.retries,
            ..events::Object::of_copy(from, to, "ok")
        })
    }

    fn failed(&mut self, from: &Location, to: &Location, error: &Error, seconds: f64) -> Result<(), Failure> {
        self.summary.objects += 1;
        self.summary.failed += 1;
        self.progress.failed += 1;
        self.event(events::Object { seconds, ..events::Object::of_copy(from, to, "failed") })?;
        self.failures.of_object(error)
    }

    fn left_out(&mut self, from: &Location, to: &Location) -> Result<(), Failure> {
        self.summary.objects += 1;
        self.summary.skipped += 1;
        self.progress.ok += 1;
        let reason = Some("an object of that name exists".to_owned());
        self.event(events::Object { reason, ..events::Object::of_copy(from, to, "skipped") })
    }

    fn event(&self, event: events::Object) -> Result<(), Failure> {
        self.console.event(Carries::Lines, &event)
    }

    fn only_say(&mut self) -> Result<(), Failure> {
        while let Some(found) = self.next() {
            match found {
                Ok((from, to, _)) => {
                    self.summary.objects += 1;
                    self.console.answer(&format!("would copy {} -> {}", shown(&from), shown(&to)))?;
                    self.event(events::Object::of_copy(&from, &to, "planned"))?;
                }
                Err(error) => {
                    self.broke_off(&error);
                    break;
                }
            }
        }
        Ok(())
    }

    /// The listing ended early: what it named before is copied, what else there is stays unknown.
    fn broke_off(&mut self, error: &Error) {
        self.is_listed = true;
        let failure = Failure::from(error);
        let is_known = error.kind() == ErrorKind::Denied || self.progress.objects + self.summary.objects == 0;
        let exit = if is_known { failure.exit } else { Exit::Incomplete };
        self.failures.of_all(&Failure { exit, ..failure });
    }

    fn conclude(mut self) -> Result<Exit, Failure> {
        if self.summary.objects == 0 && self.failures.exit() == Exit::Clean {
            let failure =
                Failure::not_found(format!("cp: {}: no object to copy there", self.source.location));
            self.failures.of_all(&failure.with_hint("`flatout ls` shows what there is"));
        }
        let exit = self.failures.exit();
        self.summary.exit = exit.code();
        let events::Summary { ok, failed, skipped, bytes, seconds, .. } = self.summary;
        if ok + skipped > 0 {
            let also =
                |count: u64, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
            self.console.say(&format!(
                "{} -> {}: {}{}{}, {}, verified: {} of {ok}",
                shown(&self.source.location),
                shown(&self.to),
                counted(ok, "object"),
                also(failed, "failed"),
                also(skipped, "skipped"),
                amount(bytes, 0, seconds),
                ok - self.unverified,
            ))?;
        }
        self.console.event(Carries::Lines, &self.summary)?;
        Ok(exit)
    }
}

fn shown(location: &Location) -> String {
    one_line(&location.to_string())
}
