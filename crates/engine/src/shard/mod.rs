//! A shard: one thread, one runtime, its connections. What it owns, no other thread touches.

pub(crate) mod call;
pub(crate) mod shards;
pub(crate) mod shared;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flatout_wire::endpoint::Endpoint;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::refusal::Failure;
use crate::api::template::Outgoing;
use crate::base::error::Error;
use crate::base::operation::Class;
use crate::base::report;
use crate::base::thread_clock::ThreadClock;
use crate::gate::{Bandwidth, Cell as Counters, Gate, Ruling};
use crate::http::connection::{Connection, Hedges};
use crate::memory::lease::{Lease, MemoryCharge};
use crate::memory::plan::{SHARD_BYTES, TLS_SCRATCH_BYTES};
use crate::net::proxy::Purpose;
use crate::net::socket::{self, Socket};
use crate::net::tls_errors::{is_tls, wants_tls};
use crate::shard::shared::Shared;
use flatout_policy::pace::WaitReason;
use flatout_policy::retry::{Attempts, Dice, Fault};

/// What one thread owns.
pub(crate) struct Shard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u32,
    /// Where bytes are received whose landing consumes them at once: one for the thread, since it receives
    /// one at a time.
    pub(crate) scratch: RefCell<Lease>,
    idle: RefCell<HashMap<Endpoint, Vec<Connection>>>,
    dice: RefCell<Dice>,
    next_connection: Cell<u32>,
    /// None in the simulation, whose time is not that of any thread.
    clock: Option<ThreadClock>,
    /// What is known of the bodies of each origin.
    hedges: RefCell<HashMap<Endpoint, Hedges>>,
    /// Bytes that have landed through this shard, of whatever transfer.
    landed_bytes: Cell<u64>,
    _weight: MemoryCharge,
    /// Of the scratch for TLS, once there is one.
    tls_weight: OnceCell<MemoryCharge>,
}

impl Shard {
    /// `seed` is for the jitter of its waits.
    pub(crate) fn new(
        shared: Arc<Shared>,
        number: u32,
        scratch: Lease,
        seed: u64,
        clock: Option<ThreadClock>,
    ) -> Shard {
        let weight = shared.pool.charge(SHARD_BYTES);
        Shard {
            shared,
            number,
            scratch: RefCell::new(scratch),
            idle: RefCell::default(),
            dice: RefCell::new(Dice::new(seed)),
            // Numbers are unique within the client: each shard has its own million.
            next_connection: Cell::new(number * 1_000_000),
            clock,
            hedges: RefCell::default(),
            landed_bytes: Cell::new(0),
            _weight: weight,
            tls_weight: OnceCell::new(),
        }
    }

    /// The connection to `endpoint` that was used last: its congestion window is the warmest. None to
    /// `shunned`, and none that is better let go.
    pub(crate) fn idle_connection(
        &self,
        endpoint: &Endpoint,
        shunned: Option<SocketAddr>,
    ) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        let kept = idle.get_mut(endpoint)?;
        loop {
            let at = kept.iter().rposition(|connection| Some(connection.address) != shunned)?;
            let connection = kept.remove(at);
            if !self.lets_go(&connection) && !connection.has_stray_bytes() {
                return Some(connection);
            }
        }
    }

    fn lets_go(&self, connection: &Connection) -> bool {
        self.shared.endpoints.lets_go(connection.address, connection.opened)
    }

    /// A new connection to `endpoint`, or to the proxy that leads there: to the first of its addresses that
    /// can be reached `within` that time, in the order of their ranking, and to `shunned` last. One that
    /// takes its time is not waited for: the next is tried beside it, and what becomes of the first is noted
    /// all the same.
    pub(crate) async fn connect(
        self: &Rc<Shard>,
        endpoint: &Endpoint,
        purpose: Purpose,
        shunned: Option<SocketAddr>,
        within: Duration,
    ) -> Result<(Socket, SocketAddr), Failure> {
        let shared = &self.shared;
        let proxy = shared.routes.of(endpoint, purpose);
        let nearest = proxy.map_or(endpoint, |proxy| &proxy.endpoint);
        let addresses = shared.endpoints.addresses(nearest, shunned, within).await;
        let addresses = addresses.map_err(|error| match proxy {
            Some(proxy) => Failure::to_connect(proxy.unresolved(&error)),
            None => Failure::to_connect(error),
        })?;
        let head_start = shared.endpoints.head_start(&addresses);
        let (tell, mut told) = mpsc::unbounded_channel();
        let (mut waiting, mut under_way) = (addresses.into_iter(), 0_usize);
        let mut refused = None;
        loop {
            if let Some(address) = waiting.next() {
                self.start_connect(endpoint, purpose, address, within, tell.clone());
                under_way += 1;
            }
            if under_way == 0 {
                shared.endpoints.on_unreachable(nearest);
                return Err(Failure::to_connect(refused.expect("a name that resolves has an address")));
            }
            let ended = match waiting.len() {
                0 => told.recv().await,
                _ => match tokio::time::timeout(head_start, told.recv()).await {
                    Ok(ended) => ended,
                    Err(_elapsed) => continue,
                },
            };
            match ended.expect("we could tell ourselves") {
                (address, Ok(socket)) => return Ok((socket, address)),
                // Another address may do better; what certificate and settings forbid stays forbidden.
                (_, Err(error)) if error.is_transient() => refused = Some(error),
                (_, Err(error)) => return Err(error.into()),
            }
            under_way -= 1;
        }
    }

    /// Connects to one address, and tells what came of it: the ranking always, and whoever still waits for
    /// it.
    fn start_connect(
        self: &Rc<Shard>,
        endpoint: &Endpoint,
        purpose: Purpose,
        address: SocketAddr,
        within: Duration,
        tell: mpsc::UnboundedSender<(SocketAddr, Result<Socket, Error>)>,
    ) {
        let (shard, endpoint) = (self.clone(), endpoint.clone());
        self.shared.endpoints.on_connecting(address);
        tokio::task::spawn_local(async move {
            let (shared, begun) = (&shard.shared, Instant::now());
            let proxy = shared.routes.of(&endpoint, purpose);
            // A service of this machine is there for it wherever its objects come from.
            let local = if purpose == Purpose::Store { shared.binds.next(address) } else { Ok(None) };
            let connected = socket::connect(&endpoint, proxy, address, local, &shared.tls, within).await;
            match &connected {
                Ok(_) => shared.endpoints.on_connected(address, begun),
                Err(error) if error.is_transient() => shared.endpoints.on_failed(address, begun),
                Err(_) => {}
            }
            // Whoever asked may have another by now.
            let _ = tell.send((address, connected));
        });
    }

    /// A request as the proxy wants it that it is handed to, if there is one.
    pub(crate) fn by_proxy(&self, outgoing: Outgoing, purpose: Purpose) -> Outgoing {
        match self.shared.routes.forwarder(&outgoing.endpoint, purpose) {
            Some(proxy) => {
                let bytes = proxy.absolute(&outgoing.endpoint, &outgoing.bytes);
                Outgoing { bytes, ..outgoing }
            }
            None => outgoing,
        }
    }

    /// The failure that an answer tells of which is not the origin's own: the proxy's, or that of a port for
    /// TLS.
    pub(crate) fn misdirected(&self, endpoint: &Endpoint, status: u16, body: &[u8]) -> Option<Failure> {
        let error = match (status, self.shared.routes.forwarder(endpoint, Purpose::Store)) {
            (407, Some(proxy)) => proxy.refused_login(),
            (400, None) if wants_tls(endpoint, body) => is_tls(endpoint),
            _ => return None,
        };
        Some(Failure::last(error))
    }

    /// Waits before the next attempt at what passes `gate`, or gives the failure back when there is to
    /// be none. Where the origin is away the next request waits for it at the gate.
    pub(crate) async fn wait_or_give_up(
        &self,
        (gate, class): (&Gate, Class),
        failure: Failure,
        attempts: &mut Attempts,
    ) -> Result<(), Failure> {
        if failure.fault == Fault::Away {
            return Err(failure);
        }
        let fault = match gate.rule(class, &failure) {
            Ruling::Own(fault) => fault,
            Ruling::GiveUp(waited) => return Err(Failure::outage(failure.error, waited.so_far)),
            Ruling::Outage => {
                attempts.on_outage();
                gate.on_retry();
                return Ok(());
            }
        };
        let (retries_max, chance) = (self.shared.settings.retries, self.chance());
        let asked = failure.retry_after;
        match attempts.on_failure(fault, self.landed_bytes.get(), retries_max, asked, chance) {
            None => Err(Failure { error: failure.error.after_attempts(attempts.failed()), ..failure }),
            Some(wait) => {
                gate.on_retry();
                tokio::time::sleep(wait).await;
                Ok(())
            }
        }
    }

    /// What this thread counts for the gate of a transfer.
    pub(crate) fn cell<'a>(&self, gate: &'a Gate) -> &'a Counters {
        gate.cell(self.number)
    }

    /// Counts `bytes` of a body that have landed, of which writing to a file took `writing`, once for all
    /// that count; waits until `--bandwidth` has room for more.
    pub(crate) async fn on_received(
        &self,
        gate: &Gate,
        transfer: &report::Counters,
        bytes: u64,
        writing: Duration,
    ) {
        transfer.received_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.landed_bytes.set(self.landed_bytes.get() + bytes);
        gate.on_received(self.cell(gate), bytes, writing);
        self.on_moved(gate, bytes).await;
    }

    async fn on_moved(&self, gate: &Gate, bytes: u64) {
        let counters = self.cell(gate);
        if let Some((used, queued)) = self.clock.as_ref().and_then(ThreadClock::read_again) {
            counters.on_cpu(used, queued);
        }
        if let Some(bandwidth) = &self.shared.bandwidth {
            let wait = bandwidth.spend(bytes);
            if !wait.is_zero() {
                let _waits = counters.waiting(WaitReason::Bandwidth);
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// Counts `bytes` of a body that have been sent, and that the origin takes if it `is_taken`; waits until
    /// `--bandwidth` has room for more.
    pub(crate) async fn on_sent(
        &self,
        gate: &Gate,
        transfer: Option<&report::Counters>,
        bytes: u64,
        is_taken: bool,
    ) {
        if let Some(transfer) = transfer {
            transfer.received_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        gate.on_sent(self.cell(gate), bytes, is_taken);
        self.on_moved(gate, bytes).await;
    }

    /// How much to receive at once.
    pub(crate) fn piece_bytes(&self) -> u64 {
        self.shared.bandwidth.as_ref().map_or(u64::MAX, Bandwidth::piece_bytes)
    }

    /// A number in 0..1, for jitter.
    pub(crate) fn chance(&self) -> f64 {
        self.dice.borrow_mut().roll()
    }

    pub(crate) fn keep_connection(&self, connection: Connection) {
        if self.lets_go(&connection) {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        let kept = idle.entry(connection.endpoint.clone()).or_default();
        if kept.len() < self.shared.memory_plan.parallel_max as usize && !self.shared.pool.is_over() {
            kept.push(connection);
        }
    }

    pub(crate) fn new_connection(
        &self,
        socket: Socket,
        endpoint: Endpoint,
        address: SocketAddr,
        stall: Duration,
    ) -> Connection {
        let number = self.next_connection.get();
        self.next_connection.set(number + 1);
        let hedges = self.hedges.borrow_mut().entry(endpoint.clone()).or_default().clone();
        let weight = self.shared.pool.charge(socket.weight());
        if socket.is_tls() {
            self.tls_weight.get_or_init(|| self.shared.pool.charge(TLS_SCRATCH_BYTES as u64));
        }
        let mut connection = Connection::new(socket, endpoint, address, number, hedges, stall, weight);
        connection.patience();
        connection
    }
}
