//! Who asks: signatures of OSS, versions 1 and 4, in a header or in the query, checked from their public
//! description and from nothing that signs in this project, so that each proves the other.
//!
//! <https://help.aliyun.com/en/oss/developer-reference/recommend-to-use-signature-version-4> and
//! <https://help.aliyun.com/en/oss/developer-reference/include-signatures-in-the-authorization-header>

mod v1;
mod v4;

use super::refusal::Refusal;
use super::request::OssRequest;

/// How far a client's clock may be off.
const SKEW_S: u64 = 15 * 60;

/// The one pair of keys that is let in. Not `Debug`: it holds a secret.
pub(super) struct OssKeys {
    pub access_key: String,
    pub secret_key: String,
}

/// The credentials of a request: access key, time and signature.
struct Claim {
    access_key: String,
    signature: String,
    validity: Validity,
    version: SignatureVersion,
}

/// When a signature is good.
enum Validity {
    /// Around the time at which it was made.
    Around { unix_s: u64 },
    /// From when it was made, as far as a clock may be off, until a time.
    Between { signed_s: u64, last_s: u64 },
}

enum SignatureVersion {
    V1 { date: String },
    V4(v4::Scope),
}

/// Checks that the request is signed with the keys.
pub(super) fn check(keys: &OssKeys, request: &OssRequest, now_s: u64) -> Result<(), Refusal> {
    let claim = claim(request)?;
    if claim.access_key != keys.access_key {
        let why = "the access key id is not that of this origin";
        return Err(Refusal::new(403, "InvalidAccessKeyId", why));
    }
    check_time(&claim.validity, now_s)?;
    let signature = match &claim.version {
        SignatureVersion::V1 { date } => v1::signature(&keys.secret_key, request, date),
        SignatureVersion::V4(scope) => v4::signature(&keys.secret_key, request, scope),
    };
    if signature != claim.signature {
        let why =
            "the signature that was computed here is not the one that came: check the key and what is signed";
        return Err(Refusal::new(403, "SignatureDoesNotMatch", why));
    }
    Ok(())
}

/// A URL is valid for a week at most, even at an origin that checks no signatures.
pub(super) fn check_expiry(request: &OssRequest) -> Result<(), Refusal> {
    match request.parameter("x-oss-expires") {
        Some(_) => v4::expires_s(request).map(drop),
        None => Ok(()),
    }
}

fn claim(request: &OssRequest) -> Result<Claim, Refusal> {
    match request.header("authorization") {
        Some(header) => match header.split_once(' ') {
            Some((v4::ALGORITHM, rest)) => v4::in_header(request, rest),
            Some(("OSS", rest)) => v1::in_header(request, rest),
            _ => Err(malformed("the Authorization header is neither OSS nor OSS4-HMAC-SHA256")
                .numbered("0002-00000061")),
        },
        None if request.parameter("x-oss-credential").is_some() => v4::in_query(request),
        None if request.parameter("OSSAccessKeyId").is_some() => v1::in_query(request),
        None => {
            Err(Refusal::new(403, "AccessDenied", "the request is not signed, and nobody is let in unsigned"))
        }
    }
}

fn check_time(validity: &Validity, now_s: u64) -> Result<(), Refusal> {
    match *validity {
        Validity::Around { unix_s } if unix_s.abs_diff(now_s) > SKEW_S => {
            let why = "the difference between the request time and the server time is larger than 15 minutes";
            Err(Refusal::new(403, "RequestTimeTooSkewed", why))
        }
        Validity::Between { signed_s, .. } if signed_s > now_s + SKEW_S => {
            Err(Refusal::new(403, "AccessDenied", "the request is not good yet: its date is in the future"))
        }
        Validity::Between { last_s, .. } if last_s < now_s => {
            Err(Refusal::new(403, "AccessDenied", "the request has expired").numbered("0002-00000069"))
        }
        _ => Ok(()),
    }
}

fn malformed(why: impl Into<String>) -> Refusal {
    Refusal::new(400, "InvalidArgument", why)
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::head;
    use super::*;

    /// The signing tests of the Go SDK v2 1.6.1 (`oss/signer/signer_test.go`): the query and headers that all
    /// share.
    const QUERY: &str = "%2Bparam1=value3&%2Bparam2=&%7Cparam1=value4&%7Cparam2=&param1=value1&param2=";
    const HEADERS: [(&str, &str); 5] = [
        ("x-oss-head1", "value"),
        ("abc", "value"),
        ("zabc", "value"),
        ("xyz", "value"),
        ("host", "bucket.oss-cn-hangzhou.aliyuncs.com"),
    ];

    /// What is said of a request at a time; an empty code lets it in.
    #[track_caller]
    fn check(line: &str, headers: &[(&str, &str)], now_s: u64, code: &str) {
        let keys = OssKeys { access_key: "ak".to_owned(), secret_key: "sk".to_owned() };
        let request = OssRequest::of(&head(line, headers)).unwrap();
        let said = super::check(&keys, &request, now_s).err();
        assert_eq!(said.as_ref().map_or("", |refusal| &refusal.code), code, "{line} {said:?}");
    }

    #[track_caller]
    fn check_v4_header(now_s: u64, more: &[(&str, &str)], authorization: &str) {
        let line = format!("PUT /1234%2B-/123/1.txt?{QUERY}");
        let signed = [("content-type", "text/plain"), ("x-oss-content-sha256", "UNSIGNED-PAYLOAD")];
        let with = |authorization: &str, code| {
            let auth = [("authorization", authorization)];
            check(&line, &[&HEADERS[..], &signed, more, &auth].concat(), now_s, code);
        };
        with(authorization, "");
        // One digit of the signature, another scope.
        let last = authorization.chars().last().unwrap();
        let other = if last == '0' { '1' } else { '0' };
        with(&format!("{}{other}", &authorization[..authorization.len() - 1]), "SignatureDoesNotMatch");
        with(
            &authorization.replace("cn-hangzhou", "cn-beijing").replace("cb-123", "cb-124"),
            "SignatureDoesNotMatch",
        );
        with(&authorization.replace("Credential=ak", "Credential=other"), "InvalidAccessKeyId");
    }

    #[test]
    fn v4_in_a_header() {
        let scope = "OSS4-HMAC-SHA256 Credential=ak/20231216/cn-hangzhou/oss/aliyun_v4_request";
        check_v4_header(
            1_702_743_657,
            &[("x-oss-date", "20231216T162057Z")],
            &format!("{scope},Signature=e21d18daa82167720f9b1047ae7e7f1ce7cb77a31e8203a7d5f4624fa0284afe"),
        );
        check_v4_header(
            1_702_743_657,
            &[("x-oss-date", "20231216T162057Z")],
            "OSS4-HMAC-SHA256 Credential=ak/20231216/cb-123/oss-cloudbox/aliyun_v4_request,\
             Signature=94ce1f12c17d148ea681030275a94449d3357f5b5b21133996eec80af3e08a43",
        );
        check_v4_header(
            1_702_784_856,
            &[("x-oss-date", "20231217T034736Z"), ("x-oss-security-token", "token")],
            "OSS4-HMAC-SHA256 Credential=ak/20231217/cn-hangzhou/oss/aliyun_v4_request, \
             Signature=b94a3f999cf85bcdc00d332fbd3734ba03e48382c36fa4d5af5df817395bd9ea",
        );
        check_v4_header(
            1_702_747_512,
            &[("x-oss-date", "20231216T172512Z")],
            &format!(
                "{scope},AdditionalHeaders=abc;zabc,\
                 Signature=4a4183c187c07c8947db7620deb0a6b38d9fbdd34187b6dbaccb316fa251212f"
            ),
        );
    }

    #[test]
    fn v4_in_the_query() {
        for (date, now_s, more, signature) in [
            (
                "20231217T025437Z",
                1_702_781_677,
                "",
                "a39966c61718be0d5b14e668088b3fa07601033f6518ac7b523100014269c0fe",
            ),
            (
                "20231217T035628Z",
                1_702_785_388,
                "&x-oss-security-token=token",
                "3817ac9d206cd6dfc90f1c09c00be45005602e55898f26f5ddb06d7892e1f8b5",
            ),
            (
                "20231217T033009Z",
                1_702_783_809,
                "&x-oss-additional-headers=abc%3Bzabc",
                "6bd984bfe531afb6db1f7550983a741b103a8c58e5e14f83ea474c2322dfa2b7",
            ),
        ] {
            let line = format!(
                "PUT /1234%2B-/123/1.txt?{QUERY}&x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-date={date}\
                 &x-oss-expires=599&x-oss-credential=ak%2F20231217%2Fcn-hangzhou%2Foss%2Faliyun_v4_request{more}\
                 &x-oss-signature={signature}"
            );
            let headers = [&HEADERS[..], &[("content-type", "application/octet-stream")]].concat();
            check(&line, &headers, now_s, "");
            check(&line, &headers, now_s + 599, "");
            check(&line, &headers, now_s + 600, "AccessDenied");
            check(&line, &headers, now_s - 900, "");
            check(&line, &headers, now_s - 901, "AccessDenied");
            check(&line.replace("expires=599", "expires=600"), &headers, now_s, "SignatureDoesNotMatch");
            check(&line.replace("param1=value1", "param1=value2"), &headers, now_s, "SignatureDoesNotMatch");
            check(&line.replace("expires=599", "expires=604801"), &headers, now_s, "InvalidArgument");
        }
    }

    #[test]
    fn v1_in_a_header() {
        // The example of the documentation, with its own keys.
        let headers = [
            ("content-md5", "eB5eJF1ptWaXm4bijSPyxw=="),
            ("content-type", "text/html"),
            ("x-oss-date", "Wed, 28 Dec 2022 10:27:41 GMT"),
            ("x-oss-meta-author", "alice"),
            ("x-oss-meta-magic", "abracadabra"),
            ("host", "examplebucket.oss-cn-hangzhou.aliyuncs.com"),
        ];
        let now_s = 1_672_223_261;
        for (target, signature, now_s, code) in [
            ("/nelson", "kSHKmLxlyEAKtZPkJhG9bZb5k7M=", now_s, ""),
            ("/nelson?acl", "/afkugFbmWDQ967j1vr6zygBLQk=", now_s, ""),
            ("/nelson?prefix=a&acl=", "/afkugFbmWDQ967j1vr6zygBLQk=", now_s, ""),
            ("/nelson?acl", "kSHKmLxlyEAKtZPkJhG9bZb5k7M=", now_s, "SignatureDoesNotMatch"),
            ("/nelson", "kSHKmLxlyEAKtZPkJhG9bZb5k7M=", now_s + 900, ""),
            ("/nelson", "kSHKmLxlyEAKtZPkJhG9bZb5k7M=", now_s + 901, "RequestTimeTooSkewed"),
            ("/nelson", "kSHKmLxlyEAKtZPkJhG9bZb5k7M=", now_s - 901, "RequestTimeTooSkewed"),
        ] {
            let authorization = format!("OSS ak:{signature}");
            let headers = [&headers[..], &[("authorization", &*authorization)]].concat();
            check(&format!("PUT {target}"), &headers, now_s, code);
        }
    }

    #[test]
    fn what_is_no_signature_says_so() {
        let now_s = 1_702_743_657;
        let sent = [("x-oss-date", "20231216T162057Z"), ("x-oss-content-sha256", "UNSIGNED-PAYLOAD")];
        for (header, code) in [
            ("OSS2 ak:x", "InvalidArgument"),
            ("OSS ak", "InvalidArgument"),
            ("OSS ak:x", "AccessDenied"),
            ("OSS4-HMAC-SHA256 Signature=x", "InvalidArgument"),
            ("OSS4-HMAC-SHA256 Credential=ak/20231216/r/oss/abc,Signature=x", "InvalidArgument"),
            (
                "OSS4-HMAC-SHA256 Credential=ak/20231217/r/oss/aliyun_v4_request,Signature=x",
                "InvalidArgument",
            ),
            (
                "OSS4-HMAC-SHA256 Credential=ak/20231216/r/oss/aliyun_v4_request,Signature=x",
                "SignatureDoesNotMatch",
            ),
        ] {
            let headers = if code == "AccessDenied" { &[][..] } else { &sent[..] };
            check("GET /bucket/k", &[headers, &[("authorization", header)]].concat(), now_s, code);
        }
        // Only a URL may be silent on its body.
        let whole = "OSS4-HMAC-SHA256 Credential=ak/20231216/r/oss/aliyun_v4_request,Signature=x";
        check("GET /bucket/k", &[sent[0], ("authorization", whole)], now_s, "InvalidArgument");
        check("GET /bucket/k", &[], now_s, "AccessDenied");
        check("GET /bucket/k?OSSAccessKeyId=ak&Signature=x", &[], now_s, "AccessDenied");
        check("GET /bucket/k?OSSAccessKeyId=ak&Signature=x&Expires=1", &[], now_s, "AccessDenied");
        check(
            "GET /bucket/k?OSSAccessKeyId=ak&Signature=x&Expires=1702743658",
            &[],
            now_s,
            "SignatureDoesNotMatch",
        );
    }
}
