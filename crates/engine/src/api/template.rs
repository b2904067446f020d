//! The requests of one operation: the head is rendered and signed once and serves every range for a minute.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use flatout_wire::endpoint::Endpoint;
use flatout_wire::head::Head;
use flatout_wire::location::{Location, LocationError};
use flatout_wire::range::{Span, http_range};
use flatout_wire::request::{Method, Request};

use crate::api::account::{Account, Dialect, Operation, RequestSigner, Target};
use crate::base::error::{Error, ErrorKind};
use crate::base::time::unix_seconds;

/// S3 and OSS accept a signature for 15 minutes; a fresh one each minute leaves room for clocks that
/// disagree.
const SIGNED_FOR_S: u64 = 60;

/// The requests of one operation.
pub(crate) struct RequestTemplate {
    account: Arc<Account>,
    /// No redirect changes it.
    dialect: Dialect,
    state: Mutex<State>,
}

struct State {
    operation: Operation,
    /// The location that was asked for first, where a redirect led elsewhere.
    original: Option<Location>,
    rendered: Option<Rendered>,
}

/// A head without range and condition, which are not signed: S3 needs `host` and `x-amz-*` only, OSS
/// `x-oss-*`.
#[derive(Clone)]
struct Rendered {
    endpoint: Endpoint,
    head: Arc<[u8]>,
    method: Method,
    /// In seconds since 1970: a clock that goes on while the machine sleeps, as the origin's does.
    made: u64,
    keys: u64,
}

/// A request as it goes out.
pub(crate) struct Outgoing {
    pub(crate) endpoint: Endpoint,
    pub(crate) method: Method,
    /// The head, and a short body behind it.
    pub(crate) bytes: Vec<u8>,
    pub(crate) signer: RequestSigner,
}

impl Outgoing {
    /// A request to a service that is no origin: not signed, with its body.
    pub(crate) fn to_service(mut request: Request, body: &Bytes) -> Result<Outgoing, Error> {
        if !body.is_empty() || matches!(request.method, Method::Put | Method::Post) {
            // RFC 9110 §8.6: said where a body could be.
            request.set("content-length", body.len().to_string());
        }
        let mut bytes = rendered_head(&request)?;
        bytes.extend_from_slice(body);
        let Request { endpoint, method, .. } = request;
        Ok(Outgoing { endpoint, method, bytes, signer: RequestSigner::Plain })
    }
}

impl RequestTemplate {
    pub(crate) fn new(account: Arc<Account>, operation: Operation) -> RequestTemplate {
        let dialect = operation.dialect();
        let state = Mutex::new(State { operation, original: None, rendered: None });
        RequestTemplate { account, dialect, state }
    }

    /// The GETs of an object.
    pub(crate) fn of_object(
        account: Arc<Account>,
        location: Location,
        version_id: Option<Arc<str>>,
    ) -> RequestTemplate {
        RequestTemplate::new(account, Operation::Get(Target { location, version_id }))
    }

    /// Turns GETs of ranges into one plain GET of the whole: its answer states the checksum, and no HEAD is
    /// needed.
    pub(crate) fn ask_for_the_whole(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Operation::Get(target) = &state.operation {
            (state.operation, state.rendered) = (Operation::Whole(target.clone()), None);
        }
    }

    /// Undoes [`RequestTemplate::ask_for_the_whole`].
    pub(crate) fn ask_for_ranges(&self) {
        let mut state = self.state();
        if let Operation::Whole(target) = &state.operation {
            (state.operation, state.rendered) = (Operation::Get(target.clone()), None);
        }
    }

    pub(crate) fn asks_for_the_whole(&self) -> bool {
        matches!(self.state().operation, Operation::Whole(_))
    }

    /// What is asked, and of which location by now.
    pub(crate) fn operation(&self) -> Operation {
        self.state().operation.clone()
    }

    /// The bytes of a request and where to send them. `if_match` pins the version.
    pub(crate) async fn outgoing(&self, asked: &Asked, if_match: Option<&str>) -> Result<Outgoing, Error> {
        let signer = self.account.signer(self.dialect).await?;
        let Rendered { endpoint, head, method, .. } = self.rendered(&signer)?;
        let mut bytes = Vec::with_capacity(head.len() + 128);
        bytes.extend_from_slice(&head);
        if let Some(range) = asked.header() {
            bytes.extend_from_slice(format!("range: {range}\r\n").as_bytes());
        }
        if let Some(etag) = if_match {
            bytes.extend_from_slice(format!("if-match: {etag}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        if let Operation::Write(write) = &self.state().operation {
            bytes.append(&mut write.document());
        }
        Ok(Outgoing { endpoint, method, bytes, signer })
    }

    /// The HEAD that tells the object's checksum; only S3 does not state it with the bytes, or never.
    pub(crate) fn head(&self) -> Option<Operation> {
        match &self.state().operation {
            Operation::Get(target) | Operation::Whole(target) => match &target.location {
                Location::S3 { .. } => Some(Operation::Head(target.clone())),
                Location::Oss { .. } | Location::Http { .. } => None,
            },
            _ => None,
        }
    }

    /// Learns from a refusal where the bucket lies; whether asking again goes there.
    pub(crate) fn learn(&self, head: &mut Head, body: &[u8]) -> bool {
        let mut state = self.state();
        let moved = self.account.learn(&state.operation, head, body);
        if moved {
            state.rendered = None;
        }
        moved
    }

    /// Follows a redirect of a plain server, credentials staying behind when the host changes; `false` for
    /// buckets, whose redirects name another region and need another signature.
    pub(crate) fn redirect(&self, target: &str) -> Result<bool, LocationError> {
        let mut state = self.state();
        let Some(location) = state.operation.location_mut() else { return Ok(false) };
        let Location::Http { url } = &*location else { return Ok(false) };
        let url = url.follow(target)?;
        let before = std::mem::replace(location, Location::Http { url });
        state.original.get_or_insert(before);
        state.rendered = None;
        Ok(true)
    }

    /// Goes back to where the redirects began: what they led to may have expired. `false` when there were
    /// none.
    pub(crate) fn go_back(&self) -> bool {
        let mut state = self.state();
        let Some(original) = state.original.take() else { return false };
        if let Some(location) = state.operation.location_mut() {
            *location = original;
        }
        state.rendered = None;
        true
    }

    fn rendered(&self, signer: &RequestSigner) -> Result<Rendered, Error> {
        let mut state = self.state();
        let fresh = |rendered: &&Rendered| {
            rendered.keys == signer.number() && unix_seconds().abs_diff(rendered.made) < SIGNED_FOR_S
        };
        if let Some(rendered) = state.rendered.as_ref().filter(fresh) {
            return Ok(rendered.clone());
        }
        let request = self.account.request(&state.operation, signer)?;
        let mut head = rendered_head(&request)?;
        head.truncate(head.len() - b"\r\n".len());
        let rendered = Rendered {
            endpoint: request.endpoint,
            head: head.into(),
            method: request.method,
            made: unix_seconds(),
            keys: signer.number(),
        };
        state.rendered = Some(rendered.clone());
        Ok(rendered)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An origin decides where a redirect leads, and a service what a role is called: neither may end the request
/// line.
fn rendered_head(request: &Request) -> Result<Vec<u8>, Error> {
    if request.target().bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        let cause = format!("{} leads to what cannot be asked for", request.endpoint);
        return Err(Error::new(ErrorKind::Unsupported, cause));
    }
    let mut head = Vec::new();
    request.write_head(&mut head);
    Ok(head)
}

/// What one request asks of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The whole object in one answer.
    Whole,
    /// A range of it.
    Range(Range<u64>),
    /// Its last byte: how a read of the end learns where the end is.
    LastByte,
}

impl Asked {
    fn header(&self) -> Option<String> {
        match self {
            Asked::Whole => None,
            Asked::Range(range) => Some(http_range(range)),
            Asked::LastByte => Span::Last(1).http(),
        }
    }
}
