//! A store of objects that are nowhere: their bytes are computed from their offset. Read-only.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use s3s::{S3Error, S3Result, s3_error};

use crate::crcs::{Crcs, Known};
use crate::draft::Draft;
use crate::object::{Content, Kept, Object};
use crate::pattern;
use crate::shelf::{Listed, Shelf, Visit, list_map, no_bucket, no_key};

/// Objects by bucket and key.
pub(crate) struct Synthetic {
    buckets: BTreeMap<String, BTreeMap<String, Entry>>,
}

struct Entry {
    size: u64,
    crcs: Arc<OnceLock<Crcs>>,
}

impl Synthetic {
    /// Objects as (bucket, key, size in bytes).
    pub(crate) fn new(objects: Vec<(String, String, u64)>) -> io::Result<Synthetic> {
        let mut buckets = BTreeMap::<String, BTreeMap<String, Entry>>::new();
        for (bucket, key, size) in objects {
            let refused = if !s3s::path::check_bucket_name(&bucket) {
                Some("S3 allows no bucket of this name")
            } else if key.is_empty() || !s3s::path::check_key(&key) {
                Some("a key has 1 to 1024 bytes")
            } else if i64::try_from(size).is_err() {
                Some("no object is larger than 2^63 - 1 bytes")
            } else {
                None
            };
            if let Some(why) = refused {
                let text = format!("synthetic object {bucket}/{key} of {size} bytes: {why}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            buckets.entry(bucket).or_default().insert(key, Entry { size, crcs: Arc::default() });
        }
        Ok(Synthetic { buckets })
    }

    fn bucket(&self, bucket: &str) -> S3Result<&BTreeMap<String, Entry>> {
        self.buckets.get(bucket).ok_or_else(|| no_bucket(bucket))
    }
}

impl Shelf for Synthetic {
    fn buckets(&self) -> S3Result<Vec<(String, SystemTime)>> {
        Ok(self.buckets.keys().map(|name| (name.clone(), modified())).collect())
    }

    fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        self.bucket(bucket).map(drop)
    }

    fn create_bucket(&self, bucket: &str) -> S3Result<()> {
        match self.buckets.contains_key(bucket) {
            true => Err(s3_error!(BucketAlreadyOwnedByYou, "the bucket {bucket} is there already")),
            false => Err(read_only()),
        }
    }

    fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        self.bucket(bucket)?;
        Err(read_only())
    }

    fn open(&self, bucket: &str, key: &str) -> S3Result<Object> {
        let entry = self.bucket(bucket)?.get(key).ok_or_else(|| no_key(bucket, key))?;
        let (size, shift) = (entry.size, pattern::shift(bucket, key));
        Ok(Object {
            size,
            etag: etag(shift, size),
            modified: modified(),
            kept: Arc::default(),
            content: Content::Pattern { shift },
            known: Known::Pattern { shift, size, computed: entry.crcs.clone() },
        })
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut Visit<'_>) -> S3Result<()> {
        let listed = |key: &str, entry: &Entry| Listed {
            key: key.to_owned(),
            size: entry.size,
            etag: etag(pattern::shift(bucket, key), entry.size),
            modified: modified(),
        };
        list_map(self.bucket(bucket)?, prefix, after, listed, visit);
        Ok(())
    }

    fn draft(&self, bucket: &str, _: &str) -> S3Result<Draft> {
        self.bucket(bucket)?;
        Err(read_only())
    }

    fn publish(&self, _: &str, _: &str, _: Vec<Draft>, _: Arc<Kept>) -> S3Result<String> {
        Err(read_only())
    }

    fn delete(&self, bucket: &str, _: &str) -> S3Result<()> {
        self.bucket(bucket)?;
        Err(read_only())
    }
}

fn read_only() -> S3Error {
    s3_error!(
        AccessDenied,
        "synthetic objects cannot be written; start the origin with --sink to have writes forgotten"
    )
}

/// Bytes depend on shift and size alone, and so does the ETag.
fn etag(shift: u64, size: u64) -> String {
    format!("synthetic-{shift:x}-{size:x}")
}

/// 2026-01-01: the bytes never change, so neither does the time, whenever the origin is started.
fn modified() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600)
}
