//! A fluid model of an origin, and of the workers that fetch from it, in steps of virtual time.

use std::time::{Duration, Instant};

use super::{MIB, Pace, Sample};
use crate::retry::Dice;

/// One step of the model; a tick of the pace is two.
pub(super) const STEP: f64 = 0.0125;
const TICK_STEPS: usize = 2;

/// What an origin and the way to it are like. Rates are bytes a second, times seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) per_connection: f64,
    pub(super) first_byte: f64,
    pub(super) total: f64,
    /// From the middle of the run on, of `total` and of `per_connection`.
    pub(super) total_later: f64,
    pub(super) per_connection_later: f64,
    /// Round trips: a connection takes two to open, and doubles its window in each.
    pub(super) round_trip: f64,
    /// Of a tenth of a second, common to all connections: the deviation of the logarithm.
    pub(super) noise: f64,
    /// Of one part, beside the others.
    pub(super) unevenness: f64,
    /// What is lost of the total by each time that the useful number is in flight once more.
    pub(super) penalty: f64,
    pub(super) cores_seed: f64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Until then nothing comes.
    Waits { until: f64, asked: f64 },
    Receives { left: f64 },
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    state: State,
    /// Its own luck with this part.
    luck: f64,
    /// When its connection began to carry, for the slow start.
    carries_since: f64,
}

/// What a run has shown, a row for each tick.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Bytes of each tick.
    pub(super) bytes: Vec<f64>,
    pub(super) in_flight: Vec<f64>,
}

impl Run {
    pub(super) fn total(&self) -> f64 {
        self.bytes.iter().sum()
    }
    pub(super) fn connections(&self) -> f64 {
        self.in_flight.iter().sum::<f64>() / self.in_flight.len() as f64
    }
    pub(super) fn rate(&self, from: f64, to: f64) -> f64 {
        let tick = STEP * TICK_STEPS as f64;
        let (from, to) = ((from / tick).round() as usize, (to / tick).round() as usize);
        self.bytes[from..to].iter().sum::<f64>() / ((to - from) as f64 * tick)
    }
}

pub(super) enum Control<'a> {
    /// That many in flight, parts of that many bytes.
    Fixed(u32, f64),
    Paced(&'a mut Pace, Instant),
}

fn log_normal(dice: &mut Dice, deviation: f64) -> f64 {
    if deviation == 0.0 {
        return 1.0;
    }
    // Four uniform ones are near enough to a normal one: mean 0, variance 1.
    let sum: f64 = (0..4).map(|_| dice.roll()).sum::<f64>();
    let normal = (sum - 2.0) * 3f64.sqrt();
    (deviation * normal - deviation * deviation / 2.0).exp()
}

pub(super) fn run(shape: &Shape, mut control: Control<'_>, seconds: f64, seed: u64) -> Run {
    let mut dice = Dice::new(seed);
    let mut weather = Dice::new(seed ^ 0x5EED);
    let mut run = Run::default();
    let mut workers: Vec<Worker> = Vec::new();
    // Connections that were let go of and are still open.
    let mut idle = 0usize;
    let mut mood = 1.0;
    let steps = (seconds / STEP).round() as usize;
    let (mut bytes, mut first_bytes, mut first_byte_sum) = (0.0, 0u32, 0.0);
    let start = match &control {
        Control::Paced(_, start) => *start,
        Control::Fixed(..) => Instant::now(),
    };
    for step in 0..steps {
        let now = step as f64 * STEP;
        let later = now >= seconds / 2.0;
        let total = if later { shape.total_later } else { shape.total };
        let per_connection = if later { shape.per_connection_later } else { shape.per_connection };
        if step % 8 == 0 {
            mood = log_normal(&mut weather, shape.noise);
        }
        let limit = match &control {
            Control::Fixed(level, _) => *level,
            Control::Paced(pace, _) => pace.limit(),
        } as usize;
        while workers.len() < limit {
            let warm = idle > 0;
            idle = idle.saturating_sub(1);
            let opening = if warm { 0.0 } else { 2.0 * shape.round_trip };
            let until = now + opening + shape.first_byte;
            let luck = log_normal(&mut dice, shape.unevenness);
            let carries_since = if warm { f64::MIN } else { until };
            workers.push(Worker { state: State::Waits { until, asked: now + opening }, luck, carries_since });
        }
        // What each could carry, and what all of them may.
        let speed = |worker: &Worker, until: f64| {
            let full = per_connection * worker.luck;
            if shape.round_trip == 0.0 {
                return full;
            }
            let first = 14_600.0 / shape.round_trip;
            full.min(first * ((until - worker.carries_since) / shape.round_trip).clamp(0.0, 30.0).exp2())
        };
        let mut wanted = 0.0;
        let mut receiving = 0u32;
        for worker in &workers {
            match worker.state {
                State::Receives { .. } => {
                    wanted += speed(worker, now);
                    receiving += 1;
                }
                State::Waits { until, .. } if until < now + STEP => {
                    wanted += speed(worker, now) * ((now + STEP - until) / STEP).min(1.0);
                }
                State::Waits { .. } => {}
            }
        }
        let useful = total / per_connection;
        let over = (workers.len() as f64 / useful.max(1.0) - 1.0).max(0.0);
        let allowed = total * (1.0 - (shape.penalty * over).min(0.5));
        let share = if wanted > allowed { allowed / wanted } else { 1.0 } * mood;
        let mut at = 0;
        let mut len = workers.len();
        while at < len {
            let mut worker = workers[at];
            let mut time = now;
            let end = now + STEP;
            let mut gone = false;
            loop {
                match worker.state {
                    State::Waits { until, asked } => {
                        if until >= end {
                            break;
                        }
                        time = time.max(until);
                        first_bytes += 1;
                        first_byte_sum += until - asked;
                        let part = match &mut control {
                            Control::Fixed(_, part) => *part,
                            Control::Paced(pace, _) => pace.part_bytes() as f64,
                        };
                        worker.state = State::Receives { left: part };
                    }
                    State::Receives { left } => {
                        let rate = speed(&worker, time) * share;
                        let take = left.min(rate * (end - time));
                        bytes += take;
                        if take < left {
                            worker.state = State::Receives { left: left - take };
                            break;
                        }
                        time += left / rate;
                        if len > limit {
                            gone = true;
                            break;
                        }
                        worker.luck = log_normal(&mut dice, shape.unevenness);
                        let jitter = 0.8 + 0.4 * dice.roll();
                        let wait = shape.first_byte * jitter;
                        worker.state = State::Waits { until: time + wait, asked: time };
                    }
                }
            }
            if gone {
                workers.swap_remove(at);
                idle += 1;
                len -= 1;
            } else {
                workers[at] = worker;
                at += 1;
            }
        }
        if (step + 1) % TICK_STEPS == 0 {
            run.bytes.push(bytes);
            run.in_flight.push(workers.len() as f64);
            if let Control::Paced(pace, _) = &mut control {
                let sample = Sample {
                    bytes: bytes as u64,
                    in_flight: workers.len() as u32,
                    receiving,
                    first_byte: (first_bytes > 0)
                        .then(|| Duration::from_secs_f64(first_byte_sum / f64::from(first_bytes))),
                    ..Sample::default()
                };
                pace.on_tick(start + Duration::from_secs_f64(now + STEP), sample);
                if std::env::var("TRACE").is_ok() && (step + 1) % 4 == 0 {
                    println!("{:.3} {:4} recv {:4} {:7.1} MiB/s {}", now + STEP, workers.len(), receiving, bytes / MIB as f64 / 0.025, pace.debug());
                }
            }
            (bytes, first_bytes, first_byte_sum) = (0.0, 0, 0.0);
        }
    }
    run
}
