//! One version of an object, as its readers share it: what is there of it, and how more is fetched.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::counts::Counts;
use super::flow::{Body, Flow};
use super::readers::{Readers, VersionKey};
use super::segment::{Pieces, Segment};
use super::segment_map::{Done, Effort, Limits, Next, SegmentMap};
use crate::api::object::ObjectRequests;
use crate::api::pinned::Pinned;
use crate::base::error::{Error, ErrorKind};
use crate::base::version::Object;
use crate::gate::Gate;
use crate::memory::lease::Lease;
use crate::policy::queue::Priority;
use crate::shard::shards::Task;
use crate::sink::landing::{Ground, SharedMemory};
use crate::transfer::Running;
use crate::transfer::drive::{crew, drive_segment};
use crate::transfer::hold::Hold;
use crate::transfer::resources::{Care, Resources};

/// Beside as many segments as may be in flight there is one that is read, and one that is whole.
const SEGMENTS_LANDED: u64 = 2;

/// One version of an object, and what is there of it.
pub(crate) struct SharedVersion {
    pub(crate) object: Object,
    key: VersionKey,
    readers: Arc<Readers>,
    gate: Arc<Gate>,
    flow: Arc<Flow>,
    requests: Arc<ObjectRequests>,
    /// For the whole by one plain GET, whose answer states the checksum.
    requests_whole: Arc<ObjectRequests>,
    pinned: Arc<Pinned>,
    last_read_ms: AtomicU64,
    /// How many patterns are followed, and segments there, for whoever has no lock.
    lanes: AtomicUsize,
    segments: AtomicUsize,
    map: Mutex<SegmentMap>,
}

/// One of those who read it.
pub(crate) struct Handle(Arc<SharedVersion>);

impl Handle {
    pub(super) fn new(version: Arc<SharedVersion>) -> Handle {
        version.change(|map, _| map.handles += 1);
        Handle(version)
    }

    pub(super) fn version(&self) -> &Arc<SharedVersion> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.change(SegmentMap::leave);
    }
}

/// What is done when the lock has been given back, in this order.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) start: Vec<Arc<Running>>,
    pub(super) raise: Vec<Arc<Running>>,
    pub(super) cancel: Vec<Arc<Running>>,
    pub(super) gone: Vec<Arc<Segment>>,
    /// Of those, bytes that nobody had read.
    pub(super) wasted: u64,
    /// So many bytes of memory were not to be had for what is ahead.
    pub(super) is_short: u64,
    pub(super) next: Option<Next>,
    pub(super) calls: Vec<(Done, Result<Pieces, Error>)>,
    /// Of reads that nobody waits for any more; what they hold may be a reader, whose end takes the lock.
    pub(super) dropped: Vec<Done>,
}

impl SharedVersion {
    pub(super) fn new(
        readers: &Arc<Readers>,
        object: Object,
        version_id: Option<Arc<str>>,
        key: VersionKey,
    ) -> SharedVersion {
        let Object { location, size, .. } = &object;
        let requests = || {
            ObjectRequests::new(readers.shared.account.clone(), location.clone())
                .of_version(version_id.clone())
        };
        let mut requests_whole = requests();
        requests_whole.ask_for_the_whole();
        let pinned = Pinned::new(&object);
        let gate = readers.shared.gate_of(location);
        SharedVersion {
            readers: readers.clone(),
            flow: readers.flow(&gate),
            gate,
            requests: Arc::new(requests()),
            requests_whole: Arc::new(requests_whole),
            last_read_ms: AtomicU64::new(readers.now_ms()),
            lanes: AtomicUsize::new(0),
            segments: AtomicUsize::new(0),
            map: Mutex::new(SegmentMap::new(*size, &pinned.name)),
            pinned: Arc::new(pinned),
            object,
            key,
        }
    }

    /// Reads; the number of the wait where it is not over when this returns.
    pub(super) fn read(
        self: &Arc<SharedVersion>,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Pieces, Error>) + Send + 'static,
    ) -> Option<u64> {
        let end = at.saturating_add(bytes as u64).min(self.object.size);
        if at >= end {
            done(Ok(Pieces::default()));
            return None;
        }
        let (counts, limits, range) = (self.counts(), self.limits(), at..end);
        let mut effects = Effects::default();
        let mut map = self.lock();
        let lane = map.on_read(&range);
        if let Some(pieces) = map.take(&range, &mut effects) {
            map.read_ahead(self, lane, &limits, &mut effects);
            self.note(&map);
            drop(map);
            counts.hits.fetch_add(1, Ordering::Relaxed);
            counts.served_bytes.fetch_add(pieces.len() as u64, Ordering::Relaxed);
            self.run(effects);
            done(Ok(pieces));
            return None;
        }
        let read = map.wait(range, lane, Box::new(done));
        drop(map);
        self.run(effects);
        counts.waits.fetch_add(1, Ordering::Relaxed);
        counts.random.fetch_add(u64::from(lane.is_none()), Ordering::Relaxed);
        if !self.go_on(read, false) {
            self.readers().queue_for_memory(self.clone(), read);
        }
        Some(read)
    }

    /// Asks for what a read waits for; `false` where there is no memory for it. One that `starved` is content with little.
    pub(super) fn go_on(self: &Arc<SharedVersion>, read: u64, starved: bool) -> bool {
        let limits = self.limits();
        let efforts: &[Effort] = match starved {
            true => &[Effort::Exact, Effort::OverLimit],
            false => &[Effort::Usual, Effort::Exact, Effort::OverLimit],
        };
        for effort in efforts {
            let short = self.change(|map, effects| map.ask(self, read, *effort, &limits, effects));
            match short {
                None => return true,
                Some(bytes) => self.readers().make_room(bytes, false),
            }
        }
        false
    }

    /// Whether the read was still waiting.
    pub(super) fn cancel(self: &Arc<SharedVersion>, read: u64) -> bool {
        self.change(|map, effects| map.cancel(read, effects))
    }

    pub(super) fn set_next(self: &Arc<SharedVersion>, next: Next) {
        let before = self.change(|map, _| map.next.replace(next));
        drop(before);
    }

    /// Begins to read it before anybody does.
    pub(super) fn begin(self: &Arc<SharedVersion>) {
        let limits = self.limits();
        self.change(|map, effects| map.begin(self, &limits, effects));
    }

    /// Bytes of a segment have landed that somebody waits for.
    pub(super) fn on_landed(self: &Arc<SharedVersion>, segment: &Arc<Segment>) {
        self.change(|map, effects| map.on_landed(segment, effects));
    }

    /// The transfer of a segment has ended.
    pub(super) fn on_end(
        self: &Arc<SharedVersion>,
        segment: &Arc<Segment>,
        result: Result<(), Error>,
        fetched: u64,
    ) {
        self.counts().fetched_bytes.fetch_add(fetched, Ordering::Relaxed);
        self.change(|map, effects| map.on_end(segment, &result, effects));
        if segment.is_over_limit {
            self.readers().on_over_limit_end();
        }
    }

    /// Drops what may be dropped until so many bytes are free; how many were.
    pub(super) fn make_room(self: &Arc<SharedVersion>, wanted: u64) -> u64 {
        self.change(|map, effects| map.make_room(wanted, effects))
    }

    /// Memory for a range.
    pub(super) fn segment(&self, range: Range<u64>, memory: Lease, is_over_limit: bool) -> Arc<Segment> {
        let readers: Weak<Readers> = Arc::downgrade(&self.readers);
        Arc::new(Segment::new(range, memory, is_over_limit, self.readers.counts.clone(), readers))
    }

    /// A transfer for a segment.
    pub(super) fn transfer(
        self: &Arc<SharedVersion>,
        segment: &Arc<Segment>,
        is_whole: bool,
        priority: Priority,
    ) -> Arc<Running> {
        let body = self.flow.expect(segment.bytes());
        let landed = SegmentLanding { segment: segment.clone(), version: self.clone(), body, is_whole };
        let turns = self.gate.turns(self.gate.new_asker(), priority);
        let resources = Resources {
            gate: self.gate.clone(),
            shards: self.readers.shards.clone(),
            turns,
            care: Care::of(&self.readers.shared.settings),
        };
        let requests = if is_whole { &self.requests_whole } else { &self.requests };
        let (pinned, range) = (self.pinned.clone(), segment.range.clone());
        Arc::new(Running::of_version(
            requests.clone(),
            pinned,
            range,
            Ground::Shared(Box::new(landed)),
            resources,
        ))
    }

    /// Changes what is there, and then does what follows from that.
    fn change<T>(self: &Arc<SharedVersion>, change: impl FnOnce(&mut SegmentMap, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let mut map = self.lock();
        let changed = change(&mut map, &mut effects);
        self.note(&map);
        drop(map);
        self.run(effects);
        changed
    }

    fn note(&self, map: &SegmentMap) {
        let before = self.lanes.swap(map.lanes(), Ordering::Relaxed);
        let lanes = &self.counts().lanes;
        lanes.fetch_add(map.lanes() as u64, Ordering::Relaxed);
        lanes.fetch_sub(before as u64, Ordering::Relaxed);
        self.segments.store(map.count(), Ordering::Relaxed);
    }

    fn run(self: &Arc<SharedVersion>, effects: Effects) {
        let Effects { start, raise, cancel, gone, wasted, is_short, next, calls, dropped } = effects;
        for running in start {
            self.start(running);
        }
        for running in raise {
            running.turns.set_priority(Priority::Awaited);
        }
        for running in cancel {
            running.fail(Error::new(ErrorKind::Cancelled, "nobody reads it any more"));
        }
        drop((gone, dropped));
        self.counts().wasted_bytes.fetch_add(wasted, Ordering::Relaxed);
        if is_short > 0 {
            self.readers().make_room(is_short, true);
        }
        if let Some(next) = next {
            self.ask_for_next(next);
        }
        for (done, result) in calls {
            let served = result.as_ref().map_or(0, Pieces::len) as u64;
            self.counts().served_bytes.fetch_add(served, Ordering::Relaxed);
            done(result);
        }
    }

    /// Sends a transfer to the shard that has least to do.
    fn start(&self, running: Arc<Running>) {
        let post = self.gate.join_anywhere(crew(&running));
        let (hold, shard) = (Hold::new(running), post.shard());
        // A client that was closed drops it, and that is its end.
        let _ = self.readers.shards.send(shard, Task::new(|shard| drive_segment(shard, hold, post)));
    }

    /// Asks which object comes next, which may take a while, and begins to read that. Without a thread nothing is lost.
    fn ask_for_next(&self, next: Next) {
        let readers = self.readers.clone();
        let asks = move || {
            let Some(object) = next() else { return };
            let handle = readers.open(object, None);
            handle.version().begin();
            readers.keep(handle);
        };
        let _ = std::thread::Builder::new().name("flatout-next".into()).spawn(asks);
    }

    /// What may be asked for ahead now.
    fn limits(&self) -> Limits {
        let readers = self.readers();
        let now_ms = readers.now_ms();
        self.last_read_ms.store(now_ms, Ordering::Relaxed);
        self.flow.look(now_ms);
        let segment_max = readers.segment_max;
        let in_flight = (SEGMENTS_LANDED + u64::from(self.gate.limit())) * segment_max;
        let lane_segment_max = segment_max.min(self.flow.body_most());
        Limits { window_max: readers.share(now_ms).min(in_flight), segment_max, lane_segment_max }
    }

    /// What comes from its origin.
    pub(super) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// When it was read from last.
    pub(super) fn last_read_ms(&self) -> u64 {
        self.last_read_ms.load(Ordering::Relaxed)
    }

    /// How many patterns are followed.
    pub(super) fn lanes(&self) -> usize {
        self.lanes.load(Ordering::Relaxed)
    }

    pub(super) fn holds_any(&self) -> bool {
        self.segments.load(Ordering::Relaxed) > 0
    }

    pub(super) fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    pub(super) fn counts(&self) -> &Arc<Counts> {
        &self.readers.counts
    }

    fn lock(&self) -> MutexGuard<'_, SegmentMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedVersion {
    fn drop(&mut self) {
        let lanes = self.lanes.load(Ordering::Relaxed) as u64;
        self.counts().lanes.fetch_sub(lanes, Ordering::Relaxed);
        self.readers.forget(&self.key);
    }
}

/// The landing of a segment.
struct SegmentLanding {
    segment: Arc<Segment>,
    version: Arc<SharedVersion>,
    body: Body,
    /// Its bytes are nobody's before all of them are there, and compared with what the origin states of them.
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

    /// Whoever waits for no more is answered.
    fn on_landed(&self, bytes: u64) {
        self.body.on_landed(bytes, || self.version.readers().now_ms());
        if !self.is_whole && self.segment.on_landed(bytes) {
            self.version.on_landed(&self.segment);
        }
    }

    fn on_end(&self, result: Result<(), Error>, fetched_bytes: u64) {
        self.body.end(self.version.readers().now_ms());
        if result.is_ok() {
            self.segment.on_landed(self.segment.bytes());
        }
        self.version.on_end(&self.segment, result, fetched_bytes);
    }
}

impl Drop for SegmentLanding {
    /// Where it was never begun.
    fn drop(&mut self) {
        self.body.end(self.version.readers().now_ms());
    }
}
