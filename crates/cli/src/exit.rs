//! The exit codes of DESIGN §7, and the one place that gives an engine's error its code and its name in JSON.

use flatout_engine::ErrorKind;
use serde::{Deserialize, Serialize};

/// How a run ended. In order of gravity: of several outcomes the greatest is the run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Exit {
    /// Everything asked for is done.
    Clean,
    /// Something that was asked for did not happen.
    Failed,
    /// The origin kept asking for less until retries ran out.
    Throttled,
    /// The origin refuses access.
    Refused,
    /// The command line, the environment or a URL is wrong.
    Usage,
    /// A signal ended it.
    Interrupted,
}

impl Exit {
    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Clean => 0,
            Exit::Failed => 1,
            Exit::Usage => 4,
            Exit::Refused => 5,
            Exit::Throttled => 6,
            Exit::Interrupted => 130,
        }
    }
}

/// The code for an engine's error.
pub fn of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Usage => Exit::Usage,
        ErrorKind::Denied => Exit::Refused,
        ErrorKind::Throttled => Exit::Throttled,
        ErrorKind::Cancelled => Exit::Interrupted,
        _ => Exit::Failed,
    }
}

/// The kind's name in JSON events; part of schema v1.
pub fn name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Usage => "usage",
        ErrorKind::NotFound => "not_found",
        ErrorKind::Denied => "denied",
        ErrorKind::Untrusted => "untrusted",
        ErrorKind::Throttled => "throttled",
        ErrorKind::Changed => "changed",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Network => "network",
        ErrorKind::Timeout => "timeout",
        ErrorKind::LocalIo => "local_io",
        ErrorKind::Cancelled => "cancelled",
        ErrorKind::Unsupported => "unsupported",
        _ => "internal",
    }
}
