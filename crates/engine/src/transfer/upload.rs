//! A put on its way: its source, the parts that are left, what the origin has accepted, and how it ends.
//!
//! ```text
//!   short:  hash ─ PUT                                            the object is there whole, or not at all
//!   long:   create ─ part 1, part 2, … (PUT, hash) ─ complete     and so here: parts are no object
//!                     a failure: abort, or a journal for the next run
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flatout_settings::format_size;
use flatout_wire::body_checksum::{BodyChecksum, ChecksumForm};
use flatout_wire::checksum::{Algorithm, Powers};
use flatout_wire::documents;
use tokio::sync::Notify;

use crate::api::account::{Account, Dialect, Operation, Target};
use crate::api::write::{Content, StoredAs, Write, WriteStep};
use crate::base::error::{Error, ErrorKind};
use crate::base::report::{PartRecord, Progress, Report, Stat, Verified};
use crate::base::version::Object;
use crate::disk::upload_journal::{SentPart, UploadJournal};
use crate::sink::end::End;
use crate::source::OpenSource;
use crate::transfer::put::{Edits, OnBegun, Put};
use crate::transfer::resources::{Resources, TransferOptions};
use crate::transfer::{ActiveTransfer, Running};
use flatout_policy::edit::EditedPart;
use flatout_policy::queue::Priority;
use flatout_policy::upload::{OBJECT_MOST, PARTS_MOST};

const LEFT_PARTS: &str =
    "parts that were sent could not be deleted: they take space until the upload is aborted";

/// The shortest part that origins take. That of the simulation takes any: its objects are small.
pub(crate) const PART_LEAST: u64 = if cfg!(test) { 1 } else { flatout_policy::upload::PART_LEAST };

/// Less than that is sent anew as quickly as it is asked for.
const KEPT_FROM: u64 = 64 << 20;

/// A put on its way: what its shards share.
pub(crate) struct Upload {
    pub(crate) transfer: ActiveTransfer,
    pub(crate) account: Arc<Account>,
    pub(crate) target: Target,
    pub(crate) stored_as: Arc<StoredAs>,
    pub(crate) source: OpenSource,
    /// What the object begins with, before the bytes of a stream.
    pub(crate) continues: Option<Object>,
    /// What it is made of, where it is an older one with changes.
    pub(crate) edits: Option<Edits>,
    on_begun: Mutex<Option<OnBegun>>,
    pub(crate) verify: bool,
    /// Set where the object is sent in parts.
    pub(crate) parts: OnceLock<PartsUpload>,
    /// Set when the origin has the object.
    stored: OnceLock<Stored>,
    /// Its parts are being deleted, or have been.
    is_aborting: AtomicBool,
    /// What the next run goes on from: of a file that is sent in parts.
    pub(crate) journal: OnceLock<UploadJournal>,
    /// Whether a later run may go on.
    pub(crate) resume: bool,
    /// Bytes of parts that an earlier run had sent, and why its parts were of no use.
    pub(crate) resumed_bytes: AtomicU64,
    pub(crate) resume_note: OnceLock<&'static str>,
    /// Bytes of parts that are left for the next run.
    kept_bytes: AtomicU64,
    /// Its parts have been deleted.
    is_aborted: AtomicBool,
}

/// What the origin said of the object that it made.
pub(crate) struct Stored {
    pub(crate) stat: Stat,
    pub(crate) bytes: u64,
    pub(crate) verified: Verified,
}

/// An upload in parts.
pub(crate) struct PartsUpload {
    pub(crate) upload_id: Arc<str>,
    /// What each part is hashed with.
    pub(crate) form: Option<ChecksumForm>,
    /// When it began, in Unix seconds by the origin's clock; 0 where it did not say.
    pub(crate) begun_s: u64,
    /// The origin refuses to make the object of these parts: nothing goes on from them.
    pub(crate) is_refused: AtomicBool,
    cut: Cut,
    /// Numbers of the parts that are to be sent, and how many of these have been taken.
    missing: Vec<u32>,
    next: AtomicUsize,
    done: Mutex<Vec<SentPart>>,
    /// A part has been accepted.
    pub(crate) accepted: Notify,
}

/// How an upload is cut into parts.
#[derive(Clone)]
pub(crate) enum Cut {
    /// As a stream comes.
    Stream,
    /// Each but the last is as long, and all are as long together.
    Even { part_bytes: u64, bytes: u64 },
    /// As they are named. Those that are copied are not sent.
    Edited(Arc<[EditedPart]>),
}

impl Cut {
    /// How many parts there are; none of a stream.
    fn count(&self) -> u64 {
        match self {
            Cut::Stream => 0,
            Cut::Even { part_bytes, bytes } => bytes.div_ceil(*part_bytes),
            Cut::Edited(parts) => parts.len() as u64,
        }
    }

    /// Of a part, by its number from 1.
    fn range(&self, number: u32) -> Option<Range<u64>> {
        match self {
            Cut::Stream => None,
            Cut::Even { part_bytes, bytes } => {
                let start = u64::from(number - 1) * part_bytes;
                Some(start..(start + part_bytes).min(*bytes))
            }
            Cut::Edited(parts) => parts.get(number as usize - 1).map(|part| part.range.clone()),
        }
    }

    fn is_copied(&self, number: u32) -> bool {
        matches!(self, Cut::Edited(parts) if parts.get(number as usize - 1).is_some_and(|part| part.is_copied))
    }
}

/// All parts of an upload.
pub(crate) struct Parts {
    /// In order.
    pub(crate) parts: Vec<SentPart>,
    pub(crate) bytes: u64,
    /// The CRC of the whole, where each part has one.
    pub(crate) crc: Option<(Algorithm, u64)>,
    /// Whether the ETag of each part is the MD5 of what was sent.
    pub(crate) are_by_md5: bool,
}

impl PartsUpload {
    pub(crate) fn new(
        upload_id: String,
        (form, begun_s): (Option<ChecksumForm>, u64),
        cut: Cut,
        kept: Vec<SentPart>,
    ) -> PartsUpload {
        let mut missing: Vec<u32> = (1..=cut.count() as u32).collect();
        missing.retain(|number| !cut.is_copied(*number) && kept.iter().all(|part| part.number != *number));
        PartsUpload {
            upload_id: upload_id.into(),
            form,
            begun_s,
            is_refused: AtomicBool::new(false),
            cut,
            missing,
            next: AtomicUsize::new(0),
            done: Mutex::new(kept),
            accepted: Notify::new(),
        }
    }

    /// How many parts there are; none of a stream.
    pub(crate) fn count(&self) -> u64 {
        self.cut.count()
    }

    /// Parts that no worker has taken.
    pub(crate) fn left(&self) -> u64 {
        self.missing.len().saturating_sub(self.next.load(Ordering::Relaxed)) as u64
    }

    /// The next part: its number from 1, and its range of the object.
    pub(crate) fn take(&self) -> Option<(u32, Range<u64>)> {
        let number = *self.missing.get(self.next.fetch_add(1, Ordering::Relaxed))?;
        Some((number, self.cut.range(number)?))
    }

    /// The origin has accepted a part.
    pub(crate) fn on_accepted(&self, part: SentPart) {
        self.done().push(part);
        self.accepted.notify_one();
    }

    /// Bytes of the parts that the origin has.
    pub(crate) fn accepted_bytes(&self) -> u64 {
        self.done().iter().map(|part| part.bytes).sum()
    }

    /// How many parts the origin has.
    pub(crate) fn accepted_count(&self) -> u64 {
        self.done().len() as u64
    }

    /// All parts that the origin has.
    pub(crate) fn conclude(&self) -> Parts {
        let mut parts = self.done().clone();
        parts.sort_unstable_by_key(|part| part.number);
        let crc = self.form.and_then(ChecksumForm::crc).and_then(|algorithm| {
            let mut powers = Powers::new(algorithm);
            let mut whole = None;
            for part in &parts {
                let (_, sum) = part.checksum?.crc()?;
                whole = Some(whole.map_or(sum, |before| powers.combine(before, sum, part.bytes)));
            }
            Some((algorithm, whole?))
        });
        let is_by_md5 = |part: &SentPart| part.checksum.is_some_and(|sum| sum.is_etag(&part.etag));
        let (bytes, are_by_md5) = (parts.iter().map(|part| part.bytes).sum(), parts.iter().all(is_by_md5));
        Parts { parts, bytes, crc, are_by_md5 }
    }

    fn done(&self) -> MutexGuard<'_, Vec<SentPart>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    pub(crate) fn content(&self) -> Content {
        let checksum = self.crc.map(|(algorithm, value)| BodyChecksum::Crc(algorithm, value));
        Content { bytes: self.bytes, checksum }
    }

    /// The ETag of the object that they make, where it follows from theirs.
    pub(crate) fn etag(&self) -> Option<String> {
        documents::etag_of_parts(self.parts.iter().map(|part| &*part.etag))
    }
}

impl Upload {
    /// Opens the source; nothing is sent yet.
    ///
    /// # Errors
    /// The source cannot be opened.
    pub(crate) fn start(put: Put, account: Arc<Account>, resources: Resources) -> Result<Upload, Error> {
        let name = put.location.to_string();
        let TransferOptions { verify, resume } = resources.care;
        let source = OpenSource::open(put.source)?;
        if let Some(bytes) = source.bytes().filter(|bytes| *bytes > OBJECT_MOST) {
            return Err(too_long(bytes).during("upload", &name));
        }
        let mut transfer = ActiveTransfer::new(name, resources);
        transfer.records = put.record_parts.then(Mutex::default);
        transfer.end = End::new(put.on_end);
        Ok(Upload {
            transfer,
            account,
            target: Target::from(put.location),
            stored_as: Arc::new(StoredAs { options: put.options, condition: put.condition }),
            source,
            continues: put.continues,
            edits: put.edits,
            on_begun: Mutex::new(put.on_begun),
            verify,
            parts: OnceLock::new(),
            stored: OnceLock::new(),
            is_aborting: AtomicBool::new(false),
            journal: OnceLock::new(),
            resume: resume && put.may_resume,
            resumed_bytes: AtomicU64::new(0),
            resume_note: OnceLock::new(),
            kept_bytes: AtomicU64::new(0),
            is_aborted: AtomicBool::new(false),
        })
    }

    /// The origin has given an upload in parts its id.
    pub(crate) fn on_begun(&self, upload_id: &str) {
        let hear = self.on_begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(hear) = hear {
            hear(upload_id);
        }
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

    /// Whether what was sent is left for the next run: there is a journal, and enough to be worth it.
    pub(crate) fn keep_parts(&self) -> bool {
        let parts = self.parts.get().filter(|parts| !parts.is_refused.load(Ordering::Relaxed));
        let bytes = parts.map_or(0, PartsUpload::accepted_bytes);
        let keeps = self.journal.get().is_some() && bytes >= KEPT_FROM && self.transfer.keeps_partial_data();
        if keeps {
            self.kept_bytes.store(bytes, Ordering::Relaxed);
        }
        keeps
    }

    /// Its parts have been deleted.
    pub(crate) fn on_aborted(&self) {
        self.is_aborted.store(true, Ordering::Relaxed);
    }

    /// Whether its parts stay at the origin, and nothing goes on from them: they could not be deleted, or
    /// nobody was left to do so.
    fn leaves_parts(&self) -> bool {
        let has_begun = self.parts.get().is_some() && !self.is_stored();
        has_begun && !self.is_aborted.load(Ordering::Relaxed) && !self.keep_parts()
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
            version: stored.stat.version.clone(),
            stat: Some(stored.stat.clone()),
            range: 0..stored.bytes,
            bytes: stored.bytes,
            fetched_bytes: transfer.counters.fetched_bytes(),
            resumed_bytes: self.resumed_bytes.load(Ordering::Relaxed),
            resume_note: self.resume_note.get().map(|note| (*note).to_owned()),
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
        let kept_bytes = self.kept_bytes.load(Ordering::Relaxed);
        Progress { kept_bytes, ..self.transfer.counters.progress(self.source.bytes(), limited_by) }
    }

    fn fail(&self, error: Error) {
        self.transfer.fail(error);
    }

    fn finish(&self) {
        self.transfer.gate.leave(self.transfer.slots.transfer());
        if let OpenSource::Stream(ring) = &self.source {
            ring.end();
        }
        if let Some(journal) = self.journal.get() {
            journal.unlock();
        }
        let leaves_parts = self.leaves_parts();
        let result = self.transfer.take_failure().map_or_else(|| self.conclude(), Err);
        let result = result.map_err(|error| {
            let error = error.during("upload", &self.transfer.name);
            match (leaves_parts, self.kept_bytes.load(Ordering::Relaxed)) {
                (true, _) => error.with_further_hint(LEFT_PARTS),
                (false, 0) => error,
                (false, kept) => {
                    error.with_further_hint(format!("run it again to go on from {}", format_size(kept)))
                }
            }
        });
        self.transfer.end.settle(result);
    }
}

fn too_long(bytes: u64) -> Error {
    let (bytes, most) = (format_size(bytes), format_size(OBJECT_MOST));
    let cause = format!("it has {bytes}, and an object has {most} at most: {PARTS_MOST} parts of 5GiB");
    Error::new(ErrorKind::Usage, cause).with_hint("cut it into pieces, as split(1) does, and send each")
}
