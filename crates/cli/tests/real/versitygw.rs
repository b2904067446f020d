//! versitygw, S3 over a folder: another server that nobody here wrote, with habits other than MinIO's.

use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;

use crate::bytes;
use crate::curl::Curl;
use crate::folder::Folder;
use crate::guard::{Guard, free_port, installed};
use crate::minio::{ACCESS_KEY, Bucket, SECRET_KEY, cache};
use crate::program::run;

/// Started once for all tests, with the keys that MinIO's tests use.
static SHARED: LazyLock<(String, Guard)> = LazyLock::new(|| {
    let program = program();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    fs::create_dir(&store).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let command = [&program, "--port", &address, "posix", store.to_str().unwrap()];
    let variables = [("ROOT_ACCESS_KEY", ACCESS_KEY), ("ROOT_SECRET_KEY", SECRET_KEY)];
    let mut guard = Guard::start(folder, &command, &variables);
    guard.wait_for("versitygw", |_| std::net::TcpStream::connect(&address).ok());
    (format!("http://{address}"), guard)
});

fn program() -> String {
    installed("versitygw", &[cache().join("bin/versitygw")])
}

/// A new bucket; the name must be the test's own.
#[track_caller]
pub fn bucket(name: &str) -> Bucket {
    // As with MinIO, each test says what is missing.
    program();
    let curl = Curl { url: SHARED.0.clone(), keys: Some((ACCESS_KEY.to_owned(), SECRET_KEY.to_owned())) };
    curl.ask("PUT", &format!("/{name}"), &[], None).is(200);
    Bucket { name: name.to_owned(), curl }
}

#[test]
fn objects_in_many_parts_arrive() {
    let bucket = bucket("parts");
    let (first, second) = (bytes(6 << 20), bytes((3 << 20) + 7));
    let whole = [&first[..], &second[..]].concat();
    bucket.put("at once", &whole, &[]);
    let parts = [(&first[..], String::new()), (&second[..], String::new())];
    bucket.curl.put_parts(&bucket.name, "in-parts", &[], &parts);
    bucket.put("empty", &[], &[]);
    for (key, want) in [("at once", &whole[..]), ("in-parts", &whole), ("empty", &[])] {
        for part_size in ["1MiB", "8MiB"] {
            let folder = Folder::new();
            let target = folder.at("model");
            run(&mut bucket.flatout(&["cp", &bucket.s3(key), &target, "--part-size", part_size])).clean();
            assert!(fs::read(&target).unwrap() == want, "{key}, parts of {part_size}: other bytes");
        }
    }
}

#[test]
fn odd_keys_are_listed_and_arrive() {
    let bucket = bucket("odd-keys");
    let keys =
        ["a b", "ä€ 日本", "a+b", "100%", "%2F", "a&b=c", "it's!(*)", "a<b>&amp;", "folder/x y/ü", "a\"b"];
    for key in keys {
        bucket.put(key, key.as_bytes(), &[]);
    }
    let ended = run(&mut bucket.flatout(&["ls", "-r", &bucket.s3(""), "--json"])).clean();
    let events = ended.events();
    let listed = events.iter().filter(|event| event["event"] == "entry");
    let listed: BTreeSet<&str> = listed.map(|event| event["key"].as_str().unwrap()).collect();
    assert_eq!(listed, BTreeSet::from(keys));
    for key in keys {
        let folder = Folder::new();
        let target = folder.at("model");
        run(&mut bucket.flatout(&["cp", &bucket.s3(key), &target])).clean();
        assert_eq!(fs::read_to_string(&target).unwrap(), key);
    }
}

#[test]
fn what_is_refused_is_said_clearly() {
    let bucket = bucket("refused");
    bucket.put("model", b"x", &[]);
    let keys = |secret| [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", secret)];
    for (secret, source, code, says) in [
        ("wrong", "s3://refused/model", 5, "SignatureDoesNotMatch"),
        (SECRET_KEY, "s3://refused/missing", 1, "no such object"),
        (SECRET_KEY, "s3://no-such-bucket/model", 1, "no such bucket"),
    ] {
        let folder = Folder::new();
        let mut command = bucket.flatout_as(&keys(secret), &["cp", source, &folder.at("model")]);
        run(&mut command).refused(code, &[source, says]);
        folder.is_untouched();
    }
}
