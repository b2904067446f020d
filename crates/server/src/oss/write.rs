//! PutObject, AppendObject, CopyObject, DeleteObject and DeleteMultipleObjects, and how a body is received.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use flatout_wire::time::format_iso;
use http_body_util::BodyExt;
use s3s::Body;
use s3s::crypto::{Checksum as _, Md5};

use super::answer::Answer;
use super::asked::{Asked, decode};
use super::refusal::Refusal;
use super::xml::{self, Document};
use super::{At, Oss, seconds};
use crate::conditions::Conditions;
use crate::draft::Draft;
use crate::object::{Kept, Kind, Object};
use crate::page::url_encode;

/// Longest document in a request: a thousand keys, and then some.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;

impl Oss {
    pub(super) async fn put(
        &self,
        asked: &Asked,
        (bucket, key): At<'_>,
        body: &mut Body,
    ) -> Result<Answer, Refusal> {
        self.check_overwrite(asked, (bucket, key))?;
        let draft = receive(self.stock.shelf.draft(bucket, key)?, asked, body).await?;
        self.check_overwrite(asked, (bucket, key))?;
        let crc = draft.crcs().xz;
        let kept = Arc::new(kept(asked, Kind::Normal));
        let etag = self.stock.shelf.publish(bucket, key, vec![draft], kept)?;
        Ok(Answer::ok().with_etag(&etag).with_crc(Some(crc)))
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
        let added = receive(self.stock.shelf.draft(bucket, key)?, asked, body).await?;
        // Two appends may have come at the same position: the second one finds the object grown.
        let _alone = self.stock.replacing.lock().expect("nothing panics while it holds this");
        let (mut drafts, kept) = match self.appendable((bucket, key), position)? {
            Some(object) => (vec![self.draft_of(&object, 0..object.size, (bucket, key))?], object.kept),
            None => (Vec::new(), Arc::new(kept(asked, Kind::Appendable))),
        };
        let next = position + added.bytes();
        drafts.push(added);
        let (_, crcs) = crate::draft::total(&drafts);
        let etag = self.stock.shelf.publish(bucket, key, drafts, kept)?;
        Ok(Answer::ok()
            .with_etag(&etag)
            .with_crc(Some(crcs.xz))
            .with("x-oss-next-append-position", next.to_string()))
    }

    pub(super) fn copy(&self, asked: &Asked, (bucket, key): At<'_>) -> Result<Answer, Refusal> {
        self.check_overwrite(asked, (bucket, key))?;
        let source = self.source(asked)?;
        let replace =
            asked.header("x-oss-metadata-directive").is_some_and(|said| said.eq_ignore_ascii_case("replace"));
        let kept = match replace {
            true => kept(asked, Kind::Normal),
            false => Kept { kind: Kind::Normal, ..Kept::clone(&source.kept) },
        };
        let draft = self.draft_of(&source, 0..source.size, (bucket, key))?;
        let crc = draft.crcs().xz;
        let etag = self.stock.shelf.publish(bucket, key, vec![draft], Arc::new(kept))?;
        let mut document = Document::new("CopyObjectResult");
        document.leaf("ETag", &format!("\"{etag}\""));
        document.leaf("LastModified", &format_iso(seconds(SystemTime::now())));
        Ok(Answer::xml(document).with_crc(Some(crc)))
    }

    pub(super) fn delete(&self, (bucket, key): At<'_>) -> Result<Answer, Refusal> {
        self.stock.shelf.delete(bucket, key)?;
        Ok(Answer::no_content())
    }

    pub(super) async fn delete_many(
        &self,
        asked: &Asked,
        bucket: &str,
        body: &mut Body,
    ) -> Result<Answer, Refusal> {
        let (mut keys, mut quiet) = (Vec::new(), false);
        xml::walk(&document(asked, body).await?, |path, text| match path {
            "Delete/Object/Key" => keys.push(text.to_owned()),
            "Delete/Quiet" => quiet = text.trim() == "true",
            _ => {}
        })?;
        for key in &keys {
            self.stock.shelf.delete(bucket, key)?;
        }
        let encodes = asked.wants_encoding();
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
        let named = decode(source.split('?').next().unwrap_or_default());
        let named = named.as_deref().map(|named| named.strip_prefix('/').unwrap_or(named));
        let Some((bucket, key)) = named.and_then(|named| named.split_once('/')) else {
            return Err(Refusal::new(400, "InvalidArgument", "x-oss-copy-source is /BUCKET/KEY"));
        };
        let object = self.stock.shelf.open(bucket, key)?;
        Conditions::of(&asked.headers, "x-oss-copy-source-").check(&object)?;
        Ok(object)
    }

    /// A draft for `at` with the bytes of a range of another object.
    pub(super) fn draft_of(
        &self,
        source: &Object,
        range: Range<u64>,
        (bucket, key): At<'_>,
    ) -> Result<Draft, Refusal> {
        let mut draft = self.stock.shelf.draft(bucket, key)?;
        for frame in source.frames(range) {
            frame.and_then(|frame| draft.write(&frame)).map_err(write_failed)?;
        }
        Ok(draft)
    }

    /// The object that is to grow; None when there is none yet.
    fn appendable(&self, (bucket, key): At<'_>, position: u64) -> Result<Option<Object>, Refusal> {
        let object = match self.stock.shelf.open(bucket, key) {
            Ok(object) => Some(object),
            Err(error) if error.code() == &s3s::S3ErrorCode::NoSuchKey => None,
            Err(error) => return Err(error.into()),
        };
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

    fn check_overwrite(&self, asked: &Asked, (bucket, key): At<'_>) -> Result<(), Refusal> {
        let forbidden = asked.header("x-oss-forbid-overwrite").is_some_and(|said| said == "true");
        if forbidden && self.stock.shelf.open(bucket, key).is_ok() {
            let why = "the object is there, and x-oss-forbid-overwrite was sent";
            return Err(Refusal::new(409, "FileAlreadyExists", why));
        }
        Ok(())
    }
}

/// What an upload says of its object.
pub(super) fn kept(asked: &Asked, kind: Kind) -> Kept {
    let metadata = asked.headers.keys().filter_map(|header| {
        let name = header.as_str().strip_prefix("x-oss-meta-")?;
        Some((name.to_owned(), asked.header(header.as_str())?))
    });
    Kept {
        content_type: asked.header("content-type"),
        content_encoding: asked.header("content-encoding"),
        content_disposition: asked.header("content-disposition"),
        cache_control: asked.header("cache-control"),
        metadata: metadata.collect(),
        kind,
    }
}

/// Fills a draft with the body, and compares the digest that came with it.
pub(super) async fn receive(mut draft: Draft, asked: &Asked, body: &mut Body) -> Result<Draft, Refusal> {
    let mut md5 = Md5Check::new(asked);
    while let Some(bytes) = next(body).await? {
        md5.update(&bytes);
        draft.write(&bytes).map_err(write_failed)?;
    }
    md5.finish()?;
    Ok(draft)
}

/// A body that is a document, whole.
pub(super) async fn document(asked: &Asked, body: &mut Body) -> Result<Vec<u8>, Refusal> {
    let (mut md5, mut document) = (Md5Check::new(asked), Vec::new());
    while let Some(bytes) = next(body).await? {
        md5.update(&bytes);
        document.extend_from_slice(&bytes);
        if document.len() > MAX_DOCUMENT_BYTES {
            return Err(Refusal::new(400, "MalformedXML", "the document is larger than 4 MiB"));
        }
    }
    md5.finish()?;
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

/// `Content-MD5`, if it came.
struct Md5Check {
    stated: Option<String>,
    running: Md5,
}

impl Md5Check {
    fn new(asked: &Asked) -> Md5Check {
        Md5Check { stated: asked.header("content-md5"), running: Md5::new() }
    }

    fn update(&mut self, bytes: &[u8]) {
        if self.stated.is_some() {
            self.running.update(bytes);
        }
    }

    fn finish(self) -> Result<(), Refusal> {
        let Some(stated) = self.stated else { return Ok(()) };
        if base64_simd::STANDARD.encode_to_string(self.running.finalize()) != stated {
            let why = "the Content-MD5 that was stated is not that of the bytes that came";
            return Err(Refusal::new(400, "InvalidDigest", why));
        }
        Ok(())
    }
}

fn write_failed(error: std::io::Error) -> Refusal {
    Refusal::new(500, "InternalError", format!("the origin could not store the bytes: {error}"))
}
