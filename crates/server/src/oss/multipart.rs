//! Multipart uploads as OSS has them, over the table that both dialects share.

use std::time::SystemTime;

use flatout_wire::time::format_iso;
use s3s::Body;

use super::read::range;
use super::refusal::Refusal;
use super::request::OssRequest;
use super::response::OssResponse;
use super::write::{document, metadata_of, precondition, receive};
use super::xml::{self, XmlDocument};
use super::{At, OssDialect, seconds};
use crate::draft::Blob;
use crate::object::ObjectKind;
use crate::page::url_encode;
use crate::storage::CompletedUpload;
use crate::uploads::UploadedPart;
use crate::version::{self, Provenance};

/// All parts but the last have at least this many bytes …
const MIN_PART_BYTES: u64 = 100 << 10;
/// … and at most this many parts or uploads are in one page of a list.
const MAX_LISTED: u64 = 1000;

impl OssDialect {
    pub(super) fn start_upload(
        &self,
        request: &OssRequest,
        (bucket, key): At<'_>,
    ) -> Result<OssResponse, Refusal> {
        // Fails now where the parts would.
        drop(self.storage.backend.draft(bucket, key)?);
        let id =
            self.storage.uploads.start(bucket, key, metadata_of(request, ObjectKind::Multipart)?, None)?;
        let mut document = XmlDocument::new("InitiateMultipartUploadResult");
        name_object(&mut document, request, (bucket, key));
        document.leaf("UploadId", &id);
        Ok(OssResponse::xml(document))
    }

    pub(super) async fn put_part(
        &self,
        request: &OssRequest,
        (bucket, key): At<'_>,
        body: &mut Body,
    ) -> Result<OssResponse, Refusal> {
        let (id, number) = part_of(request)?;
        self.storage.uploads.check_part(id, bucket, key, number)?;
        let blob = receive(self.storage.backend.draft(bucket, key)?, request, body).await?;
        let (etag, crc) = self.keep_part((id, number), (bucket, key), blob)?;
        Ok(OssResponse::ok().with_etag(&etag).with_md5(&etag).with_crc(Some(crc)))
    }

    pub(super) fn copy_part(
        &self,
        request: &OssRequest,
        (bucket, key): At<'_>,
    ) -> Result<OssResponse, Refusal> {
        let (id, number) = part_of(request)?;
        self.storage.uploads.check_part(id, bucket, key, number)?;
        let source = self.source(request)?;
        let wanted = request.header("x-oss-copy-source-range");
        let wanted = wanted.map(|text| range(&text, source.size, true)).transpose()?.flatten();
        let blob = self.blob_of(&source, wanted.unwrap_or(0..source.size), (bucket, key))?;
        let (etag, crc) = self.keep_part((id, number), (bucket, key), blob)?;
        let mut document = XmlDocument::new("CopyPartResult");
        document.leaf("LastModified", &format_iso(seconds(SystemTime::now())));
        document.leaf("ETag", &format!("\"{etag}\""));
        Ok(OssResponse::xml(document).with_crc(Some(crc)))
    }

    /// Returns the part's ETag and CRC-64/XZ.
    fn keep_part(
        &self,
        (id, number): (&str, i32),
        (bucket, key): At<'_>,
        blob: Blob,
    ) -> Result<(String, u64), Refusal> {
        let (etag, crc) = (blob.etag(), blob.crcs.xz);
        self.storage.uploads.add(id, bucket, key, number, blob)?;
        Ok((etag, crc))
    }

    pub(super) async fn finish_upload(
        &self,
        request: &OssRequest,
        (bucket, key): At<'_>,
        body: &mut Body,
    ) -> Result<OssResponse, Refusal> {
        let id = request.parameter("uploadId").unwrap_or_default();
        let all = request.header("x-oss-complete-all").is_some_and(|said| said.eq_ignore_ascii_case("yes"));
        let listed = if all { None } else { Some(listed_parts(&document(request, body).await?)?) };
        let finished = self.storage.finish_upload((id, bucket, key), &precondition(request), |upload| {
            let named: Vec<(i32, Option<&str>)> = match &listed {
                Some(listed) => listed.iter().map(|(number, etag)| (*number, etag.as_deref())).collect(),
                None => upload.parts.keys().map(|number| (*number, None)).collect(),
            };
            let blobs = upload.choose(&named, MIN_PART_BYTES)?;
            let parts = blobs.iter().map(|blob| version::Part { bytes: blob.bytes, sum: None }).collect();
            Ok((blobs, Provenance { parts, upload: Some(id.to_owned()), sum: None }))
        })?;
        let (etag, crc) = match finished {
            CompletedUpload::Now(version) => (version.etag, Some(version.crcs.xz)),
            CompletedUpload::Before(object) => {
                check_made_of(&object.etag, listed.as_deref())?;
                let crc = object.known_crcs.crcs().map(|crcs| crcs.xz);
                (object.etag, crc)
            }
        };
        let mut document = XmlDocument::new("CompleteMultipartUploadResult");
        name_object(&mut document, request, (bucket, key));
        document.leaf("Location", &format!("http://{}/{bucket}/{}", request.host, url_encode(key)));
        document.leaf("ETag", &format!("\"{etag}\""));
        Ok(OssResponse::xml(document).with_etag(&etag).with_crc(crc))
    }

    pub(super) fn abort_upload(
        &self,
        request: &OssRequest,
        (bucket, key): At<'_>,
    ) -> Result<OssResponse, Refusal> {
        self.storage.uploads.abort(request.parameter("uploadId").unwrap_or_default(), bucket, key)?;
        Ok(OssResponse::no_content())
    }

    pub(super) fn list_parts(
        &self,
        request: &OssRequest,
        (bucket, key): At<'_>,
    ) -> Result<OssResponse, Refusal> {
        let id = request.parameter("uploadId").unwrap_or_default();
        let most = request.number("max-parts")?.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED) as usize;
        let after = i32::try_from(request.number("part-number-marker")?.unwrap_or(0)).unwrap_or(i32::MAX);
        let document = self.storage.uploads.with(id, bucket, key, |upload| {
            let mut document = XmlDocument::new("ListPartsResult");
            name_object(&mut document, request, (bucket, key));
            document.leaf("UploadId", id);
            let mut last = 0;
            for (number, part) in upload.parts.range(after.saturating_add(1)..).take(most) {
                last = *number;
                document.group("Part", |shown| show_part(shown, *number, part));
            }
            let more = last > 0 && upload.parts.range(last + 1..).next().is_some();
            document.leaf("PartNumberMarker", &after.to_string());
            document.leaf("NextPartNumberMarker", &last.to_string());
            document.leaf("MaxParts", &most.to_string());
            document.leaf("IsTruncated", if more { "true" } else { "false" });
            Ok(document)
        })?;
        Ok(OssResponse::xml(document))
    }

    pub(super) fn list_uploads(&self, request: &OssRequest, bucket: &str) -> Result<OssResponse, Refusal> {
        self.storage.backend.check_bucket(bucket)?;
        let text = |name: &str| request.parameter(name).unwrap_or_default();
        let most = request.number("max-uploads")?.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED) as usize;
        let marker = (text("key-marker"), request.parameter("upload-id-marker").filter(|id| !id.is_empty()));
        let mut found = self.storage.uploads.unfinished(bucket, text("prefix"), marker);
        let more = found.len() > most;
        found.truncate(most);
        let encode = |key: &str| if request.wants_encoding() { url_encode(key) } else { key.to_owned() };
        let mut document = XmlDocument::new("ListMultipartUploadsResult");
        document.leaf_if("EncodingType", request.wants_encoding().then_some("url"));
        document.leaf("Bucket", bucket);
        document.leaf("Prefix", &encode(text("prefix")));
        document.leaf("KeyMarker", &encode(marker.0));
        document.leaf("UploadIdMarker", text("upload-id-marker"));
        document.leaf("MaxUploads", &most.to_string());
        document.leaf("IsTruncated", if more { "true" } else { "false" });
        if let Some(last) = found.last().filter(|_| more) {
            document.leaf("NextKeyMarker", &encode(&last.key));
            document.leaf("NextUploadIdMarker", &last.id);
        }
        for upload in &found {
            document.group("Upload", |shown| {
                shown.leaf("Key", &encode(&upload.key));
                shown.leaf("UploadId", &upload.id);
                shown.leaf("Initiated", &format_iso(seconds(upload.started)));
            });
        }
        Ok(OssResponse::xml(document))
    }
}

/// Whether an object has the ETag that the listed parts make; all parts are those of any object.
fn check_made_of(etag: &str, listed: Option<&[(i32, Option<String>)]>) -> Result<(), Refusal> {
    let Some(listed) = listed else { return Ok(()) };
    let made = version::etag_of_named(listed.iter().map(|(_, etag)| etag.as_deref()));
    match listed.is_empty() || made.is_some_and(|made| made == etag) {
        true => Ok(()),
        false => Err(Refusal::new(400, "InvalidPart", "the upload was completed with other parts")),
    }
}

/// Id of the upload and number of the part.
fn part_of(request: &OssRequest) -> Result<(&str, i32), Refusal> {
    let number = request.number("partNumber")?.and_then(|number| i32::try_from(number).ok());
    let number =
        number.ok_or_else(|| Refusal::new(400, "InvalidArgument", "a part has partNumber and uploadId"))?;
    Ok((request.parameter("uploadId").unwrap_or_default(), number))
}

/// The parts that a completion names, with their ETags.
fn listed_parts(document: &[u8]) -> Result<Vec<(i32, Option<String>)>, Refusal> {
    let (mut parts, mut number, mut etag) = (Vec::new(), 0, None);
    xml::walk(document, |path, text| match path {
        "CompleteMultipartUpload/Part/PartNumber" => number = text.trim().parse().unwrap_or(0),
        "CompleteMultipartUpload/Part/ETag" => etag = Some(text.trim().trim_matches('"').to_owned()),
        "CompleteMultipartUpload/Part" => parts.push((number, etag.take())),
        _ => {}
    })?;
    Ok(parts)
}

fn name_object(document: &mut XmlDocument, request: &OssRequest, (bucket, key): At<'_>) {
    let encodes = request.wants_encoding();
    document.leaf_if("EncodingType", encodes.then_some("url"));
    document.leaf("Bucket", bucket);
    document.leaf("Key", &if encodes { url_encode(key) } else { key.to_owned() });
}

fn show_part(shown: &mut XmlDocument, number: i32, part: &UploadedPart) {
    shown.leaf("PartNumber", &number.to_string());
    shown.leaf("LastModified", &format_iso(seconds(part.modified)));
    shown.leaf("ETag", &format!("\"{}\"", part.blob.etag()));
    shown.leaf("HashCrc64ecma", &part.blob.crcs.xz.to_string());
    shown.leaf("Size", &part.blob.bytes.to_string());
}
