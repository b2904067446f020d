//! Control requests: HEAD and listings, small and whole, by hyper over the shard's own connections.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use flatout_wire::endpoint::{Endpoint, Scheme};
use flatout_wire::head::{Head, HeadError};
use flatout_wire::location::HttpUrl;
use flatout_wire::request::{self, Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use crate::api::account::{Dialect, Errand, Pen};
use crate::api::refusal::{self, Failure, MOVES_MAX, REDIRECTS_MAX, is_redirect};
use crate::api::service::Reply;
use crate::api::service::{Ask, Question};
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{setting, text};
use crate::base::operation::Load;
use crate::base::wording::{LOOK_AT_THE_PORT, LOOK_BETWEEN, broke, closed_early, silence};
use crate::memory::lease::{MemoryCharge, addressable};
use crate::memory::plan::CALLER_BYTES;
use crate::net::proxy::{Proxy, Purpose};
use crate::net::tls_errors::alert_in;
use crate::policy::retry::{self, Attempts, Fault};
use crate::shard::shards::Shards;
use crate::shard::{Caller, Shard};

/// A control request. Each attempt is signed with the keys of its moment, and goes where the bucket lies by then.
pub(crate) struct Call {
    pub(crate) errand: Errand,
    /// Where a plain server has sent us.
    redirected: Option<Request>,
}

impl Call {
    pub(crate) fn new(errand: Errand) -> Call {
        Call { errand, redirected: None }
    }
}

impl Shards {
    /// One call and its whole answer, tried again as often as a part would be; blocks.
    pub(crate) fn call(&self, call: Call) -> Result<(Head, Bytes), Error> {
        self.wait_for(|shard| async move { try_call(&shard, call).await.map_err(|failure| failure.error) })
    }
}

impl Ask for Shards {
    fn ask(&self, question: Question) -> Result<Reply, Error> {
        self.wait_for(|shard| async move { ask(&shard, question).await })
    }
}

/// The same on a shard; a failure tells whether the origin does not want to, or could not be asked as often as that.
pub(crate) async fn try_call(shard: &Rc<Shard>, mut call: Call) -> Result<(Head, Bytes), Failure> {
    let mut attempts = Attempts::default();
    let (mut redirects, mut renewed, mut moves) = (0, false, 0);
    let account = &shard.shared.account;
    loop {
        let mut pen = account.pen(call.errand.dialect()).await?;
        let request = match &call.redirected {
            Some(request) => request.clone(),
            None => account.request(&call.errand, &pen)?,
        };
        let (gate, class) =
            (shard.shared.gate_at(&request.endpoint, call.errand.bucket()), call.errand.class());
        let sent = gate.start_request(class, shard.number).await?;
        let failure = match gate.carry(sent, answer(shard, &request)).await {
            Ok((mut head, body)) => {
                if call.follow(&request, &head)? {
                    redirects += 1;
                    if redirects > REDIRECTS_MAX {
                        return Err(Failure::circle());
                    }
                    continue;
                }
                if moves < MOVES_MAX && account.learn(&call.errand, &mut head, &body) {
                    moves += 1;
                    continue;
                }
                let rejection = refusal::key_rejection(&head, &body, request.method);
                if !renewed && account.renew(&mut pen, rejection).await {
                    renewed = true;
                    continue;
                }
                match refused(shard, &request, &head, &body, &pen) {
                    Some(failure) => {
                        let failure = shard.shared.account.explain(failure, &pen);
                        if let Some(load) = failure.load() {
                            gate.on_answer(class, sent, load);
                        }
                        failure
                    }
                    None => {
                        gate.on_answer(class, sent, Load::Fine);
                        pen.on_accepted();
                        return Ok((head, body));
                    }
                }
            }
            Err(failure) => failure,
        };
        shard.wait_or_give_up((&gate, class), failure.since(sent), &mut attempts).await?;
    }
}

/// The failure that an answer tells of; `None` when it tells of success.
fn refused(shard: &Shard, request: &Request, head: &Head, body: &[u8], pen: &Pen) -> Option<Failure> {
    let misdirected = shard.misdirected(&request.endpoint, head.status, body);
    misdirected.or_else(|| Failure::of_answer(head, body, || pen.note()))
}

impl Call {
    /// Follows the redirect of a plain server; credentials go along to the same endpoint only.
    fn follow(&mut self, from: &Request, head: &Head) -> Result<bool, Failure> {
        let Some(target) = head.location.as_deref().filter(|_| is_redirect(head.status)) else {
            return Ok(false);
        };
        if self.errand.dialect() != Dialect::Plain {
            return Ok(false);
        }
        let url = HttpUrl::new(from.endpoint.clone(), &from.target()).follow(target);
        let url = url.map_err(|why| Failure::redirected_to_no_url(&why))?;
        let mut request = request::get_url(&url);
        request.method = from.method;
        if let Some(secret) = from.header("authorization").filter(|_| url.endpoint == from.endpoint) {
            request.set("authorization", secret);
        }
        self.redirected = Some(request);
        Ok(true)
    }
}

/// One exchange. An origin is silent when nothing comes of its head, or of the rest of its body, for that time: a page of
/// a listing may take longer in all.
async fn answer(shard: &Rc<Shard>, request: &Request) -> Result<(Head, Bytes), Failure> {
    let patience = shard.shared.stall_timeout();
    let (caller, answer) = send(shard, request, patience).await?;
    let headers = answer.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let head = Head::from_http(answer.status().as_u16(), headers);
    shard.shared.clock.note(head.date);
    let body = collected(shard, answer, &request.endpoint, patience).await?;
    shard.callers.borrow_mut().entry(request.endpoint.clone()).or_default().push(caller);
    Ok((head, body))
}

/// A body that counts as held until nobody needs it any more.
struct Held {
    bytes: Vec<u8>,
    weight: MemoryCharge,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The whole body, of which something must come every now and then.
async fn collected(
    shard: &Shard,
    answer: hyper::Response<Incoming>,
    endpoint: &Endpoint,
    patience: Duration,
) -> Result<Bytes, Failure> {
    let bytes_max = addressable(shard.shared.memory_plan.answer)?;
    let mut body = Limited::new(answer.into_body(), bytes_max);
    let mut held = Held { bytes: Vec::new(), weight: shard.shared.pool.charge(0) };
    while let Some(frame) = within(patience, silent, body.frame()).await? {
        let frame = frame.map_err(|why| broke_off(&*why, bytes_max, endpoint))?;
        held.bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        held.weight.set(held.bytes.capacity() as u64);
    }
    Ok(Bytes::from_owner(held))
}

/// What ended a body before its end: the origin, or our limit.
fn broke_off(why: &(dyn std::error::Error + 'static), bytes_max: usize, endpoint: &Endpoint) -> Failure {
    match why.downcast_ref::<hyper::Error>() {
        Some(error) => Failure::from(in_our_words(error, endpoint)),
        None => Failure::last(
            Error::new(
                ErrorKind::Network,
                format!("the answer is longer than {bytes_max} bytes: nothing that was asked for is"),
            )
            .with_hint([
                text("check the endpoint; if its answers are as long as that, more "),
                setting("memory"),
                text(" lets them in"),
            ]),
        ),
    }
}

/// What comes in that time, or the failure that nothing came.
async fn within<T>(
    patience: Duration,
    late: impl FnOnce() -> Error,
    coming: impl Future<Output = T>,
) -> Result<T, Failure> {
    tokio::time::timeout(patience, coming).await.map_err(|_elapsed| Failure::transient(late()))
}

/// An origin that is silent, as the data path says it.
fn silent() -> Error {
    broke(silence())
}

/// Sends on an idle connection, or on a new one where the origin closed the idle one meanwhile; the head of the answer.
async fn send(
    shard: &Rc<Shard>,
    request: &Request,
    patience: Duration,
) -> Result<(Caller, hyper::Response<Incoming>), Failure> {
    if let Some(mut caller) = idle_caller(shard, request).await {
        let sent = sent(shard, &mut caller, request, Bytes::new(), Purpose::Store);
        if let Ok(answer) = within(patience, silent, sent).await? {
            return Ok((caller, answer));
        }
    }
    let mut opened = open_caller(shard, request, Purpose::Store, shard.shared.connect_timeout()).await?;
    let sent = sent(shard, &mut opened.caller, request, Bytes::new(), Purpose::Store);
    let answer = within(patience, silent, sent).await.flatten();
    opened.tell(shard, &answer);
    Ok((opened.caller, answer?))
}

async fn sent(
    shard: &Shard,
    caller: &mut Caller,
    request: &Request,
    body: Bytes,
    purpose: Purpose,
) -> Result<hyper::Response<Incoming>, Failure> {
    caller.send_request(rendered(shard, request, body, purpose)?).await.map_err(|error| {
        let said = in_our_words(&error, &request.endpoint);
        let is_other = error.is_parse() && request.endpoint.scheme == Scheme::Http;
        if is_other { Failure::last(said) } else { Failure::from(said) }
    })
}

/// An answer that hyper could not parse.
fn no_http(error: &hyper::Error, endpoint: &Endpoint) -> Error {
    // hyper tells what it was by its sentence alone.
    let what = match error.to_string().contains("HTTP version") {
        true => HeadError::OTHER_VERSION.to_string(),
        false => "the answer is no HTTP/1 that can be read".to_owned(),
    };
    // And it shows no byte of it: that it is TLS is a guess.
    let tls = if endpoint.scheme == Scheme::Http { "; if that is TLS, use https://" } else { "" };
    Error::new(ErrorKind::Network, what).with_hint(format!("{LOOK_AT_THE_PORT}{tls}"))
}

/// What hyper met, as the data path would have said it.
fn in_our_words(error: &hyper::Error, endpoint: &Endpoint) -> Error {
    if error.is_parse() {
        return no_http(error, endpoint);
    }
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    match source.map(|source| (source, source.kind())) {
        // hyper says so of a body.
        Some((_, io::ErrorKind::UnexpectedEof)) => closed_early("before its answer was whole"),
        Some((_, io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)) => {
            Error::new(ErrorKind::Network, "the chunked body is broken").with_hint(LOOK_BETWEEN)
        }
        Some((source, kind)) => alert_in(source, endpoint)
            .unwrap_or_else(|| broke(io::Error::new(kind, crate::base::error::plain(source)))),
        None if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => {
            closed_early("before its answer was whole")
        }
        None => Error::new(ErrorKind::Network, "the connection broke").with_hint(LOOK_BETWEEN),
    }
}

/// An idle connection that is still open.
async fn idle_caller(shard: &Rc<Shard>, request: &Request) -> Option<Caller> {
    loop {
        let mut caller = shard.callers.borrow_mut().get_mut(&request.endpoint)?.pop()?;
        if caller.ready().await.is_ok() {
            return Some(caller);
        }
    }
}

/// A connection that has not carried anything yet.
struct Opened {
    caller: Caller,
    address: SocketAddr,
    begun: Instant,
}

impl Opened {
    /// Tells what came of its first request: the address rests, or does not rest any more.
    fn tell<T>(&self, shard: &Shard, came: &Result<T, Failure>) {
        let endpoints = &shard.shared.endpoints;
        match came {
            Ok(_) => endpoints.on_answered(self.address),
            Err(failure) if failure.fault == Fault::Transient => {
                endpoints.on_failed(self.address, self.begun)
            }
            Err(_) => {}
        }
    }
}

async fn open_caller(
    shard: &Rc<Shard>,
    request: &Request,
    purpose: Purpose,
    within: Duration,
) -> Result<Opened, Failure> {
    let begun = Instant::now();
    let (socket, address) = shard.connect(&request.endpoint, purpose, None, within).await?;
    let opened = http1::handshake(TokioIo::new(socket)).await;
    let (caller, connection) =
        opened.map_err(|error| Failure::transient(in_our_words(&error, &request.endpoint)))?;
    let weight = shard.shared.pool.charge(CALLER_BYTES);
    tokio::task::spawn_local(async move {
        // What goes wrong with the connection is told to the request that is on it.
        let _ = connection.await;
        drop(weight);
    });
    Ok(Opened { caller, address, begun })
}

/// An origin decides what a redirect or a listing leads to, a service what a role is called: that may be more than a
/// request line holds.
fn rendered(
    shard: &Shard,
    request: &Request,
    body: Bytes,
    purpose: Purpose,
) -> Result<hyper::Request<Full<Bytes>>, Failure> {
    let method = match request.method {
        Method::Get => hyper::Method::GET,
        Method::Head => hyper::Method::HEAD,
        Method::Put => hyper::Method::PUT,
        Method::Post => hyper::Method::POST,
        Method::Delete => hyper::Method::DELETE,
    };
    let proxy = shard.shared.routes.forwarder(&request.endpoint, purpose);
    let uri = if proxy.is_some() { request.url() } else { request.target() };
    let mut builder = hyper::Request::builder().method(method).uri(uri);
    if let Some(login) = proxy.and_then(Proxy::login) {
        builder = builder.header("proxy-authorization", login);
    }
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    if body.is_empty() && matches!(request.method, Method::Put | Method::Post) {
        // RFC 9110 §8.6: said where a body could be; hyper leaves it out.
        builder = builder.header("content-length", "0");
    }
    builder.body(Full::new(body)).map_err(|_unasked| {
        let cause = format!("{} leads to what cannot be asked for", request.endpoint);
        Failure::last(Error::new(ErrorKind::Network, cause))
    })
}

/// Keys, roles and tokens are far under this.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// Asks a service, again where that may help: neither signed nor redirected, on a connection of its own.
pub(crate) async fn ask(shard: &Rc<Shard>, question: Question) -> Result<Reply, Error> {
    let was_reached = shard.shared.endpoints.was_reached(&question.request.endpoint);
    let outage = question.patience.outage(was_reached, &shard.shared.settings);
    let begun = Instant::now();
    let mut attempt = 1;
    loop {
        let (fault, answered) = match ask_once(shard, &question).await {
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

async fn ask_once(shard: &Rc<Shard>, question: &Question) -> Result<Reply, Failure> {
    let Question { request, body, patience } = question;
    let late = || Error::new(ErrorKind::Timeout, format!("{} did not answer in time", request.endpoint));
    let mut opened = open_caller(shard, request, Purpose::Keys, patience.connect).await?;
    let exchange = async {
        let answer = sent(shard, &mut opened.caller, request, body.clone(), Purpose::Keys).await?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), REPLY_BYTES_MAX).collect().await;
        let body = body.map_err(|why| broke_off(&*why, REPLY_BYTES_MAX, &request.endpoint))?;
        Ok(Reply { status, body: body.to_bytes() })
    };
    let replied = within(patience.answer, late, exchange).await.flatten();
    opened.tell(shard, &replied);
    replied
}
