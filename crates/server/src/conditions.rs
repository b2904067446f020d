//! The conditional headers of a request, and whether they hold for an object.

use std::time::{Duration, SystemTime};

use flatout_wire::time::parse_http;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, StatusCode};
use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use crate::object::Object;

/// The conditions of a read, checked in the order of RFC 9110 §13.2.2.
#[derive(Default)]
pub(crate) struct Conditions {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// Those in headers whose names start with `prefix`, which is nothing for a read. What is no ETag and no date is
    /// ignored, as RFC 9110 wants it.
    pub(crate) fn of(headers: &HeaderMap, prefix: &str) -> Conditions {
        let value = |name: &str| headers.get(format!("{prefix}{name}"));
        let etag = |name| ETagCondition::parse_http_header(value(name)?.as_bytes()).ok();
        let date = |name| {
            let unix_s = parse_http(value(name)?.to_str().ok()?)?;
            Some(Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(unix_s)))
        };
        Conditions {
            if_match: etag("if-match"),
            if_none_match: etag("if-none-match"),
            if_modified_since: date("if-modified-since"),
            if_unmodified_since: date("if-unmodified-since"),
        }
    }

    /// `PreconditionFailed` or `NotModified` unless they hold.
    pub(crate) fn check(self, object: &Object) -> S3Result<()> {
        let modified = Timestamp::from(whole_seconds(object.modified));
        match (self.if_match, self.if_unmodified_since) {
            (Some(condition), _) if !matches(&condition, &object.etag) => return Err(precondition_failed()),
            (None, Some(since)) if modified > since => return Err(precondition_failed()),
            _ => {}
        }
        match (self.if_none_match, self.if_modified_since) {
            (Some(condition), _) if matches_weakly(&condition, &object.etag) => {
                Err(not_modified(&object.etag))
            }
            (None, Some(since)) if modified <= since => Err(not_modified(&object.etag)),
            _ => Ok(()),
        }
    }
}

/// Whether a condition holds for the version with this ETag. Ours are strong: no weak one is the same.
pub(crate) fn matches(condition: &ETagCondition, etag: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(asked) => asked.as_strong() == Some(etag),
    }
}

/// The same for If-None-Match, which compares weakly: a copy that is as good is not fetched again.
fn matches_weakly(condition: &ETagCondition, etag: &str) -> bool {
    condition.as_etag().is_none_or(|asked| asked.value() == etag)
}

pub(crate) fn precondition_failed() -> S3Error {
    s3_error!(PreconditionFailed, "the object is another version than the one that was asked for")
}

/// HTTP's dates have no fractions.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn not_modified(etag: &str) -> S3Error {
    let etag =
        HeaderValue::try_from(format!("\"{etag}\"")).expect("ETags are ASCII without control characters");
    let mut error = S3Error::new(S3ErrorCode::NotModified);
    error.set_status_code(StatusCode::NOT_MODIFIED);
    error.set_headers(HeaderMap::from_iter([(hyper::header::ETAG, etag)]));
    error
}
