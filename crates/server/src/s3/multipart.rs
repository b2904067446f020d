//! Multipart uploads as S3 has them, over the table that both dialects share.

use std::sync::Arc;
use std::time::SystemTime;

use s3s::dto::*;
use s3s::{Body, S3Request, S3Result, s3_error};

use super::Dialect;
use super::answer::{Sums, initiator, owner, storage_class, type_of};
use super::put::{
    Incoming, algorithm_named, check_announced, check_length, fill, kept_of, or_drained, receive,
};
use crate::conditions::{Conditions, Precondition};
use crate::draft::Piece;
use crate::stock::Finished;
use crate::sums::{self, Algorithm, Span, Stated};
use crate::uploads::{Upload, UploadedPart, invalid_part};
use crate::version::{self, Made, Version};

/// S3's limits: all parts but the last have at least this many bytes …
const MIN_PART_BYTES: u64 = 5 << 20;
/// … and at most this many parts or uploads are in one page of a list.
const MAX_LISTED: i32 = 1000;

impl Dialect {
    pub(super) fn start_upload(
        &self,
        input: CreateMultipartUploadInput,
    ) -> S3Result<CreateMultipartUploadOutput> {
        // Fails now where the parts would.
        drop(self.stock.shelf.draft(&input.bucket, &input.key)?);
        let sum = chosen_sum(input.checksum_algorithm.as_ref(), input.checksum_type.as_ref())?;
        let kept = kept_of!(input);
        let id = self.stock.uploads.start(&input.bucket, &input.key, kept, sum)?;
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: sum.map(|(algorithm, _)| ChecksumAlgorithm::from_static(algorithm.name())),
            checksum_type: sum.map(|(_, span)| type_of(span)),
            ..Default::default()
        })
    }

    pub(super) async fn put_part(
        &self,
        mut request: S3Request<UploadPartInput>,
    ) -> S3Result<UploadPartOutput> {
        let mut body = request.input.body.take().map(Body::from).unwrap_or_default();
        let answered = self.put_part_body(request, &mut body).await;
        or_drained(answered, &mut body).await
    }

    async fn put_part_body(
        &self,
        request: S3Request<UploadPartInput>,
        body: &mut Body,
    ) -> S3Result<UploadPartOutput> {
        let input = request.input;
        check_length(&request.headers)?;
        let (id, bucket, key) = (&input.upload_id, &input.bucket, &input.key);
        self.stock.uploads.check_part(id, bucket, key, input.part_number)?;
        let stated = Stated::of(&request.headers)?;
        check_announced(&stated, input.checksum_algorithm.as_ref())?;
        let chosen = self.stock.uploads.with(id, bucket, key, |upload| Ok(upload.sum))?;
        if let Some((algorithm, _)) = chosen
            && stated.algorithm() != Some(algorithm)
        {
            let came = stated.algorithm().map_or("null", Algorithm::name);
            let expected = algorithm.name();
            return Err(s3_error!(
                InvalidRequest,
                "the upload has checksums of {expected}, and this is of {came}"
            ));
        }
        let incoming = Incoming {
            body,
            content_length: input.content_length,
            extensions: request.extensions,
            trailing_headers: request.trailing_headers,
        };
        let piece = receive(self.stock.shelf.draft(bucket, key)?, &stated, incoming).await?;
        let (etag, shown) = (piece.etag(), sums_of(&piece, stated.algorithm()));
        self.stock.uploads.add(id, bucket, key, input.part_number, piece)?;
        Ok(UploadPartOutput {
            e_tag: Some(ETag::Strong(etag)),
            checksum_crc32: shown.crc32,
            checksum_crc32c: shown.crc32c,
            checksum_crc64nvme: shown.crc64nvme,
            checksum_sha1: shown.sha1,
            checksum_sha256: shown.sha256,
            ..Default::default()
        })
    }

    pub(super) fn copy_part(&self, input: UploadPartCopyInput) -> S3Result<UploadPartCopyOutput> {
        let (id, bucket, key) = (&input.upload_id, &input.bucket, &input.key);
        self.stock.uploads.check_part(id, bucket, key, input.part_number)?;
        let source = self.source(
            &input.copy_source,
            Conditions {
                if_match: input.copy_source_if_match,
                if_none_match: input.copy_source_if_none_match,
                if_modified_since: input.copy_source_if_modified_since,
                if_unmodified_since: input.copy_source_if_unmodified_since,
            },
        )?;
        let range = match &input.copy_source_range {
            Some(text) => source_range(text, source.size)?,
            None => 0..source.size,
        };
        let chosen = self.stock.uploads.with(id, bucket, key, |upload| Ok(upload.sum))?;
        let chosen = chosen.map(|(algorithm, _)| algorithm);
        let mut draft = self.stock.shelf.draft(bucket, key)?;
        chosen.iter().for_each(|algorithm| draft.want(*algorithm));
        let piece = fill(draft, &source, range)?;
        let (etag, shown) = (piece.etag(), sums_of(&piece, chosen));
        self.stock.uploads.add(id, bucket, key, input.part_number, piece)?;
        let result = CopyPartResult {
            e_tag: Some(ETag::Strong(etag)),
            last_modified: Some(SystemTime::now().into()),
            checksum_crc32: shown.crc32,
            checksum_crc32c: shown.crc32c,
            checksum_crc64nvme: shown.crc64nvme,
            checksum_sha1: shown.sha1,
            checksum_sha256: shown.sha256,
        };
        Ok(UploadPartCopyOutput { copy_part_result: Some(result), ..Default::default() })
    }

    pub(super) fn finish_upload(
        &self,
        input: CompleteMultipartUploadInput,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let at = (input.upload_id.as_str(), input.bucket.as_str(), input.key.as_str());
        let asked = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        if asked.is_empty() {
            return Err(s3_error!(MalformedXML, "an upload has at least one part"));
        }
        let named: Vec<(i32, Option<&str>)> = asked
            .iter()
            .map(|part| (part.part_number.unwrap_or(0), part.e_tag.as_ref().map(ETag::value)))
            .collect();
        let stated = [
            (Algorithm::Crc32, input.checksum_crc32.as_deref()),
            (Algorithm::Crc32c, input.checksum_crc32c.as_deref()),
            (Algorithm::Crc64Nvme, input.checksum_crc64nvme.as_deref()),
            (Algorithm::Sha1, input.checksum_sha1.as_deref()),
            (Algorithm::Sha256, input.checksum_sha256.as_deref()),
        ];
        let condition = Precondition {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            ..Precondition::default()
        };
        let finished = self.stock.finish_upload(at, &condition, |upload| {
            let chosen = upload.choose(&named, MIN_PART_BYTES)?;
            check_sums(upload, &asked)?;
            check_type(upload, input.checksum_type.as_ref())?;
            let pieces: Vec<&Piece> = chosen.iter().map(Arc::as_ref).collect();
            let bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
            if input.mpu_object_size.is_some_and(|stated| stated as u64 != bytes) {
                return Err(s3_error!(InvalidRequest, "the parts have {bytes} bytes, not what was stated"));
            }
            let made = made_of(at.0, upload.sum, &pieces);
            check_whole(&made, &pieces, stated)?;
            Ok((chosen, made))
        })?;
        let (etag, shown) = match finished {
            Finished::Now(version) => {
                let shown = Sums::of(&version.made, version.crcs.nvme);
                (version.etag, shown)
            }
            Finished::Before(object) if is_made_of(&object.etag, &named) => {
                (object.etag.clone(), Sums::of_object(&object))
            }
            Finished::Before(_) => {
                return Err(s3_error!(InvalidPart, "the upload was completed with other parts"));
            }
        };
        Ok(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(etag)),
            checksum_type: shown.kind,
            checksum_crc32: shown.crc32,
            checksum_crc32c: shown.crc32c,
            checksum_crc64nvme: shown.crc64nvme,
            checksum_sha1: shown.sha1,
            checksum_sha256: shown.sha256,
            ..Default::default()
        })
    }

    pub(super) fn abort_upload(
        &self,
        input: &AbortMultipartUploadInput,
    ) -> S3Result<AbortMultipartUploadOutput> {
        self.stock.uploads.abort(&input.upload_id, &input.bucket, &input.key)?;
        Ok(AbortMultipartUploadOutput::default())
    }

    pub(super) fn parts(&self, input: ListPartsInput) -> S3Result<ListPartsOutput> {
        let max_parts = input.max_parts.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED);
        let after = input.part_number_marker.unwrap_or(0);
        self.stock.uploads.with(&input.upload_id, &input.bucket, &input.key, |upload| {
            let mut listed: Vec<Part> = upload
                .parts
                .range(after.saturating_add(1)..)
                .map(|(number, part)| show(*number, part, upload.sum))
                .collect();
            let truncated = listed.len() > max_parts as usize;
            listed.truncate(max_parts as usize);
            Ok(ListPartsOutput {
                is_truncated: Some(truncated),
                next_part_number_marker: listed.last().and_then(|part| part.part_number),
                parts: Some(listed),
                part_number_marker: Some(after),
                max_parts: Some(max_parts),
                bucket: Some(input.bucket.clone()),
                key: Some(input.key.clone()),
                upload_id: Some(input.upload_id.clone()),
                checksum_algorithm: upload
                    .sum
                    .map(|(algorithm, _)| ChecksumAlgorithm::from_static(algorithm.name())),
                checksum_type: upload.sum.map(|(_, span)| type_of(span)),
                owner: Some(owner()),
                initiator: Some(initiator()),
                storage_class: Some(StorageClass::from(storage_class(upload.kept.storage_class.as_deref()))),
                ..Default::default()
            })
        })
    }

    pub(super) fn unfinished(
        &self,
        input: ListMultipartUploadsInput,
    ) -> S3Result<ListMultipartUploadsOutput> {
        self.stock.shelf.check_bucket(&input.bucket)?;
        let max_uploads = input.max_uploads.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED);
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let marker = (input.key_marker.as_deref().unwrap_or_default(), input.upload_id_marker.as_deref());
        let mut found = self.stock.uploads.unfinished(&input.bucket, prefix, marker);
        let truncated = found.len() > max_uploads as usize;
        found.truncate(max_uploads as usize);
        let next = found.last().filter(|_| truncated).map(|last| (last.key.clone(), last.id.clone()));
        let listed = found.into_iter().map(|upload| MultipartUpload {
            key: Some(upload.key),
            upload_id: Some(upload.id),
            initiated: Some(upload.started.into()),
            owner: Some(owner()),
            initiator: Some(initiator()),
            ..Default::default()
        });
        let (next_key_marker, next_upload_id_marker) = next.unzip();
        Ok(ListMultipartUploadsOutput {
            uploads: Some(listed.collect()),
            is_truncated: Some(truncated),
            next_key_marker,
            next_upload_id_marker,
            max_uploads: Some(max_uploads),
            prefix: input.prefix.clone(),
            bucket: Some(input.bucket.clone()),
            ..Default::default()
        })
    }
}

/// The checksum that an upload asks for; None is CRC64NVME of the whole, which every object has.
fn chosen_sum(
    algorithm: Option<&ChecksumAlgorithm>,
    span: Option<&ChecksumType>,
) -> S3Result<Option<(Algorithm, Span)>> {
    let no_type = |name: &str| s3_error!(InvalidRequest, "{name} is no type of a checksum");
    let span =
        span.map(|span| Span::named(span.as_str()).ok_or_else(|| no_type(span.as_str()))).transpose()?;
    let Some(algorithm) = algorithm else {
        return match span {
            Some(Span::Parts) => Err(s3_error!(InvalidRequest, "a composite checksum has an algorithm")),
            _ => Ok(None),
        };
    };
    let algorithm = algorithm_named(algorithm.as_str())?;
    let span = span.unwrap_or(algorithm.usual_span());
    if !algorithm.allows(span) {
        let (algorithm, span) = (algorithm.name(), span.name());
        return Err(s3_error!(InvalidRequest, "a multipart upload has no {span} checksum of {algorithm}"));
    }
    Ok(Some((algorithm, span)))
}

/// The checksum of one piece as an answer shows it.
fn sums_of(piece: &Piece, algorithm: Option<Algorithm>) -> Sums {
    let algorithm = algorithm.unwrap_or(Algorithm::Crc64Nvme);
    piece.sum(algorithm).map(|value| Sums::one(algorithm, value.into_owned())).unwrap_or_default()
}

/// `bytes=FIRST-LAST` and nothing else, within the source.
fn source_range(text: &str, size: u64) -> S3Result<std::ops::Range<u64>> {
    let wrong = || s3_error!(InvalidArgument, "{text:?} is no range of the source, which has {size} bytes");
    let is_whole = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (first, last) =
        text.strip_prefix("bytes=").and_then(|pair| pair.split_once('-')).ok_or_else(wrong)?;
    if !is_whole(first) || !is_whole(last) {
        return Err(wrong());
    }
    let (first, last): (u64, u64) = first.parse().ok().zip(last.parse().ok()).ok_or_else(wrong)?;
    if first > last || last >= size { Err(wrong()) } else { Ok(first..last + 1) }
}

/// Whether an object has the ETag that these parts make.
fn is_made_of(etag: &str, named: &[(i32, Option<&str>)]) -> bool {
    let md5s: Option<Vec<Vec<u8>>> = named.iter().map(|(_, etag)| Version::md5_of((*etag)?)).collect();
    md5s.is_some_and(|md5s| version::etag_of_parts(&md5s) == etag)
}

fn made_of(id: &str, sum: Option<(Algorithm, Span)>, pieces: &[&Piece]) -> Made {
    let algorithm = sum.map(|(algorithm, _)| algorithm);
    let part_sum = |piece: &Piece| Some(piece.sum(algorithm?)?.into_owned());
    let parts = pieces.iter().map(|piece| version::Part { bytes: piece.bytes, sum: part_sum(piece) });
    Made {
        sum: sum.and_then(|(algorithm, span)| algorithm.join(span, pieces)),
        parts: parts.collect(),
        upload: Some(id.to_owned()),
    }
}

/// A checksum of the whole that the completion states; of a composite one with or without the number of parts.
fn check_whole(made: &Made, pieces: &[&Piece], stated: [(Algorithm, Option<&str>); 5]) -> S3Result<()> {
    for (algorithm, stated) in stated {
        let Some(stated) = stated else { continue };
        let computed = match &made.sum {
            Some(sum) if sum.algorithm == algorithm => Some(sum.value.clone()),
            Some(_) => None,
            None => algorithm.join(Span::Whole, pieces).map(|sum| sum.value),
        };
        let Some(computed) = computed else {
            return Err(s3_error!(InvalidRequest, "the upload has no checksum of {}", algorithm.name()));
        };
        if stated != computed && Some(stated) != computed.rsplit_once('-').map(|(digest, _)| digest) {
            return Err(sums::bad_digest(algorithm.header()));
        }
    }
    Ok(())
}

fn check_type(upload: &Upload, stated: Option<&ChecksumType>) -> S3Result<()> {
    let span = upload.sum.map_or(Span::Whole, |(_, span)| span).name();
    match stated {
        Some(stated) if stated.as_str() != span => {
            Err(s3_error!(InvalidRequest, "the checksum of the upload is of the type {span}"))
        }
        _ => Ok(()),
    }
}

fn check_sums(upload: &Upload, asked: &[CompletedPart]) -> S3Result<()> {
    for part in asked {
        let number = part.part_number.unwrap_or(0);
        if !upload.parts.get(&number).is_some_and(|found| sums_agree(part, found)) {
            return Err(invalid_part(number));
        }
    }
    Ok(())
}

/// Checksums that the completion repeats must be those of the upload, as far as those were computed.
fn sums_agree(asked: &CompletedPart, found: &UploadedPart) -> bool {
    let asked = [
        (Algorithm::Crc32, asked.checksum_crc32.as_deref()),
        (Algorithm::Crc32c, asked.checksum_crc32c.as_deref()),
        (Algorithm::Crc64Nvme, asked.checksum_crc64nvme.as_deref()),
        (Algorithm::Sha1, asked.checksum_sha1.as_deref()),
        (Algorithm::Sha256, asked.checksum_sha256.as_deref()),
    ];
    asked.iter().all(|(algorithm, asked)| match (asked, found.piece.sum(*algorithm)) {
        (Some(asked), Some(found)) => *asked == found,
        _ => true,
    })
}

fn show(number: i32, part: &UploadedPart, sum: Option<(Algorithm, Span)>) -> Part {
    let shown = sums_of(&part.piece, sum.map(|(algorithm, _)| algorithm));
    Part {
        part_number: Some(number),
        size: Some(part.piece.bytes as i64),
        e_tag: Some(ETag::Strong(part.piece.etag())),
        last_modified: Some(part.modified.into()),
        checksum_crc32: shown.crc32,
        checksum_crc32c: shown.crc32c,
        checksum_crc64nvme: shown.crc64nvme,
        checksum_sha1: shown.sha1,
        checksum_sha256: shown.sha256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_source_are_whole_and_within_it() {
        for (text, range) in [
            ("bytes=0-0", Some(0..1)),
            ("bytes=5-9", Some(5..10)),
            ("bytes=5-10", None),
            ("bytes=6-5", None),
            ("bytes=5-", None),
            ("bytes=-5", None),
            ("bytes=0-2,3-5", None),
            ("bytes=+1-2", None),
            ("0-2", None),
            ("", None),
        ] {
            assert_eq!(source_range(text, 10).ok(), range, "{text}");
        }
    }
}
