//! Where a command speaks and listens: lines of text or JSON events out, errors, signals in.

pub mod shared;

use std::cell::{Cell, RefCell};
use std::io::{self, BufWriter, IsTerminal, Write};

use serde::Serialize;

use crate::events::{self, Versioned};
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::report::Report;
use crate::signal::Interrupt;
use crate::stdout::{self, Stdout};

use self::shared::LineOfRun;

/// What goes through standard output during a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Lines or events.
    Lines,
    /// An object's bytes: events go to standard error.
    Bytes,
}

/// The command's side of the terminal, pipe or log that it runs in.
pub struct Console {
    /// Signals, for commands that have to end something in good order.
    pub interrupt: Interrupt,
    json: bool,
    quiet: bool,
    progress: bool,
    outlasts_reader: Cell<bool>,
    /// Standard output carries reports alone of what is done.
    reports_only: Cell<bool>,
    /// A report could not be written.
    lost_report: Cell<bool>,
    /// It has been said that standard output refuses.
    said_of_stdout: Cell<bool>,
    out: RefCell<Out>,
    /// What gets each event, too.
    report: Option<Report>,
}

/// Where lines go.
enum Out {
    Stdout(BufWriter<Stdout>),
    /// With what other lines of `flatout run` say: whole lines, a few at a time.
    Shared(Vec<u8>, LineOfRun),
}

/// A line of `flatout run` hands on what it says when it is longer than this.
const SHARED_BYTES: usize = 16 << 10;

impl Console {
    /// `progress` says whether the user allows a bar.
    pub fn new(interrupt: Interrupt, json: bool, quiet: bool, progress: bool) -> Console {
        Console {
            interrupt,
            json,
            quiet,
            progress,
            outlasts_reader: Cell::default(),
            reports_only: Cell::default(),
            lost_report: Cell::default(),
            said_of_stdout: Cell::default(),
            out: RefCell::new(Out::Stdout(BufWriter::new(Stdout))),
            report: None,
        }
    }

    /// The console of a line of `flatout run`: it shares output and engines with the others, and has no bar.
    pub fn of_line(interrupt: Interrupt, line: LineOfRun, json: bool, quiet: bool) -> Console {
        Console {
            interrupt,
            json,
            quiet,
            progress: false,
            outlasts_reader: Cell::default(),
            reports_only: Cell::default(),
            lost_report: Cell::default(),
            said_of_stdout: Cell::default(),
            out: RefCell::new(Out::Shared(Vec::new(), line)),
            report: None,
        }
    }

    /// What a line of `flatout run` shares with the others.
    pub fn line_of_run(&self) -> Option<LineOfRun> {
        match &*self.out.borrow() {
            Out::Stdout(_) => None,
            Out::Shared(_, line) => Some(line.clone()),
        }
    }

    /// Adds moved bytes to the bar of `flatout run`.
    pub fn count_bytes(&self, bytes: u64) {
        if let Out::Shared(_, line) = &*self.out.borrow() {
            line.run.count_bytes(bytes);
        }
    }

    /// Whether standard output has events instead of text.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether anybody wants events: a command need not make them otherwise.
    pub fn wants_events(&self) -> bool {
        self.json || self.report.is_some()
    }

    /// With a file that gets each event, too.
    pub fn reporting_to(self, report: Option<Report>) -> Console {
        Console { report, ..self }
    }

    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// Whether nothing but errors is wanted.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether a bar may be drawn on standard error. Not beside output that shares its terminal.
    pub fn bar_wanted(&self, carries: Carries) -> bool {
        // Asked for each line of `flatout run`: the terminals come last.
        if !self.progress || self.quiet {
            return false;
        }
        let shares = io::stdout().is_terminal() && (self.json || carries == Carries::Bytes);
        !shares && io::stderr().is_terminal()
    }

    /// A line that is the command's answer (a listing): printed even when quiet, not with --json.
    pub fn answer(&self, line: &str) -> Result<(), Failure> {
        match self.json {
            true => Ok(()),
            // Whatever stands in it: a name of an origin's, a path, a setting.
            false => {
                let outcome = self.out.borrow_mut().line(&one_line(line));
                self.written(outcome)
            }
        }
    }

    /// A line that reports what was done: left out when quiet or with --json, and where standard output is
    /// closed, since it is done all the same.
    pub fn say(&self, line: &str) -> Result<(), Failure> {
        if self.quiet || stdout::check().is_err() { Ok(()) } else { self.answer(line) }
    }

    /// A line on standard error about what goes on without: left out when quiet.
    pub fn warn(&self, line: &str) {
        if !self.quiet {
            let line = one_line(line);
            match &*self.out.borrow() {
                // A diagnostic that cannot be written cannot be reported either.
                Out::Stdout(_) => drop(writeln!(io::stderr().lock(), "flatout: {line}")),
                Out::Shared(_, of) => {
                    of.run.push_error(&format!("flatout: line {}: {line}\n", of.number));
                }
            }
        }
    }

    /// An event, with --json; where it goes depends on what standard output carries.
    pub fn event(&self, carries: Carries, event: &impl Serialize) -> Result<(), Failure> {
        if !self.wants_events() {
            return Ok(());
        }
        let number = match &*self.out.borrow() {
            Out::Stdout(_) => None,
            Out::Shared(_, line) => Some(line.number),
        };
        let line = serde_json::to_string(&Versioned::of_line(event, number));
        let line = line.expect("events are maps with text for keys");
        if let Some(report) = &self.report {
            report.write(&line);
        }
        if !self.json {
            return Ok(());
        }
        match carries {
            Carries::Lines => {
                let outcome = self.out.borrow_mut().line(&line);
                self.written(outcome)
            }
            Carries::Bytes => {
                // A diagnostic that cannot be written cannot be reported either.
                let _ = writeln!(io::stderr().lock(), "{line}");
                Ok(())
            }
        }
    }

    /// Pushes out what has been said: before waiting for long, and at the end.
    pub fn flush(&self) -> Result<(), Failure> {
        // What is said of a refusal borrows it, too.
        let outcome = self.out.borrow_mut().flush();
        self.written(outcome)
    }

    /// From here on a closed pipe is no reason to stop: others need the result, too.
    pub fn outlast_reader(&self) {
        self.outlasts_reader.set(true);
    }

    /// From here on a report that cannot be written fails nothing, since what it reports is done: one line on
    /// standard error says so, and the command ends with [`Exit::LeftOut`] instead of [`Exit::Clean`].
    pub fn reports_only(&self) {
        self.reports_only.set(true);
    }

    /// The exit code, where the command itself ended with `exit`.
    pub fn exit(&self, exit: Exit) -> Exit {
        if self.lost_report.get() { exit.max(Exit::LeftOut) } else { exit }
    }

    fn written(&self, outcome: io::Result<()>) -> Result<(), Failure> {
        let Err(failure) = outcome.map_err(|error| Failure::stdout(&error)) else { return Ok(()) };
        match failure.is_silent() {
            true if self.outlasts_reader.get() => Ok(()),
            false if self.reports_only.get() => {
                if !self.lost_report.replace(true) {
                    self.warn(&format!("cannot report what is done: {}", failure.message));
                }
                Ok(())
            }
            _ => Err(failure),
        }
    }

    /// Shows a failure: on standard error for people, and as an event. That standard output refuses is said
    /// once: all that comes after it is refused, too.
    pub fn failure(&self, carries: Carries, failure: &Failure) {
        if failure.is_silent() || failure.is_of_stdout() && self.said_of_stdout.replace(true) {
            return;
        }
        // What was said before comes before; a reader who is gone is no second failure.
        let _ = self.event(carries, &events::Error::from(failure));
        self.failure_for_people(failure);
    }

    /// Shows a failure on standard error alone, where an event has reported it already.
    pub fn failure_for_people(&self, failure: &Failure) {
        let _ = self.flush();
        match &*self.out.borrow() {
            Out::Stdout(_) => drop(writeln!(io::stderr().lock(), "{failure}")),
            // What a signal has ended is counted, and not named one by one.
            Out::Shared(..) if failure.exit == Exit::Interrupted && self.interrupt.raised() => {}
            Out::Shared(_, line) => line.push_failure(failure),
        }
    }
}

impl Out {
    fn line(&mut self, line: &str) -> io::Result<()> {
        match self {
            Out::Stdout(out) => writeln!(out, "{line}"),
            Out::Shared(lines, of) => {
                lines.extend_from_slice(line.as_bytes());
                lines.push(b'\n');
                if lines.len() >= SHARED_BYTES {
                    of.run.push(lines);
                }
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Out::Stdout(out) => out.flush(),
            Out::Shared(lines, of) => {
                of.run.push(lines);
                Ok(())
            }
        }
    }
}
