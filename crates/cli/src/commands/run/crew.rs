//! Threads that take one line after the other, and what has become of the lines so far.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::lines::{Lines, Numbered, Parsers, words};
use super::permitted;
use crate::args::Run;
use crate::console::shared::{LineOfRun, RunOutput};
use crate::console::{Carries, Console};
use crate::engines::Engines;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::progress::LinesProgress;
use crate::report::Report;
use crate::run_downloads::DownloadsOfRun;
use crate::signal::Interrupt;

/// Whoever runs the lines.
pub struct Crew {
    pub output: Arc<RunOutput>,
    pub engines: Arc<Engines>,
    downloads: Arc<DownloadsOfRun>,
    parsers: Parsers,
    console: ConsoleForm,
    lines: Mutex<Lines>,
    name: String,
    length: Option<u64>,
    state: Mutex<State>,
    changed: Condvar,
    /// No line is begun any more.
    is_stopped: AtomicBool,
    stop_on_error: bool,
    dry_run: bool,
}

/// What the console of a line is made of.
struct ConsoleForm {
    interrupt: Interrupt,
    json: bool,
    quiet: bool,
    report: Option<Report>,
}

#[derive(Default)]
struct State {
    counts: Counts,
    /// Lines that are run now.
    running: u64,
    /// Threads that live.
    threads: u16,
    /// Threads that may still be started.
    to_hire: u16,
    /// The rest of the lines cannot be read.
    unread: Option<Failure>,
    read_bytes: u64,
}

/// What has become of the lines.
#[derive(Clone, Copy)]
pub struct Counts {
    pub begun: u64,
    pub ok: u64,
    /// Those that a signal ended are neither.
    pub failed: u64,
    pub worst: Exit,
}

/// Why lines were not run, with their number if it is known.
pub enum Rest {
    Nothing,
    Interrupted(Option<u64>),
    Stopped(Option<u64>),
    Unread(Failure),
}

impl Rest {
    pub fn count(&self) -> Option<u64> {
        match self {
            Rest::Nothing => Some(0),
            Rest::Interrupted(left) | Rest::Stopped(left) => *left,
            Rest::Unread(_) => None,
        }
    }
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { begun: 0, ok: 0, failed: 0, worst: Exit::Clean }
    }
}

impl Crew {
    pub fn new(lines: Lines, args: &Run, console: &Console) -> Crew {
        let (interrupt, json, quiet) = (console.interrupt.clone(), console.is_json(), console.is_quiet());
        Crew {
            output: Arc::default(),
            engines: Arc::new(Engines::new(&args.knobs)),
            downloads: Arc::default(),
            parsers: Parsers::default(),
            console: ConsoleForm { interrupt, json, quiet, report: console.report().cloned() },
            name: lines.name().to_owned(),
            length: lines.length(),
            lines: Mutex::new(lines),
            state: Mutex::new(State { to_hire: args.jobs, ..State::default() }),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
            stop_on_error: args.stop_on_error,
            dry_run: args.dry_run,
        }
    }

    /// Starts the first thread. Each that takes a line starts another, so that there are no more of them than
    /// lines.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn hire(self: Arc<Self>) -> Result<(), Failure> {
        let hired = self.hire_one();
        hired.map_err(|error| Failure::local("start", "a thread", &error))
    }

    fn hire_one(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state();
        if state.to_hire == 0 {
            return Ok(());
        }
        let member = Member(self.clone());
        thread::Builder::new().name("flatout-line".to_owned()).spawn(move || member.work())?;
        state.to_hire -= 1;
        state.threads += 1;
        Ok(())
    }

    /// A signal came: nothing more is begun, and what runs hears of it by itself.
    pub fn interrupt(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Waits for the end, at most so long; whether it has come. A thread that waits for standard input is not
    /// waited for when nothing more is to be begun.
    pub fn wait(&self, at_most: Duration) -> bool {
        let goes_on = |state: &mut State| {
            state.threads > 0 && (state.running > 0 || !self.is_stopped.load(Ordering::Relaxed))
        };
        let waited = self.changed.wait_timeout_while(self.state(), at_most, goes_on);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// What is left when all has ended.
    pub fn rest(&self) -> Rest {
        if let Some(failure) = self.state().unread.clone() {
            return Rest::Unread(failure);
        }
        if !self.is_stopped.load(Ordering::Relaxed) {
            return Rest::Nothing;
        }
        // Whoever waits for standard input holds them.
        let left = self.lines.try_lock().ok().and_then(|mut lines| lines.count_rest());
        match (self.console.interrupt.raised(), left) {
            (true, _) => Rest::Interrupted(left),
            // The last line was the one that failed.
            (false, Some(0)) => Rest::Nothing,
            (false, _) => Rest::Stopped(left),
        }
    }

    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    pub fn progress(&self) -> LinesProgress {
        let state = self.state();
        let Counts { begun, ok, failed, .. } = state.counts;
        LinesProgress { begun, ok, failed, read_bytes: state.read_bytes, moved_bytes: self.output.bytes() }
    }

    /// Where the lines come from, as messages name it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The length of the file, where it is one.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next line, which counts as running from here on.
    fn take(&self) -> Option<Numbered> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let next = lines.next();
        let mut state = self.state();
        // It may have come from a pipe, long after the question above.
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        match next {
            Ok(line) => {
                let is_one = u64::from(line.is_some());
                state.counts.begun += is_one;
                state.running += is_one;
                state.read_bytes = lines.read_bytes();
                line
            }
            Err(failure) => {
                self.is_stopped.store(true, Ordering::Relaxed);
                state.unread = Some(failure);
                None
            }
        }
    }

    /// A line has ended.
    fn end(&self, exit: Exit) {
        let mut state = self.state();
        state.running -= 1;
        match exit {
            Exit::Clean | Exit::LeftOut => state.counts.ok += 1,
            Exit::Interrupted => {}
            _ => state.counts.failed += 1,
        }
        state.counts.worst = state.counts.worst.max(exit);
        if self.stop_on_error && exit > Exit::LeftOut {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        if state.running == 0 && self.is_stopped.load(Ordering::Relaxed) {
            self.changed.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a line, and says what goes wrong.
    fn run(&self, line: Numbered) -> Exit {
        let of = LineOfRun {
            number: line.number,
            run: self.output.clone(),
            engines: self.engines.clone(),
            downloads: self.downloads.clone(),
        };
        let console = self.console.of(of.clone(), false, false);
        let parsed = line.text.and_then(|text| {
            let words = words(&text)?;
            let parsed = self.parsers.parse(words)?;
            permitted::check(&parsed.command)?;
            Ok((text, parsed))
        });
        let (text, mut parsed) = match parsed {
            Ok(parsed) => parsed,
            Err(failure) => return failed(&console, &failure),
        };
        let console = self.console.of(of, parsed.json, parsed.quiet);
        let outcome = match self.dry_run && !permitted::make_dry(&mut parsed.command) {
            true => console.answer(&format!("would run {}", text.trim())).map(|()| Exit::Clean),
            false => crate::dispatch(&parsed.command, &console),
        };
        let outcome = outcome.and_then(|exit| console.flush().map(|()| exit));
        outcome.unwrap_or_else(|failure| failed(&console, &failure))
    }
}

fn failed(console: &Console, failure: &Failure) -> Exit {
    console.failure(Carries::Lines, failure);
    let _ = console.flush();
    failure.exit
}

impl ConsoleForm {
    fn of(&self, line: LineOfRun, json: bool, quiet: bool) -> Console {
        let console = Console::of_line(self.interrupt.clone(), line, self.json || json, self.quiet || quiet);
        console.reporting_to(self.report.clone())
    }
}

/// A thread of the crew, which counts as one until this is dropped.
struct Member(Arc<Crew>);

impl Member {
    fn work(self) {
        let mut has_hired = false;
        while let Some(line) = self.0.take() {
            if !has_hired {
                // With fewer threads it takes longer, and no more than that.
                let _ = self.0.hire_one();
                has_hired = true;
            }
            let mut running = Running { crew: &self.0, exit: Exit::Failed };
            running.exit = self.0.run(line);
        }
    }
}

/// A line that runs, until this is dropped: one that panics has failed.
struct Running<'a> {
    crew: &'a Crew,
    exit: Exit,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.crew.end(self.exit);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.threads -= 1;
        if state.threads == 0 {
            self.0.changed.notify_all();
        }
    }
}
