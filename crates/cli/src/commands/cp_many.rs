//! `flatout cp` of many objects: a folder or a pattern of a bucket into a folder.

use std::io;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use flatout_engine::{
    Client, Entry, Error, ErrorKind, Finished, Folder, LimitedBy, Listing, Many, Verified, Wanted,
};
use flatout_settings::format_size;
use flatout_wire::location::Location;

use crate::args::Cp;
use crate::commands::copied::{all_left_out, amount};
use crate::commands::failures::{Failures, Warnings, is_full, refused_by_disk};
use crate::commands::repeats::grouped;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::limited::{self, Limited};
use crate::origin;
use crate::progress::{Bar, POLL};
use crate::select::{FileName, FileNames, Filters, Source};

pub fn run(args: &Cp, source: &Source, client: &Client, console: &Console) -> Result<Exit, Failure> {
    let target = target(&args.target)?;
    let mut listing = client.list(&source.location, source.deep)?.peekable();
    // Before anything is made: a source that cannot be listed leaves no folder behind.
    if let Some(Err(_)) = listing.peek()
        && let Some(Err(error)) = listing.next()
    {
        return Err(error.into());
    }
    let is_new = !target.exists();
    let folder = match args.dry_run {
        true => None,
        false => Some(Folder::open(&target)?),
    };
    let folds_case = folder.as_ref().map_or(Ok(false), Folder::folds_case)?;
    let (left, told) = mpsc::channel();
    let filtered = Arc::new(AtomicU64::new(0));
    let selection = Selection {
        listing,
        means: source.clone(),
        filters: args.filters.clone(),
        filtered: filtered.clone(),
        names: FileNames::new(source.folder_bytes, folds_case),
        existing: args.no_clobber.then(|| target.clone()),
        left,
    };
    let mut copy = Copy::new(console, &source.location, target, args.verbose);
    (copy.typed, copy.is_new) = (origin::masked(&args.source), is_new && !args.dry_run);
    copy.filtered = filtered;
    match folder {
        None => copy.only_say(selection, &told)?,
        Some(folder) => copy.fetch(client, selection, folder, &told)?,
    }
    if args.recursive && copy.took_nothing() && copy.filtered() == 0 {
        copy.is_object =
            origin::object("read", &args.source).is_ok_and(|object| client.stat(&object).is_ok());
    }
    copy.conclude()
}

/// One object that is not to be fetched after all.
pub fn without(args: &Cp, source: &Location, path: &Path, console: &Console) -> Result<Exit, Failure> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut copy = Copy::new(console, source, folder.to_path_buf(), args.verbose);
    let exists = args.no_clobber && path.symlink_metadata().is_ok();
    match exists {
        true => copy.tell_left(&SkippedObject { location: source.clone(), why: Why::Exists })?,
        false => copy.would(source, path)?,
    }
    copy.conclude()
}

/// The refusal for what has no listing.
pub fn no_listing(doing: &str, location: &Location) -> Failure {
    let failure = Failure::usage(format!("{doing}: {location}: plain HTTP has no listing"));
    failure.with_hint("for a bucket write s3://BUCKET/FOLDER and --endpoint-url")
}

/// The target of many objects is a folder, there already or to be made.
fn target(typed: &str) -> Result<PathBuf, Failure> {
    let refused = |why: &str, hint: &str| Err(Failure::usage(format!("cp: {why}")).with_hint(hint));
    match typed {
        "" => refused("the target is empty", "name a folder, . for this one"),
        "-" => {
            refused("many objects cannot go to standard output", "name a folder, or objects for flatout cat")
        }
        path if Path::new(path).exists() && !Path::new(path).is_dir() => {
            refused(&format!("{path}: is no folder, and many objects need one"), "name a folder")
        }
        path => Ok(path.into()),
    }
}

/// An object that was not asked for, or cannot be had, and is not fetched.
struct SkippedObject {
    location: Location,
    why: Why,
}

enum Why {
    /// `--no-clobber`, and its file exists.
    Exists,
    /// A folder's marker.
    Marker,
    /// No file can stand for it.
    Unusable(String),
}

/// What of a listing is wanted; read by the engine's own thread.
struct Selection {
    listing: Peekable<Listing>,
    means: Source,
    filters: Filters,
    /// How many objects those have left out.
    filtered: Arc<AtomicU64>,
    names: FileNames,
    existing: Option<PathBuf>,
    left: Sender<SkippedObject>,
}

impl Selection {
    /// The entry as something to fetch.
    fn choose(&mut self, entry: Entry) -> Option<Wanted> {
        if !self.means.means(&entry) {
            return None;
        }
        let Entry::Object(listed) = entry else { return None };
        if !self.filters.take(listed.key.get(self.means.folder_bytes..)?) {
            self.filtered.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let named = self.names.name(&listed.key);
        let location = self.means.location.with_key(listed.key)?;
        let why = match named {
            FileName::File(name) => match &self.existing {
                Some(folder) if folder.join(&name).symlink_metadata().is_ok() => Why::Exists,
                existing => {
                    let (size, keep_existing) = (Some(listed.size), existing.is_some());
                    return Some(Wanted { location, size, name, keep_existing, modified_ns: None });
                }
            },
            FileName::Marker => Why::Marker,
            FileName::Unusable(why) => Why::Unusable(why),
        };
        // When all is cancelled, the receiver is gone.
        let _ = self.left.send(SkippedObject { location, why });
        None
    }
}

impl Iterator for Selection {
    type Item = Result<Wanted, Error>;

    fn next(&mut self) -> Option<Result<Wanted, Error>> {
        loop {
            match self.listing.next()? {
                Ok(entry) => {
                    if let Some(wanted) = self.choose(entry) {
                        return Some(Ok(wanted));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// A copy of many objects, and what has been told of it so far.
struct Copy<'a> {
    console: &'a Console,
    source: &'a Location,
    /// As it was asked for, without its secrets.
    typed: String,
    /// The target folder is of our making.
    is_new: bool,
    /// What was to be a folder is an object.
    is_object: bool,
    target: PathBuf,
    /// How many objects the filters have left out.
    filtered: Arc<AtomicU64>,
    summary: events::Summary,
    unverified: u64,
    has_left_out: bool,
    failures: Failures<'a>,
    warnings: Warnings<'a>,
    limited_by: Option<LimitedBy>,
    start: Instant,
}

impl<'a> Copy<'a> {
    fn new(console: &'a Console, source: &'a Location, target: PathBuf, verbose: bool) -> Copy<'a> {
        Copy {
            console,
            source,
            typed: source.to_string(),
            is_new: false,
            is_object: false,
            target,
            filtered: Arc::default(),
            summary: events::Summary { action: "download", ..Default::default() },
            unverified: 0,
            has_left_out: false,
            failures: Failures::new(console, "cp", verbose),
            warnings: Warnings::new(console, verbose),
            limited_by: None,
            start: Instant::now(),
        }
    }

    fn fetch(
        &mut self,
        client: &Client,
        selection: Selection,
        folder: Folder,
        told: &Receiver<SkippedObject>,
    ) -> Result<(), Failure> {
        let armed = self.console.interrupt.arm();
        let mut many: Many = client.get_many(self.source, selection, Some(folder))?;
        let watch = many.watch();
        armed.on_signal(move || watch.cancel());
        let mut is_hopeless = false;
        let bar = Bar::new(self.console, Carries::Lines, "");
        while let Some(ended) = many.next(POLL) {
            bar.show_many(&many.progress());
            bar.above(|| {
                ended.iter().try_for_each(|finished| self.tell(finished))?;
                if !is_hopeless && ended.iter().any(|finished| self.ends_all(finished)) {
                    is_hopeless = true;
                    many.watch().cancel();
                }
                told.try_iter().try_for_each(|left| self.tell_left(&left))
            })?;
            self.console.flush()?;
        }
        drop(bar);
        self.limited_by = many.progress().mostly_limited_by;
        told.try_iter().try_for_each(|left| self.tell_left(&left))?;
        self.warnings.tell_repeats();
        self.failures.tell_repeats();
        let untried = many.progress().objects.saturating_sub(self.summary.ok + self.summary.failed);
        if self.console.interrupt.raised() {
            let why = format!("cp: {}: interrupted, at least {untried} objects are missing", self.source);
            let interrupted = Failure::interrupted(why);
            self.failures.of_all(&match many.progress().kept_bytes {
                0 => interrupted,
                bytes => interrupted.with_hint(format!(
                    "run it again: of the large files that were on their way {} are kept, as .NAME.flatout-* beside them; \
                     removing those gives them up",
                    format_size(bytes)
                )),
            });
        } else if is_hopeless {
            self.failures.of_all(&hopeless(&self.target, untried));
        } else if let Some(error) = many.incomplete() {
            match error.is_outage() && error.doing() != "list" {
                true => self.failures.of_all(&origin_away(error, untried)),
                false => self.broke_off(error),
            }
        }
        Ok(())
    }

    fn only_say(&mut self, selection: Selection, told: &Receiver<SkippedObject>) -> Result<(), Failure> {
        for wanted in selection {
            told.try_iter().try_for_each(|left| self.tell_left(&left))?;
            match wanted {
                Ok(wanted) => self.would(&wanted.location, &self.target.join(&wanted.name))?,
                Err(error) => self.broke_off(error),
            }
        }
        told.try_iter().try_for_each(|left| self.tell_left(&left))
    }

    fn would(&mut self, source: &Location, path: &Path) -> Result<(), Failure> {
        self.summary.objects += 1;
        let (from, to) = (one_line(&source.to_string()), one_line(&path.display().to_string()));
        self.console.answer(&format!("would copy {from} -> {to}"))?;
        self.console.event(Carries::Lines, &self.event("planned", source, Some(path)))
    }

    /// What became of one object: its event, and the error if there is one. It stops no other.
    fn tell(&mut self, finished: &Finished) -> Result<(), Failure> {
        self.summary.objects += 1;
        self.summary.fetched += finished.fetched_bytes;
        if self.console.wants_events() {
            self.console.event(Carries::Lines, &self.finished_event(finished))?;
        }
        match &finished.result {
            Ok(done) => {
                self.summary.ok += 1;
                self.summary.bytes += done.bytes;
                self.summary.resumed += done.resumed_bytes;
                if let Some(note) = &done.resume_note {
                    let name = finished.wanted.location.to_string();
                    self.warnings.of_object(&name, note, format!("{name}: {note}"));
                }
                self.unverified += u64::from(matches!(done.verified, Verified::None(_)));
            }
            Err(error) => {
                self.summary.failed += 1;
                self.failures.of_object(error)?;
            }
        }
        Ok(())
    }

    fn finished_event(&self, finished: &Finished) -> events::Object {
        let Finished { wanted, result, fetched_bytes, retries, seconds } = finished;
        let path = self.target.join(&wanted.name);
        let done = result.as_ref().ok();
        events::Object {
            bytes: done.map_or(0, |done| done.bytes),
            fetched: *fetched_bytes,
            resumed: done.map_or(0, |done| done.resumed_bytes),
            note: done.and_then(|done| done.resume_note.clone()),
            verified: done.map(|done| done.verified.to_string()),
            etag: done.and_then(|done| done.version.etag.clone()),
            seconds: *seconds,
            retries: *retries,
            tails: events::Tails::of(done),
            ..self.event(if done.is_some() { "ok" } else { "failed" }, &wanted.location, Some(&path))
        }
    }

    fn tell_left(&mut self, left: &SkippedObject) -> Result<(), Failure> {
        let SkippedObject { location, why } = left;
        self.summary.objects += 1;
        self.summary.skipped += 1;
        let why = match why {
            Why::Exists => "its file exists",
            Why::Marker => "its key ends in /: the mark of a folder",
            Why::Unusable(why) => {
                let name = location.to_string();
                self.warnings.of_object(&name, why, format!("left out: {name}: {why}"));
                self.has_left_out = true;
                why
            }
        };
        let event = events::Object { reason: Some(why.to_owned()), ..self.event("skipped", location, None) };
        self.console.event(Carries::Lines, &event)
    }

    fn event(&self, status: &'static str, source: &Location, target: Option<&Path>) -> events::Object {
        events::Object {
            action: "download",
            status,
            key: source.key().to_owned(),
            source: source.to_string(),
            target: target.map(|path| path.display().to_string()),
            bytes: 0,
            fetched: 0,
            resumed: 0,
            note: None,
            verified: None,
            reason: None,
            etag: None,
            seconds: 0.0,
            retries: 0,
            tails: events::Tails::default(),
        }
    }

    /// The listing ended early: what it named has been copied, what else there is stays unknown.
    fn broke_off(&mut self, error: Error) {
        let exit = match error.kind() {
            ErrorKind::Denied => Exit::Refused,
            _ => Exit::Incomplete,
        };
        self.failures.of_all(&Failure { exit, ..Failure::from(error) });
    }

    /// Whether no other object will find room either: each would be fetched in vain.
    fn ends_all(&self, finished: &Finished) -> bool {
        let Err(error) = &finished.result else { return false };
        refused_by_disk(error).is_some_and(|kind| {
            let is_gone = kind == io::ErrorKind::NotFound && error.kind() == ErrorKind::LocalIo;
            is_full(kind) || is_gone && !self.target.exists()
        })
    }

    /// The last line, and the code to exit with.
    fn conclude(mut self) -> Result<Exit, Failure> {
        self.warnings.tell_repeats();
        self.failures.tell_repeats();
        if self.took_nothing() {
            match self.filtered() {
                0 => self.failures.of_all(&nothing_there(&self.typed, self.is_object)),
                filtered => {
                    let (from, to) = (one_line(&self.typed), one_line(&self.target.display().to_string()));
                    self.console.say(&format!("{from} -> {to}: {}", all_left_out(&grouped(filtered))))?;
                }
            }
            if self.is_new {
                // It holds nothing: nothing of it is to stay.
                let _ = std::fs::remove_dir(&self.target);
            }
        }
        self.summary.seconds = self.start.elapsed().as_secs_f64();
        let exit = self.exit();
        self.summary.exit = exit.code();
        self.console.count_bytes(self.summary.bytes);
        self.summary.limited_by = self.limited_by.map(Limited::from);
        if self.summary.ok + self.summary.skipped > 0 {
            self.console.say(&self.sentence())?;
            let line = limited::line(self.limited_by, self.summary.seconds);
            line.map_or(Ok(()), |line| self.console.say(&line))?;
        }
        self.console.event(Carries::Lines, &self.summary)?;
        Ok(exit)
    }

    fn exit(&self) -> Exit {
        let left_out = if self.has_left_out { Exit::LeftOut } else { Exit::Clean };
        self.failures.exit().max(left_out)
    }

    fn took_nothing(&self) -> bool {
        self.summary.objects == 0 && self.exit() == Exit::Clean
    }

    fn filtered(&self) -> u64 {
        self.filtered.load(Ordering::Relaxed)
    }

    fn sentence(&self) -> String {
        let events::Summary { ok, failed, skipped, bytes, resumed, seconds, .. } = self.summary;
        let also =
            |count: u64, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
        format!(
            "{} -> {}: {ok} objects{}{}, {}, verified: {} of {ok}",
            one_line(&self.typed),
            one_line(&self.target.display().to_string()),
            also(failed, "failed"),
            also(skipped, "skipped"),
            amount(bytes, resumed, seconds),
            ok - self.unverified,
        )
    }
}

/// Why nothing more can land in the folder.
fn hopeless(target: &Path, untried: u64) -> Failure {
    let (why, hint) = match target.exists() {
        true => (
            "nothing more can be written",
            "free some space, or choose another folder, and start again with --no-clobber",
        ),
        false => ("the folder is gone", "it was removed or renamed while objects came: start again"),
    };
    let missing = match untried {
        0 => String::new(),
        _ => format!(", at least {untried} objects are missing"),
    };
    Failure {
        exit: Exit::Failed,
        kind: "local_io".into(),
        message: format!("cp: {}: {why}{missing}", target.display()),
        hint: Some(hint.into()),
    }
}

/// The origin was away for too long: one line for all that is missing.
fn origin_away(error: Error, untried: u64) -> Failure {
    let failure = Failure::from(error);
    Failure { message: format!("{}: at least {untried} objects are missing", failure.message), ..failure }
}

fn nothing_there(source: &str, is_object: bool) -> Failure {
    if is_object {
        let failure = Failure::not_found(format!("cp: {source}: this is an object, and no folder"));
        return failure.with_hint("leave out -r");
    }
    let failure = Failure::not_found(format!("cp: {source}: no object to copy there"));
    failure.with_hint("`flatout ls` shows what there is; folders need -r")
}
