//! What stands under a name: from what is known, or else by as few requests as can tell.

use std::sync::Arc;

use flatout_engine::{Entry, Error, ErrorKind};
use flatout_wire::location::Location;

use crate::attributes::{FileKind, Source};
use crate::etag::Etag;
use crate::fact::{Fact, Finding};
use crate::fault::Fault;
use crate::flights::Flights;
use crate::names;
use crate::namespace::Namespace;
use crate::place::{Place, unlisted};
use crate::store::Store;

/// So many names of a folder are asked for one by one; then it is worth being listed.
const MISSES_MAX: u32 = 3;
/// A lookup waits for so many pages of its folder's listing before it asks for its name alone.
const PAGES_A_LOOKUP: usize = 2;
/// Behind the name itself come those that go on with one of the 15 signs before `/`: few as a rule.
const ENTRIES_A_NAME: u32 = 16;

/// Finds out what stands under names. BlockingPool that ask for the same name at a time share one question.
pub(crate) struct Lookups<S: Store> {
    names: Arc<Namespace<S>>,
    in_flight: Flights<(u64, Box<str>), Result<Finding, Fault>>,
}

impl<S: Store> Lookups<S> {
    pub(crate) fn new(names: Arc<Namespace<S>>) -> Lookups<S> {
        Lookups { names, in_flight: Flights::new() }
    }

    /// What stands under a name, asked for if need be.
    pub(crate) fn find_out(&self, parent: u64, name: &str) -> Result<Finding, Fault> {
        let known = || self.known(parent, name);
        if let Some(finding) = known() {
            self.names.counters.answered.count();
            return Ok(finding);
        }
        let key = (parent, Box::from(name));
        let age_ms = self.names.lifetimes.attributes_ms;
        let (answer, joined) = self.in_flight.join(&key, self.names.now_ms(), age_ms, || {
            // Somebody may have asked since, and be gone already.
            if let Some(finding) = known() {
                return Ok(finding);
            }
            let answer = self.ask(parent, name);
            match &answer {
                Ok(Finding::Absent(told_ms)) => self.names.table().note_absent(parent, name, *told_ms),
                Ok(Finding::There(..)) => {}
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

    /// Whoever asks next is to find it, though this one's lookup is counted a moment later.
    fn keep_found(&self, parent: u64, name: &str, answer: &Result<Finding, Fault>) {
        let Ok(Finding::There(kind, fact)) = answer else { return };
        let mut table = self.names.table();
        if table.get(parent).is_some() {
            let ino = table.keep(parent, name, *kind, fact.clone());
            let now_ms = self.names.now_ms();
            table.rest(ino, now_ms);
        }
    }

    fn known(&self, parent: u64, name: &str) -> Option<Finding> {
        let names = &self.names;
        names.table().known(parent, name, names.now_ms(), names.lifetimes)
    }

    fn ask(&self, parent: u64, name: &str) -> Result<Finding, Fault> {
        let place = self.names.place(&self.names.table(), parent)?;
        if let Some(finding) = self.ask_listing(parent, &place, name) {
            return Ok(finding);
        }
        match &place {
            Place::Buckets(_) if !names::may_be_bucket(name) => Ok(Finding::Absent(self.names.now_ms())),
            Place::Buckets(dialect) => self.ask_bucket(&Place::bucket(*dialect, name)),
            Place::Folder(folder) => self.ask_name(folder, name),
        }
    }

    /// What the listing of the folder knows, where so many of its names are asked for that it is worth being had. It may have
    /// two pages at once, and one more for each three names that it did not know.
    fn ask_listing(&self, parent: u64, place: &Place, name: &str) -> Option<Finding> {
        if self.names.lifetimes.attributes_ms == 0 {
            return None;
        }
        let misses = {
            let mut table = self.names.table();
            let folder = table.folder_mut(parent)?;
            folder.misses = folder.misses.saturating_add(1);
            folder.misses
        };
        if misses <= MISSES_MAX && matches!(place, Place::Folder(_)) {
            return None;
        }
        let mut listing = self.names.listing_of(parent, place, self.names.lifetimes.attributes_ms).ok()?;
        if listing.answers() == 1 && !listing.is_unread(name) && self.names.lifetimes.negative_ms > 0 {
            // It does not have the name, and is too old to say so. For one request there is another, which knows all names.
            listing = self.names.listing_of(parent, place, self.names.lifetimes.negative_ms).ok()?;
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

    /// What one listing tells of a name: of all keys that begin with it the first is the file, and the folder's keys come as
    /// one prefix behind a few others. Where these fill the page, the folder is asked for alone.
    fn ask_name(&self, folder: &Location, name: &str) -> Result<Finding, Fault> {
        let key = format!("{}{name}", folder.key());
        let beneath = format!("{key}/");
        let told_ms = self.names.now_ms();
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
        let mut pages = self.names.store.list(&under, Some(most))?;
        loop {
            self.names.counters.lookups.count();
            let (entries, is_last) = pages.next_page()?;
            if !entries.is_empty() || is_last {
                let has_passed = entries.last().is_some_and(|last| passed(last.name()));
                return Ok(Seen { is_all: is_last || has_passed, entries });
            }
        }
    }

    /// Whether a bucket is there which the account's list does not show, as others' are.
    fn ask_bucket(&self, bucket: &Location) -> Result<Finding, Fault> {
        let told_ms = self.names.now_ms();
        self.names.counters.lookups.count();
        match self.names.store.list(bucket, Some(1)).and_then(|mut pages| pages.next_page()) {
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
