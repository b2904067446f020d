//! How the origin's clock stands.

use std::sync::atomic::{AtomicI64, Ordering};

use super::time::unix_seconds;

/// How far the origin's clock is from ours, by the last answer that stated a date.
pub(crate) struct Clock(AtomicI64);

/// No answer has stated a date.
const UNKNOWN: i64 = i64::MIN;

impl Default for Clock {
    fn default() -> Clock {
        Clock(AtomicI64::new(UNKNOWN))
    }
}

impl Clock {
    /// Takes over what an answer of this moment says, in seconds since 1970.
    pub(crate) fn note(&self, date: Option<u64>) {
        let Some(ahead_s) = date.and_then(|date| i64::try_from(date).ok()) else { return };
        let ahead_s = ahead_s.saturating_sub_unsigned(unix_seconds());
        // All shards share it, and every answer has a date: it is written when it tells of more than two
        // clocks' rounding.
        if ahead_s.abs_diff(self.0.load(Ordering::Relaxed)) > 1 {
            self.0.store(ahead_s, Ordering::Relaxed);
        }
    }

    /// Seconds by which the origin is ahead of this machine; negative where it is behind.
    pub(crate) fn ahead_s(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|ahead_s| *ahead_s != UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_known_once_an_answer_has_a_date() {
        let clock = Clock::default();
        assert_eq!(clock.ahead_s(), None);
        clock.note(Some(unix_seconds() + 3_600));
        // A second may pass in between.
        assert!(clock.ahead_s().is_some_and(|ahead_s| (3_598..=3_600).contains(&ahead_s)));
        clock.note(None);
        assert!(clock.ahead_s().is_some());
        clock.note(Some(0));
        assert!(clock.ahead_s().is_some_and(|ahead_s| ahead_s < -1_000_000_000));
    }
}
