//! The inode table: an inode for each name that somebody knows, small enough for millions, and what is known of it. A file that
//! was opened and then replaced has several, one for each version (`versions.rs`).

mod notes;
mod versions;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::ROOT;
use crate::attributes::{FileKind, Source};
use crate::etag::Etag;
use crate::fact::{Fact, Finding};
use crate::hash::{BuildAsItIs, Hash};
use crate::listing::{Answer, FolderListing};
use notes::Note;
use versions::{Life, Vacancy};

/// An inode. Its key is its parent's and its name.
#[derive(Debug)]
pub(crate) struct Inode {
    /// The node: what the kernel knows it by.
    pub(crate) ino: u64,
    /// What stat(2) shows, the same for all versions of a name.
    pub(crate) number: u64,
    pub(crate) parent: u64,
    pub(crate) name: Box<str>,
    /// Lookups that the kernel has not forgotten.
    pub(crate) looked_up: u32,
    /// Children, handles and plans that need it.
    pins: u32,
    /// Counts inodes of files; 0 for a folder.
    pub(crate) generation: u32,
    pub(crate) kind: FileKind,
    life: Life,
    /// The attributes that were told last are of another version.
    pub(crate) is_news: bool,
    is_queued: bool,
    pub(crate) fact: Fact,
    /// When the origin was asked what stands under the name. A HEAD tells of the object only, which a folder may hide: the
    /// fact may be newer than this.
    named_ms: u64,
    pub(crate) folder: Option<Box<Folder>>,
}

/// What is kept of a folder that somebody looks into.
#[derive(Default)]
pub(crate) struct Folder {
    pub(crate) listing: Option<Arc<FolderListing>>,
    /// When the youngest listing began that was let go of: it told of names what nobody knows any more, and what was told before
    /// is not the newest.
    outdated_ms: u64,
    /// Of single names, where it is newer than the listing or there is none.
    notes: HashMap<Box<str>, Note>,
    /// Names that had to be asked for one by one.
    pub(crate) misses: u32,
    pub(crate) walk: Walk,
    /// It was listed before somebody read it, and nobody has read it yet.
    pub(crate) is_ahead: bool,
}

/// How the subfolders of a folder are read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Walk {
    /// Subfolders that were opened one after the other.
    pub(crate) run: u32,
    /// The last of them.
    pub(crate) last: u64,
    pub(crate) last_ms: u64,
    /// Their subfolders were opened too.
    pub(crate) is_deep: bool,
    /// Subfolders that had been listed ahead when they were opened.
    pub(crate) hits: u32,
    /// Subfolders that are listed ahead, and not opened yet.
    pub(crate) outstanding: u32,
}

impl std::fmt::Debug for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folder").field("misses", &self.misses).finish_non_exhaustive()
    }
}

/// Of an inode beside its name: itself, its place in the index, and what the allocator adds to the name.
pub(crate) const INODE_BYTES: u64 = size_of::<Inode>() as u64 + 32 + 16;
const FOLDER_BYTES: u64 = size_of::<Folder>() as u64 + 16;
/// Inodes that nobody needs any more are kept for a while, since programs come back; so many at most.
const IDLE_MAX: usize = 16 << 10;
/// A table of fewer keeps the room that it has.
const ROOM_LEAST: usize = 1 << 10;
pub(crate) struct Table {
    /// In no order, and without gaps: a table that has shrunk gives its memory back.
    inodes: Vec<Inode>,
    /// Where the inode of a number is.
    index: HashMap<u64, u32, BuildAsItIs>,
    /// Inodes whose node was taken, under the one that they should have had.
    displaced: HashMap<u64, Vec<u64>>,
    /// Bits of the hash that are used: all, but in tests.
    mask: u64,
    /// What the root's listing does not show may be there all the same: buckets of others.
    pub(crate) root_shows_some: bool,
    /// Inodes that nobody needed since that time.
    idle: VecDeque<(u64, u64)>,
    /// Folders whose listing began at that time.
    listed: VecDeque<(u64, u64)>,
    bytes: u64,
    looked_up: u64,
    listings: u64,
    generations: u32,
}

/// For how long what was told may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    pub(crate) attributes_ms: u64,
    pub(crate) negative_ms: u64,
}

impl Table {
    pub(crate) fn new(mask: u64) -> Table {
        let mut table = Table {
            inodes: Vec::new(),
            index: HashMap::default(),
            displaced: HashMap::new(),
            mask,
            root_shows_some: false,
            idle: VecDeque::new(),
            listed: VecDeque::new(),
            bytes: 0,
            looked_up: 0,
            listings: 0,
            generations: 0,
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

    /// What is kept of a folder, from now on if need be.
    pub(crate) fn folder_mut(&mut self, ino: u64) -> Option<&mut Folder> {
        let at = *self.index.get(&ino)? as usize;
        let inode = self.inodes.get_mut(at).filter(|inode| inode.kind == FileKind::Folder)?;
        if inode.folder.is_none() {
            self.bytes += FOLDER_BYTES;
        }
        Some(inode.folder.get_or_insert_default())
    }

    /// The components of an inode's key, from the root down; `None` where one is not known any more.
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

    /// The number that stat(2) shows of a name, or would show.
    pub(crate) fn number(&self, parent: u64, kind: FileKind, name: &str) -> u64 {
        match self.place(parent, kind, name) {
            Ok(ino) => self.get(ino).map_or(ino, |inode| inode.number),
            Err(vacancy) => vacancy.number,
        }
    }

    pub(crate) fn find(&self, parent: u64, kind: FileKind, name: &str) -> Option<u64> {
        self.place(parent, kind, name).ok()
    }

    /// The inode that stands under a name, or else a place that is free for it.
    fn place(&self, parent: u64, kind: FileKind, name: &str) -> Result<u64, Vacancy> {
        let wanted = self.hash(parent, kind, name);
        let displaced = self.displaced.get(&wanted).into_iter().flatten().copied();
        let is_of_name =
            |inode: &&Inode| inode.parent == parent && inode.kind == kind && *inode.name == *name;
        let of_name = std::iter::once(wanted).chain(displaced).filter_map(|ino| self.get(ino));
        let mut number = None;
        for inode in of_name.filter(is_of_name) {
            if inode.life != Life::Replaced {
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
        let mut hash = Hash::new();
        hash.add(&parent.to_le_bytes());
        hash.add(if kind == FileKind::Folder { b"/" } else { b"-" });
        hash.add(name.as_bytes());
        (hash.end() & self.mask).max(ROOT + 1)
    }

    /// The inode of a name with what is known of it: the newer of what was known and `fact`.
    pub(crate) fn keep(&mut self, parent: u64, name: &str, kind: FileKind, fact: Fact) -> u64 {
        self.outdate_note(parent, name, fact.told_ms);
        match self.place(parent, kind, name) {
            Ok(ino) => self.learn(ino, fact),
            Err(vacancy) => {
                self.pin(parent);
                self.insert(vacancy, parent, name, kind, fact)
            }
        }
    }

    fn insert(&mut self, at: Vacancy, parent: u64, name: &str, kind: FileKind, fact: Fact) -> u64 {
        let Vacancy { ino, number } = at;
        let wanted = self.hash(parent, kind, name);
        if ino != ROOT && ino != wanted {
            self.displaced.entry(wanted).or_default().push(ino);
        }
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
            life: Life::Unopened,
            is_news: false,
            is_queued: false,
            named_ms: fact.told_ms,
            fact,
            folder: None,
        };
        let at = u32::try_from(self.inodes.len()).expect("memory ends before");
        self.inodes.push(inode);
        self.index.insert(ino, at);
        ino
    }

    /// Takes a fact for what is known of an inode, unless that is newer; which inode stands under its name then.
    fn learn(&mut self, ino: u64, fact: Fact) -> u64 {
        let Some(inode) = self.get_mut(ino) else { return ino };
        if fact.source != Source::Head {
            inode.named_ms = inode.named_ms.max(fact.told_ms);
        }
        if fact.told_ms < inode.fact.told_ms {
            return ino;
        }
        let is_same = inode.kind == FileKind::Folder || inode.fact.is_same_version(&fact);
        if !is_same && inode.life == Life::Opened {
            return self.succeed(ino, fact);
        }
        inode.is_news |= !is_same;
        let before = inode.fact.etag.weight() as u64;
        // An answer without an ETag does not take away the one that is known: it tells the next version.
        let keeps_etag = is_same && fact.etag == Etag::None;
        let etag = if keeps_etag { std::mem::take(&mut inode.fact.etag) } else { fact.etag };
        // A folder's time is not told again with each proof that it is there.
        let modified_s = if fact.modified_s == 0 { inode.fact.modified_s } else { fact.modified_s };
        inode.fact = Fact { modified_s, etag, ..fact };
        let after = inode.fact.etag.weight() as u64;
        self.bytes = self.bytes + after - before;
        ino
    }

    /// What is known of a name and young enough to be used.
    pub(crate) fn known(
        &self,
        parent: u64,
        name: &str,
        now_ms: u64,
        lifetimes: Lifetimes,
    ) -> Option<Finding> {
        let newest = self.newest(parent, name)?;
        let lifetime_ms = match newest {
            Finding::There(..) => lifetimes.attributes_ms,
            Finding::Absent(_) => lifetimes.negative_ms,
        };
        (now_ms.saturating_sub(newest.told_ms()) < lifetime_ms).then_some(newest)
    }

    /// What was told last of a name, however old.
    fn newest(&self, parent: u64, name: &str) -> Option<Finding> {
        let folder = self.get(parent)?.folder.as_deref();
        let mut newest: Option<Finding> = None;
        let mut hear = |finding: Finding| {
            if newest.as_ref().is_none_or(|newest| newest.told_ms() < finding.told_ms()) {
                newest = Some(finding);
            }
        };
        // Of two that were told at once a folder hides a file.
        for kind in [FileKind::Folder, FileKind::File] {
            let inode = self.find(parent, kind, name).and_then(|ino| self.get(ino));
            if let Some(inode) = inode {
                hear(Finding::There(kind, inode.known_fact()));
            }
        }
        if let Some(listing) = folder.and_then(|folder| folder.listing.as_deref()) {
            match listing.find(name) {
                Answer::There(said, asked_ms) => {
                    let (kind, fact) = Fact::of_said(said, asked_ms);
                    hear(Finding::There(kind, fact));
                }
                Answer::Absent(_) if parent == ROOT && self.root_shows_some => {}
                Answer::Absent(asked_ms) => hear(Finding::Absent(asked_ms)),
                Answer::Unread => {}
            }
        }
        let newest = match folder.and_then(|folder| folder.notes.get(name)) {
            Some(note) if newest.as_ref().is_none_or(|newest| newest.told_ms() <= note.told_ms) => {
                note.is_absent.then_some(Finding::Absent(note.told_ms))
            }
            _ => newest,
        };
        let is_outdated = |finding: &Finding| {
            // A HEAD that found the object since: what stands under the name is another question, but something does.
            let object = || self.find(parent, FileKind::File, name).and_then(|ino| self.get(ino));
            folder.is_some_and(|folder| finding.told_ms() < folder.outdated_ms)
                || matches!(finding, Finding::Absent(told_ms) if object().is_some_and(|it| it.fact.told_ms > *told_ms))
        };
        newest.filter(|finding| !is_outdated(finding))
    }

    /// Whether nothing was told of a name since that speaks against its being a `kind` still.
    pub(crate) fn is_newest(&self, parent: u64, name: &str, kind: FileKind, told_ms: u64) -> bool {
        let other = match kind {
            FileKind::File => FileKind::Folder,
            FileKind::Folder => FileKind::File,
        };
        let other = self.find(parent, other, name).and_then(|ino| self.get(ino));
        let folder = self.get(parent).and_then(|inode| inode.folder.as_deref());
        let note = folder.and_then(|folder| folder.notes.get(name));
        other.is_none_or(|other| other.named_ms <= told_ms) && note.is_none_or(|note| note.told_ms <= told_ms)
    }

    pub(crate) fn look_up(&mut self, ino: u64) {
        if let Some(inode) = self.get_mut(ino) {
            inode.looked_up = inode.looked_up.saturating_add(1);
            self.looked_up += u64::from(self.get(ino).is_some_and(|inode| inode.looked_up == 1));
        }
    }

    pub(crate) fn forget(&mut self, ino: u64, times: u64, now_ms: u64) {
        let Some(inode) = self.get_mut(ino).filter(|inode| inode.looked_up > 0) else { return };
        inode.looked_up = inode.looked_up.saturating_sub(u32::try_from(times).unwrap_or(u32::MAX));
        if inode.looked_up == 0 {
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

    /// Queues an inode that nobody needs for being dropped. One that was replaced goes at once: nobody will ask for it again.
    pub(crate) fn rest(&mut self, ino: u64, now_ms: u64) {
        let Some(inode) = self.get_mut(ino).filter(|inode| !inode.is_needed()) else { return };
        if inode.life == Life::Replaced {
            return self.remove(ino, now_ms);
        }
        // Nor has the kernel any page of it.
        inode.life = Life::Unopened;
        if inode.is_queued {
            return;
        }
        inode.is_queued = true;
        self.idle.push_back((ino, now_ms));
    }

    /// Drops what nobody needs and is too old to be used, or too much.
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

    /// Drops listings, then idle inodes, the oldest first, until half is gone or nothing is left that may go.
    pub(crate) fn shed(&mut self, now_ms: u64, held: impl Fn() -> u64) {
        let enough = |table: &Table, before: u64| table.bytes + held() <= before / 2;
        let before = self.bytes + held();
        for _ in 0..self.listed.len() {
            if enough(self, before) {
                return;
            }
            self.drop_oldest_listing();
        }
        while !enough(self, before) && self.drop_idle(now_ms) {}
    }

    /// Drops the oldest of the inodes that nobody needs; whether there was one in the queue.
    fn drop_idle(&mut self, now_ms: u64) -> bool {
        let Some((ino, _)) = self.idle.pop_front() else { return false };
        // Another one of that node may have come since.
        let Some(inode) = self.get_mut(ino).filter(|inode| inode.is_queued) else { return true };
        inode.is_queued = false;
        if !inode.is_needed() {
            self.remove(ino, now_ms);
        }
        true
    }

    fn remove(&mut self, ino: u64, now_ms: u64) {
        self.drop_listing(ino);
        let Some(inode) = self.take(ino) else { return };
        let wanted = self.hash(inode.parent, inode.kind, &inode.name);
        if ino != wanted
            && let Some(others) = self.displaced.get_mut(&wanted)
        {
            others.retain(|&other| other != ino);
            if others.is_empty() {
                self.displaced.remove(&wanted);
            }
        }
        self.bytes -= INODE_BYTES + (inode.name.len() + inode.fact.etag.weight()) as u64;
        if let Some(folder) = &inode.folder {
            self.bytes -= FOLDER_BYTES + folder.notes_bytes();
        }
        // What a listing told before must not come back as news.
        if inode.life != Life::Replaced && self.contradicts(&inode) {
            self.distrust(inode.parent, &inode.name, inode.fact.told_ms);
        }
        self.unpin(inode.parent, now_ms);
    }

    /// The last one comes in its place.
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

    /// Whether an inode knows it newer than its folder's listing, and otherwise.
    fn contradicts(&self, inode: &Inode) -> bool {
        let folder = self.get(inode.parent).and_then(|parent| parent.folder.as_deref());
        let Some(listing) = folder.and_then(|folder| folder.listing.as_deref()) else { return false };
        match listing.find(&inode.name) {
            Answer::There(said, asked_ms) => {
                let (kind, fact) = Fact::of_said(said, asked_ms);
                asked_ms < inode.fact.told_ms
                    && (kind != inode.kind || kind == FileKind::File && !fact.is_same_version(&inode.fact))
            }
            Answer::Absent(asked_ms) => asked_ms < inode.fact.told_ms,
            Answer::Unread => false,
        }
    }

    /// Keeps a listing as a folder's, in the place of an older one.
    pub(crate) fn set_listing(&mut self, ino: u64, listing: Arc<FolderListing>) {
        let begun_ms = listing.started_ms;
        let Some(folder) = self.folder_mut(ino) else { return };
        match folder.listing.replace(listing) {
            Some(before) => {
                folder.on_let_go(&before);
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

    /// Lets go of a folder's listing; who reads it keeps it.
    pub(crate) fn drop_listing(&mut self, ino: u64) {
        let Some(inode) = self.get_mut(ino) else { return };
        let parent = inode.parent;
        let Some(folder) = inode.folder.as_deref_mut() else { return };
        let was_ahead = std::mem::take(&mut folder.is_ahead);
        if let Some(listing) = folder.listing.take() {
            folder.on_let_go(&listing);
            self.listings -= 1;
            self.remember_marker(ino, listing.marker_s());
        }
        if was_ahead && let Some(parent) = self.folder_mut(parent) {
            parent.walk.outstanding = parent.walk.outstanding.saturating_sub(1);
        }
    }

    /// Drops the listing that began first; one that is read goes to the end of the queue.
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

    /// Bytes of inodes and notes, listings not counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Inodes; those that are looked up; listings.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        (self.index.len() as u64, self.looked_up, self.listings)
    }
}

impl Folder {
    fn on_let_go(&mut self, listing: &FolderListing) {
        if listing.answers() > 0 {
            self.outdated_ms = self.outdated_ms.max(listing.started_ms);
        }
    }
}

impl Inode {
    fn is_needed(&self) -> bool {
        self.ino == ROOT || self.looked_up > 0 || self.pins > 0
    }

    /// What may be told of it, as of when its name was asked for; of a folder also that its own listing told of something in it.
    pub(crate) fn known_fact(&self) -> Fact {
        let named = Fact { told_ms: self.named_ms, ..self.fact.clone() };
        let listing = self.folder.as_deref().and_then(|folder| folder.listing.as_deref());
        let Some(listing) = listing.filter(|listing| listing.is_proof()) else { return named };
        let told_ms = self.named_ms.max(listing.started_ms);
        let modified_s = listing.marker_s().unwrap_or(self.fact.modified_s);
        Fact { told_ms, modified_s, ..named }
    }
}

#[cfg(test)]
#[path = "inodes_tests.rs"]
mod tests;
