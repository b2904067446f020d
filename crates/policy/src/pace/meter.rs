//! Rounds: ticks gathered into measurements, without those that say nothing about the level.

use std::time::{Duration, Instant};

use super::Sample;

/// How far in flight may be from the level, as a share of it, for a tick to count.
const NEAR: f64 = 0.1;

/// The new attempts of a level carry their share once this much of the usual number has a body that moves.
const CARRIES: f64 = 0.85;

/// How long a level waits for that before it is measured as it is, in rounds.
const CARRIES_WAIT: u32 = 4;

/// A glance looks back about this far.
const GLANCE: f64 = 0.05;

/// Threads that run, or wait for a core, for more of their time than this have no use for more connections:
/// there is always one that they have not got to yet. With 16 toward an nginx beside it on two cores it is
/// 0.92 to 1.0, with the 8 that carry as much 0.5 to 0.9.
pub(crate) const SATURATED: f64 = 0.9;

/// What some level carried for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Span {
    bytes: f64,
    /// Attempts in flight, times seconds.
    slots: f64,
    seconds: f64,
    /// Of these, how many our threads ran or waited for a core.
    busy: f64,
    /// How many rounds it holds, those that are half forgotten counted less.
    rounds: f64,
}

impl Span {
    fn tick(sample: &Sample, seconds: f64) -> Span {
        let slots = f64::from(sample.in_flight) * seconds;
        Span { bytes: sample.bytes as f64, slots, seconds, busy: sample.busy * seconds, rounds: 0.0 }
    }

    /// Bytes a second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Attempts in flight, on average.
    pub(crate) fn level(&self) -> f64 {
        self.slots / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// The cores were what limited: more in flight cannot bring more.
    pub(crate) fn is_saturated(&self) -> bool {
        self.busy > SATURATED * self.seconds
    }

    pub(crate) fn rounds(&self) -> f64 {
        self.rounds
    }

    pub(crate) fn add(&mut self, other: Span) {
        self.bytes += other.bytes;
        self.slots += other.slots;
        self.seconds += other.seconds;
        self.busy += other.busy;
        self.rounds += other.rounds;
    }

    /// Makes what it holds weigh less than what comes.
    pub(crate) fn fade(&mut self, weight: f64) {
        self.bytes *= weight;
        self.slots *= weight;
        self.seconds *= weight;
        self.busy *= weight;
        self.rounds *= weight;
    }

    /// It carried that rate at least.
    pub(crate) fn raise(&mut self, rate: f64) {
        self.bytes = self.bytes.max(rate * self.seconds);
    }
}

/// A look at what is carried now, before a round is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Glance {
    pub(crate) span: Span,
    /// In flight at the last tick.
    pub(crate) in_flight: f64,
    /// The new attempts of the level have begun to move bytes: what is seen is no longer the level before.
    pub(crate) fresh: bool,
    /// Rounds since the level was set.
    pub(crate) age: f64,
}

/// Gathers ticks into rounds. A round begins once the level is reached and its new attempts carry; it is
/// thrown away when a tick leaves the level, is held up by something of ours, or when nothing at all arrived.
#[derive(Debug)]
pub(crate) struct Meter {
    round: Span,
    reached: bool,
    /// When the level was set, and how many requests were answered since.
    since: Instant,
    answers: f64,
    /// What share of the attempts in flight has a body that moves, usually.
    share: f64,
    /// How many of them did when the level was set.
    moved: f64,
    glance: Glance,
}

impl Meter {
    pub(crate) fn new(now: Instant) -> Meter {
        let (round, glance) = (Span::default(), Glance::default());
        Meter { round, reached: false, since: now, answers: 0.0, share: 0.5, moved: 0.0, glance }
    }

    /// The level is another from now on.
    pub(crate) fn restart(&mut self, now: Instant) {
        *self = Meter { share: self.share, moved: self.moved, ..Meter::new(now) };
    }

    /// A tick that ended at `now`, at `level`; the round that ends with it, if one does.
    pub(crate) fn on_tick(
        &mut self,
        now: Instant,
        elapsed: Duration,
        sample: &Sample,
        level: u32,
        round: Duration,
    ) -> Option<Span> {
        let seconds = elapsed.as_secs_f64();
        self.look(now, sample, seconds, round);
        let (in_flight, level) = (f64::from(sample.in_flight), f64::from(level));
        let near = (in_flight - level).abs() <= (level * NEAR).max(1.0) && !sample.is_held_up();
        if !self.reached {
            self.answers += f64::from(sample.answers);
            // Bodies of small objects are over before they are seen.
            let carries = f64::from(sample.moving) >= CARRIES * self.share * level || self.answers >= level;
            self.reached = near && (carries || now.duration_since(self.since) >= CARRIES_WAIT * round);
            return None;
        }
        if !near {
            self.round = Span::default();
            return None;
        }
        self.round.add(Span::tick(sample, seconds));
        self.moved = f64::from(sample.moving);
        let share = self.moved / in_flight.max(1.0);
        self.share += (share - self.share) * (seconds / 0.3).min(1.0);
        // The clock of a tick is not exact.
        if self.round.seconds < round.as_secs_f64() * 0.99 {
            return None;
        }
        let done = Span { rounds: 1.0, ..std::mem::take(&mut self.round) };
        (done.bytes > 0.0).then_some(done)
    }

    /// What the level carries so far, once that is worth a look.
    pub(crate) fn glance(&self) -> Option<Glance> {
        // Of the level before, one tick is enough: it only corrects what was measured.
        let least = if self.glance.fresh { GLANCE * 0.9 } else { GLANCE * 0.4 };
        let old_enough = !self.glance.fresh || self.glance.age >= 1.0;
        (self.glance.span.seconds > least && old_enough).then_some(self.glance)
    }

    fn look(&mut self, now: Instant, sample: &Sample, seconds: f64, round: Duration) {
        let fresh = self.glance.fresh || f64::from(sample.moving) > 1.15 * self.moved + 1.0;
        let age = now.duration_since(self.since).as_secs_f64() / round.as_secs_f64();
        if sample.is_held_up() || fresh != self.glance.fresh {
            self.glance = Glance { fresh, ..Glance::default() };
            return;
        }
        let mut span = self.glance.span;
        if span.seconds > GLANCE * 0.9 {
            span.fade(0.7);
        }
        span.add(Span::tick(sample, seconds));
        self.glance = Glance { span, in_flight: f64::from(sample.in_flight), fresh, age };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Gated;

    const ROUND: Duration = Duration::from_millis(100);

    fn steady(in_flight: u32) -> Sample {
        Sample { bytes: 1000, in_flight, moving: in_flight, ..Sample::default() }
    }

    /// Ticks of 25 ms at level 20; the rates of the rounds that they make, in bytes a second.
    #[track_caller]
    fn check(samples: &[(usize, Sample)], expected: &[f64]) {
        let start = Instant::now();
        let tick = Duration::from_millis(25);
        let mut meter = Meter::new(start);
        let samples = samples.iter().flat_map(|(times, sample)| std::iter::repeat_n(sample, *times));
        let rounds: Vec<f64> = (1..)
            .zip(samples)
            .filter_map(|(number, sample)| meter.on_tick(start + number * tick, tick, sample, 20, ROUND))
            .map(|round| round.rate().round())
            .collect();
        assert_eq!(rounds, expected);
    }

    #[test]
    fn a_round_is_a_tenth_of_a_second_at_the_level() {
        // The first tick finds the level reached, the others make rounds.
        check(&[(1, steady(20)), (8, steady(20))], &[40_000.0, 40_000.0]);
        check(&[(10, steady(10)), (1, steady(19)), (4, steady(21))], &[40_000.0]);
    }

    #[test]
    fn what_says_nothing_about_the_level_is_thrown_away() {
        let idle = Sample { starved: true, ..steady(20) };
        let gated = Sample { gated: Gated { disk: 3, ..Gated::default() }, ..steady(20) };
        let silent = Sample { bytes: 0, ..steady(20) };
        for odd in [steady(15), steady(26), idle, gated] {
            check(&[(4, steady(20)), (1, odd), (4, steady(20))], &[40_000.0]);
            check(&[(1, steady(20)), (40, odd)], &[]);
        }
        check(&[(1, steady(20)), (40, silent)], &[]);
        // A few that wait for the disk are no gate.
        let hardly = Sample { gated: Gated { disk: 2, ..Gated::default() }, ..steady(20) };
        check(&[(5, hardly)], &[40_000.0]);
    }

    #[test]
    fn a_level_is_measured_once_its_attempts_carry_or_after_a_while() {
        let opening = Sample { moving: 2, ..steady(20) };
        check(&[(6, opening), (1, steady(20)), (4, steady(20))], &[40_000.0]);
        check(&[(16, opening), (4, opening)], &[40_000.0]);
    }
}
