//! Listings: pages of a bucket as one iterator.

use std::collections::VecDeque;
use std::sync::Arc;

use flatout_wire::listing;
use flatout_wire::location::Location;

use crate::api::account::{Dialect, Operation};
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{setting_to, text};
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

/// The entries under a prefix, page after page. A page that fails ends the listing with its error.
pub struct Listing {
    shards: Arc<Shards>,
    under: Location,
    deep: bool,
    most: Option<u32>,
    next: Next,
    entries: VecDeque<Entry>,
    /// Of the entries; those of a page go together.
    weight: MemoryCharge,
}

enum Next {
    First,
    Token(String),
    None,
}

impl Listing {
    pub(crate) fn start(
        shared: &Shared,
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
        let (under, weight) = (location.clone(), shared.pool.charge(0));
        Ok(Listing { shards, under, deep, most: None, next: Next::First, entries: VecDeque::new(), weight })
    }

    /// In pages of at most `entries` entries, from 1 on: to see the first of them early.
    #[must_use]
    pub fn in_pages_of(mut self, entries: u32) -> Listing {
        self.most = Some(entries.max(1));
        self
    }

    /// Whether everything has been handed out: nothing comes behind it.
    pub fn is_done(&self) -> bool {
        self.entries.is_empty() && matches!(self.next, Next::None)
    }

    /// What is left of the page that was asked for last, or else the next one, in one request; nothing behind
    /// the last.
    ///
    /// # Errors
    /// As the iterator's.
    pub fn page(&mut self) -> Result<Vec<Entry>, Error> {
        if self.entries.is_empty() {
            self.fetch_page().map_err(|error| error.during("list", &self.under))?;
        }
        self.weight.set(0);
        Ok(self.entries.drain(..).collect())
    }

    fn fetch_page(&mut self) -> Result<(), Error> {
        let token = match std::mem::replace(&mut self.next, Next::None) {
            Next::First => None,
            Next::Token(token) => Some(token),
            Next::None => return Ok(()),
        };
        let (under, delimiter) = (self.under.clone(), (!self.deep).then_some('/'));
        let operation = Operation::Page { under, delimiter, token: token.clone(), most: self.most };
        let (_, body) = self.shards.call(operation)?;
        let parsed = match Dialect::of(&self.under) {
            Dialect::Oss => listing::parse_oss_page(&body),
            _ => listing::parse_page(&body),
        };
        let page = parsed.map_err(|nonsense| {
            Error::new(ErrorKind::Network, format!("the answer is no listing: {nonsense}"))
                .with_hint(format!("does this endpoint speak {}?", self.under.scheme().to_uppercase()))
        })?;
        if page.next.is_some() && page.next == token {
            return Err(repeats_a_page());
        }
        self.next = page.next.map_or(Next::None, Next::Token);
        let mut entries: Vec<Entry> = page.prefixes.into_iter().map(Entry::Prefix).collect();
        entries.extend(page.objects.into_iter().map(Entry::Object));
        entries.sort_by(|a, b| a.name().cmp(b.name()));
        self.weight.set(entries.iter().map(Entry::weight).sum());
        self.entries.extend(entries);
        Ok(())
    }
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
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Some(Ok(entry));
            }
            self.weight.set(0);
            if matches!(self.next, Next::None) {
                return None;
            }
            if let Err(error) = self.fetch_page() {
                return Some(Err(error.during("list", &self.under)));
            }
        }
    }
}
