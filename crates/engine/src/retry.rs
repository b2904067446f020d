//! When to try again: one pure function of fault, attempt and chance. Full jitter, so that parts do not return in step.

use std::time::Duration;

/// What went wrong with an attempt, as far as retrying is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No connection, a reset, a body that ended early, a stall, a 500: the origin may be well a moment later.
    Transient,
    /// 503, 429: the origin asks for less.
    Throttled,
    /// Asking again would bring the same answer.
    Final,
}

const TRANSIENT_BASE_MS: u64 = 50;
const THROTTLED_BASE_MS: u64 = 500;
const WAIT_MAX_MS: u64 = 20_000;

/// How long to wait before attempt `attempt + 1` (attempts count from 1), or `None` to give up.
///
/// `chance` is in 0..1; `asked` is the origin's own Retry-After, a lower bound that is kept up to the longest wait.
pub(crate) fn wait(
    fault: Fault,
    attempt: u32,
    retries_max: u32,
    asked: Option<Duration>,
    chance: f64,
) -> Option<Duration> {
    let base_ms = match fault {
        Fault::Final => return None,
        Fault::Transient => TRANSIENT_BASE_MS,
        Fault::Throttled => THROTTLED_BASE_MS,
    };
    if attempt > retries_max {
        return None;
    }
    let ceiling_ms = base_ms.saturating_mul(1 << attempt.min(16)).min(WAIT_MAX_MS);
    let jittered = Duration::from_millis((ceiling_ms as f64 * chance) as u64);
    Some(asked.map_or(jittered, |asked| asked.min(Duration::from_millis(WAIT_MAX_MS)) + jittered / 4))
}

/// Chance for jitter: SplitMix64 over a seed (Steele et al., 2014), enough to spread waits.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number in 0..1.
    pub(crate) fn roll(&mut self) -> f64 {
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
        check(Fault::Final, 1, None, 0.5, None);
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
