//! Keys of volumes: whose they are, how they change, and that nobody sees them.

use std::fs;
use std::thread;
use std::time::Duration;

use flatout_server::{Options, Origin, Store};
use tonic::Code;

use super::{Node, Wanted};
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY};
use crate::program::wait_until;

#[test]
fn keys_of_a_secret_are_used_and_not_shown() {
    let (origin, node) = (Buckets::locked(&[("bucket/f", b"content")]), Node::new());
    let base = || Wanted::of("s3://bucket", &origin.url());
    let none = Wanted { attributes: base().secret("x", "y").attributes, ..base() };
    assert_eq!(node.publish(&none).unwrap_err().code(), Code::PermissionDenied);
    let wrong = base().secret("key_id", ACCESS_KEY).secret("access_key", "WRONGSECRET");
    let refused = node.publish(&wrong).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(!refused.message().contains("WRONGSECRET"));
    let half = base().secret("akId", ACCESS_KEY);
    let refused = node.publish(&half).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("it has akId and no akSecret"), "{refused:?}");
    for names in [["key_id", "access_key"], ["akId", "akSecret"], ["accesskeyid", "AccessKeySecret"]] {
        let wanted = base().secret(names[0], ACCESS_KEY).secret(names[1], SECRET_KEY);
        let target = node.published(&wanted);
        assert_eq!(fs::read(target.join("f")).unwrap(), b"content");
        let records = node.path("shared/driver/volumes");
        for record in fs::read_dir(records).unwrap().flatten() {
            assert!(!fs::read_to_string(record.path()).unwrap().contains(SECRET_KEY));
        }
        node.unpublished(&wanted);
    }
    let log = node.log();
    assert!(!log.contains(SECRET_KEY) && !log.contains("WRONGSECRET"), "{log}");
    node.is_clear();
}

#[test]
fn keys_are_changed_without_a_remount() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("bucket")).unwrap();
    fs::write(folder.path().join("bucket/f"), b"one").unwrap();
    let start = |port: u16, id: &str, secret: &str| {
        let auth = Some((id.to_owned(), secret.to_owned()));
        let mut options = Options { auth, ..Options::new(Store::Root(folder.path().to_owned())) };
        options.listen = vec![std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()];
        Origin::start(options).expect("an origin")
    };
    let origin = start(0, ACCESS_KEY, SECRET_KEY);
    let url = origin.url();
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    let node = Node::new();
    let with = |id: &str, secret: &str| {
        let base = Wanted::of("s3://bucket", &url).with("attribute-lifetime", "0s");
        base.secret("key_id", id).secret("access_key", secret)
    };
    let target = node.published(&with(ACCESS_KEY, SECRET_KEY));
    assert_eq!(fs::read(target.join("f")).unwrap(), b"one");
    drop(origin);
    let _origin = start(port, "AKIDSECOND", "ANOTHERSECRETKEY");
    fs::write(folder.path().join("bucket/f"), b"second").unwrap();
    assert!(fs::read(target.join("f")).is_err(), "the old keys are refused");
    // A republish never fails for its keys: wrong ones are known when they are used.
    node.published(&with("AKIDSECOND", "STILLWRONG"));
    node.published(&with("AKIDSECOND", "ANOTHERSECRETKEY"));
    wait_until("the new keys are used", || fs::read(target.join("f")).is_ok_and(|read| read == b"second"));
    // A Secret that has lost its keys, or has others' names for them, takes none away.
    let base = || Wanted::of("s3://bucket", &url).with("attribute-lifetime", "0s");
    node.published(&base());
    node.published(&base().secret("accessKey", "AKIDSECOND").secret("secretKey", "ANOTHERSECRETKEY"));
    wait_until("it is told", || node.log().contains("its Secret has none any more"));
    assert!(node.log().contains("no keys under names that are known: write akId"), "{}", node.log());
    assert_eq!(fs::read(target.join("f")).unwrap(), b"second");
    // An engine that goes on has them, too.
    let mut node = node;
    node.kill_engine();
    node.start_engine();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(fs::read(target.join("f")).unwrap(), b"second");
    let log = node.log();
    assert!(!log.contains("ANOTHERSECRETKEY") && !log.contains("STILLWRONG"), "{log}");
    node.unpublished(&with("AKIDSECOND", "ANOTHERSECRETKEY"));
    node.is_clear();
}
