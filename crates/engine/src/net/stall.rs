//! Stalls: how long a connection has brought nothing.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::base::wording::silence;
use crate::net::socket::Socket;

/// Ticks between two looks at a connection from which nothing comes.
pub(crate) const STALL_TICKS: u32 = 4;

/// Counts ticks without a byte. A shard that was blocked sees one late tick, not all that it missed, so the
/// time in which we did not listen is not held against the origin.
pub(crate) struct StallClock {
    timeout: Duration,
    tick: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    idle_ticks: u32,
    /// Since the last receive, in whole ticks, and what had come below the floor at the last.
    waited: Duration,
    queued_bytes: u64,
    /// At the last tick: what the other side had not acknowledged yet.
    unacknowledged_bytes: u64,
    silence: Silence,
}

/// The silence of a connection, in whole ticks: nothing has come, or gone out, for so long. It can be read
/// while another task receives or sends.
#[derive(Clone, Default)]
pub(crate) struct Silence(Rc<(Cell<Duration>, Cell<Duration>)>);

impl Silence {
    pub(crate) fn so_far(&self) -> Duration {
        self.0.0.get()
    }

    /// The longest since this was asked last.
    pub(crate) fn take_longest(&self) -> Duration {
        self.0.1.replace(self.so_far())
    }

    fn set(&self, so_far: Duration) {
        self.0.0.set(so_far);
        self.0.1.set(self.0.1.get().max(so_far));
    }
}

impl StallClock {
    pub(crate) fn new(timeout: Duration) -> StallClock {
        StallClock {
            timeout,
            tick: timeout / STALL_TICKS,
            sleep: None,
            idle_ticks: 0,
            waited: Duration::ZERO,
            queued_bytes: 0,
            unacknowledged_bytes: 0,
            silence: Silence::default(),
        }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Looks as often as that, if not more often anyway.
    pub(crate) fn look_every(&mut self, tick: Duration) {
        self.tick = tick.min(self.timeout / STALL_TICKS).max(Duration::from_millis(1));
    }

    /// For whoever looks on.
    pub(crate) fn silence(&self) -> Silence {
        self.silence.clone()
    }

    /// Writes once by `write`; `TimedOut` when nothing has been taken for the whole timeout.
    pub(crate) fn poll_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
        mut write: impl FnMut(&mut Socket, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        loop {
            if let Poll::Ready(written) = write(socket, cx) {
                self.idle_ticks = 0;
                self.silence.set(Duration::ZERO);
                return Poll::Ready(written);
            }
            ready!(self.poll_tick(cx));
            self.idle_ticks = if self.goes_out(socket) { 0 } else { self.idle_ticks + 1 };
            // As of a read.
            self.silence.set(self.tick * self.idle_ticks.saturating_sub(1));
            if self.silence.so_far() + self.tick / 2 >= self.timeout {
                return Poll::Ready(Err(silence()));
            }
        }
    }

    /// Whether the other side has taken any of what was written since the last tick.
    fn goes_out(&mut self, socket: &Socket) -> bool {
        let now = socket.unacknowledged_bytes();
        now < std::mem::replace(&mut self.unacknowledged_bytes, now)
    }

    fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.tick)));
        ready!(sleep.as_mut().poll(cx));
        sleep.as_mut().reset(Instant::now() + self.tick);
        Poll::Ready(())
    }

    /// Reads once; `TimedOut` when nothing has come for the whole timeout.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Poll::Ready(read) = Pin::new(&mut *socket).poll_read(cx, buffer) {
                (self.idle_ticks, self.waited, self.queued_bytes) = (0, Duration::ZERO, 0);
                self.silence.set(Duration::ZERO);
                return Poll::Ready(read);
            }
            ready!(self.poll_tick(cx));
            self.waited += self.tick;
            // What comes below the floor is progress too, and so is what goes out.
            let queued_bytes = socket.queued_bytes();
            match queued_bytes > self.queued_bytes || self.goes_out(socket) {
                true => (self.queued_bytes, self.idle_ticks) = (queued_bytes, 0),
                false => self.idle_ticks += 1,
            }
            // Of the first tick a part had passed before the last byte came.
            self.silence.set(self.tick * self.idle_ticks.saturating_sub(1));
            if self.silence.so_far() + self.tick / 2 >= self.timeout {
                return Poll::Ready(Err(silence()));
            }
            // And it is taken, whatever there is: one sees how fast it comes, and a reader gets it.
            if self.waited + self.tick / 2 >= (self.tick * 2).min(self.timeout / STALL_TICKS) {
                socket.set_floor(1)?;
            }
        }
    }
}
