//! PutObject and CopyObject, and how a body is received.

use std::sync::Arc;
use std::time::SystemTime;

use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::http::Extensions;
use s3s::dto::*;
use s3s::{Body, S3Error, S3Request, S3Result, TrailingHeaders, s3_error};

use super::Dialect;
use super::get::full_object;
use crate::aws_chunked::Trailers;
use crate::conditions::{matches, precondition_failed};
use crate::draft::Draft;
use crate::object::{Kept, Kind};
use crate::sums::Sums;

/// A body that came, whole and as its checksums say.
pub(super) struct Received {
    pub draft: Draft,
    pub sums: Checksum,
}

/// All that is wanted of a request to receive its body.
pub(super) struct Incoming {
    pub body: Option<StreamingBlob>,
    pub content_length: Option<i64>,
    pub headers: HeaderMap,
    pub extensions: Extensions,
    pub trailing_headers: Option<TrailingHeaders>,
}

impl Dialect {
    pub(super) async fn put(&self, request: S3Request<PutObjectInput>) -> S3Result<PutObjectOutput> {
        let mut input = request.input;
        if input.write_offset_bytes.is_some() {
            return Err(s3_error!(NotImplemented, "this origin cannot append to objects"));
        }
        let condition = (input.if_match.take(), input.if_none_match.take());
        self.check_write(&input.bucket, &input.key, &condition)?;
        let incoming = Incoming {
            body: input.body.take(),
            content_length: input.content_length,
            headers: request.headers,
            extensions: request.extensions,
            trailing_headers: request.trailing_headers,
        };
        let received = receive(self.stock.shelf.draft(&input.bucket, &input.key)?, incoming).await?;
        self.check_write(&input.bucket, &input.key, &condition)?;
        let kept = Kept {
            content_type: input.content_type,
            content_encoding: input.content_encoding.and_then(without_framing),
            content_disposition: input.content_disposition,
            cache_control: input.cache_control,
            metadata: input.metadata.unwrap_or_default(),
            ..Kept::default()
        };
        let etag =
            self.stock.shelf.publish(&input.bucket, &input.key, vec![received.draft], Arc::new(kept))?;
        Ok(PutObjectOutput {
            e_tag: Some(ETag::Strong(etag)),
            checksum_type: Some(full_object()),
            checksum_crc32: received.sums.checksum_crc32,
            checksum_crc32c: received.sums.checksum_crc32c,
            checksum_crc64nvme: received.sums.checksum_crc64nvme,
            checksum_sha1: received.sums.checksum_sha1,
            checksum_sha256: received.sums.checksum_sha256,
            ..Default::default()
        })
    }

    /// The conditions of a write. Another write may come between this and the publishing: good enough for
    /// development, not for locks.
    pub(super) fn check_write(
        &self,
        bucket: &str,
        key: &str,
        (if_match, if_none_match): &(Option<ETagCondition>, Option<ETagCondition>),
    ) -> S3Result<()> {
        if if_match.is_none() && if_none_match.is_none() {
            return Ok(());
        }
        let found = match self.stock.shelf.open(bucket, key) {
            Ok(object) => Some(object.etag),
            Err(error) if error.code() == &s3s::S3ErrorCode::NoSuchKey && if_match.is_none() => None,
            Err(error) => return Err(error),
        };
        let holds = |condition: &ETagCondition| found.as_ref().is_some_and(|etag| matches(condition, etag));
        let refused = if_match.as_ref().is_some_and(|condition| !holds(condition))
            || if_none_match.as_ref().is_some_and(holds);
        if refused { Err(precondition_failed()) } else { Ok(()) }
    }

    pub(super) fn copy(&self, input: CopyObjectInput) -> S3Result<CopyObjectOutput> {
        let CopySource::Bucket { bucket, key, .. } = &input.copy_source else {
            return Err(s3_error!(NotImplemented, "this origin copies from buckets alone"));
        };
        let source = self.stock.shelf.open(bucket, key)?;
        let refused = input.copy_source_if_match.as_ref().is_some_and(|asked| !matches(asked, &source.etag))
            || input.copy_source_if_none_match.as_ref().is_some_and(|asked| matches(asked, &source.etag));
        if refused {
            return Err(precondition_failed());
        }
        let replace = MetadataDirective::from_static(MetadataDirective::REPLACE);
        let kept = match input.metadata_directive == Some(replace) {
            false => Arc::new(Kept { kind: Kind::Normal, ..Kept::clone(&source.kept) }),
            true => Arc::new(Kept {
                content_type: input.content_type,
                content_encoding: input.content_encoding,
                content_disposition: input.content_disposition,
                cache_control: input.cache_control,
                metadata: input.metadata.unwrap_or_default(),
                ..Kept::default()
            }),
        };
        let mut draft = self.stock.shelf.draft(&input.bucket, &input.key)?;
        for frame in source.frames(0..source.size) {
            frame.and_then(|frame| draft.write(&frame)).map_err(write_failed)?;
        }
        let etag = self.stock.shelf.publish(&input.bucket, &input.key, vec![draft], kept)?;
        let result = CopyObjectResult {
            e_tag: Some(ETag::Strong(etag)),
            last_modified: Some(SystemTime::now().into()),
            ..Default::default()
        };
        Ok(CopyObjectOutput { copy_object_result: Some(result), ..Default::default() })
    }
}

/// Fills a draft with the body and compares its length and every checksum that came with it.
pub(super) async fn receive(mut draft: Draft, incoming: Incoming) -> S3Result<Received> {
    let mut sums = Sums::new(&incoming.headers);
    let mut body = incoming.body.map(Body::from).unwrap_or_default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(read_failed)?;
        if let Ok(bytes) = frame.into_data() {
            sums.update(&bytes);
            draft.write(&bytes).map_err(write_failed)?;
        }
    }
    let (came, stated) = (draft.bytes(), incoming.content_length.map(|length| length as u64));
    if stated.is_some_and(|stated| stated != came) {
        return Err(s3_error!(IncompleteBody, "{came} bytes came instead of {}", stated.unwrap_or_default()));
    }
    let trailers = match incoming.extensions.get::<Trailers>() {
        Some(trailers) => Some(trailers.take()),
        None => incoming.trailing_headers.and_then(|trailers| trailers.take()),
    };
    let sums = sums.finish(draft.crcs().nvme, trailers)?;
    Ok(Received { draft, sums })
}

/// A content encoding without `aws-chunked`, which belongs to the request and not to the object.
pub(super) fn without_framing(encoding: String) -> Option<String> {
    let kept: Vec<&str> = encoding
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

fn read_failed(error: s3s::StdError) -> S3Error {
    // s3s reports a body that does not match its signed SHA-256 or chunk signatures this way too.
    let text = error.to_string();
    s3_error!(IncompleteBody, "the body could not be read to its end: {text}")
}

fn write_failed(error: std::io::Error) -> S3Error {
    s3_error!(InternalError, "the origin could not store the bytes: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_is_no_content_encoding() {
        for (encoding, kept) in [
            ("aws-chunked", None),
            ("gzip", Some("gzip")),
            ("aws-chunked, gzip", Some("gzip")),
            ("gzip,AWS-chunked,br", Some("gzip,br")),
            ("", None),
        ] {
            assert_eq!(without_framing(encoding.to_owned()).as_deref(), kept, "{encoding}");
        }
    }
}
