//! The tree: its face.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use flatout_engine::{Client, Dialect, Error};
use flatout_wire::location::Location;

use crate::attributes::{FolderEntry, Known, Opened, STATFS, Statfs};
use crate::fault::Fault;
use crate::stats::TreeStats;
use crate::{Pieces, Reading};

/// What a mount shows.
#[derive(Clone, Debug)]
pub enum Root {
    /// What lies under a bucket, or under a folder in it.
    Under(Location),
    /// Every bucket of the account, each a folder.
    Buckets(Dialect),
}

/// How a tree looks, and for how long it believes what it was told.
#[derive(Clone, Debug)]
pub struct Config {
    pub uid: u32,
    pub gid: u32,
    /// Permission bits of files.
    pub file_mode: u32,
    /// Permission bits of folders.
    pub folder_mode: u32,
    /// How old what is shown may be, the time in the kernel's own caches included.
    pub attribute_lifetime: Duration,
    /// The same of names that are not there.
    pub negative_lifetime: Duration,
    /// Each open asks the origin for the version of now.
    pub close_to_open: bool,
    /// Files of so many bytes and more are opened for direct I/O.
    pub direct_bytes: Option<u64>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            uid: 0,
            gid: 0,
            file_mode: 0o444,
            folder_mode: 0o555,
            attribute_lifetime: Duration::from_secs(60),
            negative_lifetime: Duration::ZERO,
            close_to_open: false,
            direct_bytes: None,
        }
    }
}

/// The tree of a client's objects.
pub type Tree = TreeOf<Client>;

/// A tree over a store.
pub struct TreeOf<S> {
    client: Arc<S>,
    config: Config,
}

impl TreeOf<Client> {
    pub fn new(client: Arc<Client>, _root: Root, config: Config) -> Result<Tree, Error> {
        Ok(TreeOf { client, config })
    }

    pub fn read(
        &self,
        _handle: u64,
        _at: u64,
        _bytes: usize,
        _done: impl FnOnce(Result<Pieces, Fault>) + Send + 'static,
    ) -> Result<Reading, Fault> {
        Err(Fault::of(libc::EBADF))
    }
}

impl<S> TreeOf<S> {
    pub fn lookup(&self, _parent: u64, _name: &OsStr) -> Result<Known, Fault> {
        Err(Fault::absent())
    }
    pub fn lookup_known(&self, _parent: u64, _name: &OsStr) -> Option<Result<Known, Fault>> {
        None
    }
    pub fn attributes(&self, _ino: u64) -> Result<Known, Fault> {
        Err(Fault::absent())
    }
    pub fn attributes_known(&self, _ino: u64) -> Option<Result<Known, Fault>> {
        None
    }
    pub fn forget(&self, _ino: u64, _times: u64) {}
    pub fn open_folder(&self, _ino: u64) -> Result<u64, Fault> {
        Err(Fault::absent())
    }
    pub fn read_folder(
        &self,
        _handle: u64,
        _offset: u64,
        _plus: bool,
        _each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), Fault> {
        Err(Fault::of(libc::EBADF))
    }
    pub fn release_folder(&self, _handle: u64) {}
    pub fn open(&self, _ino: u64, _direct: bool) -> Result<Opened, Fault> {
        Err(Fault::absent())
    }
    pub fn open_known(&self, _ino: u64, _direct: bool) -> Option<Result<Opened, Fault>> {
        None
    }
    pub fn release(&self, _handle: u64) {}
    pub fn negative_lifetime(&self) -> Duration {
        self.config.negative_lifetime
    }
    pub fn statfs(&self) -> Statfs {
        STATFS
    }
    pub fn stats(&self) -> TreeStats {
        TreeStats::default()
    }
    pub fn client(&self) -> &Arc<S> {
        &self.client
    }
}
