//! Endpoints: what one connects to, and the key of a pool of connections.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::location::LocationError;
use crate::words::excerpt;

/// How bytes travel to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    Http,
    Https,
}

/// A scheme, a host and a port. Two requests with equal endpoints may share a connection.
///
/// Displayed as `http://host:port`, the port always written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    pub scheme: Scheme,
    /// A name in lower case or an address; an IPv6 address has no brackets.
    pub host: String,
    pub port: u16,
}

impl Scheme {
    /// `http` or `https`.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The port where a URL names none.
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

impl Endpoint {
    /// Parses `--endpoint-url`: an endpoint and its base path, which is empty or `/x` without a slash at its
    /// end.
    ///
    /// # Errors
    /// Says what is wrong and what to write: no scheme, an unknown scheme, a bad host or port, credentials or
    /// a query, which an endpoint has no use for.
    pub fn parse(url: &str) -> Result<(Endpoint, String), LocationError> {
        let url = url.trim();
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(LocationError::NoScheme { url: shown(url) });
        };
        let scheme = if scheme.eq_ignore_ascii_case("http") {
            Scheme::Http
        } else if scheme.eq_ignore_ascii_case("https") {
            Scheme::Https
        } else {
            return Err(LocationError::EndpointScheme { scheme: shown(scheme) });
        };
        let authority_bytes = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_bytes);
        // A password with a '/' in it ends the authority early: its pieces are no host and no port to show.
        if authority.contains('@') || path.contains('@') {
            return Err(LocationError::EndpointCredentials);
        }
        if path.contains(['?', '#']) {
            return Err(LocationError::EndpointQuery);
        }
        Ok((Endpoint::from_authority(scheme, authority)?, printable(path.trim_end_matches('/'))))
    }

    /// The value of the `Host` header: the port is left out where it is the scheme's own.
    pub fn host_header(&self) -> String {
        let host = self.bracketed_host();
        if self.port == self.scheme.default_port() { host } else { format!("{host}:{}", self.port) }
    }

    /// Whether the host is an IP address.
    pub fn is_ip(&self) -> bool {
        self.host.parse::<Ipv4Addr>().is_ok() || self.host.parse::<Ipv6Addr>().is_ok()
    }

    /// Whether it is this machine itself, by an address or by a name that never means another (RFC 6761
    /// §6.3).
    pub fn is_loopback(&self) -> bool {
        let host = self.host.as_str();
        host == "localhost"
            || host.ends_with(".localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Parses `host`, `host:port` and `[v6]:port`.
    pub(crate) fn from_authority(scheme: Scheme, authority: &str) -> Result<Endpoint, LocationError> {
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| bad_host(authority))?;
                host.parse::<Ipv6Addr>().map_err(|_| bad_host(authority))?;
                (host, port)
            }
            None => {
                let host = authority.split(':').next().unwrap_or(authority);
                check_name(host)?;
                (host, &authority[host.len()..])
            }
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => scheme.default_port(),
            Some("") => scheme.default_port(),
            Some(digits) => parse_port(digits)?,
            None => return Err(bad_host(authority)),
        };
        Ok(Endpoint { scheme, host: host.to_ascii_lowercase(), port })
    }

    fn bracketed_host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}:{}", self.scheme.name(), self.bracketed_host(), self.port)
    }
}

/// Encodes what may not stand in a request line (spaces, controls, quotes, all beyond ASCII), and nothing
/// else: what is encoded already stays as it was given.
pub fn printable(path_and_query: &str) -> String {
    utf8_percent_encode(path_and_query, &UNPRINTABLE).to_string()
}

const UNPRINTABLE: AsciiSet = CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A short excerpt of what a user typed, for an error: without anything that could be `user:password@`,
/// without a query, and without characters that would upset a terminal.
pub(crate) fn shown(text: &str) -> String {
    let plain = text.split(['?', '#']).next().unwrap_or(text);
    // A password may hold either of the two, and then its first half looks like a path or a port.
    if plain.contains(':') && text[plain.len()..].contains('@') {
        return "…".into();
    }
    let plain = match plain.rsplit_once('@') {
        // An '@' in the path of something without a password is a part of the name.
        Some((before, after)) if before.contains(':') || !before.contains('/') => after,
        _ => plain,
    };
    excerpt(plain, 80)
}

fn check_name(host: &str) -> Result<(), LocationError> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let usable = !host.is_empty() && host.len() <= 253 && host.bytes().all(known) && !host.contains("..");
    if usable && !host.starts_with('.') { Ok(()) } else { Err(bad_host(host)) }
}

fn parse_port(digits: &str) -> Result<u16, LocationError> {
    let port = crate::words::number(digits).and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port > 0).ok_or_else(|| LocationError::BadPort { port: shown(digits) })
}

fn bad_host(host: &str) -> LocationError {
    LocationError::BadHost { host: shown(host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, display: &str, host_header: &str, base_path: &str) {
        let (endpoint, path) = Endpoint::parse(url).expect(url);
        assert_eq!(endpoint.to_string(), display, "{url}");
        assert_eq!((endpoint.host_header().as_str(), path.as_str()), (host_header, base_path), "{url}");
        assert_eq!(Endpoint::parse(display).expect(display).0, endpoint, "{url}");
    }

    #[test]
    fn endpoints() {
        check("http://localhost", "http://localhost:80", "localhost", "");
        check("HTTP://LocalHost:9000/", "http://localhost:9000", "localhost:9000", "");
        check(
            "https://s3.eu-west-1.amazonaws.com",
            "https://s3.eu-west-1.amazonaws.com:443",
            "s3.eu-west-1.amazonaws.com",
            "",
        );
        check("http://10.0.0.1:80/base/x//", "http://10.0.0.1:80", "10.0.0.1", "/base/x");
        check("http://[::1]:9000/b c", "http://[::1]:9000", "[::1]:9000", "/b%20c");
        check("https://[2001:db8::1]", "https://[2001:db8::1]:443", "[2001:db8::1]", "");
        check("http://my_host:", "http://my_host:80", "my_host", "");
        check("http://host:443", "http://host:443", "host:443", "");
    }

    #[test]
    fn no_endpoints() {
        let rows = [
            ("localhost:9000", "write http://localhost:9000"),
            ("s3://bucket", "http:// or https://"),
            ("http://", "host"),
            ("http:///x", "host"),
            ("http://a b", "host"),
            ("http://a..b", "host"),
            ("http://bücher", "host"),
            ("http://[::1", "host"),
            ("http://[::1]x", "host"),
            ("http://[nope]:1", "host"),
            ("http://host:0", "port"),
            ("http://host:65536", "port"),
            ("http://host:+80", "port"),
            ("http://host:80:80", "port"),
            ("http://user:hunter2@host", "credentials"),
            ("http://user:hun/ter2@host", "credentials"),
            ("http://host/?x=1", "query"),
        ];
        for (url, word) in rows {
            let error = Endpoint::parse(url).expect_err(url).to_string();
            assert!(error.contains(word), "{url}: {error}");
            assert!(!error.contains("hun"), "{error}");
        }
    }

    #[test]
    fn errors_show_no_secret() {
        assert_eq!(shown("host/folder/a@b"), "host/folder/a@b");
        for text in ["user:hunter2@host", "host?sig=hunter2", "a:hunter2@b@host/x#hunter2", "hunter2@host/x"]
        {
            assert!(!shown(text).contains("hunter2"), "{}", shown(text));
        }
    }
}
