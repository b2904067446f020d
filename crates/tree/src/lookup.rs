//! What stands under a name: from what is known, or else by as few requests as can tell.

use std::ffi::OsStr;
use std::sync::Arc;

use flatout_engine::{Entry, Error, ErrorKind};
use flatout_wire::location::Location;

use crate::ROOT;
use crate::attributes::{FileKind, Known, Source};
use crate::etag::Etag;
use crate::fact::{Fact, Finding};
use crate::fault::Fault;
use crate::inodes::Table;
use crate::listing::FolderListing;
use crate::names;
use crate::place::Place;
use crate::store::Store;
use crate::tree::Core;

/// So many names of a folder are asked for one by one; then it is worth being listed.
const MISSES_MAX: u32 = 3;
/// A lookup waits for so many pages of its folder's listing before it asks for its name alone.
const PAGES_A_LOOKUP: usize = 2;
/// Behind the name itself come those that go on with one of the 15 signs before `/`: few as a rule.
const ENTRIES_A_NAME: u32 = 16;

impl<S: Store> Core<S> {
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> Result<Known, Fault> {
        let name = self.name_in(parent, name)?;
        let finding = self.find_out(parent, name)?;
        self.answer(&mut self.table(), parent, name, finding)
    }

    pub(crate) fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Known, Fault>> {
        let name = match self.name_in(parent, name) {
            Ok(name) => name,
            Err(fault) => return Some(Err(fault)),
        };
        let now_ms = self.now_ms();
        let mut table = self.table();
        let finding = table.known(parent, name, now_ms, self.lifetimes)?;
        self.counters.answered.count();
        Some(self.answer(&mut table, parent, name, finding))
    }

    pub(crate) fn attributes_known(&self, ino: u64) -> Option<Result<Known, Fault>> {
        let now_ms = self.now_ms();
        let mut table = self.table();
        if ino == ROOT {
            return self.known_of(&mut table, ROOT).map(Ok);
        }
        let current = table.get(ino).filter(|inode| !inode.is_replaced());
        let Some(inode) = current else { return Some(Err(Fault::of(libc::ESTALE))) };
        let (parent, name, kind) = (inode.parent, inode.name.clone(), inode.kind);
        let finding = table.known(parent, &name, now_ms, self.lifetimes)?;
        self.counters.answered.count();
        Some(self.refreshed(&mut table, ino, parent, &name, kind, finding))
    }

    pub(crate) fn attributes(&self, ino: u64) -> Result<Known, Fault> {
        if let Some(answer) = self.attributes_known(ino) {
            return answer;
        }
        let stale = || Fault::of(libc::ESTALE);
        let inode = self.table().get(ino).map(|inode| (inode.parent, inode.name.clone(), inode.kind));
        let (parent, name, kind) = inode.ok_or_else(stale)?;
        let finding = self.find_out(parent, &name)?;
        self.refreshed(&mut self.table(), ino, parent, &name, kind, finding)
    }

    /// A name that may be in a folder.
    fn name_in<'a>(&self, parent: u64, name: &'a OsStr) -> Result<&'a str, Fault> {
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

    /// Tells what was found of a name, and counts the lookup.
    fn answer(&self, table: &mut Table, parent: u64, name: &str, finding: Finding) -> Result<Known, Fault> {
        let Finding::There(kind, fact) = finding else { return Err(Fault::absent()) };
        if table.get(parent).is_none() {
            return Err(Fault::of(libc::ESTALE));
        }
        let ino = table.keep(parent, name, kind, fact);
        table.look_up(ino);
        self.settle(table);
        self.known_of(table, ino).ok_or_else(Fault::absent)
    }

    /// Tells what was found of an inode: nothing where what was found is another version than was opened by it.
    fn refreshed(
        &self,
        table: &mut Table,
        ino: u64,
        parent: u64,
        name: &str,
        kind: FileKind,
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

    /// What stands under a name, asked for if need be.
    pub(crate) fn find_out(&self, parent: u64, name: &str) -> Result<Finding, Fault> {
        let known = |core: &Core<S>| core.table().known(parent, name, core.now_ms(), core.lifetimes);
        if let Some(finding) = known(self) {
            self.counters.answered.count();
            return Ok(finding);
        }
        let key = (parent, Box::from(name));
        let (answer, joined) = self.lookups.join(&key, self.now_ms(), self.lifetimes.attributes_ms, || {
            // Somebody may have asked since, and be gone already.
            if let Some(finding) = known(self) {
                return Ok(finding);
            }
            let answer = self.ask(parent, name);
            match &answer {
                Ok(Finding::Absent(told_ms)) => self.table().note_absent(parent, name, *told_ms),
                Ok(Finding::There(..)) => {}
                Err(_) => self.counters.failures.count(),
            }
            self.keep_found(parent, name, &answer);
            answer
        });
        if joined {
            self.counters.joined.count();
        }
        answer
    }

    /// Whoever asks next is to find it, though this one's lookup is counted a moment later.
    fn keep_found(&self, parent: u64, name: &str, answer: &Result<Finding, Fault>) {
        let Ok(Finding::There(kind, fact)) = answer else { return };
        let mut table = self.table();
        if table.get(parent).is_some() {
            let ino = table.keep(parent, name, *kind, fact.clone());
            let now_ms = self.now_ms();
            table.rest(ino, now_ms);
        }
    }

    fn ask(&self, parent: u64, name: &str) -> Result<Finding, Fault> {
        let place = self.place(&self.table(), parent)?;
        if let Some(finding) = self.ask_listing(parent, &place, name) {
            return Ok(finding);
        }
        match &place {
            Place::Buckets(_) if !names::may_be_bucket(name) => Ok(Finding::Absent(self.now_ms())),
            Place::Buckets(dialect) => self.ask_bucket(&Place::bucket(*dialect, name)),
            Place::Folder(folder) => self.ask_name(folder, name),
        }
    }

    /// What the listing of the folder knows, where so many of its names are asked for that it is worth being had. It may have
    /// two pages at once, and one more for each three names that it did not know.
    fn ask_listing(&self, parent: u64, place: &Place, name: &str) -> Option<Finding> {
        if self.lifetimes.attributes_ms == 0 {
            return None;
        }
        let misses = {
            let mut table = self.table();
            let folder = table.folder_mut(parent)?;
            folder.misses = folder.misses.saturating_add(1);
            folder.misses
        };
        if misses <= MISSES_MAX && matches!(place, Place::Folder(_)) {
            return None;
        }
        let mut listing = self.listing_of(parent, place, self.lifetimes.attributes_ms).ok()?;
        if listing.answers() == 1 && !listing.is_unread(name) && self.lifetimes.negative_ms > 0 {
            // It does not have the name, and is too old to say so. For one request there is another, which knows all names.
            listing = self.listing_of(parent, place, self.lifetimes.negative_ms).ok()?;
        }
        for _ in 0..PAGES_A_LOOKUP {
            let known = self.table().known(parent, name, self.now_ms(), self.lifetimes);
            if known.is_some() {
                return known;
            }
            if !listing.is_unread(name) || listing.answers() >= 2 + u64::from(misses / MISSES_MAX) {
                return None;
            }
            self.next_page(&listing).ok()?;
        }
        self.table().known(parent, name, self.now_ms(), self.lifetimes)
    }

    /// Asks for one more page of a listing, or waits for who has.
    pub(crate) fn next_page(&self, listing: &Arc<FolderListing>) -> Result<(), Fault> {
        listing.page_with(listing.entries(), || self.now_ms(), &self.counters)?;
        self.settle(&mut self.table());
        Ok(())
    }

    /// What one listing tells of a name: of all keys that begin with it the first is the file, and the folder's keys come as
    /// one prefix behind a few others. Where these fill the page, the folder is asked for alone.
    fn ask_name(&self, folder: &Location, name: &str) -> Result<Finding, Fault> {
        let key = format!("{}{name}", folder.key());
        let beneath = format!("{key}/");
        let told_ms = self.now_ms();
        let seen = self.list_until(folder, &key, ENTRIES_A_NAME, |last| last >= beneath.as_str())?;
        let mut is_folder = seen.entries.iter().any(|entry| entry.name().starts_with(&beneath));
        if !is_folder && !seen.is_all {
            let inside = self.list_until(folder, &beneath, 1, |_| true)?;
            is_folder = inside.entries.iter().any(|entry| entry.name().starts_with(&beneath));
        }
        if is_folder {
            return Ok(Finding::There(FileKind::Folder, Fact::folder(told_ms)));
        }
        let file = seen.entries.into_iter().find_map(|entry| match entry {
            Entry::Object(listed) if listed.key == key => Some(listed),
            _ => None,
        });
        let Some(listed) = file else { return Ok(Finding::Absent(told_ms)) };
        let fact = Fact {
            size: listed.size,
            told_ms,
            etag: Etag::of(listed.etag.as_deref()),
            modified_s: u32::try_from(listed.last_modified).unwrap_or(u32::MAX),
            source: Source::Listing,
        };
        Ok(Finding::There(FileKind::File, fact))
    }

    /// The first entries under `prefix`: a page that is not empty, as origins may send. `is_all`: none that `passed` would stop
    /// at can follow.
    fn list_until(
        &self,
        folder: &Location,
        prefix: &str,
        most: u32,
        passed: impl Fn(&str) -> bool,
    ) -> Result<Seen, Error> {
        let under = folder.with_key(prefix).ok_or_else(unlisted)?;
        let mut pages = self.store.list(&under, Some(most))?;
        loop {
            self.counters.lookups.count();
            let (entries, is_last) = pages.next_page()?;
            if !entries.is_empty() || is_last {
                let has_passed = entries.last().is_some_and(|last| passed(last.name()));
                return Ok(Seen { is_all: is_last || has_passed, entries });
            }
        }
    }

    /// Whether a bucket is there which the account's list does not show, as others' are.
    fn ask_bucket(&self, bucket: &Location) -> Result<Finding, Fault> {
        let told_ms = self.now_ms();
        self.counters.lookups.count();
        match self.store.list(bucket, Some(1)).and_then(|mut pages| pages.next_page()) {
            Ok(_) => Ok(Finding::There(FileKind::Folder, Fact::folder(told_ms))),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(Finding::Absent(told_ms)),
            Err(why) => Err(why.into()),
        }
    }
}

/// What the first page of a listing showed.
struct Seen {
    entries: Vec<Entry>,
    is_all: bool,
}

/// A tree is made over what can be listed.
pub(crate) fn unlisted() -> Error {
    Error::new(ErrorKind::Unsupported, "a plain http server cannot be listed")
}
