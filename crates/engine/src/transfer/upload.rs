//! A put on its way: its source, the parts that are left, what the origin has accepted, and how it ends.
//!
//! ```text short:  hash ─ PUT                                                  the object is there whole, or
//! not at all long:   create ─ part 1, part 2, … (hash, PUT) ─ complete           so is this: parts are no
//! object any failure: abort, and nothing is left ```

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flatout_wire::checksum::{Algorithm, Powers};
use tokio::sync::Notify;

use crate::api::account::{Account, Dialect, Operation, Target};
use crate::api::write::{StoredAs, Write, WriteStep};
use crate::base::error::{Error, ErrorKind};
use crate::base::report::{PartRecord, Progress, Report, Verified};
use crate::base::version::Version;
use crate::sink::end::End;
use crate::source::OpenSource;
use crate::transfer::put::Put;
use crate::transfer::resources::Resources;
use crate::transfer::{ActiveTransfer, Running};
use flatout_policy::queue::Priority;

const LEFT_PARTS: &str = "parts that were sent could not be deleted, and take space at the origin until the upload is aborted there";

/// A put on its way: what its shards share.
pub(crate) struct Upload {
    pub(crate) transfer: ActiveTransfer,
    pub(crate) account: Arc<Account>,
    pub(crate) target: Target,
    pub(crate) stored_as: Arc<StoredAs>,
    pub(crate) source: OpenSource,
    pub(crate) verify: bool,
    /// Set where the object is sent in parts.
    pub(crate) parts: OnceLock<PartsUpload>,
    /// Set when the origin has the object.
    stored: OnceLock<Stored>,
    /// Its parts are being deleted, or have been.
    is_aborting: AtomicBool,
    /// Parts were sent that could not be deleted.
    has_left_parts: AtomicBool,
}

/// What the origin said of the object that it made.
pub(crate) struct Stored {
    pub(crate) version: Version,
    pub(crate) bytes: u64,
    pub(crate) verified: Verified,
}

/// An upload in parts.
pub(crate) struct PartsUpload {
    pub(crate) upload_id: Arc<str>,
    /// What each part is hashed with.
    pub(crate) algorithm: Option<Algorithm>,
    /// How long each part but the last is, and how long all are; nothing of a stream.
    sizes: Option<(u64, u64)>,
    /// The number of the next part, from 0.
    next: AtomicU64,
    done: Mutex<Vec<AcceptedPart>>,
    /// A part has been accepted.
    pub(crate) accepted: Notify,
}

/// A part that the origin has.
#[derive(Clone, Debug)]
pub(crate) struct AcceptedPart {
    /// From 1.
    pub(crate) number: u32,
    pub(crate) etag: String,
    pub(crate) checksum: Option<(Algorithm, u64)>,
    pub(crate) bytes: u64,
}

/// All parts of an upload.
pub(crate) struct Parts {
    /// In order.
    pub(crate) parts: Vec<AcceptedPart>,
    pub(crate) bytes: u64,
    /// Of the whole, where each part has one.
    pub(crate) checksum: Option<(Algorithm, u64)>,
}

impl PartsUpload {
    pub(crate) fn new(
        upload_id: String,
        algorithm: Option<Algorithm>,
        sizes: Option<(u64, u64)>,
    ) -> PartsUpload {
        PartsUpload {
            upload_id: upload_id.into(),
            algorithm,
            sizes,
            next: AtomicU64::new(0),
            done: Mutex::default(),
            accepted: Notify::new(),
        }
    }

    /// How many parts there are; none of a stream.
    pub(crate) fn count(&self) -> u64 {
        self.sizes.map_or(0, |(part_bytes, bytes)| bytes.div_ceil(part_bytes))
    }

    /// Parts that no worker has taken.
    pub(crate) fn left(&self) -> u64 {
        self.count().saturating_sub(self.next.load(Ordering::Relaxed))
    }

    /// The next part: its number from 1, and its range of the object.
    pub(crate) fn take(&self) -> Option<(u32, Range<u64>)> {
        let (part_bytes, bytes) = self.sizes?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let start = number.checked_mul(part_bytes).filter(|start| *start < bytes)?;
        Some((number as u32 + 1, start..(start + part_bytes).min(bytes)))
    }

    /// The origin has accepted a part.
    pub(crate) fn on_accepted(&self, part: AcceptedPart) {
        self.done().push(part);
        self.accepted.notify_one();
    }

    /// How many parts the origin has.
    pub(crate) fn accepted_count(&self) -> u64 {
        self.done().len() as u64
    }

    /// All parts that the origin has.
    pub(crate) fn conclude(&self) -> Parts {
        let mut parts = std::mem::take(&mut *self.done());
        parts.sort_unstable_by_key(|part| part.number);
        let checksum = self.algorithm.and_then(|algorithm| {
            let mut powers = Powers::new(algorithm);
            let mut whole = None;
            for part in &parts {
                let (_, sum) = part.checksum?;
                whole = Some(whole.map_or(sum, |before| powers.combine(before, sum, part.bytes)));
            }
            Some((algorithm, whole?))
        });
        Parts { bytes: parts.iter().map(|part| part.bytes).sum(), checksum, parts }
    }

    fn done(&self) -> MutexGuard<'_, Vec<AcceptedPart>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload {
    /// Opens the source; nothing is sent yet.
    ///
    /// # Errors
    /// The source cannot be opened.
    pub(crate) fn start(put: Put, account: Arc<Account>, resources: Resources) -> Result<Upload, Error> {
        let name = put.location.to_string();
        let verify = resources.care.verify;
        let source = OpenSource::open(put.source)?;
        let mut transfer = ActiveTransfer::new(name, resources);
        transfer.records = put.record_parts.then(Mutex::default);
        transfer.end = End::new(put.on_end);
        Ok(Upload {
            transfer,
            account,
            target: Target::from(put.location),
            stored_as: Arc::new(StoredAs { options: put.options, condition: put.condition }),
            source,
            verify,
            parts: OnceLock::new(),
            stored: OnceLock::new(),
            is_aborting: AtomicBool::new(false),
            has_left_parts: AtomicBool::new(false),
        })
    }

    /// A step of writing the object.
    pub(crate) fn operation(&self, step: WriteStep) -> Operation {
        Operation::Write(Write { target: self.target.clone(), step })
    }

    pub(crate) fn dialect(&self) -> Dialect {
        Dialect::of(&self.target.location)
    }

    /// Keeps what is known of a part that the origin has accepted.
    pub(crate) fn record(&self, record: impl FnOnce() -> PartRecord) {
        self.transfer.record(record);
    }

    /// The origin has the object.
    pub(crate) fn on_stored(&self, stored: Stored) {
        let fresh = self.stored.set(stored).is_ok();
        assert!(fresh, "an object is stored once, by the lead");
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.stored.get().is_some()
    }

    /// Whether the caller is the one to abort it: the task that began the upload and the lead may both find
    /// it stopped, and would wait for each other to let go of it.
    pub(crate) fn starts_abort(&self) -> bool {
        !self.is_aborting.swap(true, Ordering::Relaxed)
    }

    /// Its parts stay at the origin.
    pub(crate) fn leave_parts(&self) {
        self.has_left_parts.store(true, Ordering::Relaxed);
    }

    /// How many more workers could take a part now, and how urgent that is.
    pub(crate) fn wants_workers(&self) -> (u64, Priority) {
        let left = self.parts.get().filter(|_| !self.transfer.is_stopped()).map_or(0, PartsUpload::left);
        (left.min(self.transfer.more_workers()), self.transfer.slots.priority())
    }

    fn conclude(&self) -> Result<Report, Error> {
        let Some(stored) = self.stored.get() else {
            return Err(Error::new(ErrorKind::Cancelled, "the client was closed while the transfer ran"));
        };
        let transfer = &self.transfer;
        Ok(Report {
            version: stored.version.clone(),
            stat: None,
            range: 0..stored.bytes,
            bytes: stored.bytes,
            fetched_bytes: transfer.counters.fetched_bytes(),
            resumed_bytes: 0,
            resume_note: None,
            verified: stored.verified,
            seconds: transfer.clock_s(),
            retries: transfer.counters.retries.load(Ordering::Relaxed),
            tails: transfer.counters.tails(),
            connections: transfer.counters.connections.load(Ordering::Relaxed),
            shards: transfer.shards_seen.load(Ordering::Relaxed).count_ones(),
            limited_by: transfer.limited_by(),
            parts: transfer.take_records(),
        })
    }
}

impl Running for Upload {
    fn transfer(&self) -> &ActiveTransfer {
        &self.transfer
    }

    fn progress(&self) -> Progress {
        let limited_by = self.transfer.gate.tally().now();
        self.transfer.counters.progress(self.source.bytes(), limited_by)
    }

    fn fail(&self, error: Error) {
        self.transfer.fail(error);
    }

    fn finish(&self) {
        self.transfer.gate.leave(self.transfer.slots.transfer());
        if let OpenSource::Stream(ring) = &self.source {
            ring.end();
        }
        let result = self.transfer.take_failure().map_or_else(|| self.conclude(), Err);
        let result = result.map_err(|error| {
            let error = error.during("upload", &self.transfer.name);
            match self.has_left_parts.load(Ordering::Relaxed) {
                true => error.with_further_hint(LEFT_PARTS),
                false => error,
            }
        });
        self.transfer.end.settle(result);
    }
}
