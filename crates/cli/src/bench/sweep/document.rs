//! A sweep as data: what a report's page draws, schema 1 of the kind "sweep".

use std::collections::BTreeSet;

use flatout_ambient::SettingRow as Setting;
use flatout_settings::Kind;
use serde::Serialize;

use super::machine::MachineFacts;
use super::outcome::{CombinationName, Medians, SweepOutcome};
use super::{Combination, Sweep, SweepCell};
use crate::bench::run::ByteSample;
use crate::bench::run::{Measurement, PartTiming};
use crate::bench::samples::thin;
use crate::bench::spec::LandingKind;
use crate::failure::Failure;
use crate::origin;

/// More points than a screen has columns for show nothing more.
const MOST_SAMPLES: usize = 500;

/// As many bars as one can still tell apart, and a page of a few MB.
const MOST_PARTS: usize = 4000;

/// Of all combinations together: a page of some 10 MB at most.
const MOST_PARTS_IN_ALL: usize = 64_000;

/// The whole report.
#[derive(Serialize)]
pub struct SweepDocument<'a> {
    schema: u32,
    kind: &'static str,
    source: String,
    object_bytes: u64,
    landing: String,
    started: String,
    command: String,
    version: &'static str,
    machine: MachineFacts,
    /// How many runs of each were asked for.
    repeat: u32,
    /// Whether a signal came before they were all done.
    interrupted: bool,
    fastest: Option<CombinationName>,
    as_fast: Vec<CombinationName>,
    cells: Vec<CellData<'a>>,
}

#[derive(Serialize)]
struct CellData<'a> {
    parallel: u32,
    part_bytes: u64,
    state: &'static str,
    reason: Option<&'a str>,
    medians: Option<Medians>,
    runs: Vec<RunData>,
    /// Whose samples and parts follow.
    median_run: Option<usize>,
    samples: &'a [ByteSample],
    parts: &'a [PartTiming],
    parts_left_out: usize,
}

#[derive(Serialize)]
struct RunData {
    seconds: f64,
    gbit_avg: f64,
    gbit_peak: f64,
    gib_per_s: f64,
    cpu_s_per_gib: f64,
    peak_rss_mib: f64,
    retries: u32,
    connections: u32,
}

impl<'a> SweepDocument<'a> {
    pub fn new(
        sweep: &'a Sweep,
        outcome: &SweepOutcome,
        started: String,
        interrupted: bool,
    ) -> Result<SweepDocument<'a>, Failure> {
        let args = sweep.args;
        let source = origin::object("read", &args.source)?.to_string();
        let name = |at: usize| CombinationName::from(sweep.cells[at].combination);
        let cells = sweep.cells.iter().zip(&outcome.medians);
        Ok(SweepDocument {
            schema: 1,
            kind: "sweep",
            command: command(sweep, &source)?,
            source,
            object_bytes: sweep.bench.spec().bytes,
            landing: args.landing.to_string(),
            started,
            version: env!("CARGO_PKG_VERSION"),
            machine: MachineFacts::this(),
            repeat: args.repeat,
            interrupted,
            fastest: outcome.fastest.map(name),
            as_fast: outcome.as_fast.iter().copied().map(name).collect(),
            cells: cells.map(|(cell, medians)| CellData::new(cell, *medians)).collect(),
        })
    }
}

impl<'a> CellData<'a> {
    fn new(cell: &'a SweepCell, medians: Option<Medians>) -> CellData<'a> {
        let state = cell.state();
        let median_run = cell.median_run().filter(|_| cell.failure.is_none());
        let median = median_run.map(|at| &cell.runs[at]);
        CellData {
            parallel: cell.combination.parallel,
            part_bytes: cell.combination.part_bytes,
            state: state.name,
            reason: state.reason,
            medians,
            runs: cell.runs.iter().map(RunData::new).collect(),
            median_run,
            samples: median.map_or(&[], |run| &run.samples),
            parts: median.map_or(&[], |run| &run.rows),
            parts_left_out: median.map_or(0, |run| run.parts as usize - run.rows.len()),
        }
    }
}

impl RunData {
    fn new(run: &Measurement) -> RunData {
        RunData {
            seconds: run.seconds,
            gbit_avg: run.gbit_avg(),
            gbit_peak: run.gbit_peak,
            gib_per_s: run.gib_per_s(),
            cpu_s_per_gib: run.cpu_s_per_gib(),
            peak_rss_mib: run.peak_rss_mib,
            retries: run.retries,
            connections: run.connections,
        }
    }
}

/// A run as it is kept until the end: no more of its course than a page can show, times to the microsecond.
pub fn thinned(mut run: Measurement, cells: usize) -> Measurement {
    run.samples = thin(&run.samples, MOST_SAMPLES);
    run.samples.iter_mut().for_each(|(at, _)| *at = to_microsecond(*at));
    run.rows.sort_by(|one, other| one.start_s.total_cmp(&other.start_s));
    run.rows.truncate(MOST_PARTS.min(MOST_PARTS_IN_ALL / cells));
    run.rows.shrink_to_fit();
    for row in &mut run.rows {
        for time in [&mut row.start_s, &mut row.first_byte_s, &mut row.end_s] {
            *time = to_microsecond(*time);
        }
    }
    run
}

fn to_microsecond(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// What to type for the same again, secrets masked. What the environment and the config file say is not in
/// it.
fn command(sweep: &Sweep, source: &str) -> Result<String, Failure> {
    let args = sweep.args;
    let landing = match &args.landing {
        LandingKind::File(path) => format!("file:{}", path.display()),
        other => other.to_string(),
    };
    let parallel = list(sweep, |combination| combination.parallel.to_string());
    let part_size = list(sweep, Combination::part_size);
    let others = quoted(&other_flags(sweep)?);
    let (source, landing, repeat) = (quoted(&[source.to_owned()]), quoted(&[landing]), args.repeat);
    let command = format!(
        "flatout bench sweep {source} --parallel {parallel} --part-size {part_size} --landing {landing} --repeat {repeat} {others}"
    );
    Ok(command.trim_end().to_owned())
}

fn quoted(words: &[String]) -> String {
    shlex::try_join(words.iter().map(String::as_str)).expect("no argument of a program holds a NUL")
}

/// The values of one side of all combinations.
fn list(sweep: &Sweep, value: impl Fn(Combination) -> String) -> String {
    let mut values: Vec<String> = sweep.cells.iter().map(|cell| value(cell.combination)).collect();
    let mut known = BTreeSet::new();
    values.retain(|value| known.insert(value.clone()));
    values.join(",")
}

/// The knobs that were typed besides, as `flatout config show` shows them.
fn other_flags(sweep: &Sweep) -> Result<Vec<String>, Failure> {
    let given = sweep.cells[0].knobs.given();
    let others = |row: &&Setting| {
        given.iter().any(|(name, _)| *name == row.name) && !["parallel", "part-size"].contains(&row.name)
    };
    Ok(flatout_ambient::gather(given)?.table().iter().filter(others).flat_map(flags).collect())
}

fn flags(row: &Setting) -> Vec<String> {
    let name = format!("--{}", row.name);
    match flatout_settings::knob(row.name).map(|knob| knob.kind) {
        Some(Kind::Switch) => vec![name],
        _ => row.values.iter().flat_map(|value| [name.clone(), value.clone()]).collect(),
    }
}
