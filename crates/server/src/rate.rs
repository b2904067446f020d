//! A byte rate as a row of time slots: a sender books the next free slot and waits for it.

use std::time::{Duration, Instant};

/// How far a connection that fell behind may catch up: the largest burst, in time.
const SLACK: Duration = Duration::from_millis(20);

/// The largest booking, in time: several connections that share a rate take turns this often.
const GRAIN: Duration = Duration::from_millis(4);

/// A rate that may change: bytes a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// From the start of the origin on.
    pub first: u64,
    /// Another one each, from a time after the start on; in the order of these times.
    pub then: Vec<(Duration, u64)>,
}

impl Rates {
    /// The rate at a time after the start, at least one byte a second.
    fn at(&self, since: Duration) -> u64 {
        let then = self.then.iter().take_while(|(from, _)| *from <= since).last();
        then.map_or(self.first, |(_, rate)| *rate).max(1)
    }
}

impl From<u64> for Rates {
    fn from(bytes_per_second: u64) -> Rates {
        Rates { first: bytes_per_second, then: Vec::new() }
    }
}

/// A rate and the time at which its next free slot starts.
///
/// Booking instead of a bucket that everyone polls: turns are first come, first served, and one lock per
/// booking is all the sharing.
#[derive(Debug)]
pub(crate) struct Rate {
    rates: Rates,
    start: Instant,
    next: Instant,
}

impl Rate {
    pub(crate) fn new(rates: impl Into<Rates>, now: Instant) -> Rate {
        Rate { rates: rates.into(), start: now, next: now }
    }

    /// How many bytes of `want` to book at once: at least one.
    pub(crate) fn grain(&self, want: usize, now: Instant) -> usize {
        let grain = self.bytes_per_second(now).saturating_mul(GRAIN.as_millis() as u64) / 1000;
        want.min(usize::try_from(grain).unwrap_or(usize::MAX)).max(1)
    }

    /// Books `bytes` and says from when on they may move.
    pub(crate) fn book(&mut self, bytes: usize, now: Instant) -> Instant {
        let earliest = now.checked_sub(SLACK).unwrap_or(now);
        let start = self.next.max(earliest);
        self.next = start + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second(now) as f64);
        start
    }

    /// Of the next free slot.
    fn bytes_per_second(&self, now: Instant) -> u64 {
        self.rates.at(self.next.max(now).duration_since(self.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves `total` bytes through a rate, sleeping exactly until each slot: when is the last one due?
    fn seconds_for(rates: impl Into<Rates>, want: usize, total: usize) -> f64 {
        let start = Instant::now();
        let mut rate = Rate::new(rates, start);
        let (mut now, mut left) = (start, total);
        while left > 0 {
            let bytes = rate.grain(want.min(left), now);
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
    fn a_rate_changes_when_its_time_has_come() {
        let seconds = |then: &[(u64, u64)], total| {
            let then = then.iter().map(|(from_s, rate)| (Duration::from_secs(*from_s), *rate)).collect();
            seconds_for(Rates { first: 1_000_000, then }, 1 << 20, total)
        };
        for (then, total, expected_s) in [
            (&[][..], 10_000_000, 10.0),
            (&[(5, 10_000_000)], 15_000_000, 6.0),
            (&[(5, 100_000)], 5_500_000, 10.0),
            (&[(2, 500_000), (4, 2_000_000)], 5_000_000, 5.0),
            (&[(0, 2_000_000)], 10_000_000, 5.0),
        ] {
            let seconds = seconds(then, total);
            assert!((seconds - expected_s).abs() < 0.1, "{then:?}: {seconds} s");
        }
    }

    #[test]
    fn an_idle_rate_saves_up_no_more_than_its_slack() {
        let start = Instant::now();
        let mut rate = Rate::new(1000, start);
        let later = start + Duration::from_secs(60);
        let mut free = 0;
        loop {
            let bytes = rate.grain(1000, later);
            if rate.book(bytes, later) > later {
                break;
            }
            free += bytes;
        }
        assert!((20..=28).contains(&free), "{free} bytes at once");
    }
}
