//! The calls of S3 that write: objects, uploads in parts, copies, deletions, buckets.
//!
//! Bodies are the caller's: it sets `content-length`, and checksums of the body, before it signs. Requests
//! that never have a body say so themselves. Documents are made by `documents`, answers are read by
//! `upload_answers`.

use std::ops::Range;

use crate::checksum::Algorithm;
use crate::copy_source::{CopySource, Directive, Directives, put_range};
use crate::object_options::{Condition, ObjectOptions, S3_HEADERS};
use crate::percent;
use crate::request::{Method, Request};
use crate::s3::S3;

/// Parts and uploads in one page: the most that S3 and OSS give.
const PAGE_ENTRIES: &str = "1000";

impl S3 {
    /// PUT of an object.
    ///
    /// A checksum goes into the header of its algorithm ([`Algorithm::header`]); without one S3 computes
    /// CRC64NVME itself and has nothing to compare it with.
    pub fn put_object(
        &self,
        bucket: &str,
        key: &str,
        options: &ObjectOptions,
        condition: &Condition,
    ) -> Request {
        let mut request = self.request(Method::Put, bucket, key, String::new());
        put_options(&mut request, options);
        condition.put_s3(&mut request);
        request
    }

    /// The start of an upload in parts. With an `algorithm` each part must state its checksum, and the object
    /// gets one of all its bytes (`FULL_OBJECT`), which parts combine to. An algorithm that S3 does not know
    /// is left out.
    pub fn create_upload(
        &self,
        bucket: &str,
        key: &str,
        options: &ObjectOptions,
        algorithm: Option<Algorithm>,
    ) -> Request {
        let mut request = self.request(Method::Post, bucket, key, "uploads".into());
        put_options(&mut request, options);
        if let Some(name) = algorithm.and_then(Algorithm::s3_name) {
            request.set("x-amz-checksum-algorithm", name);
            request.set("x-amz-checksum-type", "FULL_OBJECT");
        }
        without_body(request)
    }

    /// PUT of one part, `number` from 1 to 10,000. A later part of the same number replaces an earlier one.
    pub fn upload_part(&self, bucket: &str, key: &str, upload_id: &str, number: u32) -> Request {
        self.request(Method::Put, bucket, key, part_query(upload_id, number))
    }

    /// The end of an upload, with `documents::complete_body` as its body: `size` bytes in all, and the
    /// checksum of the `whole`. S3 refuses it where parts make another size or checksum.
    ///
    /// The answer may be an error in spite of its status 200 (`verdict::of` sees that).
    pub fn complete_upload(
        &self,
        bucket: &str,
        key: &str,
        upload_id: &str,
        condition: &Condition,
        whole: Option<(Algorithm, u64)>,
        size: u64,
    ) -> Request {
        let mut request = self.request(Method::Post, bucket, key, upload_query(upload_id));
        request.set("content-type", "application/xml");
        condition.put_s3(&mut request);
        if let Some((algorithm, value)) = whole
            && algorithm.s3_name().is_some()
            && let Some(header) = algorithm.header()
        {
            request.set(header, algorithm.encode(value));
            request.set("x-amz-checksum-type", "FULL_OBJECT");
        }
        request.set("x-amz-mp-object-size", size.to_string());
        request
    }

    /// The end of an upload that is not to be. Parts in flight meanwhile may be kept, and paid for: abort
    /// once they have ended.
    pub fn abort_upload(&self, bucket: &str, key: &str, upload_id: &str) -> Request {
        self.request(Method::Delete, bucket, key, upload_query(upload_id))
    }

    /// One page of an upload's parts, at most 1,000. `marker` is the `next` of the page before.
    pub fn list_parts(&self, bucket: &str, key: &str, upload_id: &str, marker: Option<u32>) -> Request {
        self.request(Method::Get, bucket, key, parts_query(None, upload_id, marker))
    }

    /// One page of a bucket's unfinished uploads, at most 1,000, in the order of keys. The markers are those
    /// of the page before. Keys are asked for URL-encoded.
    pub fn list_uploads(
        &self,
        bucket: &str,
        prefix: &str,
        key_marker: Option<&str>,
        upload_id_marker: Option<&str>,
    ) -> Request {
        self.request(Method::Get, bucket, "", uploads_query(prefix, key_marker, upload_id_marker))
    }

    /// A copy within the service of an object of at most 5 GiB. `condition` is about the object that it
    /// replaces: Amazon keeps it, MinIO does not look at it (reference/scale.md §5).
    /// [`CopySource::if_match`] is about the source. What the directives keep is left out of `options`.
    ///
    /// The answer may be an error in spite of its status 200 (`verdict::of` sees that).
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
        source.put(&mut request, "x-amz", "");
        condition.put_s3(&mut request);
        options.put_storage(&mut request, &S3_HEADERS);
        options.put_acl(&mut request, &S3_HEADERS);
        // To keep is S3's default; some servers refuse a header of tags, whatever it says.
        if directives.metadata == Directive::Replace {
            request.set("x-amz-metadata-directive", "REPLACE");
            options.put_metadata(&mut request, &S3_HEADERS);
        }
        if directives.tags == Directive::Replace {
            request.set("x-amz-tagging-directive", "REPLACE");
            options.put_tags(&mut request, &S3_HEADERS);
        }
        without_body(request)
    }

    /// One part of an upload, copied within the service: the bytes `range` of the source, at most 5 GiB.
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
        source.put(&mut request, "x-amz", "");
        put_range(&mut request, "x-amz", &range);
        without_body(request)
    }

    /// DELETE of an object, or of one of its versions. An object that is not there counts as deleted.
    ///
    /// [`Condition::Matches`] deletes no other version. Amazon keeps it; MinIO does not look at it
    /// (reference/scale.md §5). [`Condition::Absent`] says nothing here.
    pub fn delete_object(
        &self,
        bucket: &str,
        key: &str,
        version_id: Option<&str>,
        condition: &Condition,
    ) -> Request {
        let mut request = self.request(Method::Delete, bucket, key, query(&[("versionId", version_id)]));
        if let Condition::Matches(_) = condition {
            condition.put_s3(&mut request);
        }
        request
    }

    /// Deletes up to 1,000 objects, with `documents::delete_body` as its body and `documents::content_md5` of
    /// it in `content-md5`.
    pub fn delete_objects(&self, bucket: &str) -> Request {
        let mut request = self.request(Method::Post, bucket, "", "delete".into());
        request.set("content-type", "application/xml");
        request
    }

    /// The tags of an object, or of the version that the caller adds to the query.
    pub fn get_tags(&self, bucket: &str, key: &str) -> Request {
        self.request(Method::Get, bucket, key, "tagging".into())
    }

    /// Creates a bucket, with `documents::create_bucket_body` as its body.
    pub fn create_bucket(&self, bucket: &str) -> Request {
        without_body(self.request(Method::Put, bucket, "", String::new()))
    }

    /// Deletes a bucket, which must be empty.
    pub fn delete_bucket(&self, bucket: &str) -> Request {
        self.request(Method::Delete, bucket, "", String::new())
    }
}

fn put_options(request: &mut Request, options: &ObjectOptions) {
    options.put_metadata(request, &S3_HEADERS);
    options.put_tags(request, &S3_HEADERS);
    options.put_storage(request, &S3_HEADERS);
    options.put_acl(request, &S3_HEADERS);
}

/// Servers want a PUT or POST to say that it has no body (RFC 9110 §8.6).
pub(crate) fn without_body(mut request: Request) -> Request {
    request.set("content-length", "0");
    request
}

pub(crate) fn upload_query(upload_id: &str) -> String {
    query(&[("uploadId", Some(upload_id))])
}

pub(crate) fn part_query(upload_id: &str, number: u32) -> String {
    query(&[("partNumber", Some(&number.to_string())), ("uploadId", Some(upload_id))])
}

pub(crate) fn parts_query(encoding: Option<&str>, upload_id: &str, marker: Option<u32>) -> String {
    let marker = marker.map(|number| number.to_string());
    query(&[
        ("encoding-type", encoding),
        ("max-parts", Some(PAGE_ENTRIES)),
        ("part-number-marker", marker.as_deref()),
        ("uploadId", Some(upload_id)),
    ])
}

pub(crate) fn uploads_query(prefix: &str, key_marker: Option<&str>, id_marker: Option<&str>) -> String {
    query(&[
        ("encoding-type", Some("url")),
        ("key-marker", key_marker),
        ("max-uploads", Some(PAGE_ENTRIES)),
        ("prefix", Some(prefix).filter(|prefix| !prefix.is_empty())),
        ("upload-id-marker", id_marker),
        ("uploads", Some("")),
    ])
}

/// The parameters that have a value, in their order, which is that of their names, as they are signed. An
/// empty value is left out with its '='.
pub(crate) fn query(parameters: &[(&str, Option<&str>)]) -> String {
    let mut query = String::new();
    for (name, value) in parameters {
        let Some(value) = value else { continue };
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(name);
        if !value.is_empty() {
            query.push('=');
            percent::encode_query(value, &mut query);
        }
    }
    query
}

#[cfg(test)]
#[path = "s3_write_tests.rs"]
mod tests;
