//! `flatout cp -r` from bucket to bucket: many objects at a time, copied by the service itself where both are
//! its own, else through this machine.

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use flatout_engine::{Client, Entry, Error, ErrorKind, Listing, ManyProgress, Report, ServerCopy, Verified};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

use crate::args::Cp;
use crate::commands::copied::{all_left_out, amount};
use crate::commands::cp_through::{Switches, Through};
use crate::commands::cp_upload::{condition, is_there};
use crate::commands::failures::Failures;
use crate::commands::repeats::{counted, grouped};
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
/// Copies at a time through this machine.
const THROUGH_HERE: usize = 16;
/// What is copied through this machine is held in memory up to this length; longer objects pass through.
const SHORT: u64 = 4 << 20;

/// As many workers copy at a time between these buckets.
pub fn copies_at_once(client: &Client, from: &Location, to: &Location) -> usize {
    if client.copies_within_service(from, to) { IN_FLIGHT } else { THROUGH_HERE }
}

pub fn run(args: &Cp, source: Source, client: &Client, console: &Console) -> Result<Exit, Failure> {
    if let Some(etag) = &args.stored_as.if_match {
        let failure = Failure::usage(format!("--if-match {etag}: no two of many objects have one ETag"));
        return Err(failure.with_hint("leave it out, or copy one object"));
    }
    let to = target(&args.target, &source)?;
    let left_out = lies_within(&to, &source).then(|| to.key().to_owned());
    if left_out.is_some() {
        console.say(&format!("{}: lies within the source: what is below it is not copied", shown(&to)))?;
    }
    let (armed, switches) = (console.interrupt.arm(), Switches::default());
    let stopped = switches.clone();
    armed.on_signal(move || stopped.cancel());
    let mut copy = Copies {
        client,
        console,
        to,
        left_out,
        listing: client.list(&source.location, source.deep)?,
        source,
        filters: args.filters.clone(),
        filtered: 0,
        options: options(&args.stored_as, None)?,
        condition: condition(&args.stored_as, args.no_clobber)?,
        no_clobber: args.no_clobber,
        is_listed: false,
        in_flight: 0,
        switches,
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
    if lies_within(&to, source) && to.key().len() == source.folder_bytes {
        let failure = Failure::usage(format!("copy: {to}: is the source itself"));
        return Err(failure.with_hint("name another target"));
    }
    Ok(to)
}

/// Whether what is copied would be listed, and copied again.
fn lies_within(to: &Location, source: &Source) -> bool {
    let from = &source.location;
    let is_one_bucket = (from.scheme(), from.bucket()) == (to.scheme(), to.bucket());
    is_one_bucket && to.key().starts_with(from.key())
}

/// One object to be copied.
pub struct OneCopy {
    pub from: Location,
    pub to: Location,
    pub bytes: u64,
    /// The target lies within the source: an object that is there may be copied later.
    pub is_within: bool,
}

impl OneCopy {
    /// Nothing of the source is replaced before it is copied.
    fn check(&self) -> Result<(), Error> {
        let OneCopy { from, to, is_within, .. } = self;
        if !is_within {
            return Ok(());
        }
        let cause = format!("its copy would go to {to}, which is within what is copied");
        let error = Error::new(ErrorKind::Usage, cause).with_hint("copy to a prefix beside the source");
        Err(error.during("copy", from))
    }
}

/// What became of one.
pub struct EndedCopy {
    pub copy: OneCopy,
    /// Nothing of one that was left as it is.
    pub result: Result<Option<Report>, Error>,
    pub seconds: f64,
}

/// Copies one object after the other, as one of several that do.
pub struct Worker<'a> {
    client: &'a Client,
    options: ObjectOptions,
    condition: Condition,
    no_clobber: bool,
    switches: Switches,
    /// Held by the one that copies a long object through this machine.
    long: Mutex<()>,
}

impl<'a> Worker<'a> {
    /// One that replaces what is there, as the condition lets it.
    pub fn new(
        client: &'a Client,
        options: ObjectOptions,
        condition: Condition,
        switches: Switches,
    ) -> Worker<'a> {
        Worker { client, options, condition, no_clobber: false, switches, long: Mutex::default() }
    }

    /// Copies what is given, until nothing is.
    pub fn work(&self, given: &Mutex<Receiver<OneCopy>>, tell: &Sender<EndedCopy>) {
        loop {
            let next = given.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(copy) = next else { return };
            let begun = Instant::now();
            let result = self.copy(&copy);
            // Whoever reports may have failed to.
            let _ = tell.send(EndedCopy { copy, result, seconds: begun.elapsed().as_secs_f64() });
        }
    }

    fn copy(&self, copy: &OneCopy) -> Result<Option<Report>, Error> {
        copy.check()?;
        let OneCopy { from, to, bytes, .. } = copy;
        if self.no_clobber && is_there(self.client, to)? {
            return Ok(None);
        }
        if !self.client.copies_within_service(from, to) {
            let through = Through { client: self.client, from, to, options: self.options.clone() };
            if *bytes <= SHORT {
                return through.copy_short(self.condition.clone(), &self.switches).map(Some);
            }
            // One fills the link by its parts, and memory with them.
            let _alone = self.long.lock().unwrap_or_else(PoisonError::into_inner);
            let passing = through.start(self.condition.clone(), &self.switches)?;
            return passing.carry().map(Some);
        }
        let copy = ServerCopy::new(from.clone(), to.clone()).with_options(self.options.clone());
        let transfer = self.client.copy(copy.on_condition(self.condition.clone()))?;
        let _stoppable = self.switches.add(&transfer);
        transfer.wait().map(Some)
    }
}

struct Copies<'a> {
    client: &'a Client,
    console: &'a Console,
    listing: Listing,
    source: Source,
    filters: Filters,
    /// How many objects those have left out.
    filtered: u64,
    to: Location,
    /// The prefix of the target, where it lies within the source.
    left_out: Option<String>,
    options: ObjectOptions,
    condition: Condition,
    no_clobber: bool,
    is_listed: bool,
    in_flight: usize,
    switches: Switches,
    progress: ManyProgress,
    unverified: u64,
    summary: events::Summary,
    failures: Failures<'a>,
}

impl Copies<'_> {
    fn copy_all(&mut self) -> Result<(), Failure> {
        let (start, bar) = (Instant::now(), Bar::new(self.console, Carries::Lines, ""));
        let at_once = copies_at_once(self.client, &self.source.location, &self.to);
        let (options, condition) = (self.options.clone(), self.condition.clone());
        let worker = Worker {
            no_clobber: self.no_clobber,
            ..Worker::new(self.client, options, condition, self.switches.clone())
        };
        let (give, given) = mpsc::sync_channel(at_once);
        let (tell, told) = mpsc::channel();
        let given = Arc::new(Mutex::new(given));
        thread::scope(|scope| {
            for _ in 0..at_once {
                let (worker, given, tell) = (&worker, given.clone(), tell.clone());
                let builder = thread::Builder::new().name("flatout-copy".to_owned());
                let started = builder.spawn_scoped(scope, move || worker.work(&given, &tell));
                started.map_err(|error| Failure::local("start", "a thread", &error))?;
            }
            let fed = self.feed(at_once, give, &told, &bar);
            if fed.is_err() {
                self.switches.cancel();
            }
            fed
        })?;
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

    /// Gives listed objects to the workers and reports what they have copied, until nothing is left.
    fn feed(
        &mut self,
        at_once: usize,
        give: SyncSender<OneCopy>,
        told: &Receiver<EndedCopy>,
        bar: &Bar,
    ) -> Result<(), Failure> {
        while !self.is_listed || self.in_flight > 0 {
            self.is_listed |= self.console.interrupt.raised();
            if !self.is_listed && self.in_flight < at_once {
                match self.next() {
                    Some(Ok(copy)) => {
                        self.progress.objects += 1;
                        self.progress.total_bytes += copy.bytes;
                        self.in_flight += 1;
                        give.send(copy).expect("the workers are there");
                    }
                    Some(Err(error)) => bar.above(|| self.broke_off(&error)),
                    None => {
                        self.is_listed = true;
                        self.progress.is_complete = true;
                    }
                }
            } else if let Ok(ended) = told.recv_timeout(POLL) {
                bar.above(|| self.finish(ended))?;
            }
            while let Ok(ended) = told.try_recv() {
                bar.above(|| self.finish(ended))?;
            }
            bar.show_many(&self.progress);
            self.console.flush()?;
        }
        Ok(())
    }

    /// The next object that is meant, and where it goes.
    fn next(&mut self) -> Option<Result<OneCopy, Error>> {
        loop {
            let entry = match self.listing.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            if !self.source.means(&entry) {
                continue;
            }
            let Entry::Object(listed) = entry else { continue };
            if self.left_out.as_ref().is_some_and(|prefix| listed.key.starts_with(prefix)) {
                continue;
            }
            let path = listed.key.get(self.source.folder_bytes..).unwrap_or_default();
            if !self.filters.take(path) {
                self.filtered += 1;
                continue;
            }
            let to = self.to.with_key(format!("{}{path}", self.to.key()));
            let from = self.source.location.with_key(listed.key);
            let (Some(from), Some(to)) = (from, to) else { continue };
            // The mark of the folder itself has no name in a bucket's root.
            if !to.key().is_empty() {
                let is_within = self.left_out.is_none() && lies_within(&to, &self.source);
                return Some(Ok(OneCopy { from, to, bytes: listed.size, is_within }));
            }
        }
    }

    fn finish(&mut self, ended: EndedCopy) -> Result<(), Failure> {
        self.in_flight -= 1;
        let EndedCopy { copy: OneCopy { from, to, .. }, result, seconds } = ended;
        match result {
            Ok(Some(done)) => self.copied(&from, &to, &done),
            Ok(None) => self.left_out(&from, &to),
            Err(error) if error.is_there() => self.left_out(&from, &to),
            // It is in no count, as the interrupt says.
            Err(error) if error.kind() == ErrorKind::Cancelled => Ok(()),
            Err(error) => self.failed(&from, &to, &error, seconds),
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
                Ok(copy) => {
                    if let Err(error) = copy.check() {
                        self.failed(&copy.from, &copy.to, &error, 0.0)?;
                        continue;
                    }
                    let OneCopy { from, to, .. } = copy;
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
            let from = shown(&self.source.location);
            if self.filtered > 0 {
                let left_out = all_left_out(&grouped(self.filtered));
                self.console.say(&format!("{from} -> {}: {left_out}", shown(&self.to)))?;
            } else {
                let failure = Failure::not_found(format!("cp: {from}: no object to copy there"));
                self.failures.of_all(&failure.with_hint("`flatout ls` shows what there is"));
            }
        }
        let exit = self.failures.exit();
        self.summary.exit = exit.code();
        self.console.count_bytes(self.summary.bytes);
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
