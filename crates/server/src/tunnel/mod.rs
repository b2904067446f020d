//! The wind tunnel: bad days for whoever talks to an origin, made on purpose and the same each time.
//!
//! [`Passage`] stands between hyper and the front. It asks [`choice`], a pure function, whether an answer meets with a fault,
//! and which; faults of the body are [`Blown`]'s, and where a connection has to end [`Cue`] tells its socket.
//! Without a tunnel a connection is served by the front itself, and none of this is on its road.

mod admission;
mod blown;
mod choice;
mod code;
mod cue;
mod log;
mod passage;
mod replaced;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use code::ErrorCode;
pub(crate) use cue::{Cue, Ending};
pub(crate) use passage::{Passage, Wind};
pub(crate) use replaced::Replaced;

/// What goes wrong at an origin. By default nothing.
///
/// Whether an answer meets with a fault follows from the seed, the object, the last byte that is asked for and how
/// often that was asked for so far; never from when a request arrives. So a run can be repeated whatever its timing: a body
/// that is asked for again from where it stopped keeps its last byte, while where it stopped depends on timing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tunnel {
    /// The same seed gives the same faults.
    pub seed: u64,
    /// In their order: an answer meets with the first that chance chooses for it, and with no other.
    pub faults: Vec<Fault>,
    /// Requests for objects that are let in a second; those beyond are told to slow down. This one follows arrival.
    pub throttle: Option<f64>,
    /// For how long OSS says, with those refusals, that it held the request back (`x-oss-qos-delay-time`).
    pub qos_delay: Option<Duration>,
    /// From this GET of an object on, counted from 1 for each, it has other bytes and another ETag.
    pub replace_after: Option<u64>,
    /// For how long each session token is taken, from its first use on.
    pub expire_token: Option<Duration>,
    /// Seconds by which the origin's clock is ahead: in Date, and where the times of signatures are checked.
    pub clock: i64,
    /// A file to which a line of JSON is appended for each request when its answer has ended: see docs/wind-tunnel.md.
    /// All are there when the origin has stopped.
    pub log: Option<PathBuf>,
}

impl Tunnel {
    /// Whether nothing goes wrong: a log alone is kept in the best of weather.
    pub fn is_still(&self) -> bool {
        *self == Tunnel { seed: self.seed, log: self.log.clone(), ..Tunnel::default() }
    }
}

impl fmt::Display for Tunnel {
    /// What is asked of it, by the names of the flags of `flatout serve`; a log alone is no weather.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<String> = self.faults.iter().map(Fault::to_string).collect();
        all.extend(self.throttle.map(|rate| format!("throttle {rate}/s")));
        all.extend(self.qos_delay.map(|delay| format!("qos-delay {}", delay.as_millis())));
        all.extend(self.replace_after.map(|gets| format!("replace-after {gets}")));
        all.extend(self.expire_token.map(|life| format!("expire-token {life:?}")));
        all.extend((self.clock != 0).then(|| format!("clock {:+}s", self.clock)));
        write!(out, "{}; seed {}", all.join(", "), self.seed)
    }
}

/// A fault, and how likely each answer is to meet with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// From 0, never, to 1, always.
    pub chance: f64,
    pub kind: FaultKind,
}

/// What befalls a GET of an object. Where in a body it happens is a chosen fraction of the bytes that are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// Somewhere in the body nothing more comes for so long; then the rest does.
    Stall(Duration),
    /// Somewhere in the body the connection is reset.
    Reset,
    /// Somewhere in the body the connection ends in good order.
    Truncate,
    /// The body comes at so many bytes a second.
    Slow(u64),
    /// This refusal instead of an answer; HEADs and listings meet with it too.
    Error(ErrorCode),
    /// A range is answered by another one of the object, which Content-Range admits.
    WrongRange,
    /// One bit of the body is another; lengths and checksums stay those of the true bytes.
    Flip,
}

impl FaultKind {
    /// As the log has it.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Stall(_) => "stall",
            FaultKind::Reset => "reset",
            FaultKind::Truncate => "truncate",
            FaultKind::Slow(_) => "slow",
            FaultKind::Error(_) => "error",
            FaultKind::WrongRange => "wrong-range",
            FaultKind::Flip => "flip",
        }
    }
}

impl fmt::Display for Fault {
    /// As it is given to `flatout serve`, without the dashes: `stall 0.05:30s`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.kind.name(), self.chance)?;
        match self.kind {
            FaultKind::Stall(time) => write!(out, ":{time:?}"),
            FaultKind::Slow(rate) => write!(out, ":{rate}B/s"),
            FaultKind::Error(code) => write!(out, ":{code}"),
            _ => Ok(()),
        }
    }
}
