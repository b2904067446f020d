//! `flatout mv`, `rm`, `mb`, `rb`, `presign`, `du`, `hash`, `uploads` and copies from object to object: what
//! is said, what is there afterwards, and what is not. Both dialects.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::folder::Folder;
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY, bytes};
use crate::program::{flatout, run, signal, wait_until};

const MIB: usize = 1 << 20;

/// The program with this origin in both dialects.
fn at(buckets: &Buckets, arguments: &[&str]) -> Command {
    let url = buckets.url();
    let more = ["--endpoint-url", &url, "--oss-endpoint", &url, "--no-sign-request"];
    flatout(&[arguments, &more].concat())
}

fn stored(buckets: &Buckets, name: &str) -> Option<Vec<u8>> {
    fs::read(buckets.root().join(name)).ok()
}

/// The objects of a bucket.
fn keys(buckets: &Buckets, bucket: &str) -> BTreeSet<String> {
    let listed = run(&mut at(buckets, &["ls", "-r", &format!("s3://{bucket}"), "--json"]));
    let events = listed.events();
    let entries = events.iter().filter(|event| event["event"] == "entry");
    entries.map(|event| event["key"].as_str().unwrap().to_owned()).collect()
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

#[test]
fn single_objects_are_deleted_and_missing_ones_are_errors() {
    for scheme in ["s3", "oss"] {
        let buckets = Buckets::new(&[("bucket/a b+ü", b"one"), ("bucket/b", b"two"), ("bucket/c", b"three")]);
        let url = |key: &str| format!("{scheme}://bucket/{key}");
        let said = run(&mut at(&buckets, &["rm", &url("a b+ü")])).clean();
        assert_eq!(said.text(), format!("deleted {}\n", url("a b+ü")));
        assert_eq!(keys(&buckets, "bucket"), set(&["b", "c"]));
        run(&mut at(&buckets, &["rm", &url("a b+ü")])).refused(1, &["no such object", "a b+ü"]);
        // One that fails stops no other.
        let both = run(&mut at(&buckets, &["rm", &url("none"), &url("b"), "--json"]));
        assert_eq!(both.code, Some(1), "{}", both.stderr);
        let events = both.events();
        assert_eq!((&events[0]["status"], &events[0]["key"]), (&"failed".into(), &"none".into()));
        assert_eq!((&events[2]["status"], &events[2]["bytes"]), (&"ok".into(), &3.into()));
        let summary = events.last().unwrap();
        assert_eq!((&summary["ok"], &summary["failed"], &summary["exit"]), (&1.into(), &1.into(), &1.into()));
        assert_eq!(keys(&buckets, "bucket"), set(&["c"]));
        let said = run(&mut at(&buckets, &["rm", "--all", &url("[c]")])).clean();
        assert!(said.text().starts_with("deleted 1 object, 5B in "), "{}", said.text());
    }
}

#[test]
fn everything_below_a_prefix_goes_and_nothing_else() {
    for scheme in ["s3", "oss"] {
        let names: Vec<String> = (0..2_345).map(|number| format!("bucket/logs/{number:04}&<é>")).collect();
        let mut objects: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
        objects.extend([
            ("bucket/logs.txt", &b"stays"[..]),
            ("bucket/log", b"stays"),
            ("bucket/z/keep", b""),
        ]);
        let buckets = Buckets::new(&objects);
        let url = format!("{scheme}://bucket/logs");
        let planned = run(&mut at(&buckets, &["rm", "-r", &url, "--dry-run"])).clean();
        assert_eq!(planned.text().matches("would delete ").count(), 2_345);
        assert!(planned.text().ends_with("2,345 objects, 2.3KiB\n"), "{}", planned.text());
        assert_eq!(keys(&buckets, "bucket").len(), 2_348);
        let some = ["rm", "-r", &url, "--include", "*00&*", "--json"];
        let events = run(&mut at(&buckets, &some)).clean().events();
        assert_eq!(events.last().unwrap()["ok"], 24);
        let said = run(&mut at(&buckets, &["rm", "-r", &url])).clean();
        assert!(said.text().starts_with("deleted 2,321 objects, 2.3KiB in "), "{}", said.text());
        assert_eq!(keys(&buckets, "bucket"), set(&["log", "logs.txt", "z/keep"]));
        run(&mut at(&buckets, &["rm", "-r", &url])).refused(1, &["nothing to delete there"]);
        run(&mut at(&buckets, &["rm", &format!("{scheme}://bucket/log*")])).clean();
        assert_eq!(keys(&buckets, "bucket"), set(&["z/keep"]));
    }
}

/// The mark of a folder is an object of its own: what lies below it stays.
#[test]
fn the_mark_of_a_folder_could_not_be_deleted_without_what_lies_below() {
    let folder = Folder::new();
    for scheme in ["s3", "oss"] {
        let buckets = Buckets::new(&[("bucket/d/x", b"below"), ("bucket/e/x", b"below")]);
        // An origin of several dialects tells S3 by its headers.
        let put = put(&format!("{}/bucket/d/", buckets.url()), "x-amz-date: x\r\n", b"mark");
        assert_eq!(put, 200);
        assert_eq!(keys(&buckets, "bucket"), set(&["d/", "d/x", "e/x"]));
        let (mark, none) = (format!("{scheme}://bucket/d/"), format!("{scheme}://bucket/e/"));
        let ask = |arguments: &[&str]| run(&mut at(&buckets, arguments));
        assert!(ask(&["stat", &mark]).clean().text().contains("size           4 (4B)"));
        assert_eq!(ask(&["cat", &mark]).clean().text(), "mark");
        assert_eq!(ask(&["cp", &mark, "-"]).clean().text(), "mark");
        ask(&["cp", &mark, &folder.at("mark")]).clean();
        assert_eq!(fs::read(folder.at("mark")).unwrap(), b"mark");
        ask(&["cp", &mark, &folder.at("")]).refused(4, &["this names a prefix", "`flatout cp -r`"]);
        ask(&["stat", &none]).refused(4, &["this names a prefix"]);
        ask(&["cat", &none]).refused(4, &["this names a prefix"]);
        ask(&["cp", &none, &folder.at("none")]).refused(4, &["this names a prefix", "`flatout cp -r`"]);
        assert!(!Path::new(&folder.at("none")).exists());
        let all = "rm -r s3://bucket/e/` deletes everything below it".replace("s3", scheme);
        ask(&["rm", &none]).refused(4, &["no object has this key", &all]);
        ask(&["rm", &mark, &none]).refused(4, &["no object has this key", &all]);
        assert_eq!(keys(&buckets, "bucket"), set(&["d/", "d/x", "e/x"]));
        assert_eq!(ask(&["rm", &mark, "--dry-run"]).clean().text(), format!("would delete {mark}\n"));
        assert_eq!(ask(&["rm", &mark]).clean().text(), format!("deleted {mark}\n"));
        assert_eq!(keys(&buckets, "bucket"), set(&["d/x", "e/x"]));
        fs::remove_file(folder.at("mark")).unwrap();
    }
}

/// That there is nothing at all stays an error; that nothing is wanted of what is there is none.
#[test]
fn filters_that_left_nothing_were_an_error() {
    let folder = Folder::new();
    let new = folder.at("new");
    fs::create_dir_all(folder.at("files/sub")).unwrap();
    for name in ["files/a", "files/b", "files/sub/c"] {
        fs::write(folder.at(name), b"x").unwrap();
    }
    for scheme in ["s3", "oss"] {
        let buckets = Buckets::new(&[("bucket/d/a", b"x"), ("bucket/d/b", b"x"), ("other/x", b"")]);
        let url = |path: &str| format!("{scheme}://{path}");
        let check = |arguments: &[&str], more: &[&str], says: &str| {
            let done = run(&mut at(&buckets, &[arguments, more].concat())).clean();
            assert!(done.text().contains(says), "{arguments:?}: {}", done.text());
            let events = run(&mut at(&buckets, &[arguments, more, &["--json"]].concat())).clean().events();
            let summary = events.last().unwrap();
            assert_eq!((&summary["objects"], &summary["exit"]), (&0.into(), &0.into()), "{arguments:?}");
        };
        let (none, two) = (["--include", "*.none"], "0 objects, 2 left out by --include and --exclude");
        check(&["cp", "-r", &url("bucket/d"), &new], &none, two);
        check(&["cp", &url("bucket/d/*"), &new], &none, two);
        check(&["cp", "-r", &url("bucket/d"), &new, "--dry-run"], &["--exclude", "**"], two);
        check(&["cp", "-r", &url("bucket/d"), &url("other/d")], &none, two);
        check(&["cp", &url("bucket/d/*"), &url("other/d"), "--dry-run"], &none, two);
        let three = "0 objects, 3 files left out by --include and --exclude";
        check(&["cp", "-r", &folder.at("files"), &url("other/d")], &none, three);
        let folders = "0 objects, 2 files and 1 folder left out by --include and --exclude";
        check(&["cp", "-r", &folder.at("files"), &url("other/d")], &["--exclude", "**"], folders);
        check(&["rm", "-r", &url("bucket/d")], &none, "deleted 0 objects, 2 left out");
        check(&["rm", &url("bucket/d/*")], &none, "deleted 0 objects, 2 left out");
        check(&["rm", "-r", &url("bucket/d"), "--dry-run"], &none, two);
        assert!(!Path::new(&new).exists());
        assert_eq!(keys(&buckets, "bucket"), set(&["d/a", "d/b"]));
        assert_eq!(keys(&buckets, "other"), set(&["x"]));
        for arguments in [
            &["cp", "-r", &url("bucket/none"), &new][..],
            &["cp", &url("bucket/d/*.none"), &new],
            &["cp", "-r", &url("bucket/none"), &url("other/d")],
            &["rm", "-r", &url("bucket/none")],
        ] {
            run(&mut at(&buckets, &[arguments, &["--exclude", "x"]].concat())).refused(1, &["bucket/"]);
        }
    }
    fs::remove_dir_all(folder.at("files")).unwrap();
}

/// S3 refuses a document with such a key, so that it goes alone; folders have their marks.
#[test]
fn keys_that_xml_cannot_carry_are_deleted_too() {
    let buckets = Buckets::new(&[("bucket/x/\u{1}", b""), ("bucket/x/a\nb", b""), ("bucket/x/c", b"")]);
    run(&mut at(&buckets, &["rm", "-r", "s3://bucket/x"])).clean();
    assert_eq!(keys(&buckets, "bucket"), set(&[]));
}

#[test]
fn a_whole_bucket_needs_all() {
    let buckets = Buckets::new(&[("bucket/a", b""), ("bucket/b/c", b"")]);
    for typed in ["s3://bucket", "s3://bucket/", "s3://bucket/*", "s3://bucket/**"] {
        let more: &[&str] = if typed.contains('*') { &[] } else { &["-r"] };
        run(&mut at(&buckets, &[&["rm", typed], more].concat()))
            .refused(4, &["everything in the bucket", "--all"]);
    }
    assert_eq!(keys(&buckets, "bucket").len(), 2);
    run(&mut at(&buckets, &["rm", "-r", "s3://bucket", "--all"])).clean();
    assert_eq!(keys(&buckets, "bucket"), set(&[]));
}

#[test]
fn what_cannot_be_meant_is_refused_in_a_line_and_changes_nothing() {
    let (buckets, folder) = (Buckets::new(&[("bucket/key", b"first"), ("bucket/d/x", b"")]), Folder::new());
    let (file, absent, here) = (folder.at("file"), folder.at("absent"), folder.at(""));
    fs::write(&file, b"second").unwrap();
    let long = format!("s3://bucket/{}", "k".repeat(1_025));
    let rows: &[(&[&str], i32, &[&str])] = &[
        (&["rm", "s3://bucket"], 4, &["names a bucket", "rb"]),
        (&["rm", "s3://bucket/d/"], 4, &["names a prefix", "rm -r"]),
        (&["rm", "http://127.0.0.1:1/x"], 4, &["cannot be deleted"]),
        (&["rm", "-r", "http://127.0.0.1:1/x"], 4, &["cannot be deleted"]),
        (&["rm", "./key"], 4, &["a URL is wanted"]),
        (&["rm", "s3://bucket/key", "--include", "*"], 4, &["choose among many objects"]),
        (&["rm", "s3://nowhere/key"], 1, &["no such object"]),
        (&["rm", "-r", "s3://nowhere/key"], 1, &["no such bucket"]),
        (&["rm", "s3://bucket/key", "-r", "--version-id", "x"], 4, &["exclude each other"]),
        (&["rm", "s3://bucket/key", "s3://bucket"], 4, &["names a bucket"]),
        (&["mb", "s3://bucket/x"], 4, &["names what is in a bucket"]),
        (&["mb", "s3://bucket"], 4, &["exists already"]),
        (&["mb", "s3://Not_A_Name!"], 4, &["no bucket name"]),
        (&["mb", "http://127.0.0.1:1/"], 4, &["has no buckets"]),
        (&["rb", "s3://bucket"], 4, &["not empty", "--force"]),
        (&["rb", "s3://bucket", "--force"], 4, &["2 objects (5B)", "nobody is there to ask", "--yes"]),
        (&["rb", "s3://bucket", "--yes"], 4, &["--force"]),
        (&["rb", "s3://nowhere"], 1, &["no such bucket"]),
        (&["presign", "s3://bucket/key"], 5, &["no keys"]),
        (&["presign", "s3://bucket"], 4, &["names a bucket"]),
        (&["presign", "http://127.0.0.1:1/x"], 1, &["not for us to sign"]),
        (&["presign", "s3://bucket/key", "--expires", "soon"], 4, &["1h, 7d"]),
        (&["du", "http://127.0.0.1:1/x"], 4, &["no listing"]),
        (&["du", "s3://nowhere"], 1, &["no such bucket"]),
        (&["du", "s3://nowhere/*"], 1, &["no such bucket"]),
        (&["du", "s3://bucket/[a"], 4, &["does not close"]),
        (&["du", "s3://bucket", "--by-prefix", "0"], 4, &["--by-prefix"]),
        (&["hash", &absent], 1, &["absent: No such file"]),
        (&["hash", &here], 1, &["Is a directory"]),
        (&["hash", &file, "--algorithm", "sha1"], 4, &["sha1"]),
        (&["uploads", "http://127.0.0.1:1/x"], 4, &["has no uploads"]),
        (&["uploads", "s3://nowhere"], 1, &["no such bucket"]),
        (&["uploads", "s3://bucket", "--older-than", "7"], 4, &["7d"]),
        (&["cp", "s3://bucket/key", "s3://bucket/key"], 4, &["the same object"]),
        (&["cp", "s3://bucket/none", "s3://bucket/new"], 1, &["no such object", "none"]),
        (&["cp", "s3://bucket/key", "s3://nowhere/new"], 1, &["no such bucket"]),
        (&["cp", "s3://bucket/key", &long], 4, &["does not take this key"]),
        (&["cp", "s3://bucket/key", "http://127.0.0.1:1/x"], 4, &["cannot be written to"]),
        (&["cp", "s3://bucket/key", "s3://bucket/new", "--range", "0-1"], 4, &["--range"]),
        (&["cp", "-r", "s3://bucket/none", "oss://bucket/new"], 1, &["no object to copy"]),
        (&["cp", "-r", "s3://bucket/d", "oss://nowhere"], 1, &["no such bucket"]),
        (&["cp", "-r", "s3://bucket/d", "s3://bucket/d/"], 4, &["is the source itself"]),
        (&["cp", "s3://bucket/d/*", "s3://bucket/d"], 4, &["is the source itself"]),
        (&["cp", "-r", "s3://bucket", "s3://bucket/"], 4, &["is the source itself"]),
        (&["cp", "-r", "s3://bucket/d", "http://127.0.0.1:1/x"], 4, &["cannot be written to"]),
        (&["cp", "-r", "http://127.0.0.1:1/x", "s3://bucket/new"], 4, &["no listing"]),
        (&["cp", "-r", "s3://bucket/none", "s3://bucket/new"], 1, &["no object to copy"]),
        (&["cp", "-r", "s3://nowhere/d", "s3://bucket/new"], 1, &["no such bucket"]),
        (&["cp", "-r", "s3://bucket/d", "s3://nowhere"], 1, &["no such bucket"]),
        (&["cp", "-r", "s3://bucket/d", "s3://bucket/new", "--if-match", "x"], 4, &["no two of many"]),
        (&["cp", "s3://bucket/key", "s3://bucket/new", "--metadata", "a b=c"], 4, &["no name of metadata"]),
        (&["mv", "s3://bucket/none", "s3://bucket/new"], 1, &["no such object"]),
        (&["mv", "s3://bucket/key", "-"], 4, &["moved to a file"]),
        (&["mv", "s3://bucket/key", "/dev/null"], 4, &["moved to a file"]),
        (&["mv", "s3://bucket/key", "oss://bucket/key"], 4, &["may be one object", "would be lost"]),
        (&["mv", "s3://bucket/d/*", "s3://bucket/new/"], 4, &["one object is moved"]),
        (&["mv", "s3://bucket/d/*", &here], 4, &["one object is moved"]),
        (&["mv", "s3://nowhere/d/*", &here], 4, &["one object is moved"]),
        (&["mv", &absent, "s3://bucket/new"], 1, &["absent: No such file", "check the path"]),
        (&["cp", &file, "s3:bucket"], 4, &["one side has to be a URL"]),
        (&["cp", &file, "s3://bucket/none", "--if-match", "x"], 1, &["none has the ETag"]),
        (&["uploads", "s3://bucket", "--abort"], 4, &["are running", "--older-than"]),
        (&["mv", "http://127.0.0.1:1/x", &absent], 4, &["cannot be deleted"]),
        (&["mv", "-", "s3://bucket/new"], 4, &["a file is wanted"]),
        (&["mv", &here, "s3://bucket/new"], 4, &["is a folder", "cp -r"]),
        (&["mv", &file, "s3://nowhere/new"], 1, &["no such bucket"]),
        (&["mv", &file, &absent], 4, &["mv: ", "one side has to be a URL"]),
        (&["mv", "s3://bucket/key", "s3://nowhere/new"], 1, &["no such bucket"]),
    ];
    for (arguments, code, says) in rows {
        run(&mut at(&buckets, arguments)).refused(*code, says);
        assert_eq!(keys(&buckets, "bucket"), set(&["d/x", "key"]), "{arguments:?}");
        assert_eq!(stored(&buckets, "bucket/key").unwrap(), b"first", "{arguments:?}");
        assert_eq!(fs::read(&file).unwrap(), b"second", "{arguments:?}");
    }
}

#[test]
fn buckets_are_made_and_deleted() {
    for scheme in ["s3", "oss"] {
        let buckets = Buckets::new(&[("other/a", b"")]);
        let (url, folder) = (format!("{scheme}://new"), Folder::new());
        run(&mut at(&buckets, &["mb", &url])).clean();
        assert!(buckets.root().join("new").is_dir());
        run(&mut at(&buckets, &["rb", &url])).clean();
        assert!(!buckets.root().join("new").exists());
        run(&mut at(&buckets, &["mb", &url])).clean();
        let file = folder.at("file");
        fs::write(&file, b"12345").unwrap();
        for key in ["a", "b/c"] {
            run(&mut at(&buckets, &["cp", &file, &format!("{url}/{key}")])).clean();
        }
        leave_upload(&buckets, &file, &format!("{url}/big"));
        let events = run(&mut at(&buckets, &["rb", &url, "--force", "--yes", "--json"])).clean().events();
        let said = |at: usize, name: &str| events[at][name].clone();
        assert_eq!(
            (said(0, "status"), said(0, "objects"), said(0, "bytes")),
            ("planned".into(), 2.into(), 10.into())
        );
        assert_eq!(said(0, "uploads"), 1, "{events:?}");
        assert_eq!(events.last().unwrap()["status"], "ok");
        assert!(!buckets.root().join("new").exists());
        assert_eq!(keys(&buckets, "other"), set(&["a"]));
    }
}

/// Begins an upload of `url`, and is killed.
fn leave_upload(buckets: &Buckets, file: &str, url: &str) {
    let before = fs::read(file).unwrap();
    fs::write(file, bytes(64 * MIB)).unwrap();
    let count = || uploads(buckets, url).len();
    let there = count();
    let slowly = ["cp", file, url, "--part-size", "5MiB", "--bandwidth", "6MiB/s"];
    let mut child = at(buckets, &slowly).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the upload", || count() > there || child.try_wait().unwrap().is_some());
    signal("KILL", child.id());
    child.wait().unwrap();
    fs::write(file, before).unwrap();
}

fn uploads(buckets: &Buckets, url: &str) -> Vec<serde_json::Value> {
    let listed = run(&mut at(buckets, &["uploads", url, "--json"])).clean();
    listed.events().into_iter().filter(|event| event["event"] == "upload").collect()
}

#[test]
fn unfinished_uploads_are_listed_and_aborted() {
    for scheme in ["s3", "oss"] {
        let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
        let (file, url) = (folder.at("file"), format!("{scheme}://bucket"));
        fs::write(&file, b"").unwrap();
        for key in ["a/one", "b/two ü"] {
            leave_upload(&buckets, &file, &format!("{url}/{key}"));
        }
        let found = uploads(&buckets, &url);
        let found: Vec<&str> = found.iter().map(|upload| upload["key"].as_str().unwrap()).collect();
        assert_eq!(found, ["a/one", "b/two ü"]);
        assert_eq!(uploads(&buckets, &format!("{url}/b/")).len(), 1);
        let old = run(&mut at(&buckets, &["uploads", &url, "--older-than", "1h", "--abort"])).clean();
        assert_eq!((old.text(), uploads(&buckets, &url).len()), ("", 2));
        let said = run(&mut at(&buckets, &["uploads", &format!("{url}/b"), "--abort"])).clean();
        assert!(
            said.text().starts_with("aborted 2") && said.text().ends_with("/b/two ü\n"),
            "{}",
            said.text()
        );
        let left = uploads(&buckets, &url);
        assert_eq!((left.len(), &left[0]["key"]), (1, &"a/one".into()));
        let all =
            run(&mut at(&buckets, &["uploads", &url, "--abort", "--older-than", "0s", "--json"])).clean();
        assert_eq!(all.events().last().unwrap()["aborted"], 1);
        assert!(uploads(&buckets, &url).is_empty());
    }
}

#[test]
fn presigned_urls_read_and_write_without_keys() {
    let buckets = Buckets::locked(&[("bucket/a b", b"content")]);
    let url = buckets.url();
    let keys = [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ("OSS_ACCESS_KEY_ID", ACCESS_KEY),
        ("OSS_ACCESS_KEY_SECRET", SECRET_KEY),
    ];
    for scheme in ["s3", "oss"] {
        let ask = |arguments: &[&str]| {
            let more = ["--endpoint-url", &url, "--oss-endpoint", &url, "--oss-region", "cn-hangzhou"];
            run(flatout(&[arguments, &more].concat()).envs(keys)).clean()
        };
        let read = ask(&["presign", &format!("{scheme}://bucket/a b"), "--expires", "5m"]);
        let got = run(&mut flatout(&["cat", read.text().trim_end()])).clean();
        assert_eq!(got.stdout, b"content", "{scheme}");
        let event = &ask(&["presign", "--put", &format!("{scheme}://bucket/new"), "--json"]).events()[0];
        assert_eq!((&event["method"], &event["expires_seconds"]), (&"PUT".into(), &3_600.into()));
        let put = event["url"].as_str().unwrap();
        let status = plain_put(put, b"written");
        assert_eq!((status, stored(&buckets, "bucket/new")), (200, Some(b"written".to_vec())), "{scheme}");
        // It is for that object, and for writing.
        assert_eq!(plain_put(&put.replace("/new", "/old"), b"x"), 403);
        run(&mut flatout(&["cat", put])).refused(5, &["(403"]);
        fs::remove_file(buckets.root().join("bucket/new")).unwrap();
    }
}

/// A PUT by nothing but a socket; the status.
fn plain_put(url: &str, body: &[u8]) -> u16 {
    put(url, "", body)
}

fn put(url: &str, headers: &str, body: &[u8]) -> u16 {
    use std::io::{Read, Write};
    let (host, target) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut socket = std::net::TcpStream::connect(host).unwrap();
    let head = format!(
        "PUT /{target} HTTP/1.1\r\nhost: {host}\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn usage_is_counted_by_folder() {
    let buckets = Buckets::new(&[
        ("bucket/a", b"1"),
        ("bucket/b/c", b"22"),
        ("bucket/b/d/e", b"4444"),
        ("bucket/c/d", b"88888888"),
    ]);
    let check = |arguments: &[&str], expected: &[(&str, u64, u64)]| {
        for scheme in ["s3", "oss"] {
            let typed: Vec<String> =
                arguments.iter().map(|word| word.replace("URL", &format!("{scheme}://bucket"))).collect();
            let typed: Vec<&str> = typed.iter().map(String::as_str).collect();
            let events = run(&mut at(&buckets, &[&["du", "--json"], &typed[..]].concat())).clean().events();
            let found: Vec<(&str, u64, u64)> = events
                .iter()
                .map(|event| {
                    let number = |name: &str| event[name].as_u64().unwrap();
                    (event["key"].as_str().unwrap(), number("objects"), number("bytes"))
                })
                .collect();
            assert_eq!(found, expected, "{typed:?}");
        }
    };
    check(&["URL"], &[("", 4, 15)]);
    check(&["URL/b"], &[("b", 2, 6)]);
    check(&["URL/x"], &[("x", 0, 0)]);
    check(&["URL", "--by-prefix", "1"], &[("b/", 2, 6), ("c/", 1, 8), ("", 4, 15)]);
    check(&["-r", "URL", "--by-prefix", "1"], &[("b/", 2, 6), ("c/", 1, 8), ("", 4, 15)]);
    check(&["URL", "-r"], &[("b/d/", 1, 4), ("b/", 2, 6), ("c/", 1, 8), ("", 4, 15)]);
    check(&["URL/b/", "-r"], &[("b/d/", 1, 4), ("b/", 2, 6)]);
    check(&["URL", "--exclude", "/b/"], &[("", 2, 9)]);
    check(&["URL/b/*"], &[("b/*", 2, 6)]);
    check(&["URL/?"], &[("?", 4, 15)]);
    check(&["URL/*/d", "-r"], &[("b/d/", 1, 4), ("b/", 1, 4), ("c/", 1, 8), ("*/d", 2, 12)]);
    check(&["URL/*.none"], &[("*.none", 0, 0)]);
    let said = run(&mut at(&buckets, &["du", "s3://bucket", "--bytes"])).clean();
    assert_eq!(said.text(), format!("{:>14} {:>14} s3://bucket\n", 15, 4));
}

/// The pattern was taken for a prefix, of which there is nothing.
#[test]
fn du_of_a_pattern_counted_nothing_in_silence() {
    let buckets = Buckets::new(&[("bucket/a.txt", b"1"), ("bucket/b.txt", b"22"), ("bucket/c", b"333")]);
    let said = run(&mut at(&buckets, &["du", "s3://bucket/*.txt", "--bytes"])).clean();
    assert_eq!(said.text(), format!("{:>14} {:>14} s3://bucket/*.txt\n", 3, 2));
    let buckets = Buckets::new(&[("bucket/a*.txt", b"4444"), ("bucket/ab.txt", b"1")]);
    let said = run(&mut at(&buckets, &["du", "s3://bucket/a*.txt", "--bytes"])).clean();
    assert_eq!(said.text(), format!("{:>14} {:>14} s3://bucket/a*.txt\n", 4, 1));
}

/// What the catalogue of CRCs has for `123456789`, as the headers of origins have it; RFC 1321 has an MD5.
#[test]
fn hashes_of_files_are_those_of_the_standards() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let file = folder.at("file");
    fs::write(&file, b"123456789").unwrap();
    let said = run(&mut flatout(&["hash", &file])).clean();
    for row in [
        "crc64nvme      rosUhgp5mIg=",
        "crc64xz        11051210869376104954",
        "crc32c         4waSgw==",
        "size           9",
    ] {
        assert!(said.text().contains(row), "{row}: {}", said.text());
    }
    fs::write(folder.at("digest"), b"message digest").unwrap();
    let md5 = run(&mut flatout(&["hash", &folder.at("digest"), "--algorithm", "md5", "--json"])).clean();
    assert_eq!(md5.events()[0]["checksums"][0]["value"], "f96b697d7cb7938d525a2f31aaf161d0");
    run(&mut at(&buckets, &["cp", &file, "s3://bucket/x"])).clean();
    let stated = run(&mut at(&buckets, &["hash", "s3://bucket/x", "--algorithm", "crc64nvme"])).clean();
    assert!(stated.text().contains("rosUhgp5mIg="), "{}", stated.text());
    run(&mut at(&buckets, &["hash", "s3://bucket/x", "--algorithm", "md5"])).refused(1, &["states none"]);
}

/// Whole and in parts, within a service and from one to the other: bytes, type, headers, metadata and tags.
#[test]
fn an_object_is_copied_with_all_that_describes_it() {
    for (from, to) in [("s3", "s3"), ("oss", "oss"), ("s3", "oss"), ("oss", "s3")] {
        for length in [0, 100_000, 12 * MIB + 1] {
            let (buckets, folder) = (Buckets::new(&[("bucket/x", b""), ("other/x", b"")]), Folder::new());
            let (file, body) = (folder.at("file"), bytes(length));
            fs::write(&file, &body).unwrap();
            let source = format!("{from}://bucket/a b/ü");
            let target = format!("{to}://other/deep/");
            let described = [
                ["--content-type", "a/b"],
                ["--cache-control", "max-age=3"],
                ["--metadata", "who=ann b"],
                ["--tagging", "k=v w"],
            ];
            run(&mut at(&buckets, &[&["cp", &file, &source][..], &described.concat()].concat())).clean();
            let copy = ["cp", &source, &target, "--part-size", "5MiB", "--json"];
            let done = run(&mut at(&buckets, &copy)).clean();
            let event = &done.events()[0];
            assert_eq!((&event["action"], &event["bytes"]), (&"copy".into(), &length.into()), "{event}");
            // No byte comes here where the service copies.
            assert!((event["fetched"] == 0) == (from == to || length == 0), "{event}");
            assert!(stored(&buckets, "other/deep/ü") == Some(body), "{from} {to} {length}: other bytes");
            let head = plain_head(&format!("{}/other/deep/%C3%BC", buckets.url()));
            for line in ["content-type: a/b", "cache-control: max-age=3", "x-amz-meta-who: ann b"] {
                assert!(head.contains(line), "{from} {to} {length}: {line}: {head}");
            }
            let tags = plain_get(&format!("{}/other/deep/%C3%BC?tagging", buckets.url()));
            assert!(tags.contains("<Key>k</Key><Value>v w</Value>"), "{from} {to} {length}: {tags}");
            // What is given replaces what the source has.
            let other = [
                "cp",
                &source,
                &target,
                "--content-type",
                "c/d",
                "--metadata",
                "WHO=bob",
                "--tagging",
                "l=m",
            ];
            run(&mut at(&buckets, &[&other[..], &["--part-size", "5MiB"]].concat())).clean();
            let head = plain_head(&format!("{}/other/deep/%C3%BC", buckets.url()));
            for line in ["content-type: c/d", "cache-control: max-age=3", "x-amz-meta-who: bob"] {
                assert!(head.contains(line), "{from} {to} {length}: {line}: {head}");
            }
            let tags = plain_get(&format!("{}/other/deep/%C3%BC?tagging", buckets.url()));
            assert!(tags.contains("<Key>l</Key>") && !tags.contains("<Key>k</Key>"), "{tags}");
            assert!(uploads(&buckets, &format!("{to}://other")).is_empty());
        }
    }
}

/// What is no date is refused before anything is sent.
#[test]
fn an_object_may_expire_and_have_a_language() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let file = folder.at("file");
    fs::write(&file, b"hallo").unwrap();
    for scheme in ["s3", "oss"] {
        for expires in ["2027-01-31T12:00:00Z", "2027-01-31T14:00:00+02:00", "Sun, 31 Jan 2027 12:00:00 GMT"]
        {
            let url = format!("{scheme}://bucket/{scheme}");
            let described = ["cp", &file, &url, "--content-language", "de", "--expires", expires];
            run(&mut at(&buckets, &described)).clean();
            let head = plain_head(&format!("{}/bucket/{scheme}", buckets.url()));
            for line in ["content-language: de", "expires: Sun, 31 Jan 2027 12:00:00 GMT"] {
                assert!(head.contains(line), "{scheme} {expires}: {line}: {head}");
            }
        }
        let new = format!("{scheme}://bucket/new");
        run(&mut at(&buckets, &["cp", &file, &new, "--expires", "soon"]))
            .refused(4, &["--expires: 'soon': write"]);
        run(&mut at(&buckets, &["cp", &new, &file, "--expires", "2027-01-31T12:00:00Z"]))
            .refused(4, &["options of an object are for uploads"]);
        assert_eq!(stored(&buckets, "bucket/new"), None);
    }
    fs::remove_file(&file).unwrap();
}

fn plain_head(url: &str) -> String {
    plain("HEAD", url)
}

fn plain_get(url: &str) -> String {
    plain("GET", url)
}

/// The answer to a request, its names in lower case as the origin sends them.
fn plain(method: &str, url: &str) -> String {
    use std::io::{Read, Write};
    let (host, target) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut socket = std::net::TcpStream::connect(host).unwrap();
    // An origin of several dialects tells S3 by its headers.
    let head =
        format!("{method} /{target} HTTP/1.1\r\nhost: {host}\r\nx-amz-date: x\r\nconnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// Wildcards may be part of a key.
#[test]
fn an_object_whose_key_looks_like_a_pattern_is_moved() {
    let buckets = Buckets::new(&[("bucket/photo[1].jpg", b"one")]);
    run(&mut at(&buckets, &["mv", "s3://bucket/photo[1].jpg", "s3://bucket/moved"])).clean();
    assert_eq!(keys(&buckets, "bucket"), set(&["moved"]));
}

/// What lies below the target is left out of what is copied, before and after.
#[test]
fn a_target_within_the_source_is_never_copied_into_itself() {
    for scheme in ["s3", "oss"] {
        for (source, target, copied) in [
            ("", "dst/", vec!["dst/a", "dst/d/b", "dst/dst.x", "dst/old"]),
            ("d/", "d/e", vec!["d/e/b", "dst/old"]),
            ("**", "dst", vec!["dst/a", "dst/d/b", "dst/dst.x", "dst/old"]),
            ("d*", "dst/", vec!["dst/dst.x", "dst/old"]),
        ] {
            let before = ["a", "d/b", "dst.x", "dst/old"];
            let buckets = Buckets::new(
                &before
                    .map(|key| format!("bucket/{key}"))
                    .each_ref()
                    .map(|name| (name.as_str(), name.as_bytes())),
            );
            let (from, to) = (format!("{scheme}://bucket/{source}"), format!("{scheme}://bucket/{target}"));
            let copy: &[&str] =
                if source.contains('*') { &["cp", &from, &to] } else { &["cp", "-r", &from, &to] };
            let planned = run(&mut at(&buckets, &[copy, &["--dry-run"]].concat())).clean();
            assert!(
                !planned.text().contains(&format!("would copy {}/", to.trim_end_matches('/'))),
                "{}",
                planned.text()
            );
            // A second time it copies the same.
            for _ in 0..2 {
                let done = run(&mut at(&buckets, copy)).clean();
                assert!(done.text().contains("what is below it is not copied"), "{}", done.text());
                let mut all = set(&before);
                all.extend(set(&copied));
                assert_eq!(keys(&buckets, "bucket"), all, "{from} -> {to}");
            }
            assert_eq!(stored(&buckets, "bucket/dst/old").unwrap(), b"bucket/dst/old");
        }
    }
}

/// A copy that goes to a name within the source would replace what is still to be copied.
#[test]
fn what_is_copied_to_a_folder_above_replaces_nothing_of_the_source() {
    let objects: [(&str, &[u8]); 3] =
        [("bucket/h/a/x", b"outer"), ("bucket/h/a/a/x", b"inner"), ("bucket/h/a/y", b"y")];
    for scheme in ["s3", "oss"] {
        let buckets = Buckets::new(&objects);
        let (from, to) = (format!("{scheme}://bucket/h/a/"), format!("{scheme}://bucket/h/"));
        for more in [&["--dry-run"][..], &[]] {
            let ended = run(&mut at(&buckets, &[&["cp", "-r", &from, &to], more].concat()));
            assert_eq!(ended.code, Some(1), "{}", ended.stderr);
            assert_eq!(ended.stderr.matches("within what is copied").count(), 1, "{}", ended.stderr);
        }
        assert_eq!(keys(&buckets, "bucket"), set(&["h/a/a/x", "h/a/x", "h/a/y", "h/x", "h/y"]));
        for (name, content) in objects {
            assert_eq!(stored(&buckets, name).unwrap(), content, "{name}");
        }
        assert_eq!(stored(&buckets, "bucket/h/x").unwrap(), b"outer");
    }
}

/// Keys go below the target as they lie below the source, marks of folders and odd names included.
#[test]
fn a_folder_is_copied_to_another() {
    for (from_scheme, to_scheme) in [("s3", "s3"), ("oss", "oss"), ("s3", "oss"), ("oss", "s3")] {
        let long = bytes(6 * MIB);
        let names: Vec<String> = (0..150).map(|number| format!("bucket/d/{number:03}")).collect();
        let mut objects: Vec<(&str, &[u8])> =
            names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
        objects.extend([
            ("bucket/d/e/a b+ü", &b"x"[..]),
            ("bucket/d/long", &long),
            ("bucket/dd", b"stays"),
            ("other/to/000", b"old"),
        ]);
        let buckets = Buckets::new(&objects);
        let (from, to) = (format!("{from_scheme}://bucket/d"), format!("{to_scheme}://other/to"));
        let planned = run(&mut at(&buckets, &["cp", "-r", &from, &to, "--dry-run"])).clean();
        assert!(
            planned.text().contains(&format!("would copy {from}/e/a b+ü -> {to}/e/a b+ü\n")),
            "{}",
            planned.text()
        );
        assert_eq!(planned.text().lines().count(), 152);
        let kept =
            run(&mut at(&buckets, &["cp", "-r", &from, &to, "-n", "--json", "--include", "00?"])).clean();
        let summary = kept.events().pop().unwrap();
        assert_eq!(
            (&summary["ok"], &summary["skipped"], &summary["failed"]),
            (&9.into(), &1.into(), &0.into())
        );
        assert_eq!(stored(&buckets, "other/to/000").unwrap(), b"old");
        let said = run(&mut at(&buckets, &["cp", "-r", &from, &to])).clean();
        assert!(said.text().starts_with(&format!("{from}/ -> {to}/: 152 objects, ")), "{}", said.text());
        assert_eq!(keys(&buckets, "other").len(), 152);
        assert!(stored(&buckets, "other/to/long").as_ref() == Some(&long));
        for name in &names {
            let copy = name.replace("bucket/d", "other/to");
            assert_eq!(stored(&buckets, &copy).unwrap(), name.as_bytes(), "{copy}");
        }
        run(&mut at(&buckets, &["cp", &format!("{from}/**ü"), &format!("{to_scheme}://other")])).clean();
        assert_eq!(stored(&buckets, "other/e/a b+ü").unwrap(), b"x");
    }
}

#[test]
fn a_copy_leaves_alone_what_it_is_told_to() {
    let buckets = Buckets::new(&[("bucket/a", b"new"), ("bucket/b", b"old")]);
    let left = run(&mut at(&buckets, &["cp", "s3://bucket/a", "s3://bucket/b", "-n", "--json"])).clean();
    assert_eq!(left.events()[0]["status"], "skipped");
    let planned = run(&mut at(&buckets, &["cp", "s3://bucket/a", "s3://bucket/b", "--dry-run"])).clean();
    assert_eq!(planned.text(), "would copy s3://bucket/a -> s3://bucket/b\n");
    let moved = run(&mut at(&buckets, &["mv", "s3://bucket/a", "s3://bucket/b", "-n"])).clean();
    assert!(moved.text().contains("left as it is"), "{}", moved.text());
    run(&mut at(&buckets, &["mv", "s3://bucket/a", "s3://bucket/b", "--dry-run"])).clean();
    assert_eq!(
        (stored(&buckets, "bucket/a").unwrap(), stored(&buckets, "bucket/b").unwrap()),
        (b"new".to_vec(), b"old".to_vec())
    );
}

#[test]
fn a_move_leaves_its_bytes_in_one_place() {
    for (from, to) in [("s3", "s3"), ("oss", "oss"), ("s3", "oss"), ("oss", "s3")] {
        let (buckets, folder) = (Buckets::new(&[("bucket/x", b""), ("other/x", b"")]), Folder::new());
        let (file, body) = (folder.at("file"), bytes(6 * MIB));
        fs::write(&file, &body).unwrap();
        // There, elsewhere, and back.
        let (first, second) = (format!("{from}://bucket/file"), format!("{to}://other/d/"));
        let sent = run(&mut at(&buckets, &["mv", &file, &format!("{from}://bucket"), "--part-size", "5MiB"]))
            .clean();
        assert!(sent.text().ends_with(&format!("deleted {file}\n")), "{}", sent.text());
        assert!(!Path::new(&file).exists() && stored(&buckets, "bucket/file") == Some(body.clone()));
        let events = run(&mut at(&buckets, &["mv", &first, &second, "--part-size", "5MiB", "--json"]))
            .clean()
            .events();
        let actions: Vec<&str> = events.iter().map(|event| event["action"].as_str().unwrap()).collect();
        assert_eq!(actions, ["copy", "delete", "copy"]);
        assert_eq!(stored(&buckets, "bucket/file"), None);
        assert!(stored(&buckets, "other/d/file") == Some(body.clone()), "{from} {to}");
        run(&mut at(&buckets, &["mv", &format!("{second}file"), &folder.at("")])).clean();
        assert!(fs::read(&file).unwrap() == body && stored(&buckets, "other/d/file").is_none());
    }
}
