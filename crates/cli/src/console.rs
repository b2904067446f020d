//! Where a command speaks and listens: lines of text or JSON events out, errors, signals in.

use std::cell::{Cell, RefCell};
use std::io::{self, BufWriter, IsTerminal, Write};

use serde::Serialize;

use crate::events::{self, Versioned};
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::signal::Interrupt;
use crate::stdout::{self, Stdout};

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
    out: RefCell<BufWriter<Stdout>>,
}

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
            out: RefCell::new(BufWriter::new(Stdout)),
        }
    }

    /// Whether events are wanted: a command need not make them otherwise.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether nothing but errors is wanted.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether a bar may be drawn on standard error. Not beside output that shares its terminal.
    pub fn bar_wanted(&self, carries: Carries) -> bool {
        let shares = io::stdout().is_terminal() && (self.json || carries == Carries::Bytes);
        self.progress && !self.quiet && !shares && io::stderr().is_terminal()
    }

    /// A line that is the command's answer (a listing): printed even when quiet, not with --json.
    pub fn answer(&self, line: &str) -> Result<(), Failure> {
        match self.json {
            true => Ok(()),
            // Whatever stands in it: a name of an origin's, a path, a setting.
            false => self.written(writeln!(self.out.borrow_mut(), "{}", one_line(line))),
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
            // A diagnostic that cannot be written cannot be reported either.
            let _ = writeln!(io::stderr().lock(), "flatout: {}", one_line(line));
        }
    }

    /// An event, with --json; where it goes depends on what standard output carries.
    pub fn event(&self, carries: Carries, event: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let line = serde_json::to_string(&Versioned::new(event)).expect("events are maps with text for keys");
        match carries {
            Carries::Lines => self.written(writeln!(self.out.borrow_mut(), "{line}")),
            Carries::Bytes => {
                // A diagnostic that cannot be written cannot be reported either.
                let _ = writeln!(io::stderr().lock(), "{line}");
                Ok(())
            }
        }
    }

    /// Pushes out what has been said: before waiting for long, and at the end.
    pub fn flush(&self) -> Result<(), Failure> {
        self.written(self.out.borrow_mut().flush())
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
        let _ = writeln!(io::stderr().lock(), "{failure}");
    }
}
