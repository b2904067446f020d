//! Transfers and listings that an outage falls into: all arrives, and goes on soon after the origin is back.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::lab::{Fault, Lab, Road};
use super::origin::ALL;
use super::runs::{Ended, Run, SHAPES, Shape, cut_in_the_middle, start_all};

/// Lengths of all outages, in milliseconds.
const LENGTHS_MS: [u64; 5] = [500, 1000, 2000, 5000, 20_000];

/// A run that does not go on within this time after the origin's return hangs. What it should take is in
/// docs/numbers.md.
const RETURN_MAX: Duration = Duration::from_secs(30);

/// One outage: how long each run took to go on after it.
struct Row {
    lasted: Duration,
    after: Vec<(Shape, Duration)>,
}

/// Outages by this fault on these roads, each with its lengths, at the same time: they wait for the most
/// part. `FLATOUT_OUTAGES=all` has all roads and lengths, one after the other.
#[track_caller]
fn check(fault: Fault, all: &[Road], quick: &[(Road, &'static [u64])]) {
    let wrong: Vec<String> = if *ALL {
        all.iter().map(|road| outages(*road, fault, &LENGTHS_MS)).collect()
    } else {
        thread::scope(|scope| {
            let start = |&(road, lengths_ms): &(Road, &'static [u64])| {
                scope.spawn(move || outages(road, fault, lengths_ms))
            };
            let roads: Vec<_> = quick.iter().map(start).collect();
            roads.into_iter().map(|road| road.join().expect("it says what went wrong above")).collect()
        })
    };
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// An outage of each length, on one road. What went wrong, a line for each.
#[track_caller]
fn outages(road: Road, fault: Fault, lengths_ms: &[u64]) -> String {
    let mut lab = Lab::new(road, fault);
    let (mut rows, mut wrong) = (Vec::new(), String::new());
    for length_ms in lengths_ms {
        let lasts = Duration::from_millis(*length_ms);
        let (row, failures) = outage(&mut lab, lasts);
        for failure in failures {
            writeln!(wrong, "{road:?}, {fault:?} for {lasts:?}: {failure}").unwrap();
        }
        rows.push(row);
    }
    show(road, fault, &rows);
    wrong
}

/// All runs at once, cut in the middle. What went wrong with each, if anything did.
#[track_caller]
fn outage(lab: &mut Lab, lasts: Duration) -> (Row, Vec<String>) {
    let (mut runs, away) = cut_in_the_middle(lab, &[]);
    thread::sleep(lasts.saturating_sub(away.elapsed()));
    let over: Vec<bool> = runs.iter_mut().map(|run| run.written().is_none()).collect();
    let back = lab.come_back();
    let row = Row { lasted: back - away, after: times_to_go_on(&mut runs, back) };
    let ended = runs.into_iter().map(Run::end).zip(over);
    let wrong = |(ended, was_over): (Ended, bool)| match was_over && ended.code == Some(0) {
        true => Some(format!("{:?}: it needed nothing of the origin meanwhile", ended.shape)),
        false => ended.wrong(),
    };
    (row, ended.filter_map(wrong).collect())
}

/// From the origin's return to the first byte that each run writes then. Runs that have ended are left out.
fn times_to_go_on(runs: &mut [Run], back: Instant) -> Vec<(Shape, Duration)> {
    let before: Vec<Option<u64>> = runs.iter_mut().map(Run::written).collect();
    let mut waited_for: Vec<(&mut Run, u64)> =
        runs.iter_mut().zip(before).filter_map(|(run, before)| Some((run, before?))).collect();
    let mut after = Vec::new();
    while !waited_for.is_empty() && back.elapsed() < RETURN_MAX {
        waited_for.retain_mut(|(run, before)| {
            // One that ends now has gone on, or given up, which its code says.
            let goes_on = run.written().is_none_or(|now| now > *before);
            if goes_on {
                after.push((run.shape, back.elapsed()));
            }
            !goes_on
        });
        thread::sleep(Duration::from_millis(5));
    }
    after
}

/// A table of Markdown, on standard output and in `target/tmp/outages`.
fn show(road: Road, fault: Fault, rows: &[Row]) {
    let mut table =
        format!("{road:?}, {fault:?}: seconds from the origin's return to the first byte after it\n\n");
    table +=
        "| away for | one file | stdout | many objects | listing | upload |\n|---|---|---|---|---|---|\n";
    for row in rows {
        write!(table, "| {:.1} s |", row.lasted.as_secs_f64()).unwrap();
        for shape in SHAPES {
            match row.after.iter().find(|(found, _)| *found == shape) {
                Some((_, after)) => write!(table, " {:.2} |", after.as_secs_f64()).unwrap(),
                None => table += " – |",
            }
        }
        table += "\n";
    }
    println!("{table}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outages");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{road:?}-{fault:?}.md")), table).unwrap();
}

const ROADS: [Road; 4] = [Road::Plain, Road::Tls, Road::Proxy, Road::ProxyTls];

#[test]
fn minio_is_silent() {
    check(Fault::Silent, &[Road::Plain, Road::Tls], &[(Road::Plain, &[7000])]);
}

#[test]
fn connections_are_refused() {
    check(
        Fault::Refused,
        &ROADS,
        &[
            (Road::Plain, &[500, 5000]),
            (Road::Tls, &[1000]),
            (Road::Proxy, &[5000]),
            (Road::ProxyTls, &[1000]),
        ],
    );
}

#[test]
fn minio_is_killed() {
    check(Fault::Killed, &ROADS, &[(Road::Plain, &[5000]), (Road::Tls, &[1000]), (Road::ProxyTls, &[5000])]);
}

#[test]
fn the_http_proxy_refuses() {
    let roads = [Road::Proxy, Road::ProxyTls];
    check(Fault::ProxyRefused, &roads, &[(Road::Proxy, &[1000]), (Road::ProxyTls, &[5000])]);
}

/// 502, from nginx.
#[test]
fn minio_behind_a_gateway_is_killed() {
    check(Fault::Killed, &[Road::Gateway], &[(Road::Gateway, &[5000])]);
}

#[test]
fn a_gateway_answers_503() {
    check(Fault::Status(503), &[Road::Gateway], &[(Road::Gateway, &[5000])]);
}

#[test]
fn a_gateway_answers_500() {
    check(Fault::Status(500), &[Road::Gateway], &[(Road::Gateway, &[2000])]);
}

/// Up for 0.3 s and down for as long, for ten seconds: what arrives meanwhile counts.
#[test]
fn a_link_that_flaps_ends_nothing() {
    let mut lab = Lab::new(Road::Plain, Fault::Refused);
    let runs = start_all(&lab, &[]);
    for _ in 0..17 {
        lab.go_away();
        thread::sleep(Duration::from_millis(300));
        lab.come_back();
        thread::sleep(Duration::from_millis(300));
    }
    let wrong: Vec<String> = runs.into_iter().filter_map(|run| run.end().wrong()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Bodies that end too early again and again, and spikes of latency: each object is asked for again until it
/// is whole.
#[test]
fn a_link_with_fits_ends_nothing() {
    let lab = Lab::new(Road::Plain, Fault::Refused);
    let runs = start_all(&lab, &[]);
    let fits = [
        ("limit_data", json!({"bytes": 40_000})),
        ("reset_peer", json!({"timeout": 20})),
        ("latency", json!({"latency": 800, "jitter": 400})),
    ];
    for (kind, attributes) in fits.iter().cycle().take(9) {
        lab.link().add_toxic(kind, attributes);
        thread::sleep(Duration::from_millis(500));
        lab.link().remove_toxic(kind);
        thread::sleep(Duration::from_millis(500));
    }
    let wrong: Vec<String> = runs.into_iter().filter_map(|run| run.end().wrong()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
