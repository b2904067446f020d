//! Services that are no origins: those that give out keys. What they are asked, what they answer, and how
//! long they are waited for.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use flatout_settings::Settings;
use flatout_wire::request::Request;

use crate::base::error::Error;
use flatout_policy::outage::NEVER_ANSWERED_MAX;

/// Who sends what a service is asked.
pub(crate) trait ServiceClient: Send + Sync {
    /// The whole answer, whatever its status; blocks.
    ///
    /// # Errors
    /// The network's; `Cancelled` once the client is closed.
    fn ask(&self, question: ServiceRequest) -> Result<ServiceReply, Error>;
}

/// What a service that is no origin is asked, and for how long.
pub(crate) struct ServiceRequest {
    pub(crate) request: Request,
    pub(crate) body: Bytes,
    pub(crate) patience: Patience,
}

/// How long a service is waited for, and how often it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    pub(crate) connect: Duration,
    pub(crate) answer: Duration,
    pub(crate) attempts: u32,
}

impl Patience {
    /// For instance metadata: where there is none, nobody answers, and the question has cost no time. Where
    /// there is, it is waited for like a [`Patience::SERVICE`].
    pub const METADATA: Patience =
        Patience { connect: Duration::from_secs(1), answer: Duration::from_secs(2), attempts: 1 };
    /// For a service that is meant to be there: while it is away it is asked for as long as an origin would
    /// be.
    pub const SERVICE: Patience =
        Patience { connect: Duration::from_secs(5), answer: Duration::from_secs(10), attempts: 3 };

    /// How long a service may be away, which has been reached before or not.
    pub(crate) fn outage(self, was_reached: bool, settings: &Settings) -> Duration {
        let timeout = settings.outage_timeout();
        match (was_reached, self.attempts) {
            (true, _) => timeout,
            (false, 1) => Duration::ZERO,
            (false, _) => timeout.min(NEVER_ANSWERED_MAX),
        }
    }
}

/// A service's answer, of whatever status. `Debug` does not show the body, which may hold keys.
pub struct ServiceReply {
    /// The HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
}

impl fmt::Debug for ServiceReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({}, {} bytes)", self.status, self.body.len())
    }
}
