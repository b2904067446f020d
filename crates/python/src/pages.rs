//! A listing, page by page.

use std::sync::Arc;

use flatout_engine::{Entry, Error, Listing};
use pyo3::prelude::*;

use crate::engine::Engine;
use crate::object_meta::ObjectMeta;
use crate::waiting;

/// The entries of a page, and the rest of the listing.
type Page = (Vec<Entry>, Option<Listing>);

/// What :meth:`Client.ls_pages` returns: pages of entries. One thread takes them.
#[pyclass(module = "flatout._native")]
pub struct Pages {
    /// The rest; none once a page has failed or was given up. Dropped before the engine.
    listing: Option<Listing>,
    bucket: String,
    engine: Arc<Engine>,
}

impl Pages {
    pub fn new(listing: Listing, bucket: String, engine: Arc<Engine>) -> Pages {
        Pages { listing: Some(listing), bucket, engine }
    }

    /// Takes the rest of the listing, to be put back behind its next page; and the bucket.
    pub fn take(&mut self) -> (Option<Listing>, String) {
        (self.listing.take(), self.bucket.clone())
    }

    pub fn put(&mut self, rest: Option<Listing>) {
        self.listing = rest;
    }

    /// The next page that has an entry, and the rest of the listing. Blocks.
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
