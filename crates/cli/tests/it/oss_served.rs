//! oss:// against our own origin, whose signature check and answers were written by somebody else than the
//! client.

use flatout_server::{Origin, Store, synthetic_bytes};

use crate::folder::Folder;
use crate::objects::{ACCESS_KEY, SECRET_KEY, start};
use crate::program::{Ended, flatout, run};

const KEY: &str = "folder/a b+ü%1";
const SIZE: usize = 5_000_000;

/// One object, for those who have the keys or for everybody.
fn origin(locked: bool) -> Origin {
    let auth = locked.then(|| (ACCESS_KEY.to_owned(), SECRET_KEY.to_owned()));
    start(Store::Synthetic(vec![("bucket".into(), KEY.into(), SIZE as u64)], vec![]), auth)
}

fn body() -> Vec<u8> {
    let mut body = vec![0; SIZE];
    synthetic_bytes("bucket", KEY, 0..SIZE as u64, &mut body);
    body
}

fn ask(origin: &Origin, (access_key, secret_key): (&str, &str), arguments: &[&str]) -> Ended {
    let url = origin.url();
    let more = ["--oss-region", "cn-hangzhou", "--part-size", "1MiB", "--retries", "0"];
    let endpoint = ["--oss-endpoint", &url];
    let endpoint = if arguments.contains(&"--oss-endpoint") { &[][..] } else { &endpoint };
    let mut command = flatout(&[arguments, &more, endpoint].concat());
    run(command.envs([("OSS_ACCESS_KEY_ID", access_key), ("OSS_ACCESS_KEY_SECRET", secret_key)]))
}

const RIGHT: (&str, &str) = (ACCESS_KEY, SECRET_KEY);

#[track_caller]
fn arrives(origin: &Origin, keys: (&str, &str), more: &[&str]) {
    let folder = Folder::new();
    let (source, target) = (format!("oss://bucket/{KEY}"), folder.at("new"));
    let ended = ask(origin, keys, &[&["cp", &source, &target, "--json"], more].concat()).clean();
    assert_eq!(ended.events()[0]["verified"], "crc64xz", "{more:?}");
    assert!(std::fs::read(&target).unwrap() == body(), "{more:?}: other bytes");
}

#[test]
fn either_signature_is_let_in() {
    let origin = origin(true);
    for signature in ["v4", "v1"] {
        let version = ["--oss-signature", signature];
        arrives(&origin, RIGHT, &version);
        let go = |arguments: &[&str]| ask(&origin, RIGHT, &[arguments, &version].concat()).clean();
        let piece = go(&["cat", &format!("oss://bucket/{KEY}"), "--range", "999999-1000002"]);
        assert_eq!(piece.stdout, body()[999_999..1_000_003]);
        assert_eq!(go(&["ls", "-r", "oss://bucket"]).text(), format!("{KEY}\n"));
        assert_eq!(go(&["ls", "oss://bucket"]).text(), "folder/\n");
        assert_eq!(go(&["ls", "oss://"]).text(), "oss://bucket\n");
        assert!(go(&["stat", &format!("oss://bucket/{KEY}")]).text().contains("5000000"));
    }
}

#[test]
fn the_bucket_may_stand_in_the_host_name() {
    let origin = origin(true);
    let address = origin.addresses()[0];
    let name = "bucket.oss-cn-hangzhou.aliyuncs.com";
    let resolve = format!("{name}:{}:{}", address.port(), address.ip());
    let endpoint = format!("http://oss-cn-hangzhou.aliyuncs.com:{}", address.port());
    for signature in ["v4", "v1"] {
        let more = ["--oss-endpoint", &endpoint, "--resolve", &resolve, "--oss-signature", signature];
        arrives(&origin, RIGHT, &more);
    }
}

#[test]
fn others_are_refused() {
    let origin = origin(true);
    let (source, list) = (format!("oss://bucket/{KEY}"), ["ls", "oss://bucket"]);
    for signature in ["v4", "v1"] {
        let version = ["--oss-signature", signature];
        for (keys, code) in
            [((ACCESS_KEY, "wrong"), "SignatureDoesNotMatch"), (("OTHER", SECRET_KEY), "InvalidAccessKeyId")]
        {
            for arguments in [&list[..], &["cat", &source], &["stat", &source]] {
                let ended = ask(&origin, keys, &[arguments, &version].concat());
                assert!(ended.stderr.contains(code), "{arguments:?} {}", ended.stderr);
            }
        }
        let ended = ask(&origin, RIGHT, &[&["cat", "oss://bucket/nothing"], &version[..]].concat());
        assert!(ended.stderr.contains("NoSuchKey"), "{}", ended.stderr);
    }
    let unsigned = ask(&origin, RIGHT, &["cat", &source, "--no-sign-request"]);
    assert!(unsigned.stderr.contains("AccessDenied"), "{}", unsigned.stderr);
}

#[test]
fn an_open_origin_asks_nobody() {
    let origin = origin(false);
    arrives(&origin, RIGHT, &["--no-sign-request"]);
    arrives(&origin, ("ANY", "key"), &[]);
    assert_eq!(
        ask(&origin, RIGHT, &["ls", "-r", "oss://bucket", "--no-sign-request"]).clean().text(),
        format!("{KEY}\n")
    );
}
