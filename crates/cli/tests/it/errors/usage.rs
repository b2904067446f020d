//! Command lines that are none, and locations that name nothing.

use super::snapshot::{Case, Snapshot};

pub fn all(snapshot: &mut Snapshot) {
    command_lines(snapshot);
    serve(snapshot);
    weather(snapshot);
    locations(snapshot);
}

fn command_lines(snapshot: &mut Snapshot) {
    snapshot.section("Command lines");
    for line in [
        &["copy"][..],
        &["serv"],
        &["--frobnicate"],
        &["cp"],
        &["cp", "s3://b/k"],
        &["cp", "s3://b/k", "x", "y"],
        &["cp", "s3://b/k", "x", "--paralel", "3"],
        &["cp", "s3://b/k", "x", "--frobnicate"],
        &["cp", "s3://b/k", "x", "--no-verify-ssl"],
        &["cp", "s3://b/k", "x", "--part-size"],
        &["cp", "s3://b/k", "x", "--endpoint-url", ""],
        &["cp", "s3://b/k", "x", "--range", "9-3"],
        &["cp", "s3://b/k", "x", "--range", "first"],
        &["cp", "-r", "s3://b/k/", "x", "--range", "0-1"],
        &["cp", "-r", "s3://b/k/", "x", "--include", "[a"],
        &["cp", "s3://b/k", "x", "--include", "*.bin"],
        &["cat"],
        &["stat"],
        &["ls", "s3://b/", "s3://c/"],
        &["bench", "gte"],
        &["bench", "get"],
        &["bench", "get", "s3://b/k", "--repeat", "0"],
        &["bench", "get", "s3://b/k", "--landing", "disk"],
        &["bench", "get", "-r", "s3://b/k/", "--parts", "x.csv"],
        &["bench", "get", "-r", "s3://b/k/", "--landing", "memory"],
        &["bench", "demo", "--size", "big"],
        &["bench", "sweep", "s3://b/k", "--parallel", "4,many"],
        &["bench", "sweep", "s3://b/k", "--part-size", "8 bananas"],
        &["bench", "sweep", "s3://b/k", "--landing", "disk"],
        &["run", "a", "b"],
        &["run", "/proc/none"],
        &["run", "/proc"],
        &["run", "a", "--jobs", "0"],
        &["cp", "s3://b/k", "x", "-s"],
        &["cp", "s3://b/*", "x", "--flatten"],
        &["config", "shwo"],
        &["completions", "tcsh"],
        &["completions"],
        &["completions", "zsh", "bash"],
        &["man", "a", "b"],
        &["man", "/proc/none"],
        &["man", ""],
        &["doctor", "--frobnicate"],
        &["doctor", "s3://b/k", "s3://c/k"],
        &["doctor", "--parallel", "many"],
        &["help", "copy"],
        &["version", "--verbos"],
    ] {
        snapshot.line(line);
    }
}

fn serve(snapshot: &mut Snapshot) {
    snapshot.section("flatout serve");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (missing, mine) = (at("missing.pem"), at("mine.pem"));
    std::fs::write(&mine, "my own").unwrap();
    for more in [
        &[][..],
        &["--memory"],
        &["--memory", "--no-auth", "--listen", "localhost"],
        &["--memory", "--no-auth", "--listen", &taken],
        &["--memory", "--root", "."],
        &["--memory", "--access-key", "AK"],
        &["--memory", "--no-auth", "--latency", "3"],
        &["--memory", "--no-auth", "--total", "1GiB"],
        &["--memory", "--no-auth", "--per-connection", "0/s"],
        &["--memory", "--no-auth", "--total", "1MiB/s@5s"],
        &["--memory", "--no-auth", "--total", "1MiB/s@5s:2MiB/s@5s:1MiB/s"],
        &["--synthetic", "demo=1GiB", "--no-auth"],
        &["--synthetic", "Demo/x=1GiB", "--no-auth"],
        &["--synthetic", "demo/x=big", "--no-auth"],
        &["--synthetic", "demo/x=1KiB*10", "--no-auth"],
        &["--synthetic", "demo/%d-%d=1KiB*10", "--no-auth"],
        &["--synthetic", "demo/x-%d=1KiB*11", "--no-auth"],
        &["--synthetic", "demo/x-%020d=1KiB*11", "--no-auth"],
        &["--synthetic", "demo/x-%d=1KiB*0", "--no-auth"],
        &["--root", &at("missing"), "--no-auth"],
        &["--memory", "--no-auth", "--tls-cert", &missing],
        &["--memory", "--no-auth", "--tls-cert", &missing, "--tls-key", &missing],
        &["--memory", "--no-auth", "--tls-cert", &mine, "--tls-key", &mine],
        &["--memory", "--no-auth", "--tls", &mine],
        &["--memory", "--no-auth", "--listen", "127.0.0.1:0", "--tls", &at("missing/ca.pem")],
    ] {
        snapshot.line(&[&["serve"], more].concat());
    }
}

/// The wind tunnel's flags.
fn weather(snapshot: &mut Snapshot) {
    snapshot.section("flatout serve: the wind tunnel");
    for more in [
        &["--stall"][..],
        &["--stall", "0.5"],
        &["--stall", "0.5:30"],
        &["--stall", "2:30s"],
        &["--reset", "half"],
        &["--reset", "5%:3"],
        &["--slow", "5%:64KiB"],
        &["--error", "1%"],
        &["--error", "1%:SlowDon"],
        &["--error", "1%:200"],
        &["--flip", "-1"],
        &["--throttle", "5"],
        &["--throttle", "0/s"],
        &["--qos-delay", "5"],
        &["--qos-delay", "soon", "--throttle", "5/s"],
        &["--replace-after", "0"],
        &["--expire-token", "10"],
        &["--clock", "soon"],
        &["--seed", "x"],
        &["--log", ""],
        &["--log", "/proc/none/log", "--listen", "127.0.0.1:0"],
        &["--listen", "127.0.0.1:0,slow"],
        &["--listen", "127.0.0.1:0,rate=16"],
        &["--listen", "127.0.0.1:0,dead"],
    ] {
        snapshot.line(&[&["serve", "--memory", "--no-auth"], more].concat());
    }
}

fn locations(snapshot: &mut Snapshot) {
    snapshot.section("Locations and targets");
    for source in [
        "model.safetensors",
        "s3:/bucket/key",
        "s4://bucket/key",
        "s3://",
        "s3:///key",
        "s3://buc ket/key",
        "s3://bucket",
        "oss://",
        "oss://bucket/key",
        "https:///path",
        "http://host:99999/x",
        "https://user:hunter2hunter2@/x?sig=abc",
    ] {
        snapshot.line(&["cp", source, "x"]);
    }
    for line in [
        &["cat", "s3://bucket/"][..],
        &["stat", "bucket/key"],
        &["ls", "http://host/folder/"],
        &["ls", "bucket"],
        &["cp", "-r", "http://host/folder/", "x"],
        &["bench", "get", "s3://bucket"],
        &["bench", "get", "-r", "http://host/folder/"],
        &["bench", "sweep", "s3://bucket/"],
        &["doctor", "bucket"],
        &["doctor", "s3://"],
        &["doctor", "s3://buc ket/key"],
        &["doctor", "oss://bucket/key"],
        &["cp", "http://host/x", ""],
        &["cp", "http://host/x", "file://o/x"],
        &["cp", "http://host/", "."],
        &["cp", "-r", "s3://bucket/folder/", "s3://bucket/folder/"],
        &["cp", "s3://bucket/key", "s3://bucket/key"],
        &["cp", "s3://bucket/key", "https://host/key"],
        &["mv", "http://host/x", "."],
        &["mv", "s3://bucket/key", "-"],
        &["mv", "one", "other"],
        &["mv", "-", "s3://bucket/key"],
        &["rm", "s3://bucket"],
        &["rm", "-r", "s3://bucket"],
        &["rm", "http://host/x"],
        &["rm", "s3://bucket/key", "--exclude", "*"],
        &["mb", "s3://bucket/folder/"],
        &["rb", "s3://bucket/key"],
        &["rb", "s3://bucket", "--yes"],
        &["presign", "s3://bucket/key", "--expires", "8d"],
        &["presign", "s3://bucket/key", "--expires", "1 year"],
        &["presign", "http://host/x"],
        &["du", "http://host/x"],
        &["hash", "http:/x"],
        &["uploads", "http://host/x"],
        &["uploads", "s3://bucket", "--older-than", "7"],
        &["cp", "model", "s3://bucket/key"],
        &["cp", "model", "backup"],
        &["cp", "-r", "s3://bucket/folder/", "-"],
    ] {
        snapshot.line(line);
    }
    snapshot.run(Case::new(&["config", "path"]));
}
