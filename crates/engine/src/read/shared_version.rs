//! One version of an object, shared by its readers: it asks the map what to fetch, takes memory, starts
//! transfers, and answers reads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::backing::Network;
use super::lane::LaneId;
use super::link::{Body, Link};
use super::readers::{Readers, VersionKey};
use super::segment::{Pieces, Segment};
use super::segment_map::{Effects, Fetch, Limits, Next, SegmentMap};
use crate::base::error::{Error, ErrorKind};
use crate::base::time::now;
use crate::base::version::Object;
use crate::memory::lease::Lease;
use crate::sink::landing::SharedMemory;
use crate::transfer::{Download, Running};
use flatout_policy::queue::Priority;

/// Besides the segments in flight, a lane may hold one that is being read and one that has landed.
const SEGMENTS_LANDED: u64 = 2;

/// One version of an object, shared by its readers.
pub(crate) struct SharedVersion {
    pub(crate) object: Object,
    key: VersionKey,
    readers: Arc<Readers>,
    network: Network,
    link: Arc<Link>,
    last_read_ms: AtomicU64,
    /// How many lanes and segments the map has, readable without its lock.
    lanes: AtomicUsize,
    segments: AtomicUsize,
    map: Mutex<SegmentMap>,
}

/// Held by each reader of a version.
pub(crate) struct Handle {
    pub(super) version: Arc<SharedVersion>,
}

impl Handle {
    pub(super) fn new(version: Arc<SharedVersion>) -> Handle {
        version.change(|map, _| map.handles += 1);
        Handle { version }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.version.change(SegmentMap::leave);
    }
}

/// The map under its lock, and what is left to do when the lock is released (`SharedVersion::unlock`).
struct Locked<'a> {
    map: MutexGuard<'a, SegmentMap>,
    start: Vec<Arc<Download>>,
    effects: Effects,
    /// Bytes of memory that a lane would have fetched ahead into.
    lacking_ahead: u64,
}

/// How hard memory is tried for, for a read that waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// For as much as its lane takes.
    Usual,
    /// For exactly what it needs.
    Exact,
    /// For that, beyond the limit.
    OverLimit,
}

impl SharedVersion {
    pub(super) fn new(
        readers: &Arc<Readers>,
        object: Object,
        version_id: Option<Arc<str>>,
        key: VersionKey,
    ) -> SharedVersion {
        let network = Network::new(&readers.shared, &readers.shards, &object, &version_id);
        SharedVersion {
            readers: readers.clone(),
            link: readers.link(&network.gate),
            network,
            last_read_ms: AtomicU64::new(readers.now_ms()),
            lanes: AtomicUsize::new(0),
            segments: AtomicUsize::new(0),
            map: Mutex::new(SegmentMap::new(object.size, &object.location.to_string())),
            object,
            key,
        }
    }

    /// Reads. Returns the number of the read if it waits; otherwise `done` has been called.
    pub(super) fn read(
        self: &Arc<SharedVersion>,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Pieces, Error>) + Send + 'static,
    ) -> Option<u64> {
        let range = at..at.saturating_add(bytes as u64).min(self.object.size);
        if range.is_empty() {
            done(Ok(Pieces::default()));
            return None;
        }
        let (counts, limits) = (&self.readers.counts, self.limits());
        let mut locked = self.lock();
        let (lane, pieces) = locked.map.read(&range, &mut locked.effects);
        if let Some(pieces) = pieces {
            self.fetch_ahead(&mut locked, lane, &limits);
            self.unlock(locked);
            counts.hits.fetch_add(1, Ordering::Relaxed);
            counts.served_bytes.fetch_add(pieces.len() as u64, Ordering::Relaxed);
            done(Ok(pieces));
            return None;
        }
        counts.waits.fetch_add(1, Ordering::Relaxed);
        counts.random.fetch_add(u64::from(lane.is_none()), Ordering::Relaxed);
        let read = locked.map.wait(range, lane, Box::new(done), Instant::now());
        let lacking = self.fetch_missing(&mut locked, read, Effort::Usual, &limits);
        self.unlock(locked);
        if let Some(bytes) = lacking {
            self.readers.make_room(bytes, false);
            if !self.retry(read) {
                self.readers.queue_for_memory(self.clone(), read);
            }
        }
        Some(read)
    }

    /// Tries again to fetch what a read waits for that found no memory; whether there was memory now.
    pub(super) fn retry(self: &Arc<SharedVersion>, read: u64) -> bool {
        let limits = self.limits();
        for effort in [Effort::Exact, Effort::OverLimit] {
            let mut locked = self.lock();
            let lacking = self.fetch_missing(&mut locked, read, effort, &limits);
            self.unlock(locked);
            let Some(bytes) = lacking else { return true };
            self.readers.make_room(bytes, false);
        }
        false
    }

    /// Fetches what a read waits for, and what its lane reads next. Returns how many bytes of memory it
    /// lacked.
    fn fetch_missing(
        self: &Arc<SharedVersion>,
        locked: &mut Locked<'_>,
        read: u64,
        effort: Effort,
        limits: &Limits,
    ) -> Option<u64> {
        let (is_exact, is_over_limit) = (effort != Effort::Usual, effort == Effort::OverLimit);
        while let Some(fetch) = locked.map.next_missing(read, is_exact, limits) {
            let bytes = fetch.bytes();
            let memory = match is_over_limit {
                true => self.readers.allocate_over_limit(bytes),
                false => self.readers.lease(bytes),
            };
            match memory {
                Ok(Some(memory)) => self.fetch(locked, fetch, memory, is_over_limit),
                Ok(None) => return Some(bytes),
                Err(error) => {
                    locked.map.fail(read, error, &mut locked.effects);
                    return None;
                }
            }
        }
        let lane = locked.map.on_requested(read, Instant::now(), &mut locked.effects);
        self.fetch_ahead(locked, lane, limits);
        None
    }

    /// Fetches what a lane reads next, as far as there is room for it in memory and on the link.
    fn fetch_ahead(
        self: &Arc<SharedVersion>,
        locked: &mut Locked<'_>,
        lane: Option<LaneId>,
        limits: &Limits,
    ) {
        let Some(lane) = lane else { return };
        while let Some(fetch) = locked.map.next_ahead(lane, limits, &mut locked.effects) {
            if !self.try_ahead(locked, fetch) {
                break;
            }
        }
    }

    fn try_ahead(self: &Arc<SharedVersion>, locked: &mut Locked<'_>, fetch: Fetch) -> bool {
        let bytes = fetch.bytes();
        // The next read tries again, when some of what is in flight has landed.
        if !self.link.has_room(bytes) {
            return false;
        }
        let Some(memory) = self.readers.lease_ahead(bytes) else {
            locked.lacking_ahead = bytes;
            return false;
        };
        self.fetch(locked, fetch, memory, false);
        true
    }

    /// Puts a segment into the map, with a transfer that starts when the lock is released.
    fn fetch(
        self: &Arc<SharedVersion>,
        locked: &mut Locked<'_>,
        fetch: Fetch,
        memory: Lease,
        is_over_limit: bool,
    ) {
        let Fetch { ref range, is_whole, is_ahead, .. } = fetch;
        let (counts, readers) = (&self.readers.counts, Arc::downgrade(&self.readers));
        counts.whole.fetch_add(u64::from(is_whole), Ordering::Relaxed);
        let segment = Segment::new(range.clone(), memory, is_over_limit, counts.clone(), readers);
        let (segment, body) = (Arc::new(segment), self.link.expect(fetch.bytes()));
        let priority = if is_ahead { Priority::Ahead } else { Priority::Awaited };
        let (version, requested) = (self.clone(), now());
        let landing =
            Box::new(SegmentLanding { segment: segment.clone(), version, body, requested, is_whole });
        let transfer = self.network.fetch(range.clone(), is_whole, priority, landing);
        segment.set_transfer(&transfer);
        locked.map.insert(fetch, segment);
        locked.start.push(transfer);
    }

    /// Cancels a read; whether it was still waiting.
    pub(super) fn cancel(self: &Arc<SharedVersion>, read: u64) -> bool {
        self.change(|map, effects| map.cancel(read, effects))
    }

    pub(super) fn set_next(self: &Arc<SharedVersion>, next: Next) {
        let before = self.change(|map, _| map.next.replace(next));
        drop(before);
    }

    /// Begins to fetch before the first read.
    fn begin(self: &Arc<SharedVersion>) {
        let limits = self.limits();
        let mut locked = self.lock();
        let (whole, lane) = locked.map.begin(&limits);
        if let Some(whole) = whole {
            self.try_ahead(&mut locked, whole);
        }
        self.fetch_ahead(&mut locked, lane, &limits);
        self.unlock(locked);
    }

    /// Drops what no read waits for until `wanted` bytes are free; returns how many that freed.
    pub(super) fn make_room(self: &Arc<SharedVersion>, wanted: u64) -> u64 {
        self.change(|map, effects| map.make_room(wanted, effects))
    }

    /// Changes the map, then does what follows from that.
    fn change<T>(self: &Arc<SharedVersion>, change: impl FnOnce(&mut SegmentMap, &mut Effects) -> T) -> T {
        let mut locked = self.lock();
        let changed = change(&mut locked.map, &mut locked.effects);
        self.unlock(locked);
        changed
    }

    fn lock(&self) -> Locked<'_> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { map, start: Vec::new(), effects: Effects::default(), lacking_ahead: 0 }
    }

    /// Releases the lock, and does what was left to do.
    fn unlock(self: &Arc<SharedVersion>, locked: Locked<'_>) {
        let Locked { map, start, effects, lacking_ahead } = locked;
        let Effects { raise, cancel, removed, wasted_bytes, next, calls, cancelled } = effects;
        let counts = &self.readers.counts;
        let ((lanes, segments), before) = (map.counts(), self.lanes.load(Ordering::Relaxed));
        if lanes != before {
            self.lanes.store(lanes, Ordering::Relaxed);
            counts.lanes.fetch_add(lanes as u64, Ordering::Relaxed);
            counts.lanes.fetch_sub(before as u64, Ordering::Relaxed);
        }
        self.segments.store(segments, Ordering::Relaxed);
        drop(map);
        for transfer in start {
            self.network.start(transfer);
        }
        for transfer in raise.iter().filter_map(|segment| segment.transfer()) {
            transfer.transfer.slots.set_priority(Priority::Awaited);
        }
        for transfer in cancel.iter().filter_map(|segment| segment.transfer()) {
            transfer.fail(Error::new(ErrorKind::Cancelled, "nobody reads it any more"));
        }
        drop((raise, cancel, removed, cancelled));
        counts.wasted_bytes.fetch_add(wasted_bytes, Ordering::Relaxed);
        if lacking_ahead > 0 {
            self.readers.make_room(lacking_ahead, true);
        }
        if let Some(next) = next {
            self.begin_next(next);
        }
        for (done, result) in calls {
            let served = result.as_ref().map_or(0, Pieces::len) as u64;
            counts.served_bytes.fetch_add(served, Ordering::Relaxed);
            done(result);
        }
    }

    /// Finds the next object on a thread of its own, since that may take a while, and begins to fetch it.
    /// Without a thread nothing is lost.
    fn begin_next(&self, next: Next) {
        let readers = self.readers.clone();
        let begins = move || {
            let Some(object) = next() else { return };
            let handle = readers.open(object, None);
            handle.version.begin();
            readers.keep(handle);
        };
        let _ = std::thread::Builder::new().name("flatout-next".into()).spawn(begins);
    }

    /// How much may be fetched ahead now, by a read of now.
    fn limits(&self) -> Limits {
        let now_ms = self.readers.now_ms();
        self.last_read_ms.store(now_ms, Ordering::Relaxed);
        self.link.measure(now_ms);
        let segment_max = self.readers.segment_max;
        let in_flight = (SEGMENTS_LANDED + u64::from(self.network.gate.limit())) * segment_max;
        let lane_segment_max = segment_max.min(self.link.body_most());
        Limits { window_max: self.readers.share(now_ms).min(in_flight), segment_max, lane_segment_max }
    }

    pub(super) fn last_read_ms(&self) -> u64 {
        self.last_read_ms.load(Ordering::Relaxed)
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.load(Ordering::Relaxed)
    }

    pub(super) fn holds_any(&self) -> bool {
        self.segments.load(Ordering::Relaxed) > 0
    }
}

impl Drop for SharedVersion {
    fn drop(&mut self) {
        let lanes = self.lanes.load(Ordering::Relaxed) as u64;
        self.readers.counts.lanes.fetch_sub(lanes, Ordering::Relaxed);
        self.readers.forget(&self.key);
    }
}

/// The landing of a segment.
struct SegmentLanding {
    segment: Arc<Segment>,
    version: Arc<SharedVersion>,
    body: Body,
    requested: Instant,
    /// No byte may be read before all have landed and match the checksum that the origin states.
    is_whole: bool,
}

impl SharedMemory for SegmentLanding {
    fn prepare(&self, total_bytes: Option<u64>) -> Result<(), Error> {
        match total_bytes {
            Some(total) if total == self.segment.bytes() => Ok(()),
            _ => Err(Error::new(ErrorKind::Network, "the answer is not as long as the object is")),
        }
    }

    fn place(&self, at: u64) -> *mut u8 {
        self.segment.place(at)
    }

    /// Answers the reads that wait for no more than these bytes.
    fn on_landed(&self, bytes: u64) {
        let SegmentLanding { segment, version, .. } = self;
        self.body.on_landed(bytes, || version.readers.now_ms());
        if !self.is_whole && segment.on_landed(bytes) {
            let now = now();
            let took = now.saturating_duration_since(self.requested);
            segment.set_came(version.network.gate.latency.how(bytes, took));
            version.change(|map, effects| map.on_landed(segment, now, effects));
        }
    }

    fn on_end(&self, result: Result<(), Error>, fetched_bytes: u64) {
        let SegmentLanding { segment, version, .. } = self;
        let readers = &version.readers;
        self.body.end(readers.now_ms());
        if result.is_ok() {
            segment.on_landed(segment.bytes());
        }
        readers.counts.fetched_bytes.fetch_add(fetched_bytes, Ordering::Relaxed);
        version.change(|map, effects| map.on_end(segment, &result, Instant::now(), effects));
        if segment.is_over_limit {
            readers.on_over_limit_end();
        }
    }
}

impl Drop for SegmentLanding {
    /// The transfer may never have begun.
    fn drop(&mut self) {
        self.body.end(self.version.readers.now_ms());
    }
}
