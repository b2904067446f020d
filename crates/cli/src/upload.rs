//! A file, standard input or a pipe to one object, with a bar where one is wanted and signals heeded.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use flatout_engine::{Client, Error, Put, Source, StreamUploader, Transfer, upload_stream};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

use crate::console::{Carries, Console};
use crate::download::{TransferOutcome, stoppable};
use crate::failure::Failure;
use crate::progress::Bar;
use crate::sys;

/// Where the bytes come from.
#[derive(Clone, Debug)]
pub enum UploadSource {
    Stdin,
    /// A pipe with a name, or a character device, which gives bytes as they come.
    Stream(PathBuf),
    File(PathBuf),
}

impl UploadSource {
    /// As messages and events name it.
    pub fn shown(&self) -> String {
        match self {
            UploadSource::Stdin => "-".to_owned(),
            UploadSource::Stream(path) | UploadSource::File(path) => path.display().to_string(),
        }
    }
}

/// What is sent, and what it is stored as.
pub struct Upload<'a> {
    pub client: &'a Client,
    pub location: &'a Location,
    pub options: ObjectOptions,
    pub condition: Condition,
    pub console: &'a Console,
}

impl Upload<'_> {
    pub fn run(self, source: &UploadSource) -> TransferOutcome {
        let begun = Instant::now();
        match source {
            UploadSource::File(path) => self.send(Source::File(path.clone()), begun, |transfer, bar| {
                bar.follow(&transfer);
                Ok(transfer.wait()?)
            }),
            UploadSource::Stdin => match stdin() {
                Ok(input) => self.pour(input, "standard input".to_owned(), begun),
                Err(error) => TransferOutcome::of(Err(unread("standard input", &error))),
            },
            UploadSource::Stream(path) => match File::open(path) {
                Ok(input) => self.pour(input, path.display().to_string(), begun),
                Err(error) => TransferOutcome::of(Err(unread(&path.display().to_string(), &error))),
            },
        }
    }

    /// Reads what comes on a thread of its own, which may wait for it longer than a signal lets us.
    fn pour(self, input: File, name: String, begun: Instant) -> TransferOutcome {
        let (uploader, source) = upload_stream();
        let (tell, told) = mpsc::channel();
        let reader = thread::Builder::new().name("flatout-input".to_owned());
        let started = reader.spawn(move || {
            // Told before the uploader is dropped, which ends the upload.
            read_all(input, uploader, |error| drop(tell.send(error)));
        });
        if let Err(error) = started {
            return TransferOutcome::of(Err(Failure::local("start", "a thread", &error)));
        }
        self.send(Source::Stream(source), begun, |transfer, bar| {
            bar.follow(&transfer);
            let ended = transfer.wait();
            match told.try_recv() {
                Ok(error) => Err(unread(&name, &error)),
                Err(_) => Ok(ended?),
            }
        })
    }

    fn send(
        self,
        source: Source,
        begun: Instant,
        deliver: impl FnOnce(Transfer, &Bar) -> Result<flatout_engine::Report, Failure>,
    ) -> TransferOutcome {
        let bar = Bar::new(self.console, Carries::Lines, self.location.name());
        let put = Put::new(self.location.clone(), source);
        let put = put.with_options(self.options).on_condition(self.condition);
        let started: Result<_, Error> = stoppable(self.console, || self.client.put(put));
        TransferOutcome::after(started, begun, |transfer| deliver(transfer, &bar))
    }
}

fn unread(name: &str, error: &io::Error) -> Failure {
    Failure::local("read", name, error)
}

/// Standard input without std's buffer.
fn stdin() -> io::Result<File> {
    use std::os::fd::AsFd;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    sys::widen_pipe(input.as_fd(), crate::stdout::PIPE_BYTES);
    Ok(input)
}

/// Reads to the end, straight into the rooms of the upload. A read error is told first; then the upload is
/// abandoned.
fn read_all(mut input: File, mut uploader: StreamUploader, tell: impl FnOnce(io::Error)) {
    // Once the upload has ended its error counts.
    while let Ok(space) = uploader.space() {
        match input.read(space) {
            Ok(0) => return uploader.finish(),
            Ok(bytes) => uploader.advance(bytes),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return tell(error),
        }
    }
}

/// The failure of what is to be sent and cannot be looked at.
pub fn unreadable(typed: &str, error: &std::io::Error) -> Failure {
    let failure = Failure::local("read", typed, error);
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            failure.with_hint("check the path: the first argument is what is sent")
        }
        _ => failure,
    }
}
