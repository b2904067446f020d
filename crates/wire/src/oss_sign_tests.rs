//! The vectors of Alibaba's Go SDK v2 (oss/signer/signer_test.go; reference/oss.md §6.1), all of one account
//! `ak`, `sk`.

use super::*;
use crate::copy_source::{CopySource, Directives};
use crate::endpoint::{Endpoint, Scheme};
use crate::object_options::{Condition, ObjectOptions};
use crate::oss::Oss;
use crate::request::Method;
use crate::s3::Addressing;
use crate::time::parse_http;

const KEY: &str = "1234+-/123/1.txt";
const OBJECT: Resource<'static> = Resource { bucket: "bucket", key: KEY };

fn signer(version: SignatureVersion, token: Option<&str>) -> Signer {
    Signer::new(credentials(token), version, "cn-hangzhou", "oss")
}

fn credentials(token: Option<&str>) -> Credentials {
    Credentials { access_key: "ak".into(), secret_key: "sk".into(), session_token: token.map(str::to_owned) }
}

fn request(method: Method, query: &str, headers: &[(&str, &str)]) -> Request {
    let endpoint =
        Endpoint { scheme: Scheme::Http, host: "bucket.oss-cn-hangzhou.aliyuncs.com".into(), port: 80 };
    let mut request = Request::new(method, endpoint, "/".into(), query.into());
    for (name, value) in headers {
        request.set(name, *value);
    }
    request
}

/// The request of the vectors of version 4.
fn example(content_type: &str) -> Request {
    let query = "%2Bparam1=value3&%2Bparam2=&%7Cparam1=value4&%7Cparam2=&param1=value1&param2=";
    let headers = [
        ("x-oss-head1", "value"),
        ("abc", "value"),
        ("ZAbc", "value"),
        ("XYZ", "value"),
        ("content-type", content_type),
    ];
    request(Method::Put, query, &headers)
}

fn parameter_of<'a>(request: &'a Request, name: &str) -> &'a str {
    let found = request.query.split('&').find_map(|given| given.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or("")
}

#[test]
fn published_v4_headers() {
    let cloudbox = Signer::new(credentials(None), SignatureVersion::V4, "cb-123", "oss-cloudbox");
    let rows: [(Signer, u64, &[&str], &str, &str); 5] = [
        (
            signer(SignatureVersion::V4, None),
            1_702_743_657,
            &[],
            "20231216/cn-hangzhou/oss/aliyun_v4_request",
            "e21d18daa82167720f9b1047ae7e7f1ce7cb77a31e8203a7d5f4624fa0284afe",
        ),
        (
            cloudbox,
            1_702_743_657,
            &[],
            "20231216/cb-123/oss-cloudbox/aliyun_v4_request",
            "94ce1f12c17d148ea681030275a94449d3357f5b5b21133996eec80af3e08a43",
        ),
        (
            signer(SignatureVersion::V4, Some("token")),
            1_702_784_856,
            &[],
            "20231217/cn-hangzhou/oss/aliyun_v4_request",
            "b94a3f999cf85bcdc00d332fbd3734ba03e48382c36fa4d5af5df817395bd9ea",
        ),
        (
            signer(SignatureVersion::V4, None),
            1_702_747_512,
            &["zabc", "abc"],
            "20231216/cn-hangzhou/oss/aliyun_v4_request,AdditionalHeaders=abc;zabc",
            "4a4183c187c07c8947db7620deb0a6b38d9fbdd34187b6dbaccb316fa251212f",
        ),
        // Names that are signed anyway or absent are dropped.
        (
            signer(SignatureVersion::V4, None),
            1_702_747_512,
            &["x-oss-no-exist", "zabc", "x-oss-head1", "abc"],
            "20231216/cn-hangzhou/oss/aliyun_v4_request,AdditionalHeaders=abc;zabc",
            "4a4183c187c07c8947db7620deb0a6b38d9fbdd34187b6dbaccb316fa251212f",
        ),
    ];
    for (signer, unix_s, also, scope, signature) in rows {
        let expected = format!("OSS4-HMAC-SHA256 Credential=ak/{scope},Signature={signature}");
        let mut request = example("text/plain");
        // A second signature replaces the first.
        for _ in 0..2 {
            signer.sign(&mut request, OBJECT, unix_s);
            if !also.is_empty() {
                signer.sign_v4(&mut request, OBJECT, unix_s, also);
            }
            assert_eq!(request.header("authorization"), Some(expected.as_str()));
        }
    }
}

#[test]
fn published_v4_canonical_request() {
    let mut request = example("text/plain");
    signer(SignatureVersion::V4, None).sign(&mut request, OBJECT, 1_702_743_657);
    let expected = "f4613657f1b108998e8dbd10a1aa5da621dc2c6e02c9ddec0f163664848704c4";
    assert_eq!(canonical_hash(&request, OBJECT, ""), expected);
}

#[test]
fn published_v4_queries() {
    let cloudbox = || Signer::new(credentials(None), SignatureVersion::V4, "cb-123", "oss-cloudbox");
    let rows: [(Signer, u64, &[&str], &str); 5] = [
        (
            signer(SignatureVersion::V4, None),
            1_702_781_677,
            &[],
            "a39966c61718be0d5b14e668088b3fa07601033f6518ac7b523100014269c0fe",
        ),
        (
            signer(SignatureVersion::V4, Some("token")),
            1_702_785_388,
            &[],
            "3817ac9d206cd6dfc90f1c09c00be45005602e55898f26f5ddb06d7892e1f8b5",
        ),
        (
            signer(SignatureVersion::V4, None),
            1_702_783_809,
            &["zabc", "abc"],
            "6bd984bfe531afb6db1f7550983a741b103a8c58e5e14f83ea474c2322dfa2b7",
        ),
        (
            cloudbox(),
            1_702_781_677,
            &["zabc", "abc"],
            "07284191b9b4978ac3520cd39ee2dea2747eda454089359371ff463a6c7ba20f",
        ),
        (
            cloudbox(),
            1_702_783_809,
            &["zabc", "abc"],
            "16782cc8a7a554523db055eb804b508522e7e370073108ad88ee2f47496701dd",
        ),
    ];
    for (signer, unix_s, also, signature) in rows {
        let mut request = example("application/octet-stream");
        // An earlier presigning is replaced.
        for _ in 0..2 {
            signer.presign_v4(&mut request, OBJECT, 599, unix_s, also);
            assert_eq!(parameter_of(&request, "x-oss-signature"), signature);
        }
        assert_eq!(parameter_of(&request, "x-oss-expires"), "599");
        assert_eq!(
            parameter_of(&request, "x-oss-additional-headers"),
            if also.is_empty() { "" } else { "abc%3Bzabc" }
        );
    }
}

#[test]
fn published_v1_headers() {
    for (query, signature) in [("", "kSHKmLxlyEAKtZPkJhG9bZb5k7M="), ("acl", "/afkugFbmWDQ967j1vr6zygBLQk=")]
    {
        let headers = [
            ("content-md5", "eB5eJF1ptWaXm4bijSPyxw=="),
            ("content-type", "text/html"),
            ("x-oss-meta-author", "alice"),
            ("x-oss-meta-magic", "abracadabra"),
            ("x-oss-date", "Wed, 28 Dec 2022 10:27:41 GMT"),
        ];
        let mut request = request(Method::Put, query, &headers);
        let at = parse_http("Wed, 28 Dec 2022 10:27:41 GMT").unwrap();
        let resource = Resource { bucket: "examplebucket", key: "nelson" };
        signer(SignatureVersion::V1, None).sign(&mut request, resource, at);
        assert_eq!(request.header("authorization"), Some(format!("OSS ak:{signature}").as_str()));
        assert_eq!(request.header("date"), Some("Wed, 28 Dec 2022 10:27:41 GMT"));
    }
}

/// The calls of writing with their parameters, as the table of the Go SDK v2 (oss/signer/v1.go) has them
/// signed: those of the resource, and of a list no page.
#[test]
fn v1_signs_the_parameters_of_a_resource() {
    let oss = Oss::new(Some("http://oss.example.com"), None, Addressing::Virtual).unwrap();
    let (none, source) = (Condition::None, CopySource { bucket: "from", key: "k", ..CopySource::default() });
    let options = ObjectOptions::default();
    let rows = [
        (oss.put_object("bucket", KEY, &options, &none), KEY, ""),
        (oss.create_upload("bucket", KEY, &options), KEY, "?uploads"),
        (oss.upload_part("bucket", KEY, "A+/=", 7), KEY, "?partNumber=7&uploadId=A+/="),
        (oss.copy_part("bucket", KEY, "A", 7, &source, 0..9), KEY, "?partNumber=7&uploadId=A"),
        (oss.complete_upload("bucket", KEY, "A", &options, &none), KEY, "?uploadId=A"),
        (oss.abort_upload("bucket", KEY, "A"), KEY, "?uploadId=A"),
        (oss.list_parts("bucket", KEY, "A", Some(7)), KEY, "?uploadId=A"),
        (oss.list_uploads("bucket", "a b", Some("c"), Some("A")), "", "?uploads"),
        (oss.copy_object("bucket", KEY, &source, &options, Directives::default(), &none), KEY, ""),
        (oss.delete_object("bucket", KEY, Some("v+1")), KEY, "?versionId=v+1"),
        (oss.delete_objects("bucket"), "", "?delete"),
        (oss.create_bucket("bucket"), "", ""),
        (oss.delete_bucket("bucket"), "", ""),
        (request(Method::Post, "append&position=5", &[]), KEY, "?append&position=5"),
        (request(Method::Put, "acl", &[]), KEY, "?acl"),
        (request(Method::Put, "tagging", &[]), KEY, "?tagging"),
    ];
    for (request, key, parameters) in rows {
        let found = resource_v1(&request, Resource { bucket: "bucket", key });
        assert_eq!(found, format!("/bucket/{key}{parameters}"), "{}", request.target());
    }
}

#[test]
fn v4_signs_all_parameters_in_order() {
    let oss = Oss::new(Some("http://oss.example.com"), None, Addressing::Virtual).unwrap();
    let rows = [
        oss.create_upload("bucket", KEY, &ObjectOptions::default()),
        oss.upload_part("bucket", KEY, "A+/=", 7),
        oss.list_parts("bucket", KEY, "A", Some(7)),
        oss.list_uploads("bucket", "a b", Some("c"), Some("A")),
        oss.delete_objects("bucket"),
    ];
    for request in rows {
        // What is sent is in the order that is signed: names alone where they have no value.
        assert_eq!(canonical_query(&request.query), request.query);
    }
}

#[test]
fn published_v1_queries() {
    let rows = [
        (
            None,
            "key",
            1_699_807_420,
            "Expires=1699807420&OSSAccessKeyId=ak&Signature=dcLTea%2BYh9ApirQ8o8dOPqtvJXQ%3D&versionId=versionId",
        ),
        (
            Some("token"),
            "key+123",
            1_699_808_204,
            "Expires=1699808204&OSSAccessKeyId=ak&Signature=jzKYRrM5y6Br0dRFPaTGOsbrDhY%3D&security-token=token\
             &versionId=versionId",
        ),
    ];
    for (token, key, expires, query) in rows {
        let mut request = request(Method::Get, "versionId=versionId", &[]);
        let signer = signer(SignatureVersion::V1, token);
        for _ in 0..2 {
            signer.presign(&mut request, Resource { bucket: "bucket", key }, 60, expires - 60);
            assert_eq!(request.query, query);
        }
    }
}

#[test]
fn one_signature_serves_all_ranges_and_both_addressings() {
    let authorization = |addressing, version, range: &[(&str, &str)]| {
        let oss = Oss::new(Some("http://oss.example.com"), None, addressing).unwrap();
        let mut request = oss.get_object("bucket", KEY);
        for (name, value) in range {
            request.set(name, *value);
        }
        signer(version, Some("token")).sign(&mut request, OBJECT, 1_702_743_657);
        assert_eq!(request.header("x-oss-range-behavior"), Some("standard"));
        request.header("authorization").unwrap().to_owned()
    };
    for version in [SignatureVersion::V4, SignatureVersion::V1] {
        let bare = authorization(Addressing::Virtual, version, &[]);
        let ranged = [("range", "bytes=5-9"), ("if-match", "\"etag\"")];
        assert_eq!(authorization(Addressing::Virtual, version, &ranged), bare);
        assert_eq!(authorization(Addressing::Path, version, &ranged), bare);
    }
}

#[test]
fn a_presigned_url_needs_no_header() {
    for version in [SignatureVersion::V4, SignatureVersion::V1] {
        let oss = Oss::new(Some("http://oss.example.com"), None, Addressing::Auto).unwrap();
        let mut request = oss.get_object("bucket", KEY);
        signer(version, Some("token")).sign(&mut request, OBJECT, 0);
        signer(version, Some("token")).presign(&mut request, OBJECT, 60, 0);
        let left: Vec<_> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert!(!left.iter().any(|name| name.starts_with("x-oss-") || *name == "authorization"), "{left:?}");
    }
}

#[test]
fn tokens_come_and_go() {
    for version in [SignatureVersion::V4, SignatureVersion::V1] {
        let mut request = request(Method::Get, "", &[(TOKEN_HEADER, "stale")]);
        signer(version, Some(" token\n")).sign(&mut request, OBJECT, 0);
        assert_eq!(request.header(TOKEN_HEADER), Some("token"));
        signer(version, Some("\n")).sign(&mut request, OBJECT, 0);
        assert_eq!(request.header(TOKEN_HEADER), None);
    }
}

#[test]
fn the_day_key_follows_the_day() {
    let sign = |signer: &Signer, unix_s| {
        let mut request = request(Method::Get, "", &[]);
        signer.sign(&mut request, OBJECT, unix_s);
        request.header("authorization").unwrap().to_owned()
    };
    let long_lived = signer(SignatureVersion::V4, None);
    for unix_s in [1_702_743_657, 1_702_743_658, 1_702_830_057, 1_702_743_657] {
        assert_eq!(sign(&long_lived, unix_s), sign(&signer(SignatureVersion::V4, None), unix_s), "{unix_s}");
    }
}

#[test]
fn debug_shows_no_secret() {
    for version in [SignatureVersion::V4, SignatureVersion::V1] {
        let secret = Credentials {
            access_key: "LTAIEXAMPLEEXAMPLEKEY1".into(),
            secret_key: "hunter2".into(),
            session_token: Some("hunter2token".into()),
        };
        let signer = Signer::new(secret, version, "cn-hangzhou", "oss");
        let (mut signed, mut presigned) = (request(Method::Get, "", &[]), request(Method::Get, "", &[]));
        signer.sign(&mut signed, OBJECT, 0);
        signer.presign(&mut presigned, OBJECT, 60, 0);
        for text in [format!("{signer:?}"), format!("{signed:?}"), format!("{presigned:?}")] {
            assert!(!text.contains("hunter2") && !text.contains("LTAI"), "{text}");
            assert!(!text.contains("ignature=") || text.contains("ignature=***"), "{text}");
        }
    }
}

#[test]
fn versions_by_name() {
    assert_eq!(("v4".parse(), "v1".parse()), (Ok(SignatureVersion::V4), Ok(SignatureVersion::V1)));
    assert!("v2".parse::<SignatureVersion>().is_err());
}
