//! How many pages may be in flight: doubled while pages come the faster for it, halved when the origin asks
//! for less.

use std::time::Duration;

/// What a listing begins with once it is cut.
const FIRST: u32 = 8;
/// A doubling must bring at least so much more.
const GAIN: f64 = 1.25;
/// After one that did not, so many rounds are waited until the next try.
const ROUNDS_HELD: u32 = 16;

#[derive(Debug)]
pub(super) struct Width {
    now: u32,
    most: u32,
    /// Pages a second at half the width.
    before: Option<f64>,
    held: u32,
    round: Round,
    /// When the origin last asked for less.
    throttled: Option<Duration>,
}

#[derive(Debug, Default)]
struct Round {
    began: Option<Duration>,
    pages: u32,
    /// As many as may be were in flight.
    is_full: bool,
}

impl Width {
    pub(super) fn new(most: u32) -> Width {
        let most = most.max(1);
        Width { now: FIRST.min(most), most, before: None, held: 0, round: Round::default(), throttled: None }
    }

    /// How many pages may be in flight.
    pub(super) fn now(&self) -> u32 {
        self.now
    }

    /// As many pages are in flight as may be.
    pub(super) fn on_full(&mut self) {
        self.round.is_full = true;
    }

    /// A page came at `now`.
    pub(super) fn on_page(&mut self, now: Duration) {
        let Some(began) = self.round.began else {
            self.round.began = Some(now);
            return;
        };
        self.round.pages += 1;
        if self.round.pages < self.now {
            return;
        }
        let round = std::mem::take(&mut self.round);
        self.round.began = Some(now);
        if round.is_full && now > began {
            self.on_round(f64::from(round.pages) / (now - began).as_secs_f64());
        }
    }

    fn on_round(&mut self, rate: f64) {
        if self.held > 0 {
            self.held -= 1;
            return;
        }
        match self.before {
            Some(before) if rate < before * GAIN => {
                self.now = (self.now / 2).max(1);
                (self.before, self.held) = (None, ROUNDS_HELD);
            }
            _ if self.now < self.most => {
                self.before = Some(rate);
                self.now = (self.now * 2).min(self.most);
            }
            _ => {}
        }
    }

    /// A page that was asked for at `asked` was too much for the origin, as was heard at `now`. Verdicts on
    /// what was sent before the last one are no news.
    pub(super) fn on_throttled(&mut self, asked: Duration, now: Duration) {
        if self.throttled.is_some_and(|throttled| asked < throttled) {
            return;
        }
        self.throttled = Some(now);
        self.now = (self.now / 2).max(1);
        (self.before, self.held, self.round) = (None, ROUNDS_HELD, Round::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The width after `pages` pages of an origin that answers each within a tenth of a second, and so many
    /// a second at most.
    fn width_after(pages: u32, most: u32, per_second: f64) -> u32 {
        let mut width = Width::new(most);
        let mut now = 0.0;
        for _ in 0..pages {
            now += (0.1 / f64::from(width.now())).max(1.0 / per_second);
            width.on_full();
            width.on_page(Duration::from_secs_f64(now));
        }
        width.now()
    }

    #[test]
    fn it_grows_as_long_as_it_pays() {
        assert_eq!(width_after(300, 128, 1e9), 128);
        assert_eq!(width_after(300, 20, 1e9), 20);
        assert!((8..=32).contains(&width_after(400, 128, 160.0)));
        assert!(width_after(400, 128, 20.0) <= 8);
    }

    #[test]
    fn it_is_halved_once_for_a_verdict() {
        let mut width = Width::new(64);
        let at = Duration::from_millis;
        width.on_throttled(at(0), at(10));
        width.on_throttled(at(5), at(12));
        assert_eq!(width.now(), 4);
        for _ in 0..9 {
            width.on_throttled(at(12), at(12));
        }
        assert_eq!(width.now(), 1);
    }
}
