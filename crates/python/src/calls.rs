//! What the client's verbs share: running a transfer, resolving ranges that need the object's size, a HEAD.

use std::ops::Range;
use std::sync::Arc;

use flatout_engine::{Report, Stat, Version};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use pyo3::prelude::*;

use crate::arguments::Ends;
use crate::call_progress::CallProgress;
use crate::client::Client;
use crate::destination::{Destination, OwnedTransfer, Request};
use crate::engine::Engine;
use crate::errors::{Failure, OrRaise};
use crate::object_ref::{ObjectRef, size_of};
use crate::span::{RangeRequest, range_request, within};
use crate::waiting;

impl Client {
    /// Runs a transfer to its end: its report, and the destination. When this returns, no thread writes to
    /// the destination.
    pub fn run(
        &self,
        py: Python<'_>,
        engine: &Engine,
        request: impl Into<Request>,
        destination: Destination,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Result<(Report, Destination), Failure>> {
        let request = request.into();
        let progress = CallProgress::begin(py, progress, request.name())?;
        let done = waiting::without_gil(py, || OwnedTransfer::start(engine, request, destination)).and_then(
            |started| match started {
                Ok(transfer) => {
                    progress.watch(&transfer);
                    let (result, destination) = waiting::finish(py, engine, transfer)?;
                    Ok(result.map(|report| (report, destination)))
                }
                Err(error) => Ok(Err(error.into())),
            },
        );
        progress.end(py);
        done
    }

    /// Ranges as they lie in the object. A HEAD is sent only where they depend on the size; its ETag then
    /// says of which version they are.
    pub fn resolve(
        &self,
        py: Python<'_>,
        engine: &Arc<Engine>,
        object: ObjectRef<'_>,
        ranges: &[Ends],
    ) -> PyResult<(Vec<Range<u64>>, Option<String>)> {
        let plain = |&(start, end): &Ends| match range_request(start, end) {
            RangeRequest::Span(Span::Slice(range)) => Some(range),
            RangeRequest::Empty => Some(0..0),
            _ => None,
        };
        let if_match = object.if_match.map(str::to_owned);
        if let Some(ranges) = ranges.iter().map(plain).collect() {
            return Ok((ranges, if_match));
        }
        let version = self.head(py, engine, object.location, object.version_id)?.version;
        let size = size_of(&version, object.location).or_raise(py)?;
        let ranges = ranges.iter().map(|&(start, end)| within(start, end, size)).collect();
        Ok((ranges, if_match.or(version.etag)))
    }

    /// The span of a read, and the ETag of the version that its ends count in; `None` where the range is
    /// empty.
    pub fn span(
        &self,
        py: Python<'_>,
        engine: &Arc<Engine>,
        object: ObjectRef<'_>,
        (start, end): Ends,
    ) -> PyResult<Option<(Span, Option<String>)>> {
        let if_match = object.if_match.map(str::to_owned);
        Ok(match range_request(start, end) {
            RangeRequest::Span(span) => Some((span, if_match)),
            RangeRequest::Empty => None,
            RangeRequest::NeedsSize => {
                let version = self.head(py, engine, object.location, object.version_id)?.version;
                let size = size_of(&version, object.location).or_raise(py)?;
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

    /// The version that there is now. An error of the object alone is the inner one, which the caller may
    /// hand on.
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
