//! A listing of Python's, page after page.

use std::sync::Arc;

use flatout_engine::{Entry, Error, Listing};
use pyo3::prelude::*;

use crate::engine::Engine;
use crate::object_meta::ObjectMeta;
use crate::waiting;

/// Entries, and what is left of the listing behind them.
type Page = (Vec<Entry>, Option<Listing>);

/// What :meth:`Client.ls_pages` returns. It is for one thread at a time.
#[pyclass(module = "flatout._native")]
pub struct Pages {
    /// Gone for good once a page has failed or was given up. Goes before the engine.
    listing: Option<Listing>,
    bucket: String,
    engine: Arc<Engine>,
}

impl Pages {
    pub fn new(listing: Listing, bucket: String, engine: Arc<Engine>) -> Pages {
        Pages { listing: Some(listing), bucket, engine }
    }

    /// What is left of the listing, for whoever asks for the next page and puts the rest back, and the
    /// bucket.
    pub fn take(&mut self) -> (Option<Listing>, String) {
        (self.listing.take(), self.bucket.clone())
    }

    pub fn put(&mut self, rest: Option<Listing>) {
        self.listing = rest;
    }

    /// The next page that has an entry, and what is left behind it. Blocks.
    pub fn next_of(mut left: Option<Listing>) -> Result<Option<Page>, Error> {
        while let Some(mut listing) = left {
            let page = listing.page()?;
            left = (!listing.is_done()).then_some(listing);
            // A page may be empty though there is another.
            if !page.is_empty() {
                return Ok(Some((page, left)));
            }
        }
        Ok(None)
    }
}

#[pymethods]
impl Pages {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    pub fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Vec<ObjectMeta>>> {
        let listing = self.listing.take();
        let found = waiting::call(py, &self.engine, move || Pages::next_of(listing))?;
        let Some((page, rest)) = found else { return Ok(None) };
        self.listing = rest;
        Ok(Some(page.into_iter().map(|entry| ObjectMeta::of_entry(&self.bucket, entry)).collect()))
    }
}
