//! Requests that write, and their faults: what the origin does with their bodies, and how it answers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hyper::Method;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;

use super::ErrorCode;
use crate::oss::RequestPath;

/// A step of writing an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStep {
    /// The whole object in one request.
    Put,
    /// CreateMultipartUpload.
    Create,
    /// UploadPart.
    Part,
    /// CompleteMultipartUpload.
    Complete,
    /// AbortMultipartUpload.
    Abort,
}

impl WriteStep {
    const ALL: [WriteStep; 5] =
        [WriteStep::Put, WriteStep::Create, WriteStep::Part, WriteStep::Complete, WriteStep::Abort];

    /// As flags and the log have it.
    pub fn name(self) -> &'static str {
        match self {
            WriteStep::Put => "put",
            WriteStep::Create => "create",
            WriteStep::Part => "part",
            WriteStep::Complete => "complete",
            WriteStep::Abort => "abort",
        }
    }
}

impl FromStr for WriteStep {
    type Err = String;

    fn from_str(text: &str) -> Result<WriteStep, String> {
        let known = WriteStep::ALL.into_iter().find(|step| step.name() == text);
        known.ok_or_else(|| format!("there is no step '{text}': write put, create, part, complete or abort"))
    }
}

/// A fault of a request that writes an object. Where a step can be named, no step means every one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// Somewhere in the body the origin takes nothing for this time; then the rest.
    Stall(Duration),
    /// Somewhere in the body the connection is reset.
    Reset,
    /// The body is taken at this rate, in bytes a second.
    Slow(u64),
    /// One bit of the body arrives wrong.
    Flip,
    /// The request is refused once its body was read; nothing is done.
    Error(ErrorCode, Option<WriteStep>),
    /// A request with a body is refused before its body was read.
    EarlyError(ErrorCode),
    /// The request is carried out, and the connection is reset in place of the answer.
    Lost(Option<WriteStep>),
    /// The answer to CompleteMultipartUpload is lost, and a repetition gets NoSuchUpload.
    Forgotten,
    /// A completion is answered with status 200 and a refusal in the body; nothing is done.
    HiddenError(ErrorCode),
}

impl WriteFault {
    /// As flags and the log have it.
    pub fn name(self) -> &'static str {
        match self {
            WriteFault::Stall(_) => "put-stall",
            WriteFault::Reset => "put-reset",
            WriteFault::Slow(_) => "put-slow",
            WriteFault::Flip => "put-flip",
            WriteFault::Error(..) => "put-error",
            WriteFault::EarlyError(_) => "put-early-error",
            WriteFault::Lost(_) => "put-lost",
            WriteFault::Forgotten => "put-forgotten",
            WriteFault::HiddenError(_) => "put-hidden-error",
        }
    }

    pub(super) fn fits(self, request: &WriteRequest) -> bool {
        match self {
            WriteFault::Error(_, step) | WriteFault::Lost(step) => {
                step.is_none_or(|step| step == request.step)
            }
            WriteFault::Forgotten | WriteFault::HiddenError(_) => request.step == WriteStep::Complete,
            WriteFault::Stall(_)
            | WriteFault::Reset
            | WriteFault::Slow(_)
            | WriteFault::Flip
            | WriteFault::EarlyError(_) => request.body_bytes > 0,
        }
    }
}

impl fmt::Display for WriteFault {
    /// What stands behind the chance, with its colon.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteFault::Stall(time) => write!(out, ":{time:?}"),
            WriteFault::Slow(rate) => write!(out, ":{rate}B/s"),
            WriteFault::Error(code, None) | WriteFault::EarlyError(code) | WriteFault::HiddenError(code) => {
                write!(out, ":{code}")
            }
            WriteFault::Error(code, Some(step)) => write!(out, ":{code}@{}", step.name()),
            WriteFault::Lost(Some(step)) => write!(out, ":{}", step.name()),
            WriteFault::Lost(None) | WriteFault::Reset | WriteFault::Flip | WriteFault::Forgotten => Ok(()),
        }
    }
}

/// A request that writes an object, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteRequest {
    pub step: WriteStep,
    pub part: Option<u64>,
    /// Of the object or part; a list of parts is none.
    pub body_bytes: u64,
}

impl WriteRequest {
    /// None of a request that does not write, and of a copy.
    pub(super) fn of(head: &Parts) -> Option<WriteRequest> {
        let RequestPath { key, plain, .. } = RequestPath::of(head);
        let is_copy =
            ["x-amz-copy-source", "x-oss-copy-source"].iter().any(|name| head.headers.contains_key(*name));
        if key.is_empty() || is_copy {
            return None;
        }
        let pairs = || head.uri.query().unwrap_or_default().split('&');
        let value = |name: &str| pairs().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let part: Option<u64> = value("partNumber").and_then(|number| number.parse().ok());
        let of_upload = value("uploadId").is_some();
        let begins = pairs().any(|pair| pair == "uploads" || pair == "uploads=");
        let step = match (&head.method, of_upload, part) {
            (&Method::PUT, false, None) if plain => WriteStep::Put,
            (&Method::PUT, true, Some(_)) => WriteStep::Part,
            (&Method::POST, false, None) if begins => WriteStep::Create,
            (&Method::POST, true, None) => WriteStep::Complete,
            (&Method::DELETE, true, None) => WriteStep::Abort,
            _ => return None,
        };
        let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let is_content = matches!(step, WriteStep::Put | WriteStep::Part);
        Some(WriteRequest { step, part, body_bytes: length.filter(|_| is_content).unwrap_or(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_by_method_and_query() {
        let check = |method: &str, target: &str, expected: Option<(WriteStep, Option<u64>)>| {
            let request = hyper::Request::builder().method(method).uri(target).header("host", "127.0.0.1");
            let head = request.header("content-length", "7").body(()).unwrap().into_parts().0;
            let found = WriteRequest::of(&head);
            assert_eq!(found.map(|found| (found.step, found.part)), expected, "{method} {target}");
            let content = matches!(expected, Some((WriteStep::Put | WriteStep::Part, _)));
            assert!(found.is_none_or(|found| found.body_bytes == if content { 7 } else { 0 }));
        };
        check("PUT", "/b/k", Some((WriteStep::Put, None)));
        check("PUT", "/b/k?x-id=PutObject", Some((WriteStep::Put, None)));
        check("POST", "/b/k?uploads", Some((WriteStep::Create, None)));
        check("POST", "/b/k?uploads=", Some((WriteStep::Create, None)));
        check("PUT", "/b/k?partNumber=3&uploadId=x", Some((WriteStep::Part, Some(3))));
        check("POST", "/b/k?uploadId=x", Some((WriteStep::Complete, None)));
        check("DELETE", "/b/k?uploadId=x", Some((WriteStep::Abort, None)));
        for (method, target) in [
            ("PUT", "/b"),
            ("PUT", "/b/k?tagging"),
            ("DELETE", "/b/k"),
            ("GET", "/b/k?uploadId=x"),
            ("POST", "/b?delete"),
        ] {
            check(method, target, None);
        }
    }

    #[test]
    fn steps_are_named() {
        for step in WriteStep::ALL {
            assert_eq!(step.name().parse(), Ok(step));
        }
        assert!("x".parse::<WriteStep>().unwrap_err().contains("complete"));
    }
}
