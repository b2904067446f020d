//! One connection: our own HTTP/1.1. Heads in a buffer of their own, bodies straight into the landing.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use flatout_wire::chunked::{Chunked, Step};
use flatout_wire::endpoint::{Endpoint, Scheme};
use flatout_wire::head::{self, Head};
use flatout_wire::request::Method;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use crate::base::error::{Error, ErrorKind};
use crate::base::wording::{LOOK_AT_THE_PORT, broke, closed_early};
use crate::gate::OpenConnection;
use crate::memory::lease::{Lease, MemoryCharge};
use crate::net::socket::Socket;
use crate::net::stall::{Silence, StallClock};
use crate::net::tls_errors::{alert_in, is_alert, is_tls};
use crate::sink::landing::PartWriter;
use crate::source::body::shrank;
use crate::source::cursor::BodyCursor;
use flatout_policy::hedge::Hedge;
use flatout_policy::receive_size::{RECEIVE_BYTES, ReceiveSize};
use flatout_policy::unsent_size::UnsentSize;

/// Read while a head is awaited: heads are under 1 KiB, so little of the body is taken along and copied.
const HEAD_READ_BYTES: usize = 4 << 10;
/// Sent by one call: it stays in the core's second-level cache, and the shard's other connections have their
/// turn.
const SENT_AT_ONCE: usize = 256 << 10;
/// Read of an answer that comes while a body is sent: the rest is read when it is waited for.
const EARLY_READ_BYTES: usize = 256;
/// Error bodies are short XML documents.
const COLLECT_BYTES_MAX: usize = 1 << 20;
/// A page of a listing is a quarter of a mebibyte and more.
const COLLECT_AT_ONCE: usize = 64 << 10;

/// What a shard knows of the bodies of an origin, by their direction.
#[derive(Clone, Default)]
pub(crate) struct Hedges {
    pub(crate) received: Rc<RefCell<Hedge>>,
    pub(crate) sent: Rc<RefCell<Hedge>>,
}

/// A connection that carries one request after the other.
pub(crate) struct Connection {
    socket: Socket,
    stall: StallClock,
    pub(crate) receive_size: ReceiveSize,
    unsent_size: UnsentSize,
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    /// Numbered within the client.
    pub(crate) number: u32,
    pub(crate) opened: Instant,
    pub(crate) hedges: Hedges,
    /// Of the answer that came last.
    body: Body,
    /// Received, not yet used: heads, chunk sizes, and what came behind them.
    ahead: Vec<u8>,
    _weight: MemoryCharge,
    /// At its origin's gate.
    pub(crate) counted: Option<OpenConnection>,
    /// Something answered that was no HTTP, and no TLS.
    is_other_protocol: bool,
    /// Its last request was a HEAD, to which some origins send a body all the same.
    was_head: bool,
}

impl Connection {
    pub(crate) fn new(
        socket: Socket,
        endpoint: Endpoint,
        address: SocketAddr,
        number: u32,
        hedges: Hedges,
        stall_timeout: Duration,
        weight: MemoryCharge,
    ) -> Connection {
        Connection {
            socket,
            stall: StallClock::new(stall_timeout),
            receive_size: ReceiveSize::default(),
            unsent_size: UnsentSize::default(),
            endpoint,
            address,
            number,
            opened: Instant::now(),
            hedges,
            body: Body::Ended,
            ahead: Vec::with_capacity(HEAD_READ_BYTES),
            _weight: weight,
            counted: None,
            is_other_protocol: false,
            was_head: false,
        }
    }

    /// Sends a request, a short body behind its head, and waits for the answer's head.
    pub(crate) async fn exchange(&mut self, request: &[u8], method: Method) -> Result<Head, Error> {
        self.ask(request, method).await?;
        self.answer(method).await
    }

    /// Sends the head of a request, and perhaps a short body behind it.
    pub(crate) async fn ask(&mut self, request: &[u8], method: Method) -> Result<(), Error> {
        self.socket.set_floor(1).map_err(broke)?;
        self.send(request).await.map_err(broke)?;
        self.was_head = method == Method::Head;
        Ok(())
    }

    /// A body begins: what was sent before says nothing of the rate.
    pub(crate) fn begin_body(&mut self) {
        self.unsent_size.begin(Instant::now().into_std());
    }

    /// Sends some of a body; how many of its bytes that was. `None` where the origin answers before it has
    /// all of it: it wants no more.
    pub(crate) async fn send_some(
        &mut self,
        cursor: &mut BodyCursor<'_>,
        scratch: &RefCell<Lease>,
    ) -> Result<Option<u64>, Error> {
        let Connection { socket, stall, ahead, .. } = self;
        let mut failed = None;
        let sent = poll_fn(|cx| {
            if let Poll::Ready(came) = poll_early_answer(cx, socket, ahead) {
                return Poll::Ready(came.map(|()| None));
            }
            let written = ready!(stall.poll_write(cx, socket, |socket, cx| match cursor.file_rest() {
                Some((file, at, left)) if socket.takes_files() => {
                    socket.poll_send_file(cx, file, at, left.min(SENT_AT_ONCE as u64) as usize)
                }
                _ => {
                    // A piece is read once the socket can take it.
                    ready!(socket.poll_room(cx))?;
                    let most = socket.takes_at_once().min(SENT_AT_ONCE);
                    match cursor.piece(&mut scratch.borrow_mut().as_mut_slice()[..most]) {
                        Ok(piece) => Pin::new(socket).poll_write(cx, piece),
                        Err(unread) => {
                            failed = Some(unread);
                            Poll::Ready(Ok(0))
                        }
                    }
                }
            }));
            match written {
                // It may say why it closed.
                Err(refused) => match poll_early_answer(cx, socket, ahead) {
                    Poll::Ready(Ok(())) => Poll::Ready(Ok(None)),
                    _ => Poll::Ready(Err(refused)),
                },
                Ok(bytes) => Poll::Ready(Ok(Some(bytes as u64))),
            }
        })
        .await;
        match (failed, sent.map_err(broke)?) {
            (Some(unread), _) => Err(unread),
            (None, Some(0)) => Err(shrank()),
            (None, None) => Ok(None),
            (None, Some(bytes)) => {
                if let Some(unsent) = self.unsent_size.on_sent(bytes, Instant::now().into_std()) {
                    self.socket.set_unsent(unsent).map_err(broke)?;
                }
                Ok(Some(cursor.on_sent(bytes)))
            }
        }
    }

    /// Sends what TLS may hold back of a body.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        let Connection { socket, stall, .. } = self;
        poll_fn(|cx| stall.poll_write(cx, socket, |socket, cx| Pin::new(socket).poll_flush(cx)))
            .await
            .map_err(broke)
    }

    /// Waits for the head of the answer. Interim answers (1xx) are passed over.
    pub(crate) async fn answer(&mut self, method: Method) -> Result<Head, Error> {
        loop {
            let parsed = head::parse(&self.ahead, method).map_err(|nonsense| {
                if is_alert(&self.ahead) {
                    return is_tls(&self.endpoint);
                }
                self.is_other_protocol = self.endpoint.scheme == Scheme::Http;
                Error::new(ErrorKind::Network, nonsense.to_string()).with_hint(LOOK_AT_THE_PORT)
            })?;
            match parsed {
                Some((head, used)) => {
                    self.ahead.drain(..used);
                    if head.status >= 200 {
                        self.body = Body::new(head.body);
                        return Ok(head);
                    }
                }
                None => self.read_ahead().await?,
            }
        }
    }

    /// An origin that takes nothing is as silent as one that sends nothing.
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let socket = &mut self.socket;
        let sent = async {
            socket.write_all(bytes).await?;
            socket.flush().await
        };
        let silent = |_elapsed| io::Error::new(io::ErrorKind::TimedOut, "nothing could be sent in time");
        tokio::time::timeout(self.stall.timeout(), sent).await.map_err(silent)?
    }

    /// How long the next body may be silent before somebody else is asked for the rest. It is looked twice in
    /// that time whether anything has come; a tick that has begun keeps its length.
    pub(crate) fn patience(&mut self) -> Duration {
        self.watch_for(&self.hedges.received.clone())
    }

    /// How long the next body that is sent may be silent before it is sent on another connection, too.
    pub(crate) fn patience_to_send(&mut self) -> Duration {
        self.watch_for(&self.hedges.sent.clone())
    }

    fn watch_for(&mut self, hedge: &RefCell<Hedge>) -> Duration {
        let patience = hedge.borrow().patience(self.stall.timeout());
        self.stall.look_every(patience / 2);
        patience
    }

    /// Tells for how long nothing has come, or gone out.
    pub(crate) fn silence(&self) -> Silence {
        self.stall.silence()
    }

    /// Sends a delayed acknowledgement at once near the end of a part: `left` of its `bytes` bytes are
    /// missing. For a short part the call costs more than it brings.
    pub(crate) fn acknowledge_end(&self, bytes: u64, left: u64) {
        if bytes >= RECEIVE_BYTES as u64 && left <= RECEIVE_BYTES as u64 {
            self.socket.acknowledge();
        }
    }

    /// Bytes that have come and that nobody has taken: they are lost with the connection.
    pub(crate) fn untaken_bytes(&self) -> u64 {
        self.ahead.len() as u64 + self.socket.queued_bytes()
    }

    /// Whether something answered that was no HTTP: on this port there is no origin.
    pub(crate) fn is_other_protocol(&self) -> bool {
        self.is_other_protocol
    }

    /// Whether something came since its last answer, which belongs to no request.
    pub(crate) fn has_stray_bytes(&self) -> bool {
        self.was_head && self.untaken_bytes() > 0
    }

    /// Whether it is known to carry no other request.
    pub(crate) fn is_over(&self) -> bool {
        self.socket.is_over()
    }

    /// Whether anything of an answer has arrived.
    pub(crate) fn is_answering(&self) -> bool {
        !self.ahead.is_empty()
    }

    async fn read_ahead(&mut self) -> Result<(), Error> {
        match self.receive_onto(None, HEAD_READ_BYTES).await? {
            0 => Err(closed_early("before its answer was whole")),
            _ => Ok(()),
        }
    }

    /// One receive of at most `bytes_max` onto the end of `body`, or of the read-ahead buffer. 0: the origin
    /// closed.
    async fn receive_onto(&mut self, body: Option<&mut Vec<u8>>, bytes_max: usize) -> Result<u64, Error> {
        let onto = body.unwrap_or(&mut self.ahead);
        let before = onto.len();
        onto.resize(before + bytes_max, 0);
        let mut buffer = ReadBuf::new(&mut onto[before..]);
        let (socket, stall) = (&mut self.socket, &mut self.stall);
        let received = poll_fn(|cx| stall.poll_read(cx, socket, &mut buffer)).await;
        let bytes = buffer.filled().len();
        onto.truncate(before + bytes);
        received.map_err(|refused| alert_in(&refused, &self.endpoint).unwrap_or_else(|| broke(refused)))?;
        Ok(bytes as u64)
    }
}

/// Bytes of an answer that come before the request has been sent; an error where the origin has closed.
/// Interim answers (1xx), which nobody asked for, are passed over: the origin still wants the body.
fn poll_early_answer(cx: &mut Context<'_>, socket: &mut Socket, ahead: &mut Vec<u8>) -> Poll<io::Result<()>> {
    loop {
        let mut bytes = [0; EARLY_READ_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut *socket).poll_read(cx, &mut buffer))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        ahead.extend_from_slice(buffer.filled());
        while let Ok(Some((head, used))) = head::parse(ahead, Method::Put)
            && head.status < 200
        {
            ahead.drain(..used);
        }
        // The rest of an interim answer may be on its way.
        if !ahead.is_empty() && !ahead.starts_with(b"HTTP/1.1 1") {
            return Poll::Ready(Ok(()));
        }
    }
}

/// A body on its way: how its end is found, and how much is left.
enum Body {
    Counted(u64),
    Chunked { decoder: Chunked, payload: u64 },
    UntilClose,
    Ended,
}

impl Body {
    fn new(framing: head::Body) -> Body {
        match framing {
            head::Body::None | head::Body::Length(0) => Body::Ended,
            head::Body::Length(bytes) => Body::Counted(bytes),
            head::Body::Chunked => Body::Chunked { decoder: Chunked::new(), payload: 0 },
            head::Body::UntilClose => Body::UntilClose,
        }
    }

    fn on_received(&mut self, bytes: u64) {
        match self {
            Body::Counted(left) if *left == bytes => *self = Body::Ended,
            Body::Counted(left) => *left -= bytes,
            Body::Chunked { payload, .. } => *payload -= bytes,
            Body::UntilClose | Body::Ended => {}
        }
    }

    fn on_close(&mut self) -> Result<(), Error> {
        match self {
            Body::UntilClose => {
                *self = Body::Ended;
                Ok(())
            }
            Body::Counted(left) => Err(closed_early(&format!("{left} bytes before the end of the body"))),
            _ => Err(closed_early("in the middle of a chunk")),
        }
    }
}

impl Connection {
    /// Receives once, at most `limit` bytes of the body, straight into `place`; hashes and hands them on
    /// while they are hot. 0 at the end of the body.
    pub(crate) async fn receive(
        &mut self,
        place: &mut PartWriter<'_>,
        scratch: &RefCell<Lease>,
        limit: u64,
    ) -> Result<u64, Error> {
        let wanted = limit.min(self.payload().await?);
        if wanted == 0 {
            return Ok(0);
        }
        // Nobody knows how much is to come before a close: whatever there is may be the end.
        let floor_max = if matches!(self.body, Body::UntilClose) { 1 } else { usize::MAX };
        let received = poll_fn(|cx| {
            let mut scratch = scratch.borrow_mut();
            let spare = place.spare(scratch.as_mut_slice(), wanted);
            // What came with the head is handed on with what follows it: one write, not two.
            let ahead = self.ahead.len().min(spare.len());
            let (came, rest) = spare.split_at_mut(ahead);
            let received = if rest.is_empty() {
                0
            } else {
                self.socket
                    .set_floor(rest.len().min(floor_max).min(self.receive_size.bytes()))
                    .map_err(broke)?;
                let mut buffer = ReadBuf::new(rest);
                ready!(self.stall.poll_read(cx, &mut self.socket, &mut buffer)).map_err(broke)?;
                self.receive_size.on_received(buffer.filled().len(), Instant::now().into_std());
                buffer.filled().len()
            };
            came.copy_from_slice(&self.ahead[..ahead]);
            self.ahead.drain(..ahead);
            place.fill(scratch.as_mut_slice(), ahead + received)?;
            Poll::Ready(Ok((ahead + received) as u64))
        })
        .await?;
        match received {
            0 => self.body.on_close()?,
            _ => self.body.on_received(received),
        }
        Ok(received)
    }

    /// Whether all of the body has been received; of a chunked one, what it ends with too.
    pub(crate) fn is_at_end(&self) -> bool {
        matches!(self.body, Body::Ended)
    }

    /// Bytes of the body that come next without any framing between; 0 at the end.
    pub(crate) async fn payload(&mut self) -> Result<u64, Error> {
        match &self.body {
            Body::Ended => Ok(0),
            Body::Counted(left) => Ok(*left),
            Body::UntilClose => Ok(u64::MAX),
            Body::Chunked { payload, .. } if *payload > 0 => Ok(*payload),
            Body::Chunked { .. } => self.next_chunk().await,
        }
    }

    async fn next_chunk(&mut self) -> Result<u64, Error> {
        self.socket.set_floor(1).map_err(broke)?;
        while let Body::Chunked { decoder, payload } = &mut self.body {
            let step = decoder.next(&self.ahead).map_err(|nonsense| {
                Error::new(ErrorKind::Network, format!("the chunked body is broken: {nonsense}"))
            })?;
            match step {
                Step::NeedMore { consumed } => {
                    self.ahead.drain(..consumed);
                    self.read_ahead().await?;
                }
                Step::Data { consumed, take } => {
                    self.ahead.drain(..consumed);
                    *payload = take;
                    return Ok(take);
                }
                Step::End { consumed } => {
                    self.ahead.drain(..consumed);
                    self.body = Body::Ended;
                }
            }
        }
        Ok(0)
    }

    /// The whole of a short body, such as an error document, or what came of one that broke off; what is
    /// beyond 1 MiB is left unread.
    pub(crate) async fn collect(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        if self.collect_within(COLLECT_BYTES_MAX, &mut body, |_| {}).await.is_err() {
            // Nothing more can be known of where it ends.
            self.body = Body::UntilClose;
        }
        body
    }

    /// Appends the rest of the body to `body`, up to `bytes_max` in all; whether that was its end.
    /// `on_growth` learns the capacity.
    pub(crate) async fn collect_within(
        &mut self,
        bytes_max: usize,
        body: &mut Vec<u8>,
        mut on_growth: impl FnMut(usize),
    ) -> Result<bool, Error> {
        loop {
            let wanted = self.payload().await?.min((bytes_max - body.len()) as u64);
            if wanted == 0 {
                return Ok(self.is_at_end());
            }
            match self.append_to(body, wanted).await? {
                0 => self.body.on_close()?,
                bytes => self.body.on_received(bytes),
            }
            on_growth(body.capacity());
        }
    }

    /// Moves up to `wanted` bytes of the body into memory: those that came with its head, or else as many as
    /// one receive brings.
    async fn append_to(&mut self, body: &mut Vec<u8>, wanted: u64) -> Result<u64, Error> {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        if self.ahead.is_empty() && wanted >= HEAD_READ_BYTES {
            return self.receive_onto(Some(body), wanted.min(COLLECT_AT_ONCE)).await;
        }
        if self.ahead.is_empty() {
            self.receive_onto(None, HEAD_READ_BYTES).await?;
        }
        let bytes = self.ahead.len().min(wanted);
        body.extend(self.ahead.drain(..bytes));
        Ok(bytes as u64)
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
