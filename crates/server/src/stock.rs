//! What both dialects speak over: one store, and the uploads that are not finished.

use std::sync::Mutex;

use s3s::{S3Result, s3_error};

use crate::draft::Draft;
use crate::shelf::Shelf;
use crate::uploads::Uploads;

/// An upload that one dialect began could be finished by the other: there is one table of them.
pub(crate) struct Stock {
    /// Before the store: an unfinished part must be gone when the store is.
    pub uploads: Uploads,
    pub shelf: Box<dyn Shelf>,
    /// Held while an object is read, compared and replaced.
    pub replacing: Mutex<()>,
}

impl Stock {
    pub(crate) fn new(shelf: Box<dyn Shelf>) -> Stock {
        Stock { uploads: Uploads::default(), shelf, replacing: Mutex::default() }
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
