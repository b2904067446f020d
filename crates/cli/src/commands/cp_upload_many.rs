//! `flatout cp -r FOLDER URL` and `flatout cp 'PATTERN' URL`: the files below a folder, or the matches of a
//! pattern, as objects below a prefix.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use flatout_engine::{
    Client, Dialect, ErrorKind, FinishedPut, ManyProgress, ManyPutsProgress, Verified, WantedPut,
};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};
use walkdir::WalkDir;

use crate::args::Cp;
use crate::commands::copied::{all_left_out, amount};
use crate::commands::failures::{Failures, Warnings};
use crate::commands::repeats::counted;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::progress::{Bar, POLL};
use crate::select::{FilePattern, Filters};
use crate::stored_as::{Symlinks, content_type, options};
use crate::upload::{UploadSource, unreadable};
use crate::{origin, outages};

/// `flatout cp` of many files with a URL as its target.
pub fn run(args: &Cp, pattern: Option<FilePattern>, console: &Console) -> Result<Exit, Failure> {
    let folder = match &pattern {
        Some(pattern) if pattern.folder.is_empty() => Path::new("."),
        Some(pattern) => Path::new(&pattern.folder),
        None => Path::new(&args.source),
    };
    let found = folder.metadata().map_err(|error| unreadable(&args.source, &error))?;
    if !found.is_dir() {
        let failure =
            Failure::usage(format!("cp: {}: is no folder, and -r copies what lies below one", args.source));
        return Err(failure.with_hint("leave out -r to copy a file"));
    }
    let target = prefix(&args.target)?;
    let options = options(&args.stored_as, None)?;
    if args.stored_as.if_match.is_some() {
        let failure = Failure::usage("cp: --if-match is about one object, and -r copies many");
        return Err(failure.with_hint("use -n to leave objects that exist as they are"));
    }
    let client = origin::client(console, &args.knobs, &[Dialect::of(&target)])?;
    outages::tell(&client, console, Carries::Lines);
    let (left, told) = channel();
    let is_flat = pattern.as_ref().is_some_and(|pattern| !pattern.deep);
    let walk = Walk {
        entries: WalkDir::new(folder)
            .max_depth(if is_flat { 1 } else { usize::MAX })
            .follow_links(args.symlinks == Symlinks::Follow)
            .sort_by_file_name()
            .into_iter(),
        folder: folder.to_path_buf(),
        pattern,
        target: target.clone(),
        options,
        condition: if args.no_clobber { Condition::Absent } else { Condition::None },
        filters: args.filters.clone(),
        filtered: Arc::default(),
        symlinks: args.symlinks,
        left,
    };
    let mut copy = Copy::new(args, &target, console);
    copy.filtered = walk.filtered.clone();
    match args.dry_run {
        true => copy.only_say(walk, &told)?,
        false => copy.send(&client, walk, &told)?,
    }
    origin::remember_of(console, &client);
    copy.conclude()
}

/// The bucket or prefix below which objects go.
fn prefix(typed: &str) -> Result<Location, Failure> {
    let target = origin::location("upload", typed)?;
    let Some((_, key)) = target.in_bucket() else {
        let failure = Failure::usage(format!("upload: {target}: a plain URL cannot be written to"));
        return Err(
            failure.with_hint("name a bucket by s3:// or oss://, with --endpoint-url or --oss-endpoint")
        );
    };
    let slash = if key.is_empty() || key.ends_with('/') { "" } else { "/" };
    Ok(target.with_key(format!("{key}{slash}")).unwrap_or(target))
}

/// What is not sent, or could not be looked at.
enum Left {
    /// With a warning: nothing of the kind can be an object.
    Out { path: PathBuf, why: String },
    /// What lies there is unknown.
    Unread(Failure),
}

/// How much the filters have left out; what lies in such a folder is not looked at.
#[derive(Default)]
struct Filtered {
    files: AtomicU64,
    folders: AtomicU64,
}

impl Filtered {
    /// `3 files and 1 folder`; nothing where nothing was left out.
    fn said(&self) -> Option<String> {
        let said = |count: &AtomicU64, noun: &str| match count.load(Ordering::Relaxed) {
            0 => None,
            count => Some(counted(count, noun)),
        };
        let said: Vec<String> =
            [said(&self.files, "file"), said(&self.folders, "folder")].into_iter().flatten().collect();
        (!said.is_empty()).then(|| said.join(" and "))
    }
}

/// The files below a folder, as they are found; read by the engine's own thread.
struct Walk {
    entries: walkdir::IntoIter,
    folder: PathBuf,
    pattern: Option<FilePattern>,
    target: Location,
    options: ObjectOptions,
    condition: Condition,
    filters: Filters,
    filtered: Arc<Filtered>,
    symlinks: Symlinks,
    left: Sender<Left>,
}

impl Walk {
    /// The entry as something to send.
    fn choose(&self, entry: &walkdir::DirEntry) -> Option<WantedPut> {
        let (path, kind) = (entry.path(), entry.file_type());
        if kind.is_dir() {
            return None;
        }
        let Some(name) = self.below(path) else {
            return match self.pattern {
                // No pattern can mean it.
                Some(_) => None,
                None => self.leave_out(path, "its name is not UTF-8, which keys are"),
            };
        };
        if self.pattern.as_ref().is_some_and(|pattern| !pattern.means(name)) {
            return None;
        }
        if !self.filters.take(name) {
            self.filtered.files.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if kind.is_symlink() && self.symlinks == Symlinks::Skip {
            return self.leave_out(path, "it is a symbolic link, and --symlinks is skip");
        }
        if kind.is_symlink() {
            // Links are followed but for those that lead nowhere.
            let _ = self.left.send(Left::Unread(Failure::usage(format!(
                "cp: {}: is a symbolic link, and --symlinks is refuse",
                path.display()
            ))));
            return None;
        }
        if !kind.is_file() {
            return self.leave_out(path, "it is a pipe, a socket or a device");
        }
        let size = entry.metadata().map_or(0, |found| found.len());
        let location = self.target.with_key(format!("{}{name}", self.target.key()))?;
        let mut options = self.options.clone();
        options.content_type = options.content_type.or_else(|| content_type(name));
        Some(WantedPut {
            path: path.to_path_buf(),
            size,
            location,
            options,
            condition: self.condition.clone(),
        })
    }

    /// Its path below the folder, where that is UTF-8.
    fn below<'a>(&self, path: &'a Path) -> Option<&'a str> {
        path.strip_prefix(&self.folder).unwrap_or(path).to_str()
    }

    fn leave_out(&self, path: &Path, why: &str) -> Option<WantedPut> {
        // When all is cancelled, the receiver is gone.
        let _ = self.left.send(Left::Out { path: path.to_path_buf(), why: why.to_owned() });
        None
    }

    /// What could not be looked at: a folder that may not be read, a link in a circle or to nothing, unless
    /// the link is left out anyway.
    fn unread(&self, error: &walkdir::Error) {
        let path = error.path().unwrap_or(&self.folder);
        let is_link = error.io_error().is_none_or(|error| error.kind() == std::io::ErrorKind::NotFound);
        let is_left = |name: &str| self.filters.excludes(name) || !self.filters.goes_into(name);
        if is_link && self.below(path).is_some_and(is_left) {
            return;
        }
        let path = path.display();
        let failure = match (error.io_error(), error.loop_ancestor()) {
            (Some(gone), _) if gone.kind() == std::io::ErrorKind::NotFound => {
                let failure = Failure::local("read", path, gone);
                failure
                    .with_hint("it has vanished, or is a link to nothing: --symlinks skip leaves links out")
            }
            (Some(refused), _) => Failure::local("read", path, refused),
            (None, Some(_)) => {
                let failure =
                    Failure::usage(format!("read: {path}: this link leads to a folder that holds it"));
                failure.with_hint("use --symlinks skip")
            }
            (None, None) => Failure::usage(format!("read: {path}: {error}")),
        };
        let _ = self.left.send(Left::Unread(failure));
    }
}

impl Iterator for Walk {
    type Item = Result<WantedPut, flatout_engine::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.entries.next()? {
                Ok(entry) => {
                    let is_left = |name: &str| !name.is_empty() && !self.filters.goes_into(name);
                    if entry.file_type().is_dir() && self.below(entry.path()).is_some_and(is_left) {
                        self.filtered.folders.fetch_add(1, Ordering::Relaxed);
                        self.entries.skip_current_dir();
                    } else if let Some(wanted) = self.choose(&entry) {
                        return Some(Ok(wanted));
                    }
                }
                Err(error) => self.unread(&error),
            }
        }
    }
}

/// Whether there is a bucket to send to, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bucket {
    There,
    Missing,
}

/// A copy of many files, and what has been told of it so far.
struct Copy<'a> {
    args: &'a Cp,
    target: &'a Location,
    console: &'a Console,
    filtered: Arc<Filtered>,
    summary: events::Summary,
    unverified: u64,
    failures: Failures<'a>,
    warnings: Warnings<'a>,
    has_left_out: bool,
    start: Instant,
}

impl<'a> Copy<'a> {
    fn new(args: &'a Cp, target: &'a Location, console: &'a Console) -> Copy<'a> {
        Copy {
            args,
            target,
            console,
            filtered: Arc::default(),
            summary: events::Summary { action: "upload", ..Default::default() },
            unverified: 0,
            failures: Failures::new(console, "cp", args.verbose),
            warnings: Warnings::new(console, args.verbose),
            has_left_out: false,
            start: Instant::now(),
        }
    }

    fn send(&mut self, client: &Client, walk: Walk, told: &Receiver<Left>) -> Result<(), Failure> {
        let armed = self.console.interrupt.arm();
        let mut many = client.put_many(walk)?;
        armed.on_signal(many.cancel_switch());
        let bar = Bar::new(self.console, Carries::Lines, "");
        let mut is_over = false;
        while let Some(ended) = many.next(POLL) {
            bar.show_many(&shown(&many.progress()));
            bar.above(|| {
                told.try_iter().try_for_each(|left| self.tell_left(left))?;
                for finished in ended {
                    if self.tell(finished)? == Bucket::Missing && !std::mem::replace(&mut is_over, true) {
                        many.cancel_switch()();
                    }
                }
                Ok::<(), Failure>(())
            })?;
            self.console.flush()?;
        }
        drop(bar);
        self.summary.fetched = many.progress().sent_bytes;
        told.try_iter().try_for_each(|left| self.tell_left(left))?;
        self.tell_repeats();
        if is_over {
            let why = format!("cp: {}: there is no bucket: no other file was tried", self.target);
            self.failures.of_all(&Failure::not_found(why).with_hint("make the bucket: `flatout mb`"));
        }
        if self.console.interrupt.raised() {
            let why = format!(
                "cp: {}: interrupted: files that were not sent by then are missing",
                self.args.source
            );
            self.failures.of_all(&Failure::interrupted(why));
        }
        if let Some(error) = many.incomplete() {
            self.failures.of_all(&error.into());
        }
        Ok(())
    }

    fn only_say(&mut self, walk: Walk, told: &Receiver<Left>) -> Result<(), Failure> {
        for wanted in walk {
            told.try_iter().try_for_each(|left| self.tell_left(left))?;
            let wanted = wanted?;
            self.summary.objects += 1;
            let (from, to) = (wanted.path.display().to_string(), wanted.location.to_string());
            self.console.answer(&format!("would copy {} -> {}", one_line(&from), one_line(&to)))?;
            let source = UploadSource::File(wanted.path);
            self.console.event(
                Carries::Lines,
                &events::Object::of_upload(source.shown(), &wanted.location, "planned"),
            )?;
        }
        told.try_iter().try_for_each(|left| self.tell_left(left))
    }

    /// What became of one file: its event, and the error if there is one. It stops no other, unless there is
    /// no bucket.
    fn tell(&mut self, finished: FinishedPut) -> Result<Bucket, Failure> {
        let FinishedPut { wanted, result, seconds } = finished;
        self.summary.objects += 1;
        let source = UploadSource::File(wanted.path);
        let mut event = events::Object {
            seconds,
            ..events::Object::of_upload(source.shown(), &wanted.location, "failed")
        };
        match result {
            Ok(done) => {
                self.summary.ok += 1;
                self.summary.bytes += done.bytes;
                self.summary.resumed += done.resumed_bytes;
                self.unverified += u64::from(matches!(done.verified, Verified::None(_)));
                (event.status, event.bytes, event.resumed) = ("ok", done.bytes, done.resumed_bytes);
                (event.fetched, event.retries) = (done.fetched_bytes, done.retries);
                event.verified = Some(done.verified.to_string());
                event.etag = done.version.etag.clone();
                event.tails = events::Tails::of(Some(&done));
                self.console.event(Carries::Lines, &event)?;
            }
            Err(error) if error.is_there() => {
                self.summary.skipped += 1;
                (event.status, event.reason) = ("skipped", Some("an object of that name exists".to_owned()));
                self.console.event(Carries::Lines, &event)?;
            }
            Err(error) => {
                self.summary.failed += 1;
                self.console.event(Carries::Lines, &event)?;
                // What a signal ended, or the want of a bucket, needs no line for each file.
                if error.kind() != ErrorKind::Cancelled {
                    self.failures.of_object(&error)?;
                }
                if error.is_missing_bucket() {
                    return Ok(Bucket::Missing);
                }
            }
        }
        Ok(Bucket::There)
    }

    fn tell_left(&mut self, left: Left) -> Result<(), Failure> {
        match left {
            Left::Unread(failure) => {
                // What lies there is not known, so not all is there.
                let exit = if failure.exit == Exit::Usage { Exit::Failed } else { Exit::Incomplete };
                self.failures.of_all(&Failure { exit, ..failure });
                Ok(())
            }
            Left::Out { path, why } => {
                self.summary.objects += 1;
                self.summary.skipped += 1;
                self.has_left_out = true;
                let name = path.display().to_string();
                self.warnings.of_object(&name, &why, format!("left out: {name}: {why}"));
                let source = UploadSource::File(path);
                let event = events::Object {
                    reason: Some(why),
                    ..events::Object::of_upload(source.shown(), self.target, "skipped")
                };
                self.console.event(Carries::Lines, &event)
            }
        }
    }

    /// What was held back since it reads like what was said.
    fn tell_repeats(&mut self) {
        self.warnings.tell_repeats();
        self.failures.tell_repeats();
    }

    fn exit(&self) -> Exit {
        let left_out = if self.has_left_out { Exit::LeftOut } else { Exit::Clean };
        self.failures.exit().max(left_out)
    }

    fn conclude(mut self) -> Result<Exit, Failure> {
        if self.summary.objects == 0 && self.exit() == Exit::Clean {
            match self.filtered.said() {
                None => {
                    let why = format!("cp: {}: there is no file to copy", self.args.source);
                    let hint = "check the folder; empty folders are no objects";
                    self.failures.of_all(&Failure::not_found(why).with_hint(hint));
                }
                Some(filtered) => {
                    let (from, to) = (one_line(&self.args.source), one_line(&self.target.to_string()));
                    self.console.say(&format!("{from} -> {to}: {}", all_left_out(&filtered)))?;
                }
            }
        }
        self.summary.seconds = self.start.elapsed().as_secs_f64();
        let exit = self.exit();
        self.summary.exit = exit.code();
        self.console.count_bytes(self.summary.bytes);
        if self.summary.ok + self.summary.skipped > 0 && !self.args.dry_run {
            let events::Summary { ok, failed, skipped, bytes, resumed, seconds, .. } = self.summary;
            let also =
                |count: u64, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
            self.console.say(&format!(
                "{} -> {}: {}{}{}, {}, verified: {} of {ok}",
                one_line(&self.args.source),
                one_line(&self.target.to_string()),
                counted(ok, "object"),
                also(failed, "failed"),
                also(skipped, "skipped"),
                amount(bytes, resumed, seconds),
                ok - self.unverified,
            ))?;
        }
        self.console.event(Carries::Lines, &self.summary)?;
        Ok(exit)
    }
}

/// As a bar shows many objects.
pub fn shown(progress: &ManyPutsProgress) -> ManyProgress {
    ManyProgress {
        objects: progress.files,
        total_bytes: progress.total_bytes,
        is_complete: progress.is_complete,
        ok: progress.ok,
        failed: progress.failed,
        landed_bytes: progress.sent_bytes,
        fetched_bytes: progress.sent_bytes,
        ..ManyProgress::default()
    }
}
