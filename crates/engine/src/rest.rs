//! Rests: addresses that failed are tried last for a while. Pure: time is an argument.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The first rest of an address: what is dead costs little, and what has come back is found soon. It doubles with each
/// failure after it.
const REST: Duration = Duration::from_secs(10);
const REST_MAX: Duration = Duration::from_secs(300);

/// The addresses that failed, until one of their connections brings an answer again.
#[derive(Debug, Default)]
pub(crate) struct Rests(HashMap<SocketAddr, Rest>);

#[derive(Debug)]
struct Rest {
    failures: u32,
    /// When the last of them was noticed.
    failed: Instant,
    until: Instant,
}

impl Rests {
    /// Those of `list` that do not rest, in turn; behind them those that do, the one that has rested longest first. Whoever
    /// is given an address whose rest is over tries it for all: it goes on resting for the others meanwhile, for as long
    /// as a `trial` can take.
    pub(crate) fn order(
        &mut self,
        list: &[SocketAddr],
        turn: usize,
        trial: Duration,
        now: Instant,
    ) -> Vec<SocketAddr> {
        let rests_until =
            |address: &SocketAddr| self.0.get(address).map(|rest| rest.until).filter(|until| *until > now);
        let (mut order, mut resting): (Vec<_>, Vec<_>) =
            list.iter().partition(|address| rests_until(address).is_none());
        let first = turn.checked_rem(order.len()).unwrap_or(0);
        order.rotate_left(first);
        resting.sort_by_key(rests_until);
        order.append(&mut resting);
        if let Some(rest) = order.first().and_then(|first| self.0.get_mut(first)) {
            rest.until = rest.until.max(now + trial);
        }
        order
    }

    /// What was begun on `address` then has failed. Of many that were on their way at once, only the first counts.
    pub(crate) fn on_failed(&mut self, address: SocketAddr, begun: Instant, now: Instant) {
        // One that nobody tried for so long has left the name, or nobody asks for it any more.
        self.0.retain(|_, rest| now < rest.until + REST_MAX);
        let rest = self.0.entry(address).or_insert(Rest { failures: 0, failed: begun, until: now });
        if begun < rest.failed {
            return;
        }
        let length = REST.saturating_mul(1 << rest.failures.min(16)).min(REST_MAX);
        *rest = Rest { failures: rest.failures.saturating_add(1), failed: now, until: now + length };
    }

    /// A connection to `address` has brought an answer.
    pub(crate) fn on_answered(&mut self, address: SocketAddr) {
        self.0.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to the addresses `a`, `b`, `c`, at a second each, and the order in which a connection finds them.
    enum Event {
        Fails { address: char, begun: u64 },
        Answers(char),
        Order { turn: usize, expected: &'static str },
    }
    use Event::{Answers, Fails, Order};

    const TRIAL: Duration = Duration::from_secs(30);

    fn address(name: char) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, name as u8], 80))
    }

    #[track_caller]
    fn check(events: &[(u64, Event)]) {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let list = ['a', 'b', 'c'].map(address);
        let mut rests = Rests::default();
        for (number, (now, event)) in (1..).zip(events) {
            match event {
                Fails { address: name, begun } => rests.on_failed(address(*name), at(*begun), at(*now)),
                Answers(name) => rests.on_answered(address(*name)),
                Order { turn, expected } => {
                    let order = rests.order(&list, *turn, TRIAL, at(*now));
                    let found: String = order
                        .iter()
                        .map(|address| match address.ip() {
                            std::net::IpAddr::V4(ip) => ip.octets()[3] as char,
                            std::net::IpAddr::V6(_) => '?',
                        })
                        .collect();
                    assert_eq!(&found, expected, "event {number}, at {now}");
                }
            }
        }
    }

    #[test]
    fn addresses_take_turns() {
        check(&[
            (0, Order { turn: 0, expected: "abc" }),
            (0, Order { turn: 1, expected: "bca" }),
            (0, Order { turn: 5, expected: "cab" }),
            (0, Order { turn: usize::MAX, expected: "abc" }),
        ]);
        assert!(Rests::default().order(&[], 3, TRIAL, Instant::now()).is_empty());
    }

    #[test]
    fn what_fails_rests_and_is_tried_again_by_one() {
        check(&[
            (5, Fails { address: 'a', begun: 0 }),
            (5, Order { turn: 0, expected: "bca" }),
            (14, Order { turn: 2, expected: "bca" }),
            // Its rest is over: the one whose turn it is tries it, the next do not, for as long as that can take.
            (15, Order { turn: 1, expected: "bca" }),
            (15, Order { turn: 0, expected: "abc" }),
            (15, Order { turn: 0, expected: "bca" }),
            (44, Order { turn: 0, expected: "bca" }),
            // It fails again and rests for twice as long.
            (44, Fails { address: 'a', begun: 15 }),
            (63, Order { turn: 0, expected: "bca" }),
            (64, Order { turn: 0, expected: "abc" }),
            (65, Answers('a')),
            (65, Order { turn: 0, expected: "abc" }),
            (66, Order { turn: 0, expected: "abc" }),
        ]);
    }

    #[test]
    fn a_trial_that_nobody_ends_ends() {
        check(&[
            (5, Fails { address: 'a', begun: 0 }),
            (15, Order { turn: 0, expected: "abc" }),
            (45, Order { turn: 0, expected: "abc" }),
        ]);
    }

    #[test]
    fn those_that_do_not_rest_share_its_turns() {
        check(&[
            (5, Fails { address: 'a', begun: 0 }),
            (5, Order { turn: 0, expected: "bca" }),
            (5, Order { turn: 1, expected: "cba" }),
            (5, Order { turn: 2, expected: "bca" }),
            (5, Order { turn: 3, expected: "cba" }),
        ]);
    }

    #[test]
    fn many_that_fail_at_once_are_one_failure() {
        check(&[
            (5, Fails { address: 'a', begun: 0 }),
            (5, Fails { address: 'a', begun: 1 }),
            (6, Fails { address: 'a', begun: 4 }),
            (15, Order { turn: 0, expected: "abc" }),
        ]);
    }

    #[test]
    fn where_all_rest_all_are_tried() {
        check(&[
            (5, Fails { address: 'b', begun: 0 }),
            (6, Fails { address: 'a', begun: 0 }),
            (7, Fails { address: 'c', begun: 0 }),
            (8, Order { turn: 0, expected: "bac" }),
        ]);
    }

    #[test]
    fn addresses_that_nobody_tries_any_more_are_forgotten() {
        let (mut rests, start) = (Rests::default(), Instant::now());
        rests.on_failed(address('a'), start, start);
        rests.on_failed(address('b'), start, start + REST + REST_MAX / 2);
        assert_eq!(rests.0.len(), 2);
        rests.on_failed(address('b'), start, start + REST + REST_MAX);
        assert!(!rests.0.contains_key(&address('a')) && rests.0.contains_key(&address('b')));
    }

    #[test]
    fn rests_have_an_end() {
        let mut rests = Rests::default();
        let mut now = Instant::now();
        for _ in 0..40 {
            rests.on_failed(address('a'), now, now);
            assert!(rests.0[&address('a')].until <= now + REST_MAX);
            now += Duration::from_secs(1);
        }
    }
}
