//! How large the parts are: long enough to be worth their first byte, short enough to let go of a level soon.

use super::MIB;

/// A part lasts this many first-byte latencies, between bounds: about five per cent of an attempt is waiting
/// then.
const LATENCIES: f64 = 20.0;
/// While the level is being found parts are short, so that too high a level can be left soon; and at the end
/// of an object, so that all end together.
const LATENCIES_SHORT: f64 = 4.0;
const SECONDS: std::ops::RangeInclusive<f64> = 0.25..=1.25;

/// Bounds in MiB. Under one a request costs more than its bytes; the origins' own parts are seldom over 64.
const LEAST_MIB: f64 = 1.0;
/// Once the level is found. What a part costs beside its bytes is not all in its first byte: a body that
/// stalls looks like a slow connection, for which parts are made shorter, of which each stalls.
const LEAST_FOUND_MIB: f64 = 4.0;
const MOST_MIB: f64 = 64.0;

/// A size stays until the wanted one is this many times larger or smaller.
const STAYS: f64 = 1.4;

/// Parts of one size march in step: all wait for their first bytes at once, and the link is idle. So sizes
/// vary by a quarter to either side, by the golden ratio, which never repeats.
const VARY: f64 = 0.25;
const GOLDEN: f64 = 0.618_034;

#[derive(Debug)]
pub(crate) struct PartSize {
    fixed: Option<u64>,
    mib: f64,
    /// Of one connection whose body moves, bytes a second; high where bytes come in lumps, as it rises sooner
    /// than it falls.
    rate: f64,
    /// Where requests are what an origin counts, parts grow beyond what time allows, up to this factor.
    stretch: f64,
    turn: f64,
}

impl PartSize {
    /// `rate`: what a connection is expected to carry, bytes a second.
    pub(crate) fn new(fixed: Option<u64>, mib: f64, rate: f64) -> PartSize {
        PartSize { fixed, mib: mib.round().clamp(LEAST_MIB, MOST_MIB), rate, stretch: 1.0, turn: 0.0 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.fixed.unwrap_or(self.mib as u64 * MIB)
    }

    /// `rate`: bytes a second of one moving body in the last `seconds`. `short`: the level is being found.
    /// `by_requests`: the origin's limit of requests holds the transfer back.
    pub(crate) fn on_tick(
        &mut self,
        rate: f64,
        seconds: f64,
        first_byte: f64,
        short: bool,
        by_requests: bool,
    ) {
        // Connections begin slowly: what they reach counts sooner than what they fall to, and too high a
        // level is not for long.
        let weight = match rate > self.rate {
            true => 12.0,
            false if short => 2.0,
            false => 4.0,
        };
        self.rate += (rate - self.rate) * (seconds * weight).min(1.0);
        let by = if by_requests { 1.0 + seconds } else { 1.0 - seconds * 0.1 };
        self.stretch = (self.stretch * by).clamp(1.0, MOST_MIB);
        let latencies = if short { LATENCIES_SHORT } else { LATENCIES };
        let lasts = (latencies * first_byte).clamp(*SECONDS.start(), *SECONDS.end()) * self.stretch;
        let least = if short { LEAST_MIB } else { LEAST_FOUND_MIB };
        let wanted = (self.rate * lasts / MIB as f64).clamp(least, MOST_MIB);
        if wanted > self.mib * STAYS || wanted < self.mib / STAYS {
            self.mib = wanted.round();
        }
    }

    /// The next part of an object of which `left` bytes have not been given out, when `level` attempts share
    /// `memory`.
    pub(crate) fn next(&mut self, left: u64, level: u32, memory: Option<u64>, first_byte: f64) -> u64 {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        self.turn = (self.turn + GOLDEN).fract();
        let varied = self.mib * (1.0 - VARY + 2.0 * VARY * self.turn);
        // Two rounds of parts for everybody, as long as a part is worth its request.
        let spread = (left as f64 / MIB as f64 / f64::from(level.max(1)) / 2.0).ceil();
        let worth = (LATENCIES_SHORT * first_byte * self.rate / MIB as f64).ceil();
        let held = memory.map_or(MOST_MIB, |bytes| bytes as f64 / MIB as f64 / f64::from(level.max(1)));
        let mib = varied.round().min(spread.max(worth)).min(held.floor()).clamp(LEAST_MIB, MOST_MIB);
        mib as u64 * MIB
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size in MiB that is settled on for connections of that rate (MiB/s) and first byte (ms).
    #[track_caller]
    fn check(
        rate: f64,
        first_byte_ms: f64,
        short: bool,
        by_requests: bool,
        expected: std::ops::RangeInclusive<u64>,
    ) {
        let mut part = PartSize::new(None, 8.0, 16.0 * MIB as f64);
        for _ in 0..800 {
            part.on_tick(rate * MIB as f64, 0.025, first_byte_ms / 1000.0, short, by_requests);
        }
        let mib = part.bytes() / MIB;
        assert!(expected.contains(&mib), "{mib} MiB for {rate} MiB/s after {first_byte_ms} ms");
        let sizes: Vec<u64> = (0..100).map(|_| part.next(u64::MAX, 8, None, 0.0) / MIB).collect();
        let mean = sizes.iter().sum::<u64>() as f64 / 100.0;
        assert!((mean / mib as f64 - 1.0).abs() < 0.13, "{mean} for {mib}");
        assert!(sizes.iter().all(|size| (1..=64).contains(size) && *size * 3 >= mib * 2));
    }

    #[test]
    fn a_part_lasts_twenty_latencies_but_about_a_second_at_most() {
        check(16.0, 5.0, false, false, 3..=5);
        check(16.0, 30.0, false, false, 8..=12);
        check(16.0, 100.0, false, false, 15..=24);
        check(64.0, 5.0, false, false, 12..=20);
        check(64.0, 100.0, false, false, 50..=64);
        check(4.0, 100.0, false, false, 4..=7);
        check(0.01, 5.0, false, false, 4..=4);
        check(0.01, 5.0, true, false, 1..=1);
        check(5000.0, 100.0, false, false, 60..=64);
        check(16.0, 100.0, true, false, 5..=9);
        check(4.0, 5.0, false, true, 46..=64);
    }

    #[test]
    fn the_last_parts_are_short_but_worth_their_request_and_fit_the_memory() {
        let mut part = PartSize::new(None, 16.0, 16.0 * MIB as f64);
        assert!(part.next(u64::MAX, 8, None, 0.03) >= 12 * MIB);
        assert_eq!(part.next(64 * MIB, 8, None, 0.03), 4 * MIB);
        assert_eq!(part.next(MIB, 8, None, 0.03), 2 * MIB);
        assert_eq!(part.next(MIB, 8, None, 0.0), MIB);
        assert_eq!(part.next(0, 0, None, 0.0), MIB);
        assert_eq!(part.next(u64::MAX, 128, Some(512 * MIB), 0.03), 4 * MIB);
        assert_eq!(part.next(u64::MAX, 1024, Some(512 * MIB), 0.03), MIB);
        let mut fixed = PartSize::new(Some(100), 16.0, 1.0);
        fixed.on_tick(1e9, 1.0, 0.1, false, false);
        assert_eq!((fixed.bytes(), fixed.next(5, 1, Some(1), 0.1)), (100, 100));
    }
}
