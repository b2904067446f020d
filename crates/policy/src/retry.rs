//! When to try again, and what counts as an attempt in vain. Pure: fault, chance and what has landed are
//! arguments. Full jitter, so that parts do not return in step.

use std::time::Duration;

/// What went wrong with an attempt, as far as retrying is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A reset, a body that ended early, a stall, a 500: the origin may be well a moment later.
    Transient,
    /// No connection came about, to any address.
    Unreached,
    /// 503, 429: the origin is down, or asks for less. A store that starts answers `SlowDown` too.
    Unavailable,
    /// The origin asks for less, and says for how long.
    Throttled,
    /// The origin was away for `--outage-timeout`.
    Away,
    /// Asking again would bring the same answer.
    Final,
}

const TRANSIENT_BASE_MS: u64 = 50;
const THROTTLED_BASE_MS: u64 = 500;
const WAIT_MAX_MS: u64 = 20_000;

/// An origin that serves others over the connections that it has may take a new one soon.
const UNREACHED_MAX_MS: u64 = 1_000;
/// So often in a row, which is about a minute: another name at the same store may be no name at all.
const UNREACHED_TIMES: u32 = 120;

/// How long to wait before attempt `attempt + 1` (attempts count from 1), or `None` to give up.
///
/// `chance` is in 0..1; `asked` is the origin's own Retry-After, a lower bound that is kept up to the longest
/// wait.
pub fn wait(
    fault: Fault,
    attempt: u32,
    retries_max: u32,
    asked: Option<Duration>,
    chance: f64,
) -> Option<Duration> {
    let (base_ms, max_ms) = match fault {
        Fault::Final | Fault::Away => return None,
        Fault::Transient => (TRANSIENT_BASE_MS, WAIT_MAX_MS),
        Fault::Unreached => (TRANSIENT_BASE_MS, UNREACHED_MAX_MS),
        Fault::Throttled | Fault::Unavailable => (THROTTLED_BASE_MS, WAIT_MAX_MS),
    };
    if attempt > retries_max {
        return None;
    }
    let ceiling_ms = base_ms.saturating_mul(1 << attempt.min(16)).min(max_ms);
    let jittered = Duration::from_millis((ceiling_ms as f64 * chance) as u64);
    Some(asked.map_or(jittered, |asked| asked.min(Duration::from_millis(WAIT_MAX_MS)) + jittered / 4))
}

/// How many times its retries something throttled is asked for again while the origin serves others.
const THROTTLED_PATIENCE: u32 = 4;

/// An attempt that landed this much was worth its request: a body that breaks again and again ends all the
/// same.
const WORTH_BYTES: u64 = 64 << 10;

/// The attempts at one thing that failed so far, and how many of the last ones brought nothing worth while.
#[derive(Debug, Default)]
pub struct Attempts {
    failed: u32,
    /// In a row since something worth while landed: these are what `--retries` bounds.
    in_vain: u32,
    /// In a row since then, those included in which the origin served others meanwhile: by these the waits
    /// grow.
    in_row: u32,
    /// By the attempt that is under way.
    landed_bytes: u64,
    /// What all had landed at the last failure.
    all_bytes: u64,
}

impl Attempts {
    /// The attempt under way has landed that much more.
    pub fn on_landed(&mut self, bytes: u64) {
        self.landed_bytes += bytes;
    }

    /// The attempt under way has failed: how long to wait before the next, or `None` to give up.
    ///
    /// `all_bytes` is what has landed by now through this shard, of all objects: while they land, an origin
    /// that throttles this one is working, and it is tried more often, though not for ever. A connection that
    /// does not come about while the origin serves others says nothing of the object: it is tried for about a
    /// minute.
    pub fn on_failure(
        &mut self,
        fault: Fault,
        all_bytes: u64,
        retries_max: u32,
        asked: Option<Duration>,
        chance: f64,
    ) -> Option<Duration> {
        let was_worth_it = std::mem::take(&mut self.landed_bytes) >= WORTH_BYTES;
        let is_throttled = matches!(fault, Fault::Throttled | Fault::Unavailable);
        let serves_others = is_throttled && all_bytes != self.all_bytes;
        self.failed += 1;
        self.all_bytes = all_bytes;
        if fault == Fault::Unreached && retries_max > 0 && self.in_row < UNREACHED_TIMES {
            self.in_row += 1;
            return wait(fault, self.in_row, u32::MAX, asked, chance);
        }
        (self.in_vain, self.in_row) = match (was_worth_it, serves_others) {
            (true, _) => (1, 1),
            (false, true) => (self.in_vain.max(1), self.in_row + 1),
            (false, false) => (self.in_vain + 1, self.in_row + 1),
        };
        if self.in_vain > retries_max || self.in_row > retries_max.saturating_mul(THROTTLED_PATIENCE) {
            return None;
        }
        wait(fault, self.in_row, u32::MAX, asked, chance)
    }

    /// The attempt under way has failed because the origin is away, which says nothing of what it was for: it
    /// uses up nothing.
    pub fn on_outage(&mut self) {
        self.landed_bytes = 0;
        self.failed += 1;
    }

    /// Whether the attempt under way, which has landed `bytes` and is silent, may be left for another: it
    /// then counts as one that failed.
    pub fn may_be_left_after(&self, bytes: u64, retries_max: u32) -> bool {
        bytes >= WORTH_BYTES && retries_max > 0 || self.in_vain < retries_max
    }

    /// The attempt under way has been left for another, which has begun.
    pub fn on_left(&mut self) {
        let was_worth_it = std::mem::take(&mut self.landed_bytes) >= WORTH_BYTES;
        (self.in_vain, self.in_row) = if was_worth_it { (1, 1) } else { (self.in_vain + 1, self.in_row + 1) };
        self.failed += 1;
    }

    /// How many attempts failed, those that were worth it included.
    pub fn failed(&self) -> u32 {
        self.failed
    }
}

/// Chance for jitter: SplitMix64 over a seed (Steele et al., 2014), enough to spread waits.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number in 0..1.
    pub fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fault: Fault, attempt: u32, asked_s: Option<u64>, chance: f64, expected_ms: Option<u64>) {
        let wait = wait(fault, attempt, 5, asked_s.map(Duration::from_secs), chance);
        assert_eq!(wait, expected_ms.map(Duration::from_millis), "{fault:?} attempt {attempt}");
    }

    #[test]
    fn waits_double_are_jittered_and_end() {
        check(Fault::Transient, 1, None, 1.0, Some(100));
        check(Fault::Transient, 1, None, 0.0, Some(0));
        check(Fault::Transient, 3, None, 1.0, Some(400));
        check(Fault::Transient, 5, None, 0.5, Some(800));
        check(Fault::Transient, 6, None, 0.5, None);
        check(Fault::Throttled, 1, None, 1.0, Some(1_000));
        check(Fault::Throttled, 5, None, 1.0, Some(16_000));
        check(Fault::Throttled, 1, Some(3), 0.0, Some(3_000));
        check(Fault::Throttled, 1, Some(3_600), 0.0, Some(20_000));
        check(Fault::Unreached, 4, None, 1.0, Some(800));
        check(Fault::Unreached, 5, None, 1.0, Some(1_000));
        check(Fault::Unavailable, 1, None, 1.0, Some(1_000));
        check(Fault::Final, 1, None, 0.5, None);
        check(Fault::Away, 1, None, 0.5, None);
    }

    /// A row of failures, each after an attempt that landed that many KiB and with that much landed by all,
    /// in KiB; the most that is waited before each next attempt, in ms. Two retries.
    fn check_row(failures: &[(Fault, u64, u64, Option<u64>)]) {
        let mut attempts = Attempts::default();
        for (number, (fault, landed_kib, all_kib, expected_ms)) in (1..).zip(failures) {
            attempts.on_landed(landed_kib << 10);
            let wait = attempts.on_failure(*fault, all_kib << 10, 2, None, 1.0);
            assert_eq!(wait, expected_ms.map(Duration::from_millis), "failure {number} of {failures:?}");
            assert_eq!(attempts.failed(), number);
        }
    }

    #[test]
    fn only_attempts_in_vain_use_up_the_retries() {
        use Fault::{Final, Throttled, Transient};
        check_row(&[(Transient, 0, 0, Some(100)), (Transient, 0, 0, Some(200)), (Transient, 0, 0, None)]);
        // What lands less than is worth a request is in vain.
        check_row(&[
            (Transient, 63, 63, Some(100)),
            (Transient, 63, 126, Some(200)),
            (Transient, 63, 189, None),
        ]);
        // What is worth it starts the count, and the waits, again; what fails then fails as at first.
        check_row(&[
            (Transient, 0, 0, Some(100)),
            (Transient, 0, 0, Some(200)),
            (Transient, 64, 64, Some(100)),
            (Transient, 9_999, 9_999, Some(100)),
            (Transient, 0, 9_999, Some(200)),
            (Transient, 0, 9_999, None),
        ]);
        // While others are served a throttled one waits longer and longer, and gives up late.
        check_row(&[
            (Throttled, 0, 0, Some(1_000)),
            (Throttled, 0, 1, Some(2_000)),
            (Throttled, 0, 2, Some(4_000)),
            (Throttled, 0, 3, Some(8_000)),
            (Throttled, 0, 4, Some(16_000)),
            (Throttled, 0, 5, Some(20_000)),
            (Throttled, 0, 5, Some(20_000)),
            (Throttled, 0, 5, None),
        ]);
        let served = |all_kib: u64, expected_ms: Option<u64>| (Throttled, 0, all_kib, expected_ms);
        let waits = [1_000, 2_000, 4_000, 8_000, 16_000, 20_000, 20_000, 20_000];
        let row = waits.iter().zip(1..).map(|(wait, all_kib)| served(all_kib, Some(*wait)));
        check_row(&row.chain([served(9, None)]).collect::<Vec<_>>());
        // That others are served says nothing about one that stalls or breaks.
        check_row(&[(Transient, 0, 1, Some(100)), (Transient, 0, 2, Some(200)), (Transient, 0, 3, None)]);
        check_row(&[(Final, 9_999, 9_999, None)]);
    }

    #[test]
    fn a_connection_refused_while_others_are_served_uses_up_no_retries() {
        let mut attempts = Attempts::default();
        let mut fails = || attempts.on_failure(Fault::Unreached, 0, 2, None, 1.0);
        assert!((0..UNREACHED_TIMES).all(|_| fails().is_some()) && fails().is_none());
        assert_eq!(Attempts::default().on_failure(Fault::Unreached, 0, 0, None, 1.0), None);
    }

    #[test]
    fn an_outage_uses_up_no_retries() {
        let mut attempts = Attempts::default();
        (0..1_000).for_each(|_| attempts.on_outage());
        for expected_ms in [Some(100), Some(200), None] {
            let wait = attempts.on_failure(Fault::Transient, 0, 2, None, 1.0);
            assert_eq!(wait, expected_ms.map(Duration::from_millis));
        }
        assert_eq!(attempts.failed(), 1_003);
    }

    #[test]
    fn what_is_left_counts_as_failed() {
        let mut attempts = Attempts::default();
        for _ in 0..2 {
            assert!(attempts.may_be_left_after(0, 2));
            attempts.on_left();
        }
        assert!(!attempts.may_be_left_after(WORTH_BYTES - 1, 2), "the last of a row ends as it ends");
        assert!(attempts.may_be_left_after(WORTH_BYTES, 2) && !attempts.may_be_left_after(WORTH_BYTES, 0));
        attempts.on_landed(WORTH_BYTES);
        attempts.on_left();
        assert!(attempts.may_be_left_after(0, 2));
        assert_eq!(attempts.on_failure(Fault::Transient, 0, 2, None, 1.0), Some(Duration::from_millis(200)));
        assert_eq!((attempts.on_failure(Fault::Transient, 0, 2, None, 1.0), attempts.failed()), (None, 5));
    }

    #[test]
    fn without_retries_nothing_is_tried_again() {
        for landed_bytes in [0, WORTH_BYTES] {
            let mut attempts = Attempts::default();
            attempts.on_landed(landed_bytes);
            assert_eq!(attempts.on_failure(Fault::Transient, landed_bytes, 0, None, 0.5), None);
        }
    }

    #[test]
    fn dice_stay_in_range_and_differ() {
        let mut dice = Dice::new(7);
        let rolls: Vec<f64> = (0..1000).map(|_| dice.roll()).collect();
        assert!(rolls.iter().all(|roll| (0.0..1.0).contains(roll)));
        let mean = rolls.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "mean {mean}");
    }
}
