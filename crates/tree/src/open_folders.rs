//! Folders that are open: the listing that each handle reads, and the entries that it shows.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ahead::ListAhead;
use crate::attributes::{FileKind, FolderEntry, Node};
use crate::fact::Fact;
use crate::fs_error::FsError;
use crate::handles::Handles;
use crate::listing::{FolderListing, ListingReader, NameInListing};
use crate::namespace::Namespace;
use crate::page::ListingPage;
use crate::store::ObjectStore;

pub(crate) struct OpenFolders<S: ObjectStore> {
    names: Arc<Namespace<S>>,
    ahead: Arc<ListAhead<S>>,
    pub(crate) handles: Handles<OpenFolder>,
}

pub(crate) struct OpenFolder {
    pub(crate) ino: u64,
    /// The listing that is read since the folder was last read from 0; offsets are the numbers of its
    /// entries.
    listing: Mutex<Option<ListingReader>>,
    /// What exists in this mount only, once the listing has been read to its end.
    local: Mutex<Option<LocalNames>>,
}

type LocalNames = Arc<Vec<(Box<str>, FileKind)>>;

/// `.` and `..`.
pub(crate) const DOTS: u64 = 2;

impl OpenFolder {
    pub(crate) fn new(ino: u64) -> OpenFolder {
        OpenFolder { ino, listing: Mutex::new(None), local: Mutex::new(None) }
    }

    /// Lets go of the listing: the folder is read from its start, and its entries get new places.
    pub(crate) fn rewind(&self) {
        *self.listing() = None;
        *self.local.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn local(&self, look: impl FnOnce() -> Vec<(Box<str>, FileKind)>) -> LocalNames {
        let mut local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        local.get_or_insert_with(|| Arc::new(look())).clone()
    }

    fn listing(&self) -> MutexGuard<'_, Option<ListingReader>> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: ObjectStore> OpenFolders<S> {
    pub(crate) fn new(names: Arc<Namespace<S>>, ahead: Arc<ListAhead<S>>) -> OpenFolders<S> {
        OpenFolders { names, ahead, handles: Handles::new() }
    }

    /// When the reader begins the last page, fetches the next one meanwhile.
    pub(crate) fn go_on(&self, listing: &Arc<FolderListing>, page: &ListingPage) {
        if page.end() == listing.entries() && listing.may_go_on() {
            self.ahead.fetch_page(listing.clone());
        }
        self.names.settle(&mut self.names.table());
        if self.names.is_over() {
            listing.drop_before(page.first);
        }
    }

    /// Hands one entry out; `false` if it was not taken.
    pub(crate) fn hand_out(
        &self,
        folder: u64,
        page: &ListingPage,
        at: usize,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> bool {
        let name = page.name(at);
        let (kind, fact) = Fact::of_entry(page.entry(at), page.asked_ms);
        if self.names.table().is_denied(folder, name, page.asked_ms) {
            return true;
        }
        let node = match plus {
            true => self.counted(folder, name, kind, fact),
            false => self.shown(folder, name, kind, fact),
        };
        let entry = FolderEntry { node, name: OsStr::new(name), next: page.first + at as u64 + 1 + DOTS };
        let taken = each(&entry);
        if plus && !taken {
            let now_ms = self.names.now_ms();
            self.names.table().forget(node.id, 1, now_ms);
        }
        taken
    }

    /// Hands out what exists in this mount only, behind the entries of the listing. `entry`: where to go on.
    pub(crate) fn hand_out_local(
        &self,
        folder: &OpenFolder,
        listing: &FolderListing,
        entry: u64,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) {
        let first = listing.entries();
        let local = folder.local(|| {
            let names = self.names.table().local_names(folder.ino);
            let is_listed = |name: &str| matches!(listing.find(name), NameInListing::Present(..));
            names.into_iter().filter(|(name, _)| !is_listed(name)).collect()
        });
        let from = usize::try_from(entry.saturating_sub(first)).unwrap_or(usize::MAX);
        for (at, (name, kind)) in local.iter().enumerate().skip(from) {
            let mut table = self.names.table();
            let Some(ino) = table.find(folder.ino, *kind, name) else { continue };
            if plus {
                table.look_up(ino);
            }
            let node = self.names.node_of(&mut table, ino);
            drop(table);
            let Some(node) = node else { continue };
            let taken =
                each(&FolderEntry { node, name: OsStr::new(&**name), next: first + at as u64 + 1 + DOTS });
            if plus && !taken {
                let now_ms = self.names.now_ms();
                self.names.table().forget(ino, 1, now_ms);
            }
            if !taken {
                return;
            }
        }
    }

    /// An entry with a counted lookup. A newer fact replaces the listed one.
    fn counted(&self, folder: u64, name: &str, kind: FileKind, fact: Fact) -> Node {
        let mut table = self.names.table();
        let is_newest = table.is_newest(folder, name, kind, fact.asked_ms);
        let ino = table.keep(folder, name, kind, fact.clone());
        table.look_up(ino);
        let mut node =
            self.names.node_of(&mut table, ino).unwrap_or_else(|| self.names.node_from(ino, kind, &fact));
        if !is_newest {
            node.lifetime = Duration::ZERO;
        }
        node
    }

    /// An entry of which only name, number and kind are read.
    fn shown(&self, folder: u64, name: &str, kind: FileKind, fact: Fact) -> Node {
        let table = self.names.table();
        let ino = table.number(folder, kind, name);
        self.names.node_from(ino, kind, &fact)
    }

    /// The folder itself, or the folder above it.
    pub(crate) fn dot(&self, ino: u64, above: bool) -> Result<Node, FsError> {
        let mut table = self.names.table();
        let inode = table.get(ino).ok_or_else(|| FsError::of(libc::ESTALE))?;
        let ino = if above { inode.parent } else { ino };
        self.names.node_of(&mut table, ino).ok_or_else(|| FsError::of(libc::ESTALE))
    }

    /// The listing that a handle reads from this entry on: the one since it was read from 0, or another if
    /// that has dropped the entry for lack of memory.
    pub(crate) fn listing_for(&self, folder: &OpenFolder, entry: u64) -> Result<Arc<FolderListing>, FsError> {
        loop {
            let there = |read: &&ListingReader| read.listing().dropped() <= entry;
            if let Some(read) = folder.listing().as_ref().filter(there) {
                return Ok(read.listing().clone());
            }
            let location = self.names.location_of(&self.names.table(), folder.ino)?;
            // From now on it drops nothing; the next round checks whether it has dropped the entry before.
            let read = ListingReader::new(self.names.current_listing_of(
                folder.ino,
                &location,
                self.names.lifetimes.attributes_ms,
            )?);
            *folder.listing() = Some(read);
        }
    }
}
