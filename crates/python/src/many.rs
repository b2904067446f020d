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
use crate::which::{Which, conditional, is_of_nothing, of_version, told_size};

/// So many are on their way, or have landed and not been taken yet, unless somebody says.
pub const CONCURRENCY: usize = 128;

/// An object of at most so many bytes is asked for by one plain GET; so is one of unknown size, which counts for as much. One
/// that turns out to be larger is asked for anew, when it is known how much memory it needs.
pub const SMALL_BYTES: u64 = 8 << 20;

/// What :meth:`Client.read_many` returns: pairs of a number and what was read. It is for one thread at a time.
#[pyclass(generic, module = "flatout._native")]
pub struct ReadMany {
    // Goes before the engine.
    flights: VecDeque<Flight>,
    client: Py<Client>,
    engine: Arc<Engine>,
    wanted: Option<Py<PyIterator>>,
    begun: usize,
    options: Options,
    /// Which attempts have ended.
    ended: (Sender<Attempt>, Mutex<Receiver<Attempt>>),
    watching: Option<Watching>,
}

/// How they are read.
#[derive(Clone, Copy)]
pub struct Options {
    pub ordered: bool,
    pub concurrency: usize,
    pub return_exceptions: bool,
}

/// One attempt at one of them, by index, and whether it is the second.
type Attempt = (usize, bool);

/// One on its way or waiting for memory, or why it could not be begun.
struct Flight {
    index: usize,
    state: State,
}

impl Flight {
    fn bytes(&self) -> u64 {
        match &self.state {
            State::Running(running) => running.bytes(),
            _ => 0,
        }
    }

    /// Whether that is the attempt which is under way, or all there will be.
    fn is(&self, (index, is_second): Attempt) -> bool {
        self.index == index
            && match &self.state {
                State::Waiting(_) => false,
                State::Running(running) => running.plan.is_second == is_second,
                State::Empty | State::Failed(_) => true,
            }
    }

    fn is_to_be_begun_anew(&self) -> bool {
        match &self.state {
            State::Waiting(_) => true,
            State::Running(running) => running.made.beyond().is_some(),
            State::Empty | State::Failed(_) => false,
        }
    }
}

enum State {
    Waiting(Plan),
    Running(Running),
    Empty,
    Failed(Failure),
}

/// What is to be asked for.
#[derive(Clone)]
struct Plan {
    url: Arc<str>,
    location: Location,
    span: Span,
    if_match: Option<String>,
    version_id: Option<String>,
    /// How many come at most, where that is known.
    bytes: Option<u64>,
    is_second: bool,
}

impl Plan {
    /// What it counts for before an answer has told more.
    fn bytes(&self) -> u64 {
        self.bytes.unwrap_or(SMALL_BYTES)
    }
}

/// An attempt, whose end may still be to come.
struct Running {
    transfer: Transfer,
    made: Made,
    plan: Plan,
}

impl Running {
    /// What of memory is its own, or will be.
    fn bytes(&self) -> u64 {
        match self.made.beyond() {
            Some(_) => 0,
            None => self.transfer.progress().total_bytes.unwrap_or(self.plan.bytes()),
        }
    }
}

/// One of them, as it was asked for.
struct Wanted {
    url: Arc<str>,
    location: Location,
    asked: Asked,
    range: (Option<i64>, Option<i64>),
    /// Where a listing told it.
    size: Option<u64>,
    /// Of an Info that has one.
    version_id: Option<String>,
}

impl Wanted {
    fn of(index: usize, item: &Bound<'_, PyAny>) -> PyResult<Result<Wanted, Failure>> {
        let (url, range, size, version_id) = if let Ok(url) = item.cast::<PyString>() {
            (url.to_string(), (None, None), None, None)
        } else if let Ok(info) = item.extract::<Info>() {
            (info.url, (None, None), info.size, info.version_id)
        } else if let Ok((url, start, end)) = item.extract::<(String, Option<i64>, Option<i64>)>() {
            (url, (start, end), None, None)
        } else {
            let name = item.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "urls[{index}]: an object to read is a URL, an Info of a listing, or (url, start, end), not {name}"
            )));
        };
        Ok(location("read", &url).map(|location| Wanted {
            url: url.into(),
            location,
            asked: asked(range.0, range.1),
            range,
            size,
            version_id,
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
        self.look_again(py);
        let mut held = self.flights.iter().map(Flight::bytes).sum::<u64>();
        let mut at = 0;
        loop {
            if at == self.flights.len() && (at >= self.options.concurrency || !self.take_one(py)?) {
                return Ok(());
            }
            if let State::Waiting(plan) = &self.flights[at].state {
                // Whoever is waited for goes ahead, whatever else holds.
                let is_next = held == 0 || (at == 0 && self.options.ordered);
                if !is_next && held.saturating_add(plan.bytes()) > self.engine.memory_bytes {
                    return Ok(());
                }
                let (index, plan) = (self.flights[at].index, plan.clone());
                held = held.saturating_add(plan.bytes());
                self.flights[at].state = self.start(py, index, plan)?;
                self.tell_if_over(at);
            }
            at += 1;
        }
    }

    /// Takes one more of those wanted; whether there was one.
    fn take_one(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(wanted) = &self.wanted else { return Ok(false) };
        let Some(item) = wanted.bind(py).clone().next() else {
            self.wanted = None;
            return Ok(false);
        };
        let state = match Wanted::of(self.begun, &item?)? {
            Ok(wanted) => self.plan(py, wanted)?,
            Err(failure) => State::Failed(failure),
        };
        self.flights.push_back(Flight { index: self.begun, state });
        self.begun += 1;
        self.tell_if_over(self.flights.len() - 1);
        Ok(true)
    }

    fn tell_if_over(&self, at: usize) {
        if let Flight { index, state: State::Empty | State::Failed(_) } = &self.flights[at] {
            let _ = self.ended.0.send((*index, true));
        }
    }

    /// Those that turned out to be large wait for memory.
    fn look_again(&mut self, py: Python<'_>) {
        for flight in &mut self.flights {
            if let State::Running(running) = &flight.state
                && let Some(bytes) = running.made.beyond()
            {
                let plan = Plan { bytes: Some(bytes), is_second: true, ..running.plan.clone() };
                let attempt = std::mem::replace(&mut flight.state, State::Waiting(plan));
                exit::detached(py, || drop(attempt));
            }
        }
    }

    /// What one of them means.
    fn plan(&self, py: Python<'_>, wanted: Wanted) -> PyResult<State> {
        let Wanted { url, location, asked, range, size, version_id } = wanted;
        let (span, if_match) = match asked {
            Asked::Nothing => return Ok(State::Empty),
            Asked::Span(span) => (span, None),
            Asked::Relative => {
                let version =
                    match self.client.get().version(py, &self.engine, &location, version_id.as_deref())? {
                        Ok(version) => version,
                        Err(failure) => return Ok(State::Failed(failure)),
                    };
                let size = match told_size(&version, &location) {
                    Ok(size) => size,
                    Err(failure) => return Ok(State::Failed(failure)),
                };
                let range = within(range.0, range.1, size);
                if range.is_empty() {
                    return Ok(State::Empty);
                }
                (Span::Slice(range), version.etag)
            }
        };
        let most = match &span {
            Span::All => size,
            Span::Slice(range) => Some(range.end - range.start),
            Span::Last(bytes) => Some(*bytes),
            Span::From(_) => None,
        };
        // Far more may have been asked for than there is.
        let bytes = most.filter(|most| span == Span::All || *most <= self.engine.memory_bytes);
        Ok(State::Waiting(Plan { url, location, span, if_match, version_id, bytes, is_second: false }))
    }

    fn start(&self, py: Python<'_>, index: usize, plan: Plan) -> PyResult<State> {
        let (get, made) = get_of(plan.location.clone(), plan.span.clone(), plan.bytes);
        let get = of_version(conditional(get, plan.if_match.as_deref()), plan.version_id.as_deref());
        let (told, is_second) = (self.ended.0.clone(), plan.is_second);
        let get = get.on_end(move || {
            // Nobody may wait any more.
            let _ = told.send((index, is_second));
        });
        let engine = &self.engine;
        Ok(match waiting::briefly(py, || engine.get(get))? {
            Ok(transfer) => {
                if let Some(watching) = &self.watching {
                    watching.watch_attempt(|| transfer.watch(), &made);
                }
                State::Running(Running { transfer, made, plan })
            }
            Err(error) => State::Failed(error.into()),
        })
    }

    /// The next one that is over; those that turned out to be large are begun anew.
    fn next_over(&mut self, py: Python<'_>) -> PyResult<Option<Flight>> {
        waiting::own(py, &self.engine)?;
        loop {
            self.begin(py)?;
            if self.flights.is_empty() {
                return Ok(None);
            }
            let at = match self.options.ordered {
                true => {
                    if let Some(Flight { state: State::Running(running), .. }) = self.flights.front() {
                        let transfer = &running.transfer;
                        waiting::until(py, &self.engine, |slice| transfer.wait_timeout(slice))?;
                    }
                    Some(0)
                }
                false => {
                    let ended = self.next_ended(py)?;
                    self.flights.iter().position(|flight| flight.is(ended))
                }
            };
            // An end may be that of an attempt which another has followed.
            let Some(at) = at else { continue };
            if !self.flights[at].is_to_be_begun_anew() {
                return Ok(self.flights.remove(at));
            }
        }
    }

    /// Which attempt ends next.
    fn next_ended(&mut self, py: Python<'_>) -> PyResult<Attempt> {
        let told = self.ended.1.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut ended = None;
        let found = &mut ended;
        waiting::until(py, &self.engine, move |slice| match told.recv_timeout(slice) {
            Ok(attempt) => {
                *found = Some(attempt);
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        })?;
        ended.ok_or_else(|| Failure::panicked().raise(py))
    }

    /// Nothing more comes.
    fn finish(&mut self, py: Python<'_>) {
        self.wanted = None;
        if self.engine.is_foreign() {
            // Begun by the process that forked this one: perhaps under locks that nobody will ever open here.
            std::mem::forget(std::mem::take(&mut self.flights));
        }
        for flight in &self.flights {
            if let State::Running(running) = &flight.state {
                running.transfer.cancel_switch().cancel();
            }
        }
        let flights = std::mem::take(&mut self.flights);
        exit::detached(py, || drop(flights));
        if let Some(watching) = self.watching.take() {
            watching.end(py);
        }
    }

    fn try_next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(usize, Bound<'py, PyAny>)>> {
        let Some(Flight { index, state }) = self.next_over(py)? else {
            self.finish(py);
            return Ok(None);
        };
        let result = match state {
            State::Empty => Ok(Buffer::empty()),
            State::Failed(failure) => Err(failure),
            State::Waiting(_) => Err(Failure::panicked()),
            State::Running(Running { transfer, made, plan }) => match transfer.wait() {
                Ok(report) => {
                    let info = Info::of_report(&plan.url, &plan.location, report);
                    let buffer = made.take().ok_or_else(Failure::panicked);
                    buffer.map(|block| Buffer::from(block).with_info(info))
                }
                Err(error) => {
                    let failure = Failure::from(error);
                    let (if_match, version_id) = (plan.if_match.as_deref(), plan.version_id.as_deref());
                    let object = Which { location: &plan.location, if_match, version_id };
                    match is_of_nothing(py, &self.engine, object, &plan.span, &failure)? {
                        true => Ok(Buffer::empty()),
                        false => Err(failure),
                    }
                }
            },
        };
        match result {
            Ok(buffer) => Ok(Some((index, Bound::new(py, buffer)?.into_any()))),
            Err(failure) if self.options.return_exceptions => Ok(Some((index, failure.exception(py)?))),
            Err(failure) => Err(failure.raise(py)),
        }
    }
}

/// What reads one of many, of which at most so many bytes come, where that is known: where it is not, no more than those of a small
/// object come, and [`Made::beyond`] tells how many there are.
pub fn get_of(location: Location, span: Span, bytes: Option<u64>) -> (Get, Made) {
    let made = match bytes {
        Some(_) => Made::new(),
        None => Made::at_most(SMALL_BYTES),
    };
    let get = Get::new(location, Landing::Made(made.clone()));
    // One plain GET brings a small object and its checksum.
    let get = match span == Span::All && bytes.unwrap_or(SMALL_BYTES) <= SMALL_BYTES {
        true => get.in_one_answer(),
        false => get.with_span(span),
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

    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<(usize, Bound<'py, PyAny>)>> {
        let py = slf.py();
        let mut this = slf.try_borrow_mut().map_err(|_| of_another_thread(py))?;
        let next = this.try_next(py);
        if next.is_err() {
            this.finish(py);
        }
        next
    }

    /// Ends what is on its way.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        slf.try_borrow_mut().map_err(|_| of_another_thread(py))?.finish(py);
        Ok(())
    }
}

impl Drop for ReadMany {
    fn drop(&mut self) {
        // Without an interpreter there is no bar to be taken away.
        Python::try_attach(|py| {
            // A loop that an exception ends drops its iterator with the exception still to be raised.
            let raised = PyErr::take(py);
            self.finish(py);
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
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
