//! The shapes of puts: what can be around an upload. Each makes a put of what `fair` has drawn, and changes
//! it.

use std::time::Duration;

use super::scenario::{
    Draw, Fault, Framing, From, Interruption, Object, PutTask, Scenario, Step, Task, Trailers,
};
use super::shapes::{self, bearable};
use crate::api::account::Dialect;

/// An upload in fair weather.
pub(super) fn put(scenario: &mut Scenario, draw: &mut Draw) {
    let from = match draw.between(0, 5) {
        0..2 => From::Memory,
        2 => From::Synthetic,
        3 => From::File,
        _ => From::Stream(draw.happens(0.5).then(|| draw.between_orders(50_000, 10_000_000))),
    };
    scenario.task = Task::Put(PutTask { from, if_absent: draw.happens(0.3), is_there: false });
    scenario.origin.dialect = draw.pick(&[Dialect::S3, Dialect::Oss]);
    scenario.origin.framing = Framing::Length;
    let (status, code) = draw.pick(&[
        (501, "NotImplemented"),
        (400, "InvalidRequest"),
        (400, "XAmzContentSHA256Mismatch"),
        (401, "Unauthorized"),
        (403, "SignatureDoesNotMatch"),
        (403, "AccessDenied"),
        (411, "MissingContentLength"),
        (413, "EntityTooLarge"),
        (500, "InternalError"),
    ]);
    let refused = Trailers::Refused(status, code);
    scenario.origin.trailers = draw.pick(&[Trailers::Taken, Trailers::Taken, refused, Trailers::Kept]);
    // Some are sent by one request, most in parts.
    if draw.happens(0.7) {
        let bytes = &mut scenario.objects[0].bytes;
        let parts = scenario.tuning.part_bytes * draw.between(2, 12) + draw.between(0, 9);
        *bytes = (*bytes).max(parts.min(1 << 20));
    }
}

/// While another object is read.
pub(super) fn beside(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    scenario.objects.push(Object { bytes: draw.between_orders(1, 300_000), listed: None });
}

/// An origin that takes bytes slowly, each connection for itself or all of them.
pub(super) fn slow_sink(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    scenario.tuning.stall_ms *= 5;
    let origin = &mut scenario.origin;
    origin.rate = draw.between_orders(10_000, 200_000);
    origin.total_rate = draw.between_orders(origin.rate, origin.rate * 8);
}

/// Faults as often as that, sometimes no more of them in a row than the engine has to bear.
fn faults(scenario: &mut Scenario, draw: &mut Draw, faults: Vec<(f64, Fault)>) {
    if draw.happens(0.5) {
        bearable(scenario, draw);
    }
    scenario.origin.faults = faults;
}

fn chance(draw: &mut Draw, most: u64) -> f64 {
    draw.between(3, most) as f64 / 100.0
}

pub(super) fn breaks(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    let both = chance(draw, 50);
    faults(scenario, draw, vec![(both / 2.0, Fault::Reset), (both / 2.0, Fault::Truncate)]);
}

pub(super) fn stalls(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    let stall = Duration::from_millis(draw.between(1, 2 * scenario.tuning.stall_ms));
    let both = chance(draw, 40);
    faults(scenario, draw, vec![(both, Fault::Stall(stall)), (both / 4.0, Fault::Silence)]);
}

pub(super) fn throttles(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    shapes::throttles(scenario, draw);
}

pub(super) fn fails(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    let chance = chance(draw, 50);
    faults(scenario, draw, vec![(chance, Fault::Fails)]);
}

/// The origin does what is asked, and its answer is lost.
pub(super) fn lost(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    let chance = chance(draw, 50);
    faults(scenario, draw, vec![(chance, Fault::Lost)]);
}

/// The answer that tells of the object is lost, almost always.
pub(super) fn lost_end(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    scenario.origin.faulty_attempts = draw.between(1, u64::from(scenario.tuning.retries)) as u32;
    scenario.origin.faults = vec![(0.9, draw.pick(&[Fault::Lost, Fault::Lost, Fault::Fails]))];
    scenario.origin.faulty_steps = vec![Step::Put, Step::Complete];
}

/// An upload that fails, and an origin that does not delete its parts, or says nothing of it.
pub(super) fn abort_fails(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    scenario.interruption =
        Some((Interruption::Cancel, Duration::from_millis(draw.between_orders(1, 1_000))));
    let fault = draw.pick(&[Fault::Fails, Fault::Lost, Fault::Silence, Fault::Reset]);
    scenario.origin.faults = vec![(draw.pick(&[0.5, 1.0]), fault)];
    scenario.origin.faulty_steps = vec![Step::Abort];
}

pub(super) fn flipped_bits(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    scenario.origin.faults = vec![(chance(draw, 20), Fault::Flip)];
}

pub(super) fn idle_closes(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    scenario.origin.closes_idle = Some(Duration::from_millis(draw.between_orders(1, 2_000)));
    if draw.happens(0.5) {
        let chance = chance(draw, 30);
        faults(scenario, draw, vec![(chance, Fault::Fails), (chance / 2.0, Fault::Lost)]);
    }
}

pub(super) fn refused(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    shapes::refused(scenario, draw);
}

/// An object of that name is there already, and perhaps it is to stay.
pub(super) fn is_there(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    if let Task::Put(put) = &mut scenario.task {
        (put.is_there, put.if_absent) = (true, draw.happens(0.7));
    }
    if draw.happens(0.5) {
        let chance = chance(draw, 30);
        faults(scenario, draw, vec![(chance, Fault::Lost), (chance / 2.0, Fault::Fails)]);
    }
}

fn interrupt(scenario: &mut Scenario, draw: &mut Draw) {
    let streams = matches!(scenario.task, Task::Put(PutTask { from: From::Stream(_), .. }));
    let kind = match draw.between(0, 3) {
        0 if streams => Interruption::ReaderLeaves,
        1 => Interruption::ClientCloses,
        2 => Interruption::Withdraw,
        _ => Interruption::Cancel,
    };
    scenario.interruption = Some((kind, Duration::from_millis(draw.between_orders(1, 2_000))));
}

pub(super) fn interrupted(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    interrupt(scenario, draw);
}

pub(super) fn interrupted_storm(scenario: &mut Scenario, draw: &mut Draw) {
    storm(scenario, draw);
    interrupt(scenario, draw);
}

/// All at once.
pub(super) fn storm(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    all_at_once(scenario, draw);
}

fn all_at_once(scenario: &mut Scenario, draw: &mut Draw) {
    let stall = Duration::from_millis(draw.between(1, 3 * scenario.tuning.stall_ms));
    let some = |draw: &mut Draw| draw.between(0, 10) as f64 / 100.0;
    let each = vec![
        (some(draw), Fault::Reset),
        (some(draw), Fault::Truncate),
        (some(draw), Fault::Stall(stall)),
        (some(draw), Fault::Silence),
        (some(draw), Fault::Fails),
        (some(draw), Fault::Lost),
        (some(draw), Fault::Throttles(None)),
    ];
    faults(scenario, draw, each);
    scenario.origin.refuses = some(draw);
    scenario.origin.closes_idle =
        draw.happens(0.5).then(|| Duration::from_millis(draw.between_orders(1, 500)));
}

/// The level changes on the way.
pub(super) fn open_pace_storm(scenario: &mut Scenario, draw: &mut Draw) {
    put(scenario, draw);
    (scenario.tuning.is_open, scenario.tuning.parallel) = (true, 64);
    scenario.tuning.part_bytes = draw.between_orders(1 << 10, 16 << 10);
    scenario.tuning.window_bytes = scenario.tuning.part_bytes * 2;
    scenario.objects[0].bytes = scenario.tuning.part_bytes * draw.between(10, 60);
    if draw.happens(0.7) {
        all_at_once(scenario, draw);
    }
}
