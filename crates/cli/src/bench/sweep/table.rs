//! What a sweep says in the end: a row for each combination, and the flags of the fastest.

use serde::Serialize;

use super::Cell;
use crate::bench::run::Run;
use crate::console::{Carries, Console};
use crate::failure::{Failure, one_line};

const HEADER: &str = "concurrency  part size  peak Gbit/s  avg Gbit/s  end to end s  CPU s/GiB  peak RSS MiB";

pub fn show(console: &Console, cells: &[Cell]) -> Result<(), Failure> {
    let fastest = fastest(cells);
    console.answer(HEADER)?;
    for cell in cells {
        console.answer(&row(cell))?;
        let is_fastest = fastest.is_some_and(|fastest| fastest.combination == cell.combination);
        console.event(Carries::Lines, &Line::new(cell, is_fastest))?;
    }
    let Some(fastest) = fastest else { return Ok(()) };
    console.answer(&format!("fastest: {}", fastest.combination.flags()))?;
    let close = close(cells, fastest);
    if !close.is_empty() {
        console.say(&format!("as fast in some of their runs: {}", close.join(", ")))?;
    }
    Ok(())
}

/// Medians; or why there are none.
fn row(cell: &Cell) -> String {
    let names = format!("{:11} {:>10}", cell.combination.parallel, cell.combination.part_size());
    match &cell.failure {
        Some(failure) => format!("{names}  failed: {}", one_line(&failure.message)),
        None => format!(
            "{names} {:12.2} {:11.2} {:13.3} {:10.3} {:13.1}",
            cell.median(|run| run.gbit_peak),
            cell.median(Run::gbit_avg),
            cell.median(|run| run.seconds),
            cell.median(Run::cpu_s_per_gib),
            cell.median(|run| run.peak_rss_mib),
        ),
    }
}

/// By the median of its time.
fn fastest(cells: &[Cell]) -> Option<&Cell> {
    let seconds = |cell: &Cell| cell.median(|run| run.seconds);
    let whole = cells.iter().filter(|cell| cell.failure.is_none());
    whole.min_by(|one, other| seconds(one).total_cmp(&seconds(other)))
}

/// Those that the runs do not tell apart from the fastest: its slowest run took longer than their quickest.
fn close(cells: &[Cell], fastest: &Cell) -> Vec<String> {
    let slowest = fastest.runs.iter().map(|run| run.seconds).fold(0.0, f64::max);
    let others = cells.iter().filter(|cell| {
        cell.failure.is_none()
            && cell.combination != fastest.combination
            && cell.runs.iter().any(|run| run.seconds < slowest)
    });
    others.map(|cell| cell.combination.to_string()).collect()
}

/// One combination as docs/json.md has it.
#[derive(Serialize)]
#[serde(tag = "event", rename = "combination")]
struct Line<'a> {
    parallel: u32,
    part_bytes: u64,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    runs: usize,
    #[serde(flatten)]
    medians: Option<Medians>,
    fastest: bool,
}

#[derive(Serialize)]
struct Medians {
    seconds: f64,
    gib_per_s: f64,
    gbit_avg: f64,
    gbit_peak: f64,
    cpu_s_per_gib: f64,
    peak_rss_mib: f64,
}

impl<'a> Line<'a> {
    fn new(cell: &'a Cell, fastest: bool) -> Line<'a> {
        let medians = cell.failure.is_none().then(|| Medians {
            seconds: cell.median(|run| run.seconds),
            gib_per_s: cell.median(Run::gib_per_s),
            gbit_avg: cell.median(Run::gbit_avg),
            gbit_peak: cell.median(|run| run.gbit_peak),
            cpu_s_per_gib: cell.median(Run::cpu_s_per_gib),
            peak_rss_mib: cell.median(|run| run.peak_rss_mib),
        });
        Line {
            parallel: cell.combination.parallel,
            part_bytes: cell.combination.part_bytes,
            status: if medians.is_some() { "ok" } else { "failed" },
            reason: cell.failure.as_ref().map(|failure| failure.message.as_str()),
            runs: cell.runs.len(),
            medians,
            fastest,
        }
    }
}
