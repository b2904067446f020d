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
use super::store::{self, Asked, TakeCut};
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
    /// A body on its way to the origin.
    taking: Option<Taking>,
    /// The number of the request of a put that is being answered.
    write: Option<usize>,
    /// How much may have been written that the origin has not taken; drawn when it matters first.
    room_bytes: Option<usize>,
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

/// A body that the origin takes piece by piece.
struct Taking {
    asked: Asked,
    /// What has been written of it, and how much of that the origin has.
    body: Vec<u8>,
    taken: usize,
    /// When bytes up to there have been taken.
    next: Option<(Instant, usize)>,
    /// Nothing more of it is taken.
    is_stuck: bool,
}

/// The head of a request that writes.
pub(super) struct SentHead {
    pub(super) method: String,
    pub(super) query: String,
    pub(super) object: usize,
    /// Of the body that follows.
    pub(super) length: usize,
    headers: Vec<(String, String)>,
}

impl SentHead {
    fn parse(text: &str) -> SentHead {
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let (path, query) = words.next().map_or(("", ""), |url| url.split_once('?').unwrap_or((url, "")));
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let object = path.rsplit('-').next().and_then(|number| number.parse().ok());
        let mut head = SentHead {
            method,
            query: query.to_owned(),
            object: object.expect("the engine asks for the modelled objects only"),
            length: 0,
            headers,
        };
        head.length = head.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        head
    }

    pub(super) fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| &**value)
    }
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
            taking: None,
            write: None,
            room_bytes: None,
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
            self.stop_taking();
            self.ended = Some(End::Reset);
        }
    }

    /// A request has been written, or its head, with what has been written behind it.
    fn on_request(&mut self, head: &str, behind: &[u8]) {
        if self.read < self.answer.bytes.len() {
            self.world.object_to(format!("#{} is asked before its last answer was read", self.number));
        }
        self.idle_since = None;
        (self.read, self.arrived) = (0, 0);
        let sent = SentHead::parse(head);
        if !self.world.scenario.writes(sent.object) {
            self.answer = origin::answer(&self.world, self.number, head);
            return self.start_answer(Instant::now());
        }
        self.answer = Answer::default();
        let asked = store::ask(&self.world, self.number, &sent);
        self.write = Some(asked.number);
        let body = match asked.step.has_content() {
            true => Vec::new(),
            false => behind.to_vec(),
        };
        let taken = body.len();
        self.taking = Some(Taking { asked, body, taken, next: None, is_stuck: false });
        self.take_on(Instant::now());
    }

    /// The answer is on its way from then on.
    fn start_answer(&mut self, from: Instant) {
        let origin = &self.world.scenario.origin;
        let wait = Duration::from_millis(origin.first_byte_ms + self.draw.between(0, origin.jitter_ms));
        self.next = Some((from + wait, 0));
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// What becomes of a body from `from` on, which has come: the origin has all of it and answers, takes
    /// more, or does not.
    fn take_on(&mut self, from: Instant) {
        let Some(taking) = &mut self.taking else { return };
        taking.next = None;
        if let Some((at, cut)) = taking.asked.cut
            && at == taking.taken
        {
            let pause = match cut {
                TakeCut::Line(Cut::Pause(pause)) => Some(pause),
                _ => None,
            };
            (taking.asked.cut, taking.is_stuck) =
                (taking.asked.cut.filter(|_| pause.is_none()), pause.is_none());
            self.world.tell(|| format!("#{} {cut:?} at byte {at} of its body", self.number));
            match cut {
                TakeCut::Answer => {
                    let asked = taking.asked.clone();
                    self.answer = store::answer(&self.world, self.number, &asked, Vec::new());
                    self.start_answer(from);
                }
                TakeCut::Line(Cut::Reset) => self.ended = Some(End::Reset),
                TakeCut::Line(Cut::End) => self.ended = Some(End::Clean),
                TakeCut::Line(Cut::Silence) => {}
                TakeCut::Line(Cut::Pause(pause)) => taking.next = Some((from + pause, at)),
            }
            return;
        }
        if taking.taken == taking.asked.bytes {
            let Some(Taking { asked, body, .. }) = self.taking.take() else { return };
            self.answer = store::answer(&self.world, self.number, &asked, body);
            return self.start_answer(from);
        }
        if taking.taken == taking.body.len() {
            return;
        }
        let (least, most) = self.world.scenario.origin.pieces;
        let cut = taking.asked.cut.map_or(usize::MAX, |(at, _)| at);
        let to =
            (taking.taken + self.draw.between_orders(least, most) as usize).min(taking.body.len()).min(cut);
        let bytes = to - taking.taken;
        let own = from + Duration::from_secs_f64(bytes as f64 / self.rate);
        taking.next = Some((own.max(self.world.cross_uplink(from, bytes)), to));
    }

    /// Nothing more is taken of a body.
    fn stop_taking(&mut self) {
        if let Some(taking) = &mut self.taking {
            (taking.next, taking.is_stuck) = (None, true);
        }
    }

    /// Takes more of a body from whoever writes it: as much as there is room for.
    fn write_body(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            self.pump();
            self.close_if_away();
            let (least, most) = self.world.scenario.origin.rooms;
            let room = *self.room_bytes.get_or_insert_with(|| self.draw.between_orders(least, most) as usize);
            let Some(taking) = self.taking.as_mut().filter(|_| self.ended.is_none()) else {
                // It is lost, and the writer does not see it yet.
                return Poll::Ready(Ok(bytes.len()));
            };
            let free = room.saturating_sub(taking.body.len() - taking.taken);
            let now = free.min(bytes.len()).min(taking.asked.bytes - taking.body.len());
            if now > 0 {
                taking.body.extend_from_slice(&bytes[..now]);
                let (number, starts) = (taking.asked.number, taking.next.is_none() && !taking.is_stuck);
                self.world.on_sent(number, &bytes[..now]);
                if starts {
                    self.take_on(Instant::now());
                }
                return Poll::Ready(Ok(now));
            }
            if self.poll_event(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Waits for what happens next on this connection, if anything will.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle = self.world.scenario.origin.closes_idle;
        let closes = self.idle_since.zip(idle).map(|(since, limit)| since + limit);
        let moves = self.next.map(|(at, _)| at);
        let takes = self.taking.as_ref().and_then(|taking| taking.next).map(|(at, _)| at);
        let cut_at = self.cut_at.filter(|_| self.ended.is_none());
        let until = [moves.or(closes), takes, cut_at].into_iter().flatten().min();
        let Some(until) = until else {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        sleep.as_mut().reset(until);
        if sleep.as_mut().poll(cx).is_pending() {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// What `SIOCOUTQ` tells.
    pub(crate) fn unacknowledged_bytes(&self) -> u64 {
        let Some(taking) = &self.taking else { return 0 };
        let now = Instant::now();
        let taken = taking.next.filter(|(at, _)| *at <= now).map_or(taking.taken, |(_, to)| to);
        (taking.body.len() - taken) as u64
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
        while let Some(taking) = &mut self.taking
            && let Some((at, to)) = taking.next
            && at <= Instant::now()
        {
            if taking.taken < to {
                taking.taken = to;
                self.world.on_taken(taking.asked.number, to);
            }
            self.take_on(at);
        }
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
            match self.write.take() {
                Some(number) => self.world.on_write_over(number, true),
                None => self.world.end_exchange(self.number),
            }
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
            if line.poll_event(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let line = self.get_mut();
        line.close_if_idle();
        line.close_if_away();
        if line.ended == Some(End::Reset) && line.draw.happens(0.3) {
            return Poll::Ready(Err(io::Error::from_raw_os_error(libc::EPIPE)));
        }
        // What is written to a connection that the other end has closed is lost, and the writer does not see
        // it.
        if line.taking.is_some() {
            return line.write_body(cx, bytes);
        }
        if line.ended.is_none() {
            line.request.extend_from_slice(bytes);
            if let Some(end) = end_of_head(&line.request) {
                let request = std::mem::take(&mut line.request);
                let (head, behind) = request.split_at(end);
                line.on_request(&String::from_utf8_lossy(head), behind);
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

/// Where the head of a request ends, and a document behind it that is written with it.
fn end_of_head(request: &[u8]) -> Option<usize> {
    let blank = b"\r\n\r\n";
    request.windows(blank.len()).position(|window| window == blank).map(|at| at + blank.len())
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(number) = self.write.take() {
            self.world.on_write_over(number, false);
        }
        let is_sent = |taking: &Taking| !taking.is_stuck && taking.body.len() == taking.asked.bytes;
        if let Some(Taking { asked, body, .. }) = self.taking.take_if(|taking| is_sent(taking)) {
            store::let_go(&self.world, asked, body);
        }
        self.world.on_close(self.number);
    }
}
