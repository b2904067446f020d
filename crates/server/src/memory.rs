//! A store in memory: it lives as long as the origin.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use bytes::Bytes;
use s3s::{S3Result, s3_error};

use crate::crcs::Known;
use crate::draft::{Draft, Piece, Place, Segments};
use crate::object::{Content, Kept, Object};
use crate::shelf::{About, Listed, Shelf, Visit, list_map, no_bucket, no_key};
use crate::version::Version;

#[derive(Default)]
pub(crate) struct Memory {
    buckets: RwLock<BTreeMap<String, Bucket>>,
}

struct Bucket {
    created: SystemTime,
    objects: BTreeMap<String, Stored>,
}

struct Stored {
    size: u64,
    modified: SystemTime,
    kept: Arc<Kept>,
    segments: Arc<[Bytes]>,
    version: Version,
}

impl Memory {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Bucket>> {
        self.buckets.read().expect("nothing panics while it holds the buckets")
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Bucket>> {
        self.buckets.write().expect("nothing panics while it holds the buckets")
    }
}

impl Shelf for Memory {
    fn buckets(&self) -> S3Result<Vec<(String, SystemTime)>> {
        Ok(self.read().iter().map(|(name, bucket)| (name.clone(), bucket.created)).collect())
    }

    fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        if self.read().contains_key(bucket) { Ok(()) } else { Err(no_bucket(bucket)) }
    }

    fn create_bucket(&self, bucket: &str) -> S3Result<()> {
        let mut buckets = self.write();
        if buckets.contains_key(bucket) {
            return Err(s3_error!(BucketAlreadyOwnedByYou, "the bucket {bucket} is there already"));
        }
        buckets.insert(bucket.to_owned(), Bucket { created: SystemTime::now(), objects: BTreeMap::new() });
        Ok(())
    }

    fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        let mut buckets = self.write();
        let found = buckets.get(bucket).ok_or_else(|| no_bucket(bucket))?;
        if !found.objects.is_empty() {
            return Err(s3_error!(BucketNotEmpty, "the bucket {bucket} is not empty"));
        }
        buckets.remove(bucket);
        Ok(())
    }

    fn open(&self, bucket: &str, key: &str) -> S3Result<Object> {
        let buckets = self.read();
        let found = buckets.get(bucket).ok_or_else(|| no_bucket(bucket))?;
        let stored = found.objects.get(key).ok_or_else(|| no_key(bucket, key))?;
        Ok(Object {
            size: stored.size,
            etag: stored.version.etag.clone(),
            modified: stored.modified,
            kept: stored.kept.clone(),
            content: Content::Memory(stored.segments.clone()),
            known: Known::Written(stored.version.crcs),
            made: stored.version.made.clone(),
        })
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut Visit<'_>) -> S3Result<()> {
        let buckets = self.read();
        let found = buckets.get(bucket).ok_or_else(|| no_bucket(bucket))?;
        let listed = |key: &str, stored: &Stored| Listed {
            key: key.to_owned(),
            size: stored.size,
            etag: stored.version.etag.clone(),
            modified: stored.modified,
            kind: stored.kept.kind,
            storage_class: stored.kept.storage_class.clone(),
        };
        list_map(&found.objects, prefix, after, listed, visit);
        Ok(())
    }

    fn draft(&self, bucket: &str, _: &str) -> S3Result<Draft> {
        self.check_bucket(bucket)?;
        Ok(Draft::new(Place::Memory(Segments::default())))
    }

    fn publish(&self, bucket: &str, key: &str, pieces: &[&Piece], about: About) -> S3Result<()> {
        let size = pieces.iter().map(|piece| piece.bytes).sum();
        let segments = pieces.iter().flat_map(|piece| match &piece.place {
            Place::Memory(segments) => segments.sealed(),
            _ => unreachable!("the drafts of this store are in memory"),
        });
        let stored = Stored {
            size,
            modified: SystemTime::now(),
            kept: about.kept,
            segments: segments.cloned().collect(),
            version: about.version,
        };
        let mut buckets = self.write();
        let found = buckets.get_mut(bucket).ok_or_else(|| no_bucket(bucket))?;
        found.objects.insert(key.to_owned(), stored);
        Ok(())
    }

    fn describe(&self, bucket: &str, key: &str, kept: Arc<Kept>) -> S3Result<()> {
        let mut buckets = self.write();
        let found = buckets.get_mut(bucket).ok_or_else(|| no_bucket(bucket))?;
        found.objects.get_mut(key).ok_or_else(|| no_key(bucket, key))?.kept = kept;
        Ok(())
    }

    fn delete(&self, bucket: &str, key: &str) -> S3Result<()> {
        let mut buckets = self.write();
        buckets.get_mut(bucket).ok_or_else(|| no_bucket(bucket))?.objects.remove(key);
        Ok(())
    }
}
