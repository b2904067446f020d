//! Requests as they go out: a line, headers, nothing else. Bodies are the caller's.

use std::fmt;

use base64_simd::STANDARD as BASE64;

use crate::endpoint::Endpoint;
use crate::location::{HttpUrl, masked_target};
use crate::percent;

const USER_AGENT: &str = concat!("flatout/", env!("CARGO_PKG_VERSION"));

/// The methods that object storage needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    Get,
    Head,
    Put,
    Post,
    Delete,
}

/// A request for one endpoint. `Debug` masks signatures, tokens and credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    pub endpoint: Endpoint,
    /// Encoded; starts with '/'.
    pub path: String,
    /// Encoded, without '?'. Requests to buckets have it in the order in which it is signed: sorted by name.
    pub query: String,
    /// Names in lower case, each once, `host` included.
    pub headers: Vec<(String, String)>,
}

impl Method {
    /// `GET` and so on.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Put => "PUT",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Request {
    /// A request with the headers that every request has: host, user agent, and `accept-encoding: identity`,
    /// without which an origin may compress and every range would be of other bytes.
    pub fn new(method: Method, endpoint: Endpoint, path: String, query: String) -> Request {
        let headers = vec![
            ("host".into(), endpoint.host_header()),
            ("user-agent".into(), USER_AGENT.into()),
            ("accept-encoding".into(), "identity".into()),
        ];
        Request { method, endpoint, path, query, headers }
    }

    /// Sets a header in place of any earlier one of that name.
    ///
    /// Control characters are left out of the value: a line break would begin another header.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        let mut value = value.into();
        if value.bytes().any(|byte| byte.is_ascii_control()) {
            value.retain(|c| !c.is_ascii_control());
        }
        match self.headers.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, old)) => *old = value,
            None => self.headers.push((name.to_ascii_lowercase(), value)),
        }
    }

    /// Adds a parameter to the query, encoded, behind those that it has.
    pub fn add_parameter(&mut self, name: &str, value: &str) {
        if !self.query.is_empty() {
            self.query.push('&');
        }
        self.query.push_str(name);
        self.query.push('=');
        percent::encode_query(value, &mut self.query);
    }

    /// The value of a header; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Removes a header; `name` in lower case.
    pub fn remove(&mut self, name: &str) {
        self.headers.retain(|(known, _)| known != name);
    }

    /// Path and query. Of a presigned request it is a secret.
    pub fn target(&self) -> String {
        if self.query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, self.query) }
    }

    /// The whole URL. Of a presigned request it is a secret.
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.endpoint.scheme.name(), self.endpoint.host_header(), self.target())
    }

    /// Appends the request line, the headers and the blank line.
    pub fn write_head(&self, out: &mut Vec<u8>) {
        // One growth at most: a name and a value, ": " and CRLF; method, two spaces, version, two CRLF.
        let headers_bytes: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        out.reserve(self.path.len() + self.query.len() + headers_bytes + 24);
        let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
        put(self.method.name());
        put(" ");
        put(&self.path);
        if !self.query.is_empty() {
            put("?");
            put(&self.query);
        }
        put(" HTTP/1.1\r\n");
        for (name, value) in &self.headers {
            put(name);
            put(": ");
            put(value);
            put("\r\n");
        }
        put("\r\n");
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Request({} {}{}", self.method, self.endpoint, masked_target(&self.target()))?;
        for (name, value) in &self.headers {
            let secret = name.contains("authorization") || name.contains("token") || name.contains("cookie");
            write!(out, ", {name}: {}", if secret { "***" } else { value })?;
        }
        out.write_str(")")
    }
}

/// A GET of a plain URL, with basic authentication where the URL has a user.
pub fn get_url(url: &HttpUrl) -> Request {
    let (path, query) = url.path_and_query.split_once('?').unwrap_or((&url.path_and_query, ""));
    let mut request = Request::new(Method::Get, url.endpoint.clone(), path.into(), query.into());
    request.set("accept", "*/*");
    if let Some(user_info) = &url.user_info {
        let pair = format!("{}:{}", user_info.user, user_info.password.as_deref().unwrap_or(""));
        request.set("authorization", format!("Basic {}", BASE64.encode_to_string(pair)));
    }
    request
}

/// Checks what goes out: `line` is method and target, `headers` are all but those that every request has.
#[cfg(test)]
#[track_caller]
pub(crate) fn check_sent(request: Request, line: &str, headers: &[(&str, &str)]) {
    assert_eq!(format!("{} {}", request.method, request.target()), line);
    let everywhere = ["host", "user-agent", "accept-encoding"];
    let all = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut found: Vec<(&str, &str)> = all.filter(|(name, _)| !everywhere.contains(name)).collect();
    let mut expected = headers.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;

    fn get(text: &str) -> Request {
        match Location::parse(text).expect(text) {
            Location::Http { url } => get_url(&url),
            _ => panic!("{text}"),
        }
    }

    fn head(request: &Request) -> String {
        let mut out = Vec::new();
        request.write_head(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_plain_get() {
        let mut request = get("http://host:9000/a%20b?x=1");
        request.set("range", "bytes=0-9");
        let expected = format!(
            "GET /a%20b?x=1 HTTP/1.1\r\nhost: host:9000\r\nuser-agent: flatout/{}\r\naccept-encoding: identity\r\n\
             accept: */*\r\nrange: bytes=0-9\r\n\r\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(head(&request), expected);
        assert_eq!(
            (request.target(), request.url()),
            ("/a%20b?x=1".into(), "http://host:9000/a%20b?x=1".into())
        );
    }

    #[test]
    fn basic_authentication() {
        // RFC 7617 §2 has this pair and its encoding.
        let request = get("http://Aladdin:open%20sesame@host/");
        assert_eq!(request.header("authorization"), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        assert_eq!(get("http://host/").header("authorization"), None);
    }

    #[test]
    fn a_header_is_there_once() {
        let mut request = get("http://host/");
        let count = request.headers.len();
        request.set("Range", "bytes=0-1");
        request.set("range", "bytes=2-3");
        assert_eq!((request.headers.len(), request.header("range")), (count + 1, Some("bytes=2-3")));
        request.remove("range");
        assert_eq!((request.headers.len(), request.header("range")), (count, None));
    }

    #[test]
    fn a_value_begins_no_other_header() {
        let mut request = get("http://host/");
        request.set("if-match", "\"a\"\r\nx-evil: 1");
        assert!(!head(&request).contains("\r\nx-evil"), "{}", head(&request));
    }

    #[test]
    fn debug_shows_no_secret() {
        let mut request = get("http://user:hunter2@host/x?X-Amz-Signature=hunter2");
        request.set("x-amz-security-token", "hunter2");
        let debug = format!("{request:?}");
        assert!(!debug.contains("hunter2") && !debug.contains("dXNlcjpodW50ZXIy"), "{debug}");
        assert!(debug.contains("accept-encoding: identity"), "{debug}");
    }
}
