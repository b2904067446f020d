//! Folders that are open: the listing that each handle reads, and the entries that it shows.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ahead::ListAhead;
use crate::attributes::{FileKind, FolderEntry, NOT_LOOKED_UP, Node};
use crate::fact::Fact;
use crate::fs_error::FsError;
use crate::handles::Handles;
use crate::kept::FolderPlace;
use crate::listing::{FolderListing, ListingReader, NameInListing};
use crate::names;
use crate::namespace::Namespace;
use crate::page::ListingPage;
use crate::store::ObjectStore;

/// Of so many entries the metadata is asked for at a time.
const DESCRIBED_AHEAD: usize = 256;

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
    places: Mutex<Places>,
}

/// How far it has been read, for another process.
#[derive(Default)]
struct Places {
    /// The last two: the kernel may not have heard of the last.
    read: [Option<FolderPlace>; 2],
    /// Where another process was: offsets are the numbers of that one's entries until one of them is asked
    /// for.
    left: Vec<FolderPlace>,
}

type LocalNames = Arc<Vec<(Box<str>, FileKind)>>;

/// `.` and `..`.
const DOTS: u64 = 2;

impl OpenFolder {
    pub(crate) fn new(ino: u64) -> OpenFolder {
        OpenFolder { ino, listing: Mutex::new(None), local: Mutex::new(None), places: Mutex::default() }
    }

    /// One that another process has read as far as one of these places.
    pub(crate) fn taken_over(ino: u64, left: Vec<FolderPlace>) -> OpenFolder {
        let folder = OpenFolder::new(ino);
        folder.places().left = left;
        folder
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what lies before this offset exists in the mount alone.
    pub(crate) fn is_behind_listing(&self, offset: u64) -> bool {
        let listing = self.listing();
        listing.as_ref().is_some_and(|read| offset.saturating_sub(DOTS) > read.listing().entries())
    }

    /// It has been read up to this place; the one before comes first.
    pub(crate) fn read_to(&self, place: FolderPlace) -> [Option<FolderPlace>; 2] {
        let mut places = self.places();
        places.read = [places.read[1].take(), Some(place)];
        places.read.clone()
    }

    /// The place of another process that had this offset.
    fn left_at(&self, offset: u64) -> Option<FolderPlace> {
        let mut places = self.places();
        let left = std::mem::take(&mut places.left).into_iter().find(|place| place.offset == offset)?;
        // Where this process dies, too, the kernel may ask for it once more.
        places.read[1] = Some(left.clone());
        Some(left)
    }

    /// Lets go of the listing: the folder is read from its start, and its entries get new places.
    pub(crate) fn rewind(&self) {
        *self.listing() = None;
        *self.local.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.places() = Places::default();
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

    /// Asks for the metadata of the entries from `entry` on, where the next one's is not known. What the
    /// origin refuses of one of them is told whoever asks for that one.
    ///
    /// # Errors
    /// The origin is away.
    pub(crate) fn describe(&self, folder: u64, page: &ListingPage, entry: u64) -> Result<(), FsError> {
        if !self.names.keeps_attributes() {
            return Ok(());
        }
        let from = usize::try_from(entry - page.first).unwrap_or(usize::MAX);
        let nodes: Vec<u64> = {
            let (mut table, now_ms) = (self.names.table(), self.names.now_ms());
            let entries = from..page.len().min(from.saturating_add(DESCRIBED_AHEAD));
            entries
                .map(|at| {
                    let (kind, fact) = Fact::of_entry(page.entry(at), page.asked_ms);
                    let ino = table.keep(folder, page.name(at), kind, fact);
                    table.rest(ino, now_ms);
                    ino
                })
                .collect()
        };
        match self.names.learn_posix(&nodes) {
            Err(error) if error.is_of_origin_away() => Err(error),
            Err(_) | Ok(()) => Ok(()),
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
        if plus && !taken && node.id != NOT_LOOKED_UP {
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
        let local = self.local_names(folder, listing);
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

    fn local_names(&self, folder: &OpenFolder, listing: &FolderListing) -> LocalNames {
        folder.local(|| {
            let names = self.names.table().local_names(folder.ino);
            let is_listed = |name: &str| matches!(listing.find(name), NameInListing::Present(..));
            names.into_iter().filter(|(name, _)| !is_listed(name)).collect()
        })
    }

    /// The number of the entry at an offset. One that another process has handed out is looked for by the
    /// name before it: the folder may have changed since.
    pub(crate) fn entry_at(&self, folder: &OpenFolder, offset: u64) -> Result<u64, FsError> {
        let Some(left) = folder.left_at(offset) else { return Ok(offset.saturating_sub(DOTS)) };
        let listing = self.listing_for(folder, 0)?;
        let (mut entry, clock) = (0, || self.names.now_ms());
        while let Some(page) = listing.page_with(entry, clock, &self.names.counters)? {
            if !left.is_local && names::order(page.last_name(), &left.name) == Ordering::Greater {
                return Ok(page.first + page.behind(&left.name) as u64);
            }
            entry = page.end();
        }
        let local = self.local_names(folder, &listing);
        let before = local.iter().filter(|(name, _)| left.is_local && **name <= *left.name).count();
        Ok(entry + before as u64)
    }

    /// An entry with a counted lookup, if its attributes are known. A newer fact replaces the listed one.
    fn counted(&self, folder: u64, name: &str, kind: FileKind, fact: Fact) -> Node {
        let mut table = self.names.table();
        let is_newest = table.is_newest(folder, name, kind, fact.asked_ms);
        let ino = table.keep(folder, name, kind, fact.clone());
        if !self.names.knows_posix(&table, ino) {
            let now_ms = self.names.now_ms();
            table.rest(ino, now_ms);
            let number = table.number(folder, kind, name);
            return Node { id: NOT_LOOKED_UP, ..self.names.node_from(number, kind, &fact) };
        }
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
