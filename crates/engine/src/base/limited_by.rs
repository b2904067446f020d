//! What holds the speed back, with the figure that proves it; and what did so for most of a transfer.

use std::fmt;
use std::time::Duration;

use flatout_policy::outage::Waited;

/// What holds the speed back. Displayed as a short sentence:
/// `the network or the origin: 12 in flight carry 1.2GiB/s, …`.
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
        /// They could have run for so much more of it, in percent, and other threads or processes had the
        /// cores.
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
    /// The origin is away: all that is asked of it waits.
    Outage {
        /// Which one.
        origin: Host,
        /// For how long so far, and at most.
        waited: Waited,
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
        /// How many more were tried, and what those carried, bytes a second. Absent where none were yet, and
        /// where they carried more at another time: what came between says nothing of how many are best.
        tried: Option<(u32, u64)>,
    },
}

/// An origin's host and port, short enough to be copied about: `127.0.0.1:9000`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Host {
    bytes: [u8; HOST_MAX],
    length: u8,
}

/// Of a longer name the end is left out.
const HOST_MAX: usize = 63;

impl Host {
    /// Of `HOST:PORT`. An IPv6 address gets its brackets where it lacks them.
    pub(crate) fn new(name: &str) -> Host {
        let bracketed = match name.rsplit_once(':') {
            Some((host, port)) if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
            _ => name.to_owned(),
        };
        let name = bracketed.as_str();
        let name = &name[..name.floor_char_boundary(HOST_MAX)];
        let mut host = Host { bytes: [0; HOST_MAX], length: name.len() as u8 };
        host.bytes[..name.len()].copy_from_slice(name.as_bytes());
        host
    }
}

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default())
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
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

/// How many there are.
const KINDS: usize = 12;

impl LimitedBy {
    /// One word: `ramp`, `cpu`, `disk`, `memory`, `reader`, `bandwidth`, `requests`, `throttling`, `objects`,
    /// `parallel`, `network`, `outage`.
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
            "outage",
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
            LimitedBy::Outage { waited, .. } => vec![
                ("waited_ms", waited.so_far.as_millis() as u64),
                ("timeout_ms", waited.timeout.as_millis() as u64),
            ],
            LimitedBy::Network { in_flight, bytes_per_s, tried } => {
                let mut figures = vec![("in_flight", count(in_flight)), ("bytes_per_s", bytes_per_s)];
                if let Some((tried, tried_bytes_per_s)) = tried {
                    figures.extend([("tried", count(tried)), ("tried_bytes_per_s", tried_bytes_per_s)]);
                }
                figures
            }
        }
    }

    /// The setting that holds the speed back, where one does: the sentence begins with its name.
    pub fn setting(self) -> Option<&'static str> {
        match self {
            LimitedBy::Bandwidth { .. } => Some("bandwidth"),
            LimitedBy::Requests { is_asked_for: true, .. } => Some("request-rate"),
            LimitedBy::Parallel { bound, .. } => bound.setting(),
            _ => None,
        }
    }

    /// With the rate that was received.
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
            LimitedBy::Outage { .. } => 11,
        }
    }
}

impl Bound {
    fn setting(self) -> Option<&'static str> {
        match self {
            Bound::Parallel => Some("parallel"),
            Bound::Window => Some("window"),
            Bound::Memory => Some("memory"),
            Bound::Files | Bound::Most => None,
        }
    }
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
                write!(out, "bandwidth: {} are carried", speed(bytes_per_s))
            }
            LimitedBy::Requests { waiting_percent, per_s, is_asked_for: true } => {
                write!(
                    out,
                    "request-rate: {per_s} requests a second, and {waiting_percent} % of the parts wait for theirs"
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
                let by = bound.setting().unwrap_or(match bound {
                    Bound::Files => "how many files may be open (ulimit -n)",
                    _ => "the most that is tried",
                });
                write!(out, "{by}: {parallel} in flight carry {}", speed(bytes_per_s))
            }
            LimitedBy::Outage { origin, waited } => write!(
                out,
                "an outage: waiting for {origin}, {} s of {}",
                waited.so_far.as_secs(),
                waited.timeout.as_secs().max(1)
            ),
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
pub(crate) struct TimeByLimit {
    times: [Duration; KINDS],
    last: [Option<LimitedBy>; KINDS],
    /// Received in those times.
    bytes: [u64; KINDS],
    now: Option<LimitedBy>,
}

impl TimeByLimit {
    pub(crate) fn add(&mut self, by: LimitedBy, elapsed: Duration, bytes: u64) {
        self.times[by.kind()] += elapsed;
        self.bytes[by.kind()] += bytes;
        self.last[by.kind()] = Some(by);
        self.now = Some(by);
    }

    /// For how long each did, of those that did at all.
    pub(crate) fn times(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let (times, last) = (self.times, self.last);
        (0..KINDS).filter_map(move |kind| Some((last[kind]?.name(), times[kind])))
    }

    /// What does so now.
    pub(crate) fn now(&self) -> Option<LimitedBy> {
        self.now
    }

    /// What did so longest since `earlier`, with its last figures and what was received all that time; `None`
    /// where nobody looked in between.
    pub(crate) fn since(&self, earlier: &TimeByLimit) -> Option<LimitedBy> {
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
    fn an_ipv6_address_lacked_its_brackets() {
        for (name, shown) in [
            ("::1:29002", "[::1]:29002"),
            ("[::1]:80", "[::1]:80"),
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("nowhere", "nowhere"),
        ] {
            assert_eq!(Host::new(name).to_string(), shown);
        }
    }

    #[test]
    fn the_longest_counts_with_its_last_figures() {
        let mut tally = TimeByLimit::default();
        assert_eq!((tally.now(), tally.since(&TimeByLimit::default())), (None, None));
        let ms = Duration::from_millis;
        tally.add(LimitedBy::Ramp { in_flight: 8 }, ms(900), 1_000);
        let start = tally;
        assert_eq!(tally.since(&start), None);
        tally.add(LimitedBy::Ramp { in_flight: 16 }, ms(100), 1_000);
        tally.add(LimitedBy::Cpu { busy_percent: 95, queued_percent: 0 }, ms(100), 1_000);
        tally.add(LimitedBy::Cpu { busy_percent: 97, queued_percent: 0 }, ms(100), 1_000);
        tally.add(LimitedBy::Objects { in_flight: 1, parallel: 8 }, ms(100), 1_000);
        assert_eq!(tally.since(&start), Some(LimitedBy::Cpu { busy_percent: 97, queued_percent: 0 }));
        assert_eq!(tally.since(&TimeByLimit::default()), Some(LimitedBy::Ramp { in_flight: 16 }));
        assert_eq!(tally.now(), Some(LimitedBy::Objects { in_flight: 1, parallel: 8 }));
        for bytes_per_s in [10, 20, 2] {
            tally.add(LimitedBy::Bandwidth { bytes_per_s }, ms(1_000), 15);
        }
        let mean = LimitedBy::Bandwidth { bytes_per_s: 15 };
        assert_eq!(tally.since(&start), Some(mean), "the last half second says nothing of all three");
    }
}
