//! What all of the tree shares: the store, the inode table, the folders' listings, and the memory that both take.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatout_engine::{Error, ErrorKind};
use flatout_wire::location::Location;

use crate::ROOT;
use crate::attributes::{Attributes, FileKind, Known};
use crate::config::Config;
use crate::fact::{Fact, Finding};
use crate::fault::Fault;
use crate::inodes::{Inode, Lifetimes, Table};
use crate::listing::{FolderListing, Held};
use crate::names;
use crate::place::{Place, Root};
use crate::stats::Counters;
use crate::store::{Account, Store};

pub(crate) struct Namespace<S: Store> {
    pub(crate) store: Arc<S>,
    pub(crate) config: Config,
    pub(crate) root: Root,
    pub(crate) lifetimes: Lifetimes,
    /// When the tree was made, in seconds since 1970.
    began_s: i64,
    table: Mutex<Table>,
    charged: Mutex<Charged<S::Account>>,
    held: Arc<Held>,
    pub(crate) counters: Counters,
}

/// The bytes that the client's memory account was told last.
struct Charged<A> {
    account: A,
    bytes: u64,
}

/// The account is updated when the bytes have changed by this much.
const CHARGED_IN_BYTES: u64 = 64 << 10;

impl<S: Store> Namespace<S> {
    pub(crate) fn new(store: Arc<S>, root: Root, config: Config) -> Namespace<S> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 4);
        let lifetimes = Lifetimes {
            attributes_ms: ms(config.attribute_lifetime),
            // The other half is the kernel's.
            negative_ms: ms(config.negative_lifetime / 2),
        };
        let charged = Charged { account: store.account(), bytes: 0 };
        let mut table = Table::new(u64::MAX);
        table.root_shows_some = matches!(root, Root::Buckets(_));
        Namespace {
            began_s: store.unix_s(),
            store,
            config,
            root: root.into_folder(),
            lifetimes,
            table: Mutex::new(table),
            charged: Mutex::new(charged),
            held: Arc::default(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.store.now_ms()
    }

    /// While the table is locked, no origin is asked and no callback is called.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what is too old, charges what is left, and drops more where the account is over its limit.
    pub(crate) fn settle(&self, table: &mut Table) {
        let now_ms = self.now_ms();
        table.tidy(now_ms, self.lifetimes);
        let held = || table.bytes() + self.held.bytes();
        let mut charged = self.charged();
        if held().abs_diff(charged.bytes) < CHARGED_IN_BYTES {
            return;
        }
        charged.set(held());
        if charged.account.is_over() {
            table.shed(now_ms, || self.held.bytes());
            charged.set(table.bytes() + self.held.bytes());
        }
    }

    /// Whether the client's memory is over its limit.
    pub(crate) fn is_over(&self) -> bool {
        self.charged().account.is_over()
    }

    fn charged(&self) -> MutexGuard<'_, Charged<S::Account>> {
        self.charged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of inodes, notes and listings.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.table().bytes() + self.held.bytes()
    }

    /// Whether the inode still stands for the version that was opened by it.
    pub(crate) fn is_current(&self, ino: u64) -> bool {
        self.table().get(ino).is_some_and(|inode| !inode.is_replaced())
    }

    /// The error of a failed read. Where the version is gone, its inode is retired.
    pub(crate) fn on_read_failed(&self, ino: u64, why: Error) -> Fault {
        // An open file that was removed counts as replaced: the origin is asked for its name again.
        if !matches!(why.kind(), ErrorKind::Changed | ErrorKind::NotFound) {
            return why.into();
        }
        self.counters.replaced.count();
        let now_ms = self.now_ms();
        self.table().retire(ino, now_ms);
        Fault { errno: libc::ESTALE, cause: Some(Arc::new(why)) }
    }

    /// Releases a pin of an inode, and the memory of what nobody needs any more.
    pub(crate) fn unpin(&self, ino: u64) {
        let now_ms = self.now_ms();
        let mut table = self.table();
        table.unpin(ino, now_ms);
        self.settle(&mut table);
    }

    /// `name` as part of a key, where the folder `parent` may have such a name.
    pub(crate) fn name_in<'a>(&self, parent: u64, name: &'a OsStr) -> Result<&'a str, Fault> {
        match self.table().get(parent).map(|inode| inode.kind) {
            None => return Err(Fault::of(libc::ESTALE)),
            Some(FileKind::File) => return Err(Fault::of(libc::ENOTDIR)),
            Some(FileKind::Folder) => {}
        }
        if name.len() > names::NAME_BYTES_MAX {
            return Err(Fault::of(libc::ENAMETOOLONG));
        }
        names::asked(name).ok_or_else(Fault::absent)
    }

    /// The answer to a lookup that found this, with the lookup counted.
    pub(crate) fn looked_up(
        &self,
        table: &mut Table,
        parent: u64,
        name: &str,
        finding: Finding,
    ) -> Result<Known, Fault> {
        let Finding::There(kind, fact) = finding else { return Err(Fault::absent()) };
        if table.get(parent).is_none() {
            return Err(Fault::of(libc::ESTALE));
        }
        let ino = table.keep(parent, name, kind, fact);
        table.look_up(ino);
        self.settle(table);
        self.known_of(table, ino).ok_or_else(Fault::absent)
    }

    /// The attributes of an inode after this was found under its name; `ESTALE` where that is another version than was opened.
    pub(crate) fn refreshed(
        &self,
        table: &mut Table,
        ino: u64,
        (parent, name, kind): (u64, &str, FileKind),
        finding: Finding,
    ) -> Result<Known, Fault> {
        match finding {
            Finding::There(found, fact) if found == kind && table.get(parent).is_some() => {
                let kept = table.keep(parent, name, kind, fact);
                let now_ms = self.now_ms();
                table.rest(kept, now_ms);
                match kept == ino {
                    true => self.known_of(table, ino).ok_or_else(Fault::absent),
                    false => Err(Fault::of(libc::ESTALE)),
                }
            }
            _ => Err(Fault::absent()),
        }
    }

    /// What is known of an inode, for the kernel.
    pub(crate) fn known_of(&self, table: &mut Table, ino: u64) -> Option<Known> {
        let inode = table.get_mut(ino)?;
        inode.is_news = false;
        let fact = inode.known_fact();
        let Inode { number, generation, kind, .. } = *inode;
        let lifetime = match ino {
            ROOT => Duration::from_millis(self.lifetimes.attributes_ms),
            _ => self.lifetime_left(&fact),
        };
        let attributes = self.attributes_from(number, kind, &fact);
        Some(Known { node: ino, generation, attributes, lifetime })
    }

    /// A fact about a name that may have no inode, for the kernel.
    pub(crate) fn known_from(&self, ino: u64, kind: FileKind, fact: &Fact) -> Known {
        let attributes = self.attributes_from(ino, kind, fact);
        Known { node: ino, generation: 0, attributes, lifetime: self.lifetime_left(fact) }
    }

    fn lifetime_left(&self, fact: &Fact) -> Duration {
        let age_ms = self.now_ms().saturating_sub(fact.told_ms);
        Duration::from_millis(self.lifetimes.attributes_ms.saturating_sub(age_ms))
    }

    fn attributes_from(&self, ino: u64, kind: FileKind, fact: &Fact) -> Attributes {
        let Config { uid, gid, file_mode, folder_mode, .. } = self.config;
        let told_s = i64::from(fact.modified_s);
        let modified_s = if told_s == 0 { self.began_s } else { told_s };
        let (mode, changed_s) = match kind {
            FileKind::File => (file_mode, modified_s),
            FileKind::Folder => (folder_mode, self.began_s),
        };
        let (size, source) = (fact.size, fact.source);
        Attributes { ino, size, modified_s, changed_s, kind, mode, uid, gid, links: 1, source }
    }

    /// Where the folder `ino` lies.
    pub(crate) fn place(&self, table: &Table, ino: u64) -> Result<Place, Fault> {
        let names = table.path(ino).ok_or_else(|| Fault::of(libc::ESTALE))?;
        self.root.below(&names)
    }

    /// Where the file `name` of the folder `parent` lies.
    pub(crate) fn object(&self, table: &Table, parent: u64, name: &str) -> Result<Location, Fault> {
        self.place(table, parent)?.object(name)
    }

    /// The listing of a folder that began less than `age_ms` ago; where there is none, a new one that nobody has read.
    pub(crate) fn listing_of(
        &self,
        ino: u64,
        place: &Place,
        age_ms: u64,
    ) -> Result<Arc<FolderListing>, Fault> {
        if let Some(listing) = self.young_listing(&self.table(), ino, age_ms) {
            return Ok(listing);
        }
        let begun = Arc::new(self.begin_listing(place)?);
        let mut table = self.table();
        if let Some(listing) = self.young_listing(&table, ino, age_ms) {
            return Ok(listing);
        }
        table.set_listing(ino, begun.clone());
        Ok(begun)
    }

    fn young_listing(&self, table: &Table, ino: u64, age_ms: u64) -> Option<Arc<FolderListing>> {
        let listing = table.get(ino)?.folder.as_ref()?.listing.as_ref()?;
        self.is_young(listing, age_ms).then(|| listing.clone())
    }

    /// Whether a listing began less than `within_ms` ago, and can be read from its start.
    pub(crate) fn is_young(&self, listing: &FolderListing, within_ms: u64) -> bool {
        let age_ms = self.now_ms().saturating_sub(listing.started_ms);
        age_ms < within_ms && !listing.has_failed() && listing.dropped() == 0
    }

    /// A listing whose first page has not been asked for.
    pub(crate) fn begin_listing(&self, place: &Place) -> Result<FolderListing, Error> {
        let pages = place.pages(&self.store)?;
        Ok(FolderListing::new(pages, place.prefix(), self.now_ms(), self.held.clone()))
    }

    /// Asks for one more page of a listing, or waits for the thread that already does.
    pub(crate) fn next_page(&self, listing: &FolderListing) -> Result<(), Fault> {
        listing.page_with(listing.entries(), || self.now_ms(), &self.counters)?;
        self.settle(&mut self.table());
        Ok(())
    }
}

impl<A: Account> Charged<A> {
    fn set(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.account.set(bytes);
    }
}
