//! The inode table: an inode for each name in use, small enough for millions, with what is known of the name.
//! A file that was opened and then replaced has several inodes, one for each version (`versions.rs`).

mod changes;
mod known;
mod notes;
mod posix;
mod taken_over;
mod versions;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::ROOT;
use crate::attributes::{AttributeSource, FileKind};
use crate::etag::Etag;
use crate::fact::Fact;
use crate::hash::{BuildIdentityHasher, StableHash};
use crate::kept::Kept;
use crate::listing::{FolderListing, NameInListing};
use crate::writer::WrittenSize;
use notes::Note;
use posix::KnownPosix;
use versions::{Vacancy, VersionState};

/// An inode. Its key is its parent's key and its name.
#[derive(Debug)]
pub(crate) struct Inode {
    /// The node: the kernel's number for it.
    pub(crate) ino: u64,
    /// The number that stat(2) shows, equal for all versions of a name.
    pub(crate) number: u64,
    pub(crate) parent: u64,
    pub(crate) name: Box<str>,
    /// Lookups that the kernel has not forgotten.
    pub(crate) looked_up: u32,
    /// How many children, handles and planned listings need it.
    pins: u32,
    /// Counts the inodes of files; 0 for a folder.
    pub(crate) generation: u32,
    pub(crate) kind: FileKind,
    state: VersionState,
    /// The kernel has the attributes of an older version.
    pub(crate) has_changed: bool,
    is_queued: bool,
    pub(crate) fact: Fact,
    /// When the origin was asked what the name stands for. The fact may be newer than this: a HEAD answers
    /// for the object only, which a folder may hide.
    named_ms: u64,
    pub(crate) folder: Option<Box<Folder>>,
}

/// What is kept of a folder in use.
#[derive(Default)]
pub(crate) struct Folder {
    pub(crate) listing: Option<Arc<FolderListing>>,
    /// When the youngest listing began that was dropped. It may have had newer answers than those that are
    /// left from before it.
    outdated_ms: u64,
    /// Answers about single names that are newer than the listing, or without one.
    notes: HashMap<Box<str>, Note>,
    /// How many names had to be asked for one by one.
    pub(crate) misses: u32,
    pub(crate) walk: FolderWalk,
    /// It is or was listed ahead, and has not been read since.
    pub(crate) is_ahead: bool,
    /// It was made by this mount, or emptied: it exists although no key may say so.
    made_here: bool,
    /// When this mount last changed its names: no older listing is read from its start.
    changed_ms: u64,
    /// When this mount last changed its names, in seconds since 1970; `None` where a time was set since.
    touched_s: Option<u32>,
    /// Names that exist here, and perhaps nowhere else: files that are being written, and folders that were
    /// made here.
    local: BTreeMap<Box<str>, FileKind>,
}

/// In which way the subfolders of a folder are read.
#[derive(Clone, Copy, Default)]
pub(crate) struct FolderWalk {
    /// How many subfolders were opened one after the other.
    pub(crate) run: u32,
    /// The last of them.
    pub(crate) last: u64,
    pub(crate) last_ms: u64,
    /// Their subfolders were opened too.
    pub(crate) is_deep: bool,
    /// How many subfolders had been listed ahead when they were opened.
    pub(crate) hits: u32,
    /// How many subfolders are listed ahead, and not opened yet.
    pub(crate) outstanding: u32,
}

impl std::fmt::Debug for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folder").field("misses", &self.misses).finish_non_exhaustive()
    }
}

/// The bytes of an inode without its name: the struct, its row in the index, and the allocator's overhead for
/// the name.
pub(crate) const INODE_BYTES: u64 = size_of::<Inode>() as u64 + 32 + 16;
const FOLDER_BYTES: u64 = size_of::<Folder>() as u64 + 16;
/// At most this many unused inodes are kept for a while: programs come back.
const IDLE_MAX: usize = 16 << 10;
/// A table with fewer inodes does not shrink.
const ROOM_LEAST: usize = 1 << 10;

pub(crate) struct InodeTable {
    /// In no order, and without gaps, so that a table that has shrunk can give memory back.
    inodes: Vec<Inode>,
    /// The position of the inode of a node.
    index: HashMap<u64, u32, BuildIdentityHasher>,
    /// Nodes of inodes whose hash was taken, by that hash.
    displaced: HashMap<u64, Vec<u64>>,
    /// Files that are being written, and their sizes of now.
    written: HashMap<u64, Arc<WrittenSize>, BuildIdentityHasher>,
    /// Files and folders that are being removed or renamed.
    moving: Vec<u64>,
    /// The bits of the hash that are used: all of them, except in tests.
    mask: u64,
    /// The root's listing is incomplete: there may be buckets of other accounts.
    pub(crate) root_shows_some: bool,
    /// Unused inodes, and since when they are.
    idle: VecDeque<(u64, u64)>,
    /// Folders with a listing, and when that began.
    listed: VecDeque<(u64, u64)>,
    bytes: u64,
    looked_up: u64,
    listings: u64,
    generations: u32,
    /// What the kernel knows of the inodes, for another process.
    pub(crate) kept: Kept,
    /// What is known of their metadata.
    pub(crate) posix: KnownPosix,
}

/// How long an answer may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    pub(crate) attributes_ms: u64,
    pub(crate) negative_ms: u64,
}

impl InodeTable {
    pub(crate) fn new(mask: u64) -> InodeTable {
        let mut table = InodeTable {
            inodes: Vec::new(),
            index: HashMap::default(),
            displaced: HashMap::new(),
            written: HashMap::default(),
            moving: Vec::new(),
            mask,
            root_shows_some: false,
            idle: VecDeque::new(),
            listed: VecDeque::new(),
            bytes: 0,
            looked_up: 0,
            listings: 0,
            generations: 0,
            kept: Kept::default(),
            posix: KnownPosix::default(),
        };
        let root = Vacancy { ino: ROOT, number: ROOT };
        table.insert(root, ROOT, "", FileKind::Folder, Fact::folder(0));
        table.pin(ROOT);
        table
    }

    pub(crate) fn get(&self, ino: u64) -> Option<&Inode> {
        self.inodes.get(*self.index.get(&ino)? as usize)
    }

    pub(crate) fn get_mut(&mut self, ino: u64) -> Option<&mut Inode> {
        self.inodes.get_mut(*self.index.get(&ino)? as usize)
    }

    /// The state of a folder, created if there is none.
    pub(crate) fn folder_mut(&mut self, ino: u64) -> Option<&mut Folder> {
        let at = *self.index.get(&ino)? as usize;
        let inode = self.inodes.get_mut(at).filter(|inode| inode.kind == FileKind::Folder)?;
        if inode.folder.is_none() {
            self.bytes += FOLDER_BYTES;
        }
        Some(inode.folder.get_or_insert_default())
    }

    /// The components of an inode's key, from the root down; `None` if one is not known any more.
    pub(crate) fn path(&self, ino: u64) -> Option<Vec<&str>> {
        let (mut names, mut at) = (Vec::new(), ino);
        while at != ROOT {
            let inode = self.get(at)?;
            names.push(&*inode.name);
            at = inode.parent;
        }
        names.reverse();
        Some(names)
    }

    /// The number that stat(2) shows for a name.
    pub(crate) fn number(&self, parent: u64, kind: FileKind, name: &str) -> u64 {
        match self.find_or_vacancy(parent, kind, name) {
            Ok(ino) => self.get(ino).map_or(ino, |inode| inode.number),
            Err(vacancy) => vacancy.number,
        }
    }

    pub(crate) fn find(&self, parent: u64, kind: FileKind, name: &str) -> Option<u64> {
        self.find_or_vacancy(parent, kind, name).ok()
    }

    /// The inode of a name, or the vacancy for it.
    fn find_or_vacancy(&self, parent: u64, kind: FileKind, name: &str) -> Result<u64, Vacancy> {
        let wanted = self.hash(parent, kind, name);
        let displaced = self.displaced.get(&wanted).into_iter().flatten().copied();
        let is_of_name =
            |inode: &&Inode| inode.parent == parent && inode.kind == kind && *inode.name == *name;
        let of_name = std::iter::once(wanted).chain(displaced).filter_map(|ino| self.get(ino));
        let mut number = None;
        for inode in of_name.filter(is_of_name) {
            if inode.state != VersionState::Replaced {
                return Ok(inode.ino);
            }
            number = Some(inode.number);
        }
        let mut free = wanted;
        while self.index.contains_key(&free) || free <= ROOT {
            free = free.wrapping_add(1);
        }
        Err(Vacancy { ino: free, number: number.unwrap_or(free) })
    }

    /// 0 is no inode and 1 the root.
    fn hash(&self, parent: u64, kind: FileKind, name: &str) -> u64 {
        let mut hash = StableHash::new();
        hash.add(&parent.to_le_bytes());
        hash.add(if kind == FileKind::Folder { b"/" } else { b"-" });
        hash.add(name.as_bytes());
        (hash.end() & self.mask).max(ROOT + 1)
    }

    /// The inode of a name, with the newer of what was known and `fact`.
    pub(crate) fn keep(&mut self, parent: u64, name: &str, kind: FileKind, fact: Fact) -> u64 {
        self.outdate_note(parent, name, fact.asked_ms);
        match self.find_or_vacancy(parent, kind, name) {
            Ok(ino) => self.learn(ino, fact),
            Err(vacancy) => {
                self.pin(parent);
                self.insert(vacancy, parent, name, kind, fact)
            }
        }
    }

    fn insert(&mut self, at: Vacancy, parent: u64, name: &str, kind: FileKind, fact: Fact) -> u64 {
        let Vacancy { ino, number } = at;
        self.bytes += INODE_BYTES + (name.len() + fact.etag.weight()) as u64;
        let generation = match kind {
            FileKind::File => self.next_generation(),
            FileKind::Folder => 0,
        };
        let inode = Inode {
            ino,
            number,
            parent,
            name: name.into(),
            looked_up: 0,
            pins: 0,
            generation,
            kind,
            state: VersionState::Unopened,
            has_changed: false,
            is_queued: false,
            named_ms: fact.asked_ms,
            fact,
            folder: None,
        };
        let at = u32::try_from(self.inodes.len()).expect("memory ends before");
        self.inodes.push(inode);
        self.index.insert(ino, at);
        self.displace(ino);
        self.keep_name(ino);
        ino
    }

    fn keep_name(&self, ino: u64) {
        if let Some(inode) = self.get(ino).filter(|_| ino != ROOT) {
            let parts = (inode.number, inode.parent, inode.generation, inode.kind);
            self.kept.node(ino, parts, &inode.name);
        }
    }

    /// Makes an inode found by its name where its node is not the hash of that.
    fn displace(&mut self, ino: u64) {
        let Some(inode) = self.get(ino).filter(|_| ino != ROOT) else { return };
        let wanted = self.hash(inode.parent, inode.kind, &inode.name);
        if ino != wanted {
            self.displaced.entry(wanted).or_default().push(ino);
        }
    }

    fn undisplace(&mut self, ino: u64) {
        let Some(inode) = self.get(ino) else { return };
        let wanted = self.hash(inode.parent, inode.kind, &inode.name);
        if ino != wanted
            && let Some(others) = self.displaced.get_mut(&wanted)
        {
            others.retain(|&other| other != ino);
            if others.is_empty() {
                self.displaced.remove(&wanted);
            }
        }
    }

    /// Replaces an inode's fact unless that is newer; returns the inode that the name has then.
    fn learn(&mut self, ino: u64, fact: Fact) -> u64 {
        // What this mount writes is newer.
        if self.is_written(ino) {
            return ino;
        }
        let Some(inode) = self.get_mut(ino) else { return ino };
        if fact.source != AttributeSource::Head {
            inode.named_ms = inode.named_ms.max(fact.asked_ms);
        }
        if fact.asked_ms < inode.fact.asked_ms {
            return ino;
        }
        let is_same = inode.kind == FileKind::Folder || inode.fact.is_same_version(&fact);
        if !is_same && inode.state == VersionState::Opened {
            return self.succeed(ino, fact);
        }
        inode.has_changed |= !is_same;
        let before = inode.fact.etag.weight() as u64;
        // An answer without an ETag keeps the known one, by which the next version is recognised.
        let keeps_etag = is_same && fact.etag == Etag::None;
        let etag = if keeps_etag { std::mem::take(&mut inode.fact.etag) } else { fact.etag };
        // Most answers about a folder lack its time.
        let modified_s = if fact.modified_s == 0 { inode.fact.modified_s } else { fact.modified_s };
        inode.fact = Fact { modified_s, etag, ..fact };
        let after = inode.fact.etag.weight() as u64;
        self.bytes = self.bytes + after - before;
        ino
    }

    pub(crate) fn look_up(&mut self, ino: u64) {
        if let Some(inode) = self.get_mut(ino) {
            inode.looked_up = inode.looked_up.saturating_add(1);
            let count = inode.looked_up;
            self.looked_up += u64::from(count == 1);
            self.kept.lookups(ino, count);
        }
    }

    pub(crate) fn forget(&mut self, ino: u64, times: u64, now_ms: u64) {
        let Some(inode) = self.get_mut(ino).filter(|inode| inode.looked_up > 0) else { return };
        inode.looked_up = inode.looked_up.saturating_sub(u32::try_from(times).unwrap_or(u32::MAX));
        let count = inode.looked_up;
        self.kept.lookups(ino, count);
        if count == 0 {
            self.looked_up -= 1;
            self.rest(ino, now_ms);
        }
    }

    pub(crate) fn pin(&mut self, ino: u64) {
        if let Some(inode) = self.get_mut(ino) {
            inode.pins += 1;
        }
    }

    pub(crate) fn unpin(&mut self, ino: u64, now_ms: u64) {
        if let Some(inode) = self.get_mut(ino) {
            inode.pins = inode.pins.saturating_sub(1);
            self.rest(ino, now_ms);
        }
    }

    /// Queues an inode to be dropped, unless it is needed. A replaced one is dropped at once: it will not be
    /// asked for again.
    pub(crate) fn rest(&mut self, ino: u64, now_ms: u64) {
        let Some(inode) = self.get_mut(ino).filter(|inode| !inode.is_needed()) else { return };
        if inode.state == VersionState::Replaced {
            return self.remove(ino, now_ms);
        }
        let was_queued = std::mem::replace(&mut inode.is_queued, true);
        // The kernel has no page of it either.
        self.set_state(ino, VersionState::Unopened);
        if !was_queued {
            self.idle.push_back((ino, now_ms));
        }
    }

    /// Drops unused inodes and listings that are too old, and inodes that are too many.
    pub(crate) fn tidy(&mut self, now_ms: u64, lifetimes: Lifetimes) {
        let is_old = |since_ms: u64| now_ms.saturating_sub(since_ms) >= lifetimes.attributes_ms;
        while let Some(&(_, since_ms)) = self.idle.front() {
            if self.idle.len() <= IDLE_MAX && !is_old(since_ms) {
                break;
            }
            self.drop_idle(now_ms);
        }
        for _ in 0..4 {
            match self.listed.front() {
                Some(&(_, begun_ms)) if is_old(begun_ms) => self.drop_oldest_listing(),
                _ => break,
            };
        }
    }

    /// Drops listings, then unused inodes, oldest first, until half of the bytes are free or nothing more can
    /// be dropped.
    pub(crate) fn shed(&mut self, now_ms: u64, held: impl Fn() -> u64) {
        let enough = |table: &InodeTable, before: u64| table.bytes + held() <= before / 2;
        let before = self.bytes + held();
        for _ in 0..self.listed.len() {
            if enough(self, before) {
                return;
            }
            self.drop_oldest_listing();
        }
        while !enough(self, before) && self.drop_idle(now_ms) {}
    }

    /// Drops the inode that is unused for the longest time; `false` if none is queued.
    fn drop_idle(&mut self, now_ms: u64) -> bool {
        let Some((ino, _)) = self.idle.pop_front() else { return false };
        // The node may have another inode by now.
        let Some(inode) = self.get_mut(ino).filter(|inode| inode.is_queued) else { return true };
        inode.is_queued = false;
        if !inode.is_needed() {
            self.remove(ino, now_ms);
        }
        true
    }

    fn remove(&mut self, ino: u64, now_ms: u64) {
        self.drop_listing(ino);
        self.undisplace(ino);
        let Some(inode) = self.take(ino) else { return };
        self.kept.node_gone(ino);
        self.posix.forget(ino);
        if inode.state != VersionState::Unopened {
            self.kept.no_version(ino);
        }
        self.bytes -= INODE_BYTES + (inode.name.len() + inode.fact.etag.weight()) as u64;
        if let Some(folder) = &inode.folder {
            self.bytes -= FOLDER_BYTES + folder.notes_bytes() + folder.local_bytes();
        }
        // An older answer in a listing must not replace this newer one.
        if inode.state != VersionState::Replaced && self.contradicts(&inode) {
            self.distrust(inode.parent, &inode.name, inode.fact.asked_ms);
        }
        self.unpin(inode.parent, now_ms);
    }

    /// Removes an inode; the last one moves to its position.
    fn take(&mut self, ino: u64) -> Option<Inode> {
        let at = self.index.remove(&ino)?;
        let inode = self.inodes.swap_remove(at as usize);
        if let Some(last) = self.inodes.get(at as usize) {
            self.index.insert(last.ino, at);
        }
        let count = self.inodes.len();
        if count > ROOM_LEAST && count < self.inodes.capacity() / 4 {
            self.inodes.shrink_to(2 * count);
            self.index.shrink_to(2 * count);
        }
        Some(inode)
    }

    /// Whether an inode's fact is newer than its folder's listing, and differs from it.
    fn contradicts(&self, inode: &Inode) -> bool {
        let folder = self.get(inode.parent).and_then(|parent| parent.folder.as_deref());
        let Some(listing) = folder.and_then(|folder| folder.listing.as_deref()) else { return false };
        match listing.find(&inode.name) {
            NameInListing::Present(entry, asked_ms) => {
                let (kind, fact) = Fact::of_entry(entry, asked_ms);
                asked_ms < inode.fact.asked_ms
                    && (kind != inode.kind || kind == FileKind::File && !fact.is_same_version(&inode.fact))
            }
            NameInListing::Absent(asked_ms) => asked_ms < inode.fact.asked_ms,
            NameInListing::NotYet => false,
        }
    }

    /// Replaces a folder's listing.
    pub(crate) fn set_listing(&mut self, ino: u64, listing: Arc<FolderListing>) {
        let begun_ms = listing.started_ms;
        let Some(folder) = self.folder_mut(ino) else { return };
        match folder.listing.replace(listing) {
            Some(before) => {
                folder.on_listing_dropped(&before);
                self.remember_marker(ino, before.marker_s());
            }
            None => self.listings += 1,
        }
        self.listed.push_back((ino, begun_ms));
    }

    fn remember_marker(&mut self, ino: u64, marker_s: Option<u32>) {
        if let (Some(inode), Some(marker_s)) = (self.get_mut(ino), marker_s) {
            inode.fact.modified_s = marker_s;
        }
    }

    /// Drops a folder's listing; its readers keep it.
    pub(crate) fn drop_listing(&mut self, ino: u64) {
        let Some(inode) = self.get_mut(ino) else { return };
        let parent = inode.parent;
        let Some(folder) = inode.folder.as_deref_mut() else { return };
        let was_ahead = std::mem::take(&mut folder.is_ahead);
        if let Some(listing) = folder.listing.take() {
            folder.on_listing_dropped(&listing);
            self.listings -= 1;
            self.remember_marker(ino, listing.marker_s());
        }
        if was_ahead && let Some(parent) = self.folder_mut(parent) {
            parent.walk.outstanding = parent.walk.outstanding.saturating_sub(1);
        }
    }

    /// Drops the listing that began first, unless it is being read: then it moves to the end of the queue.
    fn drop_oldest_listing(&mut self) {
        let Some((ino, begun_ms)) = self.listed.pop_front() else { return };
        let listing = self.get(ino).and_then(|inode| inode.folder.as_deref()?.listing.as_ref());
        let Some(listing) = listing.filter(|listing| listing.started_ms == begun_ms) else { return };
        if Arc::strong_count(listing) > 1 {
            self.listed.push_back((ino, begun_ms));
            return;
        }
        self.drop_listing(ino);
    }

    /// What is known of an inode, as of the last question for its name. A folder's own listing proves that it
    /// exists, if it is not empty.
    pub(crate) fn known_fact(&self, inode: &Inode) -> Fact {
        let named = Fact { asked_ms: inode.named_ms, ..inode.fact.clone() };
        if let Some(written) = self.written.get(&inode.ino) {
            let modified_s = u32::try_from(written.modified_s()).unwrap_or(u32::MAX);
            return Fact { size: written.end(), modified_s, ..named };
        }
        let listing = inode.folder.as_deref().and_then(|folder| folder.listing.as_deref());
        let Some(listing) = listing.filter(|listing| listing.is_proof()) else { return named };
        let asked_ms = inode.named_ms.max(listing.started_ms);
        let modified_s = listing.marker_s().unwrap_or(inode.fact.modified_s);
        Fact { asked_ms, modified_s, ..named }
    }

    /// Bytes of inodes and notes, without listings.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.posix.bytes()
    }

    /// How many inodes there are, how many of them are looked up, and how many listings.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        (self.index.len() as u64, self.looked_up, self.listings)
    }
}

impl Folder {
    fn on_listing_dropped(&mut self, listing: &FolderListing) {
        if listing.answers() > 0 {
            self.outdated_ms = self.outdated_ms.max(listing.started_ms);
        }
    }
}

impl Inode {
    fn is_needed(&self) -> bool {
        self.ino == ROOT || self.looked_up > 0 || self.pins > 0
    }
}

#[cfg(test)]
#[path = "inodes_tests.rs"]
mod tests;
