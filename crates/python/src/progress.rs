//! How far a call is, for whoever looks at it from another thread.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use flatout_engine::{ManyWatch, Watch};
use pyo3::prelude::*;

use crate::errors::Failure;

/// How far a call is: handed to it as `progress=`, looked at from another thread or task. It serves one call.
///
/// done (int: bytes landed), total (int | None: bytes that will, once known), elapsed (float: seconds since the call began),
/// rate (float: bytes a second since then), limited_by (str | None: what holds the speed back now).
#[pyclass(frozen, module = "flatout", weakref)]
#[derive(Default)]
pub struct Progress {
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    begun: Option<Instant>,
    ended: Option<Instant>,
    sources: Vec<Source>,
    /// Of transfers that are whole, and are not looked at any more.
    settled_bytes: u64,
}

/// So many transfers are looked at before it is seen which are over: a call may have millions.
const LOOK_AGAIN: usize = 256;

/// Where counts come from; a call may have several transfers.
pub enum Source {
    One(Watch),
    Many(ManyWatch),
}

struct Seen {
    done: u64,
    total: Option<u64>,
    limited_by: Option<String>,
}

impl Source {
    fn seen(&self) -> Seen {
        match self {
            Source::One(watch) => {
                let now = watch.progress();
                let limited_by = now.limited_by.map(|by| by.to_string());
                Seen { done: now.landed_bytes, total: now.total_bytes, limited_by }
            }
            Source::Many(watch) => {
                let now = watch.progress();
                let total = now.is_complete.then_some(now.total_bytes);
                Seen { done: now.landed_bytes, total, limited_by: now.limited_by.map(|by| by.to_string()) }
            }
        }
    }
}

impl Progress {
    /// A call begins.
    ///
    /// # Errors
    /// It serves or served another.
    pub fn begin(&self) -> Result<(), Failure> {
        let mut watched = self.lock();
        if watched.begun.is_some() {
            return Err(Failure::usage("", "this Progress serves another call")
                .with_hint("make a Progress() for each call"));
        }
        watched.begun = Some(Instant::now());
        Ok(())
    }

    pub fn watch(&self, source: Source) {
        let mut watched = self.lock();
        if watched.sources.len() % LOOK_AGAIN == LOOK_AGAIN - 1 {
            let mut settled_bytes = 0;
            watched.sources.retain(|source| {
                let seen = source.seen();
                let is_whole = seen.total == Some(seen.done);
                settled_bytes += if is_whole { seen.done } else { 0 };
                !is_whole
            });
            watched.settled_bytes += settled_bytes;
        }
        watched.sources.push(source);
    }

    pub fn end(&self) {
        self.lock().ended = Some(Instant::now());
    }

    fn seen(&self) -> Seen {
        let watched = self.lock();
        let settled = watched.settled_bytes;
        let total = (!watched.sources.is_empty()).then_some(settled);
        let mut all = Seen { done: settled, total, limited_by: None };
        for seen in watched.sources.iter().map(Source::seen) {
            all.done += seen.done;
            all.total = all.total.zip(seen.total).map(|(all, one)| all + one);
            all.limited_by = all.limited_by.or(seen.limited_by);
        }
        all
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Progress {
    #[new]
    fn new() -> Progress {
        Progress::default()
    }

    #[getter]
    fn done(&self) -> u64 {
        self.seen().done
    }

    #[getter]
    fn total(&self) -> Option<u64> {
        self.seen().total
    }

    #[getter]
    fn limited_by(&self) -> Option<String> {
        self.seen().limited_by
    }

    #[getter]
    fn elapsed(&self) -> f64 {
        let watched = self.lock();
        let Some(begun) = watched.begun else { return 0.0 };
        (watched.ended.unwrap_or_else(Instant::now) - begun).as_secs_f64()
    }

    #[getter]
    fn rate(&self) -> f64 {
        let elapsed = self.elapsed();
        if elapsed > 0.0 { self.done() as f64 / elapsed } else { 0.0 }
    }

    #[getter]
    fn is_over(&self) -> bool {
        self.lock().ended.is_some()
    }

    fn __repr__(&self) -> String {
        let total = self.total().map_or_else(|| "?".to_owned(), |total| total.to_string());
        format!("Progress({} of {total} bytes in {:.1} s)", self.done(), self.elapsed())
    }
}
