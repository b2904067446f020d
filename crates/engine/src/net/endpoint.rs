//! Endpoints: the addresses behind a name. Every address is used; new connections are spread over them by
//! their ranking (`policy::rank`), and the name is looked up again while they serve.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatout_wire::endpoint::Endpoint;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::base::error::{Error, ErrorKind, SETTINGS};
use crate::base::hint::{Word, setting, setting_to, text};
use flatout_policy::rank::{Ranks, Turn};

/// Object stores answer with few of many addresses and change them every few seconds (reference/cli.md §3.3).
const RESOLVE_AGAIN: Duration = Duration::from_secs(30);
/// An address that so many answers in a row did not name has left its name; one of many is missing now and
/// then.
const FORGET: Duration = RESOLVE_AGAIN.saturating_mul(5);
/// What a look-up beside the data may take.
const LOOK_UP_WITHIN: Duration = Duration::from_secs(20);

/// What is known of every name that a client talks to.
pub(crate) struct Endpoints {
    fixed: Vec<Fixed>,
    /// What it takes at most to see that an address is dead.
    trial: Duration,
    shared: Arc<Shared>,
}

/// What a look-up beside the data learns into, whether or not anybody has waited for it.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Whether some connections are better let go: looked at for each part.
    lets_some_go: AtomicBool,
    /// Wakes whoever waits for what comes of an address that is being tried.
    tried: Notify,
}

#[derive(Default)]
struct State {
    known: HashMap<Name, Known>,
    ranks: Ranks,
    /// An address has left its name.
    has_gone: bool,
}

type Name = (String, u16);

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
    /// When each was last named, in the order of the list.
    named: Vec<Instant>,
    resolved: Instant,
    /// Nothing could be reached: whoever is next looks it up before he tries.
    is_doubted: bool,
    is_looked_up: bool,
    /// A connection to one of them has come about, at some time.
    was_reached: bool,
    turn: usize,
}

impl Endpoints {
    pub(crate) fn new(resolve: &[String], trial: Duration) -> Result<Endpoints, Error> {
        let fixed = resolve.iter().map(|text| Fixed::parse(text)).collect::<Result<_, _>>()?;
        Ok(Endpoints { fixed, trial, shared: Arc::default() })
    }

    /// All addresses of `endpoint`, never none, in the order in which to try them: beginning with the good
    /// one whose turn it is, `shunned` behind all others. A look-up ends `within` that time; what was known
    /// before serves on meanwhile, and when it fails. Where another tries the address whose turn it is, this
    /// waits a moment for what comes of it.
    pub(crate) async fn addresses(
        &self,
        endpoint: &Endpoint,
        shunned: Option<SocketAddr>,
        within: Duration,
    ) -> Result<Vec<SocketAddr>, Error> {
        let name = (endpoint.host.clone(), endpoint.port);
        if self.needs_look_up(&name) {
            let found = match self.fixed(endpoint) {
                Some(list) => Ok(list),
                None => look_up(&name, within).await,
            };
            let is_known = self.lock().known.contains_key(&name);
            match found {
                // A name server that is down for a while is no reason to leave an origin that is not.
                Err(error) if !is_known => return Err(error),
                found => self.shared.on_looked_up(&name, found.ok()),
            }
        }
        let turn = self.lock().next_turn(&name);
        loop {
            let mut woken = std::pin::pin!(self.shared.tried.notified());
            let until = {
                let now = Instant::now().into_std();
                let mut state = self.lock();
                let State { known, ranks, .. } = &mut *state;
                let known = &known.get(&name).expect("it was learnt, now or before").list;
                match ranks.order(known, turn, self.trial, now) {
                    Turn::Go(mut order) => {
                        order.sort_by_key(|address| Some(*address) == shunned);
                        return Ok(order);
                    }
                    Turn::Wait(until) => until,
                }
            };
            woken.as_mut().enable();
            let _what_comes_first = tokio::time::timeout_at(until.into(), woken).await;
        }
    }

    /// Whether a look-up has to be waited for. Where it is only time for the next, one is begun beside the
    /// data.
    fn needs_look_up(&self, name: &Name) -> bool {
        let mut state = self.lock();
        let Some(known) = state.known.get_mut(name).filter(|known| !known.is_doubted) else { return true };
        if known.is_old() && !known.is_looked_up {
            known.is_looked_up = true;
            self.look_up_again(name);
        }
        false
    }

    /// Asks again for the addresses of a name that are in use.
    fn look_up_again(&self, name: &Name) {
        let endpoint_is = |fixed: &&Fixed| fixed.holds(&name.0, name.1);
        let fixed = self.fixed.iter().find(endpoint_is).map(|fixed| fixed.at(name.1));
        let (shared, name) = (self.shared.clone(), name.clone());
        tokio::spawn(async move {
            let found = match fixed {
                Some(list) => Some(list),
                None => look_up(&name, LOOK_UP_WITHIN).await.ok(),
            };
            shared.on_looked_up(&name, found);
        });
    }

    /// How long one address is tried before the next is tried beside it.
    pub(crate) fn head_start(&self, addresses: &[SocketAddr]) -> Duration {
        self.lock().ranks.head_start(addresses)
    }

    /// A connect to `address` begins.
    pub(crate) fn on_connecting(&self, address: SocketAddr) {
        self.lock().ranks.on_connecting(address, Instant::now().into_std());
    }

    /// A connect to `address` that was begun then has come about.
    pub(crate) fn on_connected(&self, address: SocketAddr, begun: Instant) {
        let now = Instant::now();
        let mut state = self.lock();
        state.ranks.on_connected(address, now - begun, now.into_std());
        for known in state.known.values_mut().filter(|known| known.list.contains(&address)) {
            known.was_reached = true;
        }
        drop(state);
        self.shared.tried.notify_waiters();
    }

    /// A connection to `address` that was begun then could not be opened, or brought no answer to its first
    /// request.
    pub(crate) fn on_failed(&self, address: SocketAddr, begun: Instant) {
        self.lock().ranks.on_failed(address, begun.into_std(), Instant::now().into_std());
        self.shared.tried.notify_waiters();
    }

    /// A new connection to `address` has brought an answer.
    pub(crate) fn on_answered(&self, address: SocketAddr) {
        self.lock().ranks.on_answered(address);
    }

    /// No address of `endpoint` could be reached: it may have others by now.
    pub(crate) fn on_unreachable(&self, endpoint: &Endpoint) {
        let name = (endpoint.host.clone(), endpoint.port);
        if let Some(known) = self.lock().known.get_mut(&name) {
            known.is_doubted = true;
        }
    }

    /// Whether a connection to `endpoint` has ever come about.
    pub(crate) fn was_reached(&self, endpoint: &Endpoint) -> bool {
        let name = (endpoint.host.clone(), endpoint.port);
        self.lock().known.get(&name).is_some_and(|known| known.was_reached)
    }

    /// A connection to `address` that was opened then has carried `bytes` of a body in `time`.
    pub(crate) fn on_carried(&self, address: SocketAddr, opened: Instant, bytes: u64, time: Duration) {
        let mut state = self.lock();
        let State { known, ranks, .. } = &mut *state;
        let Some((name, known)) = known.iter_mut().find(|(_, known)| known.list.contains(&address)) else {
            return;
        };
        let now = Instant::now().into_std();
        ranks.on_carried(address, opened.into_std(), bytes, time, &known.list, now);
        if known.is_old() && !known.is_looked_up {
            known.is_looked_up = true;
            self.look_up_again(name);
        }
        self.shared.lets_some_go.store(state.lets_some_go(), Ordering::Relaxed);
    }

    /// Whether a connection to `address` that was opened then is better let go: it is slow beside others, or
    /// the address has left its name.
    pub(crate) fn lets_go(&self, address: SocketAddr, opened: Instant) -> bool {
        self.shared.lets_some_go.load(Ordering::Relaxed) && {
            let state = self.lock();
            state.ranks.lets_go(address, opened.into_std()) || state.is_gone(address)
        }
    }

    /// Bytes a second that a connection to another address of the same name carries; `None` where that is not
    /// known.
    pub(crate) fn usual_rate(&self, address: SocketAddr) -> Option<f64> {
        let state = self.lock();
        let known = state.known.values().find(|known| known.list.contains(&address))?;
        state.ranks.usual_rate(address, &known.list, Instant::now().into_std())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    fn fixed(&self, endpoint: &Endpoint) -> Option<Vec<SocketAddr>> {
        let fixed = self.fixed.iter().find(|fixed| fixed.holds(&endpoint.host, endpoint.port))?;
        Some(fixed.at(endpoint.port))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What came of a look-up: these addresses, or none.
    fn on_looked_up(&self, name: &Name, found: Option<Vec<SocketAddr>>) {
        let mut state = self.lock();
        match found {
            Some(list) => state.learn(name, list, Instant::now()),
            None => state.keep(name),
        }
        self.lets_some_go.store(state.lets_some_go(), Ordering::Relaxed);
    }
}

impl Known {
    fn is_old(&self) -> bool {
        self.resolved.elapsed() >= RESOLVE_AGAIN
    }
}

impl State {
    fn next_turn(&mut self, name: &Name) -> usize {
        let known = self.known.get_mut(name).expect("it was learnt, now or before");
        known.turn = known.turn.wrapping_add(1);
        known.turn.wrapping_sub(1)
    }

    /// A look-up has failed: it is time for the next as if it had brought what was known.
    fn keep(&mut self, name: &Name) {
        if let Some(known) = self.known.get_mut(name) {
            known.resolved = Instant::now();
            (known.is_looked_up, known.is_doubted) = (false, false);
        }
    }

    /// A look-up has brought these. Turns go on: many that look a name up at once do not all begin with the
    /// first. What it did not bring stays for a while.
    fn learn(&mut self, name: &Name, list: Vec<SocketAddr>, now: Instant) {
        let earlier = self.known.remove(name);
        let (turn, was_reached) =
            earlier.as_ref().map_or((0, false), |known| (known.turn, known.was_reached));
        let mut known = Known {
            named: vec![now; list.len()],
            list,
            resolved: now,
            is_doubted: false,
            is_looked_up: false,
            was_reached,
            turn,
        };
        if let Some(Known { list, named, is_doubted, .. }) = earlier {
            for (address, named) in list.into_iter().zip(named) {
                if known.list.contains(&address) {
                    continue;
                }
                // Where nothing could be reached, what is not named any more is not tried any more.
                if now < named + FORGET && !is_doubted {
                    known.list.push(address);
                    known.named.push(named);
                } else {
                    self.has_gone = true;
                }
            }
        }
        self.known.insert(name.clone(), known);
    }

    fn lets_some_go(&self) -> bool {
        self.has_gone || self.ranks.has_slow()
    }

    fn is_gone(&self, address: SocketAddr) -> bool {
        !self.known.values().any(|known| known.list.contains(&address))
    }
}

/// Asks the system's resolver, off the shard's thread; a literal address is not asked for.
async fn look_up(name: &Name, within: Duration) -> Result<Vec<SocketAddr>, Error> {
    let (host, port) = (name.0.as_str(), name.1);
    if let Ok(literal) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(literal, port)]);
    }
    let unresolved = |refused: io::Error| {
        Error::network(format_args!("cannot resolve {host}"), refused).with_hint([
            text("check the spelling of the endpoint or bucket, and the network; "),
            setting("resolve"),
            text(" names an address"),
        ])
    };
    let asked = tokio::net::lookup_host((host, port));
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
    fn holds(&self, host: &str, port: u16) -> bool {
        self.host.eq_ignore_ascii_case(host) && self.port.is_none_or(|only| only == port)
    }

    fn at(&self, port: u16) -> Vec<SocketAddr> {
        self.addresses.iter().map(|&address| SocketAddr::new(address, port)).collect()
    }

    fn parse(text: &str) -> Result<Fixed, Error> {
        let malformed = || {
            Error::new(ErrorKind::Usage, format!("'{text}' is not HOST[:PORT]:ADDR[,ADDR...]"))
                .during(SETTINGS, "resolve")
                .with_hint([
                    Word::Text("for example ".into()),
                    setting_to("resolve", "s3.example.com:443:192.0.2.7,192.0.2.8"),
                ])
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

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
    }

    fn list(last: &[u8]) -> Vec<SocketAddr> {
        last.iter().map(|&last| ([127, 0, 0, last], 8080).into()).collect()
    }

    const WITHIN: Duration = Duration::from_millis(500);

    #[test]
    fn every_address_of_a_name_is_used_in_turn() {
        let endpoints = Endpoints::new(&["h:127.0.0.1,127.0.0.2".into()], TRIAL).expect("a good --resolve");
        let (endpoint, _) = Endpoint::parse("http://h:8080").expect("an endpoint");
        let runtime = runtime();
        let turn =
            |shunned| runtime.block_on(endpoints.addresses(&endpoint, shunned, WITHIN)).expect("addresses");
        for expected in [[1, 2], [2, 1], [1, 2]] {
            assert_eq!(turn(None), list(&expected));
        }
        for _ in 0..2 {
            assert_eq!(turn(Some(list(&[2])[0])), list(&[1, 2]), "the shunned one is the last");
        }
    }

    #[test]
    fn a_name_that_cannot_be_looked_up_again_keeps_its_addresses() {
        let endpoints = Endpoints::new(&[], TRIAL).expect("no --resolve");
        let (endpoint, _) = Endpoint::parse("http://origin.invalid:8080").expect("an endpoint");
        let runtime = runtime();
        let ask = || runtime.block_on(endpoints.addresses(&endpoint, None, WITHIN));
        assert!(ask().is_err(), "nothing was known");
        let list = list(&[1, 2]);
        let name = (endpoint.host.clone(), endpoint.port);
        endpoints.lock().learn(&name, list.clone(), Instant::now());
        endpoints.on_unreachable(&endpoint);
        assert_eq!(ask().expect("the old addresses"), list);
        assert!(!endpoints.needs_look_up(&name), "not looked up again for each connection");
        endpoints.on_failed(list[1], Instant::now());
        for turn in 0..2 {
            let found = ask().expect("the old addresses");
            assert_eq!(found, list, "{turn}: the second has a cooldown, whosever turn it is");
        }
    }

    #[test]
    fn an_old_name_serves_on_while_it_is_looked_up_again() {
        let endpoints = Endpoints::new(&["h:127.0.0.1,127.0.0.2".into()], TRIAL).expect("a good --resolve");
        let (endpoint, _) = Endpoint::parse("http://h:8080").expect("an endpoint");
        let name = (endpoint.host.clone(), endpoint.port);
        let long_ago = Instant::now() - RESOLVE_AGAIN;
        let runtime = runtime();
        runtime.block_on(async {
            endpoints.lock().learn(&name, list(&[3]), long_ago);
            assert_eq!(endpoints.addresses(&endpoint, None, WITHIN).await.expect("known"), list(&[3]));
            assert!(endpoints.lock().known[&name].is_looked_up, "beside it");
            tokio::task::yield_now().await;
            assert_eq!(
                endpoints.lock().known[&name].list,
                list(&[1, 2, 3]),
                "what is not named stays for a while"
            );
            // A part that is carried finds it out, too, where no connection is made.
            endpoints.lock().known.get_mut(&name).expect("it is known").resolved = long_ago;
            endpoints.on_carried(list(&[1])[0], long_ago, 1, Duration::from_millis(1));
            assert!(endpoints.lock().known[&name].is_looked_up);
        });
    }

    #[test]
    fn an_address_that_is_named_no_more_is_let_go() {
        let endpoints = Endpoints::new(&[], TRIAL).expect("no --resolve");
        let (name, now) = (("h".to_owned(), 8080), Instant::now());
        let gone = || list(&[1, 2, 3]).into_iter().filter(|a| endpoints.lets_go(*a, now)).collect::<Vec<_>>();
        let named = |last: &[u8], at| {
            endpoints.lock().learn(&name, list(last), at);
            endpoints.shared.on_looked_up(&("another".to_owned(), 1), None);
        };
        named(&[1, 2], now);
        named(&[2, 3], now + FORGET - Duration::from_secs(1));
        assert_eq!(endpoints.lock().known[&name].list, list(&[2, 3, 1]));
        assert_eq!(gone(), []);
        named(&[2], now + FORGET);
        assert_eq!(endpoints.lock().known[&name].list, list(&[2, 3]));
        assert_eq!(gone(), list(&[1]));
        // Where nothing could be reached, only what is named now is tried.
        let (endpoint, _) = Endpoint::parse("http://h:8080").expect("an endpoint");
        endpoints.on_unreachable(&endpoint);
        named(&[2], now + FORGET);
        assert_eq!(gone(), list(&[1, 3]));
    }

    #[test]
    fn whose_turn_it_is_waits_for_what_comes_of_a_trial() {
        let endpoints = Endpoints::new(&["h:127.0.0.1,127.0.0.2".into()], TRIAL).expect("a good --resolve");
        let (endpoint, _) = Endpoint::parse("http://h:8080").expect("an endpoint");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (first, begun) = (list(&[1])[0], Instant::now());
            endpoints.on_connecting(first);
            let ask = || endpoints.addresses(&endpoint, None, WITHIN);
            let comes_about = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                endpoints.on_connected(first, begun);
            };
            let (found, ()) = tokio::join!(ask(), comes_about);
            assert_eq!((found.expect("addresses"), begun.elapsed().as_millis()), (list(&[1, 2]), 20));
            assert_eq!(ask().await.expect("addresses"), list(&[2, 1]));
            endpoints.on_failed(first, begun);
            endpoints.on_connecting(first);
            assert_eq!(ask().await.expect("addresses"), list(&[2, 1]), "a cooldown");
        });
    }
}
