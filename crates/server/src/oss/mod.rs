//! The OSS dialect of an origin: authentication and dispatch; each operation stands in the module of its
//! kind.
//!
//! Facts are those of the API reference of Alibaba Cloud OSS,
//! <https://help.aliyun.com/en/oss/developer-reference/>; OSS's own clients are run against it in
//! `crates/cli/tests/real/`.

mod auth;
mod bucket;
mod multipart;
mod read;
mod refusal;
mod request;
mod response;
mod tagging;
mod unsupported;
mod write;
mod xml;

use std::sync::Arc;
use std::time::SystemTime;

use http_body_util::BodyExt;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use s3s::{Body, HttpRequest, HttpResponse};

use crate::storage::Storage;
use auth::OssKeys;
use refusal::Refusal;
use request::OssRequest;
pub(crate) use request::{RequestPath, decode, speaks_oss};
use response::OssResponse;
use response::seconds;

/// Most bytes of a refused body that are read and dropped.
const DRAINED_BYTES: usize = 16 << 20;

/// The OSS that an origin speaks over its storage.
pub(crate) struct OssDialect {
    storage: Arc<Storage>,
    /// None lets everybody in.
    keys: Option<OssKeys>,
    /// Seconds by which the clock is ahead.
    clock: i64,
}

impl OssDialect {
    pub(crate) fn new(storage: Arc<Storage>, keys: Option<(String, String)>, clock: i64) -> OssDialect {
        let keys = keys.map(|(access_key, secret_key)| OssKeys { access_key, secret_key });
        OssDialect { storage, keys, clock }
    }

    /// Answers one request, the `number`th of this origin.
    pub(crate) async fn call(&self, number: u64, request: HttpRequest) -> HttpResponse {
        let (head, mut body) = request.into_parts();
        let id = format!("{number:024X}");
        let answered = match OssRequest::of(&head) {
            Ok(request) => self.response(&request, &mut body).await,
            Err(refusal) => Err(refusal),
        };
        let response = match answered {
            Ok(response) => response.into_response(),
            Err(refusal) => {
                drain(&mut body).await;
                refusal.into_response(&head, &id)
            }
        };
        with_id(response, id)
    }

    /// A refusal of the request, the `number`th of this origin, that is no fault of its own.
    pub(crate) fn refuse(
        &self,
        number: u64,
        head: &Parts,
        status: StatusCode,
        code: &'static str,
        why: &str,
    ) -> HttpResponse {
        let id = format!("{number:024X}");
        with_id(Refusal::new(status.as_u16(), code, why).into_response(head, &id), id)
    }

    async fn response(&self, request: &OssRequest, body: &mut Body) -> Result<OssResponse, Refusal> {
        if let Some(keys) = &self.keys {
            auth::check(keys, request, unix_s(self.clock))?;
        }
        auth::check_expiry(request)?;
        unsupported::check(request)?;
        check_version(request)?;
        let Some(bucket) = &request.bucket else { return self.answer_service(request) };
        match &request.key {
            None => self.answer_bucket(request, bucket, body).await,
            Some(key) => self.answer_object(request, (bucket, key), body).await,
        }
    }

    fn answer_service(&self, request: &OssRequest) -> Result<OssResponse, Refusal> {
        match request.method {
            Method::GET => self.list_buckets(request),
            _ => Err(refusal::not_implemented(request)),
        }
    }

    async fn answer_bucket(
        &self,
        request: &OssRequest,
        bucket: &str,
        body: &mut Body,
    ) -> Result<OssResponse, Refusal> {
        match (request.method.as_str(), request.subresource()) {
            ("GET", None) => self.list_objects(request, bucket),
            ("GET", Some("bucketInfo")) => self.bucket_info(request, bucket),
            ("GET", Some("location")) => self.bucket_location(bucket),
            ("GET", Some("acl")) => self.bucket_acl(bucket),
            ("GET", Some("uploads")) => self.list_uploads(request, bucket),
            ("PUT", None) => self.create_bucket(bucket),
            ("DELETE", None) => self.delete_bucket(bucket),
            ("POST", Some("delete")) => self.delete_many(request, bucket, body).await,
            _ => Err(refusal::not_implemented(request)),
        }
    }

    async fn answer_object(
        &self,
        request: &OssRequest,
        at: At<'_>,
        body: &mut Body,
    ) -> Result<OssResponse, Refusal> {
        let copies = request.headers.contains_key("x-oss-copy-source");
        match (request.method.as_str(), request.subresource()) {
            ("GET", None) => self.get(request, at),
            ("HEAD", None) => self.head(request, at),
            ("HEAD", Some("objectMeta")) => self.object_meta(request, at),
            ("GET", Some("acl")) => self.object_acl(at),
            ("GET", Some("tagging")) => self.get_tags(at),
            ("PUT", Some("tagging")) => self.put_tags(request, at, body).await,
            ("DELETE", Some("tagging")) => self.delete_tags(at),
            ("GET", Some("uploadId")) => self.list_parts(request, at),
            ("PUT", None) if copies => self.copy(request, at),
            ("PUT", None) => self.put(request, at, body).await,
            ("PUT", Some("uploadId")) if copies => self.copy_part(request, at),
            ("PUT", Some("uploadId")) => self.put_part(request, at, body).await,
            ("POST", Some("append")) => self.append(request, at, body).await,
            ("POST", Some("uploads")) => self.start_upload(request, at),
            ("POST", Some("uploadId")) => self.finish_upload(request, at, body).await,
            ("DELETE", Some("uploadId")) => self.abort_upload(request, at),
            ("DELETE", None) => self.delete(request, at),
            _ => Err(refusal::not_implemented(request)),
        }
    }
}

fn with_id(mut response: HttpResponse, id: String) -> HttpResponse {
    let id = HeaderValue::try_from(id).expect("hexadecimal digits are a header value");
    response.headers_mut().insert("x-oss-request-id", id);
    response
}

/// The version of every object of a bucket that never had versions.
const NO_VERSION: &str = "null";

fn check_version(request: &OssRequest) -> Result<(), Refusal> {
    match request.parameter("versionId") {
        None | Some(NO_VERSION) => Ok(()),
        Some(other) => {
            let why = format!("this origin has no versions, and so not {other}");
            Err(Refusal::new(404, "NoSuchVersion", why))
        }
    }
}

/// Bucket and key.
type At<'a> = (&'a str, &'a str);

/// Reads and drops the rest of a refused body, up to a bound: the connection of a client that is still
/// sending would be reset before the client could read the error.
pub(crate) async fn drain(body: &mut Body) {
    let mut left = DRAINED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let Some(still) = left.checked_sub(frame.data_ref().map_or(0, |bytes| bytes.len())) else { return };
        left = still;
    }
}

/// Unix seconds by a clock that is `clock` seconds ahead.
pub(crate) fn unix_s(clock: i64) -> u64 {
    seconds(SystemTime::now()).saturating_add_signed(clock)
}
