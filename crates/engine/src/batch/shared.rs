//! What the workers, the feeder and the caller of a get of many objects share.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Finished, ManyProgress, Wanted, closed_meanwhile};
use crate::api::account::{Account, check_object};
use crate::base::cancellation::Cancellation;
use crate::base::error::{Error, ErrorKind};
use crate::base::files;
use crate::base::limited_by::TimeByLimit;
use crate::base::report::{Counters, Report};
use crate::batch::{run_batch_worker, weight};
use crate::disk::folder::Folder;
use crate::disk::temporary::Sweeper;
use crate::gate::Gate;
use crate::gate::slots::{Seat, Slot, WorkSource};
use crate::memory::lease::MemoryCharge;
use crate::memory::plan;
use crate::shard::shards::{Shards, Task};
use crate::shard::shared::Shared;
use crate::sink::landing::Landing;
use crate::transfer::get::Get;
use crate::transfer::guard::TransferGuard;
use crate::transfer::resources::{Resources, TransferOptions};
use crate::transfer::{Download, Running, TransferOwner, cancelled};
use flatout_policy::batch_order::{Item, MayBegin, Queue, Work};
use flatout_policy::queue::{Priority, TransferId};
use std::sync::Weak;

/// Objects known and not yet reported: a listing runs this far ahead, which is four pages and about 5 MiB.
const AHEAD: usize = 4096;
/// What the objects weigh is charged in steps of this.
pub(crate) const WEIGHT_STEP_BYTES: u64 = 256 << 10;
/// Objects open for each worker; the second may wait for its checksum.
const OPEN_A_WORKER: usize = 2;
/// The caller is woken for this many at once: a wake-up for each small object would cost more than its
/// receive.
const NEWS: usize = 512;

/// One get of many objects.
pub(crate) struct Batch {
    account: Arc<Account>,
    pub(super) gate: Arc<Gate>,
    /// What had held the gate back when it began.
    tally: TimeByLimit,
    care: TransferOptions,
    shards: Arc<Shards>,
    /// All its objects are one transfer where slots are given out.
    transfer: TransferId,
    folder: Option<Folder>,
    /// What objects known and not yet reported may weigh.
    weight_max: u64,
    /// Files that landings may hold.
    files_max: u64,
    state: Mutex<State>,
    /// Wakes workers that found nothing to take.
    work: Notify,
    /// Wakes the feeder when there is room.
    room: Condvar,
    /// Wakes the caller.
    news: Condvar,
    stop: Cancellation,
    process: u32,
}

struct State {
    queue: Queue<Wanted, TransferGuard>,
    /// Large objects that have begun and not ended, for progress and cancel.
    large: Vec<Arc<Download>>,
    finished: Vec<Finished>,
    /// Objects known that have not ended.
    outstanding: usize,
    /// Of all objects known and not yet reported.
    weight: u64,
    charge: MemoryCharge,
    /// Of those, the ones whose landing is open.
    begun: usize,
    is_fed: bool,
    incomplete: Option<Error>,
    /// By shard, those who prefer small objects and those who prefer parts.
    workers: HashMap<usize, [u32; 2]>,
    /// Without what large objects on their way have landed.
    progress: ManyProgress,
}

/// What ties a transfer to the batch that it is one object of.
struct Member {
    batch: Arc<Batch>,
    wanted: Wanted,
    again: bool,
}

impl TransferOwner for Member {
    fn has_more(&self) -> bool {
        self.batch.has_more()
    }

    fn open(&self, transfer: &Arc<Download>) {
        self.batch.open(transfer);
    }

    fn on_end(&self, transfer: &Download, result: Result<Report, Error>) {
        self.batch.end(transfer, self, result);
    }
}

/// A worker's part in a batch, which is over when the last one is dropped.
pub(crate) struct Worker {
    pub(super) batch: Arc<Batch>,
    pub(super) prefers_parts: bool,
    pub(super) seat: Seat,
    has_left: bool,
}

impl WorkSource for Batch {
    /// Its own workers ask for the slots of its objects and parts.
    fn wants(&self) -> (u64, Priority) {
        (0, Priority::Awaited)
    }

    fn is_stream(&self) -> bool {
        false
    }

    fn start(self: Arc<Self>, _seat: Seat, _slot: Slot) {}

    fn on_limit(self: Arc<Self>, limit: u32) -> bool {
        for _ in 0..limit {
            let Some(worker) = self.employ(limit) else { break };
            let shard = worker.seat.shard();
            // A client that is closed drops it, and with it the batch ends.
            if self.shards.send(shard, Task::new(|shard| run_batch_worker(shard, worker))).is_err() {
                break;
            }
        }
        self.lock().workers() >= limit
    }
}

impl Batch {
    pub(crate) fn new(
        shared: &Shared,
        shards: Arc<Shards>,
        gate: Arc<Gate>,
        folder: Option<Folder>,
    ) -> Batch {
        let state = State {
            queue: Queue::default(),
            large: Vec::new(),
            finished: Vec::new(),
            outstanding: 0,
            weight: 0,
            charge: shared.pool.charge(0),
            begun: 0,
            is_fed: false,
            incomplete: None,
            workers: HashMap::new(),
            progress: ManyProgress::default(),
        };
        Batch {
            account: shared.account.clone(),
            tally: gate.tally(),
            transfer: gate.new_transfer(),
            gate,
            care: TransferOptions::of(&shared.settings),
            shards,
            files_max: if folder.is_some() { shared.memory_plan.landing_files } else { u64::MAX },
            folder,
            weight_max: shared.memory_plan.names,
            state: Mutex::new(state),
            work: Notify::new(),
            room: Condvar::new(),
            news: Condvar::new(),
            stop: Cancellation::new(),
            process: std::process::id(),
        }
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// A client that has been closed.
    pub(crate) fn open_for_work(self: &Arc<Batch>) -> Result<(), Error> {
        let source: Weak<Batch> = Arc::downgrade(self);
        let seat = self.gate.join(self.transfer, source, 0);
        // Outside the lock, which a worker that is dropped needs.
        let worker = Worker::new(self, &mut self.lock(), seat);
        self.shards.send(0, Task::new(|shard| run_batch_worker(shard, worker)))?;
        self.gate.start_workers();
        Ok(())
    }

    /// One more worker where there are fewer than `limit`, unless the last one has left or there is nothing
    /// more to do.
    fn employ(self: &Arc<Batch>, limit: u32) -> Option<Worker> {
        let seat = self.gate.seat();
        let mut state = self.lock();
        let is_wanted = (1..limit).contains(&state.workers()) && !state.is_done() && !self.is_stopped();
        if !is_wanted {
            // Outside the lock: the gate's comes before ours.
            drop(state);
            return None;
        }
        Some(Worker::new(self, &mut state, seat))
    }

    /// Whether a worker may go on to something else. One that may not, since there are more than may be in
    /// flight, has left.
    pub(super) fn keeps(&self, worker: &mut Worker) -> bool {
        let mut state = self.lock();
        let stays = state.workers() <= self.gate.limit().max(1);
        if !stays {
            worker.leave(&mut state);
        }
        stays
    }

    pub(super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Reads what is wanted, as far ahead as there is room. What killed runs left in a folder goes before its
    /// first file comes: this thread may wait for a disk, while those of the shards may not.
    pub(crate) fn feed(&self, wanted: impl Iterator<Item = Result<Wanted, Error>>) {
        let mut fed = Fed(self, Some(Error::new(ErrorKind::Internal, "the list of objects panicked")));
        let mut sweeper = self.folder.clone().map(Sweeper::new);
        for wanted in wanted {
            match wanted {
                Ok(wanted) => {
                    if let Some(sweeper) = &mut sweeper {
                        sweeper.before(&wanted.name);
                    }
                    if !self.push(wanted) {
                        break;
                    }
                }
                Err(error) => {
                    fed.1 = Some(error);
                    return;
                }
            }
        }
        fed.1 = None;
    }

    /// `false` when nobody wants it any more.
    fn push(&self, wanted: Wanted) -> bool {
        let weight = weight(&wanted);
        let full = |state: &mut State| {
            let ahead = state.outstanding + state.finished.len();
            let is_heavy = || state.weight + weight > self.weight_max || state.charge.is_over();
            !self.is_stopped() && (ahead >= AHEAD || ahead > 0 && is_heavy())
        };
        let waited = self.room.wait_while(self.lock(), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped() {
            return false;
        }
        state.outstanding += 1;
        state.weigh(weight, 0);
        state.progress.objects += 1;
        state.progress.total_bytes += wanted.size.unwrap_or(0);
        let is_small = self.is_small(wanted.size);
        state.queue.push(Item { wanted, again: false }, is_small);
        drop(state);
        self.work.notify_one();
        true
    }

    /// Whether one plain GET is the shortest way.
    fn is_small(&self, size: Option<u64>) -> bool {
        size.is_some_and(|size| size <= self.gate.usual_part_bytes())
    }

    /// What to do next; `None` when there will be nothing more.
    pub(super) async fn take(&self, prefers_parts: bool) -> Option<Work<Wanted, TransferGuard>> {
        loop {
            let mut woken = std::pin::pin!(self.work.notified());
            {
                let mut state = self.lock();
                let may = self.may_begin(&state);
                if let Some(work) = state.queue.take(prefers_parts, may) {
                    if matches!(work, Work::Object(_)) {
                        // Before another worker looks whether there is room.
                        state.begun += 1;
                    }
                    return Some(work);
                }
                if state.is_done() {
                    return None;
                }
                // Before the lock is given back: what comes after it wakes us.
                woken.as_mut().enable();
            }
            woken.await;
        }
    }

    fn may_begin(&self, state: &State) -> MayBegin {
        let has_room = |is_large| files::has_room(self.files_max, state.begun, state.large.len(), is_large);
        let is_few = state.begun < OPEN_A_WORKER * self.gate.limit() as usize;
        MayBegin { small: has_room(false), large: is_few && has_room(true) }
    }

    /// Whether anything waits for a worker but the object whose parts are all taken.
    pub(crate) fn has_more(&self) -> bool {
        let state = self.lock();
        !state.is_fed || state.queue.has_more()
    }

    /// Begins an object that was taken. One that cannot be begun has ended.
    pub(super) fn begin(self: &Arc<Batch>, item: Item<Wanted>) -> Option<TransferGuard> {
        let Item { wanted, again } = item;
        let is_small = self.is_small(wanted.size) && !again;
        let started = check_object(&wanted.location).and_then(|()| {
            let landing = match &self.folder {
                None => Landing::Nowhere,
                Some(folder) => Landing::Beneath(folder.clone(), wanted.name.clone()),
            };
            let mut get = Get::new(wanted.location.clone(), landing);
            get.keep_existing = wanted.keep_existing;
            get.modified_ns = wanted.modified_ns;
            let resources = Resources {
                gate: self.gate.clone(),
                shards: self.shards.clone(),
                slots: self.gate.slots(self.transfer, Priority::Awaited),
                care: self.care,
            };
            Download::start(get, self.account.clone(), resources)
        });
        let member = Member { batch: self.clone(), wanted, again };
        match started {
            Ok(running) => {
                // What an earlier run left was large for its parts.
                let is_small = is_small && !running.may_resume();
                let running = Arc::new(running.owned_by(Box::new(member), is_small));
                let mut state = self.lock();
                state.weigh(0, 0);
                if !is_small {
                    state.large.push(running.clone());
                }
                drop(state);
                Some(TransferGuard::new(running))
            }
            Err(error) => {
                let mut state = self.lock();
                state.begun -= 1;
                self.work.notify_one();
                self.tell(state, finished(&member, Err(error)));
                None
            }
        }
    }

    fn open(&self, transfer: &Arc<Download>) {
        // Whoever says so has a hold of his own.
        let Some(hold) = TransferGuard::join(transfer) else { return };
        self.lock().queue.open(hold);
        self.work.notify_waiters();
    }

    /// An object has no part left to take.
    pub(super) fn close(&self, hold: &TransferGuard) {
        let closed = self.lock().queue.close(|open| Arc::ptr_eq(open.running(), hold.running()));
        // Outside the lock: the last hold tells us of the object's end.
        drop(closed);
    }

    fn end(&self, running: &Download, member: &Member, result: Result<Report, Error>) {
        let connections = running.transfer.counters.connections.load(Relaxed);
        let is_changed = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Changed);
        let mut state = self.lock();
        state.progress.kept_bytes += running.kept_bytes.load(Relaxed);
        state.let_go(running, connections);
        // Whoever waits for another to end before he begins one may look again.
        self.work.notify_one();
        if is_changed && !member.again && !self.is_stopped() {
            // The new version is read as a whole, and its size is the origin's to tell.
            return state.queue.push(Item { wanted: member.wanted.clone(), again: true }, false);
        }
        if let Err(error) = &result
            && error.is_outage()
        {
            // Whatever else is asked of the origin would fail like this one.
            state.incomplete.get_or_insert_with(|| error.clone_without_source());
            drop(state);
            self.cancel();
            state = self.lock();
        }
        let progress = running.progress();
        let finished = Finished {
            fetched_bytes: progress.fetched_bytes,
            retries: progress.retries,
            seconds: running.transfer.clock_s(),
            ..finished(member, result)
        };
        self.tell(state, finished);
    }

    fn tell(&self, mut state: MutexGuard<'_, State>, finished: Finished) {
        state.outstanding -= 1;
        if state.is_over() {
            self.news.notify_all();
        }
        state.progress.fetched_bytes += finished.fetched_bytes;
        let listed_bytes = finished.wanted.size.unwrap_or(0);
        match &finished.result {
            Ok(report) => {
                let progress = &mut state.progress;
                progress.ok += 1;
                progress.landed_bytes += report.bytes;
                progress.total_bytes = (progress.total_bytes + report.bytes).saturating_sub(listed_bytes);
            }
            // Objects that a cancel or an outage cut off have not failed: the caller knows why they are
            // missing.
            Err(error)
                if self.is_stopped() && (error.kind() == ErrorKind::Cancelled || error.is_outage()) =>
            {
                return state.weigh(0, weight(&finished.wanted));
            }
            Err(_) => state.progress.failed += 1,
        }
        state.finished.push(finished);
        if state.finished.len() == NEWS {
            self.news.notify_all();
        }
        if state.is_done() {
            self.work.notify_waiters();
        }
    }

    /// What has ended since the last call; `None` when all is over.
    pub(crate) fn next(&self, within: Duration) -> Option<Vec<Finished>> {
        let little = |state: &mut State| state.finished.len() < NEWS && !state.is_over();
        let waited = self.news.wait_timeout_while(self.lock(), within, little);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.finished.is_empty() && state.is_over() {
            return None;
        }
        let finished = std::mem::take(&mut state.finished);
        let weight: u64 = finished.iter().map(|finished| weight(&finished.wanted)).sum();
        state.weigh(0, weight);
        drop(state);
        self.room.notify_all();
        Some(finished)
    }

    pub(crate) fn take_incomplete(&self) -> Option<Error> {
        self.lock().incomplete.take()
    }

    pub(crate) fn progress(&self) -> ManyProgress {
        let state = self.lock();
        let on_their_way = |of: fn(&Counters) -> u64| -> u64 {
            state.large.iter().map(|running| of(&running.transfer.counters)).sum()
        };
        let tally = self.gate.tally();
        ManyProgress {
            landed_bytes: state.progress.landed_bytes + on_their_way(Counters::landed_bytes),
            fetched_bytes: state.progress.fetched_bytes + on_their_way(Counters::fetched_bytes),
            is_complete: state.is_fed,
            limited_by: tally.now(),
            mostly_limited_by: tally.since(&self.tally),
            ..state.progress
        }
    }

    pub(crate) fn cancel(&self) {
        let large = {
            // Under the lock, so that nobody who looks under it misses it.
            let state = self.lock();
            self.stop.cancel();
            state.large.clone()
        };
        for running in large {
            running.fail(cancelled());
        }
        self.room.notify_all();
    }

    /// Ready when all is to stop.
    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits until no worker is left, and no landing open.
    pub(super) fn wait(&self) {
        drop(self.news.wait_while(self.lock(), |state| !state.is_over()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Objects have come and gone that weigh so much. The charge follows in steps: the client's account has
    /// one lock for all.
    fn weigh(&mut self, come: u64, gone: u64) {
        self.weight = self.weight + come - gone;
        let open = self.begun as u64 * plan::OPEN_BYTES;
        self.charge.set((self.weight + open).next_multiple_of(WEIGHT_STEP_BYTES));
    }

    fn is_done(&self) -> bool {
        self.is_fed && self.outstanding == 0
    }

    /// A statement that is still waited for keeps its object's landing open without a worker.
    fn is_over(&self) -> bool {
        self.workers() == 0 && self.begun == 0
    }

    fn workers(&self) -> u32 {
        self.workers.values().flatten().sum()
    }

    /// A transfer has closed its landing.
    fn let_go(&mut self, running: &Download, connections: u32) {
        self.begun -= 1;
        self.weigh(0, 0);
        self.large.retain(|large| !std::ptr::eq(Arc::as_ptr(large), running));
        self.progress.connections += connections;
    }
}

fn finished(member: &Member, result: Result<Report, Error>) -> Finished {
    Finished { wanted: member.wanted.clone(), result, fetched_bytes: 0, retries: 0, seconds: 0.0 }
}

/// Ends the feed, however the list of objects ends; with its error where it broke off.
struct Fed<'a>(&'a Batch, Option<Error>);

impl Drop for Fed<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_fed = true;
        if let Some(error) = self.1.take() {
            state.incomplete.get_or_insert(error);
        }
        drop(state);
        self.0.work.notify_waiters();
    }
}

impl Worker {
    fn new(batch: &Arc<Batch>, state: &mut State, seat: Seat) -> Worker {
        let shard = seat.shard();
        let kinds = state.workers.entry(shard).or_default();
        // Of either kind as many on each shard, and of the odd ones as many on all.
        let prefers_parts = match kinds[0].cmp(&kinds[1]) {
            Ordering::Equal => shard.is_multiple_of(2),
            more_for_objects => more_for_objects == Ordering::Greater,
        };
        kinds[usize::from(prefers_parts)] += 1;
        Worker { batch: batch.clone(), prefers_parts, seat, has_left: false }
    }

    fn leave(&mut self, state: &mut State) {
        let is_first = !std::mem::replace(&mut self.has_left, true);
        if let Some(kinds) = state.workers.get_mut(&self.seat.shard()).filter(|_| is_first) {
            kinds[usize::from(self.prefers_parts)] -= 1;
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let batch = self.batch.clone();
        let mut state = batch.lock();
        self.leave(&mut state);
        if state.workers() > 0 {
            return;
        }
        if !state.is_done() && !batch.is_stopped() {
            state.incomplete.get_or_insert_with(closed_meanwhile);
        }
        batch.stop.cancel();
        let open = state.queue.clear();
        drop(state);
        batch.gate.leave(batch.transfer);
        // Outside the lock: a last hold tells us of its object's end.
        drop(open);
        batch.room.notify_all();
        batch.news.notify_all();
    }
}
