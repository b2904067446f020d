//! The wind tunnel (docs/wind-tunnel.md): injects faults into responses, reproducibly from a seed.
//!
//! [`FaultService`] stands between hyper and the front. It asks [`choice`], a pure function, whether a
//! request or its answer meets with a fault, and which; faults of a body are [`FaultyBody`]'s, and
//! where a connection has to end [`Signal`] tells its socket. Without a fault plan the front serves
//! connections directly, and none of this code runs.

mod body;
mod choice;
mod code;
mod limits;
mod log;
mod replacing;
mod service;
mod signal;
mod write;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use code::ErrorCode;
pub(crate) use replacing::ReplacingBackend;
pub(crate) use service::{FaultInjector, FaultService};
pub(crate) use signal::{Closer, Signal};
pub use write::{WriteFault, WriteStep};

/// The faults that an origin injects. By default none.
///
/// Whether an answer meets with a fault follows from the seed, the object, the last byte that is asked for
/// and how often that was asked for so far; never from when a request arrives. So a run can be repeated
/// whatever its timing: a body that is asked for again from where it stopped keeps its last byte, while where
/// it stopped depends on timing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// A seed always gives the same faults.
    pub seed: u64,
    /// In their order: an answer meets with the first that chance chooses for it, and with no other.
    pub faults: Vec<Fault>,
    /// Requests for objects a second; those beyond get a SlowDown. This one depends on arrival times.
    pub throttle: Option<f64>,
    /// For how long OSS says, with those refusals, that it held the request back (`x-oss-qos-delay-time`).
    pub qos_delay: Option<Duration>,
    /// From this GET of an object on, counted from 1 for each, it has other bytes and another ETag.
    pub replace_after: Option<u64>,
    /// For how long each session token is taken, from its first use on.
    pub expire_token: Option<Duration>,
    /// Seconds by which the origin's clock is ahead: in Date, and where the times of signatures are checked.
    pub clock: i64,
    /// A file to which a line of JSON is appended for each request when its answer has ended: see
    /// docs/wind-tunnel.md. All are there when the origin has stopped.
    pub log: Option<PathBuf>,
}

impl FaultPlan {
    /// Whether it injects no fault: a log alone is none.
    pub fn is_still(&self) -> bool {
        *self == FaultPlan { seed: self.seed, log: self.log.clone(), ..FaultPlan::default() }
    }
}

impl fmt::Display for FaultPlan {
    /// By the names of the flags of `flatout serve`; the log is left out.
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

/// A fault of a GET, or of a request that writes. Its place in the body is a chosen fraction of its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// Somewhere in the body nothing is sent for this time; then the rest is.
    Stall(Duration),
    /// Somewhere in the body the connection is reset.
    Reset,
    /// Somewhere in the body the connection ends in good order.
    Truncate,
    /// The body is sent at this rate, in bytes a second.
    Slow(u64),
    /// This refusal instead of an answer; HEADs and listings meet with it too.
    Error(ErrorCode),
    /// A range is answered by another one of the object, which Content-Range admits.
    WrongRange,
    /// One bit of the body is another; lengths and checksums stay those of the true bytes.
    Flip,
    /// Of a request that writes.
    Write(WriteFault),
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
            FaultKind::Write(fault) => fault.name(),
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
            FaultKind::Write(fault) => write!(out, "{fault}"),
            _ => Ok(()),
        }
    }
}
