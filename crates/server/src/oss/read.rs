//! GetObject, HeadObject, GetObjectMeta and the access list of an object.

use std::ops::Range;

use hyper::StatusCode;
use s3s::Body;

use super::bucket::access_list;
use super::refusal::Refusal;
use super::request::OssRequest;
use super::response::OssResponse;
use super::{At, OssDialect};
use crate::conditions::Conditions;
use crate::crcs::KnownCrcs;
use crate::object::Object;

impl OssDialect {
    pub(super) fn get(&self, request: &OssRequest, at: At<'_>) -> Result<OssResponse, Refusal> {
        let object = self.open(request, at)?;
        let range = request.header("range").map(|text| range(&text, object.size, is_standard(request)));
        let range = range.transpose()?.flatten();
        let response = match &range {
            Some(range) => {
                let last = range.end - 1;
                let content_range = format!("bytes {}-{last}/{}", range.start, object.size);
                OssResponse::new(StatusCode::PARTIAL_CONTENT).with("content-range", content_range)
            }
            None => OssResponse::ok(),
        };
        let response = if range.is_none() { response.with_md5(&object.etag) } else { response };
        let range = range.unwrap_or(0..object.size);
        Ok(response
            .describing(&object, |parameter| request.parameter(parameter).map(str::to_owned))
            .with("content-length", (range.end - range.start).to_string())
            .body(Body::http_body(object.body(range)?)))
    }

    pub(super) fn head(&self, request: &OssRequest, at: At<'_>) -> Result<OssResponse, Refusal> {
        let object = self.open(request, at)?;
        let length = object.size.to_string();
        Ok(OssResponse::ok()
            .describing(&object, |_| None)
            .with_md5(&object.etag)
            .with("content-length", length))
    }

    /// Fewer headers than HEAD: only those that a client needs to read the object.
    pub(super) fn object_meta(&self, request: &OssRequest, at: At<'_>) -> Result<OssResponse, Refusal> {
        let object = self.open(request, at)?;
        Ok(OssResponse::ok().about(&object).with("content-length", object.size.to_string()))
    }

    pub(super) fn object_acl(&self, (bucket, key): At<'_>) -> Result<OssResponse, Refusal> {
        self.storage.backend.open(bucket, key)?;
        Ok(access_list("default"))
    }

    fn open(&self, request: &OssRequest, (bucket, key): At<'_>) -> Result<Object, Refusal> {
        let mut object = self.storage.backend.open(bucket, key)?;
        Conditions::of(&request.headers, "").check(&object)?;
        // OSS states the CRC of the whole with every answer: a file put there by others is read for it once.
        object.known_crcs = KnownCrcs::Written(self.storage.crcs(&object).map_err(|error| {
            Refusal::new(500, "InternalError", format!("{bucket}/{key} cannot be read: {error}"))
        })?);
        Ok(object)
    }
}

/// Whether ranges are those of HTTP.
fn is_standard(request: &OssRequest) -> bool {
    request.header("x-oss-range-behavior").is_some_and(|behaviour| behaviour == "standard")
}

/// The bytes to answer with; None is the whole. What is no range of one piece is ignored in either behaviour.
/// OSS's own also ignores one that does not lie within the object; the standard one cuts it, and refuses it
/// when nothing is left.
pub(super) fn range(text: &str, size: u64, standard: bool) -> Result<Option<Range<u64>>, Refusal> {
    let Ok(range) = s3s::dto::Range::parse(text) else { return Ok(None) };
    let cut = range.check(size).ok().filter(|range| !range.is_empty());
    if standard {
        return cut.map(Some).ok_or_else(|| {
            let why = format!("no byte of the object, which has {size}, is in that range");
            Refusal::new(416, "InvalidRange", why).with("content-range", format!("bytes */{size}"))
        });
    }
    let within = match range {
        s3s::dto::Range::Int { last, .. } => last.is_none_or(|last| last < size),
        s3s::dto::Range::Suffix { length } => length <= size,
    };
    Ok(cut.filter(|_| within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_both_behaviours() {
        // Of 1000 bytes: the standard behaviour, OSS's own; None is the whole, Err refused.
        for (text, standard, own) in [
            ("bytes=0-9", Ok(Some(0..10)), Some(0..10)),
            ("bytes=500-", Ok(Some(500..1000)), Some(500..1000)),
            ("bytes=-7", Ok(Some(993..1000)), Some(993..1000)),
            ("bytes=999-999", Ok(Some(999..1000)), Some(999..1000)),
            ("bytes=500-1000", Ok(Some(500..1000)), None),
            ("bytes=-1001", Ok(Some(0..1000)), None),
            ("bytes=1000-", Err(()), None),
            ("bytes=1000-2000", Err(()), None),
            ("bytes=-0", Err(()), None),
            ("bytes=9-5", Ok(None), None),
            ("bytes=0-1,3-4", Ok(None), None),
            ("lines=0-1", Ok(None), None),
        ] {
            assert_eq!(range(text, 1000, true).map_err(drop), standard, "{text}");
            assert_eq!(range(text, 1000, false).map_err(drop), Ok(own), "{text}");
        }
        assert!(range("bytes=0-0", 0, true).is_err());
        assert_eq!(range("bytes=0-0", 0, false).map_err(drop), Ok(None));
    }
}
