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
    /// Those in headers whose names start with `prefix`, which is nothing for a read. What is no ETag and no
    /// date is ignored, as RFC 9110 wants it.
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

    /// `PreconditionFailed` unless they hold for the source of a copy, as S3 has it.
    pub(crate) fn check_source(self, source: &Object) -> S3Result<()> {
        self.check(source).map_err(|_| precondition_failed())
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

/// The condition on the current object of a key before a write replaces or a delete removes it.
#[derive(Clone, Default)]
pub(crate) struct Precondition {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
    pub if_modified_at: Option<Timestamp>,
    pub if_size: Option<u64>,
    /// OSS's own, `x-oss-forbid-overwrite`.
    pub if_absent: bool,
}

impl Precondition {
    pub(crate) fn is_none(&self) -> bool {
        self.if_match.is_none()
            && self.if_none_match.is_none()
            && self.if_modified_at.is_none()
            && self.if_size.is_none()
            && !self.if_absent
    }

    /// `PreconditionFailed` unless it holds for the object that is replaced; `NoSuchKey` when a version was
    /// named and there is none.
    pub(crate) fn check_write(&self, found: Option<&Object>) -> S3Result<()> {
        let Some(object) = found else {
            return match &self.if_match {
                Some(_) => {
                    Err(s3_error!(NoSuchKey, "there is no object of this key, and If-Match names a version"))
                }
                None => Ok(()),
            };
        };
        if self.if_absent {
            let code =
                S3ErrorCode::from_bytes(b"FileAlreadyExists").unwrap_or(S3ErrorCode::PreconditionFailed);
            let why = "the object is there, and x-oss-forbid-overwrite was sent";
            let mut error = S3Error::with_message(code, why.to_owned());
            error.set_status_code(StatusCode::CONFLICT);
            return Err(error);
        }
        self.check(object)
    }

    /// Checks the condition of a delete. A key that is absent counts as removed, whatever the condition, as
    /// in S3.
    pub(crate) fn check_delete(&self, found: Option<&Object>) -> S3Result<()> {
        found.map_or(Ok(()), |object| self.check(object))
    }

    fn check(&self, object: &Object) -> S3Result<()> {
        let modified = Timestamp::from(whole_seconds(object.modified));
        let holds = self.if_match.as_ref().is_none_or(|condition| matches(condition, &object.etag))
            && self.if_none_match.as_ref().is_none_or(|condition| !matches(condition, &object.etag))
            && self.if_modified_at.as_ref().is_none_or(|at| *at == modified)
            && self.if_size.is_none_or(|bytes| bytes == object.size);
        if holds { Ok(()) } else { Err(precondition_failed()) }
    }
}

/// Whether a condition holds for the version with this ETag. Ours are strong: no weak one is the same.
pub(crate) fn matches(condition: &ETagCondition, etag: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(asked) => asked.as_strong() == Some(etag),
    }
}

/// Compares for If-None-Match, weakly: an equivalent copy is not fetched again.
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
