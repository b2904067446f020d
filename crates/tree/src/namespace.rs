//! What all of the tree shares: the store, the inode table, the folders' listings, and the memory that both
//! take.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatout_engine::{Error, ErrorKind};
use flatout_wire::location::Location;

use crate::ROOT;
use crate::attributes::{Attributes, FileKind, Node};
use crate::config::Config;
use crate::fact::{Fact, NameStatus};
use crate::folder_location::{FolderLocation, TreeRoot};
use crate::fs_error::FsError;
use crate::inodes::{Inode, InodeTable, Lifetimes};
use crate::kept::Kept;
use crate::listing::{FolderListing, ListingBytes};
use crate::names;
use crate::posix::{Posix, Time};
use crate::stats::TreeCounters;
use crate::store::{MemoryAccount, ObjectStore};

pub(crate) struct Namespace<S: ObjectStore> {
    pub(crate) store: Arc<S>,
    pub(crate) config: Config,
    pub(crate) root: TreeRoot,
    pub(crate) lifetimes: Lifetimes,
    /// When the tree was made, in seconds since 1970.
    began_s: i64,
    /// What the kernel knows of the tree, for another process.
    pub(crate) kept: Kept,
    table: Mutex<InodeTable>,
    charged: Mutex<ChargedBytes<S::MemoryAccount>>,
    listing_bytes: Arc<ListingBytes>,
    pub(crate) counters: TreeCounters,
}

/// The account, and the bytes that it was last set to.
struct ChargedBytes<A> {
    account: A,
    bytes: u64,
}

/// The account is updated when the bytes have changed by this much.
const CHARGED_IN_BYTES: u64 = 64 << 10;

impl<S: ObjectStore> Namespace<S> {
    pub(crate) fn new(store: Arc<S>, root: TreeRoot, config: Config) -> Namespace<S> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 4);
        let lifetimes = Lifetimes {
            attributes_ms: ms(config.attribute_lifetime),
            // The other half is the kernel's.
            negative_ms: ms(config.negative_lifetime / 2),
        };
        let charged = ChargedBytes { account: store.account(), bytes: 0 };
        let mut table = InodeTable::new(u64::MAX);
        table.root_shows_some = matches!(root, TreeRoot::Buckets(_));
        let kept = Kept::default();
        table.kept = kept.clone();
        Namespace {
            kept,
            began_s: store.unix_s(),
            store,
            config,
            root: root.into_folder(),
            lifetimes,
            table: Mutex::new(table),
            charged: Mutex::new(charged),
            listing_bytes: Arc::default(),
            counters: TreeCounters::default(),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.store.now_ms()
    }

    /// While the table is locked, no origin is asked and no callback is called.
    pub(crate) fn table(&self) -> MutexGuard<'_, InodeTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what is too old, charges what is left, and drops more where the account is over its limit.
    pub(crate) fn settle(&self, table: &mut InodeTable) {
        let now_ms = self.now_ms();
        table.tidy(now_ms, self.lifetimes);
        let held = || table.bytes() + self.listing_bytes.bytes();
        let mut charged = self.charged();
        if held().abs_diff(charged.bytes) < CHARGED_IN_BYTES {
            return;
        }
        charged.set(held());
        if charged.account.is_over() {
            table.shed(now_ms, || self.listing_bytes.bytes());
            charged.set(table.bytes() + self.listing_bytes.bytes());
        }
    }

    /// Whether the client's memory is over its limit.
    pub(crate) fn is_over(&self) -> bool {
        self.charged().account.is_over()
    }

    fn charged(&self) -> MutexGuard<'_, ChargedBytes<S::MemoryAccount>> {
        self.charged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of inodes, notes and listings.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.table().bytes() + self.listing_bytes.bytes()
    }

    /// The error of a failed read. Where the version is gone, its inode is retired.
    pub(crate) fn on_read_failed(&self, ino: u64, why: Error) -> FsError {
        // An open file that was removed counts as replaced: the origin is asked for its name again.
        if !matches!(why.kind(), ErrorKind::Changed | ErrorKind::NotFound) {
            return why.into();
        }
        self.counters.replaced.count();
        let now_ms = self.now_ms();
        self.table().retire(ino, now_ms);
        FsError::because(libc::ESTALE, why)
    }

    /// Releases a pin of an inode, and the memory of what is not needed any more.
    pub(crate) fn unpin(&self, ino: u64) {
        let now_ms = self.now_ms();
        let mut table = self.table();
        table.unpin(ino, now_ms);
        self.settle(&mut table);
    }

    /// `name` as part of a key, where the folder `parent` may have such a name.
    pub(crate) fn name_in<'a>(&self, parent: u64, name: &'a OsStr) -> Result<&'a str, FsError> {
        match self.table().get(parent).map(|inode| inode.kind) {
            None => return Err(FsError::of(libc::ESTALE)),
            Some(FileKind::File) => return Err(FsError::of(libc::ENOTDIR)),
            Some(FileKind::Folder) => {}
        }
        if name.len() > names::NAME_BYTES_MAX {
            return Err(FsError::of(libc::ENAMETOOLONG));
        }
        names::asked(name).ok_or_else(FsError::absent)
    }

    /// The answer to a lookup with this result; counts the lookup.
    pub(crate) fn looked_up(
        &self,
        table: &mut InodeTable,
        parent: u64,
        name: &str,
        status: NameStatus,
    ) -> Result<Node, FsError> {
        let NameStatus::Present(kind, fact) = status else { return Err(FsError::absent()) };
        if table.get(parent).is_none() {
            return Err(FsError::of(libc::ESTALE));
        }
        let ino = table.keep(parent, name, kind, fact);
        table.look_up(ino);
        self.settle(table);
        self.node_of(table, ino).ok_or_else(FsError::absent)
    }

    /// The answer to a request for attributes, from the status of the inode's name; `ESTALE` if another
    /// version was opened by it.
    pub(crate) fn refreshed(
        &self,
        table: &mut InodeTable,
        ino: u64,
        (parent, name, kind): (u64, &str, FileKind),
        status: NameStatus,
    ) -> Result<Node, FsError> {
        match status {
            NameStatus::Present(found, fact) if found == kind && table.get(parent).is_some() => {
                let kept = table.keep(parent, name, kind, fact);
                let now_ms = self.now_ms();
                table.rest(kept, now_ms);
                match kept == ino {
                    true => self.node_of(table, ino).ok_or_else(FsError::absent),
                    false => Err(FsError::of(libc::ESTALE)),
                }
            }
            _ => Err(FsError::absent()),
        }
    }

    /// An inode for the kernel, with the attributes that are known.
    pub(crate) fn node_of(&self, table: &mut InodeTable, ino: u64) -> Option<Node> {
        let fact = table.known_fact(table.get(ino)?);
        let inode = table.get_mut(ino)?;
        inode.has_changed = false;
        let Inode { number, generation, kind, .. } = *inode;
        // One that is written on after its name has gone.
        let links = u32::from(!inode.is_replaced());
        let lifetime = match ino {
            ROOT => Duration::from_millis(self.lifetimes.attributes_ms),
            _ => self.lifetime_left(&fact),
        };
        let posix = self.shown_posix(table, ino);
        let attributes = self.attributes_from(number, kind, &fact, posix.as_deref());
        let mut attributes = Attributes { links, ..attributes };
        if let Some(touched_s) = table.touched_s(ino) {
            attributes.show_touched(i64::from(touched_s), posix.and_then(|posix| posix.changed));
        }
        Some(Node { id: ino, generation, attributes, lifetime })
    }

    /// A name for the kernel that may have no inode.
    pub(crate) fn node_from(&self, ino: u64, kind: FileKind, fact: &Fact) -> Node {
        let attributes = self.attributes_from(ino, kind, fact, None);
        Node { id: ino, generation: 0, attributes, lifetime: self.lifetime_left(fact) }
    }

    fn lifetime_left(&self, fact: &Fact) -> Duration {
        let age_ms = self.now_ms().saturating_sub(fact.asked_ms);
        Duration::from_millis(self.lifetimes.attributes_ms.saturating_sub(age_ms))
    }

    fn attributes_from(&self, ino: u64, kind: FileKind, fact: &Fact, posix: Option<&Posix>) -> Attributes {
        let Config { uid, gid, file_mode, folder_mode, .. } = self.config;
        let modified_s = if fact.modified_s == 0 { self.began_s } else { i64::from(fact.modified_s) };
        let (mode, changed_s) = match kind {
            FileKind::File => (file_mode, modified_s),
            FileKind::Folder => (folder_mode, self.began_s),
        };
        let nothing = Posix::default();
        let posix = posix.unwrap_or(&nothing);
        let size = posix.target().filter(|_| fact.size == 0).map_or(fact.size, |target| target.len() as u64);
        let source = fact.source;
        let modified = posix.modified.unwrap_or(Time { s: modified_s, ns: 0 });
        Attributes {
            ino,
            size,
            modified_s: modified.s,
            modified_ns: modified.ns,
            accessed: posix.accessed,
            changed_s: posix.changed.map_or(changed_s, |changed| changed.s),
            kind,
            is_link: posix.is_link && kind == FileKind::File,
            mode: posix.mode.unwrap_or(mode),
            uid: posix.uid.unwrap_or(uid),
            gid: posix.gid.unwrap_or(gid),
            links: 1,
            source,
        }
    }

    /// Where the folder `ino` lies.
    pub(crate) fn location_of(&self, table: &InodeTable, ino: u64) -> Result<FolderLocation, FsError> {
        let names = table.path(ino).ok_or_else(|| FsError::of(libc::ESTALE))?;
        self.root.below(&names)
    }

    /// Where the file `name` of the folder `parent` lies.
    pub(crate) fn object(&self, table: &InodeTable, parent: u64, name: &str) -> Result<Location, FsError> {
        self.location_of(table, parent)?.object(name)
    }

    /// The listing of a folder that began less than `age_ms` ago; if there is none, a new one.
    pub(crate) fn listing_of(
        &self,
        ino: u64,
        location: &FolderLocation,
        age_ms: u64,
    ) -> Result<Arc<FolderListing>, FsError> {
        if let Some(listing) = self.young_listing(&self.table(), ino, age_ms) {
            return Ok(listing);
        }
        let begun = Arc::new(self.begin_listing(location)?);
        let mut table = self.table();
        if let Some(listing) = self.young_listing(&table, ino, age_ms) {
            return Ok(listing);
        }
        table.set_listing(ino, begun.clone());
        Ok(begun)
    }

    /// As [`Namespace::listing_of`], of which every name that this mount has changed is part.
    pub(crate) fn current_listing_of(
        &self,
        ino: u64,
        location: &FolderLocation,
        age_ms: u64,
    ) -> Result<Arc<FolderListing>, FsError> {
        {
            let mut table = self.table();
            let changed_ms = table.changed_ms(ino);
            if self.young_listing(&table, ino, age_ms).is_some_and(|listing| listing.started_ms <= changed_ms)
            {
                table.drop_listing(ino);
            }
        }
        self.listing_of(ino, location, age_ms)
    }

    fn young_listing(&self, table: &InodeTable, ino: u64, age_ms: u64) -> Option<Arc<FolderListing>> {
        let listing = table.get(ino)?.folder.as_ref()?.listing.as_ref()?;
        self.is_young(listing, age_ms).then(|| listing.clone())
    }

    /// Whether a listing began less than `within_ms` ago, and can be read from its start.
    pub(crate) fn is_young(&self, listing: &FolderListing, within_ms: u64) -> bool {
        let age_ms = self.now_ms().saturating_sub(listing.started_ms);
        age_ms < within_ms && !listing.has_failed() && listing.dropped() == 0
    }

    /// A listing whose first page has not been asked for.
    pub(crate) fn begin_listing(&self, location: &FolderLocation) -> Result<FolderListing, Error> {
        let pages = location.pages(&self.store)?;
        Ok(FolderListing::new(pages, location.prefix(), self.now_ms(), self.listing_bytes.clone()))
    }

    /// The listing of a folder that had no entries at that time.
    pub(crate) fn empty_listing(&self, asked_ms: u64) -> FolderListing {
        FolderListing::empty(asked_ms, self.listing_bytes.clone())
    }

    /// Asks for one more page of a listing, or waits for the thread that already does.
    pub(crate) fn next_page(&self, listing: &FolderListing) -> Result<(), FsError> {
        listing.page_with(listing.entries(), || self.now_ms(), &self.counters)?;
        self.settle(&mut self.table());
        Ok(())
    }
}

impl<A: MemoryAccount> ChargedBytes<A> {
    fn set(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.account.set(bytes);
    }
}
