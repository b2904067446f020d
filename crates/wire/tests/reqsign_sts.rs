//! Our signature of calls to AWS's STS against reqsign's, which shares no code with it.

use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};

use flatout_wire::endpoint::Endpoint;
use flatout_wire::request::{Method, Request};
use flatout_wire::sign::{Credentials, Signer};
use flatout_wire::time::parse_amz;
use reqsign_aws_v4::{Credential, RequestSigner};
use reqsign_core::{Context, SignRequest};

const REGION: &str = "eu-west-1";
const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// `printf abc | sha256sum`
const ABC_SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn check(token: Option<&str>) {
    let (endpoint, _) = Endpoint::parse("https://sts.eu-west-1.amazonaws.com").expect("an endpoint");
    let mut request = Request::new(Method::Post, endpoint, "/".into(), String::new());
    request.set("content-type", "application/x-www-form-urlencoded");

    let theirs = http::Request::post(request.url())
        .header("content-type", "application/x-www-form-urlencoded")
        .header("x-amz-content-sha256", ABC_SHA256)
        .body(());
    let (mut theirs, ()) = theirs.expect("a valid request").into_parts();
    let credential = Credential {
        access_key_id: ACCESS_KEY.into(),
        secret_access_key: SECRET_KEY.into(),
        session_token: token.map(str::to_owned),
        expires_in: None,
    };
    let (signer, context) = (RequestSigner::new("sts", REGION), Context::new());
    {
        let signing = pin!(signer.sign_request(&context, &mut theirs, Some(&credential), None));
        match signing.poll(&mut TaskContext::from_waker(Waker::noop())) {
            Poll::Ready(signed) => signed.expect("reqsign signs"),
            Poll::Pending => panic!("signing waits"),
        }
    }
    let header = |name: &str| theirs.headers[name].to_str().expect("ASCII").to_owned();

    let credentials = Credentials {
        access_key: ACCESS_KEY.into(),
        secret_key: SECRET_KEY.into(),
        session_token: token.map(str::to_owned),
    };
    let now = parse_amz(&header("x-amz-date")).expect("a date");
    Signer::for_service(credentials, REGION, "sts").sign_body(&mut request, b"abc", now);
    let authorization = header("authorization").replace(", ", ",");
    assert_eq!(request.header("authorization"), Some(authorization.as_str()), "{token:?}");
    assert_eq!(request.header("x-amz-content-sha256"), Some(ABC_SHA256));
}

#[test]
fn the_same_signature_as_reqsign() {
    check(None);
    check(Some("a-token"));
}
