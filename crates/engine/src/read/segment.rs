//! A segment: one range of a version, in memory of the client's pool, landed or in flight; and the pieces of
//! segments that answer a read.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::counts::Counts;
use crate::memory::lease::Lease;
use crate::transfer::Download;
use flatout_policy::latency::Came;

/// No read waits.
const NOBODY: u64 = u64::MAX;

/// One range of a version. Its bytes land in order, and landed bytes do not change.
pub(crate) struct Segment {
    /// Within the object.
    pub(super) range: Range<u64>,
    memory: Lease,
    /// How many of its bytes have landed.
    landed: AtomicU64,
    /// A read waits until this many have landed.
    wake_at: AtomicU64,
    /// How those came that a read waited for.
    came: AtomicU8,
    /// Its memory is beyond the limit.
    pub(super) is_over_limit: bool,
    /// What brings its bytes.
    transfer: OnceLock<Weak<Download>>,
    counts: Arc<Counts>,
    /// The last field, dropped when the memory has been.
    _freed: FreedSignal,
}

/// Called when a segment has freed its memory.
pub(super) trait OnFreed: Send + Sync {
    fn on_freed(self: Arc<Self>);
}

struct FreedSignal(Weak<dyn OnFreed>);

impl Segment {
    pub(super) fn new(
        range: Range<u64>,
        memory: Lease,
        is_over_limit: bool,
        counts: Arc<Counts>,
        listener: Weak<dyn OnFreed>,
    ) -> Segment {
        assert!(memory.len() as u64 >= range.end - range.start, "a segment has room for its range");
        counts.held_bytes.fetch_add(memory.len() as u64, Ordering::Relaxed);
        let (landed, wake_at, came) = (AtomicU64::new(0), AtomicU64::new(NOBODY), AtomicU8::new(0));
        let (transfer, _freed) = (OnceLock::new(), FreedSignal(listener));
        Segment { range, memory, landed, wake_at, came, is_over_limit, transfer, counts, _freed }
    }

    pub(super) fn set_transfer(&self, transfer: &Arc<Download>) {
        let is_first = self.transfer.set(Arc::downgrade(transfer)).is_ok();
        assert!(is_first, "a segment has one transfer");
    }

    /// What brings its bytes, as long as that runs.
    pub(super) fn transfer(&self) -> Option<Arc<Download>> {
        self.transfer.get()?.upgrade()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// How many of its bytes have landed, from its start.
    pub(super) fn landed(&self) -> u64 {
        self.landed.load(Ordering::SeqCst)
    }

    /// Its first `bytes` bytes have landed; whether a read waits for no more than these.
    pub(super) fn on_landed(&self, bytes: u64) -> bool {
        // In one order with `wait_for`: either it sees these bytes, or we see that a read waits.
        self.landed.store(bytes, Ordering::SeqCst);
        bytes >= self.wake_at.load(Ordering::SeqCst)
    }

    /// The bytes that a read waited for came in that way.
    pub(super) fn set_came(&self, came: Came) {
        self.came.store(came as u8, Ordering::Relaxed);
    }

    /// Whether a read waited for bytes of it that came in that way.
    pub(super) fn has_come(&self, came: Came) -> bool {
        self.came.load(Ordering::Relaxed) == came as u8
    }

    /// Where its byte `at` lands, and those after it.
    pub(super) fn place(&self, at: u64) -> *mut u8 {
        assert!(at <= self.bytes(), "a part of a segment lies within it");
        // SAFETY: the lease is as long as the segment at least, and `at` within that.
        unsafe { self.memory.as_ptr().add(at as usize) }
    }

    /// A read waits until `bytes` bytes have landed, or none waits any more. Returns how many have landed.
    pub(super) fn wait_for(&self, bytes: Option<u64>) -> u64 {
        self.wake_at.store(bytes.unwrap_or(NOBODY), Ordering::SeqCst);
        self.landed()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.counts.held_bytes.fetch_sub(self.memory.len() as u64, Ordering::Relaxed);
    }
}

impl Drop for FreedSignal {
    fn drop(&mut self) {
        if let Some(listener) = self.0.upgrade() {
            listener.on_freed();
        }
    }
}

/// Bytes of one segment.
#[derive(Clone)]
struct Piece {
    segment: Arc<Segment>,
    start: usize,
    bytes: usize,
}

/// The bytes of a read, where they landed: one slice or several, in order. Their memory is kept as long as
/// this lives: hold it no longer than it takes to pass the bytes on.
#[derive(Clone, Default)]
pub struct Pieces {
    pieces: Vec<Piece>,
    bytes: usize,
}

impl Pieces {
    /// The bytes in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(Piece::bytes)
    }

    /// How many bytes they are in all.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is none: the read lies beyond the object's end.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether a read waited for bytes of a segment of these that came in that way.
    pub(super) fn have_come(&self, came: Came) -> bool {
        self.pieces.iter().any(|piece| piece.segment.has_come(came))
    }

    /// Adds the bytes of `range` that lie in this segment.
    pub(super) fn push(&mut self, segment: &Arc<Segment>, range: &Range<u64>) {
        let start = range.start.max(segment.range.start);
        let end = range.end.min(segment.range.end);
        let (start, bytes) = ((start - segment.range.start) as usize, (end - start) as usize);
        self.pieces.push(Piece { segment: segment.clone(), start, bytes });
        self.bytes += bytes;
    }
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Pieces({} bytes in {})", self.bytes, self.pieces.len())
    }
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        let there = self.segment.landed() as usize;
        assert!(self.start + self.bytes <= there, "only what has landed is handed out");
        // SAFETY: within the lease, and landed: nobody writes to these bytes again, and the lease lives as
        // long as `self`.
        unsafe { std::slice::from_raw_parts(self.segment.memory.as_ptr().add(self.start), self.bytes) }
    }
}
