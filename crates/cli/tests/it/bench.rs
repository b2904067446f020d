//! `flatout bench`: the lines and fields that were promised. Nothing here looks at how fast anything is.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::folder::Folder;
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY, bytes, synthetic};
use crate::program::{ended, flatout, run, signal, wait_until};
use crate::raw::{Answer, Raw, Then, right};

const BYTES: u64 = (3 << 20) + 5;

fn check_run(event: &Value, op: &str, landing: &str) {
    assert_eq!(
        (&event["event"], &event["op"], &event["landing"]),
        (&"bench".into(), &op.into(), &landing.into())
    );
    assert_eq!(event["bytes"], BYTES);
    assert_eq!(event["parts"], 4, "{event}");
    for field in ["seconds", "gib_per_s", "gbit_avg", "gbit_peak", "peak_rss_mib"] {
        assert!(event[field].as_f64().is_some_and(|figure| figure > 0.0), "{field}: {event}");
    }
    for field in ["cpu_s_per_gib", "retries", "connections", "shards"] {
        assert!(event[field].as_f64().is_some_and(|figure| figure >= 0.0), "{field}: {event}");
    }
    assert!(event["ttfb_ms"]["p50"].as_f64() <= event["ttfb_ms"]["p99"].as_f64(), "{event}");
    // The origin is the test's own process, on this machine: it has a figure unless the run was too short for
    // one.
    let short = event["seconds"].as_f64().is_some_and(|seconds| seconds < 0.25);
    assert!(event["origin_busy"].is_f64() || short, "{event}");
    assert!(event["gbit_peak"].as_f64() >= event["gbit_avg"].as_f64().map(|gbit| gbit * 0.999), "{event}");
}

#[test]
fn every_landing_has_its_runs_and_its_ratio() {
    let origin = synthetic(BYTES);
    let folder = Folder::new();
    let file = format!("file:{}", folder.at("measured"));
    for (landing, name) in
        [("nowhere", "nowhere"), ("memory", "memory"), ("stream", "stream"), (&*file, "file")]
    {
        let events = run(&mut flatout(&[
            "bench",
            "get",
            "s3://demo/object",
            "--endpoint-url",
            &origin.url(),
            "--landing",
            landing,
            "--repeat",
            "2",
            "--part-size",
            "1MiB",
            "--floor",
            "--json",
        ]))
        .clean()
        .events();
        assert_eq!(events.len(), 7, "{events:?}");
        for (event, op) in events.iter().zip(["floor", "get", "get", "floor"]) {
            check_run(event, op, name);
        }
        let count = |op: &str| events.iter().filter(|event| event["op"] == op).count();
        assert_eq!((count("get"), count("floor"), count("ratio")), (2, 2, 1));
        assert!(
            events.iter().filter(|event| event["op"] == "get").all(|event| event["verified"] == "crc64nvme")
        );
        assert!(events.iter().filter(|event| event["op"] == "floor").all(|event| event["shape"].is_string()));
        assert_eq!((&events[4]["of"], &events[5]["of"]), (&"get".into(), &"floor".into()));
        assert!(events[4..6].iter().all(|median| median["op"] == "median" && median["landing"] == name));
        let ratio = &events[6];
        assert_eq!(ratio["op"], "ratio");
        assert!(ratio["throughput"].is_f64() && ratio["cpu"].is_f64(), "{ratio}");
        folder.is_untouched();
    }
}

#[test]
fn signed_and_plain() {
    let object = bytes(BYTES as usize);
    let buckets = Buckets::locked(&[("bucket/object", &object)]);
    let arguments =
        ["bench", "get", "s3://bucket/object", "--part-size", "1MiB", "--repeat", "1", "--floor", "--json"];
    let variables = [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ("AWS_ENDPOINT_URL", buckets.url()),
    ];
    let events = run(flatout(&arguments).envs(variables)).clean().events();
    assert_eq!(events.len(), 3, "{events:?}");

    let origin = synthetic(BYTES);
    let source = format!("{}/demo/object", origin.url());
    let shown = run(&mut flatout(&["bench", "get", &source, "--part-size", "1MiB", "--repeat", "2"])).clean();
    // A machine that is busy may take long enough for more to be said.
    let lines = shown.text().lines().filter(|line| !line.contains("limited by"));
    // The header, two runs, their medians.
    assert_eq!(lines.count(), 4, "{}", shown.text());
    assert!(shown.text().starts_with("run op"), "{}", shown.text());
}

#[test]
fn a_row_for_each_part() {
    let origin = synthetic(BYTES);
    let folder = Folder::new();
    let (source, parts) = (format!("{}/demo/object", origin.url()), folder.at("parts.csv"));
    let arguments = ["bench", "get", &source, "--part-size", "1MiB", "--repeat", "2", "--parts", &parts];
    run(&mut flatout(&arguments)).clean();
    let text = fs::read_to_string(&parts).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        rows[0].join(","),
        "run,op,index,address,connection,start_s,first_byte_s,end_s,bytes,attempts"
    );
    assert_eq!(rows.len(), 1 + 2 * 4);
    let mut total = 0;
    for row in &rows[1..] {
        let time = |at: usize| row[at].parse::<f64>().unwrap();
        assert!(0.0 <= time(5) && time(5) <= time(6) && time(6) <= time(7), "{row:?}");
        assert_eq!((row[1], row[9]), ("get", "1"));
        assert!(source.contains(row[3]), "{row:?}");
        total += row[8].parse::<u64>().unwrap();
    }
    assert_eq!(total, 2 * BYTES);
}

#[test]
fn rows_came_in_the_order_of_parts() {
    let object = bytes(1 << 20);
    let others = AtomicUsize::new(0);
    let raw = Raw::start(move |asked| {
        if asked.range(1 << 20).start == 256 << 10 {
            wait_until("the other parts", || others.load(Ordering::SeqCst) >= 3);
            // They are sent by then, and land before what is sent later, busy as the machine may be.
            thread::sleep(Duration::from_millis(500));
        } else {
            others.fetch_add(1, Ordering::SeqCst);
        }
        right(asked, &object, "\"one\"")
    });
    let folder = Folder::new();
    let (source, parts) = (raw.url("x"), folder.at("parts.csv"));
    let arguments = ["bench", "get", &source, "--part-size", "256KiB", "--repeat", "1", "--parts", &parts];
    run(&mut flatout(&arguments)).clean();
    let text = fs::read_to_string(&parts).unwrap();
    let field = |line: &str, at: usize| -> f64 { line.split(',').nth(at).unwrap().parse().unwrap() };
    let ends: Vec<f64> = text.lines().skip(1).map(|line| field(line, 7)).collect();
    assert!(ends.len() == 4 && ends.is_sorted(), "{text}");
    assert_eq!(field(text.lines().last().unwrap(), 2), 1.0, "{text}");
}

#[test]
fn control_c_left_the_file_of_the_floor_behind() {
    let object = bytes(1 << 20);
    let raw = Raw::start(move |asked| {
        let answer = right(asked, &object, "\"one\"");
        if asked.number > 0 { answer.then(Then::Silence) } else { answer }
    });
    let folder = Folder::new();
    let (source, landing) = (raw.url("x"), format!("file:{}", folder.at("measured")));
    let arguments = ["bench", "get", &source, "--floor", "--landing", &landing, "--part-size", "256KiB"];
    let bench = flatout(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a file beside the model", || folder.names().len() >= 2);
    signal("INT", bench.id());
    ended(bench.wait_with_output().unwrap()).refused(130, &["/x", "interrupted"]);
    folder.is_untouched();
}

#[test]
fn the_demo_ends_in_its_two_lines() {
    let shown = run(&mut flatout(&["bench", "demo", "--size", "4MiB"])).clean();
    let lines: Vec<&str> = shown.text().lines().collect();
    let [verified, ratio] = lines[lines.len() - 2..] else { unreachable!("two lines") };
    assert_eq!(verified, "verified: crc64nvme");
    let figures: Vec<f64> = ratio.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(ratio.starts_with("ratio to the floor: ") && figures.len() == 2, "{ratio}");
    for said in ["nowhere", "ten plain loops", "3 times each"] {
        assert!(shown.text().contains(said), "{}", shown.text());
    }
}

#[test]
fn the_demo_has_events_too() {
    let events = run(&mut flatout(&["bench", "demo", "--size", "4MiB", "--json"])).clean().events();
    let ops: Vec<_> = events.iter().map(|event| event["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["floor", "get", "get", "floor", "floor", "get", "ratio"]);
    assert_eq!(events[1]["verified"], "crc64nvme");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let origin = synthetic(0);
    let url = origin.url();
    let check = |source: &str, more: &[&str], code: i32, says: &[&str]| {
        let all = [&["bench", "get", source, "--repeat", "1"], more].concat();
        run(&mut flatout(&all)).refused(code, says);
    };
    let folder = Folder::new();
    let (file, parts) = (format!("file:{}", folder.at("model")), folder.at("missing/parts"));
    check(&format!("{url}/demo/object"), &[], 4, &["empty"]);
    check(&format!("{url}/demo/no"), &[], 1, &["/demo/no"]);
    check(&format!("{url}/demo/object"), &["--landing", &file], 4, &["exists already"]);
    check(&format!("{url}/demo/object"), &["--landing", "disk"], 4, &["file:PATH"]);
    check(&format!("{url}/demo/object"), &["--parts", &parts], 1, &["missing/parts"]);
    check("s3://demo/", &[], 4, &["names a bucket"]);
    folder.is_untouched();
}

#[test]
fn a_childs_failure_is_the_parents() {
    let raw = Raw::start(|asked| match asked.range(1000).len() {
        1 => right(asked, &[7; 1000], "\"one\""),
        _ => Answer::new("403 Forbidden", &[("Content-Length", "0")], b""),
    });
    run(&mut flatout(&["bench", "get", &raw.url("x"), "--repeat", "1"])).refused(5, &["/x", "hint:"]);
}

#[test]
fn a_signal_ends_the_children_too() {
    let arguments = ["bench", "demo", "--size", "64GiB"];
    let mut demo = flatout(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    BufReader::new(demo.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    assert!(is_running("demo/object-64GiB="), "the origin");
    signal("INT", demo.id());
    let mut said = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    // Standard error is closed only when the children have gone as well: they have it, too.
    assert_eq!(demo.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.lines().count() <= 1 && !said.contains("panicked"), "{said}");
    assert!(!is_running("demo/object-64GiB="), "the origin is still there");
}

/// Whether some process was started with this in its arguments.
fn is_running(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(argument))
}
