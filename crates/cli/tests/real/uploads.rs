//! Uploads to servers that nobody here wrote, read back by curl.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::bytes;
use crate::curl::target;
use crate::folder::Folder;
use crate::minio::Bucket;
use crate::program::{ended, run, signal, wait_until};
use crate::versitygw;

/// The shortest part that S3 takes.
const PART: usize = 5 << 20;

/// Files and streams of several lengths arrive, and the server compared the checksum.
#[track_caller]
fn check_arrive(bucket: &Bucket) {
    let folder = Folder::new();
    let file = folder.at("file");
    for length in [0, 1, 100_000, PART + 1, 4 * PART + 17] {
        let body = bytes(length);
        fs::write(&file, &body).unwrap();
        let url = bucket.s3("a folder/ü");
        let arguments =
            ["cp", &file, &url, "--part-size", "5MiB", "--json", "--metadata", "colour=dark blue"];
        let said = run(&mut bucket.flatout(&arguments)).clean();
        assert_eq!(said.events()[0]["verified"], "crc64nvme", "{length}: {}", said.text());
        let there = bucket.curl.ask("GET", &target(&bucket.name, "a folder/ü"), &[], None).is(200);
        assert!(there.body == body, "{length}: other bytes");
        assert_eq!(there.header("x-amz-meta-colour").as_deref(), Some("dark blue"), "{length}");

        let mut command = bucket.flatout(&["pipe", &bucket.s3("stream"), "--part-size", "5MiB"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&body).unwrap();
        ended(child.wait_with_output().unwrap()).clean();
        let there = bucket.curl.ask("GET", &target(&bucket.name, "stream"), &[], None).is(200);
        assert!(there.body == body, "a stream of {length}: other bytes");
    }
}

#[test]
fn files_and_streams_arrive_at_minio() {
    check_arrive(&Bucket::new("uploads-arrive"));
}

#[test]
fn files_and_streams_arrive_at_versitygw() {
    check_arrive(&versitygw::bucket("uploads-arrive"));
}

#[test]
fn conditions_are_kept_by_minio() {
    let (bucket, folder) = (Bucket::new("uploads-conditions"), Folder::new());
    let file = folder.at("file");
    fs::write(&file, b"second").unwrap();
    bucket.put("key", b"first", &[]);
    run(&mut bucket.flatout(&["cp", &file, &bucket.s3("key"), "--if-match", "0123"]))
        .refused(1, &["ETag is not"]);
    run(&mut bucket.flatout(&["cp", &file, &bucket.s3("key"), "-n"])).clean();
    let first = bucket.curl.ask("GET", &target(&bucket.name, "key"), &[], None).is(200);
    assert_eq!(first.body, b"first");
    let etag = first.header("etag").unwrap();
    run(&mut bucket.flatout(&["cp", &file, &bucket.s3("key"), "--if-match", &etag])).clean();
    let second = bucket.curl.ask("GET", &target(&bucket.name, "key"), &[], None).is(200);
    assert_eq!(second.body, b"second");
}

/// How many uploads the server keeps that have not ended.
pub fn unfinished(bucket: &Bucket) -> usize {
    let listed = bucket.curl.ask("GET", &format!("/{}?uploads=", bucket.name), &[], None).is(200);
    listed.text().matches("<UploadId>").count()
}

/// However it ends, no parts are left at the server.
#[test]
fn an_upload_that_is_broken_off_leaves_nothing_at_minio() {
    let (bucket, folder) = (Bucket::new("uploads-broken-off"), Folder::new());
    let file = folder.at("file");
    fs::write(&file, bytes(16 * PART)).unwrap();
    for name in ["INT", "TERM"] {
        let url = bucket.s3("key");
        let slowly = ["cp", &file, &url, "--part-size", "5MiB", "--bandwidth", "8MiB/s"];
        let mut command = bucket.flatout(&slowly);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the upload", || unfinished(&bucket) > 0 || child.try_wait().unwrap().is_some());
        signal(name, child.id());
        let ended = ended(child.wait_with_output().unwrap());
        assert_ne!(ended.code, Some(0), "{name}: {}", ended.stderr);
        assert_eq!(unfinished(&bucket), 0, "{name}: {}", ended.stderr);
        bucket.curl.ask("GET", &target(&bucket.name, "key"), &[], None).is(404);
    }
}
