//! The copies of a sync. What the plan wants goes to the engine as many objects at once; its other steps go
//! beside them to who tells.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use flatout_engine::{
    Client, Error, Folder, Many, ManyProgress, ManyPuts, Put, Report, Source, Transfer, Wanted, WantedPut,
};
use flatout_sync::decide::Why;
use flatout_sync::item::Entry;
use flatout_wire::object_options::{Condition, ObjectOptions};

use super::ask::{STORED_TIME, time_text};
use super::plan::Step;
use super::steps::Steps;
use super::tell::Telling;
use super::trees::Tree;
use crate::commands::cp_between_many::{EndedCopy, OneCopy, Worker, copies_at_once};
use crate::commands::cp_through::Switches;
use crate::commands::{cp_upload_many, failures};
use crate::console::Carries;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::limited::Limited;
use crate::progress::{Bar, POLL};
use crate::stored_as::content_type;

/// SentMarks of empty folders on their way at a time.
const MARKS_MOST: usize = 64;
/// Steps that may wait to be told.
const UNTOLD_MOST: usize = 1 << 16;
/// Extra names that are kept in memory: of more, the plan is made again.
pub const EXTRAS_MOST: usize = 1 << 16;

/// Only the target has it.
#[derive(Debug)]
pub enum Extra {
    Entry(Entry),
    Folder(String),
}

impl Extra {
    pub fn name(&self) -> &str {
        match self {
            Extra::Entry(entry) => &entry.name,
            Extra::Folder(name) => name,
        }
    }
}

/// What the walk of both trees leaves for later.
#[derive(Default)]
pub struct Later {
    /// The first of them.
    pub extras: Vec<Extra>,
    /// There are more than those.
    pub has_more: bool,
    /// How many objects or files are extra; folders are in no count.
    pub extra_count: u64,
}

impl Later {
    /// Notes what is for later; other steps are handed on.
    pub fn note(&mut self, step: Step) -> Option<Step> {
        let extra = match step {
            Step::Extra(entry) => Extra::Entry(entry),
            Step::ExtraFolder(name) => Extra::Folder(name),
            step => return Some(step),
        };
        self.extra_count += u64::from(matches!(extra, Extra::Entry(_)));
        match self.extras.len() < EXTRAS_MOST {
            true => self.extras.push(extra),
            false => self.has_more = true,
        }
        None
    }
}

/// How a sync copies.
pub struct Carrier<'a> {
    pub client: &'a Arc<Client>,
    pub source: &'a Tree,
    pub target: &'a Tree,
    pub options: ObjectOptions,
    /// Of a download.
    pub folder: Option<Folder>,
}

impl Carrier<'_> {
    /// Makes the copies of a plan, and tells all its steps but those for later.
    pub fn carry(&self, steps: Steps, telling: &mut Telling<'_>) -> Result<Later, Failure> {
        let armed = telling.console.interrupt.arm();
        let (tell, told) = mpsc::sync_channel(UNTOLD_MOST);
        let beside = Beside { tells_unchanged: telling.console.wants_events(), ..Beside::default() };
        let stop = steps.stop();
        let copies = Copies { steps, beside: beside.clone(), tell };
        let mut running = self.start(copies)?;
        // Dropped before the copies, whose thread may wait for a step.
        let stop = stop;
        // Dropped before the copies, whose thread may wait to tell.
        let told = told;
        armed.on_signal(running.cancel_switch());
        let bar = Bar::new(telling.console, Carries::Lines, "");
        let (mut later, mut marks, mut hopeless) = (Later::default(), SentMarks::default(), None);
        loop {
            let ended = running.next();
            bar.show_many(&beside.shown(running.progress()));
            bar.above(|| {
                for Ended { name, result, seconds } in ended.iter().flatten() {
                    if hopeless.is_none() {
                        hopeless = result.as_ref().err().and_then(|error| self.ends_all(error));
                    }
                    telling.on_end(name, beside.reason(name), result, *seconds)?;
                }
                told.try_iter().try_for_each(|step| self.on_step(step, &mut later, &mut marks, telling))
            })?;
            if hopeless.is_some() {
                stop.now();
                running.cancel_switch()();
            }
            telling.console.flush()?;
            if ended.is_none() {
                break;
            }
        }
        drop(bar);
        told.try_iter().try_for_each(|step| self.on_step(step, &mut later, &mut marks, telling))?;
        marks.wait(0, telling)?;
        telling.summary.unchanged = beside.unchanged.load(Ordering::Relaxed);
        telling.summary.limited_by = running.progress().mostly_limited_by.map(Limited::from);
        if telling.console.interrupt.raised() {
            let why = format!("sync: {}: interrupted before everything was copied", self.source.shown());
            telling
                .failures
                .of_all(&Failure::interrupted(why).with_hint("run it again: it goes on from there"));
        } else if let Some(failure) = hopeless {
            telling.failures.of_all(&failure);
        } else if let Some(error) = running.incomplete() {
            telling.failures.of_all(&error.into());
        }
        Ok(later)
    }

    fn start(&self, copies: Copies) -> Result<Running, Error> {
        match (self.source, self.target, &self.folder) {
            (Tree::Objects(from), Tree::Folder(_), Some(folder)) => {
                let source = self.source.clone();
                let wanted = copies.map(move |entry| {
                    let location = source.location(&entry.name).expect("the source is a bucket");
                    Ok(Wanted {
                        location,
                        size: Some(entry.size),
                        name: entry.name,
                        keep_existing: false,
                        modified_ns: entry.modified_ns,
                    })
                });
                self.client.get_many(&from.location, wanted, Some(folder.clone())).map(Running::Down)
            }
            (Tree::Folder(folder), Tree::Objects(to), _) => {
                let (folder, target, options) = (folder.clone(), self.target.clone(), self.options.clone());
                let wanted = copies.map(move |entry| {
                    Ok(WantedPut {
                        path: folder.join(&entry.name),
                        size: entry.size,
                        location: target.location(&entry.name).expect("the target is a bucket"),
                        options: put_options(&options, &entry),
                        condition: Condition::None,
                    })
                });
                Ok(Running::Up(self.client.put_many(wanted)?, to.location.key().len()))
            }
            _ => self.start_between(copies).map(Running::Between),
        }
    }

    fn start_between(&self, copies: Copies) -> Result<Between, Error> {
        let (tell, told) = mpsc::channel();
        let (switches, progress) = (Switches::default(), Arc::<Mutex<ManyProgress>>::default());
        let work = {
            let (client, options) = (self.client.clone(), self.options.clone());
            let (source, target) = (self.source.clone(), self.target.clone());
            let (switches, progress) = (switches.clone(), progress.clone());
            move || copy_all(&client, options, &source, &target, switches, &progress, copies, &tell)
        };
        let builder = thread::Builder::new().name("flatout-feed".to_owned());
        let feeder = builder.spawn(work).map_err(|refused| {
            Error::new(flatout_engine::ErrorKind::LocalIo, format!("cannot start a thread: {refused}"))
        })?;
        Ok(Between { told, switches, progress, prefix_bytes: self.prefix_bytes(), feeder: Some(feeder) })
    }

    fn prefix_bytes(&self) -> usize {
        match self.target {
            Tree::Objects(to) => to.location.key().len(),
            Tree::Folder(_) => 0,
        }
    }

    /// A step that is not a copy.
    fn on_step(
        &self,
        step: Step,
        later: &mut Later,
        marks: &mut SentMarks,
        telling: &mut Telling<'_>,
    ) -> Result<(), Failure> {
        match (later.note(step), &self.folder) {
            (None, _) => Ok(()),
            (Some(Step::MakeFolder(name)), Some(folder)) => {
                telling.on_folder(&name, folder.make(name.trim_end_matches('/')))
            }
            (Some(Step::MakeFolder(name)), None) => {
                marks.wait(MARKS_MOST - 1, telling)?;
                let location = self.target.location(&name).expect("the target is a bucket");
                let put = Put::new(location, Source::Memory(Arc::new(Vec::new())));
                match self.client.put(put) {
                    Ok(transfer) => {
                        marks.0.push_back((name, transfer));
                        Ok(())
                    }
                    Err(error) => telling.on_folder(&name, Err(error)),
                }
            }
            (Some(step), _) => telling.on_step(step),
        }
    }

    /// Why no other copy can succeed either.
    fn ends_all(&self, error: &Error) -> Option<Failure> {
        let shown = self.target.shown();
        if error.is_missing_bucket() {
            let failure =
                Failure::not_found(format!("sync: {shown}: there is no bucket: no other copy was tried"));
            return Some(failure.with_hint("make the bucket: `flatout mb`"));
        }
        let kind = failures::refused_by_disk(error).filter(|kind| failures::is_full(*kind))?;
        let full = Failure::usage(format!("sync: {shown}: nothing more can be written"));
        let full = full.with_hint(match kind {
            ErrorKind::ReadOnlyFilesystem => "make the file system writable, or choose another folder",
            _ => "free some space, and run it again: it goes on from there",
        });
        Some(Failure { exit: Exit::Failed, kind: "local_io".into(), ..full })
    }
}

/// SentMarks of empty folders on their way to a bucket.
#[derive(Default)]
struct SentMarks(VecDeque<(String, Transfer)>);

impl SentMarks {
    /// Waits until at most `most` are on their way. An interrupted program cancels them instead.
    fn wait(&mut self, most: usize, telling: &mut Telling<'_>) -> Result<(), Failure> {
        while self.0.len() > most {
            let (name, transfer) = self.0.pop_front().expect("there is one");
            while !transfer.wait_timeout(POLL) {
                if telling.console.interrupt.raised() {
                    transfer.cancel_switch().cancel();
                }
            }
            telling.on_folder(&name, transfer.wait().map(drop))?;
        }
        Ok(())
    }
}

/// What an uploaded file is stored with: its type, and its time.
fn put_options(options: &ObjectOptions, file: &Entry) -> ObjectOptions {
    let mut options = options.clone();
    options.content_type = options.content_type.or_else(|| content_type(&file.name));
    let is_given = options.metadata.iter().any(|(name, _)| name.eq_ignore_ascii_case(STORED_TIME));
    if let (false, Some(ns)) = (is_given, file.modified_ns) {
        options.metadata.push((STORED_TIME.to_owned(), time_text(ns)));
    }
    options
}

/// What the plan wants copied; read by a thread of the engine's.
struct Copies {
    steps: Steps,
    beside: Beside,
    tell: SyncSender<Step>,
}

/// What that thread and ours look at.
#[derive(Clone, Default)]
struct Beside {
    unchanged: Arc<AtomicU64>,
    /// Why each copy on its way is made.
    reasons: Arc<Mutex<HashMap<String, Why>>>,
    tells_unchanged: bool,
}

impl Beside {
    fn reason(&self, name: &str) -> Option<Why> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    /// What is unchanged counts as done.
    fn shown(&self, progress: ManyProgress) -> ManyProgress {
        let unchanged = self.unchanged.load(Ordering::Relaxed);
        ManyProgress { objects: progress.objects + unchanged, ok: progress.ok + unchanged, ..progress }
    }
}

impl Iterator for Copies {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let step = self.steps.next()?;
            let is_told = match step {
                Step::Copy { source, why } => {
                    let mut reasons = self.beside.reasons.lock().unwrap_or_else(PoisonError::into_inner);
                    reasons.insert(source.name.clone(), why);
                    drop(reasons);
                    return Some(source);
                }
                Step::Same { .. } => {
                    self.beside.unchanged.fetch_add(1, Ordering::Relaxed);
                    self.beside.tells_unchanged
                }
                _ => true,
            };
            // Whoever tells may have failed to.
            if is_told && self.tell.send(step).is_err() {
                return None;
            }
        }
    }
}

/// What became of one copy.
struct Ended {
    name: String,
    result: Result<Report, Error>,
    seconds: f64,
}

/// Copies on their way.
enum Running {
    Down(Many),
    /// With the length of the target's prefix.
    Up(ManyPuts, usize),
    Between(Between),
}

impl Running {
    /// Those that have ended since the last call, after a while perhaps none; `None` when all is over.
    fn next(&mut self) -> Option<Vec<Ended>> {
        Some(match self {
            Running::Down(many) => {
                let ended = many.next(POLL)?.into_iter();
                ended
                    .map(|one| Ended { name: one.wanted.name, result: one.result, seconds: one.seconds })
                    .collect()
            }
            Running::Up(many, prefix_bytes) => {
                let name = |key: &str| key.get(*prefix_bytes..).unwrap_or_default().to_owned();
                let ended = many.next(POLL)?.into_iter();
                ended
                    .map(|one| Ended {
                        name: name(one.wanted.location.key()),
                        result: one.result,
                        seconds: one.seconds,
                    })
                    .collect()
            }
            Running::Between(between) => between.next()?,
        })
    }

    fn progress(&self) -> ManyProgress {
        match self {
            Running::Down(many) => many.progress(),
            Running::Up(many, _) => cp_upload_many::shown(&many.progress()),
            Running::Between(between) => *between.progress.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn incomplete(&self) -> Option<Error> {
        match self {
            Running::Down(many) => many.incomplete(),
            Running::Up(many, _) => many.incomplete(),
            Running::Between(between) => {
                let progress = between.progress.lock().unwrap_or_else(PoisonError::into_inner);
                let why = "a thread of the copies ended early";
                (!progress.is_complete)
                    .then(|| Error::new(flatout_engine::ErrorKind::Internal, why).during("copy", ""))
            }
        }
    }

    /// A function that cancels, from any thread.
    fn cancel_switch(&self) -> Box<dyn Fn() + Send> {
        match self {
            Running::Down(many) => {
                let watch = many.watch();
                Box::new(move || watch.cancel())
            }
            Running::Up(many, _) => Box::new(many.cancel_switch()),
            Running::Between(between) => {
                let switches = between.switches.clone();
                Box::new(move || switches.cancel())
            }
        }
    }
}

/// Copies from bucket to bucket.
struct Between {
    told: Receiver<EndedCopy>,
    switches: Switches,
    progress: Arc<Mutex<ManyProgress>>,
    prefix_bytes: usize,
    feeder: Option<JoinHandle<()>>,
}

impl Between {
    fn next(&mut self) -> Option<Vec<Ended>> {
        let first = match self.told.recv_timeout(POLL) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let ended =
            first.into_iter().chain(self.told.try_iter()).map(|EndedCopy { copy, result, seconds }| {
                match &result {
                    Ok(_) => progress.ok += 1,
                    Err(_) => progress.failed += 1,
                }
                progress.landed_bytes += copy.bytes;
                progress.fetched_bytes += copy.bytes;
                let name = copy.to.key().get(self.prefix_bytes..).unwrap_or_default().to_owned();
                let result = result.map(|report| report.expect("nothing is left as it is"));
                Ended { name, result, seconds }
            });
        Some(ended.collect())
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.switches.cancel();
        if let Some(feeder) = self.feeder.take() {
            // A panic of the thread has been printed by its own hook.
            let _ = feeder.join();
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn copy_all(
    client: &Client,
    options: ObjectOptions,
    source: &Tree,
    target: &Tree,
    switches: Switches,
    progress: &Mutex<ManyProgress>,
    copies: Copies,
    tell: &Sender<EndedCopy>,
) {
    let (Tree::Objects(from), Tree::Objects(to)) = (source, target) else { return };
    let at_once = copies_at_once(client, &from.location, &to.location);
    let worker = Worker::new(client, options, Condition::None, switches);
    let (give, given) = mpsc::sync_channel(at_once);
    let given = Arc::new(Mutex::new(given));
    thread::scope(|scope| {
        for _ in 0..at_once {
            let (worker, given, tell) = (&worker, given.clone(), tell.clone());
            let builder = thread::Builder::new().name("flatout-copy".to_owned());
            // Fewer do as well.
            let _ = builder.spawn_scoped(scope, move || worker.work(&given, &tell));
        }
        drop(given);
        for entry in copies {
            let (Some(from), Some(to)) = (source.location(&entry.name), target.location(&entry.name)) else {
                continue;
            };
            let mut known = progress.lock().unwrap_or_else(PoisonError::into_inner);
            known.objects += 1;
            known.total_bytes += entry.size;
            drop(known);
            if give.send(OneCopy { from, to, bytes: entry.size, is_within: false }).is_err() {
                return;
            }
        }
        progress.lock().unwrap_or_else(PoisonError::into_inner).is_complete = true;
        drop(give);
    });
}
