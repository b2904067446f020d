//! Control requests: HEAD and listings, small and whole, by hyper over the shard's own connections.

use std::rc::Rc;

use bytes::Bytes;
use flatout_wire::endpoint::Scheme;
use flatout_wire::head::Head;
use flatout_wire::location::HttpUrl;
use flatout_wire::request::{self, Method, Request};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use crate::attempt::{REDIRECTS_MAX, is_redirect};
use crate::error::{Error, ErrorKind};
use crate::proxy::Proxy;
use crate::refusal::Failure;
use crate::shard::Shard;

/// A page of a listing with 1,000 keys of 1 KiB, escaped, is well under this.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// An idle connection of hyper's.
pub(crate) type Caller = SendRequest<Empty<Bytes>>;

/// A control request.
pub(crate) struct Call {
    pub(crate) request: Request,
    /// Whether a redirect is followed: a plain server's is, S3's needs another signature.
    pub(crate) follow: bool,
}

impl Call {
    pub(crate) fn new(request: Request) -> Call {
        Call { request, follow: false }
    }
}

/// One call and its whole answer, tried again as often as a part would be.
pub(crate) async fn call_with_retries(shard: &Rc<Shard>, mut call: Call) -> Result<(Head, Bytes), Error> {
    let (mut attempt, mut redirects) = (1, 0);
    loop {
        let failure = match answer(shard, &call.request).await {
            Ok((head, body)) => match redirected(&call, &head).filter(|_| redirects < REDIRECTS_MAX) {
                Some(request) => {
                    (call.request, redirects) = (request, redirects + 1);
                    continue;
                }
                None => match refusal(shard, &call.request, &head, &body) {
                    Some(failure) => failure,
                    None => return Ok((head, body)),
                },
            },
            Err(failure) => failure,
        };
        shard.wait_or_give_up(failure, &mut attempt).await?;
    }
}

fn refusal(shard: &Shard, request: &Request, head: &Head, body: &[u8]) -> Option<Failure> {
    shard
        .misdirected(&request.endpoint, head.status, body)
        .or_else(|| Failure::of_answer(head, body, shard.core.credentials_note.as_deref()))
}

/// The request that a redirect leads to; credentials go along to the same endpoint only.
fn redirected(call: &Call, head: &Head) -> Option<Request> {
    let target = head.location.as_deref().filter(|_| call.follow && is_redirect(head.status))?;
    let from = &call.request;
    let url = HttpUrl::new(from.endpoint.clone(), &from.target()).follow(target).ok()?;
    let mut request = request::get_url(&url);
    request.method = from.method;
    if let Some(secret) = from.header("authorization").filter(|_| url.endpoint == from.endpoint) {
        request.set("authorization", secret);
    }
    Some(request)
}

/// One exchange within the time that a silent origin is given.
async fn answer(shard: &Rc<Shard>, request: &Request) -> Result<(Head, Bytes), Failure> {
    let answered = tokio::time::timeout(shard.core.stall_timeout(), exchange(shard, request)).await;
    answered.unwrap_or_else(|_elapsed| {
        Err(Failure::transient(Error::new(
            ErrorKind::Timeout,
            format!("{} did not answer in time", request.endpoint),
        )))
    })
}

async fn exchange(shard: &Rc<Shard>, request: &Request) -> Result<(Head, Bytes), Failure> {
    let (caller, answer) = send(shard, request).await?;
    let headers = answer.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let head = Head::from_http(answer.status().as_u16(), headers);
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| {
        Failure::transient(Error::new(ErrorKind::Network, format!("the answer broke off: {error}")))
    })?;
    shard.callers.borrow_mut().entry(request.endpoint.clone()).or_default().push(caller);
    Ok((head, body.to_bytes()))
}

/// Sends on an idle connection, or on a new one where the origin closed the idle one meanwhile.
async fn send(shard: &Rc<Shard>, request: &Request) -> Result<(Caller, hyper::Response<Incoming>), Failure> {
    if let Some(mut caller) = idle_caller(shard, request).await
        && let Ok(answer) = caller.send_request(rendered(shard, request)).await
    {
        return Ok((caller, answer));
    }
    let mut caller = open_caller(shard, request).await?;
    let answer = caller.send_request(rendered(shard, request)).await.map_err(|error| {
        if error.is_parse() && request.endpoint.scheme == Scheme::Http {
            return Failure::last(answers_nonsense(request, &error));
        }
        Failure::transient(Error::new(ErrorKind::Network, format!("the call broke: {error}")))
    })?;
    Ok((caller, answer))
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

async fn open_caller(shard: &Rc<Shard>, request: &Request) -> Result<Caller, Failure> {
    let (socket, _) = shard.connect(&request.endpoint).await?;
    let opened = http1::handshake(TokioIo::new(socket)).await;
    let (caller, connection) = opened.map_err(|error| {
        Failure::transient(Error::new(ErrorKind::Network, format!("cannot speak HTTP there: {error}")))
    })?;
    tokio::task::spawn_local(async move {
        // What goes wrong with the connection is told to the request that is on it.
        let _ = connection.await;
    });
    Ok(caller)
}

/// hyper shows no byte of what it could not parse: that it is TLS is a guess.
fn answers_nonsense(request: &Request, error: &hyper::Error) -> Error {
    let cause = format!("the answer of {} is not HTTP: {error}", request.endpoint);
    Error::new(ErrorKind::Network, cause).with_hint("if the port is one for TLS, use https://")
}

fn rendered(shard: &Shard, request: &Request) -> hyper::Request<Empty<Bytes>> {
    let method = match request.method {
        Method::Get => hyper::Method::GET,
        Method::Head => hyper::Method::HEAD,
        Method::Put => hyper::Method::PUT,
        Method::Post => hyper::Method::POST,
        Method::Delete => hyper::Method::DELETE,
    };
    let proxy = shard.core.routes.forwarder(&request.endpoint);
    let uri = if proxy.is_some() { request.url() } else { request.target() };
    let mut builder = hyper::Request::builder().method(method).uri(uri);
    if let Some(login) = proxy.and_then(Proxy::login) {
        builder = builder.header("proxy-authorization", login);
    }
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    builder.body(Empty::new()).expect("wire renders only valid targets and headers")
}
