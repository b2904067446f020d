//! `flatout bench put`: the lines and fields that were promised, and that nothing but its object is left.

use std::fs;
use std::process::{Command, Stdio};

use flatout_server::{Options, Origin, Store};
use serde_json::Value;

use crate::folder::Folder;
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY, bytes};
use crate::program::{ended, flatout, run, signal, wait_until};

/// More than one request may carry by default, and no multiple of a part.
const BYTES: u64 = (17 << 20) + 5;

fn put(buckets: &Buckets, arguments: &[&str]) -> Command {
    let mut command = flatout(&[&["bench", "put"], arguments].concat());
    command.envs([("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)]);
    command.envs([("OSS_ACCESS_KEY_ID", ACCESS_KEY), ("OSS_ACCESS_KEY_SECRET", SECRET_KEY)]);
    command.envs([("AWS_ENDPOINT_URL", buckets.url()), ("OSS_ENDPOINT", buckets.url())]);
    command.env("OSS_REGION", "cn-hangzhou");
    command
}

/// Uploads that were begun and neither completed nor aborted.
fn unfinished(buckets: &Buckets) -> usize {
    let origins = fs::read_dir(buckets.root().join(".flatout/uploads")).into_iter().flatten().flatten();
    let folders = origins.flat_map(|origin| fs::read_dir(origin.path()).into_iter().flatten().flatten());
    folders.filter(|entry| entry.path().is_dir()).count()
}

fn check_run(event: &Value, op: &str, source: &str) {
    assert_eq!(
        (&event["event"], &event["op"], &event["source"]),
        (&"bench".into(), &op.into(), &source.into())
    );
    assert!(event["landing"].is_null(), "{event}");
    assert_eq!((&event["bytes"], &event["parts"]), (&BYTES.into(), &3.into()), "{event}");
    for field in ["seconds", "gib_per_s", "gbit_avg", "gbit_peak", "peak_rss_mib"] {
        assert!(event[field].as_f64().is_some_and(|figure| figure > 0.0), "{field}: {event}");
    }
    for field in ["cpu_s_per_gib", "retries", "connections", "shards"] {
        assert!(event[field].as_f64().is_some_and(|figure| figure >= 0.0), "{field}: {event}");
    }
}

#[test]
fn a_file_and_a_pattern_are_sent_in_both_dialects() {
    let buckets = Buckets::locked(&[("bucket/other", b"")]);
    let folder = Folder::new();
    let (path, content) = (folder.at("sent"), bytes(BYTES as usize));
    fs::write(&path, &content).unwrap();
    let size = BYTES.to_string();
    for (scheme, verified) in [("s3", "crc64nvme"), ("oss", "crc64xz")] {
        for (source, from) in [("file", &[path.as_str()][..]), ("synthetic", &["--size", &size])] {
            let url = format!("{scheme}://bucket/{scheme}-{source}");
            let end = [url.as_str(), "--repeat", "2", "--floor", "--json"];
            let events = run(&mut put(&buckets, &[from, &end].concat())).clean().events();
            let ops: Vec<_> = events.iter().map(|event| event["op"].as_str().unwrap()).collect();
            assert_eq!(ops, ["floor", "put", "put", "floor", "median", "median", "ratio"], "{url}");
            events[..4].iter().zip(&ops).for_each(|(event, op)| check_run(event, op, source));
            assert_eq!(events[1]["verified"], verified);
            assert!(events[0]["shape"].as_str().is_some_and(|shape| shape.starts_with("send")), "{url}");
            assert_eq!((&events[4]["of"], &events[5]["of"]), (&"put".into(), &"floor".into()));
            assert!(events[4]["gib_per_s"].as_f64() > Some(0.0) && events[6]["throughput"].is_f64());
            let stored = fs::read(buckets.root().join(format!("bucket/{scheme}-{source}"))).unwrap();
            assert_eq!(stored.len() as u64, BYTES);
            assert!(source == "synthetic" || stored == content, "{url}");
            assert_eq!(unfinished(&buckets), 0, "{url}");
        }
    }
}

#[test]
fn runs_are_rows_with_their_medians() {
    let buckets = Buckets::locked(&[("bucket/other", b"")]);
    let shown = run(&mut put(&buckets, &["s3://bucket/x", "--size", "6MiB", "--part-size", "5MiB"])).clean();
    let starts: Vec<&str> = shown.text().lines().map(|line| &line[..7]).collect();
    assert_eq!(starts[..5], ["run op ", "  1 put", "  2 put", "  3 put", "med put"], "{}", shown.text());
}

#[test]
fn only_its_own_object_is_written_over() {
    let buckets = Buckets::locked(&[("bucket/model", b"precious")]);
    let arguments = ["s3://bucket/model", "--size", "1MiB", "--repeat", "1"];
    run(&mut put(&buckets, &arguments)).refused(4, &["exists already", "hint:"]);
    assert_eq!(fs::read(buckets.root().join("bucket/model")).unwrap(), b"precious");
    for _ in 0..2 {
        run(&mut put(&buckets, &["s3://bucket/own", "--size", "1MiB", "--repeat", "1"])).clean();
    }
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let buckets = Buckets::locked(&[("bucket/other", b"")]);
    let folder = Folder::new();
    let (empty, missing) = (folder.at("empty"), folder.at("missing"));
    fs::write(&empty, b"").unwrap();
    let check = |arguments: &[&str], code: i32, says: &[&str]| {
        run(&mut put(&buckets, arguments)).refused(code, says);
    };
    check(&["s3://bucket/x"], 4, &["FILE"]);
    check(&["x", "s3://bucket/x", "--size", "1"], 4, &["--size"]);
    check(&[&missing, "s3://bucket/x"], 1, &["missing"]);
    check(&[&empty, "s3://bucket/x"], 4, &["nothing to send"]);
    check(&["/dev/null", "s3://bucket/x"], 4, &["no regular file"]);
    check(&["--size", "0", "s3://bucket/x"], 4, &["nothing to send"]);
    check(&["--size", "1", "s3://bucket/"], 4, &["names a bucket"]);
    check(&["--size", "1", "http://127.0.0.1:1/x"], 4, &["plain URL"]);
    check(&["--size", "1", "--repeat", "1", "s3://nowhere/x"], 1, &["nowhere"]);
}

#[test]
fn control_c_leaves_no_parts() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("bucket")).unwrap();
    // Slow enough to be met in the middle: with the floor first, then with flatout.
    let options = Options { total: Some((64 << 20).into()), ..Options::new(Store::Root(root.path().into())) };
    let origin = Origin::start(options).unwrap();
    for floor in [true, false] {
        let mut command = flatout(&["bench", "put", "--size", "1GiB", "s3://bucket/x", "--repeat", "1"]);
        command.args(["--endpoint-url", &origin.url(), "--no-sign-request"]);
        command.args(floor.then_some("--floor"));
        let bench = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let uploads = || walk(&root.path().join(".flatout/uploads"));
        wait_until("a part", || uploads() >= 2);
        signal("INT", bench.id());
        ended(bench.wait_with_output().unwrap()).refused(130, &["interrupted"]);
        wait_until("its end", || uploads() == 0);
    }
}

/// How many files are in a folder and all below it.
fn walk(folder: &std::path::Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { walk(&entry.path()) } else { 1 }).sum()
}
