//! The refusals that `--error` can ask for.

use std::fmt;
use std::str::FromStr;

use hyper::StatusCode;

/// A refusal by its code, as S3 and OSS write it, or by a bare status, as a proxy before them answers:
/// without a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode {
    pub(super) status: StatusCode,
    pub(super) code: Option<&'static str>,
}

/// Codes with their statuses; a bare status that has one here means the first of them.
const CODES: [(&str, u16); 20] = [
    ("InternalError", 500),
    ("SlowDown", 503),
    ("ServiceUnavailable", 503),
    ("AccessDenied", 403),
    ("NoSuchKey", 404),
    ("NoSuchBucket", 404),
    ("InvalidAccessKeyId", 403),
    ("SignatureDoesNotMatch", 403),
    ("RequestTimeTooSkewed", 403),
    ("InvalidObjectState", 403),
    ("RequestTimeout", 400),
    ("ExpiredToken", 400),
    ("InvalidRequest", 400),
    ("OperationAborted", 409),
    ("PreconditionFailed", 412),
    ("InvalidRange", 416),
    ("TooManyRequests", 429),
    ("NoSuchUpload", 404),
    ("QuotaExceeded", 403),
    ("XMinioStorageFull", 507),
];

impl ErrorCode {
    /// A code of the table: `InternalError`, `SlowDown`, …
    pub(super) fn named(code: &str) -> Option<ErrorCode> {
        let (code, status) = CODES.iter().find(|(name, _)| name.eq_ignore_ascii_case(code))?;
        Some(ErrorCode { status: StatusCode::from_u16(*status).ok()?, code: Some(code) })
    }
}

/// Each number has its code; one without is answered bare.
fn numbered(text: &str) -> Result<ErrorCode, String> {
    let status = text.parse().ok().and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.filter(|status| status.is_client_error() || status.is_server_error());
    let status =
        status.ok_or_else(|| format!("{text} is no status of an error: write one from 400 to 599"))?;
    let known = CODES.iter().find(|(_, number)| *number == status.as_u16());
    Ok(ErrorCode { status, code: known.map(|(code, _)| *code) })
}

impl FromStr for ErrorCode {
    type Err = String;

    /// A code, in letters of either case, or a number from 400 to 599. The error names the codes that are
    /// meant perhaps.
    fn from_str(text: &str) -> Result<ErrorCode, String> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return numbered(text);
        }
        ErrorCode::named(text).ok_or_else(|| {
            let near: Vec<&str> = nearest(text).into_iter().take(3).collect();
            format!("there is no code '{text}': write {} or a status as 502", near.join(", "))
        })
    }
}

/// All codes, those first that share most pairs of letters with the argument.
fn nearest(typed: &str) -> Vec<&'static str> {
    let pairs = |text: &str| {
        text.to_ascii_lowercase().into_bytes().windows(2).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let typed = pairs(typed);
    let mut codes = CODES.map(|(code, _)| code).to_vec();
    // Two shared pairs of letters weigh up to a letter too many or too few.
    codes.sort_by_key(|code| {
        let pairs = pairs(code);
        let shared = pairs.iter().filter(|pair| typed.contains(pair)).count() as i64;
        pairs.len().abs_diff(typed.len()) as i64 - 2 * shared
    });
    codes
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => out.write_str(code),
            None => write!(out, "{}", self.status.as_u16()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_statuses_are_read() {
        for (text, code, status) in [
            ("SlowDown", Some("SlowDown"), 503),
            ("slowdown", Some("SlowDown"), 503),
            ("500", Some("InternalError"), 500),
            ("503", Some("SlowDown"), 503),
            ("502", None, 502),
            ("429", Some("TooManyRequests"), 429),
        ] {
            let read: ErrorCode = text.parse().unwrap();
            assert_eq!((read.code, read.status.as_u16()), (code, status), "{text}");
            assert_eq!(read.to_string().parse::<ErrorCode>().unwrap(), read, "{text}");
        }
        for (text, said) in [
            ("200", "from 400 to 599"),
            ("4000", "from 400 to 599"),
            ("5x", "from 400 to 599"),
            ("SlowDwn", "write SlowDown"),
            ("Slow", "write SlowDown"),
            ("Timeout", "write RequestTimeout"),
            ("AccesDenied", "write AccessDenied"),
            ("", "write "),
        ] {
            let refused = text.parse::<ErrorCode>().unwrap_err();
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }

    #[test]
    fn s3s_agrees_on_the_statuses() {
        for (code, status) in CODES {
            let theirs = s3s::S3ErrorCode::from_bytes(code.as_bytes()).unwrap().status_code();
            assert!(theirs.is_none_or(|theirs| theirs.as_u16() == status), "{code}: {theirs:?}");
        }
    }
}
