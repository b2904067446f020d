//! Signatures of Alibaba Cloud OSS, version 4 and version 1, in the headers and in the query
//! (reference/oss.md §6.1).
//!
//! Unlike those of S3 they name bucket and key apart from the path that is sent, so that both ways of
//! addressing are signed alike; `host`, `range` and `if-match` are not signed: one signature serves every
//! range of an object.

use std::fmt;
use std::str::FromStr;

use base64_simd::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::day_key::{DayKeys, OSS4, hex};
use crate::location::LocationError;
use crate::percent;
use crate::request::Request;
use crate::sign::{Credentials, PRESIGNED_MAX_S, parameter};
use crate::time::{format_amz, format_http};

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const TOKEN_HEADER: &str = "x-oss-security-token";

/// The parameters that version 1 signs as part of the resource, beside all that begin with `x-oss-`.
const SUBRESOURCES: [&str; 30] = [
    "acl",
    "append",
    "bucketInfo",
    "callback",
    "callback-var",
    "cloudboxes",
    "continuation-token",
    "delete",
    "location",
    "objectMeta",
    "partNumber",
    "position",
    "regionList",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "security-token",
    "sequential",
    "stat",
    "symlink",
    "tagging",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
];

type HmacSha1 = Hmac<Sha1>;

/// Which signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignatureVersion {
    /// HMAC-SHA256, scoped to a day and a region.
    #[default]
    V4,
    /// HMAC-SHA1 with the secret itself; knows no region. For services that are older than version 4.
    V1,
}

/// What a request is about, as a signature names it; both are empty where the service itself is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resource<'a> {
    pub bucket: &'a str,
    /// Not encoded.
    pub key: &'a str,
}

/// Signs requests of one account. May be used by several threads at once.
pub struct Signer {
    credentials: Credentials,
    version: SignatureVersion,
    /// Of version 4.
    days: DayKeys,
    /// Of version 1, the padding of its HMAC already hashed.
    secret: HmacSha1,
}

impl FromStr for SignatureVersion {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<SignatureVersion, LocationError> {
        match text {
            "v4" => Ok(SignatureVersion::V4),
            "v1" => Ok(SignatureVersion::V1),
            _ => Err(LocationError::BadSignature { text: crate::endpoint::shown(text) }),
        }
    }
}

impl Signer {
    /// A signer for `region` (`cn-hangzhou`) and `product` (`oss`; `oss-cloudbox`), which version 1 ignores.
    /// White space around the credentials, left by files and shells, is cut.
    pub fn new(credentials: Credentials, version: SignatureVersion, region: &str, product: &str) -> Signer {
        let credentials = credentials.trimmed();
        let days = DayKeys::new(&OSS4, &credentials.secret_key, region, product);
        let secret = HmacSha1::new_from_slice(credentials.secret_key.as_bytes());
        Signer { credentials, version, days, secret: secret.expect("HMAC takes keys of any length") }
    }

    /// Signs in the headers, replacing an earlier signature: sets `authorization`, `x-oss-security-token`,
    /// and the date (version 4: `x-oss-date` and `x-oss-content-sha256`, the body unsigned; version 1:
    /// `date`).
    pub fn sign(&self, request: &mut Request, resource: Resource<'_>, unix_s: u64) {
        request.remove("authorization");
        match &self.credentials.session_token {
            Some(token) => request.set(TOKEN_HEADER, token.as_str()),
            None => request.remove(TOKEN_HEADER),
        }
        match self.version {
            SignatureVersion::V4 => self.sign_v4(request, resource, unix_s, &[]),
            SignatureVersion::V1 => self.sign_v1(request, resource, unix_s),
        }
    }

    /// How many seconds a presigned URL may work: version 1 names the second of its end, however far away.
    pub fn presigned_max_s(&self) -> u32 {
        match self.version {
            SignatureVersion::V4 => PRESIGNED_MAX_S,
            SignatureVersion::V1 => u32::MAX,
        }
    }

    /// Signs in the query, for a URL that works for `expires_s` seconds without any header but those
    /// `x-oss-*` (and content headers) that the request has now. What asks for a plain range stays behind:
    /// whoever uses the URL does not send it.
    pub fn presign(&self, request: &mut Request, resource: Resource<'_>, expires_s: u32, unix_s: u64) {
        for name in ["authorization", "x-oss-date", "x-oss-content-sha256", TOKEN_HEADER, RANGE_BEHAVIOR.0] {
            request.remove(name);
        }
        match self.version {
            SignatureVersion::V4 => self.presign_v4(request, resource, expires_s, unix_s, &[]),
            SignatureVersion::V1 => self.presign_v1(request, resource, unix_s + u64::from(expires_s)),
        }
    }

    /// `also` (lower case): headers that are signed beside those that always are, as in the published
    /// vectors.
    fn sign_v4(&self, request: &mut Request, resource: Resource<'_>, unix_s: u64, also: &[&str]) {
        let date = format_amz(unix_s);
        request.set("x-oss-date", date.as_str());
        request.set("x-oss-content-sha256", UNSIGNED);
        let key = self.days.at(unix_s);
        let also = present(request, also);
        let hash = canonical_hash(request, resource, &also);
        let additional = if also.is_empty() { String::new() } else { format!(",AdditionalHeaders={also}") };
        let authorization = format!(
            "{} Credential={}/{}{additional},Signature={}",
            OSS4.algorithm,
            self.credentials.access_key,
            key.scope,
            key.signature(&date, &hash)
        );
        request.set("authorization", authorization);
    }

    fn presign_v4(
        &self,
        request: &mut Request,
        resource: Resource<'_>,
        expires_s: u32,
        unix_s: u64,
        also: &[&str],
    ) {
        let (date, key, also) = (format_amz(unix_s), self.days.at(unix_s), present(request, also));
        let mut parameters = kept_parameters(request, |name| {
            !name.starts_with("x-oss-signature") && !PRESIGNED.contains(&name)
        });
        parameters.extend([
            parameter("x-oss-signature-version", OSS4.algorithm),
            parameter("x-oss-credential", &format!("{}/{}", self.credentials.access_key, key.scope)),
            parameter("x-oss-date", &date),
            parameter("x-oss-expires", &expires_s.to_string()),
        ]);
        if !also.is_empty() {
            parameters.push(parameter("x-oss-additional-headers", &also));
        }
        if let Some(token) = &self.credentials.session_token {
            parameters.push(parameter(TOKEN_HEADER, token));
        }
        parameters.sort_unstable();
        request.query = parameters.join("&");
        let signature = key.signature(&date, &canonical_hash(request, resource, &also));
        request.query += &format!("&x-oss-signature={signature}");
    }

    fn sign_v1(&self, request: &mut Request, resource: Resource<'_>, unix_s: u64) {
        let date = format_http(unix_s);
        let signature = self.signature_v1(request, resource, &date);
        request.set("date", date);
        request.set("authorization", format!("OSS {}:{signature}", self.credentials.access_key));
    }

    fn presign_v1(&self, request: &mut Request, resource: Resource<'_>, expires_unix_s: u64) {
        let mut parameters = kept_parameters(request, |name| {
            !matches!(name, "Expires" | "OSSAccessKeyId" | "Signature" | "security-token")
        });
        if let Some(token) = &self.credentials.session_token {
            parameters.push(parameter("security-token", token));
        }
        request.query = parameters.join("&");
        let expires = expires_unix_s.to_string();
        let signature = self.signature_v1(request, resource, &expires);
        parameters.extend([
            parameter("Expires", &expires),
            parameter("OSSAccessKeyId", &self.credentials.access_key),
            parameter("Signature", &signature),
        ]);
        parameters.sort_unstable();
        request.query = parameters.join("&");
    }

    /// `date` is an HTTP date, or the second at which a presigned URL expires.
    fn signature_v1(&self, request: &Request, resource: Resource<'_>, date: &str) -> String {
        let mut mac = self.secret.clone();
        let mut put = |text: &str| mac.update(text.as_bytes());
        put(request.method.name());
        for value in [request.header("content-md5"), request.header("content-type"), Some(date)] {
            put("\n");
            put(value.unwrap_or("").trim());
        }
        put("\n");
        for (name, value) in sorted_headers(request, |name| name.starts_with("x-oss-")) {
            put(name);
            put(":");
            put(value.trim());
            put("\n");
        }
        put(&resource_v1(request, resource));
        BASE64.encode_to_string(mac.finalize().into_bytes())
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Signer({:?}, {:?}, {})", self.credentials, self.version, self.days.region())
    }
}

/// Without this header OSS answers a range behind the end with the whole object (reference/oss.md §6.2).
pub const RANGE_BEHAVIOR: (&str, &str) = ("x-oss-range-behavior", "standard");

/// The parameters of an earlier presigning that do not begin with `x-oss-signature`.
const PRESIGNED: [&str; 5] =
    ["x-oss-credential", "x-oss-date", "x-oss-expires", "x-oss-additional-headers", TOKEN_HEADER];

/// SHA-256, in hex, of version 4's canonical request. `also` are the names of the additional headers, joined.
fn canonical_hash(request: &Request, resource: Resource<'_>, also: &str) -> String {
    let mut hash = Sha256::new();
    let mut put = |text: &str| hash.update(text.as_bytes());
    put(request.method.name());
    put("\n");
    let mut uri = String::new();
    percent::encode_path(&plain(resource), &mut uri);
    put(&uri);
    put("\n");
    put(&canonical_query(&request.query));
    put("\n");
    let signed = |name: &str| is_signed(name) || also.split(';').any(|also| also == name);
    for (name, value) in sorted_headers(request, signed) {
        put(name);
        put(":");
        put(value.trim());
        put("\n");
    }
    put("\n");
    put(also);
    put("\n");
    put(request.header("x-oss-content-sha256").unwrap_or(UNSIGNED));
    hex(&hash.finalize())
}

/// `/bucket/key`, `/bucket/` or `/`, whichever way it is addressed.
fn plain(resource: Resource<'_>) -> String {
    match resource.bucket {
        "" => "/".into(),
        bucket => format!("/{bucket}/{}", resource.key),
    }
}

/// Parameters sorted by name, those without a value as their name alone.
fn canonical_query(query: &str) -> String {
    let mut parameters: Vec<(&str, &str)> = query
        .split('&')
        .filter(|given| !given.is_empty())
        .map(|given| given.split_once('=').unwrap_or((given, "")))
        .collect();
    parameters.sort_unstable();
    let written: Vec<String> = parameters
        .iter()
        .map(|(name, value)| if value.is_empty() { (*name).into() } else { format!("{name}={value}") })
        .collect();
    written.join("&")
}

/// The resource of version 1, as it is and not encoded, with the parameters that belong to it.
fn resource_v1(request: &Request, resource: Resource<'_>) -> String {
    let decode = |text: &str| String::from_utf8_lossy(&percent::decode(text)).into_owned();
    let mut parameters: Vec<(String, String)> = request
        .query
        .split('&')
        .map(|given| given.split_once('=').unwrap_or((given, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .filter(|(name, _)| SUBRESOURCES.contains(&name.as_str()) || name.starts_with("x-oss-"))
        .collect();
    parameters.sort_unstable();
    let mut written = plain(resource);
    for (at, (name, value)) in parameters.iter().enumerate() {
        written.push(if at == 0 { '?' } else { '&' });
        written.push_str(name);
        if !value.is_empty() {
            written.push('=');
            written.push_str(value);
        }
    }
    written
}

/// Whether version 4 always signs a header of that name.
fn is_signed(name: &str) -> bool {
    name.starts_with("x-oss-") || matches!(name, "content-type" | "content-md5")
}

/// Those of the headers `also` that the request has and that are not signed anyway, sorted and joined.
fn present(request: &Request, also: &[&str]) -> String {
    let mut names: Vec<&str> = also
        .iter()
        .copied()
        .filter(|name| !is_signed(name) && request.header(name).is_some_and(|value| !value.is_empty()))
        .collect();
    names.sort_unstable();
    names.join(";")
}

fn sorted_headers(request: &Request, wanted: impl Fn(&str) -> bool) -> Vec<(&str, &str)> {
    let all = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut headers: Vec<_> = all.filter(|(name, _)| wanted(name)).collect();
    headers.sort_unstable();
    headers
}

fn kept_parameters(request: &Request, kept: impl Fn(&str) -> bool) -> Vec<String> {
    let name = |given: &str| given.split('=').next().unwrap_or(given).to_owned();
    let given = request.query.split('&').filter(|given| !given.is_empty());
    given.filter(|given| kept(&name(given))).map(str::to_owned).collect()
}

#[cfg(test)]
#[path = "oss_sign_tests.rs"]
mod tests;
