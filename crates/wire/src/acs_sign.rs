//! Alibaba Cloud's signature of API calls, ACS3-HMAC-SHA256 (help.aliyun.com, "V3 request structure and
//! signature"). OSS has a signature of its own; this one is for the services beside it, such as STS.

use sha2::{Digest, Sha256};

use crate::day_key::{hex, hmac, hmac_key};
use crate::request::Request;
use crate::sign::{Credentials, canonical_query, joined_names};
use crate::time::format_iso_seconds;

const ALGORITHM: &str = "ACS3-HMAC-SHA256";

/// Signs a call with its `body`: sets the date, `nonce` (never the same twice), the body's hash, the token
/// and `authorization`. `x-acs-action` and `x-acs-version` are the caller's.
pub fn sign(request: &mut Request, body: &[u8], credentials: &Credentials, nonce: &str, unix_s: u64) {
    let body_hash = hex(&Sha256::digest(body));
    request.remove("authorization");
    request.set("x-acs-date", format_iso_seconds(unix_s));
    request.set("x-acs-signature-nonce", nonce);
    request.set("x-acs-content-sha256", body_hash.as_str());
    match &credentials.session_token {
        Some(token) => request.set("x-acs-security-token", token.as_str()),
        None => request.remove("x-acs-security-token"),
    }
    let mut headers: Vec<(&str, &str)> = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.trim()))
        .filter(|(name, _)| matches!(*name, "host" | "content-type") || name.starts_with("x-acs-"))
        .collect();
    headers.sort_unstable();
    let names = joined_names(&headers);
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!(
        "{}\n{}\n{}\n{lines}\n{names}\n{body_hash}",
        request.method,
        request.path,
        canonical_query(&request.query)
    );
    let to_sign = format!("{ALGORITHM}\n{}", hex(&Sha256::digest(canonical)));
    let signature = hex(&hmac(&hmac_key(credentials.secret_key.as_bytes()), &to_sign));
    let access_key = &credentials.access_key;
    request.set(
        "authorization",
        format!("{ALGORITHM} Credential={access_key},SignedHeaders={names},Signature={signature}"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::request::Method;

    /// The example of the page, with its fixed nonce and date.
    #[test]
    fn the_published_vector() {
        let (endpoint, _) = Endpoint::parse("https://ecs.cn-shanghai.aliyuncs.com").unwrap();
        let query = "RegionId=cn-shanghai&ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd";
        let mut request = Request::new(Method::Post, endpoint, "/".into(), query.into());
        request.set("x-acs-action", "RunInstances");
        request.set("x-acs-version", "2014-05-26");
        let credentials = Credentials {
            access_key: "YourAccessKeyId".into(),
            secret_key: "YourAccessKeySecret".into(),
            session_token: None,
        };
        let asked = crate::time::parse_iso("2023-10-26T10:22:32Z").unwrap();
        sign(&mut request, b"", &credentials, "3156853299f313e23d1673dc12e1703d", asked);
        assert_eq!(
            request.header("authorization"),
            Some(
                "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;x-acs-content-sha256;\
                 x-acs-date;x-acs-signature-nonce;x-acs-version,\
                 Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0"
            )
        );
    }

    #[test]
    fn a_token_and_a_body_are_signed() {
        let (endpoint, _) = Endpoint::parse("http://127.0.0.1:1").unwrap();
        let mut request = Request::new(Method::Post, endpoint, "/".into(), String::new());
        request.set("content-type", "application/x-www-form-urlencoded");
        let credentials =
            Credentials { access_key: "a".into(), secret_key: "s".into(), session_token: Some("t".into()) };
        sign(&mut request, b"A=1", &credentials, "n", 0);
        let signed = request.header("authorization").unwrap();
        assert!(
            signed.contains("SignedHeaders=content-type;host;x-acs-content-sha256;x-acs-date;"),
            "{signed}"
        );
        assert!(signed.contains("x-acs-security-token"), "{signed}");
        assert_eq!(request.header("x-acs-date"), Some("1970-01-01T00:00:00Z"));
    }
}
