//! The world around the engine while one scenario runs: its clock, its one link, and a log of all that
//! happened there.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::scenario::{Draw, Fault, From, Scenario, Step, ThrottleHint};
use super::store::Store;
use crate::base::error::ErrorKind;
use crate::memory::lease::Pool;
use crate::source::{OpenSource, Source};

/// What heads bring along of a body: it may have been received twice where the rest of the body never came.
pub(super) const AHEAD_BYTES: u64 = 4 << 10;

/// Whoever takes over the rest of a part leaves its owner so much at least.
const CUT_BYTES: u64 = 512 << 10;

/// Keys of requests that ask for no part: for all there is, and for the last byte, which tells where the end
/// is.
pub(super) const WHOLE: u64 = u64::MAX;
pub(super) const LAST_BYTE: u64 = u64::MAX - 1;
pub(super) const HEAD: u64 = u64::MAX - 2;

pub(super) struct World {
    pub(super) scenario: Rc<Scenario>,
    pub(super) start: Instant,
    pub(super) draw: RefCell<Draw>,
    pub(super) log: RefCell<Log>,
    /// Counts the gets that the scenario asks for, one after the other.
    pub(super) transfer: Cell<u32>,
    pub(super) pool: OnceCell<(Arc<Pool>, u64)>,
    pub(super) window: RefCell<Option<Window>>,
    pub(super) gets: RefCell<HashMap<usize, u32>>,
    pub(super) attempts: RefCell<HashMap<(u32, usize, u64), u32>>,
    /// What has been written to the origin.
    pub(super) store: RefCell<Store>,
    write_attempts: RefCell<HashMap<(usize, Step), u32>>,
    link_free: Cell<Option<Instant>>,
    /// The link in the other direction.
    uplink_free: Cell<Option<Instant>>,
    tells: bool,
    stopped: Cell<Option<Duration>>,
}

/// What happened, for the checks at the end.
#[derive(Default)]
pub(super) struct Log {
    pub(super) exchanges: Vec<Exchange>,
    pub(super) lines: Vec<LineNote>,
    pub(super) writes: Vec<Written>,
    /// The most connections with a GET behind them that were open at once.
    pub(super) open_at_most: usize,
    /// What an error may be put down to: its kind, and the object, where the fault was met by one alone.
    pub(super) explained: Vec<(Option<usize>, ErrorKind)>,
    /// Bits were flipped in this object.
    pub(super) flipped: Vec<usize>,
    pub(super) violations: Vec<String>,
    /// What the trace shows, if it is wanted.
    pub(super) events: Vec<String>,
}

/// A connection.
#[derive(Clone, Debug, Default)]
pub(super) struct LineNote {
    pub(super) gets: u32,
    pub(super) is_open: bool,
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) transfer: u32,
    pub(super) line: u32,
    pub(super) is_get: bool,
    pub(super) object: usize,
    /// Names the bytes asked for by their end: what is asked for again keeps it.
    pub(super) key: u64,
    pub(super) status: u16,
    pub(super) fault: Option<Fault>,
    /// Bytes of the object that the body was to carry.
    pub(super) body: Range<u64>,
    /// How many of them the engine has received.
    pub(super) received: u64,
    pub(super) asked_at: Duration,
    /// When something was received of it last.
    pub(super) moved_at: Duration,
    /// When its last byte was received, or its connection dropped.
    pub(super) ended_at: Option<Duration>,
}

/// The framing of a body of less than 1 MiB: the line before its only chunk, and what follows.
const FRAMING_MOST: u64 = 60;

/// A request of a put, and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) step: Step,
    /// Of its body: how long it is, and how much of it the engine has sent and the origin taken.
    pub(super) bytes: u64,
    pub(super) sent: u64,
    pub(super) taken: u64,
    pub(super) fault: Option<Fault>,
    /// 0 before it is answered.
    pub(super) status: u16,
    /// Its connection went when all had been sent, and the origin may do it all the same.
    pub(super) is_unheard: bool,
    pub(super) asked_at: Duration,
    /// When the origin took something of it last.
    pub(super) moved_at: Duration,
    /// It was silent for longer than the patience: a second request may race it.
    was_silent: bool,
    /// When the engine had all of its answer, or let its connection go.
    pub(super) ended_at: Option<Duration>,
    /// Whether the engine has read all of its answer.
    pub(super) is_heard: bool,
    /// It has other bytes than the source.
    is_wrong: bool,
    /// Its body is framed, and longer than what it carries.
    pub(super) is_framed: bool,
}

impl Written {
    /// How much of the source was sent, at least: of a framed body some is framing.
    pub(super) fn content_sent(&self) -> u64 {
        let framing = if self.is_framed { FRAMING_MOST } else { 0 };
        self.sent.saturating_sub(framing)
    }
}

impl Exchange {
    pub(super) fn asked_to_wait(&self) -> Option<Duration> {
        match self.fault {
            Some(Fault::Throttles(ask)) => ask.map(ThrottleHint::wait),
            _ => None,
        }
    }

    fn is_open(&self) -> bool {
        self.is_get && self.ended_at.is_none()
    }

    /// Whether bytes of its body may land; those of a wrong range may not.
    fn may_land(&self) -> bool {
        self.is_open() && !matches!(self.fault, Some(Fault::WrongRange(_)))
    }
}

/// A stream's reader, as far as the model must know him to say what may be on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Where in the object the stream begins.
    pub(super) start: u64,
    pub(super) part_bytes: u64,
    pub(super) window_bytes: u64,
    /// What he is done with.
    pub(super) read_bytes: u64,
}

impl Window {
    /// The end of what may be asked for: the window begins with the part that is being read.
    fn end(&self) -> u64 {
        let head = self.read_bytes / self.part_bytes * self.part_bytes;
        self.start + head + self.window_bytes.max(self.part_bytes)
    }
}

impl World {
    pub(super) fn new(scenario: Rc<Scenario>, tells: bool) -> World {
        let draw = RefCell::new(Draw::new(scenario.seed ^ 0xF1A7));
        World {
            scenario,
            start: Instant::now(),
            draw,
            log: RefCell::default(),
            transfer: Cell::new(0),
            pool: OnceCell::new(),
            window: RefCell::default(),
            gets: RefCell::default(),
            attempts: RefCell::default(),
            store: RefCell::default(),
            write_attempts: RefCell::default(),
            link_free: Cell::new(None),
            uplink_free: Cell::new(None),
            tells,
            stopped: Cell::new(None),
        }
    }

    /// Virtual time since the start.
    pub(super) fn now(&self) -> Duration {
        self.stopped.get().unwrap_or_else(|| self.start.elapsed())
    }

    /// The runtime and its clock go away; what still happens, happens now.
    pub(super) fn stop_clock(&self) {
        self.stopped.set(Some(self.now()));
    }

    /// Notes an event for the trace.
    pub(super) fn tell(&self, event: impl FnOnce() -> String) {
        if self.tells && self.stopped.get().is_none() {
            let line = format!("{:>10.3} s  {}", self.now().as_secs_f64(), event());
            self.log.borrow_mut().events.push(line);
        }
    }

    /// Notes that a rule was broken.
    pub(super) fn object_to(&self, what: String) {
        self.tell(|| format!("BROKEN: {what}"));
        let at = self.now();
        self.log.borrow_mut().violations.push(format!("{what} (at {at:?})"));
    }

    pub(super) fn explain(&self, object: Option<usize>, kind: ErrorKind) {
        self.log.borrow_mut().explained.push((object, kind));
    }

    /// When `bytes` that leave at `from` are through the link that all connections share.
    pub(super) fn cross_link(&self, from: Instant, bytes: usize) -> Instant {
        self.cross(&self.link_free, from, bytes)
    }

    /// As [`World::cross_link`], of bytes on their way to the origin.
    pub(super) fn cross_uplink(&self, from: Instant, bytes: usize) -> Instant {
        self.cross(&self.uplink_free, from, bytes)
    }

    fn cross(&self, free: &Cell<Option<Instant>>, from: Instant, bytes: usize) -> Instant {
        let begins = free.get().map_or(from, |free| free.max(from));
        let through = begins + Duration::from_secs_f64(bytes as f64 / self.scenario.origin.total_rate as f64);
        free.set(Some(through));
        through
    }

    /// What a put sends.
    pub(super) fn sent_content(&self) -> &'static [u8] {
        let bytes = self.scenario.objects[0].bytes as usize;
        match self.scenario.put().map(|put| put.from) {
            Some(From::Synthetic) => &synthetic()[..bytes],
            _ => self.content(0, 0),
        }
    }

    /// The bytes of the object that a request carries.
    fn expected(&self, step: Step, bytes: u64) -> &'static [u8] {
        let content = self.sent_content();
        let start = match step {
            Step::Part(number) => (u64::from(number) - 1) * self.scenario.sent_part_bytes(),
            _ => 0,
        } as usize;
        content.get(start..start + bytes as usize).unwrap_or_default()
    }

    /// How often that has been asked for, this time included.
    pub(super) fn count_attempt(&self, object: usize, step: Step) -> u32 {
        let mut attempts = self.write_attempts.borrow_mut();
        let attempt = attempts.entry((object, step)).or_default();
        *attempt += 1;
        *attempt
    }

    /// A request of a put has come: may it be made now? Its number in the log.
    pub(super) fn on_write(
        &self,
        step: Step,
        bytes: u64,
        (fault, is_framed): (Option<Fault>, bool),
    ) -> usize {
        self.check_pool();
        let now = self.now();
        if let Some(wrong) = self.check_write(step).or_else(|| self.check_trial(step, is_framed)) {
            self.object_to(wrong);
        }
        let mut log = self.log.borrow_mut();
        log.writes.push(Written {
            step,
            bytes,
            sent: 0,
            taken: 0,
            fault,
            status: 0,
            is_unheard: false,
            asked_at: now,
            moved_at: now,
            was_silent: false,
            ended_at: None,
            is_heard: false,
            is_wrong: false,
            is_framed,
        });
        log.writes.len() - 1
    }

    fn check_write(&self, step: Step) -> Option<String> {
        let (log, now) = (self.log.borrow(), self.now());
        let open = || log.writes.iter().filter(|other| other.ended_at.is_none());
        // What had other bytes on its arrival is sent again, though the origin took it.
        let is_flipped = |other: &Written| other.fault == Some(Fault::Flip);
        let is_confirmed = |other: &Written| self.scenario.confirms(other.is_framed) && !is_flipped(other);
        let is_accepted = |other: &Written| other.is_heard && other.status < 300 && is_confirmed(other);
        if let Some(done) = log.writes.iter().find(|other| other.step == step && is_accepted(other))
            && step.has_content()
        {
            return Some(format!("{step:?} is sent again, and it was accepted at {:?}", done.ended_at));
        }
        let is_early = |other: &&Written| !other.was_silent && now < other.moved_at + self.silent_for();
        let mut same = open().filter(|other| other.step == step && step.has_content());
        if same.any(|other| is_early(&other)) {
            return Some(format!("{step:?} is sent while another attempt at it moves"));
        }
        let mut parts = open().filter(|other| other.step.has_content());
        match step {
            Step::Complete => parts.next().map(|_| "it is completed while a part is on its way".into()),
            Step::Abort => parts.next().map(|_| "it is aborted while a part is on its way".into()),
            _ => {
                // And one more of each that is silent, which may be raced.
                let silent = open().filter(|other| !is_early(other)).count();
                let in_flight = parts.count() + 1;
                let most = self.scenario.tuning.parallel as usize + silent;
                (in_flight > most)
                    .then(|| format!("{in_flight} parts are on their way, at most {most} may be"))
            }
        }
    }

    /// Before an origin has taken a trailer, one part at a time has one; and none, once that part was taken
    /// without.
    fn check_trial(&self, step: Step, is_framed: bool) -> Option<String> {
        let log = self.log.borrow();
        let is_taken = |other: &Written| other.is_heard && other.status < 300;
        let framed = || log.writes.iter().filter(|other| other.is_framed);
        if !is_framed || framed().any(|other| is_taken(other) && self.scenario.takes_trailers()) {
            return None;
        }
        if framed().any(|other| other.step != step && other.ended_at.is_none()) {
            return Some(format!("{step:?} has a trailer while that of another part is on trial"));
        }
        let is_refused = |tried: &&Written| {
            let mut others = log.writes.iter().filter(|other| other.step == tried.step && !other.is_framed);
            others.any(is_taken)
        };
        let (mut tries, mut is_clear) = (0, false);
        for tried in framed().filter(is_refused) {
            let is_heard = tried.is_heard && matches!(tried.status, 1..=499 | 501);
            (tries, is_clear) = (tries + 1, is_clear || is_heard);
        }
        (is_clear || tries > 3).then(|| format!("{step:?} has a trailer, which the origin does not take"))
    }

    /// The engine has sent more of a body.
    pub(super) fn on_sent(&self, number: usize, bytes: &[u8]) {
        let wrong = {
            let mut log = self.log.borrow_mut();
            let write = &mut log.writes[number];
            let at = write.sent as usize;
            write.sent += bytes.len() as u64;
            let expected = self.expected(write.step, write.bytes);
            // Of a framed body the checksum covers the content.
            let is_wrong =
                expected.get(at..at + bytes.len()) != Some(bytes) && !write.is_wrong && !write.is_framed;
            write.is_wrong |= is_wrong;
            is_wrong.then_some((write.step, at))
        };
        if let Some((step, at)) = wrong {
            self.object_to(format!("{step:?} has other bytes than the source from byte {at} on"));
        }
        self.check_pool();
    }

    /// The origin has taken so much of a body by now.
    pub(super) fn on_taken(&self, number: usize, taken: usize) {
        let mut log = self.log.borrow_mut();
        let write = &mut log.writes[number];
        write.was_silent |= self.now() >= write.moved_at + self.silent_for();
        (write.taken, write.moved_at) = (taken as u64, self.now());
    }

    /// The origin has answered.
    pub(super) fn on_written(&self, number: usize, status: u16) {
        let mut log = self.log.borrow_mut();
        (log.writes[number].status, log.writes[number].moved_at) = (status, self.now());
    }

    /// Nobody hears what becomes of it.
    pub(super) fn on_unheard(&self, number: usize) {
        self.log.borrow_mut().writes[number].is_unheard = true;
    }

    /// The engine has read an answer to its end, or has let its connection go.
    pub(super) fn on_write_over(&self, number: usize, is_heard: bool) {
        let now = self.now();
        let mut log = self.log.borrow_mut();
        let write = &mut log.writes[number];
        write.ended_at.get_or_insert(now);
        write.is_heard |= is_heard;
    }

    /// The object's bytes in its `version`.
    pub(super) fn content(&self, object: usize, version: u32) -> &'static [u8] {
        let (scenario, pattern) = (&self.scenario, pattern());
        let bytes = match scenario.origin.replaced {
            Some(replaced) if version > 0 => replaced.bytes,
            _ => scenario.objects[object].bytes,
        } as usize;
        let from = (scenario.seed * 7 + object as u64 * 4_099 + u64::from(version) * 65_537) as usize
            % (pattern.len() - bytes);
        &pattern[from..from + bytes]
    }

    pub(super) fn on_open(&self) -> u32 {
        let mut log = self.log.borrow_mut();
        log.lines.push(LineNote { gets: 0, is_open: true });
        log.lines.len() as u32 - 1
    }

    pub(super) fn on_close(&self, line: u32) {
        self.end_exchange(line);
        self.log.borrow_mut().lines[line as usize].is_open = false;
        self.tell(|| format!("#{line} let go"));
    }

    /// A request has come: is it one that may be made now?
    pub(super) fn on_request(&self, exchange: Exchange) {
        self.check_pool();
        if exchange.is_get {
            self.check_request(&exchange);
        }
        let mut log = self.log.borrow_mut();
        if exchange.is_get {
            log.lines[exchange.line as usize].gets += 1;
            let open = log.lines.iter().filter(|line| line.is_open && line.gets > 0).count();
            log.open_at_most = log.open_at_most.max(open);
        }
        log.exchanges.push(exchange);
    }

    fn check_request(&self, exchange: &Exchange) {
        let now = self.now();
        let overlaps = self.log.borrow().exchanges.iter().any(|other| {
            let left = other.body.start + other.received..other.body.end;
            // What is silent may be raced, from what has landed on; what is cut is left to another from there
            // on.
            let landed = left.start.saturating_sub(AHEAD_BYTES)..=left.start;
            let is_silent = now >= other.moved_at + self.silent_for();
            let is_raced = is_silent && landed.contains(&exchange.body.start);
            let is_cut = exchange.body.start >= left.start + CUT_BYTES;
            other.may_land()
                && exchange.may_land()
                && other.object == exchange.object
                && left.start.max(exchange.body.start) < left.end.min(exchange.body.end)
                && !is_raced
                && !is_cut
        });
        if overlaps {
            self.object_to(format!(
                "bytes {:?} are asked for while another attempt at them runs",
                exchange.body
            ));
        }
        if let Some(window) = *self.window.borrow()
            && self.scenario.origin.has_ranges
            && exchange.status == 206
            && exchange.key != LAST_BYTE
            && exchange.body.end > window.end()
        {
            self.object_to(format!(
                "bytes {:?} are asked for, the window ends at {}",
                exchange.body,
                window.end()
            ));
        }
    }

    /// What is silent for less is asked for once.
    fn silent_for(&self) -> Duration {
        let stall = Duration::from_millis(self.scenario.tuning.stall_ms);
        (stall / 2).min(Duration::from_millis(200)) - Duration::from_millis(5)
    }

    /// Of an origin that serves ranges every byte is received once, but for what came with heads.
    fn check_twice(&self, log: &Log, line: u32, bytes: u64) -> Option<Range<u64>> {
        let origin = &self.scenario.origin;
        if !origin.has_ranges || origin.replaced.is_some() {
            return None;
        }
        let counts = |exchange: &Exchange| {
            let is_for_a_part = exchange.is_get && exchange.key != LAST_BYTE && exchange.status == 206;
            is_for_a_part && !matches!(exchange.fault, Some(Fault::WrongRange(_)))
        };
        let at = log.exchanges.iter().rposition(|exchange| exchange.line == line)?;
        let this = Some(&log.exchanges[at]).filter(|exchange| counts(exchange))?;
        let reached = this.body.start + this.received;
        let new = reached - bytes..reached;
        let is_twice = |(number, other): (usize, &Exchange)| {
            let (start, end) =
                (other.body.start, (other.body.start + other.received).saturating_sub(AHEAD_BYTES));
            number != at
                && counts(other)
                && (other.transfer, other.object) == (this.transfer, this.object)
                && start.max(new.start + AHEAD_BYTES.min(bytes)) < end.min(new.end)
        };
        log.exchanges.iter().enumerate().any(is_twice).then_some(new)
    }

    /// Memory is held within the budget.
    fn check_pool(&self) {
        if let Some((pool, most)) = self.pool.get()
            && pool.held_bytes() > *most
        {
            self.object_to(format!("{} bytes are leased, at most {most} may be", pool.held_bytes()));
        }
    }

    /// The engine has received `bytes` more of a body.
    pub(super) fn on_body(&self, line: u32, bytes: u64) {
        let beyond = {
            let mut log = self.log.borrow_mut();
            let Some(exchange) = log.exchanges.iter_mut().rev().find(|exchange| exchange.line == line) else {
                return;
            };
            exchange.received += bytes;
            exchange.moved_at = self.now();
            let reached = exchange.body.start + exchange.received;
            let window = *self.window.borrow();
            let is_for_a_part = exchange.is_get && exchange.key != LAST_BYTE;
            window
                .filter(|window| is_for_a_part && reached > window.end() + AHEAD_BYTES)
                .map(|window| (reached, window))
        };
        let twice = self.check_twice(&self.log.borrow(), line, bytes);
        if let Some(twice) = twice {
            self.object_to(format!("bytes {twice:?} were received twice"));
        }
        if let Some((reached, window)) = beyond {
            self.object_to(format!("byte {reached} was received, the window ends at {}", window.end()));
        }
        self.check_pool();
    }

    /// Nothing more will be received of what a connection carries.
    pub(super) fn end_exchange(&self, line: u32) {
        let now = self.now();
        let mut log = self.log.borrow_mut();
        if let Some(exchange) = log.exchanges.iter_mut().rev().find(|exchange| exchange.line == line) {
            exchange.ended_at.get_or_insert(now);
        }
    }

    /// A get has ended: nobody may still receive for it.
    pub(super) fn on_end_of_transfer(&self) {
        let open = self.log.borrow().exchanges.iter().filter(|exchange| exchange.is_open()).count();
        if open > 0 {
            self.object_to(format!("the end was told while {open} answers were still being received"));
        }
    }

    /// A put has ended: nobody may still send for it.
    pub(super) fn on_end_of_put(&self) {
        let unsent = self.log.borrow().writes.iter().filter(|write| write.ended_at.is_none()).count();
        if unsent > 0 {
            self.object_to(format!("the end was told while {unsent} requests were on their way"));
        }
    }
}

/// What [`Source::Synthetic`] makes.
fn synthetic() -> &'static [u8] {
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    const BYTES: u64 = 2 << 20;
    MADE.get_or_init(|| {
        let source = OpenSource::open(Source::Synthetic(BYTES)).expect("nothing is opened");
        let body = source.body(&(0..BYTES));
        let mut made = Vec::new();
        while (made.len() as u64) < BYTES {
            made.extend_from_slice(body.piece(made.len() as u64, &mut []).expect("nothing is read"));
        }
        made
    })
}

/// Random bytes, made once: an object is a slice of them.
fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut draw = Draw::new(1);
        (0..1 << 19).flat_map(|_| draw.seed().to_le_bytes()).collect()
    })
}
