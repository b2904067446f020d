//! The dialect of OSS: the same over every store. Who is who by a signer of the test's own.

use std::time::SystemTime;

use base64_simd::STANDARD as BASE64;
use flatout_server::{FaultPlan, Options, Origin, Store};
use flatout_wire::checksum::Algorithm;
use flatout_wire::time::{format_amz, format_http, parse_http};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::client::{Answer, Headers, Lab, bytes, crc64nvme, each, options, send};

/// Unsigned, it is OSS by its host.
fn ask(lab: &Lab, method: &str, target: &str, headers: Headers, body: &[u8]) -> Answer {
    lab.send(method, target, &[&[("host", "oss-test.aliyuncs.com")], headers].concat(), body)
}

fn crc(body: &[u8]) -> String {
    Algorithm::Crc64Xz.of(body).to_string()
}

#[track_caller]
fn refused(answer: Answer, status: u16, code: &str) {
    let answer = answer.expect(status);
    assert_eq!(answer.xml("Code").as_deref(), Some(code));
    assert_eq!(answer.xml("RequestId").as_deref(), answer.header("x-oss-request-id"));
    assert_eq!(answer.header("content-type"), Some("application/xml"));
    assert!(!answer.xml("Message").unwrap().is_empty() && answer.xml("HostId").is_some());
    assert_eq!(answer.xml("EC").as_deref(), answer.header("x-oss-ec"));
}

#[test]
fn one_listener_speaks_both_dialects_over_the_same_objects() {
    each(|lab| {
        let body = bytes("both", 100_000);
        let by_s3 = lab.send("PUT", "/bucket/s3", &[("x-amz-meta-colour", "blue")], &body).expect(200);
        let by_oss = ask(lab, "PUT", "/bucket/oss", &[("x-oss-meta-colour", "blue")], &body).expect(200);
        assert_eq!(by_s3.header("x-amz-checksum-crc64nvme"), Some(&*crc64nvme(&body)));
        assert_eq!(by_oss.header("x-oss-hash-crc64ecma"), Some(&*crc(&body)));
        for key in ["s3", "oss"] {
            let target = format!("/bucket/{key}");
            let answer = ask(lab, "GET", &target, &[], b"").expect(200);
            assert!(answer.body == body, "{key}");
            for (name, value) in [
                ("x-oss-hash-crc64ecma", &*crc(&body)),
                ("x-oss-object-type", "Normal"),
                ("x-oss-storage-class", "Standard"),
                ("x-oss-meta-colour", "blue"),
                ("content-type", "application/octet-stream"),
                ("accept-ranges", "bytes"),
            ] {
                assert_eq!(answer.header(name), Some(value), "{key} {name}");
            }
            assert_eq!(answer.header("x-oss-request-id").map(str::len), Some(24));
            let head = lab.send("HEAD", &target, &[("x-amz-checksum-mode", "ENABLED")], b"").expect(200);
            assert_eq!(head.header("x-amz-checksum-crc64nvme"), Some(&*crc64nvme(&body)), "{key}");
            assert_eq!(head.header("x-amz-meta-colour"), Some("blue"), "{key}");
            assert_eq!(head.header("etag"), answer.header("etag"), "{key}");
            assert_eq!(head.header("x-oss-request-id"), None);
        }
        // A header of OSS's own is enough, and a bucket may stand in the host name.
        let asked = lab.send("HEAD", "/bucket/s3", &[("x-oss-range-behavior", "standard")], b"").expect(200);
        assert!(asked.header("x-oss-object-type").is_some());
        let host = [("host", "bucket.oss-cn-hangzhou.aliyuncs.com")];
        assert!(lab.send("GET", "/s3", &host, b"").expect(200).body == body);
    });
}

#[test]
fn ranges_are_those_of_oss_unless_the_standard_is_asked_for() {
    each(|lab| {
        let body = bytes("ranges", 1000);
        ask(lab, "PUT", "/bucket/k", &[], &body).expect(200);
        let whole = crc(&body);
        for (range, standard, status, expected) in [
            ("bytes=5-9", false, 206, &body[5..10]),
            ("bytes=5-9", true, 206, &body[5..10]),
            ("bytes=-7", false, 206, &body[993..]),
            ("bytes=990-2000", true, 206, &body[990..]),
            ("bytes=990-2000", false, 200, &body[..]),
            ("bytes=1000-", false, 200, &body[..]),
            ("bytes=9-5", true, 200, &body[..]),
        ] {
            let behaviour = ("x-oss-range-behavior", if standard { "standard" } else { "" });
            let answer = ask(lab, "GET", "/bucket/k", &[("range", range), behaviour], b"").expect(status);
            assert!(answer.body == expected, "{range} {standard}");
            // Of the whole object, whatever is answered.
            assert_eq!(answer.header("x-oss-hash-crc64ecma"), Some(&*whole), "{range}");
        }
        let beyond = [("range", "bytes=1000-"), ("x-oss-range-behavior", "standard")];
        let answer = ask(lab, "GET", "/bucket/k", &beyond, b"");
        assert_eq!(answer.header("content-range"), Some("bytes */1000"));
        refused(answer, 416, "InvalidRange");
    });
}

#[test]
fn conditions_pin_a_version() {
    each(|lab| {
        let old = ask(lab, "PUT", "/bucket/k", &[], b"old").header("etag").unwrap().to_owned();
        let new = ask(lab, "PUT", "/bucket/k", &[], b"newer").header("etag").unwrap().to_owned();
        for (name, value, status) in [
            ("if-match", &*new, 206),
            ("if-match", new.trim_matches('"'), 206),
            ("if-none-match", &*old, 206),
            ("if-none-match", &*new, 304),
        ] {
            let answer = ask(lab, "GET", "/bucket/k", &[(name, value), ("range", "bytes=0-1")], b"");
            assert_eq!(answer.status, status, "{name}: {value}");
        }
        refused(ask(lab, "GET", "/bucket/k", &[("if-match", &old)], b""), 412, "PreconditionFailed");
        let once = [("x-oss-forbid-overwrite", "true")];
        refused(ask(lab, "PUT", "/bucket/k", &once, b"x"), 409, "FileAlreadyExists");
        ask(lab, "PUT", "/bucket/other", &once, b"x").expect(200);
    });
}

#[test]
fn errors_are_worded_as_oss_does() {
    each(|lab| {
        refused(ask(lab, "GET", "/bucket/nothing", &[], b""), 404, "NoSuchKey");
        refused(ask(lab, "GET", "/nowhere/k", &[], b""), 404, "NoSuchBucket");
        refused(ask(lab, "PUT", "/bucket", &[], b""), 409, "BucketAlreadyExists");
        refused(ask(lab, "GET", "/Bucket/k", &[], b""), 400, "InvalidBucketName");
        refused(ask(lab, "GET", "/bucket?max-keys=1001", &[], b""), 400, "InvalidArgument");
        refused(ask(lab, "PUT", "/bucket//a", &[], b"x"), 400, "InvalidObjectName");
        refused(ask(lab, "GET", "/bucket?lifecycle", &[], b""), 501, "NotImplemented");
        refused(ask(lab, "POST", "/bucket?delete", &[], b"<Delete>"), 400, "MalformedXML");
        let wrong = [("content-md5", "eB5eJF1ptWaXm4bijSPyxw==")];
        refused(ask(lab, "PUT", "/bucket/k", &wrong, b"x"), 400, "InvalidDigest");
        ask(lab, "PUT", "/bucket/k", &[("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==")], b"123456789")
            .expect(200);
        // A HEAD has no body: a header carries it.
        let head = ask(lab, "HEAD", "/bucket/nothing", &[], b"").expect(404);
        let document = BASE64.decode_to_vec(head.header("x-oss-err").unwrap()).unwrap();
        let document = Answer { status: 404, headers: Vec::new(), body: document };
        assert_eq!(document.xml("Code").as_deref(), Some("NoSuchKey"));
        assert_eq!(document.xml("RequestId").as_deref(), head.header("x-oss-request-id"));
    });
}

#[test]
fn an_appendable_object_grows_at_its_end_alone() {
    each(|lab| {
        let body = bytes("append", 5000);
        let append = |position: usize, body: &[u8]| {
            ask(lab, "POST", &format!("/bucket/log?append&position={position}"), &[], body)
        };
        refused(append(1, b"x"), 409, "PositionNotEqualToLength");
        assert_eq!(append(0, &body[..2000]).expect(200).header("x-oss-next-append-position"), Some("2000"));
        let grown = append(2000, &body[2000..]).expect(200);
        assert_eq!(grown.header("x-oss-hash-crc64ecma"), Some(&*crc(&body)));
        let late = append(2000, b"x");
        assert_eq!(late.header("x-oss-next-append-position"), Some("5000"));
        refused(late, 409, "PositionNotEqualToLength");
        let got = ask(lab, "GET", "/bucket/log", &[], b"").expect(200);
        assert!(got.body == body);
        assert_eq!(got.header("x-oss-object-type"), Some("Appendable"));
        assert_eq!(got.header("x-oss-next-append-position"), Some("5000"));
        assert_eq!(ask(lab, "GET", "/bucket", &[], b"").xml("Type").as_deref(), Some("Appendable"));
        refused(ask(lab, "POST", "/bucket/log?append", &[], b"x"), 400, "MissingArgument");
        ask(lab, "PUT", "/bucket/log", &[], b"normal").expect(200);
        refused(append(6, b"x"), 409, "ObjectNotAppendable");
    });
}

#[test]
fn of_appends_at_one_position_one_wins() {
    each(|lab| {
        let append = || ask(lab, "POST", "/bucket/log?append&position=0", &[], &bytes("a", 100_000)).status;
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(append)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 7, "{statuses:?}");
        assert_eq!(ask(lab, "HEAD", "/bucket/log", &[], b"").header("content-length"), Some("100000"));
    });
}

#[test]
fn parts_become_one_object() {
    each(|lab| {
        let body = bytes("parts", 250_000);
        let begun = ask(lab, "POST", "/bucket/a%20b?uploads&encoding-type=url", &[], b"").expect(200);
        assert_eq!(begun.xml("Key").as_deref(), Some("a%20b"));
        let id = begun.xml("UploadId").unwrap();
        let part = |number: u32, body: &[u8]| {
            let answer =
                ask(lab, "PUT", &format!("/bucket/a%20b?partNumber={number}&uploadId={id}"), &[], body)
                    .expect(200);
            assert_eq!(answer.header("x-oss-hash-crc64ecma"), Some(&*crc(body)));
            let etag = answer.header("etag").unwrap();
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
        };
        let (first, small, last) = (part(1, &body[..120_000]), part(2, b"small"), part(3, &body[120_000..]));
        let listed =
            ask(lab, "GET", &format!("/bucket/a%20b?uploadId={id}&max-parts=2"), &[], b"").expect(200);
        assert_eq!(listed.xml_all("PartNumber"), ["1", "2"]);
        assert_eq!(listed.xml("IsTruncated").as_deref(), Some("true"));
        assert_eq!(listed.xml("HashCrc64ecma"), Some(crc(&body[..120_000])));
        assert_eq!(ask(lab, "GET", "/bucket?uploads", &[], b"").expect(200).xml_all("UploadId"), [&*id]);
        let complete = |parts: &[&str]| {
            let document = format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.concat());
            ask(lab, "POST", &format!("/bucket/a%20b?uploadId={id}"), &[], document.as_bytes())
        };
        refused(complete(&[&first, &small, &last]), 400, "EntityTooSmall");
        refused(complete(&[&last, &first]), 400, "InvalidPartOrder");
        refused(complete(&[&first, &last.replace("ETag>\"", "ETag>\"0")]), 400, "InvalidPart");
        let done = complete(&[&first, &last]).expect(200);
        assert_eq!(done.header("x-oss-hash-crc64ecma"), Some(&*crc(&body)));
        let got = ask(lab, "GET", "/bucket/a%20b", &[], b"").expect(200);
        assert!(got.body == body);
        assert_eq!(got.header("x-oss-object-type"), Some("Multipart"));
        // Who has lost the answer gets it again; with other parts it would be another one.
        let again = complete(&[&first, &last]).expect(200);
        assert_eq!(
            (again.header("etag"), again.header("x-oss-hash-crc64ecma")),
            (done.header("etag"), Some(&*crc(&body)))
        );
        refused(complete(&[&first]), 400, "InvalidPart");
        ask(lab, "DELETE", "/bucket/a%20b", &[], b"").expect(204);
        let gone = complete(&[&first, &last]);
        assert_eq!(gone.header("x-oss-ec"), Some("0017-00000244"));
        refused(gone, 404, "NoSuchUpload");
    });
}

#[test]
fn an_upload_of_nothing_is_an_empty_object() {
    each(|lab| {
        let begun = ask(lab, "POST", "/bucket/empty?uploads", &[], b"").expect(200).xml("UploadId").unwrap();
        let none = b"<CompleteMultipartUpload></CompleteMultipartUpload>";
        ask(lab, "POST", &format!("/bucket/empty?uploadId={begun}"), &[], none).expect(200);
        let got = ask(lab, "GET", "/bucket/empty", &[], b"").expect(200);
        assert_eq!((got.body.len(), got.header("x-oss-object-type")), (0, Some("Multipart")));
    });
}

#[test]
fn content_md5_is_stated_of_what_came_in_one_piece() {
    each(|lab| {
        // printf 123456789 | openssl md5 -binary | base64
        let md5 = Some("JfnnlDI7RTiF9RgfG2JNCw==");
        assert_eq!(ask(lab, "PUT", "/bucket/k", &[], b"123456789").header("content-md5"), md5);
        assert_eq!(ask(lab, "GET", "/bucket/k", &[], b"").header("content-md5"), md5);
        assert_eq!(ask(lab, "HEAD", "/bucket/k", &[], b"").header("content-md5"), md5);
        let range = [("range", "bytes=0-1")];
        assert_eq!(ask(lab, "GET", "/bucket/k", &range, b"").expect(206).header("content-md5"), None);
        let id = ask(lab, "POST", "/bucket/parts?uploads", &[], b"").xml("UploadId").unwrap();
        let part = ask(lab, "PUT", &format!("/bucket/parts?partNumber=1&uploadId={id}"), &[], b"123456789");
        assert_eq!(part.header("content-md5"), md5);
    });
}

#[test]
fn tags_storage_class_and_expires_are_kept() {
    each(|lab| {
        let headers = [
            ("x-oss-tagging", "a=b&c%20d=e"),
            ("x-oss-storage-class", "IA"),
            ("expires", "Tue, 06 May 2031 07:08:09 GMT"),
        ];
        ask(lab, "PUT", "/bucket/k", &headers, b"x").expect(200);
        ask(lab, "PUT", "/bucket/copy", &[("x-oss-copy-source", "/bucket/k")], b"").expect(200);
        for (key, class) in [("k", "IA"), ("copy", "Standard")] {
            let head = ask(lab, "HEAD", &format!("/bucket/{key}"), &[], b"").expect(200);
            assert_eq!(head.header("x-oss-tagging-count"), Some("2"));
            assert_eq!(head.header("x-oss-storage-class"), Some(class));
            assert_eq!(head.header("expires"), Some("Tue, 06 May 2031 07:08:09 GMT"));
        }
        assert_eq!(ask(lab, "GET", "/bucket", &[], b"").xml_all("StorageClass"), ["Standard", "IA"]);
        // The other dialect knows it by its own name.
        assert_eq!(
            lab.send("HEAD", "/bucket/k", &[], b"").header("x-amz-storage-class"),
            Some("STANDARD_IA")
        );
        let tags = |lab: &Lab| ask(lab, "GET", "/bucket/k?tagging", &[], b"").expect(200).xml_all("Key");
        assert_eq!(tags(lab), ["a", "c d"]);
        let document = b"<Tagging><TagSet><Tag><Key>x</Key><Value>y</Value></Tag></TagSet></Tagging>";
        ask(lab, "PUT", "/bucket/k?tagging", &[], document).expect(200);
        assert_eq!(tags(lab), ["x"]);
        ask(lab, "DELETE", "/bucket/k?tagging", &[], b"").expect(204);
        assert!(tags(lab).is_empty());
        refused(ask(lab, "PUT", "/bucket/k", &[("x-oss-tagging", "a=1&a=2")], b"x"), 400, "InvalidTag");
        refused(ask(lab, "GET", "/bucket/none?tagging", &[], b""), 404, "NoSuchKey");
        refused(ask(lab, "GET", "/bucket/k?versionId=x", &[], b""), 404, "NoSuchVersion");
    });
}

#[test]
fn copies_lists_and_deletes() {
    each(|lab| {
        let body = bytes("copies", 3000);
        ask(lab, "PUT", "/bucket/dir/a%2B%C3%BC", &[("content-type", "text/x")], &body).expect(200);
        let source = ("x-oss-copy-source", "/bucket/dir/a%2B%C3%BC");
        let copied = ask(lab, "PUT", "/bucket/copy", &[source], b"").expect(200);
        assert_eq!(copied.header("x-oss-hash-crc64ecma"), Some(&*crc(&body)));
        let other = ("x-oss-copy-source-if-match", "\"other\"");
        refused(ask(lab, "PUT", "/bucket/copy", &[source, other], b""), 412, "PreconditionFailed");
        assert_eq!(ask(lab, "HEAD", "/bucket/copy", &[], b"").header("content-type"), Some("text/x"));
        let meta = ask(lab, "HEAD", "/bucket/copy?objectMeta", &[], b"").expect(200);
        assert_eq!(meta.header("content-length"), Some("3000"));
        let wished = ask(lab, "GET", "/bucket/copy?response-content-type=text/y", &[], b"").expect(200);
        assert_eq!(wished.header("content-type"), Some("text/y"));

        let list = |query: &str| ask(lab, "GET", &format!("/bucket?{query}"), &[], b"").expect(200);
        assert_eq!(list("list-type=2").xml_all("Key"), ["copy", "dir/a+ü"]);
        assert_eq!(list("encoding-type=url").xml_all("Key"), ["copy", "dir/a%2B%C3%BC"]);
        let first = list("list-type=2&delimiter=/&max-keys=1");
        assert_eq!(
            (first.xml_all("Key"), first.xml("KeyCount").unwrap()),
            (vec!["copy".to_owned()], "1".to_owned())
        );
        let token = first.xml("NextContinuationToken").unwrap();
        let second = list(&format!("list-type=2&delimiter=/&continuation-token={token}"));
        assert_eq!(second.xml_all("Prefix").last().unwrap(), "dir/");
        assert_eq!(list("max-keys=1").xml("NextMarker").as_deref(), Some("copy"));
        assert_eq!(list("marker=copy").xml_all("Key"), ["dir/a+ü"]);
        assert_eq!(ask(lab, "GET", "/", &[], b"").expect(200).xml_all("Name"), ["bucket"]);
        for query in ["bucketInfo", "location", "acl"] {
            list(query);
        }

        let document =
            "<Delete><Object><Key>dir/a+&#252;</Key></Object><Object><Key>copy</Key></Object></Delete>";
        let deleted = ask(lab, "POST", "/bucket?delete", &[], document.as_bytes()).expect(200);
        assert_eq!(deleted.xml_all("Key"), ["dir/a+ü", "copy"]);
        ask(lab, "DELETE", "/bucket/copy", &[], b"").expect(204);
        ask(lab, "DELETE", "/bucket", &[], b"").expect(204);
    });
}

const KEYS: (&str, &str) = ("AKEXAMPLE", "secret/+=key");

fn guarded() -> Origin {
    guarded_by(0)
}

/// By a clock that is so many seconds ahead.
fn guarded_by(clock: i64) -> Origin {
    let auth = Some((KEYS.0.to_owned(), KEYS.1.to_owned()));
    let fault_plan = FaultPlan { clock, ..FaultPlan::default() };
    let object = ("bucket".to_owned(), "a b/ü+1".to_owned(), 100);
    Origin::start(Options { auth, fault_plan, ..options(Store::Synthetic(vec![object], vec![])) }).unwrap()
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn an_origin_whose_clock_is_off_judges_by_it_and_shows_it() {
    for clock in [3600, -3600] {
        let origin = guarded_by(clock);
        let its_now = now().saturating_add_signed(clock);
        for get in [get_v1, get_v4, get_v4_by_http_date] {
            let refused = get(&origin, KEYS, now()).expect(403);
            assert_eq!(refused.xml("Code").as_deref(), Some("RequestTimeTooSkewed"));
            let let_in = get(&origin, KEYS, its_now);
            assert!(let_in.status < 300, "{}", let_in.status);
            for answer in [refused, let_in] {
                let date = parse_http(answer.header("date").unwrap()).unwrap();
                assert!(date.abs_diff(its_now) < 300, "{date} {its_now}");
            }
        }
    }
}

/// A GET of the origin's one object, signed as version 1 says.
fn get_v1(origin: &Origin, (access_key, secret_key): (&str, &str), unix_s: u64) -> Answer {
    let date = format_http(unix_s);
    let mut mac = Hmac::<Sha1>::new_from_slice(secret_key.as_bytes()).unwrap();
    mac.update(format!("GET\n\n\n{date}\n/bucket/a b/ü+1").as_bytes());
    let signature = BASE64.encode_to_string(mac.finalize().into_bytes());
    let headers = [("date", &*date), ("authorization", &format!("OSS {access_key}:{signature}"))];
    send(origin.addresses()[0], "GET", "/bucket/a%20b/%C3%BC+1", &headers, b"")
}

/// Signed as version 4 says; the range is not signed.
fn get_v4(origin: &Origin, keys: (&str, &str), unix_s: u64) -> Answer {
    let date = format_amz(unix_s);
    let signed = format!("x-oss-content-sha256:UNSIGNED-PAYLOAD\nx-oss-date:{date}\n");
    get_v4_dated(origin, keys, ("x-oss-date", &date), (&signed, unix_s))
}

/// As ossutil 1 does it: Date, which is no signed header, is signed as it stands.
fn get_v4_by_http_date(origin: &Origin, keys: (&str, &str), unix_s: u64) -> Answer {
    let date = format_http(unix_s);
    get_v4_dated(origin, keys, ("date", &date), ("x-oss-content-sha256:UNSIGNED-PAYLOAD\n", unix_s))
}

fn get_v4_dated(
    origin: &Origin,
    (access_key, secret_key): (&str, &str),
    date: (&str, &str),
    (signed, unix_s): (&str, u64),
) -> Answer {
    let hmac = |key: &[u8], text: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().to_vec()
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let canonical = format!("GET\n/bucket/a%20b/%C3%BC%2B1\n\n{signed}\n\nUNSIGNED-PAYLOAD");
    let day = format_amz(unix_s);
    let words = [&day[..8], "cn-hangzhou", "oss", "aliyun_v4_request"];
    let scope = words.join("/");
    let text = format!("OSS4-HMAC-SHA256\n{}\n{scope}\n{}", date.1, hex(&Sha256::digest(canonical)));
    let seed = format!("aliyun_v4{secret_key}").into_bytes();
    let signature = hex(&hmac(&words.iter().fold(seed, |key, word| hmac(&key, word)), &text));
    let authorization = format!("OSS4-HMAC-SHA256 Credential={access_key}/{scope},Signature={signature}");
    let headers = [
        date,
        ("x-oss-content-sha256", "UNSIGNED-PAYLOAD"),
        ("authorization", &*authorization),
        ("range", "bytes=0-9"),
    ];
    send(origin.addresses()[0], "GET", "/bucket/a%20b/%C3%BC%2B1", &headers, b"")
}

#[test]
fn who_has_the_keys_is_let_in_and_nobody_else() {
    let origin = guarded();
    for get in [get_v1, get_v4, get_v4_by_http_date] {
        let answer = get(&origin, KEYS, now());
        assert!([200, 206].contains(&answer.status), "{}", answer.status);
        assert!(answer.header("x-oss-hash-crc64ecma").is_some());
        refused(get(&origin, (KEYS.0, "wrong"), now()), 403, "SignatureDoesNotMatch");
        refused(get(&origin, ("AKOTHER", KEYS.1), now()), 403, "InvalidAccessKeyId");
        refused(get(&origin, KEYS, now() - 1000), 403, "RequestTimeTooSkewed");
        refused(get(&origin, KEYS, now() + 1000), 403, "RequestTimeTooSkewed");
    }
    let host = [("host", "bucket.oss-cn-hangzhou.aliyuncs.com")];
    refused(send(origin.addresses()[0], "GET", "/a%20b/%C3%BC%2B1", &host, b""), 403, "AccessDenied");
}

#[test]
fn an_open_origin_asks_nobody() {
    let open =
        Origin::start(options(Store::Synthetic(vec![("bucket".into(), "a b/ü+1".into(), 100)], vec![])))
            .unwrap();
    for get in [get_v1, get_v4] {
        assert!([200, 206].contains(&get(&open, ("ANY", "key"), 0).status));
    }
}
