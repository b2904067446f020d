//! A connection as seen by hyper, with the latency and rates that the origin's options ask for.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::alarm::Alarm;
use crate::faults::Closer;
use crate::rate::{Rate, Rates};
use crate::stream::Stream;

/// A connection with a rate of its own holds what it carries in this time: else megabytes of a request would
/// be there at once, whatever its rate.
const HOLDS: Duration = Duration::from_millis(20);
const HOLDS_LEAST: usize = 128 << 10;
const HOLDS_MOST: usize = 4 << 20;

/// The limits of the connections of one listener. A link is full duplex: each direction has its own rates.
#[derive(Clone)]
pub(crate) struct Shaping {
    latency: Duration,
    per_connection: Option<u64>,
    inward: SharedRates,
    outward: SharedRates,
}

/// Rates that connections share in one direction: that of the origin, and that of the listener.
#[derive(Clone, Default)]
struct SharedRates([Option<Arc<Mutex<Rate>>>; 2]);

impl Shaping {
    /// For each listener, by its rate; `None` where nothing is to be slowed down. Rates are bytes a second.
    pub(crate) fn new(
        latency: Duration,
        per_connection: Option<u64>,
        total: Option<&Rates>,
        listeners: impl Iterator<Item = Option<u64>>,
    ) -> Vec<Option<Shaping>> {
        let now = Instant::now();
        let shared = |rates: Rates| Arc::new(Mutex::new(Rate::new(rates, now)));
        let all = || total.cloned().map(shared);
        let (all_in, all_out) = (all(), all());
        let shaping = |listener: Option<u64>| {
            let own = || listener.map(|rate| shared(rate.into()));
            let shaping = Shaping {
                latency,
                per_connection,
                inward: SharedRates([all_in.clone(), own()]),
                outward: SharedRates([all_out.clone(), own()]),
            };
            let still = latency.is_zero() && per_connection.is_none() && shaping.inward.is_none();
            (!still).then_some(shaping)
        };
        listeners.map(shaping).collect()
    }
}

impl SharedRates {
    fn is_none(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// A connection. Without shaping and faults it adds one branch a call to the socket.
pub(crate) struct Socket {
    stream: Stream,
    shape: Option<Box<ConnectionShaping>>,
    closer: Option<Closer>,
}

impl Socket {
    pub(crate) fn new(stream: Stream, shaping: Option<&Shaping>, closer: Option<Closer>) -> Socket {
        if let Some(rate) = shaping.and_then(|shaping| shaping.per_connection) {
            // A link holds little of what is sent. Where the kernel refuses, it holds more.
            let bytes = (rate as f64 * HOLDS.as_secs_f64()) as usize;
            let _ = set_socket_recv_buffer_size(stream.tcp(), bytes.clamp(HOLDS_LEAST, HOLDS_MOST));
        }
        Socket { stream, shape: shaping.map(|shaping| Box::new(ConnectionShaping::new(shaping))), closer }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Socket { stream, shape, .. } = &mut *self;
        let Some(shape) = shape else { return stream.poll_read(cx, buf) };
        let allowed = ready!(shape.inward.poll(buf.remaining(), cx));
        let mut limited = ReadBuf::new(buf.initialize_unfilled_to(allowed));
        ready!(stream.poll_read(cx, &mut limited))?;
        let bytes = limited.filled().len();
        buf.advance(bytes);
        shape.on_read(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Socket { stream, shape, .. } = &mut *self;
        let Some(shape) = shape else { return stream.poll_send(cx, &[IoSlice::new(buf)]) };
        ready!(shape.poll_latency(cx));
        let allowed = ready!(shape.outward.poll(buf.len(), cx));
        let bytes = ready!(stream.poll_send(cx, &[IoSlice::new(&buf[..allowed])]))?;
        shape.outward.spend(bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.shape.is_some() {
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return self.poll_write(cx, first.map_or(&[][..], |buf| buf));
        }
        self.stream.poll_send(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Socket { stream, closer, .. } = &mut *self;
        ready!(stream.poll_flush(cx))?;
        match closer {
            None => Poll::Ready(Ok(())),
            Some(closer) => closer.poll(stream, cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown(cx)
    }
}

/// The slow side of one connection.
struct ConnectionShaping {
    latency: Duration,
    /// When the last byte of a request came in, until the first byte of its answer goes out.
    request_read_at: Option<Instant>,
    alarm: Alarm,
    inward: DirectionLimit,
    outward: DirectionLimit,
}

impl ConnectionShaping {
    fn new(shaping: &Shaping) -> ConnectionShaping {
        ConnectionShaping {
            latency: shaping.latency,
            request_read_at: None,
            alarm: Alarm::default(),
            inward: DirectionLimit::new(shaping.per_connection, shaping.inward.clone()),
            outward: DirectionLimit::new(shaping.per_connection, shaping.outward.clone()),
        }
    }

    fn on_read(&mut self, bytes: usize) {
        self.inward.spend(bytes);
        if bytes > 0 {
            self.request_read_at = Some(Instant::now());
        }
    }

    fn poll_latency(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(request_read_at) = self.request_read_at {
            ready!(self.alarm.poll(request_read_at + self.latency, cx));
            self.request_read_at = None;
        }
        Poll::Ready(())
    }
}

/// One direction of a connection: bytes may pass once they are booked and their time has come.
struct DirectionLimit {
    own: Option<Rate>,
    shared: SharedRates,
    booked: usize,
    due: Instant,
    alarm: Alarm,
}

impl DirectionLimit {
    fn new(own: Option<u64>, shared: SharedRates) -> DirectionLimit {
        let now = Instant::now();
        DirectionLimit {
            own: own.map(|rate| Rate::new(rate, now)),
            shared,
            booked: 0,
            due: now,
            alarm: Alarm::default(),
        }
    }

    /// How many of `want` bytes may pass now.
    fn poll(&mut self, want: usize, cx: &mut Context<'_>) -> Poll<usize> {
        if want == 0 || (self.own.is_none() && self.shared.is_none()) {
            return Poll::Ready(want);
        }
        if self.booked == 0 {
            self.book(want);
        }
        ready!(self.alarm.poll(self.due, cx));
        Poll::Ready(want.min(self.booked))
    }

    /// Books the same bytes with every rate there is; the latest slot counts.
    fn book(&mut self, want: usize) {
        let now = Instant::now();
        // All connections take them in this order.
        let [mut all, mut listener] =
            self.shared.0.each_ref().map(|rate| {
                rate.as_ref().map(|rate| rate.lock().expect("nothing panics while it holds a rate"))
            });
        let mut rates: [Option<&mut Rate>; 3] =
            [self.own.as_mut(), all.as_deref_mut(), listener.as_deref_mut()];
        self.booked = rates.iter().flatten().fold(want, |bytes, rate| rate.grain(bytes, now));
        let slots = rates.iter_mut().flatten().map(|rate| rate.book(self.booked, now));
        self.due = slots.max().unwrap_or(now);
    }

    fn spend(&mut self, bytes: usize) {
        self.booked = self.booked.saturating_sub(bytes);
    }
}
