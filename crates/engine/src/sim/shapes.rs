//! The shapes: what can be around a transfer, each a change to fair weather drawn by a seed.

use std::time::Duration;

use flatout_wire::range::Span;

use super::put_shapes;
use super::scenario::{
    Address, Draw, Etag, Fault, Framing, Interruption, Land, Object, Origin, Replaced, Scenario, Task,
    ThrottleHint, Trailers, Tuning, Wrong,
};
use crate::api::account::Dialect;

pub(super) type Shape = fn(&mut Scenario, &mut Draw);

/// Seeds go round this list. To add a shape, write a function that changes what `fair` has drawn, and name it
/// here.
pub(super) const SHAPES: &[(&str, Shape)] = &[
    ("fair", |_, _| {}),
    ("tiny pieces", tiny_pieces),
    ("breaks", breaks),
    ("stalls", stalls),
    ("throttles", throttles),
    ("fails", fails),
    ("wrong ranges", wrong_ranges),
    ("replaced", replaced),
    ("no ranges", no_ranges),
    ("no ranges, breaks", no_ranges_breaks),
    ("idle connections close", idle_closes),
    ("connections refused", refused),
    ("some addresses are dead", dead_addresses),
    ("an address comes back", address_returns),
    ("an address is slow", slow_address),
    ("nobody there", nobody_there),
    ("flipped bits", flipped_bits),
    ("a span", spans),
    ("interrupted", interrupted),
    ("interrupted, breaks", interrupted_breaks),
    ("storm", storm),
    ("hopeless", hopeless),
    ("many", many),
    ("many, breaks", many_breaks),
    ("many, replaced", many_replaced),
    ("many, interrupted", many_interrupted),
    ("open pace", open_pace),
    ("open pace, storm", open_pace_storm),
    ("open pace, throttles", open_pace_throttles),
    ("open pace, interrupted", open_pace_interrupted),
    ("many, open pace", many_open_pace),
    ("put", put_shapes::put),
    ("put, beside a get", put_shapes::beside),
    ("put, slow sink", put_shapes::slow_sink),
    ("put, breaks", put_shapes::breaks),
    ("put, stalls", put_shapes::stalls),
    ("put, throttles", put_shapes::throttles),
    ("put, fails", put_shapes::fails),
    ("put, answers are lost", put_shapes::lost),
    ("put, the end is lost", put_shapes::lost_end),
    ("put, the abort fails", put_shapes::abort_fails),
    ("put, flipped bits", put_shapes::flipped_bits),
    ("put, idle connections close", put_shapes::idle_closes),
    ("put, connections refused", put_shapes::refused),
    ("put, one is there", put_shapes::is_there),
    ("put, interrupted", put_shapes::interrupted),
    ("put, interrupted, storm", put_shapes::interrupted_storm),
    ("put, storm", put_shapes::storm),
    ("put, open pace, storm", put_shapes::open_pace_storm),
];

/// Eight workers with parts of 32 KiB, a third of a second each, in fair weather.
pub(super) fn steady_link(seed: u64) -> Scenario {
    let mut scenario = fair(&mut Draw::new(seed));
    scenario.seed = seed;
    let (origin, tuning) = (&mut scenario.origin, &mut scenario.tuning);
    (origin.addresses, origin.closes_each) = (vec![Address::Alive; 4], false);
    (origin.connect_ms, origin.first_byte_ms, origin.jitter_ms) = (20, 20, 10);
    (origin.rate, origin.total_rate, origin.pieces) = (100_000, 100_000_000, (500, 4_000));
    (tuning.parallel, tuning.shards, tuning.retries) = (8, 2, 5);
    (tuning.part_bytes, tuning.stall_ms, tuning.connect_ms) = (32 << 10, 20_000, 5_000);
    tuning.window_bytes = 2 * tuning.part_bytes;
    scenario
}

/// An origin without faults, and a get of one object.
pub(super) fn fair(draw: &mut Draw) -> Scenario {
    let part_bytes = draw.between_orders(1 << 10, 256 << 10);
    // Some end with a part, some with a byte more or less.
    let near_parts = (part_bytes * draw.between(1, 9) + draw.between(0, 2)).saturating_sub(1);
    let bytes = if draw.happens(0.5) { near_parts } else { draw.between_orders(1, 1 << 20) };
    let bytes = bytes.min(part_bytes * 60).min(1 << 20);
    let bytes = if draw.happens(0.03) { 0 } else { bytes };
    let rate = draw.between_orders(100_000, 20_000_000);
    let dialect = draw.pick(&[Dialect::Plain, Dialect::S3, Dialect::Oss]);
    let land = match draw.between(0, 8) {
        0..4 => Land::Memory,
        4..7 => Land::Stream(draw.happens(0.6).then(|| draw.between_orders(50_000, 10_000_000))),
        7 => Land::Nowhere,
        _ => Land::File,
    };
    let twice = draw.happens(0.2);
    Scenario {
        seed: 0,
        shape: "",
        origin: Origin {
            dialect,
            has_ranges: true,
            framing: if draw.happens(0.2) { Framing::Chunked } else { Framing::Length },
            etag: draw.pick(&[Etag::Strong, Etag::Strong, Etag::Weak, Etag::None]),
            states_checksum: draw.happens(0.7),
            trailers: Trailers::Taken,
            addresses: vec![Address::Alive; draw.between(1, 3) as usize],
            connect_ms: draw.between_orders(1, 100),
            first_byte_ms: draw.between_orders(1, 100),
            jitter_ms: draw.between(0, 50),
            rate,
            total_rate: draw.between_orders(rate, rate * 10),
            pieces: (draw.between_orders(1, part_bytes), part_bytes),
            rooms: (1 << 10, 128 << 10),
            closes_each: draw.happens(0.05),
            closes_idle: None,
            refuses: 0.0,
            away: None,
            silent: 0.0,
            faults: Vec::new(),
            faulty_attempts: u32::MAX,
            faulty_steps: Vec::new(),
            replaced: None,
        },
        tuning: Tuning {
            parallel: draw.between(1, 8) as u32,
            is_open: false,
            part_bytes,
            window_bytes: part_bytes * 2 + draw.between(0, part_bytes * 6),
            request_rate: None,
            shards: draw.between(1, 3) as u32,
            retries: draw.between(1, 5) as u32,
            stall_ms: draw.between_orders(200, 2_000),
            outage_ms: 0,
            knows_origins: false,
            connect_ms: draw.between_orders(200, 1_000),
        },
        objects: vec![Object { bytes, listed: None }],
        task: Task::One {
            span: Span::All,
            land,
            pauses: if twice { vec![Duration::from_millis(draw.between(0, 3_000))] } else { Vec::new() },
        },
        interruption: None,
    }
}

fn tiny_pieces(scenario: &mut Scenario, draw: &mut Draw) {
    let size = &mut scenario.objects[0].bytes;
    *size = (*size).min(4_000);
    scenario.origin.pieces = (1, draw.between(1, 40));
}

/// Faults in at most so many attempts in a row as the engine has to bear.
pub(super) fn bearable(scenario: &mut Scenario, draw: &mut Draw) {
    scenario.origin.faulty_attempts = draw.between(1, u64::from(scenario.tuning.retries)) as u32;
}

fn breaks(scenario: &mut Scenario, draw: &mut Draw) {
    if draw.happens(0.5) {
        bearable(scenario, draw);
    }
    let chance = draw.between(5, 60) as f64 / 100.0;
    scenario.origin.faults = vec![(chance / 2.0, Fault::Reset), (chance / 2.0, Fault::Truncate)];
}

fn stalls(scenario: &mut Scenario, draw: &mut Draw) {
    if draw.happens(0.5) {
        bearable(scenario, draw);
    }
    let stall = Duration::from_millis(draw.between(1, 2 * scenario.tuning.stall_ms));
    let chance = draw.between(5, 50) as f64 / 100.0;
    scenario.origin.faults = vec![(chance, Fault::Stall(stall)), (chance / 4.0, Fault::Silence)];
}

pub(super) fn throttles(scenario: &mut Scenario, draw: &mut Draw) {
    if draw.happens(0.5) {
        bearable(scenario, draw);
    }
    let ask = match draw.between(0, 2) {
        0 => None,
        1 => Some(ThrottleHint::RetryAfter(Duration::from_secs(draw.between(0, 30)))),
        _ => Some(ThrottleHint::QosDelay(Duration::from_millis(draw.between(1, 5_000)))),
    };
    scenario.origin.faults = vec![(draw.between(5, 60) as f64 / 100.0, Fault::Throttles(ask))];
}

fn fails(scenario: &mut Scenario, draw: &mut Draw) {
    if draw.happens(0.5) {
        bearable(scenario, draw);
    }
    scenario.origin.faults = vec![(draw.between(5, 60) as f64 / 100.0, Fault::Fails)];
}

fn wrong_ranges(scenario: &mut Scenario, draw: &mut Draw) {
    if draw.happens(0.5) {
        bearable(scenario, draw);
    }
    let wrong = draw.pick(&[Wrong::Shifted, Wrong::Shorter, Wrong::Unnamed, Wrong::Whole]);
    scenario.origin.faults = vec![(draw.between(5, 40) as f64 / 100.0, Fault::WrongRange(wrong))];
}

fn replaced(scenario: &mut Scenario, draw: &mut Draw) {
    let bytes = scenario.objects[0].bytes;
    scenario.origin.replaced = Some(Replaced {
        after_gets: draw.between(0, 12) as u32,
        bytes: if draw.happens(0.5) { bytes } else { draw.between(0, 2 * bytes) },
        keeps_if_match: draw.happens(0.5),
    });
    if draw.happens(0.5) {
        breaks(scenario, draw);
    }
}

fn no_ranges(scenario: &mut Scenario, draw: &mut Draw) {
    scenario.origin.has_ranges = false;
    scenario.origin.framing = draw.pick(&[Framing::Length, Framing::Chunked, Framing::UntilClose]);
    if scenario.origin.framing != Framing::Length && scenario_lands_in_memory(scenario) {
        set_land(scenario, Land::Stream(None));
    }
}

fn no_ranges_breaks(scenario: &mut Scenario, draw: &mut Draw) {
    no_ranges(scenario, draw);
    breaks(scenario, draw);
    if scenario.origin.framing == Framing::UntilClose {
        // A cut is not to be told from an end there.
        scenario.origin.faults.retain(|&(_, fault)| fault != Fault::Truncate);
    }
    if draw.happens(0.2) {
        let bytes = scenario.objects[0].bytes;
        scenario.origin.replaced = Some(Replaced { after_gets: 1, bytes, keeps_if_match: false });
    }
}

pub(super) fn idle_closes(scenario: &mut Scenario, draw: &mut Draw) {
    scenario.origin.closes_idle = Some(Duration::from_millis(draw.between_orders(1, 2_000)));
    if let Task::One { pauses, .. } = &mut scenario.task {
        *pauses = (0..3).map(|_| Duration::from_millis(draw.between_orders(1, 4_000))).collect();
    }
}

pub(super) fn refused(scenario: &mut Scenario, draw: &mut Draw) {
    scenario.origin.refuses = draw.between(5, 60) as f64 / 100.0;
    scenario.origin.silent = draw.between(0, 20) as f64 / 100.0;
    scenario.origin.closes_each = draw.happens(0.5);
}

fn dead_addresses(scenario: &mut Scenario, draw: &mut Draw) {
    let dead = draw.pick(&[Address::Refuses, Address::Silent]);
    scenario.origin.addresses = vec![Address::Alive, dead, draw.pick(&[Address::Alive, dead]), dead];
}

fn address_returns(scenario: &mut Scenario, draw: &mut Draw) {
    let returns = Address::Returns(Duration::from_millis(draw.between(0, 60_000)));
    scenario.origin.addresses = vec![Address::Alive, returns, draw.pick(&[Address::Silent, returns])];
    scenario.origin.closes_each = draw.happens(0.5);
    let pauses: Vec<Duration> =
        (0..draw.between(1, 5)).map(|_| Duration::from_millis(draw.between(0, 30_000))).collect();
    if let Task::One { pauses: between, .. } = &mut scenario.task {
        *between = pauses;
    }
}

fn slow_address(scenario: &mut Scenario, draw: &mut Draw) {
    let slow = Address::Slow(draw.between(2, 30) as u32);
    scenario.origin.addresses =
        vec![Address::Alive, slow, draw.pick(&[Address::Alive, slow]), Address::Alive];
    scenario.tuning.stall_ms *= 30;
    if draw.happens(0.3) {
        stalls(scenario, draw);
    }
}

fn nobody_there(scenario: &mut Scenario, draw: &mut Draw) {
    let dead = draw.pick(&[Address::Refuses, Address::Silent]);
    scenario.origin.addresses = vec![dead; draw.between(1, 2) as usize];
}

fn flipped_bits(scenario: &mut Scenario, draw: &mut Draw) {
    scenario.origin.faults = vec![(draw.between(2, 30) as f64 / 100.0, Fault::Flip)];
    if draw.happens(0.3) {
        scenario.origin.faults.push((0.2, Fault::Reset));
    }
}

fn spans(scenario: &mut Scenario, draw: &mut Draw) {
    let bytes = scenario.objects[0].bytes.max(2);
    let start = draw.between(0, bytes + bytes / 8);
    let new = match draw.between(0, 3) {
        0 => Span::From(start),
        1 => Span::Slice(start..start + draw.between(1, bytes)),
        2 => Span::Last(draw.between(1, bytes + 1)),
        _ => Span::Slice(0..draw.between(1, 2 * bytes)),
    };
    if let Task::One { span, .. } = &mut scenario.task {
        *span = new;
    }
    match draw.between(0, 3) {
        0 => breaks(scenario, draw),
        1 => scenario.origin.has_ranges = draw.happens(0.5),
        _ => {}
    }
}

pub(super) fn interrupted(scenario: &mut Scenario, draw: &mut Draw) {
    let streams = matches!(scenario.task, Task::One { land: Land::Stream(_), .. });
    let kind = match draw.between(0, 3) {
        0 if streams => Interruption::ReaderLeaves,
        1 => Interruption::ClientCloses,
        _ => Interruption::Cancel,
    };
    scenario.interruption = Some((kind, Duration::from_millis(draw.between_orders(1, 3_000))));
    if draw.happens(0.2) {
        scenario.origin.has_ranges = false;
    }
}

fn interrupted_breaks(scenario: &mut Scenario, draw: &mut Draw) {
    storm(scenario, draw);
    interrupted(scenario, draw);
}

/// All at once.
fn storm(scenario: &mut Scenario, draw: &mut Draw) {
    if draw.happens(0.7) {
        bearable(scenario, draw);
    }
    let stall = Duration::from_millis(draw.between(1, 3 * scenario.tuning.stall_ms));
    let some = |draw: &mut Draw| draw.between(0, 12) as f64 / 100.0;
    scenario.origin.faults = vec![
        (some(draw), Fault::Reset),
        (some(draw), Fault::Truncate),
        (some(draw), Fault::Stall(stall)),
        (some(draw), Fault::Silence),
        (some(draw), Fault::Fails),
        (
            some(draw),
            Fault::Throttles(Some(ThrottleHint::RetryAfter(Duration::from_secs(draw.between(0, 3))))),
        ),
        (some(draw), Fault::WrongRange(draw.pick(&[Wrong::Shifted, Wrong::Shorter, Wrong::Unnamed]))),
    ];
    scenario.origin.refuses = some(draw);
    scenario.origin.closes_idle =
        draw.happens(0.5).then(|| Duration::from_millis(draw.between_orders(1, 500)));
}

/// No attempt ever brings the whole of a part.
fn hopeless(scenario: &mut Scenario, draw: &mut Draw) {
    let fault = draw.pick(&[
        Fault::Reset,
        Fault::Truncate,
        Fault::Stall(Duration::from_secs(3_600)),
        Fault::Silence,
        Fault::Fails,
        Fault::Throttles(None),
        Fault::WrongRange(Wrong::Shifted),
    ]);
    scenario.origin.faults = vec![(1.0, fault)];
}

fn many(scenario: &mut Scenario, draw: &mut Draw) {
    let part_bytes = scenario.tuning.part_bytes.min(64 << 10);
    scenario.tuning.part_bytes = part_bytes;
    scenario.objects = (0..draw.between(1, 40))
        .map(|_| {
            let bytes = match draw.between(0, 9) {
                0 => 0,
                1..8 => draw.between(1, part_bytes),
                _ => draw.between(1, part_bytes * 6),
            };
            Object { bytes, listed: draw.happens(0.9).then_some(bytes) }
        })
        .collect();
    let land = if draw.happens(0.2) { Land::File } else { Land::Nowhere };
    scenario.task = Task::Many { land };
}

fn many_breaks(scenario: &mut Scenario, draw: &mut Draw) {
    many(scenario, draw);
    if draw.happens(0.5) { breaks(scenario, draw) } else { storm(scenario, draw) }
}

fn many_replaced(scenario: &mut Scenario, draw: &mut Draw) {
    many(scenario, draw);
    let bytes = draw.between(0, scenario.tuning.part_bytes * 3);
    let after_gets = draw.between(0, 4) as u32;
    scenario.origin.replaced = Some(Replaced { after_gets, bytes, keeps_if_match: draw.happens(0.5) });
}

fn many_interrupted(scenario: &mut Scenario, draw: &mut Draw) {
    many(scenario, draw);
    if draw.happens(0.5) {
        storm(scenario, draw);
    }
    interrupted(scenario, draw);
}

/// Long enough for the level to change on the way.
fn open_pace(scenario: &mut Scenario, draw: &mut Draw) {
    (scenario.tuning.is_open, scenario.tuning.parallel) = (true, 64);
    scenario.tuning.part_bytes = draw.between_orders(1 << 10, 48 << 10);
    scenario.tuning.window_bytes = scenario.tuning.part_bytes * draw.between(2, 60);
    scenario.objects[0].bytes = scenario.tuning.part_bytes * draw.between(1, 60);
    scenario.origin.rate = draw.between_orders(5_000, 500_000);
    scenario.origin.total_rate = draw.between_orders(scenario.origin.rate, scenario.origin.rate * 60);
}

fn open_pace_storm(scenario: &mut Scenario, draw: &mut Draw) {
    open_pace(scenario, draw);
    storm(scenario, draw);
}

fn open_pace_throttles(scenario: &mut Scenario, draw: &mut Draw) {
    open_pace(scenario, draw);
    throttles(scenario, draw);
}

fn open_pace_interrupted(scenario: &mut Scenario, draw: &mut Draw) {
    open_pace(scenario, draw);
    interrupted(scenario, draw);
}

fn many_open_pace(scenario: &mut Scenario, draw: &mut Draw) {
    many(scenario, draw);
    (scenario.tuning.is_open, scenario.tuning.parallel) = (true, 64);
    if draw.happens(0.5) {
        storm(scenario, draw);
    }
}

fn scenario_lands_in_memory(scenario: &Scenario) -> bool {
    matches!(scenario.task, Task::One { land: Land::Memory, .. })
}

fn set_land(scenario: &mut Scenario, new: Land) {
    if let Task::One { land, .. } = &mut scenario.task {
        *land = new;
    }
}
