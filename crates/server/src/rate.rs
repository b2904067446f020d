//! A byte rate as a row of time slots: who wants to move bytes books the next free slot and waits for it.

use std::time::{Duration, Instant};

/// How far a connection that fell behind may catch up: the largest burst, in time.
const SLACK: Duration = Duration::from_millis(20);

/// The largest booking, in time: several connections that share a rate take turns this often.
const GRAIN: Duration = Duration::from_millis(4);

/// A rate in bytes a second and the time at which its next free slot starts.
///
/// Booking instead of a bucket that everyone polls: turns are first come, first served, and one lock per
/// booking is all the sharing.
#[derive(Debug)]
pub(crate) struct Rate {
    bytes_per_second: u64,
    next: Instant,
}

impl Rate {
    /// A rate of at least one byte a second.
    pub(crate) fn new(bytes_per_second: u64, now: Instant) -> Rate {
        Rate { bytes_per_second: bytes_per_second.max(1), next: now }
    }

    /// How many bytes of `want` to book at once: at least one.
    pub(crate) fn grain(&self, want: usize) -> usize {
        let grain = self.bytes_per_second.saturating_mul(GRAIN.as_millis() as u64) / 1000;
        want.min(usize::try_from(grain).unwrap_or(usize::MAX)).max(1)
    }

    /// Books `bytes` and says from when on they may move.
    pub(crate) fn book(&mut self, bytes: usize, now: Instant) -> Instant {
        let earliest = now.checked_sub(SLACK).unwrap_or(now);
        let start = self.next.max(earliest);
        self.next = start + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves `total` bytes through a rate, sleeping exactly until each slot: when is the last one due?
    fn seconds_for(bytes_per_second: u64, want: usize, total: usize) -> f64 {
        let start = Instant::now();
        let mut rate = Rate::new(bytes_per_second, start);
        let (mut now, mut left) = (start, total);
        while left > 0 {
            let bytes = rate.grain(want.min(left));
            assert!(bytes > 0 && bytes <= want.min(left));
            now = now.max(rate.book(bytes, now));
            left -= bytes;
        }
        (now - start).as_secs_f64()
    }

    #[test]
    fn a_rate_is_kept_whatever_is_asked_for_at_once() {
        for (rate, want, total, expected_s) in [
            (1_000_000, 1 << 20, 10_000_000, 10.0),
            (1_000_000, 100, 1_000_000, 1.0),
            (10, 1 << 20, 100, 10.0),
            (1 << 30, 1 << 20, 1 << 30, 1.0),
        ] {
            let seconds = seconds_for(rate, want, total);
            assert!(seconds <= expected_s, "rate {rate}, want {want}: {seconds} s");
            // The first grain is free: it fills its slot while it moves.
            assert!(seconds > expected_s * 0.89, "rate {rate}, want {want}: {seconds} s");
        }
    }

    #[test]
    fn an_idle_rate_saves_up_no_more_than_its_slack() {
        let start = Instant::now();
        let mut rate = Rate::new(1000, start);
        let later = start + Duration::from_secs(60);
        let mut free = 0;
        loop {
            let bytes = rate.grain(1000);
            if rate.book(bytes, later) > later {
                break;
            }
            free += bytes;
        }
        assert!((20..=28).contains(&free), "{free} bytes at once");
    }
}
