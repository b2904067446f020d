//! PutObject, AppendObject, CopyObject, DeleteObject and DeleteMultipleObjects, and how a body is received.

use std::ops::Range;
use std::time::SystemTime;

use bytes::Bytes;
use flatout_wire::time::format_iso;
use http_body_util::BodyExt;
use s3s::Body;
use s3s::crypto::{Checksum as _, Md5};

use super::refusal::Refusal;
use super::request::{OssRequest, decode};
use super::response::OssResponse;
use super::unsupported::storage_class;
use super::xml::{self, XmlDocument};
use super::{At, OssDialect, seconds};
use crate::backend::{disk_failed, shown};
use crate::characters::fit_xml;
use crate::conditions::{Conditions, Precondition};
use crate::draft::{Blob, Draft};
use crate::object::{Object, ObjectKind, ObjectMetadata};
use crate::page::url_encode;
use crate::tags;
use crate::version::Provenance;

/// Longest document in a request: a thousand keys, and then some.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// Most keys in one DeleteMultipleObjects.
const MAX_DELETED: usize = 1000;

impl OssDialect {
    pub(super) async fn put(
        &self,
        request: &OssRequest,
        (bucket, key): At<'_>,
        body: &mut Body,
    ) -> Result<OssResponse, Refusal> {
        let (metadata, condition) = (metadata_of(request, ObjectKind::Normal)?, precondition(request));
        self.storage.check_write(bucket, key, &condition)?;
        let blob = receive(self.storage.backend.draft(bucket, key)?, request, body).await?;
        let provenance = (metadata, Provenance::default());
        let version = self.storage.publish((bucket, key), &[&blob], provenance, &condition)?;
        Ok(OssResponse::ok().with_etag(&version.etag).with_md5(&version.etag).with_crc(Some(version.crcs.xz)))
    }

    /// Every append writes a new object: stored bytes never change while they are read, and a development
    /// origin need not be quick at this.
    pub(super) async fn append(
        &self,
        request: &OssRequest,
        (bucket, key): At<'_>,
        body: &mut Body,
    ) -> Result<OssResponse, Refusal> {
        let position = request.number("position")?.ok_or_else(|| {
            Refusal::new(400, "MissingArgument", "an append says its position").numbered("0016-00000501")
        })?;
        self.appendable((bucket, key), position)?;
        let first = metadata_of(request, ObjectKind::Appendable)?;
        let added = receive(self.storage.backend.draft(bucket, key)?, request, body).await?;
        // Two appends may have come at the same position: the second one finds the object grown.
        let lock = self.storage.lock_key(bucket, key);
        let (before, metadata) = match self.appendable((bucket, key), position)? {
            Some(object) => {
                let before = self.blob_of(&object, 0..object.size, (bucket, key))?;
                (Some(before), ObjectMetadata::clone(&object.metadata))
            }
            None => (None, first),
        };
        let next = position + added.bytes;
        let blobs: Vec<&Blob> = before.iter().chain([&added]).collect();
        let version = lock.publish(&blobs, metadata, Provenance::default())?;
        Ok(OssResponse::ok()
            .with_etag(&version.etag)
            .with_crc(Some(version.crcs.xz))
            .with("x-oss-next-append-position", next.to_string()))
    }

    pub(super) fn copy(&self, request: &OssRequest, (bucket, key): At<'_>) -> Result<OssResponse, Refusal> {
        let condition = precondition(request);
        let source = self.source(request)?;
        let replaces =
            |name: &str| request.header(name).is_some_and(|said| said.eq_ignore_ascii_case("replace"));
        let said = metadata_of(request, ObjectKind::Normal)?;
        let tags = match replaces("x-oss-tagging-directive") {
            true => said.tags.clone(),
            false => source.metadata.tags.clone(),
        };
        let metadata = match replaces("x-oss-metadata-directive") {
            true => ObjectMetadata { tags, ..said },
            false => {
                let storage_class = said.storage_class;
                ObjectMetadata {
                    tags,
                    storage_class,
                    kind: ObjectKind::Normal,
                    ..ObjectMetadata::clone(&source.metadata)
                }
            }
        };
        let blob = self.blob_of(&source, 0..source.size, (bucket, key))?;
        let provenance = (metadata, Provenance::default());
        let version = self.storage.publish((bucket, key), &[&blob], provenance, &condition)?;
        let mut document = XmlDocument::new("CopyObjectResult");
        document.leaf("ETag", &format!("\"{}\"", version.etag));
        document.leaf("LastModified", &format_iso(seconds(SystemTime::now())));
        Ok(OssResponse::xml(document).with_crc(Some(version.crcs.xz)))
    }

    /// OSS itself knows no condition here. One that came is meant, and an object that is gone does not come
    /// back.
    pub(super) fn delete(&self, request: &OssRequest, (bucket, key): At<'_>) -> Result<OssResponse, Refusal> {
        let stated = Conditions::of(&request.headers, "");
        let condition = Precondition { if_match: stated.if_match, ..Precondition::default() };
        self.storage.delete(bucket, key, &condition)?;
        Ok(OssResponse::no_content())
    }

    pub(super) async fn delete_many(
        &self,
        request: &OssRequest,
        bucket: &str,
        body: &mut Body,
    ) -> Result<OssResponse, Refusal> {
        let (mut keys, mut versions, mut quiet) = (Vec::new(), Vec::new(), false);
        xml::walk(&document(request, body).await?, |path, text| match path {
            "Delete/Object/Key" => keys.push(text.to_owned()),
            "Delete/Object/VersionId" => versions.push(text.to_owned()),
            "Delete/Quiet" => quiet = text.trim() == "true",
            _ => {}
        })?;
        if keys.is_empty() || keys.len() > MAX_DELETED {
            let why = format!("1 to {MAX_DELETED} keys are deleted at once, and {} came", keys.len());
            return Err(Refusal::new(400, "MalformedXML", why).numbered("0016-00000609"));
        }
        if let Some(version) = versions.iter().find(|version| *version != super::NO_VERSION) {
            let why = format!("this origin has no versions, and so not {version}");
            return Err(Refusal::new(404, "NoSuchVersion", why));
        }
        let encodes = request.wants_encoding();
        // Refused before anything is deleted: the client could not read the list of deleted keys.
        if let Some(key) = keys.iter().find(|key| !encodes && !fit_xml(key)) {
            let key = shown(key);
            let why =
                format!("no XML can name the key {key}: ask with encoding-type=url, or delete it by itself");
            return Err(Refusal::new(400, "MalformedXML", why));
        }
        for key in &keys {
            self.storage.delete(bucket, key, &Precondition::default())?;
        }
        let mut response = XmlDocument::new("DeleteResult");
        response.leaf_if("EncodingType", encodes.then_some("url"));
        for key in keys.iter().filter(|_| !quiet) {
            let key = if encodes { url_encode(key) } else { key.clone() };
            response.group("Deleted", |deleted| deleted.leaf("Key", &key));
        }
        Ok(OssResponse::xml(response))
    }

    /// The object that `x-oss-copy-source` names (`/BUCKET/KEY`, encoded), if it is as the conditions want
    /// it.
    pub(super) fn source(&self, request: &OssRequest) -> Result<Object, Refusal> {
        let source = request.header("x-oss-copy-source").unwrap_or_default();
        let (source, query) = source.split_once('?').unwrap_or((&source, ""));
        if !["", "versionId=null"].contains(&query) {
            let why = format!("this origin has no versions, and so not {query}");
            return Err(Refusal::new(404, "NoSuchVersion", why));
        }
        let named = decode(source);
        let named = named.as_deref().map(|named| named.strip_prefix('/').unwrap_or(named));
        let Some((bucket, key)) = named.and_then(|named| named.split_once('/')) else {
            return Err(Refusal::new(400, "InvalidArgument", "x-oss-copy-source is /BUCKET/KEY"));
        };
        let object = self.storage.backend.open(bucket, key)?;
        Conditions::of(&request.headers, "x-oss-copy-source-").check(&object)?;
        Ok(object)
    }

    /// The bytes of a range of another object, for `at`.
    pub(super) fn blob_of(
        &self,
        source: &Object,
        range: Range<u64>,
        (bucket, key): At<'_>,
    ) -> Result<Blob, Refusal> {
        let mut draft = self.storage.backend.draft(bucket, key)?;
        for frame in source.frames(range)? {
            frame.and_then(|frame| draft.write(&frame)).map_err(write_failed)?;
        }
        Ok(draft.finish())
    }

    /// The object that is to grow; None when there is none yet.
    fn appendable(&self, (bucket, key): At<'_>, position: u64) -> Result<Option<Object>, Refusal> {
        let object = self.storage.find(bucket, key)?;
        if object.as_ref().is_some_and(|object| object.metadata.kind != ObjectKind::Appendable) {
            return Err(Refusal::new(409, "ObjectNotAppendable", "the object was not made by an append"));
        }
        let size = object.as_ref().map_or(0, |object| object.size);
        if size != position {
            let why = format!("the object has {size} bytes, and an append goes to its end");
            return Err(Refusal::new(409, "PositionNotEqualToLength", why)
                .with("x-oss-next-append-position", size.to_string()));
        }
        Ok(object)
    }
}

/// The one condition that OSS has of a write.
pub(super) fn precondition(request: &OssRequest) -> Precondition {
    let forbidden = request.header("x-oss-forbid-overwrite").is_some_and(|said| said == "true");
    Precondition { if_absent: forbidden, ..Precondition::default() }
}

/// The metadata that an upload states.
pub(super) fn metadata_of(request: &OssRequest, kind: ObjectKind) -> Result<ObjectMetadata, Refusal> {
    let user_metadata = request.headers.keys().filter_map(|header| {
        let name = header.as_str().strip_prefix("x-oss-meta-")?;
        Some((name.to_owned(), request.header(header.as_str())?))
    });
    Ok(ObjectMetadata {
        content_type: request.header("content-type"),
        content_encoding: request.header("content-encoding"),
        content_disposition: request.header("content-disposition"),
        content_language: request.header("content-language"),
        cache_control: request.header("cache-control"),
        expires: request.header("expires"),
        user_metadata: user_metadata.collect(),
        tags: tags::parse_header(&request.header("x-oss-tagging").unwrap_or_default())?,
        storage_class: storage_class(request)?,
        kind,
    })
}

/// Fills a draft with the body, and compares the digest that came with it.
pub(super) async fn receive(
    mut draft: Draft,
    request: &OssRequest,
    body: &mut Body,
) -> Result<Blob, Refusal> {
    if request.headers.contains_key("content-md5") {
        draft.want_md5();
    }
    while let Some(bytes) = next(body).await? {
        draft.write(&bytes).map_err(write_failed)?;
    }
    let blob = draft.finish();
    blob.md5.map_or(Ok(()), |md5| check_md5(request, &md5))?;
    Ok(blob)
}

/// A body that is a document, whole.
pub(super) async fn document(request: &OssRequest, body: &mut Body) -> Result<Vec<u8>, Refusal> {
    let mut document = Vec::new();
    while let Some(bytes) = next(body).await? {
        document.extend_from_slice(&bytes);
        if document.len() > MAX_DOCUMENT_BYTES {
            return Err(Refusal::new(400, "MalformedXML", "the document is larger than 4 MiB"));
        }
    }
    check_md5(request, &Md5::checksum(&document))?;
    Ok(document)
}

async fn next(body: &mut Body) -> Result<Option<Bytes>, Refusal> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Refusal::new(400, "IncompleteBody", format!("the body could not be read to its end: {error}"))
        })?;
        // A frame without data holds trailers.
        if let Ok(bytes) = frame.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Compares `ByteSource-MD5`, if it came.
fn check_md5(request: &OssRequest, md5: &[u8; 16]) -> Result<(), Refusal> {
    match request.header("content-md5") {
        Some(stated) if stated != base64_simd::STANDARD.encode_to_string(md5) => {
            let why = "the Content-MD5 that was stated is not that of the bytes that came";
            Err(Refusal::new(400, "InvalidDigest", why))
        }
        _ => Ok(()),
    }
}

fn write_failed(error: std::io::Error) -> Refusal {
    disk_failed("the origin could not store the bytes", &error).into()
}
