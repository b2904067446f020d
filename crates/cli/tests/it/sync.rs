//! `flatout sync`: which names are copied, deleted or left alone. Both dialects, all directions.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use flatout_server::Store;
use serde_json::Value;

use crate::folder::{Folder, files};
use crate::objects::{Buckets, start};
use crate::program::{Ended, flatout, run, wait_until, without_override};
use crate::raw::{Answer, Raw};
use crate::verbs_bad_days::{Log, note, page, xml};

/// The program with this origin in both dialects.
pub fn at(url: &str, arguments: &[&str]) -> Command {
    let url = url.trim_end_matches('/');
    let more = ["--endpoint-url", url, "--oss-endpoint", url, "--no-sign-request"];
    flatout(&[arguments, &more].concat())
}

#[track_caller]
fn sync(buckets: &Buckets, arguments: &[&str]) -> Ended {
    run(&mut at(&buckets.url(), &[&["sync"], arguments].concat()))
}

/// The summary of a run that ended well.
#[track_caller]
fn done(buckets: &Buckets, arguments: &[&str]) -> Value {
    let ended = sync(buckets, &[arguments, &["--json"]].concat()).clean();
    ended.events().pop().expect("a summary")
}

/// What a run did: copied, unchanged, deleted.
#[track_caller]
fn counts(buckets: &Buckets, arguments: &[&str]) -> [u64; 3] {
    let summary = done(buckets, arguments);
    ["ok", "unchanged", "deleted"].map(|name| summary[name].as_u64().unwrap())
}

/// A folder with these files.
pub fn tree(names: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    fs::remove_file(folder.at("model")).unwrap();
    names.iter().for_each(|(name, content)| write(&folder, name, content));
    folder
}

fn write(folder: &Folder, name: &str, content: &str) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Makes a file as old as that: negative is in the future.
fn age(path: impl AsRef<Path>, seconds: i64) {
    let by = Duration::from_secs(seconds.unsigned_abs());
    let now = SystemTime::now();
    let time = if seconds < 0 { now + by } else { now - by };
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Names that sort otherwise as files than as keys, and some that URLs escape.
const NAMES: &[(&str, &str)] = &[
    ("a.b", "1"),
    ("a-1", "22"),
    ("a/b", "333"),
    ("a/c/d", ""),
    ("a0", "4444"),
    ("blank + % ü/x&<é>", "5"),
    ("z", "66"),
];

#[test]
fn a_second_run_does_nothing_in_every_direction_and_mode() {
    for scheme in ["s3", "oss"] {
        for mode in [&[][..], &["--size-only"], &["--exact-timestamps"], &["--checksum"]] {
            let (buckets, up, down) = (Buckets::new(&[("bucket/other", b"")]), tree(NAMES), tree(&[]));
            let whole = NAMES.len() as u64;
            let (a, b) = (format!("{scheme}://bucket/a"), format!("{scheme}://bucket/b/"));
            let (from, to) = (up.at(""), down.at(""));
            let mut ways: Vec<(&str, &str)> = vec![(&from, &a), (&a, &to)];
            if mode != ["--exact-timestamps"] {
                ways.push((&a, &b));
            }
            for (source, target) in ways {
                let arguments = [&[source, target, "--delete"], mode].concat();
                assert_eq!(counts(&buckets, &arguments), [whole, 0, 0], "{arguments:?}");
                assert_eq!(counts(&buckets, &arguments), [0, whole, 0], "{arguments:?} again");
            }
            assert_eq!(files(down.path()), files(up.path()));
            // And back: what was fetched is the same, where the origin tells when it was uploaded.
            NAMES.iter().for_each(|(name, _)| age(buckets.root().join("bucket/a").join(name), 3_600));
            sync(&buckets, &[&[a.as_str(), to.as_str()], &["--exact-timestamps"][..]].concat()).clean();
            // Not without a word: what was changed behind the origin's back has lost its checksum.
            let ended = sync(&buckets, &[&[to.as_str(), a.as_str(), "--json"], mode].concat());
            let summary = ended.events().pop().expect("a summary");
            assert_eq!((ended.code, &summary["unchanged"]), (Some(0), &whole.into()), "{mode:?}");
        }
    }
}

#[test]
fn what_is_new_longer_or_newer_is_copied_and_nothing_else() {
    let (buckets, up) = (Buckets::new(&[("bucket/x", b"")]), tree(NAMES));
    let (from, to) = (up.at(""), "s3://bucket/d");
    sync(&buckets, &[&from, to]).clean();
    write(&up, "new", "n");
    write(&up, "a.b", "longer");
    write(&up, "z", "77");
    // As rename(2) of an older file of the same size leaves it: its time tells nothing to S3.
    write(&up, "a/b", "444");
    age(up.at("a/b"), 3_600);
    let ended = sync(&buckets, &[&from, to, "--json"]).clean();
    let reasons: BTreeMap<String, String> = ended
        .events()
        .iter()
        .filter(|event| event["status"] == "ok")
        .map(|event| {
            (event["key"].as_str().unwrap().to_owned(), event["reason"].as_str().unwrap().to_owned())
        })
        .collect();
    let expected = [("d/a.b", "size"), ("d/new", "new"), ("d/z", "newer")];
    assert_eq!(reasons, expected.map(|(key, why)| (key.to_owned(), why.to_owned())).into());
    assert_eq!(counts(&buckets, &[&from, to, "--exact-timestamps"]), [1, 7, 0]);
    assert_eq!(files(&buckets.root().join("bucket/d")), files(up.path()));
}

#[test]
fn a_download_fetches_newer_objects_and_keeps_newer_files() {
    let buckets = Buckets::new(&[("bucket/d/old", b"one"), ("bucket/d/edited", b"two")]);
    let down = tree(&[]);
    let (from, to) = ("s3://bucket/d", down.at(""));
    age(buckets.root().join("bucket/d/old"), 7_200);
    sync(&buckets, &[from, &to]).clean();
    let modified = |path: PathBuf| path.metadata().unwrap().modified().unwrap();
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let (object, file) = (buckets.root().join("bucket/d/old"), down.path().join("old"));
    assert_eq!(seconds(modified(file.clone())), seconds(modified(object.clone())), "the object's time");
    // A newer object of one size, which `aws s3 sync` leaves; a newer file, which it overwrites.
    fs::write(&object, b"ONE").unwrap();
    age(&object, 3_600);
    fs::write(down.at("edited"), b"TWO").unwrap();
    age(down.at("edited"), -3_600);
    assert_eq!(counts(&buckets, &[from, &to]), [1, 1, 0]);
    assert_eq!(fs::read(&file).unwrap(), b"ONE");
    assert_eq!(fs::read(down.at("edited")).unwrap(), b"TWO");
    assert_eq!(counts(&buckets, &[from, &to, "--exact-timestamps"]), [1, 1, 0]);
    assert_eq!(fs::read(down.at("edited")).unwrap(), b"two");
}

/// The time of a file from the future, or one that was changed in the second of its upload, says nothing to
/// an origin: the metadata do.
#[test]
fn files_from_the_future_are_copied_once() {
    let (buckets, up) = (Buckets::new(&[("bucket/x", b"")]), tree(&[("a", "1"), ("b", "2")]));
    age(up.at("a"), -86_400);
    let arguments: &[&str] = &[&up.at(""), "s3://bucket/d"];
    assert_eq!(counts(&buckets, arguments), [2, 0, 0]);
    assert_eq!(counts(&buckets, arguments), [0, 2, 0]);
    fs::write(up.at("a"), "3").unwrap();
    age(up.at("a"), -86_401);
    assert_eq!(counts(&buckets, arguments), [1, 1, 0]);
    assert_eq!(fs::read(buckets.root().join("bucket/d/a")).unwrap(), b"3");
}

#[test]
fn checksums_find_what_size_and_time_do_not() {
    for scheme in ["s3", "oss"] {
        let (buckets, up, down) =
            (Buckets::new(&[("bucket/x", b"")]), tree(&[("a", "1"), ("b", "2")]), tree(&[]));
        let url = format!("{scheme}://bucket/d");
        sync(&buckets, &[&up.at(""), &url]).clean();
        sync(&buckets, &[&url, &down.at("")]).clean();
        for (folder, arguments) in [(&up, [up.at(""), url.clone()]), (&down, [url.clone(), down.at("")])] {
            fs::write(folder.at("a"), if folder.path() == up.path() { "X" } else { "Y" }).unwrap();
            age(folder.at("a"), 86_400);
            let plain: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let checksum = [&plain[..], &["--checksum"]].concat();
            if folder.path() == up.path() {
                assert_eq!(counts(&buckets, &plain), [0, 2, 0], "{plain:?}");
            }
            assert_eq!(counts(&buckets, &checksum), [1, 1, 0], "{plain:?}");
            assert_eq!(counts(&buckets, &checksum), [0, 2, 0], "{plain:?}");
        }
        assert_eq!(fs::read(down.at("a")).unwrap(), b"X", "as it was sent");
    }
}

#[test]
fn extras_are_deleted_when_asked_and_only_then() {
    for scheme in ["s3", "oss"] {
        let buckets =
            Buckets::new(&[("bucket/d/extra", b"1"), ("bucket/d/e/extra", b"2"), ("bucket/e", b"3")]);
        let (up, down) = (tree(NAMES), tree(&[("extra", "1"), ("a/extra", "2")]));
        let (from, url, to) = (up.at(""), format!("{scheme}://bucket/d"), down.at(""));
        let summary = done(&buckets, &[&from, &url]);
        assert_eq!((&summary["deleted"], &summary["extra"]), (&0.into(), &2.into()));
        let planned = sync(&buckets, &[&from, &url, "--delete", "--dry-run"]).clean();
        let lines: Vec<&str> = planned.text().lines().collect();
        let would = [format!("would delete {url}/e/extra"), format!("would delete {url}/extra")];
        assert_eq!(lines[..2], would);
        assert_eq!(lines.len(), 3, "{lines:?}");
        sync(&buckets, &[&from, &url, "--delete", "--max-delete", "1"])
            .refused_with(1, &["2 to delete", "--max-delete 1", "none is deleted"]);
        assert_eq!(counts(&buckets, &[&from, &url, "--delete", "--max-delete", "2"]), [0, 7, 2]);
        assert_eq!(files(&buckets.root().join("bucket/d")), files(up.path()));
        assert!(buckets.root().join("bucket/e").exists(), "it lies beside");
        let said = sync(&buckets, &[&url, &to, "--delete", "--verbose"]).clean();
        assert!(said.text().contains(&format!("deleted {}", down.at("extra"))), "{}", said.text());
        assert_eq!(files(down.path()), files(up.path()));
    }
}

#[test]
fn what_filters_leave_out_is_not_deleted_unless_that_is_asked_for() {
    let buckets =
        Buckets::new(&[("bucket/d/kept.tmp", b"1"), ("bucket/d/x/kept.tmp", b"2"), ("bucket/d/gone", b"3")]);
    let up = tree(&[("a", "1"), ("a.tmp", "not sent"), ("skip/x", "not sent")]);
    let all: &[&str] = &[&up.at(""), "s3://bucket/d", "--delete", "--exclude", "*.tmp", "--exclude", "skip/"];
    assert_eq!(counts(&buckets, all), [1, 0, 1]);
    let names = |buckets: &Buckets| files(&buckets.root().join("bucket/d")).into_keys().collect::<Vec<_>>();
    assert_eq!(names(&buckets), ["a", "kept.tmp", "x/kept.tmp"]);
    let excluded = [all, &["--delete-excluded"]].concat();
    let planned = sync(&buckets, &[&excluded[..], &["--dry-run"]].concat()).clean();
    assert_eq!(planned.text().matches("would delete ").count(), 2, "{}", planned.text());
    assert_eq!(counts(&buckets, &excluded), [0, 1, 2]);
    assert_eq!(names(&buckets), ["a"]);
}

/// An empty source is most often a mistyped one, or a disk that is not mounted.
#[test]
fn a_source_with_nothing_empties_no_target() {
    let (buckets, full) = (Buckets::new(&[("bucket/d/a", b"1")]), tree(&[("a", "1")]));
    let (empty, to) = (tree(&[]), full.at(""));
    for (source, target) in [("s3://bucket/none", to.as_str()), (&empty.at(""), "s3://bucket/d")] {
        sync(&buckets, &[source, target, "--delete"]).refused_with(1, &["nothing to copy", "--max-delete"]);
    }
    sync(&buckets, &["s3://absent/d", &to, "--delete"]).refused(1, &["no such bucket"]);
    sync(&buckets, &[&empty.at("missing"), "s3://bucket/d", "--delete"]).refused(1, &["No such file"]);
    assert_eq!(files(full.path()).len(), 1);
    assert!(buckets.root().join("bucket/d/a").exists());
    let summary = done(&buckets, &[&empty.at(""), "s3://bucket/d", "--delete", "--max-delete", "1"]);
    assert_eq!(summary["deleted"], 1);
}

#[test]
fn what_cannot_be_meant_is_refused_and_changes_nothing() {
    let (buckets, up) = (Buckets::new(&[("bucket/d/a", b"1")]), tree(&[("a", "1")]));
    let (folder, file) = (up.at(""), up.at("a"));
    let rows: &[(&[&str], i32, &[&str])] = &[
        (&[&folder, &file], 4, &["both are paths"]),
        (&[&file, "s3://bucket/d"], 4, &["is no folder", "flatout cp"]),
        (&["s3://bucket/d", &file], 4, &["is no folder"]),
        (&["s3://bucket/d", "s3://bucket/d/e"], 4, &["within the other"]),
        (&["s3://bucket/d", "s3://bucket"], 4, &["within the other"]),
        (&["s3://bucket/*.bin", &folder], 4, &["whole folders", "--include"]),
        (&["http://127.0.0.1:1/x", &folder], 4, &["no listing"]),
        (&[&folder, "http://127.0.0.1:1/x"], 4, &["no listing"]),
        (&["", &folder], 4, &["empty"]),
        (&[&folder, "s3://absent"], 1, &["no such bucket", "flatout mb"]),
        (&["s3://bucket/d", &folder, "--content-type", "a/b"], 4, &["for uploads"]),
        (&["s3://bucket/d", "s3://bucket/e", "--exact-timestamps"], 4, &["--checksum"]),
        (&[&folder, "s3://bucket/d", "--max-delete", "1"], 4, &["--delete"]),
        (&[&folder, "s3://bucket/d", "--size-only", "--checksum"], 4, &["--size-only"]),
        (&[&folder, "s3://bucket/d", "--if-match", "x"], 4, &["--if-match"]),
    ];
    for (arguments, code, says) in rows {
        sync(&buckets, arguments).refused(*code, says);
    }
    assert_eq!(files(&buckets.root().join("bucket")).len(), 1);
    // What other tools take for all below a folder.
    assert_eq!(counts(&buckets, &["s3://bucket/d/*", &up.at("new")]), [1, 0, 0]);
}

/// `aws s3 sync --delete` deletes the objects of a folder that it may not read.
#[test]
fn a_folder_that_cannot_be_read_keeps_its_objects() {
    let buckets =
        Buckets::new(&[("bucket/d/secret/x", b"1"), ("bucket/d/gone", b"2"), ("bucket/d/secret.b", b"3")]);
    let up = tree(&[("a", "1"), ("secret/y", "2")]);
    let secret = up.path().join("secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).unwrap();
    let arguments = ["sync", &up.at(""), "s3://bucket/d", "--delete", "--json"];
    let ended = run(&mut without_override(at(&buckets.url(), &arguments)));
    // An excluded one is none of our business.
    let excluded = [&arguments[..], &["--exclude", "secret/"]].concat();
    let clean = run(&mut without_override(at(&buckets.url(), &excluded)));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("secret: Permission denied"), "{}", ended.stderr);
    assert!(ended.stderr.contains("kept: not all of both trees could be read"), "{}", ended.stderr);
    let summary = ended.events().pop().unwrap();
    let found = ["ok", "deleted", "unknown", "extra", "exit"].map(|name| summary[name].as_u64().unwrap());
    assert_eq!(found, [1, 0, 1, 2, 3], "a is copied, gone and secret.b are extra, secret/x is unknown");
    assert_eq!(clean.code, Some(0), "{}", clean.stderr);
    assert_eq!(clean.events().pop().unwrap()["deleted"], 2);
    assert!(buckets.root().join("bucket/d/secret/x").exists());
}

#[test]
fn pipes_and_links_keep_the_objects_of_their_names() {
    let buckets =
        Buckets::new(&[("bucket/d/socket", b"1"), ("bucket/d/link", b"2"), ("bucket/d/gone", b"3")]);
    let up = tree(&[("a", "1")]);
    let _socket = std::os::unix::net::UnixListener::bind(up.at("socket")).unwrap();
    symlink(up.at("a"), up.at("link")).unwrap();
    let arguments: &[&str] = &[&up.at(""), "s3://bucket/d", "--delete", "--symlinks", "skip", "--json"];
    let ended = sync(&buckets, arguments);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("a socket") && ended.stderr.contains("a symbolic link"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.events().pop().unwrap()["deleted"], 1);
    assert_eq!(fs::read(buckets.root().join("bucket/d/link")).unwrap(), b"2");
    // An excluded name causes no warning.
    sync(&buckets, &[arguments, &["--exclude", "socket", "--exclude", "link"]].concat()).clean();
    let followed = sync(&buckets, &[&up.at(""), "s3://bucket/d", "--exclude", "socket"]).clean();
    assert!(followed.text().contains("1 copied, 1 unchanged"), "{}", followed.text());
    symlink("nothing", up.at("dangling")).unwrap();
    symlink(".", up.at("circle")).unwrap();
    let ended = sync(&buckets, &[&up.at(""), "s3://bucket/d", "--delete", "--exclude", "socket"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("leads to nothing"), "{}", ended.stderr);
}

#[test]
fn a_file_takes_no_folders_place_and_the_other_way_round() {
    let buckets = Buckets::new(&[("bucket/d/a", b"1"), ("bucket/d/b/c", b"2"), ("bucket/d/e", b"3")]);
    let down = tree(&[("a/inside", "kept"), ("b", "kept")]);
    symlink(down.at("b"), down.at("e")).unwrap();
    let ended = sync(&buckets, &["s3://bucket/d", &down.at(""), "--delete", "--json"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    for part in
        ["there is a folder,", "there is a file, where a folder would have to be", "there is a symbolic link"]
    {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    assert_eq!(ended.events().pop().unwrap()["failed"], 3);
    assert_eq!(fs::read(down.at("a/inside")).unwrap(), b"kept", "nothing is deleted after an error");
    assert_eq!(fs::read(down.at("b")).unwrap(), b"kept");
    assert!(fs::symlink_metadata(down.at("e")).unwrap().is_symlink());
}

#[test]
fn objects_that_no_file_can_stand_for_are_left_out() {
    let raw = Raw::start(|asked| match asked.path().contains("list-type") {
        true => page(&["d/../x", "d/a", "d/a/b", "d/a//b", "d/f/"].map(String::from), None),
        false => xml("200 OK", "ok"),
    });
    let down = tree(&[]);
    let arguments = ["sync", "s3://bucket/d", &down.at(""), "--json"];
    for _ in 0..2 {
        let ended = run(&mut at(&raw.url(""), &arguments));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert_eq!(ended.events().pop().unwrap()["skipped"], 3);
        assert_eq!(files(down.path()).into_keys().collect::<Vec<_>>(), ["a"]);
    }
}

#[test]
fn empty_folders_belong_to_the_tree_when_asked() {
    // Not from a folder: there what holds a mark has one itself.
    let (origin, up, down) = (start(Store::Memory, None), tree(&[("a/b", "1")]), tree(&[("gone/x", "")]));
    ["empty", "deep/er", "a/c"].iter().for_each(|name| fs::create_dir_all(up.at(name)).unwrap());
    let (from, to, url) = (up.at(""), down.at(""), origin.url());
    let go = |arguments: &[&str]| {
        let ended = run(&mut at(&url, &[&["sync"], arguments, &["--json"]].concat())).clean();
        let summary = ended.events().pop().unwrap();
        [summary["ok"].as_u64().unwrap(), summary["deleted"].as_u64().unwrap()]
    };
    run(&mut at(&url, &["mb", "s3://bucket"])).clean();
    let up_again: &[&str] = &[&from, "s3://bucket/d", "--empty-folders", "--delete"];
    let down_again: &[&str] = &["s3://bucket/d", &to, "--empty-folders", "--delete"];
    assert_eq!([go(up_again), go(up_again)], [[1, 0], [0, 0]]);
    assert_eq!([go(down_again), go(down_again)], [[1, 1], [0, 0]]);
    let listed = run(&mut at(&url, &["ls", "-r", "s3://bucket/d/"])).clean();
    assert_eq!(listed.text().lines().collect::<Vec<_>>(), ["a/b", "a/c/", "deep/er/", "empty/"]);
    assert!(["empty", "deep/er", "a/c"].iter().all(|name| down.path().join(name).is_dir()));
    assert!(!down.path().join("gone").exists(), "it became empty");
    fs::remove_dir_all(up.at("deep")).unwrap();
    assert_eq!(go(up_again), [0, 1]);
    go(down_again);
    assert!(!down.path().join("deep").exists());
    // Without it marks are neither made nor files.
    let plain = tree(&[]);
    assert_eq!(go(&["s3://bucket/d", &plain.at("")]), [1, 0]);
    assert_eq!(plain.names(), ["a"]);
}

/// Pages of keys, the last of which is refused, once as many other requests as there are keys have come;
/// writes are noted.
fn broken_listing(prefix: &'static str, keys: &[&str], log: &Log) -> Raw {
    let (keys, noted) = (keys.iter().map(|key| format!("{prefix}{key}")).collect::<Vec<_>>(), log.clone());
    Raw::start(move |asked| {
        note(&noted, asked);
        let is_listing = asked.method() == "GET" && asked.path().contains("list-type");
        match is_listing {
            true if asked.path().contains("continuation-token") || asked.path().contains("start-after") => {
                let others =
                    || noted.lock().unwrap().iter().filter(|asked| !asked.contains("list-type")).count();
                wait_until("the copies", || others() >= keys.len());
                let body = "<Error><Code>InternalError</Code><Message>m</Message></Error>";
                xml("500 Internal Server Error", body)
            }
            true => page(&keys, Some("more")),
            false if asked.method() == "GET" => xml("200 OK", "xy"),
            false => Answer::new("200 OK", &[("content-length", "0"), ("etag", "\"1\"")], b""),
        }
    })
}

#[test]
fn a_listing_that_breaks_off_makes_the_rest_unknown() {
    // Of the source: what it named comes, and nothing goes.
    let log = Log::default();
    let raw = broken_listing("d/", &["a", "c"], &log);
    let down = tree(&[("b", "extra, and known to be"), ("z", "not known")]);
    let arguments = [
        "sync",
        "s3://bucket/d",
        &down.at(""),
        "--delete",
        "--retries",
        "1",
        "--outage-timeout",
        "1s",
        "--json",
    ];
    let ended = run(&mut at(&raw.url(""), &arguments));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert_eq!(files(down.path()).into_keys().collect::<Vec<_>>(), ["a", "b", "c", "z"]);
    let summary = ended.events().pop().unwrap();
    let found = ["ok", "unknown", "extra", "deleted"].map(|name| summary[name].as_u64().unwrap());
    assert_eq!(found, [2, 1, 1, 0]);
    // Of the target: what it did not name is not replaced.
    let log = Log::default();
    let raw = broken_listing("d/", &["b"], &log);
    let up = tree(&[("a", "1"), ("b", "xx"), ("z", "not known to be absent")]);
    let arguments = [
        "sync",
        &up.at(""),
        "s3://bucket/d",
        "--delete",
        "--size-only",
        "--retries",
        "1",
        "--outage-timeout",
        "1s",
    ];
    let ended = run(&mut at(&raw.url(""), &arguments));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let writes =
        log.lock().unwrap().iter().filter(|asked| !asked.starts_with("GET")).cloned().collect::<Vec<_>>();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert!(writes[0].starts_with("PUT /bucket/d/a"), "{writes:?}");
}

/// As directory buckets of S3 list.
#[test]
fn names_out_of_order_are_never_taken_for_absent() {
    let log = Log::default();
    let noted = log.clone();
    let raw = Raw::start(move |asked| {
        note(&noted, asked);
        match asked.method() {
            "GET" if asked.path().contains("continuation-token") => {
                page(&["d/a", "d/c"].map(String::from), None)
            }
            "GET" => page(&["d/b".to_owned()], Some("more")),
            _ => Answer::new("200 OK", &[("content-length", "0"), ("etag", "\"1\"")], b""),
        }
    });
    let up = tree(&[("a", "xx"), ("b", "xx"), ("c", "xx"), ("d", "xx")]);
    let arguments = ["sync", &up.at(""), "s3://bucket/d", "--delete", "--size-only"];
    let ended = run(&mut at(&raw.url(""), &arguments));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("does not list names in their order"), "{}", ended.stderr);
    assert!(
        log.lock().unwrap().iter().all(|asked| !asked.starts_with("DELETE") && !asked.starts_with("POST"))
    );
}

/// The default comparison of an unchanged tree needs listings and nothing else.
#[test]
fn an_unchanged_tree_is_not_asked_for_object_by_object() {
    let (buckets, up, down) = (Buckets::new(&[("bucket/x", b"")]), tree(NAMES), tree(&[]));
    NAMES.iter().for_each(|(name, _)| age(up.at(name), 60));
    sync(&buckets, &[&up.at(""), "s3://bucket/d"]).clean();
    sync(&buckets, &["s3://bucket/d", &down.at("")]).clean();
    let listed: Vec<Value> = run(&mut at(&buckets.url(), &["ls", "-r", "s3://bucket/d/", "--json"])).events();
    let entries: Vec<(String, u64)> = listed
        .iter()
        .filter(|event| event["event"] == "entry")
        .map(|event| (event["key"].as_str().unwrap().to_owned(), event["bytes"].as_u64().unwrap()))
        .collect();
    let asked = Log::default();
    let noted = asked.clone();
    let raw = Raw::start(move |request| {
        note(&noted, request);
        let contents: String = entries
            .iter()
            .map(|(key, size)| {
                let key = key.replace('&', "&amp;").replace('<', "&lt;");
                let time = "2030-01-01T00:00:00.000Z";
                let told = format!("<Size>{size}</Size><LastModified>{time}</LastModified>");
                format!("<Contents><Key>{key}</Key>{told}</Contents>")
            })
            .collect();
        xml("200 OK", &format!("<ListBucketResult>{contents}</ListBucketResult>"))
    });
    let from = up.at("");
    for mode in [&[][..], &["--size-only"]] {
        let arguments = [&["sync", &from, "s3://bucket/d", "--delete", "--json"], mode].concat();
        let summary = run(&mut at(&raw.url(""), &arguments)).clean().events().pop().unwrap();
        assert_eq!(summary["unchanged"], NAMES.len() as u64);
    }
    let asked = asked.lock().unwrap();
    assert!(
        asked.iter().all(|asked| asked.starts_with("GET /bucket/?") || asked.starts_with("GET /bucket?")),
        "{asked:?}"
    );
    assert_eq!(asked.len(), 2, "a page each: {asked:?}");
}

#[test]
fn a_report_has_a_line_for_each_object() {
    let (buckets, up) = (Buckets::new(&[("bucket/d/gone", b"1"), ("bucket/d/a.b", b"1")]), tree(NAMES));
    let _socket = std::os::unix::net::UnixListener::bind(up.at("socket")).unwrap();
    NAMES.iter().for_each(|(name, _)| age(up.at(name), 60));
    let beside = Folder::new();
    let (report, from) = (beside.at("report"), up.at(""));
    let ended = sync(&buckets, &[&from, "s3://bucket/d", "--delete", "--report", &report]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.text().contains("6 copied, 1 unchanged, 1 deleted, 1 left out"), "{}", ended.text());
    let events = crate::program::events(&fs::read_to_string(&report).unwrap());
    let of = |status: &str| events.iter().filter(|event| event["status"] == status).count();
    assert_eq!(["ok", "unchanged", "skipped"].map(of), [7, 1, 1]);
    assert_eq!(events.last().unwrap()["event"], "summary");
    // Of other commands, too.
    let down = tree(&[]);
    run(&mut at(&buckets.url(), &["cp", "-r", "s3://bucket/d", &down.at(""), "--report", &report])).clean();
    let copied = crate::program::events(&fs::read_to_string(&report).unwrap());
    assert_eq!(copied.iter().filter(|event| event["status"] == "ok").count(), NAMES.len());
    run(&mut at(&buckets.url(), &["rm", "-r", "s3://bucket/d", "--report", &report])).clean();
    let deleted = crate::program::events(&fs::read_to_string(&report).unwrap());
    assert_eq!(deleted.iter().filter(|event| event["action"] == "delete").count(), NAMES.len() + 1);
    // One that cannot be written is found before anything is done.
    sync(&buckets, &[&from, "s3://bucket/d", "--report", &beside.at("none/report")])
        .refused(1, &["none/report: No such file"]);
    assert!(files(&buckets.root().join("bucket/d")).is_empty());
    let ended = sync(&buckets, &[&from, "s3://bucket/d", "--exclude", "socket", "--report", "/dev/full"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("the report is not whole: write: /dev/full"), "{}", ended.stderr);
    assert_eq!(files(&buckets.root().join("bucket/d")).len(), NAMES.len());
}

impl Ended {
    /// The code, and an error that says all this; other lines may come before and behind.
    #[track_caller]
    pub fn refused_with(self, code: i32, says: &[&str]) -> Ended {
        for part in says {
            assert!(self.stderr.contains(part), "{}lacks {part:?}", self.stderr);
        }
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        self
    }
}
