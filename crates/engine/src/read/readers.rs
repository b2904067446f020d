//! What the readers of a client share: which versions are read, the memory, the counts.
//!
//! All memory of theirs is one holder's on the client's account. What is fetched ahead is taken where there is room beside
//! what somebody may come to wait for; what somebody waits for drops what nobody has read yet, of whoever was read longest
//! ago. Where that is not enough either, one read at a time goes past the limit with exactly what it asked for, and the
//! others wait for it: so there is always one that goes on, whoever holds how many answers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use flatout_wire::head::strong;

use super::counts::Counts;
use super::flow::Flow;
use super::segment::Starving;
use super::shelf::{Handle, Shelf};
use crate::base::error::Error;
use crate::base::version::Object;
use crate::gate::Gate;
use crate::memory::lease::{Holder, Lease, addressable};
use crate::shard::shards::{Shards, Task};
use crate::shard::shared::Shared;

/// Of what there is for reading, what is fetched ahead leaves this to what somebody waits for.
const SHARE_OF_AWAITED: u64 = 8;
/// So many segments fit into what there is at least, and none is larger: more of it brings no more speed.
const SEGMENTS_LEAST: u64 = 16;
const SEGMENT_MOST: u64 = 8 << 20;
const SEGMENT_LEAST: u64 = 256 << 10;
/// An object that was not read from for so long yields what it has ahead to others that read ahead.
const IDLE_MS: u64 = 2_000;
/// How often it is looked how many share.
const LOOK_EVERY_MS: u64 = 100;

/// What reading has come to so far, of all objects of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderStats {
    /// Bytes that reads were answered with.
    pub served_bytes: u64,
    /// Bytes of bodies received for them, and ahead of them.
    pub fetched_bytes: u64,
    /// The same with what has come of bodies that are on their way.
    pub received_bytes: u64,
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
    /// Patterns that are followed now.
    pub lanes: u64,
    /// Bytes of memory that objects hold now, read or not.
    pub held_bytes: u64,
}

/// Names a version, as far as what was told of it can: who knows it by another name reads it apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    location: String,
    version_id: Option<Arc<str>>,
    size: u64,
    etag: Option<String>,
    mark: Mark,
}

/// What tells a version from others of its ETag and size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Mark {
    /// Nothing has to: the ETag is a strong one.
    Pinned,
    /// When it was made, in seconds since 1970.
    Modified(u64),
    /// Nothing does: it is this reader's own, that of so many.
    Own(u64),
}

/// What the readers of one client share.
pub(crate) struct Readers {
    pub(super) shared: Arc<Shared>,
    pub(super) shards: Arc<Shards>,
    holder: Holder,
    /// What there is for reading.
    limit: u64,
    pub(super) segment_max: u64,
    begun: Instant,
    shelves: Mutex<HashMap<Name, Weak<Shelf>>>,
    /// What comes from each origin: few.
    flows: Mutex<Vec<(Weak<Gate>, Arc<Flow>)>>,
    /// What a lane may have ahead, and when that was looked at.
    share: AtomicU64,
    shared_at_ms: AtomicU64,
    starved: Mutex<Starved>,
    /// How many reads there are in it, for whoever has no lock.
    starving: AtomicUsize,
    /// A shard has been asked to look after them.
    is_feeder_called: AtomicBool,
    /// What is to be read next, until somebody does.
    next: Mutex<Upcoming>,
    /// Counts versions that nothing tells from others.
    own: AtomicU64,
    pub(super) counts: Arc<Counts>,
}

/// Reads for which there was no memory.
#[derive(Default)]
struct Starved {
    reads: VecDeque<(Arc<Shelf>, u64)>,
    /// One is on its way past the limit.
    is_overdrawn: bool,
    /// Somebody looks after them.
    is_fed: bool,
    /// Memory may have come free since whoever does has looked.
    is_news: bool,
}

/// An object that was begun before anybody has opened it.
#[derive(Default)]
struct Upcoming {
    handle: Option<Handle>,
    is_closed: bool,
}

impl Readers {
    pub(crate) fn new(shared: Arc<Shared>, shards: Arc<Shards>) -> Readers {
        let limit = shared.memory_plan.parts();
        let segment = 1 << (limit / SEGMENTS_LEAST).max(1).ilog2();
        Readers {
            holder: shared.pool.holder(),
            shared,
            shards,
            limit,
            segment_max: segment.clamp(SEGMENT_LEAST, SEGMENT_MOST),
            begun: Instant::now(),
            shelves: Mutex::default(),
            flows: Mutex::default(),
            share: AtomicU64::new(limit),
            shared_at_ms: AtomicU64::new(0),
            starved: Mutex::default(),
            starving: AtomicUsize::new(0),
            is_feeder_called: AtomicBool::new(false),
            next: Mutex::default(),
            own: AtomicU64::new(0),
            counts: Arc::default(),
        }
    }

    /// One more handle on a version.
    pub(crate) fn open(self: &Arc<Readers>, object: Object, version_id: Option<Arc<str>>) -> Handle {
        let name = self.name(&object, version_id.clone());
        let fresh = Arc::new(Shelf::new(self, object, version_id, name.clone()));
        let mut shelves = self.lock();
        let place = shelves.entry(name).or_default();
        let shelf = place.upgrade().unwrap_or_else(|| fresh.clone());
        *place = Arc::downgrade(&shelf);
        let handle = Handle::new(shelf);
        // Before `fresh` goes, which looks here whether it was known.
        drop(shelves);
        self.on_opened(handle.shelf());
        handle
    }

    fn name(&self, object: &Object, version_id: Option<Arc<str>>) -> Name {
        let Object { location, size, etag, modified_s } = object;
        let mark = match (etag.as_deref().and_then(strong), modified_s) {
            (Some(_), _) => Mark::Pinned,
            (None, Some(modified_s)) => Mark::Modified(*modified_s),
            (None, None) => Mark::Own(self.own.fetch_add(1, Ordering::Relaxed)),
        };
        Name { location: location.to_string(), version_id, size: *size, etag: etag.clone(), mark }
    }

    /// What comes from the origin behind a gate.
    pub(super) fn flow(&self, gate: &Arc<Gate>) -> Arc<Flow> {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, flow)) = flows.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(gate)) {
            return flow.clone();
        }
        let flow = Arc::<Flow>::default();
        flows.push((Arc::downgrade(gate), flow.clone()));
        flow
    }

    /// Nobody reads that version any more.
    pub(super) fn forget(&self, name: &Name) {
        let mut shelves = self.lock();
        if shelves.get(name).is_some_and(|shelf| shelf.strong_count() == 0) {
            shelves.remove(name);
        }
    }

    /// Keeps what is to be read next, in the place of what was.
    pub(super) fn keep(&self, next: Handle) {
        let mut upcoming = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match upcoming.is_closed {
            true => Some(next),
            false => upcoming.handle.replace(next),
        };
        drop(upcoming);
        drop(before);
    }

    /// Somebody reads it now: whoever does keeps it.
    fn on_opened(&self, shelf: &Arc<Shelf>) {
        let mut upcoming = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |handle: &mut Handle| Arc::ptr_eq(handle.shelf(), shelf);
        let kept = upcoming.handle.take_if(is_it);
        drop(upcoming);
        drop(kept);
    }

    /// The client is closed: nothing will be read any more.
    pub(crate) fn close(&self) {
        let mut upcoming = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        upcoming.is_closed = true;
        let kept = upcoming.handle.take();
        drop(upcoming);
        drop(kept);
    }

    /// Milliseconds since the client began.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// What one lane may have ahead, where all that are read from share alike.
    pub(super) fn share(&self, now_ms: u64) -> u64 {
        let looked_at = self.shared_at_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(looked_at) >= LOOK_EVERY_MS
            && self
                .shared_at_ms
                .compare_exchange(looked_at, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let busy = |shelf: &Arc<Shelf>| now_ms.saturating_sub(shelf.last_read_ms()) < IDLE_MS;
            let lanes: usize = self.all().iter().filter(|shelf| busy(shelf)).map(|shelf| shelf.lanes()).sum();
            let ahead = self.limit - self.limit / SHARE_OF_AWAITED;
            self.share.store(ahead / lanes.max(1) as u64, Ordering::Relaxed);
        }
        self.share.load(Ordering::Relaxed)
    }

    /// Memory for what is fetched ahead, if there is room.
    pub(super) fn lease_ahead(&self, bytes: u64) -> Option<Lease> {
        let bytes = addressable(bytes).ok()?;
        // Where the machine has none, nothing is read ahead.
        self.holder.lease_at_once(bytes, self.limit / SHARE_OF_AWAITED).ok().flatten()
    }

    /// Memory for what somebody waits for, if there is room.
    pub(super) fn lease(&self, bytes: u64) -> Result<Option<Lease>, Error> {
        self.holder.lease_at_once(addressable(bytes)?, 0)
    }

    /// The same past the limit, for one at a time.
    pub(super) fn overdraw(&self, bytes: u64) -> Result<Option<Lease>, Error> {
        let bytes = addressable(bytes)?;
        let mut starved = self.lock_starved();
        if starved.is_overdrawn {
            return Ok(None);
        }
        let lease = self.shared.pool.lease(bytes)?;
        starved.is_overdrawn = true;
        Ok(Some(lease))
    }

    /// What went past the limit has landed, or will not.
    pub(super) fn on_overdraft_end(&self) {
        self.lock_starved().is_overdrawn = false;
        self.feed();
    }

    /// A read waits for memory.
    pub(super) fn starve(&self, shelf: Arc<Shelf>, read: u64) {
        self.lock_starved().reads.push_back((shelf, read));
        self.starving.fetch_add(1, Ordering::SeqCst);
        // What it waits for may have come before it was there.
        self.feed();
    }

    /// A shard was asked to look after reads that wait for memory.
    pub(crate) fn on_feeder_called(&self) {
        // Before looking: what comes free from now on calls again.
        self.is_feeder_called.store(false, Ordering::SeqCst);
        self.feed();
    }

    /// Memory may have become free: goes on with reads that wait for some, in the order of asking.
    fn feed(&self) {
        if self.starving.load(Ordering::SeqCst) == 0 {
            return;
        }
        loop {
            let (shelf, read) = {
                let mut starved = self.lock_starved();
                if starved.is_fed {
                    starved.is_news = true;
                    return;
                }
                let Some(first) = starved.reads.pop_front() else { return };
                (starved.is_fed, starved.is_news) = (true, false);
                first
            };
            let goes_on = shelf.go_on(read, true);
            let mut starved = self.lock_starved();
            starved.is_fed = false;
            match goes_on {
                true => self.starving.fetch_sub(1, Ordering::SeqCst),
                false => {
                    starved.reads.push_front((shelf, read));
                    // Whatever is past the limit ends, and comes here again; as does who lets go of memory.
                    if starved.is_overdrawn && !starved.is_news {
                        return;
                    }
                    continue;
                }
            };
        }
    }

    /// Drops what nobody has read yet, or everybody, until `wanted` bytes are free: first of whoever was read longest ago. With
    /// `idle_only` of those who are not read any more.
    pub(super) fn make_room(&self, wanted: u64, idle_only: bool) {
        let now_ms = self.now_ms();
        let mut shelves = self.all();
        shelves.retain(|shelf| {
            shelf.holds_any() && (!idle_only || now_ms.saturating_sub(shelf.last_read_ms()) >= IDLE_MS)
        });
        shelves.sort_by_key(|shelf| shelf.last_read_ms());
        let mut freed = 0;
        for shelf in shelves {
            if freed >= wanted {
                break;
            }
            freed += shelf.make_room(wanted - freed);
        }
    }

    fn all(&self) -> Vec<Arc<Shelf>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn stats(&self) -> ReaderStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
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
        } = &*self.counts;
        ReaderStats {
            served_bytes: of(served_bytes),
            fetched_bytes: of(fetched_bytes),
            received_bytes: flows.iter().map(|(_, flow)| flow.landed()).sum(),
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

    fn lock_starved(&self) -> MutexGuard<'_, Starved> {
        self.starved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Starving for Readers {
    /// The memory of a segment is free. Whoever let go of it last may hold any lock, and waits for nothing: a shard looks
    /// after reads that wait for memory.
    fn on_freed(self: Arc<Readers>) {
        if self.starving.load(Ordering::SeqCst) == 0 || self.is_feeder_called.swap(true, Ordering::SeqCst) {
            return;
        }
        let readers = self.clone();
        // A task of its own: it calls who reads, whose panic is not to end the shard.
        let feeder = Task::new(|_| async move { readers.on_feeder_called() });
        if self.shards.send(0, feeder).is_err() {
            // The reads of a client that is closed end with their requests. Where it was a thread that could not be had, whoever
            // frees memory next tries again.
            self.is_feeder_called.store(false, Ordering::SeqCst);
        }
    }
}
