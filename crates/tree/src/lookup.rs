//! What a name stands for: from memory, or by as few requests as possible.

use std::sync::Arc;

use flatout_engine::{Entry, Error, ErrorKind};
use flatout_wire::location::Location;

use crate::attributes::{AttributeSource, FileKind};
use crate::etag::Etag;
use crate::fact::{Fact, NameStatus};
use crate::folder_location::{FolderLocation, unlisted};
use crate::fs_error::FsError;
use crate::names;
use crate::namespace::Namespace;
use crate::single_flight::SingleFlight;
use crate::store::ObjectStore;

/// This many names of a folder are asked for one by one; then the folder is listed.
const MISSES_MAX: u32 = 3;
/// How many pages of its folder's listing a lookup waits for before it asks for its name alone.
const PAGES_A_LOOKUP: usize = 2;
/// Between the file `name` and the folder `name/` come names that continue with one of the 15 characters
/// before `/`: few, as a rule.
const ENTRIES_A_NAME: u32 = 16;

/// Resolves names. Callers that ask for the same name at a time share one request.
pub(crate) struct Lookups<S: ObjectStore> {
    names: Arc<Namespace<S>>,
    in_flight: SingleFlight<(u64, Box<str>), Result<NameStatus, FsError>>,
}

impl<S: ObjectStore> Lookups<S> {
    pub(crate) fn new(names: Arc<Namespace<S>>) -> Lookups<S> {
        Lookups { names, in_flight: SingleFlight::new() }
    }

    /// What a name stands for; asks the origin unless that is known.
    pub(crate) fn resolve(&self, parent: u64, name: &str) -> Result<NameStatus, FsError> {
        let known = || self.known(parent, name);
        if let Some(status) = known() {
            self.names.counters.answered.count();
            return Ok(status);
        }
        let key = (parent, Box::from(name));
        let age_ms = self.names.lifetimes.attributes_ms;
        let (answer, joined) = self.in_flight.join(&key, self.names.now_ms(), age_ms, || {
            // Another caller may have asked since, and be gone already.
            if let Some(status) = known() {
                return Ok(status);
            }
            let answer = self.ask(parent, name);
            match &answer {
                Ok(NameStatus::Absent(asked_ms)) => self.names.table().note_absent(parent, name, *asked_ms),
                Ok(NameStatus::Present(..)) => {}
                Err(_) => self.names.counters.failures.count(),
            }
            self.keep_found(parent, name, &answer);
            answer
        });
        if joined {
            self.names.counters.joined.count();
        }
        answer
    }

    /// Keeps the answer for the next caller; this caller counts its lookup a moment later.
    fn keep_found(&self, parent: u64, name: &str, answer: &Result<NameStatus, FsError>) {
        let Ok(NameStatus::Present(kind, fact)) = answer else { return };
        let mut table = self.names.table();
        if table.get(parent).is_some() {
            let ino = table.keep(parent, name, *kind, fact.clone());
            let now_ms = self.names.now_ms();
            table.rest(ino, now_ms);
        }
    }

    fn known(&self, parent: u64, name: &str) -> Option<NameStatus> {
        let names = &self.names;
        names.table().known(parent, name, names.now_ms(), names.lifetimes)
    }

    fn ask(&self, parent: u64, name: &str) -> Result<NameStatus, FsError> {
        let location = self.names.location_of(&self.names.table(), parent)?;
        if let Some(status) = self.ask_listing(parent, &location, name) {
            return Ok(status);
        }
        match &location {
            FolderLocation::Buckets(_) if !names::may_be_bucket(name) => {
                Ok(NameStatus::Absent(self.names.now_ms()))
            }
            FolderLocation::Buckets(dialect) => self.ask_bucket(&FolderLocation::bucket(*dialect, name)),
            FolderLocation::Prefix(folder) => self.ask_name(folder, name),
        }
    }

    /// The answer of the folder's listing, if enough of its names were asked for that listing pays. It may
    /// fetch two pages at once, and one more for every three names that it did not know.
    fn ask_listing(&self, parent: u64, location: &FolderLocation, name: &str) -> Option<NameStatus> {
        if self.names.lifetimes.attributes_ms == 0 {
            return None;
        }
        let misses = {
            let mut table = self.names.table();
            let folder = table.folder_mut(parent)?;
            folder.misses = folder.misses.saturating_add(1);
            folder.misses
        };
        if misses <= MISSES_MAX && matches!(location, FolderLocation::Prefix(_)) {
            return None;
        }
        let mut listing = self.names.listing_of(parent, location, self.names.lifetimes.attributes_ms).ok()?;
        let lacks_it = !listing.is_unread(name) && self.names.lifetimes.negative_ms > 0;
        if lacks_it && u64::from(misses) >= u64::from(MISSES_MAX) + listing.answers() {
            // The listing is too old to prove that it lacks the name, and was so for as many names as it has
            // pages: a new one costs no more.
            listing = self.names.listing_of(parent, location, self.names.lifetimes.negative_ms).ok()?;
            if let Some(folder) = self.names.table().folder_mut(parent) {
                folder.misses = MISSES_MAX;
            }
        }
        for _ in 0..PAGES_A_LOOKUP {
            let known = self.known(parent, name);
            if known.is_some() {
                return known;
            }
            if !listing.is_unread(name) || listing.answers() >= 2 + u64::from(misses / MISSES_MAX) {
                return None;
            }
            self.names.next_page(&listing).ok()?;
        }
        self.known(parent, name)
    }

    /// Asks for one name by a listing of the keys that begin with it: the first is the file; the folder comes
    /// as one prefix after a few others. If those fill the page, the folder is asked for alone.
    fn ask_name(&self, folder: &Location, name: &str) -> Result<NameStatus, FsError> {
        let key = format!("{}{name}", folder.key());
        let beneath = format!("{key}/");
        let asked_ms = self.names.now_ms();
        let page = self.list_until(folder, &key, ENTRIES_A_NAME, |last| last >= beneath.as_str())?;
        let mut is_folder = page.entries.iter().any(|entry| entry.name().starts_with(&beneath));
        if !is_folder && !page.is_all {
            let inside = self.list_until(folder, &beneath, 1, |_| true)?;
            is_folder = inside.entries.iter().any(|entry| entry.name().starts_with(&beneath));
        }
        if is_folder {
            return Ok(NameStatus::Present(FileKind::Folder, Fact::folder(asked_ms)));
        }
        let file = page.entries.into_iter().find_map(|entry| match entry {
            Entry::Object(listed) if listed.key == key => Some(listed),
            _ => None,
        });
        let Some(listed) = file else { return Ok(NameStatus::Absent(asked_ms)) };
        let fact = Fact {
            size: listed.size,
            asked_ms,
            etag: Etag::of(listed.etag.as_deref()),
            modified_s: u32::try_from(listed.last_modified).unwrap_or(u32::MAX),
            source: AttributeSource::Listing,
        };
        Ok(NameStatus::Present(FileKind::File, fact))
    }

    /// The first entries under `prefix`: the first page that is not empty, since origins may send empty ones.
    /// `passed` says whether the key that is looked for would come before this one.
    fn list_until(
        &self,
        folder: &Location,
        prefix: &str,
        most: u32,
        passed: impl Fn(&str) -> bool,
    ) -> Result<FirstPage, Error> {
        let under = folder.with_key(prefix).ok_or_else(unlisted)?;
        let mut pages = self.names.store.list(&under, Some(most))?;
        loop {
            self.names.counters.lookups.count();
            let (entries, is_last) = pages.next_page()?;
            if !entries.is_empty() || is_last {
                let has_passed = entries.last().is_some_and(|last| passed(last.name()));
                return Ok(FirstPage { is_all: is_last || has_passed, entries });
            }
        }
    }

    /// Whether this bucket exists. The account's list lacks the buckets of other accounts.
    fn ask_bucket(&self, bucket: &Location) -> Result<NameStatus, FsError> {
        let asked_ms = self.names.now_ms();
        self.names.counters.lookups.count();
        match self.names.store.list(bucket, Some(1)).and_then(|mut pages| pages.next_page()) {
            Ok(_) => Ok(NameStatus::Present(FileKind::Folder, Fact::folder(asked_ms))),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(NameStatus::Absent(asked_ms)),
            Err(why) => Err(why.into()),
        }
    }
}

/// The first page of a listing that is not empty.
struct FirstPage {
    entries: Vec<Entry>,
    /// No entry that is looked for can follow.
    is_all: bool,
}
