//! The service before the dialects: chooses the dialect, adds request ids, and at an open origin removes S3's
//! signatures, which are not checked.

use std::borrow::Cow;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RANGE};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri};
use s3s::auth::{S3Auth, SecretKey};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::host::{S3Host, VirtualHost};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpRequest, HttpResponse, S3Error, S3ErrorCode, S3Result, StdError, s3_error};

use crate::aws_chunked::Unframed;
use crate::backend::BUCKET_RULE;
use crate::characters::with_references;
use crate::oss::{self, OssDialect, speaks_oss};
use crate::s3::{S3Dialect, dated, unsupported};
use crate::storage::Storage;

/// Query parameters of presigned URLs, Signature Version 4 and 2.
const SIGNATURE_PARAMETERS: [&str; 10] = [
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-signedheaders",
    "x-amz-signature",
    "x-amz-security-token",
    "awsaccesskeyid",
    "signature",
    "expires",
];

/// The service that hyper calls with each request. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Front {
    storage: Arc<Storage>,
    s3: S3Service,
    oss: Arc<OssDialect>,
    /// No keys: signed or not, everything is let in.
    open: bool,
    /// Seconds by which the clock is ahead.
    clock: i64,
    requests: Arc<AtomicU64>,
}

impl Front {
    /// `keys` are an access key and its secret key; without them the origin is open. `clock` is how many
    /// seconds the clock is ahead.
    pub(crate) fn new(storage: Storage, keys: Option<(String, String)>, clock: i64) -> Front {
        let storage = Arc::new(storage);
        let oss = Arc::new(OssDialect::new(storage.clone(), keys.clone(), clock));
        let open = keys.is_none();
        let mut builder = S3ServiceBuilder::new(S3Dialect { storage: storage.clone() });
        builder.set_host(Localhost);
        if let Some((access_key, secret_key)) = keys {
            builder.set_auth(S3Keys { access_key, secret_key: SecretKey::from(secret_key) });
        }
        if clock != 0 {
            // s3s would look at the machine's clock. That a URL has expired by that one it says all the same.
            let mut config = S3Config::default();
            config.presigned_url_max_skew_time_secs = u32::MAX;
            builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        }
        Front { storage, s3: builder.build(), oss, open, clock, requests: Arc::default() }
    }

    /// A refusal in the dialect that the request is in; a bare one where there is no code.
    pub(crate) fn refuse(
        &self,
        head: &Parts,
        status: StatusCode,
        code: Option<&'static str>,
        why: &str,
    ) -> HttpResponse {
        match code {
            Some(code) if speaks_oss(head) => self.oss.refuse(self.next_id(), head, status, code, why),
            Some(code) => with_id(refuse_s3(head, status, code, why), self.next_id()),
            None => bare(status),
        }
    }

    /// Bytes of an object, to be sent; None when it is not there, or has not as many.
    pub(crate) fn body(&self, bucket: &str, key: &str, range: Range<u64>) -> Option<Body> {
        let object = self.storage.backend.open(bucket, key).ok()?;
        let frames = if range.end <= object.size { object.body(range).ok() } else { None };
        frames.map(Body::http_body)
    }

    /// OSS has its own check of the time.
    fn refuse_for_time(&self, head: &Parts, to_oss: bool) -> Option<HttpResponse> {
        if self.clock == 0 || self.open || to_oss {
            return None;
        }
        let (code, why) = dated::check(head, oss::unix_s(self.clock)).err()?;
        Some(self.refuse(head, StatusCode::FORBIDDEN, Some(code), why))
    }

    fn next_id(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }
}

impl hyper::service::Service<hyper::Request<Incoming>> for Front {
    type Response = HttpResponse;
    type Error = StdError;
    type Future = Answering;

    fn call(&self, request: hyper::Request<Incoming>) -> Answering {
        self.answer(request.map(Body::from))
    }
}

/// An answer on its way.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<HttpResponse, StdError>> + Send>>;

impl Front {
    /// Answers a request, wherever its body comes from.
    pub(crate) fn answer(&self, request: hyper::Request<Body>) -> Answering {
        let id = self.next_id();
        let (head, mut body) = request.into_parts();
        let to_oss = speaks_oss(&head);
        if let Some(refused) = self.refuse_for_time(&head, to_oss) {
            return Box::pin(async { Ok(refused) });
        }
        if let Some((status, code, why)) = refusal_of(&head).filter(|_| !to_oss) {
            return Box::pin(async move {
                oss::drain(&mut body).await;
                Ok(with_id(refuse_s3(&head, status, code, &why), id))
            });
        }
        let request = hyper::Request::from_parts(head, body);
        if to_oss {
            let oss = self.oss.clone();
            return Box::pin(async move { Ok(oss.call(id, request).await) });
        }
        let request = if self.open { admit(request) } else { request };
        let of_attributes = request
            .uri()
            .query()
            .is_some_and(|query| query.split('&').any(|pair| pair.starts_with("attributes")));
        let s3 = self.s3.clone();
        Box::pin(async move {
            let response = with_bucket_rule(s3.call(request).await?);
            let response = if of_attributes { with_bare_etag(response) } else { response };
            Ok(with_id(in_characters(response), id))
        })
    }
}

/// Refuses requests of S3 for reasons that s3s does not check.
fn refusal_of(head: &Parts) -> Option<(StatusCode, &'static str, String)> {
    if let Some(why) = unsupported::refusal(head) {
        return Some((StatusCode::NOT_IMPLEMENTED, "NotImplemented", why));
    }
    let why = dated::check_expiry(head).err()?;
    Some((StatusCode::BAD_REQUEST, "AuthorizationQueryParametersError", why.to_owned()))
}

/// An answer of S3 with its number.
fn with_id(mut response: HttpResponse, id: u64) -> HttpResponse {
    let id = HeaderValue::try_from(format!("{id:016X}")).expect("hexadecimal digits are a header value");
    response.headers_mut().insert("x-amz-request-id", id);
    response
}

fn refuse_s3(head: &Parts, status: StatusCode, code: &str, why: &str) -> HttpResponse {
    let code = S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::InternalError);
    let mut error = S3Error::with_message(code, why.to_owned());
    error.set_status_code(status);
    match error.to_http_response() {
        // A HEAD's refusal is its status.
        Ok(response) if head.method == Method::HEAD => bare(response.status()),
        Ok(response) => in_characters(response),
        Err(_) => bare(status),
    }
}

fn bare(status: StatusCode) -> HttpResponse {
    let mut response = HttpResponse::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Adds the message that s3s leaves out when it refuses a bucket's name.
fn with_bucket_rule(response: HttpResponse) -> HttpResponse {
    const CODE: &str = "<Code>InvalidBucketName</Code>";
    if response.status() != StatusCode::BAD_REQUEST {
        return response;
    }
    response.map(|body| match body.bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
        Some(text) if text.contains(CODE) && !text.contains("<Message>") => {
            Body::from(text.replace(CODE, &format!("{CODE}<Message>{BUCKET_RULE}</Message>")))
        }
        _ => body,
    })
}

/// s3s writes the characters of a key as they are, and some of them are no XML, or another key to its reader.
/// An object's bytes come in a stream.
fn in_characters(response: HttpResponse) -> HttpResponse {
    let is_xml = |value: &HeaderValue| value.as_bytes().starts_with(b"application/xml");
    if !response.headers().get(CONTENT_TYPE).is_some_and(is_xml) {
        return response;
    }
    response.map(|body| {
        let bytes = body.bytes().unwrap_or_default();
        match std::str::from_utf8(&bytes).map(with_references) {
            Ok(Cow::Owned(text)) => Body::from(text),
            _ => body,
        }
    })
}

/// GetObjectAttributes is the one answer in which S3 writes an ETag without its quotes, and s3s with them.
fn with_bare_etag(response: HttpResponse) -> HttpResponse {
    response.map(|body| match body.bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
        Some(text) => Body::from(text.replace("<ETag>\"", "<ETag>").replace("\"</ETag>", "</ETag>")),
        None => body,
    })
}

/// Takes the signature off a request, from its headers, its query and its body.
fn admit(request: hyper::Request<Body>) -> HttpRequest {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(AUTHORIZATION);
    if let Some(uri) = without_signature(&parts.uri) {
        parts.uri = uri;
    }
    // RFC 9110 §14.2: a Range that is not understood is ignored. s3s refuses it.
    let range = parts.headers.get(RANGE).map(|range| range.to_str().unwrap_or_default());
    if range.is_some_and(|range| s3s::dto::Range::parse(range).is_err()) {
        parts.headers.remove(RANGE);
    }
    let streaming = parts
        .headers
        .get("x-amz-content-sha256")
        .is_some_and(|value| value.as_bytes().starts_with(b"STREAMING-"));
    if !streaming {
        return HttpRequest::from_parts(parts, body);
    }
    let bytes: Option<u64> =
        parts.headers.get("x-amz-decoded-content-length").and_then(|value| value.to_str().ok()?.parse().ok());
    // The length with the framing is of no more use.
    parts.headers.remove(CONTENT_LENGTH);
    if let Some(bytes) = bytes {
        parts.headers.insert(CONTENT_LENGTH, bytes.into());
    }
    let (body, trailers) = Unframed::new(body, bytes);
    parts.extensions.insert(trailers);
    HttpRequest::from_parts(parts, Body::http_body_unsync(body))
}

/// The URI without the parameters of a presigned URL; `None` when it has none.
fn without_signature(uri: &Uri) -> Option<Uri> {
    let query = uri.query()?;
    let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
    if !query.split('&').any(|pair| name(pair).ends_with("signature")) {
        return None;
    }
    let kept: Vec<&str> =
        query.split('&').filter(|pair| !SIGNATURE_PARAMETERS.contains(&name(pair).as_str())).collect();
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    format!("{}{query}", uri.path()).parse().ok()
}

/// `BUCKET.localhost:PORT` addresses a bucket as S3's virtual hosts do; every other host is path style.
struct Localhost;

impl S3Host for Localhost {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let host = VirtualHost::new(host);
        Ok(match name.strip_suffix(".localhost") {
            Some(bucket) => host.with_bucket(bucket),
            None => host,
        })
    }
}

/// The one pair of keys that is let in.
struct S3Keys {
    access_key: String,
    secret_key: SecretKey,
}

#[async_trait::async_trait]
impl S3Auth for S3Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if access_key == self.access_key {
            Ok(self.secret_key.clone())
        } else {
            Err(s3_error!(InvalidAccessKeyId, "the access key is not that of this origin"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_taken_off_the_query() {
        for (uri, expected) in [
            ("/b/k", None),
            ("/b/k?partNumber=1&uploadId=x", None),
            ("/b/k?X-Amz-Signature=a&X-Amz-Date=b&X-Amz-Expires=3", Some("/b/k")),
            ("/b/a%20b?list-type=2&X-Amz-Signature=a&prefix=%2F", Some("/b/a%20b?list-type=2&prefix=%2F")),
            (
                "/b/k?AWSAccessKeyId=a&Signature=b&Expires=3&response-content-type=x",
                Some("/b/k?response-content-type=x"),
            ),
        ] {
            let found = without_signature(&uri.parse().unwrap()).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{uri}");
        }
    }

    #[test]
    fn only_names_under_localhost_are_buckets() {
        for (host, bucket) in [
            ("bucket.localhost:9000", Some("bucket")),
            ("bucket.with.dots.localhost", Some("bucket.with.dots")),
            ("localhost:9000", None),
            ("origin.example.com:9000", None),
            ("[::1]:9000", None),
        ] {
            assert_eq!(Localhost.parse_host_header(host).unwrap().bucket(), bucket, "{host}");
        }
    }
}
