//! SignatureVersion 4: an HMAC-SHA256 over the whole request, under a key that is good for one day, region
//! and product.

use flatout_wire::time::{format_amz, parse_amz, parse_http};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::{Claim, SignatureVersion, Validity, malformed};
use crate::oss::refusal::Refusal;
use crate::oss::request::OssRequest;

pub(super) const ALGORITHM: &str = "OSS4-HMAC-SHA256";

/// The last word of every scope.
const REQUEST: &str = "aliyun_v4_request";

/// The value that stands for the hash of the body.
const CONTENT_SHA256: &str = "x-oss-content-sha256";

/// The longest validity of a presigned URL: a week.
const MAX_EXPIRES_S: u64 = 7 * 86_400;

/// What a signature is made for beside the request itself.
pub(super) struct Scope {
    /// `20231216T162057Z`, or the Date of the request.
    timestamp: String,
    day: String,
    region: String,
    product: String,
    /// Headers that are signed beside those that always are; lower case.
    additional: Vec<String>,
}

/// `Credential=…[,AdditionalHeaders=…],Signature=…`
pub(super) fn in_header(request: &OssRequest, text: &str) -> Result<Claim, Refusal> {
    let field = |name: &str| {
        let mut pairs = text.split(',').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(other, _)| *other == name).map(|(_, value)| value)
    };
    let (Some(credential), Some(signature)) = (field("Credential"), field("Signature")) else {
        let why = "the Authorization header has no Credential or no Signature";
        return Err(malformed(why).numbered("0002-00000202"));
    };
    // Older clients sign Date as it stands.
    let date = match request.header("x-oss-date") {
        Some(date) => parse_amz(&date).map(|unix_s| (date, unix_s)),
        None => request.header("date").and_then(|date| parse_http(&date).map(|unix_s| (date, unix_s))),
    };
    let (timestamp, unix_s) =
        date.ok_or_else(|| malformed("a signed request has Date, or x-oss-date as in 20231216T162057Z"))?;
    let (access_key, scope) =
        scope(credential, (timestamp, unix_s), field("AdditionalHeaders").unwrap_or_default())
            .ok_or_else(|| malformed(CREDENTIAL_RULE).numbered("0002-00000213"))?;
    if request.header(CONTENT_SHA256).is_none() {
        return Err(malformed("a request that is signed in its header has x-oss-content-sha256"));
    }
    Ok(Claim {
        access_key,
        signature: signature.to_owned(),
        validity: Validity::Around { unix_s },
        version: SignatureVersion::V4(scope),
    })
}

pub(super) fn in_query(request: &OssRequest) -> Result<Claim, Refusal> {
    let text = |name: &str| request.parameter(name).unwrap_or_default().to_owned();
    if text("x-oss-signature-version") != ALGORITHM {
        return Err(malformed(format!("x-oss-signature-version is not {ALGORITHM}")));
    }
    let timestamp = text("x-oss-date");
    let signed_s = parse_amz(&timestamp)
        .ok_or_else(|| malformed("a signed URL has x-oss-date, as in 20231216T162057Z"))?;
    let expires_s = expires_s(request)?;
    let (access_key, scope) =
        scope(&text("x-oss-credential"), (timestamp, signed_s), &text("x-oss-additional-headers"))
            .ok_or_else(|| malformed(CREDENTIAL_RULE).numbered("0002-00000224"))?;
    Ok(Claim {
        access_key,
        signature: text("x-oss-signature"),
        validity: Validity::Between { signed_s, last_s: signed_s + expires_s },
        version: SignatureVersion::V4(scope),
    })
}

/// How long a URL is good.
pub(super) fn expires_s(request: &OssRequest) -> Result<u64, Refusal> {
    let expires_s = request.number("x-oss-expires")?.filter(|expires| (1..=MAX_EXPIRES_S).contains(expires));
    expires_s
        .ok_or_else(|| malformed("x-oss-expires goes from 1 to 604800 seconds").numbered("0002-00000232"))
}

const CREDENTIAL_RULE: &str =
    "a credential is ID/DAY/REGION/oss/aliyun_v4_request, and its day is that of the date";

/// The access key and scope of a credential; None when it is none.
fn scope(credential: &str, (timestamp, unix_s): (String, u64), additional: &str) -> Option<(String, Scope)> {
    let mut words = credential.split('/');
    let (access_key, day, region, product) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let whole = words.next() == Some(REQUEST) && words.next().is_none();
    if !whole || !["oss", "oss-cloudbox"].contains(&product) || format_amz(unix_s)[..8] != *day {
        return None;
    }
    let scope = Scope {
        day: day.to_owned(),
        region: region.to_owned(),
        product: product.to_owned(),
        additional: additional.split(';').filter(|name| !name.is_empty()).map(str::to_lowercase).collect(),
        timestamp,
    };
    Some((access_key.to_owned(), scope))
}

/// In hexadecimal.
pub(super) fn signature(secret_key: &str, request: &OssRequest, scope: &Scope) -> String {
    let Scope { timestamp, day, region, product, .. } = scope;
    let hash = hex(&Sha256::digest(canonical_request(request, &scope.additional)));
    let string_to_sign = format!("{ALGORITHM}\n{timestamp}\n{day}/{region}/{product}/{REQUEST}\n{hash}");
    let seed = format!("aliyun_v4{secret_key}").into_bytes();
    let key = [day, region, product, REQUEST].iter().fold(seed, |key, word| hmac(&key, word));
    hex(&hmac(&key, &string_to_sign))
}

/// Method, path, query, headers, names of additional headers, and the value for the body; one a line.
fn canonical_request(request: &OssRequest, additional: &[String]) -> String {
    let bucket = request.bucket.as_ref().map(|bucket| format!("{bucket}/")).unwrap_or_default();
    let path = escape(&format!("/{bucket}{}", request.key.as_deref().unwrap_or_default()), "/");
    // A URL says nothing of the body.
    let payload = request.header(CONTENT_SHA256).unwrap_or_else(|| "UNSIGNED-PAYLOAD".to_owned());
    let (query, headers) = (canonical_query(request), canonical_headers(request, additional));
    format!("{}\n{path}\n{query}\n{headers}\n{}\n{payload}", request.method, additional.join(";"))
}

/// The signature itself cannot be signed.
fn canonical_query(request: &OssRequest) -> String {
    let signed = request.query.iter().filter(|(name, _)| name != "x-oss-signature");
    let mut pairs: Vec<(String, String)> =
        signed.map(|(name, value)| (escape(name, ""), escape(value, ""))).collect();
    pairs.sort();
    let pairs = pairs.into_iter().map(|(name, value)| match value.is_empty() {
        true => name,
        false => format!("{name}={value}"),
    });
    pairs.collect::<Vec<_>>().join("&")
}

fn canonical_headers(request: &OssRequest, additional: &[String]) -> String {
    let always = |name: &str| name.starts_with("x-oss-") || ["content-type", "content-md5"].contains(&name);
    let mut names: Vec<&str> = request
        .headers
        .keys()
        .map(|name| name.as_str())
        .filter(|name| always(name) || additional.iter().any(|other| other == name))
        .collect();
    names.sort_unstable();
    names.iter().map(|name| format!("{name}:{}\n", request.header(name).unwrap_or_default())).collect()
}

/// RFC 3986: all but unreserved characters and those of `kept` become `%XX`.
fn escape(text: &str, kept: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.as_bytes().contains(&byte) {
            escaped.push(byte.into());
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
