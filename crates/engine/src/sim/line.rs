//! A modelled connection: what the engine writes is a request, what it reads arrives piece by piece in
//! virtual time.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::origin::{self, Answer, Cut};
use super::scenario::{Address, Draw};
use super::world::World;
use crate::base::error::ErrorKind;

thread_local! {
    /// The world of the scenario that this thread runs.
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// Makes `world` the one that this thread connects to, for as long as the guard lives.
pub(super) fn enter(world: &Rc<World>) -> impl Drop + use<> {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            WORLD.with(|entered| entered.borrow_mut().take());
        }
    }
    WORLD.with(|entered| *entered.borrow_mut() = Some(world.clone()));
    Leave
}

/// Connects within the world of this thread; `None` where there is none, and sockets are real.
pub(crate) async fn connect(address: SocketAddr) -> Option<io::Result<Line>> {
    let world = WORLD.with(|entered| entered.borrow().clone())?;
    Some(open(world, address).await)
}

async fn open(world: Rc<World>, address: SocketAddr) -> io::Result<Line> {
    let origin = &world.scenario.origin;
    let at =
        usize::from(address.ip().to_string().rsplit('.').next().map_or(1, |n| n.parse().unwrap_or(1u8))) - 1;
    let (refused, silent) = {
        let mut draw = world.draw.borrow_mut();
        (draw.happens(origin.refuses), draw.happens(origin.silent))
    };
    tokio::time::sleep(Duration::from_millis(origin.connect_ms)).await;
    if origin.away.is_some_and(|(from, until)| from <= world.now() && world.now() < until) {
        return Err(refusal(&world, address));
    }
    match origin.addresses[at] {
        Address::Silent => silence(&world, address).await,
        Address::Refuses => Err(refusal(&world, address)),
        Address::Returns(at) if world.now() < at => Err(refusal(&world, address)),
        Address::Alive | Address::Returns(_) | Address::Slow(_) if silent => silence(&world, address).await,
        Address::Alive | Address::Returns(_) | Address::Slow(_) if refused => Err(refusal(&world, address)),
        Address::Alive => Ok(Line::new(world, 1)),
        Address::Slow(times) => {
            world.tell(|| format!("{address} is slow"));
            Ok(Line::new(world, times))
        }
        Address::Returns(_) => {
            world.tell(|| format!("{address} is back"));
            Ok(Line::new(world, 1))
        }
    }
}

async fn silence(world: &World, address: SocketAddr) -> io::Result<Line> {
    world.explain(None, ErrorKind::Timeout);
    world.tell(|| format!("{address} does not answer"));
    std::future::pending().await
}

fn refusal(world: &World, address: SocketAddr) -> io::Error {
    world.explain(None, ErrorKind::Network);
    world.tell(|| format!("{address} refuses"));
    io::Error::from_raw_os_error(libc::ECONNREFUSED)
}

/// A connection to the modelled origin.
pub(crate) struct Line {
    world: Rc<World>,
    number: u32,
    /// Bytes a second.
    rate: f64,
    draw: Draw,
    /// The bytes of a request that have been written so far.
    request: Vec<u8>,
    answer: Answer,
    /// Bytes of the answer that the engine has read, and that have arrived.
    read: usize,
    arrived: usize,
    /// When bytes up to there arrive.
    next: Option<(Instant, usize)>,
    ended: Option<End>,
    /// Since when nothing is asked.
    idle_since: Option<Instant>,
    /// When the origin goes away, and this with it.
    cut_at: Option<Instant>,
    floor_bytes: Cell<usize>,
    sleep: Option<Pin<Box<Sleep>>>,
    reader: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    Reset,
}

impl Line {
    fn new(world: Rc<World>, slower: u32) -> Line {
        let rate = world.scenario.origin.rate as f64 / f64::from(slower);
        let number = world.on_open();
        world.tell(|| format!("#{number} opened"));
        let seed = world.draw.borrow_mut().seed();
        let outage = world.scenario.origin.away.map(|(from, _)| from);
        let cut_in = outage.and_then(|from| from.checked_sub(world.now()));
        Line {
            cut_at: cut_in.map(|cut_in| Instant::now() + cut_in),
            world,
            number,
            rate,
            draw: Draw::new(seed),
            request: Vec::new(),
            answer: Answer::default(),
            read: 0,
            arrived: 0,
            next: None,
            ended: None,
            idle_since: None,
            floor_bytes: Cell::new(1),
            sleep: None,
            reader: None,
        }
    }

    /// What `SO_RCVLOWAT` does: nobody is woken for less.
    pub(crate) fn set_floor(&self, bytes: usize) {
        self.floor_bytes.set(bytes);
    }

    /// What `FIONREAD` tells, of what had arrived when somebody last looked or was woken.
    pub(crate) fn queued_bytes(&self) -> u64 {
        let now = Instant::now();
        let arrived = self.next.filter(|(at, _)| *at <= now).map_or(self.arrived, |(_, to)| to);
        (arrived - self.read) as u64
    }

    /// Whether the origin has closed the connection in an idle moment.
    fn close_if_idle(&mut self) {
        let limit = self.world.scenario.origin.closes_idle;
        let over = |since: Instant| limit.is_some_and(|limit| since.elapsed() >= limit);
        if self.ended.is_none() && self.idle_since.is_some_and(over) {
            self.world.tell(|| format!("#{} closed: idle", self.number));
            self.ended = Some(if self.draw.happens(0.5) { End::Clean } else { End::Reset });
        }
    }

    /// Whether the origin has gone away: what has not been read by then is lost.
    fn close_if_away(&mut self) {
        if self.cut_at.is_some_and(|at| at <= Instant::now()) && self.ended.is_none() {
            self.world.tell(|| format!("#{} reset: the origin is away", self.number));
            self.world.explain(None, ErrorKind::Network);
            (self.arrived, self.next, self.idle_since) = (self.read, None, None);
            self.ended = Some(End::Reset);
        }
    }

    fn on_request(&mut self, head: &str) {
        if self.read < self.answer.bytes.len() {
            self.world.object_to(format!("#{} is asked before its last answer was read", self.number));
        }
        self.idle_since = None;
        self.answer = origin::answer(&self.world, self.number, head);
        (self.read, self.arrived) = (0, 0);
        let origin = &self.world.scenario.origin;
        let wait = Duration::from_millis(origin.first_byte_ms + self.draw.between(0, origin.jitter_ms));
        self.next = Some((Instant::now() + wait, 0));
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// The next piece leaves at `from`, which has come: what is to leave later takes no room on the link
    /// before.
    fn schedule(&mut self, from: Instant) {
        self.next = None;
        let end = self.answer.bytes.len();
        if let Some((at, cut)) = self.answer.cut
            && at == self.arrived
        {
            self.answer.cut = None;
            self.world.tell(|| format!("#{} {cut:?} at byte {at} of {end}", self.number));
            match cut {
                Cut::Reset => self.ended = Some(End::Reset),
                Cut::End => self.ended = Some(End::Clean),
                Cut::Silence => {}
                Cut::Pause(pause) => self.next = Some((from + pause, at)),
            }
            return;
        }
        if self.arrived == end {
            match self.answer.closes {
                true => self.ended = Some(End::Clean),
                false => self.idle_since = Some(from),
            }
            return;
        }
        let (least, most) = self.world.scenario.origin.pieces;
        let cut = self.answer.cut.map_or(end, |(at, _)| at);
        let to = (self.arrived + self.draw.between_orders(least, most) as usize).min(cut);
        let bytes = to - self.arrived;
        let own = from + Duration::from_secs_f64(bytes as f64 / self.rate);
        self.next = Some((own.max(self.world.cross_link(from, bytes)), to));
    }

    /// Takes in what has arrived by now.
    fn pump(&mut self) {
        while let Some((at, to)) = self.next
            && at <= Instant::now()
        {
            self.arrived = to;
            self.schedule(at);
        }
    }

    /// Hands over what is there.
    fn deliver(&mut self, buffer: &mut ReadBuf<'_>) {
        let bytes = (self.arrived - self.read).min(buffer.remaining());
        let taken = self.read..self.read + bytes;
        buffer.put_slice(&self.answer.bytes[taken.clone()]);
        self.read = taken.end;
        let overlap = |payload: &Range<usize>| {
            payload.end.min(taken.end).saturating_sub(payload.start.max(taken.start)) as u64
        };
        let payload = self.answer.payload.iter().map(overlap).sum();
        if payload > 0 {
            self.world.on_body(self.number, payload);
        }
        if self.read == self.answer.bytes.len() {
            self.world.end_exchange(self.number);
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let line = self.get_mut();
        loop {
            line.close_if_idle();
            line.pump();
            line.close_if_away();
            let ready = line.arrived - line.read;
            let enough = ready >= line.floor_bytes.get().min(buffer.remaining());
            // The kernel hands over less to whoever looks without having been woken, as a busy shard does.
            if ready > 0 && (enough || line.ended.is_some() || line.draw.happens(0.1)) {
                line.deliver(buffer);
                return Poll::Ready(Ok(()));
            }
            match line.ended.filter(|_| ready == 0) {
                Some(End::Clean) => return Poll::Ready(Ok(())),
                Some(End::Reset) => return Poll::Ready(Err(io::Error::from_raw_os_error(libc::ECONNRESET))),
                None => {}
            }
            let idle = line.world.scenario.origin.closes_idle;
            let until = match line.next {
                Some((at, _)) => Some(at),
                None => line.idle_since.zip(idle).map(|(since, limit)| since + limit),
            };
            let cut_at = line.cut_at.filter(|_| line.ended.is_none());
            let until = until.into_iter().chain(cut_at).min();
            let Some(until) = until else {
                line.reader = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let sleep = line.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            sleep.as_mut().reset(until);
            if sleep.as_mut().poll(cx).is_pending() {
                line.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let line = self.get_mut();
        line.close_if_idle();
        line.close_if_away();
        if line.ended == Some(End::Reset) && line.draw.happens(0.3) {
            return Poll::Ready(Err(io::Error::from_raw_os_error(libc::EPIPE)));
        }
        // What is written to a connection that the other end has closed is lost, and the writer does not see
        // it.
        if line.ended.is_none() {
            line.request.extend_from_slice(bytes);
            if line.request.ends_with(b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&std::mem::take(&mut line.request)).into_owned();
                line.on_request(&head);
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.world.on_close(self.number);
    }
}
