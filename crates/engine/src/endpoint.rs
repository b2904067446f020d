//! Endpoints: the addresses behind a name. Every address is used; new connections are spread over them in turn.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flatout_wire::endpoint::Endpoint;

use crate::error::{Error, ErrorKind, SETTINGS};

/// Object stores answer with few of many addresses and change them every few seconds (reference/cli.md §3.3).
const RESOLVE_AGAIN: Duration = Duration::from_secs(30);

/// What is known of every name that a client talks to.
pub(crate) struct Endpoints {
    fixed: Vec<Fixed>,
    known: Mutex<HashMap<(String, u16), Arc<Addresses>>>,
}

/// One `--resolve HOST[:PORT]:ADDRESS[,ADDRESS…]`.
#[derive(Debug, PartialEq, Eq)]
struct Fixed {
    host: String,
    port: Option<u16>,
    addresses: Vec<IpAddr>,
}

struct Addresses {
    list: Vec<SocketAddr>,
    resolved: Instant,
    turn: Mutex<usize>,
}

impl Endpoints {
    pub(crate) fn new(resolve: &[String]) -> Result<Endpoints, Error> {
        let fixed = resolve.iter().map(|text| Fixed::parse(text)).collect::<Result<_, _>>()?;
        Ok(Endpoints { fixed, known: Mutex::default() })
    }

    /// All addresses of `endpoint`, never none, beginning with the one whose turn it is. A look-up ends `within` that time.
    pub(crate) async fn addresses(
        &self,
        endpoint: &Endpoint,
        within: Duration,
    ) -> Result<Vec<SocketAddr>, Error> {
        let addresses = match self.fresh(endpoint) {
            Some(addresses) => addresses,
            None => self.resolve(endpoint, within).await?,
        };
        let mut turn = addresses.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = addresses.list.clone();
        list.rotate_left(*turn);
        *turn = (*turn + 1) % list.len();
        Ok(list)
    }

    fn fresh(&self, endpoint: &Endpoint) -> Option<Arc<Addresses>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = known.get(&(endpoint.host.clone(), endpoint.port))?;
        (addresses.resolved.elapsed() < RESOLVE_AGAIN).then(|| addresses.clone())
    }

    async fn resolve(&self, endpoint: &Endpoint, within: Duration) -> Result<Arc<Addresses>, Error> {
        let list = match self.fixed(endpoint) {
            Some(list) => list,
            None => look_up(endpoint, within).await?,
        };
        let addresses = Arc::new(Addresses { list, resolved: Instant::now(), turn: Mutex::default() });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((endpoint.host.clone(), endpoint.port), addresses.clone());
        Ok(addresses)
    }

    fn fixed(&self, endpoint: &Endpoint) -> Option<Vec<SocketAddr>> {
        let matches = |fixed: &&Fixed| {
            fixed.host.eq_ignore_ascii_case(&endpoint.host)
                && fixed.port.is_none_or(|port| port == endpoint.port)
        };
        let fixed = self.fixed.iter().find(matches)?;
        Some(fixed.addresses.iter().map(|&address| SocketAddr::new(address, endpoint.port)).collect())
    }
}

/// Asks the system's resolver, off the shard's thread; a literal address is not asked for.
async fn look_up(endpoint: &Endpoint, within: Duration) -> Result<Vec<SocketAddr>, Error> {
    if let Ok(literal) = endpoint.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(literal, endpoint.port)]);
    }
    let unresolved = |refused: io::Error| {
        Error::network(format_args!("cannot resolve {}", endpoint.host), refused).with_hint(
            "check the spelling of the endpoint or bucket, and the network; --resolve names an address",
        )
    };
    let asked = tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port));
    let found = match tokio::time::timeout(within, asked).await {
        Ok(found) => found.map_err(unresolved)?,
        Err(_elapsed) => return Err(unresolved(io::ErrorKind::TimedOut.into())),
    };
    let mut list: Vec<SocketAddr> = found.collect();
    list.dedup();
    match list.is_empty() {
        true => Err(unresolved(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))),
        false => Ok(list),
    }
}

impl Fixed {
    fn parse(text: &str) -> Result<Fixed, Error> {
        let malformed = || {
            Error::new(ErrorKind::Usage, format!("'{text}' is not HOST[:PORT]:ADDR[,ADDR...]"))
                .during(SETTINGS, "resolve")
                .with_hint("for example --resolve s3.example.com:443:192.0.2.7,192.0.2.8")
        };
        let (host, rest) = text.split_once(':').ok_or_else(malformed)?;
        let (port, list) = match rest.split_once(':') {
            // An IPv6 address without a port in front begins with what could be one.
            Some((port, list)) if port.parse::<u16>().is_ok() && rest.parse::<IpAddr>().is_err() => {
                (port.parse().ok(), list)
            }
            _ => (None, rest),
        };
        let address = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().map_err(|_| malformed());
        let addresses = list.split(',').map(address).collect::<Result<Vec<_>, _>>()?;
        match host.is_empty() {
            true => Err(malformed()),
            false => Ok(Fixed { host: host.to_string(), port, addresses }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(&str, Option<u16>, &[&str])>) {
        let expected = expected.map(|(host, port, addresses)| Fixed {
            host: host.into(),
            port,
            addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
        });
        assert_eq!(Fixed::parse(text).ok(), expected, "{text}");
    }

    #[test]
    fn resolve_takes_curls_form_and_lists() {
        check("h:80:10.0.0.1", Some(("h", Some(80), &["10.0.0.1"])));
        check("h:10.0.0.1,10.0.0.2", Some(("h", None, &["10.0.0.1", "10.0.0.2"])));
        check("h:2001:db8::1", Some(("h", None, &["2001:db8::1"])));
        check("h:443:[2001:db8::1]", Some(("h", Some(443), &["2001:db8::1"])));
        check("h", None);
        check(":80:10.0.0.1", None);
        check("h:80:nowhere", None);
    }

    #[test]
    fn every_address_of_a_name_is_used_in_turn() {
        let endpoints = Endpoints::new(&["h:127.0.0.1,127.0.0.2".into()]).expect("a good --resolve");
        let (endpoint, _) = Endpoint::parse("http://h:8080").expect("an endpoint");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let turn = || {
            let addresses =
                runtime.block_on(endpoints.addresses(&endpoint, RESOLVE_AGAIN)).expect("addresses");
            addresses.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            [turn(), turn(), turn()].map(|list| list.join(" ")),
            ["127.0.0.1 127.0.0.2", "127.0.0.2 127.0.0.1", "127.0.0.1 127.0.0.2",]
        );
    }
}
