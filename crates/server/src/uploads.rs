//! Multipart uploads, whoever began them: their parts wait as drafts until they are joined under the key.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use s3s::dto::Checksum;
use s3s::{S3Error, S3Result, s3_error};

use crate::draft::Draft;
use crate::object::{Kept, Kind};

/// The highest number of a part, in both dialects.
pub(crate) const MAX_PARTS: i32 = 10_000;

/// The unfinished uploads by id. They are forgotten when the origin stops.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<BTreeMap<String, Upload>>);

pub(crate) struct Upload {
    bucket: String,
    key: String,
    pub kept: Arc<Kept>,
    started: SystemTime,
    pub parts: BTreeMap<i32, UploadedPart>,
}

pub(crate) struct UploadedPart {
    pub draft: Draft,
    pub etag: String,
    /// What S3 was told of it and computed.
    pub sums: Checksum,
    pub modified: SystemTime,
}

/// One upload in a list of them.
pub(crate) struct Unfinished {
    pub key: String,
    pub id: String,
    pub started: SystemTime,
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Upload>> {
        self.0.lock().expect("nothing panics while it holds the uploads")
    }

    /// A new upload; returns its id.
    pub(crate) fn start(&self, bucket: &str, key: &str, kept: Kept) -> String {
        let started = SystemTime::now();
        // SipHash under keys that nobody knows: an id cannot be guessed.
        let id =
            format!("{:016x}{:016x}", RandomState::new().hash_one(started), RandomState::new().hash_one(key));
        let upload = Upload {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            kept: Arc::new(Kept { kind: Kind::Multipart, ..kept }),
            started,
            parts: BTreeMap::new(),
        };
        self.lock().insert(id.clone(), upload);
        id
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

    /// Takes the upload out, if it is one for this key.
    pub(crate) fn remove(&self, id: &str, bucket: &str, key: &str) -> Option<Upload> {
        let mut uploads = self.lock();
        let upload = uploads.get(id)?;
        if upload.bucket != bucket || upload.key != key {
            return None;
        }
        uploads.remove(id)
    }

    pub(crate) fn abort(&self, id: &str, bucket: &str, key: &str) -> S3Result<()> {
        self.remove(id, bucket, key).map(drop).ok_or_else(|| no_upload(id, bucket, key))
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
    /// Whether it can be completed from these parts, each with the ETag that the client remembers: ascending, all there,
    /// as uploaded, and all but the last with at least `min_bytes`.
    pub(crate) fn check(&self, asked: &[(i32, Option<&str>)], min_bytes: u64) -> S3Result<()> {
        let Some((last, _)) = asked.last() else {
            return Err(s3_error!(MalformedXML, "an upload has at least one part"));
        };
        if !asked.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(s3_error!(InvalidPartOrder, "the parts are not in ascending order"));
        }
        for (number, etag) in asked {
            let found = self.parts.get(number).ok_or_else(|| invalid_part(*number))?;
            if etag.is_some_and(|etag| etag != found.etag) {
                return Err(invalid_part(*number));
            }
            if found.draft.bytes() < min_bytes && number != last {
                let least = min_bytes / 1024;
                return Err(s3_error!(
                    EntityTooSmall,
                    "part {number} is smaller than {least} KiB and not the last"
                ));
            }
        }
        Ok(())
    }

    /// The drafts of the parts of these numbers, in that order.
    pub(crate) fn drafts(&self, numbers: impl IntoIterator<Item = i32>) -> impl Iterator<Item = &Draft> {
        numbers.into_iter().filter_map(|number| Some(&self.parts.get(&number)?.draft))
    }
}

pub(crate) fn invalid_part(number: i32) -> S3Error {
    s3_error!(InvalidPart, "part {number} was not uploaded, or is another than the one named")
}

fn no_upload(id: &str, bucket: &str, key: &str) -> S3Error {
    s3_error!(NoSuchUpload, "there is no upload {id} of {bucket}/{key}")
}
