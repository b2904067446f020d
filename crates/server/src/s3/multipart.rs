//! Multipart uploads as S3 has them, over the table that both dialects share.

use std::sync::Arc;
use std::time::SystemTime;

use s3s::dto::*;
use s3s::{Body, S3Request, S3Result, s3_error};

use super::S3Dialect;
use super::answer::{ChecksumFields, initiator, owner, storage_class, type_of, with_checksum};
use super::put::{UploadBody, algorithm_named, check_length, fill, metadata_of, or_drained};
use crate::conditions::{Conditions, Precondition};
use crate::draft::Blob;
use crate::storage::CompletedUpload;
use crate::sums::{self, ChecksumScope, SumAlgorithm};
use crate::uploads::{Upload, UploadedPart, invalid_part};
use crate::version::{self, Provenance};

/// S3's limits: all parts but the last have at least this many bytes …
const MIN_PART_BYTES: u64 = 5 << 20;
/// … and at most this many parts or uploads are in one page of a list.
const MAX_LISTED: i32 = 1000;

impl S3Dialect {
    pub(super) fn start_upload(
        &self,
        input: CreateMultipartUploadInput,
    ) -> S3Result<CreateMultipartUploadOutput> {
        // Fails now where the parts would.
        drop(self.storage.backend.draft(&input.bucket, &input.key)?);
        let sum = chosen_sum(input.checksum_algorithm.as_ref(), input.checksum_type.as_ref())?;
        let metadata = metadata_of!(input);
        let id = self.storage.uploads.start(&input.bucket, &input.key, metadata, sum)?;
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: sum.map(|(algorithm, _)| ChecksumAlgorithm::from_static(algorithm.name())),
            checksum_type: sum.map(|(_, scope)| type_of(scope)),
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
        mut request: S3Request<UploadPartInput>,
        body: &mut Body,
    ) -> S3Result<UploadPartOutput> {
        check_length(&request.headers)?;
        let input = &mut request.input;
        let uploads = &self.storage.uploads;
        uploads.check_part(&input.upload_id, &input.bucket, &input.key, input.part_number)?;
        let (length, announced) = (input.content_length, input.checksum_algorithm.take());
        let part = UploadBody::new(body, &mut request, length, announced)?;
        let (input, algorithm) = (request.input, part.algorithm());
        let (id, bucket, key) = (&input.upload_id, &input.bucket, &input.key);
        let chosen = uploads.with(id, bucket, key, |upload| Ok(upload.sum))?;
        if let Some((expected, _)) = chosen
            && algorithm != Some(expected)
        {
            let came = algorithm.map_or("null", SumAlgorithm::name);
            let expected = expected.name();
            return Err(s3_error!(
                InvalidRequest,
                "the upload has checksums of {expected}, and this is of {came}"
            ));
        }
        let blob = part.receive(self.storage.backend.draft(bucket, key)?).await?;
        let (etag, shown) = (blob.etag(), sums_of(&blob, algorithm));
        uploads.add(id, bucket, key, input.part_number, blob)?;
        Ok(with_checksum!(shown, UploadPartOutput { e_tag: Some(ETag::Strong(etag)), ..Default::default() }))
    }

    pub(super) fn copy_part(&self, input: UploadPartCopyInput) -> S3Result<UploadPartCopyOutput> {
        let (id, bucket, key) = (&input.upload_id, &input.bucket, &input.key);
        self.storage.uploads.check_part(id, bucket, key, input.part_number)?;
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
        let chosen = self.storage.uploads.with(id, bucket, key, |upload| Ok(upload.sum))?;
        let chosen = chosen.map(|(algorithm, _)| algorithm);
        let mut draft = self.storage.backend.draft(bucket, key)?;
        chosen.iter().for_each(|algorithm| draft.want(*algorithm));
        let blob = fill(draft, &source, range)?;
        let (etag, shown) = (blob.etag(), sums_of(&blob, chosen));
        self.storage.uploads.add(id, bucket, key, input.part_number, blob)?;
        let result = with_checksum!(
            shown,
            CopyPartResult { e_tag: Some(ETag::Strong(etag)), last_modified: Some(SystemTime::now().into()) }
        );
        Ok(UploadPartCopyOutput { copy_part_result: Some(result), ..Default::default() })
    }

    pub(super) fn finish_upload(
        &self,
        input: CompleteMultipartUploadInput,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let at = (input.upload_id.as_str(), input.bucket.as_str(), input.key.as_str());
        let listed = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        if listed.is_empty() {
            return Err(s3_error!(MalformedXML, "an upload has at least one part"));
        }
        let named: Vec<(i32, Option<&str>)> = listed
            .iter()
            .map(|part| (part.part_number.unwrap_or(0), part.e_tag.as_ref().map(ETag::value)))
            .collect();
        let stated = [
            (SumAlgorithm::Crc32, input.checksum_crc32.as_deref()),
            (SumAlgorithm::Crc32c, input.checksum_crc32c.as_deref()),
            (SumAlgorithm::Crc64Nvme, input.checksum_crc64nvme.as_deref()),
            (SumAlgorithm::Sha1, input.checksum_sha1.as_deref()),
            (SumAlgorithm::Sha256, input.checksum_sha256.as_deref()),
        ];
        let condition = Precondition {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            ..Precondition::default()
        };
        let finished = self.storage.finish_upload(at, &condition, |upload| {
            let chosen = upload.choose(&named, MIN_PART_BYTES)?;
            check_sums(upload, &listed)?;
            check_type(upload, input.checksum_type.as_ref())?;
            let blobs: Vec<&Blob> = chosen.iter().map(Arc::as_ref).collect();
            let bytes: u64 = blobs.iter().map(|blob| blob.bytes).sum();
            if input.mpu_object_size.is_some_and(|stated| stated as u64 != bytes) {
                return Err(s3_error!(InvalidRequest, "the parts have {bytes} bytes, not what was stated"));
            }
            let provenance = provenance_of(at.0, upload.sum, &blobs);
            check_whole(&provenance, &blobs, stated)?;
            Ok((chosen, provenance))
        })?;
        let (etag, shown) = match finished {
            CompletedUpload::Now(version) => {
                let shown = ChecksumFields::of(&version.provenance, version.crcs.nvme);
                (version.etag, shown)
            }
            CompletedUpload::Before(object) if is_made_of(&object.etag, &named) => {
                (object.etag.clone(), ChecksumFields::of_object(&object))
            }
            CompletedUpload::Before(_) => {
                return Err(s3_error!(InvalidPart, "the upload was completed with other parts"));
            }
        };
        Ok(with_checksum!(
            shown,
            CompleteMultipartUploadOutput {
                location: Some(format!("/{}/{}", input.bucket, input.key)),
                bucket: Some(input.bucket),
                key: Some(input.key),
                e_tag: Some(ETag::Strong(etag)),
                checksum_type: shown.kind,
                ..Default::default()
            }
        ))
    }

    pub(super) fn abort_upload(
        &self,
        input: &AbortMultipartUploadInput,
    ) -> S3Result<AbortMultipartUploadOutput> {
        self.storage.uploads.abort(&input.upload_id, &input.bucket, &input.key)?;
        Ok(AbortMultipartUploadOutput::default())
    }

    pub(super) fn parts(&self, input: ListPartsInput) -> S3Result<ListPartsOutput> {
        let max_parts = input.max_parts.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED);
        let after = input.part_number_marker.unwrap_or(0);
        self.storage.uploads.with(&input.upload_id, &input.bucket, &input.key, |upload| {
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
                checksum_type: upload.sum.map(|(_, scope)| type_of(scope)),
                owner: Some(owner()),
                initiator: Some(initiator()),
                storage_class: Some(StorageClass::from(storage_class(
                    upload.metadata.storage_class.as_deref(),
                ))),
                ..Default::default()
            })
        })
    }

    pub(super) fn unfinished(
        &self,
        input: ListMultipartUploadsInput,
    ) -> S3Result<ListMultipartUploadsOutput> {
        self.storage.backend.check_bucket(&input.bucket)?;
        let max_uploads = input.max_uploads.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED);
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let marker = (input.key_marker.as_deref().unwrap_or_default(), input.upload_id_marker.as_deref());
        let mut found = self.storage.uploads.unfinished(&input.bucket, prefix, marker);
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
    scope: Option<&ChecksumType>,
) -> S3Result<Option<(SumAlgorithm, ChecksumScope)>> {
    let no_type = |name: &str| s3_error!(InvalidRequest, "{name} is no type of a checksum");
    let scope = scope
        .map(|scope| ChecksumScope::named(scope.as_str()).ok_or_else(|| no_type(scope.as_str())))
        .transpose()?;
    let Some(algorithm) = algorithm else {
        return match scope {
            Some(ChecksumScope::Parts) => {
                Err(s3_error!(InvalidRequest, "a composite checksum has an algorithm"))
            }
            _ => Ok(None),
        };
    };
    let algorithm = algorithm_named(algorithm.as_str())?;
    let scope = scope.unwrap_or(algorithm.usual_scope());
    if !algorithm.allows(scope) {
        let (algorithm, scope) = (algorithm.name(), scope.name());
        return Err(s3_error!(InvalidRequest, "a multipart upload has no {scope} checksum of {algorithm}"));
    }
    Ok(Some((algorithm, scope)))
}

/// The checksum of one piece as an answer shows it.
fn sums_of(blob: &Blob, algorithm: Option<SumAlgorithm>) -> ChecksumFields {
    let algorithm = algorithm.unwrap_or(SumAlgorithm::Crc64Nvme);
    blob.sum(algorithm).map(|value| ChecksumFields::one(algorithm, value.into_owned())).unwrap_or_default()
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
    version::etag_of_named(named.iter().map(|(_, etag)| *etag)).is_some_and(|made| made == etag)
}

fn provenance_of(id: &str, sum: Option<(SumAlgorithm, ChecksumScope)>, blobs: &[&Blob]) -> Provenance {
    let algorithm = sum.map(|(algorithm, _)| algorithm);
    let part_sum = |blob: &Blob| Some(blob.sum(algorithm?)?.into_owned());
    let parts = blobs.iter().map(|blob| version::Part { bytes: blob.bytes, sum: part_sum(blob) });
    Provenance {
        sum: sum.and_then(|(algorithm, scope)| algorithm.join(scope, blobs)),
        parts: parts.collect(),
        upload: Some(id.to_owned()),
    }
}

/// A checksum of the whole that the completion states; of a composite one with or without the number of
/// parts.
fn check_whole(
    provenance: &Provenance,
    blobs: &[&Blob],
    stated: [(SumAlgorithm, Option<&str>); 5],
) -> S3Result<()> {
    for (algorithm, stated) in stated {
        let Some(stated) = stated else { continue };
        let computed = match &provenance.sum {
            Some(sum) if sum.algorithm == algorithm => Some(sum.value.clone()),
            Some(_) => None,
            None => algorithm.join(ChecksumScope::Whole, blobs).map(|sum| sum.value),
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
    let scope = upload.sum.map_or(ChecksumScope::Whole, |(_, scope)| scope).name();
    match stated {
        Some(stated) if stated.as_str() != scope => {
            Err(s3_error!(InvalidRequest, "the checksum of the upload is of the type {scope}"))
        }
        _ => Ok(()),
    }
}

fn check_sums(upload: &Upload, listed: &[CompletedPart]) -> S3Result<()> {
    for part in listed {
        let number = part.part_number.unwrap_or(0);
        if !upload.parts.get(&number).is_some_and(|found| sums_agree(part, found)) {
            return Err(invalid_part(number));
        }
    }
    Ok(())
}

/// Checksums that the completion repeats must be those of the upload, as far as those were computed.
fn sums_agree(listed: &CompletedPart, found: &UploadedPart) -> bool {
    let listed = [
        (SumAlgorithm::Crc32, listed.checksum_crc32.as_deref()),
        (SumAlgorithm::Crc32c, listed.checksum_crc32c.as_deref()),
        (SumAlgorithm::Crc64Nvme, listed.checksum_crc64nvme.as_deref()),
        (SumAlgorithm::Sha1, listed.checksum_sha1.as_deref()),
        (SumAlgorithm::Sha256, listed.checksum_sha256.as_deref()),
    ];
    listed.iter().all(|(algorithm, listed)| match (listed, found.blob.sum(*algorithm)) {
        (Some(listed), Some(found)) => *listed == found,
        _ => true,
    })
}

fn show(number: i32, part: &UploadedPart, sum: Option<(SumAlgorithm, ChecksumScope)>) -> Part {
    let shown = sums_of(&part.blob, sum.map(|(algorithm, _)| algorithm));
    Part {
        part_number: Some(number),
        size: Some(part.blob.bytes as i64),
        e_tag: Some(ETag::Strong(part.blob.etag())),
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
