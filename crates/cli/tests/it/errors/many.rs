//! Runs over many objects: what is said of each, and of what was left out.

use super::snapshot::{Case, Snapshot};
use crate::raw::{Answer, Asked, Raw, Then};

pub fn all(snapshot: &mut Snapshot) {
    snapshot.section("Many objects");
    copy(
        snapshot,
        "one is gone",
        bucket(&["a", "b", "c"], |asked| match asked.target().ends_with("/b") {
            true => Answer::new("404 Not Found", &[("Content-Length", "0")], b""),
            false => body(),
        }),
    );
    copy(
        snapshot,
        "one is denied",
        bucket(&["a", "b"], |asked| match asked.target().ends_with("/b") {
            true => Answer::new("403 Forbidden", &[("Content-Length", "0")], b""),
            false => body(),
        }),
    );
    copy(
        snapshot,
        "names that no file can have",
        bucket(&["../outside", "a/../b", "a//b", "plain", "line%0Abreak", "nul%00l"], |_| body()),
    );
    let keys = &["a", "b", "c", "d", "e", "f"];
    let gone = bucket(keys, |_| Answer::new("404 Not Found", &[("Content-Length", "0")], b""));
    copy(snapshot, "all are gone", gone);
    copy(snapshot, "a file and a folder of one name", bucket(&["a", "a/b"], |_| body()));
    let truncated = Raw::start(|asked| {
        match (asked.target().contains("list-type=2"), asked.target().contains("token")) {
            (true, false) => page(&["a"], true),
            (true, true) => Answer::new("500 Oops", &[("Content-Length", "0")], b"").then(Then::Close),
            _ => body(),
        }
    });
    copy(snapshot, "a listing that breaks off", truncated);
    snapshot.section("cat of several");
    let some = Raw::start(|asked| match asked.target() {
        "/a" => Answer::new("200 OK", &[("Content-Length", "1")], b"a"),
        _ => Answer::new("404 Not Found", &[("Content-Length", "0")], b""),
    });
    snapshot.line(&["cat", &some.url("a"), &some.url("b"), &some.url("c")]);
    dry_run(snapshot);
}

fn dry_run(snapshot: &mut Snapshot) {
    let raw = bucket(&["a//b"], |_| body());
    let url = format!("http://{}", raw.address);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("x");
    snapshot.run(Case::new(&[
        "cp",
        "-r",
        "s3://b",
        target.to_str().unwrap(),
        "--dry-run",
        "--endpoint-url",
        &url,
    ]));
}

fn copy(snapshot: &mut Snapshot, what: &str, raw: Raw) {
    let url = format!("http://{}", raw.address);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("x");
    snapshot.text += &format!("\n({what})\n");
    let line = [
        "cp",
        "-r",
        "s3://b",
        target.to_str().unwrap(),
        "--endpoint-url",
        &url,
        "--parallel",
        "1",
        "--retries",
        "0",
    ];
    snapshot.run(Case::new(&line));
}

fn bucket(keys: &'static [&'static str], get: fn(&Asked) -> Answer) -> Raw {
    Raw::start(move |asked| match asked.target().contains("list-type=2") {
        true => page(keys, false),
        false => get(asked),
    })
}

fn page(keys: &[&str], more: bool) -> Answer {
    let entry = |key: &&str| format!("<Contents><Key>{key}</Key><Size>1</Size><ETag>\"e\"</ETag></Contents>");
    let objects: String = keys.iter().map(entry).collect();
    let next = match more {
        true => "<IsTruncated>true</IsTruncated><NextContinuationToken>token</NextContinuationToken>",
        false => "",
    };
    let xml = format!("<ListBucketResult><EncodingType>url</EncodingType>{objects}{next}</ListBucketResult>");
    Answer::new("200 OK", &[("Content-Length", &xml.len().to_string())], xml.as_bytes())
}

fn body() -> Answer {
    Answer::new("200 OK", &[("Content-Length", "1"), ("ETag", "\"e\"")], b"a")
}
