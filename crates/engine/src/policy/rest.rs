//! A rest: how long an address that failed, or lags behind its fellows, is left alone. Pure: time is an argument.

use std::time::{Duration, Instant};

/// The first rest of an address: what is dead costs little, and what has come back is found soon. It doubles with each
/// reason after it.
pub(crate) const REST: Duration = Duration::from_secs(10);
pub(crate) const REST_MAX: Duration = Duration::from_secs(300);

/// A rest of one address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    reasons: u32,
    /// When the last of them was noticed.
    since: Instant,
    until: Instant,
}

impl Rest {
    /// The rest after what was noticed now about something that was begun then. Of many that were on their way at once,
    /// only the first counts.
    pub(crate) fn after(earlier: Option<Rest>, begun: Instant, now: Instant) -> Rest {
        let earlier = earlier.unwrap_or(Rest { reasons: 0, since: begun, until: now });
        if begun < earlier.since {
            return earlier;
        }
        let length = REST.saturating_mul(1 << earlier.reasons.min(16)).min(REST_MAX);
        Rest { reasons: earlier.reasons.saturating_add(1), since: now, until: now + length }
    }

    /// When it ends, where that is still to come.
    pub(crate) fn ends(&self, now: Instant) -> Option<Instant> {
        Some(self.until).filter(|until| *until > now)
    }

    /// Somebody tries the address for all: it goes on resting for the others meanwhile, until then at least.
    pub(crate) fn try_until(&mut self, until: Instant) {
        self.until = self.until.max(until);
    }

    /// Whether a connection that was opened then is older than the reason for this rest.
    pub(crate) fn is_about(&self, opened: Instant) -> bool {
        opened <= self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_and_have_an_end() {
        let (mut rest, mut now) = (None, Instant::now());
        for number in 0..40 {
            let next = Rest::after(rest, now, now);
            let length = next.ends(now).expect("it rests") - now;
            assert_eq!(length, (REST * (1 << number.min(16))).min(REST_MAX), "rest {number}");
            (rest, now) = (Some(next), now + length);
            assert_eq!(next.ends(now), None);
        }
    }

    #[test]
    fn many_that_fail_at_once_are_one_reason() {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let first = Rest::after(None, at(0), at(5));
        for begun in [0, 1, 4] {
            assert_eq!(Rest::after(Some(first), at(begun), at(6)).ends(at(6)), Some(at(15)), "{begun}");
        }
        assert_eq!(Rest::after(Some(first), at(5), at(6)).ends(at(6)), Some(at(26)));
    }
}
