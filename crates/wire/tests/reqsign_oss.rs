//! Our OSS signatures against reqsign's, which share no code with ours: the same requests must get the same
//! signatures.
//!
//! Presigned ones of version 4 cannot be compared: reqsign always signs `host` along, we never do; the
//! published vectors stand for them.

use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use flatout_wire::copy_source::{CopySource, Directive, Directives};
use flatout_wire::listing::PageStart;
use flatout_wire::object_options::{Condition, ObjectOptions};
use flatout_wire::oss::Oss;
use flatout_wire::oss_sign::{Resource, SignatureVersion};
use flatout_wire::request::Request;
use flatout_wire::s3::Addressing;
use flatout_wire::sign::Credentials;
use flatout_wire::time::{parse_amz, parse_http};
use proptest::prelude::*;
use reqsign_aliyun_oss::{Credential, RequestSigner, SigningVersion};
use reqsign_core::{Context, SignRequest};

const REGION: &str = "cn-hangzhou";
const ACCESS_KEY: &str = "LTAIEXAMPLEEXAMPLE";
const SECRET_KEY: &str = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY";

/// reqsign's signature of a request, with those of its headers that OSS has signed.
fn reqsign(
    request: &Request,
    version: SignatureVersion,
    token: Option<&str>,
    expires_in: Option<Duration>,
) -> http::request::Parts {
    let mut builder = http::Request::builder().method(request.method.name()).uri(request.url());
    let signed = |name: &str| name.starts_with("x-oss-") || name == "content-type";
    for (name, value) in request.headers.iter().filter(|(name, _)| signed(name)) {
        builder = builder.header(name, value);
    }
    let (mut parts, ()) = builder.body(()).expect("a valid request").into_parts();
    let credential = Credential {
        access_key_id: ACCESS_KEY.into(),
        access_key_secret: SECRET_KEY.into(),
        security_token: token.map(str::to_owned),
        expires_in: None,
    };
    let version = match version {
        SignatureVersion::V4 => SigningVersion::V4,
        SignatureVersion::V1 => SigningVersion::V1,
    };
    let signer = RequestSigner::new("bucket").with_region(REGION).with_signing_version(version);
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

fn signer(oss: &Oss, version: SignatureVersion, token: Option<&str>) -> flatout_wire::oss_sign::Signer {
    let credentials = Credentials {
        access_key: ACCESS_KEY.into(),
        secret_key: SECRET_KEY.into(),
        session_token: token.map(str::to_owned),
    };
    oss.signer(credentials, version)
}

/// The signature alone: reqsign names additional headers even where there are none.
fn signature(authorization: &str) -> &str {
    authorization.rsplit(['=', ':', ' ']).find(|word| !word.is_empty()).unwrap_or(authorization)
}

fn check_header(oss: &Oss, mut request: Request, key: &str, version: SignatureVersion, token: Option<&str>) {
    let theirs = reqsign(&request, version, token, None);
    let header = |name: &str| theirs.headers[name].to_str().expect("ASCII").to_owned();
    // reqsign takes the time from the clock; ours is signed for the same second afterwards.
    let unix_s = match version {
        SignatureVersion::V4 => parse_amz(&header("x-oss-date")),
        SignatureVersion::V1 => parse_http(&header("date")),
    };
    let resource = Resource { bucket: "bucket", key };
    signer(oss, version, token).sign(&mut request, resource, unix_s.expect("a date"));
    let ours = request.header("authorization").expect("a signature");
    assert_eq!(signature(ours), signature(&header("authorization")), "{version:?} {}", request.url());
}

fn check_presigned(oss: &Oss, mut request: Request, key: &str, token: Option<&str>) {
    request.remove("x-oss-range-behavior");
    let theirs = reqsign(&request, SignatureVersion::V1, token, Some(Duration::from_secs(900)));
    let mut expected: Vec<_> = theirs.uri.query().unwrap_or("").split('&').map(str::to_owned).collect();
    let expires = expected.iter().find_map(|given| given.strip_prefix("Expires=")).expect("an end");
    let unix_s = expires.parse::<u64>().expect("a number") - 900;
    signer(oss, SignatureVersion::V1, token).presign(
        &mut request,
        Resource { bucket: "bucket", key },
        900,
        unix_s,
    );
    let mut found: Vec<_> = request.query.split('&').map(str::to_owned).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected, "{}", request.url());
}

/// Every call of writing, and the key that it is about.
fn writing<'a>(oss: &Oss, key: &'a str) -> Vec<(Request, &'a str)> {
    let options = ObjectOptions {
        storage_class: Some("IA".into()),
        metadata: vec![("author".into(), "alice".into())],
        tags: vec![(key.to_owned(), key.to_owned())],
        ..ObjectOptions::default()
    };
    let absent = Condition::Absent;
    let source = CopySource { bucket: "from", key, version_id: Some(key), if_match: Some("\"a\"") };
    let anew = Directives { metadata: Directive::Replace, tags: Directive::Replace };
    vec![
        (oss.put_object("bucket", key, &options, &absent), key),
        (oss.create_upload("bucket", key, &options), key),
        (oss.upload_part("bucket", key, key, 7), key),
        (oss.complete_upload("bucket", key, key, &options, &absent), key),
        (oss.abort_upload("bucket", key, key), key),
        (oss.list_parts("bucket", key, key, Some(7)), key),
        (oss.list_uploads("bucket", key, Some(key), Some(key)), ""),
        (oss.copy_object("bucket", key, &source, &options, anew, &absent), key),
        (oss.copy_part("bucket", key, key, 7, &source, 5..10), key),
        (oss.delete_object("bucket", key, Some(key)), key),
        (oss.delete_objects("bucket"), ""),
        (oss.create_bucket("bucket"), ""),
        (oss.delete_bucket("bucket"), ""),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_same_signatures_as_reqsign(
        key in "[a-zA-Z0-9][a-zA-Z0-9 /+=&%?#~!'()*:,;@üß€_.-]{0,30}",
        token in prop::option::of("[a-zA-Z0-9/+=]{1,40}"),
        page in prop::option::of("[a-zA-Z0-9/+=]{1,20}"),
    ) {
        // Path segments that a URL library may tidy up are tried on real servers, not here.
        prop_assume!(!key.contains("/.") && !key.contains("//"));
        let oss = Oss::new(Some("http://oss-cn-hangzhou.aliyuncs.com"), None, Addressing::Virtual)
            .expect("an endpoint");
        let token = token.as_deref();
        for version in [SignatureVersion::V4, SignatureVersion::V1] {
            check_header(&oss, oss.get_object("bucket", &key), &key, version, token);
            check_header(&oss, oss.head_object("bucket", &key), &key, version, token);
            for (request, key) in writing(&oss, &key) {
                check_header(&oss, request, key, version, token);
            }
        }
        let start = page.map_or(PageStart::First, PageStart::Token);
        let listing = oss.list_objects_v2("bucket", &key, Some('/'), &start, Some(7));
        check_header(&oss, listing, "", SignatureVersion::V4, token);
        let listing = oss.list_objects_v2("bucket", &key, None, &PageStart::After(format!("{key}/x")), None);
        check_header(&oss, listing.clone(), "", SignatureVersion::V4, token);
        check_header(&oss, listing, "", SignatureVersion::V1, token);
        check_presigned(&oss, oss.get_object("bucket", &key), &key, token);
    }
}
