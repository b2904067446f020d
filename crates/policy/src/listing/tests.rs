//! Listings of made origins: what is shown, in which order, and at which cost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;

/// A page as a list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Names(Vec<String>);

impl NamedPage for Names {
    fn first(&self) -> Option<&str> {
        self.0.first().map(String::as_str)
    }

    fn last(&self) -> Option<&str> {
        self.0.last().map(String::as_str)
    }

    fn names(&self) -> u64 {
        self.0.len() as u64
    }

    fn bytes(&self) -> u64 {
        self.0.len() as u64 * 40
    }

    fn is_in_order(&self) -> bool {
        self.0.is_sorted_by(|one, other| one < other)
    }

    fn sample(&self, visit: &mut dyn FnMut(&str)) {
        self.0.iter().for_each(|name| visit(name));
    }

    fn split_behind(&mut self, cut: &str) -> Option<Names> {
        let own = self.0.partition_point(|name| name.as_str() <= cut);
        (own < self.0.len()).then(|| Names(self.0.split_off(own)))
    }
}

/// Numbers that a seed gives.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }
}

/// How an origin answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Good,
    /// It does not know `start-after`.
    Ignores,
    /// … and answers with nothing.
    Empty,
    /// … and refuses it.
    Refuses,
    /// It takes `start-after` to be one of the names.
    Inclusive,
    /// It has an order of its own.
    Unordered,
    /// Pages may be empty, and have a successor.
    Gaps,
}

/// An origin of names, and the requests that it got.
struct Origin {
    names: BTreeSet<String>,
    page: usize,
    habit: Habit,
    requests: u64,
    most_in_flight: u32,
}

impl Origin {
    fn new(names: impl IntoIterator<Item = String>, page: usize) -> Origin {
        let names = names.into_iter().collect();
        Origin { names, page, habit: Habit::Good, requests: 0, most_in_flight: 0 }
    }

    fn order(&self) -> Vec<&String> {
        let mut names: Vec<&String> = self.names.iter().collect();
        if self.habit == Habit::Unordered {
            names.sort_by_key(|name| name.bytes().rev().collect::<Vec<u8>>());
        }
        names
    }

    /// A page and the token of the next, or a refusal.
    fn answer(&mut self, from: &PageFrom) -> Result<(Names, Option<String>), ()> {
        self.requests += 1;
        let after = match (from, self.habit) {
            (PageFrom::Start, _) | (PageFrom::After(_), Habit::Ignores | Habit::Unordered) => None,
            (PageFrom::After(_), Habit::Empty) => return Ok((Names(Vec::new()), None)),
            (PageFrom::After(_), Habit::Refuses) => return Err(()),
            (PageFrom::After(name), _) => Some(name.as_str()),
            (PageFrom::Token(token), _) => Some(token.as_str()),
        };
        if self.habit == Habit::Unordered {
            let names = self.order();
            let at = after.and_then(|after| names.iter().position(|name| *name == after));
            let rest = &names[at.map_or(0, |at| at + 1)..];
            let page: Vec<String> = rest.iter().take(self.page).map(|name| (*name).clone()).collect();
            let next = (rest.len() > page.len()).then(|| page[page.len() - 1].clone());
            return Ok((Names(page), next));
        }
        let is_start = matches!(from, PageFrom::After(_));
        if self.habit == Habit::Gaps && is_start && self.requests.is_multiple_of(3) {
            return Ok((Names(Vec::new()), after.map(str::to_owned)));
        }
        let is_inclusive = self.habit == Habit::Inclusive && is_start;
        let is_behind = |name: &str| after.is_none_or(|after| name > after || is_inclusive && name == after);
        let start = after.unwrap_or_default().to_owned();
        let mut rest = self.names.range(start..).filter(|name| is_behind(name));
        let page: Vec<String> = rest.by_ref().take(self.page).cloned().collect();
        let next = rest.next().and(page.last().cloned());
        Ok((Names(page), next))
    }
}

fn limits(in_flight: u32) -> ListingLimits {
    ListingLimits { in_flight, bytes: 1 << 30 }
}

/// Of all names.
const PREFIX: &str = "p/";

/// Lists all, with pages that come in any order; `change` may change the origin before each answer.
fn listed_with(
    origin: &mut Origin,
    delimiter: Option<char>,
    limits: ListingLimits,
    chance: &mut Chance,
    mut change: impl FnMut(&mut Origin, &mut Chance),
) -> Vec<String> {
    let mut sections = Sections::<Names, ()>::new(PREFIX, delimiter, limits);
    let mut on_the_way: Vec<PageRequest> = Vec::new();
    let mut shown = Vec::new();
    let mut time = Duration::ZERO;
    loop {
        match sections.take() {
            Taken::Page(page) => {
                shown.extend(page.0);
                continue;
            }
            Taken::End => break,
            Taken::Failed(()) => panic!("nothing fails here"),
            Taken::Wait => {}
        }
        while let Some(request) = sections.next_request(time) {
            if let (PageFrom::After(cut), Some(delimiter)) = (&request.from, delimiter) {
                assert!(!cut[PREFIX.len()..].contains(delimiter), "{cut} is within a folder");
            }
            on_the_way.push(request);
        }
        assert!(!on_the_way.is_empty(), "somebody must be asked");
        assert!(!sections.is_done());
        origin.most_in_flight = origin.most_in_flight.max(on_the_way.len() as u32);
        change(origin, chance);
        let at = chance.below(on_the_way.len() as u64) as usize;
        let PageRequest { section, from } = on_the_way.swap_remove(at);
        time += Duration::from_millis(100) / (on_the_way.len() as u32 + 1);
        match origin.answer(&from) {
            Ok((page, next)) => sections.on_page(section, page, next, time),
            Err(()) => sections.on_failure(section, (), true),
        }
    }
    assert!(sections.is_done());
    shown
}

fn listed(origin: &mut Origin, in_flight: u32, seed: u64) -> Vec<String> {
    listed_with(origin, None, limits(in_flight), &mut Chance(seed), |_, _| {})
}

/// Names of several kinds, in a bucket.
fn names(kind: u64, count: u64, chance: &mut Chance) -> Vec<String> {
    let any = |chance: &mut Chance| -> String {
        let letters = ["a", "b", "/", "-", "0", "7", "é", "\u{10ffff}", " ", "Z"];
        (0..=chance.below(12)).map(|_| letters[chance.below(letters.len() as u64) as usize]).collect()
    };
    (0..count)
        .map(|number| match kind {
            0 => format!("p/{number:07}"),
            1 => format!("p/{:016x}", chance.below(u64::MAX)),
            2 => format!("p/dir{:03}/file{:05}", number / 100, number % 100),
            3 => format!("p/{number}"),
            4 => format!("p/2024/{:02}/{:02}/{number}.jpg", number % 336 / 28 + 1, number % 28 + 1),
            5 => format!("p/{}", any(chance)),
            6 => format!("p/{}{number:06}", "all/of/a/deep/tree/and/so/on/".repeat(5)),
            _ => format!("p/{}/{number:05}", if number % 50 == 0 { any(chance) } else { "huge".to_owned() }),
        })
        .collect()
}

const KINDS: u64 = 8;

#[test]
fn every_name_comes_once_and_in_order() {
    for seed in 1..=150 {
        let mut chance = Chance(seed * 0x9e37_79b9);
        let kind = chance.below(KINDS);
        let (count, page) = (chance.below(3_000), 1 + chance.below(60) as usize);
        let names = names(kind, count, &mut chance);
        let mut origin = Origin::new(names, page);
        let expected: Vec<String> = origin.names.iter().cloned().collect();
        let in_flight = 1 + chance.below(64) as u32;
        let shown = listed(&mut origin, in_flight, seed);
        assert_eq!(shown, expected, "seed {seed}, kind {kind}, pages of {page}");
        assert!(origin.most_in_flight <= in_flight);
    }
}

/// Folders are one name each, which an origin shows or not where the listing begins within one.
#[test]
fn a_listing_of_one_level_is_cut_outside_of_folders() {
    let mut most_in_flight = 0;
    for seed in 1..=100 {
        let mut chance = Chance(seed * 0x9e37_79b9);
        let kind = chance.below(KINDS);
        let one_level = |name: String| match name[PREFIX.len()..].find('/') {
            Some(end) => name[..PREFIX.len() + end + 1].to_owned(),
            None if chance.below(2) == 0 => name + "/",
            None => name,
        };
        let names: Vec<String> = names(kind, 3_000, &mut Chance(seed)).into_iter().map(one_level).collect();
        let mut origin = Origin::new(names, 1 + chance.below(60) as usize);
        let expected: Vec<String> = origin.names.iter().cloned().collect();
        let shown = listed_with(&mut origin, Some('/'), limits(32), &mut chance, |_, _| {});
        assert_eq!(shown, expected, "seed {seed}, kind {kind}");
        most_in_flight = most_in_flight.max(origin.most_in_flight);
    }
    assert!(most_in_flight > 16, "{most_in_flight} in flight");
}

#[test]
fn origins_without_start_after_cost_time_and_no_name() {
    use Habit::{Empty, Gaps, Ignores, Inclusive, Refuses};
    for seed in 1..=40 {
        for habit in [Ignores, Empty, Refuses, Inclusive, Gaps] {
            let mut chance = Chance(seed * 0x51ed_2701);
            let kind = chance.below(KINDS);
            let names = names(kind, chance.below(2_000), &mut chance);
            let mut origin = Origin { habit, ..Origin::new(names, 1 + chance.below(60) as usize) };
            let expected: Vec<String> = origin.names.iter().cloned().collect();
            assert_eq!(listed(&mut origin, 32, seed), expected, "seed {seed}, {habit:?}");
        }
    }
}

#[test]
fn an_origin_with_an_order_of_its_own_is_listed_page_after_page() {
    let mut chance = Chance(7);
    let names = names(1, 2_000, &mut chance);
    let mut origin = Origin { habit: Habit::Unordered, ..Origin::new(names, 50) };
    let mut shown = listed(&mut origin, 32, 7);
    shown.sort();
    assert_eq!(shown, origin.names.iter().cloned().collect::<Vec<_>>());
    assert_eq!((origin.requests, origin.most_in_flight), (40, 1));
}

#[test]
fn names_that_stay_come_once_while_others_come_and_go() {
    for seed in 1..=80 {
        let mut chance = Chance(seed * 0x2545_f491);
        let kind = chance.below(KINDS);
        let all: Vec<String> = {
            let names: BTreeSet<String> = names(kind, 2_500, &mut chance).into_iter().collect();
            names.into_iter().collect()
        };
        let stays: BTreeMap<&String, bool> = all.iter().map(|name| (name, chance.below(3) > 0)).collect();
        let mut origin = Origin::new(all.iter().filter(|_| chance.below(2) > 0).cloned(), 30);
        origin.names.extend(stays.iter().filter(|(_, stays)| **stays).map(|(name, _)| (*name).clone()));
        let shown = listed_with(&mut origin, None, limits(24), &mut chance, |origin, chance| {
            for _ in 0..10 {
                let name = &all[chance.below(all.len() as u64) as usize];
                if !stays[name] && !origin.names.remove(name) {
                    origin.names.insert(name.clone());
                }
            }
        });
        assert!(shown.is_sorted_by(|one, other| one < other), "in order, each once: seed {seed}");
        let shown: BTreeSet<&String> = shown.iter().collect();
        let missing = stays.iter().find(|(name, stays)| **stays && !shown.contains(*name));
        assert_eq!(missing, None, "seed {seed}, kind {kind}");
    }
}

#[test]
fn a_short_listing_costs_no_request_more() {
    for (names, requests) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (2_000, 2)] {
        let mut origin = Origin::new((0..names).map(|number| format!("p/{number:07}")), 1_000);
        assert_eq!(listed(&mut origin, 64, 3).len(), names);
        assert_eq!(origin.requests, requests, "{names} names");
    }
}

/// Requests for a million names of each kind, against pages, and how many rounds of answers it takes where
/// all that are in flight come at once.
fn cost(names: Vec<String>, in_flight: u32, bytes: u64) -> (f64, u64, u64) {
    let mut origin = Origin::new(names, 100);
    let count = origin.names.len() as u64;
    let limits = ListingLimits { in_flight, bytes };
    let mut sections = Sections::<Names, ()>::new("p/", None, limits);
    let (mut rounds, mut shown, mut held_most) = (0, 0, 0);
    'listing: loop {
        let mut asked = Vec::new();
        loop {
            match sections.take() {
                Taken::Page(page) => shown += page.names(),
                Taken::End => break 'listing,
                Taken::Failed(()) => panic!("nothing fails here"),
                Taken::Wait => break,
            }
        }
        let began = Duration::from_millis(100) * rounds;
        while let Some(request) = sections.next_request(began) {
            asked.push(request);
        }
        for (number, PageRequest { section, from }) in asked.into_iter().enumerate() {
            let (page, next) = origin.answer(&from).expect("a good one");
            let now = began + Duration::from_millis(100) + Duration::from_micros(number as u64);
            sections.on_page(section, page, next, now);
        }
        held_most = held_most.max(sections.bytes());
        rounds += 1;
    }
    assert_eq!(shown, count);
    let pages = count.div_ceil(100);
    (origin.requests as f64 / pages as f64, pages / u64::from(rounds), held_most)
}

#[test]
fn sections_are_many_and_cost_few_requests() {
    for kind in [0, 1, 2, 3, 4, 6, 7] {
        let names = names(kind, 100_000, &mut Chance(11));
        let (requests, speedup, _) = cost(names, 64, 1 << 30);
        println!("kind {kind}: {requests:.3} requests a page, {speedup} times as fast");
        assert!(requests < 1.15, "kind {kind}: {requests} requests a page");
        let least = if kind == 4 { 4 } else { 16 };
        assert!(speedup >= least, "kind {kind}: {speedup} times as fast");
    }
}

#[test]
fn pages_that_wait_stay_within_their_memory() {
    let names = names(0, 200_000, &mut Chance(5));
    // 400 pages; those in flight come on top of what was held when they were asked for.
    let (_, speedup, held) = cost(names, 32, 400 * 4_000);
    assert!(held <= 440 * 4_000 && speedup >= 10, "{held} bytes, {speedup} times as fast");
}

#[test]
fn what_comes_before_a_failure_is_handed_out() {
    let names: Vec<String> = (0..5_000).map(|number| format!("p/{number:07}")).collect();
    let mut origin = Origin::new(names.clone(), 50);
    let mut sections = Sections::<Names, &str>::new("p/", None, limits(16));
    let (mut shown, mut number) = (Vec::new(), 0);
    let mut failed = None;
    loop {
        match sections.take() {
            Taken::Page(page) => shown.extend(page.0),
            Taken::Failed(error) => {
                assert_eq!((error, sections.take()), ("broken", Taken::End));
                break;
            }
            Taken::End => panic!("it fails before"),
            Taken::Wait => {
                let mut asked = Vec::new();
                while let Some(request) = sections.next_request(Duration::from_millis(number)) {
                    asked.push(request);
                }
                // The last first.
                for PageRequest { section, from } in asked.into_iter().rev() {
                    number += 1;
                    let low = match &from {
                        PageFrom::Start => "",
                        PageFrom::After(name) | PageFrom::Token(name) => name,
                    };
                    if low > "p/0003" || failed.is_some() && low > "p/0002" {
                        failed.get_or_insert(number);
                        sections.on_failure(section, "broken", false);
                        continue;
                    }
                    let (page, next) = origin.answer(&from).expect("a good one");
                    sections.on_page(section, page, next, Duration::from_millis(number));
                }
            }
        }
    }
    assert!(shown.len() >= 1_000 && names.starts_with(&shown), "{} names", shown.len());
    assert!(failed.is_some());
}

#[test]
fn an_origin_that_asks_for_less_gets_less() {
    let mut sections = Sections::<Names, ()>::new("p/", None, limits(64));
    let mut origin = Origin::new(names(0, 20_000, &mut Chance(3)), 20);
    let mut asked = Vec::new();
    let mut now = Duration::ZERO;
    for _ in 0..300 {
        while let Taken::Page(_) = sections.take() {}
        asked.extend(std::iter::from_fn(|| sections.next_request(now)));
        let PageRequest { section, from } = asked.remove(0);
        let (page, next) = origin.answer(&from).expect("a good one");
        now += Duration::from_millis(1);
        sections.on_page(section, page, next, now);
    }
    let before = sections.width.now();
    sections.on_throttled(now, now + Duration::from_millis(1));
    assert_eq!(sections.width.now(), before / 2);
    assert!(sections.next_request(now).is_none(), "what is in flight is more than that");
}
