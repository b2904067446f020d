//! Rounds: ticks gathered into measurements, without those that say nothing about the level.

use std::time::{Duration, Instant};

use super::Sample;

/// How far from the level a tick may be that still counts for it.
const NEAR: f64 = 0.1;

/// What a level carried for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Span {
    bytes: f64,
    /// Attempts in flight, times seconds.
    slots: f64,
    pub(super) seconds: f64,
    /// Rounds in it, those that were forgotten taken off.
    pub(super) rounds: f64,
}

impl Span {
    /// Bytes a second.
    pub(super) fn rate(&self) -> f64 {
        self.bytes / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Attempts in flight, on average.
    pub(super) fn level(&self) -> f64 {
        self.slots / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Its rate is at least that.
    pub(super) fn raise(&mut self, rate: f64) {
        self.bytes = self.bytes.max(rate * self.seconds);
    }

    pub(super) fn add(&mut self, other: Span) {
        self.bytes += other.bytes;
        self.slots += other.slots;
        self.seconds += other.seconds;
        self.rounds += other.rounds;
    }

    /// Makes what it holds weigh less than what comes.
    pub(super) fn fade(&mut self, weight: f64) {
        self.bytes *= weight;
        self.slots *= weight;
        self.seconds *= weight;
        self.rounds *= weight;
    }
}

/// Gathers ticks into rounds. A round begins once the level is reached and the new attempts carry their share; it is
/// thrown away when a tick leaves the level, waits for a gate of ours, or runs out of parts.
#[derive(Debug)]
pub(super) struct Meter {
    round: Span,
    reached: bool,
    /// When the level was set.
    since: Instant,
    /// What share of the attempts in flight receives, usually.
    receiving: f64,
    /// How many received when the level was set.
    received: f64,
    /// The last ticks since the level was set or its new attempts began to receive.
    glance: Glance,
}

/// A look at what is carried now, before a round is over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Glance {
    pub(super) span: Span,
    /// New attempts receive: what is seen is no longer the level before.
    pub(super) fresh: bool,
    /// At the last tick.
    pub(super) in_flight: f64,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Meter {
        Meter {
            round: Span::default(),
            reached: false,
            since: now,
            receiving: 0.5,
            received: 0.0,
            glance: Glance::default(),
        }
    }

    /// The level is another from now on.
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Meter {
            round: Span::default(),
            reached: false,
            since: now,
            glance: Glance::default(),
            ..*self
        };
    }

    /// How many rounds ago the level was set.
    pub(super) fn age(&self, now: Instant, round: Duration) -> f64 {
        (now - self.since).as_secs_f64() / round.as_secs_f64()
    }

    /// What the level just set carries so far, once that is worth a look: 50 ms of ticks.
    pub(super) fn glance(&self, now: Instant, round: Duration) -> Option<Glance> {
        let seen = self.glance.span.seconds > if self.glance.fresh { 0.045 } else { 0.02 } && (!self.glance.fresh || now - self.since >= round.min(Duration::from_millis(100)));
        seen.then_some(self.glance)
    }

    fn look(&mut self, sample: &Sample, seconds: f64) {
        let receiving = f64::from(sample.receiving);
        let fresh = self.glance.fresh || receiving > 1.15 * self.received + 1.0;
        if sample.is_held() || fresh != self.glance.fresh {
            self.glance = Glance { fresh, ..Glance::default() };
            if sample.is_held() { return; }
            return;
        }
        self.glance.in_flight = f64::from(sample.in_flight);
        let slots = f64::from(sample.in_flight) * seconds;
        if self.glance.span.seconds > 0.08 {
            self.glance.span.fade(0.7);
        }
        self.glance.span.add(Span { bytes: sample.bytes as f64, slots, seconds, rounds: 0.0 });
    }

    /// `elapsed` ended at `now`; the round that ends with it, if one does.
    pub(super) fn on_tick(
        &mut self,
        now: Instant,
        elapsed: Duration,
        sample: &Sample,
        level: u32,
        round: Duration,
    ) -> Option<Span> {
        self.look(sample, elapsed.as_secs_f64());
        let (in_flight, level) = (f64::from(sample.in_flight), f64::from(level));
        let slack = (level * NEAR).max(1.0);
        let near = (in_flight - level).abs() <= slack && !sample.is_held();
        if !self.reached {
            let carries = f64::from(sample.receiving) >= 0.85 * self.receiving * level;
            self.reached = near && (carries || now - self.since >= 4 * round);
            return None;
        }
        if !near {
            self.round = Span::default();
            return None;
        }
        let seconds = elapsed.as_secs_f64();
        let slots = in_flight * seconds;
        self.round.add(Span { bytes: sample.bytes as f64, slots, seconds, rounds: 0.0 });
        self.received = f64::from(sample.receiving);
        let share = f64::from(sample.receiving) / in_flight.max(1.0);
        self.receiving += (share - self.receiving) * (seconds / 0.3).min(1.0);
        if self.round.seconds < round.as_secs_f64() * 0.99 {
            return None;
        }
        self.round.rounds = 1.0;
        Some(std::mem::take(&mut self.round))
    }
}
