//! A store in which objects are replaced while they are read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use s3s::S3Result;

use crate::backend::{About, Backend, ListStep, ListVisitor, ListedObject};
use crate::crcs::KnownCrcs;
use crate::draft::{Blob, Draft};
use crate::object::{ByteSource, Object, ObjectMetadata};
use crate::pattern;

/// Counts the GETs of each object, and replaces it from a given GET on.
#[derive(Debug)]
pub(crate) struct Replacements {
    /// The GET from which on an object is another, from 1.
    after: u64,
    /// GETs so far, by bucket and key.
    gets: Mutex<HashMap<String, u64>>,
}

impl Replacements {
    pub(super) fn new(after: u64) -> Replacements {
        Replacements { after, gets: Mutex::default() }
    }

    pub(super) fn on_get(&self, bucket: &str, key: &str) {
        let mut gets = self.gets.lock().unwrap_or_else(PoisonError::into_inner);
        *gets.entry(name(bucket, key)).or_default() += 1;
    }

    fn is_replaced(&self, bucket: &str, key: &str) -> bool {
        let gets = self.gets.lock().unwrap_or_else(PoisonError::into_inner);
        gets.get(&name(bucket, key)).is_some_and(|gets| *gets >= self.after)
    }

    /// A write resets the count: the object then is as it was written.
    fn on_write(&self, bucket: &str, key: &str) {
        self.gets.lock().unwrap_or_else(PoisonError::into_inner).remove(&name(bucket, key));
    }
}

fn name(bucket: &str, key: &str) -> String {
    format!("{bucket}/{key}")
}

/// The inner store, but for objects that are replaced: those have as many other bytes, a later time and
/// another ETag.
pub(crate) struct ReplacingBackend {
    pub inner: Box<dyn Backend>,
    pub replacing: Arc<Replacements>,
}

/// Where in the pattern the bytes of the new version begin: somewhere else than those of a synthetic object
/// of that name.
fn shift(bucket: &str, key: &str) -> u64 {
    (pattern::shift(bucket, key) + 1) % pattern::PERIOD as u64
}

fn etag(bucket: &str, key: &str, size: u64) -> String {
    format!("replaced-{:x}-{size:x}", shift(bucket, key))
}

fn later(modified: SystemTime) -> SystemTime {
    modified + Duration::from_secs(1)
}

impl Backend for ReplacingBackend {
    fn buckets(&self) -> S3Result<Vec<(String, SystemTime)>> {
        self.inner.buckets()
    }

    fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        self.inner.check_bucket(bucket)
    }

    fn create_bucket(&self, bucket: &str) -> S3Result<()> {
        self.inner.create_bucket(bucket)
    }

    fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        self.inner.delete_bucket(bucket)
    }

    fn open(&self, bucket: &str, key: &str) -> S3Result<Object> {
        let object = self.inner.open(bucket, key)?;
        if !self.replacing.is_replaced(bucket, key) {
            return Ok(object);
        }
        let (shift, size) = (shift(bucket, key), object.size);
        let computed = Arc::new(OnceLock::new());
        Ok(Object {
            etag: etag(bucket, key, size),
            modified: later(object.modified),
            source: ByteSource::Pattern { shift },
            known_crcs: KnownCrcs::Pattern { shift, size, computed },
            provenance: Arc::default(),
            ..object
        })
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut ListVisitor<'_>) -> S3Result<()> {
        let mut as_replaced = |listed: ListedObject| -> ListStep {
            match self.replacing.is_replaced(bucket, &listed.key) {
                true => visit(ListedObject {
                    etag: etag(bucket, &listed.key, listed.size),
                    modified: later(listed.modified),
                    ..listed
                }),
                false => visit(listed),
            }
        };
        self.inner.list(bucket, prefix, after, &mut as_replaced)
    }

    fn draft(&self, bucket: &str, key: &str) -> S3Result<Draft> {
        self.inner.draft(bucket, key)
    }

    fn publish(&self, bucket: &str, key: &str, blobs: &[&Blob], about: About) -> S3Result<()> {
        self.replacing.on_write(bucket, key);
        self.inner.publish(bucket, key, blobs, about)
    }

    fn describe(&self, bucket: &str, key: &str, metadata: Arc<ObjectMetadata>) -> S3Result<()> {
        self.inner.describe(bucket, key, metadata)
    }

    fn delete(&self, bucket: &str, key: &str) -> S3Result<()> {
        self.replacing.on_write(bucket, key);
        self.inner.delete(bucket, key)
    }
}
