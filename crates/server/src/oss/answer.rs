//! An answer while it is made: a status, headers and a body.

use flatout_wire::checksum::Algorithm;
use flatout_wire::time::format_http;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use s3s::{Body, HttpResponse};

use super::xml::Document;
use crate::object::{Kind, Object};
use crate::version::Version;
use std::time::SystemTime;

/// What OSS says of objects whose type nobody told.
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// What a GET may ask to be answered instead of what was kept: query parameter, header.
const OVERRIDES: [(&str, &str); 6] = [
    ("response-content-type", "content-type"),
    ("response-content-encoding", "content-encoding"),
    ("response-content-disposition", "content-disposition"),
    ("response-content-language", "content-language"),
    ("response-cache-control", "cache-control"),
    ("response-expires", "expires"),
];

/// Storage class as OSS names it; S3's own names are of objects that were written in its dialect.
pub(super) fn storage_class(kept: Option<&str>) -> &'static str {
    if kept.is_some() { "IA" } else { "Standard" }
}

pub(super) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

impl Answer {
    pub(super) fn new(status: StatusCode) -> Answer {
        Answer { status, headers: HeaderMap::new(), body: Body::empty() }
    }

    pub(super) fn ok() -> Answer {
        Answer::new(StatusCode::OK)
    }

    pub(super) fn no_content() -> Answer {
        Answer::new(StatusCode::NO_CONTENT)
    }

    pub(super) fn xml(document: Document) -> Answer {
        Answer { body: Body::from(document.finish()), ..Answer::ok() }.with("content-type", "application/xml")
    }

    pub(super) fn body(mut self, body: Body) -> Answer {
        self.body = body;
        self
    }

    /// With one more header; a value that HTTP cannot carry is left out.
    pub(super) fn with(mut self, name: &str, value: impl AsRef<str>) -> Answer {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_ref().as_bytes()))
        {
            self.headers.insert(name, value);
        }
        self
    }

    pub(super) fn with_etag(self, etag: &str) -> Answer {
        self.with("etag", format!("\"{etag}\""))
    }

    /// The MD5 of what came or is sent, where the ETag is that. OSS states it of objects and parts that came in one piece.
    pub(super) fn with_md5(self, etag: &str) -> Answer {
        match Version::md5_of(etag) {
            Some(md5) => self.with("content-md5", base64_simd::STANDARD.encode_to_string(md5)),
            None => self,
        }
    }

    /// The CRC-64/XZ of a whole object or part, as OSS states it; nothing where it is not known.
    pub(super) fn with_crc(self, crc64xz: Option<u64>) -> Answer {
        match crc64xz {
            Some(crc) => self.with("x-oss-hash-crc64ecma", Algorithm::Crc64Xz.encode(crc)),
            None => self,
        }
    }

    /// What every answer about an object says of it.
    pub(super) fn about(self, object: &Object) -> Answer {
        self.with_etag(&object.etag)
            .with_crc(object.known.crcs().map(|crcs| crcs.xz))
            .with("last-modified", format_http(seconds(object.modified)))
    }

    /// All of [`Answer::about`], and what its upload said of it.
    pub(super) fn describing(self, object: &Object, wish: impl Fn(&str) -> Option<String>) -> Answer {
        let kept = &object.kept;
        let mut answer = self
            .about(object)
            .with("accept-ranges", "bytes")
            .with("x-oss-object-type", kept.kind.name())
            .with("x-oss-storage-class", storage_class(kept.storage_class.as_deref()))
            .with("content-type", kept.content_type.as_deref().unwrap_or(DEFAULT_CONTENT_TYPE));
        for (name, value) in [
            ("content-encoding", &kept.content_encoding),
            ("content-disposition", &kept.content_disposition),
            ("content-language", &kept.content_language),
            ("cache-control", &kept.cache_control),
            ("expires", &kept.expires),
        ] {
            answer = value.iter().fold(answer, |answer, value| answer.with(name, value));
        }
        for (name, value) in &kept.metadata {
            answer = answer.with(&format!("x-oss-meta-{name}"), value);
        }
        if !kept.tags.is_empty() {
            answer = answer.with("x-oss-tagging-count", kept.tags.len().to_string());
        }
        if kept.kind == Kind::Appendable {
            answer = answer.with("x-oss-next-append-position", object.size.to_string());
        }
        for (parameter, header) in OVERRIDES {
            answer = wish(parameter).iter().fold(answer, |answer, value| answer.with(header, value));
        }
        answer
    }

    pub(super) fn into_response(self) -> HttpResponse {
        let mut response = HttpResponse::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// Unix seconds, as HTTP and XML write them.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
