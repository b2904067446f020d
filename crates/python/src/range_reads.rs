//! Several ranges of one object in one call: near ones in one request, each where it is wanted.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use flatout_engine::{Block, Error, ErrorKind, Get, Landing, Made, Memory, Transfer, Version};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use pyo3::prelude::*;

use crate::buffer::Buffer;

use crate::engine::Engine;
use crate::errors::Failure;
use crate::exit;
use crate::info::Info;
use crate::lent::Lent;
use crate::ranges::{Run, runs};
use crate::waiting;
use crate::watching::Watching;
use crate::which::{Which, conditional, is_of_nothing, of_version};

/// So many requests are begun ahead of the one that is waited for; the engine itself decides how many are on their way.
const AHEAD: usize = 256;

/// Where a range goes: a buffer of the caller's, or one that is made for it.
pub enum Target {
    /// There once it has landed.
    Own(Option<Buffer>),
    Lent(Lent),
}

impl Target {
    /// What came, as a buffer of its own.
    pub fn buffer(self) -> Buffer {
        match self {
            Target::Own(buffer) => buffer.unwrap_or_else(Buffer::empty),
            Target::Lent(_) => unreachable!("what is lent is given back"),
        }
    }

    /// Gives back what was lent.
    pub fn release(self, py: Python<'_>) {
        if let Target::Lent(lent) = self {
            lent.release(py);
        }
    }

    fn fill(&mut self, from: &[u8], info: &Option<Arc<Info>>) -> Result<(), Error> {
        match self {
            Target::Own(buffer) => {
                let mut block = Block::new(from.len() as u64)?;
                block.as_mut_slice().copy_from_slice(from);
                *buffer = Some(Buffer::from(block).with_info(info.clone()));
            }
            Target::Lent(lent) => lent.fill(0, from),
        }
        Ok(())
    }
}

/// A run on its way.
struct Flight {
    // Goes before the memory that it writes to.
    transfer: Transfer,
    run: Run,
    lands: Lands,
}

/// Where a run lands.
enum Lands {
    /// In the target of its only range.
    There,
    /// In memory made for its only range.
    Made(Made),
    /// Several ranges together, to be copied from here.
    Together(Block),
}

fn scratch_bytes(flights: &VecDeque<Flight>) -> u64 {
    flights
        .iter()
        .map(|flight| if let Lands::Together(scratch) = &flight.lands { scratch.len() as u64 } else { 0 })
        .sum()
}

/// What is read, and where from.
pub struct Reads<'a> {
    pub engine: &'a Arc<Engine>,
    pub url: &'a str,
    pub location: &'a Location,
    pub if_match: Option<&'a str>,
    pub version_id: Option<&'a str>,
    pub max_gap: u64,
    pub watching: &'a Watching,
}

impl Reads<'_> {
    /// Fills each target with its range, all of one version; how many bytes there were of each.
    pub fn read(
        &self,
        py: Python<'_>,
        ranges: &[Range<u64>],
        targets: &mut [Target],
    ) -> PyResult<Vec<usize>> {
        let mut filled = vec![0; ranges.len()];
        let mut runs: VecDeque<Run> = runs(ranges, self.max_gap).into();
        let mut flights: VecDeque<Flight> = VecDeque::new();
        let mut version = None;
        let done = (|| {
            while !(runs.is_empty() && flights.is_empty()) {
                // The scratches of those that land together are ours.
                while flights.len() < AHEAD
                    && (flights.is_empty() || scratch_bytes(&flights) < self.engine.memory_bytes)
                    && let Some(run) = runs.pop_front()
                {
                    flights.push_back(self.start(py, run, targets)?);
                }
                let Some(flight) = flights.pop_front() else { break };
                self.land(py, flight, ranges, targets, &mut filled, &mut version)?;
            }
            Ok(())
        })();
        // Whatever still runs writes to the targets.
        exit::detached(py, || drop(flights));
        done.map(|()| filled)
    }

    fn start(&self, py: Python<'_>, run: Run, targets: &[Target]) -> PyResult<Flight> {
        let (lands, landing) = match &targets[run.of[0]] {
            _ if run.of.len() > 1 => {
                let scratch = Block::new(run.range.end - run.range.start);
                let scratch = scratch.map_err(|error| Failure::from(error).raise(py))?;
                // SAFETY: the flight drops its transfer before its scratch.
                let memory = unsafe { Memory::new(scratch.as_ptr(), scratch.len()) };
                (Lands::Together(scratch), Landing::Memory(memory))
            }
            Target::Own(_) => {
                let made = Made::new();
                (Lands::Made(made.clone()), Landing::Made(made))
            }
            // SAFETY: `read` drops all flights before it gives the targets back, and each range is of one run.
            Target::Lent(lent) => (Lands::There, Landing::Memory(unsafe { lent.memory(0, lent.len()) })),
        };
        let get = Get::new(self.location.clone(), landing);
        let get = conditional(get.with_span(Span::Slice(run.range.clone())), self.if_match);
        let get = of_version(get, self.version_id);
        let started = waiting::briefly(py, || self.engine.get(get))?;
        let transfer = started.map_err(|error| Failure::from(error).raise(py))?;
        self.watching.watch(|| transfer.watch());
        Ok(Flight { transfer, run, lands })
    }

    fn land(
        &self,
        py: Python<'_>,
        flight: Flight,
        ranges: &[Range<u64>],
        targets: &mut [Target],
        filled: &mut [usize],
        version: &mut Option<Version>,
    ) -> PyResult<()> {
        let Flight { transfer, run, lands } = flight;
        let report = match waiting::report(py, self.engine, transfer)? {
            Ok(report) => report,
            Err(failure) => {
                let span = Span::Slice(run.range);
                let object =
                    Which { location: self.location, if_match: self.if_match, version_id: self.version_id };
                return match is_of_nothing(py, self.engine, object, &span, &failure)? {
                    true => Ok(()),
                    false => Err(failure.raise(py)),
                };
            }
        };
        match version {
            None => *version = Some(report.version.clone()),
            Some(first) if *first == report.version => {}
            Some(first) => {
                let shown = |version: &Version| version.etag.clone().unwrap_or_else(|| "none".into());
                let cause =
                    format!("the object was replaced: ETag {} and {}", shown(first), shown(&report.version));
                return Err(Failure::new(ErrorKind::Changed, "read", self.location, cause).raise(py));
            }
        }
        let landed = report.range.end;
        for &at in &run.of {
            let range = &ranges[at];
            filled[at] =
                usize::try_from(range.end.min(landed).saturating_sub(range.start)).expect("it landed");
        }
        let info = Info::of_report(self.url, self.location, report);
        match lands {
            Lands::There => {}
            Lands::Made(made) => {
                targets[run.of[0]] = Target::Own(made.take().map(|block| Buffer::from(block).with_info(info)))
            }
            Lands::Together(scratch) => {
                let copied = exit::detached(py, || {
                    run.of.iter().try_for_each(|&at| {
                        let start =
                            usize::try_from(ranges[at].start - run.range.start).expect("runs are short");
                        targets[at].fill(&scratch.as_slice()[start..start + filled[at]], &info)
                    })
                });
                copied.map_err(|error| Failure::from(error).raise(py))?;
            }
        }
        Ok(())
    }
}

/// Where each range goes: a buffer of the caller's, or one made for it.
pub fn targets(
    py: Python<'_>,
    ranges: &[Range<u64>],
    out: Option<&[Bound<'_, PyAny>]>,
) -> PyResult<Vec<Target>> {
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

/// Refuses buffers that do not fit their ranges, or have bytes in common: what is to be filled later, one after the other.
#[pyfunction]
pub fn check_out(py: Python<'_>, ranges: Vec<(u64, u64)>, out: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
    let ranges: Vec<_> = ranges.into_iter().map(|(start, end)| start..end).collect();
    targets(py, &ranges, Some(&out))?.into_iter().for_each(|target| target.release(py));
    Ok(())
}
