//! The hedge: when a body has been silent for too long beside others, and whether what is missing may be
//! asked for a second time. Pure: times are arguments.
//!
//! ```text
//!   usual silence ├──┤            in which nothing comes of a body, the longest of each
//!   patience      ├───────────┤   several times that: from here on somebody else is asked for the rest
//! ```
//! docs/decisions/hedge.md says what was measured.

use std::time::Duration;

/// Patience where little is known, and its least: a busy machine is silent for some tens of milliseconds now
/// and then.
const PATIENCE_UNKNOWN: Duration = Duration::from_secs(1);
pub const PATIENCE_MIN: Duration = Duration::from_millis(200);
/// Bodies that must have been seen.
const SEEN_MIN: u32 = 4;
/// Patience is so many times the usual longest silence of a body, and that many of its deviations more than
/// it.
const SILENCES: u32 = 3;
const DEVIATIONS: u32 = 6;

/// Each body that came to its end earns so much of a hedge: at most one in twenty parts is asked for twice
/// (DESIGN §5).
pub const REFILL: f64 = 0.048;
/// What a shard may spend at first, and save up.
pub const BUDGET_FIRST: f64 = 2.0;
const BUDGET_MAX: f64 = 10.0;

/// What one shard has learnt of the bodies of an origin.
#[derive(Debug)]
pub struct Hedge {
    silence: Usual,
    catch_up: Usual,
    budget: f64,
}

impl Default for Hedge {
    fn default() -> Hedge {
        Hedge { silence: Usual::default(), catch_up: Usual::default(), budget: BUDGET_FIRST }
    }
}

impl Hedge {
    /// How long a body may be silent before somebody else is asked. Never longer than half of
    /// `stall_timeout`, after which it is given up anyway.
    pub fn patience(&self, stall_timeout: Duration) -> Duration {
        let patience = match self.silence.seen < SEEN_MIN {
            true => PATIENCE_UNKNOWN,
            false => (self.silence.mean * SILENCES)
                .max(self.silence.mean + self.silence.deviation * DEVIATIONS)
                // Before that much time has passed nobody else can have brought anything.
                .max(self.catch_up.mean)
                .max(PATIENCE_MIN),
        };
        patience.min(stall_timeout / 2)
    }

    /// The time that a rival needs to catch up: for a download the time to first byte, for an upload the time
    /// to send the whole body.
    pub fn on_catch_up(&mut self, took: Duration) {
        self.catch_up.add(took);
    }

    /// A body has come to its end, or was left, with this as its longest silence. One that was longer than
    /// `patience` is no usual one, but a whole origin that has become slower is found out nevertheless.
    pub fn on_body(&mut self, longest_silence: Duration, patience: Duration) {
        self.silence.add(longest_silence.min(patience));
    }

    /// A part has come to its end.
    pub fn on_success(&mut self) {
        self.budget = (self.budget + REFILL).min(BUDGET_MAX);
    }

    /// Takes one hedge out of the budget, if there is one.
    pub fn spend(&mut self) -> bool {
        let may = self.budget >= 1.0;
        if may {
            self.budget -= 1.0;
        }
        may
    }
}

/// What is usual, and how far others are from it: mean and mean deviation as RFC 6298 §2 has them for round
/// trips.
#[derive(Debug, Default)]
struct Usual {
    mean: Duration,
    deviation: Duration,
    seen: u32,
}

impl Usual {
    fn add(&mut self, sample: Duration) {
        if self.seen == 0 {
            (self.mean, self.deviation) = (sample, sample / 2);
        } else {
            self.deviation = (self.deviation * 3 + self.mean.abs_diff(sample)) / 4;
            self.mean = (self.mean * 7 + sample) / 8;
        }
        self.seen = self.seen.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(20);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The patience after bodies with these longest silences, in milliseconds.
    #[track_caller]
    fn check(
        silences_ms: impl IntoIterator<Item = u64>,
        catch_up_ms: u64,
        expected_ms: std::ops::RangeInclusive<u64>,
    ) {
        let mut hedge = Hedge::default();
        hedge.on_catch_up(ms(catch_up_ms));
        for silence_ms in silences_ms {
            hedge.on_body(ms(silence_ms), hedge.patience(STALL));
        }
        let found = hedge.patience(STALL).as_millis() as u64;
        assert!(expected_ms.contains(&found), "{found} ms");
    }

    #[test]
    fn patience_is_several_times_what_is_usual() {
        check([], 30, 1_000..=1_000);
        check([1; 3], 30, 1_000..=1_000);
        check([1; 100], 30, 200..=200);
        check([100; 100], 30, 300..=310);
        check([50, 150].repeat(50), 30, 380..=440);
        // An origin that takes its time for a head takes it for a second one, too.
        check([1; 100], 700, 700..=700);
        check([60_000; 100], 30, 10_000..=10_000);
    }

    #[test]
    fn a_stall_here_and_there_changes_little_and_a_slow_day_is_learnt() {
        let one_in_a_hundred = |at: u64| if at % 100 == 50 { 10_000 } else { 20 };
        check((0..1_000).map(one_in_a_hundred), 30, 200..=210);
        check((0..1_000).map(one_in_a_hundred).take(951), 30, 200..=600);
        // Ten bodies of an origin that has become ten times slower, and it is as usual as before.
        check([vec![50; 50], vec![500; 10]].concat(), 30, 900..=3_000);
        check([vec![50; 50], vec![500; 100]].concat(), 30, 1_450..=1_600);
    }

    #[test]
    fn patience_ends_before_the_stall_timeout_does() {
        assert_eq!(Hedge::default().patience(ms(300)), ms(150));
    }

    #[test]
    fn a_broad_slowdown_stays_in_budget() {
        let mut hedge = Hedge::default();
        let (mut spent, bodies) = (0, 10_000);
        for _ in 0..bodies {
            spent += u32::from(hedge.spend());
            hedge.on_success();
        }
        let most = BUDGET_FIRST + REFILL * f64::from(bodies);
        assert!(f64::from(spent) <= most && f64::from(spent) > most - 2.0, "{spent}");
        // What is saved up has an end.
        (0..bodies).for_each(|_| hedge.on_success());
        assert_eq!((0..100).filter(|_| hedge.spend()).count(), BUDGET_MAX as usize);
    }
}
