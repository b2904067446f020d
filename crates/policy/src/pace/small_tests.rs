//! Small objects from afar: how soon the pace has as many in flight as carry most, over models of origins.

use std::time::Instant;

use super::model::{Control, Run, Shape, Small, run};
use super::tests::{OPEN, fresh, seeds, shape, slack};

const SECONDS: f64 = 4.0;

fn small(kib: f64, first_byte_ms: f64, per_second: f64) -> Shape {
    Shape { small: Some(Small { mib: kib / 1024.0, per_second }), ..shape(64.0, first_byte_ms, OPEN) }
}

/// What a run must reach: bytes of the first second and of the next three beside the best fixed setting's,
/// and connections beside those of the smallest setting that is nearly as good.
#[derive(Clone, Copy)]
struct Bar {
    first: f64,
    then: f64,
    connections: f64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn check(name: &str, shape: &Shape, bar: Bar) {
    let start = Instant::now();
    let rate = |run: &Run| run.rate(1.0, SECONDS);
    let fixed = |level| run(shape, Control::Fixed(level, 1.0), SECONDS, 1);
    let levels = (3..=9).map(|doublings| 1 << doublings);
    let levels: Vec<(u32, Run)> = levels.map(|level| (level, fixed(level))).collect();
    let most = levels.iter().map(|(_, run)| rate(run)).fold(0.0, f64::max);
    let (level, _) = levels.iter().find(|(_, run)| rate(run) >= 0.95 * most).expect("one is the best");
    let rows: Vec<[f64; 4]> = seeds()
        .map(|seed| {
            let best = run(shape, Control::Fixed(*level, 1.0), SECONDS, seed);
            let paced = run(shape, Control::Paced(&mut fresh(start), start), SECONDS, seed);
            [
                paced.reaches(0.9 * rate(&best)),
                paced.rate(0.0, 1.0) / best.rate(0.0, 1.0),
                rate(&paced) / rate(&best),
                paced.connections() / f64::from(*level),
            ]
        })
        .collect();
    let [reached, first, then, connections] =
        [0, 1, 2, 3].map(|at| median(rows.iter().map(|row| row[at]).collect()));
    println!("{name:34} {level:4} | {reached:.2} s | {first:.2} | {then:.2} | {connections:.2}");
    assert!(first * slack(1.05) >= bar.first, "{name}: {first} of best fixed in the first second");
    assert!(then * slack(1.03) >= bar.then, "{name}: {then} of best fixed afterwards");
    assert!(connections <= bar.connections * slack(1.2), "{name}: {connections} of its connections");
}

#[test]
fn small_objects_have_what_they_need_within_the_first_second() {
    println!("size/first byte/a second            best | 90% at | first s | then | connections");
    let near = Bar { first: 0.75, then: 0.88, connections: 1.9 };
    // It takes five round trips to have 512 in flight.
    let distant = Bar { first: 0.3, ..near };
    for (kib, first_byte_ms, per_second, bar) in [
        (16.0, 5.0, 2000.0, near),
        // Ten in flight are enough: 64 were tried.
        (16.0, 20.0, 500.0, Bar { connections: 3.0, ..near }),
        (16.0, 20.0, 5000.0, near),
        (16.0, 20.0, 50_000.0, near),
        (128.0, 20.0, 2000.0, near),
        (128.0, 20.0, 9000.0, near),
        (128.0, 20.0, 50_000.0, near),
        (128.0, 100.0, 2000.0, Bar { first: 0.5, ..near }),
        (128.0, 100.0, 50_000.0, distant),
        (512.0, 30.0, 1000.0, near),
        (512.0, 30.0, 5000.0, near),
    ] {
        let name = format!("{kib} KiB, {first_byte_ms} ms, {per_second}");
        let origin = small(kib, first_byte_ms, per_second);
        check(&name, &origin, bar);
        check(&format!("cores: {name}"), &Shape { by_cores: true, ..origin }, bar);
        if per_second == 50_000.0 {
            let clockwork = Shape { noise: 0.0, unevenness: 0.0, round_trip: 0.0, ..origin };
            check(&format!("clockwork: {name}"), &clockwork, bar);
        }
    }
}

/// A new connection takes a whole first byte to open, and its first body some round trips.
#[test]
fn connections_that_begin_slowly_do_not_end_the_climb() {
    for (kib, first_byte_ms, per_second, first) in [
        (16.0, 20.0, 5000.0, 0.8),
        (128.0, 20.0, 2000.0, 0.8),
        (128.0, 20.0, 9000.0, 0.75),
        (128.0, 20.0, 50_000.0, 0.65),
        (512.0, 30.0, 5000.0, 0.5),
    ] {
        let name = format!("far: {kib} KiB, {first_byte_ms} ms, {per_second}");
        let far = Shape { round_trip: first_byte_ms / 2000.0, ..small(kib, first_byte_ms, per_second) };
        check(&name, &far, Bar { first, then: 0.88, connections: 2.0 });
    }
}
