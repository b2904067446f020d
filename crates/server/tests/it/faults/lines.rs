//! The log.

use std::path::Path;
use std::time::{Duration, Instant};

use flatout_server::{FaultKind, FaultPlan, Options, Origin, Store};
use serde_json::{Value, json};

use super::{always, get, origin};
use crate::client::{connect, options, send, write_head};

/// The lines, in the order in which their requests came and without these times, when there are as many as
/// that: the last is written when its connection has ended.
fn lines(path: &Path, count: usize) -> Vec<Value> {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if lines.len() >= count || Instant::now() > patience {
            lines.sort_by(|one, other| one["t_s"].as_f64().partial_cmp(&other["t_s"].as_f64()).unwrap());
            for line in &mut lines {
                let at = line.as_object_mut().unwrap().remove("t_s").unwrap();
                assert!(at.as_f64().is_some_and(|at| (0.0..3600.0).contains(&at)));
            }
            return lines;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_request_has_a_line_with_its_fault() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let fault_plan = FaultPlan { log: Some(log.clone()), ..always(FaultKind::Truncate) };
    let (origin, _) = origin(1000, fault_plan);
    let address = origin.addresses()[0];
    let came = get(address, "/bucket/k?X-Amz-Signature=secret", &[("range", "bytes=100-199")]).0.body.len();
    let rest = 100 + came;
    let range = format!("bytes={rest}-199");
    let again = get(address, "/bucket/k", &[("range", &range)]).0.body.len();
    send(address, "HEAD", "/bucket/k", &[], b"").expect(200);
    send(address, "GET", "/bucket/missing", &[("range", "bytes=0-9")], b"").expect(404);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("secret"), "{text}");
    let line = |method: &str,
                key: &str,
                range: Value,
                attempt: u64,
                fault: Value,
                status: u16,
                bytes: usize| {
        json!({"method": method, "bucket": "bucket", "key": key, "range": range, "attempt": attempt, "fault": fault,
            "status": status, "bytes": bytes, "listener": 0})
    };
    let mut lines = lines(&log, 4);
    let missing = lines.pop().unwrap();
    assert_eq!(missing["status"], 404);
    assert_eq!(missing["attempt"], 0);
    assert_eq!(
        lines,
        [
            line("GET", "k", json!([100, 199]), 1, json!("truncate"), 206, came),
            line("GET", "k", json!([rest, 199]), 2, json!("truncate"), 206, again),
            line("HEAD", "k", Value::Null, 1, Value::Null, 200, 0),
        ]
    );
}

#[test]
fn a_client_that_went_away_has_a_line_too() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let fault_plan =
        FaultPlan { log: Some(log.clone()), ..always(FaultKind::Stall(Duration::from_secs(3600))) };
    let (origin, _) = origin(1000, fault_plan);
    for listed in 1..=3 {
        let mut connection = connect(origin.addresses()[0]);
        write_head(&mut connection, "GET", "/bucket/k", &[], 0);
        // Only the head may come: the place of the stall is chosen.
        std::io::Read::read_exact(&mut connection, &mut [0; 12]).unwrap();
        drop(connection);
        let lines = lines(&log, listed);
        assert_eq!(lines.len(), listed);
        assert_eq!(lines[listed - 1]["fault"], "stall");
        assert!(lines[listed - 1]["bytes"].as_u64().unwrap() < 1000);
    }
}

#[test]
fn lines_of_many_connections_and_of_two_origins_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let start = || {
        let fault_plan = FaultPlan { log: Some(log.clone()), ..FaultPlan::default() };
        let store = Store::Synthetic(vec![("bucket".to_owned(), "k".repeat(500), 10)], vec![]);
        Origin::start(Options { fault_plan, ..options(store) }).unwrap()
    };
    let origins = [start(), start()];
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let address = origins[number % 2].addresses()[0];
            let target = format!("/bucket/{}", "k".repeat(500));
            std::thread::spawn(move || {
                for _ in 0..25 {
                    send(address, "GET", &target, &[], b"").expect(200);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let lines = lines(&log, 200);
    assert_eq!(lines.len(), 200);
    assert!(lines.iter().all(|line| line["fault"].is_null() && line["bytes"] == 10));
}

/// OSS allows 1023 bytes.
#[test]
fn the_longest_key_of_s3_has_its_fault_and_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (log, key) = (folder.path().join("log"), "k".repeat(1024));
    let fault_plan = FaultPlan { log: Some(log.clone()), ..always(FaultKind::Truncate) };
    let store = Store::Synthetic(vec![("bucket".to_owned(), key.clone(), 1000)], vec![]);
    let origin = Origin::start(Options { fault_plan, ..options(store) }).unwrap();
    let came = get(origin.addresses()[0], &format!("/bucket/{key}"), &[]).0.body.len();
    let line = &lines(&log, 1)[0];
    assert_eq!((&line["key"], &line["fault"]), (&json!(key), &json!("truncate")));
    assert!(came < 1000, "{came}");
}

#[test]
fn a_log_that_lost_lines_is_told_of_at_the_end() {
    let fault_plan = FaultPlan { log: Some("/dev/full".into()), ..FaultPlan::default() };
    let origin = Origin::start(Options { fault_plan, ..options(Store::Memory) }).unwrap();
    send(origin.addresses()[0], "GET", "/bucket/k", &[], b"").expect(404);
    assert_eq!(origin.stop().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn a_log_that_cannot_be_written_is_named() {
    let fault_plan = FaultPlan { log: Some("/proc/no/such/log".into()), ..FaultPlan::default() };
    let error = Origin::start(Options { fault_plan, ..options(Store::Memory) }).unwrap_err();
    assert!(error.to_string().contains("/proc/no/such/log"), "{error}");
}
