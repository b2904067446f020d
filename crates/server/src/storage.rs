//! The storage that both dialects share: one backend, and the unfinished uploads.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_wire::checksum::Algorithm;
use s3s::{S3ErrorCode, S3Result};

use crate::backend::{About, Backend};
use crate::conditions::Precondition;
use crate::crcs::{Crcs, Hashers};
use crate::draft::Blob;
use crate::folder::{Locks, UploadStore, unlock};
use crate::object::{Object, ObjectMetadata};
use crate::uploads::{Upload, Uploads};
use crate::version::{Provenance, Version};

/// An upload that one dialect began could be finished by the other: there is one table of them.
pub(crate) struct Storage {
    /// Before the store: an unfinished part must be gone when the store is.
    pub uploads: Uploads,
    /// One for each group of keys, with its lock file where other origins may write, too.
    writing: Vec<Mutex<Option<File>>>,
    /// Before the store, which removes their folder.
    locks: Option<Locks>,
    pub backend: Box<dyn Backend>,
    /// Of files that others put into a root, by their ETags, which change with the file.
    read: Mutex<HashMap<String, Crcs>>,
}

/// Files whose CRCs are remembered: some 100 bytes each.
const REMEMBERED: usize = 100_000;

/// Groups of keys, of each of which one is written at a time. All origins over a root must have as many.
const GROUPS: usize = 64;

impl Storage {
    /// With a ledger uploads outlive the origin; those that it has are taken up. With locks other origins may
    /// write to the same store.
    pub(crate) fn new(
        backend: Box<dyn Backend>,
        beside: Option<(UploadStore, Locks)>,
    ) -> io::Result<Storage> {
        let (upload_store, locks) = beside.unzip();
        let writing = std::iter::repeat_with(Mutex::default).take(GROUPS).collect();
        let uploads = Uploads::new(upload_store)?;
        Ok(Storage { uploads, writing, locks, backend, read: Mutex::default() })
    }

    /// The CRCs of an object, which is read for them once where they are not known.
    pub(crate) fn crcs(&self, object: &Object) -> io::Result<Crcs> {
        if let Some(crcs) = object.known_crcs.crcs() {
            return Ok(crcs);
        }
        let read = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(crcs) = read().get(&object.etag) {
            return Ok(*crcs);
        }
        let mut hashers = Hashers::new();
        let frames = object.frames(0..object.size).map_err(|error| io::Error::other(error.to_string()))?;
        for frame in frames {
            hashers.update(&frame?);
        }
        let mut read = read();
        if read.len() >= REMEMBERED {
            read.clear();
        }
        read.insert(object.etag.clone(), hashers.value());
        Ok(hashers.value())
    }

    /// The object of this key; None when it is not there.
    pub(crate) fn find(&self, bucket: &str, key: &str) -> S3Result<Option<Object>> {
        match self.backend.open(bucket, key) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == &S3ErrorCode::NoSuchKey => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Locks the key against other writers, so that the object can be checked and then changed.
    pub(crate) fn lock_key<'a>(&'a self, bucket: &'a str, key: &'a str) -> KeyLock<'a> {
        // Every origin computes the same group.
        let hash = Algorithm::Crc64Nvme.of(format!("{bucket}/{key}").as_bytes());
        KeyLock { storage: self, bucket, key, _group: self.lock_group((hash % GROUPS as u64) as usize) }
    }

    fn lock_group(&self, group: usize) -> GroupLock<'_> {
        let mut file = self.writing[group].lock().unwrap_or_else(PoisonError::into_inner);
        self.locks.iter().for_each(|locks| locks.lock(group, &mut file));
        GroupLock { file }
    }

    /// Puts the blobs under the key at once, if the condition holds then.
    pub(crate) fn publish(
        &self,
        (bucket, key): (&str, &str),
        blobs: &[&Blob],
        (metadata, provenance): (ObjectMetadata, Provenance),
        condition: &Precondition,
    ) -> S3Result<Version> {
        let lock = self.lock_key(bucket, key);
        lock.check(|found| condition.check_write(found), condition)?;
        lock.publish(blobs, metadata, provenance)
    }

    /// Whether a write would be refused as things are now: early, before its bytes come.
    pub(crate) fn check_write(&self, bucket: &str, key: &str, condition: &Precondition) -> S3Result<()> {
        match condition.is_none() {
            true => Ok(()),
            false => condition.check_write(self.find(bucket, key)?.as_ref()),
        }
    }

    /// Removes the object, if the condition holds then.
    pub(crate) fn delete(&self, bucket: &str, key: &str, condition: &Precondition) -> S3Result<()> {
        let lock = self.lock_key(bucket, key);
        lock.check(|found| condition.check_delete(found), condition)?;
        self.backend.delete(bucket, key)
    }

    /// Removes an empty bucket and its unfinished uploads.
    pub(crate) fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        // No object is written between the check and the removal. Locks are always taken in this order.
        let _groups: Vec<GroupLock<'_>> = (0..GROUPS).map(|group| self.lock_group(group)).collect();
        self.backend.delete_bucket(bucket)?;
        self.uploads.forget(bucket)
    }

    /// Changes the metadata of an object.
    pub(crate) fn describe(
        &self,
        bucket: &str,
        key: &str,
        change: impl FnOnce(&mut ObjectMetadata),
    ) -> S3Result<()> {
        let _lock = self.lock_key(bucket, key);
        let mut metadata = ObjectMetadata::clone(&self.backend.open(bucket, key)?.metadata);
        change(&mut metadata);
        self.backend.describe(bucket, key, Arc::new(metadata))
    }

    /// Joins the parts of an upload that `choose` finds under its key, and forgets the rest of it. Until the
    /// object is there the upload stays as it is.
    pub(crate) fn finish_upload(
        &self,
        (id, bucket, key): (&str, &str, &str),
        condition: &Precondition,
        choose: impl FnOnce(&Upload) -> S3Result<(Vec<Arc<Blob>>, Provenance)>,
    ) -> S3Result<CompletedUpload> {
        let lock = self.lock_key(bucket, key);
        if let Some(object) = self.backend.open(bucket, key).ok()
            && object.provenance.upload.as_deref() == Some(id)
        {
            // Of an origin that was killed between the two.
            let _ = self.uploads.abort(id, bucket, key);
            return Ok(CompletedUpload::Before(object));
        }
        let (mut blobs, provenance, metadata) = self.uploads.with(id, bucket, key, |upload| {
            let (blobs, provenance) = choose(upload)?;
            Ok((blobs, provenance, ObjectMetadata::clone(&upload.metadata)))
        })?;
        lock.check(|found| condition.check_write(found), condition)?;
        if blobs.is_empty() {
            blobs.push(Arc::new(self.backend.draft(bucket, key)?.finish()));
        }
        let blobs: Vec<&Blob> = blobs.iter().map(Arc::as_ref).collect();
        let version = lock.publish(&blobs, metadata, provenance)?;
        // The object is published; leftovers of the upload are removed when it is completed again.
        let _ = self.uploads.abort(id, bucket, key);
        Ok(CompletedUpload::Now(version))
    }
}

/// The result of completing an upload.
pub(crate) enum CompletedUpload {
    /// It was completed before, and its object still exists: the client lost the first response.
    Before(Object),
    Now(Version),
}

/// Keeps other writers of the object out.
pub(crate) struct KeyLock<'a> {
    storage: &'a Storage,
    bucket: &'a str,
    key: &'a str,
    _group: GroupLock<'a>,
}

/// The lock of a group of keys, against other threads and other origins.
struct GroupLock<'a> {
    file: MutexGuard<'a, Option<File>>,
}

impl Drop for GroupLock<'_> {
    fn drop(&mut self) {
        self.file.iter().for_each(unlock);
    }
}

impl KeyLock<'_> {
    fn check(
        &self,
        holds: impl FnOnce(Option<&Object>) -> S3Result<()>,
        condition: &Precondition,
    ) -> S3Result<()> {
        if condition.is_none() {
            return Ok(());
        }
        holds(self.storage.find(self.bucket, self.key)?.as_ref())
    }

    pub(crate) fn publish(
        &self,
        blobs: &[&Blob],
        metadata: ObjectMetadata,
        provenance: Provenance,
    ) -> S3Result<Version> {
        let version = Version::of(blobs, metadata.kind, provenance);
        let about = About { metadata: Arc::new(metadata), version: version.clone() };
        self.storage.backend.publish(self.bucket, self.key, blobs, about)?;
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Folder;
    use std::sync::mpsc;
    use std::time::Duration;

    fn origin(root: &std::path::Path) -> Storage {
        let folder = Folder::open(root).unwrap();
        let beside = (folder.upload_store(), folder.locks());
        Storage::new(Box::new(folder), Some(beside)).unwrap()
    }

    /// The order in which two origins had their turns at one key, of which the first begins.
    fn turns(first: &Storage, second: &Storage) -> Vec<&'static str> {
        let (say, said) = mpsc::channel();
        std::thread::scope(|scope| {
            let one = first.lock_key("bucket", "key");
            let other = say.clone();
            scope.spawn(move || {
                let _other = second.lock_key("bucket", "key");
                other.send("second").unwrap();
            });
            std::thread::sleep(Duration::from_millis(100));
            say.send("first").unwrap();
            drop(one);
        });
        drop(say);
        said.iter().collect()
    }

    #[test]
    fn two_origins_had_written_one_object_at_once() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (origin(root.path()), origin(root.path()));
        assert_eq!(turns(&first, &second), ["first", "second"]);
        assert_eq!(turns(&second, &first), ["first", "second"]);
        // An origin that ends removes the files; those that had them open agree on new ones.
        drop(origin(root.path()));
        assert!(!root.path().join(".flatout/locks").exists());
        assert_eq!(turns(&first, &second), ["first", "second"]);
        drop((first, second));
        assert!(!root.path().join(".flatout").exists());
    }
}
