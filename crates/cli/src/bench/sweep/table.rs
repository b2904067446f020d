//! What a sweep says in the end: a row for each combination, and the flags of the fastest.

use serde::Serialize;

use super::outcome::{Medians, SweepOutcome};
use super::{SweepCell, SweepState};
use crate::console::{Carries, Console};
use crate::failure::{Failure, one_line};

const HEADER: &str = "concurrency  part size  peak Gbit/s  avg Gbit/s  end to end s  CPU s/GiB  peak RSS MiB";

pub fn show(console: &Console, cells: &[SweepCell], outcome: &SweepOutcome) -> Result<(), Failure> {
    console.answer(HEADER)?;
    for (at, cell) in cells.iter().enumerate() {
        console.answer(&row(cell, outcome.medians[at]))?;
        console.event(Carries::Lines, &TableLine::new(cell, at, outcome))?;
    }
    let Some(fastest) = outcome.fastest else { return Ok(()) };
    console.answer(&format!("fastest: {}", cells[fastest].combination.flags()))?;
    if !outcome.as_fast.is_empty() {
        let names: Vec<String> =
            outcome.as_fast.iter().map(|at| cells[*at].combination.to_string()).collect();
        console.say(&format!("as fast in some of their runs: {}", names.join(", ")))?;
    }
    outcome.doubt(cells).map_or(Ok(()), |doubt| console.say(doubt))
}

/// Medians; or why there are none.
fn row(cell: &SweepCell, medians: Option<Medians>) -> String {
    let names = format!("{:11} {:>10}", cell.combination.parallel, cell.combination.part_size());
    let Some(medians) = medians else {
        let SweepState { name, reason } = cell.state();
        return format!("{names}  {name}: {}", one_line(reason.unwrap_or_default()));
    };
    let Medians { seconds, gbit_avg, gbit_peak, cpu_s_per_gib, peak_rss_mib, .. } = medians;
    format!(
        "{names} {gbit_peak:12.2} {gbit_avg:11.2} {seconds:13.3} {cpu_s_per_gib:10.3} {peak_rss_mib:13.1}"
    )
}

/// One combination as docs/json.md has it.
#[derive(Serialize)]
#[serde(tag = "event", rename = "combination")]
struct TableLine<'a> {
    parallel: u32,
    part_bytes: u64,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    runs: usize,
    #[serde(flatten)]
    medians: Option<Medians>,
    fastest: bool,
    as_fast: bool,
}

impl<'a> TableLine<'a> {
    fn new(cell: &'a SweepCell, at: usize, outcome: &SweepOutcome) -> TableLine<'a> {
        let SweepState { name, reason } = cell.state();
        TableLine {
            parallel: cell.combination.parallel,
            part_bytes: cell.combination.part_bytes,
            status: name,
            reason,
            runs: cell.runs.len(),
            medians: outcome.medians[at],
            fastest: outcome.is_fastest(at),
            as_fast: outcome.is_as_fast(at),
        }
    }
}
