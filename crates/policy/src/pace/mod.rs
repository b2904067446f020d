//! Pace: how many parts are in flight toward an origin, and how large they are, found while they fly. Pure:
//! time is an argument, and what happened comes as samples.
//!
//! The owner ticks it every 25 ms or so while anything is in flight, starts or lets go of workers until their
//! number is [`Pace::limit`], and cuts parts as long as [`Pace::part_bytes`] says. The bytes counted are
//! those on the wire: finished parts are too coarse for rounds of a tenth of a second. What is not a matter
//! of level stands beside it: a [`Throttle`](throttle::Throttle) for each class of operation, a
//! [`Bucket`](bucket::Bucket) for `--bandwidth`.

mod answers;
pub mod bucket;
mod climb;
#[cfg(test)]
mod line_rate_tests;
mod meter;
#[cfg(test)]
mod model;
mod part;
#[cfg(test)]
mod small_tests;
#[cfg(test)]
mod tests;
pub mod throttle;

use std::time::{Duration, Instant};

use answers::Answers;
use climb::{Climb, Standing, Start};
use meter::{Meter, Span};
use part::PartSize;

const MIB: u64 = 1 << 20;

/// A round of measuring is one first byte long, within these bounds: less is the luck of a few packets.
const ROUND_LEAST: f64 = 0.1;
const ROUND_MOST: f64 = 0.4;

/// Ticks further apart than this say that nothing was in flight between them.
const GAP: Duration = Duration::from_millis(500);

/// The most attempts in flight, unless told otherwise. 100 Gbit/s takes 140 to 250 of the 50 to 90 MB/s that
/// a connection to a large store carries, and 1024 are slower than 256 (reference/cli.md §3.1); 512 leave
/// room for slow uploads.
pub const LEVEL_MOST: u32 = 512;

/// Fewer would leave threads of ours idle, and one that is silent for a moment would be half of all.
const LEVEL_LEAST: f64 = 4.0;

/// What a part is measured by before anything is: 16 MiB/s are 8 MiB in half a second.
const FIRST_RATE: f64 = 16.0 * MIB as f64;
const FIRST_PART_MIB: f64 = 8.0;

/// A guess from the cores is no more than this: from 32 an origin that needs 512 is four doublings away, and
/// one that needs 8 is found to need 8 before a run of 20 s has opened 1.3 times as many on average. From 64
/// neither gets better.
const CORES_GUESS_MOST: f64 = 32.0;

/// What is known before the first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seed {
    /// Of this origin and direction, from an earlier run.
    pub remembered: Option<Remembered>,
    pub cores: u32,
}

impl Seed {
    fn start(&self) -> Start {
        if let Some(remembered) = self.remembered {
            return Start::Remembered { level: f64::from(remembered.level) };
        }
        let level = f64::from(self.cores * 8).clamp(16.0, CORES_GUESS_MOST);
        Start::Guess { level, step: if level > 16.0 { 1.5 } else { 2.0 } }
    }

    /// What a connection is expected to carry, bytes a second.
    fn connection_rate(&self) -> f64 {
        self.remembered.map_or(FIRST_RATE, |found| found.connection_rate as f64)
    }
}

/// What a run found, for the next one to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    pub level: u32,
    /// Of one connection, bytes a second.
    pub connection_rate: u64,
    pub part_bytes: u64,
    /// Seconds since 1970.
    pub when: u64,
}

/// What bounds the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In flight at most, by open files or by [`LEVEL_MOST`].
    pub most: u32,
    /// `--parallel`: that many, whatever they carry.
    pub parallel: Option<u32>,
    /// `--part-size`.
    pub part_bytes: Option<u64>,
    /// What parts in flight may hold together, where a part holds its whole length.
    pub memory: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { most: LEVEL_MOST, parallel: None, part_bytes: None, memory: None }
    }
}

impl Limits {
    /// Parts shrink to a MiB before there are fewer of them: as many bytes in more parts carry more.
    pub fn bound(&self) -> u32 {
        let parts = self.memory.map_or(u64::MAX, |memory| memory / self.part_bytes.unwrap_or(MIB).max(1));
        self.most.min(u32::try_from(parts).unwrap_or(u32::MAX)).max(1)
    }
}

/// What happened between two ticks, and how things stand at the second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// That crossed the wire since the last tick.
    pub bytes: u64,
    /// Attempts that hold a slot now, whatever they are at.
    pub in_flight: u32,
    /// Of these, how many have a body under way: connected, answered, neither waiting nor done.
    pub moving: u32,
    /// Of these, how many wait for something of ours.
    pub gated: Gated,
    /// A slot was free and there was no part for it, at some time since the last tick.
    pub starved: bool,
    /// From request to first byte, the mean of the answers that began since the last tick.
    pub first_byte: Option<Duration>,
    /// Requests that were answered since the last tick, and how long they had waited for it in all: from the
    /// request, or the end of its body, on.
    pub answers: u32,
    pub waited: Duration,
    /// The share of their time in which our threads ran, or would have if there had been a core for them.
    pub busy: f64,
}

impl Sample {
    /// Something else than the origin or the way to it decided what was carried.
    fn is_held_up(&self) -> bool {
        self.starved || self.gated.all() * 10 > self.in_flight
    }
}

/// Attempts that hold a slot and wait, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gated {
    pub disk: u32,
    pub memory: u32,
    pub reader: u32,
    /// `--bandwidth`.
    pub bandwidth: u32,
    /// The [`Throttle`](throttle::Throttle) of their class.
    pub requests: u32,
}

impl Gated {
    fn all(&self) -> u32 {
        self.disk + self.memory + self.reader + self.bandwidth + self.requests
    }

    fn each(&self) -> [(WaitReason, u32); 5] {
        let Gated { disk, memory, reader, bandwidth, requests } = *self;
        use WaitReason::{Bandwidth, Disk, Memory, Reader, Requests};
        [(Disk, disk), (Memory, memory), (Reader, reader), (Bandwidth, bandwidth), (Requests, requests)]
    }
}

/// Something of ours that attempts wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    Disk,
    Memory,
    Reader,
    Bandwidth,
    Requests,
}

/// What holds the speed back now, with the figures that prove it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LimitedBy {
    /// The level is still being found.
    Ramp { in_flight: u32 },
    /// That share of the attempts in flight waits for something of ours.
    Waits { on: WaitReason, share: f64 },
    /// There were no more parts to be had.
    Parts { in_flight: u32, limit: u32 },
    /// The origin asked for less not long ago: `limit` is what is left of the level.
    Throttled { limit: u32 },
    /// The bound of the search, `--parallel`, memory or open files: more in flight might bring more.
    Bound { limit: u32, rate: f64 },
    /// The link, the origin or this machine's cores: `rate` bytes a second with `in_flight`; with more of
    /// them, where that has been tried, the second of `tried`.
    Plateau { in_flight: u32, rate: f64, tried: Option<(u32, f64)> },
}

/// How one origin is asked in one direction; see the module.
#[derive(Debug)]
pub struct Pace {
    limits: Limits,
    climb: Climb,
    answers: Answers,
    meter: Meter,
    part: PartSize,
    /// Smoothed, seconds.
    first_byte: f64,
    ticked: Instant,
    throttled: Option<Instant>,
    lately: Lately,
    carried: Carried,
}

/// What connections carried since a level was found: bytes, over the time that all their bodies together
/// moved. Lumps and bodies that end between ticks are on both sides of it or on neither.
#[derive(Clone, Copy, Debug)]
struct Carried {
    bytes: f64,
    seconds: f64,
}

/// Of what connections carried so long ago about a third is left.
const CARRIED_S: f64 = 3.0;

/// Half a second of samples, smoothed.
#[derive(Clone, Copy, Debug, Default)]
struct Lately {
    in_flight: f64,
    rate: f64,
    starved: f64,
    gated: [f64; 5],
}

impl Pace {
    pub fn new(seed: Seed, limits: Limits, now: Instant) -> Pace {
        let part = match seed.remembered {
            // Short at first: the level may be far too high by now, and a slot is given up when its part
            // ends.
            Some(found) => {
                let mib = (found.part_bytes as f64).min(found.connection_rate as f64 / 4.0) / MIB as f64;
                PartSize::new(limits.part_bytes, mib, seed.connection_rate())
            }
            None => PartSize::new(limits.part_bytes, FIRST_PART_MIB, seed.connection_rate()),
        };
        Pace {
            limits,
            climb: Climb::new(
                seed.start(),
                LEVEL_LEAST.min(f64::from(limits.bound())),
                f64::from(limits.bound()),
            ),
            answers: Answers::default(),
            meter: Meter::new(now),
            part,
            first_byte: 0.0,
            ticked: now,
            throttled: None,
            lately: Lately::default(),
            // What is expected stands until there is something to say.
            carried: Carried { bytes: seed.connection_rate(), seconds: 1.0 },
        }
    }

    /// How many attempts should be in flight.
    pub fn limit(&self) -> u32 {
        let level = self.limits.parallel.unwrap_or_else(|| self.climb.level().round() as u32);
        level.min(self.limits.bound()).max(1)
    }

    /// How long to make the next part, of an object of which `left` bytes have not been given out: whole MiB,
    /// but for a fixed size. It differs from call to call.
    pub fn part_bytes(&mut self, left: u64) -> u64 {
        self.part.next(left, self.limit(), self.limits.memory, self.first_byte)
    }

    /// How long parts are just now, give or take a quarter.
    pub fn usual_part_bytes(&self) -> u64 {
        self.part.bytes()
    }

    /// Whether the level is still being looked for: what crosses the wire is to be told soon then.
    pub fn is_climbing(&self) -> bool {
        self.limits.parallel.is_none() && self.climb.is_climbing()
    }

    /// Other bounds from now on: memory or files are shared with someone else, or no longer.
    pub fn set_limits(&mut self, limits: Limits, now: Instant) {
        let before = self.limit();
        self.limits = limits;
        self.climb.set_most(f64::from(limits.bound()));
        if self.limit() != before {
            self.meter.restart(now);
        }
    }

    /// What happened since the last tick. [`Pace::limit`] may be another afterwards.
    pub fn on_tick(&mut self, now: Instant, sample: Sample) {
        let elapsed = now.saturating_duration_since(self.ticked);
        self.ticked = now;
        if elapsed.is_zero() || elapsed > GAP {
            return self.meter.restart(now);
        }
        let seconds = elapsed.as_secs_f64();
        self.lately.on_tick(&sample, seconds);
        if let Some(first_byte) = sample.first_byte.map(|first_byte| first_byte.as_secs_f64()) {
            let weight = if self.first_byte == 0.0 { 1.0 } else { 0.1 };
            self.first_byte += (first_byte - self.first_byte) * weight;
        }
        if sample.moving > 0 {
            let rate = sample.bytes as f64 / seconds / f64::from(sample.moving);
            let by_requests = self.lately.waits_for(WaitReason::Requests);
            self.part.on_tick(rate, seconds, self.first_byte, self.is_climbing(), by_requests);
        }
        if !self.is_climbing() {
            self.carried.on_tick(&sample, seconds);
        }
        if self.limits.parallel.is_none() {
            self.climb(now, elapsed, &sample);
        }
    }

    fn climb(&mut self, now: Instant, elapsed: Duration, sample: &Sample) {
        let round = Duration::from_secs_f64(self.first_byte.clamp(ROUND_LEAST, ROUND_MOST));
        let before = self.limit();
        if self.climb.may_go_by_answers() {
            let finding = self.answers.on_tick(sample, elapsed.as_secs_f64(), f64::from(before));
            if self.climb.on_answers(finding) {
                return self.meter.restart(now);
            }
        }
        let span = self.meter.on_tick(now, elapsed, sample, before, round);
        let glance = self.meter.glance();
        let changed = glance.is_some_and(|glance| self.climb.on_glance(glance));
        if let (Some(span), false) = (span, changed) {
            // A connection doubles its window every round trip, and a round trip is part of the first byte.
            let slow = (self.first_byte / 0.05).round().min(3.0) as u32;
            self.climb.on_round(span, glance, slow);
        }
        if self.limit() != before || changed {
            self.meter.restart(now);
        }
    }

    /// [`Throttle::on_throttled`](throttle::Throttle::on_throttled) of this direction's class has said that a
    /// verdict was news.
    pub fn on_throttled(&mut self, now: Instant) {
        let round = Duration::from_secs_f64(self.first_byte.clamp(ROUND_LEAST, ROUND_MOST));
        let again = self.throttled.is_some_and(|last| now.saturating_duration_since(last) < round);
        // Where requests wait for their throttle, it is the rate that was tried, and it was cut.
        if again || self.lately.waits_for(WaitReason::Requests) {
            return;
        }
        self.throttled = Some(now);
        self.climb.on_throttled();
        self.meter.restart(now);
    }

    /// For the next run, once there is something: `when` is in seconds since 1970.
    pub fn remember(&self, when: u64) -> Option<Remembered> {
        if self.limits.parallel.is_some() {
            return None;
        }
        let level = self.climb.found()?.round() as u32;
        let connection_rate = self.carried.rate() as u64;
        Some(Remembered { level, connection_rate, part_bytes: self.part.bytes(), when })
    }

    pub fn limited_by(&self) -> LimitedBy {
        let limit = self.limit();
        let Lately { in_flight, rate, starved, .. } = self.lately;
        let in_flight = in_flight.round() as u32;
        if let Some((gate, share)) = self.lately.gate() {
            return LimitedBy::Waits { on: gate, share };
        }
        if starved > 0.5 {
            return LimitedBy::Parts { in_flight, limit };
        }
        if self.limits.parallel.is_some() {
            return LimitedBy::Bound { limit, rate };
        }
        match self.climb.standing() {
            Standing::Climbing => LimitedBy::Ramp { in_flight },
            Standing::Throttled => LimitedBy::Throttled { limit },
            Standing::Bound => LimitedBy::Bound { limit, rate },
            Standing::Knee { held, tried } => {
                let figures = |span: Span| (span.level().round() as u32, span.rate());
                // The level has just been reached: what is carried there is what was carried lately.
                let (in_flight, rate) = if held.rounds() > 0.0 { figures(held) } else { (in_flight, rate) };
                let tried = tried.map(figures).filter(|(level, _)| *level > in_flight);
                LimitedBy::Plateau { in_flight, rate, tried }
            }
        }
    }
}

impl Carried {
    fn on_tick(&mut self, sample: &Sample, seconds: f64) {
        let left = (-seconds / CARRIED_S).exp();
        self.bytes = self.bytes * left + sample.bytes as f64;
        self.seconds = self.seconds * left + f64::from(sample.moving) * seconds;
    }

    /// Of one connection, bytes a second; never nothing.
    fn rate(&self) -> f64 {
        (self.bytes / self.seconds.max(f64::MIN_POSITIVE)).max(1.0)
    }
}

impl Lately {
    fn on_tick(&mut self, sample: &Sample, seconds: f64) {
        let weight = (seconds / 0.5).min(1.0);
        let toward = |value: &mut f64, now: f64| *value += (now - *value) * weight;
        toward(&mut self.in_flight, f64::from(sample.in_flight));
        toward(&mut self.rate, sample.bytes as f64 / seconds);
        toward(&mut self.starved, f64::from(u8::from(sample.starved)));
        for (share, (_, waiting)) in self.gated.iter_mut().zip(sample.gated.each()) {
            toward(share, f64::from(waiting) / f64::from(sample.in_flight.max(1)));
        }
    }

    /// What most wait for, when that is more than a tenth of all.
    fn gate(&self) -> Option<(WaitReason, f64)> {
        let shares = Gated::default().each().map(|(gate, _)| gate).into_iter().zip(self.gated);
        shares.filter(|(_, share)| *share > 0.1).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn waits_for(&self, gate: WaitReason) -> bool {
        self.gate().is_some_and(|(most, _)| most == gate)
    }
}
