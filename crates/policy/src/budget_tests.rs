//! What a budget promises, by tables and by seeds.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::retry::Dice;

/// Of 160 bytes: 88 are set aside, and 10 the last sixteenth.
fn budget() -> Budget {
    Budget::new(160, 88)
}

/// Asks, and whether it is granted at once.
fn asks(budget: &mut Budget, holder: Holder, bytes: u64) -> (Ticket, bool) {
    let (ticket, granted) = budget.ask(holder, bytes);
    (ticket, granted == [ticket])
}

#[test]
fn what_fits_is_granted_at_once_and_the_rest_in_turn() {
    let mut budget = budget();
    let [a, b] = [budget.new_holder(), budget.new_holder()];
    assert!(asks(&mut budget, a, 20).1 && asks(&mut budget, b, 20).1 && asks(&mut budget, a, 20).1);
    let (first, granted) = asks(&mut budget, a, 10);
    assert!(!granted, "12 are left, and 10 of them are not for who has something");
    let (second, granted) = asks(&mut budget, b, 1);
    assert!(!granted, "it would fit, but it is not its turn");
    assert_eq!(budget.give_back(b, 10), [first, second]);
    assert_eq!(budget.held(), 61);
}

#[test]
fn who_has_nothing_goes_first_and_may_have_the_last() {
    let mut budget = budget();
    let [a, b, c] = [budget.new_holder(), budget.new_holder(), budget.new_holder()];
    assert!(asks(&mut budget, a, 62).1);
    let (of_a, granted) = asks(&mut budget, a, 5);
    assert!(!granted);
    assert!(asks(&mut budget, b, 10).1, "past the one that waits");
    let (of_c, granted) = asks(&mut budget, c, 10);
    assert!(!granted);
    let (of_b, granted) = asks(&mut budget, b, 1);
    assert!(!granted, "b has something now");
    // Whose last bytes come back has nothing, and is served like c: in the order of asking.
    assert_eq!(budget.give_back(b, 10), [of_c]);
    assert_eq!(budget.give_back(c, 10), [of_b]);
    assert_eq!(budget.give_back(a, 62), [of_a]);
    assert_eq!(budget.held(), 6);
}

#[test]
fn what_is_withdrawn_lets_the_next_pass() {
    let mut budget = budget();
    let [a, b] = [budget.new_holder(), budget.new_holder()];
    assert!(asks(&mut budget, a, 30).1 && asks(&mut budget, b, 10).1);
    let (large, _) = asks(&mut budget, a, 40);
    let (small, _) = asks(&mut budget, b, 20);
    assert_eq!(budget.withdraw(large), [small]);
    assert_eq!(budget.withdraw(large), [], "once more changes nothing");
}

#[test]
fn what_is_charged_takes_of_what_is_granted() {
    let mut budget = budget();
    let [a, b] = [budget.new_holder(), budget.new_holder()];
    budget.charge(88);
    assert!(asks(&mut budget, a, 40).1, "it was set aside");
    budget.charge(20);
    let (ticket, granted) = asks(&mut budget, b, 20);
    assert!(!granted);
    assert_eq!(budget.discharge(10), [ticket]);
    // However much is charged, one holder goes on.
    assert!(!budget.is_over());
    budget.charge(1_000);
    assert!(budget.is_over());
    assert_eq!(budget.give_back(a, 40), []);
    let (ticket, granted) = asks(&mut budget, a, 10);
    assert!(!granted);
    assert_eq!(budget.give_back(b, 20), [ticket]);
}

/// Streams whose parts come, wait to be read in order, and are read, by seeds: nobody waits for ever, nothing
/// is lost, and no more is granted than there is. Some readers sleep for good.
#[test]
fn streams_go_on_whoever_sleeps() {
    for seed in 0..500 {
        let mut dice = Dice::new(seed);
        let mut draw = |most: u64| (dice.roll() * (most + 1) as f64) as u64;
        let limit = 1_000 + draw(4_000);
        let mut budget = Budget::new(limit, limit / 10);
        // The room of a sleeper is one part's, at least; all sleepers' together fit into the last sixteenth.
        let streams = 2 + draw(4);
        let part = limit / LAST / streams;
        let holders: Vec<Holder> = (0..streams).map(|_| budget.new_holder()).collect();
        let sleeps: Vec<bool> = (0..streams).map(|_| draw(2) == 0).collect();
        let mut parts_left: HashMap<Holder, u64> = holders.iter().map(|&holder| (holder, 40)).collect();
        let mut has: HashMap<Holder, u64> = HashMap::new();
        let mut waiting: HashMap<Ticket, Holder> = HashMap::new();
        let mut granted: HashSet<Ticket> = HashSet::new();
        let mut on_granted =
            |tickets: Vec<Ticket>, has: &mut HashMap<Holder, u64>, waiting: &mut HashMap<Ticket, Holder>| {
                for ticket in tickets {
                    assert!(granted.insert(ticket), "seed {seed}: {ticket} is granted twice");
                    *has.entry(waiting.remove(&ticket).expect("somebody waits")).or_default() += 1;
                }
            };
        for round in 0.. {
            assert!(round < 100_000, "seed {seed}: {parts_left:?}");
            let at = draw(streams - 1) as usize;
            let holder = holders[at];
            let asked = waiting.values().filter(|&&other| other == holder).count() as u64;
            match draw(3) {
                0 | 1
                    if asked + has.get(&holder).copied().unwrap_or(0) < parts_left[&holder] && asked < 8 =>
                {
                    let (ticket, tickets) = budget.ask(holder, part);
                    waiting.insert(ticket, holder);
                    on_granted(tickets, &mut has, &mut waiting);
                }
                2 if asked > 0 => {
                    let ticket =
                        *waiting.iter().find(|(_, other)| **other == holder).expect("it has asked").0;
                    waiting.remove(&ticket);
                    on_granted(budget.withdraw(ticket), &mut has, &mut waiting);
                }
                _ if has.get(&holder).is_some_and(|&has| has > 0) && !sleeps[at] => {
                    *has.get_mut(&holder).expect("it has") -= 1;
                    *parts_left.get_mut(&holder).expect("a stream") -= 1;
                    on_granted(budget.give_back(holder, part), &mut has, &mut waiting);
                }
                _ => {}
            }
            assert!(budget.held() <= limit - limit / 10, "seed {seed}");
            assert_eq!(budget.held(), has.values().sum::<u64>() * part, "seed {seed}");
            let awake = holders.iter().zip(&sleeps).filter(|(_, sleeps)| !**sleeps);
            if awake.into_iter().all(|(holder, _)| parts_left[holder] == 0) {
                break;
            }
        }
    }
}
