//! The speed bars of the pace over models of origins, and what it must do in odd moments.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::model::{Control, Run, Shape, run};
use super::{Gated, LimitedBy, Limits, MIB, Pace, Remembered, Sample, Seed, WaitReason};

/// A total that nobody reaches.
pub(super) const OPEN: f64 = 1e6;

const SECONDS: f64 = 20.0;
/// The best fixed setting is looked for without noise: less will do, ramp and all.
const SECONDS_FIXED: f64 = 6.0;
/// Seeds that a plain run goes through for each shape. Their medians stray: bars have some slack then.
/// `FLATOUT_SEEDS=40` is for the bars themselves, and for the table of docs/decisions/pace-finds-the-knee.md.
const SEEDS: u64 = 3;
const SEEDS_WITHOUT_SLACK: u64 = 20;

pub(super) fn seeds() -> RangeInclusive<u64> {
    let number = |variable: &str| -> Option<u64> {
        let typed = std::env::var(variable).ok()?;
        Some(typed.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {typed:?}")))
    };
    let first = number("FLATOUT_FIRST_SEED").unwrap_or(1);
    first..=first + number("FLATOUT_SEEDS").unwrap_or(SEEDS) - 1
}

/// What a bar is multiplied with, or divided by.
pub(super) fn slack(of: f64) -> f64 {
    if (seeds().count() as u64) < SEEDS_WITHOUT_SLACK { of } else { 1.0 }
}

pub(super) fn shape(per_connection: f64, first_byte_ms: f64, total: f64) -> Shape {
    Shape {
        per_connection,
        first_byte: first_byte_ms / 1000.0,
        total,
        total_later: total,
        per_connection_later: per_connection,
        round_trip: first_byte_ms / 10_000.0,
        noise: 0.05,
        unevenness: 0.2,
        penalty: 0.05,
        by_cores: false,
        held: None,
        small: None,
    }
}

/// What a pace that knows nothing of the origin begins with on two cores.
pub(super) fn fresh(start: Instant) -> Pace {
    Pace::new(Seed { cores: 2, ..Seed::default() }, Limits::default(), start)
}

/// The bar: how many connections the best fixed setting has, with which part, and what it carries.
struct Fixed {
    level: u32,
    reference: u32,
    part_mib: f64,
}

/// The best of 8, 16 ... 512 with parts of 8 MiB, and with parts as long as the pace would cut them: the rate
/// of the better, the connections of the one that has fewer.
fn best_fixed(shape: &Shape) -> Fixed {
    let lasts = (20.0 * shape.first_byte).clamp(0.25, 1.25);
    let long = (shape.per_connection * lasts).round().clamp(1.0, 64.0);
    let [eight, long] = [8.0, long].map(|part_mib| {
        let levels = (3..=9).map(|doublings| 1 << doublings);
        let calm = Shape { noise: 0.0, unevenness: shape.unevenness.min(0.2), ..*shape };
        let bytes = |level| run(&calm, Control::Fixed(level, part_mib), SECONDS_FIXED, 1).bytes();
        let all: Vec<(u32, f64)> = levels.map(|level| (level, bytes(level))).collect();
        let best = all.iter().map(|(_, bytes)| *bytes).fold(0.0, f64::max);
        let (level, bytes) =
            all.into_iter().find(|(_, bytes)| *bytes >= 0.98 * best).expect("one is the best");
        (level, bytes, part_mib)
    });
    let (level, _, part_mib) = if eight.1 > long.1 { eight } else { long };
    Fixed { level, reference: eight.0.min(long.0), part_mib }
}

/// Four figures of a shape over all seeds: the median, and that of the worst seed in ten.
struct Figures {
    reached_s: [f64; 2],
    early: [f64; 2],
    bytes: [f64; 2],
    connections: [f64; 2],
}

fn figures(shape: &Shape, fixed: &Fixed, begin: impl Fn(Instant) -> Pace) -> Figures {
    let start = Instant::now();
    let rows: Vec<[f64; 4]> = seeds()
        .map(|seed| {
            let best: Run = run(shape, Control::Fixed(fixed.level, fixed.part_mib), SECONDS, seed);
            let paced = run(shape, Control::Paced(&mut begin(start), start), SECONDS, seed);
            [
                paced.reaches(0.9 * best.rate(2.0, 10.0)),
                paced.rate(2.0, 4.0) / best.rate(2.0, 4.0),
                paced.bytes() / best.bytes(),
                paced.connections() / f64::from(fixed.reference),
            ]
        })
        .collect();
    let of = |column: usize, high_is_bad: bool| {
        let mut values: Vec<f64> = rows.iter().map(|row| row[column]).collect();
        values.sort_by(f64::total_cmp);
        let tenth = if high_is_bad { values.len() * 9 / 10 } else { values.len() / 10 };
        [values[values.len() / 2], values[tenth]]
    };
    Figures { reached_s: of(0, true), early: of(1, false), bytes: of(2, false), connections: of(3, true) }
}

/// What the median run must reach: 90 % of best fixed after so many seconds, that share of its bytes at least
/// and of its connections at most.
#[derive(Clone, Copy)]
struct Bar {
    reached_s: f64,
    bytes: f64,
    connections: f64,
}

/// The issue's.
const BAR: Bar = Bar { reached_s: 2.0, bytes: 0.92, connections: 1.3 };

fn check(name: &str, shape: &Shape, begin: impl Fn(Instant) -> Pace, bar: Bar) {
    let fixed = best_fixed(shape);
    let Figures { reached_s, early, bytes, connections } = figures(shape, &fixed, begin);
    println!(
        "{name:36} {:4} | {:.2} {:.2} | {:.2} {:.2} | {:.3} {:.3} | {:.2} {:.2}",
        fixed.reference,
        reached_s[0],
        reached_s[1],
        early[0],
        early[1],
        bytes[0],
        bytes[1],
        connections[0],
        connections[1]
    );
    assert!(reached_s[0] <= bar.reached_s * slack(1.2), "{name}: 90 % after {} s", reached_s[0]);
    assert!(early[0] * slack(1.05) >= 0.9, "{name}: {} of best fixed between 2 and 4 s", early[0]);
    assert!(bytes[0] * slack(1.03) >= bar.bytes, "{name}: {} of the bytes of best fixed", bytes[0]);
    assert!(connections[0] <= bar.connections * slack(1.2), "{name}: {} of its connections", connections[0]);
}

fn head() {
    println!("per connection/first byte/total      best | 90% at, s | 2..4 s    | bytes       | connections");
}

#[test]
fn the_bars_hold_on_every_shape_from_nothing() {
    head();
    for (per_connection, first_byte_ms, total) in [
        (4.0, 5.0, 200.0),
        (4.0, 30.0, 1000.0),
        (4.0, 100.0, 600.0),
        (4.0, 5.0, OPEN),
        (4.0, 30.0, OPEN),
        (4.0, 100.0, OPEN),
        (16.0, 5.0, 1000.0),
        (16.0, 30.0, 500.0),
        (16.0, 30.0, 2000.0),
        (16.0, 30.0, 4000.0),
        (16.0, 100.0, 1000.0),
        (64.0, 5.0, 500.0),
        (64.0, 5.0, 2000.0),
        (64.0, 30.0, 4000.0),
        (64.0, 100.0, 1000.0),
        (64.0, 100.0, 12000.0),
    ] {
        let name = match total == OPEN {
            true => format!("{per_connection} MiB/s, {first_byte_ms} ms, open"),
            false => format!("{per_connection} MiB/s, {first_byte_ms} ms, {total}"),
        };
        check(&name, &shape(per_connection, first_byte_ms, total), fresh, BAR);
    }
}

#[test]
fn the_bars_hold_when_the_origin_changes_midway() {
    head();
    let base = shape(16.0, 30.0, 1000.0);
    check("16 MiB/s, 30 ms, 1000 then 500", &Shape { total_later: 500.0, ..base }, fresh, BAR);
    check("16 MiB/s, 30 ms, 1000 then 2000", &Shape { total_later: 2000.0, ..base }, fresh, BAR);
    check(
        "16 then 8 MiB/s, 30 ms, 500",
        &Shape { per_connection_later: 8.0, total: 500.0, total_later: 500.0, ..base },
        fresh,
        BAR,
    );
    let near = shape(64.0, 5.0, 1000.0);
    check("64 MiB/s, 5 ms, 1000 then 500", &Shape { total_later: 500.0, ..near }, fresh, BAR);
    check("64 MiB/s, 5 ms, 1000 then 2000", &Shape { total_later: 2000.0, ..near }, fresh, BAR);
    let slow = shape(64.0, 100.0, 1000.0);
    check("64 MiB/s, 100 ms, 1000 then 2000", &Shape { total_later: 2000.0, ..slow }, fresh, BAR);
}

#[test]
fn cores_that_have_no_time_left_need_no_more() {
    head();
    for (per_connection, first_byte_ms, total, most) in
        [(500.0, 1.0, 2000.0, 17), (100.0, 5.0, 2000.0, 34), (64.0, 30.0, 4000.0, 130)]
    {
        let cores = Shape { by_cores: true, ..shape(per_connection, first_byte_ms, total) };
        check(&format!("{per_connection} MiB/s, cores for {total}"), &cores, fresh, BAR);
        let start = Instant::now();
        let paced = run(&cores, Control::Paced(&mut fresh(start), start), SECONDS, 1);
        assert!(paced.most_in_flight() <= f64::from(most), "{} in flight", paced.most_in_flight());
    }
}

/// Parts of 16 MiB on their way up, whose length is not the pace's to choose, to sinks that are slow for each
/// connection or for all.
#[test]
fn the_bars_hold_for_what_is_sent() {
    head();
    let sends = |start| {
        let limits = Limits { part_bytes: Some(16 << 20), ..Limits::default() };
        Pace::new(Seed { cores: 2, ..Seed::default() }, limits, start)
    };
    for (per_connection, first_byte_ms, total, held) in [
        (4.0, 30.0, 400.0, 0.25),
        (16.0, 5.0, 1000.0, 0.5),
        (16.0, 30.0, 500.0, 0.5),
        (16.0, 30.0, 1500.0, 0.5),
        (16.0, 30.0, 1500.0, 1.0),
        (16.0, 100.0, 1000.0, 0.5),
        (64.0, 5.0, 500.0, 1.0),
        (64.0, 30.0, 2000.0, 1.0),
    ] {
        // What is held is more than a slow connection carries in half a round.
        let bar = if per_connection < 10.0 { Bar { connections: 1.5, ..BAR } } else { BAR };
        let name = format!("sent: {per_connection} MiB/s, {first_byte_ms} ms, {total}, {held} held");
        check(&name, &Shape { held: Some(held), ..shape(per_connection, first_byte_ms, total) }, sends, bar);
    }
}

#[test]
fn noise_does_not_walk_it_away() {
    head();
    for (noise, connections) in [(0.0, 1.3), (0.1, 1.4), (0.15, 1.5), (0.2, 1.7)] {
        for base in [shape(16.0, 30.0, 1000.0), shape(64.0, 5.0, 500.0), shape(16.0, 5.0, 4000.0)] {
            let name = format!("{} MiB/s, {}, noise {noise}", base.per_connection, base.total);
            check(
                &name,
                &Shape { noise, unevenness: 0.2 + noise, ..base },
                fresh,
                Bar { connections, ..BAR },
            );
        }
    }
}

/// Without any unevenness, as a wind tunnel is: workers march in step.
#[test]
fn clockwork_does_not_mislead_it() {
    head();
    for (per_connection, first_byte_ms, total) in [
        (4.0, 30.0, 1000.0),
        (4.0, 100.0, OPEN),
        (16.0, 5.0, 1000.0),
        (16.0, 30.0, 2000.0),
        (16.0, 100.0, 1000.0),
        (64.0, 5.0, 500.0),
        (64.0, 30.0, 1000.0),
        (64.0, 100.0, 1000.0),
        (64.0, 100.0, 12000.0),
    ] {
        let base = shape(per_connection, first_byte_ms, total);
        let name = format!("clockwork: {per_connection} MiB/s, {first_byte_ms} ms, {total}");
        let clockwork = Shape { noise: 0.0, unevenness: 0.0, round_trip: 0.0, penalty: 0.0, ..base };
        check(&name, &clockwork, fresh, BAR);
    }
}

/// Round trips of a third of the first byte, as between continents: each new connection takes two to open,
/// and some to get under way. An origin that needs 512 is then five such waits away, and the whole bar is not
/// had.
#[test]
fn far_origins_are_found_nearly_as_well() {
    head();
    for (per_connection, first_byte_ms, total, bar) in [
        (4.0, 30.0, 1000.0, BAR),
        (16.0, 30.0, 2000.0, BAR),
        (16.0, 100.0, 1000.0, BAR),
        (64.0, 100.0, 1000.0, BAR),
        (64.0, 100.0, 12000.0, Bar { bytes: 0.9, reached_s: 2.5, ..BAR }),
        (4.0, 100.0, OPEN, Bar { bytes: 0.87, reached_s: 2.5, ..BAR }),
    ] {
        let base = shape(per_connection, first_byte_ms, total);
        let name = format!("far: {per_connection} MiB/s, {first_byte_ms} ms, {total}");
        let far = Shape { round_trip: base.first_byte / 3.0, ..base };
        check(&name, &far, fresh, bar);
    }
}

#[test]
fn other_seeds_lead_to_the_same() {
    head();
    let cores = |cores| move |start| Pace::new(Seed { cores, ..Seed::default() }, Limits::default(), start);
    let remembered = |level| {
        move |start| {
            let found = Remembered { level, connection_rate: 16 << 20, part_bytes: 8 << 20, when: 0 };
            Pace::new(Seed { remembered: Some(found), ..Seed::default() }, Limits::default(), start)
        }
    };
    let (few, some, many) = (shape(64.0, 5.0, 500.0), shape(16.0, 30.0, 1000.0), shape(16.0, 30.0, 4000.0));
    let more = Bar { connections: 1.4, ..BAR };
    check("few, 128 cores", &few, cores(128), more);
    check("some, 128 cores", &some, cores(128), more);
    check("many, 128 cores", &many, cores(128), BAR);
    check("few, remembered", &few, remembered(9), Bar { reached_s: 0.5, bytes: 0.97, ..BAR });
    check("some, remembered", &some, remembered(72), Bar { reached_s: 0.5, bytes: 0.97, ..BAR });
    check("many, remembered", &many, remembered(280), Bar { reached_s: 0.5, bytes: 0.97, ..BAR });
    // Wrong by far: left within 2 s.
    let start = Instant::now();
    for seed in seeds() {
        let after = |shape: &Shape, level: u32, seconds: f64| {
            let mut pace = remembered(level)(start);
            run(shape, Control::Paced(&mut pace, start), seconds, seed);
            pace.limit()
        };
        let (soon, later) = (after(&few, 512, 2.0), after(&few, 128, 15.0));
        assert!(
            soon < 400 && later < 16,
            "seed {seed}: {soon} 2 s after 512, {later} long after 128 remembered"
        );
        let (soon, later) = (after(&many, 8, 2.0), after(&many, 8, 10.0));
        assert!(soon > 16 && later > 200, "seed {seed}: {soon} 2 s after 8 were remembered, then {later}");
    }
}

/// Ticks a pace for that long with one sample, made from its limit.
fn drive(pace: &mut Pace, now: &mut Instant, seconds: f64, sample: impl Fn(u32) -> Sample) {
    for _ in 0..(seconds / 0.025) as u32 {
        *now += Duration::from_millis(25);
        let sample = sample(pace.limit());
        pace.on_tick(*now, sample);
    }
}

/// An origin without noise: 10 MiB/s for each connection, up to a total in MiB/s.
fn origin(total: u64) -> impl Fn(u32) -> Sample {
    move |limit| Sample {
        bytes: (u64::from(limit) * 10).min(total) * MIB / 40,
        in_flight: limit,
        moving: limit,
        first_byte: Some(Duration::from_millis(10)),
        ..Sample::default()
    }
}

#[test]
fn what_it_is_limited_by_comes_with_the_figure() {
    let mut now = Instant::now();
    let mut pace = fresh(now);
    drive(&mut pace, &mut now, 0.1, origin(400));
    assert!(matches!(pace.limited_by(), LimitedBy::Ramp { .. }));
    assert_eq!(pace.remember(0), None);
    drive(&mut pace, &mut now, 10.0, origin(400));
    let LimitedBy::Plateau { in_flight, rate, tried: Some((tried, tried_rate)) } = pace.limited_by() else {
        panic!("{:?}", pace.limited_by())
    };
    assert!((40..=50).contains(&in_flight) && tried > in_flight, "{in_flight}, {tried}");
    assert!((tried_rate / rate - 1.0).abs() < 0.01 && (rate / 400.0 / MIB as f64 - 1.0).abs() < 0.01);
    let found = pace.remember(7).expect("it stands");
    assert!((40..=50).contains(&found.level) && found.when == 7, "{found:?}");

    let disk = |limit| Sample {
        gated: Gated { disk: limit / 2, reader: 1, ..Gated::default() },
        ..origin(400)(limit)
    };
    drive(&mut pace, &mut now, 2.0, disk);
    let LimitedBy::Waits { on: WaitReason::Disk, share } = pace.limited_by() else {
        panic!("{:?}", pace.limited_by())
    };
    assert!((0.4..=0.5).contains(&share), "{share}");
    drive(&mut pace, &mut now, 4.0, |limit| Sample { in_flight: 3, starved: true, ..origin(400)(limit) });
    assert_eq!(pace.limited_by(), LimitedBy::Parts { in_flight: 3, limit: pace.limit() });
    drive(&mut pace, &mut now, 2.0, origin(400));
    pace.on_throttled(now);
    assert_eq!(pace.limited_by(), LimitedBy::Throttled { limit: pace.limit() });

    let mut open = Pace::new(Seed::default(), Limits { most: 64, ..Limits::default() }, now);
    drive(&mut open, &mut now, 5.0, origin(100_000));
    assert!(matches!(open.limited_by(), LimitedBy::Bound { limit: 64, .. }), "{:?}", open.limited_by());
}

/// How much of the first `seconds` was limited by the start, as a share.
fn share_of_the_ramp(mut pace: Pace, mut now: Instant, seconds: f64, origin: impl Fn(u32) -> Sample) -> f64 {
    let ticks = (seconds / 0.025) as u32;
    let ramp = (0..ticks).filter(|_| {
        drive(&mut pace, &mut now, 0.026, &origin);
        matches!(pace.limited_by(), LimitedBy::Ramp { .. })
    });
    ramp.count() as f64 / f64::from(ticks)
}

#[test]
fn a_run_of_two_seconds_at_its_plateau_was_limited_by_the_start() {
    let check = |remembered: Option<u32>, total: u64, most: f64| {
        let now = Instant::now();
        let remembered = remembered.map(|level| Remembered {
            level,
            connection_rate: 10 * MIB,
            part_bytes: 8 * MIB,
            when: 0,
        });
        let pace = Pace::new(Seed { remembered, cores: 2 }, Limits::default(), now);
        let share = share_of_the_ramp(pace, now, 2.0, origin(total));
        assert!(share <= most, "{share} of the time, {remembered:?}, {total} MiB/s");
    };
    // The seed is too low, too high, and right.
    check(None, 400, 0.3);
    check(None, 20, 0.3);
    check(None, 160, 0.3);
    check(Some(44), 400, 0.1);
    check(Some(100), 400, 0.1);
}

#[test]
fn what_is_remembered_of_a_connection_is_not_what_comes_in_a_lump() {
    // Bytes come with every so manieth tick; that share of what is in flight moves; for so many seconds. The
    // level was another now and then.
    let check = |every: u64, moving: f64, seconds: f64| {
        let (mut now, ticks) = (Instant::now(), std::cell::Cell::new(0));
        let mut pace = fresh(now);
        drive(&mut pace, &mut now, seconds, |limit| {
            ticks.set(ticks.get() + 1);
            let steady = origin(400)(limit);
            let bytes = if ticks.get() % every == 0 { steady.bytes * every } else { 0 };
            Sample { bytes, moving: (f64::from(limit) * moving) as u32, ..steady }
        });
        let found = pace.remember(0).expect("it stands");
        let carries = 400.0 / (f64::from(found.level) * moving);
        let remembered = found.connection_rate as f64 / MIB as f64;
        let off = remembered / carries;
        assert!((0.75..1.25).contains(&off), "{remembered} MiB/s, {found:?}: {every}, {moving}, {seconds} s");
    };
    for (every, moving) in [(1, 1.0), (2, 1.0), (4, 1.0), (1, 0.7), (4, 0.7)] {
        for seconds in [4.0, 10.0] {
            check(every, moving, seconds);
        }
    }
}

#[test]
fn what_does_not_count_changes_nothing() {
    let mut now = Instant::now();
    let mut pace = fresh(now);
    drive(&mut pace, &mut now, 10.0, origin(400));
    let before = pace.limit();
    let steady = |pace: &Pace, what: &str| {
        assert!((before - 8..=before + 10).contains(&pace.limit()), "{what}: {before} to {}", pace.limit());
    };
    drive(&mut pace, &mut now, 30.0, |_| Sample {
        in_flight: 2,
        starved: true,
        bytes: MIB,
        ..Sample::default()
    });
    steady(&pace, "an idle tail");
    let gated = Gated { reader: 30, ..Gated::default() };
    drive(&mut pace, &mut now, 30.0, |limit| Sample { gated, bytes: 1, ..origin(400)(limit) });
    steady(&pace, "a slow reader");
    drive(&mut pace, &mut now, 30.0, |limit| Sample { bytes: 0, ..origin(400)(limit) });
    steady(&pace, "silence");
    now += Duration::from_secs(3600);
    pace.on_tick(now, origin(400)(before));
    pace.on_tick(now, origin(400)(before));
    steady(&pace, "an hour of nothing");
}

#[test]
fn a_throttle_verdict_cuts_once_a_round_trip_and_what_was_cut_comes_back_slowly() {
    let mut now = Instant::now();
    let mut pace = fresh(now);
    drive(&mut pace, &mut now, 5.0, origin(100_000));
    assert_eq!(pace.limit(), 512);
    for _ in 0..10 {
        pace.on_throttled(now);
    }
    assert_eq!(pace.limit(), 358);
    drive(&mut pace, &mut now, 0.2, origin(100_000));
    pace.on_throttled(now);
    assert!(pace.limit() < 310, "{}", pace.limit());
    let cut = pace.limit();
    drive(&mut pace, &mut now, 2.0, origin(100_000));
    assert!(
        pace.limit() > cut && f64::from(pace.limit()) < f64::from(cut) * 1.75,
        "{cut} to {}",
        pace.limit()
    );
    drive(&mut pace, &mut now, 40.0, origin(100_000));
    assert_eq!(pace.limit(), 512);
    // Where requests wait for their throttle the level is not what was too much.
    let waiting =
        |limit| Sample { gated: Gated { requests: limit / 4, ..Gated::default() }, ..origin(100_000)(limit) };
    drive(&mut pace, &mut now, 2.0, waiting);
    pace.on_throttled(now);
    assert_eq!(pace.limit(), 512);
}

#[test]
fn an_origin_that_serves_one_after_another_does_not_open_ever_more() {
    // More in flight only wait longer for their first byte: 8 bodies move, whatever is asked for.
    let serial = |limit: u32| Sample {
        bytes: 8 * 10 * MIB / 40,
        in_flight: limit,
        moving: limit.min(8),
        first_byte: Some(Duration::from_millis(u64::from(limit) * 5)),
        ..Sample::default()
    };
    let mut now = Instant::now();
    let mut pace = fresh(now);
    drive(&mut pace, &mut now, 20.0, serial);
    assert!(pace.limit() <= 16, "{}", pace.limit());
}

#[test]
fn what_is_fixed_stays_and_memory_bounds_the_rest() {
    let mut now = Instant::now();
    let fixed = Limits { parallel: Some(7), part_bytes: Some(3 * MIB), ..Limits::default() };
    let mut pace = Pace::new(Seed { cores: 2, ..Seed::default() }, fixed, now);
    drive(&mut pace, &mut now, 5.0, origin(100_000));
    assert_eq!((pace.limit(), pace.part_bytes(u64::MAX), pace.remember(0)), (7, 3 * MIB, None));
    assert!(matches!(pace.limited_by(), LimitedBy::Bound { limit: 7, .. }));

    let memory = Limits { memory: Some(256 * MIB), ..Limits::default() };
    let mut pace = Pace::new(Seed { cores: 2, ..Seed::default() }, memory, now);
    drive(&mut pace, &mut now, 5.0, origin(100_000));
    assert_eq!((pace.limit(), pace.part_bytes(u64::MAX)), (256, MIB));
    pace.set_limits(Limits { memory: Some(20 * MIB), ..Limits::default() }, now);
    assert_eq!((pace.limit(), pace.part_bytes(u64::MAX)), (20, MIB));
    pace.set_limits(Limits { memory: Some(1), ..Limits::default() }, now);
    assert_eq!(pace.limit(), 1);
    let both =
        Limits { parallel: Some(9), part_bytes: Some(8 * MIB), memory: Some(40 * MIB), ..Limits::default() };
    assert_eq!(Pace::new(Seed::default(), both, now).limit(), 5);
}
