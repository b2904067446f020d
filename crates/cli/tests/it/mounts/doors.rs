//! What a running mount tells: its socket, its port, `top`, `--stats`, and whom it tells that it stands.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};

use flatout_server::FaultKind;

use super::{Place, User, faults};
use crate::objects::{Buckets, bytes};
use crate::program::{events, quoted, run, signal, wait_until};

fn buckets() -> Buckets {
    Buckets::new(&[("bucket/large", &bytes(3 << 20)), ("bucket/folder/small", b"small")])
}

fn ask(mut stream: impl Read + Write, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_socket_is_its_users_and_tells_the_numbers() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--memory", "64MiB"]);
    assert_eq!(fs::read(place.at("large")).unwrap().len(), 3 << 20);
    fs::read(place.at("none")).unwrap_err();
    let folder = place.path().join("run/flatout");
    let path = folder.join(format!("mount-{}.sock", place.pid()));
    // Counted when the kernel has taken it, while the reader goes on.
    wait_until("all to be counted", || place.stats()["bytes"]["served"] == 3 << 20);
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let asked = |what: &str| ask(UnixStream::connect(&path).unwrap(), what);
    let stats = asked("/stats");
    let (head, body) = stats.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/json"), "{head}");
    let stats = events(body).remove(0);
    assert_eq!(stats["event"], "mount_stats");
    assert_eq!((&stats["pid"], &stats["source"]), (&place.pid().into(), &"s3://bucket".into()));
    assert_eq!(stats["mount_point"], place.mnt_text());
    assert_eq!(
        (&stats["bytes"]["served"], &stats["bytes"]["fetched"]),
        (&(3 << 20).into(), &(3 << 20).into())
    );
    assert_eq!(stats["bytes"]["amplification"], 1.0);
    assert_eq!(stats["memory"]["limit_bytes"], 64 << 20);
    assert!(stats["requests"]["total"].as_u64().unwrap() >= 4, "{stats}");
    assert!(stats["names"]["inodes_now"].as_u64().unwrap() >= 2, "{stats}");
    assert!(stats["kernel"]["abi"].as_str().unwrap().starts_with("7."), "{stats}");
    let read = &stats["requests"]["operations"]["read"];
    assert_eq!(read["count"], stats["reads"]["total"]);
    assert_eq!(
        read["buckets"].as_array().unwrap().last().unwrap(),
        &serde_json::json!(["+Inf", read["count"]])
    );
    assert_eq!(stats["requests"]["errors"], serde_json::json!({ "ENOENT": 1 }));
    let metrics = asked("/metrics");
    for line in [
        format!("flatout_mount_served_bytes_total{{mount=\"{}\"}} 3145728", place.mnt_text()),
        "# TYPE flatout_mount_requests_total counter".to_owned(),
        format!("flatout_mount_errors_total{{mount=\"{}\",errno=\"ENOENT\"}} 1", place.mnt_text()),
    ] {
        assert!(metrics.contains(&line), "{metrics} lacks {line}");
    }
    assert!(asked("/").starts_with("HTTP/1.1 404 "));
    place.unmounted();
    assert!(!path.exists());
}

#[test]
fn what_is_in_flight_and_what_limits_is_told() {
    let slow = faults::origin(faults::faults(&[(1.0, FaultKind::Slow(256 << 10))]));
    let place = Place::new();
    place.mounted("s3://bucket", &slow.url(), &["--parallel", "2"]);
    assert_eq!(place.stats()["origin"].get("limited_by"), None, "nobody has asked for content");
    let large = place.at("large");
    let user = User::start("cat", &[large.to_str().unwrap()]);
    let mut stats = serde_json::Value::Null;
    let is_told = |stats: &serde_json::Value| {
        let Some(by) = stats["origin"]["limited_by"]["by"].as_str() else { return false };
        stats["origin"]["in_flight_now"] == 2 && stats["origin"]["limited_seconds"][by].as_f64() > Some(0.0)
    };
    wait_until("what limits to be told", || {
        stats = place.stats();
        is_told(&stats)
    });
    let origin = &stats["origin"];
    assert!(!origin["limited_by"]["says"].as_str().unwrap().is_empty(), "{origin}");
    assert_eq!((&origin["parallel_now"], &origin["retries"]), (&2.into(), &0.into()), "{origin}");
    let (open, opened) = (origin["connections_now"].as_u64(), origin["connections"].as_u64());
    assert!(open >= Some(2) && opened >= open, "{origin}");
    let shown = run(&mut place.flatout(&["top", "--once"])).clean();
    let lines: Vec<Vec<&str>> = shown.text().lines().map(|line| line.split_whitespace().collect()).collect();
    let under = |name: &str| lines[1][lines[0].iter().position(|heading| *heading == name).unwrap()];
    assert_eq!((under("FLIGHT"), under("RETRIES")), ("2/2", "0"), "{lines:?}");
    assert!(origin["limited_seconds"].get(under("LIMIT")).is_some(), "{lines:?} {origin}");
    let socket = place.path().join(format!("run/flatout/mount-{}.sock", place.pid()));
    let metrics = ask(UnixStream::connect(socket).unwrap(), "/metrics");
    for line in [
        format!("flatout_mount_in_flight{{mount=\"{}\"}} 2", place.mnt_text()),
        format!("flatout_mount_limited_seconds_total{{mount=\"{}\",by=\"", place.mnt_text()),
        "# TYPE flatout_mount_throttled_total counter".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{metrics} lacks {line}");
    }
    drop(user);
    // What is under way ends, and then nothing limits.
    wait_until("it to end", || {
        let stats = place.stats();
        stats["origin"]["in_flight_now"] == 0 && stats["origin"].get("limited_by").is_none()
    });
    place.unmounted();
}

#[test]
fn what_the_origin_refused_is_counted() {
    let busy = FaultKind::Error("SlowDown".parse().unwrap());
    let (origin, place) = (faults::origin(faults::faults(&[(0.3, busy)])), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--retries", "12"]);
    let mut reads = 0;
    wait_until("a refusal", || {
        let file = fs::File::open(place.at("large")).unwrap();
        // Here and there, so that each is a request.
        reads += 1;
        file.read_exact_at(&mut [0; 4096], reads * 7_919_113 % (20 << 20)).unwrap();
        let origin = &place.stats()["origin"];
        origin["retries"].as_u64() > Some(0) && origin["throttled"].as_u64() > Some(0)
    });
    place.unmounted();
}

#[test]
fn a_port_has_the_metrics_and_nothing_else() {
    let (origin, place) = (buckets(), Place::new());
    let said = place.mounted("s3://bucket", &origin.url(), &["--json", "--metrics", "0"]).events().remove(0);
    let url = said["metrics"].as_str().unwrap();
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{url}");
    let asked = |what: &str| ask(TcpStream::connect(address).unwrap(), what);
    assert!(asked("/metrics").contains("flatout_mount_uptime_seconds{mount="));
    assert!(asked("/stats").starts_with("HTTP/1.1 404 "));
    place.unmounted();
}

#[test]
fn top_shows_the_mounts_of_this_user() {
    let (origin, place) = (buckets(), Place::new());
    let top = |more: &[&str]| run(&mut place.flatout(&[&["top", "--once"], more].concat()));
    // Others that are killed meanwhile, by other tests, are of this user too.
    let own = |shown: &str| !shown.starts_with("dead: ") || shown.contains(&place.mnt_text());
    assert_eq!(top(&[]).clean().text().lines().filter(|line| own(line) && *line != "no mounts").count(), 0);
    place.mounted("s3://bucket", &origin.url(), &[]);
    let (pid, mnt) = (place.pid().to_string(), place.mnt_text());
    for which in [&[][..], &[pid.as_str()], &[mnt.as_str()]] {
        let shown = top(which).clean();
        let lines: Vec<&str> = shown.text().lines().filter(|line| own(line)).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("IN/s") && lines[0].ends_with("MOUNT"), "{lines:?}");
        let line = lines[1].trim_start();
        assert!(line.starts_with(&pid) && line.ends_with(&format!("s3://bucket on {mnt}")), "{lines:?}");
    }
    assert_eq!(top(&["--json"]).clean().events()[0]["event"], "mount_stats");
    top(&["/nowhere"]).refused(1, &["/nowhere", "is no mount"]);
    place.unmounted();
}

#[test]
fn top_shows_what_is_dead_and_how_to_clear_it() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket/folder", &origin.url(), &[]);
    let (pid, mnt) = (place.pid(), place.mnt_text());
    // The kernel has it for a minute.
    fs::metadata(&mnt).unwrap();
    signal("KILL", pid);
    wait_until("its end", || !super::is_alive(pid));
    let remedy = format!("flatout umount {}", quoted(&mnt));
    let line = format!("dead: s3://bucket/folder/ on {mnt}: its process has gone: `{remedy}` clears it");
    for which in [None, Some(mnt.clone()), Some(format!("{mnt}/"))] {
        let which: Vec<&str> = which.iter().map(String::as_str).collect();
        let shown = run(&mut place.flatout(&[&["top", "--once"], &which[..]].concat())).clean();
        assert!(shown.text().lines().any(|shown| shown == line), "{which:?}: {}", shown.text());
        assert!(!shown.text().contains("no mounts"), "{}", shown.text());
    }
    let dead = run(&mut place.flatout(&["top", &mnt, "--once", "--json"])).clean().events().remove(0);
    let want = serde_json::json!({
        "v": 1, "event": "dead_mount", "source": "s3://bucket/folder/", "mount_point": mnt,
        "remedy": remedy,
    });
    assert_eq!(dead, want);
    place.umount(&[]).clean();
    run(&mut place.flatout(&["top", &mnt, "--once"])).refused(1, &["is no mount"]);
    place.is_clear();
}

#[test]
fn top_goes_on_until_ctrl_c() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    // Of this one: others may have died on this machine.
    let mut command = place.flatout(&["top", &place.mnt_text(), "--interval", "100ms"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        for part in ["PID", "s3://bucket"] {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut out, &mut line).unwrap();
            assert!(line.contains(part), "{line}");
        }
    }
    signal("INT", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    place.unmounted();
}

/// On a terminal it has a screen of its own, and gives the old one back.
#[test]
fn top_leaves_the_terminal_as_it_was() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    let program = env!("CARGO_BIN_EXE_flatout");
    let typescript = place.path().join("typescript");
    let mut command = std::process::Command::new("script");
    command.args([
        "--quiet",
        "--flush",
        "--command",
        &format!("exec {} top --interval 100ms", quoted(program)),
    ]);
    place.within(command.arg(&typescript));
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    // Ended also when this fails; its terminal goes with it, and so does what runs there.
    let mut script = User(command.spawn().unwrap());
    let shown = || fs::read_to_string(&typescript).unwrap_or_default();
    wait_until("two tables", || shown().matches("s3://bucket on").count() >= 2);
    // As the terminal sends it for ctrl-C.
    script.0.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    script.end();
    let shown = shown();
    let (at_first, last) =
        (shown.find("\x1b[?1049h\x1b[?25l").unwrap(), shown.rfind("\x1b[?25h\x1b[?1049l").unwrap());
    assert!(at_first < last, "{shown:?}");
    place.unmounted();
}

#[test]
fn the_numbers_go_to_a_file_at_the_end_and_when_asked() {
    let (origin, place) = (buckets(), Place::new());
    let file = place.path().join("stats.json");
    place.mounted("s3://bucket", &origin.url(), &["--stats", file.to_str().unwrap()]);
    let pid = place.pid();
    signal("USR1", pid);
    let read = || fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'));
    wait_until("the numbers", || read().is_some());
    assert_eq!(events(&read().unwrap())[0]["bytes"]["served"], 0);
    fs::read(place.at("large")).unwrap();
    place.unmounted();
    assert_eq!(events(&read().unwrap())[0]["bytes"]["served"], 3 << 20);
}

#[test]
fn without_a_file_the_log_has_the_numbers() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    signal("USR1", place.pid());
    wait_until("the numbers", || place.log().contains("\"event\":\"mount_stats\""));
    place.unmounted();
}

#[test]
fn a_service_manager_hears_that_it_stands() {
    let (origin, place) = (buckets(), Place::new());
    let path = place.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let heard = || {
        let mut got = [0; 64];
        let bytes = manager.recv(&mut got).unwrap();
        String::from_utf8(got[..bytes].to_vec()).unwrap()
    };
    let mut command = place.mount("s3://bucket", &origin.url(), &["--foreground"]);
    let mut child = command
        .env("NOTIFY_SOCKET", &path)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(heard(), "READY=1");
    assert!(place.is_mounted());
    signal("TERM", child.id());
    assert_eq!(heard(), "STOPPING=1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    place.is_clear();
}
