//! GetObject, HeadObject, GetObjectMeta and the access list of an object.

use std::ops::Range;

use hyper::StatusCode;
use s3s::Body;

use super::answer::Answer;
use super::asked::Asked;
use super::bucket::access_list;
use super::refusal::Refusal;
use super::{At, Oss};
use crate::conditions::Conditions;
use crate::crcs::Known;
use crate::object::Object;

impl Oss {
    pub(super) fn get(&self, asked: &Asked, at: At<'_>) -> Result<Answer, Refusal> {
        let object = self.open(asked, at)?;
        let range = asked.header("range").map(|text| range(&text, object.size, is_standard(asked)));
        let range = range.transpose()?.flatten();
        let answer = match &range {
            Some(range) => {
                let last = range.end - 1;
                let content_range = format!("bytes {}-{last}/{}", range.start, object.size);
                Answer::new(StatusCode::PARTIAL_CONTENT).with("content-range", content_range)
            }
            None => Answer::ok(),
        };
        let answer = if range.is_none() { answer.with_md5(&object.etag) } else { answer };
        let range = range.unwrap_or(0..object.size);
        Ok(answer
            .describing(&object, |parameter| asked.parameter(parameter).map(str::to_owned))
            .with("content-length", (range.end - range.start).to_string())
            .body(Body::http_body(object.body(range))))
    }

    pub(super) fn head(&self, asked: &Asked, at: At<'_>) -> Result<Answer, Refusal> {
        let object = self.open(asked, at)?;
        let length = object.size.to_string();
        Ok(Answer::ok().describing(&object, |_| None).with_md5(&object.etag).with("content-length", length))
    }

    /// Less than a HEAD: what a client must know to read the object.
    pub(super) fn object_meta(&self, asked: &Asked, at: At<'_>) -> Result<Answer, Refusal> {
        let object = self.open(asked, at)?;
        Ok(Answer::ok().about(&object).with("content-length", object.size.to_string()))
    }

    pub(super) fn object_acl(&self, (bucket, key): At<'_>) -> Result<Answer, Refusal> {
        self.stock.shelf.open(bucket, key)?;
        Ok(access_list("default"))
    }

    fn open(&self, asked: &Asked, (bucket, key): At<'_>) -> Result<Object, Refusal> {
        let mut object = self.stock.shelf.open(bucket, key)?;
        Conditions::of(&asked.headers, "").check(&object)?;
        // OSS states the CRC of the whole with every answer: a file put there by others is read for it once.
        object.known = Known::Written(self.stock.crcs(&object).map_err(|error| {
            Refusal::new(500, "InternalError", format!("{bucket}/{key} cannot be read: {error}"))
        })?);
        Ok(object)
    }
}

/// Whether ranges are those of HTTP.
fn is_standard(asked: &Asked) -> bool {
    asked.header("x-oss-range-behavior").is_some_and(|behaviour| behaviour == "standard")
}

/// The bytes to answer with; None is the whole. What is no range of one piece is ignored in either behaviour. OSS's own
/// also ignores one that does not lie within the object; the standard one cuts it, and refuses it when nothing is left.
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
