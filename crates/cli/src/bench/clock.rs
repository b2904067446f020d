//! What is read while a fetch runs: the time, the CPU of both sides, and how many bytes had landed when.

use std::fs;
use std::time::Instant;

use flatout_engine::LimitedBy;

use crate::bench::floor::FloorShape;
use crate::bench::origin_process::{OriginCpu, OriginProcess};
use crate::bench::run::ByteSample;
use crate::bench::run::{Measurement, PartTiming, ttfb_ms};
use crate::bench::samples::{Sampler, peak_gbit, plateau_s};
use crate::bench::spec::Spec;
use crate::events::Tails;
use crate::limited::Limited;
use crate::sys;

/// A running clock.
pub struct Stopwatch {
    cpu_seconds: f64,
    origin: Option<OriginCpu>,
    /// Whether anybody looks how many bytes have landed.
    sampled: bool,
    /// Whether the parent is told.
    progress: bool,
    sampler: Option<Sampler>,
    pub start: Instant,
}

impl Stopwatch {
    /// For a repetition, which reports all that can be read.
    pub fn start(spec: &Spec) -> Stopwatch {
        let origin = OriginProcess::of(spec.address).map(OriginProcess::watch);
        Stopwatch { origin, sampled: true, progress: spec.progress, ..Stopwatch::unwatched() }
    }

    /// For a peer, which the lab measures from outside: nothing runs here that the lab would count.
    pub fn unwatched() -> Stopwatch {
        Stopwatch {
            cpu_seconds: sys::cpu_seconds(),
            origin: None,
            sampled: false,
            progress: false,
            sampler: None,
            start: Instant::now(),
        }
    }

    /// Looks from now on, if anybody wants to know.
    pub fn sample(&mut self, landed_bytes: impl Fn() -> u64 + Send + 'static) {
        if self.sampled {
            self.sampler = Some(Sampler::start(self.start, self.progress, landed_bytes));
        }
    }

    pub fn stop(self, bytes: u64) -> Elapsed {
        let seconds = self.start.elapsed().as_secs_f64();
        let cpu_seconds = sys::cpu_seconds() - self.cpu_seconds;
        let origin_busy = self.origin.and_then(|origin| origin.busy());
        let samples = self.sampler.map(|sampler| sampler.finish(seconds, bytes)).unwrap_or_default();
        Elapsed { bytes, seconds, cpu_seconds, origin_busy, samples }
    }
}

/// What was read from it.
pub struct Elapsed {
    bytes: u64,
    seconds: f64,
    cpu_seconds: f64,
    origin_busy: Option<f64>,
    samples: Vec<ByteSample>,
}

/// What each side says of itself.
pub struct RunNotes {
    pub retries: u32,
    pub tails: Tails,
    pub connections: u32,
    pub shards: u32,
    pub verified: String,
    pub limited_by: Option<LimitedBy>,
}

impl RunNotes {
    pub fn of_the_floor(shape: FloorShape) -> RunNotes {
        RunNotes {
            retries: 0,
            tails: Tails::default(),
            connections: shape.connections,
            shards: shape.shards(),
            verified: "none: the floor does not look at the bytes".into(),
            limited_by: None,
        }
    }
}

/// What was measured, of either side; the engine's and the floor's own words for the rest come from the
/// caller.
pub fn run(elapsed: Elapsed, rows: Vec<PartTiming>, spec: &Spec, words: RunNotes) -> Measurement {
    Measurement {
        bytes: elapsed.bytes,
        objects: None,
        seconds: elapsed.seconds,
        gbit_peak: peak_gbit(&elapsed.samples),
        cpu_seconds: elapsed.cpu_seconds,
        peak_rss_mib: peak_rss_mib(),
        ttfb_ms_p50: ttfb_ms(&rows, 50.0),
        ttfb_ms_p99: ttfb_ms(&rows, 99.0),
        parts: rows.len() as u32,
        retries: words.retries,
        tails: words.tails,
        connections: words.connections,
        shards: words.shards,
        verified: words.verified,
        origin_busy: elapsed.origin_busy,
        plateau_s: words.limited_by.and_then(|_| plateau_s(&elapsed.samples)),
        limited_by: words.limited_by.map(Limited::from),
        rows: if spec.rows { rows } else { Vec::new() },
        samples: if spec.rows { elapsed.samples } else { Vec::new() },
    }
}

/// `VmHWM` of this process in MiB; 0 where the kernel does not say.
fn peak_rss_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
