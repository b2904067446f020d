//! What a session serves, in the tree's words: files and folders by inode, asked for in calls that are answered from memory or wait
//! for an origin.

use std::ffi::OsStr;
use std::time::Duration;

use flatout_tree::{FolderEntry, Known, Opened, Statfs};

use crate::answer::ReadAnswer;

/// An errno, positive.
pub type Errno = i32;

/// Files and folders. Calls named `…_known` answer from memory, or None where they would wait; the others may wait.
pub trait Files: Send + Sync + 'static {
    /// Counts one lookup of the inode when Ok.
    fn lookup(&self, parent: u64, name: &OsStr) -> Result<Known, Errno>;
    /// The same from memory.
    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Known, Errno>>;
    /// For how long the kernel may go by a name that is not there.
    fn negative_lifetime(&self) -> Duration;
    /// What an inode is.
    fn attributes(&self, node: u64) -> Result<Known, Errno>;
    /// The same from memory.
    fn attributes_known(&self, node: u64) -> Option<Result<Known, Errno>>;
    /// So many lookups count no more. Does not wait.
    fn forget(&self, node: u64, times: u64);
    /// A handle to read the folder by.
    fn open_folder(&self, node: u64) -> Result<u64, Errno>;
    /// Names from `offset` on, `.` and `..` included, until `each` says false: that name was not taken. With `plus` every taken name but `.` and `..` counts a lookup.
    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), Errno>;
    /// Does not wait.
    fn release_folder(&self, handle: u64);
    /// `direct`: the caller asked for `O_DIRECT`. `ESTALE` has the kernel look the name up again and open what that tells, once: a
    /// node is one content, since its page cache is.
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
