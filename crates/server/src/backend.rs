//! The interface of a store of objects; the dialects know nothing else of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use hyper::StatusCode;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use crate::characters::fits;
use crate::cursor::KeyCursor;
use crate::draft::{Blob, Draft};
use crate::object::{Object, ObjectKind, ObjectMetadata};
use crate::version::Version;

/// A store. Bucket names have been checked by the dialects; keys have not. Calls may block for as long as a
/// disk takes.
pub(crate) trait Backend: Send + Sync + 'static {
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
    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut ListVisitor<'_>) -> S3Result<()>;
    /// A place for bytes that will belong to `bucket`/`key`; fails early where publishing could only fail.
    fn draft(&self, bucket: &str, key: &str) -> S3Result<Draft>;
    /// Puts the blobs, one after the other and at least one, under the key at once. When that fails they are
    /// as before.
    fn publish(&self, bucket: &str, key: &str, blobs: &[&Blob], about: About) -> S3Result<()>;
    /// Replaces the metadata of an object, which must exist.
    fn describe(&self, bucket: &str, key: &str, metadata: Arc<ObjectMetadata>) -> S3Result<()>;
    /// Removes the key; a key that is not there is no error.
    fn delete(&self, bucket: &str, key: &str) -> S3Result<()>;
}

/// Metadata and version that are published with the bytes.
pub(crate) struct About {
    pub metadata: Arc<ObjectMetadata>,
    pub version: Version,
}

/// S3's rule for the names of buckets.
pub const BUCKET_RULE: &str = "bucket names have 3 to 63 lower-case letters, digits, dots and hyphens";

/// One key of a listing.
pub(crate) struct ListedObject {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub modified: SystemTime,
    pub kind: ObjectKind,
    pub storage_class: Option<String>,
}

/// Takes each key of a listing, and says how the listing goes on.
pub(crate) type ListVisitor<'a> = dyn FnMut(ListedObject) -> ListStep + 'a;

/// How a listing goes on after a key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ListStep {
    More,
    /// Leave out the keys that start with this.
    Skip(String),
    Stop,
}

/// Answers [`Backend::list`] from a sorted map.
pub(crate) fn list_map<T>(
    map: &BTreeMap<String, T>,
    prefix: &str,
    after: &str,
    listed: impl Fn(&str, &T) -> ListedObject,
    visit: &mut ListVisitor<'_>,
) {
    let mut cursor = KeyCursor::new(map, prefix, after);
    while let Some((key, value)) = cursor.next_through(None) {
        match visit(listed(key, value)) {
            ListStep::More => {}
            ListStep::Skip(folded) => cursor.skip(folded),
            ListStep::Stop => return,
        }
    }
}

/// An error of the disk: `InternalError` with what it came to, or when the disk is full `XMinioStorageFull`,
/// as MinIO says it.
pub(crate) fn disk_failed(what: &str, error: &io::Error) -> S3Error {
    if !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return s3_error!(InternalError, "{what}: {error}");
    }
    let full = S3ErrorCode::Custom("XMinioStorageFull".into());
    let mut full = S3Error::with_message(full, format!("the origin's disk is full: {error}"));
    full.set_status_code(StatusCode::INSUFFICIENT_STORAGE);
    full
}

pub(crate) fn no_bucket(bucket: &str) -> S3Error {
    s3_error!(NoSuchBucket, "there is no bucket {bucket}")
}

/// A key in a sentence: XML has no way to write most control characters.
pub(crate) fn shown(key: &str) -> String {
    key.chars()
        .flat_map(
            |one| if one.is_control() || !fits(one) { one.escape_default().collect() } else { vec![one] },
        )
        .collect()
}

pub(crate) fn no_key(bucket: &str, key: &str) -> S3Error {
    s3_error!(NoSuchKey, "there is no object {} in the bucket {bucket}", shown(key))
}
