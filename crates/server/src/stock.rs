//! What both dialects speak over: one store, and the uploads that are not finished.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use s3s::{S3Result, s3_error};

use crate::crcs::{Crcs, Hashers};
use crate::draft::Draft;
use crate::object::Object;
use crate::shelf::Shelf;
use crate::uploads::Uploads;

/// An upload that one dialect began could be finished by the other: there is one table of them.
pub(crate) struct Stock {
    /// Before the store: an unfinished part must be gone when the store is.
    pub uploads: Uploads,
    pub shelf: Box<dyn Shelf>,
    /// Held while an object is read, compared and replaced.
    pub replacing: Mutex<()>,
    /// Of files that others put into a root, by their ETags, which change with the file.
    read: Mutex<HashMap<String, Crcs>>,
}

/// Files whose CRCs are remembered: some 100 bytes each.
const REMEMBERED: usize = 100_000;

impl Stock {
    pub(crate) fn new(shelf: Box<dyn Shelf>) -> Stock {
        Stock { uploads: Uploads::default(), shelf, replacing: Mutex::default(), read: Mutex::default() }
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

    /// Joins these parts of an upload under its key, forgets the rest of it and returns the ETag.
    pub(crate) fn finish_upload(
        &self,
        id: &str,
        bucket: &str,
        key: &str,
        numbers: &[i32],
    ) -> S3Result<String> {
        let Some(mut upload) = self.uploads.remove(id, bucket, key) else {
            return Err(s3_error!(NoSuchUpload, "the upload was completed or aborted meanwhile"));
        };
        let drafts: Vec<Draft> =
            numbers.iter().filter_map(|number| Some(upload.parts.remove(number)?.draft)).collect();
        self.shelf.publish(bucket, key, drafts, upload.kept.clone())
    }
}
