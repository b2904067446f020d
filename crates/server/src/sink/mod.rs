//! A store in front of another: reads go through; objects that are written are summed up and described, and
//! their bytes are forgotten.

mod index;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use s3s::{S3ErrorCode, S3Result, s3_error};

use crate::backend::{About, Backend, ListStep, ListVisitor, no_key};
use crate::cursor::KeyCursor;
use crate::draft::{Blob, Draft};
use crate::object::{Object, ObjectMetadata};
use index::{ObjectIndex, Remembered};

/// Memory for what is remembered of objects. `--help` says how many those are.
const INDEX_BYTES: u64 = 512 << 20;

/// Buckets that can be made.
const MAX_BUCKETS: usize = 10_000;

/// Objects may be written to any bucket, there or not. The inner store never changes: an object of it is
/// hidden by one of its key that is remembered, and shows again when that is deleted or forgotten.
pub(crate) struct Sink {
    inner: Box<dyn Backend>,
    index: RwLock<ObjectIndex>,
    /// Bytes that were taken, in bodies of any end.
    forgotten: Arc<AtomicU64>,
}

impl Sink {
    pub(crate) fn new(inner: Box<dyn Backend>, forgotten: Arc<AtomicU64>) -> Sink {
        Sink { inner, index: RwLock::new(ObjectIndex::new(INDEX_BYTES)), forgotten }
    }

    fn read(&self) -> RwLockReadGuard<'_, ObjectIndex> {
        self.index.read().expect("nothing panics while it holds the index")
    }

    fn write(&self) -> RwLockWriteGuard<'_, ObjectIndex> {
        self.index.write().expect("nothing panics while it holds the index")
    }
}

impl Backend for Sink {
    fn buckets(&self) -> S3Result<Vec<(String, SystemTime)>> {
        let index = self.read();
        let own = index.buckets().map(|(name, created)| (name.to_owned(), created));
        let all: BTreeMap<String, SystemTime> = own.chain(self.inner.buckets()?).collect();
        Ok(all.into_iter().collect())
    }

    fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        match self.read().bucket(bucket) {
            Some(_) => Ok(()),
            None => self.inner.check_bucket(bucket),
        }
    }

    fn create_bucket(&self, bucket: &str) -> S3Result<()> {
        let is_inner = self.inner.check_bucket(bucket).is_ok();
        let mut index = self.write();
        if index.bucket(bucket).is_none() && !is_inner && index.buckets().count() >= MAX_BUCKETS {
            return Err(s3_error!(TooManyBuckets, "a sink has at most {MAX_BUCKETS} buckets"));
        }
        match !is_inner && index.request_bucket(bucket) {
            true => Ok(()),
            false => Err(s3_error!(BucketAlreadyOwnedByYou, "the bucket {bucket} is there already")),
        }
    }

    fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        let mut index = self.write();
        if index.bucket(bucket).is_some_and(|found| !found.objects.is_empty()) {
            return Err(s3_error!(BucketNotEmpty, "the bucket {bucket} is not empty"));
        }
        match self.inner.check_bucket(bucket) {
            Err(_) if index.bucket(bucket).is_some() => {
                index.remove_bucket(bucket);
                Ok(())
            }
            Err(absent) => Err(absent),
            Ok(()) => Err(s3_error!(
                AccessDenied,
                "the bucket {bucket} is of the store behind the sink, which never changes"
            )),
        }
    }

    fn open(&self, bucket: &str, key: &str) -> S3Result<Object> {
        let index = self.read();
        if let Some(found) = index.find(bucket, key) {
            return Ok(found.object());
        }
        match self.inner.open(bucket, key) {
            Err(error) if error.code() == &S3ErrorCode::NoSuchBucket && index.bucket(bucket).is_some() => {
                Err(no_key(bucket, key))
            }
            opened => opened,
        }
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut ListVisitor<'_>) -> S3Result<()> {
        let index = self.read();
        let Some(own) = index.bucket(bucket) else {
            return self.inner.list(bucket, prefix, after, visit);
        };
        let mut listing =
            MergedListing { cursor: KeyCursor::new(&own.objects, prefix, after), stopped: false };
        let listed = self.inner.list(bucket, prefix, after, &mut |inner| {
            listing.show_through(Some(&inner.key), visit);
            if listing.stopped {
                return ListStep::Stop;
            }
            if let Some(skipped) = listing.cursor.skipped(&inner.key) {
                return ListStep::Skip(skipped.to_owned());
            }
            if own.objects.contains_key(inner.key.as_str()) {
                return ListStep::More;
            }
            let step = visit(inner);
            listing.follow(step.clone());
            step
        });
        match listed {
            Err(error) if error.code() != &S3ErrorCode::NoSuchBucket => return Err(error),
            _ => {}
        }
        listing.show_through(None, visit);
        Ok(())
    }

    fn draft(&self, _: &str, _: &str) -> S3Result<Draft> {
        Ok(Draft::forgetting(self.forgotten.clone()))
    }

    fn publish(&self, bucket: &str, key: &str, blobs: &[&Blob], about: About) -> S3Result<()> {
        let size = blobs.iter().map(|blob| blob.bytes).sum();
        self.write().insert(bucket, key, size, about);
        Ok(())
    }

    /// What is said of an object of the inner store is taken and forgotten.
    fn describe(&self, bucket: &str, key: &str, metadata: Arc<ObjectMetadata>) -> S3Result<()> {
        self.write().describe(bucket, key, metadata);
        Ok(())
    }

    /// An object of the inner store stays.
    fn delete(&self, bucket: &str, key: &str) -> S3Result<()> {
        self.write().remove(bucket, key);
        Ok(())
    }
}

/// Remembered objects between those of the inner store, which come one by one.
struct MergedListing<'a> {
    cursor: KeyCursor<'a, Arc<str>, Remembered>,
    stopped: bool,
}

impl MergedListing<'_> {
    /// Shows remembered keys up to `limit`, or all that are left.
    fn show_through(&mut self, limit: Option<&str>, visit: &mut ListVisitor<'_>) {
        while !self.stopped
            && let Some((key, remembered)) = self.cursor.next_through(limit)
        {
            let step = visit(remembered.listed(key));
            self.follow(step);
        }
    }

    fn follow(&mut self, step: ListStep) {
        match step {
            ListStep::More => {}
            ListStep::Skip(folded) => self.cursor.skip(folded),
            ListStep::Stop => self.stopped = true,
        }
    }
}
