//! `flatout doctor`: what it says of this machine and of origins on good and bad days. Nothing here looks at
//! how fast anything is.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flatout_wire::time::format_http;
use serde_json::Value;

use crate::folder::Folder;
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY, bytes, start, synthetic};
use crate::program::{Ended, ended, flatout, run, shell, signal};
use crate::raw::{Answer, Asked, Raw, Then, right};
use crate::tls::Served;

const MIB: usize = 1 << 20;
const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)];

/// The findings by topic, and the summary.
struct Sheet {
    findings: BTreeMap<String, Value>,
    summary: Value,
    code: Option<i32>,
}

/// `flatout doctor … --json`.
#[track_caller]
fn examine(command: &mut Command) -> Sheet {
    let ended = run(command.arg("--json"));
    assert_eq!(ended.stderr, "", "{}", ended.text());
    let mut events = ended.events();
    let summary = events.pop().expect("a summary");
    assert_eq!((&summary["event"], &summary["action"]), (&"summary".into(), &"doctor".into()));
    assert_eq!(summary["exit"].as_i64(), ended.code.map(i64::from));
    let count = |level: &str| events.iter().filter(|event| event["level"] == level).count();
    for (level, field) in [("good", "good"), ("note", "notes"), ("bad", "bad")] {
        assert_eq!(summary[field], count(level), "{events:?}");
    }
    for event in &events {
        assert_eq!(event["event"], "finding");
        assert!(event["facts"].is_object() && event["found"].is_string(), "{event}");
        assert!(event["level"] == "good" || event["advice"].is_string(), "{event}");
    }
    let findings = events.into_iter().map(|event| (event["topic"].as_str().unwrap().to_owned(), event));
    Sheet { findings: findings.collect(), summary, code: ended.code }
}

impl Sheet {
    #[track_caller]
    fn topic(&self, topic: &str) -> &Value {
        self.findings.get(topic).unwrap_or_else(|| panic!("no {topic} in {:?}", self.findings.keys()))
    }

    /// The finding of that topic is of that level and holds all of `says`.
    #[track_caller]
    fn says(&self, topic: &str, level: &str, says: &[&str]) -> &Sheet {
        let finding = self.topic(topic);
        assert_eq!(finding["level"], level, "{finding}");
        for part in says {
            assert!(finding.to_string().contains(part), "{finding} lacks {part:?}");
        }
        self
    }

    #[track_caller]
    fn ends(&self, code: i32) -> &Sheet {
        assert_eq!(self.code, Some(code), "{}: {:?}", self.summary, self.findings);
        self
    }

    #[track_caller]
    fn lacks(&self, topics: &[&str]) -> &Sheet {
        for topic in topics {
            assert!(!self.findings.contains_key(*topic), "{}", self.findings[*topic]);
        }
        self
    }
}

fn at(url: &str, more: &[&str]) -> Command {
    let mut command = flatout(&["doctor", url, "--part-size", "256KiB", "--parallel", "2"]);
    command.args(more);
    command
}

#[test]
fn without_a_url_this_machine_is_examined_and_nothing_else() {
    let folder = Folder::new();
    let mut command = flatout(&["doctor", "--parallel", "3"]);
    let sheet = examine(command.env("TMPDIR", folder.path()).env("FLATOUT_RETRIES", "7").envs(KEYS));
    sheet.says("settings", "good", &["parallel 3 (--parallel)", "retries 7 (FLATOUT_RETRIES)"]);
    sheet.says("keys for s3", "good", &["environment …MPLE"]).says(
        "keys for oss",
        "good",
        &["none", "OSS_ACCESS_KEY_ID"],
    );
    for topic in ["cores", "memory", "open files", "locked memory", "this folder", "endpoint", "scheme"] {
        sheet.topic(topic);
    }
    assert!(sheet.topic("cores")["facts"]["usable"].as_f64().is_some_and(|cores| cores > 0.0));
    assert_eq!(sheet.topic("TMPDIR")["facts"]["path"], folder.path().display().to_string());
    sheet.says("endpoint", "good", &["https://s3.us-east-1.amazonaws.com:443"]);
    sheet.lacks(&["addresses", "access", "clock", "speed"]).ends(0);
    folder.is_untouched();
    let nobody = examine(&mut flatout(&["doctor"]));
    nobody.says("keys for s3", "note", &["environment: AWS_ACCESS_KEY_ID", "unsigned"]).ends(0);
    let half = examine(flatout(&["doctor"]).env("AWS_ACCESS_KEY_ID", ACCESS_KEY));
    half.says("keys for s3", "bad", &["AWS_SECRET_ACCESS_KEY is not"]).ends(5);
}

#[test]
fn people_read_it_in_80_columns() {
    let ended = run(&mut flatout(&["doctor", "--oss-region", "cn-hangzhou"])).clean();
    let text = ended.text();
    for line in text.lines() {
        let levels = ["  good  ", "  note  ", "  bad   ", "                       "];
        let heading = line.starts_with(|first: char| first.is_ascii_alphanumeric());
        assert!(heading || levels.iter().any(|level| line.starts_with(level)), "{line:?}");
        // A path or a name may be longer than a line.
        assert!(line.chars().count() <= 80 || !line.trim().contains(' '), "{line:?}");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    assert!(text.starts_with("Machine\n  good  ") || text.starts_with("Machine\n  note  "), "{text}");
    assert!(text.lines().last().unwrap().starts_with("0 bad, "), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("-> if this machine is Alibaba Cloud's in cn-hangzhou: --oss-endpoint oss-cn-hangzhou-internal.aliyuncs.com"), "{text}");
    // When quiet, what is good is left out.
    let quiet = run(&mut flatout(&["doctor", "-q", "--oss-region", "cn-hangzhou"])).clean();
    assert!(
        !quiet.text().contains("  good  ") && quiet.text().contains("-internal.aliyuncs.com"),
        "{}",
        quiet.text()
    );
}

#[test]
fn an_object_is_read_for_a_second() {
    let origin = synthetic(4 << 30);
    let url = origin.url();
    let sheet = examine(&mut at("s3://demo/object", &["--endpoint-url", &url]));
    sheet.says("endpoint", "good", &[&url]).says("scheme", "good", &["http"]);
    sheet.says("addresses", "good", &["1, as written"]).says("interface", "good", &["this machine itself"]);
    sheet.says("access", "good", &["read of s3://demo/object allowed", "4GiB"]).says(
        "clock",
        "good",
        &["agrees"],
    );
    let address = &sheet.topic("addresses")["facts"]["addresses"][0];
    assert_eq!(address["address"], url.trim_start_matches("http://"));
    let ms = |name: &str| address["connect_ms"][name].as_f64().unwrap();
    assert!(0.0 < ms("min") && ms("min") <= ms("median") && ms("median") <= ms("max"), "{address}");
    let speed = &sheet.topic("speed")["facts"];
    for field in ["gbit", "gbit_peak", "bytes", "seconds", "connections", "mb_per_s_each"] {
        assert!(speed[field].as_f64().is_some_and(|figure| figure > 0.0), "{field}: {speed}");
    }
    assert_eq!(speed["retries"], 0);
    assert!(sheet.topic("first byte")["facts"]["cold_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    assert!(sheet.topic("limit")["facts"]["by"].is_string());
    sheet.ends(0);
}

#[test]
fn the_largest_object_of_a_listing_stands_for_all() {
    let buckets =
        Buckets::new(&[("bucket/a/small", b"bytes"), ("bucket/a/large", &bytes(MIB)), ("bucket/empty", b"")]);
    let endpoint = buckets.url();
    for url in ["s3://bucket", "s3://bucket/a/", "s3://bucket/a/l"] {
        let sheet = examine(&mut at(url, &["--endpoint-url", &endpoint]));
        sheet.says("access", "good", &["list of s3://bucket", "s3://bucket/a/large", "1MiB"]);
        sheet.says("speed", "good", &["s3://bucket/a/large"]).ends(0);
    }
    let small = examine(&mut at("s3://bucket/a/small", &["--endpoint-url", &endpoint]));
    small.says("limit", "note", &["of 5B is too small"]).ends(0);
    let empty = examine(&mut at("s3://bucket/empty", &["--endpoint-url", &endpoint]));
    empty.says("access", "good", &["s3://bucket/empty, 0B"]).lacks(&["speed"]).ends(0);
    std::fs::create_dir(buckets.root().join("bare")).unwrap();
    let bare = examine(&mut at("s3://bare", &["--endpoint-url", &endpoint]));
    bare.says("access", "note", &["0 keys", "nothing to measure"]).lacks(&["speed"]).ends(0);
    let plain = examine(&mut at(&format!("{endpoint}/bucket/a/large"), &[]));
    plain.says("access", "good", &["1MiB"]).lacks(&["keys for s3", "keys for oss"]).ends(0);
    assert_eq!(std::fs::read_dir(buckets.root().join("bucket/a")).unwrap().count(), 2, "nothing is written");
}

#[test]
fn tls_is_told_of() {
    let served = Served::start(&[]);
    let trust = ["--ca-bundle", &served.authority()];
    let sheet = examine(&mut at(&format!("{}/bucket/key", served.url), &trust));
    sheet.says("TLS", "good", &["TLS 1.3", "handshake"]).says("scheme", "good", &["twice the CPU"]).ends(0);
    assert!(sheet.topic("addresses")["facts"]["addresses"][0]["handshake_ms"].is_f64());
    let stranger = examine(&mut at(&format!("{}/bucket/key", served.url), &[]));
    stranger.says("addresses", "bad", &["signed by nobody that is trusted here", "--ca-bundle"]);
    stranger.lacks(&["access", "speed"]).ends(1);
}

#[test]
fn oss_in_its_own_dialect() {
    let auth = Some((ACCESS_KEY.to_owned(), SECRET_KEY.to_owned()));
    let store = flatout_server::Store::Synthetic(vec![("bucket".into(), "key".into(), 64 << 20)], vec![]);
    let origin = start(store, auth);
    let address = origin.addresses()[0];
    let host = "bucket.oss-cn-hangzhou.aliyuncs.com";
    let endpoint = format!("http://oss-cn-hangzhou.aliyuncs.com:{}", address.port());
    let resolve = format!("{host}:{}:127.0.0.1,127.0.0.9", address.port());
    let more = ["--oss-endpoint", &endpoint, "--resolve", &resolve];
    let keys = [("OSS_ACCESS_KEY_ID", ACCESS_KEY), ("OSS_ACCESS_KEY_SECRET", SECRET_KEY)];
    let sheet = examine(at("oss://bucket/key", &more).envs(keys));
    sheet.says("keys for oss", "good", &["environment", "…MPLE"]).lacks(&["keys for s3"]);
    sheet.says(
        "endpoint",
        "note",
        &[host, "seems to be in or near cn-hangzhou: --oss-endpoint oss-cn-hangzhou-internal.aliyuncs.com"],
    );
    sheet.says("addresses", "note", &["2, of which 1 cannot be talked to", "127.0.0.9", "--resolve"]);
    sheet.says("access", "good", &["oss://bucket/key", "64MiB"]).says("speed", "good", &[]).ends(0);
    let wrong = [("OSS_ACCESS_KEY_ID", ACCESS_KEY), ("OSS_ACCESS_KEY_SECRET", "wrong-wrong-wrong")];
    let refused = examine(at("oss://bucket", &more).envs(wrong));
    refused.says("access", "bad", &["oss://bucket", "SignatureDoesNotMatch"]).lacks(&["speed"]).ends(5);
}

#[test]
fn refusals_are_said_in_words() {
    let locked = Buckets::locked(&[("bucket/key", &bytes(MIB))]);
    let endpoint = locked.url();
    let to = ["--endpoint-url", endpoint.as_str()];
    let wrong = [KEYS[0], ("AWS_SECRET_ACCESS_KEY", "wrong-wrong-wrong")];
    let sheet = examine(at("s3://bucket/key", &to).envs(wrong));
    sheet.says("access", "bad", &["s3://bucket/key", "SignatureDoesNotMatch"]).ends(5);
    let unsigned = examine(&mut at("s3://bucket/key", &to));
    unsigned
        .says("keys for s3", "note", &["AWS_ACCESS_KEY_ID"])
        .says("access", "bad", &["AccessDenied"])
        .ends(5);
    let none = examine(at("s3://nobucket", &to).envs(KEYS));
    none.says("access", "bad", &["NoSuchBucket", "s3://nobucket"]).lacks(&["speed"]).ends(1);
    let missing = examine(at("s3://bucket/nothing", &to).envs(KEYS));
    missing.says("access", "bad", &["no such object"]).ends(1);
}

#[test]
fn a_missing_object_is_told_of_as_what_was_asked_for() {
    let locked = Buckets::locked(&[("bucket/key", &bytes(MIB))]);
    let endpoint = locked.url();
    let sheet = examine(at("s3://bucket/nothing", &["--endpoint-url", &endpoint]).envs(KEYS));
    sheet.says("access", "bad", &["no such object"]).ends(1);
    assert_eq!(sheet.topic("access")["facts"]["asked"], "read of s3://bucket/nothing");
}

#[test]
fn a_listing_is_asked_for_one_page_and_what_then_fails_is_the_read() {
    let pages = Arc::new(AtomicUsize::new(0));
    let counted = pages.clone();
    let raw = Raw::start(move |asked: &Asked| {
        let (status, body) = match asked.target().contains("list-type=2") {
            true => {
                let page = counted.fetch_add(1, Ordering::Relaxed);
                let object =
                    format!("<Contents><Key>{page}</Key><Size>1000</Size><ETag>\"e\"</ETag></Contents>");
                let next = format!("<NextContinuationToken>{page}</NextContinuationToken>");
                let more = format!("<IsTruncated>true</IsTruncated>{next}");
                ("200 OK", format!("<ListBucketResult>{object}{more}</ListBucketResult>"))
            }
            false if asked.method() == "HEAD" => ("403 Forbidden", String::new()),
            false => ("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>".to_owned()),
        };
        Answer::new(status, &[("Content-Length", &body.len().to_string())], body.as_bytes())
    });
    let endpoint = format!("http://{}", raw.address);
    let sheet = examine(at("s3://bucket", &["--endpoint-url", &endpoint]).envs(KEYS));
    sheet.says("access", "bad", &["read: s3://bucket/0: access denied (403 AccessDenied"]).ends(5);
    assert_eq!(sheet.topic("access")["facts"]["asked"], "read of s3://bucket/0");
    assert_eq!(pages.load(Ordering::Relaxed), 1);
}

#[test]
fn who_has_the_keys_is_asked_once() {
    let locked = Buckets::locked(&[("bucket/key", &bytes(MIB))]);
    let folder = tempfile::tempdir().unwrap();
    let (config, asked) = (folder.path().join("config"), folder.path().join("asked"));
    let script = folder.path().join("keys.sh");
    let keys =
        format!(r#"{{"Version": 1, "AccessKeyId": "{ACCESS_KEY}", "SecretAccessKey": "{SECRET_KEY}"}}"#);
    std::fs::write(&script, format!("echo >>'{}'\necho '{keys}'\n", asked.display())).unwrap();
    std::fs::write(&config, format!("[default]\ncredential_process = sh \"{}\"\n", script.display()))
        .unwrap();
    let endpoint = locked.url();
    let sheet =
        examine(at("s3://bucket/key", &["--endpoint-url", &endpoint]).env("AWS_CONFIG_FILE", &config));
    sheet.says("keys for s3", "good", &["profile default"]).says("access", "good", &["1MiB"]).ends(0);
    assert_eq!(std::fs::read_to_string(&asked).unwrap().lines().count(), 1);
}

/// An origin whose clock is `ahead_s` ahead of ours, and which refuses what is signed too far from it.
fn in_time_zone(ahead_s: i64) -> Raw {
    Raw::start(move |asked: &Asked| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let date = format_http(now.saturating_add_signed(ahead_s));
        if ahead_s.abs() > 900 && asked.header("authorization").is_some() {
            let head = format!("HTTP/1.1 403 Forbidden\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n");
            return Answer { bytes: head.into_bytes(), then: Then::Listen };
        }
        let answer = right(asked, &bytes(MIB), "\"v1\"");
        let text = format!("HTTP/1.1 206 Partial Content\r\nDate: {date}\r\n");
        let end = answer.bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let head =
            if asked.method() == "HEAD" { text.replace("206 Partial Content", "200 OK") } else { text };
        Answer { bytes: [head.as_bytes(), &answer.bytes[end..]].concat(), then: Then::Listen }
    })
}

#[test]
fn clocks_that_differ() {
    for (ahead_s, level, says, code) in
        [(0, "good", "agrees", 0), (300, "note", "behind", 0), (-7_300, "bad", "2 h ahead of", 5)]
    {
        let raw = in_time_zone(ahead_s);
        let endpoint = format!("http://{}", raw.address);
        let sheet = examine(at("s3://bucket/key", &["--endpoint-url", &endpoint]).envs(KEYS));
        sheet.says("clock", level, &[says]).ends(code);
        let level = if ahead_s == 0 { "good" } else { "note" };
        let plain = examine(&mut at(&raw.url("bucket/key"), &[]));
        plain.says("clock", level, &[says]).ends(0);
        let unsigned = ["--no-sign-request", "--endpoint-url", &endpoint];
        let unsigned = examine(&mut at("s3://bucket/key", &unsigned));
        unsigned.says("clock", level, &[says]).says("access", "good", &["1MiB"]).ends(0);
    }
}

#[test]
fn dead_ends_end_soon() {
    // The kernel completes connects; nobody ever accepts them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let quick = ["--connect-timeout", "300ms", "--stall-timeout", "300ms", "--retries", "0"];
    let sheet = examine(&mut at(&format!("http://{address}/x"), &quick));
    sheet
        .says("addresses", "good", &[])
        .says("access", "bad", &["http://127.0.0.1"])
        .lacks(&["speed"])
        .ends(1);
    let tls = examine(&mut at(&format!("https://{address}/x"), &quick));
    tls.says("addresses", "bad", &["TLS handshake"]).lacks(&["access"]).ends(1);
    let closed = examine(&mut at("http://127.0.0.1:1/x", &[]));
    closed.says("addresses", "bad", &["127.0.0.1:1", "refused", "nothing can be fetched"]).ends(1);
    let unknown = examine(&mut at("http://nowhere.invalid/x", &quick));
    unknown.says("addresses", "bad", &["cannot resolve nowhere.invalid", "--resolve"]).ends(1);
    let nobody = examine(&mut at(
        "http://h.invalid/x",
        &["--resolve", "h.invalid:127.0.0.9,127.0.0.8", "--proxy", ""],
    ));
    nobody.says("addresses", "bad", &["2, of which 2"]).ends(1);
}

#[test]
fn a_proxy_is_in_the_way() {
    // It knows no CONNECT: what it is handed over whole it answers itself.
    let proxy = Raw::start(|asked| {
        assert!(asked.target().starts_with("http://origin.invalid/"), "{}", asked.target());
        right(asked, &bytes(MIB), "\"v1\"")
    });
    let through = format!("http://user:PASSWORDPASSWORD@{}", proxy.address);
    let sheet = examine(&mut at("http://origin.invalid/x", &["--proxy", &through]));
    sheet.says("proxy", "note", &[&format!("http://{}", proxy.address), "name origin.invalid in --no-proxy"]);
    sheet.says("access", "good", &["1MiB"]).ends(0);
    assert!(!format!("{:?}", sheet.findings).contains("PASSWORD"), "{:?}", sheet.findings);
}

#[test]
fn a_server_without_ranges_sends_one_stream() {
    let raw = Raw::start(|_| {
        let body = bytes(4 * MIB);
        Answer::new("200 OK", &[("Content-Length", &body.len().to_string())], &body).then(Then::Close)
    });
    let sheet = examine(&mut at(&raw.url("big"), &[]));
    sheet.says("access", "good", &["4MiB"]).says("limit", "note", &["one stream and no ranges"]).ends(0);
    assert_eq!(sheet.topic("speed")["facts"]["connections"], 1);
}

#[test]
fn limits_of_the_process_are_seen() {
    let line = "ulimit -n 128; exec \"$0\" doctor --parallel 200 --json";
    let ended: Ended = run(&mut shell(line, &[]));
    assert_eq!(ended.code, Some(1), "{}", ended.text());
    let finding = ended.events().into_iter().find(|event| event["topic"] == "open files").unwrap();
    assert_eq!((&finding["level"], &finding["facts"]["soft"]), (&"bad".into(), &128.into()));
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    for (arguments, says) in [
        (&["doctor", "model.safetensors"][..], &["examine: model.safetensors", "s3://model.safetensors"][..]),
        (&["doctor", "s3://"], &["no bucket"]),
        (&["doctor", "ftp://user:PASSWORDPASSWORD@host/x"], &["ftp://"]),
        (&["doctor", "oss://bucket"], &["oss:// needs a region or an endpoint"]),
        (&["doctor", "s3://bucket", "--endpoint-url", "h:1"], &["settings", "h:1"]),
        (&["doctor", "--ca-bundle", "/nowhere/ca.pem"], &["/nowhere/ca.pem"]),
        (&["doctor", "--paralel", "3"], &["'--parallel'"]),
        (&["doctor", "a", "b"], &["'b'"]),
        (&["version", "--verbos"], &["'--verbose'"]),
    ] {
        run(&mut flatout(arguments)).refused(4, says);
    }
    run(flatout(&["doctor"]).env("FLATOUT_PARALEL", "1")).refused(4, &["FLATOUT_PARALEL"]);
}

#[test]
fn an_interrupt_ends_it_at_once() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", silent.local_addr().unwrap());
    let mut command = flatout(&["doctor", &url]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // What is known is shown before anything is waited for.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("  good  addresses")));
    signal("INT", child.id());
    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), ""));
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let ended = run(&mut shell("exec \"$0\" doctor | head -1", &[])).clean();
    assert_eq!(ended.text(), "Machine\n");
}

#[test]
fn the_version_tells_what_a_bug_report_needs() {
    let short = run(&mut flatout(&["version"])).clean();
    assert_eq!(short.text().lines().count(), 1);
    let mut command = flatout(&["version", "--verbose"]);
    let long =
        run(command.env("FLATOUT_ENDPOINT_URL", "http://user:PASSWORDPASSWORD@h").env("FLATOUT_SHARDS", "3"));
    let text = long.clean().text().to_owned();
    assert!(text.starts_with(short.text()), "{text}");
    for part in ["rustc 1.", "rustls 0.", "kernel ", "setting     shards 3 (FLATOUT_SHARDS)", "http://***@h"]
    {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    let events = run(&mut flatout(&["version", "--verbose", "--json"])).clean().events();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert!(event["target"].as_str().is_some_and(|target| target.contains("linux")), "{event}");
    assert!(event["libraries"].as_array().is_some_and(|libraries| libraries.len() >= 3), "{event}");
    assert!(event["settings"].is_array() && event["settings_error"].is_null(), "{event}");
    // Settings that are wrong are no reason to tell nothing.
    let mut wrong = flatout(&["version", "--verbose"]);
    let wrong = run(wrong.env("FLATOUT_PARALEL", "3")).clean();
    assert!(wrong.text().contains("settings    FLATOUT_PARALEL"), "{}", wrong.text());
}

#[test]
fn a_waiting_connect_is_given_up() {
    // A queue of one that is full: further connects are not answered at all.
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = full.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(connection) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        held.push(connection);
    }
    let sheet = examine(&mut at(&format!("http://{address}/x"), &["--connect-timeout", "300ms"]));
    sheet.says("addresses", "bad", &["timed out", "nothing can be fetched"]).ends(1);
    drop(held);
}
