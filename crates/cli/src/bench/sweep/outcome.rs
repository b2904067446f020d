//! What a sweep comes to, reckoned once: the table, the events and the page say the same.

use serde::Serialize;

use super::{Combination, SweepCell};
use crate::bench::run::{Measurement, median};

/// The medians of each combination, and how they compare; numbers are places among the cells.
pub struct SweepOutcome {
    /// `None` of a combination that failed, or that an interrupt came before.
    pub medians: Vec<Option<Medians>>,
    /// By the median of its time.
    pub fastest: Option<usize>,
    /// Those that the runs do not tell apart from the fastest.
    pub as_fast: Vec<usize>,
}

/// Each figure by itself, over all runs of a combination.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Medians {
    pub seconds: f64,
    pub gib_per_s: f64,
    pub gbit_avg: f64,
    pub gbit_peak: f64,
    pub cpu_s_per_gib: f64,
    pub peak_rss_mib: f64,
}

impl SweepOutcome {
    pub fn of(cells: &[SweepCell]) -> SweepOutcome {
        let whole = |cell: &SweepCell| cell.is_measured().then(|| Medians::of(&cell.runs));
        let medians: Vec<Option<Medians>> = cells.iter().map(whole).collect();
        let fastest = fastest(&medians);
        let as_fast = fastest.map_or_else(Vec::new, |fastest| as_fast(cells, fastest));
        SweepOutcome { medians, fastest, as_fast }
    }

    pub fn is_fastest(&self, at: usize) -> bool {
        self.fastest == Some(at)
    }

    pub fn is_as_fast(&self, at: usize) -> bool {
        self.as_fast.contains(&at)
    }

    /// What makes the comparison a guess, if anything does: of one run nobody knows how much the next would
    /// differ.
    pub fn doubt(&self, cells: &[SweepCell]) -> Option<&'static str> {
        let runs = || cells.iter().filter(|cell| cell.is_measured()).map(|cell| cell.runs.len());
        match (runs().min()?, runs().max()?, runs().count()) {
            (_, _, 1) => None,
            (1, 1, _) => Some("one run each: small differences mean nothing"),
            (1, ..) => Some("some ran only once: small differences mean nothing"),
            _ => None,
        }
    }
}

impl Medians {
    fn of(runs: &[Measurement]) -> Medians {
        let of = |figure: fn(&Measurement) -> f64| median(runs.iter().map(figure));
        Medians {
            seconds: of(|run| run.seconds),
            gib_per_s: of(Measurement::gib_per_s),
            gbit_avg: of(Measurement::gbit_avg),
            gbit_peak: of(|run| run.gbit_peak),
            cpu_s_per_gib: of(Measurement::cpu_s_per_gib),
            peak_rss_mib: of(|run| run.peak_rss_mib),
        }
    }
}

fn fastest(medians: &[Option<Medians>]) -> Option<usize> {
    let timed = medians.iter().enumerate().filter_map(|(at, medians)| Some((at, medians.as_ref()?.seconds)));
    timed.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(at, _)| at)
}

/// The fastest one's slowest run took longer than their quickest.
fn as_fast(cells: &[SweepCell], fastest: usize) -> Vec<usize> {
    let slowest = cells[fastest].runs.iter().map(|run| run.seconds).fold(0.0, f64::max);
    let close = |cell: &SweepCell| cell.is_measured() && cell.runs.iter().any(|run| run.seconds < slowest);
    (0..cells.len()).filter(|at| *at != fastest && close(&cells[*at])).collect()
}

/// A combination as data names it.
#[derive(Serialize)]
pub struct CombinationName {
    parallel: u32,
    part_bytes: u64,
}

impl From<Combination> for CombinationName {
    fn from(Combination { parallel, part_bytes }: Combination) -> CombinationName {
        CombinationName { parallel, part_bytes }
    }
}
