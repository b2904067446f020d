//! Endpoints: the addresses behind a name. Every address is used; new connections are spread over them in turn, and an
//! address that fails rests (`rest.rs`).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatout_wire::endpoint::Endpoint;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind, SETTINGS};
use crate::rest::Rests;

/// Object stores answer with few of many addresses and change them every few seconds (reference/cli.md §3.3).
const RESOLVE_AGAIN: Duration = Duration::from_secs(30);

/// What is known of every name that a client talks to.
pub(crate) struct Endpoints {
    fixed: Vec<Fixed>,
    /// What it takes at most to see that an address is dead.
    trial: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<(String, u16), Known>,
    rests: Rests,
}

/// One `--resolve HOST[:PORT]:ADDRESS[,ADDRESS…]`.
#[derive(Debug, PartialEq, Eq)]
struct Fixed {
    host: String,
    port: Option<u16>,
    addresses: Vec<IpAddr>,
}

/// The addresses of one name, and how often they were handed out.
struct Known {
    list: Vec<SocketAddr>,
    resolved: Instant,
    turn: usize,
}

impl Endpoints {
    pub(crate) fn new(resolve: &[String], trial: Duration) -> Result<Endpoints, Error> {
        let fixed = resolve.iter().map(|text| Fixed::parse(text)).collect::<Result<_, _>>()?;
        Ok(Endpoints { fixed, trial, state: Mutex::default() })
    }

    /// All addresses of `endpoint`, never none, in the order in which to try them: beginning with the one whose turn it is,
    /// those that rest last. A look-up ends `within` that time; what was known before serves on when it fails.
    pub(crate) async fn addresses(
        &self,
        endpoint: &Endpoint,
        within: Duration,
    ) -> Result<Vec<SocketAddr>, Error> {
        let name = (endpoint.host.clone(), endpoint.port);
        if let Some(addresses) = self.lock().turn(&name, self.trial, true) {
            return Ok(addresses);
        }
        let found = match self.fixed(endpoint) {
            Some(list) => Ok(list),
            None => look_up(endpoint, within).await,
        };
        let mut state = self.lock();
        match found {
            Ok(list) => state.learn(&name, list),
            // A name server that is down for a while is no reason to leave an origin that is not.
            Err(error) if !state.known.contains_key(&name) => return Err(error),
            Err(_) => state.keep(&name),
        }
        Ok(state.turn(&name, self.trial, false).expect("it was learnt, now or before"))
    }

    /// A connection to `address` that was begun then could not be opened, or brought no answer to its first request.
    pub(crate) fn on_failed(&self, address: SocketAddr, begun: Instant) {
        self.lock().rests.on_failed(address, begun.into_std(), Instant::now().into_std());
    }

    /// A new connection to `address` has brought an answer.
    pub(crate) fn on_answered(&self, address: SocketAddr) {
        self.lock().rests.on_answered(address);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

impl State {
    /// The addresses of a name in the order of this turn; `None` where it is not known, or, with `fresh`, not any more.
    fn turn(&mut self, name: &(String, u16), trial: Duration, fresh: bool) -> Option<Vec<SocketAddr>> {
        let now = Instant::now();
        let is_fresh = |known: &&mut Known| !fresh || now.duration_since(known.resolved) < RESOLVE_AGAIN;
        let known = self.known.get_mut(name).filter(is_fresh)?;
        let turn = known.turn;
        known.turn = known.turn.wrapping_add(1);
        Some(self.rests.order(&known.list, turn, trial, now.into_std()))
    }

    /// A look-up has failed: it is time for the next as if it had brought what was known.
    fn keep(&mut self, name: &(String, u16)) {
        if let Some(known) = self.known.get_mut(name) {
            known.resolved = Instant::now();
        }
    }

    /// A look-up has brought these. Turns go on: many that look a name up at once do not all begin with the first.
    fn learn(&mut self, name: &(String, u16), list: Vec<SocketAddr>) {
        let turn = self.known.get(name).map_or(0, |known| known.turn);
        self.known.insert(name.clone(), Known { list, resolved: Instant::now(), turn });
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

    const TRIAL: Duration = Duration::from_secs(30);

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
        let endpoints = Endpoints::new(&["h:127.0.0.1,127.0.0.2".into()], TRIAL).expect("a good --resolve");
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

    #[test]
    fn a_name_that_cannot_be_looked_up_again_keeps_its_addresses() {
        let endpoints = Endpoints::new(&[], TRIAL).expect("no --resolve");
        let (endpoint, _) = Endpoint::parse("http://origin.invalid:8080").expect("an endpoint");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let ask = || runtime.block_on(endpoints.addresses(&endpoint, Duration::from_millis(500)));
        assert!(ask().is_err(), "nothing was known");
        let list: Vec<SocketAddr> = vec![([127, 0, 0, 1], 8080).into(), ([127, 0, 0, 2], 8080).into()];
        let name = (endpoint.host.clone(), endpoint.port);
        endpoints.lock().learn(&name, list.clone());
        let long_ago = Instant::now() - 2 * RESOLVE_AGAIN;
        endpoints.lock().known.get_mut(&name).expect("it was learnt").resolved = long_ago;
        assert_eq!(ask().expect("the old addresses"), list);
        assert!(
            endpoints.lock().turn(&name, TRIAL, true).is_some(),
            "not looked up again for each connection"
        );
        endpoints.on_failed(list[1], Instant::now());
        for turn in 0..2 {
            assert_eq!(
                ask().expect("the old addresses"),
                list,
                "{turn}: the second rests, whosever turn it is"
            );
        }
    }
}
