//! The log of requests: a line of JSON for each, when its answer has ended, for tests to count.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

/// The file that records are appended to, if one is set.
pub(super) struct RequestLog {
    file: Option<File>,
    start: Instant,
    /// Why a line is missing.
    failure: Mutex<Option<io::Error>>,
}

impl RequestLog {
    pub(super) fn open(path: Option<&Path>) -> io::Result<RequestLog> {
        let named = |error: io::Error, path: &Path| {
            let text = format!("log: {}: {error}", path.display());
            io::Error::new(error.kind(), text)
        };
        let open = |path: &Path| OpenOptions::new().append(true).create(true).open(path);
        let file = path.map(|path| open(path).map_err(|error| named(error, path))).transpose()?;
        Ok(RequestLog { file, start: Instant::now(), failure: Mutex::default() })
    }

    pub(super) fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// One call a line: the kernel appends it whole.
    fn write(&self, record: &RequestRecord) {
        let Some(mut file) = self.file.as_ref() else { return };
        let mut text = serde_json::to_vec(record).expect("a line is a map with text for keys");
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

/// The record of a request, one line of JSON.
#[derive(Serialize)]
pub(super) struct RequestRecord {
    /// When it came, in seconds since the origin started.
    t_s: f64,
    pub method: String,
    pub bucket: String,
    pub key: String,
    /// Of a request that writes an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<&'static str>,
    /// The number of the part that is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<u64>,
    /// The first and the last byte of the range that is asked for; none where the whole is.
    pub range: Option<[u64; 2]>,
    /// How often this last byte of this key has been asked for, or this step of writing it, with this time; 0
    /// where chance was not asked.
    pub attempt: u64,
    pub fault: Option<&'static str>,
    /// None when the client went away before the response.
    pub status: Option<u16>,
    /// Of the body, as far as they were handed to the connection.
    pub bytes: u64,
    /// The number of the address that it came to, in the order of their naming, from 0.
    pub listener: usize,
}

/// A record that is written when this is dropped: with the body of the response, or before.
pub(super) struct PendingRecord {
    log: Arc<RequestLog>,
    pub record: RequestRecord,
}

impl PendingRecord {
    pub(super) fn new(log: Arc<RequestLog>, method: String, listener: usize) -> PendingRecord {
        let t_s = log.start.elapsed().as_secs_f64();
        let (bucket, key) = (String::new(), String::new());
        let record = RequestRecord {
            t_s,
            method,
            bucket,
            key,
            step: None,
            part: None,
            range: None,
            attempt: 0,
            fault: None,
            status: None,
            bytes: 0,
            listener,
        };
        PendingRecord { log, record }
    }
}

impl Drop for PendingRecord {
    fn drop(&mut self) {
        self.log.write(&self.record);
    }
}
