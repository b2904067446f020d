//! GetObject, HeadObject and GetObjectAttributes: conditions, ranges, parts, checksums.

use std::ops::Range;

use hyper::HeaderMap;
use s3s::dto::*;
use s3s::{Body, S3ErrorCode, S3Result, s3_error};

use super::S3Dialect;
use super::answer::{ChecksumFields, check_version, storage_class, with_checksum};
use super::put::timestamp;
use crate::conditions::Conditions;
use crate::object;

/// The content type of objects that were uploaded without one.
const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";

/// Most parts in one page of GetObjectAttributes.
const MAX_PARTS: i32 = 1000;

/// The fields that the responses of GET and HEAD share: two types of s3s with the same fields.
macro_rules! described {
    ($answer:ident, $object:ident, $selection:ident, $sums:ident) => {
        $answer {
            content_length: Some(($selection.range.end - $selection.range.start) as i64),
            content_range: $selection.content_range($object.size),
            accept_ranges: Some("bytes".to_owned()),
            e_tag: Some(ETag::Strong($object.etag)),
            last_modified: Some($object.modified.into()),
            checksum_type: $sums.kind,
            checksum_crc32: $sums.crc32,
            checksum_crc32c: $sums.crc32c,
            checksum_crc64nvme: $sums.crc64nvme,
            checksum_sha1: $sums.sha1,
            checksum_sha256: $sums.sha256,
            content_type: Some(content_type(&$object.metadata)),
            content_encoding: $object.metadata.content_encoding.clone(),
            content_disposition: $object.metadata.content_disposition.clone(),
            content_language: $object.metadata.content_language.clone(),
            cache_control: $object.metadata.cache_control.clone(),
            expires: $object.metadata.expires.as_deref().and_then(timestamp),
            metadata: Some($object.metadata.user_metadata.clone()),
            parts_count: $selection.parts,
            storage_class: special_class(&$object.metadata),
            ..Default::default()
        }
    };
}

impl S3Dialect {
    pub(super) fn get(&self, input: GetObjectInput) -> S3Result<GetObjectOutput> {
        check_version(input.version_id.as_deref())?;
        let object = self.storage.backend.open(&input.bucket, &input.key)?;
        Conditions {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        }
        .check(&object)?;
        let selection = Selection::of(&object, input.range, input.part_number)?;
        let sums = selection.sums(&object, input.checksum_mode);
        let bytes = selection.range.clone();
        Ok(GetObjectOutput {
            body: Some(StreamingBlob::from(Body::http_body(object.body(bytes)?))),
            tag_count: Some(object.metadata.tags.len() as i32).filter(|count| *count > 0),
            ..described!(GetObjectOutput, object, selection, sums)
        })
    }

    /// A Range is ignored, as HTTP wants it for everything but GET.
    pub(super) fn head(&self, input: HeadObjectInput) -> S3Result<HeadObjectOutput> {
        check_version(input.version_id.as_deref())?;
        let object = self.storage.backend.open(&input.bucket, &input.key)?;
        Conditions {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        }
        .check(&object)?;
        let selection = Selection::of(&object, None, input.part_number)?;
        let sums = selection.sums(&object, input.checksum_mode);
        Ok(described!(HeadObjectOutput, object, selection, sums))
    }

    pub(super) fn attributes(&self, input: GetObjectAttributesInput) -> S3Result<GetObjectAttributesOutput> {
        check_version(input.version_id.as_deref())?;
        let object = self.storage.backend.open(&input.bucket, &input.key)?;
        let named = input.object_attributes.iter().flat_map(|names| names.as_str().split(','));
        let named: Vec<&str> = named.map(str::trim).collect();
        const KNOWN: [&str; 5] = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];
        if let Some(other) = named.iter().find(|name| !KNOWN.contains(name)) {
            return Err(s3_error!(InvalidArgument, "{other:?} is no attribute of an object"));
        }
        let is_requested = |name: &str| named.contains(&name);
        let sums = ChecksumFields::of_object(&object);
        let has_sum = object.provenance.sum.is_some() || object.known_crcs.crcs().is_some();
        let checksum = with_checksum!(sums, Checksum { checksum_type: sums.kind });
        let parts = parts_of(&object, input.part_number_marker, input.max_parts);
        let class = StorageClass::from(storage_class(object.metadata.storage_class.as_deref()));
        Ok(GetObjectAttributesOutput {
            checksum: is_requested("Checksum").then_some(checksum).filter(|_| has_sum),
            object_parts: is_requested("ObjectParts").then_some(parts).flatten(),
            storage_class: is_requested("StorageClass").then_some(class),
            object_size: is_requested("ObjectSize").then_some(object.size as i64),
            e_tag: is_requested("ETag").then_some(ETag::Strong(object.etag)),
            last_modified: Some(object.modified.into()),
            ..Default::default()
        })
    }
}

/// The range of an object that a response sends.
struct Selection {
    range: Range<u64>,
    /// They are not the whole, or were not asked for as that.
    is_partial: bool,
    /// The part that was asked for, from 0.
    part: Option<usize>,
    /// Of an object of several, when one was asked for.
    parts: Option<i32>,
}

impl Selection {
    fn of(object: &object::Object, range: Option<s3s::dto::Range>, part: Option<i32>) -> S3Result<Selection> {
        let whole = Selection { range: 0..object.size, is_partial: false, part: None, parts: None };
        match (range, part) {
            (None, None) => Ok(whole),
            (Some(range), None) => {
                Ok(Selection { range: satisfy(range, object.size)?, is_partial: true, ..whole })
            }
            (None, Some(number)) => Selection::part(object, number),
            (Some(_), Some(_)) => {
                Err(s3_error!(InvalidRequest, "a request has a Range or a partNumber, not both"))
            }
        }
    }

    fn part(object: &object::Object, number: i32) -> S3Result<Selection> {
        let parts = &object.provenance.parts;
        let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let count = parts.len().max(1);
        let Some(index) = index.filter(|index| *index < count) else {
            let code = S3ErrorCode::from_bytes(b"InvalidPartNumber").unwrap_or(S3ErrorCode::InvalidRange);
            let why = format!("the object has {count} parts, and part {number} was asked for");
            let mut error = s3s::S3Error::with_message(code, why);
            error.set_status_code(hyper::StatusCode::RANGE_NOT_SATISFIABLE);
            return Err(error);
        };
        let start: u64 = parts.iter().take(index).map(|part| part.bytes).sum();
        let bytes = parts.get(index).map_or(object.size, |part| part.bytes);
        Ok(Selection {
            range: start..start + bytes,
            is_partial: bytes > 0,
            part: Some(index),
            parts: Some(parts.len() as i32).filter(|count| *count > 0),
        })
    }

    fn content_range(&self, size: u64) -> Option<String> {
        self.is_partial.then(|| content_range(&self.range, size))
    }

    /// S3 states the checksum of the whole, so only where the whole is sent; that of a part with that.
    fn sums(&self, object: &object::Object, mode: Option<ChecksumMode>) -> ChecksumFields {
        // The CRT writes it in small letters, which S3 takes.
        if !mode.is_some_and(|mode| mode.as_str().eq_ignore_ascii_case(ChecksumMode::ENABLED)) {
            return ChecksumFields::default();
        }
        let part = self.part.and_then(|index| object.provenance.parts.get(index));
        match (part, &object.provenance.sum) {
            _ if self.range == (0..object.size) && part.is_none() => ChecksumFields::of_object(object),
            (Some(part), Some(sum)) => {
                let shown = part
                    .sum
                    .clone()
                    .map(|value| ChecksumFields::one(sum.algorithm, value))
                    .unwrap_or_default();
                ChecksumFields { kind: Some(super::answer::type_of(sum.scope)), ..shown }
            }
            _ => ChecksumFields::default(),
        }
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

/// One page of the parts of a multipart object; each is shown where there is a checksum to show.
fn parts_of(
    object: &object::Object,
    marker: Option<i32>,
    max_parts: Option<i32>,
) -> Option<GetObjectAttributesParts> {
    let count = object.provenance.parts.len();
    let (after, most) = (marker.unwrap_or(0).max(0), max_parts.unwrap_or(MAX_PARTS).clamp(0, MAX_PARTS));
    let algorithm = object.provenance.sum.as_ref().map(|sum| sum.algorithm);
    let page = object.provenance.parts.iter().zip(1..).skip(after as usize).take(most as usize);
    let shown: Vec<ObjectPart> = page
        .map(|(part, number)| {
            let sums = algorithm
                .zip(part.sum.clone())
                .map(|(algorithm, value)| ChecksumFields::one(algorithm, value));
            let sums = sums.unwrap_or_default();
            with_checksum!(sums, ObjectPart { part_number: Some(number), size: Some(part.bytes as i64) })
        })
        .collect();
    let last = after + shown.len() as i32;
    (count > 0).then(|| GetObjectAttributesParts {
        total_parts_count: Some(count as i32),
        is_truncated: Some((last as usize) < count),
        max_parts: Some(most),
        part_number_marker: Some(after),
        next_part_number_marker: Some(last),
        parts: algorithm.map(|_| shown),
    })
}

/// S3 says nothing of the standard one.
fn special_class(metadata: &object::ObjectMetadata) -> Option<StorageClass> {
    metadata.storage_class.as_deref().map(|class| StorageClass::from(storage_class(Some(class))))
}

fn content_type(metadata: &object::ObjectMetadata) -> String {
    metadata.content_type.clone().unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned())
}
