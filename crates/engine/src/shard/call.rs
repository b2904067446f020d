//! A call: one request until its answer is good. Redirects are followed, moved buckets learnt, refused keys
//! renewed. Ranges of objects, HEADs and listings all take this road. Services that give out keys use the
//! connections only (`ask_service`).

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use flatout_wire::body_checksum::BodyChecksum;
use flatout_wire::endpoint::Endpoint;
use flatout_wire::head::Head;
use flatout_wire::request::Method;
use tokio::time::Instant;

use crate::api::account::{Operation, RequestSigner};
use crate::api::refusal::{Failure, MOVES_MAX, REDIRECTS_MAX, is_redirect, key_rejection};
use crate::api::service::{Patience, ServiceClient, ServiceReply, ServiceRequest};
use crate::api::template::{Asked, Outgoing, RequestTemplate};
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{setting, text};
use crate::base::operation::{Class, Load};
use crate::base::report::Counters;
use crate::gate::Gate;
use crate::http::connection::Connection;
use crate::memory::lease::{MemoryCharge, addressable};
use crate::net::proxy::Purpose;
use crate::net::stall::Silence;
use crate::shard::Shard;
use crate::shard::shards::Shards;
use crate::source::body::OutgoingBody;
use crate::source::cursor::{BodyCursor, SendingChecksum};
use flatout_policy::hedge::Hedge;
use flatout_policy::retry::{self, Attempts, Fault};

/// Keys, roles and tokens are far under this.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// The buffers between us and an origin fill within this time. Bytes that leave later show that the origin
/// reads. Earlier bytes do not: the kernel's buffers may hold them.
const FILLS: Duration = Duration::from_secs(1);

/// What is asked, of whom, and how.
pub(crate) struct Call<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) class: Class,
    pub(crate) template: &'a RequestTemplate,
    pub(crate) asked: &'a Asked,
    /// The ETag that pins the version.
    pub(crate) if_match: Option<&'a str>,
    /// An address to be asked last.
    pub(crate) shunned: Option<SocketAddr>,
    /// Of the transfer that asks, where one does.
    pub(crate) counters: Option<&'a Counters>,
    /// What follows the head, where that is more than the template has.
    pub(crate) body: Option<SentBody<'a>>,
}

/// The body of a request, how it is hashed meanwhile, and how far it has been sent.
#[derive(Clone, Copy)]
pub(crate) struct SentBody<'a> {
    pub(crate) content: &'a OutgoingBody<'a>,
    pub(crate) sum: Option<SendingChecksum>,
    pub(crate) progress: &'a BodyProgress,
}

/// How far the body of a request has been sent, for whoever may send it on another connection, too.
#[derive(Default)]
pub(crate) struct BodyProgress {
    watched: RefCell<Option<Watched>>,
    is_whole: Cell<bool>,
    /// The checksum that was computed meanwhile.
    sum: Cell<Option<BodyChecksum>>,
    /// When the origin took some of it last.
    taken: Cell<Option<std::time::Instant>>,
}

/// A body that is being sent.
struct Watched {
    silence: Silence,
    patience: Duration,
    hedge: Rc<RefCell<Hedge>>,
    address: SocketAddr,
}

/// An answer whose body has not been read yet.
pub(crate) struct Response {
    pub(crate) connection: Connection,
    pub(crate) head: Head,
    /// When its request was sent.
    pub(crate) asked: Instant,
    /// When its head had arrived.
    pub(crate) answered: Instant,
    method: Method,
    signer: RequestSigner,
}

impl Call<'_> {
    /// Sends the request and waits for the head of a good answer; anything else is a failure.
    pub(crate) async fn ask(&self, shard: &Rc<Shard>) -> Result<Response, Failure> {
        let Call { gate, class, template, .. } = *self;
        let account = &shard.shared.account;
        let (mut followed, mut went_back, mut renewed, mut moves) = (false, false, false, 0);
        let mut was_lost = false;
        for _ in 0..=REDIRECTS_MAX {
            let sent = gate.start_request(class, shard.number).await?;
            let since =
                || self.body.and_then(|body| body.progress.taken.get()).map_or(sent, |at| at.max(sent));
            let exchange = gate.carry(since, self.exchange(shard, &mut was_lost)).await;
            let mut answer = exchange.map_err(|failure| Failure { was_lost, ..failure.since(since()) })?;
            shard.shared.clock.note(answer.head.date);
            if (200..300).contains(&answer.head.status) {
                // OSS says so of an answer that it held back.
                let is_held_back = answer.head.qos_delay_ms.is_some();
                gate.on_answer(class, sent, if is_held_back { Load::TooMuch } else { Load::Fine });
                answer.signer.on_accepted();
                return Ok(answer);
            }
            let body = answer.connection.collect().await;
            if self.follow(&answer.head)? {
                answer.finish(shard).await;
                followed = true;
                continue;
            }
            let status = answer.head.status;
            // An earlier redirect led here, and may lead elsewhere by now.
            let is_gone = matches!(status, 401 | 403 | 404 | 410);
            if is_gone && !followed && !went_back && template.go_back() {
                went_back = true;
                continue;
            }
            if moves < MOVES_MAX && template.learn(&mut answer.head, &body) {
                answer.finish(shard).await;
                moves += 1;
                continue;
            }
            let rejection = key_rejection(&answer.head, &body, answer.method);
            if !renewed && account.renew(&mut answer.signer, rejection).await {
                answer.finish(shard).await;
                renewed = true;
                continue;
            }
            let failure = shard
                .misdirected(&answer.connection.endpoint, status, &body)
                .or_else(|| Failure::of_answer(&answer.head, &body, || answer.signer.note()))
                .map(|failure| account.explain(failure, &answer.signer))
                .unwrap_or_else(|| unexpected(status));
            answer.finish(shard).await;
            if let Some(load) = failure.load() {
                gate.on_answer(class, sent, load);
            }
            return Err(Failure { was_lost, ..failure.since(sent) });
        }
        Err(Failure::circle())
    }

    /// Whether the answer sends us elsewhere, and we may go.
    fn follow(&self, head: &Head) -> Result<bool, Failure> {
        let Some(target) = head.location.as_deref().filter(|_| is_redirect(head.status)) else {
            return Ok(false);
        };
        self.template.redirect(target).map_err(|why| Failure::redirected_to_no_url(&why))
    }

    /// One exchange on an idle connection or a new one. An idle one that the origin closed meanwhile costs no
    /// attempt; but it may have carried the request, and `was_lost` says so.
    async fn exchange(&self, shard: &Rc<Shard>, was_lost: &mut bool) -> Result<Response, Failure> {
        let outgoing = self.template.outgoing(self.asked, self.if_match).await?;
        let outgoing = shard.by_proxy(outgoing, Purpose::Store);
        while let Some(mut connection) = shard.idle_connection(&outgoing.endpoint, self.shunned) {
            match self.timed_exchange(shard, &mut connection, &outgoing).await {
                Ok((head, asked)) => return Ok(Response::new(connection, head, asked, outgoing)),
                Err(closed) if closed.kind() == ErrorKind::Network && !connection.is_answering() => {
                    *was_lost = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let mut opened =
            Opened::connect(shard, &outgoing.endpoint, Purpose::Store, self.shunned, None).await?;
        opened.connection.counted = Some(self.gate.on_connected());
        if let Some(counters) = self.counters {
            counters.connections.fetch_add(1, Ordering::Relaxed);
        }
        let exchanged = self.timed_exchange(shard, &mut opened.connection, &outgoing).await;
        opened.on_first_request(shard, exchanged.as_ref().err());
        let (head, asked) = exchanged.map_err(|error| match opened.connection.is_other_protocol() {
            // A wrong port stays one. Of an object's bytes it may have been something on the way.
            true if outgoing.method == Method::Head || self.class == Class::List => Failure::last(error),
            _ => error.into(),
        })?;
        Ok(Response::new(opened.connection, head, asked, outgoing))
    }

    /// Notes how long the answer took to begin.
    async fn timed_exchange(
        &self,
        shard: &Shard,
        connection: &mut Connection,
        outgoing: &Outgoing,
    ) -> Result<(Head, Instant), Error> {
        let asked = Instant::now();
        connection.receive_size.begin(self.gate.is_climbing());
        let head = match self.body {
            None => connection.exchange(&outgoing.bytes, outgoing.method).await?,
            // Boxed: a request without a body keeps a small future.
            Some(body) => Box::pin(self.send_with(shard, connection, outgoing, body)).await?,
        };
        if outgoing.method == Method::Get && self.class == Class::Read {
            let first_byte = asked.elapsed();
            shard.cell(self.gate).on_first_byte(first_byte);
            if matches!(head.status, 200 | 206) {
                self.gate.latency.on_first(first_byte, Instant::now().into_std());
            }
            connection.hedges.received.borrow_mut().on_catch_up(first_byte);
        }
        Ok((head, asked))
    }
}

impl Call<'_> {
    /// Sends a request whose body is longer than its head. What had been sent of one that fails counts as
    /// sent in vain.
    async fn send_with(
        &self,
        shard: &Shard,
        connection: &mut Connection,
        outgoing: &Outgoing,
        body: SentBody<'_>,
    ) -> Result<Head, Error> {
        let SentBody { content, sum, progress } = body;
        let mut cursor = BodyCursor::new(content, sum);
        let sending = Sending { counters: self.counters, bytes: Cell::new(0) };
        connection.ask(&outgoing.bytes, outgoing.method).await?;
        {
            let _moving = shard.cell(self.gate).moving();
            connection.begin_body();
            let watch = progress.watch(connection);
            while !cursor.is_whole() {
                let Some(bytes) = connection.send_some(&mut cursor, &shard.scratch).await? else {
                    break;
                };
                sending.bytes.set(cursor.sent());
                // Before anybody else has a turn, who might send it whole as well.
                progress.is_whole.set(cursor.is_whole());
                let is_taken = watch.begun.elapsed() >= FILLS;
                shard.on_sent(self.gate, self.counters, bytes, is_taken).await;
                if is_taken {
                    progress.taken.set(Some(Instant::now().into_std()));
                }
            }
        }
        let is_whole = cursor.is_whole();
        progress.sum.set(cursor.sum());
        if is_whole {
            connection.flush().await?;
        }
        let ended = Instant::now();
        let mut head = connection.answer(outgoing.method).await?;
        shard.cell(self.gate).on_answered(ended.elapsed());
        // What the origin would read next is the rest of this body.
        head.keep_alive &= is_whole;
        if is_whole && (200..300).contains(&head.status) {
            sending.bytes.set(0);
            connection.hedges.sent.borrow_mut().on_success();
        }
        Ok(head)
    }
}

impl BodyProgress {
    /// All of the body has been handed to the socket.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.get()
    }

    /// The checksum that was computed while the body was sent.
    pub(crate) fn sum(&self) -> Option<BodyChecksum> {
        self.sum.get()
    }

    /// For how long nothing of the body has gone out.
    pub(crate) fn silence(&self) -> Duration {
        self.watched.borrow().as_ref().map_or(Duration::ZERO, |watched| watched.silence.so_far())
    }

    /// The address of a body that has been silent for too long, where the budget has room for a second one.
    pub(crate) fn spend_hedge(&self) -> Option<SocketAddr> {
        let mut watched = self.watched.borrow_mut();
        let Watched { silence, patience, hedge, address } = watched.as_mut()?;
        if self.is_whole() || silence.so_far() < *patience {
            return None;
        }
        *patience = patience.saturating_mul(2);
        hedge.borrow_mut().spend().then_some(*address)
    }

    /// The body begins on this connection.
    fn watch(&self, connection: &mut Connection) -> WatchGuard<'_> {
        let (patience, silence) = (connection.patience_to_send(), connection.silence());
        silence.take_longest();
        let (hedge, address) = (connection.hedges.sent.clone(), connection.address);
        self.is_whole.set(false);
        self.watched.replace(Some(Watched { silence, patience, hedge, address }));
        WatchGuard { progress: self, patience, begun: Instant::now() }
    }
}

/// Notes what is learnt of a body when it has been sent, or was left.
struct WatchGuard<'a> {
    progress: &'a BodyProgress,
    patience: Duration,
    begun: Instant,
}

impl Drop for WatchGuard<'_> {
    fn drop(&mut self) {
        let Some(watched) = self.progress.watched.take() else { return };
        let mut hedge = watched.hedge.borrow_mut();
        hedge.on_body(watched.silence.take_longest(), self.patience);
        if self.progress.is_whole() {
            hedge.on_catch_up(self.begun.elapsed());
        }
    }
}

/// Bytes of a body that have been sent, and are in vain until the origin has accepted them.
struct Sending<'a> {
    counters: Option<&'a Counters>,
    bytes: Cell<u64>,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(counters) = self.counters {
            counters.on_sent_in_vain(self.bytes.get());
        }
    }
}

impl Response {
    fn new(connection: Connection, head: Head, asked: Instant, outgoing: Outgoing) -> Response {
        let Outgoing { method, signer, .. } = outgoing;
        Response { connection, head, asked, answered: Instant::now(), method, signer }
    }

    /// Gives the connection back if it can carry another request.
    pub(crate) async fn finish(mut self, shard: &Shard) {
        // The end of a chunked body is a line of its own, which may not have been read yet.
        let ended = matches!(self.connection.payload().await, Ok(0));
        if ended && self.head.keep_alive && !self.connection.is_answering() && !self.connection.is_over() {
            shard.keep_connection(self.connection);
        }
    }
}

pub(crate) fn unexpected(status: u16) -> Failure {
    Failure::last(Error::new(ErrorKind::Network, format!("the origin answered with status {status}")))
}

/// A connection that has not carried anything yet.
struct Opened {
    connection: Connection,
    begun: Instant,
}

impl Opened {
    /// Patience is that of the settings where it is absent.
    async fn connect(
        shard: &Rc<Shard>,
        endpoint: &Endpoint,
        purpose: Purpose,
        shunned: Option<SocketAddr>,
        patience: Option<Patience>,
    ) -> Result<Opened, Failure> {
        let begun = Instant::now();
        let within = patience.map_or_else(|| shard.shared.connect_timeout(), |patience| patience.connect);
        // A service is waited for as a whole.
        let stall = patience.map_or_else(|| shard.shared.stall_timeout(), |patience| 2 * patience.answer);
        let (socket, address) = shard.connect(endpoint, purpose, shunned, within).await?;
        let connection = shard.new_connection(socket, endpoint.clone(), address, stall);
        Ok(Opened { connection, begun })
    }

    /// Ranks the address by what came of its first request.
    fn on_first_request(&self, shard: &Shard, error: Option<&Error>) {
        let (endpoints, address) = (&shard.shared.endpoints, self.connection.address);
        match error {
            None => endpoints.on_answered(address),
            Some(error) if error.is_transient() => endpoints.on_failed(address, self.begun),
            Some(_) => {}
        }
    }
}

impl Shards {
    /// An operation and its whole answer, tried again as often as a part would be; blocks.
    pub(crate) fn call(&self, operation: Operation) -> Result<(Head, Bytes), Error> {
        self.wait_for(
            |shard| async move { call_whole(&shard, operation).await.map_err(|failure| failure.error) },
        )
    }
}

/// An operation and its whole answer; a failure tells whether the origin does not want to, or could not be
/// asked as often as that.
pub(crate) async fn call_whole(shard: &Rc<Shard>, operation: Operation) -> Result<(Head, Bytes), Failure> {
    call_watched(shard, operation, |_, _| {}).await
}

/// [`call_whole`], of which `on_failure` hears of each attempt that failed, and when it began.
pub(crate) async fn call_watched(
    shard: &Rc<Shard>,
    operation: Operation,
    on_failure: impl Fn(&Failure, std::time::Instant),
) -> Result<(Head, Bytes), Failure> {
    let mut attempts = Attempts::default();
    let class = operation.class();
    let template = RequestTemplate::new(shard.shared.account.clone(), operation);
    let mut was_lost = false;
    loop {
        let gate = shard.shared.gate_for(&template.operation());
        let call = Call {
            gate: &gate,
            class,
            template: &template,
            asked: &Asked::Whole,
            if_match: None,
            shunned: None,
            counters: None,
            body: None,
        };
        let began = std::time::Instant::now();
        let failure = match call.whole(shard).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        on_failure(&failure, began);
        was_lost |= failure.was_lost;
        let is_lost = failure.status.is_none() && failure.fault != Fault::Unreached;
        let waited = shard.wait_or_give_up((&gate, class), failure, &mut attempts).await;
        waited.map_err(|failure| Failure { was_lost, ..failure })?;
        was_lost |= is_lost;
    }
}

impl Call<'_> {
    /// The whole of a good answer. A listing may come slowly, but something of it must come every now and
    /// then; and one that begins well may be a refusal all the same.
    pub(crate) async fn whole(&self, shard: &Rc<Shard>) -> Result<(Head, Bytes), Failure> {
        let mut answer = self.ask(shard).await?;
        let asked = answer.asked.into_std();
        let mut held = HeldBody { bytes: Vec::new(), weight: shard.shared.pool.charge(0) };
        let bytes_max = addressable(shard.shared.memory_plan.answer)?;
        let HeldBody { bytes, weight } = &mut held;
        let on_growth = |bytes| weight.set(bytes as u64);
        let collected = answer.connection.collect_within(bytes_max, bytes, on_growth);
        let is_whole = self.gate.carry(|| asked, async { Ok(collected.await?) }).await;
        if !is_whole.map_err(|failure| failure.since(asked))? {
            return Err(too_long(bytes_max));
        }
        if let Some(failure) = Failure::of_answer(&answer.head, &held.bytes, || answer.signer.note()) {
            let failure = shard.shared.account.explain(failure, &answer.signer);
            answer.finish(shard).await;
            if let Some(load) = failure.load() {
                self.gate.on_answer(self.class, asked, load);
            }
            return Err(failure.since(asked));
        }
        let head = answer.head.clone();
        answer.finish(shard).await;
        Ok((head, Bytes::from_owner(held)))
    }
}

fn too_long(bytes_max: usize) -> Failure {
    let cause = format!("the answer is longer than {bytes_max} bytes: nothing that was asked for is");
    let error = Error::new(ErrorKind::Network, cause);
    Failure::last(error.with_hint([
        text("check the endpoint; if its answers are as long as that, more "),
        setting("memory"),
        text(" lets them in"),
    ]))
}

/// A body that counts as held until nobody needs it any more.
struct HeldBody {
    bytes: Vec<u8>,
    weight: MemoryCharge,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ServiceClient for Shards {
    fn ask(&self, question: ServiceRequest) -> Result<ServiceReply, Error> {
        self.wait_for(|shard| async move { ask_service(&shard, question).await })
    }
}

/// Asks a service, again where that may help: neither signed nor redirected, on a connection of its own.
async fn ask_service(shard: &Rc<Shard>, question: ServiceRequest) -> Result<ServiceReply, Error> {
    let was_reached = shard.shared.endpoints.was_reached(&question.request.endpoint);
    let outage = question.patience.outage(was_reached, &shard.shared.settings);
    let begun = Instant::now();
    let mut attempt = 1;
    loop {
        let (fault, answered) = match ask_service_once(shard, &question).await {
            Ok(reply) if reply.status == 429 => (Fault::Throttled, Ok(reply)),
            Ok(reply) if reply.status >= 500 => (Fault::Transient, Ok(reply)),
            Ok(reply) => return Ok(reply),
            Err(failure) => (failure.fault, Err(failure.error)),
        };
        let is_away = matches!(fault, Fault::Transient | Fault::Unreached) && begun.elapsed() < outage;
        // Away it is asked every second at least: as often as the shortest of the waits.
        let (fault, attempts) =
            if is_away { (Fault::Unreached, u32::MAX) } else { (fault, question.patience.attempts) };
        let Some(wait) = retry::wait(fault, attempt, attempts - 1, None, shard.chance()) else {
            return answered;
        };
        attempt += 1;
        tokio::time::sleep(wait).await;
    }
}

async fn ask_service_once(shard: &Rc<Shard>, question: &ServiceRequest) -> Result<ServiceReply, Failure> {
    let ServiceRequest { request, body, patience } = question;
    let outgoing = shard.by_proxy(Outgoing::to_service(request.clone(), body)?, Purpose::Keys);
    let endpoint = &outgoing.endpoint;
    let mut opened = Opened::connect(shard, endpoint, Purpose::Keys, None, Some(*patience)).await?;
    let connection = &mut opened.connection;
    let exchange = async {
        let head = connection.exchange(&outgoing.bytes, outgoing.method).await?;
        let mut body = Vec::new();
        let is_whole = connection.collect_within(REPLY_BYTES_MAX, &mut body, |_| {}).await?;
        Ok(is_whole.then(|| ServiceReply { status: head.status, body: body.into() }))
    };
    let late = |_elapsed| Error::new(ErrorKind::Timeout, format!("{endpoint} did not answer in time"));
    let replied = tokio::time::timeout(patience.answer, exchange).await.map_err(late).flatten();
    opened.on_first_request(shard, replied.as_ref().err());
    match replied {
        Ok(reply) => reply.ok_or_else(|| too_long(REPLY_BYTES_MAX)),
        Err(error) if opened.connection.is_other_protocol() => Err(Failure::last(error)),
        Err(error) => Err(error.into()),
    }
}
