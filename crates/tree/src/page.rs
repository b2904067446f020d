//! A page of a folder's entries in two blocks of memory: 40 bytes an entry, and its name.

use std::cmp::Ordering;

use flatout_engine::{Entry, Listed};

use crate::etag::Etag;
use crate::names;
use crate::stats::TreeCounters;

/// Entries in the order of names.
#[derive(Debug)]
pub(crate) struct ListingPage {
    /// The number of the first entry in the listing.
    pub(crate) first: u64,
    /// When the origin was asked for the oldest entry.
    pub(crate) asked_ms: u64,
    names: Box<str>,
    rows: Box<[PageRow]>,
}

#[derive(Debug)]
struct PageRow {
    /// Where its name ends; it begins where the previous one ends.
    name_end: u32,
    /// Seconds since 1970, until 2106.
    modified_s: u32,
    /// `FOLDER` for a folder.
    size: u64,
    etag: Etag,
}

const FOLDER: u64 = u64::MAX;

/// An entry without its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageEntry {
    File { size: u64, modified_s: u32, etag: Etag },
    Folder,
}

impl ListingPage {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The number of the entry after the last, in the listing.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.rows.len() as u64
    }

    pub(crate) fn name(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| self.rows[before].name_end);
        &self.names[start as usize..self.rows[at].name_end as usize]
    }

    pub(crate) fn last_name(&self) -> &str {
        self.name(self.len() - 1)
    }

    pub(crate) fn is_folder(&self, at: usize) -> bool {
        self.rows[at].size == FOLDER
    }

    pub(crate) fn entry(&self, at: usize) -> PageEntry {
        let PageRow { size, modified_s, etag, .. } = &self.rows[at];
        match *size {
            FOLDER => PageEntry::Folder,
            size => PageEntry::File { size, modified_s: *modified_s, etag: etag.clone() },
        }
    }

    /// The position of a name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.search(name).ok()
    }

    /// The position after a name, whether it is there or not.
    pub(crate) fn behind(&self, name: &str) -> usize {
        self.search(name).map_or_else(|at| at, |at| at + 1)
    }

    fn search(&self, name: &str) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match names::order(self.name(middle), name) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Its size in memory, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        let etags: usize = self.rows.iter().map(|row| row.etag.weight()).sum();
        (size_of::<ListingPage>() + self.names.len() + self.rows.len() * size_of::<PageRow>() + etags + 64)
            as u64
    }
}

/// Makes pages, in the order of names, of a listing in the order of keys: it holds the file `a` back until it
/// is known whether a folder `a/` follows, which may be pages later.
#[derive(Debug, Default)]
pub(crate) struct PageBuilder {
    /// The folder's own key, with which each entry's key begins.
    prefix: Box<str>,
    /// Files that a folder of the same name may follow, in their order. Each key is the start of the next.
    held: Vec<(u64, Listed)>,
    names: String,
    rows: Vec<PageRow>,
    asked_ms: u64,
    /// How many entries the pages before have.
    bound: u64,
    last_key: String,
    /// The origin's order is not that of keys.
    pub(crate) is_unordered: bool,
    /// When the folder's marker object was written, if the listing had it.
    pub(crate) marker_s: Option<u32>,
}

impl PageBuilder {
    pub(crate) fn new(prefix: &str) -> PageBuilder {
        PageBuilder { prefix: prefix.into(), ..PageBuilder::default() }
    }

    /// The page of `entries` and of those held back before; `None` if it would be empty.
    pub(crate) fn bind(
        &mut self,
        entries: Vec<Entry>,
        is_last: bool,
        asked_ms: u64,
        counters: &TreeCounters,
    ) -> Option<ListingPage> {
        self.asked_ms = asked_ms;
        for entry in entries {
            // The origin ignores the prefix: cut short, the key would be another name.
            if !entry.name().starts_with(&*self.prefix) {
                counters.foreign.count();
                continue;
            }
            self.is_unordered |= entry.name() < self.last_key.as_str();
            self.last_key.clear();
            self.last_key.push_str(entry.name());
            self.take(entry, asked_ms, counters);
        }
        if is_last {
            self.release(None, counters);
        }
        self.page()
    }

    fn take(&mut self, entry: Entry, asked_ms: u64, counters: &TreeCounters) {
        self.release(Some(entry.name()), counters);
        match entry {
            Entry::Object(listed) if listed.key.len() == self.prefix.len() => {
                self.marker_s = u32::try_from(listed.last_modified).ok().filter(|&at| at > 0);
            }
            // With a delimiter, no object's name contains it; the marker of a subfolder comes as its prefix.
            Entry::Object(listed) => match names::check(self.name_of(&listed.key), counters) {
                Ok(()) => self.held.push((asked_ms, listed)),
                Err(counter) => counter.count(),
            },
            Entry::Prefix(prefix) => {
                let name = self.name_of(&prefix);
                let name = name.strip_suffix('/').unwrap_or(name);
                match names::check(name, counters) {
                    Ok(()) => self
                        .push(name, PageRow { name_end: 0, modified_s: 0, size: FOLDER, etag: Etag::None }),
                    Err(counter) => counter.count(),
                }
            }
        }
    }

    /// Adds the files that no folder can follow any more after `key`; at the end, all.
    fn release(&mut self, key: Option<&str>, counters: &TreeCounters) {
        // Those that still wait come first. Of the others, the longer name is the first in order.
        let still = |listed: &Listed, key: &str| {
            key.as_bytes().get(listed.key.len()).is_some_and(|&next| next < b'/')
                && key.starts_with(&listed.key)
        };
        let first = match key {
            Some(key) => self.held.iter().position(|(_, listed)| !still(listed, key)),
            None => Some(0),
        };
        let Some(first) = first else { return };
        for (asked_ms, listed) in self.held.split_off(first).into_iter().rev() {
            let is_shadowed = key.and_then(|key| key.strip_prefix(&listed.key)) == Some("/");
            if is_shadowed {
                counters.shadowed.count();
                continue;
            }
            self.asked_ms = self.asked_ms.min(asked_ms);
            let row = PageRow {
                name_end: 0,
                modified_s: u32::try_from(listed.last_modified).unwrap_or(u32::MAX),
                size: listed.size.min(FOLDER - 1),
                etag: Etag::of(listed.etag.as_deref()),
            };
            let name = self.name_of(&listed.key).to_owned();
            self.push(&name, row);
        }
    }

    fn name_of<'a>(&self, key: &'a str) -> &'a str {
        key.strip_prefix(&*self.prefix).unwrap_or_default()
    }

    fn push(&mut self, name: &str, row: PageRow) {
        self.names.push_str(name);
        // A page has at most a thousand names of a kilobyte.
        let name_end = u32::try_from(self.names.len()).expect("a page is a few megabytes at most");
        self.rows.push(PageRow { name_end, ..row });
    }

    fn page(&mut self) -> Option<ListingPage> {
        if self.rows.is_empty() {
            return None;
        }
        let first = self.bound;
        self.bound += self.rows.len() as u64;
        let page = ListingPage {
            first,
            asked_ms: self.asked_ms,
            names: std::mem::take(&mut self.names).into_boxed_str(),
            rows: std::mem::take(&mut self.rows).into_boxed_slice(),
        };
        Some(if self.is_unordered { page.sorted() } else { page })
    }
}

impl ListingPage {
    /// Sorted by name, for an origin with another order: names are found by binary search.
    fn sorted(self) -> ListingPage {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by(|&a, &b| names::order(self.name(a), self.name(b)));
        let mut names = String::with_capacity(self.names.len());
        let mut rows = Vec::with_capacity(order.len());
        for at in order {
            names.push_str(self.name(at));
            let PageRow { modified_s, size, etag, .. } = &self.rows[at];
            let name_end = u32::try_from(names.len()).expect("as long as before");
            rows.push(PageRow { name_end, modified_s: *modified_s, size: *size, etag: etag.clone() });
        }
        let (first, asked_ms) = (self.first, self.asked_ms);
        ListingPage { first, asked_ms, names: names.into_boxed_str(), rows: rows.into_boxed_slice() }
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
