//! A survey: what leads to an origin and how far it is. Asked before any object moves, by whoever explains a speed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use flatout_wire::endpoint::{Endpoint, Scheme};
use flatout_wire::location::Location;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::account::{Dialect, Errand, Pen};
use crate::client::Core;
use crate::connection;
use crate::error::{Error, ErrorKind};
use crate::object::unix_seconds;
use crate::proxy::Purpose;

/// What is spoken to, and through what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where the requests are answered.
    pub endpoint: Endpoint,
    /// The proxy that connections go to instead; its login is left out.
    pub proxy: Option<Endpoint>,
}

/// The addresses behind a way, each tried.
#[derive(Debug)]
pub struct Survey {
    /// How long it took to learn the addresses, in seconds.
    pub resolve_s: f64,
    /// Every address that new connections are spread over, of the proxy where one is in the way.
    pub addresses: Vec<Surveyed>,
}

/// One address, tried by connections of its own that carried no request.
#[derive(Debug)]
pub struct Surveyed {
    /// The address.
    pub address: SocketAddr,
    /// How long each connect took, in seconds: about one round trip.
    pub connects_s: Vec<f64>,
    /// What TLS agreed on; `None` for plain HTTP and after a failure.
    pub handshake: Option<Handshake>,
    /// What ended the trial of this address early.
    pub failure: Option<Error>,
}

/// A TLS handshake.
#[derive(Clone, Debug, PartialEq)]
pub struct Handshake {
    /// How long it took after the connect, in seconds.
    pub seconds: f64,
    /// `TLS 1.3`
    pub version: String,
    /// As rustls names it: `TLS13_AES_128_GCM_SHA256`.
    pub cipher: String,
}

impl Way {
    /// What connections are made to.
    pub fn nearest(&self) -> &Endpoint {
        self.proxy.as_ref().unwrap_or(&self.endpoint)
    }
}

/// The way to a location.
pub(crate) fn way_to(core: &Core, location: &Location) -> Result<Way, Error> {
    let about_a_bucket = location.in_bucket().is_some_and(|(_, key)| key.is_empty());
    way(
        core,
        &match about_a_bucket {
            true => Errand::Page { under: location.clone(), delimiter: None, token: None, most: None },
            false => Errand::Head(location.clone()),
        },
    )
}

/// The way to the buckets of a dialect.
pub(crate) fn way_to_buckets(core: &Core, dialect: Dialect) -> Result<Way, Error> {
    match dialect {
        Dialect::Plain => Err(Error::new(ErrorKind::Unsupported, "a plain http server has no buckets")),
        _ => way(core, &Errand::Buckets { dialect, marker: None }),
    }
}

fn way(core: &Core, errand: &Errand) -> Result<Way, Error> {
    // Unsigned: it is not sent.
    let endpoint = core.account.request(errand, &Pen::Plain)?.endpoint;
    let proxy = core.routes.of(&endpoint, Purpose::Store).map(|proxy| proxy.endpoint.clone());
    Ok(Way { endpoint, proxy })
}

/// Connects to every address of `way`, all at once, `connects` times each, and shakes hands once where TLS is spoken.
/// The look-up, the connects to an address and its handshake may each take as long as the client gives a connection.
/// Runs on the calling thread; blocks.
pub(crate) fn survey(core: &Arc<Core>, way: &Way, connects: u32) -> Result<Survey, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|refused| Error::local("cannot wait for connections", refused))?;
    let surveyed = runtime.block_on(survey_all(core, way, connects));
    // A look-up that hangs in the system's resolver holds nobody up.
    runtime.shutdown_background();
    surveyed
}

async fn survey_all(core: &Arc<Core>, way: &Way, connects: u32) -> Result<Survey, Error> {
    let begun = Instant::now();
    let addresses = core.endpoints.addresses(way.nearest(), None, core.connect_timeout()).await?;
    let resolve_s = begun.elapsed().as_secs_f64();
    if way.endpoint.scheme == Scheme::Https {
        // Reading the system's certificates is no part of a handshake.
        core.tls.config();
    }
    let mut trials = JoinSet::new();
    for (place, address) in addresses.into_iter().enumerate() {
        let (core, endpoint) = (core.clone(), way.endpoint.clone());
        trials.spawn(async move { (place, try_address(&core, &endpoint, address, connects).await) });
    }
    let mut surveyed = trials.join_all().await;
    surveyed.sort_by_key(|(place, _)| *place);
    Ok(Survey { resolve_s, addresses: surveyed.into_iter().map(|(_, surveyed)| surveyed).collect() })
}

async fn try_address(core: &Core, endpoint: &Endpoint, address: SocketAddr, connects: u32) -> Surveyed {
    let mut surveyed = Surveyed { address, connects_s: Vec::new(), handshake: None, failure: None };
    let within = core.connect_timeout();
    let trial = async {
        for _ in 1..connects {
            surveyed.connects_s.push(connect(core, address, within).await?.0);
        }
        let (seconds, tcp) = connect(core, address, within).await?;
        surveyed.connects_s.push(seconds);
        match endpoint.scheme {
            Scheme::Http => Ok(None),
            Scheme::Https => shake_hands(core, endpoint, tcp).await.map(Some),
        }
    };
    match trial.await {
        Ok(handshake) => surveyed.handshake = handshake,
        Err(error) => surveyed.failure = Some(error.during("connect", address)),
    }
    surveyed
}

async fn connect(core: &Core, address: SocketAddr, within: Duration) -> Result<(f64, TcpStream), Error> {
    let begun = Instant::now();
    let opened = async { connection::open(address, core.binds.next(address)?).await };
    let connected = match tokio::time::timeout(within, opened).await {
        Ok(connected) => connected,
        Err(_elapsed) => Err(std::io::ErrorKind::TimedOut.into()),
    };
    match connected {
        Ok(tcp) => Ok((begun.elapsed().as_secs_f64(), tcp)),
        Err(refused) => Err(Error::network("cannot connect", refused)),
    }
}

async fn shake_hands(core: &Core, endpoint: &Endpoint, mut tcp: TcpStream) -> Result<Handshake, Error> {
    let shaken = async {
        if let Some(proxy) = core.routes.of(endpoint, Purpose::Store) {
            proxy.tunnel(&mut tcp, endpoint).await?;
        }
        let begun = Instant::now();
        let stream = core.tls.handshake(tcp, endpoint).await?;
        let (version, cipher) = stream.agreed();
        Ok(Handshake { seconds: begun.elapsed().as_secs_f64(), version, cipher })
    };
    tokio::time::timeout(core.connect_timeout(), shaken).await.unwrap_or_else(|_elapsed| {
        let cause = format!("the TLS handshake with {endpoint} did not end in time");
        Err(Error::new(ErrorKind::Timeout, cause))
    })
}

/// How far the origin's clock is from ours, by the last answer that stated a date.
pub(crate) struct Clock(AtomicI64);

/// No answer has stated a date.
const UNKNOWN: i64 = i64::MIN;

impl Default for Clock {
    fn default() -> Clock {
        Clock(AtomicI64::new(UNKNOWN))
    }
}

impl Clock {
    /// Takes over what an answer of this moment says, in seconds since 1970.
    pub(crate) fn note(&self, date: Option<u64>) {
        let Some(ahead_s) = date.and_then(|date| i64::try_from(date).ok()) else { return };
        let ahead_s = ahead_s.saturating_sub_unsigned(unix_seconds());
        // All shards share it, and every answer has a date: it is written when it tells of more than two clocks' rounding.
        if ahead_s.abs_diff(self.0.load(Ordering::Relaxed)) > 1 {
            self.0.store(ahead_s, Ordering::Relaxed);
        }
    }

    /// Seconds by which the origin is ahead of this machine; negative where it is behind.
    pub(crate) fn ahead_s(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|ahead_s| *ahead_s != UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_known_once_an_answer_has_a_date() {
        let clock = Clock::default();
        assert_eq!(clock.ahead_s(), None);
        clock.note(Some(unix_seconds() + 3_600));
        // A second may pass in between.
        assert!(clock.ahead_s().is_some_and(|ahead_s| (3_598..=3_600).contains(&ahead_s)));
        clock.note(None);
        assert!(clock.ahead_s().is_some());
        clock.note(Some(0));
        assert!(clock.ahead_s().is_some_and(|ahead_s| ahead_s < -1_000_000_000));
    }
}
