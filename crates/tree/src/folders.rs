//! Folders that are read: handles, and the listings behind them.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_engine::Error;

use crate::ROOT;
use crate::ahead::Job;
use crate::attributes::{FileKind, FolderEntry, Known};
use crate::fact::Fact;
use crate::fault::Fault;
use crate::listing::{FolderListing, Read};
use crate::page::Page;
use crate::place::Place;
use crate::store::Store;
use crate::tree::Core;

pub(crate) struct OpenFolder {
    ino: u64,
    /// What is read since the folder was read from 0: it keeps the places of its entries.
    listing: Mutex<Option<Read>>,
}

/// `.` and `..`.
const DOTS: u64 = 2;

impl OpenFolder {
    fn listing(&self) -> MutexGuard<'_, Option<Read>> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> Core<S> {
    /// The first page of the root.
    pub(crate) fn list_root(self: &Arc<Self>) -> Result<(), Error> {
        let place = match &self.root {
            crate::Root::Under(location) => Place::Folder(location.clone()),
            crate::Root::Buckets(dialect) => Place::Buckets(*dialect),
        };
        let listing = Arc::new(self.begin(&place)?);
        if let Err(fault) = self.next_page(&listing) {
            drop(fault);
            return Err(listing.take_failure().unwrap_or_else(crate::lookup::unlisted));
        }
        self.table().set_listing(ROOT, listing);
        Ok(())
    }

    pub(crate) fn open_folder(self: &Arc<Self>, ino: u64) -> Result<u64, Fault> {
        match self.table().get(ino).map(|inode| inode.kind) {
            None => return Err(Fault::of(libc::ESTALE)),
            Some(FileKind::File) => return Err(Fault::of(libc::ENOTDIR)),
            Some(FileKind::Folder) => {}
        }
        self.table().pin(ino);
        self.on_folder_opened(ino);
        Ok(self.folders.add(OpenFolder { ino, listing: Mutex::new(None) }))
    }

    pub(crate) fn release_folder(&self, handle: u64) {
        if let Some(folder) = self.folders.remove(handle) {
            let now_ms = self.now_ms();
            let ino = folder.ino;
            drop(folder);
            let mut table = self.table();
            table.unpin(ino, now_ms);
            self.settle(&mut table);
        }
    }

    pub(crate) fn read_folder(
        self: &Arc<Self>,
        handle: u64,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), Fault> {
        let folder = self.folders.get(handle)?;
        if offset == 0 {
            // Places are given anew.
            *folder.listing() = None;
        }
        for (number, name) in [(0, "."), (1, "..")] {
            if offset <= number {
                let known = self.dot(folder.ino, number == 1)?;
                if !each(&FolderEntry { known, name: OsStr::new(name), next: number + 1 }) {
                    return Ok(());
                }
            }
        }
        let mut entry = offset.saturating_sub(DOTS);
        let listing = self.listing_for(&folder, entry)?;
        while let Some(page) = listing.page_with(entry, || self.now_ms(), &self.counters)? {
            if entry == page.first {
                self.go_on(&listing, &page);
            }
            for at in usize::try_from(entry - page.first).unwrap_or(usize::MAX)..page.len() {
                if !self.hand_out(folder.ino, &page, at, plus, each) {
                    return Ok(());
                }
            }
            entry = page.end();
        }
        Ok(())
    }

    /// The page behind the last one that is there is fetched while that is read.
    fn go_on(self: &Arc<Self>, listing: &Arc<FolderListing>, page: &Page) {
        if page.end() == listing.entries() && listing.may_go_on() {
            self.ahead(Job::Page(listing.clone()));
        }
        self.settle(&mut self.table());
        if self.is_over() {
            listing.drop_before(page.first);
        }
    }

    /// Whether it was taken.
    fn hand_out(
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
            let now_ms = self.now_ms();
            self.table().forget(known.node, 1, now_ms);
        }
        taken
    }

    /// An entry's attributes, its lookup counted. What is known newer is told instead of what was listed.
    fn counted(&self, folder: u64, name: &str, kind: FileKind, fact: Fact) -> Known {
        let mut table = self.table();
        let is_true = table.is_newest(folder, name, kind, fact.told_ms);
        let ino = table.keep(folder, name, kind, fact.clone());
        table.look_up(ino);
        let mut known = self.known_of(&mut table, ino).unwrap_or_else(|| self.known_from(ino, kind, &fact));
        if !is_true {
            known.lifetime = std::time::Duration::ZERO;
        }
        known
    }

    /// An entry's attributes, for who wants to see its name, number and kind.
    fn shown(&self, folder: u64, name: &str, kind: FileKind, fact: Fact) -> Known {
        let table = self.table();
        let ino = table.number(folder, kind, name);
        self.known_from(ino, kind, &fact)
    }

    fn known_from(&self, ino: u64, kind: FileKind, fact: &Fact) -> Known {
        let age_ms = self.now_ms().saturating_sub(fact.told_ms);
        let lifetime_ms = self.lifetimes.attributes_ms.saturating_sub(age_ms);
        let attributes = self.attributes_from(ino, kind, fact);
        let lifetime = std::time::Duration::from_millis(lifetime_ms);
        Known { node: ino, generation: 0, attributes, lifetime }
    }

    /// The folder itself, or the one above it.
    fn dot(&self, ino: u64, above: bool) -> Result<Known, Fault> {
        let mut table = self.table();
        let inode = table.get(ino).ok_or_else(|| Fault::of(libc::ESTALE))?;
        let ino = if above { inode.parent } else { ino };
        self.known_of(&mut table, ino).ok_or_else(|| Fault::of(libc::ESTALE))
    }

    /// The listing that a handle reads from an entry on: the same since it was read from 0, when it was young enough. Where
    /// that entry was dropped for want of memory, another.
    fn listing_for(&self, folder: &OpenFolder, entry: u64) -> Result<Arc<FolderListing>, Fault> {
        loop {
            let there = |read: &&Read| read.listing().dropped() <= entry;
            if let Some(read) = folder.listing().as_ref().filter(there) {
                return Ok(read.listing().clone());
            }
            let place = self.place(&self.table(), folder.ino)?;
            // From now on nothing of it is dropped; what was before is seen in the next round.
            let read = Read::new(self.listing_of(folder.ino, &place, self.lifetimes.attributes_ms)?);
            *folder.listing() = Some(read);
        }
    }

    /// The listing of a folder that began less than `age_ms` ago, or else one that begins.
    pub(crate) fn listing_of(
        &self,
        ino: u64,
        place: &Place,
        age_ms: u64,
    ) -> Result<Arc<FolderListing>, Fault> {
        let young = |listing: &&Arc<FolderListing>| self.is_young(listing, age_ms);
        if let Some(inode) = self.table().get(ino)
            && let Some(listing) =
                inode.folder.as_ref().and_then(|folder| folder.listing.as_ref()).filter(young)
        {
            return Ok(listing.clone());
        }
        let begun = Arc::new(self.begin(place)?);
        let mut table = self.table();
        if let Some(inode) = table.get(ino)
            && let Some(listing) =
                inode.folder.as_ref().and_then(|folder| folder.listing.as_ref()).filter(young)
        {
            return Ok(listing.clone());
        }
        table.set_listing(ino, begun.clone());
        Ok(begun)
    }

    /// Whether a listing began less than `within_ms` ago, and can be read from its start.
    pub(crate) fn is_young(&self, listing: &FolderListing, within_ms: u64) -> bool {
        let age_ms = self.now_ms().saturating_sub(listing.started_ms);
        age_ms < within_ms && !listing.has_failed() && listing.dropped() == 0
    }

    fn begin(&self, place: &Place) -> Result<FolderListing, Error> {
        let pages = self.pages(place)?;
        Ok(FolderListing::new(pages, place.prefix(), self.now_ms(), self.held.clone()))
    }
}
