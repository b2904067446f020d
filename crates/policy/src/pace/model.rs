//! A fluid model of an origin and of the workers that fetch from it, in steps of virtual time, all chance
//! from a seed.
//!
//! A worker waits for its first byte, receives its part at the rate of its connection, and asks for the next.
//! Connections share the total; beyond what is useful, each more in flight costs a little of it. One that was
//! let go of stays open for the next worker; a new one takes two round trips to open and doubles its window
//! in each that follows. Where bytes are sent, they are counted a little before they leave.

use std::time::{Duration, Instant};

use super::{MIB, Pace, Sample};
use crate::retry::Dice;

/// One step of the model and one tick of the pace, seconds.
const STEP: f64 = 0.025;

/// The weather changes every tenth of a second.
const STEPS_OF_WEATHER: usize = 4;

/// What fits into the first window of a connection (RFC 6928).
const FIRST_WINDOW: f64 = 14_600.0;

/// What an origin and the way to it are like. Rates are MiB a second, times seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) per_connection: f64,
    pub(crate) first_byte: f64,
    pub(crate) total: f64,
    /// In the second half of the run.
    pub(crate) total_later: f64,
    pub(crate) per_connection_later: f64,
    pub(crate) round_trip: f64,
    /// Common to all connections, from one tenth of a second to the next: the deviation of the logarithm.
    pub(crate) noise: f64,
    /// From one part to the next.
    pub(crate) unevenness: f64,
    /// What is lost of the total each time that as many again are in flight as are useful.
    pub(crate) penalty: f64,
    /// The total is what this machine's cores bear.
    pub(crate) by_cores: bool,
    /// Where bytes are sent: MiB of each part that are taken at once, and counted, before they have left. A
    /// worker waits for the answer behind its part, and tells no first byte.
    pub(crate) held: Option<f64>,
    pub(crate) small: Option<Small>,
}

/// Small objects in place of parts: the origin, or the way to it, takes so many a second, and those beyond
/// wait for each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small {
    pub(crate) mib: f64,
    pub(crate) per_second: f64,
}

impl Shape {
    /// What is counted when `bytes` of a part leave of which `left` had not.
    fn counted(&self, bytes: f64, left: f64) -> f64 {
        self.held.map_or(bytes, |held| bytes.min((left - held * MIB as f64).max(0.0)))
    }
}

/// What decides how many are in flight.
pub(crate) enum Control<'a> {
    /// So many, with parts of so many MiB.
    Fixed(u32, f64),
    Paced(&'a mut Pace, Instant),
}

/// What a run has shown: bytes and attempts in flight of each step.
#[derive(Debug, Default)]
pub(crate) struct Run {
    bytes: Vec<f64>,
    in_flight: Vec<f64>,
}

impl Run {
    pub(crate) fn bytes(&self) -> f64 {
        self.bytes.iter().sum()
    }

    pub(crate) fn connections(&self) -> f64 {
        self.in_flight.iter().sum::<f64>() / self.in_flight.len() as f64
    }

    pub(crate) fn most_in_flight(&self) -> f64 {
        self.in_flight.iter().copied().fold(0.0, f64::max)
    }

    /// Attempts in flight between two times, on average.
    pub(crate) fn in_flight(&self, from: f64, to: f64) -> f64 {
        let steps = steps(from)..steps(to);
        self.in_flight[steps.clone()].iter().sum::<f64>() / steps.len() as f64
    }

    /// Bytes a second between two times.
    pub(crate) fn rate(&self, from: f64, to: f64) -> f64 {
        let steps = steps(from)..steps(to);
        self.bytes[steps.clone()].iter().sum::<f64>() / (steps.len() as f64 * STEP)
    }

    /// When `rate` was first had for 0.3 s.
    pub(crate) fn reaches(&self, rate: f64) -> f64 {
        let window = steps(0.3);
        let at = self.bytes.windows(window).position(|bytes| bytes.iter().sum::<f64>() >= rate * 0.3);
        at.map_or(f64::INFINITY, |at| (at + window) as f64 * STEP)
    }
}

fn steps(seconds: f64) -> usize {
    (seconds / STEP).round() as usize
}

#[derive(Clone, Copy)]
enum State {
    Waits { until: f64, asked: f64 },
    Receives { left: f64 },
}

#[derive(Clone, Copy)]
struct Worker {
    state: State,
    /// Of this part, beside the others.
    luck: f64,
    /// When its connection began to carry, while that still matters.
    young_since: Option<f64>,
}

impl Worker {
    /// What its connection could carry at `time`, bytes a second.
    fn speed(&mut self, time: f64, full: f64, round_trip: f64) -> f64 {
        let full = full * self.luck;
        let Some(since) = self.young_since else { return full };
        let doublings = ((time - since) / round_trip).max(0.0);
        let window = FIRST_WINDOW * doublings.min(40.0).exp2();
        if window >= full * round_trip {
            self.young_since = None;
        }
        full.min(window / round_trip)
    }
}

/// Runs for `seconds`.
pub(crate) fn run(shape: &Shape, mut control: Control<'_>, seconds: f64, seed: u64) -> Run {
    let mib = MIB as f64;
    let mut dice = Dice::new(seed);
    let mut weather = Dice::new(seed ^ 0x5EED);
    let mut mood = 1.0;
    let mut run = Run::default();
    let mut workers: Vec<Worker> = Vec::new();
    // Connections that nobody uses.
    let mut idle = 0usize;
    // How long small objects wait for those before them.
    let mut queued = 0.0f64;
    for step in 0..steps(seconds) {
        let now = step as f64 * STEP;
        let end = now + STEP;
        let (total, full) = match now >= seconds / 2.0 {
            true => (shape.total_later * mib, shape.per_connection_later * mib),
            false => (shape.total * mib, shape.per_connection * mib),
        };
        if step % STEPS_OF_WEATHER == 0 {
            mood = log_normal(&mut weather, shape.noise);
        }
        let limit = match &control {
            Control::Fixed(level, _) => *level,
            Control::Paced(pace, _) => pace.limit(),
        } as usize;
        while workers.len() < limit {
            let asked = if idle > 0 { now } else { now + 2.0 * shape.round_trip };
            let until = asked + shape.first_byte + queued;
            let young_since = (idle == 0 && shape.round_trip > 0.0).then_some(until);
            idle = idle.saturating_sub(1);
            let luck = log_normal(&mut dice, shape.unevenness);
            workers.push(Worker { state: State::Waits { until, asked }, luck, young_since });
        }
        let wanted: f64 = workers
            .iter_mut()
            .map(|worker| match worker.state {
                State::Waits { until, .. } if until >= end => 0.0,
                State::Waits { until, .. } => {
                    worker.speed(now, full, shape.round_trip) * (end - until.max(now)) / STEP
                }
                State::Receives { .. } => worker.speed(now, full, shape.round_trip),
            })
            .sum();
        let wanted = if shape.small.is_some() { 0.0 } else { wanted };
        let beyond = (workers.len() as f64 / (total / full).max(1.0) - 1.0).max(0.0);
        let allowed = total * (1.0 - (shape.penalty * beyond).min(0.5));
        let share = (allowed / wanted.max(1.0)).min(1.0) * mood;
        let (mut bytes, mut counted, mut waited, mut answers, mut let_go) = (0.0, 0.0, 0.0, 0u32, 0usize);
        let surplus = workers.len().saturating_sub(limit);
        workers.retain_mut(|worker| {
            let mut time = now;
            loop {
                match worker.state {
                    State::Waits { until, .. } if until >= end => return true,
                    State::Waits { until, asked } => {
                        time = time.max(until);
                        waited += until - asked;
                        answers += 1;
                        let left = match (shape.small, &mut control) {
                            (Some(small), _) => small.mib * mib,
                            (None, Control::Fixed(_, part_mib)) => *part_mib * mib,
                            (None, Control::Paced(pace, _)) => pace.part_bytes(u64::MAX) as f64,
                        };
                        counted += shape.held.map_or(0.0, |held| left.min(held * mib));
                        worker.state = State::Receives { left };
                    }
                    State::Receives { left } => {
                        let rate = worker.speed(time, full, shape.round_trip) * share;
                        let most = rate * (end - time);
                        bytes += left.min(most);
                        counted += shape.counted(left.min(most), left);
                        if most < left {
                            worker.state = State::Receives { left: left - most };
                            return true;
                        }
                        time += left / rate;
                        if let_go < surplus {
                            let_go += 1;
                            return false;
                        }
                        worker.luck = log_normal(&mut dice, shape.unevenness);
                        let uneven = 1.0 + shape.unevenness * (2.0 * dice.roll() - 1.0);
                        let until = time + shape.first_byte * uneven + queued;
                        worker.state = State::Waits { until, asked: time };
                    }
                }
            }
        });
        idle += let_go;
        let served = shape.small.map_or(0.0, |small| f64::from(answers) / (small.per_second * mood));
        queued = (queued + served - STEP).max(0.0);
        run.bytes.push(bytes);
        run.in_flight.push(workers.len() as f64);
        if let Control::Paced(pace, start) = &mut control {
            let moving =
                workers.iter().filter(|worker| matches!(worker.state, State::Receives { .. })).count();
            let tells = answers > 0 && shape.held.is_none();
            let first_byte = tells.then(|| Duration::from_secs_f64(waited / f64::from(answers)));
            let sample = Sample {
                bytes: counted as u64,
                in_flight: workers.len() as u32,
                moving: moving as u32,
                first_byte,
                answers,
                waited: Duration::from_secs_f64(waited),
                busy: match shape.by_cores {
                    true if shape.small.is_some() => (served / STEP).min(1.0),
                    true => (wanted / allowed).min(1.0),
                    false => 0.0,
                },
                ..Sample::default()
            };
            pace.on_tick(*start + Duration::from_secs_f64(end), sample);
        }
    }
    run
}

/// A factor with that deviation of its logarithm, one on average.
fn log_normal(dice: &mut Dice, deviation: f64) -> f64 {
    if deviation == 0.0 {
        return 1.0;
    }
    // Three dice are near enough to a normal distribution: half a roll each is their mean, a quarter their
    // variance.
    let normal = 2.0 * (dice.roll() + dice.roll() + dice.roll() - 1.5);
    (deviation * normal - deviation * deviation / 2.0).exp()
}
