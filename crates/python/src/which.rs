//! Which object a call is about, and which of its versions.

use std::sync::Arc;

use flatout_engine::{Dialect, ErrorKind, Get, Stat, Version};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use pyo3::prelude::*;

use crate::engine::Engine;
use crate::errors::{Failure, location};
use crate::waiting;

/// Which object a read is of, and which of its versions.
#[derive(Clone, Copy)]
pub struct Which<'a> {
    pub location: &'a Location,
    pub if_match: Option<&'a str>,
    pub version_id: Option<&'a str>,
}

/// Whether a read failed since the object has no bytes there, which is then asked: a slice behind the end is empty.
pub fn is_of_nothing(
    py: Python<'_>,
    engine: &Arc<Engine>,
    which: Which<'_>,
    span: &Span,
    failure: &Failure,
) -> PyResult<bool> {
    if !failure.may_be_of_nothing(span) {
        return Ok(false);
    }
    let Which { location, if_match, version_id } = which;
    let (called, asked, version_id) = (engine.clone(), location.clone(), version_id.map(str::to_owned));
    let told = waiting::call(py, engine, move || Ok(called.stat_version(&asked, version_id.as_deref())))?;
    Ok(told.is_ok_and(|stat| has_nothing(&stat, span, if_match)))
}

/// Whether an object, if it is that version, has no bytes there.
pub fn has_nothing(stat: &Stat, span: &Span, if_match: Option<&str>) -> bool {
    let Version { size: Some(size), etag, .. } = &stat.version else { return false };
    let bare = |etag: &str| etag.trim_matches('"').to_owned();
    let is_that = if_match.is_none_or(|wanted| etag.as_deref().map(bare) == Some(bare(wanted)));
    is_that
        && match span {
            Span::All => false,
            Span::Last(_) => *size == 0,
            Span::From(start) => start >= size,
            Span::Slice(range) => range.start >= *size,
        }
}

/// What is counted from the end needs a size.
pub fn told_size(version: &Version, location: &Location) -> Result<u64, Failure> {
    version.size.ok_or_else(|| {
        let cause = "the origin does not tell the object's size";
        Failure::new(ErrorKind::Unsupported, "read", location, cause)
            .with_hint("read the whole object, or count from its start")
    })
}

/// Whose buckets are meant.
pub fn dialect(scheme: &str) -> Dialect {
    match scheme.trim_end_matches("://") {
        "s3" => Dialect::S3,
        "oss" => Dialect::Oss,
        _ => Dialect::Plain,
    }
}

/// What names a range in two ways.
pub fn two_ranges() -> Failure {
    Failure::usage("read", "offset and length name a range, and so do start and end")
        .with_hint("pass start and end, as in a slice, or offset and length")
}

/// Only of that version, where one is named.
pub fn conditional(get: Get, if_match: Option<&str>) -> Get {
    match if_match {
        Some(etag) => get.with_if_match(etag),
        None => get,
    }
}

/// That version of the object, where one is named.
pub fn of_version(get: Get, version_id: Option<&str>) -> Get {
    match version_id {
        Some(version_id) => get.with_version_id(version_id),
        None => get,
    }
}

pub fn place(py: Python<'_>, doing: &str, url: &str) -> PyResult<Location> {
    location(doing, url).map_err(|failure| failure.raise(py))
}
