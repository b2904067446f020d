//! The log of requests: a line of JSON for each, when its answer has ended, for tests to count.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

/// Where lines go; without a file nowhere.
pub(super) struct Log {
    file: Option<File>,
    start: Instant,
    /// Why a line is missing.
    failure: Mutex<Option<io::Error>>,
}

impl Log {
    pub(super) fn open(path: Option<&Path>) -> io::Result<Log> {
        let named = |error: io::Error, path: &Path| {
            let text = format!("log: {}: {error}", path.display());
            io::Error::new(error.kind(), text)
        };
        let open = |path: &Path| OpenOptions::new().append(true).create(true).open(path);
        let file = path.map(|path| open(path).map_err(|error| named(error, path))).transpose()?;
        Ok(Log { file, start: Instant::now(), failure: Mutex::default() })
    }

    pub(super) fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// One call a line: the kernel appends it whole.
    fn write(&self, line: &Line) {
        let Some(mut file) = self.file.as_ref() else { return };
        let mut text = serde_json::to_vec(line).expect("a line is a map with text for keys");
        text.push(b'\n');
        if let Err(error) = file.write_all(&text) {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// An error when a line is missing.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(io::Error::new(error.kind(), format!("lines are missing: {error}"))),
            None => Ok(()),
        }
    }
}

/// What is written of a request.
#[derive(Serialize)]
pub(super) struct Line {
    /// When it came, in seconds since the origin started.
    t_s: f64,
    pub method: String,
    pub bucket: String,
    pub key: String,
    /// The first and the last byte of the range that is asked for; none where the whole is.
    pub range: Option<[u64; 2]>,
    /// How often this last byte of this key has been asked for, with this time; 0 where chance was not asked.
    pub attempt: u64,
    pub fault: Option<&'static str>,
    /// None where nobody waited for an answer.
    pub status: Option<u16>,
    /// Of the body, as far as they were handed to the connection.
    pub bytes: u64,
    /// The number of the address that it came to, in the order of their naming, from 0.
    pub listener: usize,
}

/// The line of a request, which is written when this is dropped: with the body of its answer, or before.
pub(super) struct Entry {
    log: Arc<Log>,
    pub line: Line,
}

impl Entry {
    pub(super) fn new(log: Arc<Log>, method: String, listener: usize) -> Entry {
        let t_s = log.start.elapsed().as_secs_f64();
        let (bucket, key) = (String::new(), String::new());
        let line = Line {
            t_s,
            method,
            bucket,
            key,
            range: None,
            attempt: 0,
            fault: None,
            status: None,
            bytes: 0,
            listener,
        };
        Entry { log, line }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.log.write(&self.line);
    }
}
