//! What a seed stands for: an origin with its habits and faults, settings, and what is asked of the engine.

use std::fmt;
use std::time::Duration;

use flatout_wire::range::Span;

use crate::api::account::Dialect;
use flatout_policy::hedge::PATIENCE_MIN;
use flatout_policy::retry::Dice;

/// Where all chance comes from.
pub(super) struct Draw(Dice);

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        Draw(Dice::new(seed))
    }

    /// Whether something of this `probability` happens.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        self.0.roll() < probability
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + ((high - low + 1) as f64 * self.0.roll()) as u64
    }

    /// Between the two, each order of magnitude as likely as another.
    pub(super) fn between_orders(&mut self, low: u64, high: u64) -> u64 {
        let (least, most) = ((low as f64).ln(), (high as f64 + 1.0).ln());
        ((least + (most - least) * self.0.roll()).exp() as u64).clamp(low, high)
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() as u64 - 1) as usize].clone()
    }

    pub(super) fn seed(&mut self) -> u64 {
        (self.0.roll() * (1u64 << 53) as f64) as u64
    }
}

/// Everything about one run.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) shape: &'static str,
    pub(super) origin: Origin,
    pub(super) tuning: Tuning,
    pub(super) objects: Vec<Object>,
    pub(super) task: Task,
    pub(super) interruption: Option<(Interruption, Duration)>,
}

/// An object as it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) bytes: u64,
    /// What a listing says of its size.
    pub(super) listed: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Task {
    /// The first object; once more on the same client after each of these pauses.
    One { span: Span, land: Land, pauses: Vec<Duration> },
    /// All of them.
    Many { land: Land },
    /// The first object is made; the second, if there is one, is read meanwhile.
    Put(PutTask),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PutTask {
    pub(super) from: From,
    /// Only where no object of that name is there.
    pub(super) if_absent: bool,
    /// One is there.
    pub(super) is_there: bool,
}

/// Where the bytes of a put come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Memory,
    File,
    Synthetic,
    /// A stream whose writer makes so many bytes a second; `None` fills all the room there is.
    Stream(Option<u64>),
}

/// What is asked of an origin that an object is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Step {
    Put,
    Create,
    Part(u32),
    Complete,
    Abort,
    Head,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Land {
    Nowhere,
    Memory,
    File,
    /// Read by somebody who takes so many bytes a second, `None` for all there are.
    Stream(Option<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    Cancel,
    /// Cancelled unless its object may have been made.
    Withdraw,
    /// The reader of a stream leaves, or the writer of one.
    ReaderLeaves,
    /// The client is closed, its shards stop.
    ClientCloses,
}

#[derive(Clone, Debug)]
pub(super) struct Tuning {
    /// Where it is open, more than there are parts.
    pub(super) parallel: u32,
    /// How many are in flight is for the pace to find.
    pub(super) is_open: bool,
    pub(super) part_bytes: u64,
    pub(super) window_bytes: u64,
    /// Requests a second, of all kinds.
    pub(super) request_rate: Option<u32>,
    pub(super) shards: u32,
    pub(super) retries: u32,
    pub(super) stall_ms: u64,
    /// How long an origin that is away is waited for; 0 counts each failure as a retry.
    pub(super) outage_ms: u64,
    /// Another process has been answered.
    pub(super) knows_origins: bool,
    pub(super) connect_ms: u64,
}

/// How an origin is, on good days and bad ones.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) dialect: Dialect,
    pub(super) has_ranges: bool,
    pub(super) framing: Framing,
    pub(super) etag: Etag,
    /// Whether it states checksums of whole objects.
    pub(super) states_checksum: bool,
    pub(super) trailers: Trailers,
    pub(super) addresses: Vec<Address>,
    pub(super) connect_ms: u64,
    pub(super) first_byte_ms: u64,
    /// At most so much later, each answer by its own chance.
    pub(super) jitter_ms: u64,
    /// Bytes a second of one connection, and of all.
    pub(super) rate: u64,
    pub(super) total_rate: u64,
    /// Bytes arrive in pieces of a size from here to there.
    pub(super) pieces: (u64, u64),
    /// So much may have been written to a connection that the origin has not taken.
    pub(super) rooms: (u64, u64),
    pub(super) closes_each: bool,
    pub(super) closes_idle: Option<Duration>,
    /// Chances of a connection to be refused, and to be met by silence.
    pub(super) refuses: f64,
    pub(super) silent: f64,
    /// From when to when it is away: connections are reset, and new ones refused.
    pub(super) away: Option<(Duration, Duration)>,
    /// Chance of each in an answer; the first that happens is it.
    pub(super) faults: Vec<(f64, Fault)>,
    /// Attempts at the same bytes from the first on that may meet a fault; those after do not.
    pub(super) faulty_attempts: u32,
    /// What of a put may meet them; everything where there is none.
    pub(super) faulty_steps: Vec<Step>,
    pub(super) replaced: Option<Replaced>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length,
    Chunked,
    UntilClose,
}

/// What the origin does with a part that has a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trailers {
    Taken,
    /// With that status and code.
    Refused(u16, &'static str),
    /// The framing is stored as content.
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Etag {
    Strong,
    Weak,
    /// Versions differ by Last-Modified.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Alive,
    Refuses,
    Silent,
    /// Refuses until then.
    Returns(Duration),
    /// Its connections carry so many times less.
    Slow(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Part of the body, then a reset.
    Reset,
    /// Part of the body, then a clean end.
    Truncate,
    /// Part of the body, then nothing for this long; for ever where it is longer than patience.
    Stall(Duration),
    /// No answer.
    Silence,
    /// 500.
    Fails,
    /// 503, perhaps with the wait that it asks for.
    Throttles(Option<ThrottleHint>),
    WrongRange(Wrong),
    /// One bit of the body is another.
    Flip,
    /// What was asked for is done, and the answer never comes. Only of a put.
    Lost,
}

/// How an origin asks to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThrottleHint {
    RetryAfter(Duration),
    /// OSS: `x-oss-qos-delay-time`.
    QosDelay(Duration),
}

impl ThrottleHint {
    pub(super) fn wait(self) -> Duration {
        match self {
            ThrottleHint::RetryAfter(wait) | ThrottleHint::QosDelay(wait) => wait,
        }
    }
}

/// What is wrong with the answer to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It begins one byte later.
    Shifted,
    /// It ends one byte before its end.
    Shorter,
    /// No Content-Range.
    Unnamed,
    /// 200, and the whole object.
    Whole,
}

/// The object is replaced once it has been asked for so many times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replaced {
    pub(super) after_gets: u32,
    pub(super) bytes: u64,
    /// Whether `If-Match` is answered with 412; an origin that ignores it sends the new bytes.
    pub(super) keeps_if_match: bool,
}

impl Scenario {
    /// The scenario of a seed: a shape of the list, drawn by it.
    pub(super) fn of(seed: u64) -> Scenario {
        let mut draw = Draw::new(seed);
        // So that neighbouring seeds go round all shapes.
        let (name, shape) = super::shapes::SHAPES[(seed % super::shapes::SHAPES.len() as u64) as usize];
        let mut scenario = super::shapes::fair(&mut draw);
        (scenario.seed, scenario.shape) = (seed, name);
        shape(&mut scenario, &mut draw);
        scenario.soften_pieces();
        scenario
    }

    /// No piece is on its way so long that it looks like a stall: of a slow origin bytes trickle.
    fn soften_pieces(&mut self) {
        let (origin, tuning) = (&mut self.origin, &self.tuning);
        let slowest = (origin.total_rate / u64::from(tuning.parallel)).min(origin.rate);
        let most = (slowest * tuning.stall_ms / 8_000).max(1);
        origin.pieces = (origin.pieces.0.min(most), origin.pieces.1.min(most));
    }

    /// Whether nothing stands in the way of success.
    pub(super) fn is_fair(&self) -> bool {
        let Origin { faults, replaced, addresses, refuses, silent, away, .. } = &self.origin;
        faults.is_empty()
            && replaced.is_none()
            && self.interruption.is_none()
            && addresses.iter().all(|&address| address == Address::Alive)
            && *refuses == 0.0
            && *silent == 0.0
            && away.is_none()
    }

    /// Whether the pieces of one body may be so far apart, where all share the link, that it passes for
    /// silent.
    pub(super) fn is_thin(&self) -> bool {
        let origin = &self.origin;
        let apart_ms = 1000 * origin.pieces.1 * u64::from(self.tuning.parallel) / origin.total_rate;
        apart_ms > PATIENCE_MIN.as_millis() as u64
    }

    /// Whether the answer about the last byte is the first part as well.
    pub(super) fn wants_the_last_byte_alone(&self, size: u64) -> bool {
        size == 1 || matches!(self.task, Task::One { span: Span::Last(1), .. })
    }

    /// Whether the origin takes a trailer as it is meant, and states the checksum of the part.
    pub(super) fn takes_trailers(&self) -> bool {
        self.origin.trailers == Trailers::Taken && self.origin.states_checksum
    }

    /// Whether a status of 200 means that the origin has the content of a part.
    pub(super) fn confirms(&self, is_framed: bool) -> bool {
        !is_framed || self.takes_trailers()
    }

    /// The put that it is about, if it is.
    pub(super) fn put(&self) -> Option<PutTask> {
        match self.task {
            Task::Put(put) => Some(put),
            _ => None,
        }
    }

    /// How long each part of a put is but the last: of a stream, whole pages.
    pub(super) fn sent_part_bytes(&self) -> u64 {
        match self.put().map(|put| put.from) {
            Some(From::Stream(_)) => self.tuning.part_bytes.next_multiple_of(4096),
            _ => self.tuning.part_bytes,
        }
    }

    /// Whether what is asked of that object is for a put.
    pub(super) fn writes(&self, object: usize) -> bool {
        object == 0 && self.put().is_some()
    }

    pub(super) fn streams(&self) -> bool {
        matches!(self.task, Task::One { land: Land::Stream(_), .. })
    }

    pub(super) fn stream_rate(&self) -> Option<u64> {
        match self.task {
            Task::One { land: Land::Stream(rate), .. } => rate,
            _ => None,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario { shape, origin, tuning, objects, task, interruption, .. } = self;
        writeln!(f, "shape: {shape}")?;
        writeln!(f, "origin: {origin:?}")?;
        writeln!(f, "settings: {tuning:?}")?;
        match objects.as_slice() {
            [object] => writeln!(f, "object: {} bytes", object.bytes)?,
            objects => writeln!(
                f,
                "objects: {}",
                objects.iter().map(|o| o.bytes.to_string() + " ").collect::<String>()
            )?,
        }
        writeln!(f, "task: {task:?}")?;
        match interruption {
            Some((interruption, at)) => write!(f, "interrupted: {interruption:?} after {at:?}"),
            None => write!(f, "not interrupted"),
        }
    }
}
