//! What the readers of a client share: the versions that are read, their memory, their counts.
//!
//! All their memory is one holder's on the client's account. Prefetch takes memory only while a reserve stays
//! free for reads that wait. A read that waits takes the reserve too, then evicts segments of the version
//! that was read longest ago. If there is still no memory, one read at a time exceeds the limit by exactly
//! its own size, and the others queue. So one read always makes progress, however many answers callers hold.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use flatout_wire::head::strong;

use super::counts::Counts;
use super::link::Link;
use super::segment::OnFreed;
use super::shared_version::{Handle, SharedVersion};
use crate::base::error::Error;
use crate::base::version::Object;
use crate::gate::Gate;
use crate::memory::lease::{Holder, Lease, addressable};
use crate::shard::shards::{Shards, Task};
use crate::shard::shared::Shared;

/// Prefetch leaves this part of the memory for reads to those that wait: an eighth.
const SHARE_OF_AWAITED: u64 = 8;
/// At least this many segments fit into the memory for reads, and none is longer than the most: that brings
/// no more speed.
const SEGMENTS_LEAST: u64 = 16;
const SEGMENT_MOST: u64 = 8 << 20;
const SEGMENT_LEAST: u64 = 256 << 10;
/// A version that has not been read from for this long yields its segments to those that prefetch.
const IDLE_MS: u64 = 2_000;
/// How often the versions that share the memory are counted.
const COUNT_EVERY_MS: u64 = 100;

/// Counts of all readers of a client so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderStats {
    /// Bytes that reads were answered with.
    pub served_bytes: u64,
    /// Bytes of bodies received for them, prefetched ones too, counted when a body ends.
    pub fetched_bytes: u64,
    /// Bytes received, of bodies in flight too.
    pub received_bytes: u64,
    /// Bytes of them that were dropped unread.
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

/// Names a version by what the caller knows of it. Readers with another key do not share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VersionKey {
    location: String,
    version_id: Option<Arc<str>>,
    size: u64,
    etag: Option<String>,
    validator: Validator,
}

/// What tells a version from others with its ETag and size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Validator {
    /// Its ETag does, which is a strong one.
    StrongEtag,
    /// In seconds since 1970.
    LastModified(u64),
    /// Nothing does: no other reader shares it. A number of its own.
    Own(u64),
}

/// What the readers of one client share.
pub(crate) struct Readers {
    pub(super) shared: Arc<Shared>,
    pub(super) shards: Arc<Shards>,
    holder: Holder,
    /// The memory for reads, in bytes.
    limit: u64,
    pub(super) segment_max: u64,
    begun: Instant,
    versions: Mutex<HashMap<VersionKey, Weak<SharedVersion>>>,
    /// The link to each origin; there are few.
    links: Mutex<Vec<(Weak<Gate>, Arc<Link>)>>,
    /// What a lane may prefetch, and when that was computed.
    share: AtomicU64,
    shared_at_ms: AtomicU64,
    queue: Mutex<MemoryQueue>,
    /// How many reads are in it, readable without its lock.
    queued: AtomicUsize,
    /// A shard has been sent a task that retries them.
    is_retry_scheduled: AtomicBool,
    /// The object that will be read next, until a reader opens it.
    next: Mutex<NextObject>,
    /// Numbers the versions that nothing tells from others.
    own: AtomicU64,
    pub(super) counts: Arc<Counts>,
}

/// Reads for which there was no memory.
#[derive(Default)]
struct MemoryQueue {
    reads: VecDeque<(Arc<SharedVersion>, u64)>,
    /// A read that exceeds the limit is in flight.
    is_over_limit: bool,
    /// A thread retries them.
    is_retrying: bool,
    /// Memory may have been freed since it last looked.
    was_freed: bool,
}

/// An object that was begun before a reader has opened it.
#[derive(Default)]
struct NextObject {
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
            versions: Mutex::default(),
            links: Mutex::default(),
            share: AtomicU64::new(limit),
            shared_at_ms: AtomicU64::new(0),
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            is_retry_scheduled: AtomicBool::new(false),
            next: Mutex::default(),
            own: AtomicU64::new(0),
            counts: Arc::default(),
        }
    }

    /// A new handle on a version.
    pub(crate) fn open(self: &Arc<Readers>, object: Object, version_id: Option<Arc<str>>) -> Handle {
        let key = self.key(&object, version_id.clone());
        let fresh = Arc::new(SharedVersion::new(self, object, version_id, key.clone()));
        let mut versions = self.lock();
        let place = versions.entry(key).or_default();
        let version = place.upgrade().unwrap_or_else(|| fresh.clone());
        *place = Arc::downgrade(&version);
        let handle = Handle::new(version);
        // Before `fresh` is dropped, which takes this lock.
        drop(versions);
        self.on_opened(&handle.version);
        handle
    }

    fn key(&self, object: &Object, version_id: Option<Arc<str>>) -> VersionKey {
        let Object { location, size, etag, modified_s } = object;
        let validator = match (etag.as_deref().and_then(strong), modified_s) {
            (Some(_), _) => Validator::StrongEtag,
            (None, Some(modified_s)) => Validator::LastModified(*modified_s),
            (None, None) => Validator::Own(self.own.fetch_add(1, Ordering::Relaxed)),
        };
        VersionKey { location: location.to_string(), version_id, size: *size, etag: etag.clone(), validator }
    }

    /// The link to the origin of a gate.
    pub(super) fn link(&self, gate: &Arc<Gate>) -> Arc<Link> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, link)) = links.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(gate)) {
            return link.clone();
        }
        let link = Arc::<Link>::default();
        links.push((Arc::downgrade(gate), link.clone()));
        link
    }

    /// The version has no reader any more.
    pub(super) fn forget(&self, key: &VersionKey) {
        let mut versions = self.lock();
        if versions.get(key).is_some_and(|version| version.strong_count() == 0) {
            versions.remove(key);
        }
    }

    /// Keeps the object that will be read next, in place of the one kept before.
    pub(super) fn keep(&self, next: Handle) {
        let mut kept = self.lock_next();
        let replaced = match kept.is_closed {
            true => Some(next),
            false => kept.handle.replace(next),
        };
        drop(kept);
        drop(replaced);
    }

    /// A reader has opened it, and keeps it from now on.
    fn on_opened(&self, version: &Arc<SharedVersion>) {
        let is_it = |handle: &mut Handle| Arc::ptr_eq(&handle.version, version);
        let handle = self.lock_next().handle.take_if(is_it);
        drop(handle);
    }

    /// The client is closed: nothing will be read any more.
    pub(crate) fn close(&self) {
        let mut kept = self.lock_next();
        kept.is_closed = true;
        let handle = kept.handle.take();
        drop(kept);
        drop(handle);
    }

    /// Milliseconds since the client began.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// How many bytes one lane may prefetch: the lanes that are in use share the memory alike.
    pub(super) fn share(&self, now_ms: u64) -> u64 {
        let counted_at = self.shared_at_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(counted_at) >= COUNT_EVERY_MS
            && self
                .shared_at_ms
                .compare_exchange(counted_at, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let busy = |version: &Arc<SharedVersion>| now_ms.saturating_sub(version.last_read_ms()) < IDLE_MS;
            let lanes: usize =
                self.all().iter().filter(|version| busy(version)).map(|version| version.lanes()).sum();
            let ahead = self.limit - self.limit / SHARE_OF_AWAITED;
            self.share.store(ahead / lanes.max(1) as u64, Ordering::Relaxed);
        }
        self.share.load(Ordering::Relaxed)
    }

    /// Memory for a segment that is prefetched, if there is room.
    pub(super) fn lease_ahead(&self, bytes: u64) -> Option<Lease> {
        let bytes = addressable(bytes).ok()?;
        // Without memory of the machine's nothing is prefetched.
        self.holder.lease_at_once(bytes, self.limit / SHARE_OF_AWAITED).ok().flatten()
    }

    /// Memory for a segment that a read waits for, if there is room.
    pub(super) fn lease(&self, bytes: u64) -> Result<Option<Lease>, Error> {
        self.holder.lease_at_once(addressable(bytes)?, 0)
    }

    /// Memory for a read that waits, beyond the limit; `None` while another read has such memory.
    pub(super) fn allocate_over_limit(&self, bytes: u64) -> Result<Option<Lease>, Error> {
        let bytes = addressable(bytes)?;
        let mut queue = self.lock_queue();
        if queue.is_over_limit {
            return Ok(None);
        }
        let lease = self.shared.pool.lease(bytes)?;
        queue.is_over_limit = true;
        Ok(Some(lease))
    }

    /// The transfer into memory beyond the limit has ended.
    pub(super) fn on_over_limit_end(&self) {
        self.lock_queue().is_over_limit = false;
        self.retry_queued();
    }

    /// Queues a read until there is memory for it.
    pub(super) fn queue_for_memory(&self, version: Arc<SharedVersion>, read: u64) {
        self.lock_queue().reads.push_back((version, read));
        self.queued.fetch_add(1, Ordering::SeqCst);
        // Memory may have been freed before it was queued.
        self.retry_queued();
    }

    /// The task that `on_freed` has sent.
    pub(crate) fn on_retry_scheduled(&self) {
        // Before the retry: memory that is freed from now on schedules another.
        self.is_retry_scheduled.store(false, Ordering::SeqCst);
        self.retry_queued();
    }

    /// Retries queued reads in their order, as long as there is memory.
    fn retry_queued(&self) {
        if self.queued.load(Ordering::SeqCst) == 0 {
            return;
        }
        loop {
            let (version, read) = {
                let mut queue = self.lock_queue();
                if queue.is_retrying {
                    queue.was_freed = true;
                    return;
                }
                let Some(first) = queue.reads.pop_front() else { return };
                (queue.is_retrying, queue.was_freed) = (true, false);
                first
            };
            let goes_on = version.retry(read);
            let mut queue = self.lock_queue();
            queue.is_retrying = false;
            match goes_on {
                true => self.queued.fetch_sub(1, Ordering::SeqCst),
                false => {
                    queue.reads.push_front((version, read));
                    // The read beyond the limit retries when it ends, and so does a segment that frees its
                    // memory.
                    if queue.is_over_limit && !queue.was_freed {
                        return;
                    }
                    continue;
                }
            };
        }
    }

    /// Evicts segments until `wanted` bytes are free, beginning with the version that was read longest ago;
    /// with `idle_only`, of versions that are not being read.
    pub(super) fn make_room(&self, wanted: u64, idle_only: bool) {
        let now_ms = self.now_ms();
        let mut versions = self.all();
        versions.retain(|version| {
            version.holds_any() && (!idle_only || now_ms.saturating_sub(version.last_read_ms()) >= IDLE_MS)
        });
        versions.sort_by_key(|version| version.last_read_ms());
        let mut freed = 0;
        for version in versions {
            if freed >= wanted {
                break;
            }
            freed += version.make_room(wanted - freed);
        }
    }

    fn all(&self) -> Vec<Arc<SharedVersion>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn stats(&self) -> ReaderStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
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
            received_bytes: links.iter().map(|(_, link)| link.landed()).sum(),
            wasted_bytes: of(wasted_bytes),
            hits: of(hits),
            waits: of(waits),
            random: of(random),
            whole: of(whole),
            lanes: of(lanes),
            held_bytes: of(held_bytes),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<VersionKey, Weak<SharedVersion>>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_next(&self) -> MutexGuard<'_, NextObject> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_queue(&self) -> MutexGuard<'_, MemoryQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnFreed for Readers {
    /// A segment has freed its memory. The thread that dropped it may hold any lock, so a shard retries the
    /// queued reads.
    fn on_freed(self: Arc<Readers>) {
        if self.queued.load(Ordering::SeqCst) == 0 || self.is_retry_scheduled.swap(true, Ordering::SeqCst) {
            return;
        }
        let readers = self.clone();
        // A task of its own: it calls the readers' functions, and a panic there must not end the shard.
        let retry = Task::new(|_| async move { readers.on_retry_scheduled() });
        if self.shards.send(0, retry).is_err() {
            // The reads of a closed client end with their transfers. If no thread could be started, the next
            // segment that frees its memory tries again.
            self.is_retry_scheduled.store(false, Ordering::SeqCst);
        }
    }
}
