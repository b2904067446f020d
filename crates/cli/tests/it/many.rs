//! Many objects: folders and patterns of a bucket, names that cannot be files, and what is left of a run that
//! fails.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Stdio;

use crate::folder::Folder;
use crate::objects::{Buckets, bytes};
use crate::program::{Ended, ended, flatout, run, signal, wait_until};
use crate::raw::{Answer, Asked, Raw, Then};

/// Every file below a folder, by its path there. What vanishes meanwhile is none.
fn names(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        let entries = match fs::read_dir(next) {
            Err(gone) if gone.kind() == ErrorKind::NotFound => continue,
            entries => entries.unwrap(),
        };
        for entry in entries {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

/// With what is in them.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| {
        let bytes = fs::read(folder.join(&name)).unwrap();
        (name, bytes)
    };
    names(folder).into_iter().map(read).collect()
}

fn tree() -> Buckets {
    let large = bytes(700_000);
    Buckets::new(&[
        ("bucket/top.txt", b"top"),
        ("bucket/data/a.bin", b"a"),
        ("bucket/data/b.txt", b"b"),
        ("bucket/data/empty", b""),
        ("bucket/data/sub/c.bin", b"c"),
        ("bucket/data/sub/deep/d.bin", &large),
        ("bucket/data/tmp/e.bin", b"e"),
        ("bucket/data2/f.bin", b"f"),
        ("bucket/odd/[x].bin", b"literal"),
        ("bucket/odd/x.bin", b"x"),
    ])
}

#[test]
fn folders_and_patterns_arrive_under_their_names() {
    let buckets = tree();
    let url = buckets.url();
    let check = |arguments: &[&str], expected: &[&str]| {
        for slash in ["", "/"] {
            let target = tempfile::tempdir().unwrap();
            let folder = format!("{}/new{slash}", target.path().display());
            let all =
                [&["cp"], arguments, &[&folder, "--endpoint-url", &url, "--part-size", "256KiB"]].concat();
            run(&mut flatout(&all)).clean();
            assert_eq!(names(&target.path().join("new")), expected, "{arguments:?}");
            for (name, found) in files(&target.path().join("new")) {
                let ours = files(buckets.root());
                assert!(ours.iter().any(|(key, bytes)| key.ends_with(&name) && *bytes == found), "{name}");
            }
        }
    };
    let data = ["a.bin", "b.txt", "empty", "sub/c.bin", "sub/deep/d.bin", "tmp/e.bin"];
    check(&["-r", "s3://bucket/data/"], &data);
    check(&["-r", "s3://bucket/data"], &data);
    check(&["s3://bucket/data/*"], &["a.bin", "b.txt", "empty"]);
    check(&["s3://bucket/data/*.bin"], &["a.bin"]);
    check(&["s3://bucket/data/**.bin"], &["a.bin", "sub/c.bin", "sub/deep/d.bin", "tmp/e.bin"]);
    check(&["s3://bucket/data*/?.bin"], &["data/a.bin", "data2/f.bin"]);
    check(&["-r", "s3://bucket/data/s*"], &["sub/c.bin", "sub/deep/d.bin"]);
    check(&["s3://bucket/{top.txt,nothing}"], &["top.txt"]);
    check(&[r"s3://bucket/odd/\[x\].*"], &["[x].bin"]);
    check(&["-r", r"s3://bucket/\odd/\[x\].bin"], &["[x].bin"]);
    check(
        &["-r", "s3://bucket/data", "--include", "*.bin"],
        &["a.bin", "sub/c.bin", "sub/deep/d.bin", "tmp/e.bin"],
    );
    check(
        &["-r", "s3://bucket/data", "--exclude", "/tmp/", "--include", "*.bin"],
        &["a.bin", "sub/c.bin", "sub/deep/d.bin"],
    );
    check(&["-r", "s3://bucket/data", "--exclude", "*.bin"], &["b.txt", "empty"]);
}

/// A key may hold what makes a pattern.
#[test]
fn an_object_that_is_called_like_a_pattern_comes_first() {
    let buckets = tree();
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("file");
    let arguments =
        ["cp", "s3://bucket/odd/[x].bin", file.to_str().unwrap(), "--endpoint-url", &buckets.url()];
    run(&mut flatout(&arguments)).clean();
    assert_eq!(fs::read(file).unwrap(), b"literal");
}

#[test]
fn what_is_said_of_many_objects() {
    let buckets = tree();
    let url = buckets.url();
    let target = tempfile::tempdir().unwrap();
    let folder = target.path().join("new");
    let copy = |more: &[&str]| {
        let arguments = ["cp", "-r", "s3://bucket/data", folder.to_str().unwrap(), "--endpoint-url", &url];
        run(&mut flatout(&[&arguments[..], more].concat())).clean()
    };
    let planned = copy(&["--dry-run"]);
    assert!(planned.text().contains("would copy s3://bucket/data/sub/c.bin -> "), "{}", planned.text());
    assert_eq!(planned.text().lines().count(), 6);
    assert!(!folder.exists(), "nothing is made");
    let said = copy(&[]);
    assert!(
        said.text().starts_with("s3://bucket/data -> ") && said.text().contains(": 6 objects, 683.6KiB in "),
        "{}",
        said.text()
    );
    fs::write(folder.join("b.txt"), b"mine").unwrap();
    fs::remove_file(folder.join("a.bin")).unwrap();
    let events = copy(&["--json", "--no-clobber"]).events();
    let summary = events.last().unwrap();
    assert_eq!(
        (&summary["event"], &summary["objects"], &summary["ok"], &summary["skipped"], &summary["exit"]),
        (&"summary".into(), &6.into(), &1.into(), &5.into(), &0.into())
    );
    let object = events.iter().find(|event| event["status"] == "ok").unwrap();
    assert_eq!((&object["key"], &object["bytes"]), (&"data/a.bin".into(), &1.into()));
    assert_eq!(events.iter().filter(|event| event["reason"] == "its file exists").count(), 5);
    assert_eq!(fs::read(folder.join("b.txt")).unwrap(), b"mine");
    copy(&["--quiet"]);
    assert_eq!(fs::read(folder.join("b.txt")).unwrap(), b"b");
}

#[test]
fn ls_takes_patterns_and_filters() {
    let buckets = tree();
    let url = buckets.url();
    let check = |arguments: &[&str], expected: &str| {
        let ended = run(&mut flatout(&[&["ls"], arguments, &["--endpoint-url", &url]].concat())).clean();
        assert_eq!(ended.text(), expected, "{arguments:?}");
    };
    check(&["s3://bucket/data/*.bin"], "a.bin\n");
    check(&["s3://bucket/data/s*"], "sub/\n");
    check(&[r"s3://bucket/odd/\[x\]*"], "[x].bin\n");
    check(&["s3://bucket/data/**.bin"], "a.bin\nsub/c.bin\nsub/deep/d.bin\ntmp/e.bin\n");
    check(&["-r", "s3://bucket/data/", "--exclude", "*.bin"], "b.txt\nempty\n");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let buckets = tree();
    let url = buckets.url();
    let base = tempfile::tempdir().unwrap();
    let (file, new) = (base.path().join("file"), base.path().join("new"));
    fs::write(&file, b"").unwrap();
    let (file, new) = (file.to_str().unwrap(), new.to_str().unwrap());
    for (arguments, code, says) in [
        (vec!["-r", "s3://bucket/data", "-"], 4, "many objects cannot go to standard output"),
        (vec!["-r", "s3://bucket/data", file], 4, "is no folder, and many objects need one"),
        (vec!["-r", "http://h/data", new], 4, "plain HTTP has no listing"),
        (vec!["s3://bucket/data/[a", new], 4, "does not close"),
        (vec!["-r", "s3://bucket/data", new, "--include", "{{x}}"], 4, "regular expression"),
        (vec!["-r", "s3://bucket/data", new, "--range", "0-1"], 4, "exclude each other"),
        (vec!["s3://bucket/top.txt", new, "--include", "x"], 4, "choose among many objects"),
        (vec!["-r", "s3://missing/data", new], 1, "no such bucket"),
    ] {
        let ended = run(&mut flatout(&[&["cp", "--endpoint-url", &url], &arguments[..]].concat()));
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{arguments:?}: {}", ended.stderr);
        assert!(!Path::new(new).exists(), "{arguments:?}");
    }
    run(&mut flatout(&["cp", "-r", "s3://bucket/top.txt", new, "--endpoint-url", &url]))
        .refused(1, &["s3://bucket/top.txt: this is an object, and no folder", "leave out -r"]);
    run(&mut flatout(&["cp", "s3://bucket/data", new, "--endpoint-url", &url])).refused(
        1,
        &["no such object", "keys lie below s3://bucket/data/", "`flatout cp -r s3://bucket/data/ DIR`"],
    );
    assert!(!Path::new(new).exists());
    for source in ["s3://bucket/nothing", "s3://bucket/data/*.gz"] {
        let arguments = ["cp", "-r", source, new, "--endpoint-url", &url];
        run(&mut flatout(&arguments)).refused(1, &["no object to copy there"]);
    }
    let denied = Buckets::locked(&[("bucket/data/a", b"a")]);
    let arguments = ["cp", "-r", "s3://bucket/data", &format!("{new}2"), "--endpoint-url", &denied.url()];
    run(&mut flatout(&arguments)).refused(5, &["list: s3://bucket/data/"]);
    assert!(!Path::new(&format!("{new}2")).exists());
}

/// A bucket with these keys, each holding its own number of bytes; what becomes of a GET is up to the test.
fn bucket(
    keys: &'static [&'static str],
    get: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static,
) -> Raw {
    Raw::start(move |asked| match asked.target().contains("list-type=2") {
        true => page(keys, None),
        false => {
            get(asked, keys.iter().position(|key| asked.target() == format!("/b/{}", encoded(key))).unwrap())
        }
    })
}

fn page(keys: &[&str], next: Option<&str>) -> Answer {
    let entry = |(size, key): (usize, &&str)| {
        format!("<Contents><Key>{}</Key><Size>{size}</Size><ETag>\"e\"</ETag></Contents>", encoded(key))
    };
    let objects: String = keys.iter().enumerate().map(entry).collect();
    let next = next.map_or(String::new(), |next| {
        format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>")
    });
    let xml = format!("<ListBucketResult><EncodingType>url</EncodingType>{objects}{next}</ListBucketResult>");
    Answer::new("200 OK", &[("Content-Length", &xml.len().to_string())], xml.as_bytes())
}

fn encoded(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    key.bytes()
        .map(|byte| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn body(size: usize) -> Answer {
    Answer::new("200 OK", &[("Content-Length", &size.to_string()), ("ETag", "\"e\"")], &bytes(size))
}

fn copy(origin: &Raw, target: &Path, more: &[&str]) -> Ended {
    let url = origin.url("");
    let arguments =
        ["cp", "-r", "s3://b", target.to_str().unwrap(), "--endpoint-url", url.trim_end_matches('/')];
    run(&mut flatout(&[&arguments[..], more].concat()))
}

#[test]
fn names_that_cannot_be_files_are_left_out_and_said_so() {
    let odd = &[
        "../outside",
        "/etc/x",
        "a",
        "a/../b",
        "a/b",
        "a//b",
        "folder/",
        "line\nbreak\u{1b}[31m",
        "nul\0l",
        "plain",
        "ü/日本 +%",
    ];
    let origin = bucket(odd, |_, size| body(size));
    let base = tempfile::tempdir().unwrap();
    let target = base.path().join("x/target");
    let ended = copy(&origin, &target, &[]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert_eq!(
        names(base.path()),
        ["x/target/a", "x/target/line\nbreak\u{1b}[31m", "x/target/plain", "x/target/ü/日本 +%"]
    );
    let warnings: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(warnings.len(), 6, "{}", ended.stderr);
    for says in [
        "left out: s3://b/../outside: a name '.' or '..' in it would lead elsewhere",
        "left out: s3://b//etc/x: a path with an empty name",
        "left out: s3://b/a/../b: a name '.'",
        "left out: s3://b/a//b: a path with an empty name",
        "left out: s3://b/a/b: 'a' is an object too",
        "left out: s3://b/nul\\u{0}l: no file name can hold a NUL",
    ] {
        assert!(warnings.iter().any(|line| line.contains(says)), "{} lacks {says}", ended.stderr);
    }
    let events = copy(&origin, &target, &["--json"]).events();
    let summary = events.last().unwrap();
    assert_eq!((&summary["ok"], &summary["skipped"], &summary["exit"]), (&4.into(), &7.into(), &2.into()));
}

#[test]
fn links_that_lead_out_are_not_followed() {
    let origin = bucket(&["in/x", "link", "out/x"], |_, size| body(size));
    let base = tempfile::tempdir().unwrap();
    let target = base.path().join("target");
    fs::create_dir_all(target.join("real")).unwrap();
    fs::create_dir(base.path().join("elsewhere")).unwrap();
    fs::write(base.path().join("elsewhere/kept"), b"kept").unwrap();
    for (to, name) in [("real", "in"), ("../elsewhere", "out"), ("../elsewhere/kept", "link")] {
        std::os::unix::fs::symlink(to, target.join(name)).unwrap();
    }
    copy(&origin, &target, &[]).refused(1, &["out/x", "leads out of the target folder"]);
    assert_eq!(names(&base.path().join("elsewhere")), ["kept"]);
    assert_eq!(fs::read(base.path().join("elsewhere/kept")).unwrap(), b"kept");
    assert!(target.join("real/x").is_file(), "a link that stays within is followed");
    assert_eq!(
        fs::read(target.join("link")).unwrap(),
        bytes(1),
        "a link under the file's own name is replaced"
    );
}

#[test]
fn failures_are_a_line_each_and_stop_nothing_else() {
    for (status, code) in [("404 Not Found", 1), ("403 Forbidden", 5), ("503 Slow Down", 6)] {
        let origin =
            bucket(&["a", "gone1", "gone2", "other", "z"], move |asked, size| match asked.target() {
                target if target.contains("gone") => {
                    Answer::new("404 Not Found", &[("Content-Length", "0")], b"")
                }
                target if target.contains("other") => Answer::new(status, &[("Content-Length", "0")], b""),
                _ => body(size),
            });
        let target = tempfile::tempdir().unwrap();
        let ended = copy(&origin, target.path(), &["--retries", "0"]);
        assert_eq!(ended.code, Some(code), "the worst wins: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().filter(|line| line.starts_with("flatout: error: ")).count(), 3);
        assert_eq!(names(target.path()), ["a", "z"]);
        assert!(ended.text().contains(": 2 objects, 3 failed, "), "{}", ended.text());
        let events = copy(&origin, target.path(), &["--retries", "0", "--json"]).events();
        assert_eq!(events.last().unwrap()["exit"], code);
    }
}

#[test]
fn an_error_of_many_objects_was_said_for_each() {
    let keys = &["a", "gone1", "gone2", "gone3", "gone4", "gone5", "gone6", "z"];
    let origin = bucket(keys, |asked, size| match asked.target().contains("gone") {
        true => Answer::new("404 Not Found", &[("Content-Length", "0")], b""),
        false => body(size),
    });
    let target = tempfile::tempdir().unwrap();
    let ended = copy(&origin, target.path(), &["--retries", "0"]);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 4, "{}", ended.stderr);
    assert!(lines[0].starts_with("flatout: error: read: s3://b/gone"), "{}", ended.stderr);
    assert!(lines[2].starts_with("flatout: error: cp: 5 more: read: …: no such object (404): s3://b/gone"));
    assert_eq!(lines[2].matches("s3://b/gone").count(), 3, "the first names: {}", lines[2]);
    assert_eq!(lines[3], "  hint: --verbose says each");
    assert_eq!(ended.code, Some(1));
    let verbose = copy(&origin, target.path(), &["--retries", "0", "--verbose"]).stderr;
    assert_eq!(verbose.lines().filter(|line| line.contains("read: s3://b/gone")).count(), 6, "{verbose}");
    let json = copy(&origin, target.path(), &["--retries", "0", "--json"]);
    let is_error = |event: &&serde_json::Value| event["event"] == "error";
    assert_eq!(json.events().iter().filter(is_error).count(), 6, "each has its event");
    assert_eq!(json.stderr.lines().count(), 4, "{}", json.stderr);
    // The same of what is left out.
    let origin = bucket(&["../a", "../b", "../c", "../d", "../e", "../f", "z"], |_, size| body(size));
    let left = copy(&origin, target.path(), &[]);
    assert_eq!(left.stderr.lines().count(), 2, "{}", left.stderr);
    assert!(left.stderr.contains("flatout: 5 more: left out: …: "), "{}", left.stderr);
}

#[test]
fn a_listing_that_breaks_off_is_incomplete_knowledge() {
    for (status, code) in [("404 Not Found", 3), ("403 Forbidden", 5)] {
        let origin = Raw::start(move |asked| match asked.target() {
            target if target.contains("continuation-token") => {
                Answer::new(status, &[("Content-Length", "0")], b"")
            }
            target if target.contains("list-type") => page(&["a", "b"], Some("more")),
            target => body(usize::from(target.ends_with('b'))),
        });
        let target = tempfile::tempdir().unwrap();
        copy(&origin, target.path(), &[]).refused(code, &["list: s3://b"]);
        assert_eq!(names(target.path()), ["a", "b"], "what was listed is there");
        let events = copy(&origin, target.path(), &["--json"]).events();
        let summary = events.last().unwrap();
        assert_eq!((&summary["ok"], &summary["exit"]), (&2.into(), &code.into()));
        let failed = copy(&origin, target.path(), &["--dry-run"]);
        assert_eq!((failed.code, failed.text().lines().count()), (Some(code), 2), "{}", failed.stderr);
    }
}

#[test]
fn an_interrupt_leaves_whole_files_only() {
    let origin =
        bucket(&["a", "b", "hung/c", "hung/d"], |asked, size| match asked.target().contains("hung") {
            true => Answer::new("200 OK", &[("Content-Length", "9")], b"half").then(Then::Silence),
            false => body(size),
        });
    let target = tempfile::tempdir().unwrap();
    let url = origin.url("");
    let arguments =
        ["cp", "-r", "s3://b", target.path().to_str().unwrap(), "--endpoint-url", url.trim_end_matches('/')];
    let mut command = flatout(&arguments);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_begun = |names: &[String]| {
        let whole = names.iter().filter(|name| ["a", "b"].contains(&name.as_str())).count();
        let hung = names.iter().filter(|name| name.starts_with("hung/") && name.contains("flatout")).count();
        (whole, hung) == (2, 2)
    };
    wait_until("two whole files and two begun", || is_begun(&names(target.path())));
    signal("INT", child.id());
    ended(child.wait_with_output().unwrap()).refused(130, &["interrupted, at least 2 objects are missing"]);
    assert_eq!(names(target.path()), ["a", "b"]);
}

/// A hundred made-up objects of 10 KiB.
fn synthetic() -> flatout_server::Origin {
    let objects = (0..100).map(|n| ("many".to_owned(), format!("f{}/k{n}", n % 3), 10 << 10)).collect();
    flatout_server::Origin::start(flatout_server::Options::new(flatout_server::Store::Synthetic(
        objects,
        vec![],
    )))
    .unwrap()
}

#[test]
fn bench_counts_objects_and_has_a_floor() {
    let origin = synthetic();
    let base = tempfile::tempdir().unwrap();
    let folder = format!("file:{}/measured", base.path().display());
    for landing in ["nowhere", &folder] {
        let arguments =
            ["bench", "get", "-r", "s3://many", "--endpoint-url", &origin.url(), "--landing", landing];
        let ended =
            run(&mut flatout(&[&arguments[..], &["--repeat", "2", "--floor", "--json"]].concat())).clean();
        let events = ended.events();
        let count = |op: &str| events.iter().filter(|event| event["op"] == op).count();
        assert_eq!((count("get"), count("floor"), count("ratio")), (2, 2, 1));
        for event in events.iter().filter(|event| event["op"] == "get" || event["op"] == "floor") {
            assert_eq!((&event["objects"], &event["bytes"]), (&100.into(), &(1000 << 10).into()), "{event}");
            for field in ["objects_per_s", "cpu_us_per_object"] {
                assert!(event[field].as_f64().is_some_and(|figure| figure >= 0.0), "{field}: {event}");
            }
        }
        let got = events.iter().find(|event| event["op"] == "get").unwrap();
        assert_eq!(got["verified"], "crc64nvme", "{got}");
        assert!(names(base.path()).is_empty(), "the files are gone");
    }
    let refused = ["bench", "get", "-r", "s3://many", "--landing", "memory"];
    run(&mut flatout(&refused)).refused(4, &["many objects cannot land in memory"]);
    let table = run(&mut flatout(&[
        "bench",
        "get",
        "-r",
        "s3://many",
        "--endpoint-url",
        &origin.url(),
        "--repeat",
        "1",
    ]));
    assert!(table.clean().text().contains("CPU us/object"));
}

#[test]
fn a_target_with_wildcards_became_a_file_called_so() {
    let buckets = Buckets::new(&[("bucket/x", b"new"), ("bucket/y*", b"star")]);
    let (folder, url) = (Folder::new(), buckets.url());
    let ask =
        |arguments: &[&str]| run(&mut flatout(&[&["cp"], arguments, &["--endpoint-url", &url]].concat()));
    let at = |name: &str| folder.at(name);
    for arguments in [
        &["s3://bucket/x", &at("*")][..],
        &["s3://bucket/x", &at("new?/")],
        &["s3://bucket/x", &at("*/x")],
        &["-r", "s3://bucket", &at("d/*")],
        &["s3://bucket/?", &at("*")],
    ] {
        ask(arguments).refused(4, &["a target is no pattern", "without * and ?"]);
        folder.is_untouched();
    }
    ask(&["s3://bucket/y*", &at("y*")]).clean();
    assert_eq!(fs::read(at("y*")).unwrap(), b"star");
    // What is there is meant.
    ask(&["s3://bucket/x", &at("y*")]).clean();
    assert_eq!(fs::read(at("y*")).unwrap(), b"new");
    fs::create_dir(at("d?")).unwrap();
    ask(&["s3://bucket/x", &at("d?")]).clean();
    ask(&["s3://bucket/x", &at("d?/y")]).clean();
    assert!(Path::new(&at("d?/x")).exists() && Path::new(&at("d?/y")).exists());
}

#[test]
fn what_finds_nothing_leaves_nothing() {
    let buckets = Buckets::new(&[("bucket/there", b"x")]);
    // The ? of a pattern was taken for the beginning of a URL's query, and what followed was left out.
    for source in ["s3://bucket/none*", "s3://bucket/none/", "s3://bucket/n?ne/*zzz"] {
        let folder = Folder::new();
        let target = folder.at("new");
        let mut command = flatout(&["cp", "-r", source, &target, "--endpoint-url", &buckets.url()]);
        run(command.arg("--no-sign-request")).refused(1, &[source, "no object to copy there"]);
        folder.is_untouched();
    }
}
