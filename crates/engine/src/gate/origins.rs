//! What a client asks of its origins, and what holds it back there: for people who look while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Gate, Gates};
use crate::base::limited_by::LimitedBy;
use crate::base::operation::Direction;
use flatout_policy::outage::Waited;

/// One origin, as this client asks it. What is not said to be of now is since the client was made.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginStats {
    /// `https://storage.example.com:443`, without a bucket.
    pub origin: String,
    /// In which direction.
    pub direction: Direction,
    /// Parts and small objects that are asked for now.
    pub in_flight: u32,
    /// How many may be now.
    pub parallel: u32,
    /// Connections for objects that are open now, idle ones included.
    pub connections: u32,
    /// Connections for objects that were opened.
    pub connected: u64,
    /// Requests that it has answered.
    pub answers: u64,
    /// Attempts that were tried again.
    pub retries: u64,
    /// Answers by which it asked for less: 503, 429, or one that it says it held back.
    pub throttled: u64,
    /// It is away, and waited for.
    pub outage: Option<OriginOutage>,
    /// What holds the speed back now; `None` while nothing is asked for.
    pub limited_by: Option<LimitedBy>,
    /// For how long each has, by [`LimitedBy::name`]; those that never have are left out.
    pub limited: Vec<(&'static str, Duration)>,
}

/// How an origin is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginOutage {
    /// For how long so far, and at most.
    pub waited: Waited,
    /// As the last attempt said it: `cannot connect to 127.0.0.1:9000: Connection refused`.
    pub why: String,
}

/// What a gate counts for them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// One for each that is open, and this one.
    open: Arc<()>,
    connected: AtomicU64,
    answers: AtomicU64,
    retries: AtomicU64,
    throttled: AtomicU64,
}

/// A connection counts as long as it holds this.
#[derive(Debug)]
pub(crate) struct OpenConnection(#[allow(dead_code, reason = "it is there to be counted")] Arc<()>);

impl Counts {
    pub(super) fn on_connected(&self) -> OpenConnection {
        self.connected.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self.open.clone())
    }

    pub(super) fn on_answer(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_throttled(&self) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
    }
}

impl Gates {
    /// By origin.
    pub(crate) fn stats(&self) -> Vec<OriginStats> {
        let gates = self.lock();
        let mut stats: Vec<OriginStats> = gates
            .iter()
            .map(|((origin, direction), gate)| gate.stats(origin.to_string(), *direction))
            .collect();
        drop(gates);
        stats.sort_by(|one, other| (&one.origin, one.direction).cmp(&(&other.origin, other.direction)));
        stats
    }
}

impl Gate {
    fn stats(&self, origin: String, direction: Direction) -> OriginStats {
        let tally = self.tally();
        let Counts { open, connected, answers, retries, throttled } = &self.counts;
        OriginStats {
            origin,
            direction,
            in_flight: self.slots.running(),
            parallel: self.limit(),
            connections: (Arc::strong_count(open) - 1) as u32,
            connected: connected.load(Ordering::Relaxed),
            answers: answers.load(Ordering::Relaxed),
            retries: retries.load(Ordering::Relaxed),
            throttled: throttled.load(Ordering::Relaxed),
            outage: self.presence.outage().map(|(waited, why)| OriginOutage { waited, why }),
            // Between two who work it says what was true of the first.
            limited_by: tally.now().filter(|_| self.is_ticking.load(Ordering::Relaxed)),
            limited: tally.times().collect(),
        }
    }
}
