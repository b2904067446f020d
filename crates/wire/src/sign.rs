//! AWS Signature Version 4, in the headers and in the query (docs.aws.amazon.com, "Authenticating Requests").
//!
//! The key of a day costs five HMACs; it is kept, so that a signature costs one SHA-256 of the request and
//! two more of a short string. Only `host` and `x-amz-*` are signed: `range` and `if-match` may change under
//! one signature.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::percent;
use crate::request::{Method, Request};
use crate::time::format_amz;

/// SHA-256 of no bytes.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DAY_S: u64 = 86_400;

pub(crate) type HmacSha256 = Hmac<Sha256>;

/// What a request is signed with. `Debug` shows the last four characters of the access key and nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
    pub session_token: Option<String>,
}

/// Signs requests of one account in one region. May be used by several threads at once: a lock is held for as
/// long as it takes to copy a pointer.
pub struct Signer {
    credentials: Credentials,
    region: String,
    service: &'static str,
    day: Mutex<Option<Arc<DayKey>>>,
}

/// The signing key of one day, with the padding of its HMAC already hashed.
struct DayKey {
    /// Days since 1970.
    day: u64,
    key: HmacSha256,
    /// `20130524/us-east-1/s3/aws4_request`, the service in place of `s3`
    scope: String,
}

impl Signer {
    /// A signer for S3. White space around the credentials, left by files and shells, is cut.
    pub fn new(credentials: Credentials, region: &str) -> Signer {
        Signer::for_service(credentials, region, "s3")
    }

    /// A signer for another service of Amazon's, such as `sts`. Its paths must need no encoding: other services than
    /// S3 sign a path that is encoded twice.
    pub fn for_service(credentials: Credentials, region: &str, service: &'static str) -> Signer {
        let trim = |text: &str| text.trim().to_owned();
        let credentials = Credentials {
            access_key: trim(&credentials.access_key),
            secret_key: trim(&credentials.secret_key),
            session_token: credentials.session_token.as_deref().map(trim).filter(|token| !token.is_empty()),
        };
        Signer { credentials, region: region.into(), service, day: Mutex::new(None) }
    }

    /// Signs in the headers: sets `x-amz-date`, `x-amz-content-sha256`, `x-amz-security-token` and
    /// `authorization`, replacing those of an earlier signature.
    ///
    /// The body's hash is the caller's if `x-amz-content-sha256` is set already, else that of no bytes for
    /// GET, HEAD and DELETE, and `UNSIGNED-PAYLOAD` for PUT and POST.
    pub fn sign(&self, request: &mut Request, unix_s: u64) {
        self.sign_also(request, unix_s, &[]);
    }

    /// As [`Signer::sign`] for a request with this body, whose hash and content type are signed too.
    pub fn sign_body(&self, request: &mut Request, body: &[u8], unix_s: u64) {
        request.set("x-amz-content-sha256", hex(&Sha256::digest(body)));
        self.sign_also(request, unix_s, &["content-type"]);
    }

    /// As [`Signer::sign`], with the headers `also` (lower case) signed too.
    pub fn sign_also(&self, request: &mut Request, unix_s: u64, also: &[&str]) {
        let date = format_amz(unix_s);
        request.remove("authorization");
        request.set("x-amz-date", date.as_str());
        match &self.credentials.session_token {
            Some(token) => request.set("x-amz-security-token", token.as_str()),
            None => request.remove("x-amz-security-token"),
        }
        if request.header("x-amz-content-sha256").is_none() {
            let bodiless = matches!(request.method, Method::Get | Method::Head | Method::Delete);
            request.set("x-amz-content-sha256", if bodiless { EMPTY_SHA256 } else { UNSIGNED });
        }
        let key = self.day_key(unix_s);
        let payload = request.header("x-amz-content-sha256").unwrap_or(UNSIGNED);
        let headers = signed_headers(request, also);
        let names = joined_names(&headers);
        let signature = key.signature(&date, &canonical_hash(request, &headers, &names, payload));
        let access_key = &self.credentials.access_key;
        let authorization = format!(
            "{ALGORITHM} Credential={access_key}/{},SignedHeaders={names},Signature={signature}",
            key.scope
        );
        request.set("authorization", authorization);
    }

    /// Signs in the query, for a URL that works for `expires_s` seconds (S3 takes 1 to 604,800) without any
    /// header but `host` and those `x-amz-*` headers that the request has now.
    pub fn presign(&self, request: &mut Request, expires_s: u32, unix_s: u64) {
        let date = format_amz(unix_s);
        for name in ["authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"] {
            request.remove(name);
        }
        let key = self.day_key(unix_s);
        let headers = signed_headers(request, &[]);
        let names = joined_names(&headers);
        let mut parameters = vec![
            parameter("X-Amz-Algorithm", ALGORITHM),
            parameter("X-Amz-Credential", &format!("{}/{}", self.credentials.access_key, key.scope)),
            parameter("X-Amz-Date", &date),
            parameter("X-Amz-Expires", &expires_s.to_string()),
            parameter("X-Amz-SignedHeaders", &names),
        ];
        if let Some(token) = &self.credentials.session_token {
            parameters.push(parameter("X-Amz-Security-Token", token));
        }
        // An earlier presigning is replaced, as an earlier header is.
        let kept = request.query.split('&').filter(|given| !given.is_empty() && !given.starts_with("X-Amz-"));
        parameters.extend(kept.map(str::to_owned));
        let query = canonical_query(&parameters.join("&"));
        let hash = {
            let unsigned = Request { query: query.clone(), ..request.clone() };
            canonical_hash(&unsigned, &signed_headers(&unsigned, &[]), &names, UNSIGNED)
        };
        request.query = format!("{query}&X-Amz-Signature={}", key.signature(&date, &hash));
    }

    fn day_key(&self, unix_s: u64) -> Arc<DayKey> {
        let day = unix_s / DAY_S;
        // What a panic elsewhere left behind is still a whole key.
        let mut kept = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(key) if key.day == day => Arc::clone(key),
            _ => Arc::clone(kept.insert(Arc::new(DayKey::new(
                &self.credentials.secret_key,
                &self.region,
                self.service,
                day,
            )))),
        }
    }
}

impl DayKey {
    fn new(secret_key: &str, region: &str, service: &str, day: u64) -> DayKey {
        let date = &format_amz(day * DAY_S)[..8];
        let seed = format!("AWS4{secret_key}");
        let key = [date, region, service, "aws4_request"]
            .iter()
            .fold(hmac_key(seed.as_bytes()), |key, word| hmac_key(&hmac(&key, word)));
        DayKey { day, key, scope: format!("{date}/{region}/{service}/aws4_request") }
    }

    fn signature(&self, date: &str, canonical_hash: &str) -> String {
        hex(&hmac(&self.key, &format!("{ALGORITHM}\n{date}\n{}\n{canonical_hash}", self.scope)))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four characters of a short key would be half of it.
        let tail = match self.access_key.char_indices().rev().nth(3) {
            Some((at, _)) if self.access_key.len() >= 12 => &self.access_key[at..],
            _ => "",
        };
        write!(out, "Credentials(***{tail})")
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Signer({:?}, {})", self.credentials, self.region)
    }
}

/// `host`, `x-amz-*` and what else is wanted, sorted by name.
fn signed_headers<'a>(request: &'a Request, also: &[&str]) -> Vec<(&'a str, &'a str)> {
    let signed = |name: &str| name == "host" || name.starts_with("x-amz-") || also.contains(&name);
    let all = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut headers: Vec<_> = all.filter(|(name, _)| signed(name)).collect();
    headers.sort_unstable();
    headers
}

pub(crate) fn joined_names(headers: &[(&str, &str)]) -> String {
    let mut names = String::with_capacity(96);
    for (name, _) in headers {
        if !names.is_empty() {
            names.push(';');
        }
        names.push_str(name);
    }
    names
}

/// SHA-256, in hex, of the canonical request, which is hashed as it is written and never stands in memory.
fn canonical_hash(request: &Request, headers: &[(&str, &str)], names: &str, payload: &str) -> String {
    let mut hash = Sha256::new();
    let mut put = |text: &str| hash.update(text.as_bytes());
    put(request.method.name());
    put("\n");
    // S3 takes the path as it is sent, encoded once: no normalisation, no second encoding.
    put(&request.path);
    put("\n");
    put(&canonical_query(&request.query));
    put("\n");
    for (name, value) in headers {
        put(name);
        put(":");
        put(value.trim());
        put("\n");
    }
    put("\n");
    put(names);
    put("\n");
    put(payload);
    hex(&hash.finalize())
}

/// Parameters sorted, each with a '='. What this crate builds is so already.
pub(crate) fn canonical_query(query: &str) -> String {
    if query.is_empty() {
        return String::new();
    }
    let mut parameters: Vec<(&str, &str)> =
        query.split('&').map(|given| given.split_once('=').unwrap_or((given, ""))).collect();
    parameters.sort_unstable();
    let written: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    written.join("&")
}

fn parameter(name: &str, value: &str) -> String {
    let mut written = format!("{name}=");
    percent::encode_query(value, &mut written);
    written
}

pub(crate) fn hmac_key(key: &[u8]) -> HmacSha256 {
    HmacSha256::new_from_slice(key).expect("HMAC takes keys of any length")
}

pub(crate) fn hmac(key: &HmacSha256, message: &str) -> [u8; 32] {
    let mut mac = key.clone();
    mac.update(message.as_bytes());
    mac.finalize().into_bytes().into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}

#[cfg(test)]
#[path = "sign_tests.rs"]
mod tests;
