//! OSS as an origin speaks it over its stock: who is asked for what, and by whom; each operation in the module of its
//! kind.
//!
//! Facts are those of the API reference of Alibaba Cloud OSS, <https://help.aliyun.com/en/oss/developer-reference/>;
//! what its own clients make of our answers is tested in `crates/cli/tests/real/`.

mod answer;
mod asked;
mod auth;
mod bucket;
mod multipart;
mod read;
mod refusal;
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

use crate::stock::Stock;
use answer::Answer;
use answer::seconds;
use asked::Asked;
pub(crate) use asked::{Named, decode, speaks_oss};
use auth::Keys;
use refusal::Refusal;

/// Most bytes of a refused body that are read and dropped.
const DRAINED_BYTES: usize = 16 << 20;

/// The OSS that an origin speaks over its stock.
pub(crate) struct Oss {
    stock: Arc<Stock>,
    /// None lets everybody in.
    keys: Option<Keys>,
    /// Seconds by which the clock is ahead.
    clock: i64,
}

impl Oss {
    pub(crate) fn new(stock: Arc<Stock>, keys: Option<(String, String)>, clock: i64) -> Oss {
        let keys = keys.map(|(access_key, secret_key)| Keys { access_key, secret_key });
        Oss { stock, keys, clock }
    }

    /// Answers one request, the `number`th of this origin.
    pub(crate) async fn call(&self, number: u64, request: HttpRequest) -> HttpResponse {
        let (head, mut body) = request.into_parts();
        let id = format!("{number:024X}");
        let answered = match Asked::of(&head) {
            Ok(asked) => self.answer(&asked, &mut body).await,
            Err(refusal) => Err(refusal),
        };
        let response = match answered {
            Ok(answer) => answer.into_response(),
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

    async fn answer(&self, asked: &Asked, body: &mut Body) -> Result<Answer, Refusal> {
        if let Some(keys) = &self.keys {
            auth::check(keys, asked, unix_s(self.clock))?;
        }
        auth::check_expiry(asked)?;
        unsupported::check(asked)?;
        check_version(asked)?;
        let Some(bucket) = &asked.bucket else { return self.answer_service(asked) };
        match &asked.key {
            None => self.answer_bucket(asked, bucket, body).await,
            Some(key) => self.answer_object(asked, (bucket, key), body).await,
        }
    }

    fn answer_service(&self, asked: &Asked) -> Result<Answer, Refusal> {
        match asked.method {
            Method::GET => self.list_buckets(asked),
            _ => Err(refusal::not_implemented(asked)),
        }
    }

    async fn answer_bucket(&self, asked: &Asked, bucket: &str, body: &mut Body) -> Result<Answer, Refusal> {
        match (asked.method.as_str(), asked.subresource()) {
            ("GET", None) => self.list_objects(asked, bucket),
            ("GET", Some("bucketInfo")) => self.bucket_info(asked, bucket),
            ("GET", Some("location")) => self.bucket_location(bucket),
            ("GET", Some("acl")) => self.bucket_acl(bucket),
            ("GET", Some("uploads")) => self.list_uploads(asked, bucket),
            ("PUT", None) => self.create_bucket(bucket),
            ("DELETE", None) => self.delete_bucket(bucket),
            ("POST", Some("delete")) => self.delete_many(asked, bucket, body).await,
            _ => Err(refusal::not_implemented(asked)),
        }
    }

    async fn answer_object(&self, asked: &Asked, at: At<'_>, body: &mut Body) -> Result<Answer, Refusal> {
        let copies = asked.headers.contains_key("x-oss-copy-source");
        match (asked.method.as_str(), asked.subresource()) {
            ("GET", None) => self.get(asked, at),
            ("HEAD", None) => self.head(asked, at),
            ("HEAD", Some("objectMeta")) => self.object_meta(asked, at),
            ("GET", Some("acl")) => self.object_acl(at),
            ("GET", Some("tagging")) => self.get_tags(at),
            ("PUT", Some("tagging")) => self.put_tags(asked, at, body).await,
            ("DELETE", Some("tagging")) => self.delete_tags(at),
            ("GET", Some("uploadId")) => self.list_parts(asked, at),
            ("PUT", None) if copies => self.copy(asked, at),
            ("PUT", None) => self.put(asked, at, body).await,
            ("PUT", Some("uploadId")) if copies => self.copy_part(asked, at),
            ("PUT", Some("uploadId")) => self.put_part(asked, at, body).await,
            ("POST", Some("append")) => self.append(asked, at, body).await,
            ("POST", Some("uploads")) => self.start_upload(asked, at),
            ("POST", Some("uploadId")) => self.finish_upload(asked, at, body).await,
            ("DELETE", Some("uploadId")) => self.abort_upload(asked, at),
            ("DELETE", None) => self.delete(asked, at),
            _ => Err(refusal::not_implemented(asked)),
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

fn check_version(asked: &Asked) -> Result<(), Refusal> {
    match asked.parameter("versionId") {
        None | Some(NO_VERSION) => Ok(()),
        Some(other) => {
            let why = format!("this origin has no versions, and so not {other}");
            Err(Refusal::new(404, "NoSuchVersion", why))
        }
    }
}

/// Bucket and key.
type At<'a> = (&'a str, &'a str);

/// Reads what is left of a body that nobody wants, up to a bound: a client that is still sending would find its
/// connection reset before it could read why.
pub(crate) async fn drain(body: &mut Body) {
    let mut left = DRAINED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let Some(still) = left.checked_sub(frame.data_ref().map_or(0, |bytes| bytes.len())) else { return };
        left = still;
    }
}

/// Unix seconds by a clock that is so many ahead.
pub(crate) fn unix_s(clock: i64) -> u64 {
    seconds(SystemTime::now()).saturating_add_signed(clock)
}
