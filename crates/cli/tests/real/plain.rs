//! Plain HTTP: files that nginx serves.

use std::fs;

use crate::flatout;
use crate::folder::Folder;
use crate::nginx::Site;
use crate::program::run;
use crate::{bytes, curl};

const SMALL_PARTS: [&str; 2] = ["--part-size", "64KiB"];

/// `flatout cp URL` gives these bytes, and nothing else is left in the folder.
#[track_caller]
fn check(url: &str, more: &[&str], want: &[u8]) {
    let folder = Folder::new();
    let target = folder.at("model");
    run(&mut flatout(&[&["cp", url, &target], more].concat())).clean();
    assert!(fs::read(&target).unwrap() == want, "{url}: other bytes");
    assert_eq!(folder.names(), ["model"], "{url}");
}

#[test]
fn files_of_all_sizes_arrive_as_they_are() {
    let site = Site::new("plain-sizes");
    let part = 64 << 10;
    for size in [0, 1, part - 1, part, part + 1, 2 * part, 5 * part + 77] {
        let body = bytes(size);
        check(&site.put(&format!("{size}"), &body), &SMALL_PARTS, &body);
    }
}

#[test]
fn a_large_file_arrives_with_default_settings() {
    let body = bytes((40 << 20) + 12_345);
    check(&Site::new("plain-large").put("model", &body), &[], &body);
}

#[test]
fn a_large_file_arrives_through_several_shards() {
    let body = bytes((20 << 20) + 1);
    check(&Site::new("plain-shards").put("model", &body), &["--shards", "2", "--part-size", "256KiB"], &body);
}

#[test]
fn a_range_is_what_was_asked_for() {
    let body = bytes(300_000);
    let url = Site::new("plain-range").put("model", &body);
    for (range, want) in [
        ("0-0", &body[..1]),
        ("100000-199999", &body[100_000..200_000]),
        ("299999-", &body[299_999..]),
        ("-7", &body[299_993..]),
    ] {
        check(&url, &["--range", range, "--part-size", "64KiB"], want);
    }
}

#[test]
fn cat_writes_the_bytes_in_order() {
    let body = bytes((3 << 20) + 5);
    let url = Site::new("plain-cat").put("model", &body);
    let ended = run(&mut flatout(&["cat", &url, "--part-size", "64KiB", "--window", "256KiB"])).clean();
    assert!(ended.stdout == body, "other bytes");
}

#[test]
fn odd_names_are_asked_for_as_given() {
    let site = Site::new("plain-names");
    for name in ["a b", "ä€", "a+b", "100%", "x/y", "a#b", "a?b=c"] {
        let body = bytes(1000 + name.len());
        site.put(name, &body);
        check(&format!("{}/{}", site.url, curl::encoded(name)), &[], &body);
    }
}

#[test]
fn a_server_without_ranges_gives_one_stream() {
    let body = bytes(1 << 20);
    check(&Site::new("whole").put("model", &body), &SMALL_PARTS, &body);
}

#[test]
fn a_server_that_closes_connections_is_asked_again() {
    let body = bytes(1 << 20);
    check(
        &Site::new("closing").put("model", &body),
        &[&SMALL_PARTS[..], &["--retries", "0"]].concat(),
        &body,
    );
}

#[test]
fn a_refusal_says_what_and_why() {
    let site = Site::new("plain-refused");
    let at = |path: &str| site.url.replace("plain-refused", path);
    for (url, code, says) in [
        (at("plain-refused/nothing"), 1, "no such object"),
        (at("forbidden/x"), 5, "403"),
        (at("busy/x"), 6, "503"),
    ] {
        let folder = Folder::new();
        run(&mut flatout(&["cp", &url, &folder.at("model"), "--retries", "1", "--outage-timeout", "0s"]))
            .refused(code, &[says, &url]);
        folder.is_untouched();
    }
}
