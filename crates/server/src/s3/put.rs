//! PutObject, CopyObject and DeleteObject, and how a body is received.

use std::time::{Duration, SystemTime};

use flatout_wire::time::parse_http;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::http::Extensions;
use s3s::dto::*;
use s3s::{Body, S3Error, S3Request, S3Result, TrailingHeaders, s3_error};

use super::Dialect;
use super::answer::{Sums, check_version};
use super::unsupported::storage_class;
use crate::aws_chunked::Trailers;
use crate::conditions::{Conditions, Precondition};
use crate::draft::{Draft, Piece};
use crate::object::{Kept, Kind, Object};
use crate::oss::drain;
use crate::shelf::disk_failed;
use crate::sums::{Algorithm, Span, Stated, Sum};
use crate::version::Made;

/// All that is wanted of a request to receive its body.
pub(super) struct Incoming<'a> {
    pub body: &'a mut Body,
    pub content_length: Option<i64>,
    pub extensions: Extensions,
    pub trailing_headers: Option<TrailingHeaders>,
}

/// What the input of an operation that makes an object says of it. The inputs have the fields, but nothing in common.
macro_rules! kept_of {
    ($input:ident) => {
        $crate::object::Kept {
            content_type: $input.content_type,
            content_encoding: $input.content_encoding.and_then($crate::s3::put::without_framing),
            content_disposition: $input.content_disposition,
            content_language: $input.content_language,
            cache_control: $input.cache_control,
            expires: $input.expires.map($crate::s3::put::http_date),
            metadata: $input.metadata.unwrap_or_default(),
            tags: $crate::tags::parse_header(&$input.tagging.unwrap_or_default())?,
            storage_class: $crate::s3::unsupported::storage_class($input.storage_class)?,
            ..$crate::object::Kept::default()
        }
    };
}
pub(super) use kept_of;

impl Dialect {
    pub(super) async fn put(&self, mut request: S3Request<PutObjectInput>) -> S3Result<PutObjectOutput> {
        let mut body = request.input.body.take().map(Body::from).unwrap_or_default();
        let answered = self.put_body(request, &mut body).await;
        or_drained(answered, &mut body).await
    }

    async fn put_body(
        &self,
        request: S3Request<PutObjectInput>,
        body: &mut Body,
    ) -> S3Result<PutObjectOutput> {
        let mut input = request.input;
        check_length(&request.headers)?;
        let condition = Precondition {
            if_match: input.if_match.take(),
            if_none_match: input.if_none_match.take(),
            ..Precondition::default()
        };
        self.stock.check_write(&input.bucket, &input.key, &condition)?;
        let incoming = Incoming {
            body,
            content_length: input.content_length,
            extensions: request.extensions,
            trailing_headers: request.trailing_headers,
        };
        let stated = Stated::of(&request.headers)?;
        check_announced(&stated, input.checksum_algorithm.as_ref())?;
        let kept = kept_of!(input);
        let draft = self.stock.shelf.draft(&input.bucket, &input.key)?;
        let piece = receive(draft, &stated, incoming).await?;
        let made = Made { sum: sum_of(&piece, stated.algorithm()), ..Made::default() };
        let shown = Sums::of(&made, piece.crcs.nvme);
        let at = (input.bucket.as_str(), input.key.as_str());
        let version = self.stock.publish(at, &[&piece], (kept, made), &condition)?;
        Ok(PutObjectOutput {
            e_tag: Some(ETag::Strong(version.etag)),
            checksum_type: shown.kind,
            checksum_crc32: shown.crc32,
            checksum_crc32c: shown.crc32c,
            checksum_crc64nvme: shown.crc64nvme,
            checksum_sha1: shown.sha1,
            checksum_sha256: shown.sha256,
            ..Default::default()
        })
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
        if is_itself && !replace && class == source.kept.storage_class {
            return Err(s3_error!(
                InvalidRequest,
                "an object is copied to itself only to change its metadata or storage class"
            ));
        }
        let wanted =
            input.checksum_algorithm.as_ref().map(|wanted| algorithm_named(wanted.as_str())).transpose()?;
        let wanted = wanted.or(source.made.sum.as_ref().map(|sum| sum.algorithm));
        let said = kept_of!(input);
        let tags = if retag { said.tags.clone() } else { source.kept.tags.clone() };
        let kept = match replace {
            true => Kept { tags, ..said },
            false => Kept { tags, storage_class: class, kind: Kind::Normal, ..Kept::clone(&source.kept) },
        };
        let mut draft = self.stock.shelf.draft(&input.bucket, &input.key)?;
        wanted.iter().for_each(|algorithm| draft.want(*algorithm));
        let piece = fill(draft, &source, 0..source.size)?;
        let made = Made { sum: sum_of(&piece, wanted), ..Made::default() };
        let shown = Sums::of(&made, piece.crcs.nvme);
        let condition = Precondition {
            if_match: destination.if_match,
            if_none_match: destination.if_none_match,
            ..Precondition::default()
        };
        let at = (input.bucket.as_str(), input.key.as_str());
        let version = self.stock.publish(at, &[&piece], (kept, made), &condition)?;
        let result = CopyObjectResult {
            e_tag: Some(ETag::Strong(version.etag)),
            last_modified: Some(SystemTime::now().into()),
            checksum_type: shown.kind,
            checksum_crc32: shown.crc32,
            checksum_crc32c: shown.crc32c,
            checksum_crc64nvme: shown.crc64nvme,
            checksum_sha1: shown.sha1,
            checksum_sha256: shown.sha256,
        };
        Ok(CopyObjectOutput { copy_object_result: Some(result), ..Default::default() })
    }

    /// The object that is to be copied, if it is as the conditions want it.
    pub(super) fn source(&self, named: &CopySource, conditions: Conditions) -> S3Result<Object> {
        let CopySource::Bucket { bucket, key, version_id } = named else {
            return Err(s3_error!(NotImplemented, "this origin copies from buckets alone"));
        };
        check_version(version_id.as_deref())?;
        let source = self.stock.shelf.open(bucket, key)?;
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
        self.stock.delete(&input.bucket, &input.key, &condition)?;
        Ok(DeleteObjectOutput::default())
    }
}

/// The checksum that an object of one piece keeps; CRC64NVME is known of all.
fn sum_of(piece: &Piece, algorithm: Option<Algorithm>) -> Option<Sum> {
    let algorithm = algorithm.filter(|algorithm| *algorithm != Algorithm::Crc64Nvme)?;
    let value = piece.sum(algorithm)?.into_owned();
    Some(Sum { algorithm, span: Span::Whole, value })
}

pub(super) fn algorithm_named(name: &str) -> S3Result<Algorithm> {
    Algorithm::named(name).ok_or_else(|| s3_error!(InvalidRequest, "{name} is no algorithm of a checksum"))
}

/// A client that names an algorithm sends a checksum of it.
pub(super) fn check_announced(stated: &Stated, named: Option<&ChecksumAlgorithm>) -> S3Result<()> {
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

/// Fills a draft with a range of another object.
pub(super) fn fill(mut draft: Draft, source: &Object, range: std::ops::Range<u64>) -> S3Result<Piece> {
    for frame in source.frames(range) {
        frame.and_then(|frame| draft.write(&frame)).map_err(write_failed)?;
    }
    Ok(draft.finish())
}

/// A refusal comes when the body has: a client that is still sending would find its connection reset before it could read
/// why.
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

/// Fills a draft with the body and compares its length and every checksum that came with it.
pub(super) async fn receive(mut draft: Draft, stated: &Stated, incoming: Incoming<'_>) -> S3Result<Piece> {
    stated.algorithm().iter().for_each(|algorithm| draft.want(*algorithm));
    if stated.has_md5() {
        draft.want_md5();
    }
    while let Some(frame) = incoming.body.frame().await {
        let frame = frame.map_err(read_failed)?;
        if let Ok(bytes) = frame.into_data() {
            draft.write(&bytes).map_err(write_failed)?;
        }
    }
    let piece = draft.finish();
    let (came, stated_bytes) = (piece.bytes, incoming.content_length.map(|length| length as u64));
    if let Some(stated_bytes) = stated_bytes.filter(|stated| *stated != came) {
        return Err(s3_error!(IncompleteBody, "{came} bytes came instead of {stated_bytes}"));
    }
    let trailers: Option<HeaderMap> = match incoming.extensions.get::<Trailers>() {
        Some(trailers) => Some(trailers.take()),
        None => incoming.trailing_headers.and_then(|trailers| trailers.take()),
    };
    stated.check(&piece, trailers.as_ref())?;
    Ok(piece)
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
