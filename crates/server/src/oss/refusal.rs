//! Errors as OSS words them: an XML document, and for a HEAD, which has no body, the same in a header.

use std::borrow::Cow;

use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use s3s::{Body, HttpResponse, S3Error};

use super::request::OssRequest;
use super::xml::XmlDocument;

/// Errors that S3 and OSS name differently.
const OTHER_NAMES: [(&str, &str); 2] =
    [("BucketAlreadyOwnedByYou", "BucketAlreadyExists"), ("BadDigest", "InvalidDigest")];

/// OSS numbers the places where its errors arise; those that are known here, by code.
/// <https://help.aliyun.com/en/oss/user-guide/error-codes/>
const NUMBERS: [(&str, &str); 11] = [
    ("AccessDenied", "0003-00000001"),
    ("EntityTooSmall", "0042-00000213"),
    ("InvalidAccessKeyId", "0002-00000902"),
    ("InvalidPartOrder", "0042-00000209"),
    ("NoSuchBucket", "0015-00000101"),
    ("NoSuchKey", "0026-00000001"),
    ("NoSuchUpload", "0017-00000244"),
    ("ObjectNotAppendable", "0026-00000017"),
    ("PositionNotEqualToLength", "0026-00000016"),
    ("RequestTimeTooSkewed", "0002-00000504"),
    ("SignatureDoesNotMatch", "0002-00000040"),
];

#[derive(Debug)]
pub(super) struct Refusal {
    pub status: StatusCode,
    pub code: Cow<'static, str>,
    pub message: String,
    number: Option<&'static str>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(super) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Refusal {
        let status = StatusCode::from_u16(status).expect("ours are statuses");
        let (message, number, headers) = (message.into(), number(code), Vec::new());
        Refusal { status, code: code.into(), message, number, headers }
    }

    /// With another number than the one that its code has by itself.
    pub(super) fn numbered(self, number: &'static str) -> Refusal {
        Refusal { number: Some(number), ..self }
    }

    pub(super) fn with(mut self, name: &'static str, value: String) -> Refusal {
        let value = HeaderValue::try_from(value).expect("ASCII without control characters is a header value");
        self.headers.push((HeaderName::from_static(name), value));
        self
    }

    pub(super) fn into_response(self, head: &Parts, id: &str) -> HttpResponse {
        let host = head.headers.get("host").map(|host| String::from_utf8_lossy(host.as_bytes()));
        let mut document = XmlDocument::new("Error");
        document.leaf("Code", &self.code);
        document.leaf("Message", &self.message);
        document.leaf("RequestId", id);
        document.leaf("HostId", &host.unwrap_or_default());
        document.leaf_if("EC", self.number);
        let document = document.finish();
        let value = |text: &str| HeaderValue::try_from(text).expect("base64 and digits are header values");
        let mut headers = HeaderMap::from_iter(self.headers);
        self.number.iter().for_each(|number| drop(headers.insert("x-oss-ec", value(number))));
        let bodiless = head.method == Method::HEAD || self.status == StatusCode::NOT_MODIFIED;
        if head.method == Method::HEAD {
            headers.insert("x-oss-err", value(&base64_simd::STANDARD.encode_to_string(&document)));
        } else if !bodiless {
            headers.insert("content-type", HeaderValue::from_static("application/xml"));
        }
        let mut response = HttpResponse::new(if bodiless { Body::empty() } else { Body::from(document) });
        *response.status_mut() = self.status;
        *response.headers_mut() = headers;
        response
    }
}

/// An error of the storage, which has S3's codes.
impl From<S3Error> for Refusal {
    fn from(error: S3Error) -> Refusal {
        let status =
            error.status_code().or_else(|| error.code().status_code()).unwrap_or(StatusCode::BAD_REQUEST);
        let code = error.code().as_str();
        let code = OTHER_NAMES.iter().find(|(theirs, _)| *theirs == code).map_or(code, |(_, ours)| *ours);
        let headers = error.headers().into_iter().flatten();
        Refusal {
            status,
            code: code.to_owned().into(),
            message: error.message().unwrap_or_default().to_owned(),
            number: number(code),
            headers: headers.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }
}

fn number(code: &str) -> Option<&'static str> {
    NUMBERS.iter().find(|(other, _)| *other == code).map(|(_, number)| *number)
}

pub(super) fn not_implemented(request: &OssRequest) -> Refusal {
    let (method, what) = (&request.method, request.subresource().unwrap_or("this resource"));
    Refusal::new(501, "NotImplemented", format!("this development origin has no {method} of {what}"))
}
