//! The clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The wall clock, for signatures.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The tokio clock, which is the simulation's own in its tests.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
