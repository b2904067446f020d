//! How soon a range comes from an origin if nothing else is in flight, learnt from those that came soonest: by
//! that a reader tells an origin that is far away from a link that is full. Time is an argument.
//!
//! ```text
//!   requested ──────────── first byte ─────────────── last byte
//!              first_us                us_a_mib        the least of each, of the last ten to twenty seconds
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

/// An origin may move, so what is learnt is forgotten after once or twice this time.
const EPOCH_US: u64 = 10_000_000;
/// A range that took less than this many times the least came as soon as it could: first bytes vary.
const PROMPT: u64 = 3;
/// One that took more than this many times the least was in a queue for most of the time. A window that
/// doubles doubles the queue, so there is room for that between the two.
const QUEUED: u64 = 8;

const MIB: u64 = 1 << 20;
const UNKNOWN: u64 = u64::MAX;

/// How a range came that a read waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Came {
    #[default]
    Between,
    /// About as soon as it could: the way is long, and more in flight bring more.
    Promptly,
    /// Much later: what is in flight fills the link already.
    Queued,
}

/// What is known of one origin.
#[derive(Debug)]
pub(super) struct Latency {
    first_us: Least,
    us_a_mib: Least,
}

/// The least value of this epoch and of the one before.
#[derive(Debug)]
struct Least {
    now: AtomicU64,
    before: AtomicU64,
    epoch: AtomicU64,
}

impl Default for Latency {
    fn default() -> Latency {
        let least = || Least { now: UNKNOWN.into(), before: UNKNOWN.into(), epoch: 0.into() };
        Latency { first_us: least(), us_a_mib: least() }
    }
}

impl Least {
    /// Threads that meet at an epoch's end may lose a value: the next one serves as well.
    fn add(&self, value: u64, now_us: u64) {
        let epoch = now_us / EPOCH_US;
        if self.epoch.swap(epoch, Ordering::Relaxed) != epoch {
            self.before.store(self.now.swap(UNKNOWN, Ordering::Relaxed), Ordering::Relaxed);
        }
        self.now.fetch_min(value, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.now.load(Ordering::Relaxed).min(self.before.load(Ordering::Relaxed))
    }
}

impl Latency {
    /// The first byte of a range came so long after its request.
    pub(super) fn on_first(&self, took_us: u64, now_us: u64) {
        self.first_us.add(took_us, now_us);
    }

    /// So many bytes came in so long a time behind the first of their range.
    pub(super) fn on_rest(&self, bytes: u64, took_us: u64, now_us: u64) {
        if bytes > 0 {
            self.us_a_mib.add(took_us.saturating_mul(MIB) / bytes, now_us);
        }
    }

    /// How `bytes` bytes came that took so long from their request on. As long as nothing is known, promptly.
    pub(super) fn how(&self, bytes: u64, took_us: u64) -> Came {
        let (first_us, us_a_mib) = (self.first_us.get(), self.us_a_mib.get());
        if first_us == UNKNOWN || us_a_mib == UNKNOWN {
            return Came::Promptly;
        }
        let least_us = (first_us + us_a_mib.saturating_mul(bytes) / MIB).max(1);
        match took_us / least_us {
            ..PROMPT => Came::Promptly,
            ..QUEUED => Came::Between,
            _ => Came::Queued,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_far_away_came_promptly_and_what_had_to_queue_did_not() {
        let latency = Latency::default();
        assert_eq!(latency.how(MIB, 1_000_000), Came::Promptly, "nothing is known");
        // 30 ms away, 64 MiB/s a connection; some ranges took longer.
        for (first_us, rest_us) in [(90_000, 40_000), (30_000, 16_000), (45_000, 30_000)] {
            latency.on_first(first_us, 0);
            latency.on_rest(MIB, rest_us, 0);
        }
        for (bytes, took_ms, came) in [
            (MIB, 46, Came::Promptly),
            (MIB, 130, Came::Promptly),
            (MIB, 140, Came::Between),
            (MIB, 369, Came::Queued),
            (8 * MIB, 158, Came::Promptly),
            (8 * MIB, 1_300, Came::Queued),
        ] {
            assert_eq!(latency.how(bytes, took_ms * 1_000), came, "{bytes} bytes, {took_ms} ms");
        }
    }

    #[test]
    fn an_origin_that_moved_away_is_learnt_anew() {
        let latency = Latency::default();
        let far = |now_us| {
            latency.on_first(30_000, now_us);
            latency.on_rest(MIB, 16_000, now_us);
            latency.how(MIB, 46_000)
        };
        latency.on_first(200, 0);
        latency.on_rest(MIB, 300, 0);
        assert_eq!(far(5_000_000), Came::Queued);
        assert_eq!(far(EPOCH_US), Came::Queued, "the last epoch counts");
        assert_eq!(far(2 * EPOCH_US), Came::Promptly);
    }
}
