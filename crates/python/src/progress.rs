//! The progress of a call, to be watched from another thread.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use flatout_engine::{AllocatedBuffer, Watch};
use pyo3::prelude::*;

use crate::errors::Failure;

/// The progress of a call: passed to it as ``progress=``, watched from another thread or task. It serves one
/// call.
#[pyclass(frozen, module = "flatout", weakref)]
#[derive(Default)]
pub struct Progress {
    watched: Mutex<ProgressState>,
}

#[derive(Default)]
struct ProgressState {
    begun: Option<Instant>,
    ended: Option<Instant>,
    /// A call may have several transfers.
    transfers: Vec<WatchedTransfer>,
    /// The bytes of transfers that are whole, and were taken out of `transfers`.
    settled_bytes: u64,
}

/// After this many transfers those that are over are taken out: a call may have millions.
const LOOK_AGAIN: usize = 256;

/// A transfer, and where it lands in memory that may turn out too small: it then does not count, since the
/// object is read anew.
struct WatchedTransfer {
    transfer: Watch,
    made: Option<AllocatedBuffer>,
}

impl WatchedTransfer {
    fn counts(&self) -> bool {
        self.made.as_ref().is_none_or(|made| made.beyond().is_none())
    }
}

struct ProgressNow {
    done: u64,
    total: Option<u64>,
    limited_by: Option<String>,
}

impl ProgressNow {
    fn of(watch: &Watch) -> ProgressNow {
        let now = watch.progress();
        let limited_by = now.limited_by.map(|by| by.to_string());
        ProgressNow { done: now.landed_bytes, total: now.total_bytes, limited_by }
    }
}

impl Progress {
    /// A call begins.
    ///
    /// # Errors
    /// It serves or has served another call.
    pub fn begin(&self) -> Result<(), Failure> {
        let mut watched = self.lock();
        if watched.begun.is_some() {
            return Err(Failure::usage("", "this Progress serves another call")
                .with_hint("make a Progress() for each call"));
        }
        watched.begun = Some(Instant::now());
        Ok(())
    }

    pub fn watch(&self, transfer: Watch, made: Option<AllocatedBuffer>) {
        let mut watched = self.lock();
        if watched.transfers.len() % LOOK_AGAIN == LOOK_AGAIN - 1 {
            let mut settled_bytes = 0;
            watched.transfers.retain(|seeing| {
                if !seeing.counts() {
                    return false;
                }
                let seen = ProgressNow::of(&seeing.transfer);
                let is_whole = seen.total == Some(seen.done);
                settled_bytes += if is_whole { seen.done } else { 0 };
                !is_whole
            });
            watched.settled_bytes += settled_bytes;
        }
        watched.transfers.push(WatchedTransfer { transfer, made });
    }

    pub fn end(&self) {
        self.lock().ended = Some(Instant::now());
    }

    fn seen(&self) -> ProgressNow {
        let watched = self.lock();
        let settled = watched.settled_bytes;
        let total = (!watched.transfers.is_empty()).then_some(settled);
        let mut all = ProgressNow { done: settled, total, limited_by: None };
        let seen = watched.transfers.iter().filter(|seeing| seeing.counts());
        for seen in seen.map(|seeing| ProgressNow::of(&seeing.transfer)) {
            all.done += seen.done;
            all.total = all.total.zip(seen.total).map(|(all, one)| all + one);
            all.limited_by = all.limited_by.or(seen.limited_by);
        }
        all
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ProgressState> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Progress {
    #[new]
    fn new() -> Progress {
        Progress::default()
    }

    /// Bytes landed.
    #[getter]
    fn done(&self) -> u64 {
        self.seen().done
    }

    /// Bytes that will land; None until that is known.
    #[getter]
    fn total(&self) -> Option<u64> {
        self.seen().total
    }

    /// What holds the speed back now, in words and figures; None before there is much to say.
    #[getter]
    fn limited_by(&self) -> Option<String> {
        self.seen().limited_by
    }

    /// Seconds from the call's beginning to now, or to its end.
    #[getter]
    fn elapsed(&self) -> f64 {
        let watched = self.lock();
        let Some(begun) = watched.begun else { return 0.0 };
        (watched.ended.unwrap_or_else(Instant::now) - begun).as_secs_f64()
    }

    /// Bytes a second since the call began.
    #[getter]
    fn rate(&self) -> f64 {
        let elapsed = self.elapsed();
        if elapsed > 0.0 { self.done() as f64 / elapsed } else { 0.0 }
    }

    /// Whether the call has ended.
    #[getter]
    fn is_over(&self) -> bool {
        self.lock().ended.is_some()
    }

    fn __repr__(&self) -> String {
        let total = self.total().map_or_else(|| "?".to_owned(), |total| total.to_string());
        format!("Progress({} of {total} bytes in {:.1} s)", self.done(), self.elapsed())
    }
}
