//! Many objects, each read whole or in part into a buffer of its own: as many ahead as memory and the caller
//! allow.

use std::collections::BTreeMap;
use std::sync::Arc;

use flatout_engine::{AllocatedBuffer, Get, Landing};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};

use crate::buffer::Buffer;
use crate::call_progress::CallProgress;
use crate::client::Client;
use crate::destination::{Destination, OwnedTransfer};
use crate::engine::Engine;
use crate::errors::{Failure, location};
use crate::object_meta::ObjectMeta;
use crate::object_ref::{ObjectRef, confirm_empty, size_of};
use crate::span::{RangeRequest, range_request, within};
use crate::transfer_set::{Ended, Order, TransferSet};
use crate::waiting;

/// How many objects are in flight, or have landed and not been taken, unless the caller says.
pub const CONCURRENCY: usize = 128;

/// An object of at most this size is read by one plain GET. So is one of unknown size, which counts for as
/// much; if it turns out to be larger, it is read anew once it is known how much memory it needs.
pub const SMALL_BYTES: u64 = 8 << 20;

/// What :meth:`Client.read_many` returns: pairs of an index and what was read. One thread takes them.
#[pyclass(generic, module = "flatout._native")]
pub struct ReadMany {
    /// By index, as in the two below.
    reads: TransferSet<PlannedRead>,
    /// Reads that wait for memory.
    waiting: BTreeMap<u64, PlannedRead>,
    /// Objects that need no transfer: an empty range, or a URL that is wrong.
    over: BTreeMap<u64, Result<Buffer, Failure>>,
    client: Py<Client>,
    engine: Arc<Engine>,
    /// What is left of the caller's `urls`.
    urls: Option<Py<PyIterator>>,
    /// How many were taken of them.
    begun: u64,
    options: ReadManyOptions,
    progress: Option<CallProgress>,
}

/// How the objects are read.
#[derive(Clone, Copy)]
pub struct ReadManyOptions {
    pub ordered: bool,
    pub concurrency: usize,
    pub return_exceptions: bool,
}

/// The read of one object.
struct PlannedRead {
    url: Arc<str>,
    location: Location,
    span: Span,
    if_match: Option<String>,
    version_id: Option<String>,
    /// The most bytes that come, where that is known.
    bytes: Option<u64>,
}

impl PlannedRead {
    /// What it counts for before an answer has told more.
    fn expected_bytes(&self) -> u64 {
        self.bytes.unwrap_or(SMALL_BYTES)
    }

    /// The memory that its transfer holds, or will.
    fn held_bytes(&self, transfer: &OwnedTransfer) -> u64 {
        match transfer.destination().beyond() {
            Some(_) => 0,
            None => transfer.progress().total_bytes.unwrap_or(self.expected_bytes()),
        }
    }

    fn object(&self) -> ObjectRef<'_> {
        ObjectRef::new(&self.location, &self.if_match, &self.version_id)
    }
}

/// An element of `urls`.
struct RequestedObject {
    url: Arc<str>,
    location: Location,
    range: (Option<i64>, Option<i64>),
    /// Where a listing told it.
    size: Option<u64>,
    /// The ETag that it must have, where that is known.
    if_match: Option<String>,
    /// Of an `Info` that has one.
    version_id: Option<String>,
}

/// A read as `flatout.torch` plans it: URL, start, end, size, ETag.
type TorchRequest = (String, Option<i64>, Option<i64>, Option<u64>, Option<String>);

impl RequestedObject {
    fn of(index: u64, item: &Bound<'_, PyAny>) -> PyResult<Result<RequestedObject, Failure>> {
        let (url, range, size, if_match, version_id) = if let Ok(url) = item.cast::<PyString>() {
            (url.to_string(), (None, None), None, None, None)
        } else if let Ok(meta) = item.extract::<ObjectMeta>() {
            (meta.url, (None, None), meta.size, None, meta.version_id)
        } else if let Ok((url, start, end)) = item.extract::<(String, Option<i64>, Option<i64>)>() {
            (url, (start, end), None, None, None)
        } else if let Ok((url, start, end, size, etag)) = item.extract::<TorchRequest>() {
            (url, (start, end), size, etag, None)
        } else {
            let name = item.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "urls[{index}]: an object to read is a URL, an Info of a listing, or (url, start, end), not {name}"
            )));
        };
        Ok(location("read", &url).map(|location| RequestedObject {
            url: url.into(),
            location,
            range,
            size,
            if_match,
            version_id,
        }))
    }
}

impl ReadMany {
    pub fn new(
        client: Py<Client>,
        engine: Arc<Engine>,
        urls: Bound<'_, PyIterator>,
        options: ReadManyOptions,
        progress: CallProgress,
    ) -> ReadMany {
        let order = if options.ordered { Order::Number } else { Order::End };
        ReadMany {
            reads: TransferSet::new(engine.clone(), order),
            waiting: BTreeMap::new(),
            over: BTreeMap::new(),
            client,
            engine,
            urls: Some(urls.unbind()),
            begun: 0,
            options,
            progress: Some(progress),
        }
    }

    /// Starts reads as far as memory and the caller allow.
    fn start_reads(&mut self, py: Python<'_>) -> PyResult<()> {
        // Objects that turned out to be large wait for memory, of which they hold none meanwhile.
        for (index, bytes, read) in self.reads.take_too_large(py) {
            self.waiting.insert(index, PlannedRead { bytes: Some(bytes), ..read });
        }
        let mut held: u64 = self.reads.running().map(|(transfer, read)| read.held_bytes(transfer)).sum();
        loop {
            let Some((&index, read)) = self.waiting.first_key_value() else {
                match self.in_progress() < self.options.concurrency && self.take_one(py)? {
                    true => continue,
                    false => return Ok(()),
                }
            };
            let expected_bytes = read.expected_bytes();
            // The object that the caller waits for goes ahead, whatever memory the others hold.
            let is_next = held == 0 || (self.options.ordered && self.is_first(index));
            if !is_next && held.saturating_add(expected_bytes) > self.engine.memory_bytes {
                return Ok(());
            }
            held = held.saturating_add(expected_bytes);
            let (index, read) = self.waiting.pop_first().expect("it was there a moment ago");
            self.start(py, index, read)?;
        }
    }

    fn in_progress(&self) -> usize {
        self.reads.running().len() + self.waiting.len() + self.over.len()
    }

    /// Whether the caller takes no other object before this one, where it takes them in order.
    fn is_first(&self, index: u64) -> bool {
        let over = self.over.first_key_value().map(|(index, _)| *index);
        [self.reads.first(), over].into_iter().flatten().all(|other| index < other)
    }

    /// Takes one more of `urls`; whether there was one.
    fn take_one(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(urls) = &self.urls else { return Ok(false) };
        let Some(item) = urls.bind(py).clone().next() else {
            self.urls = None;
            return Ok(false);
        };
        let index = self.begun;
        let planned = match RequestedObject::of(index, &item?)? {
            Ok(object) => self.plan(py, object)?,
            Err(failure) => Err(failure),
        };
        self.begun += 1;
        match planned {
            Ok(Some(read)) => drop(self.waiting.insert(index, read)),
            Ok(None) => drop(self.over.insert(index, Ok(Buffer::empty()))),
            Err(failure) => drop(self.over.insert(index, Err(failure))),
        }
        Ok(true)
    }

    /// The read that brings an object; `None` where its range is empty.
    fn plan(
        &self,
        py: Python<'_>,
        object: RequestedObject,
    ) -> PyResult<Result<Option<PlannedRead>, Failure>> {
        let RequestedObject { url, location, range, size, if_match, version_id } = object;
        let (span, if_match) = match range_request(range.0, range.1) {
            RangeRequest::Empty => return Ok(Ok(None)),
            RangeRequest::Span(span) => (span, if_match),
            RangeRequest::NeedsSize => {
                let version =
                    self.client.get().version(py, &self.engine, &location, version_id.as_deref())?;
                let sized = version.and_then(|version| Ok((size_of(&version, &location)?, version.etag)));
                let (size, etag) = match sized {
                    Ok(sized) => sized,
                    Err(failure) => return Ok(Err(failure)),
                };
                let range = within(range.0, range.1, size);
                if range.is_empty() {
                    return Ok(Ok(None));
                }
                (Span::Slice(range), if_match.or(etag))
            }
        };
        let most = match &span {
            Span::All => size,
            Span::Slice(range) => Some(range.end - range.start),
            Span::Last(bytes) => Some(*bytes),
            Span::From(_) => None,
        };
        // A range may be far longer than its object.
        let bytes = most.filter(|most| span == Span::All || *most <= self.engine.memory_bytes);
        Ok(Ok(Some(PlannedRead { url, location, span, if_match, version_id, bytes })))
    }

    fn start(&mut self, py: Python<'_>, index: u64, read: PlannedRead) -> PyResult<()> {
        let (get, made) = get_of(read.object(), read.span.clone(), read.bytes);
        match self.reads.start(py, index, get, Destination::AllocatedBuffer(made), read)? {
            Ok(transfer) => {
                if let Some(progress) = &self.progress {
                    progress.watch(transfer);
                }
            }
            Err(failure) => drop(self.over.insert(index, Err(failure))),
        }
        Ok(())
    }

    /// The next object that has been read, or has failed.
    fn next_result(&mut self, py: Python<'_>) -> PyResult<Option<(u64, Result<Buffer, Failure>)>> {
        waiting::check_same_process(py, &self.engine)?;
        loop {
            self.start_reads(py)?;
            let is_before = |over: u64| self.reads.first().is_none_or(|running| over < running);
            if let Some(entry) = self.over.first_entry()
                && (!self.options.ordered || is_before(*entry.key()))
            {
                return Ok(Some(entry.remove_entry()));
            }
            let Some(ended) = self.reads.next(py)? else { return Ok(None) };
            match ended.destination.beyond() {
                // It is read anew once there is memory for it.
                bytes @ Some(_) => {
                    self.waiting.insert(ended.number, PlannedRead { bytes, ..ended.item });
                }
                None => return Ok(Some((ended.number, self.settle(py, ended)?))),
            }
        }
    }

    /// The bytes of a read that has ended, or why there are none.
    fn settle(&self, py: Python<'_>, ended: Ended<PlannedRead>) -> PyResult<Result<Buffer, Failure>> {
        let Ended { result, destination, item: read, .. } = ended;
        match result {
            Ok(report) => {
                let meta = ObjectMeta::of_report(&read.url, &read.location, report);
                Ok(destination.into_buffer().map(|buffer| buffer.with_info(meta)))
            }
            Err(failure) => {
                let confirmed = confirm_empty(py, &self.engine, read.object(), &read.span, failure)?;
                Ok(confirmed.map(|()| Buffer::empty()))
            }
        }
    }

    /// Cancels all reads; nothing more comes.
    fn finish(&mut self, py: Python<'_>) {
        self.urls = None;
        self.waiting.clear();
        self.over.clear();
        self.reads.clear();
        if let Some(progress) = self.progress.take() {
            progress.end(py);
        }
    }

    fn try_next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyAny>)>> {
        match self.next_result(py)? {
            None => {
                self.finish(py);
                Ok(None)
            }
            Some((index, Ok(buffer))) => Ok(Some((index, Bound::new(py, buffer)?.into_any()))),
            Some((index, Err(failure))) if self.options.return_exceptions => {
                Ok(Some((index, failure.exception(py)?)))
            }
            Some((_, Err(failure))) => Err(failure.raise(py)),
        }
    }
}

/// The get of one of many objects, and the memory for it. Where it is not known how many bytes come, no more
/// come than a small object has, and [`AllocatedBuffer::beyond`] tells how many there are.
pub fn get_of(object: ObjectRef<'_>, span: Span, bytes: Option<u64>) -> (Get, AllocatedBuffer) {
    let made = match bytes {
        Some(_) => AllocatedBuffer::new(),
        None => AllocatedBuffer::at_most(SMALL_BYTES),
    };
    // One plain GET brings a small object and its checksum.
    let get = match span == Span::All && bytes.unwrap_or(SMALL_BYTES) <= SMALL_BYTES {
        true => object.get().in_one_answer(),
        false => object.get().with_span(span),
    };
    (get, made)
}

fn of_another_thread(py: Python<'_>) -> PyErr {
    Failure::usage("read", "another thread waits for the next object of this read_many")
        .with_hint("take them in one thread and hand them out, or call read_many in each")
        .raise(py)
}

#[pymethods]
impl ReadMany {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<(u64, Bound<'py, PyAny>)>> {
        let py = slf.py();
        let mut this = slf.try_borrow_mut().map_err(|_| of_another_thread(py))?;
        let next = this.try_next(py);
        if next.is_err() {
            this.finish(py);
        }
        next
    }

    /// Cancels the reads in flight.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        slf.try_borrow_mut().map_err(|_| of_another_thread(py))?.finish(py);
        Ok(())
    }
}

impl Drop for ReadMany {
    fn drop(&mut self) {
        // Without an interpreter there is no bar to remove.
        Python::try_attach(|py| {
            // A loop that ends by an exception drops its iterator before the exception is raised.
            let raised = PyErr::take(py);
            self.finish(py);
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    }
}

/// Objects to files, each whole and verified before it appears: for each pair the bytes of the file, or why
/// there is none.
pub fn download_many(
    py: Python<'_>,
    engine: &Arc<Engine>,
    pairs: Vec<(Location, std::path::PathBuf)>,
    progress: &CallProgress,
) -> PyResult<Vec<Result<u64, Failure>>> {
    let mut outcomes: Vec<Result<u64, Failure>> = vec![Ok(0); pairs.len()];
    let mut pairs = (0..).zip(pairs);
    let mut downloads = TransferSet::new(engine.clone(), Order::End);
    let place = |number: u64| usize::try_from(number).expect("there are as many pairs");
    loop {
        while downloads.running().len() < CONCURRENCY
            && let Some((number, (location, path))) = pairs.next()
        {
            let get = Get::new(location, Landing::Nowhere);
            match downloads.start(py, number, get, Destination::File(path), ())? {
                Ok(transfer) => progress.watch(transfer),
                Err(failure) => outcomes[place(number)] = Err(failure),
            }
        }
        let Some(ended) = downloads.next(py)? else { return Ok(outcomes) };
        outcomes[place(ended.number)] = ended.result.map(|report| report.bytes);
    }
}
