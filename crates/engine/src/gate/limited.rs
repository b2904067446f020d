//! What holds the speed back, with the figure that proves it; and what did so for most of a transfer.

use std::fmt;
use std::time::Duration;

use super::cells::Cores;
use crate::pace::{Gate as Waits, LimitedBy as ByPace};

/// What holds the speed back. Displayed as a short sentence: `the network or the origin: 12 in flight carry 1.2GiB/s, …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// How many parts in flight bring most is still being found.
    Ramp {
        /// Parts, or small objects, in flight.
        in_flight: u32,
    },
    /// The threads of the shards have hardly a free moment.
    Cpu {
        /// Of their time, in percent.
        busy_percent: u32,
        /// They could have run for so much more of it, in percent, and other threads or processes had the cores.
        queued_percent: u32,
    },
    /// Writing to files takes the time of the shards' threads.
    Disk {
        /// Parts that wait for it, in percent.
        waiting_percent: u32,
    },
    /// Room in memory.
    Memory {
        /// Parts that wait for it, in percent.
        waiting_percent: u32,
    },
    /// Whoever reads the stream.
    Reader {
        /// Parts that wait for him, in percent.
        waiting_percent: u32,
    },
    /// `--bandwidth`.
    Bandwidth {
        /// What is received.
        bytes_per_s: u64,
    },
    /// Requests wait: `--request-rate`, or what the origin was found to take.
    Requests {
        /// Parts that wait for their request, in percent.
        waiting_percent: u32,
        /// How many may be sent a second.
        per_s: u32,
        /// By `--request-rate`; else the origin refused more.
        is_asked_for: bool,
    },
    /// The origin asked for less not long ago.
    Throttling {
        /// Parts in flight that are left.
        in_flight: u32,
    },
    /// There is less to ask for than could be in flight: few bytes, or small objects.
    Objects {
        /// Parts, or small objects, in flight.
        in_flight: u32,
        /// How many could be.
        parallel: u32,
    },
    /// More in flight might bring more, and may not be.
    Parallel {
        /// By what.
        bound: Bound,
        /// How many may be in flight.
        parallel: u32,
        /// What they carry.
        bytes_per_s: u64,
    },
    /// The link, the origin, or what stands between: more in flight brought no more.
    Network {
        /// Parts in flight.
        in_flight: u32,
        /// What they carry.
        bytes_per_s: u64,
        /// How many more were tried, and what those carried, bytes a second. Absent where none were yet, and where they carried
        /// more at another time: what came between says nothing of how many are best.
        tried: Option<(u32, u64)>,
    },
}

/// What bounds how many parts may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `--parallel`.
    Parallel,
    /// `--window`: a stream's parts are in it from when they are asked for.
    Window,
    /// `--memory`, of what streams hold or of connections.
    Memory,
    /// Each connection is an open file, and may have another to write to (`ulimit -n`).
    Files,
    /// The most that is tried.
    Most,
}

/// Requests a second that may be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestRate {
    /// `--request-rate`.
    pub(super) asked_for: Option<u32>,
    /// What the origin was found to take.
    pub(super) found: Option<f64>,
}

/// How many there are.
const KINDS: usize = 11;

/// From this on the threads are what limits: the rest is what a scheduler takes.
const BUSY_PERCENT: u32 = 90;

impl LimitedBy {
    /// One word: `ramp`, `cpu`, `disk`, `memory`, `reader`, `bandwidth`, `requests`, `throttling`, `objects`, `parallel`,
    /// `network`.
    pub fn name(self) -> &'static str {
        [
            "ramp",
            "cpu",
            "disk",
            "memory",
            "reader",
            "bandwidth",
            "requests",
            "throttling",
            "objects",
            "parallel",
            "network",
        ][self.kind()]
    }

    /// The figures by name: rates in bytes a second, shares in percent.
    pub fn figures(self) -> Vec<(&'static str, u64)> {
        let count = u64::from;
        match self {
            LimitedBy::Ramp { in_flight } | LimitedBy::Throttling { in_flight } => {
                vec![("in_flight", count(in_flight))]
            }
            LimitedBy::Cpu { busy_percent, queued_percent } => {
                vec![("busy_percent", count(busy_percent)), ("queued_percent", count(queued_percent))]
            }
            LimitedBy::Disk { waiting_percent }
            | LimitedBy::Memory { waiting_percent }
            | LimitedBy::Reader { waiting_percent } => vec![("waiting_percent", count(waiting_percent))],
            LimitedBy::Bandwidth { bytes_per_s } => vec![("bytes_per_s", bytes_per_s)],
            LimitedBy::Requests { waiting_percent, per_s, .. } => {
                vec![("waiting_percent", count(waiting_percent)), ("requests_per_s", count(per_s))]
            }
            LimitedBy::Objects { in_flight, parallel } => {
                vec![("in_flight", count(in_flight)), ("parallel", count(parallel))]
            }
            LimitedBy::Parallel { parallel, bytes_per_s, .. } => {
                vec![("parallel", count(parallel)), ("bytes_per_s", bytes_per_s)]
            }
            LimitedBy::Network { in_flight, bytes_per_s, tried } => {
                let mut figures = vec![("in_flight", count(in_flight)), ("bytes_per_s", bytes_per_s)];
                if let Some((tried, tried_bytes_per_s)) = tried {
                    figures.extend([("tried", count(tried)), ("tried_bytes_per_s", tried_bytes_per_s)]);
                }
                figures
            }
        }
    }

    /// The same, where so much was received.
    fn at_rate(self, rate: u64) -> LimitedBy {
        match self {
            LimitedBy::Bandwidth { .. } => LimitedBy::Bandwidth { bytes_per_s: rate },
            LimitedBy::Parallel { bound, parallel, .. } => {
                LimitedBy::Parallel { bound, parallel, bytes_per_s: rate }
            }
            other => other,
        }
    }

    fn kind(self) -> usize {
        match self {
            LimitedBy::Ramp { .. } => 0,
            LimitedBy::Cpu { .. } => 1,
            LimitedBy::Disk { .. } => 2,
            LimitedBy::Memory { .. } => 3,
            LimitedBy::Reader { .. } => 4,
            LimitedBy::Bandwidth { .. } => 5,
            LimitedBy::Requests { .. } => 6,
            LimitedBy::Throttling { .. } => 7,
            LimitedBy::Objects { .. } => 8,
            LimitedBy::Parallel { .. } => 9,
            LimitedBy::Network { .. } => 10,
        }
    }

    /// What the pace says, where the threads have time left. `cores` are the shares of it that they use, `rate` what is
    /// received, bytes a second, `bound` what bounds the level.
    pub(super) fn of(by: ByPace, cores: Cores, rate: f64, requests: RequestRate, bound: Bound) -> LimitedBy {
        let (busy_percent, queued_percent) = (percent(cores.used), percent(cores.queued));
        let bytes_per_s = rate as u64;
        match by {
            ByPace::Gate { gate, share } => {
                let waiting_percent = percent(share);
                match gate {
                    Waits::Disk => LimitedBy::Disk { waiting_percent },
                    Waits::Memory => LimitedBy::Memory { waiting_percent },
                    Waits::Reader => LimitedBy::Reader { waiting_percent },
                    Waits::Bandwidth => LimitedBy::Bandwidth { bytes_per_s },
                    Waits::Requests => requests.limits(waiting_percent),
                }
            }
            _ if busy_percent + queued_percent >= BUSY_PERCENT => {
                LimitedBy::Cpu { busy_percent, queued_percent }
            }
            ByPace::Ramp { in_flight } => LimitedBy::Ramp { in_flight },
            ByPace::Parts { in_flight, limit } => LimitedBy::Objects { in_flight, parallel: limit },
            ByPace::Throttled { limit } => LimitedBy::Throttling { in_flight: limit },
            ByPace::Bound { limit, rate } => {
                LimitedBy::Parallel { bound, parallel: limit, bytes_per_s: rate as u64 }
            }
            ByPace::Plateau { in_flight, rate, tried } => LimitedBy::Network {
                in_flight,
                bytes_per_s: rate as u64,
                tried: tried
                    .filter(|(_, tried_rate)| *tried_rate <= 1.1 * rate)
                    .map(|(tried, tried_rate)| (tried, tried_rate as u64)),
            },
        }
    }
}

impl RequestRate {
    /// Of the two it is the lesser that parts wait for.
    fn limits(self, waiting_percent: u32) -> LimitedBy {
        let found = self.found.map(|found| found.round() as u32);
        let asked_for = self.asked_for.filter(|asked_for| found.is_none_or(|found| *asked_for <= found));
        let per_s = asked_for.or(found).unwrap_or_default();
        LimitedBy::Requests { waiting_percent, per_s, is_asked_for: asked_for.is_some() }
    }
}

fn percent(share: f64) -> u32 {
    (share * 100.0).round().clamp(0.0, 100.0) as u32
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let speed = |bytes: u64| format!("{}/s", flatout_settings::format_size(bytes));
        match *self {
            LimitedBy::Ramp { in_flight } => {
                write!(out, "the start: {in_flight} in flight, and how many carry most is looked for")
            }
            LimitedBy::Cpu { busy_percent, queued_percent } => {
                write!(out, "the cores: the threads of the shards run {busy_percent} % of the time")?;
                match queued_percent {
                    0..5 => Ok(()),
                    _ => write!(out, " and wait {queued_percent} % of it for a core"),
                }
            }
            LimitedBy::Disk { waiting_percent } => {
                write!(out, "the disk: {waiting_percent} % of the parts in flight wait for it")
            }
            LimitedBy::Memory { waiting_percent } => {
                write!(out, "memory: {waiting_percent} % of the parts in flight wait for room")
            }
            LimitedBy::Reader { waiting_percent } => {
                write!(out, "the reader: {waiting_percent} % of the parts in flight wait for it")
            }
            LimitedBy::Bandwidth { bytes_per_s } => {
                write!(out, "--bandwidth: {} are received", speed(bytes_per_s))
            }
            LimitedBy::Requests { waiting_percent, per_s, is_asked_for: true } => {
                write!(
                    out,
                    "--request-rate: {per_s} requests a second, and {waiting_percent} % of the parts wait for theirs"
                )
            }
            LimitedBy::Requests { per_s, .. } => {
                write!(out, "the origin's throttling: it takes about {per_s} requests a second")
            }
            LimitedBy::Throttling { in_flight } => {
                write!(out, "the origin's throttling: {in_flight} in flight are left")
            }
            LimitedBy::Objects { in_flight, parallel } => {
                let parts = if in_flight == 1 { "part" } else { "parts" };
                write!(out, "what is asked for: {in_flight} {parts} in flight of {parallel} that could be")
            }
            LimitedBy::Parallel { bound, parallel, bytes_per_s } => {
                let by = match bound {
                    Bound::Parallel => "--parallel",
                    Bound::Window => "--window",
                    Bound::Memory => "--memory",
                    Bound::Files => "how many files may be open (ulimit -n)",
                    Bound::Most => "the most that is tried",
                };
                write!(out, "{by}: {parallel} in flight carry {}", speed(bytes_per_s))
            }
            LimitedBy::Network { in_flight, bytes_per_s, tried } => {
                write!(out, "the network or the origin: {in_flight} in flight carry {}", speed(bytes_per_s))?;
                match tried {
                    Some((tried, carried)) => write!(out, ", {tried} carried {}", speed(carried)),
                    None => Ok(()),
                }
            }
        }
    }
}

/// How long each of them held the speed back, and its last figures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    times: [Duration; KINDS],
    last: [Option<LimitedBy>; KINDS],
    /// Received in those times.
    bytes: [u64; KINDS],
    now: Option<LimitedBy>,
}

impl Tally {
    pub(super) fn add(&mut self, by: LimitedBy, elapsed: Duration, bytes: u64) {
        self.times[by.kind()] += elapsed;
        self.bytes[by.kind()] += bytes;
        self.last[by.kind()] = Some(by);
        self.now = Some(by);
    }

    /// For how long each did, of those that did at all.
    pub(super) fn times(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let (times, last) = (self.times, self.last);
        (0..KINDS).filter_map(move |kind| Some((last[kind]?.name(), times[kind])))
    }

    /// What does so now.
    pub(crate) fn now(&self) -> Option<LimitedBy> {
        self.now
    }

    /// What did so longest since `earlier`, with its last figures and what was received all that time; `None` where nobody looked
    /// in between.
    pub(crate) fn since(&self, earlier: &Tally) -> Option<LimitedBy> {
        let time = |kind: &usize| self.times[*kind].saturating_sub(earlier.times[*kind]);
        let longest = (0..KINDS).max_by_key(time)?;
        let mean = (self.bytes[longest] - earlier.bytes[longest]) as f64 / time(&longest).as_secs_f64();
        self.last[longest].filter(|_| time(&longest) > Duration::ZERO).map(|last| last.at_rate(mean as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_counts_with_its_last_figures() {
        let mut tally = Tally::default();
        assert_eq!((tally.now(), tally.since(&Tally::default())), (None, None));
        let ms = Duration::from_millis;
        tally.add(LimitedBy::Ramp { in_flight: 8 }, ms(900), 1_000);
        let start = tally;
        assert_eq!(tally.since(&start), None);
        tally.add(LimitedBy::Ramp { in_flight: 16 }, ms(100), 1_000);
        tally.add(LimitedBy::Cpu { busy_percent: 95, queued_percent: 0 }, ms(100), 1_000);
        tally.add(LimitedBy::Cpu { busy_percent: 97, queued_percent: 0 }, ms(100), 1_000);
        tally.add(LimitedBy::Objects { in_flight: 1, parallel: 8 }, ms(100), 1_000);
        assert_eq!(tally.since(&start), Some(LimitedBy::Cpu { busy_percent: 97, queued_percent: 0 }));
        assert_eq!(tally.since(&Tally::default()), Some(LimitedBy::Ramp { in_flight: 16 }));
        assert_eq!(tally.now(), Some(LimitedBy::Objects { in_flight: 1, parallel: 8 }));
        for bytes_per_s in [10, 20, 2] {
            tally.add(LimitedBy::Bandwidth { bytes_per_s }, ms(1_000), 15);
        }
        let mean = LimitedBy::Bandwidth { bytes_per_s: 15 };
        assert_eq!(tally.since(&start), Some(mean), "the last half second says nothing of all three");
    }

    #[test]
    fn words_and_figures() {
        let requests = RequestRate { asked_for: Some(500), found: Some(480.4) };
        let of = |by, busy| {
            let cores = Cores { used: busy, queued: 0.04 };
            LimitedBy::of(by, cores, 3.0 * 1048576.0, requests, Bound::Window)
        };
        let check = |by: ByPace, busy: f64, name: &str, says: &str| {
            let by = of(by, busy);
            assert_eq!(by.name(), name);
            assert_eq!(by.to_string(), says);
        };
        let gate = |gate| ByPace::Gate { gate, share: 0.5 };
        check(
            ByPace::Ramp { in_flight: 8 },
            0.5,
            "ramp",
            "the start: 8 in flight, and how many carry most is looked for",
        );
        check(
            ByPace::Ramp { in_flight: 8 },
            0.93,
            "cpu",
            "the cores: the threads of the shards run 93 % of the time",
        );
        let (by, cores) = (ByPace::Ramp { in_flight: 8 }, Cores { used: 0.6, queued: 0.35 });
        assert_eq!(
            LimitedBy::of(by, cores, 1.0, requests, Bound::Most).to_string(),
            "the cores: the threads of the shards run 60 % of the time and wait 35 % of it for a core"
        );
        check(gate(Waits::Disk), 1.0, "disk", "the disk: 50 % of the parts in flight wait for it");
        check(gate(Waits::Memory), 0.0, "memory", "memory: 50 % of the parts in flight wait for room");
        check(gate(Waits::Reader), 0.0, "reader", "the reader: 50 % of the parts in flight wait for it");
        check(gate(Waits::Bandwidth), 0.0, "bandwidth", "--bandwidth: 3MiB/s are received");
        check(
            gate(Waits::Requests),
            0.0,
            "requests",
            "the origin's throttling: it takes about 480 requests a second",
        );
        check(
            ByPace::Throttled { limit: 3 },
            0.0,
            "throttling",
            "the origin's throttling: 3 in flight are left",
        );
        check(
            ByPace::Parts { in_flight: 1, limit: 16 },
            0.0,
            "objects",
            "what is asked for: 1 part in flight of 16 that could be",
        );
        check(
            ByPace::Bound { limit: 4, rate: 2048.0 },
            0.0,
            "parallel",
            "--window: 4 in flight carry 2KiB/s",
        );
        check(
            ByPace::Plateau { in_flight: 10, rate: 2048.0, tried: Some((12, 2050.0)) },
            0.0,
            "network",
            "the network or the origin: 10 in flight carry 2KiB/s, 12 carried 2KiB/s",
        );
        let says = "the network or the origin: 10 in flight carry 2KiB/s";
        for tried in [Some((12, 2300.0)), None] {
            let by = ByPace::Plateau { in_flight: 10, rate: 2048.0, tried };
            check(by, 0.0, "network", says);
            assert_eq!(of(by, 0.0).figures(), [("in_flight", 10), ("bytes_per_s", 2048)]);
        }
    }

    #[test]
    fn what_requests_wait_for_comes_with_how_many_are_sent() {
        let check = |asked_for: Option<u32>, found: Option<f64>, says: &str, per_s: u64| {
            let by = RequestRate { asked_for, found }.limits(84);
            assert_eq!(by.to_string(), says);
            assert_eq!(by.figures(), [("waiting_percent", 84), ("requests_per_s", per_s)]);
        };
        let own = "--request-rate: 50 requests a second, and 84 % of the parts wait for theirs";
        check(Some(50), None, own, 50);
        check(Some(50), Some(480.4), own, 50);
        check(Some(500), Some(480.4), "the origin's throttling: it takes about 480 requests a second", 480);
        check(None, Some(480.4), "the origin's throttling: it takes about 480 requests a second", 480);
    }
}
