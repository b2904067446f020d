//! PutObject, AppendObject, CopyObject, DeleteObject and DeleteMultipleObjects, and how a body is received.

use std::ops::Range;
use std::time::SystemTime;

use bytes::Bytes;
use flatout_wire::time::format_iso;
use http_body_util::BodyExt;
use s3s::Body;
use s3s::crypto::{Checksum as _, Md5};

use super::answer::Answer;
use super::asked::{Asked, decode};
use super::refusal::Refusal;
use super::unsupported::storage_class;
use super::xml::{self, Document};
use super::{At, Oss, seconds};
use crate::characters::fit_xml;
use crate::conditions::{Conditions, Precondition};
use crate::draft::{Draft, Piece};
use crate::object::{Kept, Kind, Object};
use crate::page::url_encode;
use crate::shelf::{disk_failed, shown};
use crate::tags;
use crate::version::Made;

/// Longest document in a request: a thousand keys, and then some.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// Most keys in one DeleteMultipleObjects.
const MAX_DELETED: usize = 1000;

impl Oss {
    pub(super) async fn put(
        &self,
        asked: &Asked,
        (bucket, key): At<'_>,
        body: &mut Body,
    ) -> Result<Answer, Refusal> {
        let (kept, condition) = (kept(asked, Kind::Normal)?, precondition(asked));
        self.stock.check_write(bucket, key, &condition)?;
        let piece = receive(self.stock.shelf.draft(bucket, key)?, asked, body).await?;
        let made = (kept, Made::default());
        let version = self.stock.publish((bucket, key), &[&piece], made, &condition)?;
        Ok(Answer::ok().with_etag(&version.etag).with_md5(&version.etag).with_crc(Some(version.crcs.xz)))
    }

    /// Every append writes the object anew: what is stored never changes while it is read, and a development origin
    /// need not be quick at this.
    pub(super) async fn append(
        &self,
        asked: &Asked,
        (bucket, key): At<'_>,
        body: &mut Body,
    ) -> Result<Answer, Refusal> {
        let position = asked.number("position")?.ok_or_else(|| {
            Refusal::new(400, "MissingArgument", "an append says its position").numbered("0016-00000501")
        })?;
        self.appendable((bucket, key), position)?;
        let first = kept(asked, Kind::Appendable)?;
        let added = receive(self.stock.shelf.draft(bucket, key)?, asked, body).await?;
        // Two appends may have come at the same position: the second one finds the object grown.
        let alone = self.stock.alone(bucket, key);
        let (before, kept) = match self.appendable((bucket, key), position)? {
            Some(object) => {
                let before = self.piece_of(&object, 0..object.size, (bucket, key))?;
                (Some(before), Kept::clone(&object.kept))
            }
            None => (None, first),
        };
        let next = position + added.bytes;
        let pieces: Vec<&Piece> = before.iter().chain([&added]).collect();
        let version = alone.publish(&pieces, kept, Made::default())?;
        Ok(Answer::ok()
            .with_etag(&version.etag)
            .with_crc(Some(version.crcs.xz))
            .with("x-oss-next-append-position", next.to_string()))
    }

    pub(super) fn copy(&self, asked: &Asked, (bucket, key): At<'_>) -> Result<Answer, Refusal> {
        let condition = precondition(asked);
        let source = self.source(asked)?;
        let replaces =
            |name: &str| asked.header(name).is_some_and(|said| said.eq_ignore_ascii_case("replace"));
        let said = kept(asked, Kind::Normal)?;
        let tags = match replaces("x-oss-tagging-directive") {
            true => said.tags.clone(),
            false => source.kept.tags.clone(),
        };
        let kept = match replaces("x-oss-metadata-directive") {
            true => Kept { tags, ..said },
            false => {
                let storage_class = said.storage_class;
                Kept { tags, storage_class, kind: Kind::Normal, ..Kept::clone(&source.kept) }
            }
        };
        let piece = self.piece_of(&source, 0..source.size, (bucket, key))?;
        let made = (kept, Made::default());
        let version = self.stock.publish((bucket, key), &[&piece], made, &condition)?;
        let mut document = Document::new("CopyObjectResult");
        document.leaf("ETag", &format!("\"{}\"", version.etag));
        document.leaf("LastModified", &format_iso(seconds(SystemTime::now())));
        Ok(Answer::xml(document).with_crc(Some(version.crcs.xz)))
    }

    /// OSS itself knows no condition here. One that came is meant, and an object that is gone does not come back.
    pub(super) fn delete(&self, asked: &Asked, (bucket, key): At<'_>) -> Result<Answer, Refusal> {
        let stated = Conditions::of(&asked.headers, "");
        let condition = Precondition { if_match: stated.if_match, ..Precondition::default() };
        self.stock.delete(bucket, key, &condition)?;
        Ok(Answer::no_content())
    }

    pub(super) async fn delete_many(
        &self,
        asked: &Asked,
        bucket: &str,
        body: &mut Body,
    ) -> Result<Answer, Refusal> {
        let (mut keys, mut versions, mut quiet) = (Vec::new(), Vec::new(), false);
        xml::walk(&document(asked, body).await?, |path, text| match path {
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
        let encodes = asked.wants_encoding();
        // Whoever cannot read what was deleted had better know before.
        if let Some(key) = keys.iter().find(|key| !encodes && !fit_xml(key)) {
            let key = shown(key);
            let why =
                format!("no XML can name the key {key}: ask with encoding-type=url, or delete it by itself");
            return Err(Refusal::new(400, "MalformedXML", why));
        }
        for key in &keys {
            self.stock.delete(bucket, key, &Precondition::default())?;
        }
        let mut answer = Document::new("DeleteResult");
        answer.leaf_if("EncodingType", encodes.then_some("url"));
        for key in keys.iter().filter(|_| !quiet) {
            let key = if encodes { url_encode(key) } else { key.clone() };
            answer.group("Deleted", |deleted| deleted.leaf("Key", &key));
        }
        Ok(Answer::xml(answer))
    }

    /// The object that `x-oss-copy-source` names (`/BUCKET/KEY`, encoded), if it is as the conditions want it.
    pub(super) fn source(&self, asked: &Asked) -> Result<Object, Refusal> {
        let source = asked.header("x-oss-copy-source").unwrap_or_default();
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
        let object = self.stock.shelf.open(bucket, key)?;
        Conditions::of(&asked.headers, "x-oss-copy-source-").check(&object)?;
        Ok(object)
    }

    /// The bytes of a range of another object, for `at`.
    pub(super) fn piece_of(
        &self,
        source: &Object,
        range: Range<u64>,
        (bucket, key): At<'_>,
    ) -> Result<Piece, Refusal> {
        let mut draft = self.stock.shelf.draft(bucket, key)?;
        for frame in source.frames(range) {
            frame.and_then(|frame| draft.write(&frame)).map_err(write_failed)?;
        }
        Ok(draft.finish())
    }

    /// The object that is to grow; None when there is none yet.
    fn appendable(&self, (bucket, key): At<'_>, position: u64) -> Result<Option<Object>, Refusal> {
        let object = self.stock.find(bucket, key)?;
        if object.as_ref().is_some_and(|object| object.kept.kind != Kind::Appendable) {
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
pub(super) fn precondition(asked: &Asked) -> Precondition {
    let forbidden = asked.header("x-oss-forbid-overwrite").is_some_and(|said| said == "true");
    Precondition { if_absent: forbidden, ..Precondition::default() }
}

/// What an upload says of its object.
pub(super) fn kept(asked: &Asked, kind: Kind) -> Result<Kept, Refusal> {
    let metadata = asked.headers.keys().filter_map(|header| {
        let name = header.as_str().strip_prefix("x-oss-meta-")?;
        Some((name.to_owned(), asked.header(header.as_str())?))
    });
    Ok(Kept {
        content_type: asked.header("content-type"),
        content_encoding: asked.header("content-encoding"),
        content_disposition: asked.header("content-disposition"),
        content_language: asked.header("content-language"),
        cache_control: asked.header("cache-control"),
        expires: asked.header("expires"),
        metadata: metadata.collect(),
        tags: tags::parse_header(&asked.header("x-oss-tagging").unwrap_or_default())?,
        storage_class: storage_class(asked)?,
        kind,
    })
}

/// Fills a draft with the body, and compares the digest that came with it.
pub(super) async fn receive(mut draft: Draft, asked: &Asked, body: &mut Body) -> Result<Piece, Refusal> {
    if asked.headers.contains_key("content-md5") {
        draft.want_md5();
    }
    while let Some(bytes) = next(body).await? {
        draft.write(&bytes).map_err(write_failed)?;
    }
    let piece = draft.finish();
    piece.md5.map_or(Ok(()), |md5| check_md5(asked, &md5))?;
    Ok(piece)
}

/// A body that is a document, whole.
pub(super) async fn document(asked: &Asked, body: &mut Body) -> Result<Vec<u8>, Refusal> {
    let mut document = Vec::new();
    while let Some(bytes) = next(body).await? {
        document.extend_from_slice(&bytes);
        if document.len() > MAX_DOCUMENT_BYTES {
            return Err(Refusal::new(400, "MalformedXML", "the document is larger than 4 MiB"));
        }
    }
    check_md5(asked, &Md5::checksum(&document))?;
    Ok(document)
}

async fn next(body: &mut Body) -> Result<Option<Bytes>, Refusal> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Refusal::new(400, "IncompleteBody", format!("the body could not be read to its end: {error}"))
        })?;
        // What is no data is a trailer.
        if let Ok(bytes) = frame.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Compares `Content-MD5`, if it came.
fn check_md5(asked: &Asked, md5: &[u8; 16]) -> Result<(), Refusal> {
    match asked.header("content-md5") {
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
