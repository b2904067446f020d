//! One attempt: an HTTP exchange for a part, or for what is missing of it, and its body on the way to the landing.

use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use flatout_wire::head::{Body, Head};
use flatout_wire::request::Method;
use tokio::time::Instant;

use crate::api::account::Pen;
use crate::api::object::{Asked, Outgoing};
use crate::api::refusal::{Failure, MOVES_MAX, REDIRECTS_MAX, is_redirect, key_rejection};
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{setting, text};
use crate::base::operation::{Class, Load};
use crate::base::version::Version;
use crate::http::connection::{Connection, Incoming};
use crate::net::proxy::Purpose;
use crate::policy::retry::Attempts;
use crate::shard::Shard;
use crate::sink::landing::Place;
use crate::sink::verify::PartHash;
use crate::transfer::Running;

/// An answer whose body has not been read yet.
pub(crate) struct Answer {
    pub(crate) connection: Connection,
    pub(crate) head: Head,
    pub(crate) body: Incoming,
    /// When its request was sent.
    pub(crate) asked: Instant,
    /// When its head had arrived.
    pub(crate) answered: Instant,
    pen: Pen,
}

/// A head, and when it was asked for.
struct Answered {
    head: Head,
    asked: Instant,
}

/// Sends the request and waits for the head of a good answer; anything else is a failure.
pub(crate) async fn ask(shard: &Rc<Shard>, running: &Running, asked: &Asked) -> Result<Answer, Failure> {
    ask_elsewhere(shard, running, asked, None).await
}

/// The same, if possible over a connection to another address than `shunned`.
pub(crate) async fn ask_elsewhere(
    shard: &Rc<Shard>,
    running: &Running,
    asked: &Asked,
    shunned: Option<SocketAddr>,
) -> Result<Answer, Failure> {
    let (mut went_back, mut renewed, mut moves) = (false, false, 0);
    for _ in 0..=REDIRECTS_MAX {
        let sent = running.gate.start_request(Class::Read, shard.number).await?;
        let on_answer = |load| running.gate.on_answer(Class::Read, sent, load);
        let exchange = exchange(shard, running, asked, shunned);
        let mut answer = running.gate.carry(sent, exchange).await.map_err(|failure| failure.since(sent))?;
        shard.shared.clock.note(answer.head.date);
        if (200..300).contains(&answer.head.status) {
            // OSS says so of an answer that it held back.
            on_answer(if answer.head.qos_delay_ms.is_some() { Load::TooMuch } else { Load::Fine });
            answer.pen.on_accepted();
            return Ok(answer);
        }
        let body = answer.body.collect(&mut answer.connection).await;
        if follow(running, &answer.head)? {
            answer.finish(shard).await;
            continue;
        }
        let status = answer.head.status;
        if matches!(status, 401 | 403 | 404 | 410) && !went_back && running.object.go_back() {
            went_back = true;
            continue;
        }
        if moves < MOVES_MAX && running.object.learn(&mut answer.head, &body) {
            answer.finish(shard).await;
            moves += 1;
            continue;
        }
        let rejection = key_rejection(&answer.head, &body, Method::Get);
        if !renewed && shard.shared.account.renew(&mut answer.pen, rejection).await {
            answer.finish(shard).await;
            renewed = true;
            continue;
        }
        let failure = shard
            .misdirected(&answer.connection.endpoint, status, &body)
            .or_else(|| Failure::of_answer(&answer.head, &body, || answer.pen.note()));
        let failure = failure.map(|failure| shard.shared.account.explain(failure, &answer.pen));
        answer.finish(shard).await;
        let failure = failure.unwrap_or_else(|| unexpected(status));
        if let Some(load) = failure.load() {
            on_answer(load);
        }
        return Err(failure.since(sent));
    }
    Err(Failure::circle())
}

/// Whether the answer sends us elsewhere, and we may go.
fn follow(running: &Running, head: &Head) -> Result<bool, Failure> {
    let Some(target) = head.location.as_deref().filter(|_| is_redirect(head.status)) else {
        return Ok(false);
    };
    running.object.redirect(target).map_err(|why| Failure::redirected_to_no_url(&why))
}

/// One exchange on an idle connection or a new one. An idle one that the origin closed meanwhile costs no attempt.
async fn exchange(
    shard: &Rc<Shard>,
    running: &Running,
    asked: &Asked,
    shunned: Option<SocketAddr>,
) -> Result<Answer, Failure> {
    let Outgoing { endpoint, head, pen } = running.object.get(asked, running.if_match()).await?;
    let head = match shard.shared.routes.forwarder(&endpoint, Purpose::Store) {
        Some(proxy) => proxy.absolute(&endpoint, &head),
        None => head,
    };
    while let Some(mut connection) = shard.idle_connection(&endpoint, shunned) {
        match timed_exchange(shard, running, &mut connection, &head).await {
            Ok(answered) => return Ok(Answer::new(connection, answered, pen)),
            Err(closed) if closed.kind() == ErrorKind::Network && !connection.is_answering() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let begun = Instant::now();
    let within = shard.shared.connect_timeout();
    let (socket, address) = shard.connect(&endpoint, Purpose::Store, shunned, within).await?;
    running.counters.connections.fetch_add(1, Ordering::Relaxed);
    let mut connection = shard.new_connection(socket, endpoint, address);
    connection.counted = Some(running.gate.on_connected());
    match timed_exchange(shard, running, &mut connection, &head).await {
        Ok(answered) => {
            shard.shared.endpoints.on_answered(address);
            Ok(Answer::new(connection, answered, pen))
        }
        Err(error) => {
            if error.is_transient() {
                shard.shared.endpoints.on_failed(address, begun);
            }
            Err(error.into())
        }
    }
}

/// Notes how long the answer took to begin.
async fn timed_exchange(
    shard: &Shard,
    running: &Running,
    connection: &mut Connection,
    head: &[u8],
) -> Result<Answered, Error> {
    let asked = Instant::now();
    connection.lumps.begin(running.gate.is_climbing());
    let head = connection.exchange(head).await?;
    let first_byte = asked.elapsed();
    shard.cell(&running.gate).on_first_byte(first_byte);
    connection.hedge.borrow_mut().on_first_byte(first_byte);
    Ok(Answered { head, asked })
}

impl Answer {
    fn new(connection: Connection, answered: Answered, pen: Pen) -> Answer {
        let Answered { head, asked } = answered;
        let body = Incoming::new(head.body);
        Answer { connection, head, body, asked, answered: Instant::now(), pen }
    }

    /// Checks that this is the range that was asked for, of the version that is being read.
    pub(crate) fn check(&self, wanted: &Range<u64>, version: &Version) -> Result<(), Failure> {
        let range = self.content_range()?;
        let total = self.head.object_bytes();
        let found = Version::of(&self.head, total);
        if let Some(difference) = version.difference(&found) {
            return Err(Failure::changed(&difference));
        }
        let end = total.map_or(wanted.end, |total| wanted.end.min(total));
        if range.start != wanted.start || range.end != end {
            return Err(mismatch(&format!(
                "asked for bytes {}-{}, the answer's Content-Range says {}-{}",
                wanted.start,
                end.saturating_sub(1),
                range.start,
                range.end.saturating_sub(1)
            )));
        }
        Ok(())
    }

    /// The range that a 206 carries, held against the length of its body.
    pub(crate) fn content_range(&self) -> Result<Range<u64>, Failure> {
        if self.head.status != 206 {
            let error = Error::new(
                ErrorKind::Network,
                format!("a range was answered with status {}", self.head.status),
            );
            return Err(Failure::last(error.with_hint([
                text("the origin does not serve ranges reliably: fetch the object whole, in one part ("),
                setting("part-size"),
                text(" of its size)"),
            ])));
        }
        let range = self.head.content_range.as_ref().and_then(|found| found.range.clone());
        let range = range
            .filter(|_| !self.head.bad_content_range)
            .ok_or_else(|| mismatch("the answer has no Content-Range that can be read"))?;
        match self.head.body {
            Body::Length(bytes) if bytes != range.end - range.start => Err(mismatch(&format!(
                "the answer's Content-Range says {} bytes, its Content-Length {bytes}",
                range.end - range.start
            ))),
            _ => Ok(range),
        }
    }

    /// Receives up to `limit` more bytes of the body into `place`; fewer only at the end of the body.
    pub(crate) async fn land(
        &mut self,
        shard: &Shard,
        running: &Running,
        place: &mut Place<'_>,
        hash: &mut PartHash,
        limit: u64,
    ) -> Result<u64, Failure> {
        let mut landed = 0;
        let _moving = shard.cell(&running.gate).moving();
        while landed < limit {
            let received = self.receive(shard, place, hash, limit - landed).await?;
            if received == 0 {
                break;
            }
            landed += received;
            note_landed(shard, running, place, received).await;
        }
        Ok(landed)
    }

    /// One receive of at most `limit` bytes; 0 at the end of the body.
    pub(crate) fn receive(
        &mut self,
        shard: &Shard,
        place: &mut Place<'_>,
        hash: &mut PartHash,
        limit: u64,
    ) -> impl Future<Output = Result<u64, Error>> {
        let wanted = limit.min(shard.piece_bytes());
        self.body.receive(&mut self.connection, place, hash, &shard.scratch, wanted)
    }

    /// Whether all of the body has been received; of a chunked one, what it ends with too.
    pub(crate) fn is_at_end(&self) -> bool {
        matches!(self.body, Incoming::Ended)
    }

    /// Leaves the rest of the body, which somebody else brings.
    pub(crate) fn leave(self, running: &Running) {
        running.counters.duplicated_bytes.fetch_add(self.connection.untaken_bytes(), Ordering::Relaxed);
    }

    /// Gives the connection back if it can carry another request.
    pub(crate) async fn finish(mut self, shard: &Shard) {
        // The end of a chunked body is a line of its own, which may not have been read yet.
        let ended = matches!(self.body.payload(&mut self.connection).await, Ok(0));
        if ended && self.head.keep_alive && !self.connection.is_answering() {
            shard.keep_connection(self.connection);
        }
    }
}

/// So many bytes of a body have landed. Waits where `--bandwidth` has no room for more.
pub(crate) async fn note_landed(shard: &Shard, running: &Running, place: &mut Place<'_>, bytes: u64) {
    running.gate.on_received(bytes, shard.number);
    let cell = shard.cell(&running.gate);
    cell.on_written(place.take_writing());
    shard.note_cpu(cell);
    shard.landed_bytes.set(shard.landed_bytes.get() + bytes);
    running.counters.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
    running.counters.landed_bytes.fetch_add(bytes, Ordering::Relaxed);
    shard.pay_for(bytes, cell).await;
}

/// Waits before the next attempt, or gives the error back when there is to be none.
pub(crate) async fn wait_or_give_up(
    shard: &Shard,
    running: &Running,
    failure: Failure,
    attempts: &mut Attempts,
) -> Result<(), Error> {
    shard
        .wait_or_give_up((&running.gate, Class::Read), failure, attempts)
        .await
        .map_err(|failure| failure.error)?;
    running.counters.retries.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

pub(crate) fn unexpected(status: u16) -> Failure {
    Failure::last(Error::new(ErrorKind::Network, format!("the origin answered with status {status}")))
}

fn mismatch(what: &str) -> Failure {
    let error = Error::new(ErrorKind::Network, format!("the answer does not match the request: {what}"));
    Failure::transient(error.with_hint("a proxy or cache on the way may mangle ranges"))
}
