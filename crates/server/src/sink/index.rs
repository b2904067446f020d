//! The objects that a sink remembers: everything but their bytes, the newest ones within a bound of memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::backend::{About, ListedObject};
use crate::crcs::KnownCrcs;
use crate::object::{ByteSource, Object, ObjectMetadata};
use crate::version::{Provenance, Version};

/// Bytes of one object without its texts: the entry in its bucket, its row in the order, the heads of the
/// allocations behind both, and what B-trees leave empty. Measured: docs/numbers.md.
const ENTRY_BYTES: u64 = 320;

/// Bytes of metadata without its texts.
const METADATA_BYTES: u64 = 320;

/// Bytes of a text in a map or list without its characters.
const TEXT_BYTES: u64 = 48;

/// Names and descriptions of objects by bucket.
pub(super) struct ObjectIndex {
    buckets: BTreeMap<Arc<str>, Bucket>,
    /// Bucket and key of each object by the number of its write: the oldest is forgotten first.
    order: BTreeMap<u64, (Arc<str>, Arc<str>)>,
    writes: u64,
    /// Of the last write: that of the next one is mostly the same.
    latest: Arc<SharedMetadata>,
    bytes: u64,
    max_bytes: u64,
}

pub(super) struct Bucket {
    pub created: SystemTime,
    /// Someone asked for it: it stays when its last object goes.
    is_requested: bool,
    pub objects: BTreeMap<Arc<str>, Remembered>,
}

/// One object, all but its bytes.
pub(super) struct Remembered {
    size: u64,
    modified: SystemTime,
    shared: Arc<SharedMetadata>,
    version: Version,
    /// The number of its write.
    write: u64,
    /// Memory that it takes, without its metadata.
    bytes: u64,
}

/// Metadata that some objects have in common. Only the index holds it, so that its last holder is known.
struct SharedMetadata {
    metadata: Arc<ObjectMetadata>,
    bytes: u64,
}

impl ObjectIndex {
    pub(super) fn new(max_bytes: u64) -> ObjectIndex {
        let latest = SharedMetadata::of(Arc::default());
        let (buckets, order, bytes) = (BTreeMap::new(), BTreeMap::new(), latest.bytes);
        ObjectIndex { buckets, order, writes: 0, latest, bytes, max_bytes }
    }

    pub(super) fn bucket(&self, name: &str) -> Option<&Bucket> {
        self.buckets.get(name)
    }

    pub(super) fn buckets(&self) -> impl Iterator<Item = (&str, SystemTime)> {
        self.buckets.iter().map(|(name, bucket)| (&**name, bucket.created))
    }

    pub(super) fn find(&self, bucket: &str, key: &str) -> Option<&Remembered> {
        self.bucket(bucket)?.objects.get(key)
    }

    /// Whether a bucket was there only because of its objects, or not at all.
    pub(super) fn request_bucket(&mut self, name: &str) -> bool {
        let bucket = self.buckets.entry(name.into()).or_insert_with(Bucket::new);
        !std::mem::replace(&mut bucket.is_requested, true)
    }

    pub(super) fn remove_bucket(&mut self, name: &str) {
        self.buckets.remove(name);
    }

    /// Remembers an object of this size in place of the one before, and forgets the oldest ones where there
    /// is no room for it.
    pub(super) fn insert(&mut self, bucket: &str, key: &str, size: u64, about: About) {
        self.remove(bucket, key);
        let key: Arc<str> = key.into();
        let bytes = ENTRY_BYTES + key.len() as u64 + version_bytes(&about.version);
        if *about.metadata != *self.latest.metadata {
            let fresh = self.share(about.metadata);
            let before = std::mem::replace(&mut self.latest, fresh);
            self.release(before);
        }
        self.writes += 1;
        let write = self.writes;
        let remembered = Remembered {
            size,
            modified: SystemTime::now(),
            shared: self.latest.clone(),
            version: about.version,
            write,
            bytes,
        };
        let name = match self.buckets.get_key_value(bucket) {
            Some((name, _)) => name.clone(),
            None => bucket.into(),
        };
        let found = self.buckets.entry(name.clone()).or_insert_with(Bucket::new);
        found.objects.insert(key.clone(), remembered);
        self.order.insert(write, (name, key));
        self.bytes += bytes;
        // The newest one stays, however large its description is.
        while self.bytes > self.max_bytes && self.order.len() > 1 {
            let Some((_, (bucket, key))) = self.order.pop_first() else { return };
            self.remove(&bucket, &key);
        }
    }

    /// Replaces the metadata of an object. Returns whether it is remembered.
    pub(super) fn describe(&mut self, bucket: &str, key: &str, metadata: Arc<ObjectMetadata>) -> bool {
        let fresh = self.share(metadata);
        let found = self.buckets.get_mut(bucket).and_then(|bucket| bucket.objects.get_mut(key));
        let replaced = match found {
            Some(found) => std::mem::replace(&mut found.shared, fresh),
            None => {
                self.release(fresh);
                return false;
            }
        };
        self.release(replaced);
        true
    }

    pub(super) fn remove(&mut self, bucket: &str, key: &str) {
        let Some(found) = self.buckets.get_mut(bucket) else { return };
        let Some(removed) = found.objects.remove(key) else { return };
        self.bytes -= removed.bytes;
        self.order.remove(&removed.write);
        if found.objects.is_empty() && !found.is_requested {
            self.buckets.remove(bucket);
        }
        self.release(removed.shared);
    }

    fn share(&mut self, metadata: Arc<ObjectMetadata>) -> Arc<SharedMetadata> {
        let shared = SharedMetadata::of(metadata);
        self.bytes += shared.bytes;
        shared
    }

    fn release(&mut self, shared: Arc<SharedMetadata>) {
        if let Some(last) = Arc::into_inner(shared) {
            self.bytes -= last.bytes;
        }
    }
}

impl SharedMetadata {
    fn of(metadata: Arc<ObjectMetadata>) -> Arc<SharedMetadata> {
        let bytes = metadata_bytes(&metadata);
        Arc::new(SharedMetadata { metadata, bytes })
    }
}

impl Bucket {
    fn new() -> Bucket {
        Bucket { created: SystemTime::now(), is_requested: false, objects: BTreeMap::new() }
    }
}

impl Remembered {
    pub(super) fn object(&self) -> Object {
        Object {
            size: self.size,
            etag: self.version.etag.clone(),
            modified: self.modified,
            metadata: self.shared.metadata.clone(),
            source: ByteSource::Forgotten,
            known_crcs: KnownCrcs::Written(self.version.crcs),
            provenance: self.version.provenance.clone(),
        }
    }

    pub(super) fn listed(&self, key: &str) -> ListedObject {
        ListedObject {
            key: key.to_owned(),
            size: self.size,
            etag: self.version.etag.clone(),
            modified: self.modified,
            kind: self.shared.metadata.kind,
            storage_class: self.shared.metadata.storage_class.clone(),
        }
    }
}

fn version_bytes(version: &Version) -> u64 {
    let Provenance { sum, parts, upload } = &*version.provenance;
    let texts = [Some(version.etag.as_str()), sum.as_ref().map(|sum| sum.value.as_str()), upload.as_deref()];
    let parts = parts.iter().map(|part| part.sum.as_ref().map_or(TEXT_BYTES, |sum| text_bytes(sum)));
    texts.into_iter().flatten().map(text_bytes).chain(parts).sum()
}

fn metadata_bytes(metadata: &ObjectMetadata) -> u64 {
    let ObjectMetadata {
        content_type,
        content_encoding,
        content_disposition,
        content_language,
        cache_control,
        expires,
        user_metadata,
        tags,
        storage_class,
        kind: _,
    } = metadata;
    let texts = [
        content_type,
        content_encoding,
        content_disposition,
        content_language,
        cache_control,
        expires,
        storage_class,
    ];
    let pairs = user_metadata.iter().chain(tags).flat_map(|(name, value)| [name, value]);
    METADATA_BYTES + texts.into_iter().flatten().chain(pairs).map(|text| text_bytes(text)).sum::<u64>()
}

fn text_bytes(text: &str) -> u64 {
    TEXT_BYTES + text.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::{Blob, BlobPlace, Draft};

    fn about(content_type: &str) -> About {
        let blob: Blob = Draft::new(BlobPlace::Nowhere).finish();
        let metadata = ObjectMetadata { content_type: Some(content_type.to_owned()), ..Default::default() };
        let version = Version::of(&[&blob], Default::default(), Default::default());
        About { metadata: Arc::new(metadata), version }
    }

    fn keys(index: &ObjectIndex, bucket: &str) -> Vec<String> {
        index
            .bucket(bucket)
            .into_iter()
            .flat_map(|found| found.objects.keys())
            .map(|key| key.to_string())
            .collect()
    }

    #[test]
    fn the_oldest_writes_are_forgotten_first() {
        let mut index = ObjectIndex::new(u64::MAX);
        for key in ["a", "b", "c"] {
            index.insert("bucket", key, 1, about("text/plain"));
        }
        index.max_bytes = index.bytes;
        index.insert("bucket", "a", 1, about("text/plain"));
        assert_eq!(keys(&index, "bucket"), ["a", "b", "c"], "it was replaced");
        index.insert("bucket", "d", 1, about("text/plain"));
        assert_eq!(keys(&index, "bucket"), ["a", "c", "d"]);
        let long = "long".repeat(1000);
        index.insert("bucket", &long, 1, about("text/plain"));
        assert_eq!(keys(&index, "bucket"), [long], "the newest one stays");
        assert_eq!(index.order.len(), 1);
    }

    #[test]
    fn all_memory_is_given_back() {
        let mut index = ObjectIndex::new(1 << 20);
        for (key, content_type) in [("a", "x/y"), ("b", "x/y"), ("a", "x/z"), ("c", "x/z")] {
            index.insert("bucket", key, 1, about(content_type));
        }
        let before = index.bytes;
        assert!(index.describe("bucket", "c", about("x/longer").metadata));
        assert!(index.bytes > before, "the metadata of the others is their own");
        assert!(!index.describe("bucket", "d", Arc::default()));
        for key in ["a", "b", "c", "d"] {
            index.remove("bucket", key);
        }
        assert_eq!((index.bytes, index.order.len()), (index.latest.bytes, 0));
        assert!(index.buckets.is_empty());
    }

    #[test]
    fn a_bucket_that_was_requested_stays() {
        let mut index = ObjectIndex::new(1 << 20);
        index.insert("bucket", "a", 1, about("x/y"));
        assert!(index.request_bucket("bucket"));
        assert!(!index.request_bucket("bucket"));
        index.remove("bucket", "a");
        assert!(index.bucket("bucket").is_some());
    }
}
