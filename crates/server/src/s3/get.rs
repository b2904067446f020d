//! GetObject and HeadObject: conditions, ranges, checksums.

use std::ops::Range;

use hyper::HeaderMap;
use s3s::dto::*;
use s3s::{Body, S3Result, s3_error};

use super::Dialect;
use crate::conditions::Conditions;
use crate::object;

/// What S3 says of objects whose type nobody told.
const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";

impl Dialect {
    pub(super) fn get(&self, input: GetObjectInput) -> S3Result<GetObjectOutput> {
        check_part_number(input.part_number)?;
        let object = self.stock.shelf.open(&input.bucket, &input.key)?;
        Conditions {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        }
        .check(&object)?;
        let range = input.range.map(|range| satisfy(range, object.size)).transpose()?;
        // S3 states the checksum of the whole, so only where the whole is sent.
        let checksum = checksum(&object, input.checksum_mode.filter(|_| range.is_none()));
        let content_range = range.as_ref().map(|range| content_range(range, object.size));
        let range = range.unwrap_or(0..object.size);
        Ok(GetObjectOutput {
            content_length: Some((range.end - range.start) as i64),
            content_range,
            body: Some(StreamingBlob::from(Body::http_body(object.body(range)))),
            accept_ranges: Some("bytes".to_owned()),
            e_tag: Some(ETag::Strong(object.etag)),
            last_modified: Some(object.modified.into()),
            checksum_type: checksum.as_ref().map(|_| full_object()),
            checksum_crc64nvme: checksum,
            content_type: Some(content_type(&object.kept)),
            content_encoding: object.kept.content_encoding.clone(),
            content_disposition: object.kept.content_disposition.clone(),
            cache_control: object.kept.cache_control.clone(),
            metadata: Some(object.kept.metadata.clone()),
            ..Default::default()
        })
    }

    /// A Range is ignored, as HTTP wants it for everything but GET.
    pub(super) fn head(&self, input: HeadObjectInput) -> S3Result<HeadObjectOutput> {
        check_part_number(input.part_number)?;
        let object = self.stock.shelf.open(&input.bucket, &input.key)?;
        Conditions {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        }
        .check(&object)?;
        let checksum = checksum(&object, input.checksum_mode);
        Ok(HeadObjectOutput {
            content_length: Some(object.size as i64),
            accept_ranges: Some("bytes".to_owned()),
            e_tag: Some(ETag::Strong(object.etag)),
            last_modified: Some(object.modified.into()),
            checksum_type: checksum.as_ref().map(|_| full_object()),
            checksum_crc64nvme: checksum,
            content_type: Some(content_type(&object.kept)),
            content_encoding: object.kept.content_encoding.clone(),
            content_disposition: object.kept.content_disposition.clone(),
            cache_control: object.kept.cache_control.clone(),
            metadata: Some(object.kept.metadata.clone()),
            ..Default::default()
        })
    }
}

/// The bytes that a Range header asks for; an empty object has none to give.
fn satisfy(range: s3s::dto::Range, size: u64) -> S3Result<Range<u64>> {
    let satisfied = range.check(size).ok().filter(|range| !range.is_empty());
    satisfied.ok_or_else(|| {
        let mut error = s3_error!(InvalidRange, "no byte of the object, which has {size}, is in that range");
        let (range, kind) = (format!("bytes */{size}"), "application/xml".to_owned());
        error.set_headers(headers([("content-range", range), ("content-type", kind)]));
        error
    })
}

/// HTTP's form of a range that is answered, with its inclusive end. The range is not empty.
fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

fn headers<const N: usize>(headers: [(&'static str, String); N]) -> HeaderMap {
    let value = |value: String| value.try_into().expect("ASCII without control characters is a header value");
    headers
        .into_iter()
        .map(|(name, text)| (hyper::header::HeaderName::from_static(name), value(text)))
        .collect()
}

/// The parts of an upload are not remembered: every object counts as one of one part.
fn check_part_number(asked: Option<i32>) -> S3Result<()> {
    match asked {
        None | Some(1) => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "this origin does not keep the parts of an object")),
    }
}

fn checksum(object: &object::Object, mode: Option<ChecksumMode>) -> Option<String> {
    // The CRT writes it in small letters, which S3 takes.
    let asked = mode.is_some_and(|mode| mode.as_str().eq_ignore_ascii_case(ChecksumMode::ENABLED));
    asked
        .then(|| object.known.crcs())
        .flatten()
        .map(|crcs| flatout_wire::checksum::Algorithm::Crc64Nvme.encode(crcs.nvme))
}

pub(super) fn full_object() -> ChecksumType {
    ChecksumType::from_static(ChecksumType::FULL_OBJECT)
}

fn content_type(kept: &object::Kept) -> String {
    kept.content_type.clone().unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned())
}
