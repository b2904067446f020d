//! `flatout run`: the commands of a file or of standard input, many at a time, by one engine.

mod crew;
mod lines;
mod permitted;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::crew::{Counts, Crew, Rest};
use self::lines::Lines;
use crate::args::Run;
use crate::commands::repeats::{counted, grouped};
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::progress::{Bar, POLL};

/// How long lines may take to end after a signal: what is left of the program's own time is for the report.
const PATIENCE: Duration = Duration::from_secs(5);

pub fn run(args: &Run, console: &Console) -> Result<Exit, Failure> {
    let lines = Lines::open(args.file.as_deref())?;
    let armed = console.interrupt.arm();
    let start = Instant::now();
    let crew = Arc::new(Crew::new(lines, args, console));
    let stopping = crew.clone();
    armed.on_signal(move || stopping.interrupt());
    crew.clone().hire()?;
    let bar = Bar::of_lines(console, crew.length());
    let mut interrupted = None;
    while !crew.wait(POLL) {
        // A listing does not hear of a signal.
        if console.interrupt.raised() && interrupted.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            break;
        }
        bar.show_lines(&crew.progress());
        if crew.output.is_waiting() {
            bar.above(|| crew.output.write());
        }
    }
    drop(bar);
    crew.output.write();
    crew.engines.remember();
    let rest = crew.rest();
    drop(armed);
    conclude(&crew, rest, start, console)
}

/// The last line, the failure of the whole where it broke off, and the code to exit with.
fn conclude(crew: &Crew, rest: Rest, start: Instant, console: &Console) -> Result<Exit, Failure> {
    let Counts { begun, ok, failed, worst } = crew.counts();
    let interrupted = begun - ok - failed;
    let failure = match &rest {
        Rest::Nothing => None,
        Rest::Interrupted(left) => {
            let done = ok + failed;
            let broken = were(interrupted, "broken off");
            let why = format!("run: {}: interrupted: {} done, {broken}", crew.name(), counted(done, "line"));
            Some(Failure::interrupted(format!("{why}, {}", not_run(*left))))
        }
        Rest::Stopped(left) => {
            let why = format!("run: {}: stopped by the first failure: {}", crew.name(), not_run(*left));
            let failure = Failure { exit: worst, ..Failure::internal(why) };
            Some(Failure { kind: "stopped".into(), ..failure })
        }
        Rest::Unread(failure) => Some(failure.clone()),
    };
    let exit = failure.as_ref().map_or(worst, |failure| failure.exit.max(worst));
    let lost = if crew.output.has_lost_report() { Exit::LeftOut } else { Exit::Clean };
    let exit = exit.max(lost);
    if let Some(failure) = &failure {
        console.failure(Carries::Lines, failure);
    }
    let seconds = start.elapsed().as_secs_f64();
    let failures = if failed > 0 { format!(", {} failed", grouped(failed)) } else { String::new() };
    console.say(&format!("{}: {} ok{failures}, in {seconds:.2} s", counted(begun, "line"), grouped(ok)))?;
    console.event(
        Carries::Lines,
        &events::RunSummary {
            action: "run",
            lines: begun,
            ok,
            failed: failed + interrupted,
            not_run: rest.count(),
            bytes: crew.output.bytes(),
            seconds,
            exit: exit.code(),
        },
    )?;
    Ok(exit)
}

fn not_run(left: Option<u64>) -> String {
    left.map_or_else(|| "the lines behind were not run".to_owned(), |left| were(left, "not run"))
}

fn were(lines: u64, what: &str) -> String {
    let were = if lines == 1 { "was" } else { "were" };
    format!("{} {were} {what}", counted(lines, "line"))
}
