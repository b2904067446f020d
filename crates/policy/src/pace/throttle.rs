//! How many requests of one class an origin takes a second, found from what it refuses.
//!
//! A verdict "later" (503, 429, `x-oss-qos-delay-time`) stops new requests for a round trip, and sets the
//! rate a little under what was answered well since the verdict before. Then the rate grows: fast while it is
//! clearly under the last one that was refused, by a hundredth a second from there on, faster again when
//! nothing was refused for long. One refusal among very many answers is no verdict: large stores refuse some
//! at any rate. Reading, writing, listing and deleting have limits of their own at every store
//! (reference/cli.md §3.6), so each class has a `Throttle` of its own.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::bucket::Bucket;

/// Where to stand under what was answered well.
const BELOW: f64 = 0.93;

/// The deepest cut of one verdict: few answers are a poor measure.
const CUT: f64 = 0.5;

/// How much the rate grows in a second, as a share of itself: under `FAR` of the last rate that was refused,
/// near it, and once `QUIET` has passed without a verdict. From `BELOW` it takes seven seconds to the limit,
/// and some more to use up what an origin lets one save.
const GROWTH_FAR: f64 = 0.3;
const FAR: f64 = 0.9;
const GROWTH: f64 = 0.01;
const GROWTH_QUIET: f64 = 0.1;
const QUIET: Duration = Duration::from_secs(20);

/// No verdict leaves less than this many requests a second. An origin that takes fewer is sick, not full:
/// retries wait for that, each longer than the one before. And where refusals have nothing to do with the
/// rate, none would be low enough.
const LEAST: f64 = 16.0;

/// As long as no limit is known, each good answer forgives so much of a refusal, and so many are forgiven at
/// most: what large stores refuse at any rate, up to a hundredth or so, has no effect. At a limit every
/// refusal counts: those that are forgiven wait for their retry, and fewer are answered than might be (0.89
/// of 500 a second, where it is 1.00).
const FORGIVES: f64 = 0.02;
const FORGIVEN_MOST: f64 = 8.0;

/// Where so many verdicts in a row each come at less than this share of the rate of the one before, they have
/// nothing to do with the rate: a limit is met again where it was. Some object is out of order, or the origin
/// is sick. Nothing is held back for `IMMUNE` then; retries wait by themselves.
const IN_ROW: u32 = 8;
const LOWER: f64 = 0.985;
const IMMUNE: Duration = Duration::from_secs(30);

/// How far back answers are counted.
const COUNTED: Duration = Duration::from_secs(1);
/// Verdicts that come together count once, and answers of less than this are no rate.
const ROUND_TRIP_LEAST: Duration = Duration::from_millis(50);

/// The gate of one class of operation toward one origin.
#[derive(Debug)]
pub struct Throttle {
    /// `None`: nothing was refused so far.
    bucket: Option<Bucket>,
    /// Answers that were no refusals, by the slot of 50 ms they came in.
    answered: VecDeque<(Instant, u32)>,
    since: Instant,
    /// Requests that left before anything was refused.
    started: u32,
    /// The last verdict that counted, and how long nothing was sent after it.
    verdict: Option<Instant>,
    paused: Duration,
    /// The last rate that was refused.
    refused: f64,
    /// How many verdicts in a row came at a lower rate than the one before.
    in_row: u32,
    /// How many refusals are no verdict yet.
    forgiven: f64,
    immune: Option<Instant>,
    asked: Instant,
}

impl Throttle {
    pub fn new(now: Instant) -> Throttle {
        Throttle {
            bucket: None,
            answered: VecDeque::new(),
            since: now,
            started: 0,
            verdict: None,
            paused: Duration::ZERO,
            refused: 0.0,
            in_row: 0,
            forgiven: 0.0,
            immune: None,
            asked: now,
        }
    }

    /// Requests a second that may leave, when that is limited.
    pub fn per_second(&self) -> Option<f64> {
        self.bucket.as_ref().map(Bucket::rate)
    }

    /// Whether a request may leave now; otherwise after how long to ask again.
    pub fn start(&mut self, now: Instant) -> Result<(), Duration> {
        let Some(bucket) = &mut self.bucket else {
            self.started = self.started.saturating_add(1);
            return Ok(());
        };
        let wait = bucket.take(1.0, now);
        // Only what is used may grow: it holds somebody back now, and did a moment ago.
        let since = now.saturating_duration_since(self.asked);
        if wait.is_err() {
            let quiet = self.verdict.is_none_or(|verdict| now.saturating_duration_since(verdict) > QUIET);
            let growth = match bucket.rate() < FAR * self.refused {
                true => GROWTH_FAR,
                false if quiet => GROWTH_QUIET,
                false => GROWTH,
            };
            let rate = bucket.rate() * (1.0 + growth * since.as_secs_f64().min(0.1));
            bucket.set_rate(rate, now);
            self.asked = now;
        }
        wait
    }

    /// An answer came that was no refusal of this kind.
    pub fn on_answered(&mut self, now: Instant) {
        self.forgiven = (self.forgiven + FORGIVES).min(FORGIVEN_MOST);
        match self.answered.back_mut() {
            Some((slot, count)) if now.saturating_duration_since(*slot) < ROUND_TRIP_LEAST => *count += 1,
            _ => self.answered.push_back((now, 1)),
        }
        while self.answered.front().is_some_and(|(slot, _)| now.saturating_duration_since(*slot) > COUNTED) {
            self.answered.pop_front();
        }
    }

    /// A request sent at `sent` was refused, or answered late, because there are too many. True when that was
    /// news: what was on its way when the last verdict came is not.
    pub fn on_throttled(&mut self, sent: Instant, now: Instant) -> bool {
        let known = self.verdict.is_some_and(|verdict| sent <= verdict);
        if known || self.immune.is_some_and(|immune| now < immune) {
            return false;
        }
        if self.bucket.is_none() && self.forgiven >= 1.0 {
            self.forgiven -= 1.0;
            return false;
        }
        let answered = self.answered_well(now);
        let before = self.per_second().unwrap_or_else(|| self.rate_unlimited(now));
        // What is far above the limit is refused again and again on its way down.
        let is_on_its_way = answered < before * CUT && before > LEAST / CUT;
        let has_helped = before > LOWER * self.refused && before > LEAST / LOWER;
        self.in_row = match has_helped {
            _ if is_on_its_way => self.in_row,
            true => 1,
            false => self.in_row + 1,
        };
        if self.in_row > IN_ROW {
            (self.bucket, self.in_row) = (None, 0);
            self.immune = Some(now + IMMUNE);
            return false;
        }
        let rate = (answered * BELOW).clamp(before * CUT, before * BELOW).max(LEAST);
        self.refused = before;
        self.paused = now.saturating_duration_since(sent).clamp(ROUND_TRIP_LEAST, COUNTED);
        let bucket = self.bucket.get_or_insert_with(|| Bucket::new(rate, now));
        bucket.set_rate(rate, now);
        bucket.pause(self.paused, now);
        self.verdict = Some(now);
        true
    }

    /// Requests a second while nothing was refused: those that were sent at first, when few can have been
    /// answered.
    fn rate_unlimited(&self, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= COUNTED {
            return self.answered_well(now);
        }
        f64::from(self.started.max(1)) / elapsed.max(ROUND_TRIP_LEAST).as_secs_f64()
    }

    /// Requests a second that were answered well since the last verdict, a second back at most.
    fn answered_well(&self, now: Instant) -> f64 {
        let counted = now.checked_sub(COUNTED).unwrap_or(self.since).max(self.since);
        let (from, paused) = match self.verdict {
            Some(verdict) if verdict > counted => (verdict, self.paused),
            _ => (counted, Duration::ZERO),
        };
        let answered: u32 =
            self.answered.iter().filter(|(slot, _)| *slot >= from).map(|(_, count)| *count).sum();
        let seconds = now.saturating_duration_since(from + paused).max(ROUND_TRIP_LEAST).as_secs_f64();
        f64::from(answered.max(1)) / seconds
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;
    use crate::retry::Dice;

    /// An origin that takes `limit` requests a second, from half time `later` of them, and lets `saved`
    /// seconds of them come at once.
    struct Limited {
        limit: f64,
        later: f64,
        saved: f64,
        /// What it refuses of all, whatever the rate is.
        odd: f64,
    }

    struct Outcome {
        /// Of all requests.
        refused: f64,
        /// Taken a second, between a sixth of the time and its half, and in its last quarter.
        first: f64,
        last: f64,
    }

    /// `workers` ask for a minute, each again as soon as it may; an answer takes 20 to 40 ms, a refusal 10 ms
    /// and the worker a pause.
    fn run(origin: &Limited, workers: usize, seed: u64) -> Outcome {
        const MS: u64 = 60_000;
        let start = Instant::now();
        let mut throttle = Throttle::new(start);
        let mut dice = Dice::new(seed);
        // When each worker is next awake, and whether that is for a refusal or an answer of what was sent
        // when.
        let mut awake: BinaryHeap<_> = (0..workers).map(|worker| Reverse((0, worker))).collect();
        let mut awaited: Vec<Option<(Instant, bool)>> = vec![None; workers];
        let (mut tokens, mut filled) = (origin.limit * origin.saved, 0);
        let (mut sent, mut refused, mut taken) = (0u32, 0u32, vec![0u32; MS as usize]);
        while let Some(Reverse((ms, worker))) = awake.pop().filter(|Reverse((ms, _))| *ms < MS) {
            let now = start + Duration::from_millis(ms);
            let mut after = |ms_more: u64| awake.push(Reverse((ms + ms_more, worker)));
            match awaited[worker].take() {
                Some((sent_at, true)) => {
                    throttle.on_throttled(sent_at, now);
                    after(1 + (dice.roll() * 1000.0) as u64);
                    continue;
                }
                Some(_) => throttle.on_answered(now),
                None => {}
            }
            if let Err(wait) = throttle.start(now) {
                // Not all at once for the same token.
                after(1 + wait.as_millis() as u64 + (dice.roll() * workers as f64 / 2.0) as u64);
                continue;
            }
            let limit = if ms < MS / 2 { origin.limit } else { origin.later };
            tokens = (tokens + limit * (ms - filled) as f64 / 1000.0).min((limit * origin.saved).max(1.0));
            filled = ms;
            sent += 1;
            let refuses = tokens < 1.0 || dice.roll() < origin.odd;
            if refuses {
                refused += 1;
            } else {
                tokens -= 1.0;
                taken[ms as usize] += 1;
            }
            awaited[worker] = Some((now, refuses));
            after(if refuses { 10 } else { 20 + (dice.roll() * 20.0) as u64 });
        }
        let rate = |from: u64, to: u64| {
            let taken: u32 = taken[from as usize..to as usize].iter().sum();
            f64::from(taken) * 1000.0 / (to - from) as f64
        };
        Outcome {
            refused: f64::from(refused) / f64::from(sent),
            first: rate(MS / 6, MS / 2),
            last: rate(MS / 4 * 3, MS),
        }
    }

    #[test]
    fn an_unknown_limit_is_found_and_kept() {
        println!("limit saved workers | refused  first    last");
        for (limit, later) in
            [(500.0, 500.0), (60.0, 60.0), (100.0, 100.0), (3500.0, 3500.0), (500.0, 250.0), (500.0, 750.0)]
        {
            for (saved, workers) in [(1.0, 64), (0.1, 64), (0.02, 32), (1.0, 256)] {
                for seed in 0..2 {
                    let Outcome { refused, first, last } =
                        run(&Limited { limit, later, saved, odd: 0.0 }, workers, seed);
                    let case = format!("{limit} then {later}, {saved} s saved, {workers} workers");
                    if seed == 0 {
                        println!("{case:42} | {:.2} % {first:6.0} {last:6.0}", refused * 100.0);
                    }
                    // What all workers send before they can hear of the first refusal is beyond any control.
                    let first_volley = workers as f64 / (limit * 60.0);
                    assert!(refused < 0.01 + first_volley, "{case}: {refused} refused");
                    let reach = workers as f64 / 0.031;
                    let near = |rate: f64, limit: f64, least: f64| {
                        rate > limit.min(reach) * least && rate < limit * 1.1
                    };
                    assert!(near(first, limit, 0.9), "{case}: {first} a second");
                    // A limit that was lifted is found without haste.
                    assert!(near(last, later, if later > limit { 0.8 } else { 0.9 }), "{case}: then {last}");
                }
            }
        }
    }

    #[test]
    fn refusals_that_no_rate_prevents_are_not_slowed_down_for() {
        println!("refused workers | of what they could");
        for (odd, least) in
            [(0.002, 0.95), (0.005, 0.95), (0.01, 0.95), (0.02, 0.5), (0.05, 0.7), (0.1, 0.7), (0.5, 0.7)]
        {
            for workers in [8, 64] {
                let origin = Limited { limit: 1e9, later: 1e9, saved: 1.0, odd };
                // A refusal takes 10 ms and half a second of waiting, an answer 30 ms.
                let reach = workers as f64 * (1.0 - odd) / (0.031 * (1.0 - odd) + 0.51 * odd);
                let mut shares: Vec<f64> =
                    (0..3).map(|seed| run(&origin, workers, seed).last / reach).collect();
                shares.sort_by(f64::total_cmp);
                println!("{odd:7} {workers:7} | {shares:.2?}");
                assert!(shares[1] > least, "{odd} refused, {workers} workers: {shares:?}");
            }
        }
    }

    #[test]
    fn one_verdict_counts_once() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut throttle = Throttle::new(start);
        assert!(throttle.start(start).is_ok());
        assert_eq!(throttle.per_second(), None);
        for ms in 0..100 {
            throttle.on_answered(at(ms * 10));
        }
        for sent in 970..972 {
            assert!(!throttle.on_throttled(at(sent), at(990)), "one of 50 that were answered is no verdict");
        }
        assert!(throttle.on_throttled(at(980), at(1000)));
        let rate = throttle.per_second().expect("it was throttled");
        assert!((90.0..=95.0).contains(&rate), "{rate}");
        assert!(!throttle.on_throttled(at(990), at(1010)), "on its way when the verdict came");
        assert_eq!(throttle.per_second(), Some(rate));
        assert!(throttle.start(at(1020)).is_err(), "it pauses for a round trip");
        assert!(throttle.on_throttled(at(1100), at(1120)));
        assert!(throttle.per_second() < Some(rate));
    }
}
