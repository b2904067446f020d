//! One object to a file, a pipe, a device or standard output, with a bar where one is wanted and signals
//! heeded.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use flatout_engine::{
    Client, Error, ErrorKind, Get, Landing, Progress, Report, Transfer, Watch, left_behind_as, stream,
};
use flatout_wire::location::Location;
use flatout_wire::range::Span;

use crate::console::{Carries, Console};
use crate::failure::Failure;
use crate::progress::Bar;
use crate::signal::CancelOnSignal;
use crate::{stdout, sys};

/// What is fetched, and by whom.
pub struct Download<'a> {
    pub client: &'a Client,
    pub location: &'a Location,
    /// The newest version where absent.
    pub version_id: Option<&'a str>,
    pub span: Option<&'a Span>,
    pub console: &'a Console,
}

/// What became of it, and what it took whether it failed or not.
pub struct TransferOutcome {
    pub result: Result<Report, Failure>,
    /// Bytes received, those received twice included.
    pub fetched_bytes: u64,
    pub retries: u32,
    /// Bytes that a failed run has left in its unfinished file.
    kept_bytes: u64,
    pub seconds: f64,
}

impl TransferOutcome {
    /// Of a transfer that has begun, or has not: it is waited for by `deliver`.
    pub fn after(
        started: Result<(Transfer, CancelOnSignal), Error>,
        begun: Instant,
        deliver: impl FnOnce(Transfer) -> Result<Report, Failure>,
    ) -> TransferOutcome {
        match started {
            Ok((transfer, _armed)) => {
                let watch = transfer.watch();
                let result = deliver(transfer);
                TransferOutcome::seen(result, &watch, begun)
            }
            Err(error) => TransferOutcome {
                seconds: begun.elapsed().as_secs_f64(),
                ..TransferOutcome::of(Err(error.into()))
            },
        }
    }

    /// Of a transfer that has ended.
    pub fn seen(result: Result<Report, Failure>, watch: &Watch, begun: Instant) -> TransferOutcome {
        let Progress { fetched_bytes, retries, kept_bytes, .. } = watch.progress();
        TransferOutcome { result, fetched_bytes, retries, kept_bytes, seconds: begun.elapsed().as_secs_f64() }
    }

    /// Of what ended before anything was asked for.
    pub fn of(result: Result<Report, Failure>) -> TransferOutcome {
        TransferOutcome { result, fetched_bytes: 0, retries: 0, kept_bytes: 0, seconds: 0.0 }
    }

    fn is_of_what_changed(&self) -> bool {
        self.result.as_ref().is_err_and(|failure| failure.kind == ErrorKind::Changed.name())
    }

    /// Where something is left to go on from, its hint says where.
    fn name_what_is_left(&mut self, path: &Path) {
        if let Err(Failure { hint: Some(hint), .. }) = &mut self.result
            && self.kept_bytes > 0
        {
            let there = left_beside(path);
            *hint = format!("{hint}; the unfinished file is {}: removing that gives it up", there.display());
        }
    }
}

/// Where what is left of the file lies, as a shell's pattern that its journal matches as well.
fn left_beside(path: &Path) -> PathBuf {
    // A link is followed.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.with_file_name(left_behind_as(path.file_name().unwrap_or_default()))
}

impl Download<'_> {
    /// Into a file, which the engine shows under its name only when it is whole and verified. With
    /// `keep_existing` it is not shown where another one has appeared there meanwhile. An object that is
    /// replaced during the read is read a second time, as one of many is: the file is not visible yet.
    pub fn to_file(&self, path: &Path, keep_existing: bool) -> TransferOutcome {
        let mut outcome = self.once_to_file(path, keep_existing);
        if outcome.is_of_what_changed() && !self.console.interrupt.raised() {
            let first = outcome;
            outcome = self.once_to_file(path, keep_existing);
            outcome.fetched_bytes += first.fetched_bytes;
            outcome.retries += first.retries;
            outcome.seconds += first.seconds;
        }
        outcome.name_what_is_left(path);
        outcome
    }

    fn once_to_file(&self, path: &Path, keep_existing: bool) -> TransferOutcome {
        let mut get = self.get(Landing::File(path.to_path_buf()));
        let line = self.console.line_of_run();
        if let Some(line) = &line {
            get = line.downloads.prepared(get, path);
        }
        let outcome = self.run(if keep_existing { get.keeping_existing() } else { get }, |transfer| {
            Bar::new(self.console, Carries::Lines, self.location.name()).follow(&transfer);
            Ok(transfer.wait()?)
        });
        if let (Some(line), Ok(done)) = (line, &outcome.result) {
            line.downloads.on_end(done.bytes);
        }
        outcome
    }

    /// To standard output, in order.
    pub fn to_stdout(&self) -> TransferOutcome {
        match stdout::raw() {
            Ok(out) => self.pour(out, Carries::Bytes, Failure::stdout),
            Err(error) => TransferOutcome::of(Err(Failure::stdout(&error))),
        }
    }

    /// Into a pipe with a name or a device, in order. It is opened first, as a shell opens it for `>`: a pipe
    /// waits for its reader here.
    pub fn to_stream(&self, path: &Path) -> TransferOutcome {
        let refused = |error: &io::Error| match error.kind() {
            // As on standard output: the reader has enough.
            io::ErrorKind::BrokenPipe => Failure::reader_gone(),
            _ => Failure::local("write", path.display(), error),
        };
        match File::options().write(true).custom_flags(libc::O_NOCTTY).open(path) {
            Ok(out) => {
                sys::widen_pipe(out.as_fd(), stdout::PIPE_BYTES);
                self.pour(out, Carries::Lines, refused)
            }
            Err(error) => TransferOutcome::of(Err(refused(&error))),
        }
    }

    fn pour(
        &self,
        mut out: File,
        carries: Carries,
        refused: impl Fn(&io::Error) -> Failure,
    ) -> TransferOutcome {
        let (writer, mut reader) = stream();
        self.run(self.get(Landing::Stream(writer)), |transfer| {
            let _bar = Bar::new(self.console, carries, self.location.name()).follow_aside(transfer.watch());
            while let Some(chunk) = reader.next() {
                if let Err(error) = stdout::write(&mut out, chunk) {
                    transfer.cancel_switch().cancel();
                    drop(reader);
                    // The cancelled transfer's own error says nothing that the write's does not.
                    let _ = transfer.wait();
                    return Err(refused(&error));
                }
            }
            Ok(transfer.wait()?)
        })
    }

    fn run(&self, get: Get, deliver: impl FnOnce(Transfer) -> Result<Report, Failure>) -> TransferOutcome {
        let begun = Instant::now();
        TransferOutcome::after(start(self.client, get, self.console), begun, deliver)
    }

    fn get(&self, landing: Landing) -> Get {
        let mut get = Get::new(self.location.clone(), landing);
        if let Some(version_id) = self.version_id {
            get = get.with_version_id(version_id);
        }
        if let Some(span) = self.span {
            get.span = span.clone();
        }
        get
    }
}

/// Starts a get that a signal cancels while the guard lives.
pub fn start(client: &Client, get: Get, console: &Console) -> Result<(Transfer, CancelOnSignal), Error> {
    stoppable(console, || client.get(get))
}

/// Starts a transfer that a signal cancels while the guard lives.
pub fn stoppable(
    console: &Console,
    start: impl FnOnce() -> Result<Transfer, Error>,
) -> Result<(Transfer, CancelOnSignal), Error> {
    let armed = console.interrupt.arm();
    let transfer = start()?;
    let switch = transfer.cancel_switch();
    armed.on_signal(move || switch.cancel());
    Ok((transfer, armed))
}
