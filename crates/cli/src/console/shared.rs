//! What the lines of `flatout run` share: standard output and error, which get whole lines of whoever speaks,
//! and the engines.

use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engines::Engines;
use crate::failure::{Failure, one_line};
use crate::run_downloads::DownloadsOfRun;
use crate::stdout::Stdout;

/// One line of a run: its number, and what it shares.
#[derive(Clone)]
pub struct LineOfRun {
    /// As editors count, from 1.
    pub number: u64,
    pub run: Arc<RunOutput>,
    pub engines: Arc<Engines>,
    pub downloads: Arc<DownloadsOfRun>,
}

/// The output of a run. Lines collect here until the run's own thread writes them, above its bar.
#[derive(Default)]
pub struct RunOutput {
    pending: Mutex<Pending>,
    /// Held while something is written, so that chunks keep their order.
    writing: Mutex<()>,
    bytes: AtomicU64,
    is_reader_gone: AtomicBool,
    has_lost_report: AtomicBool,
}

#[derive(Default)]
struct Pending {
    out: Vec<u8>,
    errors: Vec<u8>,
    last_hint: Option<String>,
}

/// Whoever speaks while this much waits writes it himself: memory stays bounded, and a slow reader of our
/// output slows the run down.
const WAITING_BYTES: usize = 256 << 10;

impl LineOfRun {
    /// Shows a failure with the line's number; a hint that has just been given is not given again.
    pub fn push_failure(&self, failure: &Failure) {
        let message = format!("line {}: {}", self.number, failure.message);
        let mut failure = Failure { message, ..failure.clone() };
        let mut pending = self.run.pending();
        if failure.hint == pending.last_hint {
            failure.hint = None;
        } else {
            pending.last_hint.clone_from(&failure.hint);
        }
        drop(pending);
        self.run.push_error(&format!("{failure}\n"));
    }
}

impl RunOutput {
    /// Takes whole lines for standard output, and leaves `lines` empty.
    pub fn push(&self, lines: &mut Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        let mut pending = self.pending();
        pending.out.append(lines);
        let is_full = pending.out.len() >= WAITING_BYTES;
        drop(pending);
        if is_full {
            self.write();
        }
    }

    /// Takes whole lines for standard error.
    pub fn push_error(&self, lines: &str) {
        let mut pending = self.pending();
        pending.errors.extend_from_slice(lines.as_bytes());
        let is_full = pending.errors.len() >= WAITING_BYTES;
        drop(pending);
        if is_full {
            self.write();
        }
    }

    /// Writes what waits. A report that cannot be written stops nothing, since what it reports is done: a
    /// line on standard error says so once.
    pub fn write(&self) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pending = self.pending();
        let (out, errors) = (mem::take(&mut pending.out), mem::take(&mut pending.errors));
        drop(pending);
        if !out.is_empty() && !self.is_reader_gone.load(Ordering::Relaxed) {
            let failure = Stdout.write_all(&out).err().map(|error| Failure::stdout(&error));
            match failure {
                None => {}
                Some(failure) if failure.is_silent() => self.is_reader_gone.store(true, Ordering::Relaxed),
                Some(failure) => self.lose_report(&failure),
            }
        }
        // A diagnostic that cannot be written cannot be reported either.
        let _ = io::stderr().lock().write_all(&errors);
    }

    /// Whether something waits to be written.
    pub fn is_waiting(&self) -> bool {
        let pending = self.pending();
        !pending.out.is_empty() || !pending.errors.is_empty()
    }

    /// Whether something that was done could not be reported.
    pub fn has_lost_report(&self) -> bool {
        self.has_lost_report.load(Ordering::Relaxed)
    }

    pub fn count_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that lines have moved so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn lose_report(&self, failure: &Failure) {
        if !self.has_lost_report.swap(true, Ordering::Relaxed) {
            let why = one_line(&failure.message);
            let _ = writeln!(io::stderr().lock(), "flatout: cannot report what is done: {why}");
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
