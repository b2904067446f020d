//! Objects of MinIO, signed: what arrives, and what is said to have been verified.

use std::fs;

use flatout_wire::checksum::Algorithm;

use crate::bytes;
use crate::folder::Folder;
use crate::minio::Bucket;
use crate::program::{Ended, run};

/// `flatout cp` of the key gives these bytes; what the object's event says of its verification.
#[track_caller]
fn check(bucket: &Bucket, key: &str, more: &[&str], want: &[u8]) -> String {
    let folder = Folder::new();
    let target = folder.at("model");
    let ended =
        run(&mut bucket.flatout(&[&["cp", &bucket.s3(key), &target, "--json"], more].concat())).clean();
    assert!(fs::read(&target).unwrap() == want, "{key}: other bytes");
    assert_eq!(folder.names(), ["model"], "{key}");
    verified(&ended)
}

fn verified(ended: &Ended) -> String {
    let events = ended.events();
    let object = events.iter().find(|event| event["event"] == "object").expect("an object's event");
    assert_eq!(object["status"], "ok");
    object["verified"].as_str().unwrap_or_default().to_owned()
}

/// The header that states a checksum. MinIO computes it again and refuses the object when ours is wrong.
fn stated(algorithm: Algorithm, body: &[u8]) -> String {
    format!("{}: {}", algorithm.header().unwrap(), algorithm.encode(algorithm.of(body)))
}

#[test]
fn an_object_without_a_checksum_arrives() {
    let bucket = Bucket::new("plain-object");
    let body = bytes((17 << 20) + 3);
    bucket.put("folder/model", &body, &[]);
    let verified = check(&bucket, "folder/model", &[], &body);
    assert!(verified.starts_with("none: "), "{verified}");
}

#[test]
fn a_stated_checksum_is_verified() {
    let bucket = Bucket::new("stated-checksum");
    let body = bytes((9 << 20) + 3);
    for algorithm in [Algorithm::Crc64Nvme, Algorithm::Crc32c, Algorithm::Crc32] {
        bucket.put(algorithm.name(), &body, &[&stated(algorithm, &body)]);
        for part_size in ["64KiB", "8MiB"] {
            let verified = check(&bucket, algorithm.name(), &["--part-size", part_size], &body);
            assert_eq!(verified, algorithm.name(), "parts of {part_size}");
        }
        let verified = check(&bucket, algorithm.name(), &["--no-verify"], &body);
        assert!(verified.starts_with("none: "), "{verified}");
    }
}

#[test]
fn a_multipart_object_with_a_checksum_of_the_whole_is_verified() {
    let bucket = Bucket::new("multipart-whole");
    let (first, second) = (bytes(6_000_000), bytes(1_234_567));
    let algorithm = Algorithm::Crc64Nvme;
    let begin = ["x-amz-checksum-algorithm: CRC64NVME", "x-amz-checksum-type: FULL_OBJECT"];
    let parts = [(&first[..], stated(algorithm, &first)), (&second[..], stated(algorithm, &second))];
    bucket.curl.put_parts(&bucket.name, "model", &begin, &parts);
    let whole = [first, second].concat();
    assert_eq!(check(&bucket, "model", &["--part-size", "1MiB"], &whole), "crc64nvme");
}

#[test]
fn a_composite_checksum_is_not_taken_for_one_of_the_whole() {
    let bucket = Bucket::new("multipart-composite");
    let (first, second) = (bytes(5 << 20), bytes(99));
    let algorithm = Algorithm::Crc32c;
    let begin = ["x-amz-checksum-algorithm: CRC32C", "x-amz-checksum-type: COMPOSITE"];
    let parts = [(&first[..], stated(algorithm, &first)), (&second[..], stated(algorithm, &second))];
    bucket.curl.put_parts(&bucket.name, "model", &begin, &parts);
    let verified = check(&bucket, "model", &[], &[first, second].concat());
    assert!(verified.starts_with("none: "), "{verified}");
}

#[test]
fn an_empty_object_is_an_empty_file() {
    let bucket = Bucket::new("empty-object");
    bucket.put("empty", b"", &[]);
    check(&bucket, "empty", &[], b"");
    let ended = run(&mut bucket.flatout(&["cat", &bucket.s3("empty")])).clean();
    assert_eq!(ended.stdout, b"");
}

#[test]
fn a_range_is_what_was_asked_for() {
    let bucket = Bucket::new("range-of-object");
    let body = bytes(300_000);
    bucket.put("model", &body, &[&stated(Algorithm::Crc64Nvme, &body)]);
    for (range, want) in
        [("0-0", &body[..1]), ("65535-65537", &body[65_535..65_538]), ("-7", &body[299_993..])]
    {
        let verified = check(&bucket, "model", &["--range", range, "--part-size", "64KiB"], want);
        assert!(verified.starts_with("none: "), "a range has no checksum of its own: {verified}");
    }
}

#[test]
fn a_folder_takes_the_name_of_the_key() {
    let bucket = Bucket::new("into-a-folder");
    bucket.put("weights/part-1", b"bytes", &[]);
    let folder = Folder::new();
    run(&mut bucket.flatout(&["cp", &bucket.s3("weights/part-1"), folder.path().to_str().unwrap()])).clean();
    assert_eq!(folder.names(), ["model", "part-1"]);
}

#[test]
fn cat_writes_the_bytes_in_order() {
    let bucket = Bucket::new("cat-object");
    let body = bytes((5 << 20) + 9);
    bucket.put("model", &body, &[]);
    let arguments = ["cat", &bucket.s3("model"), "--part-size", "128KiB", "--window", "512KiB"];
    let ended = run(&mut bucket.flatout(&arguments)).clean();
    assert!(ended.stdout == body, "other bytes");
}

#[test]
fn stat_says_what_the_origin_says() {
    let bucket = Bucket::new("stat-object");
    let body = bytes(4321);
    let headers = ["x-amz-meta-colour: blue", &stated(Algorithm::Crc64Nvme, &body)];
    bucket.put("model", &body, &headers);
    let ended = run(&mut bucket.flatout(&["stat", &bucket.s3("model"), "--json"])).clean();
    let stat = ended.events().into_iter().find(|event| event["event"] == "stat").unwrap();
    let head = bucket.curl.ask("HEAD", &crate::curl::target(&bucket.name, "model"), &[], None).is(200);
    assert_eq!(stat["bytes"], 4321);
    assert_eq!(stat["etag"].as_str(), head.header("etag").as_deref());
    assert_eq!(stat["metadata"]["colour"], "blue");
    assert_eq!(stat["checksums"][0]["algorithm"], "crc64nvme");
    assert_eq!(stat["checksums"][0]["value"], Algorithm::Crc64Nvme.encode(Algorithm::Crc64Nvme.of(&body)));
}
