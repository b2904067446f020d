//! The client of Python: frozen, picklable settings, and the engine that each process makes from them at the
//! first use.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatout_ambient::masked;
use flatout_engine::{ErrorKind, Object, ReaderStats, Version};
use flatout_wire::head::quoted;
use flatout_wire::time::parse_http;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyTuple};

use crate::arguments::{self, Ends};
use crate::borrowed_buffer::BorrowedBuffer;
use crate::buffer::Buffer;
use crate::call_progress::CallProgress;
use crate::credentials::GivenCredentials;
use crate::destination::Destination;
use crate::engine::{self, Engine};
use crate::errors::{Failure, OrRaise};
use crate::exit;
use crate::file::File;
use crate::many::{self, ReadMany, ReadManyOptions};
use crate::object_meta::ObjectMeta;
use crate::object_ref::{ObjectRef, confirm_empty, dialect, parse_url, size_of, two_ranges};
use crate::pages::Pages;
use crate::per_process::PerProcess;
use crate::range_reads::{RangeReads, Target, targets};
use crate::ranges::GAP_BYTES;
use crate::settings::{Pairs, has_password, is_address, pairs, with_password};
use crate::span::one_of;
use crate::waiting;

/// Reads objects of S3, OSS and plain HTTP; see :class:`flatout.Client`, which is made from keyword
/// arguments.
#[pyclass(frozen, subclass, weakref, dict, module = "flatout._native")]
pub struct Client {
    /// The settings as they were given, for pickling.
    given: Py<PyDict>,
    pairs: Pairs,
    credentials: GivenCredentials,
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
        let (siblings, provider) = (engine::siblings(py)?, self.credentials.provider(py)?);
        let made =
            waiting::without_gil(py, || self.engine.get(|| Engine::new(&self.pairs, siblings, provider)))?;
        made.or_raise(py)
    }
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
        let knobs = given.copy()?;
        let credentials = GivenCredentials::take(&knobs)?;
        let pairs = pairs(&knobs)?;
        credentials.check(py, &pairs)?;
        Ok(Client {
            given: given.unbind(),
            pairs,
            credentials,
            engine: PerProcess::new(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The settings that the client was made with, as a new dict.
    ///
    /// Raises:
    ///     UsageError: a setting holds a password, which is not handed out.
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

    /// The most memory in bytes that the client may use in this process, not counting the caller's buffers
    /// and what reads return.
    #[getter]
    fn memory_limit(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.engine(py)?.memory_bytes)
    }

    /// Counters of all file reads of this process so far, in bytes or reads, by name.
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
        let credentials = self.credentials.is_given().then(|| "credentials=***".to_owned());
        format!("Client({})", self.pairs.iter().map(shown).chain(credentials).collect::<Vec<_>>().join(", "))
    }

    /// Whether :meth:`close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Closes the client. Its calls that still run raise :class:`flatout.Cancelled`, and so does every later
    /// one.
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::SeqCst);
        exit::detached(py, || {
            if let Some(engine) = self.engine.take() {
                engine.close();
            }
        });
    }

    /// Reads an object, or its bytes ``[start:end]`` as in a slice, into a new buffer, whose ``info``
    /// describes the object.
    ///
    /// Args:
    ///     url: the object.
    ///     start: the first byte; a negative one counts from the end. Without it, the object's first byte.
    ///     end: the byte behind the last one, in the same way. Without it, the object's end.
    ///     if_match: reads only the version with this ETag.
    ///     version_id: this version of the object instead of the newest, in a bucket that keeps versions.
    ///     progress: a :class:`Progress` to watch, or True for a progress bar by tqdm.
    ///
    /// Raises:
    ///     NotFound, AccessDenied, Timeout, NetworkError, Throttled: the origin or the network failed.
    ///     ObjectChanged: the object is not the version ``if_match``, or was replaced while it was read.
    ///     Corrupt: the bytes of a whole object do not match the origin's checksum.
    ///     UsageError: the URL names no object.
    #[pyo3(signature = (url, start=None, end=None, *, if_match=None, version_id=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        #[pyo3(from_py_with = arguments::start)] start: Option<i64>,
        #[pyo3(from_py_with = arguments::end)] end: Option<i64>,
        if_match: Option<String>,
        version_id: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Buffer> {
        let location = parse_url(py, "read", &url)?;
        let engine = self.engine(py)?;
        let object = ObjectRef::new(&location, &if_match, &version_id);
        let Some((span, if_match)) = self.span(py, &engine, object, (start, end))? else {
            return Ok(Buffer::empty());
        };
        let object = ObjectRef { if_match: if_match.as_deref(), ..object };
        let get = object.get().with_span(span.clone());
        match self.run(py, &engine, get, Destination::made(), progress)? {
            Ok((report, made)) => {
                let buffer = made.into_buffer().or_raise(py)?;
                Ok(buffer.with_info(ObjectMeta::of_report(&url, &location, report)))
            }
            Err(failure) => {
                confirm_empty(py, &engine, object, &span, failure)?.or_raise(py)?;
                Ok(Buffer::empty())
            }
        }
    }

    /// Fills ``buffer`` with an object, or its bytes ``[start:end]``, by parallel range requests, and returns
    /// how many bytes landed.
    ///
    /// The bytes land in the buffer without a copy. It may be any writable, C-contiguous buffer, of items of
    /// any type, and longer than what comes. When the call returns, also if it was interrupted, nothing
    /// writes to the buffer any more. After an exception its content is undefined.
    ///
    /// Args:
    ///     url: the object.
    ///     buffer: the bytes go to its start.
    ///     start: the first byte, as in :meth:`read`.
    ///     end: the byte behind the last one. Without it, the object's end, and all bytes up to there have to
    ///         fit. Fewer come where the object ends before ``end``.
    ///     offset: another way to say ``start``, counted from 0.
    ///     length: another way to say ``end``: the number of bytes from ``offset`` on.
    ///     if_match: reads only the version with this ETag.
    ///     version_id: this version of the object instead of the newest, in a bucket that keeps versions.
    ///     progress: a :class:`Progress` to watch, or True for a progress bar by tqdm.
    ///
    /// Raises:
    ///     TypeError: ``buffer`` has no buffer.
    ///     BufferError: it is read-only, or not C-contiguous.
    ///     UsageError: it is too short.
    ///     FlatoutError: as in :meth:`read`.
    #[pyo3(signature = (url, buffer, start=None, end=None, *, offset=None, length=None, if_match=None, version_id=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn readinto(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        buffer: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::start)] start: Option<i64>,
        #[pyo3(from_py_with = arguments::end)] end: Option<i64>,
        #[pyo3(from_py_with = arguments::offset)] offset: Option<u64>,
        #[pyo3(from_py_with = arguments::length)] length: Option<u64>,
        if_match: Option<String>,
        version_id: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let location = parse_url(py, "read", &url)?;
        let ends = one_of((start, end), offset, length).ok_or_else(|| two_ranges().raise(py))?;
        let buffer = Destination::Borrowed(BorrowedBuffer::new(buffer)?);
        let engine = self.engine(py)?;
        let object = ObjectRef::new(&location, &if_match, &version_id);
        let Some((span, if_match)) = self.span(py, &engine, object, ends)? else { return Ok(0) };
        let object = ObjectRef { if_match: if_match.as_deref(), ..object };
        match self.run(py, &engine, object.get().with_span(span.clone()), buffer, progress)? {
            Ok((report, buffer)) => {
                buffer.release(py);
                Ok(report.bytes)
            }
            Err(failure) => {
                confirm_empty(py, &engine, object, &span, failure)?.or_raise(py)?;
                Ok(0)
            }
        }
    }

    /// Downloads an object to a file and returns its size. The file appears under its name when it is whole
    /// and verified.
    ///
    /// Raises:
    ///     LocalError: the file cannot be written. As after every failure, a file that was there before is
    ///         unchanged.
    ///     FlatoutError: as in :meth:`read`.
    #[pyo3(signature = (url, path, *, if_match=None, version_id=None, progress=None))]
    fn download(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        path: PathBuf,
        if_match: Option<String>,
        version_id: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let location = parse_url(py, "read", &url)?;
        let engine = self.engine(py)?;
        let get = ObjectRef::new(&location, &if_match, &version_id).get();
        let done = self.run(py, &engine, get, Destination::File(path), progress)?;
        Ok(done.or_raise(py)?.0.bytes)
    }

    /// Downloads objects to files, given as pairs ``(url, path)``, like :meth:`download`. Returns the size of
    /// each; with ``return_exceptions`` an exception in place of each that failed.
    ///
    /// All are tried. Then, without ``return_exceptions``, the first exception is raised.
    #[pyo3(signature = (pairs, *, progress=None, return_exceptions=false))]
    fn download_many<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::pairs)] pairs: Vec<(String, PathBuf)>,
        progress: Option<&Bound<'py, PyAny>>,
        return_exceptions: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let pairs = pairs.into_iter().map(|(url, path)| Ok((parse_url(py, "read", &url)?, path)));
        let pairs = pairs.collect::<PyResult<Vec<_>>>()?;
        let engine = self.engine(py)?;
        let progress = CallProgress::begin(py, progress, &format!("{} files", pairs.len()))?;
        let done = many::download_many(py, &engine, pairs, &progress);
        progress.end(py);
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

    /// Reads many objects, each into a buffer of its own, in parallel as far as memory allows.
    ///
    /// A small object costs one request, and so does one of unknown size. Where objects may be large, pass
    /// entries of a listing: their sizes are known, and large ones are read in parallel parts.
    ///
    /// Args:
    ///     urls: URLs, tuples ``(url, start, end)``, or entries of a listing (:class:`Info`), whose version
    ///         is read. Taken from the iterable as they are needed.
    ///     ordered: whether the results come in the order of ``urls``, or as they arrive.
    ///     concurrency: how many objects may be in flight, or read and not yet taken; 128 by default.
    ///     return_exceptions: whether an exception is returned in place of its object, or raised, which ends
    ///         the iteration.
    ///     progress: a :class:`Progress` to watch, or True for a progress bar by tqdm.
    ///
    /// Returns:
    ///     An iterator of pairs ``(index, Buffer)``, where ``index`` counts ``urls`` from 0.
    #[pyo3(signature = (urls, *, ordered=true, concurrency=None, return_exceptions=false, progress=None))]
    fn read_many<'py>(
        slf: Bound<'py, Self>,
        #[pyo3(from_py_with = arguments::urls)] urls: Bound<'py, PyAny>,
        ordered: bool,
        #[pyo3(from_py_with = arguments::concurrency)] concurrency: Option<i64>,
        return_exceptions: bool,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<ReadMany> {
        let py = slf.py();
        let concurrency = match concurrency {
            None => many::CONCURRENCY,
            Some(count) => usize::try_from(count).ok().filter(|count| *count > 0).ok_or_else(|| {
                Failure::usage("read", format!("concurrency is {count}, and has to be 1 or more")).raise(py)
            })?,
        };
        let engine = slf.get().engine(py)?;
        let progress = CallProgress::begin(py, progress, "objects")?;
        let options = ReadManyOptions { ordered, concurrency, return_exceptions };
        Ok(ReadMany::new(slf.unbind(), engine, urls.try_iter()?, options, progress))
    }

    /// Reads several ranges of one version of an object in parallel. Near ones are one request.
    ///
    /// Args:
    ///     url: the object.
    ///     ranges: pairs ``(start, end)`` as in a slice, in any order; they may overlap.
    ///     if_match: reads only the version with this ETag.
    ///     version_id: this version of the object instead of the newest, in a bucket that keeps versions.
    ///     max_gap: small ranges with at most this many bytes between them are one request; 256 KiB by
    ///         default.
    ///     out: a writable buffer for each range, to be filled instead of a new one.
    ///     progress: a :class:`Progress` to watch, or True for a progress bar by tqdm.
    ///
    /// Returns:
    ///     A buffer for each range, in the order of ``ranges``; with ``out`` the number of bytes in each.
    #[pyo3(signature = (url, ranges, *, if_match=None, version_id=None, max_gap=None, out=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        #[pyo3(from_py_with = arguments::ranges)] ranges: Vec<Ends>,
        if_match: Option<String>,
        version_id: Option<String>,
        #[pyo3(from_py_with = arguments::max_gap)] max_gap: Option<u64>,
        out: Option<Vec<Bound<'py, PyAny>>>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let location = parse_url(py, "read", &url)?;
        let engine = self.engine(py)?;
        let object = ObjectRef::new(&location, &if_match, &version_id);
        let (ranges, if_match) = self.resolve(py, &engine, object, &ranges)?;
        let mut targets = targets(py, &ranges, out.as_deref())?;
        let progress = CallProgress::begin(py, progress, location.name())?;
        let (engine, url, object) = (&engine, &url, ObjectRef { if_match: if_match.as_deref(), ..object });
        let max_gap = max_gap.unwrap_or(GAP_BYTES);
        let filled =
            RangeReads { engine, url, object, max_gap, progress: &progress }.read(py, &ranges, &mut targets);
        progress.end(py);
        if out.is_some() {
            targets.into_iter().for_each(|target| target.release(py));
            return PyList::new(py, filled?);
        }
        filled?;
        let buffers = targets.into_iter().map(Target::buffer);
        PyList::new(py, buffers.collect::<Vec<_>>())
    }

    /// Opens an object for reads at any place. Sends no request where ``size`` is given, as from a listing;
    /// else one HEAD.
    ///
    /// Args:
    ///     url: the object.
    ///     size: in bytes.
    ///     etag: of the version to read.
    ///     modified: when that version was made, in seconds since 1970; tells versions apart where there is
    ///         no strong ETag.
    ///     version_id: this version of the object instead of the newest, in a bucket that keeps versions.
    #[pyo3(signature = (url, *, size=None, etag=None, modified=None, version_id=None))]
    fn file(
        slf: Bound<'_, Self>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        #[pyo3(from_py_with = arguments::size)] size: Option<u64>,
        etag: Option<String>,
        modified: Option<f64>,
        version_id: Option<String>,
    ) -> PyResult<File> {
        let (py, client) = (slf.py(), slf.get());
        let location = parse_url(py, "read", &url)?;
        // As `if_match` is taken elsewhere.
        let etag = etag.map(|etag| quoted(&etag).into_owned());
        let modified_s = modified.filter(|s| *s >= 0.0).map(|s| s as u64);
        let object = match size {
            Some(size) => Object { location, size, etag, modified_s },
            None => {
                let engine = client.engine(py)?;
                let version = client.head(py, &engine, &location, version_id.as_deref())?.version;
                let known_size = size_of(&version, &location);
                let Version { etag: found, last_modified, .. } = version;
                if etag.is_some() && etag != found {
                    let cause = format!(
                        "the ETag is {}, not {}",
                        found.as_deref().unwrap_or("none"),
                        etag.as_deref().unwrap_or("none")
                    );
                    return Err(Failure::new(ErrorKind::Changed, "read", &location, cause).raise(py));
                }
                let size = known_size.or_raise(py)?;
                let modified_s = last_modified.as_deref().and_then(parse_http);
                Object { location, size, etag: found, modified_s }
            }
        };
        Ok(File::new(slf.unbind(), url, object, version_id))
    }

    /// Returns a presigned URL, by which anybody can read the object for ``expires`` seconds, or that
    /// timedelta. It is signed with the current keys. Sends no request.
    ///
    /// Raises:
    ///     AccessDenied: there are no keys to sign with.
    ///     UsageError: the URL is plain HTTP, which has no signatures, or ``expires`` is longer than the
    ///         origin allows.
    #[pyo3(signature = (url, *, expires=3600, version_id=None))]
    fn presign(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        #[pyo3(from_py_with = arguments::expires)] expires: u64,
        version_id: Option<String>,
    ) -> PyResult<String> {
        let location = parse_url(py, "presign", &url)?;
        let engine = self.engine(py)?;
        let called = engine.clone();
        waiting::call(py, &engine, move || called.presign_version(&location, version_id.as_deref(), expires))
    }

    /// Describes an object; sends one HEAD.
    #[pyo3(signature = (url, *, version_id=None))]
    fn stat(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        version_id: Option<String>,
    ) -> PyResult<ObjectMeta> {
        let location = parse_url(py, "stat", &url)?;
        let engine = self.engine(py)?;
        let stat = self.head(py, &engine, &location, version_id.as_deref())?;
        Ok(ObjectMeta::of_stat(&url, &location, stat))
    }

    /// Whether the object exists; sends one HEAD. Errors other than NotFound are raised.
    #[pyo3(signature = (url, *, version_id=None))]
    fn exists(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        version_id: Option<String>,
    ) -> PyResult<bool> {
        let location = parse_url(py, "stat", &url)?;
        let engine = self.engine(py)?;
        match self.version(py, &engine, &location, version_id.as_deref())? {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_not_found() => Ok(false),
            Err(failure) => Err(failure.raise(py)),
        }
    }

    /// Lists a prefix up to the next ``/``, or recursively. Sorted within each page of the origin's, which
    /// has 1000 entries as a rule.
    #[pyo3(signature = (url, *, recursive=false))]
    fn ls(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        recursive: bool,
    ) -> PyResult<Vec<ObjectMeta>> {
        let mut pages = self.ls_pages(py, url, recursive)?;
        let mut all = Vec::new();
        while let Some(page) = pages.__next__(py)? {
            all.extend(page);
        }
        Ok(all)
    }

    /// Lists like :meth:`ls`, a page at a time, each requested when it is taken: for millions of keys.
    #[pyo3(signature = (url, *, recursive=false))]
    fn ls_pages(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::url)] url: String,
        recursive: bool,
    ) -> PyResult<Pages> {
        let location = parse_url(py, "list", &url)?;
        let engine = self.engine(py)?;
        let listing = engine.list(&location, recursive).or_raise(py)?;
        Ok(Pages::new(listing, ObjectMeta::bucket_of(&location), engine))
    }

    /// The names of the account's buckets, on ``"s3"`` or ``"oss"``.
    #[pyo3(signature = (scheme="s3"))]
    fn buckets(&self, py: Python<'_>, scheme: &str) -> PyResult<Vec<String>> {
        let dialect = dialect(scheme);
        let engine = self.engine(py)?;
        let called = engine.clone();
        let buckets = waiting::call(py, &engine, move || called.buckets(dialect))?;
        Ok(buckets.into_iter().map(|bucket| bucket.name).collect())
    }
}
