//! PutObject, CopyObject and DeleteObject, and how a body is received.

use std::time::{Duration, SystemTime};

use flatout_wire::time::parse_http;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::http::Extensions;
use s3s::dto::*;
use s3s::{Body, S3Error, S3Request, S3Result, TrailingHeaders, s3_error};

use super::S3Dialect;
use super::answer::{ChecksumFields, check_version, with_checksum};
use super::unsupported::storage_class;
use crate::aws_chunked::Trailers;
use crate::backend::disk_failed;
use crate::conditions::{Conditions, Precondition};
use crate::draft::{Blob, Draft};
use crate::object::{Object, ObjectKind, ObjectMetadata};
use crate::oss::drain;
use crate::sums::{ChecksumScope, Stated, Sum, SumAlgorithm};
use crate::version::Provenance;

/// The body of an upload, with its stated length and checksums.
pub(super) struct UploadBody<'a> {
    body: &'a mut Body,
    content_length: Option<i64>,
    stated: Stated,
    extensions: Extensions,
    trailing_headers: Option<TrailingHeaders>,
}

/// The metadata in the input of an operation that writes an object. The inputs share these fields, but no
/// trait.
macro_rules! metadata_of {
    ($input:ident) => {
        $crate::object::ObjectMetadata {
            content_type: $input.content_type,
            content_encoding: $input.content_encoding.and_then($crate::s3::put::without_framing),
            content_disposition: $input.content_disposition,
            content_language: $input.content_language,
            cache_control: $input.cache_control,
            expires: $input.expires.map($crate::s3::put::http_date),
            user_metadata: $input.metadata.unwrap_or_default(),
            tags: $crate::tags::parse_header(&$input.tagging.unwrap_or_default())?,
            storage_class: $crate::s3::unsupported::storage_class($input.storage_class)?,
            ..$crate::object::ObjectMetadata::default()
        }
    };
}
pub(super) use metadata_of;

impl S3Dialect {
    pub(super) async fn put(&self, mut request: S3Request<PutObjectInput>) -> S3Result<PutObjectOutput> {
        let mut body = request.input.body.take().map(Body::from).unwrap_or_default();
        let answered = self.put_body(request, &mut body).await;
        or_drained(answered, &mut body).await
    }

    async fn put_body(
        &self,
        mut request: S3Request<PutObjectInput>,
        body: &mut Body,
    ) -> S3Result<PutObjectOutput> {
        check_length(&request.headers)?;
        let input = &mut request.input;
        let condition = Precondition {
            if_match: input.if_match.take(),
            if_none_match: input.if_none_match.take(),
            ..Precondition::default()
        };
        self.storage.check_write(&input.bucket, &input.key, &condition)?;
        let (length, announced) = (input.content_length, input.checksum_algorithm.take());
        let upload = UploadBody::new(body, &mut request, length, announced)?;
        let (input, algorithm) = (request.input, upload.algorithm());
        let metadata = metadata_of!(input);
        let draft = self.storage.backend.draft(&input.bucket, &input.key)?;
        let blob = upload.receive(draft).await?;
        let provenance = Provenance { sum: sum_of(&blob, algorithm), ..Provenance::default() };
        let shown = ChecksumFields::of(&provenance, blob.crcs.nvme);
        let at = (input.bucket.as_str(), input.key.as_str());
        let version = self.storage.publish(at, &[&blob], (metadata, provenance), &condition)?;
        Ok(with_checksum!(
            shown,
            PutObjectOutput {
                e_tag: Some(ETag::Strong(version.etag)),
                checksum_type: shown.kind,
                ..Default::default()
            }
        ))
    }

    /// s3s knows no condition on what a copy replaces: `destination` has it.
    pub(super) fn copy(&self, input: CopyObjectInput, destination: Conditions) -> S3Result<CopyObjectOutput> {
        let source = self.source(
            &input.copy_source,
            Conditions {
                if_match: input.copy_source_if_match,
                if_none_match: input.copy_source_if_none_match,
                if_modified_since: input.copy_source_if_modified_since,
                if_unmodified_since: input.copy_source_if_unmodified_since,
            },
        )?;
        let replaces = |directive: Option<&str>| directive == Some("REPLACE");
        let replace = replaces(input.metadata_directive.as_ref().map(|directive| directive.as_str()));
        let retag = replaces(input.tagging_directive.as_ref().map(|directive| directive.as_str()));
        let is_itself = matches!(&input.copy_source, CopySource::Bucket { bucket, key, .. }
            if **bucket == *input.bucket && **key == *input.key);
        let class = storage_class(input.storage_class.clone())?;
        if is_itself && !replace && class == source.metadata.storage_class {
            return Err(s3_error!(
                InvalidRequest,
                "an object is copied to itself only to change its metadata or storage class"
            ));
        }
        let wanted =
            input.checksum_algorithm.as_ref().map(|wanted| algorithm_named(wanted.as_str())).transpose()?;
        let wanted = wanted.or(source.provenance.sum.as_ref().map(|sum| sum.algorithm));
        let said = metadata_of!(input);
        let tags = if retag { said.tags.clone() } else { source.metadata.tags.clone() };
        let metadata = match replace {
            true => ObjectMetadata { tags, ..said },
            false => ObjectMetadata {
                tags,
                storage_class: class,
                kind: ObjectKind::Normal,
                ..ObjectMetadata::clone(&source.metadata)
            },
        };
        let mut draft = self.storage.backend.draft(&input.bucket, &input.key)?;
        wanted.iter().for_each(|algorithm| draft.want(*algorithm));
        let blob = fill(draft, &source, 0..source.size)?;
        let provenance = Provenance { sum: sum_of(&blob, wanted), ..Provenance::default() };
        let shown = ChecksumFields::of(&provenance, blob.crcs.nvme);
        let condition = Precondition {
            if_match: destination.if_match,
            if_none_match: destination.if_none_match,
            ..Precondition::default()
        };
        let at = (input.bucket.as_str(), input.key.as_str());
        let version = self.storage.publish(at, &[&blob], (metadata, provenance), &condition)?;
        let result = with_checksum!(
            shown,
            CopyObjectResult {
                e_tag: Some(ETag::Strong(version.etag)),
                last_modified: Some(SystemTime::now().into()),
                checksum_type: shown.kind,
            }
        );
        Ok(CopyObjectOutput { copy_object_result: Some(result), ..Default::default() })
    }

    /// The object that is to be copied, if it is as the conditions want it.
    pub(super) fn source(&self, named: &CopySource, conditions: Conditions) -> S3Result<Object> {
        let CopySource::Bucket { bucket, key, version_id } = named else {
            return Err(s3_error!(NotImplemented, "this origin copies from buckets alone"));
        };
        check_version(version_id.as_deref())?;
        let source = self.storage.backend.open(bucket, key)?;
        conditions.check_source(&source)?;
        Ok(source)
    }

    pub(super) fn delete(&self, input: DeleteObjectInput) -> S3Result<DeleteObjectOutput> {
        check_version(input.version_id.as_deref())?;
        let condition = Precondition {
            if_match: input.if_match,
            if_modified_at: input.if_match_last_modified_time,
            if_size: input.if_match_size.map(|bytes| bytes as u64),
            ..Precondition::default()
        };
        self.storage.delete(&input.bucket, &input.key, &condition)?;
        Ok(DeleteObjectOutput::default())
    }
}

/// The checksum that an object of one piece keeps; CRC64NVME is known of all.
fn sum_of(blob: &Blob, algorithm: Option<SumAlgorithm>) -> Option<Sum> {
    let algorithm = algorithm.filter(|algorithm| *algorithm != SumAlgorithm::Crc64Nvme)?;
    let value = blob.sum(algorithm)?.into_owned();
    Some(Sum { algorithm, scope: ChecksumScope::Whole, value })
}

impl<'a> UploadBody<'a> {
    /// Takes the parts of the request that the body needs. Fails unless a checksum by the algorithm came that
    /// the client announced.
    pub(super) fn new<T>(
        body: &'a mut Body,
        request: &mut S3Request<T>,
        content_length: Option<i64>,
        announced: Option<ChecksumAlgorithm>,
    ) -> S3Result<UploadBody<'a>> {
        let stated = Stated::of(&request.headers)?;
        check_announced(&stated, announced.as_ref())?;
        let (extensions, trailing_headers) =
            (std::mem::take(&mut request.extensions), request.trailing_headers.take());
        Ok(UploadBody { body, content_length, stated, extensions, trailing_headers })
    }

    /// The algorithm of the stated checksum.
    pub(super) fn algorithm(&self) -> Option<SumAlgorithm> {
        self.stated.algorithm()
    }

    /// Fills a draft with the body and compares its length and every checksum that came with it.
    pub(super) async fn receive(self, mut draft: Draft) -> S3Result<Blob> {
        let stated = &self.stated;
        stated.algorithm().iter().for_each(|algorithm| draft.want(*algorithm));
        if stated.has_md5() {
            draft.want_md5();
        }
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(read_failed)?;
            if let Ok(bytes) = frame.into_data() {
                draft.write(&bytes).map_err(write_failed)?;
            }
        }
        let blob = draft.finish();
        let (came, stated_bytes) = (blob.bytes, self.content_length.map(|length| length as u64));
        if let Some(stated_bytes) = stated_bytes.filter(|stated| *stated != came) {
            return Err(s3_error!(IncompleteBody, "{came} bytes came instead of {stated_bytes}"));
        }
        let trailers: Option<HeaderMap> = match self.extensions.get::<Trailers>() {
            Some(trailers) => Some(trailers.take()),
            None => self.trailing_headers.and_then(|trailers| trailers.take()),
        };
        stated.check(&blob, trailers.as_ref())?;
        Ok(blob)
    }
}

/// A client that names an algorithm sends a checksum of it.
fn check_announced(stated: &Stated, named: Option<&ChecksumAlgorithm>) -> S3Result<()> {
    let Some(named) = named else { return Ok(()) };
    let algorithm = algorithm_named(named.as_str())?;
    match stated.algorithm() {
        Some(stated) if stated == algorithm => Ok(()),
        _ => Err(s3_error!(
            InvalidRequest,
            "x-amz-sdk-checksum-algorithm names {}, and no such checksum came",
            algorithm.name()
        )),
    }
}

pub(super) fn algorithm_named(name: &str) -> S3Result<SumAlgorithm> {
    SumAlgorithm::named(name).ok_or_else(|| s3_error!(InvalidRequest, "{name} is no algorithm of a checksum"))
}

/// Fills a draft with a range of another object.
pub(super) fn fill(mut draft: Draft, source: &Object, range: std::ops::Range<u64>) -> S3Result<Blob> {
    for frame in source.frames(range)? {
        frame.and_then(|frame| draft.write(&frame)).map_err(write_failed)?;
    }
    Ok(draft.finish())
}

/// A refusal comes when the body has: a client that is still sending would find its connection reset before
/// it could read why.
pub(super) async fn or_drained<T>(answered: S3Result<T>, body: &mut Body) -> S3Result<T> {
    if answered.is_err() {
        drain(body).await;
    }
    answered
}

/// S3 wants to know how much comes: a body in chunks says so in a header of its own, or not at all.
pub(super) fn check_length(headers: &HeaderMap) -> S3Result<()> {
    match ["content-length", "x-amz-decoded-content-length"].iter().any(|name| headers.contains_key(*name)) {
        true => Ok(()),
        false => Err(s3_error!(MissingContentLength, "the request does not say how many bytes come")),
    }
}

/// A content encoding without `aws-chunked`, which belongs to the request and not to the object.
pub(super) fn without_framing(encoding: String) -> Option<String> {
    let codings: Vec<&str> = encoding
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    (!codings.is_empty()).then(|| codings.join(","))
}

/// As it is kept, and as HTTP writes it.
pub(super) fn http_date(time: Timestamp) -> String {
    let mut text = Vec::new();
    // A year of five digits has no such form: then nothing is kept.
    match time.format(TimestampFormat::HttpDate, &mut text) {
        Ok(()) => String::from_utf8(text).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

/// The inverse of [`http_date`].
pub(super) fn timestamp(text: &str) -> Option<Timestamp> {
    Some((SystemTime::UNIX_EPOCH + Duration::from_secs(parse_http(text)?)).into())
}

fn read_failed(error: s3s::StdError) -> S3Error {
    // s3s reports a body that does not match its signed SHA-256 or chunk signatures this way too.
    let text = error.to_string();
    s3_error!(IncompleteBody, "the body could not be read to its end: {text}")
}

fn write_failed(error: std::io::Error) -> S3Error {
    disk_failed("the origin could not store the bytes", &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_is_no_content_encoding() {
        for (encoding, expected) in [
            ("aws-chunked", None),
            ("gzip", Some("gzip")),
            ("aws-chunked, gzip", Some("gzip")),
            ("gzip,AWS-chunked,br", Some("gzip,br")),
            ("", None),
        ] {
            assert_eq!(without_framing(encoding.to_owned()).as_deref(), expected, "{encoding}");
        }
    }
}
