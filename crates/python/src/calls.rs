//! What the client's verbs have in common: a transfer that is waited for, ranges that need an object's size, a HEAD.

use std::ops::Range;
use std::sync::Arc;

use flatout_engine::{Get, Report, Stat, Version};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use pyo3::prelude::*;

use crate::arguments::Ends;
use crate::client::Client;
use crate::engine::Engine;
use crate::errors::Failure;
use crate::span::{Asked, asked, within};
use crate::waiting;
use crate::watching::Watching;
use crate::which::{Which, told_size};

impl Client {
    /// Gets and waits. When this returns, nothing touches the landing any more.
    pub fn run(
        &self,
        py: Python<'_>,
        engine: &Engine,
        get: Get,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Result<Report, Failure>> {
        let watching = Watching::begin(py, progress, get.location.name())?;
        let done = waiting::briefly(py, || engine.get(get)).and_then(|started| {
            let transfer = match started {
                Ok(transfer) => transfer,
                Err(error) => return Ok(Err(error.into())),
            };
            watching.watch(|| transfer.watch());
            waiting::report(py, engine, transfer)
        });
        watching.end(py);
        done
    }

    /// Ranges of an object as it stands, whose size is asked for only if it matters; with the ETag that was found then.
    pub fn resolve(
        &self,
        py: Python<'_>,
        engine: &Arc<Engine>,
        which: Which<'_>,
        ranges: &[Ends],
    ) -> PyResult<(Vec<Range<u64>>, Option<String>)> {
        let plain = |&(start, end): &Ends| match asked(start, end) {
            Asked::Span(Span::Slice(range)) => Some(range),
            Asked::Nothing => Some(0..0),
            _ => None,
        };
        let if_match = which.if_match.map(str::to_owned);
        if let Some(ranges) = ranges.iter().map(plain).collect() {
            return Ok((ranges, if_match));
        }
        let version = self.head(py, engine, which.location, which.version_id)?.version;
        let size = told_size(&version, which.location).map_err(|failure| failure.raise(py))?;
        let ranges = ranges.iter().map(|&(start, end)| within(start, end, size)).collect();
        Ok((ranges, if_match.or(version.etag)))
    }

    /// What a read asks for, with the version that its ends are of; `None` where that is no byte.
    pub fn span(
        &self,
        py: Python<'_>,
        engine: &Arc<Engine>,
        which: Which<'_>,
        (start, end): Ends,
    ) -> PyResult<Option<(Span, Option<String>)>> {
        let if_match = which.if_match.map(str::to_owned);
        Ok(match asked(start, end) {
            Asked::Span(span) => Some((span, if_match)),
            Asked::Nothing => None,
            Asked::Relative => {
                let version = self.head(py, engine, which.location, which.version_id)?.version;
                let size = told_size(&version, which.location).map_err(|failure| failure.raise(py))?;
                let range = within(start, end, size);
                (!range.is_empty()).then(|| (Span::Slice(range), if_match.or(version.etag)))
            }
        })
    }

    pub fn head(
        &self,
        py: Python<'_>,
        engine: &Arc<Engine>,
        location: &Location,
        version_id: Option<&str>,
    ) -> PyResult<Stat> {
        let (called, location, version_id) =
            (engine.clone(), location.clone(), version_id.map(str::to_owned));
        waiting::call(py, engine, move || called.stat_version(&location, version_id.as_deref()))
    }

    /// The version there is; an error that concerns the object alone is for the caller to tell.
    pub fn version(
        &self,
        py: Python<'_>,
        engine: &Arc<Engine>,
        location: &Location,
        version_id: Option<&str>,
    ) -> PyResult<Result<Version, Failure>> {
        let (called, location, version_id) =
            (engine.clone(), location.clone(), version_id.map(str::to_owned));
        waiting::call(py, engine, move || {
            let stat = called.stat_version(&location, version_id.as_deref());
            Ok(stat.map(|stat| stat.version).map_err(Failure::from))
        })
    }
}
