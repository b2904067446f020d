//! One second of reading into nowhere, by the engine as it is set, with an eye on the cores.

use std::path::Path;
use std::time::{Duration, Instant};

use flatout_engine::{Client, ErrorKind, Get, Landing, Transfer};
use flatout_settings::Settings;

use super::machine::ticks;
use super::origin_probe::ProbedObject;
use crate::bench::peak_gbit;
use crate::failure::Failure;
use crate::sys;

/// Long enough to see what limits, short enough to wait for, and to pay for.
const LASTS: Duration = Duration::from_secs(1);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// A small object is read again and again, but no more often than this.
const ROUNDS_MAX: u32 = 50;

/// What a second brought.
#[derive(Debug)]
pub struct SpeedTest {
    /// The name of what was read.
    pub object: String,
    /// Its size.
    pub object_bytes: Option<u64>,
    /// From the first byte to the end.
    pub seconds: f64,
    pub bytes: u64,
    /// Of the best 100 ms.
    pub gbit_peak: f64,
    /// Parts in flight at once, each on a connection of its own.
    pub connections: u32,
    /// Whether the origin answers ranges; one that does not sends one stream.
    pub serves_ranges: bool,
    pub retries: u32,
    /// How many cores this process kept busy.
    pub own_cores: f64,
    /// How many cores everybody else kept busy.
    pub other_cores: Option<f64>,
    /// What ended it early.
    pub failure: Option<Failure>,
    pub parallel: Option<u32>,
    pub part_bytes: Option<u64>,
    pub shards: u32,
}

impl SpeedTest {
    /// Reads for a second.
    pub fn run(client: &Client, settings: &Settings, object: &ProbedObject) -> SpeedTest {
        let mut speed_test = SpeedTest {
            object: object.location.to_string(),
            object_bytes: object.bytes,
            seconds: 0.0,
            bytes: 0,
            gbit_peak: 0.0,
            connections: 0,
            serves_ranges: object.serves_ranges,
            retries: 0,
            own_cores: 0.0,
            other_cores: None,
            failure: None,
            parallel: settings.parallel,
            part_bytes: settings.part_bytes,
            shards: settings.shards,
        };
        let (own_before_s, all_before) = (sys::cpu_seconds(), ticks(Path::new("/")));
        let begun = Instant::now();
        let samples = speed_test.read(client, object, begun);
        let elapsed_s = begun.elapsed().as_secs_f64();
        speed_test.take_samples(&samples);
        let own_s = sys::cpu_seconds() - own_before_s;
        speed_test.own_cores = own_s / elapsed_s;
        let busy =
            all_before.zip(ticks(Path::new("/"))).map(|(before, after)| after.0.saturating_sub(before.0));
        let busy_s = busy.map(|ticks| ticks as f64 / sys::ticks_per_second());
        speed_test.other_cores = busy_s.map(|busy_s| ((busy_s - own_s) / elapsed_s).max(0.0));
        speed_test
    }

    /// Seconds since `begun` and bytes landed by then.
    fn read(&mut self, client: &Client, object: &ProbedObject, begun: Instant) -> Vec<(f64, u64)> {
        let (mut samples, mut before_bytes) = (vec![(0.0, 0)], 0);
        for _ in 0..ROUNDS_MAX {
            if begun.elapsed() >= LASTS {
                break;
            }
            let transfer = match client.get(Get::new(object.location.clone(), Landing::Nowhere)) {
                Ok(transfer) => transfer,
                Err(error) => {
                    self.failure = Some(error.into());
                    break;
                }
            };
            let ended = self.follow(&transfer, begun, before_bytes, &mut samples);
            let progress = transfer.progress();
            before_bytes += progress.landed_bytes;
            samples.push((begun.elapsed().as_secs_f64(), before_bytes));
            self.retries += progress.retries;
            // Dropped before its end, it is cancelled.
            if let Some(Err(error)) = ended.then(|| transfer.wait()) {
                self.failure = Some(error.into());
                break;
            }
        }
        samples
    }

    /// Watches until the time is over, or the transfer; whether it ended.
    fn follow(
        &mut self,
        transfer: &Transfer,
        begun: Instant,
        before_bytes: u64,
        samples: &mut Vec<(f64, u64)>,
    ) -> bool {
        loop {
            let ended = transfer.wait_timeout(LOOK);
            let progress = transfer.progress();
            self.connections = self.connections.max(progress.in_flight);
            samples.push((begun.elapsed().as_secs_f64(), before_bytes + progress.landed_bytes));
            if ended || begun.elapsed() >= LASTS {
                return ended;
            }
        }
    }

    /// What came before the first byte was waiting, not speed.
    fn take_samples(&mut self, samples: &[(f64, u64)]) {
        let first = samples.iter().rposition(|(_, bytes)| *bytes == 0).unwrap_or_default();
        let arrived: Vec<(f64, u64)> =
            samples[first..].iter().map(|(at, bytes)| (at - samples[first].0, *bytes)).collect();
        let (seconds, bytes) = arrived.last().copied().unwrap_or_default();
        (self.seconds, self.bytes, self.gbit_peak) = (seconds, bytes, peak_gbit(&arrived));
    }

    /// What is in flight at once at least, when it goes fast.
    pub fn filling_bytes(&self) -> u64 {
        let (parallel, part_bytes) = (self.parallel.unwrap_or(16), self.part_bytes.unwrap_or(8 << 20));
        u64::from(parallel).saturating_mul(part_bytes)
    }

    /// On average.
    pub fn gbit(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8e-9 / self.seconds } else { 0.0 }
    }

    /// Of each connection, on average.
    pub fn mb_per_connection(&self) -> f64 {
        self.gbit() * 125.0 / f64::from(self.connections.max(1))
    }
}

/// Whether a failure says that the origin wants less.
pub fn is_throttled(failure: &Failure) -> bool {
    failure.kind == ErrorKind::Throttled.name()
}
