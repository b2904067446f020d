//! A shard: one thread, one runtime, its connections. What it owns, no other thread touches.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use flatout_wire::endpoint::Endpoint;
use flatout_wire::head::Head;
use tokio::runtime::LocalRuntime;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::Core;
use crate::connection::{self, Connection, RECEIVE_BYTES, Socket};
use crate::control::{self, Call, Caller, Question, Reply};
use crate::drive::{drive_lead, drive_segment, drive_worker};
use crate::error::Error;
use crate::gate::{Bandwidth, Cell as Counters, Class, Gate, Post};
use crate::hedge::Hedge;
use crate::hold::Hold;
use crate::lease::{Charge, Lease};
use crate::many::{Worker, drive_many};
use crate::memory::SHARD_BYTES;
use crate::pace::Gate as Waits;
use crate::proxy::Purpose;
use crate::refusal::Failure;
use crate::retry::{Attempts, Dice};
use crate::thread_clock::ThreadClock;
use crate::tls_errors::{is_tls, wants_tls};
use crate::transfer::Running;

/// What a shard is asked to do. A part crosses threads once in, as a number taken by a worker, and once out, by landing.
pub(crate) enum Job {
    Lead(Hold, Post),
    Work(Hold, Post),
    Segment(Hold, Post),
    /// Memory has come free that reads wait for.
    Feed,
    Many(Worker),
    Call(Call, std::sync::mpsc::Sender<Result<(Head, Bytes), Error>>),
    Ask(Question, std::sync::mpsc::Sender<Result<Reply, Error>>),
    Stop,
}

/// The other threads' end of a shard.
pub(crate) struct ShardHandle {
    jobs: mpsc::UnboundedSender<Job>,
    thread: Option<JoinHandle<()>>,
}

impl ShardHandle {
    /// Starts the thread.
    pub(crate) fn start(core: Arc<Core>, number: u32) -> Result<ShardHandle, Error> {
        let scratch = core.pool.lease(RECEIVE_BYTES)?;
        let (jobs, queue) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new()
            .name(format!("flatout-{number}"))
            .spawn(move || run(core, number, scratch, queue))
            .map_err(|refused| Error::local("cannot start a thread", refused))?;
        Ok(ShardHandle { jobs, thread: Some(thread) })
    }

    /// A shard without a thread of its own: whoever has the queue serves it.
    #[cfg(test)]
    pub(crate) fn threadless() -> (ShardHandle, mpsc::UnboundedReceiver<Job>) {
        let (jobs, queue) = mpsc::unbounded_channel();
        (ShardHandle { jobs, thread: None }, queue)
    }

    /// Where to hand jobs over. A shard that has stopped drops them, and with each the hold on its transfer.
    pub(crate) fn jobs(&self) -> mpsc::UnboundedSender<Job> {
        self.jobs.clone()
    }

    /// Stops the thread and waits for it; its transfers end as cancelled.
    pub(crate) fn stop(mut self) {
        // One that has stopped by itself is as good.
        let _ = self.jobs.send(Job::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by its own hook; there is nothing to add.
            let _ = thread.join();
        }
    }
}

fn run(core: Arc<Core>, number: u32, scratch: Lease, queue: mpsc::UnboundedReceiver<Job>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(Default::default());
    let runtime: LocalRuntime = runtime.expect("an epoll descriptor can be had for each shard");
    let seed = u64::from(std::process::id()) << 32 ^ crate::object::unix_seconds() ^ u64::from(number) << 20;
    let shard = Rc::new(Shard::new(core, number, scratch, seed, Some(ThreadClock::new())));
    runtime.block_on(serve(shard, number, queue));
    // A name look-up that hangs in the system's resolver must not hold up whoever closes the client.
    runtime.shutdown_background();
}

/// A job in, a task of its own on the shard's runtime.
pub(crate) async fn serve(shard: Rc<Shard>, number: u32, mut queue: mpsc::UnboundedReceiver<Job>) {
    while let Some(job) = queue.recv().await {
        match job {
            Job::Lead(hold, post) => {
                hold.join_shard(number);
                tokio::task::spawn_local(drive_lead(shard.clone(), hold, Some(post)));
            }
            Job::Work(hold, post) => {
                hold.join_shard(number);
                tokio::task::spawn_local(drive_worker(shard.clone(), hold, post));
            }
            Job::Segment(hold, post) => {
                hold.join_shard(number);
                tokio::task::spawn_local(drive_segment(shard.clone(), hold, post));
            }
            Job::Feed => {
                let core = shard.core.clone();
                // Of its own: it calls who reads, whose panic is not to end the shard.
                tokio::task::spawn_local(async move { core.readers.on_feeder_called() });
            }
            Job::Many(worker) => {
                tokio::task::spawn_local(drive_many(shard.clone(), worker));
            }
            Job::Call(call, reply) => {
                let shard = shard.clone();
                tokio::task::spawn_local(async move {
                    // Whoever asked may have gone; then nobody needs the answer.
                    let _ = reply.send(control::call_with_retries(&shard, call).await);
                });
            }
            Job::Ask(question, reply) => {
                let shard = shard.clone();
                tokio::task::spawn_local(async move {
                    let _ = reply.send(control::ask(&shard, question).await);
                });
            }
            Job::Stop => break,
        }
    }
}

/// What one thread owns.
pub(crate) struct Shard {
    pub(crate) core: Arc<Core>,
    pub(crate) number: u32,
    /// Where bytes are received whose landing consumes them at once: one for the thread, since it receives one at a time.
    pub(crate) scratch: RefCell<Lease>,
    pub(crate) callers: RefCell<HashMap<Endpoint, Vec<Caller>>>,
    idle: RefCell<HashMap<Endpoint, Vec<Connection>>>,
    dice: RefCell<Dice>,
    next_connection: Cell<u32>,
    /// None in the simulation, whose time is not that of any thread.
    clock: Option<ThreadClock>,
    /// What is known of the bodies of each origin.
    hedges: RefCell<HashMap<Endpoint, Rc<RefCell<Hedge>>>>,
    /// Bytes that have landed through this shard, of whatever transfer.
    pub(crate) landed_bytes: Cell<u64>,
    _weight: Charge,
}

impl Shard {
    /// `seed` is for the jitter of its waits.
    pub(crate) fn new(
        core: Arc<Core>,
        number: u32,
        scratch: Lease,
        seed: u64,
        clock: Option<ThreadClock>,
    ) -> Shard {
        let weight = core.pool.charge(SHARD_BYTES);
        Shard {
            core,
            number,
            scratch: RefCell::new(scratch),
            callers: RefCell::default(),
            idle: RefCell::default(),
            dice: RefCell::new(Dice::new(seed)),
            // Numbers are unique within the client: each shard has its own million.
            next_connection: Cell::new(number * 1_000_000),
            clock,
            hedges: RefCell::default(),
            landed_bytes: Cell::new(0),
            _weight: weight,
        }
    }

    /// The connection to `endpoint` that was used last: its congestion window is the warmest. None to `shunned`, and none
    /// that is better let go.
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
            if !self.lets_go(&connection) {
                return Some(connection);
            }
        }
    }

    fn lets_go(&self, connection: &Connection) -> bool {
        self.core.endpoints.lets_go(connection.address, connection.opened)
    }

    /// A new connection to `endpoint`, or to the proxy that leads there: to the first of its addresses that can be reached
    /// `within` that time, in the order of their ranking, and to `shunned` last. One that takes its time is not waited for: the
    /// next is tried beside it, and what becomes of the first is noted all the same.
    pub(crate) async fn connect(
        self: &Rc<Shard>,
        endpoint: &Endpoint,
        purpose: Purpose,
        shunned: Option<SocketAddr>,
        within: Duration,
    ) -> Result<(Socket, SocketAddr), Failure> {
        let (core, begun) = (&self.core, Instant::now());
        let proxy = core.routes.of(endpoint, purpose);
        let nearest = proxy.map_or(endpoint, |proxy| &proxy.endpoint);
        let failed = |error| Failure::to_connect(error, begun.elapsed(), core.endpoints.was_reached(nearest));
        let addresses = core.endpoints.addresses(nearest, shunned, within).await;
        let addresses = addresses.map_err(|error| match proxy {
            Some(proxy) => failed(proxy.unresolved(&error)),
            None => failed(error),
        })?;
        let head_start = core.endpoints.head_start(&addresses);
        let (tell, mut told) = mpsc::unbounded_channel();
        let (mut waiting, mut under_way) = (addresses.into_iter(), 0_usize);
        let mut refused = None;
        loop {
            if let Some(address) = waiting.next() {
                self.start_connect(endpoint, purpose, address, within, tell.clone());
                under_way += 1;
            }
            if under_way == 0 {
                core.endpoints.on_unreachable(nearest);
                return Err(failed(refused.expect("a name that resolves has an address")));
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
                (_, Err(error)) if error.may_pass() => refused = Some(error),
                (_, Err(error)) => return Err(error.into()),
            }
            under_way -= 1;
        }
    }

    /// Connects to one address, and tells what came of it: the ranking always, and whoever still waits for it.
    fn start_connect(
        self: &Rc<Shard>,
        endpoint: &Endpoint,
        purpose: Purpose,
        address: SocketAddr,
        within: Duration,
        tell: mpsc::UnboundedSender<(SocketAddr, Result<Socket, Error>)>,
    ) {
        let (shard, endpoint) = (self.clone(), endpoint.clone());
        self.core.endpoints.on_connecting(address);
        tokio::task::spawn_local(async move {
            let (core, begun) = (&shard.core, Instant::now());
            let proxy = core.routes.of(&endpoint, purpose);
            // A service of this machine is there for it wherever its objects come from.
            let local = if purpose == Purpose::Store { core.binds.next(address) } else { Ok(None) };
            let connected = connection::connect(&endpoint, proxy, address, local, &core.tls, within).await;
            match &connected {
                Ok(_) => core.endpoints.on_connected(address, begun),
                Err(error) if error.may_pass() => core.endpoints.on_failed(address, begun),
                Err(_) => {}
            }
            // Whoever asked may have another by now.
            let _ = tell.send((address, connected));
        });
    }

    /// The failure that an answer tells of which is not the origin's own: the proxy's, or that of a port for TLS.
    pub(crate) fn misdirected(&self, endpoint: &Endpoint, status: u16, body: &[u8]) -> Option<Failure> {
        let error = match (status, self.core.routes.forwarder(endpoint, Purpose::Store)) {
            (407, Some(proxy)) => proxy.refused_login(),
            (400, None) if wants_tls(endpoint, body) => is_tls(endpoint),
            _ => return None,
        };
        Some(Failure::last(error))
    }

    /// Waits before the next attempt at what passes `gate`, or gives the failure back when there is to be none.
    pub(crate) async fn wait_or_give_up(
        &self,
        (gate, class): (&Gate, Class),
        failure: Failure,
        attempts: &mut Attempts,
    ) -> Result<(), Failure> {
        let retries_max = gate.on_failure(class, self.core.settings.retries);
        let chance = self.chance();
        let Failure { fault, retry_after, .. } = failure;
        match attempts.on_failure(fault, self.landed_bytes.get(), retries_max, retry_after, chance) {
            None => Err(Failure { error: failure.error.after_attempts(attempts.failed()), ..failure }),
            Some(wait) => {
                gate.on_retry();
                tokio::time::sleep(wait).await;
                Ok(())
            }
        }
    }

    /// What this thread counts for the gate of a transfer.
    pub(crate) fn cell<'a>(&self, running: &'a Running) -> &'a Counters {
        running.gate.cell(self.number)
    }

    /// Notes what the thread has had of the cores, every now and then.
    pub(crate) fn note_cpu(&self, counters: &Counters) {
        if let Some((used, queued)) = self.clock.as_ref().and_then(ThreadClock::read_again) {
            counters.on_cpu(used, queued);
        }
    }

    /// Bytes have been received: waits until `--bandwidth` has room for more.
    pub(crate) async fn pay_for(&self, bytes: u64, counters: &Counters) {
        let Some(bandwidth) = &self.core.bandwidth else { return };
        let wait = bandwidth.spend(bytes);
        if !wait.is_zero() {
            let _waits = counters.waiting(Waits::Bandwidth);
            tokio::time::sleep(wait).await;
        }
    }

    /// How much to receive at once.
    pub(crate) fn piece_bytes(&self) -> u64 {
        self.core.bandwidth.as_ref().map_or(u64::MAX, Bandwidth::piece_bytes)
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
        if kept.len() < self.core.shares.parallel_max as usize && !self.core.pool.is_over() {
            kept.push(connection);
        }
    }

    pub(crate) fn new_connection(
        &self,
        socket: Socket,
        endpoint: Endpoint,
        address: SocketAddr,
    ) -> Connection {
        let number = self.next_connection.get();
        self.next_connection.set(number + 1);
        let hedge = self.hedges.borrow_mut().entry(endpoint.clone()).or_default().clone();
        let (stall, weight) = (self.core.stall_timeout(), self.core.pool.charge(socket.weight()));
        let mut connection = Connection::new(socket, endpoint, address, number, hedge, stall, weight);
        connection.patience();
        connection
    }
}
