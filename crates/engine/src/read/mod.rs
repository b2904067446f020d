//! Random access reads of one object, in any order and from any thread, answered from prefetched memory where
//! there is a pattern. docs/life-of-a-read.md walks the road.
//!
//! ```text
//!   read ─► segment map ── landed ───► pieces, at once
//!             │ lanes ──── missing ──► segment: a transfer of its own ─► pieces, when its bytes have landed
//!             └─────────── next ─────► segments ahead, as far as memory goes
//! ```

mod backing;
mod counts;
mod entries;
mod lane;
mod lanes;
mod link;
mod readers;
mod segment;
mod segment_map;
mod shared_version;

use std::sync::Arc;

use crate::base::error::Error;
use crate::base::version::Object;
pub use readers::ReaderStats;
pub(crate) use readers::Readers;
pub use segment::Pieces;
use shared_version::{Handle, SharedVersion};

/// Reads one version of an object. Readers of the same version share what they fetch. Cheap to clone. When
/// the last one is dropped, prefetched bytes go; reads that wait are still answered.
#[derive(Clone)]
pub struct Reader(pub(crate) Arc<Handle>);

impl Reader {
    /// The version that is read.
    pub fn object(&self) -> &Object {
        &self.0.version.object
    }

    /// Reads `bytes` bytes from `at`, or fewer at the object's end.
    ///
    /// `done` is called exactly once, unless the read is cancelled. If the bytes have landed already, or
    /// cannot be had, it is called within this call, on this thread. Otherwise it is called later, on a
    /// thread of the client's that serves others too. No lock is held then: it may read again.
    ///
    /// # Errors
    /// `done` gets the origin's or the network's error, or [`crate::ErrorKind::Changed`] if another version
    /// has replaced this one. A later read tries again.
    pub fn read(
        &self,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Pieces, Error>) + Send + 'static,
    ) -> Reading {
        let version = &self.0.version;
        let wait = version.read(at, bytes, done);
        Reading(wait.map(|wait| (version.clone(), wait)))
    }

    /// Sets a function that finds the next object of a series. It is called once, on a thread of its own,
    /// when all of this object has been requested.
    pub fn set_next(&self, next: impl FnOnce() -> Option<Object> + Send + 'static) {
        self.0.version.set_next(Box::new(next));
    }
}

/// A read that may still wait. Dropping it changes nothing.
#[must_use = "dropping it changes nothing; cancel the read if its answer is not needed any more"]
pub struct Reading(Option<(Arc<SharedVersion>, u64)>);

impl Reading {
    /// Cancels it. Returns whether it was still waiting; then its function will never be called.
    pub fn cancel(self) -> bool {
        self.0.is_some_and(|(version, wait)| version.cancel(wait))
    }

    /// Whether it was answered within the call.
    pub fn is_over(&self) -> bool {
        self.0.is_none()
    }
}
