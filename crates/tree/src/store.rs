//! What a tree needs of a store: listings page by page, HEADs, buckets, content, an account of memory and a
//! clock. The engine's `Client` is one; the tests have another in memory, whose clock they set.

use flatout_engine::{Bucket, Dialect, Entry, Error, Object};
use flatout_wire::location::Location;

use crate::files::{Cancel, Slices};

/// A store of objects. Its calls may block, and are made without a lock.
pub trait ObjectStore: Send + Sync + 'static {
    type VersionReader: VersionReader;
    type MemoryAccount: MemoryAccount;

    /// The entries under a prefix up to the next `/`, in pages of at most `most` entries.
    ///
    /// # Errors
    /// The reason why there cannot be a listing.
    fn list(&self, under: &Location, most: Option<u32>) -> Result<Box<dyn ListingPages>, Error>;

    /// # Errors
    /// The origin's refusal, or the network's.
    fn head(&self, object: &Location) -> Result<Head, Error>;

    /// # Errors
    /// The origin's refusal, or the network's.
    fn buckets(&self, dialect: Dialect) -> Result<Vec<Bucket>, Error>;

    /// Nothing is asked.
    ///
    /// # Errors
    /// The reason why this version cannot be read.
    fn content(&self, version: Object) -> Result<Self::VersionReader, Error>;

    /// An account of the client's memory, for names.
    fn account(&self) -> Self::MemoryAccount;

    /// Milliseconds on a monotonic clock that also counts while the machine sleeps.
    fn now_ms(&self) -> u64;

    /// Seconds since 1970.
    fn unix_s(&self) -> i64;
}

/// A listing, page by page.
pub trait ListingPages: Send {
    /// The next page, and whether it is the last. Entries are in the order of keys if the origin keeps it.
    ///
    /// # Errors
    /// The origin's refusal, or the network's; it ends the listing.
    fn next_page(&mut self) -> Result<(Vec<Entry>, bool), Error>;

    /// How long ago the origin was asked for the page that came last, in milliseconds, where that was before
    /// the call; else 0.
    fn page_age_ms(&self) -> u64 {
        0
    }
}

/// The content of one version.
pub trait VersionReader: Clone + Send + Sync + 'static {
    /// Calls `done` once, unless cancelled: now, or later on another thread. Returns how to cancel it then.
    fn read(
        &self,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, Error>) + Send + 'static,
    ) -> Option<Cancel>;

    /// Sets which version is read after this one.
    fn set_next(&self, next: impl FnOnce() -> Option<Object> + Send + 'static);
}

/// A part of the client's memory limit.
pub trait MemoryAccount: Send + Sync + 'static {
    /// Sets how many bytes are held now.
    fn set(&mut self, bytes: u64);

    /// Whether the client's memory is over its limit.
    fn is_over(&self) -> bool;
}

/// The answer to a HEAD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// In bytes.
    pub size: u64,
    /// As sent, with its quotes.
    pub etag: Option<String>,
    /// In seconds since 1970; 0 if the origin does not say.
    pub modified_s: u64,
}
