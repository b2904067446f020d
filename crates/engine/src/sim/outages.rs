//! Outages in virtual time: an origin that refuses everything for a while costs that while and little more,
//! whatever is asked of it; one that stays away ends all of it with one error.

use std::time::Duration;

use flatout_wire::range::Span;

use super::check::check;
use super::run::{ManyEnded, run};
use super::scenario::{Address, Draw, Framing, Land, Object, Scenario, Task};
use super::shapes::fair;
use crate::api::account::Dialect;
use crate::base::error::ErrorKind;

const OBJECTS: u64 = 300;
const BEGINS: Duration = Duration::from_secs(1);
/// A second for the last probe before the origin is back, and what connections begin with.
const BACK_WITHIN_S: f64 = 1.5;

/// One object of 120 parts, or many small ones: some seconds on a clean day.
fn steady(seed: u64, is_many: bool) -> Scenario {
    let mut scenario = fair(&mut Draw::new(seed));
    let (origin, tuning) = (&mut scenario.origin, &mut scenario.tuning);
    (scenario.seed, scenario.shape) = (seed, "outage");
    (origin.dialect, origin.framing, origin.states_checksum) = (Dialect::S3, Framing::Length, true);
    (origin.addresses, origin.closes_each) = (vec![Address::Alive; 1], false);
    (origin.connect_ms, origin.first_byte_ms, origin.jitter_ms) = (2, 20, 10);
    (origin.rate, origin.total_rate, origin.pieces) = (100_000, 100_000_000, (500, 4_000));
    (tuning.parallel, tuning.shards, tuning.retries) = (8, 2, 2);
    (tuning.part_bytes, tuning.stall_ms, tuning.connect_ms) = (32 << 10, 20_000, 5_000);
    (tuning.window_bytes, tuning.outage_ms) = (2 * tuning.part_bytes, 60_000);
    let object = |bytes| Object { bytes, listed: Some(bytes) };
    (scenario.objects, scenario.task) = match is_many {
        true => (vec![object(10_000); OBJECTS as usize], Task::Many { land: Land::File }),
        false => (
            vec![object(120 * (32 << 10))],
            Task::One { span: Span::All, land: Land::Memory, pauses: vec![] },
        ),
    };
    scenario
}

/// How long a run takes that ends well, and how often a connection was refused.
fn took(scenario: &Scenario) -> (f64, usize) {
    let (world, outcome) = run(scenario, true);
    let wrong = check(&world, &outcome);
    assert!(wrong.is_empty(), "{}\n{scenario}", wrong.join("; "));
    let ended = match &outcome.many {
        Some(many) => {
            let ok = many.finished.iter().filter(|finished| finished.result.is_ok()).count();
            assert_eq!((ok as u64, many.incomplete.is_none()), (OBJECTS, true), "{scenario}");
            many.ended
        }
        None => {
            assert!(outcome.gets.iter().all(|get| get.result.is_ok()), "{:?}", outcome.gets[0].result);
            outcome.gets[0].ended
        }
    };
    let refused = world.log.borrow().events.iter().filter(|event| event.contains("refuses")).count();
    (ended.as_secs_f64(), refused)
}

#[test]
fn an_outage_costs_as_long_as_it_lasts_and_little_more() {
    for (seed, is_many) in [(1, false), (2, true), (3, false), (4, true)] {
        let (clean_s, _) = took(&steady(seed, is_many));
        for lasts_s in [0.5, 1.0, 2.0, 5.0, 20.0, 50.0] {
            let mut scenario = steady(seed, is_many);
            scenario.origin.away = Some((BEGINS, BEGINS + Duration::from_secs_f64(lasts_s)));
            let (seconds, refused) = took(&scenario);
            let what =
                format!("{seconds} s of {clean_s} s, {refused} refused, away for {lasts_s} s, seed {seed}");
            // What was on its way is sent again: as long as a part takes.
            assert!(seconds <= clean_s + lasts_s + BACK_WITHIN_S + 0.5, "{what}");
            // Each worker may find it out for itself, a HEAD too; then one probe a second asks, after five
            // shorter waits.
            let most = scenario.tuning.parallel as usize + 1 + 5 + lasts_s.ceil() as usize;
            assert!(refused <= most, "{what}: at most {most} are meant");
        }
    }
}

fn many_that_fail(scenario: &Scenario) -> ManyEnded {
    let (_, outcome) = run(scenario, true);
    outcome.many.expect("many objects")
}

#[test]
fn an_origin_that_stays_away_ends_with_one_error() {
    let mut scenario = steady(5, true);
    scenario.origin.away = Some((BEGINS, Duration::from_secs(100_000)));
    let many = many_that_fail(&scenario);
    let error = many.incomplete.expect("the list was not asked for to its end");
    assert!(error.is_outage() && error.kind() == ErrorKind::Network, "{error}");
    assert!(error.to_string().contains("waited 60 s"), "{error}");
    assert!(
        many.finished.iter().all(|finished| finished.result.is_ok()),
        "no object has an error of its own"
    );
    assert!((61..64).contains(&many.ended.as_secs()), "{:?}", many.ended);
}

#[test]
fn an_origin_that_never_answered_is_waited_for_ten_seconds() {
    let mut scenario = steady(6, true);
    scenario.origin.away = Some((Duration::ZERO, Duration::from_secs(100_000)));
    let many = many_that_fail(&scenario);
    assert!(many.incomplete.is_some_and(|error| error.is_outage()) && many.finished.is_empty());
    assert!((10..12).contains(&many.ended.as_secs()), "{:?}", many.ended);
    scenario.tuning.knows_origins = true;
    let known = many_that_fail(&scenario);
    assert!((60..62).contains(&known.ended.as_secs()), "another process was answered: {:?}", known.ended);
}
