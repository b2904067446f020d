//! Pace: how many parts are in flight toward an origin, and how large they are, found while they fly.

mod bucket;
mod climb;
mod meter;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
mod throttle;

use std::time::{Duration, Instant};

use climb::Climb;
use meter::Meter;

/// What happened since the last tick.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) bytes: u64,
    pub(crate) in_flight: u32,
    pub(crate) receiving: u32,
    pub(crate) gated: u32,
    pub(crate) starved: bool,
    pub(crate) first_byte: Option<Duration>,
}

impl Sample {
    fn is_held(&self) -> bool {
        self.starved || self.gated * 10 > self.in_flight
    }
}

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) struct Pace {
    climb: Climb,
    meter: Meter,
    first_byte: f64,
    last: Instant,
    part: u64,
    rate: f64,
    dither: f64,
}

impl Pace {
    pub(crate) fn new(seed: f64, now: Instant) -> Pace {
        Pace {
            climb: Climb::new(seed, if seed > 16.0 {1.5} else {2.0}, 1.0, 512.0),
            meter: Meter::new(now),
            first_byte: 0.0,
            last: now,
            part: 8 * MIB,
            rate: 16.0 * MIB as f64,
            dither: 0.0,
        }
    }
    pub(crate) fn limit(&self) -> u32 {
        self.climb.level().round() as u32
    }
    pub(crate) fn part_bytes(&mut self) -> u64 {
        self.dither = (self.dither + 0.618034).fract();
        ((self.part as f64 * (0.75 + 0.5 * self.dither) / MIB as f64).round() as u64).max(1) * MIB
    }
    pub(crate) fn debug(&self) -> String {
        format!("{} part {}", self.climb.brief(), self.part / MIB)
    }
    pub(crate) fn on_tick(&mut self, now: Instant, sample: Sample) {
        let elapsed = now - self.last;
        self.last = now;
        if let Some(f) = sample.first_byte {
            let f = f.as_secs_f64();
            self.first_byte += (f - self.first_byte) * if self.first_byte == 0.0 { 1.0 } else { 0.1 };
        }
        if sample.receiving > 0 {
            let r = sample.bytes as f64 / elapsed.as_secs_f64() / sample.receiving as f64;
            self.rate += (r - self.rate) * if r > self.rate { 0.3 } else { 0.1 };
            let secs = (if self.climb.is_ramping() { 4.0 } else { 20.0 } * self.first_byte).clamp(0.25, 1.25);
            let want = (self.rate * secs / MIB as f64).clamp(1.0, 64.0);
            let have = (self.part / MIB) as f64;
            if want > have * 1.4 || want < have / 1.4 { self.part = want.round() as u64 * MIB; }
        }
        let round = Duration::from_secs_f64(self.first_byte.clamp(0.1, 0.4));
        let before = self.limit();
        let span = self.meter.on_tick(now, elapsed, &sample, self.limit(), round);
        let glance = self.meter.glance(now, round);
        let age = self.meter.age(now, round);
        if let Some(glance) = glance && self.climb.on_glance(glance, age) {
            self.meter.restart(now);
        } else if let Some(span) = span {
            self.climb.on_round(span, glance, (self.first_byte / 0.05).round().min(3.0) as u32);
            if self.limit() != before { self.meter.restart(now); }
        }
    }
}
