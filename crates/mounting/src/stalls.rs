//! Reports in the log when requests begin to wait long for the origin, and when that is over, with its
//! duration. If such a request fails in the end, its error has a line of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use flatout_engine::Client;
use flatout_settings::format_size;

use crate::log::MountLog;

/// A wait of this length is worth a line.
const LONG: Duration = Duration::from_secs(5);
/// A stall is over when no request has been that slow for this time.
const QUIET: Duration = Duration::from_secs(10);
/// How often the requests are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// The waits at one moment.
#[derive(Clone, Copy)]
struct WaitSample {
    /// How long the longest wait is, and how many are long.
    longest: Duration,
    long: usize,
    /// Bytes of content that were received since the mount began.
    received: u64,
    /// Requests that the origin has answered since then.
    answers: u64,
    /// Those by which it asked for less.
    throttled: u64,
}

/// Decides when a line is due. Pure.
#[derive(Default)]
struct StallDetector {
    open: Option<Stall>,
    /// What was seen within the last [`LONG`], the newest last.
    seen: VecDeque<(Instant, WaitSample)>,
}

/// A time in which requests wait long, without a pause of [`QUIET`].
struct Stall {
    began: Instant,
    last: Instant,
    longest: Duration,
    /// What had come of the origin by then.
    heard: (u64, u64),
}

impl StallDetector {
    /// The line that is due about `source`, if one is.
    fn look(&mut self, source: &str, now: Instant, seen: WaitSample) -> Option<String> {
        self.seen.push_back((now, seen));
        while self.seen.front().is_some_and(|(at, _)| now.duration_since(*at) > LONG) {
            self.seen.pop_front();
        }
        let is_long = seen.longest >= LONG;
        match &mut self.open {
            None if is_long => {
                let began = now.checked_sub(seen.longest).unwrap_or(now);
                let before = self.seen.front().map_or(seen, |(_, before)| *before);
                let heard = (seen.received, seen.answers);
                self.open = Some(Stall { began, last: now, longest: seen.longest, heard });
                Some(beginning(source, before, seen))
            }
            Some(stall) if is_long => {
                (stall.last, stall.longest) = (now, stall.longest.max(seen.longest));
                stall.heard = (seen.received, seen.answers);
                None
            }
            Some(stall) if now.duration_since(stall.last) >= QUIET => {
                let Stall { began, last, longest, heard } = *stall;
                self.open = None;
                let now = match heard == (seen.received, seen.answers) {
                    // They have failed, or were given up.
                    true => "no request waits any more for the origin, which sends nothing",
                    false => "the origin answers again",
                };
                Some(format!(
                    "{source}: {now}: for {} s requests waited long for it, one of them {} s",
                    last.duration_since(began).as_secs(),
                    longest.as_secs()
                ))
            }
            _ => None,
        }
    }
}

/// The line of a stall that begins, from what was seen at the start of the time that it took to be one.
fn beginning(source: &str, before: WaitSample, seen: WaitSample) -> String {
    let (came, answers) = (seen.received - before.received, seen.answers - before.answers);
    let origin = match (came, answers, seen.throttled - before.throttled) {
        (0, 0, _) => "it sends nothing".to_owned(),
        (0, _, throttled @ 1..) => format!("it asks for less, in {throttled} answers"),
        (0, answers, 0) => format!("it has answered {answers} requests meanwhile"),
        (came, ..) => format!("it sends {}/s", format_size(came / LONG.as_secs())),
    };
    let waits = match seen.long {
        1 => "a request has waited".to_owned(),
        long => format!("{long} requests have waited"),
    };
    format!("{source}: {waits} for the origin for {} s or more: {origin}", LONG.as_secs())
}

/// Watches the requests of a mount until the returned sender is dropped.
pub fn watch(
    source: String,
    waits: impl Fn() -> Vec<Duration> + Send + 'static,
    client: Arc<Client>,
    log: Arc<MountLog>,
) -> mpsc::Sender<()> {
    let (goes_on, ended) = mpsc::channel();
    let look = move || {
        let mut stalls = StallDetector::default();
        while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let waits = waits();
            let longest = waits.iter().max().copied().unwrap_or_default();
            let long = waits.iter().filter(|wait| **wait >= LONG).count();
            let received = client.reader_stats().received_bytes;
            let origins = client.origins();
            let answers = origins.iter().map(|origin| origin.answers).sum();
            let throttled = origins.iter().map(|origin| origin.throttled).sum();
            let seen = WaitSample { longest, long, received, answers, throttled };
            if let Some(line) = stalls.look(&source, Instant::now(), seen) {
                log.say(&line);
            }
        }
    };
    // A mount serves without it.
    let _ = std::thread::Builder::new().name("stalls".into()).spawn(look);
    goes_on
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines about requests that wait as long as `longest` says, second by second, while so many bytes
    /// and answers arrive each second.
    fn said(longest: impl IntoIterator<Item = u64>, rates: (u64, u64)) -> Vec<(u64, String)> {
        said_until(u64::MAX, longest, rates)
    }

    /// [`said`], where nothing arrives from second `end` on.
    fn said_until(
        end: u64,
        longest: impl IntoIterator<Item = u64>,
        (bytes, answers): (u64, u64),
    ) -> Vec<(u64, String)> {
        let (mut stalls, start) = (StallDetector::default(), Instant::now());
        let mut said = Vec::new();
        for (second, longest) in (0..).zip(longest) {
            let longest = Duration::from_secs(longest);
            let long = usize::from(longest >= LONG);
            let (received, answers) = (second.min(end) * bytes, second.min(end) * answers);
            let seen = WaitSample { longest, long, received, answers, throttled: 0 };
            let line = stalls.look("s3://b", start + Duration::from_secs(second), seen);
            said.extend(line.map(|line| (second, line)));
        }
        said
    }

    #[test]
    fn a_stall_is_said_once_and_its_end_with_its_duration() {
        assert_eq!(
            said((0..=60).chain([0; 30]), (0, 0)),
            [
                (5, "s3://b: a request has waited for the origin for 5 s or more: it sends nothing".into()),
                (
                    70,
                    "s3://b: no request waits any more for the origin, which sends nothing: for 60 s requests \
                     waited long for it, one of them 60 s"
                        .into()
                ),
            ]
        );
        assert_eq!(said([0, 1, 2, 3, 4, 4, 1, 2, 3, 0], (0, 0)), []);
        // One waits, and others are answered for a while: none of that is an end.
        let given_up = said_until(3, (0..=60).chain([0; 30]), (0, 100));
        assert!(given_up[1].1.contains("which sends nothing: for 60 s"), "{given_up:?}");
        let others = said(0..=5, (0, 100));
        assert!(others[0].1.ends_with("5 s or more: it has answered 500 requests meanwhile"), "{others:?}");
    }

    #[test]
    fn a_slow_origin_is_one_stall_with_its_rate() {
        // Each read waits for seven seconds, the next begins at once.
        let waits = (0..700).map(|second| second % 7).chain([0; 20]);
        let said = said(waits, (1 << 20, 7));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].1.ends_with("it sends 1MiB/s"), "{said:?}");
        assert!(said[1].1.starts_with("s3://b: the origin answers again: for 699 s"), "{said:?}");
        assert!(said[1].1.ends_with("one of them 6 s"), "{said:?}");
    }
}
