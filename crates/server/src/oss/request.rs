//! A request as OSS reads it: in which dialect, for which bucket and key, with which query.

use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method};

use super::refusal::Refusal;

/// Query parameters that choose another operation than that of the plain method.
const SUBRESOURCES: &[&str] = &[
    "acl",
    "append",
    "bucketInfo",
    "cors",
    "delete",
    "encryption",
    "lifecycle",
    "location",
    "logging",
    "objectMeta",
    "policy",
    "referer",
    "replication",
    "requestPayment",
    "resourceGroup",
    "restore",
    "stat",
    "symlink",
    "tagging",
    "uploads",
    "uploadId",
    "versioning",
    "versions",
    "website",
    "worm",
    "x-oss-process",
];

/// The longest key, in bytes.
const MAX_KEY_BYTES: usize = 1023;

/// Whether a request is in OSS's dialect. The signature decides; without one the host, or a header of OSS's
/// own.
pub(crate) fn speaks_oss(head: &Parts) -> bool {
    if let Some(scheme) = head.headers.get(AUTHORIZATION) {
        return scheme.as_bytes().starts_with(b"OSS");
    }
    let mut names = parameters(head).map(|(name, _)| name.to_ascii_lowercase());
    if let Some(signed) = names.find(|name| name.ends_with("accesskeyid") || name.ends_with("-credential")) {
        return signed.starts_with("oss") || signed.starts_with("x-oss-");
    }
    let host = host(head);
    let name = without_port(&host);
    name.ends_with(".aliyuncs.com")
        || name.split('.').any(|label| label.starts_with("oss-"))
        || head.headers.keys().any(|header| header.as_str().starts_with("x-oss-"))
}

/// Bucket and key of a request in either dialect, valid or not; empty where it names none.
pub(crate) struct RequestPath {
    pub bucket: String,
    pub key: String,
    /// No query parameter chooses another operation than that of the method.
    pub plain: bool,
}

impl RequestPath {
    pub(crate) fn of(head: &Parts) -> RequestPath {
        let (bucket, key) = places(head, &host(head));
        let is_other = |name: &str| SUBRESOURCES.iter().any(|other| unescape(name) == other.as_bytes());
        RequestPath {
            plain: !parameters(head).any(|(name, _)| is_other(name)),
            bucket,
            key: String::from_utf8_lossy(&unescape(key)).into_owned(),
        }
    }
}

pub(super) struct OssRequest {
    pub method: Method,
    /// None asks for the service: the list of buckets.
    pub bucket: Option<String>,
    /// None asks for the bucket.
    pub key: Option<String>,
    /// Decoded, in the order of the request; a name without `=` has an empty value.
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    /// As the client named us, with the port.
    pub host: String,
}

impl OssRequest {
    /// Fails on names that OSS does not allow.
    pub(super) fn of(head: &Parts) -> Result<OssRequest, Refusal> {
        let host = host(head);
        let (bucket, key) = places(head, &host);
        let bucket = Some(bucket).filter(|bucket| !bucket.is_empty());
        let key = decode(key).ok_or_else(|| invalid_name("the key is not UTF-8"))?;
        if bucket.as_deref().is_some_and(|bucket| !s3s::path::check_bucket_name(bucket)) {
            return Err(Refusal::new(400, "InvalidBucketName", crate::backend::BUCKET_RULE));
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(invalid_name("a key has at most 1023 bytes"));
        }
        if key.starts_with(['/', '\\']) {
            return Err(invalid_name("a key starts with neither / nor \\").numbered("0016-00000005"));
        }
        let decoded = |text: &str| decode(&text.replace('+', " "));
        let query = parameters(head)
            .map(|(name, value)| Some((decoded(name)?, decoded(value)?)))
            .collect::<Option<_>>()
            .ok_or_else(|| Refusal::new(400, "InvalidArgument", "the query is not UTF-8"))?;
        Ok(OssRequest {
            method: head.method.clone(),
            bucket,
            key: Some(key).filter(|key| !key.is_empty()),
            query,
            headers: head.headers.clone(),
            host,
        })
    }

    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that is a number; `InvalidArgument` for anything else.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let wrong = || Refusal::new(400, "InvalidArgument", format!("{name} is not a number"));
        self.parameter(name).map(|text| text.parse().map_err(|_| wrong())).transpose()
    }

    /// A header as text, several of one name as one.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        let all: Vec<String> = self
            .headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
            .collect();
        (!all.is_empty()).then(|| all.join(","))
    }

    /// The parameter that chooses the operation. A part has `uploadId` and `partNumber`; both mean the
    /// upload.
    pub(super) fn subresource(&self) -> Option<&str> {
        SUBRESOURCES.iter().copied().find(|name| self.parameter(name).is_some())
    }

    /// Whether keys in XML are to be percent-encoded.
    pub(super) fn wants_encoding(&self) -> bool {
        self.parameter("encoding-type").is_some_and(|kind| kind.eq_ignore_ascii_case("url"))
    }
}

/// The bucket, in the host or at the start of the path, and the key as it stands there.
fn places<'a>(head: &'a Parts, host: &str) -> (String, &'a str) {
    let path = head.uri.path().strip_prefix('/').unwrap_or_default();
    bucket_of(without_port(host)).map_or_else(
        || {
            let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
            (bucket.to_owned(), key)
        },
        |bucket| (bucket, path),
    )
}

/// The pairs of a query as they stand there.
fn parameters(head: &Parts) -> impl Iterator<Item = (&str, &str)> {
    let pairs = head.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn host(head: &Parts) -> String {
    let stated = head.headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    stated.or_else(|| head.uri.authority().map(|host| host.to_string())).unwrap_or_default()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // [::1] has colons of its own.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The bucket in a virtual host: `BUCKET.oss-REGION.aliyuncs.com`, `BUCKET.localhost`. Every other host is
/// path style.
fn bucket_of(name: &str) -> Option<String> {
    let stem = name.strip_suffix(".localhost").or_else(|| name.strip_suffix(".aliyuncs.com"))?;
    let labels: Vec<&str> = stem.split('.').collect();
    let labels = match labels.iter().rposition(|label| label.starts_with("oss-")) {
        // An accelerator has its zone before the name of the service:
        // BUCKET.cn-beijing-h-internal.oss-data-acc.
        Some(at) if labels[at] == "oss-data-acc" => &labels[..at.saturating_sub(1)],
        Some(0) if name.ends_with(".localhost") => &labels[..],
        Some(at) => &labels[..at],
        None if name.ends_with(".localhost") => &labels[..],
        None => &[],
    };
    (!labels.is_empty()).then(|| labels.join("."))
}

/// Decodes percent-encoding. None when the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    String::from_utf8(unescape(text)).ok()
}

/// Decodes percent-encoding; a `%` that starts no triple stays.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

fn invalid_name(why: &str) -> Refusal {
    Refusal::new(400, "InvalidObjectName", why)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A request's head from its first line without the version and its headers.
    pub(in crate::oss) fn head(line: &str, headers: &[(&str, &str)]) -> Parts {
        let (method, target) = line.split_once(' ').unwrap();
        let mut request = hyper::Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_dialect_is_told_by_the_signature_then_by_host_and_headers() {
        for (target, headers, oss) in [
            ("/b/k", &[][..], false),
            ("/b/k", &[("authorization", "OSS ak:c2ln")], true),
            ("/b/k", &[("authorization", "OSS4-HMAC-SHA256 Credential=a")], true),
            ("/b/k", &[("authorization", "AWS4-HMAC-SHA256 Credential=a"), ("x-oss-date", "x")], false),
            ("/b/k", &[("authorization", "AWS a:b"), ("host", "b.oss-cn-hangzhou.aliyuncs.com")], false),
            ("/b/k?OSSAccessKeyId=a&Expires=1&Signature=b", &[], true),
            ("/b/k?x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-credential=a", &[], true),
            ("/b/k?X-Amz-Credential=a&X-Amz-Signature=b", &[("host", "b.aliyuncs.com")], false),
            ("/b/k?AWSAccessKeyId=a&Signature=b", &[("x-oss-date", "x")], false),
            ("/k", &[("host", "b.oss-cn-hangzhou.aliyuncs.com")], true),
            ("/k", &[("host", "oss-cn-hangzhou.aliyuncs.com")], true),
            ("/k", &[("host", "b.oss-test.localhost:80")], true),
            ("/k", &[("host", "b.localhost:80")], false),
            ("/k", &[("x-oss-range-behavior", "standard")], true),
            ("/k", &[("x-amz-checksum-mode", "ENABLED")], false),
        ] {
            assert_eq!(speaks_oss(&head(&format!("GET {target}"), headers)), oss, "{target} {headers:?}");
        }
    }

    #[test]
    fn bucket_and_key_stand_in_host_and_path() {
        for (host, target, bucket, key) in [
            ("127.0.0.1:80", "/", None, None),
            ("127.0.0.1:80", "/bucket", Some("bucket"), None),
            ("127.0.0.1:80", "/bucket/", Some("bucket"), None),
            ("localhost:80", "/bucket/a%2Bb+c/%C3%BC", Some("bucket"), Some("a+b+c/ü")),
            ("[::1]:80", "/bucket/a//b", Some("bucket"), Some("a//b")),
            ("bucket.localhost:80", "/", Some("bucket"), None),
            ("bucket.localhost:80", "/a/b", Some("bucket"), Some("a/b")),
            ("oss-mine.localhost", "/a", Some("oss-mine"), Some("a")),
            ("bucket.oss-cn-hangzhou.aliyuncs.com", "/a", Some("bucket"), Some("a")),
            ("bucket.oss-cn-hangzhou-internal.aliyuncs.com", "/a", Some("bucket"), Some("a")),
            ("oss-mine.oss-cn-hangzhou.aliyuncs.com:80", "/a", Some("oss-mine"), Some("a")),
            ("oss-cn-hangzhou.aliyuncs.com", "/bucket/a", Some("bucket"), Some("a")),
            ("bucket.cn-beijing-h-internal.oss-data-acc.aliyuncs.com", "/a", Some("bucket"), Some("a")),
            ("cn-beijing-h-internal.oss-data-acc.aliyuncs.com", "/", None, None),
        ] {
            let request = OssRequest::of(&head(&format!("GET {target}"), &[("host", host)])).ok().unwrap();
            assert_eq!((request.bucket.as_deref(), request.key.as_deref()), (bucket, key), "{host} {target}");
        }
    }

    #[test]
    fn names_are_told_whatever_oss_allows() {
        let long = format!("/bucket/{}", "x".repeat(1024));
        for (target, bucket, key, plain) in [
            ("/bucket/a%2Fb?versionId=1", "bucket", "a/b", true),
            ("/bucket/k?x=%FF", "bucket", "k", true),
            ("/bucket/k?%61cl", "bucket", "k", false),
            ("/bucket/%FF", "bucket", "\u{fffd}", true),
            ("/B_/k", "B_", "k", true),
            ("/bucket", "bucket", "", true),
            ("/", "", "", true),
            (&long, "bucket", &long[8..], true),
        ] {
            let named = RequestPath::of(&head(&format!("GET {target}"), &[]));
            assert_eq!(
                (named.bucket.as_str(), named.key.as_str(), named.plain),
                (bucket, key, plain),
                "{target}"
            );
        }
    }

    #[test]
    fn names_that_oss_does_not_allow_are_refused() {
        let long = format!("/bucket/{}", "x".repeat(1024));
        for (target, code) in [
            ("/B_/k", "InvalidBucketName"),
            ("/bucket/%FF", "InvalidObjectName"),
            (&long, "InvalidObjectName"),
        ] {
            let refused = OssRequest::of(&head(&format!("GET {target}"), &[])).err().unwrap();
            assert_eq!(refused.code, code, "{target}");
        }
    }
}
