//! The calls of OSS that write: objects, uploads in parts, copies, deletions, buckets.
//!
//! Bodies are the caller's: it sets `content-length`, and `content-md5` where it has one, before it signs.
//! Requests that never have a body say so themselves. OSS states the CRC of what it received in
//! `x-oss-hash-crc64ecma` of its answers, and takes none along: the caller compares. Documents are made by
//! `documents`, answers are read by `upload_answers`.

use std::ops::Range;

use crate::copy_source::{CopySource, Directive, Directives, put_range};
use crate::object_options::{Condition, OSS_HEADERS, ObjectOptions};
use crate::oss::Oss;
use crate::request::{Method, Request};
use crate::s3_write::{part_query, parts_query, query, upload_query, uploads_query, without_body};

impl Oss {
    /// PUT of an object of at most 5 GiB.
    pub fn put_object(
        &self,
        bucket: &str,
        key: &str,
        options: &ObjectOptions,
        condition: &Condition,
    ) -> Request {
        let mut request = self.request(Method::Put, bucket, key, String::new());
        put_options(&mut request, options);
        options.put_acl(&mut request, &OSS_HEADERS);
        condition.put_oss(&mut request);
        request
    }

    /// POST of bytes to the end of an appendable object, which has `position` bytes until then. At 0 it makes
    /// one where there is none. OSS refuses another position, and an object that was made otherwise, with
    /// 409.
    pub fn append_object(&self, bucket: &str, key: &str, position: u64) -> Request {
        let position = position.to_string();
        let append = query(&[("append", Some("")), ("position", Some(&position))]);
        self.request(Method::Post, bucket, key, append)
    }

    /// The start of an upload in parts. The access list goes to [`Oss::complete_upload`]: OSS takes it there.
    pub fn create_upload(&self, bucket: &str, key: &str, options: &ObjectOptions) -> Request {
        let uploads = query(&[("encoding-type", Some("url")), ("uploads", Some(""))]);
        let mut request = self.request(Method::Post, bucket, key, uploads);
        put_options(&mut request, options);
        without_body(request)
    }

    /// PUT of one part, `number` from 1 to 10,000. A later part of the same number replaces an earlier one.
    pub fn upload_part(&self, bucket: &str, key: &str, upload_id: &str, number: u32) -> Request {
        self.request(Method::Put, bucket, key, part_query(upload_id, number))
    }

    /// The end of an upload, with `documents::complete_body` as its body. Of the `options` it has the access
    /// list, and nothing else: OSS refuses a storage class here (EC 0042-00000202).
    pub fn complete_upload(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        options: &ObjectOptions,
        condition: &Condition,
    ) -> Request {
        let completion = query(&[("encoding-type", Some("url")), ("uploadId", Some(upload_id))]);
        let mut request = self.request(Method::Post, bucket, key, completion);
        request.set("content-type", "application/xml");
        options.put_acl(&mut request, &OSS_HEADERS);
        condition.put_oss(&mut request);
        request
    }

    /// The end of an upload that is not to be. Parts in flight meanwhile may be kept, and paid for: abort
    /// once they have ended.
    pub fn abort_upload(&self, bucket: &str, key: &str, upload_id: &str) -> Request {
        self.request(Method::Delete, bucket, key, upload_query(upload_id))
    }

    /// One page of an upload's parts, at most 1,000. `marker` is the `next` of the page before.
    pub fn list_parts(&self, bucket: &str, key: &str, upload_id: &str, marker: Option<u32>) -> Request {
        self.request(Method::Get, bucket, key, parts_query(Some("url"), upload_id, marker))
    }

    /// One page of a bucket's unfinished uploads, at most 1,000, in the order of keys. The markers are those
    /// of the page before.
    pub fn list_uploads(
        &self,
        bucket: &str,
        prefix: &str,
        key_marker: Option<&str>,
        upload_id_marker: Option<&str>,
    ) -> Request {
        self.request(Method::Get, bucket, "", uploads_query(prefix, key_marker, upload_id_marker))
    }

    /// A copy within the region. `condition` is about the object that it replaces, [`CopySource::if_match`]
    /// about the source. What the directives keep is left out of `options`.
    pub fn copy_object(
        &self,
        bucket: &str,
        key: &str,
        source: &CopySource<'_>,
        options: &ObjectOptions,
        directives: Directives,
        condition: &Condition,
    ) -> Request {
        let mut request = self.request(Method::Put, bucket, key, String::new());
        source.put(&mut request, "x-oss", "/");
        condition.put_oss(&mut request);
        options.put_storage(&mut request, &OSS_HEADERS);
        options.put_acl(&mut request, &OSS_HEADERS);
        if directives.metadata == Directive::Replace {
            request.set("x-oss-metadata-directive", "REPLACE");
            options.put_metadata(&mut request, &OSS_HEADERS);
        }
        if directives.tags == Directive::Replace {
            request.set("x-oss-tagging-directive", "Replace");
            options.put_tags(&mut request, &OSS_HEADERS);
        }
        without_body(request)
    }

    /// One part of an upload, copied within the region: the bytes `range` of the source.
    ///
    /// # Panics
    /// On an empty range, which HTTP cannot say.
    pub fn copy_part(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        number: u32,
        source: &CopySource<'_>,
        range: Range<u64>,
    ) -> Request {
        let mut request = self.request(Method::Put, bucket, key, part_query(upload_id, number));
        source.put(&mut request, "x-oss", "/");
        put_range(&mut request, "x-oss", &range);
        without_body(request)
    }

    /// DELETE of an object, or of one of its versions. An object that is not there counts as deleted. OSS has
    /// no condition of it.
    pub fn delete_object(&self, bucket: &str, key: &str, version_id: Option<&str>) -> Request {
        self.request(Method::Delete, bucket, key, query(&[("versionId", version_id)]))
    }

    /// Deletes up to 1,000 objects, with `documents::delete_body` as its body and `documents::content_md5` of
    /// it in `content-md5`, without which OSS refuses it.
    pub fn delete_objects(&self, bucket: &str) -> Request {
        let delete = query(&[("delete", Some("")), ("encoding-type", Some("url"))]);
        let mut request = self.request(Method::Post, bucket, "", delete);
        request.set("content-type", "application/xml");
        request
    }

    /// The tags of an object, or of the version that the caller adds to the query.
    pub fn get_tags(&self, bucket: &str, key: &str) -> Request {
        self.request(Method::Get, bucket, key, "tagging".into())
    }

    /// Creates a bucket in the region of the endpoint. It needs no body.
    pub fn create_bucket(&self, bucket: &str) -> Request {
        without_body(self.request(Method::Put, bucket, "", String::new()))
    }

    /// Deletes a bucket, which must be empty: unfinished uploads count too.
    pub fn delete_bucket(&self, bucket: &str) -> Request {
        self.request(Method::Delete, bucket, "", String::new())
    }
}

fn put_options(request: &mut Request, options: &ObjectOptions) {
    options.put_metadata(request, &OSS_HEADERS);
    options.put_tags(request, &OSS_HEADERS);
    options.put_storage(request, &OSS_HEADERS);
}

#[cfg(test)]
#[path = "oss_write_tests.rs"]
mod tests;
