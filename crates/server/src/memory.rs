//! A store in memory: it lives as long as the origin.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use bytes::Bytes;
use s3s::{S3Result, s3_error};

use crate::backend::{About, Backend, ListVisitor, ListedObject, list_map, no_bucket, no_key};
use crate::crcs::KnownCrcs;
use crate::draft::{Blob, BlobPlace, Draft, Segments};
use crate::object::{ByteSource, Object, ObjectMetadata};
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
    metadata: Arc<ObjectMetadata>,
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

impl Backend for Memory {
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
            metadata: stored.metadata.clone(),
            source: ByteSource::Memory(stored.segments.clone()),
            known_crcs: KnownCrcs::Written(stored.version.crcs),
            provenance: stored.version.provenance.clone(),
        })
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut ListVisitor<'_>) -> S3Result<()> {
        let buckets = self.read();
        let found = buckets.get(bucket).ok_or_else(|| no_bucket(bucket))?;
        let listed = |key: &str, stored: &Stored| ListedObject {
            key: key.to_owned(),
            size: stored.size,
            etag: stored.version.etag.clone(),
            modified: stored.modified,
            kind: stored.metadata.kind,
            storage_class: stored.metadata.storage_class.clone(),
        };
        list_map(&found.objects, prefix, after, listed, visit);
        Ok(())
    }

    fn draft(&self, bucket: &str, _: &str) -> S3Result<Draft> {
        self.check_bucket(bucket)?;
        Ok(Draft::new(BlobPlace::Memory(Segments::default())))
    }

    fn publish(&self, bucket: &str, key: &str, blobs: &[&Blob], about: About) -> S3Result<()> {
        let size = blobs.iter().map(|blob| blob.bytes).sum();
        let segments = blobs.iter().flat_map(|blob| match &blob.place {
            BlobPlace::Memory(segments) => segments.sealed(),
            _ => unreachable!("the drafts of this store are in memory"),
        });
        let stored = Stored {
            size,
            modified: SystemTime::now(),
            metadata: about.metadata,
            segments: segments.cloned().collect(),
            version: about.version,
        };
        let mut buckets = self.write();
        let found = buckets.get_mut(bucket).ok_or_else(|| no_bucket(bucket))?;
        found.objects.insert(key.to_owned(), stored);
        Ok(())
    }

    fn describe(&self, bucket: &str, key: &str, metadata: Arc<ObjectMetadata>) -> S3Result<()> {
        let mut buckets = self.write();
        let found = buckets.get_mut(bucket).ok_or_else(|| no_bucket(bucket))?;
        found.objects.get_mut(key).ok_or_else(|| no_key(bucket, key))?.metadata = metadata;
        Ok(())
    }

    fn delete(&self, bucket: &str, key: &str) -> S3Result<()> {
        let mut buckets = self.write();
        buckets.get_mut(bucket).ok_or_else(|| no_bucket(bucket))?.objects.remove(key);
        Ok(())
    }
}
