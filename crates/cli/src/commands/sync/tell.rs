//! What a sync says of each name and of the whole.

use std::time::Instant;

use flatout_engine::{Error, ErrorKind, Report, Verified};
use flatout_settings::format_size;
use flatout_sync::decide::{Way, Why};
use flatout_wire::location::Location;

use super::plan::Step;
use super::trees::Tree;
use crate::args::Sync;
use crate::commands::copied::amount;
use crate::commands::failures::{Failures, Warnings};
use crate::commands::repeats::{counted, grouped};
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};

/// A sync, and what has been told of it so far.
pub struct Telling<'a> {
    args: &'a Sync,
    pub console: &'a Console,
    pub source: &'a Tree,
    pub target: &'a Tree,
    pub way: Way,
    pub summary: events::SyncSummary,
    unverified: u64,
    /// Of the extra names, those that a real run would delete.
    to_delete: u64,
    pub failures: Failures<'a>,
    warnings: Warnings<'a>,
    /// Something could not be read: no name that it may have had is deleted.
    pub is_unknown: bool,
    has_left_out: bool,
    start: Instant,
}

impl<'a> Telling<'a> {
    pub fn new(
        args: &'a Sync,
        console: &'a Console,
        source: &'a Tree,
        target: &'a Tree,
        way: Way,
    ) -> Telling<'a> {
        Telling {
            args,
            console,
            source,
            target,
            way,
            summary: events::SyncSummary { action: "sync", ..Default::default() },
            unverified: 0,
            to_delete: 0,
            failures: Failures::new(console, "sync", args.verbose),
            warnings: Warnings::new(console, args.verbose),
            is_unknown: false,
            has_left_out: false,
            start: Instant::now(),
        }
    }

    /// A name that is not copied; extra ones are counted where they are kept.
    pub fn on_step(&mut self, step: Step) -> Result<(), Failure> {
        match step {
            Step::Copy { .. }
            | Step::MakeFolder(_)
            | Step::Extra(_)
            | Step::ExtraFolder(_)
            | Step::Nothing { .. } => Ok(()),
            Step::Same { name } => self.event(&name, "unchanged", None),
            Step::Unknown { name } => {
                self.summary.unknown += 1;
                self.event(&name, "skipped", Some("unknown: it, or its counterpart, could not be read"))
            }
            Step::Blocked { name, by } => {
                self.summary.failed += 1;
                self.event(&name, "failed", None)?;
                let place = self.target.place(&name);
                let cause = format!("there is {by}, which is not replaced");
                let hint = "remove or rename it, and run it again";
                self.failures
                    .of_object(&Error::new(ErrorKind::LocalIo, cause).with_hint(hint).during("write", place))
            }
            Step::LeftOut { name, by } => {
                self.summary.skipped += 1;
                self.has_left_out = true;
                let place = self.source.place(&name);
                self.warnings.of_object(&place, &by, format!("left out: {place}: {by}"));
                self.event(&name, "skipped", Some(&by))
            }
            Step::Unread(failure) => {
                self.is_unknown = true;
                self.failures.of_part(failure)
            }
            Step::Unasked { name, why } => {
                self.is_unknown = true;
                self.summary.unknown += 1;
                self.event(&name, "skipped", Some("unknown: it could not be compared"))?;
                self.failures.of_part(why)
            }
        }
    }

    /// What became of a copy.
    pub fn on_end(
        &mut self,
        name: &str,
        why: Option<Why>,
        result: &Result<Report, Error>,
        seconds: f64,
    ) -> Result<(), Failure> {
        let mut event = self.object(name, "failed");
        (event.seconds, event.reason) = (seconds, why.map(|why| why.word().to_owned()));
        match result {
            Ok(done) => {
                self.summary.ok += 1;
                self.summary.bytes += done.bytes;
                self.summary.fetched += done.fetched_bytes;
                self.summary.resumed += done.resumed_bytes;
                self.unverified += u64::from(matches!(done.verified, Verified::None(_)));
                event.status = "ok";
                (event.bytes, event.fetched, event.resumed) =
                    (done.bytes, done.fetched_bytes, done.resumed_bytes);
                (event.retries, event.etag) = (done.retries, done.version.etag.clone());
                event.verified = Some(done.verified.to_string());
                event.tails = events::Tails::of(Some(done));
                self.console.event(Carries::Lines, &event)
            }
            // It is in no count, as the interrupt says.
            Err(error) if error.kind() == ErrorKind::Cancelled => Ok(()),
            Err(error) => {
                self.summary.failed += 1;
                self.console.event(Carries::Lines, &event)?;
                self.failures.of_object(error)
            }
        }
    }

    /// An empty folder was made.
    pub fn on_folder(&mut self, name: &str, made: Result<(), Error>) -> Result<(), Failure> {
        match made {
            Ok(()) => {
                self.summary.folders_made += 1;
                self.event(name, "ok", Some("folder"))
            }
            // As of a copy.
            Err(error) if error.kind() == ErrorKind::Cancelled => Ok(()),
            Err(error) => {
                self.summary.failed += 1;
                self.event(name, "failed", Some("folder"))?;
                self.failures.of_object(&error)
            }
        }
    }

    /// What a real run would copy.
    pub fn would_copy(&mut self, name: &str, bytes: u64, why: Why) -> Result<(), Failure> {
        self.summary.planned += 1;
        self.summary.bytes += bytes;
        let (from, to) = (self.source.place(name), self.target.place(name));
        let line = format!("would copy {} -> {} ({})", one_line(&from), one_line(&to), why.word());
        self.console.answer(&line)?;
        let mut event = self.object(name, "planned");
        event.reason = Some(why.word().to_owned());
        self.console.event(Carries::Lines, &event)
    }

    /// A folder that a real run would make.
    pub fn would_make(&mut self, name: &str) -> Result<(), Failure> {
        self.summary.folders_made += 1;
        self.console.answer(&format!("would make {}", one_line(&self.target.place(name))))?;
        self.event(name, "planned", Some("folder"))
    }

    /// An extra name was deleted, or would be.
    pub fn on_deleted(&mut self, name: &str, bytes: u64, error: Option<&Error>) -> Result<(), Failure> {
        let place = self.target.place(name);
        let status = match error {
            None if self.args.dry_run => {
                self.summary.extra += 1;
                self.to_delete += 1;
                self.console.answer(&format!("would delete {}", one_line(&place)))?;
                "planned"
            }
            None => {
                self.summary.deleted += 1;
                if self.args.verbose {
                    self.console.say(&format!("deleted {}", one_line(&place)))?;
                }
                "ok"
            }
            Some(_) => {
                self.summary.failed += 1;
                "failed"
            }
        };
        self.deleted(name, status, Some(bytes))?;
        error.map_or(Ok(()), |error| self.failures.of_object(error))
    }

    /// A folder that became empty was removed, or would be.
    pub fn on_folder_removed(&mut self, name: &str) -> Result<(), Failure> {
        self.summary.folders_removed += 1;
        let place = one_line(&self.target.place(name));
        if self.args.dry_run {
            self.console.answer(&format!("would remove {place}"))?;
        } else if self.args.verbose {
            self.console.say(&format!("removed {place}"))?;
        }
        self.deleted(name, if self.args.dry_run { "planned" } else { "ok" }, None)
    }

    fn deleted(&self, name: &str, status: &'static str, bytes: Option<u64>) -> Result<(), Failure> {
        let event = events::DeletedObject {
            action: "delete",
            status,
            key: self.key(self.target, name),
            source: self.target.place(name),
            version_id: None,
            bytes,
        };
        self.console.event(Carries::Lines, &event)
    }

    /// Extra names stay, and why.
    pub fn keep_extras(&mut self, extras: u64, why: &str) {
        self.summary.extra = extras;
        if extras == 0 {
            return;
        }
        let names = if extras == 1 { "name is" } else { "names are" };
        self.console.warn(&format!(
            "{}: {} extra {names} kept: {why}",
            one_line(&self.target.shown()),
            grouped(extras)
        ));
    }

    /// A name of the tree in events: a key, or a path below the folder.
    fn key(&self, tree: &Tree, name: &str) -> String {
        tree.location(name).map_or_else(|| name.to_owned(), |location: Location| location.key().to_owned())
    }

    fn event(&self, name: &str, status: &'static str, reason: Option<&str>) -> Result<(), Failure> {
        if !self.console.wants_events() {
            return Ok(());
        }
        let reason = reason.map(str::to_owned);
        self.console.event(Carries::Lines, &events::Object { reason, ..self.object(name, status) })
    }

    fn object(&self, name: &str, status: &'static str) -> events::Object {
        let action = match self.way {
            Way::Up => "upload",
            Way::Down => "download",
            Way::Between => "copy",
        };
        let tree = if self.way == Way::Down { self.source } else { self.target };
        events::Object::of_sync(
            action,
            status,
            self.key(tree, name),
            self.source.place(name),
            self.target.place(name),
        )
    }

    /// What was held back since it reads like what was said.
    pub fn tell_repeats(&mut self) {
        self.warnings.tell_repeats();
        self.failures.tell_repeats();
    }

    /// Whether every name is known and every copy was made.
    pub fn is_whole(&self) -> bool {
        !self.is_unknown && self.summary.failed == 0 && self.failures.exit() == Exit::Clean
    }

    /// The last line, and the code to exit with.
    pub fn conclude(mut self) -> Result<Exit, Failure> {
        self.tell_repeats();
        let left_out = if self.has_left_out { Exit::LeftOut } else { Exit::Clean };
        let exit = self.failures.exit().max(left_out);
        self.summary.seconds = self.start.elapsed().as_secs_f64();
        self.summary.exit = exit.code();
        self.console.say(&self.sentence())?;
        self.console.count_bytes(if self.args.dry_run { 0 } else { self.summary.bytes });
        self.console.event(Carries::Lines, &self.summary)?;
        Ok(exit)
    }

    fn sentence(&self) -> String {
        let events::SyncSummary { ok, planned, unchanged, deleted, extra, failed, skipped, unknown, .. } =
            self.summary;
        let events::SyncSummary { folders_made, folders_removed, .. } = self.summary;
        let folders = |count| if count == 1 { "folder" } else { "folders" };
        let mut words = Vec::new();
        let mut word = |count: u64, what: &str| {
            if count > 0 {
                words.push(format!("{} {what}", grouped(count)));
            }
        };
        word(planned, "to copy");
        word(self.to_delete, "to delete");
        word(ok, "copied");
        word(unchanged, "unchanged");
        word(deleted, "deleted");
        word(extra.saturating_sub(self.to_delete), "extra");
        let (made, removed) = match self.args.dry_run {
            true => ("to make", "to remove"),
            false => ("made", "removed"),
        };
        word(folders_made, &format!("{} {made}", folders(folders_made)));
        word(folders_removed, &format!("{} {removed}", folders(folders_removed)));
        word(failed, "failed");
        word(skipped, "left out");
        word(unknown, "unknown and left as they are");
        if words.is_empty() {
            words.push(counted(0, "object"));
        }
        let bytes = match (self.args.dry_run, ok) {
            (true, _) => format!(", {}", format_size(self.summary.bytes)),
            (false, 0) => String::new(),
            (false, _) => {
                let amount = amount(self.summary.bytes, self.summary.resumed, self.summary.seconds);
                format!(", {amount}, verified: {} of {ok}", ok - self.unverified)
            }
        };
        let (from, to) = (self.source.shown(), self.target.shown());
        format!("{} -> {}: {}{bytes}", one_line(&from), one_line(&to), words.join(", "))
    }
}
