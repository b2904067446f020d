//! The ranking of addresses: which of a name's new connections go to, by what came of earlier ones. Pure:
//! time is an argument.
//!
//! ```text
//!   good, in turn │ slow, longest cooldown first │ being tried by another │ failed, longest cooldown first
//! ```
//! What is unknown is good until it is tried; while one tries it, the others do not.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::cooldown::{COOLDOWN_MAX, Cooldown};

/// What carries less than this share of the median of its fellows is slow.
const SLOW: f64 = 0.5;
/// For so long it must have been, and be so still: one unlucky moment is none.
const LAGS_FOR: Duration = Duration::from_millis(300);
/// So many seconds of bodies are remembered, halved again and again: four connections fill that in a quarter
/// of it.
const REMEMBERED_S: f64 = 2.0;
/// A rate is known by so many bytes, or by so many seconds in which they did not come.
const KNOWN_BYTES: f64 = (1 << 20) as f64;
const KNOWN_S: f64 = 1.0;
/// Rates are compared where they are of one time: later a whole origin may have become slower.
const FRESH: Duration = Duration::from_secs(5);
/// A new sample of a connect's time counts for so much.
const CONNECT_GAIN: f64 = 0.25;
/// A connect that takes longer than others by so much has company: the next address is tried beside it. 250
/// ms is what RFC 8305 §5 advises for where nothing is known.
const HEAD_START: Duration = Duration::from_millis(250);
const HEAD_START_CONNECTS: u32 = 3;

/// What is known of addresses.
#[derive(Debug, Default)]
pub struct Ranks(HashMap<SocketAddr, Standing>);

#[derive(Debug)]
struct Standing {
    /// A connection came about, and none has failed since.
    is_alive: bool,
    /// Somebody tries it since then, and it has not been alive before.
    tried: Option<Instant>,
    failed: Option<Cooldown>,
    slow: Option<Cooldown>,
    carried: Carried,
    /// It has been slower than its fellows since.
    lags: Option<Instant>,
    /// How long a connect takes, in the mean.
    connect_s: Option<f64>,
    touched: Instant,
}

/// What bodies brought over one connection at a time.
#[derive(Debug, Default)]
struct Carried {
    bytes: f64,
    seconds: f64,
    last: Option<Instant>,
}

/// Where a connection goes.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// To these, in this order.
    Go(Vec<SocketAddr>),
    /// The one whose turn it is, is being tried: by then at the latest it is known what comes of it.
    Wait(Instant),
}

impl Ranks {
    /// Those of `list` in the order for this turn. Whoever is given an address first whose cooldown is over
    /// tries it for all: it stays in cooldown for the others meanwhile, for as long as a `trial` can take.
    pub fn order(&mut self, list: &[SocketAddr], turn: usize, trial: Duration, now: Instant) -> Turn {
        let head_start = self.head_start(list);
        let tried =
            |address: &SocketAddr| self.0.get(address).and_then(|standing| standing.tried(trial, now));
        let (mut order, mut in_cooldown): (Vec<_>, Vec<_>) =
            list.iter().partition(|address| self.cooldown_ends(address, now).is_none());
        let first = turn.checked_rem(order.len()).unwrap_or(0);
        order.rotate_left(first);
        if let Some(begun) = order.first().and_then(tried)
            && now < begun + head_start
        {
            return Turn::Wait(begun + head_start);
        }
        let (order, on_trial): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|address| tried(address).is_none());
        in_cooldown.sort_by_key(|address| self.cooldown_ends(address, now));
        let (failed, slow): (Vec<_>, Vec<_>) =
            in_cooldown.into_iter().partition(|address| self.is_failed(address, now));
        let order = [order, slow, on_trial, failed].concat();
        if let Some(standing) = order.first().and_then(|first| self.0.get_mut(first)) {
            standing.cooldowns().for_each(|cooldown| cooldown.try_until(now + trial));
        }
        Turn::Go(order)
    }

    /// How long an address is tried alone, before the next is tried beside it.
    pub fn head_start(&self, list: &[SocketAddr]) -> Duration {
        let known = list.iter().filter_map(|address| self.0.get(address)?.connect_s);
        let longest = known.fold(0.0, f64::max);
        HEAD_START.max(Duration::from_secs_f64(longest) * HEAD_START_CONNECTS)
    }

    fn cooldown_ends(&self, address: &SocketAddr, now: Instant) -> Option<Instant> {
        let standing = self.0.get(address)?;
        [&standing.failed, &standing.slow]
            .into_iter()
            .flatten()
            .filter_map(|cooldown| cooldown.ends(now))
            .max()
    }

    fn is_failed(&self, address: &SocketAddr, now: Instant) -> bool {
        self.0
            .get(address)
            .is_some_and(|standing| standing.failed.is_some_and(|cooldown| cooldown.ends(now).is_some()))
    }

    /// Somebody connects to `address`: where nobody knows whether it is alive, the others leave it to him.
    pub fn on_connecting(&mut self, address: SocketAddr, now: Instant) {
        let standing = self.standing(address, now);
        if !standing.is_alive {
            standing.tried.get_or_insert(now);
        }
    }

    /// A connect to `address` that took so long has come about.
    pub fn on_connected(&mut self, address: SocketAddr, took: Duration, now: Instant) {
        let standing = self.standing(address, now);
        let took = took.as_secs_f64();
        let usual = standing.connect_s.get_or_insert(took);
        *usual += (took - *usual) * CONNECT_GAIN;
        (standing.is_alive, standing.tried) = (true, None);
    }

    /// What was begun on `address` then has failed. Of many that were on their way at once, only the first
    /// counts.
    pub fn on_failed(&mut self, address: SocketAddr, begun: Instant, now: Instant) {
        // One that nobody tried for so long has left the name, or nobody asks for it any more.
        self.0.retain(|_, standing| !standing.is_forgotten(now));
        let standing = self.standing(address, now);
        (standing.is_alive, standing.tried) = (false, None);
        standing.failed = Some(Cooldown::after(standing.failed, begun, now));
    }

    /// A connection to `address` has brought an answer.
    pub fn on_answered(&mut self, address: SocketAddr) {
        if let Some(standing) = self.0.get_mut(&address) {
            standing.failed = None;
        }
    }

    /// A connection to `address` that was opened then has carried `bytes` of bodies in `time`; `fellows` are
    /// all addresses of its name. Whether it begins a cooldown for being slow.
    pub fn on_carried(
        &mut self,
        address: SocketAddr,
        opened: Instant,
        bytes: u64,
        time: Duration,
        fellows: &[SocketAddr],
        now: Instant,
    ) -> bool {
        if self.lets_go(address, opened) {
            return false;
        }
        let usual = self.usual_rate(address, fellows, now);
        let standing = self.standing(address, now);
        standing.carried.add(bytes, time, now);
        let (Some(rate), Some(usual)) = (standing.carried.rate(now), usual) else { return false };
        if rate >= usual * SLOW {
            (standing.slow, standing.lags) = (None, None);
            return false;
        }
        let lags = *standing.lags.get_or_insert(now);
        if now < lags + LAGS_FOR {
            return false;
        }
        standing.slow = Some(Cooldown::after(standing.slow, now, now));
        (standing.carried, standing.lags) = (Carried::default(), None);
        true
    }

    /// Whether a connection to `address` that was opened then is better let go: it is one of those that were
    /// slow.
    pub fn lets_go(&self, address: SocketAddr, opened: Instant) -> bool {
        self.0
            .get(&address)
            .is_some_and(|standing| standing.slow.is_some_and(|cooldown| cooldown.is_about(opened)))
    }

    /// Whether any address was found to be slow, and has not been found well since.
    pub fn has_slow(&self) -> bool {
        self.0.values().any(|standing| standing.slow.is_some())
    }

    /// Bytes a second that one connection to a fellow of `address` carries now: the median over those of
    /// which that is known, the slow ones left out.
    pub fn usual_rate(&self, address: SocketAddr, fellows: &[SocketAddr], now: Instant) -> Option<f64> {
        let others = fellows.iter().filter(|fellow| **fellow != address);
        let known = others.filter_map(|fellow| self.0.get(fellow));
        let mut rates: Vec<f64> = known
            .filter(|standing| standing.slow.is_none())
            .filter_map(|standing| standing.carried.rate(now))
            .collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    }

    fn standing(&mut self, address: SocketAddr, now: Instant) -> &mut Standing {
        let standing = self.0.entry(address).or_insert_with(|| Standing {
            is_alive: false,
            tried: None,
            failed: None,
            slow: None,
            carried: Carried::default(),
            lags: None,
            connect_s: None,
            touched: now,
        });
        standing.touched = now;
        standing
    }
}

impl Standing {
    /// Since when it is being tried; what takes longer than a trial can has been left.
    fn tried(&self, trial: Duration, now: Instant) -> Option<Instant> {
        self.tried.filter(|begun| now < *begun + trial)
    }

    fn cooldowns(&mut self) -> impl Iterator<Item = &mut Cooldown> {
        [&mut self.failed, &mut self.slow].into_iter().flatten()
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        let ends =
            [&self.failed, &self.slow].into_iter().flatten().filter_map(|cooldown| cooldown.ends(now)).max();
        ends.is_none() && now >= self.touched + COOLDOWN_MAX
    }
}

impl Carried {
    fn add(&mut self, bytes: u64, time: Duration, now: Instant) {
        if self.last.is_some_and(|last| now >= last + FRESH) {
            *self = Carried::default();
        }
        self.bytes += bytes as f64;
        self.seconds += time.as_secs_f64();
        self.last = Some(now);
        while self.seconds > REMEMBERED_S {
            self.bytes /= 2.0;
            self.seconds /= 2.0;
        }
    }

    /// Bytes a second of one connection, where enough is known and that is not long ago.
    fn rate(&self, now: Instant) -> Option<f64> {
        let is_fresh = self.last.is_some_and(|last| now < last + FRESH);
        let is_known = self.seconds > 0.0 && (self.bytes >= KNOWN_BYTES || self.seconds >= KNOWN_S);
        (is_fresh && is_known).then(|| self.bytes / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to the addresses `a`, `b`, `c`, and the order in which a connection finds them; times in
    /// tenths of a second.
    enum Event {
        Connecting(char),
        Connected(char),
        Fails {
            address: char,
            begun: u64,
        },
        Answers(char),
        /// Each of these carries so many MiB in the tenth of a second that ends now, over connections opened
        /// then.
        Carry {
            opened: u64,
            mib: [(char, u64); 3],
        },
        Order {
            turn: usize,
            expected: &'static str,
        },
        /// It is known by then.
        Waits {
            turn: usize,
            until: u64,
        },
        /// Those of whom a connection that was opened then is let go.
        LetsGo {
            opened: u64,
            expected: &'static str,
        },
    }
    use Event::{Answers, Carry, Connected, Connecting, Fails, LetsGo, Order, Waits};

    const TRIAL: Duration = Duration::from_secs(30);

    fn address(name: char) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, name as u8], 80))
    }

    fn name(address: &SocketAddr) -> char {
        match address.ip() {
            std::net::IpAddr::V4(ip) => ip.octets()[3] as char,
            std::net::IpAddr::V6(_) => '?',
        }
    }

    #[track_caller]
    fn check(events: &[(u64, Event)]) {
        let start = Instant::now();
        let at = |tenth: u64| start + Duration::from_millis(100 * tenth);
        let list = ['a', 'b', 'c'].map(address);
        let mut ranks = Ranks::default();
        for (number, (tenth, event)) in (1..).zip(events) {
            let now = at(*tenth);
            match event {
                Connecting(name) => ranks.on_connecting(address(*name), now),
                Connected(name) => ranks.on_connected(address(*name), Duration::from_millis(10), now),
                Fails { address: name, begun } => ranks.on_failed(address(*name), at(*begun), now),
                Answers(name) => ranks.on_answered(address(*name)),
                Carry { opened, mib } => {
                    for (name, mib) in mib {
                        let tenth = Duration::from_millis(100);
                        ranks.on_carried(address(*name), at(*opened), mib << 20, tenth, &list, now);
                    }
                }
                Order { turn, expected } => {
                    let Turn::Go(order) = ranks.order(&list, *turn, TRIAL, now) else {
                        panic!("event {number}, at {tenth}: it waits")
                    };
                    let found: String = order.iter().map(name).collect();
                    assert_eq!(&found, expected, "event {number}, at {tenth}");
                }
                Waits { turn, until } => {
                    let found = ranks.order(&list, *turn, TRIAL, now);
                    let early = at(*until) - Duration::from_millis(50);
                    assert_eq!(found, Turn::Wait(early), "event {number}, at {tenth}");
                }
                LetsGo { opened, expected } => {
                    let gone = list.iter().filter(|address| ranks.lets_go(**address, at(*opened)));
                    assert_eq!(&gone.map(name).collect::<String>(), expected, "event {number}, at {tenth}");
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
        assert_eq!(Ranks::default().order(&[], 3, TRIAL, Instant::now()), Turn::Go(Vec::new()));
    }

    #[test]
    fn what_fails_rests_and_is_tried_again_by_one() {
        check(&[
            (50, Fails { address: 'a', begun: 0 }),
            (50, Order { turn: 0, expected: "bca" }),
            (140, Order { turn: 2, expected: "bca" }),
            // Its cooldown is over: the one whose turn it is tries it, the next do not, for as long as that
            // can take.
            (150, Order { turn: 1, expected: "bca" }),
            (150, Order { turn: 0, expected: "abc" }),
            (150, Order { turn: 0, expected: "bca" }),
            (440, Order { turn: 0, expected: "bca" }),
            // It fails again and rests for twice as long.
            (440, Fails { address: 'a', begun: 150 }),
            (630, Order { turn: 0, expected: "bca" }),
            (640, Order { turn: 0, expected: "abc" }),
            (650, Answers('a')),
            (650, Order { turn: 0, expected: "abc" }),
            (660, Order { turn: 0, expected: "abc" }),
        ]);
    }

    #[test]
    fn a_trial_that_nobody_ends_ends() {
        check(&[
            (50, Fails { address: 'a', begun: 0 }),
            (150, Order { turn: 0, expected: "abc" }),
            (450, Order { turn: 0, expected: "abc" }),
        ]);
    }

    #[test]
    fn those_that_do_not_rest_share_its_turns() {
        check(&[
            (50, Fails { address: 'a', begun: 0 }),
            (50, Order { turn: 0, expected: "bca" }),
            (50, Order { turn: 1, expected: "cba" }),
            (50, Order { turn: 2, expected: "bca" }),
            (50, Order { turn: 3, expected: "cba" }),
        ]);
    }

    #[test]
    fn where_all_rest_all_are_tried() {
        check(&[
            (50, Fails { address: 'b', begun: 0 }),
            (60, Fails { address: 'a', begun: 0 }),
            (70, Fails { address: 'c', begun: 0 }),
            (80, Order { turn: 0, expected: "bac" }),
        ]);
    }

    #[test]
    fn what_was_never_alive_is_tried_by_one() {
        check(&[
            (0, Connecting('a')),
            (0, Order { turn: 1, expected: "bca" }),
            // Whose turn it is waits for what comes of it, a quarter of a second at most.
            (0, Waits { turn: 0, until: 3 }),
            (3, Order { turn: 0, expected: "bca" }),
            (3, Order { turn: 1, expected: "bca" }),
            (40, Connected('a')),
            (40, Order { turn: 0, expected: "abc" }),
            // What is alive may be connected to by all at once.
            (41, Connecting('a')),
            (41, Order { turn: 0, expected: "abc" }),
            (50, Fails { address: 'a', begun: 41 }),
            (160, Connecting('a')),
            (160, Waits { turn: 0, until: 163 }),
        ]);
    }

    #[test]
    fn what_carries_less_than_half_rests_and_its_connections_go() {
        let carry = |mib| Carry { opened: 0, mib };
        check(&[
            (10, carry([('a', 10), ('b', 11), ('c', 1)])),
            (11, carry([('a', 10), ('b', 11), ('c', 1)])),
            (12, LetsGo { opened: 0, expected: "" }),
            (14, carry([('a', 10), ('b', 11), ('c', 1)])),
            (14, LetsGo { opened: 0, expected: "c" }),
            (14, Order { turn: 2, expected: "abc" }),
            // What its other connections still carry says nothing more.
            (20, carry([('a', 10), ('b', 10), ('c', 1)])),
            (113, Order { turn: 1, expected: "bac" }),
            // One tries it; it is as slow as before, and rests for twice as long.
            (114, Order { turn: 2, expected: "cab" }),
            (114, Order { turn: 2, expected: "abc" }),
            (115, LetsGo { opened: 114, expected: "" }),
            (120, Carry { opened: 114, mib: [('a', 10), ('b', 10), ('c', 1)] }),
            (123, Carry { opened: 114, mib: [('a', 10), ('b', 10), ('c', 1)] }),
            (123, LetsGo { opened: 114, expected: "c" }),
            (322, Order { turn: 2, expected: "abc" }),
            (323, Order { turn: 2, expected: "cab" }),
            // One tries it, and it is well.
            (330, Carry { opened: 323, mib: [('a', 10), ('b', 10), ('c', 8)] }),
            (330, LetsGo { opened: 0, expected: "" }),
            (330, Order { turn: 2, expected: "cab" }),
        ]);
    }

    #[test]
    fn one_unlucky_moment_or_a_slow_day_for_all_is_no_reason() {
        let carry = |mib| Carry { opened: 0, mib };
        check(&[
            (10, carry([('a', 10), ('b', 10), ('c', 4)])),
            (12, carry([('a', 10), ('b', 10), ('c', 9)])),
            (20, carry([('a', 1), ('b', 1), ('c', 1)])),
            (24, carry([('a', 1), ('b', 1), ('c', 1)])),
            (60, carry([('c', 1), ('b', 1), ('a', 1)])),
            (64, carry([('c', 1), ('b', 1), ('a', 1)])),
            (64, LetsGo { opened: 0, expected: "" }),
        ]);
    }

    #[test]
    fn few_bytes_tell_no_rate() {
        let (mut ranks, start) = (Ranks::default(), Instant::now());
        let list = ['a', 'b'].map(address);
        let short = Duration::from_millis(1);
        ranks.on_carried(list[0], start, KNOWN_BYTES as u64, short, &list, start);
        ranks.on_carried(list[1], start, 1_000, short, &list, start);
        assert_eq!(ranks.usual_rate(list[0], &list, start), None);
        assert!(ranks.usual_rate(list[1], &list, start).is_some_and(|rate| rate > 1e9));
        let later = start + FRESH;
        assert_eq!(ranks.usual_rate(list[1], &list, later), None, "that was long ago");
    }

    #[test]
    fn addresses_that_nobody_tries_any_more_are_forgotten() {
        let (mut ranks, start) = (Ranks::default(), Instant::now());
        ranks.on_failed(address('a'), start, start);
        ranks.on_failed(address('b'), start, start + COOLDOWN_MAX / 2);
        assert_eq!(ranks.0.len(), 2);
        ranks.on_failed(address('b'), start, start + COOLDOWN_MAX);
        assert!(!ranks.0.contains_key(&address('a')) && ranks.0.contains_key(&address('b')));
    }

    #[test]
    fn a_far_origin_has_a_longer_head_start() {
        let (mut ranks, now) = (Ranks::default(), Instant::now());
        let list = [address('a')];
        assert_eq!(ranks.head_start(&list), HEAD_START);
        ranks.on_connected(list[0], Duration::from_millis(300), now);
        assert_eq!(ranks.head_start(&list), Duration::from_millis(900));
    }
}
