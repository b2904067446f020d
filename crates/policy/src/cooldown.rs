//! A cooldown: how long an address that failed, or lags behind its fellows, is left alone. Pure: time is an
//! argument.

use std::time::{Duration, Instant};

/// The first cooldown of an address: what is dead costs little, and what has come back is found soon. It
/// doubles with each reason after it.
pub const COOLDOWN: Duration = Duration::from_secs(10);
pub const COOLDOWN_MAX: Duration = Duration::from_secs(300);

/// A cooldown of one address.
#[derive(Clone, Copy, Debug)]
pub struct Cooldown {
    reasons: u32,
    /// When the last of them was noticed.
    since: Instant,
    until: Instant,
}

impl Cooldown {
    /// The cooldown after what was noticed now about something that was begun then. Of many that were on
    /// their way at once, only the first counts.
    pub fn after(earlier: Option<Cooldown>, begun: Instant, now: Instant) -> Cooldown {
        let earlier = earlier.unwrap_or(Cooldown { reasons: 0, since: begun, until: now });
        if begun < earlier.since {
            return earlier;
        }
        let length = COOLDOWN.saturating_mul(1 << earlier.reasons.min(16)).min(COOLDOWN_MAX);
        Cooldown { reasons: earlier.reasons.saturating_add(1), since: now, until: now + length }
    }

    /// When it ends, where that is still to come.
    pub fn ends(&self, now: Instant) -> Option<Instant> {
        Some(self.until).filter(|until| *until > now)
    }

    /// Somebody tries the address for all: it stays in cooldown for the others meanwhile, until then at
    /// least.
    pub fn try_until(&mut self, until: Instant) {
        self.until = self.until.max(until);
    }

    /// Whether a connection that was opened then is older than the reason for this cooldown.
    pub fn is_about(&self, opened: Instant) -> bool {
        opened <= self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cooldowns_double_and_have_an_end() {
        let (mut cooldown, mut now) = (None, Instant::now());
        for number in 0..40 {
            let next = Cooldown::after(cooldown, now, now);
            let length = next.ends(now).expect("it rests") - now;
            assert_eq!(length, (COOLDOWN * (1 << number.min(16))).min(COOLDOWN_MAX), "cooldown {number}");
            (cooldown, now) = (Some(next), now + length);
            assert_eq!(next.ends(now), None);
        }
    }

    #[test]
    fn many_that_fail_at_once_are_one_reason() {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let first = Cooldown::after(None, at(0), at(5));
        for begun in [0, 1, 4] {
            assert_eq!(Cooldown::after(Some(first), at(begun), at(6)).ends(at(6)), Some(at(15)), "{begun}");
        }
        assert_eq!(Cooldown::after(Some(first), at(5), at(6)).ends(at(6)), Some(at(26)));
    }
}
