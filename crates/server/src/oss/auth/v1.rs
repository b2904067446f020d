//! SignatureVersion 1: an HMAC-SHA1 over method, digest, type, date, OSS's own headers and the resource.

use flatout_wire::time::parse_http;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::{Claim, SignatureVersion, Validity, malformed};
use crate::oss::refusal::Refusal;
use crate::oss::request::OssRequest;

/// Query parameters that belong to the resource and are signed with it, beside all that start with `x-oss-`.
const SIGNED: &[&str] = &[
    "acl",
    "append",
    "asyncFetch",
    "bucketInfo",
    "callback",
    "callback-var",
    "cloudboxes",
    "cname",
    "comp",
    "continuation-token",
    "cors",
    "delete",
    "encryption",
    "endTime",
    "img",
    "inventory",
    "inventoryId",
    "lifecycle",
    "live",
    "location",
    "logging",
    "metaQuery",
    "objectMeta",
    "partNumber",
    "policy",
    "position",
    "qos",
    "qosInfo",
    "referer",
    "regionList",
    "replication",
    "replicationLocation",
    "replicationProgress",
    "requestPayment",
    "resourceGroup",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "rtc",
    "security-token",
    "sequential",
    "startTime",
    "stat",
    "status",
    "style",
    "styleName",
    "symlink",
    "tagging",
    "transferAcceleration",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "vod",
    "website",
    "withHashContext",
    "worm",
    "wormExtend",
    "wormId",
];

/// `ACCESS-KEY:SIGNATURE`
pub(super) fn in_header(request: &OssRequest, text: &str) -> Result<Claim, Refusal> {
    let (access_key, signature) =
        text.split_once(':').ok_or_else(|| malformed("the Authorization header is no OSS ID:SIGNATURE"))?;
    // Browsers cannot set Date, so OSS has a header of its own, which comes first.
    let date = request.header("x-oss-date").or_else(|| request.header("date"));
    let unix_s = date.as_deref().and_then(parse_http);
    let (Some(date), Some(unix_s)) = (date, unix_s) else {
        let why = "a signed request has a date as HTTP writes them, in Date or x-oss-date";
        return Err(Refusal::new(403, "AccessDenied", why));
    };
    Ok(Claim {
        access_key: access_key.to_owned(),
        signature: signature.trim().to_owned(),
        validity: Validity::Around { unix_s },
        version: SignatureVersion::V1 { date },
    })
}

pub(super) fn in_query(request: &OssRequest) -> Result<Claim, Refusal> {
    let text = |name: &str| request.parameter(name).unwrap_or_default().to_owned();
    let date = text("Expires");
    let Ok(unix_s) = date.parse() else {
        return Err(Refusal::new(403, "AccessDenied", "a signed URL has Expires, in Unix seconds")
            .numbered("0002-00000067"));
    };
    Ok(Claim {
        access_key: text("OSSAccessKeyId"),
        signature: text("Signature"),
        // When it was made it does not say.
        validity: Validity::Between { signed_s: 0, last_s: unix_s },
        version: SignatureVersion::V1 { date },
    })
}

/// `date` takes the place of the date: in a signed URL it is the expiry time.
pub(super) fn signature(secret_key: &str, request: &OssRequest, date: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(secret_key.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(string_to_sign(request, date).as_bytes());
    base64_simd::STANDARD.encode_to_string(mac.finalize().into_bytes())
}

fn string_to_sign(request: &OssRequest, date: &str) -> String {
    let header = |name: &str| request.header(name).unwrap_or_default();
    let mut names: Vec<&str> =
        request.headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("x-oss-")).collect();
    names.sort_unstable();
    let own: String = names.iter().map(|name| format!("{name}:{}\n", header(name))).collect();
    let (digest, kind) = (header("content-md5"), header("content-type"));
    format!("{}\n{digest}\n{kind}\n{date}\n{own}{}", request.method, resource(request))
}

/// `/BUCKET/KEY?SUBRESOURCES`, nothing encoded.
fn resource(request: &OssRequest) -> String {
    let mut parameters: Vec<&(String, String)> = request
        .query
        .iter()
        .filter(|(name, _)| SIGNED.contains(&name.as_str()) || name.starts_with("x-oss-"))
        .collect();
    parameters.sort();
    let pairs: Vec<String> = parameters
        .iter()
        .map(|(name, value)| if value.is_empty() { name.clone() } else { format!("{name}={value}") })
        .collect();
    let bucket = request.bucket.as_ref().map(|bucket| format!("{bucket}/")).unwrap_or_default();
    let key = request.key.as_deref().unwrap_or_default();
    let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
    format!("/{bucket}{key}{query}")
}
