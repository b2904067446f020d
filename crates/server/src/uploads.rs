//! Multipart uploads, whoever began them: their parts wait as drafts until they are joined under the key.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use s3s::{S3Error, S3Result, s3_error};

use crate::draft::Piece;
use crate::folder::Ledger;
use crate::object::{Kept, Kind};
use crate::shelf::{disk_failed, shown};
use crate::sums::{Algorithm, Span};

/// The highest number of a part, in both dialects.
pub(crate) const MAX_PARTS: i32 = 10_000;

/// The unfinished uploads by id. Without a ledger they are forgotten when the origin stops.
pub(crate) struct Uploads {
    table: Mutex<BTreeMap<String, Upload>>,
    ledger: Option<Ledger>,
}

pub(crate) struct Upload {
    pub bucket: String,
    pub key: String,
    pub kept: Arc<Kept>,
    pub started: SystemTime,
    /// The checksum that its object is to have, and of what.
    pub sum: Option<(Algorithm, Span)>,
    pub parts: BTreeMap<i32, UploadedPart>,
}

pub(crate) struct UploadedPart {
    pub piece: Arc<Piece>,
    pub modified: SystemTime,
}

/// One upload in a list of them.
pub(crate) struct Unfinished {
    pub key: String,
    pub id: String,
    pub started: SystemTime,
}

impl Uploads {
    /// Takes up what an earlier origin left in the ledger.
    pub(crate) fn new(ledger: Option<Ledger>) -> io::Result<Uploads> {
        let left = ledger.as_ref().map_or(Ok(Vec::new()), Ledger::load)?;
        Ok(Uploads { table: Mutex::new(left.into_iter().collect()), ledger })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Upload>> {
        self.table.lock().expect("nothing panics while it holds the uploads")
    }

    /// A new upload; returns its id.
    pub(crate) fn start(
        &self,
        bucket: &str,
        key: &str,
        kept: Kept,
        sum: Option<(Algorithm, Span)>,
    ) -> S3Result<String> {
        let started = SystemTime::now();
        // SipHash under keys that nobody knows: an id cannot be guessed.
        let id =
            format!("{:016x}{:016x}", RandomState::new().hash_one(started), RandomState::new().hash_one(key));
        let upload = Upload {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            kept: Arc::new(Kept { kind: Kind::Multipart, ..kept }),
            started,
            sum,
            parts: BTreeMap::new(),
        };
        self.ledger.iter().try_for_each(|ledger| ledger.begin(&id, &upload)).map_err(internal)?;
        self.lock().insert(id.clone(), upload);
        Ok(id)
    }

    /// One more part, in place of what there was of its number.
    pub(crate) fn add(
        &self,
        id: &str,
        bucket: &str,
        key: &str,
        number: i32,
        mut piece: Piece,
    ) -> S3Result<()> {
        let modified = SystemTime::now();
        self.with(id, bucket, key, |upload| {
            let mut keep = |ledger: &Ledger| ledger.keep(id, number, &mut piece, modified);
            self.ledger.iter().try_for_each(&mut keep).map_err(internal)?;
            let replaced = upload.parts.insert(number, UploadedPart { piece: Arc::new(piece), modified });
            if let Some((ledger, part)) = self.ledger.as_ref().zip(replaced) {
                ledger.drop_part(&part);
            }
            Ok(())
        })
    }

    /// Shows the upload of this id, if it is one for this key.
    pub(crate) fn with<T>(
        &self,
        id: &str,
        bucket: &str,
        key: &str,
        look: impl FnOnce(&mut Upload) -> S3Result<T>,
    ) -> S3Result<T> {
        match self.lock().get_mut(id) {
            Some(upload) if upload.bucket == bucket && upload.key == key => look(upload),
            _ => Err(no_upload(id, bucket, key)),
        }
    }

    /// Whether there is this upload, and it may have a part of this number.
    pub(crate) fn check_part(&self, id: &str, bucket: &str, key: &str, number: i32) -> S3Result<()> {
        if !(1..=MAX_PARTS).contains(&number) {
            return Err(s3_error!(InvalidArgument, "part numbers go from 1 to {MAX_PARTS}"));
        }
        self.with(id, bucket, key, |_| Ok(()))
    }

    pub(crate) fn abort(&self, id: &str, bucket: &str, key: &str) -> S3Result<()> {
        self.with(id, bucket, key, |_| Ok(()))?;
        self.end(id)?;
        self.lock().remove(id);
        Ok(())
    }

    /// Removes what the ledger has of an upload.
    fn end(&self, id: &str) -> S3Result<()> {
        self.ledger.iter().try_for_each(|ledger| ledger.end(id)).map_err(internal)
    }

    /// Aborts the uploads of a bucket that is gone.
    pub(crate) fn forget(&self, bucket: &str) -> S3Result<()> {
        let gone: Vec<String> =
            self.lock().extract_if(.., |_, upload| upload.bucket == bucket).map(|(id, _)| id).collect();
        gone.iter().try_for_each(|id| self.end(id))
    }

    /// The uploads to keys that start with `prefix`, sorted, after the key and id of `marker`. Without an id it stands
    /// for all uploads of its key.
    pub(crate) fn unfinished(
        &self,
        bucket: &str,
        prefix: &str,
        marker: (&str, Option<&str>),
    ) -> Vec<Unfinished> {
        let uploads = self.lock();
        let mut found: Vec<Unfinished> = uploads
            .iter()
            .filter(|(_, upload)| upload.bucket == bucket && upload.key.starts_with(prefix))
            .filter(|(id, upload)| {
                let key = upload.key.as_str();
                key > marker.0 || (key == marker.0 && marker.1.is_some_and(|at| id.as_str() > at))
            })
            .map(|(id, upload)| Unfinished {
                key: upload.key.clone(),
                id: id.clone(),
                started: upload.started,
            })
            .collect();
        found.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
        found
    }
}

impl Upload {
    /// The parts that it is to be completed from, each named with the ETag that the client remembers. They must be ascending,
    /// all there, as uploaded, and all but the last have at least `min_bytes`. None are good, too: whether that is allowed
    /// the dialects know.
    pub(crate) fn choose(&self, asked: &[(i32, Option<&str>)], min_bytes: u64) -> S3Result<Vec<Arc<Piece>>> {
        if !asked.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(s3_error!(InvalidPartOrder, "the parts are not in ascending order"));
        }
        let mut chosen = Vec::new();
        for (at, (number, etag)) in asked.iter().enumerate() {
            let found = self.parts.get(number).ok_or_else(|| invalid_part(*number))?;
            if etag.is_some_and(|etag| etag != found.piece.etag()) {
                return Err(invalid_part(*number));
            }
            if found.piece.bytes < min_bytes && at + 1 < asked.len() {
                let least = min_bytes / 1024;
                return Err(s3_error!(
                    EntityTooSmall,
                    "part {number} is smaller than {least} KiB and not the last"
                ));
            }
            chosen.push(found.piece.clone());
        }
        Ok(chosen)
    }
}

pub(crate) fn invalid_part(number: i32) -> S3Error {
    s3_error!(InvalidPart, "part {number} was not uploaded, or is another than the one named")
}

fn internal(error: io::Error) -> S3Error {
    disk_failed("the origin could not note the upload", &error)
}

fn no_upload(id: &str, bucket: &str, key: &str) -> S3Error {
    s3_error!(NoSuchUpload, "there is no upload {} of {bucket}/{}", shown(id), shown(key))
}
