//! Multipart uploads: their parts wait as drafts, in memory's table, until they are joined under the key.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use flatout_wire::checksum::Algorithm;
use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Result, s3_error};

use super::Dialect;
use super::get::full_object;
use super::put::{Incoming, receive, without_framing};
use crate::draft::{self, Draft};
use crate::object::Kept;
use crate::shelf::etag_of_content;
use crate::sums;

/// S3's limits: all parts but the last have at least this many bytes …
const MIN_PART_BYTES: u64 = 5 << 20;
/// … there are at most this many …
const MAX_PARTS: i32 = 10_000;
/// … and at most this many parts or uploads are in one page of a list.
const MAX_LISTED: i32 = 1000;

/// The unfinished uploads by id. They are forgotten when the origin stops.
#[derive(Default)]
pub(super) struct Uploads(Mutex<BTreeMap<String, Upload>>);

struct Upload {
    bucket: String,
    key: String,
    kept: Arc<Kept>,
    started: SystemTime,
    parts: BTreeMap<i32, UploadedPart>,
}

struct UploadedPart {
    draft: Draft,
    etag: String,
    sums: Checksum,
    modified: SystemTime,
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Upload>> {
        self.0.lock().expect("nothing panics while it holds the uploads")
    }

    /// Shows the upload of this id, if it is one for this key.
    fn with<T>(
        &self,
        id: &str,
        bucket: &str,
        key: &str,
        look: impl FnOnce(&mut Upload) -> S3Result<T>,
    ) -> S3Result<T> {
        match self.lock().get_mut(id) {
            Some(upload) if upload.bucket == bucket && upload.key == key => look(upload),
            _ => Err(s3_error!(NoSuchUpload, "there is no upload {id} of {bucket}/{key}")),
        }
    }
}

impl Dialect {
    pub(super) fn start_upload(
        &self,
        input: CreateMultipartUploadInput,
    ) -> S3Result<CreateMultipartUploadOutput> {
        // Fails now where the parts would.
        drop(self.shelf.draft(&input.bucket, &input.key)?);
        let kept = Kept {
            content_type: input.content_type,
            content_encoding: input.content_encoding.and_then(without_framing),
            content_disposition: input.content_disposition,
            cache_control: input.cache_control,
            metadata: input.metadata.unwrap_or_default(),
        };
        let (bucket, key) = (input.bucket, input.key);
        let started = SystemTime::now();
        // SipHash under keys that nobody knows: an id cannot be guessed.
        let id = format!(
            "{:016x}{:016x}",
            RandomState::new().hash_one(started),
            RandomState::new().hash_one(&key)
        );
        let upload = Upload {
            bucket: bucket.clone(),
            key: key.clone(),
            kept: Arc::new(kept),
            started,
            parts: BTreeMap::new(),
        };
        self.uploads.lock().insert(id.clone(), upload);
        Ok(CreateMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: input.checksum_type,
            ..Default::default()
        })
    }

    pub(super) async fn put_part(&self, request: S3Request<UploadPartInput>) -> S3Result<UploadPartOutput> {
        let mut input = request.input;
        if !(1..=MAX_PARTS).contains(&input.part_number) {
            return Err(s3_error!(InvalidArgument, "part numbers go from 1 to {MAX_PARTS}"));
        }
        self.uploads.with(&input.upload_id, &input.bucket, &input.key, |_| Ok(()))?;
        let incoming = Incoming {
            body: input.body.take(),
            content_length: input.content_length,
            headers: request.headers,
            extensions: request.extensions,
            trailing_headers: request.trailing_headers,
        };
        let received = receive(self.shelf.draft(&input.bucket, &input.key)?, incoming).await?;
        let part = UploadedPart {
            etag: etag_of_content(received.draft.bytes(), received.draft.crc64nvme(), 1),
            draft: received.draft,
            sums: received.sums,
            modified: SystemTime::now(),
        };
        self.uploads.with(&input.upload_id, &input.bucket, &input.key, |upload| {
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
        let encoded = self.uploads.with(&input.upload_id, &input.bucket, &input.key, |upload| {
            check_parts(upload, &asked)?;
            let (bytes, crc64nvme) = draft::total(named(upload, &asked));
            if input.mpu_object_size.is_some_and(|stated| stated as u64 != bytes) {
                return Err(s3_error!(InvalidRequest, "the parts have {bytes} bytes, not what was stated"));
            }
            let encoded = Algorithm::Crc64Nvme.encode(crc64nvme);
            match input.checksum_crc64nvme {
                Some(stated) if stated != encoded => Err(sums::bad_digest("x-amz-checksum-crc64nvme")),
                _ => Ok(encoded),
            }
        })?;
        let Some(mut upload) = self.uploads.lock().remove(&input.upload_id) else {
            return Err(s3_error!(NoSuchUpload, "the upload was completed or aborted meanwhile"));
        };
        let parts = asked.iter().filter_map(|part| upload.parts.remove(&part.part_number?));
        let (drafts, kept) = (parts.map(|part| part.draft).collect(), upload.kept.clone());
        let etag = self.shelf.publish(&input.bucket, &input.key, drafts, kept)?;
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
        self.uploads.with(&input.upload_id, &input.bucket, &input.key, |_| Ok(()))?;
        self.uploads.lock().remove(&input.upload_id);
        Ok(AbortMultipartUploadOutput::default())
    }

    pub(super) fn parts(&self, input: ListPartsInput) -> S3Result<ListPartsOutput> {
        let max_parts = input.max_parts.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED);
        let after = input.part_number_marker.unwrap_or(0);
        self.uploads.with(&input.upload_id, &input.bucket, &input.key, |upload| {
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
        self.shelf.check_bucket(&input.bucket)?;
        let max_uploads = input.max_uploads.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED);
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let marker = (input.key_marker.as_deref().unwrap_or_default(), input.upload_id_marker.as_deref());
        let uploads = self.uploads.lock();
        let mut found: Vec<(&str, &String, &Upload)> = uploads
            .iter()
            .filter(|(_, upload)| upload.bucket == input.bucket && upload.key.starts_with(prefix))
            .map(|(id, upload)| (upload.key.as_str(), id, upload))
            // Without an id the marker stands for all uploads of its key.
            .filter(|(key, id, _)| {
                *key > marker.0 || (*key == marker.0 && marker.1.is_some_and(|at| id.as_str() > at))
            })
            .collect();
        found.sort_by_key(|(key, id, _)| (*key, *id));
        let truncated = found.len() > max_uploads as usize;
        found.truncate(max_uploads as usize);
        let next = found.last().filter(|_| truncated).map(|(key, id, _)| ((*key).to_owned(), (*id).clone()));
        let listed = found.iter().map(|(key, id, upload)| MultipartUpload {
            key: Some((*key).to_owned()),
            upload_id: Some((*id).clone()),
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

/// The drafts of the parts asked for, in that order.
fn named<'a>(upload: &'a Upload, asked: &'a [CompletedPart]) -> impl Iterator<Item = &'a Draft> {
    asked.iter().filter_map(|part| Some(&upload.parts.get(&part.part_number?)?.draft))
}

/// Whether the upload can be completed from these parts: ascending, all there, as uploaded, large enough.
fn check_parts(upload: &Upload, asked: &[CompletedPart]) -> S3Result<()> {
    let numbers: Vec<i32> = asked.iter().map(|part| part.part_number.unwrap_or(0)).collect();
    if numbers.is_empty() {
        return Err(s3_error!(MalformedXML, "an upload has at least one part"));
    }
    if !numbers.is_sorted_by(|a, b| a < b) {
        return Err(s3_error!(InvalidPartOrder, "the parts are not in ascending order"));
    }
    for (number, part) in numbers.iter().zip(asked) {
        let found = upload.parts.get(number).ok_or_else(|| invalid_part(*number))?;
        if part.e_tag.as_ref().is_some_and(|etag| etag.value() != found.etag) || !sums_agree(part, found) {
            return Err(invalid_part(*number));
        }
        if found.draft.bytes() < MIN_PART_BYTES && Some(number) != numbers.last() {
            return Err(s3_error!(EntityTooSmall, "part {number} is smaller than 5 MiB and not the last"));
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

fn invalid_part(number: i32) -> S3Error {
    s3_error!(InvalidPart, "part {number} was not uploaded, or is another than the one named")
}
