//! The tree: what it is made from, and what its parts share.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatout_engine::{Client, Dialect, Error};
use flatout_wire::location::Location;

use crate::ROOT;
use crate::ahead::Ahead;
use crate::attributes::{Attributes, FileKind, FolderEntry, Known, Opened, STATFS, Statfs};
use crate::fact::Finding;
use crate::fault::Fault;
use crate::files::OpenFile;
use crate::flights::Flights;
use crate::folders::OpenFolder;
use crate::handles::Handles;
use crate::inodes::{Inode, Lifetimes, Table};
use crate::listing::Held;
use crate::stats::{Counters, TreeStats};
use crate::store::{Account, Content, Store};

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
    /// For how long a name that was not there may be taken to be missing still, the time in the kernel's own caches included.
    pub negative_lifetime: Duration,
    /// Each open asks the origin which version there is now.
    pub close_to_open: bool,
    /// Files of so many bytes and more are opened for direct I/O.
    pub direct_bytes: Option<u64>,
}

impl Default for Config {
    /// Owned by root, readable by all; attributes live for a minute, absence not at all.
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

/// The objects of a client's origin as a tree of files. Calls block while the origin is asked; those named `_known` never do.
/// Inodes and handles are as FUSE has them: a lookup that went well is to be forgotten, an open to be released.
pub type Tree = TreeOf<Client>;

/// A tree over a store.
pub struct TreeOf<S: Store>(pub(crate) Arc<Core<S>>);

/// What is read, and the read that waits for it.
type Pieces<S> = <<S as Store>::Content as Content>::Pieces;
type Reading<S> = <<S as Store>::Content as Content>::Reading;

pub(crate) struct Core<S: Store> {
    pub(crate) store: Arc<S>,
    pub(crate) config: Config,
    pub(crate) root: Root,
    pub(crate) lifetimes: Lifetimes,
    /// In seconds since 1970.
    began_s: i64,
    table: Mutex<Table>,
    charged: Mutex<Charged<S::Account>>,
    pub(crate) held: Arc<Held>,
    pub(crate) lookups: Flights<(u64, Box<str>), Result<Finding, Fault>>,
    pub(crate) heads: Flights<u64, Result<(), Fault>>,
    pub(crate) files: Handles<OpenFile<S::Content>>,
    pub(crate) folders: Handles<OpenFolder>,
    pub(crate) ahead: Arc<Ahead>,
    pub(crate) counters: Counters,
}

/// Bytes on the client's account, as it was told last.
struct Charged<A> {
    account: A,
    bytes: u64,
}

/// The account is told when so much has come or gone.
const CHARGED_IN_BYTES: u64 = 64 << 10;

impl<S: Store> TreeOf<S> {
    /// Asks for the first page of the root.
    ///
    /// # Errors
    /// Why the root cannot be listed, as the engine says it.
    pub fn new(store: Arc<S>, root: Root, config: Config) -> Result<TreeOf<S>, Error> {
        let tree = TreeOf::with_hash_bits(store, root, config, u64::MAX);
        match tree.0.list_root() {
            Ok(()) => Ok(tree),
            Err(why) => Err(why),
        }
    }

    /// A tree that has asked nobody, and uses some bits of its hashes only: for tests of what collides.
    pub(crate) fn with_hash_bits(store: Arc<S>, root: Root, config: Config, mask: u64) -> TreeOf<S> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 4);
        let lifetimes = Lifetimes {
            attributes_ms: ms(config.attribute_lifetime),
            // The other half is the kernel's.
            negative_ms: ms(config.negative_lifetime / 2),
        };
        let charged = Charged { account: store.account(), bytes: 0 };
        let mut table = Table::new(mask);
        table.root_shows_some = matches!(root, Root::Buckets(_));
        TreeOf(Arc::new(Core {
            began_s: store.unix_s(),
            store,
            config,
            root: root.into_folder(),
            lifetimes,
            table: Mutex::new(table),
            charged: Mutex::new(charged),
            held: Arc::default(),
            lookups: Flights::new(),
            heads: Flights::new(),
            files: Handles::new(),
            folders: Handles::new(),
            ahead: Arc::default(),
            counters: Counters::default(),
        }))
    }

    /// Whether the root is a prefix under which nothing lies, as its first listing told; what cannot be shown lies there too.
    pub fn is_root_bare(&self) -> bool {
        let is_prefix = matches!(&self.0.root, Root::Under(location) if !location.key().is_empty());
        let listing = self.0.table().folder_mut(crate::ROOT).and_then(|folder| folder.listing.clone());
        let is_bare = listing.is_some_and(|listing| !listing.is_proof() && !listing.may_go_on());
        is_prefix && is_bare && self.stats().hidden.total() == 0
    }

    /// What stands under `name` in a folder; counts one lookup of its inode.
    ///
    /// # Errors
    /// `ENOENT`, which may be believed for [`TreeOf::negative_lifetime`], `ENOTDIR`, `ENAMETOOLONG`, `ESTALE` for an inode that
    /// nobody has looked up, and whatever the origin refuses.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<Known, Fault> {
        self.0.lookup(parent, name)
    }

    /// The same from what is known; `None` where the origin would have to be asked.
    pub fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Known, Fault>> {
        self.0.lookup_known(parent, name)
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// `ENOENT` when nothing of its name and kind is there any more, `ESTALE` when another version is and this one was opened; as
    /// [`TreeOf::lookup`].
    pub fn attributes(&self, ino: u64) -> Result<Known, Fault> {
        self.0.attributes(ino)
    }

    /// The same from what is known; `None` where the origin would have to be asked.
    pub fn attributes_known(&self, ino: u64) -> Option<Result<Known, Fault>> {
        self.0.attributes_known(ino)
    }

    /// Takes back lookups of a node.
    pub fn forget(&self, ino: u64, times: u64) {
        let now_ms = self.0.now_ms();
        let mut table = self.0.table();
        table.forget(ino, times, now_ms);
        self.0.settle(&mut table);
    }

    /// A handle to read a folder by. Nothing is asked.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub fn open_folder(&self, ino: u64) -> Result<u64, Fault> {
        self.0.open_folder(ino)
    }

    /// Hands the entries from `offset` on to `each`, `.` and `..` first, until it says `false`: that one was not taken. With
    /// `plus` every entry that was taken, but `.` and `..`, counts a lookup. Pages are fetched as they are read; an offset stays
    /// the place behind its entry until the folder is read from 0 again.
    ///
    /// # Errors
    /// `EBADF`; why a page could not be had. Entries that were taken before stay taken.
    pub fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), Fault> {
        self.0.read_folder(handle, offset, plus, each)
    }

    pub fn release_folder(&self, handle: u64) {
        self.0.release_folder(handle);
    }

    /// Opens the version of a file that is known, or with close-to-open the one of now. `direct`: the caller said `O_DIRECT`.
    ///
    /// # Errors
    /// `EISDIR`, `ENOENT`, and whatever the origin refuses; `ESTALE` where the version of now is another than was opened by this
    /// inode before: a lookup tells its inode. The kernel looks up by itself then, once.
    pub fn open(&self, ino: u64, direct: bool) -> Result<Opened, Fault> {
        self.0.open(ino, direct)
    }

    /// The same from what is known; `None` where the origin would have to be asked.
    pub fn open_known(&self, ino: u64, direct: bool) -> Option<Result<Opened, Fault>> {
        self.0.open_known(ino, direct)
    }

    /// Reads from the version that was opened. `done` is called once, on this thread within this call where the bytes are there,
    /// or else later on another, unless the read is cancelled. It gets `ESTALE` once the mount knows of another version.
    ///
    /// # Errors
    /// `EBADF`; `ESTALE` as above. `done` is not called then.
    pub fn read(
        &self,
        handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Pieces<S>, Fault>) + Send + 'static,
    ) -> Result<Reading<S>, Fault> {
        self.0.read(handle, at, bytes, done)
    }

    pub fn release(&self, handle: u64) {
        self.0.release(handle);
    }

    /// For how long the caller may believe an `ENOENT`. The tree believes it for as long before it says so: together that is
    /// [`Config::negative_lifetime`].
    pub fn negative_lifetime(&self) -> Duration {
        self.0.config.negative_lifetime / 2
    }

    pub fn statfs(&self) -> Statfs {
        STATFS
    }

    pub fn stats(&self) -> TreeStats {
        self.0.stats()
    }

    /// Whether folders are being listed ahead. What they tell may come between two calls.
    #[doc(hidden)]
    pub fn is_listing_ahead(&self) -> bool {
        self.0.ahead.is_busy()
    }

    pub fn client(&self) -> &Arc<S> {
        &self.0.store
    }
}

impl<S: Store> Drop for TreeOf<S> {
    /// Threads that wait for an origin end with their request.
    fn drop(&mut self) {
        self.0.ahead.close();
    }
}

impl<S: Store> Core<S> {
    pub(crate) fn now_ms(&self) -> u64 {
        self.store.now_ms()
    }

    /// No origin is asked, and nobody's callback called, while this is held.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what is too old, tells the account what is held, and drops what may go where that is too much.
    pub(crate) fn settle(&self, table: &mut Table) {
        let now_ms = self.now_ms();
        table.tidy(now_ms, self.lifetimes);
        let held = || table.bytes() + self.held.bytes();
        let mut charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        if held().abs_diff(charged.bytes) < CHARGED_IN_BYTES {
            return;
        }
        charged.set(held());
        if charged.account.is_over() {
            table.shed(now_ms, || self.held.bytes());
            charged.set(table.bytes() + self.held.bytes());
        }
    }

    /// Whether more is held than may be, by whomever.
    pub(crate) fn is_over(&self) -> bool {
        self.charged.lock().unwrap_or_else(PoisonError::into_inner).account.is_over()
    }

    /// What is known of an inode, as it is told.
    pub(crate) fn known_of(&self, table: &mut Table, ino: u64) -> Option<Known> {
        let inode = table.get_mut(ino)?;
        inode.is_news = false;
        let fact = inode.known_fact();
        let age_ms = self.now_ms().saturating_sub(fact.told_ms);
        let lifetime_ms = match ino {
            ROOT => self.lifetimes.attributes_ms,
            _ => self.lifetimes.attributes_ms.saturating_sub(age_ms),
        };
        let Inode { number, generation, kind, .. } = *inode;
        let attributes = self.attributes_from(number, kind, &fact);
        Some(Known { node: ino, generation, attributes, lifetime: Duration::from_millis(lifetime_ms) })
    }

    pub(crate) fn attributes_from(&self, ino: u64, kind: FileKind, fact: &crate::fact::Fact) -> Attributes {
        let Config { uid, gid, file_mode, folder_mode, .. } = self.config;
        let told_s = i64::from(fact.modified_s);
        let modified_s = if told_s == 0 { self.began_s } else { told_s };
        let (mode, changed_s) = match kind {
            FileKind::File => (file_mode, modified_s),
            FileKind::Folder => (folder_mode, self.began_s),
        };
        Attributes {
            ino,
            size: fact.size,
            modified_s,
            changed_s,
            kind,
            mode,
            uid,
            gid,
            links: 1,
            source: fact.source,
        }
    }

    fn stats(&self) -> TreeStats {
        let (inodes, looked_up, listings) = self.table().counts();
        let bytes = self.table().bytes();
        let counters = &self.counters;
        TreeStats {
            pages: counters.pages.get(),
            lookups: counters.lookups.get(),
            heads: counters.heads.get(),
            failures: counters.failures.get(),
            answered: counters.answered.get(),
            joined: counters.joined.get(),
            listed_ahead: counters.listed_ahead.get(),
            replaced: counters.replaced.get(),
            hidden: counters.hidden(),
            inodes_now: inodes,
            looked_up_now: looked_up,
            listings_now: listings,
            open_files_now: self.files.count(),
            open_folders_now: self.folders.count(),
            held_bytes_now: bytes + self.held.bytes(),
        }
    }
}

impl<A: Account> Charged<A> {
    fn set(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.account.set(bytes);
    }
}
