//! Our signatures against reqsign's, which shares no code with it: the same requests must get the same
//! signatures.

use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use flatout_wire::checksum::Algorithm;
use flatout_wire::copy_source::{CopySource, Directive, Directives};
use flatout_wire::listing::PageStart;
use flatout_wire::object_options::{Condition, ObjectOptions};
use flatout_wire::request::{Method, Request};
use flatout_wire::s3::{Addressing, S3};
use flatout_wire::sign::{Credentials, Signer};
use flatout_wire::time::parse_amz;
use proptest::prelude::*;
use reqsign_aws_v4::{Credential, RequestSigner};
use reqsign_core::{Context, SignRequest};

const REGION: &str = "eu-west-1";
const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// reqsign's signature of a request, with those of its headers that SigV4 has signed.
fn reqsign(request: &Request, token: Option<&str>, expires_in: Option<Duration>) -> http::request::Parts {
    let mut builder = http::Request::builder().method(request.method.name()).uri(request.url());
    let signed = |name: &str| name.starts_with("x-amz-") || (expires_in.is_none() && name == "content-type");
    for (name, value) in request.headers.iter().filter(|(name, _)| signed(name)) {
        builder = builder.header(name, value);
    }
    let (mut parts, ()) = builder.body(()).expect("a valid request").into_parts();
    let credential = Credential {
        access_key_id: ACCESS_KEY.into(),
        secret_access_key: SECRET_KEY.into(),
        session_token: token.map(str::to_owned),
        expires_in: None,
    };
    let signer = RequestSigner::new("s3", REGION);
    let context = Context::new();
    at_once(signer.sign_request(&context, &mut parts, Some(&credential), expires_in)).expect("reqsign signs");
    parts
}

/// What a future gives that never waits: signing is only written as if it could.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

fn ours(token: Option<&str>) -> Signer {
    let credentials = Credentials {
        access_key: ACCESS_KEY.into(),
        secret_key: SECRET_KEY.into(),
        session_token: token.map(str::to_owned),
    };
    Signer::new(credentials, REGION)
}

/// reqsign takes the time from the clock; ours is signed for the same second afterwards.
fn check_header(mut request: Request, token: Option<&str>) {
    request.set("x-amz-content-sha256", EMPTY_SHA256);
    let theirs = reqsign(&request, token, None);
    let header = |name: &str| theirs.headers[name].to_str().expect("ASCII").to_owned();
    ours(token).sign(&mut request, parse_amz(&header("x-amz-date")).expect("a date"));
    let authorization = header("authorization").replace(", ", ",");
    assert_eq!(request.header("authorization"), Some(authorization.as_str()), "{}", request.url());
}

fn check_presigned(mut request: Request, token: Option<&str>) {
    let theirs = reqsign(&request, token, Some(Duration::from_secs(900)));
    let mut expected = parameters(theirs.uri.query().unwrap_or(""));
    let date = expected.iter().find_map(|given| given.strip_prefix("X-Amz-Date=")).expect("a date");
    ours(token).presign(&mut request, 900, parse_amz(date).expect("a date"));
    let mut found = parameters(&request.query);
    expected.sort();
    found.sort();
    assert_eq!(found, expected, "{}", request.url());
}

/// A name without a value is sent alone by us, and with a '=' by reqsign; both are signed alike.
fn parameters(query: &str) -> Vec<String> {
    query.split('&').map(|given| given.trim_end_matches('=').to_owned()).collect()
}

/// Every call of writing.
fn writing(s3: &S3, key: &str) -> Vec<Request> {
    let options = ObjectOptions {
        storage_class: Some("STANDARD_IA".into()),
        metadata: vec![("author".into(), "alice".into())],
        tags: vec![(key.to_owned(), key.to_owned())],
        ..ObjectOptions::default()
    };
    let (absent, crc) = (Condition::Absent, Algorithm::Crc64Nvme);
    let source = CopySource { bucket: "from", key, version_id: Some(key), if_match: Some("\"a\"") };
    let anew = Directives { metadata: Directive::Replace, tags: Directive::Replace };
    vec![
        s3.put_object("bucket", key, &options, &absent),
        s3.create_upload("bucket", key, &options, Some(crc)),
        s3.upload_part("bucket", key, key, 7),
        s3.complete_upload("bucket", key, key, &absent, Some((crc, 1)), 9),
        s3.abort_upload("bucket", key, key),
        s3.list_parts("bucket", key, key, Some(7)),
        s3.list_uploads("bucket", key, Some(key), Some(key)),
        s3.copy_object("bucket", key, &source, &options, anew, &absent),
        s3.copy_part("bucket", key, key, 7, &source, 5..10),
        s3.delete_object("bucket", key, Some(key), &Condition::None),
        s3.delete_objects("bucket"),
        s3.create_bucket("bucket"),
        s3.delete_bucket("bucket"),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_same_signatures_as_reqsign(
        key in "[a-zA-Z0-9][a-zA-Z0-9 /+=&%?#~!'()*:,;@üß€_.-]{0,30}",
        token in prop::option::of("[a-zA-Z0-9/+=]{1,40}"),
        page in prop::option::of("[a-zA-Z0-9/+=]{1,20}"),
        addressing in prop_oneof![Just(Addressing::Path), Just(Addressing::Virtual)],
        endpoint in prop_oneof![Just("http://s3.example.com"), Just("http://s3.example.com:9000/base")],
    ) {
        // Path segments that a URL library may tidy up are tried on real servers, not here.
        prop_assume!(!key.contains("/.") && !key.contains("//"));
        let s3 = S3::new(Some(endpoint), Some(REGION), addressing).expect("an endpoint");
        let token = token.as_deref();
        let mut put = s3.get_object("bucket", &key);
        put.method = Method::Put;
        let requests = [
            s3.get_object("bucket", &key),
            s3.head_object("bucket", &key),
            s3.list_objects_v2("bucket", &key, Some('/'), &page.clone().map_or(PageStart::First, PageStart::Token), Some(7)),
            s3.list_objects_v2("bucket", &key, None, &PageStart::After(format!("{key}/x")), None),
            s3.list_buckets(),
            put,
        ];
        for request in requests.into_iter().chain(writing(&s3, &key)) {
            check_header(request.clone(), token);
            check_presigned(request, token);
        }
    }
}
