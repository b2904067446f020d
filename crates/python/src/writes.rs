//! The verbs that write: functions of a client, which `flatout.Client` has as methods.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatout_engine::{Deletion, Error, ErrorKind, Put, Report, ServerCopy, Source, Stat};
use flatout_wire::location::Location;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::arguments;
use crate::borrowed_buffer::ReadableBuffer;
use crate::call_progress::CallProgress;
use crate::client::Client;
use crate::destination::{Destination, Request};
use crate::engine::Engine;
use crate::errors::{Failure, OrRaise};
use crate::many::CONCURRENCY;
use crate::object_meta::ObjectMeta;
use crate::object_ref::parse_url;
use crate::put_options::PutOptions;
use crate::transfer_set::{Order, TransferSet};
use crate::waiting;

/// The put of an object, whose source comes with it or with its destination.
pub fn put_of(location: Location, source: Source, options: PutOptions) -> Put {
    let options = options.typed_by(location.name());
    Put::new(location, source).with_options(options.stored_as).on_condition(options.condition)
}

/// The put of a buffer, and the buffer.
///
/// # Errors
/// TypeError for an object without a buffer.
pub fn put_of_buffer(
    location: &Location,
    data: &Bound<'_, PyAny>,
    options: PutOptions,
) -> PyResult<(Put, Destination)> {
    let buffer = ReadableBuffer::named("data", data)?;
    let put = put_of(location.clone(), Source::Synthetic(0), options);
    Ok((put, Destination::Uploaded(buffer)))
}

/// A new object as the answer described it, and the options that it was stored with.
pub fn made(url: &str, location: &Location, options: &PutOptions, report: Report) -> ObjectMeta {
    let mut meta = ObjectMeta::of_stat(url, location, report.stat.unwrap_or_default());
    let stored = options.clone().typed_by(location.name()).stored_as;
    meta.size = Some(report.bytes);
    meta.content_type = stored.content_type;
    meta.metadata = stored.metadata.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
    meta.storage_class = meta.storage_class.or(stored.storage_class);
    meta
}

#[pyfunction]
#[pyo3(signature = (client, url, data, options=None, progress=None))]
pub fn write(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    #[pyo3(from_py_with = arguments::url)] url: String,
    data: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<ObjectMeta> {
    let (location, options) = (parse_url(py, "write", &url)?, PutOptions::of(options)?);
    let (put, buffer) = put_of_buffer(&location, data, options.clone())?;
    let engine = client.get().engine(py)?;
    let (report, buffer) = client.get().run(py, &engine, put, buffer, progress)?.or_raise(py)?;
    buffer.release(py);
    Ok(made(&url, &location, &options, report))
}

#[pyfunction]
#[pyo3(signature = (client, path, url, options=None, progress=None))]
pub fn upload(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    path: PathBuf,
    #[pyo3(from_py_with = arguments::url)] url: String,
    options: Option<&Bound<'_, PyDict>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<ObjectMeta> {
    let (location, options) = (parse_url(py, "upload", &url)?, PutOptions::of(options)?);
    let put = put_of(location.clone(), Source::File(path), options.clone());
    let engine = client.get().engine(py)?;
    let (report, _) = client.get().run(py, &engine, put, Destination::Origin, progress)?.or_raise(py)?;
    Ok(made(&url, &location, &options, report))
}

#[pyfunction]
#[pyo3(signature = (client, pairs, options=None, progress=None, return_exceptions=false))]
pub fn upload_many<'py>(
    py: Python<'py>,
    client: &Bound<'py, Client>,
    #[pyo3(from_py_with = arguments::path_pairs)] pairs: Vec<(PathBuf, String)>,
    options: Option<&Bound<'py, PyDict>>,
    progress: Option<&Bound<'py, PyAny>>,
    return_exceptions: bool,
) -> PyResult<Bound<'py, PyList>> {
    let options = PutOptions::of(options)?;
    let pairs = pairs.into_iter().map(|(path, url)| Ok((parse_url(py, "upload", &url)?, path, url)));
    let pairs = pairs.collect::<PyResult<Vec<_>>>()?;
    let engine = client.get().engine(py)?;
    let progress = CallProgress::begin(py, progress, &format!("{} files", pairs.len()))?;
    let done = each_uploaded(py, &engine, pairs, &options, &progress);
    progress.end(py);
    listed(py, done?, return_exceptions)
}

/// Uploads them, as many at a time as is worth it: for each what became of it.
fn each_uploaded(
    py: Python<'_>,
    engine: &Arc<Engine>,
    pairs: Vec<(Location, PathBuf, String)>,
    options: &PutOptions,
    progress: &CallProgress,
) -> PyResult<Vec<Result<ObjectMeta, Failure>>> {
    let mut outcomes: Vec<Option<Result<ObjectMeta, Failure>>> = Vec::new();
    outcomes.resize_with(pairs.len(), || None);
    let mut pairs = (0..).zip(pairs);
    let mut uploads = TransferSet::new(engine.clone(), Order::End);
    let place = |number: u64| usize::try_from(number).expect("there are as many pairs");
    loop {
        while uploads.running().len() < CONCURRENCY
            && let Some((number, (location, path, url))) = pairs.next()
        {
            let put = put_of(location.clone(), Source::File(path), options.clone());
            match uploads.start(py, number, put, Destination::Origin, (location, url))? {
                Ok(transfer) => progress.watch(transfer),
                Err(failure) => outcomes[place(number)] = Some(Err(failure)),
            }
        }
        let Some(ended) = uploads.next(py)? else { break };
        let (location, url) = ended.item;
        let outcome = ended.result.map(|report| made(&url, &location, options, report));
        outcomes[place(ended.number)] = Some(outcome);
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.expect("each has ended")).collect())
}

/// What became of each, or the first exception.
pub fn listed<'py, T: IntoPyObject<'py>>(
    py: Python<'py>,
    outcomes: Vec<Result<T, Failure>>,
    return_exceptions: bool,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for outcome in outcomes {
        match outcome {
            Ok(done) => list.append(done)?,
            Err(failure) if return_exceptions => list.append(failure.exception(py)?)?,
            Err(failure) => return Err(failure.raise(py)),
        }
    }
    Ok(list)
}

/// Deletes an object.
///
/// # Errors
/// The origin's refusal, or the network's.
pub fn delete_now(
    engine: &Engine,
    location: &Location,
    version_id: Option<&str>,
    if_match: Option<&str>,
) -> Result<(), Error> {
    match if_match {
        Some(etag) if version_id.is_none() => engine.delete_if_match(location, etag),
        Some(_) => {
            Err(Error::new(ErrorKind::Usage, "if_match is of the newest version, and version_id of any"))
        }
        None => engine.delete(location, version_id),
    }
}

#[pyfunction]
#[pyo3(signature = (client, url, version_id=None, if_match=None))]
pub fn delete(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    #[pyo3(from_py_with = arguments::url)] url: String,
    version_id: Option<String>,
    if_match: Option<String>,
) -> PyResult<()> {
    let location = parse_url(py, "delete", &url)?;
    let engine = client.get().engine(py)?;
    let called = engine.clone();
    waiting::call(py, &engine, move || {
        delete_now(&called, &location, version_id.as_deref(), if_match.as_deref())
    })
}

/// Has a deletion of many objects end early when it is dropped.
pub struct StopOnDrop(pub Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Deletes objects, until `stop`: what became of each, in their order.
///
/// # Errors
/// The client is closed, or no thread can be started.
pub fn delete_each(
    engine: &Engine,
    locations: Vec<Location>,
    stop: &AtomicBool,
) -> Result<Vec<Result<(), Failure>>, Error> {
    let unknown = || Failure::new(ErrorKind::Cancelled, "delete", "", "it was not asked for");
    let mut outcomes: Vec<Result<(), Failure>> = Vec::new();
    outcomes.resize_with(locations.len(), || Err(unknown()));
    let mut places: HashMap<Location, Vec<usize>> = HashMap::with_capacity(locations.len());
    for (place, location) in locations.into_iter().enumerate() {
        places.entry(location).or_default().push(place);
    }
    let deletions: Vec<_> = places.keys().map(|of| Ok(Deletion { location: of.clone(), bytes: 0 })).collect();
    let ended = engine.delete_many(deletions.into_iter(), &mut |deleted| {
        for deleted in deleted {
            let outcome = deleted.result.map_err(Failure::from);
            for place in places.get(&deleted.deletion.location).into_iter().flatten() {
                outcomes[*place] = outcome.clone();
            }
        }
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match ended.incomplete {
        Some(error) => Err(error),
        None => Ok(outcomes),
    }
}

#[pyfunction]
#[pyo3(signature = (client, urls, return_exceptions=false))]
pub fn delete_many<'py>(
    py: Python<'py>,
    client: &Bound<'py, Client>,
    urls: &Bound<'py, PyAny>,
    return_exceptions: bool,
) -> PyResult<Bound<'py, PyList>> {
    let locations = arguments::urls_to_delete(urls)?;
    let locations = locations.iter().map(|url| parse_url(py, "delete", url));
    let locations = locations.collect::<PyResult<Vec<_>>>()?;
    let engine = client.get().engine(py)?;
    let (called, stop) = (engine.clone(), Arc::new(AtomicBool::new(false)));
    let _stop = StopOnDrop(stop.clone());
    let done = waiting::call(py, &engine, move || delete_each(&called, locations, &stop))?;
    let done = done.into_iter().map(|outcome| outcome.map(|()| None::<bool>)).collect();
    listed(py, done, return_exceptions)
}

#[pyfunction]
pub fn create_bucket(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    #[pyo3(from_py_with = arguments::url)] url: String,
) -> PyResult<()> {
    let location = parse_url(py, "make bucket", &url)?;
    let engine = client.get().engine(py)?;
    let called = engine.clone();
    waiting::call(py, &engine, move || called.create_bucket(&location))
}

#[pyfunction]
pub fn delete_bucket(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    #[pyo3(from_py_with = arguments::url)] url: String,
) -> PyResult<()> {
    let location = parse_url(py, "delete bucket", &url)?;
    let engine = client.get().engine(py)?;
    let called = engine.clone();
    waiting::call(py, &engine, move || called.delete_bucket(&location))
}

/// A copy within a service; none where the two are of different ones.
pub fn copy_of(
    engine: &Engine,
    (from, to): (Location, Location),
    version_id: Option<&str>,
    options: PutOptions,
) -> Option<Request> {
    if !engine.copies_within_service(&from, &to) {
        return None;
    }
    let copy =
        ServerCopy::new(from, to.clone()).with_options(options.stored_as).on_condition(options.condition);
    let copy = match version_id {
        Some(version_id) => copy.of_version(version_id),
        None => copy,
    };
    Some(Request::Copy(copy, to))
}

/// The copy, and the ETag of the version that was copied.
pub fn copied(url: &str, location: &Location, report: Report) -> (ObjectMeta, Option<String>) {
    let from = report.stat.as_ref().and_then(|stat| stat.version.etag.clone());
    let mut stat = report.stat.unwrap_or_default();
    stat.version = report.version;
    stat.version_id = None;
    let mut meta = ObjectMeta::of_stat(url, location, stat);
    meta.size = Some(report.bytes);
    (meta, from)
}

/// An object, and the options that one which is stored as it is made with.
#[pyfunction]
#[pyo3(signature = (client, url, version_id=None))]
pub fn described<'py>(
    py: Python<'py>,
    client: &Bound<'py, Client>,
    #[pyo3(from_py_with = arguments::url)] url: String,
    version_id: Option<String>,
) -> PyResult<(ObjectMeta, Bound<'py, PyDict>)> {
    let location = parse_url(py, "copy", &url)?;
    let engine = client.get().engine(py)?;
    let (called, of) = (engine.clone(), location.clone());
    let work = move || described_by(&called, &of, version_id.as_deref());
    let (stat, options) = waiting::call(py, &engine, work)?;
    Ok((ObjectMeta::of_stat(&url, &location, stat), options.named(py)?))
}

/// An object, and what one that is stored as it is made with.
///
/// # Errors
/// The origin's refusal, or the network's.
pub fn described_by(
    engine: &Engine,
    location: &Location,
    version_id: Option<&str>,
) -> Result<(Stat, PutOptions), Error> {
    let stat = engine.stat_version(location, version_id)?;
    let mut stored_as = stat.described();
    if location.bucket().is_some() {
        stored_as.tags = engine.tags(location)?;
    }
    Ok((stat, PutOptions { stored_as, ..PutOptions::default() }))
}

/// None where the two are of different services.
#[pyfunction]
#[pyo3(signature = (client, source, target, version_id=None, options=None, progress=None))]
pub fn copy(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    #[pyo3(from_py_with = arguments::source)] source: String,
    #[pyo3(from_py_with = arguments::target)] target: String,
    version_id: Option<String>,
    options: Option<&Bound<'_, PyDict>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<(ObjectMeta, Option<String>)>> {
    let (from, to) = (parse_url(py, "copy", &source)?, parse_url(py, "copy", &target)?);
    let options = PutOptions::of(options)?;
    let engine = client.get().engine(py)?;
    let Some(copy) = copy_of(&engine, (from, to.clone()), version_id.as_deref(), options) else {
        return Ok(None);
    };
    let (report, _) = client.get().run(py, &engine, copy, Destination::Origin, progress)?.or_raise(py)?;
    Ok(Some(copied(&target, &to, report)))
}
