//! Many objects, each read whole or a range of it into a buffer of its own: as many ahead as memory and the caller allow.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use flatout_engine::{Get, Landing, Made, Transfer};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};

use crate::buffer::Buffer;
use crate::client::Client;
use crate::engine::Engine;
use crate::errors::{Failure, location};
use crate::exit;
use crate::info::Info;
use crate::span::{Asked, asked, within};
use crate::waiting;
use crate::watching::Watching;

/// So many are on their way, or have landed and not been taken yet, unless somebody says.
pub const CONCURRENCY: usize = 128;

/// An object of at most so many bytes is asked for by one plain GET; so is one of unknown size.
const SMALL_BYTES: u64 = 8 << 20;

/// What `read_many` returns: pairs (index, Buffer), or (index, exception) where those are wanted, in the order asked for or as
/// they come. Closing it, or letting go of it, ends what is on its way.
#[pyclass(module = "flatout._native")]
pub struct ReadMany {
    // Goes before the engine.
    flights: VecDeque<Flight>,
    client: Py<Client>,
    engine: Arc<Engine>,
    wanted: Option<Py<PyIterator>>,
    begun: usize,
    options: Options,
    /// Who has ended, by index.
    ended: (Sender<usize>, Mutex<Receiver<usize>>),
    watching: Option<Watching>,
}

/// How they are read.
#[derive(Clone, Copy)]
pub struct Options {
    pub ordered: bool,
    pub concurrency: usize,
    pub return_exceptions: bool,
}

/// One on its way, or why it could not be begun.
struct Flight {
    index: usize,
    state: State,
}

enum State {
    Running(Transfer, Made),
    Empty,
    Failed(Failure),
}

/// One of them, as it was asked for.
struct Wanted {
    location: Location,
    asked: Asked,
    range: (Option<i64>, Option<i64>),
    /// Where a listing told it.
    size: Option<u64>,
}

impl Wanted {
    fn of(item: &Bound<'_, PyAny>) -> PyResult<Result<Wanted, Failure>> {
        let (url, range, size) = if let Ok(url) = item.cast::<PyString>() {
            (url.to_string(), (None, None), None)
        } else if let Ok(info) = item.extract::<Info>() {
            (info.url, (None, None), info.size)
        } else if let Ok((url, start, end)) = item.extract::<(String, Option<i64>, Option<i64>)>() {
            (url, (start, end), None)
        } else {
            let name = item.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "an object to read is a URL, an Info of a listing, or (url, start, end), not {name}"
            )));
        };
        Ok(location("read", &url).map(|location| Wanted {
            location,
            asked: asked(range.0, range.1),
            range,
            size,
        }))
    }
}

impl ReadMany {
    pub fn new(
        client: Py<Client>,
        engine: Arc<Engine>,
        wanted: Bound<'_, PyIterator>,
        options: Options,
        watching: Watching,
    ) -> ReadMany {
        let (tell, told) = mpsc::channel();
        ReadMany {
            flights: VecDeque::new(),
            client,
            engine,
            wanted: Some(wanted.unbind()),
            begun: 0,
            options,
            ended: (tell, Mutex::new(told)),
            watching: Some(watching),
        }
    }

    /// Begins as many as may be on their way.
    fn begin(&mut self, py: Python<'_>) -> PyResult<()> {
        while self.flights.len() < self.options.concurrency && (self.flights.is_empty() || self.has_memory())
        {
            let Some(wanted) = &self.wanted else { return Ok(()) };
            let Some(item) = wanted.bind(py).clone().next() else {
                self.wanted = None;
                return Ok(());
            };
            let index = self.begun;
            let state = match Wanted::of(&item?)? {
                Ok(wanted) => self.start(py, wanted, index)?,
                Err(failure) => State::Failed(failure),
            };
            self.begun += 1;
            if !matches!(state, State::Running(..)) {
                let _ = self.ended.0.send(index);
            }
            self.flights.push_back(Flight { index, state });
        }
        Ok(())
    }

    /// Whether what is on its way leaves room for more.
    fn has_memory(&self) -> bool {
        let bytes = |flight: &Flight| match &flight.state {
            State::Running(transfer, _) => transfer.progress().total_bytes.unwrap_or(0),
            _ => 0,
        };
        self.flights.iter().map(bytes).sum::<u64>() < self.engine.memory_bytes
    }

    fn start(&self, py: Python<'_>, wanted: Wanted, index: usize) -> PyResult<State> {
        let Wanted { location, asked, range, size } = wanted;
        let made = Made::new();
        let mut get = Get::new(location.clone(), Landing::Made(made.clone()));
        match asked {
            Asked::Nothing => return Ok(State::Empty),
            // One plain GET brings a small object and its checksum.
            Asked::Span(Span::All) if size.is_none_or(|size| size <= SMALL_BYTES) => {
                get = get.in_one_answer();
            }
            Asked::Span(span) => get = get.with_span(span),
            Asked::Relative => {
                let version = match self.client.get().version(py, &self.engine, &location)? {
                    Ok(version) => version,
                    Err(failure) => return Ok(State::Failed(failure)),
                };
                let range = within(range.0, range.1, version.size.unwrap_or(0));
                if range.is_empty() {
                    return Ok(State::Empty);
                }
                get = get.with_span(Span::Slice(range));
                if let Some(etag) = version.etag {
                    get = get.with_if_match(etag);
                }
            }
        }
        let told = self.ended.0.clone();
        let get = get.on_end(move || {
            // Nobody may wait any more.
            let _ = told.send(index);
        });
        let engine = &self.engine;
        Ok(match waiting::briefly(py, || engine.get(get))? {
            Ok(transfer) => {
                if let Some(watching) = &self.watching {
                    watching.watch(|| transfer.watch());
                }
                State::Running(transfer, made)
            }
            Err(error) => State::Failed(error.into()),
        })
    }

    /// The next one that is over.
    fn next_over(&mut self, py: Python<'_>) -> PyResult<Option<Flight>> {
        if self.options.ordered {
            if let Some(Flight { state: State::Running(transfer, _), .. }) = self.flights.front() {
                waiting::until(py, &self.engine, |slice| transfer.wait_timeout(slice))?;
            }
            return Ok(self.flights.pop_front());
        }
        if self.flights.is_empty() {
            return Ok(None);
        }
        let told = self.ended.1.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut ended = None;
        let found = &mut ended;
        waiting::until(py, &self.engine, move |slice| match told.recv_timeout(slice) {
            Ok(index) => {
                *found = Some(index);
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        })?;
        let at = self.flights.iter().position(|flight| Some(flight.index) == ended);
        Ok(at.and_then(|at| self.flights.remove(at)))
    }

    /// Nothing more comes.
    fn finish(&mut self, py: Python<'_>) {
        self.wanted = None;
        for flight in &self.flights {
            if let State::Running(transfer, _) = &flight.state {
                transfer.cancel_switch().cancel();
            }
        }
        let flights = std::mem::take(&mut self.flights);
        exit::detached(py, || drop(flights));
        if let Some(watching) = self.watching.take() {
            watching.end(py);
        }
    }

    fn try_next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(usize, Bound<'py, PyAny>)>> {
        self.begin(py)?;
        let Some(Flight { index, state }) = self.next_over(py)? else {
            self.finish(py);
            return Ok(None);
        };
        let result = match state {
            State::Empty => Ok(Buffer::empty()),
            State::Failed(failure) => Err(failure),
            State::Running(transfer, made) => match transfer.wait() {
                Ok(_) => made.take().map(Buffer::from).ok_or_else(Failure::panicked),
                Err(error) => Err(error.into()),
            },
        };
        match result {
            Ok(buffer) => Ok(Some((index, Bound::new(py, buffer)?.into_any()))),
            Err(failure) if self.options.return_exceptions => Ok(Some((index, failure.exception(py)?))),
            Err(failure) => Err(failure.raise(py)),
        }
    }
}

#[pymethods]
impl ReadMany {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(usize, Bound<'py, PyAny>)>> {
        let next = self.try_next(py);
        if next.is_err() {
            self.finish(py);
        }
        next
    }

    /// Ends what is on its way.
    fn close(&mut self, py: Python<'_>) {
        self.finish(py);
    }
}

impl Drop for ReadMany {
    fn drop(&mut self) {
        // Without an interpreter there is no bar to be taken away.
        Python::try_attach(|py| self.finish(py));
    }
}

/// Files as they are asked for, each whole and verified before it appears; what became of each: its bytes, or why not.
pub fn download_many(
    py: Python<'_>,
    engine: &Arc<Engine>,
    pairs: Vec<(Location, std::path::PathBuf)>,
    watching: &Watching,
) -> PyResult<Vec<Result<u64, Failure>>> {
    let mut outcomes = Vec::with_capacity(pairs.len());
    let mut pairs = pairs.into_iter();
    let mut flights: VecDeque<Result<Transfer, Failure>> = VecDeque::new();
    let done = (|| {
        loop {
            while flights.len() < CONCURRENCY
                && let Some((location, path)) = pairs.next()
            {
                let get = Get::new(location, Landing::File(path));
                let started = waiting::briefly(py, || engine.get(get))?;
                if let Ok(transfer) = &started {
                    watching.watch(|| transfer.watch());
                }
                flights.push_back(started.map_err(Failure::from));
            }
            let Some(flight) = flights.pop_front() else { return Ok(()) };
            outcomes.push(match flight {
                Ok(transfer) => {
                    if let Err(stop) = waiting::until(py, engine, |slice| transfer.wait_timeout(slice)) {
                        flights.push_front(Ok(transfer));
                        return Err(stop);
                    }
                    transfer.wait().map(|report| report.bytes).map_err(Failure::from)
                }
                Err(failure) => Err(failure),
            });
        }
    })();
    exit::detached(py, || drop(flights));
    done.map(|()| outcomes)
}
