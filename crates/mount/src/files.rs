//! What a session serves: files and folders by inode, asked for in calls that are answered from memory or wait for an origin.

use std::ffi::OsStr;
use std::time::Duration;

use crate::answer::ReadAnswer;

/// An errno, positive.
pub type Errno = i32;

/// What is known of an inode, and for how long the kernel may go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What is known.
    pub attributes: Attributes,
    /// For how long from now.
    pub lifetime: Duration,
}

/// What `stat(2)` says of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The inode's number; the root's is 1, 0 is none.
    pub node: u64,
    /// Bytes.
    pub size: u64,
    /// Seconds since 1970.
    pub modified_s: i64,
    /// The time of change, in seconds since 1970.
    pub changed_s: i64,
    /// A folder, else a file.
    pub folder: bool,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that it has.
    pub links: u32,
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What reads name.
    pub handle: u64,
    /// Past the page cache.
    pub direct: bool,
    /// What the page cache holds of the file is still right.
    pub keep_cache: bool,
    /// What the kernel was told of the inode last is not of this version: it is to ask again, or it reads no further than a size of
    /// before.
    pub is_news: bool,
}

/// What `statfs(2)` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// What blocks are counted in.
    pub block_bytes: u32,
    /// In all.
    pub blocks: u64,
    /// Of these.
    pub free_blocks: u64,
    /// Inodes.
    pub files: u64,
    /// Of these.
    pub free_files: u64,
    /// In bytes.
    pub longest_name: u32,
}

/// Files and folders. Calls named `…_known` answer from memory, or None where they would wait; the others may wait.
pub trait Files: Send + Sync + 'static {
    /// Counts one lookup of the inode when Ok.
    fn lookup(&self, parent: u64, name: &OsStr) -> Result<Entry, Errno>;
    /// The same from memory.
    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Entry, Errno>>;
    /// For how long the kernel may go by a name that is not there.
    fn negative_lifetime(&self) -> Duration;
    /// What an inode is.
    fn attributes(&self, node: u64) -> Result<Entry, Errno>;
    /// The same from memory.
    fn attributes_known(&self, node: u64) -> Option<Result<Entry, Errno>>;
    /// So many lookups count no more. Does not wait.
    fn forget(&self, node: u64, times: u64);
    /// A handle to read the folder by.
    fn open_folder(&self, node: u64) -> Result<u64, Errno>;
    /// Names from `offset` on, `.` and `..` included, until `each` (name, entry, the offset behind it) says false: that name was
    /// not taken. With `plus` every taken name but `.` and `..` counts a lookup.
    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&OsStr, &Entry, u64) -> bool,
    ) -> Result<(), Errno>;
    /// Does not wait.
    fn release_folder(&self, handle: u64);
    /// `direct`: the caller asked for `O_DIRECT`.
    fn open(&self, node: u64, direct: bool) -> Result<Opened, Errno>;
    /// The same from memory.
    fn open_known(&self, node: u64, direct: bool) -> Option<Result<Opened, Errno>>;
    /// Answers now or later, on any thread. Does not wait. What cancels it comes back unless it was answered already.
    fn read(&self, handle: u64, at: u64, bytes: usize, answer: ReadAnswer) -> Option<Cancel>;
    /// Does not wait.
    fn release(&self, handle: u64);
    /// How large the whole is. Does not wait.
    fn statfs(&self) -> Statfs;
}

/// Stops a read that was answered by somebody else.
pub type Cancel = Box<dyn FnOnce() + Send>;
