//! AWS Signature Version 4, in the headers and in the query (docs.aws.amazon.com, "Authenticating Requests").
//!
//! The key of a day costs five HMACs; it is kept, so that a signature costs one SHA-256 of the request and
//! two more of a short string. Only `host`, `x-amz-*`, `content-md5` and `content-type` are signed: `range`
//! and `if-match` may change under one signature.

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest, Sha256};

use crate::day_key::{AWS4, DayKeys, hex};
use crate::percent;
use crate::request::{Method, Request};
use crate::time::format_amz;

/// SHA-256 of no bytes.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// The headers about a body that are signed where a request has them.
const CONTENT_HEADERS: &[&str] = &["content-md5", "content-type"];

/// The longest that a presigned URL may work, in seconds: S3's bound for version 4, and OSS's for its own.
pub const PRESIGNED_MAX_S: u32 = 7 * 86_400;

/// What a request is signed with. `Debug` shows the last four characters of the access key and nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
    pub session_token: Option<String>,
}

/// Signs requests of one account in one region. May be used by several threads at once.
pub struct Signer {
    credentials: Credentials,
    days: DayKeys,
}

impl Credentials {
    /// White space around the credentials, left by files and shells, is cut; an empty token is none.
    pub(crate) fn trimmed(&self) -> Credentials {
        let trim = |text: &str| text.trim().to_owned();
        Credentials {
            access_key: trim(&self.access_key),
            secret_key: trim(&self.secret_key),
            session_token: self.session_token.as_deref().map(trim).filter(|token| !token.is_empty()),
        }
    }
}

impl Signer {
    /// A signer for S3. White space around the credentials, left by files and shells, is cut.
    pub fn new(credentials: Credentials, region: &str) -> Signer {
        Signer::for_service(credentials, region, "s3")
    }

    /// A signer for another service of Amazon's, such as `sts`. Its paths must need no encoding: other
    /// services than S3 sign a path that is encoded twice.
    pub fn for_service(credentials: Credentials, region: &str, service: &'static str) -> Signer {
        let credentials = credentials.trimmed();
        let days = DayKeys::new(&AWS4, &credentials.secret_key, region, service);
        Signer { credentials, days }
    }

    /// Signs in the headers: sets `x-amz-date`, `x-amz-content-sha256`, `x-amz-security-token` and
    /// `authorization`, replacing those of an earlier signature.
    ///
    /// The body's hash is the caller's if `x-amz-content-sha256` is set already, else that of no bytes for
    /// GET, HEAD and DELETE, and `UNSIGNED-PAYLOAD` for PUT and POST.
    ///
    /// Amazon wants a content type that the request has now to be signed too; so is `content-md5`, which
    /// vouches for the body where the signature does not.
    pub fn sign(&self, request: &mut Request, unix_s: u64) {
        self.sign_also(request, unix_s, CONTENT_HEADERS);
    }

    /// Signs a request with this body, as [`Signer::sign`] does one without; the body's hash is signed too.
    pub fn sign_body(&self, request: &mut Request, body: &[u8], unix_s: u64) {
        request.set("x-amz-content-sha256", hex(&Sha256::digest(body)));
        self.sign(request, unix_s);
    }

    /// Signs as [`Signer::sign`], with the headers `also` (lower case) signed too, as in the published
    /// examples.
    fn sign_also(&self, request: &mut Request, unix_s: u64, also: &[&str]) {
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
        let key = self.days.at(unix_s);
        let payload = request.header("x-amz-content-sha256").unwrap_or(UNSIGNED);
        let headers = signed_headers(request, also);
        let names = joined_names(&headers);
        let signature = key.signature(&date, &canonical_hash(request, &headers, &names, payload));
        let access_key = &self.credentials.access_key;
        let authorization = format!(
            "{} Credential={access_key}/{},SignedHeaders={names},Signature={signature}",
            AWS4.algorithm, key.scope
        );
        request.set("authorization", authorization);
    }

    /// Signs in the query, for a URL that works for `expires_s` seconds (S3 takes 1 to [`PRESIGNED_MAX_S`])
    /// without any header but `host` and those `x-amz-*` headers that the request has now.
    pub fn presign(&self, request: &mut Request, expires_s: u32, unix_s: u64) {
        let date = format_amz(unix_s);
        for name in ["authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"] {
            request.remove(name);
        }
        let key = self.days.at(unix_s);
        let headers = signed_headers(request, &[]);
        let names = joined_names(&headers);
        let mut parameters = vec![
            parameter("X-Amz-Algorithm", AWS4.algorithm),
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
        write!(out, "Signer({:?}, {})", self.credentials, self.days.region())
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
        put(&canonical_value(value));
        put("\n");
    }
    put("\n");
    put(names);
    put("\n");
    put(payload);
    hex(&hash.finalize())
}

/// A header's value without the blanks around it, and with one for each run of them: "Trimall" of the
/// specification. The value itself is sent as it is.
fn canonical_value(value: &str) -> Cow<'_, str> {
    let value = value.trim();
    if !value.contains("  ") {
        return value.into();
    }
    let words: Vec<&str> = value.split(' ').filter(|word| !word.is_empty()).collect();
    words.join(" ").into()
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

pub(crate) fn parameter(name: &str, value: &str) -> String {
    let mut written = format!("{name}=");
    percent::encode_query(value, &mut written);
    written
}

#[cfg(test)]
#[path = "sign_tests.rs"]
mod tests;
