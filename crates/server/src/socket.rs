//! A connection as seen by hyper, slowed down where the origin was asked to: latency and rates.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::alarm::Alarm;
use crate::rate::{Rate, Rates};
use crate::stream::Stream;
use crate::tunnel::Ending;

/// What the connections of one listener are held to. A link is full duplex: each direction has its own rates.
#[derive(Clone)]
pub(crate) struct Shaping {
    latency: Duration,
    per_connection: Option<u64>,
    inward: Shared,
    outward: Shared,
}

/// What connections share in one direction: the rate of all, and that of those that came to the same listener.
#[derive(Clone, Default)]
struct Shared([Option<Arc<Mutex<Rate>>>; 2]);

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
                inward: Shared([all_in.clone(), own()]),
                outward: Shared([all_out.clone(), own()]),
            };
            let still = latency.is_zero() && per_connection.is_none() && shaping.inward.is_none();
            (!still).then_some(shaping)
        };
        listeners.map(shaping).collect()
    }
}

impl Shared {
    fn is_none(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// A connection; without shaping and outside of the wind tunnel it adds nothing to the socket but one branch a call.
pub(crate) struct Socket {
    stream: Stream,
    shape: Option<Box<Shape>>,
    ending: Option<Ending>,
}

impl Socket {
    pub(crate) fn new(stream: Stream, shaping: Option<&Shaping>, ending: Option<Ending>) -> Socket {
        Socket { stream, shape: shaping.map(|shaping| Box::new(Shape::new(shaping))), ending }
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
        let Socket { stream, ending, .. } = &mut *self;
        ready!(stream.poll_flush(cx))?;
        match ending {
            None => Poll::Ready(Ok(())),
            Some(ending) => ending.poll(stream, cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown(cx)
    }
}

/// The slow side of one connection.
struct Shape {
    latency: Duration,
    /// When the last byte of a request came in, until the first byte of its answer goes out.
    asked: Option<Instant>,
    alarm: Alarm,
    inward: Gate,
    outward: Gate,
}

impl Shape {
    fn new(shaping: &Shaping) -> Shape {
        Shape {
            latency: shaping.latency,
            asked: None,
            alarm: Alarm::default(),
            inward: Gate::new(shaping.per_connection, shaping.inward.clone()),
            outward: Gate::new(shaping.per_connection, shaping.outward.clone()),
        }
    }

    fn on_read(&mut self, bytes: usize) {
        self.inward.spend(bytes);
        if bytes > 0 {
            self.asked = Some(Instant::now());
        }
    }

    fn poll_latency(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(asked) = self.asked {
            ready!(self.alarm.poll(asked + self.latency, cx));
            self.asked = None;
        }
        Poll::Ready(())
    }
}

/// One direction of a connection: bytes may pass once they are booked and their time has come.
struct Gate {
    own: Option<Rate>,
    shared: Shared,
    booked: usize,
    due: Instant,
    alarm: Alarm,
}

impl Gate {
    fn new(own: Option<u64>, shared: Shared) -> Gate {
        let now = Instant::now();
        Gate {
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
