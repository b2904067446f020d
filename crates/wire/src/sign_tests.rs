//! AWS's published examples ("Authenticating Requests: Using the Authorization Header" and "… Query
//! Parameters" in the S3 API reference), and the same requests against another implementation.

use super::*;
use crate::endpoint::{Endpoint, Scheme};
use crate::s3::{Addressing, S3};

/// 2013-05-24T00:00:00Z
const NOW_S: u64 = 1_369_353_600;
const DAY_S: u64 = 86_400;

fn signer() -> Signer {
    Signer::new(example_credentials(None), "us-east-1")
}

fn example_credentials(token: Option<&str>) -> Credentials {
    Credentials {
        access_key: "AKIAIOSFODNN7EXAMPLE".into(),
        secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
        session_token: token.map(str::to_owned),
    }
}

/// A request for examplebucket.s3.amazonaws.com.
fn example(method: Method, path: &str, query: &str, headers: &[(&str, &str)]) -> Request {
    let host = "examplebucket.s3.amazonaws.com".into();
    let endpoint = Endpoint { scheme: Scheme::Https, host, port: 443 };
    let mut request = Request::new(method, endpoint, path.into(), query.into());
    for (name, value) in headers {
        request.set(name, *value);
    }
    request
}

fn check(mut request: Request, also: &[&str], signed_headers: &str, signature: &str) {
    let expected = format!(
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
         SignedHeaders={signed_headers},Signature={signature}"
    );
    signer().sign_also(&mut request, NOW_S, also);
    assert_eq!(request.header("authorization"), Some(expected.as_str()));
    // A second signature replaces the first.
    let count = request.headers.len();
    signer().sign_also(&mut request, NOW_S, also);
    assert_eq!((request.header("authorization"), request.headers.len()), (Some(expected.as_str()), count));
}

#[test]
fn published_get_object_with_a_range() {
    check(
        example(Method::Get, "/test.txt", "", &[("range", "bytes=0-9")]),
        &["range"],
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
}

#[test]
fn published_put_object() {
    let headers = [
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ("x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
    ];
    check(
        example(Method::Put, "/test%24file.text", "", &headers),
        &["date"],
        "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    );
}

#[test]
fn published_get_bucket_lifecycle() {
    check(
        example(Method::Get, "/", "lifecycle", &[]),
        &[],
        "host;x-amz-content-sha256;x-amz-date",
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    );
}

#[test]
fn published_list_objects() {
    check(
        example(Method::Get, "/", "prefix=J&max-keys=2", &[]),
        &[],
        "host;x-amz-content-sha256;x-amz-date",
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    );
}

#[test]
fn published_presigned_get() {
    let mut request = example(Method::Get, "/test.txt", "", &[]);
    let expected = "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&\
        X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&\
        X-Amz-Expires=86400&X-Amz-SignedHeaders=host&\
        X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    // Neither an earlier signature in the headers nor one in the query changes it.
    signer().sign(&mut request, NOW_S);
    for _ in 0..2 {
        signer().presign(&mut request, 86_400, NOW_S);
        assert_eq!(request.url(), expected);
        assert_eq!(request.header("authorization"), None);
    }
}

/// "get-header-value-trim" of AWS's test suite of Signature Version 4.
#[test]
fn runs_of_blanks_in_a_header_are_signed_as_one() {
    let endpoint = Endpoint { scheme: Scheme::Https, host: "example.amazonaws.com".into(), port: 443 };
    let mut request = Request::new(Method::Get, endpoint, "/".into(), String::new());
    request.set("my-header1", " value1");
    request.set("my-header2", " \"a   b   c\"");
    request.set("x-amz-date", "20150830T123600Z");
    let headers = signed_headers(&request, &["my-header1", "my-header2"]);
    let hash = canonical_hash(&request, &headers, &joined_names(&headers), EMPTY_SHA256);
    assert_eq!(hash, "a726db9b0df21c14f559d0a978e563112acb1b9e05476f0a6a1c7d68f28605c7");
    assert_eq!(request.header("my-header2"), Some(" \"a   b   c\""), "it is sent as it is");
}

#[test]
fn headers_about_a_body_are_signed_where_they_are() {
    let signed = |headers: &[(&str, &str)]| {
        let mut request = example(Method::Put, "/k", "", headers);
        signer().sign(&mut request, NOW_S);
        let authorization = request.header("authorization").unwrap().to_owned();
        let names = authorization.split(',').find_map(|part| part.strip_prefix("SignedHeaders="));
        names.unwrap().to_owned()
    };
    assert_eq!(signed(&[]), "host;x-amz-content-sha256;x-amz-date");
    let both = [("content-type", "text/plain"), ("content-md5", "eB5eJF1ptWaXm4bijSPyxw==")];
    assert_eq!(signed(&both), "content-md5;content-type;host;x-amz-content-sha256;x-amz-date");
    assert_eq!(signed(&[("cache-control", "no-cache")]), "host;x-amz-content-sha256;x-amz-date");
}

#[test]
fn one_signature_serves_all_ranges() {
    let s3 = S3::new(Some("http://127.0.0.1:9000"), None, Addressing::Auto).unwrap();
    let (mut bare, mut ranged) = (s3.get_object("b", "k"), s3.get_object("b", "k"));
    ranged.set("range", "bytes=5-9");
    ranged.set("if-match", "\"etag\"");
    signer().sign(&mut bare, NOW_S);
    signer().sign(&mut ranged, NOW_S);
    assert_eq!(bare.header("authorization"), ranged.header("authorization"));
}

#[test]
fn the_day_key_follows_the_day() {
    let sign = |signer: &Signer, unix_s| {
        let mut request = example(Method::Get, "/k", "", &[]);
        signer.sign(&mut request, unix_s);
        request.header("authorization").unwrap().to_owned()
    };
    let long_lived = signer();
    for unix_s in [NOW_S, NOW_S + 1, NOW_S + DAY_S - 1, NOW_S + DAY_S, NOW_S, NOW_S + 400 * DAY_S] {
        assert_eq!(sign(&long_lived, unix_s), sign(&signer(), unix_s), "{unix_s}");
    }
    assert!(sign(&long_lived, NOW_S + DAY_S).contains("/20130525/"));
}

#[test]
fn tokens_and_payloads() {
    let sign = |token: Option<&str>, method| {
        let mut request = example(method, "/k", "", &[("x-amz-security-token", "stale")]);
        Signer::new(example_credentials(token), "us-east-1").sign(&mut request, NOW_S);
        request
    };
    let with = sign(Some(" token\n"), Method::Get);
    assert_eq!(with.header("x-amz-security-token"), Some("token"));
    assert!(with.header("authorization").unwrap().contains(";x-amz-date;x-amz-security-token,"));
    for token in [None, Some(""), Some("\n")] {
        assert_eq!(sign(token, Method::Get).header("x-amz-security-token"), None, "{token:?}");
    }
    let payloads = [
        (Method::Get, EMPTY_SHA256),
        (Method::Head, EMPTY_SHA256),
        (Method::Delete, EMPTY_SHA256),
        (Method::Put, UNSIGNED),
        (Method::Post, UNSIGNED),
    ];
    for (method, payload) in payloads {
        assert_eq!(sign(None, method).header("x-amz-content-sha256"), Some(payload), "{method}");
    }
}

#[test]
fn debug_shows_no_secret() {
    let signer = Signer::new(example_credentials(Some("hunter2token")), "us-east-1");
    let mut request = example(Method::Get, "/k", "", &[]);
    signer.sign(&mut request, NOW_S);
    let mut presigned = example(Method::Get, "/k", "", &[]);
    signer.presign(&mut presigned, 60, NOW_S);
    let texts = [format!("{signer:?}"), format!("{request:?}"), format!("{presigned:?}")];
    for text in texts {
        for secret in ["AKIAIOSFODNN7", "wJalr", "hunter2", "Signature=A", "Signature=a"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    assert_eq!(format!("{:?}", signer.credentials), "Credentials(***MPLE)");
    let short = Credentials { access_key: "minio".into(), ..example_credentials(None) };
    assert_eq!(format!("{short:?}"), "Credentials(***)");
}

#[test]
fn several_threads_share_a_signer() {
    let signer = signer();
    let sign = |unix_s| {
        let mut request = example(Method::Get, "/k", "", &[]);
        signer.sign(&mut request, unix_s);
        request.headers
    };
    let expected = [sign(NOW_S), sign(NOW_S + DAY_S)];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (sign, expected) = (&sign, &expected);
            scope.spawn(move || {
                for round in 0..50 {
                    let day = (thread + round) % 2;
                    assert_eq!(sign(NOW_S + day as u64 * DAY_S), expected[day]);
                }
            });
        }
    });
}
