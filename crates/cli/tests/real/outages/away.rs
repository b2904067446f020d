//! An origin that stays away ends a run once its patience is over, with one line.

use std::time::{Duration, Instant};

use super::lab::{Fault, Lab, Road};
use super::origin::own_address;
use super::runs::{Ended, Run, Shape, cut_in_the_middle};
use crate::flatout;
use crate::program::run;

/// The exit codes of a run that did not get all: what there is may not be known to its end, either.
fn codes(shape: Shape) -> &'static [i32] {
    match shape {
        Shape::File | Shape::Stdout | Shape::Upload => &[1],
        Shape::Objects | Shape::Listing => &[1, 3],
    }
}

/// One error, whatever the number of objects, that names the origin and says how long it was waited for.
#[track_caller]
fn is_one_error(road: Road, ended: &Ended) {
    let (shape, said) = (format!("{road:?}, {:?}", ended.shape), &ended.stderr);
    assert!(
        ended.code.is_some_and(|code| codes(ended.shape).contains(&code)),
        "{shape}: {:?}: {said}",
        ended.code
    );
    let errors = said.lines().filter(|line| line.starts_with("flatout: error: ")).count();
    assert_eq!(errors, 1, "{shape}: {said}");
    assert!(said.lines().count() <= 3, "{shape}: {said}");
    assert!(said.contains("127."), "{shape} does not name the origin: {said}");
}

/// Cut in the middle, for ever.
#[track_caller]
fn check(road: Road, fault: Fault) {
    let mut lab = Lab::new(road, fault);
    let (runs, _) = cut_in_the_middle(&mut lab, &["--outage-timeout", "3s"]);
    for run in runs {
        let ended = run.end();
        is_one_error(road, &ended);
        if ended.shape == Shape::File {
            let left = ended.left();
            assert!(!left.contains(&"model".to_owned()), "a stump under the final name: {left:?}");
        }
    }
}

#[test]
fn one_that_stays_away_ends_with_one_line() {
    let cases = [
        (Road::Plain, Fault::Refused),
        (Road::Tls, Fault::Killed),
        (Road::Proxy, Fault::Refused),
        (Road::Gateway, Fault::Killed),
    ];
    std::thread::scope(|scope| {
        for (road, fault) in cases {
            scope.spawn(move || check(road, fault));
        }
    });
}

/// Twenty seconds of silence had to pass before anything was said, and the timeout began then.
#[test]
fn one_that_is_silent_ends_as_soon_as_one_that_refuses() {
    let mut lab = Lab::new(Road::Plain, Fault::Silent);
    let (runs, start) = cut_in_the_middle(&mut lab, &["--outage-timeout", "8s"]);
    let ended: Vec<Ended> = runs.into_iter().map(Run::end).collect();
    // A body's own patience is that of --stall-timeout, 20 s.
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    for ended in ended {
        assert!(ended.stderr.contains("waiting for 127."), "{:?}: {}", ended.shape, ended.stderr);
        assert!(!ended.stderr.contains("--stall-timeout"), "{:?}: {}", ended.shape, ended.stderr);
        is_one_error(Road::Plain, &ended);
    }
}

/// Nobody has ever listened there: each command ends by itself after about ten seconds, and not much sooner.
#[test]
fn one_that_was_never_there_ends_with_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let (endpoint, target) = (format!("http://{}", own_address()), folder.path().join("new"));
    let target = target.to_str().unwrap();
    let commands: [&[&str]; 5] = [
        &["cp", "s3://bucket/model", target],
        &["cp", "-r", "s3://bucket/small/", target],
        &["cat", "s3://bucket/model", "s3://bucket/other"],
        &["ls", "-r", "s3://bucket/"],
        &["stat", "s3://bucket/model"],
    ];
    std::thread::scope(|scope| {
        for arguments in commands {
            let endpoint = &endpoint;
            scope.spawn(move || {
                let start = Instant::now();
                let more = ["--endpoint-url", endpoint, "--no-sign-request"];
                let ended = run(&mut flatout(&[arguments, &more].concat()));
                let errors = ended.stderr.lines().filter(|line| line.contains("error: ")).count();
                assert!(
                    matches!(ended.code, Some(1 | 3)),
                    "{arguments:?}: {:?}: {}",
                    ended.code,
                    ended.stderr
                );
                assert_eq!(errors, 1, "{arguments:?}: {}", ended.stderr);
                assert!(start.elapsed() >= Duration::from_secs(9), "{arguments:?}: {}", ended.stderr);
            });
        }
    });
}
