//! Control requests: HEAD and listings, small and whole, by hyper over the shard's own connections.

use std::rc::Rc;

use bytes::Bytes;
use flatout_wire::head::Head;
use flatout_wire::request::{Method, Request};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use crate::connection::connect;
use crate::error::{Error, ErrorKind};
use crate::refusal::Failure;
use crate::shard::{Shard, timed_out};

/// A page of a listing with 1,000 keys of 1 KiB, escaped, is well under this.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// An idle connection of hyper's.
pub(crate) type Caller = SendRequest<Empty<Bytes>>;

/// One exchange, whole answer in memory. Anything but success is a failure.
pub(crate) async fn call(shard: &Rc<Shard>, request: &Request) -> Result<(Head, Bytes), Failure> {
    let within = shard.core.stall_timeout();
    let answered = tokio::time::timeout(within, exchange(shard, request)).await;
    let (head, body) = answered.map_err(|_elapsed| timed_out(&request.endpoint.to_string()))??;
    match Failure::of_answer(&head, &body, shard.core.credentials_note.as_deref()) {
        Some(failure) => Err(failure),
        None => Ok((head, body)),
    }
}

async fn exchange(shard: &Rc<Shard>, request: &Request) -> Result<(Head, Bytes), Failure> {
    let mut caller = match idle_caller(shard, request).await {
        Some(caller) => caller,
        None => open_caller(shard, request).await?,
    };
    let broke = |error: hyper::Error| {
        Failure::transient(Error::new(ErrorKind::Network, format!("the call broke: {error}")))
    };
    let answer = caller.send_request(rendered(request)).await.map_err(broke)?;
    let headers = answer.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let head = Head::from_http(answer.status().as_u16(), headers);
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| {
        Failure::transient(Error::new(ErrorKind::Network, format!("the answer broke off: {error}")))
    })?;
    shard.callers.borrow_mut().entry(request.endpoint.clone()).or_default().push(caller);
    Ok((head, body.to_bytes()))
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
    let core = &shard.core;
    let address = core.endpoints.next_address(&request.endpoint).await?;
    let socket = connect(&request.endpoint, address, core.connect_timeout()).await?;
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

fn rendered(request: &Request) -> hyper::Request<Empty<Bytes>> {
    let method = match request.method {
        Method::Get => hyper::Method::GET,
        Method::Head => hyper::Method::HEAD,
        Method::Put => hyper::Method::PUT,
        Method::Post => hyper::Method::POST,
        Method::Delete => hyper::Method::DELETE,
    };
    let mut builder = hyper::Request::builder().method(method).uri(request.target());
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    builder.body(Empty::new()).expect("wire renders only valid targets and headers")
}
