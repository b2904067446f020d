//! The exit codes of DESIGN §7, and the one place that gives an engine's error its code.

use flatout_engine::ErrorKind;
use serde::{Deserialize, Serialize};

/// How a run ended. In order of gravity: of several outcomes the greatest is the run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Exit {
    /// Everything asked for is done.
    Clean,
    /// Something that was asked for was left out, with a warning.
    LeftOut,
    /// Something that was asked for did not happen.
    Failed,
    /// What there is to do is not known to its end: a listing broke off.
    Incomplete,
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
            Exit::LeftOut => 2,
            Exit::Incomplete => 3,
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
