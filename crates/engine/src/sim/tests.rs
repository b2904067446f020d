//! The seeds, and the runs that have a name.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use flatout_wire::range::Span;

use super::check::{check, check_attempts, waits};
use super::run::run;
use super::scenario::{Address, Fault, Framing, Interruption, Land, Object, Scenario, Task, ThrottleHint};
use super::shapes::SHAPES;
use super::world::{Exchange, Window, World};
use crate::api::account::Dialect;

/// Seeds that a plain run goes through.
const SEEDS: u64 = 1_000;
/// Failing seeds after which no more are tried.
const SHOWN: usize = 5;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}

/// What is wrong with the run of a scenario.
pub(super) fn faults(scenario: &Scenario, tells: bool) -> (Option<Rc<World>>, Vec<String>) {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let (world, outcome) = run(scenario, tells);
        let wrong = check(&world, &outcome);
        for ended in outcome.gets.iter().filter(|_| tells) {
            println!("{:?} bytes landed: {:?}", ended.landed.as_ref().map(Vec::len), ended.result);
        }
        for ended in outcome.put.iter().filter(|_| tells) {
            println!("{:?}", ended.result);
        }
        (world, wrong)
    }));
    match ran {
        Ok((world, wrong)) => (Some(world), wrong),
        Err(_) => (None, vec!["it panicked".into()]),
    }
}

#[test]
fn every_seed_keeps_every_promise() {
    if let Some(seed) = number("FLATOUT_SEED") {
        return replay(seed);
    }
    let (seeds, began) = (number("FLATOUT_SEEDS").unwrap_or(SEEDS), Instant::now());
    let first = number("FLATOUT_FIRST_SEED").unwrap_or(0);
    let mut failed = 0;
    for seed in first..first + seeds {
        let scenario = Scenario::of(seed);
        let (_, wrong) = faults(&scenario, false);
        if wrong.is_empty() {
            continue;
        }
        println!("\nseed {seed}: {}\n{scenario}", wrong.join("; "));
        println!("FLATOUT_SEED={seed} cargo test -p flatout-engine sim -- --nocapture");
        failed += 1;
        assert!(failed < SHOWN, "{failed} of {} seeds fail, no more were tried", seed + 1 - first);
    }
    println!("{seeds} seeds from {first} on in {:?}", began.elapsed());
    assert!(failed == 0, "{failed} of {seeds} seeds fail");
}

/// A run of its own: fair weather, changed.
pub(super) fn check_one(change: impl FnOnce(&mut Scenario)) {
    let mut scenario = Scenario::of(0);
    change(&mut scenario);
    let wrong = faults(&scenario, false).1;
    assert!(wrong.is_empty(), "{}\n{scenario}", wrong.join("; "));
}

#[test]
fn a_reader_that_leaves_ends_the_transfer_of_a_silent_origin() {
    check_one(|scenario| {
        scenario.task = Task::One { span: Span::All, land: Land::Stream(None), pauses: Vec::new() };
        scenario.tuning.stall_ms = 20_000;
        scenario.origin.faults = vec![(1.0, Fault::Silence)];
        scenario.interruption = Some((Interruption::ReaderLeaves, Duration::from_millis(300)));
    });
}

#[test]
fn the_end_of_an_empty_object_is_empty_and_no_error() {
    for span in [Span::All, Span::Last(2), Span::From(0)] {
        check_one(|scenario| {
            scenario.objects[0].bytes = 0;
            scenario.task = Task::One { span, land: Land::Memory, pauses: Vec::new() };
        });
    }
}

#[test]
fn a_range_of_an_empty_object_is_no_success_where_no_size_is_told() {
    check_one(|scenario| {
        scenario.objects[0].bytes = 0;
        (scenario.origin.has_ranges, scenario.origin.framing) = (false, Framing::Chunked);
        scenario.task = Task::One { span: Span::Slice(0..1), land: Land::Nowhere, pauses: Vec::new() };
    });
}

#[test]
fn the_question_for_the_end_leaves_its_connection_to_the_parts() {
    check_one(|scenario| {
        scenario.objects[0].bytes = 300_000;
        (scenario.tuning.parallel, scenario.origin.dialect) = (1, Dialect::Plain);
        scenario.task = Task::One { span: Span::Last(200_000), land: Land::Memory, pauses: Vec::new() };
    });
}

#[test]
fn an_address_that_comes_back_is_found_when_its_rest_is_over() {
    let mut scenario = Scenario::of(0);
    scenario.objects[0].bytes = 1_000;
    scenario.origin.addresses = vec![Address::Alive, Address::Returns(Duration::from_secs(5))];
    (scenario.tuning.parallel, scenario.origin.closes_each) = (1, true);
    // A get takes three seconds with its aftermath. Refused at the second; not asked at the third, while it
    // rests; there at the fourth, when its cooldown is over.
    let pauses = [0, 3, 3, 1, 10, 0].map(Duration::from_secs).to_vec();
    scenario.task = Task::One { span: Span::All, land: Land::Memory, pauses };
    let (world, wrong) = faults(&scenario, true);
    assert!(wrong.is_empty(), "{}\n{scenario}", wrong.join("; "));
    let events = world.expect("it ran").log.borrow().events.clone();
    let times = |what: &str| -> Vec<f64> {
        let of = events.iter().filter(|event| event.contains(what));
        of.map(|event| event.split_whitespace().next().unwrap_or_default().parse().unwrap_or(0.0)).collect()
    };
    let (refused, back) = (times("refuses"), times("is back"));
    assert!(refused.len() == 1 && refused[0] < 4.0, "{events:#?}");
    assert!(!back.is_empty() && back[0] > refused[0] + 10.0, "{events:#?}");
}

/// How many were in flight at most in the first 100 ms, and in all; where more of them bring more.
fn in_flight(change: impl FnOnce(&mut Scenario)) -> (usize, usize) {
    let mut scenario = Scenario::of(0);
    scenario.origin.dialect = Dialect::Plain;
    (scenario.origin.connect_ms, scenario.origin.first_byte_ms, scenario.origin.jitter_ms) = (1, 5, 0);
    (scenario.origin.rate, scenario.origin.total_rate) = (30_000, 100_000_000);
    scenario.origin.pieces = (1_000, 2_000);
    (scenario.tuning.is_open, scenario.tuning.parallel, scenario.tuning.shards) = (true, 512, 2);
    (scenario.tuning.part_bytes, scenario.tuning.stall_ms) = (16 << 10, 20_000);
    change(&mut scenario);
    let (world, wrong) = faults(&scenario, false);
    assert!(wrong.is_empty(), "{}\n{scenario}", wrong.join("; "));
    let log = &world.expect("it ran").log;
    let exchanges = &log.borrow().exchanges;
    let at_most = |until: Duration| {
        let moments = exchanges.iter().map(|exchange| exchange.asked_at).filter(|at| *at < until);
        let on_its_way = |at: Duration| {
            let begun = exchanges.iter().filter(|exchange| exchange.asked_at <= at);
            begun.filter(|exchange| exchange.ended_at.is_none_or(|ended| ended > at)).count()
        };
        moments.map(on_its_way).max().unwrap_or(0)
    };
    (at_most(Duration::from_millis(100)), at_most(Duration::from_secs(100)))
}

#[test]
fn more_are_in_flight_where_that_brings_more() {
    let (first, later) = in_flight(|scenario| {
        scenario.objects[0].bytes = 3 << 20;
        scenario.task = Task::One { span: Span::All, land: Land::Nowhere, pauses: Vec::new() };
    });
    assert!(first <= 17 && later >= 40, "{first}, then {later}");
}

#[test]
fn a_batch_stayed_at_its_first_level_once_an_object_had_ended() {
    let (first, later) = in_flight(|scenario| {
        scenario.objects = vec![Object { bytes: 12_000, listed: Some(12_000) }; 300];
        scenario.task = Task::Many { land: Land::Nowhere };
    });
    assert!(first <= 17 && later >= 40, "{first}, then {later}");
}

#[test]
fn a_rate_of_requests_is_kept_to_by_the_whole_engine() {
    let mut scenario = Scenario::of(0);
    scenario.objects[0].bytes = 1 << 20;
    (scenario.tuning.parallel, scenario.tuning.part_bytes) = (8, 8 << 10);
    scenario.tuning.request_rate = Some(50);
    scenario.origin.dialect = Dialect::S3;
    (scenario.origin.rate, scenario.origin.total_rate) = (20_000_000, 200_000_000);
    scenario.task = Task::One { span: Span::All, land: Land::Nowhere, pauses: Vec::new() };
    let (world, _) = faults(&scenario, false);
    let world = world.expect("it ran");
    let asked: Vec<Duration> =
        world.log.borrow().exchanges.iter().map(|exchange| exchange.asked_at).collect();
    assert_eq!(asked.len(), 129, "128 parts and a HEAD");
    let least = Duration::from_millis(20 * 120);
    let took = asked.iter().max().expect("some").saturating_sub(*asked.iter().min().expect("some"));
    assert!(took > least && took < least * 3 / 2, "{took:?}");
}

/// One seed, with all that happened.
fn replay(seed: u64) {
    let scenario = Scenario::of(seed);
    println!("seed {seed}\n{scenario}\n");
    let (world, wrong) = faults(&scenario, true);
    for event in world.iter().flat_map(|world| world.log.borrow().events.clone()) {
        println!("{event}");
    }
    assert!(wrong.is_empty(), "seed {seed}: {}", wrong.join("; "));
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 0..50 {
        let trace = || {
            let world = run(&Scenario::of(seed), true).0;
            world.log.borrow().events.clone()
        };
        let (first, second) = (trace(), trace());
        let differs = first.iter().zip(&second).find(|(a, b)| a != b);
        assert!(differs.is_none() && first.len() == second.len(), "seed {seed}: {differs:?}");
    }
}

#[test]
fn waits_double_from_attempt_to_attempt() {
    let mut found: Vec<(u32, Duration)> = Vec::new();
    for seed in 0..60 {
        let mut scenario = Scenario::of(seed * SHAPES.len() as u64);
        scenario.origin.faults = vec![(0.6, Fault::Fails)];
        scenario.tuning.retries = 5;
        found.extend(waits(&run(&scenario, false).0));
    }
    let mean = |wanted: u32| {
        let of: Vec<f64> =
            found.iter().filter(|(n, _)| *n == wanted).map(|(_, gap)| gap.as_secs_f64()).collect();
        assert!(of.len() > 30, "{} waits after attempt {wanted}", of.len());
        of.iter().sum::<f64>() / of.len() as f64
    };
    // Half of 100, 200 and 400 ms; a new connection's time is in it too.
    assert!(mean(2) > 1.2 * mean(1) && mean(3) > 1.2 * mean(2), "{} {} {}", mean(1), mean(2), mean(3));
}

/// A request for `body` and what came of it, times in milliseconds.
fn exchange(
    line: u32,
    body: Range<u64>,
    fault: Option<Fault>,
    asked_ms: u64,
    ended_ms: Option<u64>,
) -> Exchange {
    Exchange {
        transfer: 0,
        line,
        is_get: true,
        object: 0,
        key: body.end,
        status: 206,
        fault,
        body,
        received: 0,
        asked_at: Duration::from_millis(asked_ms),
        moved_at: Duration::from_millis(asked_ms),
        ended_at: ended_ms.map(Duration::from_millis),
    }
}

/// What a world of fair weather objects to.
fn objections(happens: impl FnOnce(&World)) -> String {
    let world = World::new(Rc::new(Scenario::of(0)), false);
    for _ in 0..3 {
        world.on_open();
    }
    happens(&world);
    world.log.borrow().violations.join("; ")
}

#[test]
fn the_model_sees_what_must_not_happen() {
    let twice = objections(|world| {
        world.on_request(exchange(0, 0..10, None, 0, None));
        world.on_request(exchange(1, 5..15, None, 0, None));
    });
    assert!(twice.contains("another attempt at them runs"), "{twice}");
    let beyond = objections(|world| {
        let window = Window { start: 0, part_bytes: 10, window_bytes: 20, read_bytes: 9 };
        *world.window.borrow_mut() = Some(window);
        world.on_request(exchange(0, 10..20, None, 0, Some(1)));
        world.on_request(exchange(1, 20..30, None, 0, None));
    });
    assert!(beyond.starts_with("bytes 20..30 are asked for, the window ends at 20"), "{beyond}");
    let early = objections(|world| {
        world.on_request(exchange(0, 0..10, None, 0, None));
        world.on_end_of_transfer();
    });
    assert!(early.contains("the end was told while 1"), "{early}");
    let well = objections(|world| {
        world.on_request(exchange(0, 0..10, None, 0, None));
        world.end_exchange(0);
        world.on_request(exchange(0, 10..20, None, 0, None));
        world.on_close(0);
        world.on_end_of_transfer();
    });
    assert_eq!(well, "");
}

#[test]
fn the_checks_see_attempts_that_are_too_many_too_early_or_too_late() {
    let scenario = Scenario::of(0);
    let throttled = Some(Fault::Throttles(Some(ThrottleHint::RetryAfter(Duration::from_secs(2)))));
    let check = |exchanges: &[Exchange], expected: &str| {
        let wrong = check_attempts(&scenario, exchanges).join("; ");
        assert!(wrong.contains(expected) && (expected.is_empty() == wrong.is_empty()), "{wrong}");
    };
    let tries = |count: u32, fault, apart_ms: u64| -> Vec<Exchange> {
        let first = exchange(0, 0..5, None, 0, Some(0));
        let tries =
            (0..u64::from(count)).map(|at| exchange(0, 5..10, fault, at * apart_ms, Some(at * apart_ms)));
        std::iter::once(first).chain(tries).collect()
    };
    let most = scenario.tuning.retries + 1;
    check(&tries(most, Some(Fault::Reset), 60), "");
    check(&tries(most + 1, Some(Fault::Reset), 60), "attempts in a row for nothing");
    check(&tries(2, throttled, 1_900), "the origin asked for 2s");
    check(&tries(2, throttled, 2_010), "");
    check(&tries(2, Some(Fault::Reset), 5_000), "is policy");
    // The sixth of a row may wait for 3.2 s, and the first after something worth while for 100 ms and a slot.
    let mut row = tries(7, Some(Fault::Reset), 60);
    (row[5].received, row[6].asked_at, row[6].ended_at) = (1 << 20, row[5].asked_at, row[5].ended_at);
    row[7].asked_at = row[6].asked_at + Duration::from_secs(2);
    check(&row, "attempt 2 was followed only after 2s");
}
