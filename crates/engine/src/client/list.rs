//! Listings: pages of a bucket as one iterator.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use flatout_wire::listing::{self, PageStart};
use flatout_wire::location::Location;

use crate::api::account::{Dialect, Operation};
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{setting_to, text};
use crate::client::parallel_listing::ParallelListing;
use crate::memory::lease::MemoryCharge;
use crate::shard::shards::Shards;
use crate::shard::shared::Shared;

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An object.
    Object(Listed),
    /// Keys that share a prefix up to the next `/`.
    Prefix(String),
}

/// What a listing tells of an object.
pub use flatout_wire::listing::Listed;

/// A bucket of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
}

/// The entries under a prefix, in order. A page that fails ends the listing with its error, once everything
/// before it has been handed out. A listing of more than two pages asks for several at once; dropping it
/// ends what is in flight.
pub struct Listing {
    under: Location,
    pages: Pages,
}

enum Pages {
    /// One after the other.
    Serial(Box<SerialListing>),
    /// Several at once.
    Parallel(Box<ParallelListing>),
    Over,
}

pub(crate) struct SerialListing {
    shards: Arc<Shards>,
    under: Location,
    delimiter: Option<char>,
    most: Option<u32>,
    next: Option<PageStart>,
    entries: VecDeque<Entry>,
    /// Of the entries; those of a page go together.
    weight: MemoryCharge,
}

impl Listing {
    pub(crate) fn start(
        shared: &Arc<Shared>,
        shards: Arc<Shards>,
        location: &Location,
        deep: bool,
    ) -> Result<Listing, Error> {
        if Dialect::of(location) == Dialect::Plain {
            return Err(Error::new(ErrorKind::Unsupported, "a plain http server cannot be listed")
                .during("list", location)
                .with_hint([
                    text("list a bucket: s3://BUCKET/PREFIX, with "),
                    setting_to("endpoint-url", "URL"),
                ]));
        }
        let (under, delimiter) = (location.clone(), if deep { None } else { Some('/') });
        let pages = ParallelListing::new(shared, shards, under.clone(), delimiter);
        Ok(Listing { under, pages: Pages::Parallel(Box::new(pages)) })
    }

    /// In pages of at most `entries` entries, from 1 on, one after the other: to see the first of them early.
    #[must_use]
    pub fn in_pages_of(mut self, entries: u32) -> Listing {
        if let Pages::Parallel(parallel) = &self.pages {
            self.pages = Pages::Serial(Box::new(parallel.serial()));
        }
        if let Pages::Serial(serial) = &mut self.pages {
            serial.most = Some(entries.max(1));
        }
        self
    }

    /// Whether everything has been handed out: nothing comes behind it.
    pub fn is_done(&self) -> bool {
        match &self.pages {
            Pages::Serial(serial) => serial.entries.is_empty() && serial.next.is_none(),
            Pages::Parallel(parallel) => parallel.is_done(),
            Pages::Over => true,
        }
    }

    /// What is left of the page that was handed out last, or else the next one; nothing behind the last. A
    /// page may be empty though there is another.
    ///
    /// # Errors
    /// As the iterator's.
    pub fn page(&mut self) -> Result<Vec<Entry>, Error> {
        let page = match &mut self.pages {
            Pages::Serial(serial) => serial.page(),
            Pages::Parallel(parallel) => parallel.page(),
            Pages::Over => Ok(Vec::new()),
        };
        page.map_err(|error| self.end(error))
    }

    /// How long ago the origin was asked for the page that is handed out: several are asked for ahead.
    pub fn page_age(&self) -> Duration {
        match &self.pages {
            Pages::Parallel(parallel) => parallel.page_age(),
            Pages::Serial(_) | Pages::Over => Duration::ZERO,
        }
    }

    /// Nothing comes behind an error.
    fn end(&mut self, error: Error) -> Error {
        self.pages = Pages::Over;
        error.during("list", &self.under)
    }
}

impl SerialListing {
    pub(crate) fn new(
        shared: &Shared,
        shards: Arc<Shards>,
        under: Location,
        delimiter: Option<char>,
    ) -> SerialListing {
        let weight = shared.pool.charge(0);
        let (next, entries) = (Some(PageStart::First), VecDeque::new());
        SerialListing { shards, under, delimiter, most: None, next, entries, weight }
    }

    fn page(&mut self) -> Result<Vec<Entry>, Error> {
        if self.entries.is_empty() {
            self.fetch_page()?;
        }
        self.weight.set(0);
        Ok(self.entries.drain(..).collect())
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Ok(Some(entry));
            }
            self.weight.set(0);
            if self.next.is_none() {
                return Ok(None);
            }
            self.fetch_page()?;
        }
    }

    fn fetch_page(&mut self) -> Result<(), Error> {
        let Some(start) = self.next.take() else { return Ok(()) };
        let (under, delimiter, most) = (self.under.clone(), self.delimiter, self.most);
        let operation = Operation::Page { under, delimiter, start: start.clone(), most };
        let (_, body) = self.shards.call(operation)?;
        let page = page_of(&self.under, &body)?;
        let next = page.next.map(PageStart::Token);
        if next.as_ref() == Some(&start) {
            return Err(repeats_a_page());
        }
        self.next = next;
        let mut entries: Vec<Entry> = page.prefixes.into_iter().map(Entry::Prefix).collect();
        entries.extend(page.objects.into_iter().map(Entry::Object));
        entries.sort_by(|a, b| a.name().cmp(b.name()));
        self.weight.set(entries.iter().map(Entry::weight).sum());
        self.entries.extend(entries);
        Ok(())
    }
}

/// The page that an answer shows.
pub(crate) fn page_of(under: &Location, body: &[u8]) -> Result<listing::Page, Error> {
    let parsed = match Dialect::of(under) {
        Dialect::Oss => listing::parse_oss_page(body),
        _ => listing::parse_page(body),
    };
    parsed.map_err(|nonsense| {
        Error::new(ErrorKind::Network, format!("the answer is no listing: {nonsense}"))
            .with_hint(format!("does this endpoint speak {}?", under.scheme().to_uppercase()))
    })
}

/// A listing that goes in a circle would never end.
pub(crate) fn repeats_a_page() -> Error {
    Error::new(ErrorKind::Network, "the origin repeats a page of the listing")
}

impl Entry {
    /// The key or the prefix.
    pub fn name(&self) -> &str {
        match self {
            Entry::Object(listed) => &listed.key,
            Entry::Prefix(prefix) => prefix,
        }
    }

    /// What it takes in memory, with the allocator's own words.
    fn weight(&self) -> u64 {
        let texts = match self {
            Entry::Object(listed) => listed.key.len() + listed.etag.as_ref().map_or(0, String::len),
            Entry::Prefix(prefix) => prefix.len(),
        };
        (size_of::<Entry>() + texts + 64) as u64
    }
}

impl Iterator for Listing {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Result<Entry, Error>> {
        let entry = match &mut self.pages {
            Pages::Serial(serial) => serial.next_entry(),
            Pages::Parallel(parallel) => parallel.next_entry(),
            Pages::Over => Ok(None),
        };
        entry.map_err(|error| self.end(error)).transpose()
    }
}
