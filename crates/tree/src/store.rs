//! What a tree needs of a store: listings page by page, heads, buckets, content, an account of memory and a clock. The
//! engine's `Client` is one; the tests have another in memory, with a clock that they turn.

use flatout_engine::{Bucket, Dialect, Entry, Error};
use flatout_wire::location::Location;

use crate::files::{Cancel, Slices};

/// A store of objects. Its calls may block, and are made with no lock held.
pub trait Store: Send + Sync + 'static {
    type Content: Content;
    type Account: Account;

    /// What lies under `under` up to the next `/`, in pages of `most` entries.
    ///
    /// # Errors
    /// What keeps a listing from being asked for at all.
    fn list(&self, under: &Location, most: Option<u32>) -> Result<Box<dyn Pages>, Error>;

    /// # Errors
    /// The origin's refusal, or the network's.
    fn head(&self, object: &Location) -> Result<Head, Error>;

    /// # Errors
    /// As `head`.
    fn buckets(&self, dialect: Dialect) -> Result<Vec<Bucket>, Error>;

    /// Nothing is asked.
    ///
    /// # Errors
    /// A version that cannot be read at all.
    fn content(&self, version: Version) -> Result<Self::Content, Error>;

    /// Room for names on the account of memory.
    fn account(&self) -> Self::Account;

    /// Milliseconds on a clock that only goes forward, also while the machine sleeps.
    fn now_ms(&self) -> u64;

    /// Seconds since 1970.
    fn unix_s(&self) -> i64;
}

/// A listing that is on its way.
pub trait Pages: Send {
    /// The next page, in the order of names as far as the origin keeps one, and whether it is the last.
    ///
    /// # Errors
    /// The origin's refusal, or the network's; it ends the listing.
    fn next_page(&mut self) -> Result<(Vec<Entry>, bool), Error>;
}

/// The content of one version.
pub trait Content: Clone + Send + Sync + 'static {
    /// Calls `done` once, unless cancelled: now, or later on another thread. Returns how to cancel it then.
    fn read(
        &self,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, Error>) + Send + 'static,
    ) -> Option<Cancel>;

    /// Says what comes after this.
    fn set_next(&self, next: impl FnOnce() -> Option<Version> + Send + 'static);
}

/// What is held, on the account of the client's memory.
pub trait Account: Send + Sync + 'static {
    /// So many bytes are held now.
    fn set(&mut self, bytes: u64);

    /// More is held than may be.
    fn is_over(&self) -> bool;
}

/// A version of an object, to be read.
pub use flatout_engine::Object as Version;

/// What a HEAD tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// In bytes.
    pub size: u64,
    /// As sent, with its quotes.
    pub etag: Option<String>,
    /// In seconds since 1970; 0 where the origin does not say.
    pub modified_s: u64,
}
