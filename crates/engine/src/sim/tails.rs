//! Tails in virtual time: what stalls, slow and dead addresses and the last part cost a transfer from end to
//! end.

use std::time::Duration;

use flatout_wire::range::Span;

use super::check::check;
use super::put_tests;
use super::run::run;
use super::scenario::{Address, Fault, Framing, From, Land, Scenario, Step, Task};
use super::shapes::steady_link;
use crate::api::account::Dialect;
use flatout_policy::hedge::{BUDGET_FIRST, REFILL};

/// A get of 120 parts by eight workers, a third of a second each: six seconds on a clean day.
fn steady(seed: u64) -> Scenario {
    let mut scenario = steady_link(seed);
    let origin = &mut scenario.origin;
    scenario.shape = "steady";
    (origin.dialect, origin.framing, origin.states_checksum) = (Dialect::Plain, Framing::Length, false);
    scenario.objects[0].bytes = 120 * (32 << 10);
    scenario.task = Task::One { span: Span::All, land: Land::Memory, pauses: Vec::new() };
    scenario
}

/// A put of as much. Little of a part fits into what the system holds of a connection.
fn steady_put(seed: u64) -> Scenario {
    let mut scenario = put_tests::steady(seed, From::Memory, 120);
    scenario.origin.rooms = (1 << 10, 4 << 10);
    scenario.origin.faulty_steps = vec![Step::Part(1)];
    scenario
}

/// What a run took and told: seconds, parts that were asked for twice or elsewhere, and all requests.
struct Took {
    seconds: f64,
    hedged: u32,
    moved: u32,
    requests: usize,
    events: Vec<String>,
}

fn took(scenario: &Scenario) -> Took {
    let (world, outcome) = run(scenario, true);
    let wrong = check(&world, &outcome);
    assert!(wrong.is_empty(), "{}\n{scenario}", wrong.join("; "));
    let (result, took) = match &outcome.put {
        Some(put) => (&put.result, put.ended),
        None => {
            let ended = outcome.gets.first().expect("one get");
            (&ended.result, ended.ended - ended.began)
        }
    };
    let report = result.as_ref().expect("it ends well");
    let log = world.log.borrow();
    Took {
        seconds: took.as_secs_f64(),
        hedged: report.tails.hedged,
        moved: report.tails.moved,
        requests: log.exchanges.len() + log.writes.iter().filter(|write| write.step.has_content()).count(),
        events: log.events.clone(),
    }
}

/// The mean, over seeds, of what a changed world takes beside the same one on a clean day.
fn ratio(steady: impl Fn(u64) -> Scenario, change: impl Fn(&mut Scenario)) -> f64 {
    const SEEDS: u64 = 20;
    let of = |seed| {
        let (clean, mut changed) = (steady(seed), steady(seed));
        change(&mut changed);
        took(&changed).seconds / took(&clean).seconds
    };
    let ratios: Vec<f64> = (0..SEEDS).map(of).collect();
    println!("{ratios:.2?}");
    ratios.iter().sum::<f64>() / SEEDS as f64
}

#[test]
fn one_stall_in_a_hundred_costs_little() {
    let ratio = ratio(steady, |scenario| {
        scenario.origin.faults = vec![(0.01, Fault::Stall(Duration::from_secs(10)))];
    });
    assert!(ratio <= 1.15, "{ratio}");
}

#[test]
fn one_stalled_part_in_a_hundred_costs_a_put_little() {
    let ratio = ratio(steady_put, |scenario| {
        scenario.origin.faults = vec![(0.01, Fault::Stall(Duration::from_secs(10)))];
    });
    // Some stall when the rest of them has left for the system: those are not sent again.
    assert!(ratio <= 1.4, "{ratio}");
}

#[test]
fn a_slow_address_costs_less_than_its_share() {
    let ratio = ratio(steady, |scenario| {
        scenario.origin.addresses[2] = Address::Slow(10);
    });
    assert!(ratio <= 1.0 / 0.9, "{ratio}");
}

#[test]
fn a_dead_address_is_tried_once_and_waited_for_by_nobody() {
    for dead in [0, 3] {
        let mut scenario = steady(1);
        let clean = took(&scenario).seconds;
        scenario.origin.addresses[dead] = Address::Silent;
        let Took { seconds, events, .. } = took(&scenario);
        let tries = events.iter().filter(|event| event.contains("does not answer")).count();
        assert_eq!(tries, 1, "{events:#?}");
        assert!(seconds <= clean + 1.0, "{seconds} s, {clean} s with all of them");
    }
}

#[test]
fn a_broad_slowdown_stays_in_budget() {
    for seed in 0..20 {
        let mut scenario = if seed % 2 == 0 { steady(seed) } else { steady_put(seed) };
        scenario.origin.faults = vec![(1.0, Fault::Stall(Duration::from_secs(3)))];
        let Took { hedged, moved, requests, .. } = took(&scenario);
        let first = BUDGET_FIRST * f64::from(scenario.tuning.shards);
        let most = first + REFILL * 120.0;
        assert!(hedged > 0 && f64::from(hedged) <= most, "seed {seed}: {hedged} hedges, {most} are allowed");
        assert!(requests <= 120 + most as usize + moved as usize, "seed {seed}: {requests} requests");
    }
}

#[test]
fn the_last_part_is_shared() {
    let mut scenario = steady(3);
    (scenario.origin.rate, scenario.tuning.parallel, scenario.tuning.part_bytes) = (200_000, 2, 3_700_000);
    scenario.tuning.window_bytes = 2 * scenario.tuning.part_bytes;
    // The second part is there when a twelfth of the first is.
    scenario.objects[0].bytes = 4_000_000;
    let alone_s = 3_700_000.0 / 200_000.0;
    let Took { seconds, requests, hedged, .. } = took(&scenario);
    assert_eq!((requests, hedged), (3, 0), "two parts, and the rest of one");
    assert!(seconds < 0.6 * alone_s, "{seconds} s, the part alone takes {alone_s} s");
}
