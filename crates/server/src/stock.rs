//! What both dialects speak over: one store, and the uploads that are not finished.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_wire::checksum::Algorithm;
use s3s::{S3ErrorCode, S3Result};

use crate::conditions::Precondition;
use crate::crcs::{Crcs, Hashers};
use crate::draft::Piece;
use crate::folder::{Ledger, Locks, unlock};
use crate::object::{Kept, Object};
use crate::shelf::{About, Shelf};
use crate::uploads::{Upload, Uploads};
use crate::version::{Made, Version};

/// An upload that one dialect began could be finished by the other: there is one table of them.
pub(crate) struct Stock {
    /// Before the store: an unfinished part must be gone when the store is.
    pub uploads: Uploads,
    /// One for each of so many groups of keys, with the file of its lock where other origins may write, too.
    writing: Vec<Mutex<Option<File>>>,
    /// Before the store, which removes their folder.
    locks: Option<Locks>,
    pub shelf: Box<dyn Shelf>,
    /// Of files that others put into a root, by their ETags, which change with the file.
    read: Mutex<HashMap<String, Crcs>>,
}

/// Files whose CRCs are remembered: some 100 bytes each.
const REMEMBERED: usize = 100_000;

/// Groups of keys, of each of which one is written at a time. All origins over a root must have as many.
const GROUPS: usize = 64;

impl Stock {
    /// With a ledger uploads outlive the origin; those that it has are taken up. With locks other origins may write to the
    /// same store.
    pub(crate) fn new(shelf: Box<dyn Shelf>, beside: Option<(Ledger, Locks)>) -> io::Result<Stock> {
        let (ledger, locks) = beside.unzip();
        let writing = std::iter::repeat_with(Mutex::default).take(GROUPS).collect();
        let uploads = Uploads::new(ledger)?;
        Ok(Stock { uploads, writing, locks, shelf, read: Mutex::default() })
    }

    /// The CRCs of an object, which is read for them once where they are not known.
    pub(crate) fn crcs(&self, object: &Object) -> io::Result<Crcs> {
        if let Some(crcs) = object.known.crcs() {
            return Ok(crcs);
        }
        let read = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(crcs) = read().get(&object.etag) {
            return Ok(*crcs);
        }
        let mut hashers = Hashers::new();
        for frame in object.frames(0..object.size) {
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
        match self.shelf.open(bucket, key) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == &S3ErrorCode::NoSuchKey => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until nobody else writes the object, so that it can be looked at and then changed.
    pub(crate) fn alone<'a>(&'a self, bucket: &'a str, key: &'a str) -> Alone<'a> {
        // The same in every origin.
        let hash = Algorithm::Crc64Nvme.of(format!("{bucket}/{key}").as_bytes());
        Alone { stock: self, bucket, key, _turn: self.turn((hash % GROUPS as u64) as usize) }
    }

    fn turn(&self, group: usize) -> Turn<'_> {
        let mut file = self.writing[group].lock().unwrap_or_else(PoisonError::into_inner);
        self.locks.iter().for_each(|locks| locks.lock(group, &mut file));
        Turn { file }
    }

    /// Puts the pieces under the key at once, if the condition holds then.
    pub(crate) fn publish(
        &self,
        (bucket, key): (&str, &str),
        pieces: &[&Piece],
        (kept, made): (Kept, Made),
        condition: &Precondition,
    ) -> S3Result<Version> {
        let alone = self.alone(bucket, key);
        alone.check(|found| condition.check_write(found), condition)?;
        alone.publish(pieces, kept, made)
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
        let alone = self.alone(bucket, key);
        alone.check(|found| condition.check_delete(found), condition)?;
        self.shelf.delete(bucket, key)
    }

    /// Removes an empty bucket, and what was begun to be uploaded to it.
    pub(crate) fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        // Nobody writes an object between the look and the removal. Whoever has several of these has them in this order.
        let _turns: Vec<Turn<'_>> = (0..GROUPS).map(|group| self.turn(group)).collect();
        self.shelf.delete_bucket(bucket)?;
        self.uploads.forget(bucket)
    }

    /// Changes what is kept of an object beside its bytes.
    pub(crate) fn describe(&self, bucket: &str, key: &str, change: impl FnOnce(&mut Kept)) -> S3Result<()> {
        let _alone = self.alone(bucket, key);
        let mut kept = Kept::clone(&self.shelf.open(bucket, key)?.kept);
        change(&mut kept);
        self.shelf.describe(bucket, key, Arc::new(kept))
    }

    /// Joins the parts of an upload that `choose` finds under its key, and forgets the rest of it. Until the object is
    /// there the upload stays as it is.
    pub(crate) fn finish_upload(
        &self,
        (id, bucket, key): (&str, &str, &str),
        condition: &Precondition,
        choose: impl FnOnce(&Upload) -> S3Result<(Vec<Arc<Piece>>, Made)>,
    ) -> S3Result<Finished> {
        let alone = self.alone(bucket, key);
        if let Some(object) = self.shelf.open(bucket, key).ok()
            && object.made.upload.as_deref() == Some(id)
        {
            // Of an origin that was killed between the two.
            let _ = self.uploads.abort(id, bucket, key);
            return Ok(Finished::Before(object));
        }
        let (mut pieces, made, kept) = self.uploads.with(id, bucket, key, |upload| {
            let (pieces, made) = choose(upload)?;
            Ok((pieces, made, Kept::clone(&upload.kept)))
        })?;
        alone.check(|found| condition.check_write(found), condition)?;
        if pieces.is_empty() {
            pieces.push(Arc::new(self.shelf.draft(bucket, key)?.finish()));
        }
        let pieces: Vec<&Piece> = pieces.iter().map(Arc::as_ref).collect();
        let version = alone.publish(&pieces, kept, made)?;
        // The object is there; what of the upload cannot be removed now is when it is completed again.
        let _ = self.uploads.abort(id, bucket, key);
        Ok(Finished::Now(version))
    }
}

/// What a completed upload became.
pub(crate) enum Finished {
    /// It was completed before, and its object is there still: whoever completes twice has lost the first answer.
    Before(Object),
    Now(Version),
}

/// Holds other writers of the object back.
pub(crate) struct Alone<'a> {
    stock: &'a Stock,
    bucket: &'a str,
    key: &'a str,
    _turn: Turn<'a>,
}

/// One's turn to write to a group of keys: no other thread does, and no other origin.
struct Turn<'a> {
    file: MutexGuard<'a, Option<File>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.file.iter().for_each(unlock);
    }
}

impl Alone<'_> {
    fn check(
        &self,
        holds: impl FnOnce(Option<&Object>) -> S3Result<()>,
        condition: &Precondition,
    ) -> S3Result<()> {
        if condition.is_none() {
            return Ok(());
        }
        holds(self.stock.find(self.bucket, self.key)?.as_ref())
    }

    pub(crate) fn publish(&self, pieces: &[&Piece], kept: Kept, made: Made) -> S3Result<Version> {
        let version = Version::of(pieces, kept.kind, made);
        let about = About { kept: Arc::new(kept), version: version.clone() };
        self.stock.shelf.publish(self.bucket, self.key, pieces, about)?;
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Folder;
    use std::sync::mpsc;
    use std::time::Duration;

    fn origin(root: &std::path::Path) -> Stock {
        let folder = Folder::open(root).unwrap();
        let beside = (folder.ledger(), folder.locks());
        Stock::new(Box::new(folder), Some(beside)).unwrap()
    }

    /// The order in which two origins had their turns at one key, of which the first begins.
    fn turns(first: &Stock, second: &Stock) -> Vec<&'static str> {
        let (say, said) = mpsc::channel();
        std::thread::scope(|scope| {
            let one = first.alone("bucket", "key");
            let other = say.clone();
            scope.spawn(move || {
                let _other = second.alone("bucket", "key");
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
