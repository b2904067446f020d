//! Keys: s3s checks what `flatout-wire` signs, so that neither is judged by itself.

use std::time::SystemTime;

use flatout_server::{FaultPlan, Options, Origin, Store};
use flatout_wire::listing::PageStart;
use flatout_wire::request::Request;
use flatout_wire::s3::{Addressing, S3};
use flatout_wire::sign::{Credentials, Signer};
use flatout_wire::time::parse_http;

use crate::client::{Answer, options, send};

const KEYS: (&str, &str) = ("AKIDEXAMPLE", "secret/+=key");

fn guarded() -> Origin {
    guarded_by(0)
}

/// By a clock that is so many seconds ahead.
fn guarded_by(clock: i64) -> Origin {
    let auth = Some((KEYS.0.to_owned(), KEYS.1.to_owned()));
    let fault_plan = FaultPlan { clock, ..FaultPlan::default() };
    Origin::start(Options { auth, fault_plan, ..options(object()) }).unwrap()
}

fn object() -> Store {
    Store::Synthetic(vec![("bucket".to_owned(), "a b/ü+1".to_owned(), 100)], vec![])
}

fn signer(access_key: &str, secret_key: &str) -> Signer {
    let (access_key, secret_key) = (access_key.to_owned(), secret_key.to_owned());
    Signer::new(Credentials { access_key, secret_key, session_token: None }, "us-east-1")
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

fn perform(origin: &Origin, request: &Request) -> Answer {
    let headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    send(origin.addresses()[0], request.method.name(), &request.target(), &headers, b"")
}

/// Everything that the engine asks of S3.
fn requests(origin: &Origin) -> Vec<Request> {
    let s3 = S3::new(Some(&origin.url()), None, Addressing::Path).unwrap();
    let mut range = s3.get_object("bucket", "a b/ü+1");
    range.set("range", "bytes=0-9");
    vec![
        s3.get_object("bucket", "a b/ü+1"),
        range,
        s3.head_object("bucket", "a b/ü+1"),
        s3.list_objects_v2("bucket", "a b/", Some('/'), &PageStart::First, Some(10)),
        s3.list_buckets(),
    ]
}

#[test]
fn signed_requests_are_let_in() {
    let origin = guarded();
    for mut request in requests(&origin) {
        signer(KEYS.0, KEYS.1).sign(&mut request, now());
        let answer = perform(&origin, &request);
        assert!([200, 206].contains(&answer.status), "{}: {}", request.target(), answer.status);
    }
    for mut request in requests(&origin) {
        signer(KEYS.0, KEYS.1).presign(&mut request, 60, now());
        let answer = perform(&origin, &request);
        assert!([200, 206].contains(&answer.status), "{}: {}", request.target(), answer.status);
    }
}

#[test]
fn others_are_refused() {
    let origin = guarded();
    let check = |code: &str, prepare: &dyn Fn(&mut Request)| {
        for mut request in requests(&origin) {
            prepare(&mut request);
            let answer = perform(&origin, &request).expect(403);
            // A HEAD has no body to say why.
            let said = answer.xml("Code").unwrap_or_else(|| code.to_owned());
            assert_eq!(said, code, "{}", request.target());
        }
    };
    check("AccessDenied", &|_| {});
    check("SignatureDoesNotMatch", &|request| signer(KEYS.0, "wrong").sign(request, now()));
    check("SignatureDoesNotMatch", &|request| signer(KEYS.0, "wrong").presign(request, 60, now()));
    check("InvalidAccessKeyId", &|request| signer("AKIDOTHER", KEYS.1).sign(request, now()));
    check("RequestTimeTooSkewed", &|request| signer(KEYS.0, KEYS.1).sign(request, now() - 3600));
    check("AccessDenied", &|request| signer(KEYS.0, KEYS.1).presign(request, 60, now() - 3600));
}

#[test]
fn an_origin_whose_clock_is_off_judges_by_it_and_shows_it() {
    for clock in [3600, -3600] {
        let origin = guarded_by(clock);
        let its_now = now().saturating_add_signed(clock);
        for request in requests(&origin) {
            let check = |code: &str, sign: &dyn Fn(&mut Request)| {
                let mut request = request.clone();
                sign(&mut request);
                let answer = perform(&origin, &request);
                let said = match answer.status {
                    200 | 206 => String::new(),
                    // A HEAD has no body to say why.
                    403 => answer.xml("Code").unwrap_or_else(|| code.to_owned()),
                    other => panic!("{other}"),
                };
                assert_eq!(said, code, "{clock} {}", request.target());
                let date = parse_http(answer.header("date").unwrap()).unwrap();
                assert!(date.abs_diff(its_now) < 300, "{date} {its_now}");
            };
            check("RequestTimeTooSkewed", &|request| signer(KEYS.0, KEYS.1).sign(request, now()));
            check("", &|request| signer(KEYS.0, KEYS.1).sign(request, its_now));
            check("SignatureDoesNotMatch", &|request| signer(KEYS.0, "wrong").sign(request, its_now));
            // Either it has expired or it is not good yet.
            check("AccessDenied", &|request| signer(KEYS.0, KEYS.1).presign(request, 60, now()));
            check("", &|request| signer(KEYS.0, KEYS.1).presign(request, 7200, its_now));
        }
    }
}

#[test]
fn an_open_origin_lets_everything_in() {
    let origin = Origin::start(options(object())).unwrap();
    for request in requests(&origin) {
        let (mut signed, mut presigned) = (request.clone(), request.clone());
        signer("ANY", "key").sign(&mut signed, 0);
        signer("ANY", "key").presign(&mut presigned, 1, 0);
        for request in [request, signed, presigned] {
            let answer = perform(&origin, &request);
            assert!([200, 206].contains(&answer.status), "{}: {}", request.target(), answer.status);
        }
    }
}
