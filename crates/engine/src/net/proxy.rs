//! Proxies: which one leads to an endpoint, and how it is asked. No clock, no socket but the one handed in.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use flatout_wire::endpoint::{Endpoint, Scheme};
use flatout_wire::head::{self, Head};
use flatout_wire::location::Location;
use flatout_wire::request::{self, Method};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::base::error::{Error, ErrorKind, SETTINGS};
use crate::base::hint::{Hint, setting, text};

/// No proxy's answer to CONNECT is longer.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Proxies found in the surroundings (`HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`). What the settings say goes
/// before them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// The URL of the proxy for `http://` endpoints.
    pub http: Option<String>,
    /// The URL of the proxy for `https://` endpoints.
    pub https: Option<String>,
    /// What is reached without either, as in the variable `NO_PROXY`.
    pub no_proxy: Option<String>,
}

impl fmt::Debug for Proxies {
    /// A proxy's URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |proxy: &Option<String>| proxy.as_ref().map(|_| "***");
        write!(
            f,
            "Proxies(http: {:?}, https: {:?}, no_proxy: {:?})",
            known(&self.http),
            known(&self.https),
            self.no_proxy
        )
    }
}

/// Which endpoints are reached through which proxy.
pub(crate) struct Routes {
    http: Option<Proxy>,
    https: Option<Proxy>,
    /// The user named the proxy for this very run: then it serves loopback too, as curl's `--proxy` does.
    explicit: bool,
    without: Vec<Exception>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Objects, wherever they are.
    Store,
    /// Keys. A service of this machine answers for this machine alone, and what it is asked with is a secret.
    Keys,
}

/// One proxy, spoken to in plain HTTP.
pub(crate) struct Proxy {
    pub(crate) endpoint: Endpoint,
    /// The value of `Proxy-Authorization`, where its URL has a user.
    login: Option<String>,
}

impl Routes {
    /// `proxy` and `no_proxy` are the settings'; `found` holds where they say nothing.
    pub(crate) fn new(proxy: Option<&str>, no_proxy: Option<&str>, found: &Proxies) -> Result<Routes, Error> {
        let parse = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(Proxy::parse).transpose();
        Ok(Routes {
            http: parse(proxy.or(found.http.as_deref()))?,
            https: parse(proxy.or(found.https.as_deref()))?,
            explicit: proxy.is_some(),
            without: exceptions(no_proxy.or(found.no_proxy.as_deref()).unwrap_or_default()),
        })
    }

    /// The proxy that leads to `endpoint`, if one does.
    pub(crate) fn of(&self, endpoint: &Endpoint, purpose: Purpose) -> Option<&Proxy> {
        let proxy = match endpoint.scheme {
            Scheme::Http => self.http.as_ref(),
            Scheme::Https => self.https.as_ref(),
        }?;
        let ours =
            is_metadata(endpoint) || (endpoint.is_loopback() && (!self.explicit || purpose == Purpose::Keys));
        let excepted = self.without.iter().any(|exception| exception.holds(endpoint));
        (!ours && !excepted).then_some(proxy)
    }

    /// The proxy that a request to `endpoint` is handed to whole, in absolute form: plain HTTP needs no
    /// tunnel, and many proxies allow CONNECT to port 443 only.
    pub(crate) fn forwarder(&self, endpoint: &Endpoint, purpose: Purpose) -> Option<&Proxy> {
        self.of(endpoint, purpose).filter(|_| endpoint.scheme == Scheme::Http)
    }
}

/// The instance's own metadata and credentials: another machine's answer would be another machine's identity.
/// Link-local, and the addresses of AWS (IPv6) and Alibaba Cloud that are not.
pub(crate) fn is_metadata(endpoint: &Endpoint) -> bool {
    const ELSEWHERE: [&str; 3] = ["fd00:ec2::254", "fd00:ec2::23", "100.100.100.200"];
    match endpoint.host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_link_local() || ELSEWHERE.contains(&endpoint.host.as_str()),
        Ok(IpAddr::V6(ip)) => {
            ip.is_unicast_link_local() || ELSEWHERE.iter().any(|known| known.parse::<Ipv6Addr>() == Ok(ip))
        }
        Err(_) => false,
    }
}

/// One entry of `NO_PROXY`.
#[derive(Debug, PartialEq, Eq)]
struct Exception {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, PartialEq, Eq)]
enum Hosts {
    All,
    /// The name itself and everything under it.
    Name(String),
    /// A network; an address is one of its full length.
    Network(IpAddr, u8),
}

fn exceptions(text: &str) -> Vec<Exception> {
    let entries = text.split([',', ' ', '\t']).filter(|entry| !entry.is_empty());
    entries.map(Exception::parse).collect()
}

impl Exception {
    /// As curl and Go read it: a leading `.` or `*.` says nothing more, a port narrows, `*` is everything.
    /// What is no address is a name: no text is wrong.
    fn parse(entry: &str) -> Exception {
        if entry == "*" {
            return Exception { hosts: Hosts::All, port: None };
        }
        if let Some(network) = network(entry) {
            return Exception { hosts: network, port: None };
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse().ok()),
            _ => (entry, None),
        };
        let hosts = network(host).unwrap_or_else(|| {
            let name = host.strip_prefix('*').unwrap_or(host);
            let name = name.strip_prefix('.').unwrap_or(name);
            Hosts::Name(name.trim_end_matches('.').to_ascii_lowercase())
        });
        Exception { hosts, port }
    }

    fn holds(&self, endpoint: &Endpoint) -> bool {
        let host = endpoint.host.trim_end_matches('.');
        let named = match &self.hosts {
            Hosts::All => true,
            Hosts::Name(name) => {
                let rest = host.strip_suffix(name.as_str()).filter(|_| !endpoint.is_ip());
                rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            Hosts::Network(network, bits) => {
                host.parse().is_ok_and(|address| is_within(address, *network, *bits))
            }
        };
        named && self.port.is_none_or(|port| port == endpoint.port)
    }
}

/// `10.0.0.0/8`, `2001:db8::/32`, `[::1]` or an address.
fn network(text: &str) -> Option<Hosts> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok().filter(|bits| *bits <= most))?;
    Some(Hosts::Network(address, bits))
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (differing, most) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits() ^ b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits(), 128),
        _ => return false,
    };
    differing.checked_shr(most - u32::from(bits)).is_none_or(|rest| rest == 0)
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {}", self.endpoint)
    }
}

/// What can be done where a proxy cannot be reached.
pub(crate) fn check_the_proxy() -> Hint {
    let or_none = text(", HTTPS_PROXY and HTTP_PROXY, or name the host in ");
    Hint::from([text("check "), setting("proxy"), or_none, setting("no-proxy")])
}

impl Proxy {
    /// Parses `[http://][user[:password]@]host[:port]`. The port is 80 where none is named, as in Go and
    /// Python.
    fn parse(text: &str) -> Result<Proxy, Error> {
        let usage = |why: String| {
            Error::new(ErrorKind::Usage, why)
                .during(SETTINGS, "proxy")
                .with_hint("write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT")
        };
        let text = text.trim();
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let url = match scheme.as_deref() {
            None => Cow::Owned(format!("http://{text}")),
            Some("http") => Cow::Borrowed(text),
            Some(other) => {
                return Err(usage(format!("{other}:// proxies are not supported, http:// ones are")));
            }
        };
        match Location::parse(&url).map_err(|why| usage(why.to_string()))? {
            Location::Http { url } => Ok(Proxy {
                endpoint: url.endpoint.clone(),
                login: request::get_url(&url).header("authorization").map(str::to_owned),
            }),
            _ => Err(usage("this is no URL of a proxy".into())),
        }
    }

    /// Turns an error of resolving its name into one about the proxy.
    pub(crate) fn unresolved(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("{self}: {}", error.cause())).with_hint(check_the_proxy())
    }

    /// A request's head in absolute form with the login: `GET http://host/path HTTP/1.1`.
    pub(crate) fn absolute(&self, endpoint: &Endpoint, head: &[u8]) -> Vec<u8> {
        let target = head.iter().position(|byte| *byte == b' ').map_or(0, |space| space + 1);
        let headers = head.windows(2).position(|two| two == b"\r\n").map_or(head.len(), |end| end + 2);
        let mut out = head[..target].to_vec();
        out.extend_from_slice(origin(endpoint).as_bytes());
        out.extend_from_slice(&head[target..headers]);
        out.extend_from_slice(self.login_header().as_bytes());
        out.extend_from_slice(&head[headers..]);
        out
    }

    /// Asks the proxy to pass everything on to `endpoint` from now on. Nothing is read beyond its answer.
    pub(crate) async fn tunnel(&self, stream: &mut TcpStream, endpoint: &Endpoint) -> Result<(), Error> {
        let broke = |refused| Error::network(format_args!("the connection to {self} broke"), refused);
        let host = match endpoint.host.contains(':') {
            true => format!("[{}]:{}", endpoint.host, endpoint.port),
            false => format!("{}:{}", endpoint.host, endpoint.port),
        };
        let request = format!("CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n{}\r\n", self.login_header());
        stream.write_all(request.as_bytes()).await.map_err(broke)?;
        let head = self.answer(stream).await.map_err(broke)?;
        match head.status {
            200..300 => Ok(()),
            407 => Err(self.refused_login()),
            status => {
                let kind = if status >= 500 { ErrorKind::Network } else { ErrorKind::Denied };
                Err(Error::new(kind, format!("{self} does not connect to {host} (status {status})"))
                    .with_hint([
                        text("check that it may reach this host and port, or name the host in "),
                        setting("no-proxy"),
                    ]))
            }
        }
    }

    /// What a 407 means, of either form.
    pub(crate) fn refused_login(&self) -> Error {
        let why = match self.login {
            Some(_) => "does not accept the user and password (status 407)",
            None => "wants a user and password (status 407)",
        };
        Error::new(ErrorKind::Denied, format!("{self} {why}"))
            .with_hint("write them into the proxy's URL: http://USER:PASSWORD@HOST:PORT")
    }

    /// Read byte by byte: what comes behind the head is TLS's.
    async fn answer(&self, stream: &mut TcpStream) -> io::Result<Head> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") && bytes.len() < HEAD_BYTES_MAX {
            bytes.push(stream.read_u8().await?);
        }
        let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "its answer is not HTTP");
        // The body of a refusal stays unread; the head alone is parsed, as of a HEAD.
        let parsed = head::parse(&bytes, Method::Head).map_err(|_| nonsense())?;
        Ok(parsed.ok_or_else(nonsense)?.0)
    }

    fn login_header(&self) -> String {
        self.login.as_ref().map_or(String::new(), |login| format!("proxy-authorization: {login}\r\n"))
    }
}

/// What goes before the path in absolute form.
pub(crate) fn origin(endpoint: &Endpoint) -> String {
    format!("{}://{}", endpoint.scheme.name(), endpoint.host_header())
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
