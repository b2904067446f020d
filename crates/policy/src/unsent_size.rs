//! How much of a body the kernel may hold that has not left yet. It takes megabytes of each part at once
//! where it may: what is counted as sent is then in memory, and a tenth of a second of it says nothing of
//! what more connections would carry. Little is held of a slow connection, much of a fast one: each time that
//! it has room again costs a wakeup.

use std::time::{Duration, Instant};

/// Of a connection of which nothing is known.
pub const UNSENT_LEAST: usize = 256 << 10;
const UNSENT_MOST: usize = 4 << 20;
/// What goes out in this time may be held.
const LASTS: Duration = Duration::from_millis(16);
/// The rate is looked at as often as that: at first a body fills what the way holds, at once.
const LOOK: Duration = Duration::from_millis(64);

/// What may be held of one connection.
#[derive(Clone, Copy, Debug)]
pub struct UnsentSize {
    bytes: usize,
    sent: u64,
    since: Option<Instant>,
}

impl Default for UnsentSize {
    fn default() -> UnsentSize {
        UnsentSize { bytes: UNSENT_LEAST, sent: 0, since: None }
    }
}

impl UnsentSize {
    /// The next body begins: the time before it says nothing of the rate.
    pub fn begin(&mut self, now: Instant) {
        (self.sent, self.since) = (0, Some(now));
    }

    /// So much more was taken; what may be held from now on, where that is another figure.
    pub fn on_sent(&mut self, bytes: u64, now: Instant) -> Option<usize> {
        self.sent += bytes;
        let took = self.since.map(|since| now.duration_since(since)).filter(|took| *took >= LOOK)?;
        let rate = self.sent as f64 / took.as_secs_f64();
        self.begin(now);
        let wanted = (rate * LASTS.as_secs_f64()).clamp(UNSENT_LEAST as f64, UNSENT_MOST as f64) as usize;
        // A call for each small change would cost more than it brings.
        let is_another = wanted > 2 * self.bytes || self.bytes > 2 * wanted;
        is_another.then(|| {
            self.bytes = wanted;
            wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may be held after a second of so many bytes a millisecond.
    #[track_caller]
    fn check(unsent: &mut UnsentSize, rate: u64, expected: usize) {
        let start = Instant::now();
        unsent.begin(start);
        for ms in 1..1000 {
            let _ = unsent.on_sent(rate, start + Duration::from_millis(ms));
        }
        let off = unsent.bytes as f64 / expected as f64;
        assert!((0.9..1.1).contains(&off), "{} at {rate} bytes a millisecond", unsent.bytes);
    }

    #[test]
    fn it_is_what_goes_out_in_a_moment_between_bounds() {
        let unsent = &mut UnsentSize::default();
        check(unsent, 1_000, UNSENT_LEAST);
        check(unsent, 100_000, 1_600_000);
        check(unsent, 10_000_000, UNSENT_MOST);
        check(unsent, 50_000, 800_000);
        // Not worth a call.
        check(unsent, 30_000, 800_000);
        check(unsent, 10_000, UNSENT_LEAST);
    }
}
