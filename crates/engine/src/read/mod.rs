//! Reading an object here and there: reads in any order from any thread, answered from memory that what is read next has been
//! fetched into ahead. docs/life-of-a-read.md walks the road.
//!
//! ```text
//!   read ─► shelf: segments of this version ──── there ────► pieces, at once
//!             │ lanes: which pattern is it?  ─── missing ──► segment: a transfer of its own ─► pieces, when they have landed
//!             └──────────────────────────────── next ─────► segments ahead, as far as memory goes
//! ```

mod counts;
mod flow;
mod lane;
mod lanes;
mod layout;
mod place;
mod places;
mod readers;
mod segment;
mod shelf;
mod waiting_read;

use std::sync::Arc;

use crate::base::error::Error;
use crate::base::version::Object;
pub use readers::ReaderStats;
pub(crate) use readers::Readers;
pub use segment::Pieces;
use shelf::{Handle, Shelf};

/// Reads one version of an object. Readers of the same version share what they fetch. Cheap to clone; whatever is ahead
/// goes when the last one is dropped, and reads that wait are answered all the same.
#[derive(Clone)]
pub struct Reader(pub(crate) Arc<Handle>);

impl Reader {
    /// The version that is read.
    pub fn object(&self) -> &Object {
        &self.0.shelf().object
    }

    /// Reads `bytes` bytes from `at` on, as far as the object goes.
    ///
    /// `done` is called exactly once, unless the read is cancelled: within this call, on this thread, where the bytes are
    /// there already or it is known that they cannot be had; else later on a thread of the client's, which others wait for.
    /// No lock is held then: it may read again.
    ///
    /// # Errors
    /// `done` is given what the origin or the network refused; [`crate::ErrorKind::Changed`] where another version stands in
    /// the object's place. A later read tries again.
    pub fn read(
        &self,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Pieces, Error>) + Send + 'static,
    ) -> Reading {
        let shelf = self.0.shelf();
        let wait = shelf.read(at, bytes, done);
        Reading(wait.map(|wait| (shelf.clone(), wait)))
    }

    /// Says what comes after this object, where it is one of a series: asked once, on a thread of its own, when this one is
    /// nearly read.
    pub fn set_next(&self, next: impl FnOnce() -> Option<Object> + Send + 'static) {
        self.0.shelf().set_next(Box::new(next));
    }
}

/// A read on its way. Dropping it changes nothing.
#[must_use = "dropping it changes nothing; cancel it where nobody waits any more"]
pub struct Reading(Option<(Arc<Shelf>, u64)>);

impl Reading {
    /// Gives it up; whether it was still waiting: what it was to call will then never be called.
    pub fn cancel(self) -> bool {
        self.0.is_some_and(|(shelf, wait)| shelf.cancel(wait))
    }

    /// Whether it was answered within the call.
    pub fn is_over(&self) -> bool {
        self.0.is_none()
    }
}
