//! One connection: our own HTTP/1.1 for ranged GETs. Heads in a buffer of their own, bodies straight into the landing.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use flatout_wire::chunked::{Chunked, Step};
use flatout_wire::endpoint::Endpoint;
use flatout_wire::head::{self, Body, Head};
use flatout_wire::request::Method;
use tokio::io::{AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use crate::base::error::{Error, ErrorKind};
use crate::base::wording::{LOOK_AT_THE_PORT, broke, closed_early};
use crate::gate::OpenConnection;
use crate::memory::lease::{Lease, MemoryCharge};
use crate::net::socket::Socket;
use crate::net::stall::{Silence, StallClock};
use crate::net::tls_errors::{alert_in, is_alert, is_tls};
use crate::policy::hedge::Hedge;
use crate::policy::lumps::Lumps;
use crate::sink::landing::Place;
use crate::sink::verify::PartHash;

/// Read while a head is awaited: heads are under 1 KiB, so little of the body is taken along and copied.
const HEAD_READ_BYTES: usize = 4 << 10;
/// Error bodies are short XML documents.
const COLLECT_BYTES_MAX: usize = 1 << 20;

/// A connection that carries one ranged GET after the other.
pub(crate) struct Connection {
    socket: Socket,
    stall: StallClock,
    pub(crate) lumps: Lumps,
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    /// Numbered within the client.
    pub(crate) number: u32,
    pub(crate) opened: Instant,
    /// What its shard knows of the bodies of this origin.
    pub(crate) hedge: Rc<RefCell<Hedge>>,
    /// Received, not yet used: heads, chunk sizes, and what came behind them.
    ahead: Vec<u8>,
    _weight: MemoryCharge,
    /// At its origin's gate.
    pub(crate) counted: Option<OpenConnection>,
}

impl Connection {
    pub(crate) fn new(
        socket: Socket,
        endpoint: Endpoint,
        address: SocketAddr,
        number: u32,
        hedge: Rc<RefCell<Hedge>>,
        stall_timeout: Duration,
        weight: MemoryCharge,
    ) -> Connection {
        Connection {
            socket,
            stall: StallClock::new(stall_timeout),
            lumps: Lumps::default(),
            endpoint,
            address,
            number,
            opened: Instant::now(),
            hedge,
            ahead: Vec::with_capacity(HEAD_READ_BYTES),
            _weight: weight,
            counted: None,
        }
    }

    /// Sends a request's head and waits for the answer's. Interim answers (1xx) are passed over.
    pub(crate) async fn exchange(&mut self, request_head: &[u8]) -> Result<Head, Error> {
        self.socket.set_floor(1).map_err(broke)?;
        self.send(request_head).await.map_err(broke)?;
        loop {
            let parsed = head::parse(&self.ahead, Method::Get).map_err(|nonsense| {
                if is_alert(&self.ahead) {
                    return is_tls(&self.endpoint);
                }
                Error::new(ErrorKind::Network, nonsense.to_string()).with_hint(LOOK_AT_THE_PORT)
            })?;
            match parsed {
                Some((head, used)) => {
                    self.ahead.drain(..used);
                    if head.status >= 200 {
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

    /// How long the next body may be silent before somebody else is asked for the rest. It is looked twice in that time
    /// whether anything has come; a tick that has begun keeps its length.
    pub(crate) fn patience(&mut self) -> Duration {
        let patience = self.hedge.borrow().patience(self.stall.timeout());
        self.stall.look_every(patience / 2);
        patience
    }

    /// Tells for how long nothing has come.
    pub(crate) fn silence(&self) -> Silence {
        self.stall.silence()
    }

    /// Bytes that have come and that nobody has taken: they are lost with the connection.
    pub(crate) fn untaken_bytes(&self) -> u64 {
        self.ahead.len() as u64 + self.socket.queued_bytes()
    }

    /// Whether anything of an answer has arrived.
    pub(crate) fn is_answering(&self) -> bool {
        !self.ahead.is_empty()
    }

    async fn read_ahead(&mut self) -> Result<(), Error> {
        let before = self.ahead.len();
        self.ahead.resize(before + HEAD_READ_BYTES, 0);
        let mut buffer = ReadBuf::new(&mut self.ahead[before..]);
        let (socket, stall) = (&mut self.socket, &mut self.stall);
        let received = poll_fn(|cx| stall.poll_read(cx, socket, &mut buffer)).await;
        let bytes = buffer.filled().len();
        self.ahead.truncate(before + bytes);
        received.map_err(|refused| alert_in(&refused, &self.endpoint).unwrap_or_else(|| broke(refused)))?;
        match bytes {
            0 => Err(closed_early("before its answer was whole")),
            _ => Ok(()),
        }
    }
}

/// A body on its way: how its end is found, and how much is left.
pub(crate) enum Incoming {
    Counted(u64),
    Chunked { decoder: Chunked, payload: u64 },
    UntilClose,
    Ended,
}

impl Incoming {
    pub(crate) fn new(body: Body) -> Incoming {
        match body {
            Body::None | Body::Length(0) => Incoming::Ended,
            Body::Length(bytes) => Incoming::Counted(bytes),
            Body::Chunked => Incoming::Chunked { decoder: Chunked::new(), payload: 0 },
            Body::UntilClose => Incoming::UntilClose,
        }
    }

    /// Receives once, at most `limit` bytes, straight into `place`; 0 at the end of the body.
    pub(crate) async fn receive(
        &mut self,
        connection: &mut Connection,
        place: &mut Place<'_>,
        hash: &mut PartHash,
        scratch: &RefCell<Lease>,
        limit: u64,
    ) -> Result<u64, Error> {
        let wanted = limit.min(self.payload(connection).await?);
        if wanted == 0 {
            return Ok(0);
        }
        // Nobody knows how much is to come before a close: whatever there is may be the end.
        let floor_max = if matches!(self, Incoming::UntilClose) { 1 } else { usize::MAX };
        let received =
            poll_fn(|cx| connection.poll_into(cx, place, hash, scratch, wanted, floor_max)).await?;
        match received {
            0 => self.on_close()?,
            _ => self.on_received(received),
        }
        Ok(received)
    }

    /// Bytes of the body that come next without any framing between; 0 at the end.
    pub(crate) async fn payload(&mut self, connection: &mut Connection) -> Result<u64, Error> {
        match self {
            Incoming::Ended => Ok(0),
            Incoming::Counted(left) => Ok(*left),
            Incoming::UntilClose => Ok(u64::MAX),
            Incoming::Chunked { payload, .. } if *payload > 0 => Ok(*payload),
            Incoming::Chunked { .. } => self.next_chunk(connection).await,
        }
    }

    async fn next_chunk(&mut self, connection: &mut Connection) -> Result<u64, Error> {
        let Incoming::Chunked { decoder, payload } = self else { return Ok(0) };
        connection.socket.set_floor(1).map_err(broke)?;
        loop {
            let step = decoder.next(&connection.ahead).map_err(|nonsense| {
                Error::new(ErrorKind::Network, format!("the chunked body is broken: {nonsense}"))
            })?;
            match step {
                Step::NeedMore { consumed } => {
                    connection.ahead.drain(..consumed);
                    connection.read_ahead().await?;
                }
                Step::Data { consumed, take } => {
                    connection.ahead.drain(..consumed);
                    *payload = take;
                    return Ok(take);
                }
                Step::End { consumed } => {
                    connection.ahead.drain(..consumed);
                    *self = Incoming::Ended;
                    return Ok(0);
                }
            }
        }
    }

    fn on_received(&mut self, bytes: u64) {
        match self {
            Incoming::Counted(left) if *left == bytes => *self = Incoming::Ended,
            Incoming::Counted(left) => *left -= bytes,
            Incoming::Chunked { payload, .. } => *payload -= bytes,
            Incoming::UntilClose | Incoming::Ended => {}
        }
    }

    fn on_close(&mut self) -> Result<(), Error> {
        match self {
            Incoming::UntilClose => {
                *self = Incoming::Ended;
                Ok(())
            }
            Incoming::Counted(left) => Err(closed_early(&format!("{left} bytes before the end of the body"))),
            _ => Err(closed_early("in the middle of a chunk")),
        }
    }

    /// The whole of a short body, such as an error document, or what came of one that broke off; what is beyond 1 MiB is
    /// left unread.
    pub(crate) async fn collect(&mut self, connection: &mut Connection) -> Vec<u8> {
        let mut body = Vec::new();
        if self.collect_into(connection, &mut body).await.is_err() {
            // Nothing more can be known of where it ends.
            *self = Incoming::UntilClose;
        }
        body
    }

    async fn collect_into(&mut self, connection: &mut Connection, body: &mut Vec<u8>) -> Result<(), Error> {
        while body.len() < COLLECT_BYTES_MAX {
            let wanted = self.payload(connection).await?;
            if wanted == 0 {
                break;
            }
            match take_ahead(connection, wanted, body).await {
                Ok(bytes) => self.on_received(bytes),
                Err(closed) => self.on_close().map_err(|_| closed)?,
            }
        }
        Ok(())
    }
}

/// Moves up to `wanted` bytes through the read-ahead buffer into `body`.
async fn take_ahead(connection: &mut Connection, wanted: u64, body: &mut Vec<u8>) -> Result<u64, Error> {
    if connection.ahead.is_empty() {
        connection.read_ahead().await?;
    }
    let bytes = connection.ahead.len().min(usize::try_from(wanted).unwrap_or(usize::MAX));
    body.extend(connection.ahead.drain(..bytes));
    Ok(bytes as u64)
}

impl Connection {
    /// One receive into the landing, then hash and hand over while the bytes are hot. 0: the origin closed.
    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        place: &mut Place<'_>,
        hash: &mut PartHash,
        scratch: &RefCell<Lease>,
        wanted: u64,
        floor_max: usize,
    ) -> Poll<Result<u64, Error>> {
        let mut scratch = scratch.borrow_mut();
        let spare = place.spare(scratch.as_mut_slice(), wanted);
        // What came with the head is handed on with what follows it: one write, not two.
        let ahead = self.ahead.len().min(spare.len());
        let (came, rest) = spare.split_at_mut(ahead);
        let received = if rest.is_empty() {
            0
        } else {
            self.socket.set_floor(rest.len().min(floor_max).min(self.lumps.bytes())).map_err(broke)?;
            let mut buffer = ReadBuf::new(rest);
            let (socket, stall) = (&mut self.socket, &mut self.stall);
            ready!(stall.poll_read(cx, socket, &mut buffer)).map_err(broke)?;
            self.lumps.on_received(buffer.filled().len(), Instant::now());
            buffer.filled().len()
        };
        came.copy_from_slice(&self.ahead[..ahead]);
        self.ahead.drain(..ahead);
        let bytes = ahead + received;
        place.fill(scratch.as_mut_slice(), bytes, hash)?;
        Poll::Ready(Ok(bytes as u64))
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
