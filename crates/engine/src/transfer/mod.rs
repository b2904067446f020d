//! A transfer: what both directions have. What a get has besides is in `download`; what its caller holds, in
//! `handle`.

mod copied_parts;
pub(crate) mod copy;
pub(crate) mod download;
pub(crate) mod get;
pub(crate) mod guard;
pub(crate) mod handle;
mod owner;
pub(crate) mod part;
pub(crate) mod put;
pub(crate) mod resources;
pub(crate) mod response;
pub(crate) mod server_copy;
pub(crate) mod single;
mod start_put;
pub(crate) mod upload;
mod upload_checksum;
mod upload_resume;
mod upload_stream;
pub(crate) mod upload_workers;
pub(crate) mod workers;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::base::cancellation::Cancellation;
use crate::base::error::{Error, ErrorKind};
use crate::base::limited_by::{LimitedBy, TimeByLimit};
use crate::base::report::{Counters, PartRecord, Progress};
use crate::gate::Gate;
use crate::gate::slots::TransferSlots;
use crate::shard::shards::Shards;
use crate::sink::end::End;
use crate::transfer::resources::Resources;

pub(crate) use download::Download;
pub(crate) use owner::TransferOwner;

/// One transfer, in whichever direction: who carries it, what it has come to, and how it ends.
pub(crate) struct ActiveTransfer {
    /// Of the object, for people.
    pub(crate) name: String,
    pub(crate) gate: Arc<Gate>,
    /// Where its workers are started.
    pub(crate) shards: Arc<Shards>,
    pub(crate) slots: TransferSlots,
    /// That carry its parts, or wait to go on with one.
    workers: AtomicU32,
    /// What had held the gate back when it began.
    tally: TimeByLimit,
    pub(crate) counters: Counters,
    /// One bit per shard that took part; shards beyond 64 share bits.
    shards_seen: AtomicU64,
    started: Instant,
    pub(crate) process: u32,
    /// Where the report is to have them.
    records: Option<Mutex<Vec<PartRecord>>>,
    failure: Mutex<Option<Error>>,
    /// The request that makes the object may have been sent. Set under the lock of `failure`.
    may_be_made: AtomicBool,
    stop: Arc<Cancellation>,
    pub(crate) holds: AtomicU32,
    pub(crate) end: End,
    /// Set where this is one of many objects.
    pub(crate) owner: Option<Box<dyn TransferOwner>>,
}

/// A transfer of either direction, for its workers and for its caller.
pub(crate) trait Running: Send + Sync {
    /// What both directions have.
    fn transfer(&self) -> &ActiveTransfer;

    /// How far it is.
    fn progress(&self) -> Progress;

    /// Stops it with an error; the first one stays.
    fn fail(&self, error: Error);

    /// The last guard has been dropped: decides the result, releases source or landing, and tells the caller.
    fn finish(&self);
}

impl ActiveTransfer {
    fn new(name: String, resources: Resources) -> ActiveTransfer {
        let Resources { gate, shards, slots, .. } = resources;
        ActiveTransfer {
            name,
            tally: gate.tally(),
            gate,
            shards,
            slots,
            workers: AtomicU32::new(0),
            counters: Counters::default(),
            shards_seen: AtomicU64::new(0),
            started: Instant::now(),
            process: std::process::id(),
            records: None,
            failure: Mutex::default(),
            may_be_made: AtomicBool::new(false),
            stop: Arc::new(Cancellation::new()),
            holds: AtomicU32::new(0),
            end: End::new(None),
            owner: None,
        }
    }

    /// Counts a worker for as long as it holds what this returns.
    pub(crate) fn working(&self) -> Working<'_> {
        self.workers.fetch_add(1, Ordering::Relaxed);
        Working(Some(&self.workers))
    }

    /// How many workers there may be besides: as many wait for a reader, or to try again, as might be in
    /// flight at most.
    fn more_workers(&self) -> u64 {
        u64::from(self.gate.limit().saturating_sub(self.workers.load(Ordering::Relaxed)))
    }

    /// Shard `number` takes part.
    pub(crate) fn join_shard(&self, number: u32) {
        self.shards_seen.fetch_or(1 << (number % 64), Ordering::Relaxed);
    }

    /// Seconds since the start.
    pub(crate) fn clock_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Stops the transfer with an error; the first one stays.
    pub(crate) fn fail(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop.cancel();
    }

    /// Cancels the transfer, unless its object may have been made.
    pub(crate) fn withdraw(&self) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.may_be_made.load(Ordering::Relaxed) {
            failure.get_or_insert(cancelled());
            self.stop.cancel();
        }
    }

    /// Called before the request that makes the object is sent: from then on nobody withdraws the transfer.
    ///
    /// # Errors
    /// The transfer is to stop.
    pub(crate) fn begin_last_request(&self) -> Result<(), Error> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        self.may_be_made.store(true, Ordering::Relaxed);
        if failure.is_some() { Err(cancelled()) } else { Ok(()) }
    }

    /// Whether it is to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Ready when the transfer is to stop.
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Whether a worker holds it.
    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Acquire) > 0
    }

    /// What held it back most.
    fn limited_by(&self) -> Option<LimitedBy> {
        self.gate.tally().since(&self.tally)
    }

    /// Whether what ended it leaves something that is worth going on from.
    pub(crate) fn keeps_partial_data(&self) -> bool {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().is_some_and(Error::keeps_partial_data)
    }

    /// What ended it before its end.
    fn take_failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn record(&self, record: impl FnOnce() -> PartRecord) {
        if let Some(records) = &self.records {
            records.lock().unwrap_or_else(PoisonError::into_inner).push(record());
        }
    }

    fn take_records(&self) -> Vec<PartRecord> {
        let Some(records) = &self.records else { return Vec::new() };
        let mut parts = std::mem::take(&mut *records.lock().unwrap_or_else(PoisonError::into_inner));
        parts.sort_by_key(|part| part.index);
        parts
    }
}

/// A worker, counted.
#[must_use]
pub(crate) struct Working<'a>(Option<&'a AtomicU32>);

impl Working<'_> {
    /// Whether the worker may end, since others go on: the last one waits for its next turn instead.
    pub(crate) fn may_end(&mut self) -> bool {
        let others = |workers: u32| (workers > 1).then(|| workers - 1);
        let left = |workers: &AtomicU32| workers.fetch_update(Ordering::AcqRel, Ordering::Acquire, others);
        self.0.take_if(|workers| left(workers).is_ok()).is_some()
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if let Some(workers) = self.0 {
            workers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Its caller has asked for that.
pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "cancelled")
}
