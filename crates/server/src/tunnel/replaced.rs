//! A store in which objects are replaced while they are read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use s3s::S3Result;

use crate::crcs::Known;
use crate::draft::{Draft, Piece};
use crate::object::{Content, Kept, Object};
use crate::pattern;
use crate::shelf::{About, Listed, Next, Shelf, Visit};

/// Which objects have been asked for often enough to be others by now.
#[derive(Debug)]
pub(crate) struct Replacing {
    /// The GET from which on an object is another, from 1.
    after: u64,
    /// GETs so far, by bucket and key.
    gets: Mutex<HashMap<String, u64>>,
}

impl Replacing {
    pub(super) fn new(after: u64) -> Replacing {
        Replacing { after, gets: Mutex::default() }
    }

    pub(super) fn on_get(&self, bucket: &str, key: &str) {
        let mut gets = self.gets.lock().unwrap_or_else(PoisonError::into_inner);
        *gets.entry(name(bucket, key)).or_default() += 1;
    }

    fn is_replaced(&self, bucket: &str, key: &str) -> bool {
        let gets = self.gets.lock().unwrap_or_else(PoisonError::into_inner);
        gets.get(&name(bucket, key)).is_some_and(|gets| *gets >= self.after)
    }

    /// Who writes an object has it as it was written.
    fn on_write(&self, bucket: &str, key: &str) {
        self.gets.lock().unwrap_or_else(PoisonError::into_inner).remove(&name(bucket, key));
    }
}

fn name(bucket: &str, key: &str) -> String {
    format!("{bucket}/{key}")
}

/// The inner store, but for objects that are replaced: those have as many other bytes, a later time and another ETag.
pub(crate) struct Replaced {
    pub inner: Box<dyn Shelf>,
    pub replacing: Arc<Replacing>,
}

/// Where in the pattern the bytes of the new version begin: somewhere else than those of a synthetic object of that name.
fn shift(bucket: &str, key: &str) -> u64 {
    (pattern::shift(bucket, key) + 1) % pattern::PERIOD as u64
}

fn etag(bucket: &str, key: &str, size: u64) -> String {
    format!("replaced-{:x}-{size:x}", shift(bucket, key))
}

fn later(modified: SystemTime) -> SystemTime {
    modified + Duration::from_secs(1)
}

impl Shelf for Replaced {
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
            content: Content::Pattern { shift },
            known: Known::Pattern { shift, size, computed },
            made: Arc::default(),
            ..object
        })
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut Visit<'_>) -> S3Result<()> {
        let mut as_replaced = |listed: Listed| -> Next {
            match self.replacing.is_replaced(bucket, &listed.key) {
                true => visit(Listed {
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

    fn publish(&self, bucket: &str, key: &str, pieces: &[&Piece], about: About) -> S3Result<()> {
        self.replacing.on_write(bucket, key);
        self.inner.publish(bucket, key, pieces, about)
    }

    fn describe(&self, bucket: &str, key: &str, kept: Arc<Kept>) -> S3Result<()> {
        self.inner.describe(bucket, key, kept)
    }

    fn delete(&self, bucket: &str, key: &str) -> S3Result<()> {
        self.replacing.on_write(bucket, key);
        self.inner.delete(bucket, key)
    }
}
