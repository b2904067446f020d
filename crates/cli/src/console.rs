//! Where a command speaks and listens: lines of text or JSON events out, errors, signals in.

use std::cell::{Cell, RefCell};
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use serde::Serialize;

use crate::events::{self, Versioned};
use crate::failure::{Failure, one_line};
use crate::signal::Interrupt;

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
    /// Signals, for whoever has something to end in good order.
    pub interrupt: Interrupt,
    json: bool,
    quiet: bool,
    progress: bool,
    outlasts_reader: Cell<bool>,
    out: RefCell<BufWriter<Stdout>>,
}

impl Console {
    /// `progress` says whether the user allows a bar.
    pub fn new(interrupt: Interrupt, json: bool, quiet: bool, progress: bool) -> Console {
        let out = RefCell::new(BufWriter::new(io::stdout()));
        Console { interrupt, json, quiet, progress, outlasts_reader: Cell::new(false), out }
    }

    /// Whether events are wanted, for whoever has many to make.
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
            false => self.written(writeln!(self.out.borrow_mut(), "{line}")),
        }
    }

    /// A line that reports what was done: left out when quiet or with --json.
    pub fn say(&self, line: &str) -> Result<(), Failure> {
        if self.quiet { Ok(()) } else { self.answer(line) }
    }

    /// A line on standard error about what goes on without: left out when quiet.
    pub fn warn(&self, line: &str) {
        if !self.quiet {
            // Like every diagnostic: when nobody can be told, there is nobody to tell that.
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
                // Like every diagnostic: when nobody can be told, there is nobody to tell that.
                let _ = writeln!(io::stderr().lock(), "{line}");
                Ok(())
            }
        }
    }

    /// Pushes out what has been said: before waiting for long, and at the end.
    pub fn flush(&self) -> Result<(), Failure> {
        self.written(self.out.borrow_mut().flush())
    }

    /// From here on a reader who has gone is no reason to stop: what is done is done for somebody else, too.
    pub fn outlast_reader(&self) {
        self.outlasts_reader.set(true);
    }

    fn written(&self, outcome: io::Result<()>) -> Result<(), Failure> {
        match outcome.map_err(|error| Failure::stdout(&error)) {
            Err(gone) if gone.is_silent() && self.outlasts_reader.get() => Ok(()),
            outcome => outcome,
        }
    }

    /// Shows a failure: on standard error for people, and as an event.
    pub fn failure(&self, carries: Carries, failure: &Failure) {
        if failure.is_silent() {
            return;
        }
        // What was said before comes before; a reader who is gone is no second failure.
        let _ = self.event(carries, &events::Error::from(failure));
        let _ = self.flush();
        let _ = writeln!(io::stderr().lock(), "{failure}");
    }
}
