//! Origins that are not there, are something else, or do not keep what they say.

use super::snapshot::{Case, Snapshot};
use crate::objects::bytes;
use crate::raw::{Answer, Asked, Raw, Then, ranged, right};
use crate::tls::Served;

const SIZE: usize = 1 << 20;

pub fn all(snapshot: &mut Snapshot) {
    unreachable(snapshot);
    tls(snapshot);
    proxies(snapshot);
    nonsense(snapshot);
    broken(snapshot);
}

fn unreachable(snapshot: &mut Snapshot) {
    snapshot.section("Origins that cannot be reached");
    for line in [
        // Nobody listens there, and no test can be given that port.
        &["cat", "http://127.0.0.1:1/x"][..],
        &["cat", "s3://bucket/key", "--endpoint-url", "http://127.0.0.1:1"],
        &["ls", "s3://bucket/", "--endpoint-url", "http://127.0.0.1:1"],
        &["ls", "--endpoint-url", "http://127.0.0.1:1"],
        &["stat", "oss://bucket/key", "--oss-endpoint", "127.0.0.1:1"],
        &["bench", "get", "http://127.0.0.1:1/x", "--repeat", "1"],
        &["bench", "sweep", "http://127.0.0.1:1/x", "--repeat", "1"],
        &["cat", "http://origin.invalid/x"],
        &["cat", "s3://bucket/key", "--endpoint-url", "http://minio.invalid:9000", "--addressing", "virtual"],
    ] {
        snapshot.line(&[line, &["--retries", "0"]].concat());
    }
}

fn tls(snapshot: &mut Snapshot) {
    snapshot.section("TLS");
    let served = Served::start(&[]);
    let address = served.url.trim_start_matches("https://").to_owned();
    let other = address.replace("127.0.0.1", "127.0.0.2");
    let to = |host: &str, scheme: &str| format!("{scheme}://{host}/bucket/key");
    let elsewhere = format!("{other}:127.0.0.1");
    let authority = served.authority();
    snapshot.line(&["cat", &to(&address, "https"), "--retries", "0"]);
    snapshot.line(&["cat", "s3://bucket/key", "--endpoint-url", &served.url, "--retries", "0"]);
    snapshot.line(&["cat", &to(&address, "http"), "--retries", "0"]);
    snapshot.line(&[
        "cat",
        "s3://bucket/key",
        "--endpoint-url",
        &format!("http://{address}"),
        "--retries",
        "0",
    ]);
    snapshot.line(&[
        "cat",
        &to(&other, "https"),
        "--ca-bundle",
        &authority,
        "--resolve",
        &elsewhere,
        "--retries",
        "0",
    ]);
    let object = bytes(SIZE);
    let plain = Raw::start(move |asked| right(asked, &object, "\"one\""));
    let url = plain.url("x").replace("http://", "https://");
    snapshot.line(&["cat", &url, "--retries", "0", "--connect-timeout", "200ms"]);
}

fn proxies(snapshot: &mut Snapshot) {
    snapshot.section("Proxies");
    let refuses = |status: &'static str| {
        Raw::start(move |_| Answer::new(status, &[("Content-Length", "0")], b"").then(Then::Close))
    };
    snapshot.line(&[
        "cat",
        "https://origin.invalid/x",
        "--proxy",
        "http://user:hunter2hunter2@127.0.0.1:1",
        "--retries",
        "0",
    ]);
    snapshot.run(
        Case::new(&["cat", "https://origin.invalid/x", "--retries", "0"])
            .env("HTTPS_PROXY", "http://127.0.0.1:1"),
    );
    for status in ["407 Proxy Authentication Required", "403 Forbidden", "502 Bad Gateway"] {
        let proxy = refuses(status);
        snapshot.text += &format!("\n({status})\n");
        for origin in ["https://origin.invalid/x", "http://origin.invalid/x"] {
            snapshot.line(&["cat", origin, "--proxy", &proxy.url(""), "--retries", "0"]);
        }
    }
}

fn nonsense(snapshot: &mut Snapshot) {
    snapshot.section("Something else than an origin of objects");
    let fixed =
        |bytes: &'static [u8]| Raw::start(move |_| Answer { bytes: bytes.to_vec(), then: Then::Close });
    for (what, bytes) in [
        ("SSH", &b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..]),
        ("nothing at all", b""),
        ("a head that breaks off", b"HTTP/1.1 200 OK\r\nContent-Le"),
        ("a redirect in a circle", b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"),
        ("a redirect to nowhere", b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"),
        ("a length that is none", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
    ] {
        let raw = fixed(bytes);
        snapshot.text += &format!("\n({what})\n");
        snapshot.line(&["cat", &raw.url("x"), "--retries", "0"]);
        // A HEAD has no body whose length could be wrong.
        if what != "a length that is none" {
            snapshot.line(&["stat", &raw.url("x"), "--retries", "0"]);
        }
    }
    let page = Raw::start(|_| {
        Answer::new("200 OK", &[("Content-Length", "13"), ("Content-Type", "text/html")], b"<html></html>")
    });
    let url = format!("http://{}", page.address);
    snapshot.text += "\n(a web page)\n";
    snapshot.line(&["ls", "s3://bucket/", "--endpoint-url", &url, "--retries", "0"]);
    snapshot.line(&["ls", "s3://", "--endpoint-url", &url, "--retries", "0"]);
    snapshot.line(&["ls", "oss://bucket/", "--oss-endpoint", &url, "--retries", "0"]);
}

/// Tried twice, in parts of a quarter of the object.
fn broken(snapshot: &mut Snapshot) {
    snapshot.section("Origins that do not keep what they say");
    let quick = [
        "--retries",
        "1",
        "--outage-timeout",
        "0s",
        "--part-size",
        "256KiB",
        "--parallel",
        "1",
        "--no-verify",
    ];
    let mut case = |what: &str, more: &[&str], answer: fn(&Asked, &[u8]) -> Answer| {
        let object = bytes(SIZE);
        let raw = Raw::start(move |asked| answer(asked, &object));
        snapshot.text += &format!("\n({what})\n");
        snapshot.line(&[&["cat", &raw.url("bucket/object")][..], &quick, more].concat());
    };
    case("replaced: 412", &[], |asked, object| match asked.number {
        0 => right(asked, object, "\"one\""),
        _ => Answer::new("412 Precondition Failed", &[("Content-Length", "0")], b""),
    });
    case("replaced: another ETag", &[], |asked, object| {
        right(asked, object, if asked.number > 0 { "\"two\"" } else { "\"one\"" })
    });
    case("truncated", &[], |asked, object| {
        let mut answer = right(asked, object, "\"one\"");
        if asked.number > 0 {
            let head = answer.bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            answer.bytes.truncate(head);
            answer.then = Then::Close;
        }
        answer
    });
    case("silent", &["--stall-timeout", "100ms"], |asked, object| {
        let mut answer = right(asked, object, "\"one\"");
        if asked.number > 0 {
            let head = answer.bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            answer.bytes.truncate(head);
            answer.then = Then::Silence;
        }
        answer
    });
    case("never an answer", &["--stall-timeout", "100ms"], |_, _| Answer {
        bytes: Vec::new(),
        then: Then::Silence,
    });
    case("another range", &[], |asked, object| match asked.number {
        0 => right(asked, object, "\"one\""),
        _ => ranged(&object[asked.range(SIZE)], "bytes 1-262144/1048576", "\"one\""),
    });
    case("another size", &[], |asked, object| match asked.number {
        0 => right(asked, object, "\"one\""),
        _ => ranged(&object[asked.range(SIZE)], "bytes 262144-524287/2097152", "\"one\""),
    });
    case("no Content-Range", &[], |_, object| {
        Answer::new("206 Partial Content", &[("Content-Length", "262144")], &object[..262_144])
    });
    case("many ranges at once", &[], |_, _| {
        Answer::new(
            "206 Partial Content",
            &[("Content-Length", "4"), ("Content-Type", "multipart/byteranges; boundary=x")],
            b"--x\n",
        )
    });
    case("no ranges at all", &["--range", "5-9"], |_, object| {
        Answer::new("200 OK", &[("Content-Length", "1048576")], object)
    });
    case("no ranges any more", &[], |asked, object| match asked.number {
        0 => right(asked, object, "\"one\""),
        _ => Answer::new("200 OK", &[("Content-Length", "1048576"), ("ETag", "\"one\"")], object),
    });
    case("busy", &[], |_, _| Answer::new("503 Slow Down", &[("Content-Length", "0")], b""));
    case("failing", &[], |_, _| Answer::new("500 Oops", &[("Content-Length", "0")], b""));
    let mute = Raw::start(|_| Answer { bytes: Vec::new(), then: Then::Silence });
    snapshot.text += "\n(never an answer)\n";
    snapshot.line(&[
        "stat",
        &mute.url("bucket/object"),
        "--retries",
        "1",
        "--outage-timeout",
        "0s",
        "--stall-timeout",
        "100ms",
    ]);
    corrupt(snapshot);
}

fn corrupt(snapshot: &mut Snapshot) {
    let object = bytes(SIZE);
    let raw = Raw::start(move |asked| match asked.method() {
        "HEAD" => Answer::new(
            "200 OK",
            &[
                ("Content-Length", "1048576"),
                ("ETag", "\"one\""),
                ("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="),
                ("x-amz-checksum-type", "FULL_OBJECT"),
            ],
            b"",
        ),
        _ => right(asked, &object, "\"one\""),
    });
    let url = format!("http://{}", raw.address);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("x");
    snapshot.text += "\n(the checksum is another)\n";
    snapshot.run(Case::new(&["cp", "s3://bucket/object", target.to_str().unwrap(), "--endpoint-url", &url]));
    assert!(!target.exists());
}
