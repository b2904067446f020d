//! Heads of answers: parsed from bytes, read for what a transfer needs, and framed as RFC 9112 §6.3 says.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use base64_simd::STANDARD as BASE64;

use crate::checksum::Algorithm;
pub use crate::checksum::{Checksum, Coverage};
use crate::range::ContentRange;
use crate::request::Method;
use crate::time::parse_http;
use crate::words::excerpt;
use crate::words::{bare, number};

/// A head longer than this is refused: the largest of S3 are a tenth of it.
pub const LONGEST_BYTES: usize = 64 << 10;

/// Characters of a value that an error shows.
const SHOWN: usize = 40;
/// Header lines that are parsed without an allocation; S3 sends about 15.
const USUAL_HEADERS: usize = 64;
/// As many as fit in [`LONGEST_BYTES`] at 16 bytes each.
const MOST_HEADERS: usize = 4096;

/// How the body behind a head ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// There is none, whatever `Content-Length` says: answers to HEAD, 1xx, 204, 304.
    None,
    /// After this many bytes.
    Length(u64),
    /// As [`crate::chunked::Chunked`] says.
    Chunked,
    /// When the origin closes the connection: a cut is not to be told from an end.
    UntilClose,
}

/// What an answer says before its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// The phrase behind the status; may be empty.
    pub reason: String,
    /// Whether the connection may carry another request once the body is read.
    pub keep_alive: bool,
    pub body: Body,
    pub content_range: Option<ContentRange>,
    /// There was a `Content-Range` that is none, or two that differ.
    pub bad_content_range: bool,
    /// As sent: with its quotes, and with `W/` where it is weak.
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    pub location: Option<String>,
    /// Seconds to wait; a date is turned into seconds by the answer's own `Date`.
    pub retry_after_s: Option<u64>,
    /// For how long OSS held the request back, since it asks for too much (`x-oss-qos-delay-time`).
    pub qos_delay_ms: Option<u64>,
    /// The origin's clock in Unix seconds.
    pub date: Option<u64>,
    pub content_type: Option<String>,
    /// Parts of the upload that made the object.
    pub parts_count: Option<u32>,
    pub checksums: Vec<Checksum>,
    pub request_id: Option<String>,
    /// OSS's number of the exact cause of a refusal (`0003-00001403`).
    pub ec: Option<String>,
    /// The error document of a refused HEAD, which has no body: OSS sends it along in `x-oss-err`.
    pub error_document: Option<Vec<u8>>,
    pub storage_class: Option<String>,
    /// Which of the object's versions this is, or was written, where the bucket keeps them.
    pub version_id: Option<String>,
    /// Which version of its source a copy has.
    pub copy_source_version_id: Option<String>,
    /// How an OSS object was made: `Normal`, `Multipart`, `Appendable`, `Symlink`.
    pub object_type: Option<String>,
    /// How long an appendable object of OSS is, to which the next append goes.
    pub next_append_position: Option<u64>,
    /// `x-amz-meta-*` and `x-oss-meta-*`: names without the prefix, in lower case.
    pub metadata: Vec<(String, String)>,
    /// The headers that describe the content beside its type, as the object was stored with them: by their
    /// names in lower case.
    pub content_headers: Vec<(&'static str, String)>,
    /// How many tags the object has; S3 says so only where there are some and the keys may read them.
    pub tags_count: Option<u32>,
    /// Where the bucket lies: S3 says it even in a refused HEAD.
    pub bucket_region: Option<String>,
    /// What `Content-Length` said, also where [`Head::body`] is `None`: of a HEAD it is the size of the
    /// object.
    pub content_length: Option<u64>,
}

/// Why a head cannot be trusted. The connection is of no further use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("the answer is no HTTP/1: {0}")]
    Syntax(&'static str),
    #[error("the answer's head is longer than 64 KiB")]
    TooLong,
    #[error("the answer has no usable Content-Length: '{0}'")]
    ContentLength(String),
    #[error("the answer has the transfer coding '{0}', which was not asked for")]
    TransferEncoding(String),
    #[error("the answer switches to another protocol, which was not asked for")]
    Switch,
}

impl HeadError {
    /// What anything else than HTTP/1 is called.
    pub const OTHER_VERSION: HeadError = HeadError::Syntax(OTHER_VERSION);
}

const OTHER_VERSION: &str = "another version, or no HTTP at all";

/// Parses the head at the start of `buf`, the answer to a `request`: the head and its length in bytes; `None`
/// while it is not whole. The answer does not depend on how the bytes arrived.
///
/// 1xx heads are returned like others, with [`Body::None`]: the final one follows.
///
/// # Errors
/// What is not HTTP/1.0 or 1.1, is too long, folds lines, switches to another protocol, or leaves the length
/// of its body in doubt.
pub fn parse(buf: &[u8], request: Method) -> Result<Option<(Head, usize)>, HeadError> {
    let window = &buf[..buf.len().min(LONGEST_BYTES)];
    let mut usual = [const { MaybeUninit::uninit() }; USUAL_HEADERS];
    let parsed = match parse_with(window, request, &mut usual) {
        Err(httparse::Error::TooManyHeaders) => {
            parse_with(window, request, &mut vec![MaybeUninit::uninit(); MOST_HEADERS])
        }
        parsed => parsed,
    };
    match parsed {
        Ok(Some(result)) => result.map(Some),
        Ok(None) if buf.len() > LONGEST_BYTES => Err(HeadError::TooLong),
        Ok(None) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(HeadError::TooLong),
        Err(error) => Err(HeadError::Syntax(syntax(error))),
    }
}

type Parsed = Result<Option<Result<(Head, usize), HeadError>>, httparse::Error>;

fn parse_with<'a>(
    buf: &'a [u8],
    request: Method,
    headers: &mut [MaybeUninit<httparse::Header<'a>>],
) -> Parsed {
    let mut response = httparse::Response::new(&mut []);
    let status =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, buf, headers)?;
    let httparse::Status::Complete(head_bytes) = status else { return Ok(None) };
    let mut reading = HeadReader::new(response.code.unwrap_or(0));
    reading.head.reason = response.reason.unwrap_or("").into();
    for header in response.headers.iter() {
        reading.take(header.name, header.value);
    }
    let is_http_11 = response.version == Some(1);
    Ok(Some(reading.finish(is_http_11, request).map(|head| (head, head_bytes))))
}

/// An ETag that `If-Match` may use and that names bytes: quoted and not weak. RFC 9110 §13.1.1 compares
/// strongly, so a weak one would never match.
pub fn strong(etag: &str) -> Option<&str> {
    (etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"')).then_some(etag)
}

/// An ETag as it should have been sent, where a server has left its quotes out: in listings some do, in
/// headers few.
pub fn quoted(etag: &str) -> Cow<'_, str> {
    match etag.starts_with('"') || etag.starts_with("W/") {
        true => etag.into(),
        false => format!("\"{etag}\"").into(),
    }
}

impl Head {
    /// How long the whole object is: as Content-Range says, or, of a whole answer, its length.
    pub fn object_bytes(&self) -> Option<u64> {
        match (&self.content_range, &self.body) {
            (Some(found), _) => found.total,
            (None, Body::Length(bytes)) if self.status == 200 => Some(*bytes),
            (None, Body::None) if self.status == 200 => Some(0),
            _ => None,
        }
    }

    /// Reads the headers of an answer that another HTTP library framed. `keep_alive` is true and `body` a
    /// guess from `Content-Length`: that library has both in hand.
    pub fn from_http<'a>(status: u16, headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Head {
        let mut reading = HeadReader::new(status);
        for (name, value) in headers {
            reading.take(name, value);
        }
        let mut head = reading.finish_fields();
        head.body = head.content_length.map_or(Body::UntilClose, Body::Length);
        head
    }

    /// The ETag if `If-Match` may use it: see [`strong`].
    pub fn strong_etag(&self) -> Option<&str> {
        strong(self.etag.as_deref()?)
    }

    fn empty(status: u16) -> Head {
        Head {
            status,
            reason: String::new(),
            keep_alive: true,
            body: Body::None,
            content_range: None,
            bad_content_range: false,
            etag: None,
            last_modified: None,
            location: None,
            retry_after_s: None,
            qos_delay_ms: None,
            date: None,
            content_type: None,
            parts_count: None,
            checksums: Vec::new(),
            request_id: None,
            ec: None,
            error_document: None,
            storage_class: None,
            version_id: None,
            copy_source_version_id: None,
            object_type: None,
            next_append_position: None,
            metadata: Vec::new(),
            content_headers: Vec::new(),
            tags_count: None,
            bucket_region: None,
            content_length: None,
        }
    }
}

/// A head while its lines are read: what must be seen whole before it means anything.
struct HeadReader {
    head: Head,
    bad_length: Option<String>,
    /// All `Transfer-Encoding` values, in lower case and joined; `None` where there is no such line.
    transfer_encoding: Option<String>,
    says_close: bool,
    says_keep_alive: bool,
    retry_after: Option<String>,
    is_composite: bool,
}

impl HeadReader {
    fn new(status: u16) -> HeadReader {
        HeadReader {
            head: Head::empty(status),
            bad_length: None,
            transfer_encoding: None,
            says_close: false,
            says_keep_alive: false,
            retry_after: None,
            is_composite: false,
        }
    }

    fn take(&mut self, name: &str, value: &[u8]) {
        let mut lower = [0; 64];
        let Some(lower) = lower.get_mut(..name.len()) else { return self.take_metadata(name, value) };
        lower.copy_from_slice(name.as_bytes());
        lower.make_ascii_lowercase();
        let text = String::from_utf8_lossy(value);
        let text = bare(&text);
        let head = &mut self.head;
        match &*lower {
            b"content-length" => self.take_length(text),
            b"transfer-encoding" => self.take_transfer_encoding(text),
            b"connection" => self.take_connection(text),
            b"content-range" => self.take_content_range(text),
            b"etag" => head.etag = some(text),
            b"last-modified" => head.last_modified = some(text),
            b"content-type" => head.content_type = some(text),
            b"location" => head.location = some(text),
            b"retry-after" => self.retry_after = some(text),
            b"date" => head.date = parse_http(text),
            b"x-amz-request-id" | b"x-oss-request-id" => head.request_id = some(text),
            b"x-amz-storage-class" | b"x-oss-storage-class" => head.storage_class = some(text),
            b"x-amz-version-id" | b"x-oss-version-id" => head.version_id = some(text),
            b"x-amz-copy-source-version-id" | b"x-oss-copy-source-version-id" => {
                head.copy_source_version_id = some(text)
            }
            b"x-oss-object-type" => head.object_type = some(text),
            b"x-oss-next-append-position" => head.next_append_position = number(text),
            b"x-oss-qos-delay-time" => head.qos_delay_ms = number(text),
            b"x-oss-ec" => head.ec = some(text),
            b"x-oss-err" => head.error_document = BASE64.decode_to_vec(text).ok(),
            b"x-amz-mp-parts-count" => head.parts_count = text.parse().ok(),
            b"x-amz-tagging-count" | b"x-oss-tagging-count" => head.tags_count = text.parse().ok(),
            b"cache-control" => head.content_headers.push(("cache-control", text.into())),
            b"content-disposition" => head.content_headers.push(("content-disposition", text.into())),
            b"content-encoding" => head.content_headers.push(("content-encoding", text.into())),
            b"content-language" => head.content_headers.push(("content-language", text.into())),
            b"expires" => head.content_headers.push(("expires", text.into())),
            b"x-amz-bucket-region" => head.bucket_region = some(text),
            b"x-amz-checksum-type" => self.is_composite = text.eq_ignore_ascii_case("COMPOSITE"),
            _ => self.take_checksum_or_metadata(name, value),
        }
    }

    /// Several equal lengths are one (RFC 9112 §6.3); anything else that is not one number leaves the end in
    /// doubt.
    fn take_length(&mut self, text: &str) {
        for item in text.split(',') {
            let length = number(bare(item));
            match (length, self.head.content_length) {
                (Some(length), None) => self.head.content_length = Some(length),
                (Some(length), Some(known)) if length == known => {}
                _ => self.bad_length = Some(excerpt(text, SHOWN)),
            }
        }
    }

    fn take_transfer_encoding(&mut self, text: &str) {
        let coding = self.transfer_encoding.get_or_insert_default();
        if !coding.is_empty() {
            coding.push(',');
        }
        coding.push_str(&text.to_ascii_lowercase());
    }

    fn take_connection(&mut self, text: &str) {
        for word in text.split(',').map(bare) {
            self.says_close |= word.eq_ignore_ascii_case("close");
            self.says_keep_alive |= word.eq_ignore_ascii_case("keep-alive");
        }
    }

    fn take_content_range(&mut self, text: &str) {
        let parsed = ContentRange::parse(text);
        let differs = self.head.content_range.is_some() && self.head.content_range != parsed;
        self.head.bad_content_range |= parsed.is_none() || differs;
        self.head.content_range = parsed;
    }

    fn take_checksum_or_metadata(&mut self, name: &str, value: &[u8]) {
        let stated = |algorithm: &Algorithm| {
            algorithm.header().is_some_and(|header| header.eq_ignore_ascii_case(name))
        };
        match Algorithm::ALL.into_iter().find(stated) {
            Some(algorithm) => self.head.checksums.extend(parse_checksum(algorithm, value)),
            None => self.take_metadata(name, value),
        }
    }

    fn take_metadata(&mut self, name: &str, value: &[u8]) {
        let lower = name.to_ascii_lowercase();
        let name = lower.strip_prefix("x-amz-meta-").or_else(|| lower.strip_prefix("x-oss-meta-"));
        if let Some(name) = name {
            let text = String::from_utf8_lossy(value);
            self.head.metadata.push((name.into(), bare(&text).into()));
        }
    }

    /// Frames the body. RFC 9112 §6.3, in its order.
    fn finish(mut self, is_http_11: bool, request: Method) -> Result<Head, HeadError> {
        let status = self.head.status;
        let bodiless = request == Method::Head || matches!(status, 100..=199 | 204 | 304);
        let coding = self.transfer_encoding.take();
        if status < 100 {
            return Err(HeadError::Syntax("a bad status"));
        }
        if status == 101 {
            return Err(HeadError::Switch);
        }
        let mut keep_alive =
            if is_http_11 { !self.says_close } else { self.says_keep_alive && !self.says_close };
        self.head.body = match coding.as_deref() {
            _ if bodiless => Body::None,
            None | Some("identity") => {
                // RFC 2616 called no coding that. To readers of today any coding beside a length is an
                // attack, and whoever stands between may be one: what comes behind this body is nobody's.
                keep_alive &= coding.is_none();
                match (self.bad_length.take(), self.head.content_length) {
                    (Some(bad), _) => return Err(HeadError::ContentLength(bad)),
                    (None, Some(length)) => Body::Length(length),
                    (None, None) => Body::UntilClose,
                }
            }
            Some("chunked") => {
                // Both at once is how answers are smuggled: the coding wins, the connection ends.
                keep_alive &= is_http_11 && self.head.content_length.is_none() && self.bad_length.is_none();
                self.head.content_length = None;
                Body::Chunked
            }
            Some(other) => return Err(HeadError::TransferEncoding(excerpt(other, SHOWN))),
        };
        let mut head = self.finish_fields();
        head.keep_alive = keep_alive && head.body != Body::UntilClose;
        Ok(head)
    }

    fn finish_fields(self) -> Head {
        let mut head = self.head;
        head.retry_after_s = self.retry_after.and_then(|text| seconds_to_wait(&text, head.date));
        if self.is_composite {
            let parts = head.parts_count.unwrap_or(0);
            let full = head.checksums.iter_mut().filter(|checksum| checksum.kind == Coverage::Full);
            full.for_each(|checksum| checksum.kind = Coverage::Composite { parts });
        }
        head
    }
}

/// `base64`, or `base64-N` for a composite of N parts; nothing where it is neither.
pub(crate) fn parse_checksum(algorithm: Algorithm, value: &[u8]) -> Option<Checksum> {
    let text = bare(std::str::from_utf8(value).ok()?);
    let (value, kind) = match text.split_once('-') {
        Some((value, parts)) => (value, Coverage::Composite { parts: parts.parse().ok()? }),
        None => (text, Coverage::Full),
    };
    Some(Checksum { algorithm, value: algorithm.decode(value)?, kind })
}

/// `Retry-After` is seconds or a date (RFC 9110 §10.2.3); there is no clock here but the origin's.
fn seconds_to_wait(text: &str, date: Option<u64>) -> Option<u64> {
    number(text).or_else(|| Some(parse_http(text)?.saturating_sub(date?)))
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.into())
}

fn syntax(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a bad header name, or a folded line",
        httparse::Error::HeaderValue => "a bad character in a header",
        httparse::Error::NewLine => "a bad line break",
        httparse::Error::Status => "a bad status",
        httparse::Error::Version => OTHER_VERSION,
        httparse::Error::Token => "a bad character",
        httparse::Error::TooManyHeaders => "too many headers",
    }
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
