//! Many files up: each is a put like any other, and the gate divides its slots among them. Small files take
//! one request each; a large one among them has its parts sent beside them, and by all slots once they are
//! through.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

use crate::base::error::Error;
use crate::base::operation::Direction;
use crate::base::report::Report;
use crate::shard::shards::Shards;
use crate::shard::shared::Shared;
use crate::source::Source;
use crate::transfer::handle::{CancelSwitch, Transfer};
use crate::transfer::put::Put;

/// Puts that have begun beside those that have a slot: their files are open, and read as memory allows.
const AHEAD: usize = 16;
/// Results that wait to be asked for: then nothing more begins.
const UNTOLD_MOST: usize = 4_096;

/// One of many files.
#[derive(Clone, Debug)]
pub struct WantedPut {
    /// The file.
    pub path: PathBuf,
    /// Its size, as it was found.
    pub size: u64,
    /// The object.
    pub location: Location,
    /// What it is stored with.
    pub options: ObjectOptions,
    /// On which condition.
    pub condition: Condition,
}

/// What became of one of many files.
#[derive(Debug)]
pub struct FinishedPut {
    /// The file.
    pub wanted: WantedPut,
    /// Its report, or why it failed: the object is then as it was before.
    pub result: Result<Report, Error>,
    /// From when it was begun to its end.
    pub seconds: f64,
}

/// How far many puts are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManyPutsProgress {
    /// Files known so far, and their bytes.
    pub files: u64,
    /// Their bytes.
    pub total_bytes: u64,
    /// Whether all files are known.
    pub is_complete: bool,
    /// Files whose object is there.
    pub ok: u64,
    /// Files that failed.
    pub failed: u64,
    /// Bytes sent, of files on their way, too.
    pub sent_bytes: u64,
}

/// Running puts of many files. Dropping it cancels them, and waits.
pub struct ManyPuts {
    state: Arc<Puts>,
    feeder: Option<JoinHandle<()>>,
}

struct Puts {
    state: Mutex<State>,
    /// A put has ended, or results have been taken.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: Vec<(u64, WantedPut, Transfer, Instant)>,
    ended: VecDeque<u64>,
    finished: VecDeque<FinishedPut>,
    progress: ManyPutsProgress,
    /// Bytes of puts that have ended.
    ended_bytes: u64,
    incomplete: Option<Error>,
    is_cancelled: bool,
    is_over: bool,
}

impl ManyPuts {
    pub(crate) fn start(
        shared: Arc<Shared>,
        shards: Arc<Shards>,
        wanted: impl Iterator<Item = Result<WantedPut, Error>> + Send + 'static,
    ) -> Result<ManyPuts, Error> {
        let state = Arc::new(Puts { state: Mutex::default(), changed: Condvar::new() });
        let puts = state.clone();
        let feeder = std::thread::Builder::new().name("flatout-feed".into());
        let feeder = feeder
            .spawn(move || puts.feed(&shared, &shards, wanted))
            .map_err(|refused| Error::local("cannot start a thread", refused))?;
        Ok(ManyPuts { state, feeder: Some(feeder) })
    }

    /// The files that have ended since the last call, after `within` perhaps none. `None` when all is over.
    pub fn next(&mut self, within: Duration) -> Option<Vec<FinishedPut>> {
        let state = self.state.lock();
        let waits = |state: &mut State| state.finished.is_empty() && !state.is_over;
        let waited = self.state.changed.wait_timeout_while(state, within, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let finished: Vec<FinishedPut> = state.finished.drain(..).collect();
        self.state.changed.notify_all();
        (!finished.is_empty() || !state.is_over).then_some(finished)
    }

    /// Why it ended before all files were known, where the walk broke off.
    pub fn incomplete(&self) -> Option<Error> {
        self.state.lock().incomplete.take()
    }

    /// How far it is.
    pub fn progress(&self) -> ManyPutsProgress {
        self.state.progress()
    }

    /// A function that cancels, from any thread.
    pub fn cancel_switch(&self) -> impl Fn() + Send + 'static {
        let state = Arc::downgrade(&self.state);
        move || {
            if let Some(state) = state.upgrade() {
                state.cancel();
            }
        }
    }
}

impl Drop for ManyPuts {
    fn drop(&mut self) {
        self.state.cancel();
        if let Some(feeder) = self.feeder.take() {
            // A panic of the thread has been printed by its own hook.
            let _ = feeder.join();
        }
    }
}

impl Puts {
    /// Begins a put for each file, as many at a time as have slots and a few more; ends when all have ended.
    fn feed(
        self: &Arc<Puts>,
        shared: &Arc<Shared>,
        shards: &Arc<Shards>,
        wanted: impl Iterator<Item = Result<WantedPut, Error>>,
    ) {
        for (number, wanted) in (0..).zip(wanted) {
            let wanted = match wanted {
                Ok(wanted) => wanted,
                Err(error) => {
                    self.lock().incomplete = Some(error);
                    break;
                }
            };
            let most = shared.gate_of(&wanted.location, Direction::Write).limit() as usize + AHEAD;
            if !self.wait_for_room(most) {
                break;
            }
            self.begin(number, wanted, shared, shards);
        }
        self.lock().progress.is_complete = true;
        while !self.lock().running.is_empty() {
            self.collect();
        }
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits until fewer than `most` puts run; `false` when it is cancelled.
    fn wait_for_room(&self, most: usize) -> bool {
        loop {
            {
                let state = self.lock();
                if state.is_cancelled {
                    return false;
                }
                if state.running.len() < most && state.finished.len() < UNTOLD_MOST {
                    return true;
                }
            }
            self.collect();
        }
    }

    fn begin(self: &Arc<Puts>, number: u64, wanted: WantedPut, shared: &Arc<Shared>, shards: &Arc<Shards>) {
        let puts = Arc::downgrade(self);
        let put = Put::new(wanted.location.clone(), Source::File(wanted.path.clone()))
            .with_options(wanted.options.clone())
            .on_condition(wanted.condition.clone())
            .on_end(move || {
                if let Some(puts) = puts.upgrade() {
                    puts.lock().ended.push_back(number);
                    puts.changed.notify_all();
                }
            });
        let begun = Instant::now();
        let started = put.start(shared, shards);
        let mut state = self.lock();
        state.progress.files += 1;
        state.progress.total_bytes += wanted.size;
        match started {
            Ok(transfer) => {
                let switch = state.is_cancelled.then(|| transfer.cancel_switch());
                state.running.push((number, wanted, transfer, begun));
                drop(state);
                // It was cancelled while this one began.
                switch.iter().for_each(CancelSwitch::cancel);
            }
            Err(error) => {
                state.progress.failed += 1;
                state.finished.push_back(FinishedPut { wanted, result: Err(error), seconds: 0.0 });
                self.changed.notify_all();
            }
        }
    }

    /// Takes the results of puts that have ended; waits for one, or until results have been asked for.
    fn collect(&self) {
        let waits = |state: &mut State| state.ended.is_empty();
        // Results that are asked for change nothing that is seen here: it is looked again soon.
        let waited = self.changed.wait_timeout_while(self.lock(), Duration::from_millis(50), waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let ended: Vec<u64> = state.ended.drain(..).collect();
        let mut over = Vec::with_capacity(ended.len());
        for number in ended {
            // One that ends before its put is noted is looked for again.
            match state.running.iter().position(|(known, ..)| *known == number) {
                Some(at) => over.push(state.running.swap_remove(at)),
                None => state.ended.push_back(number),
            }
        }
        drop(state);
        for (_, wanted, transfer, begun) in over {
            // It has ended: nothing is waited for.
            let sent_bytes = transfer.progress().landed_bytes;
            let result = transfer.wait();
            let mut state = self.lock();
            match result.is_ok() {
                true => state.progress.ok += 1,
                false => state.progress.failed += 1,
            }
            state.ended_bytes += if result.is_ok() { wanted.size.max(sent_bytes) } else { sent_bytes };
            let seconds = begun.elapsed().as_secs_f64();
            state.finished.push_back(FinishedPut { wanted, result, seconds });
        }
        self.changed.notify_all();
    }

    fn progress(&self) -> ManyPutsProgress {
        let state = self.lock();
        let running: u64 =
            state.running.iter().map(|(_, _, transfer, _)| transfer.progress().landed_bytes).sum();
        ManyPutsProgress { sent_bytes: state.ended_bytes + running, ..state.progress }
    }

    fn cancel(&self) {
        let switches: Vec<CancelSwitch> = {
            let mut state = self.lock();
            state.is_cancelled = true;
            state.running.iter().map(|(_, _, transfer, _)| transfer.cancel_switch()).collect()
        };
        // Without the lock: what ends takes it.
        switches.iter().for_each(CancelSwitch::cancel);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
