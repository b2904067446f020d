//! How fast the link to an origin is for readers, and how much may be in flight before prefetch stops. All
//! bodies share the link, so on a slow one each prefetched body delays a read that waits. Time is an
//! argument.
//!
//! The rate counts only time in which bytes came: neither a reader that pauses nor a late first byte makes a
//! link slow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Prefetch in flight is bounded to what the link carries in this time, which is the most that it may delay a
/// read. Where each connection is slow, a body of the least size must come in less time, or their number
/// would not grow: 256 KiB at 88 KiB/s.
const AHEAD_MS: u64 = 3_000;
/// At least this much may be in flight.
const AHEAD_LEAST: u64 = 1 << 20;
/// On a slow link this many bodies are in flight at once; none is smaller than the least.
const BODIES: u64 = 16;
const BODY_LEAST: u64 = 256 << 10;
/// A rate is measured over this much time at least.
const MEASURE_MS: u64 = 250;
/// After this time an earlier measurement counts by half.
const HALVED_MS: f64 = 500.0;

/// The link to one origin, for all readers.
pub(super) struct Link {
    /// Bytes of bodies in flight, landed or not.
    on_the_way: AtomicU64,
    landed: AtomicU64,
    /// Prefetch stops when this much is in flight.
    bound: AtomicU64,
    is_flowing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bodies in flight.
    bodies: u64,
    /// Since when bytes have been coming.
    since_ms: u64,
    /// For how long they came before that.
    flowed_ms: u64,
    /// When the rate was last measured, in that time, and how much had landed then.
    measured_ms: u64,
    measured_landed: u64,
    /// In bytes a second; 0 before anything is known.
    rate: f64,
}

/// A body in flight, until it ends in any way.
pub(super) struct Body {
    link: Arc<Link>,
    bytes: u64,
    landed: AtomicU64,
    has_ended: AtomicBool,
}

impl Default for Link {
    fn default() -> Link {
        Link {
            on_the_way: AtomicU64::new(0),
            landed: AtomicU64::new(0),
            bound: AtomicU64::new(u64::MAX),
            is_flowing: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }
}

impl Link {
    /// A body of `bytes` bytes has been requested.
    pub(super) fn expect(self: &Arc<Link>, bytes: u64) -> Body {
        self.on_the_way.fetch_add(bytes, Ordering::Relaxed);
        self.lock().bodies += 1;
        Body { link: self.clone(), bytes, landed: AtomicU64::new(0), has_ended: AtomicBool::new(false) }
    }

    /// Whether `bytes` more bytes may be prefetched.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.on_the_way.load(Ordering::Relaxed).saturating_add(bytes) <= self.bound.load(Ordering::Relaxed)
    }

    /// How long bodies may be, so that several share a slow link.
    pub(super) fn body_most(&self) -> u64 {
        (self.bound.load(Ordering::Relaxed) / BODIES).max(BODY_LEAST)
    }

    /// Bytes that have landed.
    pub(super) fn landed(&self) -> u64 {
        self.landed.load(Ordering::Relaxed)
    }

    /// Measures the rate anew, if the last time is long enough ago.
    pub(super) fn measure(&self, now_ms: u64) {
        // Nothing comes, or another thread measures.
        if !self.is_flowing.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut state) = self.state.try_lock() else { return };
        let flowed_ms = state.flowed_ms(self.is_flowing.load(Ordering::Relaxed), now_ms);
        let measured_for_ms = flowed_ms.saturating_sub(state.measured_ms);
        if measured_for_ms < MEASURE_MS {
            return;
        }
        let landed = self.landed.load(Ordering::Relaxed);
        let rate = (landed - state.measured_landed) as f64 * 1000.0 / measured_for_ms as f64;
        let kept = if state.rate == 0.0 { 0.0 } else { (-(measured_for_ms as f64) / HALVED_MS).exp2() };
        state.rate = state.rate * kept + rate * (1.0 - kept);
        (state.measured_ms, state.measured_landed) = (flowed_ms, landed);
        let ahead = (state.rate * AHEAD_MS as f64 / 1000.0) as u64;
        self.bound.store(ahead.max(AHEAD_LEAST), Ordering::Relaxed);
    }

    fn on_landed(&self, bytes: u64, now_ms: impl Fn() -> u64) {
        self.landed.fetch_add(bytes, Ordering::Relaxed);
        if !self.is_flowing.load(Ordering::Relaxed) {
            let mut state = self.lock();
            if state.bodies > 0 && !self.is_flowing.swap(true, Ordering::Relaxed) {
                state.since_ms = now_ms();
            }
        }
    }

    fn on_end(&self, bytes: u64, now_ms: u64) {
        self.on_the_way.fetch_sub(bytes, Ordering::Relaxed);
        let mut state = self.lock();
        state.bodies -= 1;
        if state.bodies == 0 {
            state.flowed_ms = state.flowed_ms(self.is_flowing.swap(false, Ordering::Relaxed), now_ms);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn flowed_ms(&self, is_flowing: bool, now_ms: u64) -> u64 {
        self.flowed_ms + if is_flowing { now_ms.saturating_sub(self.since_ms) } else { 0 }
    }
}

impl Body {
    /// Its first `bytes` bytes have landed.
    pub(super) fn on_landed(&self, bytes: u64, now_ms: impl Fn() -> u64) {
        let bytes = bytes.min(self.bytes);
        let before = self.landed.fetch_max(bytes, Ordering::Relaxed);
        if bytes > before {
            self.link.on_landed(bytes - before, now_ms);
        }
    }

    /// Nothing more of it will land.
    pub(super) fn end(&self, now_ms: u64) {
        if !self.has_ended.swap(true, Ordering::Relaxed) {
            self.link.on_end(self.bytes, now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// `at_once` bodies of `bytes` bytes each, for `ms` milliseconds, over a link with a total and a limit
    /// for each; how much may be in flight in the end.
    fn check(bytes: u64, at_once: u64, total_a_ms: u64, each_a_ms: u64, ms: u64) -> u64 {
        let link = Arc::new(Link::default());
        let mut bodies: Vec<(Body, u64)> = (0..at_once).map(|_| (link.expect(bytes), 0)).collect();
        for now_ms in 0..ms {
            for (body, landed) in &mut bodies {
                *landed += each_a_ms.min(total_a_ms / at_once);
                body.on_landed(*landed, || now_ms);
                if *landed >= bytes {
                    let next = link.expect(bytes);
                    std::mem::replace(body, next).end(now_ms);
                    *landed = 0;
                }
            }
            link.measure(now_ms);
        }
        assert_eq!(link.on_the_way.load(Ordering::Relaxed), bytes * at_once);
        bodies.iter().for_each(|(body, _)| body.end(ms));
        assert_eq!((link.on_the_way.load(Ordering::Relaxed), link.lock().bodies), (0, 0));
        link.bound.load(Ordering::Relaxed)
    }

    #[test]
    fn no_more_is_ahead_than_a_thin_link_brings_in_seconds() {
        for at_once in [1, 4, 16] {
            let bound = check(256 * KIB, at_once, KIB, KIB, 10_000);
            assert!((2 * MIB..=3 * MIB).contains(&bound), "{at_once} at once, 1 MiB/s: {bound}");
        }
        assert_eq!(check(256 * KIB, 4, 40, 40, 10_000), AHEAD_LEAST, "40 kB/s");
        assert!(
            check(MIB, 4, 100 * KIB, 100 * KIB, 2_000) > 100 * MIB,
            "a fast one bounds nothing that matters"
        );
    }

    #[test]
    fn where_each_connection_is_slow_and_many_are_fast_their_number_grows() {
        // As many as fit into what may be ahead, until that has no end or is all that comes.
        let (mut at_once, mut rounds) = (4, 0);
        while at_once < 128 {
            let bound = check(256 * KIB, at_once, u64::MAX / 2, 128, 2_000);
            assert!(bound / (256 * KIB) > at_once || bound == AHEAD_LEAST, "stuck at {at_once} connections");
            at_once = (bound / (256 * KIB)).max(at_once + 1);
            rounds += 1;
        }
        assert!(rounds < 20, "{rounds}");
    }

    #[test]
    fn pauses_and_first_bytes_that_take_long_make_no_link_thin() {
        let link = Arc::new(Link::default());
        let mut now_ms = 0;
        for _ in 0..20 {
            // Half a second to the first byte, then 10 MiB in 10 ms, and a reader that does something else.
            let body = link.expect(10 * MIB);
            now_ms += 500;
            for landed in 1..=10 {
                body.on_landed(landed * MIB, || now_ms);
                now_ms += 1;
                link.measure(now_ms);
            }
            body.end(now_ms);
            now_ms += 30_000;
            link.measure(now_ms);
        }
        assert!(link.has_room(1 << 30));
    }

    #[test]
    fn what_ends_is_on_its_way_no_more() {
        let link = Arc::new(Link::default());
        let (one, other) = (link.expect(100), link.expect(50));
        one.on_landed(60, || 0);
        // The same bytes once more: by a second attempt.
        one.on_landed(40, || 1);
        assert_eq!((link.landed(), link.on_the_way.load(Ordering::Relaxed)), (60, 150));
        one.end(5);
        one.end(6);
        assert_eq!(link.on_the_way.load(Ordering::Relaxed), 50);
        other.end(7);
        assert_eq!(link.on_the_way.load(Ordering::Relaxed), 0);
    }
}
