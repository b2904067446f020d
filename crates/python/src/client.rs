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
    /// As they were given, for a pickle.
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

    /// What it was made with, as a new dict.
    ///
    /// Raises:
    ///     UsageError: one of them holds a password, which is not handed on.
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

    /// The most memory that its engine may take in this process, in bytes; buffers of the caller's and what
    /// reads return are no part of it.
    #[getter]
    fn memory_limit(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.engine(py)?.memory_bytes)
    }

    /// What reading files has come to so far, of all of them in this process: counts by name, in bytes or
    /// reads.
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

    /// Ends what runs on it: whoever waits is told by :class:`flatout.Cancelled`. It cannot be used after.
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::SeqCst);
        exit::detached(py, || {
            if let Some(engine) = self.engine.take() {
                engine.close();
            }
        });
    }

    /// An object, or ``[start:end]`` of it as a slice would cut it, into a new buffer; its ``info`` says what
    /// was told of the object.
    ///
    /// Args:
    ///     url: the object.
    ///     start: the first byte, counted from the end where it is negative; the object's first without it.
    ///     end: the byte behind the last one, in the same way; the object's end without it.
    ///     if_match: only of the version with this ETag.
    ///     version_id: the version of this id, of a bucket that keeps versions, instead of the newest.
    ///     progress: a :class:`Progress` to look at, or True for a bar of tqdm.
    ///
    /// Raises:
    ///     NotFound, AccessDenied, Timeout, NetworkError, Throttled: what the origin or the network refused.
    ///     ObjectChanged: another version is there than ``if_match`` says, or came while it was read.
    ///     Corrupt: the bytes of a whole object are not those that the origin states.
    ///     UsageError: this names no object.
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

    /// Fills ``buffer`` with an object, or with ``[start:end]`` of it, by many ranges at once; how many bytes
    /// landed.
    ///
    /// The bytes land where they are wanted, nothing is copied. The buffer is any writable one that is
    /// C-contiguous, of whatever items; it may be longer than what comes. It is the call's until that
    /// returns: nothing writes to it after, also when the call was interrupted. What it holds after a call
    /// that raised is undefined.
    ///
    /// Args:
    ///     url: the object.
    ///     buffer: where the bytes go, from its first on.
    ///     start: the first byte, as of :meth:`read`.
    ///     end: the byte behind the last one; the object's end without it, and then all that is left has to
    ///         fit. Fewer come where the object ends before.
    ///     offset: another way to say ``start``, counted from 0.
    ///     length: another way to say ``end``: so many bytes from ``offset`` on.
    ///     if_match: only of the version with this ETag.
    ///     version_id: the version of this id, of a bucket that keeps versions, instead of the newest.
    ///     progress: a :class:`Progress` to look at, or True for a bar of tqdm.
    ///
    /// Raises:
    ///     TypeError: this has no buffer.
    ///     BufferError: it is read-only, or not C-contiguous.
    ///     UsageError: it is too short.
    ///     FlatoutError: as :meth:`read`.
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

    /// An object to a file, which appears under its name when it is whole and verified; its bytes.
    ///
    /// Raises:
    ///     LocalError: the file cannot be written. What stood there before stays, as after every failure.
    ///     FlatoutError: as :meth:`read`.
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

    /// Objects to files, pairs ``(url, path)``, as :meth:`download`; the bytes of each, or with
    /// ``return_exceptions`` why not.
    ///
    /// All are tried; without ``return_exceptions`` the first that failed is raised then.
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

    /// Many objects, each into a buffer of its own, as many at once as are good and memory allows.
    ///
    /// A small object costs one request, as does one whose size nobody knows; pass entries of a listing where
    /// objects may be large, so that those come in parts.
    ///
    /// Args:
    ///     urls: URLs, ``(url, start, end)``, or an :class:`Info`, of the version that it names; taken as
    ///         they are wanted.
    ///     ordered: in the order of ``urls``; else as they come.
    ///     concurrency: how many may be on their way or wait to be taken; 128 without it.
    ///     return_exceptions: what went wrong is handed on in its place, else it is raised and ends all.
    ///     progress: a :class:`Progress` to look at, or True for a bar of tqdm.
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

    /// Ranges of one version of an object in one call, in any order, all at once; near ones by one request.
    ///
    /// Args:
    ///     url: the object.
    ///     ranges: pairs ``(start, end)`` as in a slice; they may overlap.
    ///     if_match: only of the version with this ETag.
    ///     version_id: the version of this id, of a bucket that keeps versions, instead of the newest.
    ///     max_gap: so many bytes between two small ranges are fetched rather than asked around; 256 KiB
    ///         without it.
    ///     out: as many writable buffers, to be filled instead of new ones.
    ///     progress: a :class:`Progress` to look at, or True for a bar of tqdm.
    ///
    /// Returns:
    ///     A buffer for each range, in the order of ``ranges``; with ``out`` how many bytes came for each.
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

    /// An object to be read here and there. With ``size`` from a listing nothing is asked beforehand;
    /// without, one HEAD.
    ///
    /// Args:
    ///     url: the object.
    ///     size: in bytes.
    ///     etag: of the version that is meant.
    ///     modified: when that was made, in seconds since 1970: tells versions apart where there is no strong
    ///         ETag.
    ///     version_id: the version of this id, of a bucket that keeps versions, instead of the newest.
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

    /// A URL by which anybody may read the object for so many seconds, or that time, signed with the keys of
    /// now. Nothing is asked.
    ///
    /// Raises:
    ///     AccessDenied: there are no keys to sign with.
    ///     UsageError: plain HTTP has no signatures; longer than the dialect allows.
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

    /// What the origin says of an object, by one HEAD.
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

    /// Whether there is such an object, by one HEAD. What else goes wrong is raised.
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

    /// What is under a prefix, up to the next ``/``, or all of it; sorted within a page of the origin's, 1000
    /// entries as a rule.
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

    /// The same page after page, each asked for when it is wanted: for millions of keys.
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

    /// The names of the account's buckets, of ``"s3"`` or ``"oss"``.
    #[pyo3(signature = (scheme="s3"))]
    fn buckets(&self, py: Python<'_>, scheme: &str) -> PyResult<Vec<String>> {
        let dialect = dialect(scheme);
        let engine = self.engine(py)?;
        let called = engine.clone();
        let buckets = waiting::call(py, &engine, move || called.buckets(dialect))?;
        Ok(buckets.into_iter().map(|bucket| bucket.name).collect())
    }
}
