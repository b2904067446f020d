//! Multipart uploads as S3 has them, over the table that both dialects share.

use std::time::SystemTime;

use flatout_wire::checksum::Algorithm;
use s3s::dto::*;
use s3s::{S3Request, S3Result, s3_error};

use super::Dialect;
use super::get::full_object;
use super::put::{Incoming, receive, without_framing};
use crate::draft;
use crate::object::Kept;
use crate::shelf::etag_of_content;
use crate::sums;
use crate::uploads::{Upload, UploadedPart, invalid_part};

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
        let kept = Kept {
            content_type: input.content_type,
            content_encoding: input.content_encoding.and_then(without_framing),
            content_disposition: input.content_disposition,
            cache_control: input.cache_control,
            metadata: input.metadata.unwrap_or_default(),
            ..Kept::default()
        };
        let id = self.stock.uploads.start(&input.bucket, &input.key, kept);
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: input.checksum_type,
            ..Default::default()
        })
    }

    pub(super) async fn put_part(&self, request: S3Request<UploadPartInput>) -> S3Result<UploadPartOutput> {
        let mut input = request.input;
        self.stock.uploads.check_part(&input.upload_id, &input.bucket, &input.key, input.part_number)?;
        let incoming = Incoming {
            body: input.body.take(),
            content_length: input.content_length,
            headers: request.headers,
            extensions: request.extensions,
            trailing_headers: request.trailing_headers,
        };
        let received = receive(self.stock.shelf.draft(&input.bucket, &input.key)?, incoming).await?;
        let part = UploadedPart {
            etag: etag_of_content(received.draft.bytes(), received.draft.crcs().nvme, 1),
            draft: received.draft,
            sums: received.sums,
            modified: SystemTime::now(),
        };
        self.stock.uploads.with(&input.upload_id, &input.bucket, &input.key, |upload| {
            let output = UploadPartOutput {
                e_tag: Some(ETag::Strong(part.etag.clone())),
                checksum_crc32: part.sums.checksum_crc32.clone(),
                checksum_crc32c: part.sums.checksum_crc32c.clone(),
                checksum_crc64nvme: part.sums.checksum_crc64nvme.clone(),
                checksum_sha1: part.sums.checksum_sha1.clone(),
                checksum_sha256: part.sums.checksum_sha256.clone(),
                ..Default::default()
            };
            upload.parts.insert(input.part_number, part);
            Ok(output)
        })
    }

    pub(super) fn finish_upload(
        &self,
        input: CompleteMultipartUploadInput,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        self.check_write(&input.bucket, &input.key, &(input.if_match, input.if_none_match))?;
        let asked = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let named: Vec<(i32, Option<&str>)> = asked
            .iter()
            .map(|part| (part.part_number.unwrap_or(0), part.e_tag.as_ref().map(ETag::value)))
            .collect();
        let numbers: Vec<i32> = named.iter().map(|(number, _)| *number).collect();
        let encoded = self.stock.uploads.with(&input.upload_id, &input.bucket, &input.key, |upload| {
            upload.check(&named, MIN_PART_BYTES)?;
            check_sums(upload, &asked)?;
            let (bytes, crcs) = draft::total(upload.drafts(numbers.iter().copied()));
            if input.mpu_object_size.is_some_and(|stated| stated as u64 != bytes) {
                return Err(s3_error!(InvalidRequest, "the parts have {bytes} bytes, not what was stated"));
            }
            let encoded = Algorithm::Crc64Nvme.encode(crcs.nvme);
            match input.checksum_crc64nvme {
                Some(stated) if stated != encoded => Err(sums::bad_digest("x-amz-checksum-crc64nvme")),
                _ => Ok(encoded),
            }
        })?;
        let etag = self.stock.finish_upload(&input.upload_id, &input.bucket, &input.key, &numbers)?;
        Ok(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(etag)),
            checksum_crc64nvme: Some(encoded),
            checksum_type: Some(full_object()),
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
                .map(|(number, part)| show(*number, part))
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
        asked.checksum_crc32.as_deref(),
        asked.checksum_crc32c.as_deref(),
        asked.checksum_crc64nvme.as_deref(),
        asked.checksum_sha1.as_deref(),
        asked.checksum_sha256.as_deref(),
    ];
    asked.iter().zip(sums::values(&found.sums)).all(|(asked, found)| match (asked, found) {
        (Some(asked), Some(found)) => *asked == found,
        _ => true,
    })
}

fn show(number: i32, part: &UploadedPart) -> Part {
    Part {
        part_number: Some(number),
        size: Some(part.draft.bytes() as i64),
        e_tag: Some(ETag::Strong(part.etag.clone())),
        last_modified: Some(part.modified.into()),
        checksum_crc64nvme: part.sums.checksum_crc64nvme.clone(),
        ..Default::default()
    }
}
