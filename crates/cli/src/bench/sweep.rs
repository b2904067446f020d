//! `flatout bench sweep`: the user's own object by every combination of concurrency and part size, in turn.

mod combination;
mod document;
mod machine;
mod outcome;
mod page;
mod table;

use std::time::{SystemTime, UNIX_EPOCH};

use flatout_settings::format_size;
use flatout_wire::time::format_iso_seconds;

use crate::args::BenchSweep;
use crate::bench::get::{prepare, refuse_existing};
use crate::bench::report::{Op, run_event};
use crate::bench::run::Measurement;
use crate::bench::session::BenchSession;
use crate::bench::spec::ChildWork;
use crate::console::{Carries, Console};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::origin;

pub use combination::Combination;
use document::SweepDocument;
use outcome::SweepOutcome;
use page::ReportPage;

/// Courses that a combination keeps. One is drawn in the end, and which is not known before: with this many,
/// all that a sweep of 256 combinations keeps stays under 50 MB.
const MOST_COURSES: usize = 5;

pub fn sweep(args: &BenchSweep, console: &Console) -> Result<Exit, Failure> {
    refuse_existing(&args.landing)?;
    let combinations = combination::all(&args.knobs)?;
    let page = args.report.as_deref().map(|path| ReportPage::new(path, &console.interrupt)).transpose()?;
    if page.is_some() {
        // What is measured is for the page as well.
        console.outlast_reader();
    }
    // Between two runs, too, a signal is to leave time to remove what there is.
    let _armed = console.interrupt.arm();
    let (_, any) = &combinations[0];
    let bench = prepare(&args.source, any, args.landing.clone(), console)?.with_rows(page.is_some());
    let started = now();
    let mut sweep = Sweep::new(args, bench, combinations, console);
    sweep.introduce()?;
    match sweep.measure() {
        Ok(()) => sweep.conclude(page.as_ref(), started, None).map(|()| sweep.exit()),
        Err(failure) => {
            sweep.interrupted(page.as_ref(), started, &failure);
            Err(failure)
        }
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    format_iso_seconds(since.map_or(0, |since| since.as_secs()))
}

/// Everything measured so far.
struct Sweep<'a> {
    args: &'a BenchSweep,
    console: &'a Console,
    bench: BenchSession<'a>,
    cells: Vec<SweepCell>,
}

/// One combination and its runs.
struct SweepCell {
    combination: Combination,
    knobs: Knobs,
    runs: Vec<Measurement>,
    /// What ended it; there are no runs after that.
    failure: Option<Failure>,
}

/// How far a combination came, in the words of events and pages.
struct SweepState<'a> {
    name: &'static str,
    reason: Option<&'a str>,
}

impl<'a> Sweep<'a> {
    fn new(
        args: &'a BenchSweep,
        bench: BenchSession<'a>,
        combinations: Vec<(Combination, Knobs)>,
        console: &'a Console,
    ) -> Sweep<'a> {
        let cell = |(combination, knobs)| SweepCell { combination, knobs, runs: Vec::new(), failure: None };
        Sweep { args, console, bench, cells: combinations.into_iter().map(cell).collect() }
    }

    fn introduce(&self) -> Result<(), Failure> {
        let (count, size) = (self.cells.len(), format_size(self.bench.spec().bytes));
        let (source, landing, repeat) =
            (origin::masked(&self.args.source), &self.args.landing, self.args.repeat);
        let ways = if count == 1 { "one combination".to_owned() } else { format!("{count} combinations") };
        let times =
            if repeat == 1 { "once each".to_owned() } else { format!("{repeat} times each, in turn") };
        self.console.say(&format!("sweep: {source}, {size}, landing {landing}: {ways}, {times}"))?;
        self.console.flush()
    }

    fn measure(&mut self) -> Result<(), Failure> {
        let (cells, rounds) = (self.cells.len(), self.args.repeat as usize);
        for round in 0..rounds {
            for (position, at) in order(cells, round, rounds).enumerate() {
                self.run(at, round * cells + position + 1)?;
            }
        }
        Ok(())
    }

    /// One run of one combination. Only an interrupt ends them all.
    fn run(&mut self, at: usize, number: usize) -> Result<(), Failure> {
        let cells = self.cells.len();
        let runs = cells * self.args.repeat as usize;
        let cell = &mut self.cells[at];
        if cell.failure.is_some() {
            return Ok(());
        }
        let combination = cell.combination;
        let name = format!("{number}/{runs} {combination}");
        match self.bench.with_knobs(name, &cell.knobs).repetition(ChildWork::Get) {
            Ok(run) => {
                cell.add(document::thinned(run, cells));
                let (round, run) = (cell.runs.len() as u32, &cell.runs[cell.runs.len() - 1]);
                run_event(self.console, Op::Sweep(combination), round, &self.bench.spec().end, run)?;
                self.console.flush()
            }
            Err(failure) if failure.exit == Exit::Interrupted || failure.is_silent() => Err(failure),
            Err(failure) => {
                let message = format!("sweep: {combination}: {}", failure.message);
                self.console.failure(Carries::Lines, &Failure { message, ..failure.clone() });
                cell.failure = Some(failure);
                Ok(())
            }
        }
    }

    /// A signal costs what it cuts off, not what is measured. The failure is what the run ends with in any
    /// case.
    fn interrupted(&self, page: Option<&ReportPage>, started: String, failure: &Failure) {
        let runs = self.cells.iter().map(|cell| cell.runs.len()).sum();
        if failure.exit != Exit::Interrupted || runs == 0 {
            return;
        }
        if let Err(failure) = self.conclude(page, started, Some(runs)) {
            self.console.failure(Carries::Lines, &failure);
        }
    }

    /// Says and writes what there is; with `cut_off_after`, that it is not all.
    fn conclude(
        &self,
        page: Option<&ReportPage>,
        started: String,
        cut_off_after: Option<usize>,
    ) -> Result<(), Failure> {
        let outcome = SweepOutcome::of(&self.cells);
        if let Some(runs) = cut_off_after {
            let all = self.cells.len() * self.args.repeat as usize;
            self.console.answer(&format!("interrupted after {runs} of {all} runs"))?;
        }
        table::show(self.console, &self.cells, &outcome)?;
        let Some(page) = page else { return Ok(()) };
        page.write(&SweepDocument::new(self, &outcome, started, cut_off_after.is_some())?)?;
        self.console.say(&format!("report: {page}"))
    }

    /// Of several failures the worst is the run's.
    fn exit(&self) -> Exit {
        let failures = self.cells.iter().filter_map(|cell| cell.failure.as_ref());
        failures.map(|failure| failure.exit).max().unwrap_or(Exit::Clean)
    }
}

impl SweepCell {
    /// Whether it has figures, and no failure that takes their worth.
    fn is_measured(&self) -> bool {
        self.failure.is_none() && !self.runs.is_empty()
    }

    /// What became of it.
    fn state(&self) -> SweepState<'_> {
        match &self.failure {
            Some(failure) => SweepState { name: "failed", reason: Some(&failure.message) },
            None if self.runs.is_empty() => {
                SweepState { name: "unmeasured", reason: Some("interrupted before its first run") }
            }
            None => SweepState { name: "ok", reason: None },
        }
    }

    /// Lets go of the course of the run that is furthest from the middle, where there are many.
    fn add(&mut self, run: Measurement) {
        self.runs.push(run);
        let order = self.nearest_to_the_middle();
        for at in
            order.into_iter().filter(|at| self.runs[*at].has_course()).skip(MOST_COURSES).collect::<Vec<_>>()
        {
            self.runs[at].drop_course();
        }
    }

    /// The run in the middle by its time, the quicker one of two. Of more than [`MOST_COURSES`] runs the
    /// nearest one whose course is kept.
    fn median_run(&self) -> Option<usize> {
        let order = self.nearest_to_the_middle();
        order.iter().copied().find(|at| self.runs[*at].has_course()).or(order.first().copied())
    }

    fn nearest_to_the_middle(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by(|one, other| self.runs[*one].seconds.total_cmp(&self.runs[*other].seconds));
        let middle = order.len().saturating_sub(1) / 2;
        let mut ranked: Vec<(usize, usize)> = order.into_iter().enumerate().collect();
        ranked.sort_by_key(|(rank, _)| rank.abs_diff(middle));
        ranked.into_iter().map(|(_, at)| at).collect()
    }
}

/// The order within a round: each round starts further on, so that a drift of machine or network favours
/// none.
fn order(cells: usize, round: usize, rounds: usize) -> impl Iterator<Item = usize> {
    let first = round * cells / rounds;
    (0..cells).map(move |position| (first + position) % cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_has_his_turn_in_each_round_and_another_place() {
        let check = |cells, round, rounds, expected: &[usize]| {
            assert_eq!(order(cells, round, rounds).collect::<Vec<_>>(), expected);
        };
        check(3, 0, 3, &[0, 1, 2]);
        check(3, 1, 3, &[1, 2, 0]);
        check(3, 2, 3, &[2, 0, 1]);
        check(4, 1, 2, &[2, 3, 0, 1]);
        check(2, 6, 7, &[1, 0]);
        check(1, 2, 3, &[0]);
    }
}
