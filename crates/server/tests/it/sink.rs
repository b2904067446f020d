//! A sink: it answers for what it took, but for the bytes.

use flatout_server::{Options, Origin, Store};
use flatout_wire::checksum::Algorithm::Crc64Xz;

use crate::client::{Answer, Headers, Lab, bytes, crc64nvme, options};

/// In front of two objects of 1 and 9 bytes.
fn sink() -> Lab {
    let objects = [("bucket", "small", 1), ("bucket", "dir/inner", 9)];
    let objects = objects.map(|(bucket, key, size)| (bucket.to_owned(), key.to_owned(), size)).to_vec();
    let options = Options { sink: true, ..options(Store::Synthetic(objects, vec![])) };
    Lab { origin: Origin::start(options).unwrap(), root: None }
}

/// Unsigned, it is OSS by its host.
fn oss(lab: &Lab, method: &str, target: &str, headers: Headers, body: &[u8]) -> Answer {
    lab.send(method, target, &[&[("host", "oss-test.aliyuncs.com")], headers].concat(), body)
}

#[track_caller]
fn check_headers(answer: &Answer, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(answer.header(name), Some(*value), "{name}");
    }
}

/// What both dialects say of an object of these bytes that was stored with `x/y` and the colour blue.
fn check_object(lab: &Lab, target: &str, body: &[u8]) {
    let (length, nvme, xz) = (body.len().to_string(), crc64nvme(body), Crc64Xz.of(body).to_string());
    let head = lab.send("HEAD", target, &[("x-amz-checksum-mode", "ENABLED")], b"").expect(200);
    let both = [("content-length", length.as_str()), ("content-type", "x/y")];
    check_headers(
        &head,
        &[&both[..], &[("x-amz-meta-colour", "blue"), ("x-amz-checksum-crc64nvme", &nvme)]].concat(),
    );
    let etag = head.header("etag").unwrap();
    let head = oss(lab, "HEAD", target, &[], b"").expect(200);
    let ours = [("x-oss-meta-colour", "blue"), ("x-oss-hash-crc64ecma", &xz), ("etag", etag)];
    check_headers(&head, &[&both[..], &ours].concat());
    let wanted = [("x-amz-object-attributes", "ETag,Checksum,ObjectSize")];
    let attributes = lab.send("GET", &format!("{target}?attributes"), &wanted, b"").expect(200);
    assert_eq!(attributes.xml("ObjectSize").unwrap(), length);
    assert_eq!(attributes.xml("ChecksumCRC64NVME").unwrap(), nvme);
    for answer in [lab.send("GET", target, &[], b""), lab.send("GET", target, &[("range", "bytes=0-0")], b"")]
    {
        let answer = answer.expect(501);
        assert_eq!(answer.xml("Code").unwrap(), "NotImplemented");
        assert!(answer.xml("Message").unwrap().contains("forgets its bytes"));
    }
    let refused = oss(lab, "GET", target, &[], b"").expect(501);
    assert!(refused.xml("Message").unwrap().contains("forgets its bytes"));
    lab.send("GET", target, &[("if-none-match", etag)], b"").expect(304);
}

#[test]
fn an_object_is_described_in_both_dialects() {
    let lab = sink();
    let body = bytes("sink", 100_000);
    let put = lab
        .send("PUT", "/bucket/a/s3", &[("x-amz-meta-colour", "blue"), ("content-type", "x/y")], &body)
        .expect(200);
    assert_eq!(put.header("x-amz-checksum-crc64nvme"), Some(&*crc64nvme(&body)));
    check_object(&lab, "/bucket/a/s3", &body);
    oss(&lab, "PUT", "/bucket/a/oss", &[("x-oss-meta-colour", "blue"), ("content-type", "x/y")], &body)
        .expect(200);
    check_object(&lab, "/bucket/a/oss", &body);
    let listed = lab.get("/bucket?list-type=2&prefix=a/").expect(200);
    assert_eq!(
        (listed.xml_all("Key"), listed.xml_all("Size")),
        (strings(["a/oss", "a/s3"]), strings(["100000"; 2]))
    );
    let listed = oss(&lab, "GET", "/bucket?prefix=a/", &[], b"").expect(200);
    assert_eq!(listed.xml_all("Key"), ["a/oss", "a/s3"]);
    oss(&lab, "DELETE", "/bucket/a/s3", &[], b"").expect(204);
    lab.send("DELETE", "/bucket/a/oss", &[], b"").expect(204);
    for key in ["a/s3", "a/oss"] {
        lab.send("HEAD", &format!("/bucket/{key}"), &[], b"").expect(404);
    }
    assert!(lab.get("/bucket?list-type=2&prefix=a/").expect(200).xml_all("Key").is_empty());
}

fn strings<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

#[test]
fn an_upload_in_parts_is_described_and_its_completion_answered_again() {
    let lab = sink();
    let body = bytes("parts", (5 << 20) + 1000);
    let (first, second) = body.split_at(5 << 20);
    for by_oss in [false, true] {
        let ask = |method, target: &str, headers: Headers, body: &[u8]| match by_oss {
            true => oss(&lab, method, target, headers, body),
            false => lab.send(method, target, headers, body),
        };
        let colour = if by_oss { "x-oss-meta-colour" } else { "x-amz-meta-colour" };
        let target = format!("/bucket/parts-{by_oss}");
        let begun =
            ask("POST", &format!("{target}?uploads"), &[(colour, "blue"), ("content-type", "x/y")], b"");
        let id = begun.expect(200).xml("UploadId").unwrap();
        let mut parts = String::new();
        for (number, body) in [(1, first), (2, second)] {
            let put =
                ask("PUT", &format!("{target}?partNumber={number}&uploadId={id}"), &[], body).expect(200);
            let etag = put.header("etag").unwrap();
            parts += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
        }
        lab.send("HEAD", &target, &[], b"").expect(404);
        let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let complete =
            || ask("POST", &format!("{target}?uploadId={id}"), &[], document.as_bytes()).expect(200);
        let etag = complete().xml("ETag");
        assert_eq!(complete().xml("ETag"), etag, "the first answer may have been lost");
        check_object(&lab, &target, &body);
    }
}

#[test]
fn no_bytes_need_none() {
    let lab = sink();
    lab.put("/bucket/empty", b"");
    assert!(lab.get("/bucket/empty").expect(200).body.is_empty());
}

#[test]
fn copies_and_appends_need_the_bytes() {
    let lab = sink();
    lab.put("/bucket/took", b"123456789");
    lab.send("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/took")], b"").expect(501);
    lab.send("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/dir/inner")], b"").expect(200);
    lab.send("HEAD", "/bucket/copy", &[], b"").expect(200);
    oss(&lab, "POST", "/bucket/log?append&position=0", &[], b"one").expect(200);
    oss(&lab, "POST", "/bucket/log?append&position=3", &[], b"two").expect(501);
}

#[test]
fn conditions_tags_and_stated_checksums_hold() {
    let lab = sink();
    let bad = [("x-amz-checksum-crc64nvme", "rosUhgp5mIg=")];
    lab.send("PUT", "/bucket/new", &bad, b"12345678").expect(400);
    lab.send("HEAD", "/bucket/new", &[], b"").expect(404);
    let absent = [("if-none-match", "*")];
    let etag = lab.send("PUT", "/bucket/new", &absent, b"123456789").expect(200);
    lab.send("PUT", "/bucket/new", &absent, b"another").expect(412);
    lab.send("PUT", "/bucket/new", &[("if-match", etag.header("etag").unwrap())], b"another").expect(200);
    oss(&lab, "PUT", "/bucket/new", &[("x-oss-forbid-overwrite", "true")], b"x").expect(409);
    let tags = b"<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>";
    lab.send("PUT", "/bucket/new?tagging", &[], tags).expect(200);
    assert_eq!(lab.get("/bucket/new?tagging").expect(200).xml_all("Key"), ["k"]);
    // MD5s are computed where a request states one.
    let stated = [("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==")];
    let put = lab.send("PUT", "/bucket/md5", &stated, b"123456789").expect(200);
    assert_eq!(put.header("etag"), Some("\"25f9e794323b453885f5181f1b624d0b\""));
}

#[test]
fn the_store_behind_it_never_changes() {
    let lab = sink();
    let inner = lab.get("/bucket/small").expect(200).body;
    lab.put("/bucket/small", b"123456789");
    lab.get("/bucket/small").expect(501);
    assert_eq!(lab.get("/bucket?list-type=2").xml_all("Size"), ["9", "9"]);
    lab.send("DELETE", "/bucket/small", &[], b"").expect(204);
    lab.send("DELETE", "/bucket/small", &[], b"").expect(204);
    assert_eq!(lab.get("/bucket/small").expect(200).body, inner);
    let refused = lab.send("DELETE", "/bucket", &[], b"").expect(403);
    assert!(refused.xml("Message").unwrap().contains("behind the sink"));
}

#[test]
fn buckets_are_made_and_removed() {
    let lab = sink();
    lab.send("PUT", "/made", &[], b"").expect(200);
    lab.send("PUT", "/made", &[], b"").expect(409);
    lab.send("PUT", "/bucket", &[], b"").expect(409);
    lab.put("/any-bucket/at/all", b"x");
    assert_eq!(lab.get("/").xml_all("Name"), ["any-bucket", "bucket", "made"]);
    lab.send("HEAD", "/any-bucket/other", &[], b"").expect(404);
    assert_eq!(lab.get("/any-bucket/other").expect(404).xml("Code").unwrap(), "NoSuchKey");
    assert_eq!(lab.get("/any-bucket").expect(200).xml_all("Key"), ["at/all"]);
    lab.send("DELETE", "/any-bucket", &[], b"").expect(409);
    lab.send("DELETE", "/any-bucket/at/all", &[], b"").expect(204);
    assert_eq!(lab.get("/any-bucket").expect(404).xml("Code").unwrap(), "NoSuchBucket");
    assert!(lab.get("/made").expect(200).xml_all("Key").is_empty());
    lab.send("DELETE", "/made", &[], b"").expect(204);
    lab.send("DELETE", "/made", &[], b"").expect(404);
}
