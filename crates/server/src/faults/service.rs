//! The service between hyper and the front: refuses requests, injects faults into responses and logs both.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use flatout_wire::range::ContentRange;
use flatout_wire::time::format_http;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, DATE, HeaderMap, HeaderValue, RANGE};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use s3s::{Body, HttpResponse, StdError};

use super::body::{BodyFault, FaultyBody};
use super::choice::{ChosenFault, RequestHash, choose};
use super::code::ErrorCode;
use super::limits::{AccessLimits, LimitRefusal};
use super::log::{PendingRecord, RequestLog};
use super::replacing::Replacements;
use super::signal::{ConnectionAction, Signal};
use super::write::{WriteFault, WriteRequest};
use super::{FaultKind, FaultPlan};
use crate::front::Front;
use crate::oss::{self, RequestPath, drain};
use crate::rate::Rate;

/// The running fault plan, shared by all connections.
pub(crate) struct FaultInjector {
    fault_plan: FaultPlan,
    log: Arc<RequestLog>,
    attempts: Mutex<HashMap<RequestHash, u64>>,
    limits: AccessLimits,
    pub replacing: Option<Arc<Replacements>>,
}

impl FaultInjector {
    /// None where nothing is asked of it.
    pub(crate) fn new(fault_plan: FaultPlan) -> io::Result<Option<FaultInjector>> {
        if fault_plan.is_still() && fault_plan.log.is_none() {
            return Ok(None);
        }
        let log = Arc::new(RequestLog::open(fault_plan.log.as_deref())?);
        Ok(Some(FaultInjector {
            log,
            attempts: Mutex::default(),
            limits: AccessLimits::new(&fault_plan, Instant::now()),
            replacing: fault_plan.replace_after.map(|after| Arc::new(Replacements::new(after))),
            fault_plan,
        }))
    }

    /// An error when the log is not whole.
    pub(crate) fn check_log(&self) -> io::Result<()> {
        self.log.check()
    }

    /// Counts one more attempt, and says which one it is.
    fn attempt(&self, request_hash: RequestHash) -> u64 {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = attempts.entry(request_hash).or_default();
        *attempt += 1;
        *attempt
    }
}

/// The service of one connection.
pub(crate) struct FaultService {
    pub front: Front,
    pub injector: Arc<FaultInjector>,
    pub signal: Arc<Signal>,
    /// The number of the address that the connection was made to.
    pub listener: usize,
}

impl hyper::service::Service<Request<Incoming>> for FaultService {
    type Response = HttpResponse;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, StdError>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (head, body) = request.into_parts();
        let target = RequestTarget::of(&head);
        let mut entry = PendingRecord::new(self.injector.log.clone(), head.method.to_string(), self.listener);
        entry.record.bucket.clone_from(&target.bucket);
        entry.record.key.clone_from(&target.key);
        entry.record.range = requested_range(&head);
        let write = WriteRequest::of(&head);
        entry.record.step = write.map(|write| write.step.name());
        entry.record.part = write.and_then(|write| write.part);
        let (front, injector, signal) = (self.front.clone(), self.injector.clone(), self.signal.clone());
        if let Err(refused) = injector.limits.check(&head, !target.key.is_empty(), Instant::now()) {
            entry.record.fault = Some(refused.name());
            let exchange = Exchange { front, injector, signal, head, target, entry };
            return Box::pin(async move { Ok(exchange.refuse_for_limit(refused, Body::from(body)).await) });
        }
        if let (Some(replacing), RequestKind::Get) = (&injector.replacing, target.kind) {
            replacing.on_get(&target.bucket, &target.key);
        }
        let mut exchange = Exchange { front, injector, signal, head, target, entry };
        if let Some((write, chosen)) =
            write.and_then(|write| Some((write, exchange.choose_of_write(&write)?)))
        {
            return Box::pin(exchange.write_with_fault(write, chosen, Body::from(body)));
        }
        let answered = self.front.call(Request::from_parts(exchange.head.clone(), body));
        Box::pin(async move { Ok(exchange.apply_fault(answered.await?)) })
    }
}

/// The parts of a request that the choice of a fault depends on.
struct RequestTarget {
    kind: RequestKind,
    bucket: String,
    key: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Get,
    Head,
    List,
    Other,
}

impl RequestTarget {
    fn of(head: &Parts) -> RequestTarget {
        let RequestPath { bucket, key, plain } = RequestPath::of(head);
        let kind = match (&head.method, key.is_empty()) {
            (&Method::GET, false) if plain => RequestKind::Get,
            (&Method::HEAD, false) => RequestKind::Head,
            (&Method::GET, true) if plain && !bucket.is_empty() => RequestKind::List,
            _ => RequestKind::Other,
        };
        RequestTarget { kind, bucket, key }
    }

    /// `last` is the last byte of the range that is asked for, of an object.
    fn request_hash(&self, head: &Parts, last: Option<u64>) -> RequestHash {
        match self.kind {
            // A page has the same name whichever client asks for it.
            RequestKind::List => RequestHash::new("list", &self.bucket, &page(head), None),
            RequestKind::Head => RequestHash::new("head", &self.bucket, &self.key, None),
            _ => RequestHash::new("get", &self.bucket, &self.key, last),
        }
    }
}

/// Which page of which listing a query asks for.
fn page(head: &Parts) -> String {
    let pairs = head.uri.query().unwrap_or_default().split('&');
    let names = ["prefix=", "marker=", "start-after=", "continuation-token=", "delimiter="];
    let mut pairs: Vec<&str> = pairs.filter(|pair| names.iter().any(|name| pair.starts_with(name))).collect();
    pairs.sort_unstable();
    pairs.join("&")
}

/// The range that a request states by both of its ends.
fn requested_range(head: &Parts) -> Option<[u64; 2]> {
    match s3s::dto::Range::parse(head.headers.get(RANGE)?.to_str().ok()?).ok()? {
        s3s::dto::Range::Int { first, last } => Some([first, last?]),
        s3s::dto::Range::Suffix { .. } => None,
    }
}

/// The message of refusals.
const WHY: &str = "this is the wind tunnel: flatout serve --error";

/// A request and its response on the way through the faults.
struct Exchange {
    front: Front,
    injector: Arc<FaultInjector>,
    signal: Arc<Signal>,
    head: Parts,
    target: RequestTarget,
    entry: PendingRecord,
}

impl Exchange {
    fn apply_fault(mut self, response: HttpResponse) -> HttpResponse {
        let chosen = self.choose(&response);
        let (response, body_fault) = match chosen {
            Some(chosen) => self.inject(chosen, response),
            None => (response, BodyFault::Pass),
        };
        self.send(response, body_fault)
    }

    /// Reads the body of the request first: a client that is still sending it would not read the error.
    async fn refuse_for_limit(self, refused: LimitRefusal, mut body: Body) -> HttpResponse {
        drain(&mut body).await;
        let response = self.injector.limits.refuse(refused, &self.front, &self.head);
        self.send(response, BodyFault::Pass)
    }

    fn send(mut self, mut response: HttpResponse, body_fault: BodyFault) -> HttpResponse {
        self.entry.record.status = Some(response.status().as_u16());
        let clock = self.injector.fault_plan.clock;
        if clock != 0 {
            let date = HeaderValue::try_from(format_http(oss::unix_s(clock)));
            response.headers_mut().insert(DATE, date.expect("a date is a header value"));
        }
        if matches!(body_fault, BodyFault::Pass) && !self.injector.log.is_kept() {
            return response;
        }
        let Exchange { signal, entry, .. } = self;
        response.map(|body| Body::http_body_unsync(FaultyBody::new(body, body_fault, signal, Some(entry))))
    }

    /// The fault of a request that writes.
    fn choose_of_write(&mut self, write: &WriteRequest) -> Option<ChosenFault> {
        let Exchange { target, injector, entry, .. } = self;
        let request_hash = RequestHash::new(write.step.name(), &target.bucket, &target.key, write.part);
        entry.record.attempt = injector.attempt(request_hash);
        let plan = &injector.fault_plan;
        choose(plan.seed, &plan.faults, request_hash, entry.record.attempt, |kind| match kind {
            FaultKind::Write(fault) => fault.fits(write),
            _ => false,
        })
    }

    /// Answers a request that writes and meets with a fault.
    async fn write_with_fault(
        mut self,
        write: WriteRequest,
        chosen: ChosenFault,
        mut body: Body,
    ) -> Result<HttpResponse, StdError> {
        let FaultKind::Write(fault) = chosen.kind else { unreachable!("a write meets with no other fault") };
        self.entry.record.fault = Some(fault.name());
        let at = chosen.at(write.body_bytes);
        let body_fault = match fault {
            WriteFault::Stall(time) => BodyFault::Stall { at, time },
            WriteFault::Reset => BodyFault::End { at, action: ConnectionAction::Reset },
            WriteFault::Slow(rate) => BodyFault::Slow { rate: Rate::new(rate, Instant::now()), booked: None },
            WriteFault::Flip => BodyFault::Flip { at, bit: chosen.bit() },
            // hyper closes the connection after the answer: what it would read next is the body.
            WriteFault::EarlyError(code) => return Ok(self.refuse(code)),
            WriteFault::Error(code, _) => {
                read_all(&mut body).await;
                return Ok(self.refuse(code));
            }
            WriteFault::HiddenError(code) => {
                read_all(&mut body).await;
                let mut response = self.front.refuse(&self.head, code.status, code.code, WHY);
                *response.status_mut() = StatusCode::OK;
                return Ok(self.send(response, BodyFault::Pass));
            }
            WriteFault::Forgotten if self.entry.record.attempt > 1 => {
                read_all(&mut body).await;
                return Ok(self.refuse(ErrorCode::named("NoSuchUpload").expect("it is in the table")));
            }
            WriteFault::Forgotten | WriteFault::Lost(_) => {
                let answered = self.front.answer(Request::from_parts(self.head.clone(), body)).await?;
                self.entry.record.status = Some(answered.status().as_u16());
                self.signal.send(ConnectionAction::Reset);
                // The socket sees to it when hyper flushes, which it does next.
                return std::future::pending().await;
            }
        };
        let body = Body::http_body_unsync(FaultyBody::new(body, body_fault, self.signal.clone(), None));
        let answered = self.front.answer(Request::from_parts(self.head.clone(), body)).await?;
        Ok(self.send(answered, BodyFault::Pass))
    }

    fn refuse(self, code: ErrorCode) -> HttpResponse {
        let response = self.front.refuse(&self.head, code.status, code.code, WHY);
        self.send(response, BodyFault::Pass)
    }

    /// The fault of a successful response.
    fn choose(&mut self, response: &HttpResponse) -> Option<ChosenFault> {
        let Exchange { target, injector, head, entry, .. } = self;
        if target.kind == RequestKind::Other || !response.status().is_success() {
            return None;
        }
        let (sent, size) = sent(response.headers())?;
        let gets = target.kind == RequestKind::Get;
        let partial = gets && response.headers().contains_key(CONTENT_RANGE);
        if partial {
            entry.record.range = Some([sent.start, sent.end - 1]);
        }
        let request_hash = target.request_hash(head, sent.end.checked_sub(1));
        entry.record.attempt = injector.attempt(request_hash);
        choose(
            injector.fault_plan.seed,
            &injector.fault_plan.faults,
            request_hash,
            entry.record.attempt,
            |kind| match kind {
                FaultKind::Error(_) => true,
                FaultKind::Write(_) => false,
                FaultKind::WrongRange => partial && neighbour(&sent, size).is_some(),
                _ => gets && !sent.is_empty(),
            },
        )
    }

    fn inject(&mut self, chosen: ChosenFault, response: HttpResponse) -> (HttpResponse, BodyFault) {
        let (sent, size) = sent(response.headers()).expect("chance was asked for it");
        let at = chosen.at(sent.end - sent.start);
        self.entry.record.fault = Some(chosen.kind.name());
        let body_fault = match chosen.kind {
            FaultKind::Stall(time) => BodyFault::Stall { at, time },
            FaultKind::Reset => BodyFault::End { at, action: ConnectionAction::Reset },
            FaultKind::Truncate => BodyFault::End { at, action: ConnectionAction::Close },
            FaultKind::Slow(rate) => BodyFault::Slow { rate: Rate::new(rate, Instant::now()), booked: None },
            FaultKind::Flip => BodyFault::Flip { at, bit: chosen.bit() },
            FaultKind::Error(code) => {
                return (self.front.refuse(&self.head, code.status, code.code, WHY), BodyFault::Pass);
            }
            FaultKind::Write(_) => return (response, BodyFault::Pass),
            FaultKind::WrongRange => return (self.wrong_range(&sent, size, response), BodyFault::Pass),
        };
        (response, body_fault)
    }

    /// The bytes beside those that were asked for, truly labelled.
    fn wrong_range(&self, sent: &Range<u64>, size: u64, response: HttpResponse) -> HttpResponse {
        let Some(other) = neighbour(sent, size) else { return response };
        let Some(body) = self.front.body(&self.target.bucket, &self.target.key, other.clone()) else {
            return response;
        };
        let mut response = response.map(|_| body);
        let text = format!("bytes {}-{}/{size}", other.start, other.end - 1);
        let value = HeaderValue::try_from(text).expect("digits are a header value");
        response.headers_mut().insert(CONTENT_RANGE, value);
        response.headers_mut().insert(CONTENT_LENGTH, (other.end - other.start).into());
        response
    }
}

/// Reads a body to its end, however long it is.
async fn read_all(body: &mut Body) {
    while let Some(Ok(_)) = body.frame().await {}
}

/// Which bytes an answer sends, of how many; None where it does not say.
fn sent(headers: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(text) = text(CONTENT_RANGE) {
        let ContentRange { range, total } = ContentRange::parse(text)?;
        return Some((range?, total?));
    }
    let bytes = text(CONTENT_LENGTH).map_or(Some(0), |text| text.parse().ok())?;
    Some((0..bytes, bytes))
}

/// The range of the same length before this one, or behind it, or shifted by as much as there is room for;
/// that of the whole but for its first byte where there is no room; none where there is no other byte.
fn neighbour(sent: &Range<u64>, size: u64) -> Option<Range<u64>> {
    let (length, room) = (sent.end - sent.start, size - sent.end);
    let shifted = match () {
        () if sent.start > 0 => sent.start.saturating_sub(length)..sent.end - length.min(sent.start),
        () if room > 0 => sent.start + length.min(room)..sent.end + length.min(room),
        () => sent.start + 1..sent.end,
    };
    (!shifted.is_empty()).then_some(shifted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_another_range_of_the_same_length_where_there_is_room() {
        for (sent, size, expected) in [
            (10..20, 100, Some(0..10)),
            (4..20, 100, Some(0..16)),
            (0..10, 100, Some(10..20)),
            (0..90, 100, Some(10..100)),
            (90..100, 100, Some(80..90)),
            (0..100, 100, Some(1..100)),
            (0..1, 1, None),
            (0..0, 0, None),
        ] {
            assert_eq!(neighbour(&sent, size), expected, "{sent:?} of {size}");
        }
    }
}
