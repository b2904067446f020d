//! Multipart uploads of both dialects: their parts are stored as blobs until they are joined under the key.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use s3s::{S3Error, S3Result, s3_error};

use crate::backend::{disk_failed, shown};
use crate::draft::Blob;
use crate::folder::UploadStore;
use crate::object::{ObjectKind, ObjectMetadata};
use crate::sums::{ChecksumScope, SumAlgorithm};

/// The highest number of a part, in both dialects.
pub(crate) const MAX_PARTS: i32 = 10_000;

/// The unfinished uploads by id. Without a store they are lost when the origin stops.
pub(crate) struct Uploads {
    table: Mutex<BTreeMap<String, Upload>>,
    upload_store: Option<UploadStore>,
}

pub(crate) struct Upload {
    pub bucket: String,
    pub key: String,
    pub metadata: Arc<ObjectMetadata>,
    pub started: SystemTime,
    /// The checksum that its object is to have, and of what.
    pub sum: Option<(SumAlgorithm, ChecksumScope)>,
    pub parts: BTreeMap<i32, UploadedPart>,
}

pub(crate) struct UploadedPart {
    pub blob: Arc<Blob>,
    pub modified: SystemTime,
}

/// One upload in a list of them.
pub(crate) struct Unfinished {
    pub key: String,
    pub id: String,
    pub started: SystemTime,
}

impl Uploads {
    /// Takes over the uploads that an earlier origin left in the store.
    pub(crate) fn new(upload_store: Option<UploadStore>) -> io::Result<Uploads> {
        let left = upload_store.as_ref().map_or(Ok(Vec::new()), UploadStore::load)?;
        Ok(Uploads { table: Mutex::new(left.into_iter().collect()), upload_store })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Upload>> {
        self.table.lock().expect("nothing panics while it holds the uploads")
    }

    /// A new upload; returns its id.
    pub(crate) fn start(
        &self,
        bucket: &str,
        key: &str,
        metadata: ObjectMetadata,
        sum: Option<(SumAlgorithm, ChecksumScope)>,
    ) -> S3Result<String> {
        let started = SystemTime::now();
        // SipHash under random keys: an id cannot be guessed.
        let id =
            format!("{:016x}{:016x}", RandomState::new().hash_one(started), RandomState::new().hash_one(key));
        let upload = Upload {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            metadata: Arc::new(ObjectMetadata { kind: ObjectKind::Multipart, ..metadata }),
            started,
            sum,
            parts: BTreeMap::new(),
        };
        self.upload_store
            .iter()
            .try_for_each(|upload_store| upload_store.begin(&id, &upload))
            .map_err(internal)?;
        self.lock().insert(id.clone(), upload);
        Ok(id)
    }

    /// Adds a part, which replaces an earlier one of its number.
    pub(crate) fn add(&self, id: &str, bucket: &str, key: &str, number: i32, mut blob: Blob) -> S3Result<()> {
        let modified = SystemTime::now();
        self.with(id, bucket, key, |upload| {
            let mut keep = |upload_store: &UploadStore| upload_store.keep(id, number, &mut blob, modified);
            self.upload_store.iter().try_for_each(&mut keep).map_err(internal)?;
            let replaced = upload.parts.insert(number, UploadedPart { blob: Arc::new(blob), modified });
            if let Some((upload_store, part)) = self.upload_store.as_ref().zip(replaced) {
                upload_store.drop_part(&part);
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

    /// Removes the stored files of an upload.
    fn end(&self, id: &str) -> S3Result<()> {
        self.upload_store.iter().try_for_each(|upload_store| upload_store.end(id)).map_err(internal)
    }

    /// Aborts the uploads of a bucket that is gone.
    pub(crate) fn forget(&self, bucket: &str) -> S3Result<()> {
        let gone: Vec<String> =
            self.lock().extract_if(.., |_, upload| upload.bucket == bucket).map(|(id, _)| id).collect();
        gone.iter().try_for_each(|id| self.end(id))
    }

    /// The uploads to keys that start with `prefix`, sorted, after the key and id of `marker`. Without an id
    /// it stands for all uploads of its key.
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
    /// The parts that it is to be completed from, each named with the ETag that the client remembers. They
    /// must be ascending, all there, as uploaded, and all but the last have at least `min_bytes`. None are
    /// good, too: whether that is allowed the dialects know.
    pub(crate) fn choose(&self, listed: &[(i32, Option<&str>)], min_bytes: u64) -> S3Result<Vec<Arc<Blob>>> {
        if !listed.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(s3_error!(InvalidPartOrder, "the parts are not in ascending order"));
        }
        let mut chosen = Vec::new();
        for (at, (number, etag)) in listed.iter().enumerate() {
            let found = self.parts.get(number).ok_or_else(|| invalid_part(*number))?;
            if etag.is_some_and(|etag| etag != found.blob.etag()) {
                return Err(invalid_part(*number));
            }
            if found.blob.bytes < min_bytes && at + 1 < listed.len() {
                let least = min_bytes / 1024;
                return Err(s3_error!(
                    EntityTooSmall,
                    "part {number} is smaller than {least} KiB and not the last"
                ));
            }
            chosen.push(found.blob.clone());
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
