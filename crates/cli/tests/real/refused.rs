//! What MinIO refuses: one clear line, the right code, no secret in it, nothing left behind.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::bytes;
use crate::curl::target;
use crate::folder::Folder;
use crate::minio::{ACCESS_KEY, Bucket, SECRET_KEY};
use crate::program::{ended, run};
use crate::uploads::unfinished;

const ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";

/// `flatout cp` with these variables fails as described and leaves the folder as it was.
#[track_caller]
fn check(bucket: &Bucket, variables: &[(&str, &str)], source: &str, more: &[&str], code: i32, says: &[&str]) {
    let folder = Folder::new();
    let target = folder.at("model");
    let arguments = [&["cp", source, &target], more].concat();
    let ended = run(&mut bucket.flatout_as(variables, &arguments)).refused(code, says);
    assert!(!ended.stderr.contains(SECRET_KEY), "{}", ended.stderr);
    folder.is_untouched();
}

#[test]
fn wrong_keys() {
    let bucket = Bucket::new("wrong-keys");
    bucket.put("model", &bytes(1000), &[]);
    let source = bucket.s3("model");
    check(
        &bucket,
        &[(ID, ACCESS_KEY), (SECRET, "wrong")],
        &source,
        &[],
        5,
        &[&source, "SignatureDoesNotMatch"],
    );
    check(
        &bucket,
        &[(ID, "NOBODY"), (SECRET, SECRET_KEY)],
        &source,
        &[],
        5,
        &[&source, "InvalidAccessKeyId"],
    );
    check(&bucket, &[], &source, &[], 5, &[&source, "AccessDenied", ID]);
    check(&bucket, &[(ID, ACCESS_KEY), (SECRET, SECRET_KEY)], &source, &["--no-sign-request"], 5, &[&source]);
}

#[test]
fn nothing_there() {
    let bucket = Bucket::new("nothing-there");
    let keys = [(ID, ACCESS_KEY), (SECRET, SECRET_KEY)];
    check(&bucket, &keys, &bucket.s3("nothing"), &[], 1, &[&bucket.s3("nothing"), "no such object"]);
    check(&bucket, &keys, "s3://no-such-bucket/x", &[], 1, &["s3://no-such-bucket/x", "NoSuchBucket"]);
    for arguments in [["stat", "s3://nothing-there/nothing"], ["cat", "s3://nothing-there/nothing"]] {
        run(&mut bucket.flatout(&arguments)).refused(1, &[arguments[1]]);
    }
    run(&mut bucket.flatout(&["ls", "s3://no-such-bucket/"])).refused(1, &["s3://no-such-bucket"]);
}

#[test]
fn a_public_bucket_needs_no_keys() {
    let bucket = Bucket::new("public-bucket");
    let body = bytes(100_000);
    bucket.put("model", &body, &[]);
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["*"]},
        "Action":["s3:GetObject"],"Resource":["arn:aws:s3:::public-bucket/*"]}]}"#;
    bucket.curl.ask("PUT", "/public-bucket?policy=", &[], Some(policy.as_bytes())).is(204);
    for more in [&["--no-sign-request"][..], &[]] {
        let arguments = [&["cat", "s3://public-bucket/model", "--part-size", "16KiB"], more].concat();
        let ended = run(&mut bucket.flatout_as(&[], &arguments)).clean();
        assert!(ended.stdout == body, "other bytes");
    }
}

/// Who may only read is refused, whether an object goes as one or in parts, and leaves nothing.
#[test]
fn who_may_only_read_sends_nothing() {
    let (bucket, folder) = (Bucket::new("only-read"), Folder::new());
    let file = folder.at("file");
    bucket.put("model", b"first", &[]);
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["*"]},
        "Action":["s3:GetObject"],"Resource":["arn:aws:s3:::only-read/*"]}]}"#;
    bucket.curl.ask("PUT", "/only-read?policy=", &[], Some(policy.as_bytes())).is(204);
    run(&mut bucket.flatout_as(&[], &["cat", &bucket.s3("model")])).clean();
    for (key, length) in [("new", 1_000), ("model", 1_000), ("new", 12 << 20), ("model", 12 << 20)] {
        let (url, body) = (bucket.s3(key), bytes(length));
        fs::write(&file, &body).unwrap();
        for source in [file.as_str(), "-"] {
            let mut command = bucket.flatout_as(&[], &["cp", source, &url, "--part-size", "5MiB"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            // It may be refused before it has read all.
            let _ = child.stdin.take().unwrap().write_all(&body);
            let ended = ended(child.wait_with_output().unwrap());
            ended.refused(5, &["upload: ", &url, "access denied", "AccessDenied"]);
            assert_eq!(unfinished(&bucket), 0, "{source} -> {url}, {length}");
        }
    }
    bucket.curl.ask("GET", &target("only-read", "new"), &[], None).is(404);
    assert_eq!(bucket.curl.ask("GET", &target("only-read", "model"), &[], None).is(200).body, b"first");
}
