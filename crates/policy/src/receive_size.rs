//! How much is received at once: large lumps cost less. Of a slow connection they come so seldom that nobody
//! can tell from a tenth of a second what it carries, and all connections of one age bring theirs at the same
//! moments: while that is to be told, a lump is what comes in a few milliseconds
//! (docs/decisions/receive-size.md).

use std::time::{Duration, Instant};

/// How much is received at once. It stays in a core's second-level cache on its way to the hash and the file;
/// docs/numbers.md has the sweep.
pub const RECEIVE_BYTES: usize = 256 << 10;
/// A lump is what comes in this time, between bounds, while rates are measured in haste, and otherwise. Under
/// the least a receive costs more than its bytes.
const LASTS_WHILE_MEASURING: Duration = Duration::from_millis(8);
const LASTS: Duration = Duration::from_millis(64);
const LEAST_BYTES: usize = 16 << 10;
/// Before anything is known, where there is no haste.
const FIRST_BYTES: usize = 64 << 10;

/// What one connection has carried lately, what is older forgotten by half with each receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiveSize {
    bytes: f64,
    seconds: f64,
    received: Option<Instant>,
    measuring: bool,
}

impl ReceiveSize {
    /// How much to wait for.
    pub fn bytes(&self) -> usize {
        let lasts = if self.measuring { LASTS_WHILE_MEASURING } else { LASTS };
        match self.seconds > 0.0 {
            true => (self.bytes / self.seconds * lasts.as_secs_f64())
                .clamp(LEAST_BYTES as f64, RECEIVE_BYTES as f64) as usize,
            false if self.measuring => LEAST_BYTES,
            false => FIRST_BYTES,
        }
    }

    pub fn on_received(&mut self, bytes: usize, now: Instant) {
        if let Some(before) = self.received.replace(now) {
            self.bytes = self.bytes / 2.0 + bytes as f64;
            self.seconds = self.seconds / 2.0 + now.duration_since(before).as_secs_f64().max(1e-6);
        }
    }

    /// The next body is asked for: the wait for it says nothing of the rate. `measuring`: what comes is to be
    /// told soon.
    pub fn begin(&mut self, measuring: bool) {
        (self.received, self.measuring) = (None, measuring);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lump after so many receives of `bytes` each, `apart_us` apart.
    #[track_caller]
    fn check(bytes: usize, apart_us: u64, expected: usize) {
        let (mut receive_size, start) = (ReceiveSize::default(), Instant::now());
        receive_size.begin(true);
        assert_eq!(receive_size.bytes(), LEAST_BYTES);
        for number in 0..20 {
            receive_size.on_received(bytes, start + Duration::from_micros(apart_us * number));
        }
        let off = receive_size.bytes() as f64 / expected as f64;
        assert!(
            (0.99..1.01).contains(&off),
            "{} for {bytes} every {apart_us} us, not {expected}",
            receive_size.bytes()
        );
    }

    #[test]
    fn a_lump_is_what_comes_in_eight_milliseconds_between_bounds() {
        check(40_000, 8_000, 40_000);
        check(40_000, 4_000, 80_000);
        check(1_000, 8_000, LEAST_BYTES);
        check(RECEIVE_BYTES, 100, RECEIVE_BYTES);
        check(RECEIVE_BYTES, 0, RECEIVE_BYTES);
    }

    #[test]
    fn without_haste_lumps_are_larger() {
        let (mut receive_size, start) = (ReceiveSize::default(), Instant::now());
        assert_eq!(receive_size.bytes(), FIRST_BYTES);
        for number in 0..20 {
            receive_size.on_received(20_000, start + Duration::from_millis(8 * number));
        }
        let hasty = ReceiveSize { measuring: true, ..receive_size };
        assert_eq!((hasty.bytes(), receive_size.bytes()), (20_000, 160_000));
    }

    #[test]
    fn the_wait_for_an_answer_is_not_counted() {
        let (mut receive_size, mut now) = (ReceiveSize::default(), Instant::now());
        for _ in 0..20 {
            receive_size.begin(true);
            now += Duration::from_secs(1);
            receive_size.on_received(100_000, now);
            now += Duration::from_millis(8);
            receive_size.on_received(100_000, now);
        }
        assert!((99_000..101_000).contains(&receive_size.bytes()), "{}", receive_size.bytes());
    }
}
