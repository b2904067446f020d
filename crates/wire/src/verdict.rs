//! Verdicts: what an answer means for the one who asked, from its status and the code in its XML body.

use std::borrow::Cow;
use std::fmt;

use crate::oss::named_endpoint;
use crate::s3::region_in_host;
use crate::words::excerpt;
use crate::xml;

/// The longest message kept of an origin.
const LONGEST_MESSAGE: usize = 500;

/// What to do about an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    /// A passing fault of this one exchange: ask again soon.
    Again(Refusal),
    /// Throttled: ask again, but everybody slower.
    Later(Refusal),
    /// Asking again would bring the same.
    Refused(Refusal),
}

/// Why an origin did not do what was asked.
///
/// A HEAD has no body: its refusal is made from the status, and the engine fills in `request_id`, `region`
/// and `ec` from the head, where they stand too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// S3's code (`NoSuchKey`), or the nearest to it for a status without one.
    pub code: String,
    /// The code is the nearest to the status: the origin named none.
    pub code_is_ours: bool,
    /// For people: control characters are gone, and it is at most 500 characters long.
    pub message: String,
    pub request_id: Option<String>,
    /// The region where the bucket is, if the origin says so.
    pub region: Option<String>,
    /// The host through which the bucket is reached, if the origin says so.
    pub endpoint: Option<String>,
    /// OSS's number of the exact cause.
    pub ec: Option<String>,
}

/// What a refusal is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    NotFound,
    NoSuchBucket,
    AccessDenied,
    /// The key is unknown or the signature is wrong.
    BadCredentials,
    /// The token, or the presigned URL, was good once.
    ExpiredCredentials,
    ClockSkew,
    /// The object is no longer the version asked for; of a write, also: it is there, and should not be.
    Changed,
    /// No byte of the range exists.
    BadRange,
    /// The bucket lies elsewhere.
    WrongRegion {
        region: Option<String>,
    },
    /// The bucket lies elsewhere, and this is the endpoint to use.
    WrongEndpoint {
        endpoint: String,
    },
    /// The bucket belongs into the host's name, not into the path.
    WrongAddressing,
    /// In cold storage: to be restored before it is read.
    Archived,
    /// The URL leads elsewhere.
    Redirect,
    /// The upload was completed or aborted, or the origin has tidied it up.
    UploadGone,
    /// The object or part is larger than the origin takes.
    TooLarge,
    /// A part that is not the last is smaller than the origin takes.
    TooSmall,
    /// The parts that the end of an upload names are not those that the origin has.
    BadParts,
    /// The bytes that arrived have another digest than the one stated.
    Mismatch,
    /// The disk of the origin is full, or a quota is used up.
    Full,
    /// The object or bucket is there already.
    Exists,
    /// The bucket is there already, and belongs to whoever asked for it.
    ExistsAndIsOurs,
    /// The bucket still holds objects, or unfinished uploads.
    NotEmpty,
    /// The key is too long, or has characters that the origin does not take.
    BadKey,
    /// The origin does not take an option of the object or bucket: metadata, tags, storage class, access list
    /// or encryption.
    BadOptions,
    /// The origin does not offer this at all.
    Unsupported,
    Other,
}

/// Judges what a deletion says of one key that it did not delete: its code and message.
pub fn of_key(code: &str, message: &str) -> Verdict {
    let refusal = Refusal { code: code.into(), message: message.into(), ..Refusal::default() };
    match retry_advice(code) {
        Some(RetryAdvice::Again) => Verdict::Again(refusal),
        Some(RetryAdvice::Later) => Verdict::Later(refusal),
        Some(RetryAdvice::None) | None => Verdict::Refused(refusal),
    }
}

/// Judges an answer. `body` is that of a control call or of a refusal; pass `&[]` for the payload of an
/// object, which could itself be an `<Error>` document.
pub fn of(status: u16, body: &[u8]) -> Verdict {
    let error = parse_error(status, body);
    if (200..300).contains(&status) && error.is_none() {
        return Verdict::Done;
    }
    let refusal = error.unwrap_or_else(|| synthesised(status));
    match (retry_advice(&refusal.code), status) {
        (Some(RetryAdvice::Again), _) => Verdict::Again(refusal),
        (Some(RetryAdvice::Later), _) => Verdict::Later(refusal),
        (Some(RetryAdvice::None), _) => Verdict::Refused(refusal),
        (None, 429 | 503 | 509) => Verdict::Later(refusal),
        (None, 501 | 505 | 507) => Verdict::Refused(refusal),
        (None, 408 | 425 | 500..) => Verdict::Again(refusal),
        (None, _) => Verdict::Refused(refusal),
    }
}

impl Refusal {
    /// What the refusal is about: by its code, which is more exact, else by its status.
    pub fn reason(&self) -> Reason {
        match self.code.as_str() {
            "NoSuchKey" | "NoSuchVersion" | "NotFound" => Reason::NotFound,
            "NoSuchBucket" => Reason::NoSuchBucket,
            "AccessDenied" if self.message.contains("expired") => Reason::ExpiredCredentials,
            "AccessDenied" | "PermanentRedirect" | "TemporaryRedirect"
                if self.region.is_none() && self.endpoint.is_some() =>
            {
                Reason::WrongEndpoint { endpoint: self.endpoint.clone().unwrap_or_default() }
            }
            "AccessDenied" => Reason::AccessDenied,
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "InvalidToken"
            | "InvalidSecurity"
            | "InvalidSecurityToken"
            | "AccessKeyIdAndSecurityTokenNotMatch" => Reason::BadCredentials,
            "ExpiredToken" | "TokenRefreshRequired" | "RequestExpired" | "SecurityTokenExpired" => {
                Reason::ExpiredCredentials
            }
            "RequestTimeTooSkewed" => Reason::ClockSkew,
            "PreconditionFailed" | "PositionNotEqualToLength" => Reason::Changed,
            "InvalidRange" => Reason::BadRange,
            "AuthorizationHeaderMalformed" if self.region.is_none() => Reason::BadCredentials,
            "AuthorizationHeaderMalformed"
            | "AuthorizationQueryParametersError"
            | "PermanentRedirect"
            | "TemporaryRedirect"
            | "IllegalLocationConstraintException"
                if self.region.is_some() || self.is_redirect() =>
            {
                Reason::WrongRegion { region: self.region.clone() }
            }
            // What OSS says of a signature of version 4 for another region.
            "InvalidArgument" if self.message.contains("signing region") => {
                Reason::WrongRegion { region: None }
            }
            "SecondLevelDomainForbidden" => Reason::WrongAddressing,
            "InvalidObjectState" => Reason::Archived,
            code => reason_of_write(code).unwrap_or_else(|| self.reason_of_status()),
        }
    }

    fn reason_of_status(&self) -> Reason {
        match self.status {
            // S3 refuses a HEAD in the wrong region with 301 or 400, and names the right one in a header.
            301 | 302 | 303 | 307 | 308 | 400 if self.region.is_some() => {
                Reason::WrongRegion { region: self.region.clone() }
            }
            301 | 302 | 303 | 307 | 308 => Reason::Redirect,
            401 | 403 => Reason::AccessDenied,
            404 | 410 => Reason::NotFound,
            405 | 501 => Reason::Unsupported,
            412 => Reason::Changed,
            413 => Reason::TooLarge,
            416 => Reason::BadRange,
            507 => Reason::Full,
            _ => Reason::Other,
        }
    }

    fn is_redirect(&self) -> bool {
        (300..400).contains(&self.status)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.status)?;
        if !self.code_is_ours {
            write!(out, " {}", self.code)?;
        }
        if !self.message.is_empty() {
            write!(out, ": {}", self.message)?;
        }
        match (&self.ec, &self.request_id) {
            (Some(ec), Some(id)) => write!(out, " (EC {ec}, request {id})"),
            (Some(ec), None) => write!(out, " (EC {ec})"),
            (None, Some(id)) => write!(out, " (request {id})"),
            (None, None) => Ok(()),
        }
    }
}

/// What codes mean that only writes meet: of S3, OSS, MinIO, Ceph and RustFS.
fn reason_of_write(code: &str) -> Option<Reason> {
    Some(match code {
        "NoSuchUpload" => Reason::UploadGone,
        "EntityTooLarge" | "MaxMessageLengthExceeded" => Reason::TooLarge,
        "EntityTooSmall" => Reason::TooSmall,
        "InvalidPart" | "InvalidPartOrder" | "FilePartNotExist" | "FilePartStale" | "FilePartInterity" => {
            Reason::BadParts
        }
        "BadDigest" | "InvalidDigest" | "XAmzContentSHA256Mismatch" | "XAmzContentChecksumMismatch" => {
            Reason::Mismatch
        }
        "QuotaExceeded"
        | "InsufficientCapacity"
        | "InsufficientStorage"
        | "XMinioStorageFull"
        | "XMinioAdminBucketQuotaExceeded"
        | "XRustfsQuotaExceeded" => Reason::Full,
        "FileAlreadyExists" | "BucketAlreadyExists" => Reason::Exists,
        "BucketAlreadyOwnedByYou" => Reason::ExistsAndIsOurs,
        "BucketNotEmpty" => Reason::NotEmpty,
        "KeyTooLongError" | "KeyTooLong" | "InvalidObjectName" | "XMinioInvalidObjectName" => Reason::BadKey,
        "MetadataTooLarge"
        | "InvalidStorageClass"
        | "InvalidTag"
        | "InvalidEncryptionAlgorithmError"
        | "AccessControlListNotSupported"
        | "InvalidLocationConstraint" => Reason::BadOptions,
        "NotImplemented" | "MethodNotAllowed" => Reason::Unsupported,
        _ => return None,
    })
}

enum RetryAdvice {
    Again,
    Later,
    None,
}

/// What S3, MinIO and OSS mean by a code, whatever status it came with; `None` where the status decides.
fn retry_advice(code: &str) -> Option<RetryAdvice> {
    match code {
        // The last one of a body that came broken: another attempt may come whole.
        "InternalError"
        | "RequestTimeout"
        | "OperationAborted"
        | "ConditionalRequestConflict"
        | "IncompleteBody" => Some(RetryAdvice::Again),
        "SlowDown"
        | "SlowDownRead"
        | "SlowDownWrite"
        | "ServiceUnavailable"
        | "Throttling"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "RequestThrottled"
        | "TooManyRequests"
        | "BandwidthLimitExceeded"
        | "QpsLimitExceeded"
        | "TotalQpsLimitExceeded"
        | "MetaOperationQpsLimitExceeded"
        | "DownloadTrafficRateLimitExceeded"
        | "UploadTrafficRateLimitExceeded" => Some(RetryAdvice::Later),
        "NotImplemented" => Some(RetryAdvice::None),
        _ => None,
    }
}

/// The refusal in an `<Error>` document; `None` where the body is none, or is cut off before its code.
fn parse_error(status: u16, body: &[u8]) -> Option<Refusal> {
    if !looks_like_error(body) {
        return None;
    }
    let mut refusal = Refusal { status, ..Refusal::default() };
    // A body that ends in the middle has still told what stands before.
    let _ = xml::walk(body, |path, text| {
        match path {
            "Error/Code" => refusal.code = cleaned(text),
            "Error/Message" => refusal.message = cleaned(text),
            "Error/RequestId" => refusal.request_id = Some(cleaned(text)),
            "Error/Region" => refusal.region = Some(cleaned(text)),
            "Error/Endpoint" => refusal.endpoint = named_endpoint(text),
            "Error/EC" => refusal.ec = Some(cleaned(text)),
            _ => {}
        }
        Ok(())
    });
    if refusal.region.is_none() {
        refusal.region = refusal.endpoint.as_deref().and_then(region_in_host).map(str::to_owned);
    }
    (!refusal.code.is_empty()).then_some(refusal)
}

/// Whether the first element is `<Error`: a look at its first bytes, since most answers are none.
fn looks_like_error(body: &[u8]) -> bool {
    let mut rest = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    if rest.starts_with(b"<?") {
        let Some(end) = rest.windows(2).position(|pair| pair == b"?>") else { return false };
        rest = rest[end + 2..].trim_ascii_start();
    }
    rest.starts_with(b"<Error") && matches!(rest.get(6), Some(b'>' | b' ' | b'\r' | b'\n' | b'\t'))
}

fn synthesised(status: u16) -> Refusal {
    let (code, message): (Cow<'static, str>, &str) = match status {
        301 | 302 | 303 | 307 | 308 => ("Redirect".into(), ""),
        304 => ("NotModified".into(), "not modified"),
        400 => ("BadRequest".into(), "the origin does not understand the request"),
        401 => ("Unauthorized".into(), "the origin asks for credentials"),
        403 => ("AccessDenied".into(), ""),
        404 | 410 => ("NotFound".into(), ""),
        405 => ("MethodNotAllowed".into(), ""),
        411 => ("MissingContentLength".into(), ""),
        413 => ("EntityTooLarge".into(), ""),
        408 => ("RequestTimeout".into(), "the origin waited too long for the request"),
        412 => ("PreconditionFailed".into(), ""),
        416 => ("InvalidRange".into(), ""),
        429 => ("TooManyRequests".into(), "too many requests"),
        500 => ("InternalError".into(), ""),
        502 => ("BadGateway".into(), "a gateway got no answer from the origin"),
        503 => ("ServiceUnavailable".into(), "the origin is overloaded or down"),
        504 => ("GatewayTimeout".into(), "a gateway waited too long for the origin"),
        507 => ("InsufficientStorage".into(), ""),
        _ => (format!("Http{status}").into(), ""),
    };
    Refusal {
        status,
        code: code.into_owned(),
        code_is_ours: true,
        message: message.into(),
        ..Refusal::default()
    }
}

/// An origin's words, fit for a terminal.
pub(crate) fn cleaned(text: &str) -> String {
    excerpt(text.trim(), LONGEST_MESSAGE)
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
