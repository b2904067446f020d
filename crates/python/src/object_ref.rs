//! The object that a call is about, and the version of it.

use std::sync::Arc;

use flatout_engine::{Dialect, ErrorKind, Get, Landing, Stat, Version};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use pyo3::prelude::*;

use crate::engine::Engine;
use crate::errors::{Failure, OrRaise, location};
use crate::waiting;

/// An object, and the version of it that is meant.
#[derive(Clone, Copy)]
pub struct ObjectRef<'a> {
    pub location: &'a Location,
    pub if_match: Option<&'a str>,
    pub version_id: Option<&'a str>,
}

impl<'a> ObjectRef<'a> {
    pub fn new(
        location: &'a Location,
        if_match: &'a Option<String>,
        version_id: &'a Option<String>,
    ) -> ObjectRef<'a> {
        ObjectRef { location, if_match: if_match.as_deref(), version_id: version_id.as_deref() }
    }

    /// A get of it, whose landing is for `OwnedTransfer` to set.
    pub fn get(&self) -> Get {
        let mut get = Get::new(self.location.clone(), Landing::Nowhere);
        if let Some(etag) = self.if_match {
            get = get.with_if_match(etag);
        }
        if let Some(version_id) = self.version_id {
            get = get.with_version_id(version_id);
        }
        get
    }
}

/// Looks into a read that failed: it is fine where the object has no bytes in that range, as a slice behind
/// its end has none. Sends a HEAD to find out; else the failure is returned.
pub fn confirm_empty(
    py: Python<'_>,
    engine: &Arc<Engine>,
    object: ObjectRef<'_>,
    span: &Span,
    failure: Failure,
) -> PyResult<Result<(), Failure>> {
    if !failure.may_be_of_nothing(span) {
        return Ok(Err(failure));
    }
    let ObjectRef { location, if_match, version_id } = object;
    let (called, asked, version_id) = (engine.clone(), location.clone(), version_id.map(str::to_owned));
    let stat = waiting::call(py, engine, move || Ok(called.stat_version(&asked, version_id.as_deref())))?;
    match stat {
        Ok(stat) if has_nothing(&stat, span, if_match) => Ok(Ok(())),
        _ => Ok(Err(failure)),
    }
}

/// Whether the object has no bytes in `span`; false where it is not the version `if_match`.
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

/// The size, which a range that counts from the end depends on.
///
/// # Errors
/// The origin does not tell it.
pub fn size_of(version: &Version, location: &Location) -> Result<u64, Failure> {
    version.size.ok_or_else(|| {
        let cause = "the origin does not tell the object's size";
        Failure::new(ErrorKind::Unsupported, "read", location, cause)
            .with_hint("read the whole object, or count from its start")
    })
}

/// The dialect that a URL's scheme means.
pub fn dialect(scheme: &str) -> Dialect {
    match scheme.trim_end_matches("://") {
        "s3" => Dialect::S3,
        "oss" => Dialect::Oss,
        _ => Dialect::Plain,
    }
}

/// The refusal of a range that is named in two ways.
pub fn two_ranges() -> Failure {
    Failure::usage("read", "offset and length name a range, and so do start and end")
        .with_hint("pass start and end, as in a slice, or offset and length")
}

/// The location that `url` means.
///
/// # Errors
/// UsageError, which says how objects are named.
pub fn parse_url(py: Python<'_>, doing: &str, url: &str) -> PyResult<Location> {
    location(doing, url).or_raise(py)
}
