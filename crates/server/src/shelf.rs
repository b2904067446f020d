//! What a store of objects must be able to do; the dialects know no more of it than this.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use s3s::{S3Error, S3Result, s3_error};

use crate::draft::Draft;
use crate::object::{Kept, Object};

/// A store. Bucket names have been checked by the dialects; keys have not. Calls may block for as long as a disk takes.
pub(crate) trait Shelf: Send + Sync + 'static {
    /// Every bucket by name, with the time of its creation as far as it is known.
    fn buckets(&self) -> S3Result<Vec<(String, SystemTime)>>;
    /// `NoSuchBucket` unless it is there.
    fn check_bucket(&self, bucket: &str) -> S3Result<()>;
    /// `BucketAlreadyOwnedByYou` when it is there.
    fn create_bucket(&self, bucket: &str) -> S3Result<()>;
    /// `BucketNotEmpty` unless it is empty.
    fn delete_bucket(&self, bucket: &str) -> S3Result<()>;
    /// `NoSuchBucket` or `NoSuchKey` unless it is there.
    fn open(&self, bucket: &str, key: &str) -> S3Result<Object>;
    /// Shows the keys after `after` that start with `prefix`, in the order of their bytes, until `visit` has
    /// enough.
    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut Visit<'_>) -> S3Result<()>;
    /// A place for bytes that will belong to `bucket`/`key`; fails early where publishing could only fail.
    fn draft(&self, bucket: &str, key: &str) -> S3Result<Draft>;
    /// Puts the drafts, one after the other, under the key at once; returns the ETag.
    fn publish(&self, bucket: &str, key: &str, drafts: Vec<Draft>, kept: Arc<Kept>) -> S3Result<String>;
    /// Removes the key; a key that is not there is no error.
    fn delete(&self, bucket: &str, key: &str) -> S3Result<()>;
}

/// S3's rule for the names of buckets.
pub const BUCKET_RULE: &str = "bucket names have 3 to 63 lower-case letters, digits, dots and hyphens";

/// One key of a listing.
pub(crate) struct Listed {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub modified: SystemTime,
}

/// What a listing does with a key, and what it wants to see next.
pub(crate) type Visit<'a> = dyn FnMut(Listed) -> Next + 'a;

/// What comes after a key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Next {
    More,
    /// Leave out the keys that start with this.
    Skip(String),
    Stop,
}

/// Answers [`Shelf::list`] from a sorted map.
pub(crate) fn list_map<T>(
    map: &BTreeMap<String, T>,
    prefix: &str,
    after: &str,
    listed: impl Fn(&str, &T) -> Listed,
    visit: &mut Visit<'_>,
) {
    let mut skip = None::<String>;
    let start = if after >= prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
    let mut keys = map.range::<str, _>((start, Bound::Unbounded));
    while let Some((key, value)) = keys.next()
        && key.starts_with(prefix)
    {
        if skip.as_ref().is_some_and(|skip| key.starts_with(skip)) {
            continue;
        }
        match visit(listed(key, value)) {
            Next::More => {}
            Next::Stop => return,
            Next::Skip(folded) => {
                // Jumps over nearly all of them; what follows the last character there is is left out above.
                let end = format!("{folded}\u{10ffff}");
                keys = map.range::<str, _>((Bound::Excluded(end.as_str()), Bound::Unbounded));
                skip = Some(folded);
            }
        }
    }
}

/// An ETag made of the content, as S3 makes it of an MD5: the same bytes get the same one. `parts` is
/// appended for multipart uploads.
pub(crate) fn etag_of_content(size: u64, crc64nvme: u64, parts: usize) -> String {
    let suffix = if parts > 1 { format!("-{parts}") } else { String::new() };
    format!("{crc64nvme:016x}{size:016x}{suffix}")
}

pub(crate) fn no_bucket(bucket: &str) -> S3Error {
    s3_error!(NoSuchBucket, "there is no bucket {bucket}")
}

pub(crate) fn no_key(bucket: &str, key: &str) -> S3Error {
    s3_error!(NoSuchKey, "there is no object {key} in the bucket {bucket}")
}
