//! Keys that need care: put by curl, found, listed and fetched by the program.

use std::collections::BTreeSet;
use std::fs;

use crate::curl::encoded;
use crate::folder::Folder;
use crate::minio::Bucket;
use crate::program::run;
use crate::served::Served;

/// What S3 allows and URLs, signatures or XML change when one is careless.
const ODD: &[&str] = &[
    "a b",
    "ä€ 日本",
    "a+b",
    "100%",
    "%20",
    "%2F",
    "a&b=c",
    "a?b",
    "a#b",
    "it's!(*)",
    "a:b@c;d,e",
    "a\"b",
    "a<b>&amp;",
    "a~b-c_d.e",
    "folder/x y/ü",
    "{x}",
    "x\\y",
    "a^b`c|d",
    "...",
    "a/.hidden",
];

#[test]
fn odd_keys_of_minio_arrive() {
    let bucket = Bucket::new("odd-keys");
    for key in ODD {
        bucket.put(key, key.as_bytes(), &[]);
    }
    let ended = run(&mut bucket.flatout(&["ls", "-r", &bucket.s3(""), "--json"])).clean();
    let listed: BTreeSet<String> = ended
        .events()
        .iter()
        .filter(|event| event["event"] == "entry")
        .map(|event| event["key"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(listed, ODD.iter().map(|key| (*key).to_owned()).collect());
    for key in ODD {
        let folder = Folder::new();
        let target = folder.at("model");
        run(&mut bucket.flatout(&["cp", &bucket.s3(key), &target])).clean();
        assert_eq!(fs::read_to_string(&target).unwrap(), *key);
    }
}

/// MinIO keeps objects as files and refuses keys that no path can hold; S3 does not, and neither does our own
/// origin.
#[test]
fn keys_that_are_no_paths_arrive_from_our_origin() {
    let served = Served::locked(&["--memory"]);
    served.curl.ask("PUT", "/odd-keys", &[], None).is(200);
    let more = ["a//b", "/leading", "a/./b", "a/../b", "..", "."];
    for key in ODD.iter().chain(&more) {
        served.curl.put("odd-keys", key, key.as_bytes(), &[]);
        let answer = served.curl.ask("GET", &format!("/odd-keys/{}", encoded(key)), &[], None).is(200);
        assert_eq!(answer.text(), *key);
        let ended = run(&mut served.flatout(&["cat", &format!("s3://odd-keys/{key}")])).clean();
        assert_eq!(ended.text(), *key, "{key}");
    }
}
