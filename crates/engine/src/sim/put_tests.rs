//! Puts with a name: what a seed has found, and what the model and its checks see.

use std::rc::Rc;
use std::time::Duration;

use super::check::check;
use super::put_run::PutEnded;
use super::run::run;
use super::scenario::{Fault, Framing, From, Interruption, Object, PutTask, Scenario, Step, Task};
use super::shapes::steady_link;
use super::world::World;
use crate::api::account::Dialect;
use crate::base::error::{Error, ErrorKind};

/// A put of so many parts of 32 KiB by eight workers, a third of a second each, in fair weather.
pub(super) fn steady(seed: u64, from: From, parts: u64) -> Scenario {
    let mut scenario = steady_link(seed);
    let (origin, tuning) = (&mut scenario.origin, &scenario.tuning);
    scenario.shape = "steady put";
    (origin.dialect, origin.framing, origin.states_checksum) = (Dialect::S3, Framing::Length, true);
    scenario.objects = vec![Object { bytes: parts * tuning.part_bytes, listed: None }];
    scenario.task = Task::Put(PutTask { from, if_absent: false, is_there: false });
    scenario
}

/// How a put ended that breaks no promise.
pub(super) fn ended(scenario: &Scenario) -> (Rc<World>, PutEnded) {
    let (world, mut outcome) = run(scenario, true);
    let wrong = check(&world, &outcome);
    assert!(wrong.is_empty(), "{}\n{scenario}", wrong.join("; "));
    (world, outcome.put.take().expect("a put"))
}

fn if_absent(scenario: &mut Scenario) {
    if let Task::Put(put) = &mut scenario.task {
        put.if_absent = true;
    }
}

fn failed(scenario: &Scenario) -> Error {
    ended(scenario).1.result.expect_err("it fails")
}

#[test]
fn a_client_that_closes_says_that_parts_are_left() {
    let mut scenario = steady(1, From::Memory, 30);
    scenario.interruption = Some((Interruption::ClientCloses, Duration::from_millis(800)));
    let error = failed(&scenario);
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    let hint = error.hint().expect("what is left").to_string();
    assert!(hint.contains("take space until the upload is aborted"), "{hint}");
}

#[test]
fn an_end_that_was_lost_is_found_out_in_each_dialect() {
    for dialect in [Dialect::S3, Dialect::Oss] {
        for parts in [1, 3] {
            let mut scenario = steady(2, From::Memory, parts);
            if_absent(&mut scenario);
            scenario.origin.dialect = dialect;
            (scenario.origin.faults, scenario.origin.faulty_attempts) = (vec![(1.0, Fault::Lost)], 1);
            scenario.origin.faulty_steps = vec![Step::Put, Step::Complete];
            let (_, put) = ended(&scenario);
            put.result.expect("the object is ours");
        }
    }
}

#[test]
fn an_end_that_nobody_can_tell_is_no_object_of_another() {
    let mut scenario = steady(3, From::Memory, 3);
    if_absent(&mut scenario);
    scenario.origin.faults = vec![(1.0, Fault::Lost)];
    scenario.origin.faulty_steps = vec![Step::Complete, Step::Head];
    let error = failed(&scenario);
    assert_eq!(error.kind(), ErrorKind::Network, "{error}");
    assert!(error.hint().expect("what to do").to_string().contains("look whether it is there"), "{error}");
}

#[test]
fn an_answer_that_was_lost_on_a_connection_that_was_kept_is_found_out() {
    // A refusal leaves the connection open for the next attempt. The answer to that one is lost, and the
    // request goes out once more without being counted as an attempt.
    for bytes in [0, 20_000] {
        for seed in 0..30 {
            let mut scenario = steady(seed, From::Memory, 1);
            if_absent(&mut scenario);
            scenario.objects[0].bytes = bytes;
            scenario.origin.faults = vec![(0.5, Fault::Fails), (1.0, Fault::Lost)];
            scenario.origin.faulty_attempts = 3;
            let (_, put) = ended(&scenario);
            put.result.expect("the object is ours");
        }
    }
}

#[test]
fn a_stream_with_more_parts_than_an_object_may_have_fails_instead_of_waiting() {
    // The shortest that memory is lent in.
    const ROOM: u64 = 4096;
    let with = |bytes| {
        let mut scenario = steady(5, From::Stream(None), 1);
        (scenario.tuning.part_bytes, scenario.objects[0].bytes) = (ROOM, bytes);
        scenario
    };
    ended(&with(1_000 * ROOM)).1.result.expect("it has as many parts as it may");
    let (_, mut outcome) = run(&with(1_000 * ROOM + 1), true);
    let error = outcome.put.take().expect("a put").result.expect_err("it has one more");
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
}

#[test]
fn an_upload_that_is_cancelled_as_it_begins_is_aborted_once() {
    // The answer that names the upload comes when the transfer has been stopped.
    let mut scenario = steady(4, From::Memory, 8);
    scenario.interruption = Some((Interruption::Cancel, Duration::from_millis(50)));
    (scenario.origin.first_byte_ms, scenario.origin.jitter_ms) = (200, 0);
    let (world, put) = ended(&scenario);
    assert_eq!(put.result.map(drop).expect_err("it is cancelled").kind(), ErrorKind::Cancelled);
    let log = world.log.borrow();
    let count = |step: Step| log.writes.iter().filter(|write| write.step == step).count();
    assert_eq!((count(Step::Create), count(Step::Abort)), (1, 1));
    // A second request for it would have waited for the first as long as parts may take to be deleted.
    assert!(put.ended < Duration::from_secs(1), "{:?}", put.ended);
}

#[test]
fn an_upload_that_is_withdrawn_leaves_no_object_or_goes_on_to_its_end() {
    for parts in [1, 4] {
        let (mut withdrawn, mut went_on) = (0, 0);
        for after_ms in (1..1_200).step_by(7) {
            let mut scenario = steady(7, From::File, parts);
            scenario.interruption = Some((Interruption::Withdraw, Duration::from_millis(after_ms)));
            let (world, put) = ended(&scenario);
            let is_there = world.store.borrow().objects.contains_key(&0);
            match put.result {
                Ok(_) => went_on += u32::from(put.interrupted.is_some()),
                Err(error) => {
                    assert_eq!((error.kind(), is_there), (ErrorKind::Cancelled, false), "{error}");
                    withdrawn += 1;
                }
            }
        }
        // That of one part has one request, which is sent at once.
        let is_as_expected = went_on > 0 && (withdrawn > 0) == (parts > 1);
        assert!(is_as_expected, "{parts} parts: {withdrawn} withdrawn, {went_on} went on");
    }
}

#[test]
fn a_refused_put_does_not_slow_a_get() {
    let took = |fault: Option<Fault>| {
        let mut scenario = steady(5, From::Memory, 30);
        scenario.objects.push(Object { bytes: 60 * (32 << 10), listed: None });
        scenario.origin.faults = fault.map(|fault| (0.7, fault)).into_iter().collect();
        scenario.origin.faulty_steps = vec![Step::Part(1)];
        scenario.tuning.retries = 1_000;
        let (_, put) = ended(&scenario);
        put.beside.expect("a get").expect("it ends well");
        put.result.expect("it ends well");
        (put.beside_ended.expect("a get").as_secs_f64(), put.ended.as_secs_f64())
    };
    let ((alone_s, put_s), (beside_s, slowed_s)) = (took(None), took(Some(Fault::Throttles(None))));
    assert!(slowed_s > 2.0 * put_s, "the put itself is slowed: {put_s} s, then {slowed_s} s");
    assert!(beside_s < 1.1 * alone_s, "{alone_s} s, and {beside_s} s beside a put that is refused");
}

/// What a world with requests of a put objects to.
fn objections(happens: impl FnOnce(&World)) -> String {
    let world = World::new(Rc::new(steady(6, From::Memory, 4)), false);
    happens(&world);
    world.log.borrow().violations.join("; ")
}

#[test]
fn the_model_sees_what_no_put_may_do() {
    let part = |world: &World, number: u32| world.on_write(Step::Part(number), 32 << 10, (None, false));
    let content = |world: &World, number: usize| {
        world.sent_content()[(number - 1) * (32 << 10)..number * (32 << 10)].to_vec()
    };
    let accept = |world: &World, number: usize| {
        world.on_written(number, 200);
        world.on_write_over(number, true);
    };
    let check = |expected: &str, happens: &dyn Fn(&World)| {
        let found = objections(happens);
        assert!(found.contains(expected) && expected.is_empty() == found.is_empty(), "{found}");
    };
    check("", &|world| {
        let one = part(world, 1);
        world.on_sent(one, &content(world, 1));
        accept(world, one);
        world.on_write(Step::Complete, 0, (None, false));
    });
    check("Part(1) is sent while another attempt at it moves", &|world| {
        part(world, 1);
        part(world, 1);
    });
    check("Part(1) is sent again, and it was accepted", &|world| {
        let one = part(world, 1);
        accept(world, one);
        part(world, 1);
    });
    check("Part(2) has other bytes than the source", &|world| {
        let two = part(world, 2);
        world.on_sent(two, &content(world, 1));
    });
    check("it is completed while a part is on its way", &|world| {
        part(world, 1);
        world.on_write(Step::Complete, 0, (None, false));
    });
    check("it is aborted while a part is on its way", &|world| {
        part(world, 1);
        world.on_write(Step::Abort, 0, (None, false));
    });
    check("9 parts are on their way, at most 8", &|world| {
        (1..=9).for_each(|number| assert!(part(world, number) < 9));
    });
    check("the end was told while 1 requests", &|world| {
        part(world, 1);
        world.on_end_of_put();
    });
}
