//! The verbs that write, for asyncio: each begins a call of [`Completions`], and returns its ticket.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flatout_engine::Source;
use pyo3::BoundObject;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments;
use crate::client::Client;
use crate::completions::Completions;
use crate::destination::Destination;
use crate::engine::Engine;
use crate::errors::OrRaise;
use crate::object_meta::ObjectMeta;
use crate::object_ref::parse_url;
use crate::put_options::PutOptions;
use crate::writer::Writer;
use crate::writes::{
    StopOnDrop, copied, copy_of, delete_each, delete_now, described_by, listed, made, put_of, put_of_buffer,
};

fn object<'py>(py: Python<'py>, value: impl IntoPyObject<'py>) -> PyResult<Py<PyAny>> {
    let value = value.into_pyobject(py).map_err(Into::into)?;
    Ok(value.into_any().unbind())
}

#[pyfunction]
#[pyo3(signature = (calls, client, url, data, options=None, progress=None))]
pub fn begin_write(
    py: Python<'_>,
    calls: &Completions,
    client: &Client,
    #[pyo3(from_py_with = arguments::url)] url: String,
    data: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<u64> {
    let (location, options) = (parse_url(py, "write", &url)?, PutOptions::of(options)?);
    let (put, buffer) = put_of_buffer(&location, data, options.clone())?;
    calls.begin(py, client, put, buffer, progress, move |py, result, buffer| {
        buffer.release(py);
        object(py, made(&url, &location, &options, result.or_raise(py)?))
    })
}

#[pyfunction]
#[pyo3(signature = (calls, client, path, url, options=None, progress=None))]
pub fn begin_upload(
    py: Python<'_>,
    calls: &Completions,
    client: &Client,
    path: PathBuf,
    #[pyo3(from_py_with = arguments::url)] url: String,
    options: Option<&Bound<'_, PyDict>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<u64> {
    let (location, options) = (parse_url(py, "upload", &url)?, PutOptions::of(options)?);
    let put = put_of(location.clone(), Source::File(path), options.clone());
    calls.begin(py, client, put, Destination::Origin, progress, move |py, result, _| {
        object(py, made(&url, &location, &options, result.or_raise(py)?))
    })
}

#[pyfunction]
#[pyo3(signature = (calls, client, url, version_id=None, if_match=None))]
pub fn begin_delete(
    py: Python<'_>,
    calls: &Completions,
    client: &Client,
    #[pyo3(from_py_with = arguments::url)] url: String,
    version_id: Option<String>,
    if_match: Option<String>,
) -> PyResult<u64> {
    let location = parse_url(py, "delete", &url)?;
    let work =
        move |engine: &Engine| delete_now(engine, &location, version_id.as_deref(), if_match.as_deref());
    calls.call(py, client, work, |py, ()| Ok(py.None()))
}

#[pyfunction]
#[pyo3(signature = (calls, client, urls, return_exceptions=false))]
pub fn begin_delete_many(
    py: Python<'_>,
    calls: &Completions,
    client: &Client,
    urls: &Bound<'_, PyAny>,
    return_exceptions: bool,
) -> PyResult<u64> {
    let locations = arguments::urls_to_delete(urls)?;
    let locations = locations.iter().map(|url| parse_url(py, "delete", url));
    let locations = locations.collect::<PyResult<Vec<_>>>()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stop_on_drop = StopOnDrop(stop.clone());
    let work = move |engine: &Engine| delete_each(engine, locations, &stop);
    calls.call(py, client, work, move |py, outcomes| {
        // Dropped unused where the call is cancelled.
        let _stop = stop_on_drop;
        let outcomes = outcomes.into_iter().map(|outcome| outcome.map(|()| None::<bool>)).collect();
        Ok(listed(py, outcomes, return_exceptions)?.into_any().unbind())
    })
}

/// The result is None where the two are of different services.
#[pyfunction]
#[pyo3(signature = (calls, client, source, target, version_id=None, options=None, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn begin_copy(
    py: Python<'_>,
    calls: &Completions,
    client: &Client,
    #[pyo3(from_py_with = arguments::source)] source: String,
    #[pyo3(from_py_with = arguments::target)] target: String,
    version_id: Option<String>,
    options: Option<&Bound<'_, PyDict>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<u64> {
    let (from, to) = (parse_url(py, "copy", &source)?, parse_url(py, "copy", &target)?);
    let (options, engine) = (PutOptions::of(options)?, client.engine(py)?);
    match copy_of(&engine, (from, to.clone()), version_id.as_deref(), options) {
        None => calls.call(py, client, |_| Ok(()), |py, ()| Ok(py.None())),
        Some(copy) => calls.begin(py, client, copy, Destination::Origin, progress, move |py, result, _| {
            object(py, copied(&target, &to, result.or_raise(py)?))
        }),
    }
}

#[pyfunction]
#[pyo3(signature = (calls, client, url, version_id=None))]
pub fn begin_described(
    py: Python<'_>,
    calls: &Completions,
    client: &Client,
    #[pyo3(from_py_with = arguments::url)] url: String,
    version_id: Option<String>,
) -> PyResult<u64> {
    let location = parse_url(py, "copy", &url)?;
    let work = {
        let location = location.clone();
        move |engine: &Engine| described_by(engine, &location, version_id.as_deref())
    };
    calls.call(py, client, work, move |py, (stat, options)| {
        let meta = ObjectMeta::of_stat(&url, &location, stat);
        object(py, (meta, options.named(py)?))
    })
}

/// Ends when the writer takes bytes, or has failed.
#[pyfunction]
pub fn begin_room(py: Python<'_>, calls: &Completions, client: &Client, writer: &Writer) -> PyResult<u64> {
    let writer = writer.awaited(py)?;
    let work = move |_: &Engine| {
        writer.wait_for_room();
        Ok(())
    };
    calls.call(py, client, work, |py, ()| Ok(py.None()))
}

/// As [`Writer::commit`].
#[pyfunction]
pub fn begin_commit(py: Python<'_>, calls: &Completions, client: &Client, writer: &Writer) -> PyResult<u64> {
    let writer = writer.awaited(py)?;
    calls.call(
        py,
        client,
        move |_| Ok(writer.commit()),
        |py, (done, progress)| {
            if let Some(progress) = progress {
                progress.end(py);
            }
            object(py, done.or_raise(py)?)
        },
    )
}

/// As [`Writer::abort`].
#[pyfunction]
pub fn begin_abort(py: Python<'_>, calls: &Completions, client: &Client, writer: &Writer) -> PyResult<u64> {
    let writer = writer.awaited(py)?;
    calls.call(
        py,
        client,
        move |_| Ok(writer.abort()),
        |py, progress| {
            if let Some(progress) = progress {
                progress.end(py);
            }
            Ok(py.None())
        },
    )
}

#[pyfunction]
pub fn begin_create_bucket(
    py: Python<'_>,
    calls: &Completions,
    client: &Client,
    #[pyo3(from_py_with = arguments::url)] url: String,
) -> PyResult<u64> {
    let location = parse_url(py, "make bucket", &url)?;
    calls.call(py, client, move |engine| engine.create_bucket(&location), |py, ()| Ok(py.None()))
}

#[pyfunction]
pub fn begin_delete_bucket(
    py: Python<'_>,
    calls: &Completions,
    client: &Client,
    #[pyo3(from_py_with = arguments::url)] url: String,
) -> PyResult<u64> {
    let location = parse_url(py, "delete bucket", &url)?;
    calls.call(py, client, move |engine| engine.delete_bucket(&location), |py, ()| Ok(py.None()))
}
