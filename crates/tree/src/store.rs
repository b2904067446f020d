//! What a tree needs of a store: listings page by page, HEADs, buckets, content, objects made, copied and
//! deleted, an account of memory and a clock. The engine's `Client` is one; the tests have another in memory,
//! whose clock they set.

use std::path::Path;
use std::sync::Arc;

use flatout_engine::{AppendPosition, Bucket, Dialect, EditedPart, Entry, Error, Object, UploadEnded};
use flatout_wire::checksum::Algorithm;
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

use crate::files::{Cancel, Slices, WriteMoment};
pub use crate::withdrawal::Withdrawal;

/// A store of objects. Its calls may block, and are made without a lock.
pub trait ObjectStore: Send + Sync + 'static {
    type VersionReader: VersionReader;
    type MemoryAccount: MemoryAccount;
    type Upload: ObjectUpload;

    /// The entries under a prefix up to the next `/`, in pages of at most `most` entries.
    ///
    /// # Errors
    /// The reason why there cannot be a listing.
    fn list(&self, under: &Location, most: Option<u32>) -> Result<Box<dyn ListingPages>, Error>;

    /// All objects whose keys begin with a prefix, in the order of their keys.
    ///
    /// # Errors
    /// The reason why there cannot be a listing.
    fn list_deep(&self, under: &Location) -> Result<Box<dyn ListingPages>, Error>;

    /// Makes an object of these bytes.
    ///
    /// # Errors
    /// The origin's refusal, or the network's; `Changed` where the condition does not hold.
    fn put(
        &self,
        to: &Location,
        bytes: Arc<Vec<u8>>,
        as_: &ObjectOptions,
        condition: Condition,
    ) -> Result<Stored, Error>;

    /// Describes an object anew: it is copied onto itself, as long as it has this ETag. Names that are not
    /// given stay.
    ///
    /// # Errors
    /// `Changed` where it has another; the origin's refusal, or the network's.
    fn describe(&self, object: &Location, etag: Option<&str>, as_: &ObjectOptions) -> Result<Stored, Error>;

    /// Begins an object whose bytes are to be written. It `continues` that version, where one is given: its
    /// bytes come first. `notes` hears of it.
    ///
    /// # Errors
    /// What can be known before anything is sent.
    fn upload(
        &self,
        to: &Location,
        as_: &ObjectOptions,
        condition: Condition,
        continues: Option<Object>,
        notes: Option<Arc<dyn UploadNotes>>,
    ) -> Result<Self::Upload, Error>;

    /// Makes an object of a file, or of another version and what a file has of it: the parts that are not
    /// copied.
    ///
    /// # Errors
    /// The origin's refusal, or the network's; `Changed` where the condition does not hold, or that version
    /// is not there any more; `Cancelled` where it was withdrawn.
    fn put_file(&self, put: FilePut<'_>) -> Result<Stored, Error>;

    /// Appends to an object of OSS that was made by appends; what it is then, and where the next bytes go.
    ///
    /// # Errors
    /// The origin's refusal, or the network's; `Changed` where the object does not end there any more.
    fn append(
        &self,
        to: &Location,
        position: AppendPosition,
        bytes: Arc<Vec<u8>>,
    ) -> Result<(Stored, AppendPosition), Error>;

    /// Copies an object within the store: the version that is there now, which the answer names. `notes`
    /// hears of the upload of a long one. With `keeps_time` the copy's metadata has the object's time, as
    /// `Posix` says it, where it has none.
    ///
    /// # Errors
    /// The origin's refusal, or the network's; `Changed` where the condition does not hold.
    fn copy(
        &self,
        from: &Location,
        to: &Location,
        condition: Condition,
        keeps_time: bool,
        notes: Option<Arc<dyn UploadNotes>>,
    ) -> Result<Copied, Error>;

    /// Deletes an object. One that is not there counts as deleted.
    ///
    /// # Errors
    /// The origin's refusal, or the network's.
    fn delete(&self, object: &Location) -> Result<(), Error>;

    /// Deletes an object as long as it has this ETag.
    ///
    /// # Errors
    /// `Changed` where it has another; as [`ObjectStore::delete`].
    fn delete_version(&self, object: &Location, etag: &str) -> Result<(), Error>;

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

/// An object that is to be made of a file.
pub struct FilePut<'a> {
    pub to: &'a Location,
    /// Must not change meanwhile.
    pub path: &'a Path,
    pub as_: &'a ObjectOptions,
    /// The version of which the origin copies parts, and all parts.
    pub edits: Option<(Object, Vec<EditedPart>)>,
    pub condition: Condition,
    /// Hears of its upload in parts.
    pub notes: Option<Arc<dyn UploadNotes>>,
    pub withdrawal: &'a Withdrawal,
}

/// Hears of uploads in parts: those that have begun and did not end are of a mount that was killed, and their
/// parts are paid for until they are aborted.
pub trait UploadNotes: Send + Sync + std::fmt::Debug {
    /// Called before the first part is sent; must not wait for a network.
    fn begun(&self, object: &Location, upload_id: &str);

    /// The object is there.
    fn ended(&self, upload_id: &str);
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
    /// Of all its bytes, as the origin states them.
    pub checksums: Vec<(Algorithm, u64)>,
    /// It was made by appends, and takes more of them (OSS).
    pub is_appendable: bool,
    /// Names without a prefix.
    pub metadata: Vec<(String, String)>,
    pub content_type: Option<String>,
}

/// An object that is being written. Dropping it deletes what was sent, and waits for that; nothing appears.
pub trait ObjectUpload: Send + 'static {
    /// Writes all of `bytes`, at most 1 MiB of them; nothing, and `false`, once `goes_on` says no, which is
    /// asked before each wait and once before the bytes are taken.
    ///
    /// # Errors
    /// The upload has ended: [`ObjectUpload::finish`] says why.
    fn write(
        &mut self,
        bytes: &[u8],
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, UploadEnded>;

    /// All has been written: the object appears.
    ///
    /// # Errors
    /// Why it does not.
    fn finish(self) -> Result<Stored, Error>;
}

/// The version that was made of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// In bytes.
    pub size: u64,
    /// As sent, with its quotes.
    pub etag: Option<String>,
    /// When it was made, in seconds since 1970, by this machine's clock or the origin's.
    pub modified_s: i64,
}

/// A copy that was made within the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The ETag of what was copied, as sent, with its quotes.
    pub from_etag: Option<String>,
    pub stored: Stored,
}
