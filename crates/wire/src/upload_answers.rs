//! Answers to what writes: the id of an upload, its parts, unfinished uploads, copies, deletions.
//!
//! S3 and OSS write the same elements, but for checksums. OSS encodes keys because its requests ask for that,
//! S3 those of uploads; each document says so itself. An `<Error>` in place of an answer is for
//! `verdict::of`, which comes first.

use crate::checksum::{Algorithm, Checksum, Coverage};
use crate::head::{parse_checksum, quoted};
use crate::listing::{XmlError, decode_key, expect_root, some, value};
use crate::time::parse_iso;
use crate::verdict::cleaned;
use crate::words::number;
use crate::xml::walk;

/// An object that an upload in parts has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// As in the header, with its quotes.
    pub etag: String,
    /// Those that S3 states. OSS has its CRC in a header instead: `Head::checksums`.
    pub checksums: Vec<Checksum>,
}

/// One page of an upload's parts, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartsPage {
    pub parts: Vec<ListedPart>,
    /// The marker of the next page; `None` on the last.
    pub next: Option<u32>,
}

/// A part that the origin has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedPart {
    pub number: u32,
    /// In bytes.
    pub size: u64,
    /// As in the header, with its quotes.
    pub etag: String,
    /// The CRC of the part's bytes, where the origin states one that we know.
    pub checksum: Option<(Algorithm, u64)>,
    /// Unix seconds; 0 where the origin did not say.
    pub last_modified: u64,
}

/// One page of a bucket's unfinished uploads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadsPage {
    pub uploads: Vec<Upload>,
    /// The key marker of the next page; `None` on the last.
    pub next_key: Option<String>,
    /// The upload id marker of the next page.
    pub next_id: Option<String>,
}

/// An upload that has neither been completed nor aborted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upload {
    pub key: String,
    pub id: String,
    /// Unix seconds; 0 where the origin did not say.
    pub initiated: u64,
}

/// A copy of an object or of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// As in the header, with its quotes.
    pub etag: String,
    /// Unix seconds; 0 where the origin did not say.
    pub last_modified: u64,
    /// The CRC of the copied bytes, where S3 states one. OSS has it in a header: `Head::checksums`.
    pub checksum: Option<(Algorithm, u64)>,
}

/// What became of the keys of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Keys that are gone; empty where a quiet answer was asked for.
    pub keys: Vec<String>,
    pub errors: Vec<DeleteError>,
}

/// A key that was not deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteError {
    pub key: String,
    /// S3's code: `AccessDenied`, `InternalError`, …
    pub code: String,
    /// For people: control characters are gone, and it is at most 500 characters long.
    pub message: String,
}

/// Parses an answer to CreateMultipartUpload: the id of the upload.
///
/// # Errors
/// A document that is malformed, cut off or another, or has no id.
pub fn parse_created(xml: &[u8]) -> Result<String, XmlError> {
    let mut id = None;
    read(xml, &["InitiateMultipartUploadResult"], |path, text| {
        if path == "UploadId" {
            id = some(text);
        }
        Ok(())
    })?;
    id.ok_or(XmlError::Missing { element: "UploadId" })
}

/// Parses an answer to CompleteMultipartUpload.
///
/// # Errors
/// A document that is malformed, cut off or another, or has no ETag.
pub fn parse_completed(xml: &[u8]) -> Result<Completed, XmlError> {
    let (mut completed, mut is_composite) = (Completed::default(), false);
    read(xml, &["CompleteMultipartUploadResult"], |path, text| {
        match path {
            "ETag" => completed.etag = etag(text),
            "ChecksumType" => is_composite = text.trim().eq_ignore_ascii_case("COMPOSITE"),
            _ => {
                let stated = algorithm_of(path).and_then(|found| parse_checksum(found, text.as_bytes()));
                completed.checksums.extend(stated);
            }
        }
        Ok(())
    })?;
    for checksum in completed.checksums.iter_mut().filter(|checksum| checksum.kind == Coverage::Full) {
        if is_composite {
            checksum.kind = Coverage::Composite { parts: 0 };
        }
    }
    if completed.etag.is_empty() { Err(XmlError::Missing { element: "ETag" }) } else { Ok(completed) }
}

/// Parses an answer to ListParts.
///
/// # Errors
/// A document that is malformed, cut off or another; a number, size or date that is none; a part without
/// number or ETag; a page that says it goes on but not where.
pub fn parse_parts(xml: &[u8]) -> Result<PartsPage, XmlError> {
    let (mut page, mut part, mut is_truncated) = (PartsPage::default(), ListedPart::default(), false);
    read(xml, &["ListPartsResult"], |path, text| {
        match path {
            "Part/PartNumber" => part.number = value("PartNumber", text, part_number(text))?,
            "Part/Size" => part.size = value("Size", text, number(text.trim()))?,
            "Part/ETag" => part.etag = etag(text),
            "Part/LastModified" => part.last_modified = date("LastModified", text)?,
            "Part" => page.parts.push(whole(std::mem::take(&mut part))?),
            "IsTruncated" => is_truncated = text.trim() == "true",
            "NextPartNumberMarker" => page.next = part_number(text),
            _ => {
                let element = path.strip_prefix("Part/").unwrap_or("");
                part.checksum = sum(element, text).or(part.checksum);
            }
        }
        Ok(())
    })?;
    if !is_truncated {
        page.next = None;
    } else if page.next.is_none() {
        return Err(XmlError::NoToken);
    }
    Ok(page)
}

/// Parses an answer to ListMultipartUploads. Keys are decoded where the answer says that they are
/// URL-encoded.
///
/// # Errors
/// A document that is malformed, cut off or another; a date that is none; an upload without key or id; a page
/// that says it goes on but not where.
pub fn parse_uploads(xml: &[u8]) -> Result<UploadsPage, XmlError> {
    let (mut page, mut upload) = (UploadsPage::default(), Upload::default());
    let (mut is_encoded, mut is_truncated) = (false, false);
    read(xml, &["ListMultipartUploadsResult"], |path, text| {
        match path {
            "Upload/Key" => upload.key = text.into(),
            "Upload/UploadId" => upload.id = text.trim().into(),
            "Upload/Initiated" => upload.initiated = date("Initiated", text)?,
            "Upload" if upload.key.is_empty() => return Err(XmlError::Missing { element: "Key" }),
            "Upload" if upload.id.is_empty() => return Err(XmlError::Missing { element: "UploadId" }),
            "Upload" => page.uploads.push(std::mem::take(&mut upload)),
            "EncodingType" => is_encoded = text.trim() == "url",
            "IsTruncated" => is_truncated = text.trim() == "true",
            "NextKeyMarker" => page.next_key = Some(text.to_owned()).filter(|key| !key.is_empty()),
            "NextUploadIdMarker" => page.next_id = some(text),
            _ => {}
        }
        Ok(())
    })?;
    if !is_truncated {
        (page.next_key, page.next_id) = (None, None);
    } else if page.next_key.is_none() {
        return Err(XmlError::NoToken);
    }
    if is_encoded {
        let keys = page.uploads.iter_mut().map(|upload| &mut upload.key);
        for key in keys.chain(&mut page.next_key) {
            *key = decode_key(key)?;
        }
    }
    Ok(page)
}

/// Parses an answer to CopyObject or UploadPartCopy.
///
/// # Errors
/// A document that is malformed, cut off or another; a date that is none; no ETag.
pub fn parse_copied(xml: &[u8]) -> Result<Copied, XmlError> {
    let mut copied = Copied::default();
    read(xml, &["CopyObjectResult", "CopyPartResult"], |path, text| {
        match path {
            "ETag" => copied.etag = etag(text),
            "LastModified" => copied.last_modified = date("LastModified", text)?,
            _ => copied.checksum = sum(path, text).or(copied.checksum),
        }
        Ok(())
    })?;
    if copied.etag.is_empty() { Err(XmlError::Missing { element: "ETag" }) } else { Ok(copied) }
}

/// Parses an answer to DeleteObjects (OSS: DeleteMultipleObjects). No bytes at all mean no errors: OSS sends
/// none where a quiet answer has nothing to say.
///
/// OSS's documentation names no form for a key that it did not delete: where that matters, do not ask for a
/// quiet answer, and compare [`Deleted::keys`] with what was asked.
///
/// # Errors
/// A document that is malformed, cut off or another; a key that is not UTF-8 once decoded.
pub fn parse_deleted(xml: &[u8]) -> Result<Deleted, XmlError> {
    let (mut deleted, mut error, mut is_encoded) = (Deleted::default(), DeleteError::default(), false);
    if xml.trim_ascii().is_empty() {
        return Ok(deleted);
    }
    read(xml, &["DeleteResult"], |path, text| {
        match path {
            "Deleted/Key" => deleted.keys.push(text.into()),
            "Error/Key" => error.key = text.into(),
            "Error/Code" => error.code = cleaned(text),
            "Error/Message" => error.message = cleaned(text),
            "Error" => deleted.errors.push(std::mem::take(&mut error)),
            "EncodingType" => is_encoded = text.trim() == "url",
            _ => {}
        }
        Ok(())
    })?;
    if is_encoded {
        let of_errors = deleted.errors.iter_mut().map(|error| &mut error.key);
        for key in deleted.keys.iter_mut().chain(of_errors) {
            *key = decode_key(key)?;
        }
    }
    Ok(deleted)
}

/// Parses an answer to GetObjectTagging: keys and values.
///
/// # Errors
/// A document that is malformed, cut off or another.
pub fn parse_tags(xml: &[u8]) -> Result<Vec<(String, String)>, XmlError> {
    let (mut tags, mut key, mut tag_value) = (Vec::new(), String::new(), String::new());
    read(xml, &["Tagging"], |path, text| {
        match path {
            "TagSet/Tag/Key" => key = text.into(),
            "TagSet/Tag/Value" => tag_value = text.into(),
            "TagSet/Tag" => tags.push((std::mem::take(&mut key), std::mem::take(&mut tag_value))),
            _ => {}
        }
        Ok(())
    })?;
    Ok(tags)
}

/// Walks a document with one of these roots: paths are those below it.
fn read(
    xml: &[u8],
    roots: &[&'static str],
    mut visit: impl FnMut(&str, &str) -> Result<(), XmlError>,
) -> Result<(), XmlError> {
    let mut found = String::new();
    walk(xml, |path, text| {
        match path.split_once('/') {
            Some((root, below)) if roots.contains(&root) => visit(below, text)?,
            Some(_) => {}
            None => found = path.into(),
        }
        Ok(())
    })?;
    expect_root(&found, roots.iter().find(|root| **root == found).unwrap_or(&roots[0]))
}

fn whole(part: ListedPart) -> Result<ListedPart, XmlError> {
    match (part.number, part.etag.is_empty()) {
        (0, _) => Err(XmlError::Missing { element: "PartNumber" }),
        (_, true) => Err(XmlError::Missing { element: "ETag" }),
        _ => Ok(part),
    }
}

fn part_number(text: &str) -> Option<u32> {
    u32::try_from(number(text.trim())?).ok().filter(|number| *number > 0)
}

/// An ETag as in the header; empty where there is none.
fn etag(text: &str) -> String {
    some(text).map_or(String::new(), |etag| quoted(&etag).into_owned())
}

fn date(element: &'static str, text: &str) -> Result<u64, XmlError> {
    value(element, text, parse_iso(text.trim()))
}

/// The algorithm that an element states a checksum of: `ChecksumCRC64NVME`, or OSS's `HashCrc64ecma`.
fn algorithm_of(element: &str) -> Option<Algorithm> {
    if element == "HashCrc64ecma" {
        return Some(Algorithm::Crc64Xz);
    }
    let name = element.strip_prefix("Checksum")?;
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.s3_name() == Some(name))
}

/// A part's own checksum; `None` for one that is of another kind, or none.
fn sum(element: &str, text: &str) -> Option<(Algorithm, u64)> {
    let algorithm = algorithm_of(element)?;
    Some((algorithm, algorithm.decode(text.trim())?))
}

#[cfg(test)]
#[path = "upload_answers_tests.rs"]
mod tests;
