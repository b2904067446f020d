//! What holds the speed back, from what the pace and the clocks of the threads say.

use super::cells::Cores;
use crate::base::limited_by::{Bound, LimitedBy};
use flatout_policy::pace::{LimitedBy as ByPace, WaitReason};

/// Requests a second that may be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestRate {
    /// `--request-rate`.
    pub(super) asked_for: Option<u32>,
    /// What the origin was found to take.
    pub(super) found: Option<f64>,
}

/// From this on the threads are what limits: the rest is what a scheduler takes.
const BUSY_PERCENT: u32 = 90;

/// What the pace says, where the threads have time left. `cores` are the shares of it that they use, `rate`
/// what is received, bytes a second, `bound` what bounds the level.
pub(super) fn limited_by(
    by: ByPace,
    cores: Cores,
    rate: f64,
    requests: RequestRate,
    bound: Bound,
) -> LimitedBy {
    let (busy_percent, queued_percent) = (percent(cores.used), percent(cores.queued));
    let bytes_per_s = rate as u64;
    match by {
        ByPace::Waits { on: gate, share } => {
            let waiting_percent = percent(share);
            match gate {
                WaitReason::Disk => LimitedBy::Disk { waiting_percent },
                WaitReason::Memory => LimitedBy::Memory { waiting_percent },
                WaitReason::Reader => LimitedBy::Reader { waiting_percent },
                WaitReason::Bandwidth => LimitedBy::Bandwidth { bytes_per_s },
                WaitReason::Requests => requests.limits(waiting_percent),
            }
        }
        _ if busy_percent + queued_percent >= BUSY_PERCENT => LimitedBy::Cpu { busy_percent, queued_percent },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_figures() {
        let requests = RequestRate { asked_for: Some(500), found: Some(480.4) };
        let of = |by, busy| {
            let cores = Cores { used: busy, queued: 0.04 };
            limited_by(by, cores, 3.0 * 1048576.0, requests, Bound::Window)
        };
        let check = |by: ByPace, busy: f64, name: &str, says: &str| {
            let by = of(by, busy);
            assert_eq!(by.name(), name);
            assert_eq!(by.to_string(), says);
        };
        let gate = |gate| ByPace::Waits { on: gate, share: 0.5 };
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
            limited_by(by, cores, 1.0, requests, Bound::Most).to_string(),
            "the cores: the threads of the shards run 60 % of the time and wait 35 % of it for a core"
        );
        check(gate(WaitReason::Disk), 1.0, "disk", "the disk: 50 % of the parts in flight wait for it");
        check(gate(WaitReason::Memory), 0.0, "memory", "memory: 50 % of the parts in flight wait for room");
        check(gate(WaitReason::Reader), 0.0, "reader", "the reader: 50 % of the parts in flight wait for it");
        check(gate(WaitReason::Bandwidth), 0.0, "bandwidth", "bandwidth: 3MiB/s are carried");
        check(
            gate(WaitReason::Requests),
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
        check(ByPace::Bound { limit: 4, rate: 2048.0 }, 0.0, "parallel", "window: 4 in flight carry 2KiB/s");
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
        let own = "request-rate: 50 requests a second, and 84 % of the parts wait for theirs";
        check(Some(50), None, own, 50);
        check(Some(50), Some(480.4), own, 50);
        check(Some(500), Some(480.4), "the origin's throttling: it takes about 480 requests a second", 480);
        check(None, Some(480.4), "the origin's throttling: it takes about 480 requests a second", 480);
    }
}
