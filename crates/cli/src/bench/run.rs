//! One measured run: its figures, its parts, and the arithmetic on several of them.

use serde::{Deserialize, Serialize};

use crate::events::Tails;
use crate::limited::Limited;

/// What one repetition measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    pub bytes: u64,
    /// How many objects, of a run of many.
    pub objects: Option<u64>,
    /// Wall time, from before the first connection to the last byte in its landing.
    pub seconds: f64,
    /// The best window: 1 s, or 100 ms of a run under 3 s.
    pub gbit_peak: f64,
    /// User and system time of the process within those seconds.
    pub cpu_seconds: f64,
    /// The process's largest resident set, the buffer of a memory landing included.
    pub peak_rss_mib: f64,
    pub ttfb_ms_p50: f64,
    pub ttfb_ms_p99: f64,
    pub parts: u32,
    pub retries: u32,
    /// Of the floor, and of many objects: none.
    pub tails: Tails,
    pub connections: u32,
    pub shards: u32,
    pub verified: String,
    /// Cores' worth of CPU that the origin used meanwhile; `None` when it is not on this machine or not to be
    /// found.
    pub origin_busy: Option<f64>,
    /// When 90 % of what the run settled at were reached, in seconds; `None` of a short run, and of the
    /// floor.
    pub plateau_s: Option<f64>,
    /// What limited it longest; `None` of a short run, and of the floor.
    pub limited_by: Option<Limited>,
    /// Empty unless asked for.
    pub rows: Vec<PartTiming>,
    /// Empty unless asked for: seconds since the run's start, bytes landed by then.
    pub samples: Vec<ByteSample>,
}

/// A look: seconds since the start, bytes landed.
pub type ByteSample = (f64, u64);

/// One part: the record of seed 002. Times are seconds since the run's start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartTiming {
    pub index: u64,
    pub address: String,
    pub connection: u32,
    pub start_s: f64,
    pub first_byte_s: f64,
    pub end_s: f64,
    pub bytes: u64,
    pub attempts: u32,
}

impl Measurement {
    /// The medians of runs of the same bytes; what is no figure is that of `one` of them.
    pub fn median_of<'a>(
        runs: impl Iterator<Item = &'a Measurement> + Clone,
        one: &Measurement,
    ) -> Measurement {
        let of = |figure: fn(&Measurement) -> f64| median(runs.clone().map(figure));
        Measurement {
            seconds: of(|run| run.seconds),
            gbit_peak: of(|run| run.gbit_peak),
            cpu_seconds: of(|run| run.cpu_seconds),
            peak_rss_mib: of(|run| run.peak_rss_mib),
            ttfb_ms_p50: of(|run| run.ttfb_ms_p50),
            ttfb_ms_p99: of(|run| run.ttfb_ms_p99),
            rows: Vec::new(),
            samples: Vec::new(),
            ..one.clone()
        }
    }

    pub fn gib_per_s(&self) -> f64 {
        self.gib() / self.seconds
    }

    pub fn gbit_avg(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e9 / self.seconds
    }

    pub fn cpu_s_per_gib(&self) -> f64 {
        self.cpu_seconds / self.gib()
    }

    pub fn objects_per_s(&self) -> Option<f64> {
        Some(self.objects? as f64 / self.seconds)
    }

    pub fn cpu_us_per_object(&self) -> Option<f64> {
        Some(self.cpu_seconds * 1e6 / self.objects? as f64)
    }

    /// Whether it still has its samples, with the rows of its parts.
    pub fn has_course(&self) -> bool {
        !self.samples.is_empty()
    }

    /// Keeps the figures alone.
    pub fn drop_course(&mut self) {
        (self.rows, self.samples) = (Vec::new(), Vec::new());
    }

    fn gib(&self) -> f64 {
        self.bytes as f64 / (1u64 << 30) as f64
    }
}

/// Time to first byte at a percentile, in milliseconds; 0 without parts.
pub fn ttfb_ms(rows: &[PartTiming], percent: f64) -> f64 {
    let mut waits: Vec<f64> = rows.iter().map(|row| (row.first_byte_s - row.start_s) * 1e3).collect();
    waits.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * waits.len() as f64).ceil() as usize;
    waits.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

/// The middle one, or the mean of the two in the middle; not a number without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let check = |values: &[f64], expected: f64| assert_eq!(median(values.iter().copied()), expected);
        check(&[3.0], 3.0);
        check(&[9.0, 1.0, 5.0], 5.0);
        check(&[4.0, 1.0, 2.0, 9.0], 3.0);
        assert!(median([]).is_nan());
    }

    #[test]
    fn percentiles_of_the_wait() {
        let row = |index: u32| PartTiming {
            index: index.into(),
            address: String::new(),
            connection: 0,
            start_s: 1.0,
            first_byte_s: 1.0 + f64::from(index) / 1e3,
            end_s: 2.0,
            bytes: 1,
            attempts: 1,
        };
        let rows: Vec<PartTiming> = (1..=100).map(row).collect();
        for (percent, expected) in [(50.0, 50.0), (99.0, 99.0), (100.0, 100.0)] {
            assert!((ttfb_ms(&rows, percent) - expected).abs() < 1e-6, "{percent}");
        }
        assert_eq!(ttfb_ms(&[], 50.0), 0.0);
    }
}
