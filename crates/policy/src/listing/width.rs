//! How many pages may be in flight: doubled while a page takes little longer for it, halved when the origin
//! asks for less.

use std::time::Duration;

/// What a listing begins with once it is cut.
const FIRST: u32 = 8;
/// A doubling pays if a page takes at most so many times as long: that is a ninth more pages a second. At
/// 1.6, a quarter, three runs of ten stayed at the first width by chance.
const SLOWER_MOST: f64 = 1.8;
/// After one that did not, so many rounds are waited until the next try: it may have been the machine.
const ROUNDS_HELD: u32 = 4;
/// … and after the origin has asked for less.
const ROUNDS_THROTTLED: u32 = 16;

#[derive(Debug)]
pub(super) struct Width {
    now: u32,
    most: u32,
    /// How long a page took at half the width.
    before: Option<Duration>,
    held: u32,
    round: Round,
    /// When the width changed last.
    changed: Duration,
    /// When the origin last asked for less.
    throttled: Option<Duration>,
}

/// As many pages as may be in flight, of those that were asked for since the width changed.
#[derive(Debug, Default)]
struct Round {
    /// How long each took.
    took: Vec<Duration>,
    /// As many pages were in flight as may be.
    is_full: bool,
}

impl Width {
    pub(super) fn new(most: u32) -> Width {
        let most = most.max(1);
        Width {
            now: FIRST.min(most),
            most,
            before: None,
            held: 0,
            round: Round::default(),
            changed: Duration::ZERO,
            throttled: None,
        }
    }

    /// How many pages may be in flight.
    pub(super) fn now(&self) -> u32 {
        self.now
    }

    /// As many pages are in flight as may be.
    pub(super) fn on_full(&mut self) {
        self.round.is_full = true;
    }

    /// A page that was asked for at `asked` came at `now`.
    pub(super) fn on_page(&mut self, asked: Duration, now: Duration) {
        if asked < self.changed {
            return;
        }
        self.round.took.push(now.saturating_sub(asked));
        if self.round.took.len() < self.now as usize {
            return;
        }
        let mut round = std::mem::take(&mut self.round);
        if round.is_full {
            // A few that were late say nothing of the width.
            let middle = round.took.len() / 2;
            let (_, median, _) = round.took.select_nth_unstable(middle);
            self.on_round(*median, now);
        }
    }

    /// A round of pages has ended, of which the median took this long.
    fn on_round(&mut self, took: Duration, now: Duration) {
        if self.held > 0 {
            self.held -= 1;
            return;
        }
        match self.before {
            Some(before) if took > before.mul_f64(SLOWER_MOST) => {
                (self.before, self.held) = (None, ROUNDS_HELD);
                self.change((self.now / 2).max(1), now);
            }
            _ if self.now < self.most => {
                self.before = Some(took);
                self.change((self.now * 2).min(self.most), now);
            }
            _ => {}
        }
    }

    fn change(&mut self, width: u32, now: Duration) {
        (self.now, self.changed, self.round) = (width, now, Round::default());
    }

    /// A page that was asked for at `asked` was too much for the origin, as was heard at `now`. Verdicts on
    /// what was sent before the last one are no news.
    pub(super) fn on_throttled(&mut self, asked: Duration, now: Duration) {
        if self.throttled.is_some_and(|throttled| asked < throttled) {
            return;
        }
        self.throttled = Some(now);
        (self.before, self.held) = (None, ROUNDS_THROTTLED);
        self.change((self.now / 2).max(1), now);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// The width after `pages` pages of an origin that answers each after a tenth of a second, and so many a
    /// second at most.
    fn width_after(pages: u32, most: u32, per_second: f64) -> u32 {
        let mut width = Width::new(most);
        let (mut asked, mut now) = (VecDeque::new(), 0.0);
        for _ in 0..pages {
            while asked.len() < width.now() as usize {
                asked.push_back(now);
            }
            width.on_full();
            let began: f64 = asked.pop_front().expect("one is in flight");
            now = (began + 0.1).max(now + 1.0 / per_second);
            width.on_page(Duration::from_secs_f64(began), Duration::from_secs_f64(now));
        }
        width.now()
    }

    #[test]
    fn it_grows_as_long_as_it_pays() {
        assert_eq!(width_after(800, 128, 1e9), 128);
        assert_eq!(width_after(800, 20, 1e9), 20);
        assert!((8..=64).contains(&width_after(400, 128, 160.0)));
        assert!(width_after(400, 128, 20.0) <= 32);
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
