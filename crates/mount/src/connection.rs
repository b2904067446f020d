//! Requests that wait, each known by its unique number, and who may answer them: whoever comes first.
//!
//! A request is answered once: by who has the result, by who hears that the waiting thread is being killed, or by nobody left who
//! could. Who comes second is told so, and undoes what the kernel will now never know of.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use flatout_tree::Cancel;
use rustix::io::Errno;

use crate::counts::Counts;
use crate::device::Device;

/// Tables of waiting requests, so that threads seldom meet at one lock.
const TABLES: usize = 16;

/// One connection: its device, who waits, and what was counted.
#[derive(Debug)]
pub(crate) struct FuseConnection {
    pub device: Device,
    pub counts: Counts,
    waiting: [Mutex<HashMap<u64, Weak<PendingRequest>>>; TABLES],
}

/// A request that waits.
pub(crate) struct PendingRequest {
    connection: Arc<FuseConnection>,
    unique: u64,
    /// The thread that waits; 0 where that is not known.
    pid: u32,
    since: Instant,
    answered: AtomicBool,
    cancel: Mutex<Option<Cancel>>,
}

impl FuseConnection {
    pub fn new(device: Device) -> Arc<FuseConnection> {
        Arc::new(FuseConnection { device, counts: Counts::default(), waiting: Default::default() })
    }

    /// From now on the request can be interrupted.
    pub fn wait(self: &Arc<FuseConnection>, unique: u64, pid: u32) -> FuseReply {
        let ticket = Arc::new(PendingRequest {
            connection: self.clone(),
            unique,
            pid,
            since: Instant::now(),
            answered: AtomicBool::new(false),
            cancel: Mutex::new(None),
        });
        self.table(unique).insert(unique, Arc::downgrade(&ticket));
        FuseReply(ticket)
    }

    /// Answers at once, what nobody else could.
    pub fn answer(&self, unique: u64, body: &[u8]) -> bool {
        self.counts.answered(self.device.answer(unique, body))
    }

    /// Answers at once with an error.
    pub fn fail(&self, unique: u64, errno: i32) -> bool {
        self.counts.failed(self.device.fail(unique, errno))
    }

    /// Who waits under this number.
    pub fn waiting(&self, unique: u64) -> Option<Arc<PendingRequest>> {
        self.table(unique).get(&unique).and_then(Weak::upgrade)
    }

    /// How many wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting.iter().map(|table| lock(table).len()).sum()
    }

    /// For how long each of them has waited.
    pub fn waits(&self, now: Instant) -> Vec<Duration> {
        let since = |ticket: Arc<PendingRequest>| now.saturating_duration_since(ticket.since);
        let of_table = |table: &Mutex<HashMap<u64, Weak<PendingRequest>>>| {
            // One that is let go of here for good answers, and that takes the lock.
            let tickets: Vec<_> = lock(table).values().filter_map(Weak::upgrade).collect();
            tickets.into_iter().map(since).collect::<Vec<_>>()
        };
        self.waiting.iter().flat_map(of_table).collect()
    }

    /// Nobody is there to answer any more: stops what still runs for those who waited.
    pub fn interrupt_all(&self) {
        for table in &self.waiting {
            let tickets: Vec<_> = lock(table).values().filter_map(Weak::upgrade).collect();
            tickets.iter().for_each(|ticket| ticket.interrupt());
        }
    }

    fn table(&self, unique: u64) -> MutexGuard<'_, HashMap<u64, Weak<PendingRequest>>> {
        // The kernel counts in twos.
        lock(&self.waiting[(unique >> 1) as usize % TABLES])
    }
}

impl PendingRequest {
    /// The thread that waits, where that is known.
    pub fn pid(&self) -> Option<u32> {
        (self.pid != 0).then_some(self.pid)
    }

    /// Whether somebody has answered.
    pub fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// Answers EINTR and stops what runs for it, unless it is answered.
    pub fn interrupt(&self) {
        if self.claim() {
            self.connection.counts.interrupted();
            self.connection.fail(self.unique, Errno::INTR.raw_os_error());
            let cancel = lock(&self.cancel).take();
            if let Some(cancel) = cancel {
                cancel();
            }
        }
    }

    /// True for one caller, who answers. Nobody finds the request any more before it is answered: its number may come again.
    fn claim(&self) -> bool {
        let first = !self.answered.swap(true, Ordering::AcqRel);
        if first {
            self.connection.table(self.unique).remove(&self.unique);
        }
        first
    }
}

impl Drop for PendingRequest {
    /// Nobody is left who could answer: a defect, a panic for example. Who asked must not wait for ever.
    fn drop(&mut self) {
        if self.claim() {
            self.connection.counts.defect();
            self.connection.fail(self.unique, Errno::IO.raw_os_error());
        }
    }
}

impl std::fmt::Debug for PendingRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingRequest")
            .field("unique", &self.unique)
            .field("answered", &self.answered)
            .finish()
    }
}

/// The right to answer one request, unless it is answered.
#[derive(Clone, Debug)]
pub(crate) struct FuseReply(Arc<PendingRequest>);

impl FuseReply {
    /// Whether somebody has answered: an interrupt, as a rule.
    pub fn is_answered(&self) -> bool {
        self.0.is_answered()
    }

    /// False where the kernel did not take it: what it would have counted must be undone.
    pub fn send(&self, body: &[u8]) -> bool {
        self.0.claim() && self.0.connection.answer(self.0.unique, body)
    }

    /// Answers a read: the first `most` bytes of these slices, fewer at the end of the file.
    pub fn send_slices<'a>(&self, slices: impl Iterator<Item = &'a [u8]>, most: usize) {
        if self.0.claim() {
            let connection = &self.0.connection;
            let mut bytes = 0;
            let slices = slices.inspect(|slice| bytes += slice.len() as u64);
            let taken = connection.device.answer_slices(self.0.unique, slices, most);
            connection.counts.answered(taken);
            connection.counts.read(if taken { bytes } else { 0 });
        }
    }

    /// An error; there is never anything to undo.
    pub fn fail(&self, errno: i32) {
        if self.0.claim() {
            self.0.connection.fail(self.0.unique, errno);
        }
    }

    /// What stops it; at once where it was interrupted meanwhile.
    pub fn on_interrupt(&self, cancel: Cancel) {
        *lock(&self.0.cancel) = Some(cancel);
        if self.0.is_answered() {
            // By `interrupt`, which came too early for this; or well, and then there is nothing left to stop.
            let cancel = lock(&self.0.cancel).take();
            if let Some(cancel) = cancel {
                cancel();
            }
        }
    }
}

/// A panic elsewhere leaves these maps whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
