//! Listings: pages of an S3 bucket as one iterator.

use std::collections::VecDeque;
use std::sync::Arc;

use flatout_wire::listing;
use flatout_wire::location::Location;

use crate::client::Core;
use crate::control::Call;
use crate::error::{Error, ErrorKind};
use crate::object::Dialect;

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
    core: Arc<Core>,
    bucket: String,
    prefix: String,
    deep: bool,
    next: Next,
    entries: VecDeque<Entry>,
    name: String,
}

enum Next {
    First,
    Token(String),
    None,
}

impl Listing {
    pub(crate) fn start(core: Arc<Core>, location: &Location, deep: bool) -> Result<Listing, Error> {
        let Location::S3 { bucket, key } = location else {
            return Err(Error::new(ErrorKind::Unsupported, "a plain http server cannot be listed")
                .during("list", location)
                .with_hint("list a bucket: flatout ls s3://BUCKET/PREFIX --endpoint-url URL"));
        };
        Ok(Listing {
            core,
            bucket: bucket.clone(),
            prefix: key.clone(),
            deep,
            next: Next::First,
            entries: VecDeque::new(),
            name: location.to_string(),
        })
    }

    fn fetch_page(&mut self) -> Result<(), Error> {
        let token = match std::mem::replace(&mut self.next, Next::None) {
            Next::First => None,
            Next::Token(token) => Some(token),
            Next::None => return Ok(()),
        };
        let account = &self.core.account;
        let delimiter = (!self.deep).then_some('/');
        let request =
            account.s3.list_objects_v2(&self.bucket, &self.prefix, delimiter, token.as_deref(), None);
        let (_, body) = self.core.call(Call::new(request, Dialect::S3))?;
        let page = listing::parse_page(&body).map_err(|nonsense| {
            Error::new(ErrorKind::Network, format!("the answer is no listing: {nonsense}"))
                .with_hint("is this an S3 endpoint?")
        })?;
        if page.next.is_some() && page.next == token {
            return Err(Error::new(ErrorKind::Network, "the origin repeats a page of the listing"));
        }
        self.next = page.next.map_or(Next::None, Next::Token);
        let mut entries: Vec<Entry> = page.prefixes.into_iter().map(Entry::Prefix).collect();
        entries.extend(page.objects.into_iter().map(Entry::Object));
        entries.sort_by(|a, b| a.name().cmp(b.name()));
        self.entries.extend(entries);
        Ok(())
    }
}

impl Entry {
    /// The key or the prefix.
    pub fn name(&self) -> &str {
        match self {
            Entry::Object(listed) => &listed.key,
            Entry::Prefix(prefix) => prefix,
        }
    }
}

impl Iterator for Listing {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Result<Entry, Error>> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Some(Ok(entry));
            }
            if matches!(self.next, Next::None) {
                return None;
            }
            if let Err(error) = self.fetch_page() {
                return Some(Err(error.during("list", &self.name)));
            }
        }
    }
}
