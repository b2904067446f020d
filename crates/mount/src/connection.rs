//! The pending requests of a connection, by number. Each is answered exactly once: with its result, with
//! EINTR because the waiting thread is being killed, or with EIO when the last `FuseReply` is dropped. The
//! second to answer learns that it is too late, and undoes what the kernel will never know of.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use flatout_tree::{Cancel, SharedTable};
use rustix::io::Errno;

use crate::counts::SessionCounters;
use crate::device::Device;

/// The requests are in several tables, so that threads seldom wait for a lock.
const TABLES: usize = 16;

/// A connection: its device, its pending requests, its counters.
#[derive(Debug)]
pub(crate) struct FuseConnection {
    pub device: Device,
    pub counts: SessionCounters,
    waiting: [Mutex<HashMap<u64, Weak<PendingRequest>>>; TABLES],
    /// For a kernel that sends no request again: the numbers of those that were read and not answered.
    unanswered: Option<Arc<dyn SharedTable>>,
}

/// The kind of these rows, beside those of the tree.
const UNANSWERED: u8 = 0x80;

/// A request that is not answered yet.
pub(crate) struct PendingRequest {
    connection: Arc<FuseConnection>,
    unique: u64,
    /// The waiting thread; 0 if that is not known.
    pid: u32,
    since: Instant,
    answered: AtomicBool,
    cancel: Mutex<Option<Cancel>>,
}

impl FuseConnection {
    pub fn new(device: Device) -> Arc<FuseConnection> {
        FuseConnection::of(device, None)
    }

    /// `unanswered`: where the numbers of requests are kept for another process, which answers them with
    /// [`FuseConnection::fail_unanswered`].
    pub fn of(device: Device, unanswered: Option<Arc<dyn SharedTable>>) -> Arc<FuseConnection> {
        let (counts, waiting) = (SessionCounters::default(), Default::default());
        Arc::new(FuseConnection { device, counts, waiting, unanswered })
    }

    /// A request that has an answer was read.
    pub fn was_read(&self, unique: u64) {
        if let Some(table) = &self.unanswered {
            table.put(UNANSWERED, unique, &[]);
        }
    }

    fn was_answered(&self, unique: u64) {
        if let Some(table) = &self.unanswered {
            table.remove(UNANSWERED, unique);
        }
    }

    /// Answers `EIO` to what another process has read and not answered.
    /// `each` is called with their numbers before.
    pub fn fail_unanswered(&self, each: impl Fn(u64)) {
        let rows = self.unanswered.as_ref().and_then(|table| table.rows()).unwrap_or_default();
        for (_, unique, _) in rows.into_iter().filter(|row| row.0 == UNANSWERED) {
            each(unique);
            self.fail(unique, Errno::IO.raw_os_error());
        }
    }

    /// Notes a request, which can be interrupted from now on.
    pub fn wait(self: &Arc<FuseConnection>, unique: u64, pid: u32) -> FuseReply {
        let request = Arc::new(PendingRequest {
            connection: self.clone(),
            unique,
            pid,
            since: Instant::now(),
            answered: AtomicBool::new(false),
            cancel: Mutex::new(None),
        });
        self.table(unique).insert(unique, Arc::downgrade(&request));
        FuseReply(request)
    }

    /// Answers a request that was not noted; `false` if the kernel did not take it.
    pub fn answer(&self, unique: u64, body: &[u8]) -> bool {
        let taken = self.counts.answered(self.device.answer(unique, body));
        self.was_answered(unique);
        taken
    }

    /// Answers a request that was not noted with an error.
    pub fn fail(&self, unique: u64, errno: i32) -> bool {
        let taken = self.counts.failed(self.device.fail(unique, errno));
        self.was_answered(unique);
        taken
    }

    /// The pending request with this number.
    pub fn waiting(&self, unique: u64) -> Option<Arc<PendingRequest>> {
        self.table(unique).get(&unique).and_then(Weak::upgrade)
    }

    /// How many requests are pending.
    pub fn waiting_count(&self) -> usize {
        self.waiting.iter().map(|table| lock(table).len()).sum()
    }

    /// How long each pending request has waited.
    pub fn waits(&self, now: Instant) -> Vec<Duration> {
        let since = |request: Arc<PendingRequest>| now.saturating_duration_since(request.since);
        let of_table = |table: &Mutex<HashMap<u64, Weak<PendingRequest>>>| {
            // Dropping the last reference to a request answers it, which takes the lock.
            let requests: Vec<_> = lock(table).values().filter_map(Weak::upgrade).collect();
            requests.into_iter().map(since).collect::<Vec<_>>()
        };
        self.waiting.iter().flat_map(of_table).collect()
    }

    /// Cancels what still runs for pending requests: the connection is gone.
    pub fn interrupt_all(&self) {
        for table in &self.waiting {
            let requests: Vec<_> = lock(table).values().filter_map(Weak::upgrade).collect();
            requests.iter().for_each(|request| request.interrupt());
        }
    }

    fn table(&self, unique: u64) -> MutexGuard<'_, HashMap<u64, Weak<PendingRequest>>> {
        // The kernel's numbers are even.
        lock(&self.waiting[(unique >> 1) as usize % TABLES])
    }
}

impl PendingRequest {
    /// The waiting thread, if it is known.
    pub fn pid(&self) -> Option<u32> {
        (self.pid != 0).then_some(self.pid)
    }

    /// Whether it is answered.
    pub fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// Answers EINTR, and cancels what runs for it, unless it is answered.
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

    /// `true` for one caller, which answers. The request leaves the table before that, since the kernel may
    /// use its number again.
    fn claim(&self) -> bool {
        let first = !self.answered.swap(true, Ordering::AcqRel);
        if first {
            self.connection.table(self.unique).remove(&self.unique);
        }
        first
    }
}

impl Drop for PendingRequest {
    /// Answers EIO where nothing else can any more, for example after a panic: the thread must not wait for
    /// ever.
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

/// The right to answer one request, unless it is answered already.
#[derive(Clone, Debug)]
pub(crate) struct FuseReply(Arc<PendingRequest>);

impl FuseReply {
    /// Whether it is answered: as a rule, by an interrupt.
    pub fn is_answered(&self) -> bool {
        self.0.is_answered()
    }

    /// `false` if the kernel did not take the answer: its side effects must be undone.
    pub fn send(&self, body: &[u8]) -> bool {
        self.0.claim() && self.0.connection.answer(self.0.unique, body)
    }

    /// Takes the right to answer: no interrupt can come between any more. `false` if one has.
    pub fn take(&self) -> bool {
        self.0.claim()
    }

    /// Answers after [`FuseReply::take`].
    pub fn send_taken(&self, answer: Result<&[u8], i32>) {
        let (connection, unique) = (&self.0.connection, self.0.unique);
        match answer {
            Ok(body) => connection.answer(unique, body),
            Err(errno) => connection.fail(unique, errno),
        };
    }

    /// Answers a read: the first `most` bytes of these slices, fewer at the end of the file.
    pub fn send_slices<'a>(&self, slices: impl Iterator<Item = &'a [u8]>, most: usize) {
        if self.0.claim() {
            let connection = &self.0.connection;
            let mut bytes = 0;
            let slices = slices.inspect(|slice| bytes += slice.len() as u64);
            let taken = connection.device.answer_slices(self.0.unique, slices, most);
            connection.was_answered(self.0.unique);
            connection.counts.answered(taken);
            connection.counts.read(if taken { bytes } else { 0 });
        }
    }

    /// Answers with an error, which has nothing to undo.
    pub fn fail(&self, errno: i32) {
        if self.0.claim() {
            self.0.connection.fail(self.0.unique, errno);
        }
    }

    /// Sets how to cancel it; cancels at once if it was interrupted meanwhile.
    pub fn on_interrupt(&self, cancel: Cancel) {
        *lock(&self.0.cancel) = Some(cancel);
        if self.0.is_answered() {
            // By `interrupt`, which came too early to cancel; or with its result, and there is nothing to
            // cancel.
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
