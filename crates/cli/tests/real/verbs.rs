//! Deletions, copies, moves, buckets, presigned URLs and unfinished uploads at servers that nobody here
//! wrote, looked at by curl.

use std::fs;

use crate::bytes;
use crate::curl::{Curl, target};
use crate::folder::Folder;
use crate::minio::Bucket;
use crate::program::run;
use crate::versitygw;

/// The shortest part that S3 takes.
const PART: usize = 5 << 20;

/// The keys that a bucket has, by curl.
fn keys(bucket: &Bucket) -> Vec<String> {
    let listed = bucket.curl.ask("GET", &format!("/{}?list-type=2", bucket.name), &[], None).is(200);
    let text = listed.text();
    text.split("<Key>").skip(1).map(|rest| rest.split_once("</").unwrap().0.to_owned()).collect()
}

/// How many uploads are unfinished, by curl.
fn uploads(bucket: &Bucket) -> usize {
    let listed = bucket.curl.ask("GET", &format!("/{}?uploads=", bucket.name), &[], None).is(200);
    listed.text().matches("<UploadId>").count()
}

/// Whole and in parts: bytes, metadata, headers and tags.
#[track_caller]
fn check_copies(bucket: &Bucket) {
    for length in [0, 100_000, 3 * PART + 17] {
        let body = bytes(length);
        let described =
            ["x-amz-meta-colour: dark blue", "Cache-Control: max-age=3", "x-amz-tagging: a=b%20c&d=e"];
        bucket.put("from/ü 1", &body, &described);
        let (from, to) = (bucket.s3("from/ü 1"), bucket.s3("to/"));
        let copy = ["cp", &from, &to, "--part-size", "5MiB", "--json"];
        let event = &run(&mut bucket.flatout(&copy)).clean().events()[0];
        assert_eq!((&event["bytes"], &event["fetched"]), (&length.into(), &0.into()), "{event}");
        let there = bucket.curl.ask("GET", &target(&bucket.name, "to/ü 1"), &[], None).is(200);
        assert!(there.body == body, "{length}: other bytes");
        assert_eq!(there.header("x-amz-meta-colour").as_deref(), Some("dark blue"), "{length}");
        assert_eq!(there.header("cache-control").as_deref(), Some("max-age=3"), "{length}");
        assert_eq!(there.header("content-type").as_deref(), Some("application/octet-stream"), "{length}");
        assert_eq!(event["etag"].as_str(), there.header("etag").as_deref(), "{length}");
        let tags = format!("{}?tagging=", target(&bucket.name, "to/ü 1"));
        let tags = bucket.curl.ask("GET", &tags, &[], None).is(200).text();
        for tag in ["<Key>a</Key><Value>b c</Value>", "<Key>d</Key><Value>e</Value>"] {
            assert!(tags.contains(tag), "{length}: {tag}: {tags}");
        }
        let other = ["cp", &from, &to, "--part-size", "5MiB", "--metadata", "colour=red", "--tagging", "x=y"];
        run(&mut bucket.flatout(&other)).clean();
        let there = bucket.curl.ask("HEAD", &target(&bucket.name, "to/ü 1"), &[], None).is(200);
        assert_eq!(there.header("x-amz-meta-colour").as_deref(), Some("red"), "{length}");
        assert_eq!(there.header("cache-control").as_deref(), Some("max-age=3"), "{length}");
    }
    assert_eq!(uploads(bucket), 0);
}

#[test]
fn copies_at_minio() {
    check_copies(&Bucket::new("verbs-copies"));
}

#[test]
fn copies_at_versitygw() {
    check_copies(&versitygw::bucket("verbs-copies"));
}

#[track_caller]
fn check_deletions(bucket: &Bucket) {
    bucket.curl.put_many(&bucket.name, "many/[1-1100]", b"xy");
    let odd = ["many/a b", "many/ä€ 日本", "many/a+b", "many/100%", "many/a&b=c<d>", "many/it's!(*)"];
    for key in odd.iter().chain(&["other", "many.txt"]) {
        bucket.put(key, b"xy", &[]);
    }
    let planned = run(&mut bucket.flatout(&["rm", "-r", &bucket.s3("many"), "--dry-run"])).clean();
    assert_eq!(planned.text().matches("would delete ").count(), 1_100 + odd.len());
    let said = run(&mut bucket.flatout(&["rm", &bucket.s3("many/1*")])).clean();
    assert!(said.text().starts_with("deleted 213 objects, "), "{}", said.text());
    let said = run(&mut bucket.flatout(&["rm", "-r", &bucket.s3("many"), "--json"])).clean();
    let summary = said.events().pop().unwrap();
    assert_eq!((&summary["ok"], &summary["failed"]), (&893.into(), &0.into()), "{summary}");
    assert_eq!(keys(bucket), ["many.txt", "other"]);
    run(&mut bucket.flatout(&["rm", &bucket.s3("other")])).clean();
    run(&mut bucket.flatout(&["rm", &bucket.s3("other")])).refused(1, &["no such object"]);
    assert_eq!(keys(bucket), ["many.txt"]);
}

#[test]
fn deletions_at_minio() {
    check_deletions(&Bucket::new("verbs-deletions"));
}

#[test]
fn deletions_at_versitygw() {
    check_deletions(&versitygw::bucket("verbs-deletions"));
}

/// A deleted object is hidden, its versions stay, and one of them goes for good by its id.
#[test]
fn versions_at_minio() {
    let bucket = Bucket::new("verbs-versions");
    let kept = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let versioning = format!("/{}?versioning=", bucket.name);
    bucket.curl.ask("PUT", &versioning, &[], Some(kept.as_bytes())).is(200);
    let key = target(&bucket.name, "key");
    let put = |body: &[u8]| {
        bucket.curl.ask("PUT", &key, &[], Some(body)).is(200).header("x-amz-version-id").unwrap()
    };
    let (first, second) = (put(b"first"), put(b"second"));
    // A copy in parts of a version that is not the newest is not asked for by name here: the newest is.
    run(&mut bucket.flatout(&["cp", &bucket.s3("key"), &bucket.s3("copy")])).clean();
    let copy = bucket.curl.ask("GET", &target(&bucket.name, "copy"), &[], None).is(200);
    assert_eq!(copy.body, b"second");
    run(&mut bucket.flatout(&["rm", &bucket.s3("key")])).clean();
    bucket.curl.ask("GET", &key, &[], None).is(404);
    let of = |id: &str| bucket.curl.ask("GET", &format!("{key}?versionId={id}"), &[], None).status;
    assert_eq!((of(&first), of(&second)), (200, 200));
    run(&mut bucket.flatout(&["rm", &bucket.s3("key"), "--version-id", &first])).clean();
    assert_eq!((of(&first), of(&second)), (404, 200));
    let url = bucket.s3("");
    let left = run(&mut bucket.flatout(&["rb", url.trim_end_matches('/'), "--force", "--yes"]));
    assert_eq!(left.code, Some(4), "{}", left.stderr);
    assert!(left.stderr.contains("older versions of objects"), "{}", left.stderr);
}

#[track_caller]
fn check_buckets(any: &Bucket, name: &str) {
    let bucket = Bucket { name: name.to_owned(), curl: any.curl.clone() };
    let (url, at) = (format!("s3://{name}"), format!("/{name}"));
    run(&mut bucket.flatout(&["mb", &url])).clean();
    bucket.curl.ask("HEAD", &at, &[], None).is(200);
    run(&mut bucket.flatout(&["mb", &url])).refused(4, &["exists already"]);
    bucket.put("a/b", b"12345", &[]);
    for key in ["c d", "e"] {
        bucket.curl.ask("POST", &format!("{}?uploads=", target(name, key)), &[], None).is(200);
    }
    run(&mut bucket.flatout(&["rb", &url])).refused(4, &["not empty", "--force"]);
    run(&mut bucket.flatout(&["rb", &url, "--force"]))
        .refused(4, &["1 object (5B) and 2 unfinished uploads"]);
    assert_eq!(keys(&bucket), ["a/b"]);
    run(&mut bucket.flatout(&["rb", &url, "--force", "--yes"])).clean();
    bucket.curl.ask("HEAD", &at, &[], None).is(404);
}

#[test]
fn buckets_at_minio() {
    check_buckets(&Bucket::new("verbs-buckets"), "verbs-new");
}

#[test]
fn buckets_at_versitygw() {
    check_buckets(&versitygw::bucket("verbs-buckets"), "verbs-new");
}

#[track_caller]
fn check_uploads(bucket: &Bucket) {
    let begun = |key: &str| {
        let target = target(&bucket.name, key);
        let id =
            bucket.curl.ask("POST", &format!("{target}?uploads="), &[], None).is(200).element("UploadId");
        let part = format!("{target}?partNumber=1&uploadId={id}");
        bucket.curl.ask("PUT", &part, &[], Some(&bytes(1000))).is(200);
        id
    };
    let ids = [begun("a/one"), begun("a/two ü"), begun("b")];
    let listed = |more: &[&str]| {
        let events = run(&mut bucket.flatout(&[&["uploads", "--json"], more].concat())).clean().events();
        let found = events.into_iter().filter(|event| event["event"] == "upload");
        found.map(|event| event["upload_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut all = listed(&[&bucket.s3("")]);
    let mut expected = ids.to_vec();
    all.sort();
    expected.sort();
    assert_eq!(all, expected);
    // MinIO takes a prefix for a whole key.
    assert_eq!(listed(&[&bucket.s3("a/")]).len(), 2);
    assert_eq!(listed(&[&bucket.s3(""), "--older-than", "1d", "--abort"]), [""; 0]);
    assert_eq!(uploads(bucket), 3);
    assert_eq!(listed(&[&bucket.s3("a/"), "--abort"]).len(), 2);
    assert_eq!(listed(&[&bucket.s3("")]), ids[2..]);
    run(&mut bucket.flatout(&["uploads", &bucket.s3(""), "--abort", "--older-than", "0s"])).clean();
    assert_eq!(uploads(bucket), 0);
}

#[test]
fn uploads_at_minio() {
    check_uploads(&Bucket::new("verbs-uploads"));
}

#[test]
fn uploads_at_versitygw() {
    check_uploads(&versitygw::bucket("verbs-uploads"));
}

#[track_caller]
fn check_presigned(bucket: &Bucket) {
    bucket.put("a b+ü", b"content", &[]);
    let url = |arguments: &[&str]| {
        let said = run(&mut bucket.flatout(&[&["presign"], arguments].concat())).clean();
        said.text().trim_end().to_owned()
    };
    let nobody = Curl { url: String::new(), keys: None };
    let read = nobody.ask("GET", &url(&[&bucket.s3("a b+ü")]), &[], None).is(200);
    assert_eq!(read.body, b"content");
    let put = url(&["--put", &bucket.s3("new"), "--expires", "10m"]);
    nobody.ask("PUT", &put, &[], Some(b"written")).is(200);
    let written = bucket.curl.ask("GET", &target(&bucket.name, "new"), &[], None).is(200);
    assert_eq!(written.body, b"written");
    nobody.ask("GET", &put, &[], None).is(403);
    nobody.ask("DELETE", &put, &[], None).is(403);
}

#[test]
fn presigned_urls_at_minio() {
    check_presigned(&Bucket::new("verbs-presigned"));
}

#[test]
fn presigned_urls_at_versitygw() {
    check_presigned(&versitygw::bucket("verbs-presigned"));
}

#[track_caller]
fn check_moves(bucket: &Bucket) {
    let folder = Folder::new();
    let (file, body) = (folder.at("file"), bytes(2 * PART + 1));
    fs::write(&file, &body).unwrap();
    let parts = ["--part-size", "5MiB"];
    let moved = |from: &str, to: &str| {
        run(&mut bucket.flatout(&[&["mv", from, to], &parts[..]].concat())).clean();
    };
    moved(&file, &bucket.s3("here/"));
    assert!(!std::path::Path::new(&file).exists());
    moved(&bucket.s3("here/file"), &bucket.s3("there"));
    assert_eq!(keys(bucket), ["there"]);
    let there = bucket.curl.ask("GET", &target(&bucket.name, "there"), &[], None).is(200);
    assert!(there.body == body, "other bytes");
    moved(&bucket.s3("there"), &file);
    assert_eq!(keys(bucket), [""; 0]);
    assert!(fs::read(&file).unwrap() == body, "other bytes");
}

#[test]
fn moves_at_minio() {
    check_moves(&Bucket::new("verbs-moves"));
}

#[test]
fn moves_at_versitygw() {
    check_moves(&versitygw::bucket("verbs-moves"));
}

#[test]
fn usage_and_hashes_at_minio() {
    let bucket = Bucket::new("verbs-usage");
    let folder = Folder::new();
    let file = folder.at("file");
    fs::write(&file, bytes(12_345)).unwrap();
    run(&mut bucket.flatout(&["cp", &file, &bucket.s3("d/file")])).clean();
    bucket.put("x", b"12345", &[]);
    let usage = run(&mut bucket.flatout(&["du", &bucket.s3(""), "-r", "--json"])).clean().events();
    let numbers: Vec<_> =
        usage.iter().map(|event| (event["objects"].clone(), event["bytes"].clone())).collect();
    assert_eq!(numbers, [(1.into(), 12_345.into()), (2.into(), 12_350.into())]);
    let url = bucket.s3("d/file");
    let hashes = ["hash", &file, &url, "--algorithm", "crc64nvme", "--json"];
    let hashes = run(&mut bucket.flatout(&hashes)).clean().events();
    assert_eq!(hashes[0]["checksums"], hashes[1]["checksums"]);
}
