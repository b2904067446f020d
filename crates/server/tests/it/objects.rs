//! Objects and buckets: the same over every store.

use std::io::Read;
use std::io::Write;

use crate::client::{Answer, Lab, bytes, connect, crc64nvme, each, write_head};

#[test]
fn what_was_put_is_what_is_got() {
    each(|lab| {
        for (target, length) in [
            ("/bucket/a", 0),
            ("/bucket/a%20b%2Bc/%C3%BC/100%25.txt", 1),
            ("/bucket/deep/er/and/deeper", 1_000_000),
            ("/bucket/large", (3 << 20) + 17),
            ("/bucket/a", 5),
        ] {
            let body = bytes(target, length);
            let put = lab.put(target, &body);
            assert_eq!(put.header("x-amz-checksum-crc64nvme"), Some(&*crc64nvme(&body)));
            let got = lab.get(target).expect(200);
            assert!(got.body == body, "{target}");
            assert_eq!(got.header("etag"), put.header("etag"));
            assert_eq!(got.header("accept-ranges"), Some("bytes"));
            assert_eq!(got.header("content-length"), Some(&*length.to_string()));
            assert_eq!(got.header("content-type"), Some("binary/octet-stream"));
            assert!(got.header("last-modified").is_some_and(|date| date.ends_with(" GMT")));
            let head = lab.send("HEAD", target, &[], b"").expect(200);
            assert_eq!(head.header("content-length"), got.header("content-length"));
            assert_eq!(head.header("etag"), got.header("etag"));
            assert!(head.body.is_empty());
        }
    });
}

#[test]
fn headers_of_an_upload_are_kept() {
    each(|lab| {
        let headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-encoding", "aws-chunked,gzip"),
            ("content-disposition", "attachment; filename=\"100%.txt\""),
            ("cache-control", "no-store"),
            ("x-amz-meta-colour", "blue = 50%"),
        ];
        lab.send("PUT", "/bucket/k", &headers, b"x").expect(200);
        lab.send("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/k")], b"").expect(200);
        for (method, target) in [("GET", "/bucket/k"), ("HEAD", "/bucket/k"), ("GET", "/bucket/copy")] {
            let answer = lab.send(method, target, &[], b"").expect(200);
            for (name, value) in headers {
                let value = if name == "content-encoding" { "gzip" } else { value };
                assert_eq!(answer.header(name), Some(value), "{method} {target}");
            }
        }
    });
}

#[test]
fn ranges_are_those_of_http() {
    each(|lab| {
        let body = bytes("ranges", 2_000_000);
        lab.put("/bucket/k", &body);
        lab.put("/bucket/empty", b"");
        for (range, expected) in [
            ("bytes=0-0", Some(0..1)),
            ("bytes=5-9", Some(5..10)),
            ("bytes=262143-262144", Some(262_143..262_145)),
            ("bytes=1048575-", Some(1_048_575..2_000_000)),
            ("bytes=1999999-", Some(1_999_999..2_000_000)),
            ("bytes=0-99999999", Some(0..2_000_000)),
            ("bytes=-1", Some(1_999_999..2_000_000)),
            ("bytes=-99999999", Some(0..2_000_000)),
            ("bytes=2000000-", None),
            ("bytes=2000000-2000001", None),
            ("bytes=-0", None),
        ] {
            let answer = lab.send("GET", "/bucket/k", &[("range", range)], b"");
            match expected {
                Some(expected) => {
                    assert_eq!(answer.status, 206, "{range}");
                    assert!(answer.body == body[expected.clone()], "{range}");
                    let said = format!("bytes {}-{}/2000000", expected.start, expected.end - 1);
                    assert_eq!(answer.header("content-range"), Some(&*said), "{range}");
                }
                None => {
                    assert_eq!(answer.status, 416, "{range}");
                    assert_eq!(answer.xml("Code").as_deref(), Some("InvalidRange"));
                    assert_eq!(answer.header("content-range"), Some("bytes */2000000"), "{range}");
                }
            }
        }
        for range in ["bytes=0-0", "bytes=0-", "bytes=-1"] {
            lab.send("GET", "/bucket/empty", &[("range", range)], b"").expect(416);
        }
        // RFC 9110 §14.2: what is not understood is ignored.
        for range in ["bytes=9-5", "bytes=0-1,3-4", "lines=0-1"] {
            lab.send("GET", "/bucket/k", &[("range", range)], b"").expect(200);
        }
    });
}

#[test]
fn conditions_are_those_of_http() {
    each(|lab| {
        let old = lab.put("/bucket/k", b"old").header("etag").unwrap().to_owned();
        let new = lab.put("/bucket/k", b"newer").header("etag").unwrap().to_owned();
        assert_ne!(old, new);
        let weak = format!("W/{new}");
        let modified = lab.get("/bucket/k").header("last-modified").unwrap().to_owned();
        let long_ago = "Thu, 01 Jan 1970 00:00:01 GMT";
        for (name, value, status) in [
            ("if-match", &*new, 206),
            ("if-match", "*", 206),
            ("if-match", &*old, 412),
            ("if-match", &*weak, 412),
            ("if-none-match", &*old, 206),
            ("if-none-match", &*new, 304),
            ("if-none-match", &*weak, 304),
            ("if-none-match", "*", 304),
            ("if-modified-since", &*modified, 304),
            ("if-modified-since", long_ago, 206),
            ("if-unmodified-since", &*modified, 206),
            ("if-unmodified-since", long_ago, 412),
        ] {
            let answer = lab.send("GET", "/bucket/k", &[(name, value), ("range", "bytes=0-1")], b"");
            assert_eq!(answer.status, status, "{name}: {value}");
            if status == 304 {
                assert_eq!(answer.header("etag"), Some(&*new));
                assert!(answer.body.is_empty());
            }
        }
        for (name, value, status) in
            [("if-none-match", "*", 412), ("if-match", &*old, 412), ("if-match", &*new, 200)]
        {
            lab.send("PUT", "/bucket/k", &[(name, value)], b"third").expect(status);
        }
        lab.send("PUT", "/bucket/other", &[("if-none-match", "*")], b"first").expect(200);
        lab.send("PUT", "/bucket/nothing", &[("if-match", "*")], b"x").expect(404);
    });
}

#[test]
fn checksums_are_stated_when_asked_for() {
    each(|lab| {
        let body = bytes("sum", 700_001);
        lab.put("/bucket/k", &body);
        let asked = ("x-amz-checksum-mode", "ENABLED");
        for (method, headers, stated) in [
            ("GET", vec![asked], true),
            ("HEAD", vec![asked], true),
            ("GET", vec![("x-amz-checksum-mode", "enabled")], true),
            ("GET", vec![], false),
            ("HEAD", vec![], false),
            ("GET", vec![asked, ("range", "bytes=1-5")], false),
        ] {
            let answer = lab.send(method, "/bucket/k", &headers, b"");
            let crc = crc64nvme(&body);
            assert_eq!(
                answer.header("x-amz-checksum-crc64nvme"),
                stated.then_some(&*crc),
                "{method} {headers:?}"
            );
            assert_eq!(answer.header("x-amz-checksum-type"), stated.then_some("FULL_OBJECT"));
        }
    });
}

#[test]
fn a_wrong_checksum_is_refused_and_nothing_is_stored() {
    each(|lab| {
        for (name, right) in [
            ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
            ("x-amz-checksum-crc32", "y/Q5Jg=="),
            ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
        ] {
            let answer = lab.send("PUT", "/bucket/bad", &[(name, right)], b"123456780").expect(400);
            assert_eq!(answer.xml("Code").as_deref(), Some("BadDigest"), "{name}");
            lab.get("/bucket/bad").expect(404);
            lab.send("PUT", "/bucket/good", &[(name, right)], b"123456789").expect(200);
        }
    });
}

#[test]
fn aws_chunked_bodies_are_unframed() {
    each(|lab| {
        let headers = [
            ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            ("x-amz-decoded-content-length", "9"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ];
        let body = |crc: &str| format!("4\r\n1234\r\n5\r\n56789\r\n0\r\nx-amz-checksum-crc32:{crc}\r\n\r\n");
        lab.send("PUT", "/bucket/k", &headers, body("AAAAAA==").as_bytes()).expect(400);
        lab.get("/bucket/k").expect(404);
        lab.send("PUT", "/bucket/k", &headers, body("y/Q5Jg==").as_bytes()).expect(200);
        assert_eq!(lab.get("/bucket/k").expect(200).body, b"123456789");
    });
}

#[test]
fn a_body_that_is_cut_off_leaves_nothing() {
    each(|lab| {
        lab.put("/bucket/k", b"whole");
        let mut connection = connect(lab.address());
        write_head(&mut connection, "PUT", "/bucket/k", &[], 1 << 20);
        connection.write_all(&[0; 1000]).unwrap();
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).unwrap();
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
        assert_eq!(lab.get("/bucket/k").body, b"whole");
    });
}

#[test]
fn deleting_twice_is_no_error() {
    each(|lab| {
        lab.put("/bucket/a/b/c", b"x");
        lab.put("/bucket/a/d", b"x");
        lab.send("DELETE", "/bucket/a/b/c", &[], b"").expect(204);
        lab.send("DELETE", "/bucket/a/b/c", &[], b"").expect(204);
        assert_eq!(lab.get("/bucket/a/b/c").expect(404).xml("Code").as_deref(), Some("NoSuchKey"));
        lab.get("/bucket/a/d").expect(200);
        let body = b"<Delete><Object><Key>a/d</Key></Object><Object><Key>never</Key></Object></Delete>";
        let answer = lab.send("POST", "/bucket?delete", &[], body).expect(200);
        assert_eq!(answer.xml_all("Key"), ["a/d", "never"]);
        lab.get("/bucket/a/d").expect(404);
        // No empty folder is left in the way: "a" can be an object now, and the bucket can go.
        lab.put("/bucket/a", b"x");
        lab.send("DELETE", "/bucket/a", &[], b"").expect(204);
        lab.send("DELETE", "/bucket", &[], b"").expect(204);
    });
}

#[test]
fn copies_are_objects_of_their_own() {
    each(|lab| {
        let body = bytes("copy", 1_500_000);
        lab.put("/bucket/a%20b", &body);
        lab.send("PUT", "/other-bucket", &[], b"").expect(200);
        let source = ("x-amz-copy-source", "bucket/a%20b");
        let copied = lab.send("PUT", "/other-bucket/c", &[source], b"").expect(200);
        assert!(copied.xml("ETag").is_some());
        lab.send("DELETE", "/bucket/a%20b", &[], b"").expect(204);
        assert!(lab.get("/other-bucket/c").expect(200).body == body);
        lab.send("PUT", "/other-bucket/d", &[source], b"").expect(404);
    });
}

#[test]
fn buckets_come_and_go() {
    each(|lab| {
        let check = |method: &str, target: &str, status: u16, code: Option<&str>| {
            let answer = lab.send(method, target, &[], b"");
            assert_eq!(answer.status, status, "{method} {target}");
            if let Some(code) = code {
                assert_eq!(answer.xml("Code").as_deref(), Some(code), "{method} {target}");
            }
        };
        check("PUT", "/bucket", 409, Some("BucketAlreadyOwnedByYou"));
        check("PUT", "/Bucket", 400, Some("InvalidBucketName"));
        check("HEAD", "/bucket", 200, None);
        check("HEAD", "/nowhere", 404, None);
        check("GET", "/nowhere?list-type=2", 404, Some("NoSuchBucket"));
        check("GET", "/nowhere/key", 404, Some("NoSuchBucket"));
        check("PUT", "/nowhere/key", 404, Some("NoSuchBucket"));
        check("DELETE", "/nowhere", 404, Some("NoSuchBucket"));
        check("GET", "/bucket?location", 200, None);
        lab.put("/bucket/k", b"x");
        check("DELETE", "/bucket", 409, Some("BucketNotEmpty"));
        check("PUT", "/another", 200, None);
        assert_eq!(lab.get("/").expect(200).xml_all("Name"), ["another", "bucket"]);
        check("DELETE", "/another", 204, None);
        assert_eq!(lab.get("/").expect(200).xml_all("Name"), ["bucket"]);
    });
}

#[test]
fn a_bucket_may_stand_in_the_host_name() {
    each(|lab: &Lab| {
        lab.put("/bucket/k", b"x");
        let host = ("host", "bucket.localhost:9000");
        assert_eq!(lab.send("GET", "/k", &[host], b"").expect(200).body, b"x");
        assert_eq!(lab.send("GET", "/bucket/k", &[("host", "localhost:9000")], b"").expect(200).body, b"x");
    });
}

#[test]
fn an_object_is_not_deleted_in_spite_of_if_match() {
    each(|lab| {
        let etag = lab.put("/bucket/k", b"kept").header("etag").unwrap().to_owned();
        let delete = |etag: &str| lab.send("DELETE", "/bucket/k", &[("if-match", etag)], b"");
        let batch = |etag: &str| {
            let document = format!("<Delete><Object><Key>k</Key><ETag>{etag}</ETag></Object></Delete>");
            lab.send("POST", "/bucket?delete", &[], document.as_bytes()).expect(200)
        };
        assert_eq!(delete("\"deadbeef\"").expect(412).xml("Code").as_deref(), Some("PreconditionFailed"));
        let refused = batch("&quot;deadbeef&quot;");
        assert_eq!(refused.xml("Code").as_deref(), Some("PreconditionFailed"));
        assert!(!String::from_utf8(refused.body).unwrap().contains("<Deleted>"));
        // OSS has no such condition, but who sends one means it.
        let oss = [("host", "oss-test.aliyuncs.com"), ("if-match", "\"deadbeef\"")];
        lab.send("DELETE", "/bucket/k", &oss, b"").expect(412);
        assert_eq!(lab.get("/bucket/k").expect(200).body, b"kept");
        delete(&etag).expect(204);
        lab.get("/bucket/k").expect(404);
        // What is not there is deleted already.
        delete(&etag).expect(204);
        let etag = lab.put("/bucket/k", b"again").header("etag").unwrap().replace('"', "&quot;");
        assert_eq!(batch(&etag).xml("Key").as_deref(), Some("k"));
        lab.get("/bucket/k").expect(404);
    });
}

#[test]
fn of_conditional_writes_and_deletes_at_once_one_wins() {
    each(|lab| {
        let etag = lab.put("/bucket/k", b"first").header("etag").unwrap().to_owned();
        let act = |number: usize| match number % 2 {
            0 => lab.send("DELETE", "/bucket/k", &[("if-match", &etag)], b"").status,
            _ => lab.send("PUT", "/bucket/k", &[("if-match", &etag)], &bytes("w", 50_000 + number)).status,
        };
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|number| scope.spawn(move || act(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // After a deletion that won, the others find nothing: 204 of a deletion, 404 of a write.
        let put = statuses.iter().filter(|status| **status == 200).count();
        let deleted = statuses.contains(&204);
        assert!(put == 1 && !deleted || put == 0 && deleted, "{statuses:?}");
    });
}

#[test]
fn a_batch_of_more_than_a_thousand_keys_is_refused() {
    each(|lab| {
        lab.put("/bucket/0", b"kept");
        let document = |count: usize| {
            let keys: String = (0..count).map(|n| format!("<Object><Key>{n}</Key></Object>")).collect();
            format!("<Delete>{keys}</Delete>")
        };
        for headers in [&[][..], &[("host", "oss-test.aliyuncs.com")][..]] {
            for count in [0, 1001] {
                let answer =
                    lab.send("POST", "/bucket?delete", headers, document(count).as_bytes()).expect(400);
                assert_eq!(answer.xml("Code").as_deref(), Some("MalformedXML"), "{headers:?} {count}");
            }
            assert_eq!(lab.get("/bucket/0").expect(200).body, b"kept");
        }
        lab.send("POST", "/bucket?delete", &[], document(1000).as_bytes()).expect(200);
        lab.get("/bucket/0").expect(404);
    });
}

#[test]
fn what_is_not_there_is_refused_by_name_and_nothing_is_stored() {
    each(|lab| {
        for (name, value) in [
            ("x-amz-server-side-encryption", "aws:kms"),
            ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
            ("x-amz-acl", "public-read"),
            ("x-amz-grant-read", "id=1"),
            ("x-amz-website-redirect-location", "/x"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-storage-class", "GLACIER"),
            ("x-oss-server-side-encryption", "AES256"),
            ("x-oss-object-acl", "public-read"),
            ("x-oss-callback", "eyJ9"),
            ("x-oss-storage-class", "Archive"),
        ] {
            // A body that is there to be read: the answer comes all the same.
            let answer = lab.send("PUT", "/bucket/k", &[(name, value)], &bytes("k", 300_000)).expect(501);
            assert_eq!(answer.xml("Code").as_deref(), Some("NotImplemented"), "{name}");
            assert!(answer.xml("Message").unwrap().contains(name), "{name}");
            lab.get("/bucket/k").expect(404);
        }
        for (name, value) in
            [("x-amz-acl", "private"), ("x-oss-object-acl", "private"), ("x-oss-object-acl", "default")]
        {
            lab.send("PUT", "/bucket/k", &[(name, value)], b"x").expect(200);
        }
    });
}

#[test]
fn a_refusal_of_a_large_body_can_be_read() {
    each(|lab| {
        lab.put("/bucket/k", b"kept");
        let body = bytes("large", 8 << 20);
        for (target, headers, status) in [
            ("/bucket/k", &[("if-none-match", "*")][..], 412),
            ("/nowhere/k", &[][..], 404),
            ("/bucket/k?partNumber=1&uploadId=none", &[][..], 404),
            ("/bucket/k", &[("content-md5", "short")][..], 400),
        ] {
            lab.send("PUT", target, headers, &body).expect(status);
        }
        assert_eq!(lab.get("/bucket/k").body, b"kept");
    });
}

#[test]
fn urls_that_are_good_for_more_than_a_week_are_refused() {
    each(|lab| {
        lab.put("/bucket/k", b"x");
        let s3 = "/bucket/k?X-Amz-Signature=a&X-Amz-Date=20261121T120000Z&X-Amz-Expires=";
        let oss = "/bucket/k?x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-credential=a&x-oss-expires=";
        for (target, code) in [(s3, "AuthorizationQueryParametersError"), (oss, "InvalidArgument")] {
            lab.get(&format!("{target}604800")).expect(200);
            let answer = lab.get(&format!("{target}604801")).expect(400);
            assert_eq!(answer.xml("Code").as_deref(), Some(code));
        }
    });
}

fn batch(lab: &Lab, keys: &str, headers: &[(&str, &str)], query: &str) -> Answer {
    let keys: String = keys.split(' ').map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
    lab.send(
        "POST",
        &format!("/bucket?delete{query}"),
        headers,
        format!("<Delete>{keys}</Delete>").as_bytes(),
    )
}

#[test]
fn a_batch_had_deleted_what_its_answer_could_not_name() {
    each(|lab| {
        for (oss, odd) in
            [(false, "\u{1}"), (false, "&#x1;"), (false, "\u{fffe}"), (true, "&#x1;"), (true, "\u{1}")]
        {
            let headers: &[(&str, &str)] = if oss { &[("x-oss-date", "")] } else { &[] };
            for target in ["/bucket/plain", "/bucket/odd%01", "/bucket/odd%EF%BF%BE"] {
                lab.put(target, b"x");
            }
            let keys = format!("plain odd{odd}");
            let refused = batch(lab, &keys, headers, "").expect(400);
            assert_eq!(refused.xml("Code").as_deref(), Some("MalformedXML"), "{oss} {odd:?}");
            let said = String::from_utf8(refused.body).unwrap();
            assert!(!said.contains(['\u{1}', '\u{fffe}']) && !said.contains("&#x1;"), "{said}");
            lab.get("/bucket/plain").expect(200);
            if oss {
                let named = batch(lab, &keys, headers, "&encoding-type=url").expect(200);
                assert_eq!(named.xml_all("Key"), ["plain", "odd%01"]);
                lab.get("/bucket/plain").expect(404);
            }
            lab.send("DELETE", "/bucket/odd%01", &[], b"").expect(204);
            lab.get("/bucket/odd%01").expect(404);
        }
    });
}

#[test]
fn a_carriage_return_in_a_key_was_a_line_feed_to_who_read_the_answer() {
    each(|lab| {
        for headers in [&[][..], &[("x-oss-date", "")][..]] {
            lab.put("/bucket/cr%0Dx", b"x");
            lab.put("/bucket/odd%01", b"x");
            for query in ["", "?list-type=2", "?versions"].iter().take(if headers.is_empty() { 3 } else { 2 })
            {
                let listed = lab.send("GET", &format!("/bucket{query}"), headers, b"").expect(200);
                assert_eq!(listed.xml_all("Key"), ["cr&#13;x", "odd&#x1;"], "{query} {headers:?}");
            }
            let encoded = lab.send("GET", "/bucket?encoding-type=url", headers, b"").expect(200);
            assert_eq!(encoded.xml_all("Key"), ["cr%0Dx", "odd%01"]);
            let deleted = batch(lab, "cr&#13;x", headers, "").expect(200);
            assert_eq!(deleted.xml_all("Key"), ["cr&#13;x"], "{headers:?}");
            lab.get("/bucket/cr%0Dx").expect(404);
        }
    });
}

#[test]
fn an_object_that_is_xml_stays_as_it_is() {
    each(|lab| {
        let body = b"<K>\r\x01</K>";
        lab.send("PUT", "/bucket/k.xml", &[("content-type", "application/xml")], body).expect(200);
        assert_eq!(lab.get("/bucket/k.xml").expect(200).body, body);
    });
}
