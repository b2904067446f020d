//! A survey: what leads to an origin and how far it is. Asked before any object moves, by whoever explains a
//! speed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flatout_wire::endpoint::{Endpoint, Scheme};
use flatout_wire::location::Location;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::api::account::Dialect;
use crate::base::error::{Error, ErrorKind};
use crate::net::proxy::Purpose;
use crate::net::socket;
use crate::shard::shared::Shared;

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
pub(crate) fn way_to(shared: &Shared, location: &Location) -> Result<Way, Error> {
    Ok(way(shared, shared.account.endpoint_of(location)?))
}

/// The way to the buckets of a dialect.
pub(crate) fn way_to_buckets(shared: &Shared, dialect: Dialect) -> Result<Way, Error> {
    match dialect {
        Dialect::Plain => Err(Error::new(ErrorKind::Unsupported, "a plain http server has no buckets")),
        _ => Ok(way(shared, shared.account.endpoint_of_buckets(dialect)?)),
    }
}

fn way(shared: &Shared, endpoint: Endpoint) -> Way {
    let proxy = shared.routes.of(&endpoint, Purpose::Store).map(|proxy| proxy.endpoint.clone());
    Way { endpoint, proxy }
}

/// Connects to every address of `way`, all at once, `connects` times each, and shakes hands once where TLS is
/// spoken. The look-up, the connects to an address and its handshake may each take as long as the client
/// gives a connection. Runs on the calling thread; blocks.
pub(crate) fn survey(shared: &Arc<Shared>, way: &Way, connects: u32) -> Result<Survey, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|refused| Error::local("cannot wait for connections", refused))?;
    let surveyed = runtime.block_on(survey_all(shared, way, connects));
    // A look-up that hangs in the system's resolver holds nobody up.
    runtime.shutdown_background();
    surveyed
}

async fn survey_all(shared: &Arc<Shared>, way: &Way, connects: u32) -> Result<Survey, Error> {
    let begun = Instant::now();
    let addresses = shared.endpoints.addresses(way.nearest(), None, shared.connect_timeout()).await?;
    let resolve_s = begun.elapsed().as_secs_f64();
    if way.endpoint.scheme == Scheme::Https {
        // Reading the system's certificates is no part of a handshake.
        shared.tls.config();
    }
    let mut trials = JoinSet::new();
    for (place, address) in addresses.into_iter().enumerate() {
        let (shared, endpoint) = (shared.clone(), way.endpoint.clone());
        trials.spawn(async move { (place, try_address(&shared, &endpoint, address, connects).await) });
    }
    let mut surveyed = trials.join_all().await;
    surveyed.sort_by_key(|(place, _)| *place);
    Ok(Survey { resolve_s, addresses: surveyed.into_iter().map(|(_, surveyed)| surveyed).collect() })
}

async fn try_address(shared: &Shared, endpoint: &Endpoint, address: SocketAddr, connects: u32) -> Surveyed {
    let mut surveyed = Surveyed { address, connects_s: Vec::new(), handshake: None, failure: None };
    let within = shared.connect_timeout();
    let trial = async {
        for _ in 1..connects {
            surveyed.connects_s.push(connect(shared, address, within).await?.0);
        }
        let (seconds, tcp) = connect(shared, address, within).await?;
        surveyed.connects_s.push(seconds);
        match endpoint.scheme {
            Scheme::Http => Ok(None),
            Scheme::Https => shake_hands(shared, endpoint, tcp).await.map(Some),
        }
    };
    match trial.await {
        Ok(handshake) => surveyed.handshake = handshake,
        Err(error) => surveyed.failure = Some(error.during("connect", address)),
    }
    surveyed
}

async fn connect(shared: &Shared, address: SocketAddr, within: Duration) -> Result<(f64, TcpStream), Error> {
    let begun = Instant::now();
    let opened = async { socket::open(address, shared.binds.next(address)?).await };
    let connected = match tokio::time::timeout(within, opened).await {
        Ok(connected) => connected,
        Err(_elapsed) => Err(std::io::ErrorKind::TimedOut.into()),
    };
    match connected {
        Ok(tcp) => Ok((begun.elapsed().as_secs_f64(), tcp)),
        Err(refused) => Err(Error::network("cannot connect", refused)),
    }
}

async fn shake_hands(shared: &Shared, endpoint: &Endpoint, mut tcp: TcpStream) -> Result<Handshake, Error> {
    let shaken = async {
        if let Some(proxy) = shared.routes.of(endpoint, Purpose::Store) {
            proxy.tunnel(&mut tcp, endpoint).await?;
        }
        let begun = Instant::now();
        let stream = shared.tls.handshake(tcp, endpoint).await?;
        let (version, cipher) = stream.agreed();
        Ok(Handshake { seconds: begun.elapsed().as_secs_f64(), version, cipher })
    };
    tokio::time::timeout(shared.connect_timeout(), shaken).await.unwrap_or_else(|_elapsed| {
        let cause = format!("the TLS handshake with {endpoint} did not end in time");
        Err(Error::new(ErrorKind::Timeout, cause))
    })
}
