//! An answer while it is made: a status, headers and a body.

use flatout_wire::checksum::Algorithm;
use flatout_wire::time::format_http;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use s3s::{Body, HttpResponse};

use super::xml::XmlDocument;
use crate::object::{Object, ObjectKind};
use crate::version::Version;
use std::time::SystemTime;

/// The content type of objects that were uploaded without one.
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// Query parameters of a GET that override stored headers: parameter, header.
const OVERRIDES: [(&str, &str); 6] = [
    ("response-content-type", "content-type"),
    ("response-content-encoding", "content-encoding"),
    ("response-content-disposition", "content-disposition"),
    ("response-content-language", "content-language"),
    ("response-cache-control", "cache-control"),
    ("response-expires", "expires"),
];

/// Storage class as OSS names it; S3's own names are of objects that were written in its dialect.
pub(super) fn storage_class(metadata: Option<&str>) -> &'static str {
    if metadata.is_some() { "IA" } else { "Standard" }
}

pub(super) struct OssResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

impl OssResponse {
    pub(super) fn new(status: StatusCode) -> OssResponse {
        OssResponse { status, headers: HeaderMap::new(), body: Body::empty() }
    }

    pub(super) fn ok() -> OssResponse {
        OssResponse::new(StatusCode::OK)
    }

    pub(super) fn no_content() -> OssResponse {
        OssResponse::new(StatusCode::NO_CONTENT)
    }

    pub(super) fn xml(document: XmlDocument) -> OssResponse {
        OssResponse { body: Body::from(document.finish()), ..OssResponse::ok() }
            .with("content-type", "application/xml")
    }

    pub(super) fn body(mut self, body: Body) -> OssResponse {
        self.body = body;
        self
    }

    /// With one more header; a value that HTTP cannot carry is left out.
    pub(super) fn with(mut self, name: &str, value: impl AsRef<str>) -> OssResponse {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_ref().as_bytes()))
        {
            self.headers.insert(name, value);
        }
        self
    }

    pub(super) fn with_etag(self, etag: &str) -> OssResponse {
        self.with("etag", format!("\"{etag}\""))
    }

    /// The MD5 of the bytes that were received or are sent, where it is the ETag. OSS states it of objects
    /// and parts that came in one piece.
    pub(super) fn with_md5(self, etag: &str) -> OssResponse {
        match Version::md5_of(etag) {
            Some(md5) => self.with("content-md5", base64_simd::STANDARD.encode_to_string(md5)),
            None => self,
        }
    }

    /// The CRC-64/XZ of a whole object or part, as OSS states it; nothing where it is not known.
    pub(super) fn with_crc(self, crc64xz: Option<u64>) -> OssResponse {
        match crc64xz {
            Some(crc) => self.with("x-oss-hash-crc64ecma", Algorithm::Crc64Xz.encode(crc)),
            None => self,
        }
    }

    /// Headers that every response about an object has.
    pub(super) fn about(self, object: &Object) -> OssResponse {
        self.with_etag(&object.etag)
            .with_crc(object.known_crcs.crcs().map(|crcs| crcs.xz))
            .with("last-modified", format_http(seconds(object.modified)))
    }

    /// The headers of [`OssResponse::about`], and the metadata of its upload.
    pub(super) fn describing(self, object: &Object, wish: impl Fn(&str) -> Option<String>) -> OssResponse {
        let metadata = &object.metadata;
        let mut response = self
            .about(object)
            .with("accept-ranges", "bytes")
            .with("x-oss-object-type", metadata.kind.name())
            .with("x-oss-storage-class", storage_class(metadata.storage_class.as_deref()))
            .with("content-type", metadata.content_type.as_deref().unwrap_or(DEFAULT_CONTENT_TYPE));
        for (name, value) in [
            ("content-encoding", &metadata.content_encoding),
            ("content-disposition", &metadata.content_disposition),
            ("content-language", &metadata.content_language),
            ("cache-control", &metadata.cache_control),
            ("expires", &metadata.expires),
        ] {
            response = value.iter().fold(response, |response, value| response.with(name, value));
        }
        for (name, value) in &metadata.user_metadata {
            response = response.with(&format!("x-oss-meta-{name}"), value);
        }
        if !metadata.tags.is_empty() {
            response = response.with("x-oss-tagging-count", metadata.tags.len().to_string());
        }
        if metadata.kind == ObjectKind::Appendable {
            response = response.with("x-oss-next-append-position", object.size.to_string());
        }
        for (parameter, header) in OVERRIDES {
            response = wish(parameter).iter().fold(response, |response, value| response.with(header, value));
        }
        response
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
