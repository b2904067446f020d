//! How soon a range comes from an origin if nothing else is in flight, learnt from those that came soonest.
//! By that a reader tells an origin that is far away from a link that is full, and so how far to read ahead.
//!
//! ```text
//!   requested ────────── head ───────────── last byte
//!               first           a MiB       the least of each
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// After so long without an answer all values are forgotten: the origin may have moved. While ranges come,
/// the least value rises by a tenth in each such time at most, towards the latest ones. A full link would
/// otherwise pass for a long one after a few minutes.
const EPOCH: Duration = Duration::from_secs(10);
/// A shorter body tells nothing of the pace of its connection.
const TOLD_BYTES: u64 = 256 << 10;
/// A range that took less than this many times the least came as soon as it could: first bytes vary.
const PROMPT: u128 = 3;
/// One that took more than this many times the least was in a queue for most of the time. A window that
/// doubles doubles the queue, so there is room for that between the two.
const QUEUED: u128 = 8;

const MIB: u64 = 1 << 20;
const UNKNOWN: u64 = u64::MAX;

/// How a range came that a reader waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Came {
    #[default]
    Between,
    /// About as soon as it could: the way is long, and more in flight bring more.
    Promptly,
    /// Much later: what is in flight fills the link already.
    Queued,
}

impl Came {
    /// The next window of a reader that has waited for such a range, `read` bytes after the window last
    /// changed; `None` if it stays. `times` says how much it may grow.
    pub fn next_window(
        self,
        window: u64,
        read: u64,
        times: u64,
        bounds: &std::ops::Range<u64>,
    ) -> Option<u64> {
        let has_shown = read >= window / 4;
        match self {
            Came::Promptly if has_shown => Some((times * window).min(bounds.end)),
            Came::Queued if has_shown => Some((window / 2).max(bounds.start)),
            _ => None,
        }
    }
}

/// What is known of one origin.
#[derive(Debug)]
pub struct Latency {
    begun: Instant,
    first_us: Least,
    us_a_mib: Least,
}

/// The least value of this epoch, and of those before.
#[derive(Debug)]
struct Least {
    now: AtomicU64,
    before: AtomicU64,
    epoch: AtomicU64,
}

impl Least {
    fn new() -> Least {
        Least { now: UNKNOWN.into(), before: UNKNOWN.into(), epoch: 0.into() }
    }

    /// Threads that meet at an epoch's end may lose a value: the next one serves as well.
    fn add(&self, value: u64, epoch: u64) {
        let last = self.epoch.fetch_max(epoch, Ordering::Relaxed);
        if epoch > last {
            let (now, before) =
                (self.now.swap(UNKNOWN, Ordering::Relaxed), self.before.load(Ordering::Relaxed));
            let before = if epoch > last + 1 { UNKNOWN } else { now.min(before.saturating_add(before / 10)) };
            self.before.store(before, Ordering::Relaxed);
        }
        self.now.fetch_min(value, Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        let least = self.now.load(Ordering::Relaxed).min(self.before.load(Ordering::Relaxed));
        (least != UNKNOWN).then_some(least)
    }
}

impl Latency {
    /// Nothing is known yet.
    pub fn new(now: Instant) -> Latency {
        Latency { begun: now, first_us: Least::new(), us_a_mib: Least::new() }
    }

    fn epoch(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_secs() / EPOCH.as_secs()
    }

    /// Learns from the time between a request and the first byte of its answer.
    pub fn on_first(&self, took: Duration, now: Instant) {
        self.first_us.add(took.as_micros() as u64, self.epoch(now));
    }

    /// Learns from the time between a request and the last of its `bytes` bytes. The body alone would seem
    /// too quick: a thread that is late finds much of it in the kernel.
    pub fn on_range(&self, bytes: u64, took: Duration, now: Instant) {
        if let Some(first_us) = self.first_us.get().filter(|_| bytes >= TOLD_BYTES) {
            let rest_us = (took.as_micros() as u64).saturating_sub(first_us);
            self.us_a_mib.add(rest_us.saturating_mul(MIB) / bytes, self.epoch(now));
        }
    }

    /// The least time to a first byte.
    pub fn first(&self) -> Option<Duration> {
        self.first_us.get().map(Duration::from_micros)
    }

    /// Judges the time from the request of a range to its first `bytes` bytes. As long as nothing is known
    /// they came promptly.
    pub fn how(&self, bytes: u64, took: Duration) -> Came {
        let (Some(first_us), Some(us_a_mib)) = (self.first_us.get(), self.us_a_mib.get()) else {
            return Came::Promptly;
        };
        let least_us = (first_us + us_a_mib.saturating_mul(bytes) / MIB).max(1);
        match took.as_micros() / u128::from(least_us) {
            times if times < PROMPT => Came::Promptly,
            times if times < QUEUED => Came::Between,
            _ => Came::Queued,
        }
    }
}

/// How far a stream is read ahead, within what memory and settings allow. It begins with `parts` parts of
/// `part_bytes`, and grows with the distance to the origin.
#[derive(Debug)]
pub struct ReadAhead {
    /// Of the origin.
    pub latency: Arc<Latency>,
    /// The window has room for this many parts, however long it is.
    pub parts: u64,
    /// How long they are at least.
    pub part_bytes: u64,
}

impl ReadAhead {
    /// The smallest window, in bytes.
    pub fn least(&self) -> u64 {
        self.part_bytes.saturating_mul(self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_far_away_came_promptly_and_what_had_to_queue_did_not() {
        let now = Instant::now();
        let latency = Latency::new(now);
        assert_eq!(latency.how(MIB, 1_000 * MS), Came::Promptly, "nothing is known");
        // 30 ms away, 64 MiB/s a connection; some ranges took longer.
        for (first, whole) in [(90, 130), (30, 46), (45, 75)] {
            latency.on_first(first * MS, now);
            latency.on_range(MIB, whole * MS, now);
            latency.on_range(TOLD_BYTES - 1, 30 * MS, now);
        }
        for (bytes, took, came) in [
            (MIB, 46, Came::Promptly),
            (MIB, 130, Came::Promptly),
            (MIB, 140, Came::Between),
            (MIB, 369, Came::Queued),
            (8 * MIB, 158, Came::Promptly),
            (8 * MIB, 1_300, Came::Queued),
        ] {
            assert_eq!(latency.how(bytes, took * MS), came, "{bytes} bytes, {took} ms");
        }
    }

    #[test]
    fn an_origin_that_moved_away_is_learnt_anew_and_a_full_link_is_not_a_long_one() {
        let begun = Instant::now();
        let latency = Latency::new(begun);
        let learn = |first: Duration, whole: Duration, epochs: u32| {
            latency.on_first(first, begun + epochs * EPOCH);
            latency.on_range(MIB, whole, begun + epochs * EPOCH);
            latency.how(MIB, 46 * MS)
        };
        assert_eq!(learn(MS / 5, MS / 2, 0), Came::Queued);
        for epochs in 1..12 {
            assert_eq!(learn(30 * MS, 46 * MS, epochs), Came::Queued, "{epochs}: it fills the link");
        }
        assert_eq!(learn(30 * MS, 46 * MS, 14), Came::Promptly, "it was silent in between");
        assert_eq!(latency.first(), Some(30 * MS));
    }

    #[test]
    fn a_window_grows_for_the_way_and_shrinks_for_a_queue() {
        let bounds = 8 * MIB..64 * MIB;
        let next = |came: Came, window: u64, read: u64| {
            came.next_window(window * MIB, read * MIB, 4, &bounds).map(|bytes| bytes / MIB)
        };
        assert_eq!(next(Came::Promptly, 8, 1), None, "too little has been read of this one");
        assert_eq!(next(Came::Promptly, 8, 2), Some(32));
        assert_eq!(next(Came::Promptly, 32, 8), Some(64));
        assert_eq!(next(Came::Queued, 32, 8), Some(16));
        assert_eq!(next(Came::Queued, 8, 8), Some(8));
        assert_eq!(next(Came::Between, 32, 32), None);
    }
}
