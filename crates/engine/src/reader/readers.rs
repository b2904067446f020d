//! What the readers of a client share: which versions are read, the memory, the counts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Object;
use super::shelf::{Handle, Shelf};
use crate::client::Core;
use crate::error::Error;
use crate::lease::{Charge, Holder, Lease, Pool};
use crate::memory::Shares;

/// What reading has come to so far, of all objects of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderStats {
    /// Bytes that reads were answered with.
    pub served_bytes: u64,
    /// Bytes of bodies received for them, and ahead of them.
    pub fetched_bytes: u64,
    /// Of those, bytes that were dropped before anybody read them.
    pub wasted_bytes: u64,
    /// Reads that were answered at once.
    pub hits: u64,
    /// Reads that had to wait.
    pub waits: u64,
    /// Of those, reads that followed no pattern: each is a request of its own.
    pub random: u64,
    /// Small objects fetched by one request.
    pub whole: u64,
    /// Patterns that are read ahead of now.
    pub lanes: u64,
    /// Bytes of memory that objects hold now, read or not.
    pub held_bytes: u64,
}

/// Bytes of the caller's own that count as the client's memory.
pub struct Weight(Charge);

impl Weight {
    pub(crate) fn new(charge: Charge) -> Weight {
        Weight(charge)
    }

    /// There are so many bytes now.
    pub fn set(&mut self, bytes: u64) {
        self.0.set(bytes);
    }

    /// Whether more is held than the limit, by whomever: what need not be kept should go.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

/// Names a version: without an ETag the size is what tells two apart.
type Name = (String, Option<String>, u64);

fn name(object: &Object) -> Name {
    (object.location.to_string(), object.etag.clone(), object.size)
}

/// What the readers of one client share.
pub(crate) struct Readers {
    pool: Arc<Pool>,
    /// All reading is one holder: who reads ahead yields, and who waits is let past by us.
    holder: Holder,
    pub(super) limit: u64,
    shelves: Mutex<HashMap<Name, Weak<Shelf>>>,
    pub(super) counts: Counts,
}

/// The counts behind [`ReaderStats`].
#[derive(Default)]
pub(super) struct Counts {
    pub(super) served_bytes: AtomicU64,
    pub(super) fetched_bytes: AtomicU64,
    pub(super) wasted_bytes: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) random: AtomicU64,
    pub(super) whole: AtomicU64,
    pub(super) lanes: AtomicU64,
    pub(super) held_bytes: AtomicU64,
}

impl Readers {
    pub(crate) fn new(pool: &Arc<Pool>, shares: &Shares) -> Readers {
        Readers {
            pool: pool.clone(),
            holder: pool.holder(),
            limit: shares.parts(),
            shelves: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// One more handle on a version.
    pub(crate) fn open(core: &Arc<Core>, object: Object) -> Handle {
        let fresh = Arc::new(Shelf::new(core, object));
        let mut shelves = core.readers.lock();
        let place = shelves.entry(name(&fresh.object)).or_default();
        let shelf = place.upgrade().unwrap_or_else(|| fresh.clone());
        *place = Arc::downgrade(&shelf);
        let handle = Handle::new(shelf);
        // Before `fresh` goes, which looks here whether it was known.
        drop(shelves);
        handle
    }

    /// Nobody reads that version any more.
    pub(super) fn forget(&self, object: &Object) {
        let mut shelves = self.lock();
        let name = name(object);
        if shelves.get(&name).is_some_and(|shelf| shelf.strong_count() == 0) {
            shelves.remove(&name);
        }
    }

    /// Memory for what somebody waits for.
    pub(super) fn lease(&self, bytes: u64) -> Result<Option<Lease>, Error> {
        self.holder.lease_at_once(crate::lease::addressable(bytes)?, 0)
    }

    /// The same past the limit.
    pub(super) fn overdraw(&self, bytes: u64) -> Result<Lease, Error> {
        self.pool.lease(crate::lease::addressable(bytes)?)
    }

    pub(crate) fn stats(&self) -> ReaderStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts {
            served_bytes,
            fetched_bytes,
            wasted_bytes,
            hits,
            waits,
            random,
            whole,
            lanes,
            held_bytes,
        } = &self.counts;
        ReaderStats {
            served_bytes: of(served_bytes),
            fetched_bytes: of(fetched_bytes),
            wasted_bytes: of(wasted_bytes),
            hits: of(hits),
            waits: of(waits),
            random: of(random),
            whole: of(whole),
            lanes: of(lanes),
            held_bytes: of(held_bytes),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Weak<Shelf>>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
