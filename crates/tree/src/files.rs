//! What a mount serves: files and folders by inode, from memory or after a wait for an origin.

use std::ffi::OsStr;
use std::time::Duration;

use crate::attributes::{FolderEntry, Node, OpenedFile, Statfs};
use crate::fs_error::FsError;

/// Bytes that were read, where they landed.
pub type Slices<'a, 'b> = &'a mut dyn Iterator<Item = &'b [u8]>;

/// Cancels a read. Where the read was answered meanwhile, nothing happens.
pub type Cancel = Box<dyn FnOnce() + Send>;

/// Files and folders. A call named `…_known` answers from memory, or with `None` where the origin has to be
/// asked; it does not wait. Inodes and handles are FUSE's: a lookup is undone by `forget`, an open by
/// `release`.
pub trait Files: Send + Sync + 'static {
    /// Looks `name` up in a folder, and counts one lookup of its inode.
    ///
    /// # Errors
    /// `ENOENT`, which may be believed for [`Files::negative_lifetime`]; `ENOTDIR`, `ENAMETOOLONG`; `ESTALE`
    /// for an inode that nobody has looked up; the origin's refusal.
    fn lookup(&self, parent: u64, name: &OsStr) -> Result<Node, FsError>;

    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Node, FsError>>;

    /// How long the kernel may believe an `ENOENT`.
    fn negative_lifetime(&self) -> Duration;

    /// The attributes of an inode.
    ///
    /// # Errors
    /// `ENOENT` when its name is gone or of another kind; `ESTALE` when the version that was opened by this
    /// inode was replaced; the origin's refusal.
    fn attributes(&self, node: u64) -> Result<Node, FsError>;

    fn attributes_known(&self, node: u64) -> Option<Result<Node, FsError>>;

    /// Takes back `times` lookups. Does not wait.
    fn forget(&self, node: u64, times: u64);

    /// Opens a folder to be read. Nothing is asked.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    fn open_folder(&self, node: u64) -> Result<u64, FsError>;

    /// Hands the entries from `offset` on to `each`, `.` and `..` first, until it returns `false`: that entry
    /// was not taken. With `plus` every entry that was taken, except `.` and `..`, counts a lookup.
    /// Pages are fetched as they are read; an offset stays valid until the folder is read from 0
    /// again.
    ///
    /// # Errors
    /// `EBADF`; the reason why a page could not be fetched. Entries that were taken before stay taken.
    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), FsError>;

    /// Does not wait.
    fn release_folder(&self, handle: u64);

    /// Opens the version of a file that is known; with close-to-open, the version that the origin has now.
    /// `direct`: the caller passed `O_DIRECT`.
    ///
    /// # Errors
    /// `EISDIR`, `ENOENT`, the origin's refusal; `ESTALE` where another version was opened by this inode
    /// before. On `ESTALE` the kernel looks the name up again, once, and opens the inode of the new version:
    /// a node has one content, as it has one page cache.
    fn open(&self, node: u64, direct: bool) -> Result<OpenedFile, FsError>;

    fn open_known(&self, node: u64, direct: bool) -> Option<Result<OpenedFile, FsError>>;

    /// Reads from the version that was opened. `done` is called once: on this thread within this call where
    /// the bytes are in memory or the read cannot be begun, else later on another thread, unless the read is
    /// cancelled. Returns how to cancel it, where it was not answered within the call. Does not wait.
    ///
    /// `done` gets `EBADF`; `ESTALE` once another version is known; the origin's refusal.
    fn read(
        &self,
        handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel>;

    /// Does not wait.
    fn release(&self, handle: u64);

    /// The size of the whole. Does not wait.
    fn statfs(&self) -> Statfs;
}
