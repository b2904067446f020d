//! The engine's client as a store.

use flatout_engine::{Bucket, Client, Dialect, Entry, Error, Listing, Pieces, Reader, Reading, Weight};
use flatout_wire::location::Location;
use flatout_wire::time;
use rustix::time::{ClockId, clock_gettime};

use crate::store::{Account, Content, Head, Pages, Store, Version};

impl Store for Client {
    type Content = Reader;
    type Account = Weight;

    fn list(&self, under: &Location, most: Option<u32>) -> Result<Box<dyn Pages>, Error> {
        let listing = Client::list(self, under, false)?;
        Ok(Box::new(match most {
            Some(most) => listing.in_pages_of(most),
            None => listing,
        }))
    }

    fn head(&self, object: &Location) -> Result<Head, Error> {
        let version = self.stat(object)?.version;
        let modified_s = version.last_modified.as_deref().and_then(time::parse_http).unwrap_or(0);
        Ok(Head { size: version.size.unwrap_or(0), etag: version.etag, modified_s })
    }

    fn buckets(&self, dialect: Dialect) -> Result<Vec<Bucket>, Error> {
        Client::buckets(self, dialect)
    }

    fn content(&self, version: Version) -> Result<Reader, Error> {
        self.reader(version)
    }

    fn account(&self) -> Weight {
        self.weight()
    }

    fn now_ms(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        (now.tv_sec as u64) * 1000 + now.tv_nsec as u64 / 1_000_000
    }

    fn unix_s(&self) -> i64 {
        clock_gettime(ClockId::Realtime).tv_sec
    }
}

impl Pages for Listing {
    fn next_page(&mut self) -> Result<(Vec<Entry>, bool), Error> {
        let entries = self.page()?;
        Ok((entries, self.is_done()))
    }
}

impl Content for Reader {
    type Pieces = Pieces;
    type Reading = Reading;

    fn read(
        &self,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Pieces, Error>) + Send + 'static,
    ) -> Reading {
        Reader::read(self, at, bytes, done)
    }

    fn set_next(&self, next: impl FnOnce() -> Option<Version> + Send + 'static) {
        Reader::set_next(self, next);
    }
}

impl Account for Weight {
    fn set(&mut self, bytes: u64) {
        Weight::set(self, bytes);
    }

    fn is_over(&self) -> bool {
        Weight::is_over(self)
    }
}
