//! Outages: whether an origin is away, for how long it is waited for, and who asks whether it is back. Pure:
//! time is an argument.
//!
//! ```text
//!                an attempt fails, and nothing has come of the origin since it began
//!   ┌─────────┐ ───────────────────────────────────────────────────────────────────► ┌──────┐ one probe at a time,
//!   │ present │                                                                      │ away │ 50 ms to 1 s apart
//!   └─────────┘ ◄─────────────────────────────────────────────────────────────────── └──────┘
//!                any answer, or a byte of a body                 no progress for the timeout: all give up
//! ```
//! A probe is a request like any other: the first of those that wait.

use std::time::{Duration, Instant};

/// An origin that has never answered is more likely mistyped than away.
pub const NEVER_ANSWERED_MAX: Duration = Duration::from_secs(10);
/// From a failed probe to the next one: doubled each time up to the longest.
const PROBE_AGAIN: Duration = Duration::from_millis(50);
const PROBE_AGAIN_MAX: Duration = Duration::from_secs(1);
/// Once it was given up.
const PROBE_GIVEN_UP: Duration = Duration::from_millis(100);
/// A probe that is silent for so long may have met a dead connection: another is sent beside it.
const PROBE_ALONE: Duration = Duration::from_secs(1);

/// What is known of an origin's presence.
#[derive(Debug)]
pub struct Outage {
    timeout: Duration,
    has_answered: bool,
    away: Option<Away>,
}

#[derive(Clone, Copy, Debug)]
struct Away {
    /// When the attempt that noticed it began, or brought its last byte; half of the timeout before it was
    /// noticed at most.
    since: Instant,
    probes: u32,
    next_probe: Instant,
    failed: Instant,
    /// When a request came last, or failed.
    asked: Instant,
}

/// Whether a request may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Go,
    /// Ask again then, or when the origin is back.
    Wait(Instant),
    /// The origin was away for too long.
    GiveUp(Waited),
}

/// How long an origin has been waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// So far, since it last made progress.
    pub so_far: Duration,
    /// In all, before whatever waits for it fails.
    pub timeout: Duration,
}

impl Outage {
    /// `timeout` is that of an origin that has answered; zero never waits.
    pub fn new(timeout: Duration) -> Outage {
        Outage { timeout, has_answered: false, away: None }
    }

    /// Whether a request that came then may leave now. Of an origin that is away one may, every now and then.
    /// No request gives up before some attempt has failed after it came.
    pub fn admit(&mut self, came: Instant, now: Instant) -> Admission {
        // While nobody asked, nobody waited: if it is away, that is another outage.
        self.away.take_if(|away| now > away.asked + self.timeout);
        let waited = self.waited(now);
        let Some((away, waited)) = self.away.as_mut().zip(waited) else { return Admission::Go };
        away.asked = now;
        if now >= away.next_probe {
            away.probes += 1;
            away.next_probe = now + PROBE_ALONE;
            return Admission::Go;
        }
        match (waited.is_over(), away.failed >= came) {
            (true, true) => Admission::GiveUp(waited),
            (true, false) => Admission::Wait(away.next_probe),
            (false, _) => Admission::Wait(away.next_probe.min(away.since + waited.timeout)),
        }
    }

    /// The origin has answered, or sent a byte: it is not away any more.
    pub fn on_progress(&mut self) {
        self.has_answered = true;
        self.away = None;
    }

    /// An attempt has failed that began, or brought its last byte, `since` then; the origin last made
    /// progress when `progressed` says. How long it has been waited for if that makes it away; `None` where
    /// the failure is the attempt's own.
    pub fn on_failure(
        &mut self,
        since: Instant,
        progressed: Option<Instant>,
        now: Instant,
    ) -> Option<Waited> {
        self.has_answered |= progressed.is_some();
        if self.timeout.is_zero() || progressed > Some(since) {
            return None;
        }
        // However late it was noticed, half of the time is left for probes.
        let latest = now.checked_sub(self.timeout / 2).unwrap_or(now);
        let since = since.max(latest);
        let away = self.away.get_or_insert(Away {
            since,
            probes: 0,
            next_probe: now + PROBE_AGAIN,
            failed: now,
            asked: now,
        });
        (away.asked, away.failed) = (now, now);
        let again = PROBE_AGAIN.saturating_mul(1 << away.probes.min(16)).min(PROBE_AGAIN_MAX);
        let probes_at = away.next_probe.min(now + again);
        away.next_probe = probes_at;
        let waited = self.waited(now)?;
        if let Some(away) = self.away.as_mut().filter(|_| waited.is_over()) {
            // Nobody waits any more: whatever comes asks for itself.
            away.next_probe = probes_at.min(now + PROBE_GIVEN_UP);
        }
        Some(waited)
    }

    /// A request that left at `sent` is still waited for, and the origin last made progress when `progressed`
    /// says. Until when the request may wait if that makes the origin away, and whether it is so only now;
    /// `None` where others are served.
    pub fn on_silence(
        &mut self,
        sent: Instant,
        progressed: Option<Instant>,
        now: Instant,
    ) -> Option<(Instant, bool)> {
        self.has_answered |= progressed.is_some();
        if self.timeout.is_zero() || progressed > Some(sent) {
            return None;
        }
        let is_new = self.away.is_none();
        // No attempt has failed yet, so nobody gives up.
        let away = Away { since: sent, probes: 0, next_probe: now, failed: sent, asked: now };
        let since = self.away.get_or_insert(away).since;
        // One that never answered may be slow: its first answer has as long as any.
        let until = if self.has_answered { since + self.timeout } else { now + self.timeout };
        Some((until, is_new))
    }

    /// How long it has been waited for; `None` while it is there.
    pub fn waited(&self, now: Instant) -> Option<Waited> {
        let away = self.away?;
        let timeout = match self.has_answered {
            true => self.timeout,
            false => self.timeout.min(NEVER_ANSWERED_MAX),
        };
        Some(Waited { so_far: now.saturating_duration_since(away.since), timeout })
    }
}

impl Waited {
    /// Whether it is time to give up.
    pub fn is_over(self) -> bool {
        self.so_far >= self.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens, and what is expected; times in ms.
    enum Event {
        /// An attempt that began then; how long the origin has been waited for.
        Fails {
            since: u64,
            waited: Option<u64>,
        },
        Progress,
        Goes,
        Waits {
            until: u64,
        },
        GivesUp,
        /// What has just come waits.
        Comes {
            until: u64,
        },
    }
    use Event::{Comes, Fails, GivesUp, Goes, Progress, Waits};

    #[track_caller]
    fn check(timeout_s: u64, events: &[(u64, Event)]) {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut outage = Outage::new(Duration::from_secs(timeout_s));
        let mut progressed = None;
        for (number, (ms, event)) in (1..).zip(events) {
            let now = at(*ms);
            let what = format!("event {number}, at {ms} ms");
            match event {
                Fails { since, waited } => {
                    let found = outage.on_failure(at(*since), progressed, now);
                    assert_eq!(found.map(|waited| waited.so_far.as_millis() as u64), *waited, "{what}");
                }
                Progress => {
                    progressed = Some(now);
                    outage.on_progress();
                }
                Goes => assert_eq!(outage.admit(start, now), Admission::Go, "{what}"),
                Waits { until } => {
                    assert_eq!(outage.admit(start, now), Admission::Wait(at(*until)), "{what}");
                }
                GivesUp => assert!(matches!(outage.admit(start, now), Admission::GiveUp(_)), "{what}"),
                Comes { until } => {
                    assert_eq!(outage.admit(now, now), Admission::Wait(at(*until)), "{what}");
                }
            }
        }
    }

    #[test]
    fn one_probe_at_a_time_asks_ever_less_often_and_all_go_on_together() {
        check(
            60,
            &[
                (0, Goes),
                (1, Progress),
                (2, Goes),
                // What began before the last progress is its own affair.
                (9, Fails { since: 0, waited: None }),
                (10, Fails { since: 2, waited: Some(8) }),
                (10, Waits { until: 60 }),
                (11, Fails { since: 3, waited: Some(9) }),
                (59, Waits { until: 60 }),
                (60, Goes),
                (60, Waits { until: 1_060 }),
                (61, Fails { since: 2, waited: Some(59) }),
                (62, Waits { until: 161 }),
                (161, Goes),
                (162, Fails { since: 2, waited: Some(160) }),
                (163, Waits { until: 362 }),
                (400, Goes),
                // A probe that hangs has company after a second.
                (900, Waits { until: 1_400 }),
                (1_400, Goes),
                (1_401, Waits { until: 2_400 }),
                (1_500, Progress),
                (1_500, Fails { since: 1_400, waited: None }),
                (1_500, Goes),
                (1_500, Goes),
            ],
        );
    }

    #[test]
    fn what_answered_is_waited_for_longer_than_what_never_did() {
        let away = |until_s: u64| {
            vec![
                (1_000, Fails { since: 500, waited: Some(500) }),
                (1_050, Goes),
                (until_s * 1_000 + 400, Goes),
                (until_s * 1_000 + 499, Fails { since: 500, waited: Some(until_s * 1_000 - 1) }),
                (until_s * 1_000 + 499, Waits { until: until_s * 1_000 + 500 }),
                (until_s * 1_000 + 500, GivesUp),
            ]
        };
        check(60, &away(10));
        check(3, &away(3));
        let answered = [(0, Goes), (1, Progress)].into_iter();
        check(60, &answered.chain(away(60)).collect::<Vec<_>>());
    }

    #[test]
    fn after_it_was_given_up_each_second_one_request_looks_whether_it_is_back() {
        check(
            2,
            &[
                (0, Fails { since: 0, waited: Some(0) }),
                (50, Goes),
                (1_050, Goes),
                (2_000, GivesUp),
                (2_049, GivesUp),
                (2_049, Comes { until: 2_050 }),
                (2_050, Goes),
                (2_051, GivesUp),
                (2_052, Fails { since: 2_050, waited: Some(2_052) }),
                (2_053, GivesUp),
                (2_500, Goes),
                (2_501, Progress),
                (2_501, Goes),
            ],
        );
    }

    #[test]
    fn an_attempt_that_was_silent_for_long_gave_up_at_once() {
        check(5, &[(20_000, Fails { since: 0, waited: Some(2_500) }), (20_050, Goes), (20_051, Progress)]);
    }

    #[test]
    fn a_silent_origin_was_waited_for_longer_than_was_said() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let mut outage = Outage::new(Duration::from_secs(60));
        // While it serves others a slow answer is only slow.
        assert_eq!(outage.on_silence(at(0), Some(at(3)), at(5)), None);
        assert_eq!(outage.on_silence(at(10), Some(at(3)), at(15)), Some((at(70), true)));
        assert_eq!(outage.on_silence(at(12), Some(at(3)), at(17)), Some((at(70), false)));
        assert_eq!(outage.admit(at(20), at(20)), Admission::Go);
        assert_eq!(outage.admit(at(20), at(20)), Admission::Wait(at(21)));
        // The attempt that was silent first ends by its own patience: it counts from where the silence began.
        let waited = outage.on_failure(at(10), Some(at(3)), at(30)).expect("it is away");
        assert_eq!(waited.so_far, Duration::from_secs(20));
        outage.on_progress();
        assert_eq!(outage.admit(at(31), at(31)), Admission::Go);
        // A first answer may take as long as the connection has patience.
        let mut never = Outage::new(Duration::from_secs(60));
        assert_eq!(never.on_silence(at(0), None, at(5)), Some((at(65), true)));
        assert_eq!(never.waited(at(5)).expect("it is away").timeout, NEVER_ANSWERED_MAX);
    }

    #[test]
    fn an_outage_that_nobody_asked_about_for_an_hour_had_lasted_that_long() {
        check(
            60,
            &[
                (100, Fails { since: 50, waited: Some(50) }),
                (3_600_000, Goes),
                (3_600_010, Fails { since: 3_600_000, waited: Some(10) }),
            ],
        );
    }

    #[test]
    fn without_a_timeout_nothing_is_waited_for() {
        check(0, &[(0, Fails { since: 0, waited: None }), (0, Goes), (9, Fails { since: 0, waited: None })]);
    }
}
