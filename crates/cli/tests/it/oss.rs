//! oss:// as a user meets it, against an origin that says what Alibaba Cloud OSS would say.

use std::process::Command;

use flatout_wire::checksum::Algorithm;

use crate::folder::Folder;
use crate::objects::bytes;
use crate::program::{flatout, run};
use crate::raw::{Answer, Asked, Raw};

const SIZE: usize = 3 << 20;
const ETAG: &str = "\"5B3C1A2E053D763E1B002CC607C5A0FE\"";
const SECRETS: [&str; 3] = ["LTAISECRETIVEACCESS", "SECRETKEYSECRETKEY", "SESSIONTOKENTOKEN"];

/// What OSS answers for one object; `mangle` changes a byte on its way.
fn object(asked: &Asked, mangle: bool) -> Answer {
    let mut body = bytes(SIZE);
    let crc = Algorithm::Crc64Xz.encode(Algorithm::Crc64Xz.of(&body));
    body[SIZE - 1] ^= u8::from(mangle);
    let mut headers = vec![
        ("ETag", ETAG),
        ("x-oss-hash-crc64ecma", crc.as_str()),
        ("x-oss-object-type", "Normal"),
        ("x-oss-storage-class", "Standard"),
        ("x-oss-meta-made-by", "me"),
    ];
    if asked.method() == "HEAD" {
        let length = SIZE.to_string();
        headers.push(("Content-Length", &length));
        return Answer::new("200 OK", &headers, b"");
    }
    assert_eq!(asked.header("x-oss-range-behavior"), Some("standard"));
    let range = asked.range(SIZE);
    let (length, content_range) =
        (range.len().to_string(), format!("bytes {}-{}/{SIZE}", range.start, range.end - 1));
    headers.extend([("Content-Length", length.as_str()), ("Content-Range", content_range.as_str())]);
    Answer::new("206 Partial Content", &headers, &body[range])
}

fn refused(status: &str, document: &str) -> Answer {
    let length = document.len().to_string();
    Answer::new(
        status,
        &[("Content-Length", &length), ("x-oss-request-id", "5C3D9175B6FC2012")],
        document.as_bytes(),
    )
}

/// The program with keys of OSS's own and the origin as its endpoint.
fn with_keys(raw: &Raw, arguments: &[&str]) -> Command {
    let endpoint = raw.address.to_string();
    let more = ["--oss-endpoint", &endpoint, "--part-size", "1MiB", "--retries", "0"];
    let mut command = flatout(&[arguments, &more].concat());
    let names = ["OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"];
    command.envs(names.into_iter().zip(SECRETS));
    command
}

#[test]
fn an_object_is_copied_and_verified() {
    for signature in ["v4", "v1"] {
        let raw = Raw::start(move |asked| {
            let signed = asked.header("authorization").expect("a signature");
            assert!(signed.starts_with(if signature == "v4" { "OSS4-HMAC-SHA256 " } else { "OSS LTAI" }));
            assert_eq!(asked.header("x-oss-security-token"), Some(SECRETS[2]));
            object(asked, false)
        });
        let folder = Folder::new();
        let target = folder.at("new");
        let arguments = ["cp", "oss://bucket/a/new", &target, "--oss-signature", signature, "--json"];
        let ended = run(&mut with_keys(&raw, &arguments)).clean();
        let events = ended.events();
        assert_eq!((&events[0]["verified"], &events[0]["key"]), (&"crc64xz".into(), &"a/new".into()));
        assert_eq!(events[0]["source"], "oss://bucket/a/new");
        assert!(std::fs::read(&target).unwrap() == bytes(SIZE));
    }
}

#[test]
fn a_mangled_object_leaves_nothing() {
    let raw = Raw::start(|asked| object(asked, true));
    let folder = Folder::new();
    run(&mut with_keys(&raw, &["cp", "oss://bucket/key", &folder.at("model")]))
        .refused(1, &["oss://bucket/key", "crc64xz"]);
    folder.is_untouched();
}

#[test]
fn a_stat_tells_what_oss_tells() {
    let raw = Raw::start(|asked| object(asked, false));
    let ended = run(&mut with_keys(&raw, &["stat", "oss://bucket/key"])).clean();
    for part in ["oss://bucket/key", "3145728 (3MiB)", "crc64xz", "Standard", "Normal", "made-by"] {
        assert!(ended.text().contains(part), "{}", ended.text());
    }
    let ended = run(&mut with_keys(&raw, &["stat", "oss://bucket/key", "--json"])).clean();
    let event = &ended.events()[0];
    assert_eq!((&event["object_type"], &event["bytes"]), (&"Normal".into(), &SIZE.into()));
}

#[test]
fn buckets_and_objects_are_listed() {
    let raw = Raw::start(|asked| {
        let body = match asked.path() {
            path if path.starts_with("/?max-keys") => {
                "<ListAllMyBucketsResult><Buckets><Bucket><Name>models</Name></Bucket></Buckets></ListAllMyBucketsResult>"
            }
            _ => {
                "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated><Contents>\
                 <Key>p%2Fa%20b</Key><Size>5</Size></Contents><CommonPrefixes><Prefix>p%2Fsub%2F</Prefix>\
                 </CommonPrefixes></ListBucketResult>"
            }
        };
        let length = body.len().to_string();
        Answer::new("200 OK", &[("Content-Length", &length)], body.as_bytes())
    });
    assert_eq!(run(&mut with_keys(&raw, &["ls", "oss://"])).clean().text(), "oss://models\n");
    assert_eq!(run(&mut with_keys(&raw, &["ls", "oss://models/p/"])).clean().text(), "a b\nsub/\n");
}

#[test]
fn a_wrong_endpoint_is_answered_with_the_right_one() {
    let raw = Raw::start(|_| {
        refused(
            "403 Forbidden",
            "<Error><Code>AccessDenied</Code><Message>The bucket must be addressed using the specified endpoint.</Message>\
             <RequestId>5C3D9175B6FC2012</RequestId><Endpoint>oss-cn-beijing.aliyuncs.com</Endpoint>\
             <EC>0003-00001403</EC></Error>",
        )
    });
    let folder = Folder::new();
    run(&mut with_keys(&raw, &["cp", "oss://bucket/key", &folder.at("model")])).refused(
        4,
        &[
            "oss://bucket/key",
            "reached by another endpoint",
            "EC 0003-00001403, request 5C3D9175B6FC2012",
            "--oss-endpoint oss-cn-beijing.aliyuncs.com",
        ],
    );
    folder.is_untouched();
}

#[test]
fn refusals_show_no_secret_and_name_the_missing_keys() {
    let raw = Raw::start(|_| refused("403 Forbidden", "<Error><Code>SignatureDoesNotMatch</Code></Error>"));
    let folder = Folder::new();
    let target = folder.at("model");
    let arguments = ["cp", "oss://bucket/key", target.as_str()];
    for json in [&["--json"][..], &[]] {
        let ended = run(&mut with_keys(&raw, &[&arguments[..], json].concat()));
        let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), ended.stderr);
        assert_eq!(ended.code, Some(5), "{said}");
        assert!(SECRETS.iter().all(|secret| !said.contains(secret)), "{said}");
    }
    let endpoint = raw.address.to_string();
    let mut unsigned = flatout(&[&arguments[..], &["--oss-endpoint", &endpoint]].concat());
    // Keys of Amazon's are none of OSS's.
    unsigned.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").env("AWS_SECRET_ACCESS_KEY", "s3cr3t");
    run(&mut unsigned).refused(5, &["the request was not signed", "OSS_ACCESS_KEY_ID"]);
    folder.is_untouched();
}

#[test]
fn a_bench_and_its_floor_read_oss() {
    let raw = Raw::start(|asked| object(asked, false));
    let arguments = ["bench", "get", "oss://bucket/key", "--floor", "--repeat", "1", "--json"];
    let ended = run(&mut with_keys(&raw, &arguments));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let verified = ended.events().iter().find(|event| event["op"] == "get").unwrap()["verified"].clone();
    assert_eq!(verified, "crc64xz");
}
