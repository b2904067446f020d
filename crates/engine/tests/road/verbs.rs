//! Deletions, copies, buckets and unfinished uploads by the library, in both dialects, against the
//! development origin.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use flatout_engine::credentials::Fixed;
use flatout_engine::{Client, Config, Deletion, Entry, Error, ErrorKind, Put, ServerCopy, Source, Verified};
use flatout_server::{Options, Origin, Store};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};
use flatout_wire::range::Span;
use flatout_wire::sign::Credentials;
use tempfile::TempDir;

/// The shortest part that origins take.
const PART: usize = 5 << 20;

const KEYS: (&str, &str) = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");

/// An origin over a folder, for those who have the keys, and a client of it.
struct Place {
    client: Client,
    root: TempDir,
    scheme: &'static str,
    _origin: Origin,
}

impl Place {
    /// One for each dialect, with these buckets.
    fn both(buckets: &[&str]) -> [Place; 2] {
        ["s3", "oss"].map(|scheme| {
            let root = tempfile::tempdir().expect("a folder");
            for bucket in buckets {
                fs::create_dir(root.path().join(bucket)).expect("a bucket");
            }
            let auth = Some((KEYS.0.into(), KEYS.1.into()));
            let options = Options { auth, ..Options::new(Store::Root(root.path().into())) };
            let origin = Origin::start(options).expect("an origin");
            let mut config = Config::default();
            let settings = &mut config.settings;
            settings.endpoint_url = Some(origin.url());
            settings.oss_endpoint = Some(origin.url());
            settings.oss_region = Some("cn-hangzhou".into());
            settings.part_bytes = Some(PART as u64);
            settings.retries = 2;
            let credentials =
                Credentials { access_key: KEYS.0.into(), secret_key: KEYS.1.into(), session_token: None };
            config.aws_credentials = Arc::new(Fixed(credentials.clone()));
            config.oss_credentials = Arc::new(Fixed(credentials));
            let client = Client::new(config).expect("good settings");
            Place { client, root, scheme, _origin: origin }
        })
    }

    fn at(&self, name: &str) -> Location {
        Location::parse(&format!("{}://{name}", self.scheme)).expect("a URL")
    }

    fn put(&self, name: &str, body: &[u8], options: ObjectOptions) {
        let put = Put::new(self.at(name), Source::Memory(Arc::new(body.to_vec()))).with_options(options);
        self.client.put(put).expect("it starts").wait().expect("it ends well");
    }

    fn keys(&self, bucket: &str) -> BTreeSet<String> {
        let listing = self.client.list(&self.at(bucket), true).expect("a bucket");
        listing.map(|entry| entry.expect("a page").name().to_owned()).collect()
    }

    fn deletion(&self, name: &str) -> Result<Deletion, Error> {
        Ok(Deletion { location: self.at(name), bytes: 1 })
    }
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

#[test]
fn many_objects_of_several_buckets_are_deleted_and_each_failure_is_named() {
    for place in Place::both(&["one", "two"]) {
        for name in ["one/a", "one/b&c", "two/d", "two/ e ", "two/stays"] {
            place.put(name, b"x", ObjectOptions::default());
        }
        // The key is too long for any origin; its own failure is all that comes of it.
        let long = format!("one/{}", "k".repeat(1_100));
        let names = ["one/a", "one/b&c", &long, "two/d", "two/ e ", "none/x", "two/never-there"];
        let mut deletions: Vec<_> = names.iter().map(|name| place.deletion(name)).collect();
        deletions.push(Err(Error::new(ErrorKind::Network, "the listing broke off")));
        let mut failed = Vec::new();
        let done = place.client.delete_many(deletions.into_iter(), &mut |ended| {
            let refused =
                ended.into_iter().filter_map(|deleted| Some((deleted.deletion, deleted.result.err()?)));
            failed.extend(
                refused.map(|(deletion, error)| (deletion.location.bucket().map(str::to_owned), error)),
            );
            ControlFlow::Continue(())
        });
        let done = done.expect("it runs");
        assert_eq!((place.keys("one"), place.keys("two")), (set(&[]), set(&["stays"])), "{}", place.scheme);
        assert_eq!(done.deleted + done.failed, 7, "{done:?}");
        assert_eq!(done.unknown, 0);
        assert_eq!(done.incomplete.expect("the listing broke off").cause(), "the listing broke off");
        let none =
            failed.iter().find(|(bucket, _)| bucket.as_deref() == Some("none")).expect("no such bucket");
        assert_eq!((none.1.kind(), none.1.doing()), (ErrorKind::NotFound, "delete"));
        assert!(done.failed <= 2, "a missing object counts as deleted: {failed:?}");
    }
}

/// What the caller has had enough of ends soon, and what was not asked for stays.
#[test]
fn a_deletion_that_is_stopped_asks_for_nothing_more() {
    let [place, _] = Place::both(&["bucket"]);
    for number in 0..20 {
        fs::write(place.root.path().join(format!("bucket/{number:02}")), b"x").expect("an object");
    }
    let names: Vec<_> = (0..20).map(|number| place.deletion(&format!("bucket/{number:02}"))).collect();
    // The first one comes at once, and no other before the caller has seen what became of it.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let slow = names.into_iter().enumerate().inspect(move |(at, _)| {
        if *at > 0 {
            let _ = wait.recv_timeout(Duration::from_secs(30));
        }
    });
    let done = place.client.delete_many(slow.map(|(_, name)| name), &mut |_| ControlFlow::Break(()));
    drop(go);
    let done = done.expect("it runs");
    assert_eq!((done.deleted, done.failed, done.unknown), (0, 0, 0), "{done:?}");
    assert_eq!(place.keys("bucket").len(), 20);
}

#[test]
fn only_the_state_that_was_meant_is_deleted() {
    for place in Place::both(&["bucket"]) {
        place.put("bucket/key", b"first", ObjectOptions::default());
        let key = place.at("bucket/key");
        let first = place.client.stat(&key).expect("it is there").version.etag.expect("an ETag");
        place.put("bucket/key", b"second", ObjectOptions::default());
        let refused = place.client.delete_if_match(&key, &first).expect_err("it was replaced");
        assert_eq!(refused.kind(), ErrorKind::Changed);
        let second = place.client.stat(&key).expect("it stays").version.etag.expect("an ETag");
        place.client.delete_if_match(&key, &second).expect("it is that one");
        assert_eq!(place.client.stat(&key).expect_err("it is gone").kind(), ErrorKind::NotFound);
        // What is not there counts as deleted, but a bucket that is not there is an error.
        place.client.delete(&key, None).expect("it is gone");
        let nowhere = place.client.delete(&place.at("nowhere/key"), None).expect_err("no such bucket");
        assert_eq!(nowhere.kind(), ErrorKind::NotFound);
        for wrong in [place.at("bucket"), Location::parse("http://h/x").expect("a URL")] {
            assert!(place.client.delete(&wrong, None).is_err(), "{wrong}");
        }
    }
}

#[test]
fn a_copy_is_whole_described_and_pinned() {
    for place in Place::both(&["bucket", "other"]) {
        for length in [0, 70_000, 2 * PART + 1] {
            let body: Vec<u8> = (0..length).map(|at| (at / 7) as u8).collect();
            let options = ObjectOptions {
                content_type: Some("a/b".into()),
                content_language: Some("de".into()),
                metadata: vec![("who".into(), "ann".into())],
                tags: vec![("k".into(), "v".into())],
                ..ObjectOptions::default()
            };
            place.put("bucket/from", &body, options);
            let (from, to) = (place.at("bucket/from"), place.at("other/to"));
            let transfer = place.client.copy(ServerCopy::new(from.clone(), to.clone())).expect("it starts");
            let watch = transfer.watch();
            let report = transfer.wait().expect("it ends well");
            assert_eq!((report.bytes, report.fetched_bytes), (length as u64, 0));
            assert_eq!(watch.progress().landed_bytes, length as u64);
            assert!(matches!(report.verified, Verified::Whole(_)), "{:?}", report.verified);
            let source = report.stat.expect("what is known of the source");
            assert_eq!(source.version.etag, place.client.stat(&from).expect("it stays").version.etag);
            let found = place.client.stat(&to).expect("it is there");
            assert_eq!((found.version.etag, found.content_type), (report.version.etag, Some("a/b".into())));
            assert_eq!(found.metadata, [("who".to_owned(), "ann".to_owned())]);
            assert!(
                found.content_headers.contains(&("content-language", "de".into())),
                "{:?}",
                found.content_headers
            );
            assert_eq!(place.client.tags(&to).expect("tags"), [("k".to_owned(), "v".to_owned())]);
            let mut there = vec![0; length];
            place.client.get_into(&to, Span::All, &mut there).expect("it can be read");
            assert!(there == body, "{length}: other bytes");
            // It stays where another one is wanted.
            let only_new = ServerCopy::new(from.clone(), to.clone()).on_condition(Condition::Absent);
            let refused = place.client.copy(only_new).expect("it starts").wait().expect_err("it is there");
            assert_eq!(refused.kind(), ErrorKind::Changed, "{refused}");
        }
        assert_eq!(place.client.uploads(&place.at("other")).expect("a bucket").count(), 0);
    }
}

/// Stopped while parts are on their way: no object, and no parts.
#[test]
fn a_copy_that_is_cancelled_leaves_nothing() {
    for place in Place::both(&["bucket"]) {
        place.put("bucket/from", &vec![7; 8 * PART], ObjectOptions::default());
        for round in 0..24 {
            let copy = ServerCopy::new(place.at("bucket/from"), place.at("bucket/to"));
            let transfer = place.client.copy(copy).expect("it starts");
            // While it is looked at, begun, copied or completed.
            std::thread::sleep(Duration::from_micros(250 * round));
            transfer.cancel_switch().cancel();
            let ended = transfer.wait();
            let is_there = place.client.stat(&place.at("bucket/to")).is_ok();
            assert_eq!(ended.is_ok(), is_there);
            let left: Vec<_> = place.client.uploads(&place.at("bucket")).expect("a bucket").collect();
            assert!(left.is_empty(), "{}: {ended:?}: {left:?}", place.scheme);
            place.client.delete(&place.at("bucket/to"), None).expect("it is gone");
        }
    }
}

#[test]
fn what_cannot_be_copied_is_refused() {
    let [place, oss] = Place::both(&["bucket"]);
    place.put("bucket/key", b"x", ObjectOptions::default());
    let copy = |from: &Location, to: &Location| {
        let copy = ServerCopy::new(from.clone(), to.clone());
        place.client.copy(copy).and_then(|transfer| transfer.wait()).map(drop).map_err(|error| error.kind())
    };
    let key = place.at("bucket/key");
    assert_eq!(copy(&key, &key), Err(ErrorKind::Usage));
    assert_eq!(copy(&key, &place.at("bucket")), Err(ErrorKind::Usage));
    assert_eq!(copy(&key, &oss.at("bucket/key")), Err(ErrorKind::Unsupported));
    assert_eq!(copy(&place.at("bucket/none"), &place.at("bucket/to")), Err(ErrorKind::NotFound));
    assert_eq!(copy(&key, &place.at("nowhere/to")), Err(ErrorKind::NotFound));
    assert!(place.client.copies_within_service(&key, &place.at("other/x")));
    assert!(!place.client.copies_within_service(&key, &oss.at("bucket/key")));
}

#[test]
fn buckets_are_made_and_deleted_when_they_are_empty() {
    for place in Place::both(&[]) {
        let bucket = place.at("new");
        place.client.create_bucket(&bucket).expect("the name is free");
        assert_eq!(place.client.create_bucket(&bucket).expect_err("it is taken").kind(), ErrorKind::Usage);
        place.put("new/key", b"x", ObjectOptions::default());
        let refused = place.client.delete_bucket(&bucket).expect_err("it has an object");
        assert!(refused.cause().contains("not empty"), "{refused}");
        place.client.delete(&place.at("new/key"), None).expect("it is there");
        place.client.delete_bucket(&bucket).expect("it is empty");
        assert_eq!(place.client.delete_bucket(&bucket).expect_err("it is gone").kind(), ErrorKind::NotFound);
        let plain = Location::parse("http://h/x").expect("a URL");
        assert_eq!(place.client.create_bucket(&plain).expect_err("no bucket").kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn listed_objects_can_be_deleted_as_they_are_listed() {
    let [place, _] = Place::both(&["bucket"]);
    for number in 0..1_500 {
        fs::write(place.root.path().join(format!("bucket/{number:04}")), b"xy").expect("an object");
    }
    let listing = place.client.list(&place.at("bucket"), true).expect("a bucket");
    let bucket = place.at("bucket");
    let deletions = listing.filter_map(move |entry| match entry {
        Ok(Entry::Object(listed)) => {
            let location = bucket.with_key(listed.key)?;
            Some(Ok(Deletion { location, bytes: listed.size }))
        }
        Ok(Entry::Prefix(_)) => None,
        Err(error) => Some(Err(error)),
    });
    let mut bytes = 0;
    let done = place.client.delete_many(deletions, &mut |ended| {
        bytes += ended.iter().map(|deleted| deleted.deletion.bytes).sum::<u64>();
        ControlFlow::Continue(())
    });
    let done = done.expect("it runs");
    assert_eq!((done.deleted, bytes, done.incomplete.is_none()), (1_500, 3_000, true));
    assert_eq!(place.keys("bucket"), set(&[]));
}
