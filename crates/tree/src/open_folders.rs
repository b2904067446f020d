//! Folders that are open: the listing that each handle reads, and the entries that it shows.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ahead::ListAhead;
use crate::attributes::{FileKind, FolderEntry, Known};
use crate::fact::Fact;
use crate::fault::Fault;
use crate::handles::Handles;
use crate::listing::{FolderListing, Read};
use crate::namespace::Namespace;
use crate::page::Page;
use crate::store::Store;

pub(crate) struct OpenFolders<S: Store> {
    names: Arc<Namespace<S>>,
    ahead: Arc<ListAhead<S>>,
    pub(crate) handles: Handles<OpenFolder>,
}

pub(crate) struct OpenFolder {
    pub(crate) ino: u64,
    /// What is read since the folder was read from 0: it keeps the places of its entries.
    listing: Mutex<Option<Read>>,
}

/// `.` and `..`.
pub(crate) const DOTS: u64 = 2;

impl OpenFolder {
    pub(crate) fn new(ino: u64) -> OpenFolder {
        OpenFolder { ino, listing: Mutex::new(None) }
    }

    /// Lets go of the listing: the folder is read from its start, and its entries get new places.
    pub(crate) fn rewind(&self) {
        *self.listing() = None;
    }

    fn listing(&self) -> MutexGuard<'_, Option<Read>> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> OpenFolders<S> {
    pub(crate) fn new(names: Arc<Namespace<S>>, ahead: Arc<ListAhead<S>>) -> OpenFolders<S> {
        OpenFolders { names, ahead, handles: Handles::new() }
    }

    /// The page behind the last one that is there is fetched while that is read.
    pub(crate) fn go_on(&self, listing: &Arc<FolderListing>, page: &Page) {
        if page.end() == listing.entries() && listing.may_go_on() {
            self.ahead.fetch_page(listing.clone());
        }
        self.names.settle(&mut self.names.table());
        if self.names.is_over() {
            listing.drop_before(page.first);
        }
    }

    /// Whether it was taken.
    pub(crate) fn hand_out(
        &self,
        folder: u64,
        page: &Page,
        at: usize,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> bool {
        let name = page.name(at);
        let (kind, fact) = Fact::of_said(page.said(at), page.asked_ms);
        let known = match plus {
            true => self.counted(folder, name, kind, fact),
            false => self.shown(folder, name, kind, fact),
        };
        let entry = FolderEntry { known, name: OsStr::new(name), next: page.first + at as u64 + 1 + DOTS };
        let taken = each(&entry);
        if plus && !taken {
            let now_ms = self.names.now_ms();
            self.names.table().forget(known.node, 1, now_ms);
        }
        taken
    }

    /// An entry's attributes, its lookup counted. What is known newer is told instead of what was listed.
    fn counted(&self, folder: u64, name: &str, kind: FileKind, fact: Fact) -> Known {
        let mut table = self.names.table();
        let is_true = table.is_newest(folder, name, kind, fact.told_ms);
        let ino = table.keep(folder, name, kind, fact.clone());
        table.look_up(ino);
        let mut known =
            self.names.known_of(&mut table, ino).unwrap_or_else(|| self.names.known_from(ino, kind, &fact));
        if !is_true {
            known.lifetime = Duration::ZERO;
        }
        known
    }

    /// An entry's attributes, for who wants to see its name, number and kind.
    fn shown(&self, folder: u64, name: &str, kind: FileKind, fact: Fact) -> Known {
        let table = self.names.table();
        let ino = table.number(folder, kind, name);
        self.names.known_from(ino, kind, &fact)
    }

    /// The folder itself, or the one above it.
    pub(crate) fn dot(&self, ino: u64, above: bool) -> Result<Known, Fault> {
        let mut table = self.names.table();
        let inode = table.get(ino).ok_or_else(|| Fault::of(libc::ESTALE))?;
        let ino = if above { inode.parent } else { ino };
        self.names.known_of(&mut table, ino).ok_or_else(|| Fault::of(libc::ESTALE))
    }

    /// The listing that a handle reads from an entry on: the same since it was read from 0, when it was young enough. Where
    /// that entry was dropped for want of memory, another.
    pub(crate) fn listing_for(&self, folder: &OpenFolder, entry: u64) -> Result<Arc<FolderListing>, Fault> {
        loop {
            let there = |read: &&Read| read.listing().dropped() <= entry;
            if let Some(read) = folder.listing().as_ref().filter(there) {
                return Ok(read.listing().clone());
            }
            let place = self.names.place(&self.names.table(), folder.ino)?;
            // From now on nothing of it is dropped; what was before is seen in the next round.
            let read =
                Read::new(self.names.listing_of(folder.ino, &place, self.names.lifetimes.attributes_ms)?);
            *folder.listing() = Some(read);
        }
    }
}
