//! The client of Python: a recipe, frozen and picklable, and the engine that each process makes from it at the first use.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatout_ambient::masked;
use flatout_engine::{
    Dialect, Entry, ErrorKind, Get, Landing, Listing, Made, Object, ReaderStats, Report, Stat, Version,
};
use flatout_wire::head::quoted;
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use flatout_wire::time::parse_http;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyTuple};

use crate::buffer::Buffer;
use crate::engine::{self, Engine};
use crate::errors::{Failure, location};
use crate::exit;
use crate::file::File;
use crate::info::Info;
use crate::lent::Lent;
use crate::many::{self, Options, ReadMany};
use crate::per_process::PerProcess;
use crate::range_reads::{Reads, Target};
use crate::ranges::GAP_BYTES;
use crate::settings::{Pairs, has_password, is_address, pairs, with_password};
use crate::span::{Asked, asked, from, within};
use crate::waiting;
use crate::watching::Watching;

/// Reads objects of S3, OSS and plain HTTP. See `flatout.Client`.
#[pyclass(frozen, subclass, weakref, dict, module = "flatout._native")]
pub struct Client {
    /// As they were given, for a pickle.
    given: Py<PyDict>,
    pairs: Pairs,
    engine: PerProcess<Engine>,
    is_closed: AtomicBool,
}

impl Client {
    /// The engine of this process, made if need be.
    pub fn engine(&self, py: Python<'_>) -> PyResult<Arc<Engine>> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(Engine::closed().with_hint("make a new Client()").raise(py));
        }
        if let Some(engine) = self.engine.known() {
            return Ok(engine);
        }
        let siblings = engine::siblings(py)?;
        let made = waiting::briefly(py, || self.engine.get(|| Engine::new(&self.pairs, siblings)))?;
        made.map_err(|failure| failure.raise(py))
    }

    /// Gets and waits. When this returns, nothing touches the landing any more.
    fn run(
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
    fn resolve(
        &self,
        py: Python<'_>,
        engine: &Arc<Engine>,
        location: &Location,
        ranges: &[(Option<i64>, Option<i64>)],
        if_match: Option<String>,
    ) -> PyResult<(Vec<Range<u64>>, Option<String>)> {
        let plain = |&(start, end): &(Option<i64>, Option<i64>)| match asked(start, end) {
            Asked::Span(Span::Slice(range)) => Some(range),
            Asked::Nothing => Some(0..0),
            _ => None,
        };
        if let Some(ranges) = ranges.iter().map(plain).collect() {
            return Ok((ranges, if_match));
        }
        let version = self.head(py, engine, location)?.version;
        let size = told_size(&version, location).map_err(|failure| failure.raise(py))?;
        let ranges = ranges.iter().map(|&(start, end)| within(start, end, size)).collect();
        Ok((ranges, if_match.or(version.etag)))
    }

    fn head(&self, py: Python<'_>, engine: &Arc<Engine>, location: &Location) -> PyResult<Stat> {
        let (called, location) = (engine.clone(), location.clone());
        waiting::call(py, engine, move || called.stat(&location))
    }

    /// The version there is; an error that concerns the object alone is for the caller to tell.
    pub fn version(
        &self,
        py: Python<'_>,
        engine: &Arc<Engine>,
        location: &Location,
    ) -> PyResult<Result<Version, Failure>> {
        let (called, location) = (engine.clone(), location.clone());
        waiting::call(py, engine, move || {
            Ok(called.stat(&location).map(|stat| stat.version).map_err(Failure::from))
        })
    }
}

/// Whether a read failed since the object has no bytes there, which is then asked: a slice behind the end is empty.
pub fn is_of_nothing(
    py: Python<'_>,
    engine: &Arc<Engine>,
    location: &Location,
    span: &Span,
    if_match: Option<&str>,
    failure: &Failure,
) -> PyResult<bool> {
    if !failure.may_be_of_nothing(span) {
        return Ok(false);
    }
    let (called, asked) = (engine.clone(), location.clone());
    let told = waiting::call(py, engine, move || Ok(called.stat(&asked)))?;
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

/// Only of that version, where one is named.
pub fn conditional(get: Get, if_match: Option<&str>) -> Get {
    match if_match {
        Some(etag) => get.with_if_match(etag),
        None => get,
    }
}

/// Where each range goes: a buffer of the caller's, or one made for it.
fn targets(py: Python<'_>, ranges: &[Range<u64>], out: Option<&[Bound<'_, PyAny>]>) -> PyResult<Vec<Target>> {
    let bytes = |range: &Range<u64>| usize::try_from(range.end - range.start).expect("a word has 64 bits");
    let Some(out) = out else {
        return Ok(ranges.iter().map(|_| Target::Own(None)).collect());
    };
    if out.len() != ranges.len() {
        let cause = format!("{} buffers for {} ranges", out.len(), ranges.len());
        return Err(Failure::usage("read", cause).with_hint("pass as many buffers as ranges").raise(py));
    }
    let lent = out.iter().map(Lent::new).collect::<PyResult<Vec<_>>>()?;
    if let Some(at) = lent.iter().zip(ranges).position(|(lent, range)| lent.len() < bytes(range)) {
        let cause =
            format!("buffer {at} holds {} bytes, its range has {}", lent[at].len(), bytes(&ranges[at]));
        return Err(Failure::usage("read", cause)
            .with_hint("pass a larger buffer, or a shorter range")
            .raise(py));
    }
    let mut places: Vec<_> = lent
        .iter()
        .zip(ranges)
        .enumerate()
        .map(|(at, (lent, range))| (lent.place(bytes(range)), at))
        .collect();
    places.retain(|(place, _)| !place.is_empty());
    places.sort_by_key(|(place, _)| place.start);
    let meets = |pair: &&[(Range<usize>, usize)]| pair[1].0.start < pair[0].0.end;
    if let Some([(_, one), (_, other)]) = places.windows(2).find(meets) {
        let cause = format!("buffers {} and {} have bytes in common", one.min(other), one.max(other));
        return Err(Failure::usage("read", cause)
            .with_hint("pass a buffer of its own for each range")
            .raise(py));
    }
    Ok(lent.into_iter().map(Target::Lent).collect())
}

pub fn place(py: Python<'_>, doing: &str, url: &str) -> PyResult<Location> {
    location(doing, url).map_err(|failure| failure.raise(py))
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (settings=None, *_args, **_named))]
    fn new(
        py: Python<'_>,
        settings: Option<&Bound<'_, PyDict>>,
        _args: &Bound<'_, PyTuple>,
        _named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Client> {
        let given = match settings {
            Some(settings) => settings.copy()?,
            None => PyDict::new(py),
        };
        let pairs = pairs(&given)?;
        Ok(Client {
            given: given.unbind(),
            pairs,
            engine: PerProcess::new(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The settings it was made with, as a new dict.
    #[getter]
    pub fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let given = self.given.bind(py).copy()?;
        match with_password(&self.pairs) {
            None => Ok(given),
            Some(name) => Err(Failure::usage(
                "settings",
                format!("'{}' holds a password, which is not handed on", name.replace('-', "_")),
            )
            .with_hint(format!("set FLATOUT_{} instead", name.to_uppercase().replace('-', "_")))
            .raise(py)),
        }
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>,)> {
        Ok((self.settings(py)?,))
    }

    /// The most memory that its engine may take in this process, in bytes; buffers of the caller's and what reads return are no
    /// part of it.
    #[getter]
    fn memory_limit(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.engine(py)?.memory_bytes)
    }

    /// What reading files has come to so far, of all of them in this process: counts by name, in bytes or reads.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let engine = self.engine(py)?;
        let (ReaderStats { served_bytes, fetched_bytes, wasted_bytes, hits, waits, random, whole, .. }, held) =
            (engine.reader_stats(), engine.memory_held());
        let counts = [
            ("served_bytes", served_bytes),
            ("fetched_bytes", fetched_bytes),
            ("wasted_bytes", wasted_bytes),
            ("hits", hits),
            ("waits", waits),
            ("random", random),
            ("whole", whole),
            ("memory_held", held),
        ];
        counts.into_py_dict(py)
    }

    fn __repr__(&self) -> String {
        let shown = |(name, value): &(&str, String)| {
            let value = match (is_address(name), has_password(name, value)) {
                (true, _) => &masked(value),
                (false, true) => "***",
                (false, false) => value,
            };
            format!("{}={value:?}", name.replace('-', "_"))
        };
        format!("Client({})", self.pairs.iter().map(shown).collect::<Vec<_>>().join(", "))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Ends what runs on it; whoever waits is told by Cancelled. It cannot be used after. Calling it again does nothing.
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::SeqCst);
        exit::detached(py, || {
            if let Some(engine) = self.engine.take() {
                engine.close();
            }
        });
    }

    #[pyo3(signature = (url, start=None, end=None, *, if_match=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        py: Python<'_>,
        url: &str,
        start: Option<i64>,
        end: Option<i64>,
        if_match: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Buffer> {
        let location = place(py, "read", url)?;
        let engine = self.engine(py)?;
        let (span, if_match) = match asked(start, end) {
            Asked::Span(span) => (span, if_match),
            Asked::Nothing => return Ok(Buffer::empty()),
            Asked::Relative => {
                let version = self.head(py, &engine, &location)?.version;
                let size = told_size(&version, &location).map_err(|failure| failure.raise(py))?;
                let range = within(start, end, size);
                if range.is_empty() {
                    return Ok(Buffer::empty());
                }
                (Span::Slice(range), if_match.or(version.etag))
            }
        };
        let made = Made::new();
        let get = Get::new(location.clone(), Landing::Made(made.clone())).with_span(span.clone());
        if let Err(failure) = self.run(py, &engine, conditional(get, if_match.as_deref()), progress)? {
            return match is_of_nothing(py, &engine, &location, &span, if_match.as_deref(), &failure)? {
                true => Ok(Buffer::empty()),
                false => Err(failure.raise(py)),
            };
        }
        made.take().map(Buffer::from).ok_or_else(|| Failure::panicked().raise(py))
    }

    #[pyo3(signature = (url, buffer, *, offset=0, length=None, if_match=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn readinto(
        &self,
        py: Python<'_>,
        url: &str,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        length: Option<u64>,
        if_match: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let location = place(py, "read", url)?;
        let lent = Lent::new(buffer)?;
        if length == Some(0) {
            return Ok(0);
        }
        let span = from(offset, length);
        let engine = self.engine(py)?;
        // SAFETY: `run` returns when the transfer has ended, however it did, and `lent` is held until then.
        let landing = Landing::Memory(unsafe { lent.memory(0, lent.len()) });
        let get = Get::new(location.clone(), landing).with_span(span.clone());
        let done = self.run(py, &engine, conditional(get, if_match.as_deref()), progress);
        lent.release(py);
        match done? {
            Ok(report) => Ok(report.bytes),
            Err(failure) => {
                match is_of_nothing(py, &engine, &location, &span, if_match.as_deref(), &failure)? {
                    true => Ok(0),
                    false => Err(failure.raise(py)),
                }
            }
        }
    }

    /// A file, whole and verified before it appears; see `flatout.Client.download`.
    #[pyo3(signature = (url, path, *, if_match=None, progress=None))]
    fn download(
        &self,
        py: Python<'_>,
        url: &str,
        path: PathBuf,
        if_match: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let get = Get::new(place(py, "read", url)?, Landing::File(path));
        let engine = self.engine(py)?;
        let done = self.run(py, &engine, conditional(get, if_match.as_deref()), progress)?;
        Ok(done.map_err(|failure| failure.raise(py))?.bytes)
    }

    /// Several files; see `flatout.Client.download_many`.
    #[pyo3(signature = (pairs, *, progress=None, return_exceptions=false))]
    fn download_many<'py>(
        &self,
        py: Python<'py>,
        pairs: Vec<(String, PathBuf)>,
        progress: Option<&Bound<'py, PyAny>>,
        return_exceptions: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let pairs = pairs.into_iter().map(|(url, path)| Ok((place(py, "read", &url)?, path)));
        let pairs = pairs.collect::<PyResult<Vec<_>>>()?;
        let engine = self.engine(py)?;
        let watching = Watching::begin(py, progress, &format!("{} files", pairs.len()))?;
        let done = many::download_many(py, &engine, pairs, &watching);
        watching.end(py);
        let outcomes = PyList::empty(py);
        for outcome in done? {
            match outcome {
                Ok(bytes) => outcomes.append(bytes)?,
                Err(failure) if return_exceptions => outcomes.append(failure.exception(py)?)?,
                Err(failure) => return Err(failure.raise(py)),
            }
        }
        Ok(outcomes)
    }

    /// Many objects; see `flatout.Client.read_many`.
    #[pyo3(signature = (urls, *, ordered=true, concurrency=None, return_exceptions=false, progress=None))]
    fn read_many<'py>(
        slf: Bound<'py, Self>,
        urls: &Bound<'py, PyAny>,
        ordered: bool,
        concurrency: Option<usize>,
        return_exceptions: bool,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<ReadMany> {
        let py = slf.py();
        let concurrency = concurrency.unwrap_or(many::CONCURRENCY);
        if concurrency == 0 {
            return Err(Failure::usage("read", "concurrency is 1 or more").raise(py));
        }
        let engine = slf.get().engine(py)?;
        let watching = Watching::begin(py, progress, "objects")?;
        let options = Options { ordered, concurrency, return_exceptions };
        Ok(ReadMany::new(slf.unbind(), engine, urls.try_iter()?, options, watching))
    }

    /// Several ranges; see `flatout.Client.read_ranges`.
    #[pyo3(signature = (url, ranges, *, if_match=None, max_gap=None, out=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        url: &str,
        ranges: Vec<(Option<i64>, Option<i64>)>,
        if_match: Option<String>,
        max_gap: Option<u64>,
        out: Option<Vec<Bound<'py, PyAny>>>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let location = place(py, "read", url)?;
        let engine = self.engine(py)?;
        let (ranges, if_match) = self.resolve(py, &engine, &location, &ranges, if_match)?;
        let mut targets = targets(py, &ranges, out.as_deref())?;
        let watching = Watching::begin(py, progress, location.name())?;
        let (max_gap, if_match) = (max_gap.unwrap_or(GAP_BYTES), if_match.as_deref());
        let reads = Reads { engine: &engine, location: &location, if_match, max_gap, watching: &watching };
        let filled = reads.read(py, &ranges, &mut targets);
        watching.end(py);
        if out.is_some() {
            targets.into_iter().for_each(|target| target.release(py));
            return PyList::new(py, filled?);
        }
        filled?;
        let buffers = targets.into_iter().map(Target::buffer);
        PyList::new(py, buffers.collect::<Vec<_>>())
    }

    /// An object to be read here and there; see `flatout.Client.file`.
    #[pyo3(signature = (url, *, size=None, etag=None, modified=None))]
    fn file(
        slf: Bound<'_, Self>,
        url: String,
        size: Option<u64>,
        etag: Option<String>,
        modified: Option<f64>,
    ) -> PyResult<File> {
        let (py, client) = (slf.py(), slf.get());
        let location = place(py, "read", &url)?;
        // As `if_match` is taken elsewhere.
        let etag = etag.map(|etag| quoted(&etag).into_owned());
        let modified_s = modified.filter(|s| *s >= 0.0).map(|s| s as u64);
        let object = match size {
            Some(size) => Object { location, size, etag, modified_s },
            None => {
                let engine = client.engine(py)?;
                let version = client.head(py, &engine, &location)?.version;
                let told = told_size(&version, &location);
                let Version { etag: found, last_modified, .. } = version;
                if etag.is_some() && etag != found {
                    let cause = format!(
                        "the ETag is {}, not {}",
                        found.as_deref().unwrap_or("none"),
                        etag.as_deref().unwrap_or("none")
                    );
                    return Err(Failure::new(ErrorKind::Changed, "read", &location, cause).raise(py));
                }
                let size = told.map_err(|failure| failure.raise(py))?;
                let modified_s = last_modified.as_deref().and_then(parse_http);
                Object { location, size, etag: found, modified_s }
            }
        };
        Ok(File::new(slf.unbind(), url, object))
    }

    /// A URL that reads an object without keys; see `flatout.Client.presign`.
    #[pyo3(signature = (url, *, expires=3600))]
    fn presign(&self, py: Python<'_>, url: &str, expires: u64) -> PyResult<String> {
        let location = place(py, "presign", url)?;
        let engine = self.engine(py)?;
        let called = engine.clone();
        waiting::call(py, &engine, move || called.presign(&location, expires))
    }

    fn stat(&self, py: Python<'_>, url: &str) -> PyResult<Info> {
        let location = place(py, "stat", url)?;
        let engine = self.engine(py)?;
        let stat = self.head(py, &engine, &location)?;
        Ok(Info::of_stat(url, &location, stat))
    }

    fn exists(&self, py: Python<'_>, url: &str) -> PyResult<bool> {
        let location = place(py, "stat", url)?;
        let engine = self.engine(py)?;
        match self.version(py, &engine, &location)? {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_not_found() => Ok(false),
            Err(failure) => Err(failure.raise(py)),
        }
    }

    #[pyo3(signature = (url, *, recursive=false))]
    fn ls(&self, py: Python<'_>, url: &str, recursive: bool) -> PyResult<Vec<Info>> {
        let mut pages = self.ls_pages(py, url, recursive)?;
        let mut all = Vec::new();
        while let Some(page) = pages.__next__(py)? {
            all.extend(page);
        }
        Ok(all)
    }

    #[pyo3(signature = (url, *, recursive=false))]
    fn ls_pages(&self, py: Python<'_>, url: &str, recursive: bool) -> PyResult<Pages> {
        let location = place(py, "list", url)?;
        let engine = self.engine(py)?;
        let listing = engine.list(&location, recursive).map_err(|error| Failure::from(error).raise(py))?;
        Ok(Pages { bucket: Info::bucket_of(&location), listing: Some(listing), engine })
    }

    #[pyo3(signature = (scheme="s3"))]
    fn buckets(&self, py: Python<'_>, scheme: &str) -> PyResult<Vec<String>> {
        let dialect = match scheme.trim_end_matches("://") {
            "s3" => Dialect::S3,
            "oss" => Dialect::Oss,
            _ => Dialect::Plain,
        };
        let engine = self.engine(py)?;
        let called = engine.clone();
        let buckets = waiting::call(py, &engine, move || called.buckets(dialect))?;
        Ok(buckets.into_iter().map(|bucket| bucket.name).collect())
    }
}

/// The pages of a listing, each asked for when it is wanted.
#[pyclass(module = "flatout._native")]
pub struct Pages {
    /// Gone for good once a page has failed or was given up. Goes before the engine.
    listing: Option<Listing>,
    bucket: String,
    engine: Arc<Engine>,
}

#[pymethods]
impl Pages {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Vec<Info>>> {
        while let Some(mut listing) = self.listing.take() {
            let (page, listing) = waiting::call(py, &self.engine, move || {
                let page: Vec<Entry> = listing.page()?;
                Ok((page, listing))
            })?;
            self.listing = (!listing.is_done()).then_some(listing);
            // A page may be empty though there is another.
            if !page.is_empty() {
                return Ok(Some(page.into_iter().map(|entry| Info::of_entry(&self.bucket, entry)).collect()));
            }
        }
        Ok(None)
    }
}
