//! Objects of computed bytes.

use flatout_server::{Origin, Store, synthetic_bytes};

use crate::client::{Lab, crc64nvme, options};

fn synthetic() -> Lab {
    let objects = [("bucket", "small", 1), ("bucket", "dir/medium", 5_000_000), ("other", "huge", 1 << 50)];
    let objects = objects.map(|(bucket, key, size)| (bucket.to_owned(), key.to_owned(), size)).to_vec();
    Lab { origin: Origin::start(options(Store::Synthetic(objects, vec![]))).unwrap(), root: None }
}

#[test]
fn bytes_and_checksum_are_those_of_the_function() {
    let lab = synthetic();
    for (key, size) in [("small", 1), ("dir/medium", 5_000_000)] {
        let mut expected = vec![0; size];
        synthetic_bytes("bucket", key, 0..size as u64, &mut expected);
        let headers = [("x-amz-checksum-mode", "ENABLED")];
        let got = lab.send("GET", &format!("/bucket/{key}"), &headers, b"").expect(200);
        assert!(got.body == expected, "{key}");
        assert_eq!(got.header("x-amz-checksum-crc64nvme"), Some(&*crc64nvme(&expected)), "{key}");
    }
    let mut expected = vec![0; 3_000_000];
    let at = (1_u64 << 49) + 12_345;
    synthetic_bytes("other", "huge", at..at + 3_000_000, &mut expected);
    let range = format!("bytes={at}-{}", at + 2_999_999);
    let got = lab.send("GET", "/other/huge", &[("range", &range)], b"").expect(206);
    assert!(got.body == expected);
    let head = lab.send("HEAD", "/other/huge", &[("x-amz-checksum-mode", "ENABLED")], b"").expect(200);
    assert_eq!(head.header("content-length"), Some("1125899906842624"));
    assert!(head.header("x-amz-checksum-crc64nvme").is_some());
}

#[test]
fn they_are_listed_and_cannot_be_written() {
    let lab = synthetic();
    assert_eq!(lab.get("/").xml_all("Name"), ["bucket", "other"]);
    assert_eq!(lab.get("/bucket?list-type=2").xml_all("Key"), ["dir/medium", "small"]);
    for (method, target) in [
        ("PUT", "/bucket/new"),
        ("PUT", "/bucket/small"),
        ("DELETE", "/bucket/small"),
        ("PUT", "/new-bucket"),
        ("DELETE", "/bucket"),
        ("POST", "/bucket/new?uploads"),
    ] {
        let answer = lab.send(method, target, &[], b"").expect(403);
        assert!(answer.xml("Message").unwrap().contains("--sink"), "{method} {target}");
    }
    assert_eq!(lab.get("/bucket/small").expect(200).body.len(), 1);
}

#[test]
fn objects_that_s3_would_not_allow_are_named() {
    for (bucket, key, size) in [("Bad_Bucket", "k", 1), ("bucket", "", 1), ("bucket", "k", u64::MAX)] {
        let store = Store::Synthetic(vec![(bucket.to_owned(), key.to_owned(), size)], vec![]);
        let error = Origin::start(options(store)).unwrap_err();
        assert!(error.to_string().contains(&format!("{bucket}/{key}")), "{error}");
    }
}
