//! Several ranges of one object in one call: near ones in one request, each to where it is wanted.

use std::ops::Range;
use std::sync::Arc;

use flatout_engine::{AlignedBuffer, Error, ErrorKind, Version};
use flatout_wire::range::Span;
use pyo3::prelude::*;

use crate::borrowed_buffer::BorrowedBuffer;
use crate::buffer::Buffer;
use crate::call_progress::CallProgress;
use crate::destination::{Destination, OwnedTransfer};
use crate::engine::Engine;
use crate::errors::{Failure, OrRaise};
use crate::exit;
use crate::object_meta::ObjectMeta;
use crate::object_ref::{ObjectRef, confirm_empty};
use crate::ranges::{Run, runs};
use crate::transfer_set::{Ended, Order, TransferSet};

/// How many requests are started ahead of the one that is waited for; the engine itself decides how many are
/// in flight.
const AHEAD: usize = 256;

/// Where a range goes.
pub enum Target {
    /// A new buffer, once the range has landed.
    New(Option<Buffer>),
    /// A buffer of the caller's, away while a transfer writes to it.
    Borrowed(Option<BorrowedBuffer>),
}

impl Target {
    /// The new buffer; an empty one where no byte came.
    pub fn buffer(self) -> Buffer {
        match self {
            Target::New(buffer) => buffer.unwrap_or_else(Buffer::empty),
            Target::Borrowed(_) => unreachable!("a buffer of the caller's is given back"),
        }
    }

    /// Gives a borrowed buffer back.
    pub fn release(self, py: Python<'_>) {
        if let Target::Borrowed(Some(buffer)) = self {
            buffer.release(py);
        }
    }

    fn fill(&mut self, from: &[u8], meta: &Option<Arc<ObjectMeta>>) -> Result<(), Error> {
        match self {
            Target::New(buffer) => {
                let mut block = AlignedBuffer::new(from.len() as u64)?;
                block.as_mut_slice().copy_from_slice(from);
                *buffer = Some(Buffer::from(block).with_info(meta.clone()));
            }
            Target::Borrowed(buffer) => {
                buffer.as_ref().expect("each range is of one request").fill(0, from);
            }
        }
        Ok(())
    }
}

/// The memory of our own that a transfer lands in.
fn scratch_bytes(transfer: &OwnedTransfer) -> u64 {
    match transfer.destination() {
        Destination::Scratch(scratch) => scratch.len() as u64,
        _ => 0,
    }
}

/// A call that reads ranges of one object.
pub struct RangeReads<'a> {
    pub engine: &'a Arc<Engine>,
    pub url: &'a str,
    pub object: ObjectRef<'a>,
    pub max_gap: u64,
    pub progress: &'a CallProgress,
}

impl RangeReads<'_> {
    /// Fills each target with its range, all of one version; how many bytes there were of each.
    pub fn read(
        &self,
        py: Python<'_>,
        ranges: &[Range<u64>],
        targets: &mut [Target],
    ) -> PyResult<Vec<usize>> {
        let mut filled = vec![0; ranges.len()];
        let mut runs = (0..).zip(runs(ranges, self.max_gap));
        let mut reads = TransferSet::new(self.engine.clone(), Order::Number);
        let mut version = None;
        loop {
            // Scratches are our own memory, which the client's limit bounds.
            let held = |reads: &TransferSet<Run>| {
                reads.running().map(|(transfer, _)| scratch_bytes(transfer)).sum::<u64>()
            };
            while reads.running().len() < AHEAD
                && (reads.running().len() == 0 || held(&reads) < self.engine.memory_bytes)
                && let Some((number, run)) = runs.next()
            {
                self.start(py, &mut reads, number, run, targets)?;
            }
            let Some(ended) = reads.next(py)? else { return Ok(filled) };
            self.land(py, ended, ranges, targets, &mut filled, &mut version)?;
        }
    }

    fn start(
        &self,
        py: Python<'_>,
        reads: &mut TransferSet<Run>,
        number: u64,
        run: Run,
        targets: &mut [Target],
    ) -> PyResult<()> {
        let destination = match &mut targets[run.of[0]] {
            _ if run.of.len() > 1 => {
                let scratch = AlignedBuffer::new(run.range.end - run.range.start);
                Destination::Scratch(scratch.or_raise(py)?)
            }
            Target::New(_) => Destination::made(),
            Target::Borrowed(buffer) => {
                Destination::Borrowed(buffer.take().expect("each range is of one request"))
            }
        };
        let get = self.object.get().with_span(Span::Slice(run.range.clone()));
        let transfer = reads.start(py, number, get, destination, run)?;
        self.progress.watch(transfer.or_raise(py)?);
        Ok(())
    }

    fn land(
        &self,
        py: Python<'_>,
        ended: Ended<Run>,
        ranges: &[Range<u64>],
        targets: &mut [Target],
        filled: &mut [usize],
        version: &mut Option<Version>,
    ) -> PyResult<()> {
        let Ended { result, destination, item: run, .. } = ended;
        let report = match result {
            Ok(report) => report,
            Err(failure) => {
                let span = Span::Slice(run.range);
                return confirm_empty(py, self.engine, self.object, &span, failure)?.or_raise(py);
            }
        };
        let first = version.get_or_insert_with(|| report.version.clone());
        if *first != report.version {
            let shown = |version: &Version| version.etag.clone().unwrap_or_else(|| "none".into());
            let cause =
                format!("the object was replaced: ETag {} and {}", shown(first), shown(&report.version));
            return Err(Failure::new(ErrorKind::Changed, "read", self.object.location, cause).raise(py));
        }
        let landed = report.range.end;
        for &at in &run.of {
            let range = &ranges[at];
            filled[at] =
                usize::try_from(range.end.min(landed).saturating_sub(range.start)).expect("it landed");
        }
        let meta = ObjectMeta::of_report(self.url, self.object.location, report);
        match destination {
            Destination::Scratch(scratch) => {
                let copied = exit::detached(py, || {
                    run.of.iter().try_for_each(|&at| {
                        let start =
                            usize::try_from(ranges[at].start - run.range.start).expect("runs are short");
                        targets[at].fill(&scratch.as_slice()[start..start + filled[at]], &meta)
                    })
                });
                copied.or_raise(py)?;
            }
            Destination::Borrowed(buffer) => targets[run.of[0]] = Target::Borrowed(Some(buffer)),
            made => {
                let buffer = made.into_buffer().or_raise(py)?;
                targets[run.of[0]] = Target::New(Some(buffer.with_info(meta)));
            }
        }
        Ok(())
    }
}

/// The target of each range: a buffer of `out`, or a new one.
///
/// # Errors
/// UsageError where there are not as many buffers as ranges, one is shorter than its range, or two share
/// bytes.
pub fn targets(
    py: Python<'_>,
    ranges: &[Range<u64>],
    out: Option<&[Bound<'_, PyAny>]>,
) -> PyResult<Vec<Target>> {
    let bytes = |range: &Range<u64>| usize::try_from(range.end - range.start).expect("a word has 64 bits");
    let Some(out) = out else {
        return Ok(ranges.iter().map(|_| Target::New(None)).collect());
    };
    if out.len() != ranges.len() {
        let cause = format!("{} buffers for {} ranges", out.len(), ranges.len());
        return Err(Failure::usage("read", cause).with_hint("pass as many buffers as ranges").raise(py));
    }
    let buffers = out.iter().map(BorrowedBuffer::new).collect::<PyResult<Vec<_>>>()?;
    if let Some(at) = buffers.iter().zip(ranges).position(|(buffer, range)| buffer.len() < bytes(range)) {
        let cause =
            format!("buffer {at} holds {} bytes, its range has {}", buffers[at].len(), bytes(&ranges[at]));
        return Err(Failure::usage("read", cause)
            .with_hint("pass a larger buffer, or a shorter range")
            .raise(py));
    }
    let mut places: Vec<_> = buffers
        .iter()
        .zip(ranges)
        .enumerate()
        .map(|(at, (buffer, range))| (buffer.addresses(bytes(range)), at))
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
    Ok(buffers.into_iter().map(|buffer| Target::Borrowed(Some(buffer))).collect())
}

/// Refuses buffers that do not fit their ranges, or share bytes: for asyncio, which fills them later, one
/// after the other.
#[pyfunction]
pub fn check_out(py: Python<'_>, ranges: Vec<(u64, u64)>, out: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
    let ranges: Vec<_> = ranges.into_iter().map(|(start, end)| start..end).collect();
    targets(py, &ranges, Some(&out))?.into_iter().for_each(|target| target.release(py));
    Ok(())
}
