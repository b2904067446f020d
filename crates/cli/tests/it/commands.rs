//! What the commands do when all is well: bytes, listings, events, exit code 0.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::folder::Folder;
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY, bytes, synthetic};
use crate::program::{flatout, run, shell, signal};
use crate::raw::{Answer, Asked, Raw, Then, right};

const MIB: usize = 1 << 20;
const SMALL_PARTS: [&str; 4] = ["--part-size", "256KiB", "--window", "1MiB"];

#[test]
fn cp_puts_an_object_where_it_is_wanted() {
    let object = bytes(3 * MIB + 17);
    let buckets = Buckets::new(&[("bucket/folder/object", &object)]);
    let url = buckets.url();
    let check = |target: &str, expected: &str| {
        let folder = Folder::new();
        fs::create_dir(folder.path().join("sub")).unwrap();
        let target =
            if target.is_empty() { folder.path().to_str().unwrap().into() } else { folder.at(target) };
        let arguments = ["cp", "s3://bucket/folder/object", &target, "--endpoint-url", &url];
        let said = run(&mut flatout(&[&arguments[..], &SMALL_PARTS].concat())).clean();
        assert!(said.text().starts_with("s3://bucket/folder/object -> "), "{}", said.text());
        assert!(fs::read(folder.path().join(expected)).unwrap() == object, "{target}");
        let quiet = run(&mut flatout(&[&arguments[..], &["--quiet"]].concat())).clean();
        assert_eq!(quiet.text(), "");
    };
    check("new", "new");
    check("model", "model");
    check("", "object");
    check("sub", "sub/object");
    check("sub/", "sub/object");
}

#[test]
fn the_umask_and_an_earlier_files_mode_are_kept() {
    use std::os::unix::fs::PermissionsExt;
    let buckets = Buckets::new(&[("bucket/object", b"bytes")]);
    let source = format!("{}/bucket/object", buckets.url());
    let folder = Folder::new();
    fs::set_permissions(folder.path().join("model"), fs::Permissions::from_mode(0o600)).unwrap();
    for (name, mode) in [("model", 0o600), ("new", 0o640)] {
        run(&mut shell("umask 027; exec \"$0\" \"$@\"", &["cp", &source, &folder.at(name)])).clean();
        assert_eq!(
            fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777,
            mode,
            "{name}"
        );
    }
}

#[test]
fn cat_and_dash_write_to_standard_output() {
    let (one, two) = (bytes(2 * MIB + 5), bytes(70_000));
    let buckets = Buckets::new(&[("bucket/one", &one), ("bucket/two", &two), ("bucket/empty", b"")]);
    let url = buckets.url();
    let check = |arguments: &[&str], expected: &[u8]| {
        let all = [arguments, &["--endpoint-url", &url], &SMALL_PARTS].concat();
        let ended = run(&mut flatout(&all)).clean();
        assert!(ended.stdout == expected, "{arguments:?} wrote {} bytes", ended.stdout.len());
    };
    check(&["cat", "s3://bucket/one"], &one);
    check(&["cat", "s3://bucket/empty"], b"");
    check(&["cat", "s3://bucket/two", "s3://bucket/one"], &[two.clone(), one.clone()].concat());
    check(&["cp", "s3://bucket/one", "-"], &one);
    check(&["cat", "--range", "10-19", "s3://bucket/one"], &one[10..20]);
    check(&["cat", "--range", "bytes=300000-", "s3://bucket/one"], &one[300_000..]);
    check(&["cat", "--range", "-7", "s3://bucket/one"], &one[one.len() - 7..]);
    check(&["cat", "--range=-7", "s3://bucket/one"], &one[one.len() - 7..]);
    check(&["cp", "s3://bucket/one", "-", "--range", "0-0"], &one[..1]);
    check(&["cat", &format!("{url}/bucket/two")], &two);
}

/// In the order of keys, each as one alone.
#[test]
fn cat_of_a_pattern_and_of_a_folder_writes_one_object_after_the_other() {
    let buckets = Buckets::new(&[
        ("bucket/d/2", b"two "),
        ("bucket/d/1", b"one "),
        ("bucket/d/e/3", b"three "),
        ("bucket/d/x[1]", b"literal "),
        ("bucket/dd", b"other "),
    ]);
    let url = buckets.url();
    let more = ["--endpoint-url", &url, "--oss-endpoint", &url, "--no-sign-request"];
    let ask = |arguments: &[&str]| run(&mut flatout(&[&["cat"], arguments, &more].concat()));
    for scheme in ["s3", "oss"] {
        let check = |arguments: &[&str], expected: &str| {
            let typed: Vec<String> = arguments.iter().map(|word| word.replace("URL", scheme)).collect();
            let typed: Vec<&str> = typed.iter().map(String::as_str).collect();
            assert_eq!(ask(&typed).clean().text(), expected, "{typed:?}");
        };
        check(&["URL://bucket/d/?"], "one two ");
        check(&["URL://bucket/d/**"], "one two three literal ");
        check(&["-r", "URL://bucket/d"], "one two three literal ");
        check(&["-r", "URL://bucket/d/"], "one two three literal ");
        check(&["-r", "URL://bucket/d/[e]"], "three ");
        check(&["URL://bucket/d/x[1]"], "literal ");
        check(&["URL://bucket/dd", "URL://bucket/d/?"], "other one two ");
        check(&["URL://bucket/d/?", "--range", "0-1"], "ontw");
    }
    ask(&["s3://bucket/d/*.none"]).refused(1, &["no object there"]);
    ask(&["-r", "s3://bucket/none"]).refused(1, &["no object there"]);
    ask(&["-r", "s3://nowhere/d"]).refused(1, &["no such bucket"]);
    ask(&["-r", &format!("{url}/bucket/d")]).refused(4, &["plain HTTP has no listing"]);
    // What comes behind a hole is not written.
    let broken = ask(&["s3://bucket/dd", "s3://bucket/none*", "s3://bucket/d/1", "--json"]);
    assert_eq!((broken.code, broken.text()), (Some(1), "other "));
    let events: Vec<&str> = broken.stderr.lines().filter(|line| line.starts_with('{')).collect();
    let summary: serde_json::Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!((&summary["objects"], &summary["ok"], &summary["skipped"]), (&2.into(), &1.into(), &1.into()));
}

/// The origin has no other version than the one that is asked for.
#[test]
fn a_version_is_read_and_described() {
    let origin = Raw::start(|asked| match asked.path().ends_with("/bucket/key?versionId=v%2B1") {
        true => right(asked, b"older", "\"e\""),
        false => Answer::new("404 Not Found", &[("content-length", "0")], b""),
    });
    let (url, folder) = (origin.url(""), Folder::new());
    let url = url.trim_end_matches('/');
    let file = folder.at("file");
    for source in ["s3://bucket/key", "oss://bucket/key"] {
        let more = ["--endpoint-url", url, "--oss-endpoint", url, "--no-sign-request", "--no-verify"];
        let ask = |arguments: &[&str]| run(&mut flatout(&[arguments, &more].concat()));
        let version = ["--version-id", "v+1"];
        assert_eq!(ask(&[&["cat", source][..], &version].concat()).clean().text(), "older");
        ask(&[&["cp", source, &file][..], &version].concat()).clean();
        assert_eq!(fs::read(&file).unwrap(), b"older");
        fs::remove_file(&file).unwrap();
        let said = ask(&[&["stat", source][..], &version].concat()).clean();
        assert!(said.text().contains("size           5 (5B)"), "{}", said.text());
        ask(&["cat", source]).refused(1, &["no such object"]);
        for (arguments, says) in [
            (vec!["cat", source, source], "about one object"),
            (vec!["cat", "-r", source], "exclude each other"),
            (vec!["cp", "-r", source, "x"], "exclude each other"),
            (vec!["cp", "/dev/null", source], "--version-id is for downloads"),
            (vec!["cp", source, "s3://bucket/new"], "--version-id is for downloads"),
            (vec!["stat", "s3://bucket"], "about one object"),
        ] {
            ask(&[&arguments[..], &version].concat()).refused(4, &[says]);
        }
    }
}

#[test]
fn stat_of_a_bucket_says_whether_it_is_there() {
    let buckets = Buckets::new(&[("bucket/d/x", b"x")]);
    let locked = Buckets::locked(&[("bucket/x", b"x")]);
    let ask = |url: &str, arguments: &[&str]| {
        let more = ["--endpoint-url", url, "--oss-endpoint", url, "--no-sign-request"];
        run(&mut flatout(&[&["stat"], arguments, &more].concat()))
    };
    for scheme in ["s3", "oss"] {
        for slash in ["", "/"] {
            let (there, none) = (format!("{scheme}://bucket{slash}"), format!("{scheme}://nowhere{slash}"));
            assert!(ask(&buckets.url(), &[&there]).clean().text().starts_with(&format!("{scheme}://bucket")));
            ask(&buckets.url(), &[&none]).refused(1, &["no such bucket"]);
            ask(&locked.url(), &[&there]).refused(5, &["stat: "]);
        }
    }
    let page = "<ListBucketResult></ListBucketResult>";
    let told = Raw::start(move |_| {
        let length = page.len().to_string();
        let headers = [("content-length", length.as_str()), ("x-amz-bucket-region", "eu-west-1")];
        Answer::new("200 OK", &headers, page.as_bytes())
    });
    let said = ask(told.url("").trim_end_matches('/'), &["s3://bucket"]).clean();
    assert_eq!(said.text(), "s3://bucket\n  region         eu-west-1\n");
    let event = &ask(told.url("").trim_end_matches('/'), &["s3://bucket", "--json"]).clean().events()[0];
    assert_eq!((&event["event"], &event["region"]), (&"bucket".into(), &"eu-west-1".into()));
}

#[test]
fn a_file_called_as_our_temporary_ones_was_swept_away_by_the_next_copy() {
    let name = ".x.flatout-0123456789abcdef-0";
    let key = format!("bucket/{name}");
    let buckets = Buckets::new(&[(key.as_str(), b"bytes"), ("bucket/object", b"bytes")]);
    let (folder, url) = (Folder::new(), buckets.url());
    let into = format!("{}/", folder.path().display());
    let (hidden, plain) = (format!("{url}/{key}"), format!("{url}/bucket/object"));
    for (source, target, more) in [
        (&hidden, &into, &[][..]),
        (&plain, &folder.at(name), &[]),
        (&hidden, &folder.at(&format!("{name}.journal")), &["--range", "0-1"]),
    ] {
        let arguments = [&["cp", source, target], more].concat();
        run(&mut flatout(&arguments))
            .refused(4, &["the form of our temporary files", "name the file otherwise"]);
        folder.is_untouched();
    }
    run(&mut flatout(&["cp", &hidden, &folder.at("x")])).clean();
    // Of another hash than a run of ours would give it.
    fs::write(folder.at(name), "mine").unwrap();
    let done = run(&mut flatout(&["cp", "-r", "s3://bucket", &into, "--endpoint-url", &url]));
    assert!(done.code == Some(2) && done.stderr.contains("left out"), "{}", done.stderr);
    assert_eq!(fs::read(folder.at(name)).unwrap(), b"mine");
}

#[test]
fn a_range_goes_to_a_file_as_well() {
    let object = bytes(MIB);
    let buckets = Buckets::new(&[("bucket/object", &object)]);
    let source = format!("{}/bucket/object", buckets.url());
    let folder = Folder::new();
    run(&mut flatout(&["cp", &source, &folder.at("part"), "--range", "1000-1999"])).clean();
    assert_eq!(fs::read(folder.path().join("part")).unwrap(), &object[1000..2000]);
}

#[test]
fn signed_requests_with_keys_of_the_environment() {
    let object = bytes(MIB);
    let buckets = Buckets::locked(&[("bucket/with space+and%20é", &object)]);
    let variables = [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ("AWS_ENDPOINT_URL_S3", buckets.url()),
    ];
    let source = "s3://bucket/with space+and%20é";
    let all = run(flatout(&[&["cat", source], &SMALL_PARTS[..]].concat()).envs(variables.clone())).clean();
    assert!(all.stdout == object);
    let listed = run(flatout(&["ls", "s3://bucket/"]).envs(variables)).clean();
    assert_eq!(listed.text(), "with space+and%20é\n");
}

#[test]
fn a_reader_with_enough_is_a_quiet_end() {
    let origin = synthetic(64 << 20);
    let source = format!("{}/demo/object", origin.url());
    let mut child = flatout(&["cat", &source]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn a_standard_output_that_is_full() {
    let origin = synthetic(1 << 20);
    let source = format!("{}/demo/object", origin.url());
    for line in [
        "exec \"$0\" cat \"$1\" > /dev/full",
        "exec \"$0\" version > /dev/full",
        "exec \"$0\" stat \"$1\" > /dev/full",
    ] {
        run(&mut shell(line, &[&source])).refused(1, &["write: standard output: No space left on device"]);
    }
}

#[test]
fn ls_shows_names_sizes_and_buckets() {
    let buckets = Buckets::new(&[
        ("alpha/folder/one", &bytes(2048)),
        ("alpha/folder/deep/two", b"22"),
        ("alpha/top", b""),
        ("beta/x", b""),
    ]);
    let url = buckets.url();
    let check = |arguments: &[&str], expected: &[&str]| {
        let all = [&["ls"], arguments, &["--endpoint-url", &url]].concat();
        let listed = run(&mut flatout(&all)).clean();
        let lines: Vec<&str> = listed.text().lines().collect();
        assert_eq!(lines.len(), expected.len(), "{arguments:?}: {lines:?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.ends_with(expected), "{arguments:?}: {line:?} does not end in {expected:?}");
        }
    };
    check(&[], &["s3://alpha", "s3://beta"]);
    check(&["s3://"], &["s3://alpha", "s3://beta"]);
    check(&["s3://alpha"], &["folder/", "top"]);
    check(&["s3://alpha/"], &["folder/", "top"]);
    check(&["s3://alpha/folder/"], &["deep/", "one"]);
    check(&["s3://alpha/fol"], &["folder/"]);
    check(&["-r", "s3://alpha/"], &["folder/deep/two", "folder/one", "top"]);
    check(&["-r", "s3://alpha/folder/"], &["deep/two", "one"]);
    check(&["-l", "s3://alpha/folder/"], &["- deep/", " 2048 one"]);
    check(&["-lH", "s3://alpha/folder/"], &["- deep/", " 2KiB one"]);
    run(&mut flatout(&["ls", "s3://alpha/nothing", "--endpoint-url", &url]))
        .refused(1, &["s3://alpha/nothing", "nothing there"]);
    run(&mut flatout(&["ls", "s3://gamma", "--endpoint-url", &url]))
        .refused(1, &["s3://gamma", "NoSuchBucket"]);
    run(&mut flatout(&["ls", &url])).refused(4, &["plain HTTP has no listing"]);
}

#[test]
fn a_name_that_turns_writing_round_looked_like_another() {
    let keys = ["bucket/invoice\u{202e}fdp.exe", "bucket/in\u{200b}visible\u{2066}/x", "bucket/ü \u{5d0}"];
    let objects: Vec<(&str, &[u8])> = keys.iter().map(|key| (*key, &b"x"[..])).collect();
    let (buckets, folder) = (Buckets::new(&objects), Folder::new());
    let (url, target) = (buckets.url(), folder.at("all"));
    let said = |arguments: &[&str]| {
        let all = [arguments, &["--endpoint-url", &url]].concat();
        let ended = run(&mut flatout(&all));
        let said = format!("{}{}", ended.text(), ended.stderr);
        let hidden = |c: &char| ['\u{202e}', '\u{200b}', '\u{2066}'].contains(c);
        assert_eq!(said.chars().find(hidden), None, "{arguments:?}: {said}");
        said
    };
    let key = "s3://bucket/invoice\u{202e}fdp.exe";
    for arguments in [&["ls", "s3://bucket"][..], &["ls", "-rl", "s3://bucket"], &["stat", key]] {
        assert!(said(arguments).contains("invoice\\u{202e}fdp.exe"), "{arguments:?}");
    }
    assert!(said(&["ls", "-r", "s3://bucket"]).contains("in\\u{200b}visible\\u{2066}/x\n"));
    assert!(said(&["ls", "s3://bucket"]).contains("\nü \u{5d0}\n"), "what is seen stays as it is");
    assert!(said(&["cp", key, &folder.at("new")]).contains("s3://bucket/invoice\\u{202e}fdp.exe -> "));
    said(&["cp", "-r", "s3://bucket", &target, "--dry-run"]);
    said(&["cp", "s3://bucket/no\u{202e}ne", &folder.at("none")]);
    // Events are exact.
    let events = run(&mut flatout(&["ls", "s3://bucket", "--json", "--endpoint-url", &url])).clean().events();
    assert!(events.iter().any(|event| event["key"] == "invoice\u{202e}fdp.exe"), "{events:?}");
}

#[test]
fn stat_says_what_the_origin_says() {
    let origin = synthetic(1 << 20);
    let url = origin.url();
    let shown = run(&mut flatout(&["stat", "s3://demo/object", "--endpoint-url", &url])).clean();
    for expected in ["s3://demo/object\n", "1048576 (1MiB)", "etag", "crc64nvme"] {
        assert!(shown.text().contains(expected), "{}lacks {expected}", shown.text());
    }
    let shown = run(&mut flatout(&["stat", "s3://demo/object", "--endpoint-url", &url, "--json"])).clean();
    let events = shown.events();
    assert_eq!(events.len(), 1);
    assert_eq!((&events[0]["event"], &events[0]["bytes"]), (&"stat".into(), &(1 << 20).into()));
    assert_eq!(events[0]["checksums"][0]["algorithm"], "crc64nvme");
    let missing =
        run(&mut flatout(&["stat", "s3://demo/no", "--endpoint-url", &url])).refused(1, &["s3://demo/no"]);
    assert_eq!(missing.text(), "");
}

#[test]
fn events_of_cp_and_cat() {
    let origin = synthetic(3 << 20);
    let url = origin.url();
    let folder = Folder::new();
    let target = folder.at("new");
    let arguments = ["cp", "s3://demo/object", &target, "--endpoint-url", &url, "--json"];
    let events = run(&mut flatout(&arguments)).clean().events();
    assert_eq!(events.len(), 2);
    for (field, expected) in [
        ("event", "object"),
        ("action", "download"),
        ("status", "ok"),
        ("key", "object"),
        ("source", "s3://demo/object"),
        ("target", &target),
        ("verified", "crc64nvme"),
    ] {
        assert_eq!(events[0][field], expected, "{}", events[0]);
    }
    for (field, expected) in [("bytes", 3 << 20), ("fetched", 3 << 20), ("resumed", 0), ("retries", 0)] {
        assert_eq!(events[0][field], expected, "{}", events[0]);
    }
    assert_eq!(
        (&events[1]["event"], &events[1]["ok"], &events[1]["exit"]),
        (&"summary".into(), &1.into(), &0.into())
    );

    // Bytes have standard output to themselves.
    let ended = run(&mut flatout(&["cat", "s3://demo/object", "--endpoint-url", &url, "--json"]));
    assert_eq!((ended.code, ended.stdout.len()), (Some(0), 3 << 20));
    let names: Vec<_> =
        crate::program::events(&ended.stderr).iter().map(|event| event["event"].clone()).collect();
    assert_eq!(names, ["object", "summary"]);
}

#[test]
fn events_of_what_fails() {
    let origin = synthetic(1 << 20);
    let folder = Folder::new();
    let arguments = ["cp", "s3://demo/no", &folder.at("model"), "--endpoint-url", &origin.url(), "--json"];
    let failed = run(&mut flatout(&arguments)).refused(1, &["s3://demo/no"]);
    let events = failed.events();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["object", "error", "summary"]);
    assert_eq!((&events[0]["status"], &events[0]["verified"]), (&"failed".into(), &serde_json::Value::Null));
    assert_eq!((&events[1]["kind"], &events[1]["exit"]), (&"not_found".into(), &1.into()));
    assert_eq!((&events[2]["failed"], &events[2]["exit"]), (&1.into(), &1.into()));
    folder.is_untouched();
    let refused = run(&mut flatout(&["cp", "--json", "--nonsense"])).refused(4, &["--nonsense"]);
    assert_eq!(refused.events()[0]["kind"], "usage");
}

#[test]
fn what_failed_had_fetched_nothing_in_no_time() {
    let object = bytes(MIB);
    let raw = Raw::start(move |asked| {
        let mut answer = right(asked, &object, "\"one\"");
        // The first part comes whole; of the others there is never more than a byte.
        if asked.range(MIB).start > 0 {
            answer.bytes.truncate(answer.bytes.len() + 1 - asked.range(MIB).len());
            answer.then = Then::Close;
        }
        answer
    });
    let (folder, source) = (Folder::new(), raw.url("x"));
    let more = ["--part-size", "256KiB", "--parallel", "1", "--retries", "1", "--json"];
    let check = |events: Vec<serde_json::Value>| {
        let (object, summary) = (&events[0], events.last().unwrap());
        assert_eq!((&object["status"], &object["bytes"]), (&"failed".into(), &0.into()), "{object}");
        assert!(object["fetched"].as_u64() >= Some(256 << 10), "{object}");
        assert!(object["retries"].as_u64() >= Some(1), "{object}");
        assert!(object["seconds"].as_f64() > Some(0.0), "{object}");
        assert_eq!(object["fetched"], summary["fetched"], "{summary}");
    };
    check(run(&mut flatout(&[&["cp", &source, &folder.at("model")], &more[..]].concat())).events());
    folder.is_untouched();
    let said = run(&mut flatout(&[&["cat", &source], &more[..]].concat())).stderr;
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with('{')).collect();
    check(crate::program::events(&lines.join("\n")));
}

#[test]
fn a_listing_that_failed_had_no_summary() {
    let buckets = Buckets::new(&[("alpha/x", b"1")]);
    for location in ["s3://gamma", "s3://alpha/nothing"] {
        let arguments = ["ls", location, "--endpoint-url", &buckets.url(), "--json"];
        let events = run(&mut flatout(&arguments)).refused(1, &[location]).events();
        let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(names, ["error", "summary"], "{location}");
        assert_eq!((&events[1]["action"], &events[1]["exit"]), (&"list".into(), &1.into()));
    }
}

#[test]
fn events_of_ls_hold_whole_keys() {
    let buckets = Buckets::new(&[("alpha/folder/one", b"1"), ("alpha/folder/deep/two", b"22")]);
    let arguments = ["ls", "s3://alpha/folder/", "--endpoint-url", &buckets.url(), "--json"];
    let events = run(&mut flatout(&arguments)).clean().events();
    let kinds: Vec<_> = events.iter().map(|event| (event["type"].as_str(), event["key"].as_str())).collect();
    assert_eq!(
        kinds,
        [(Some("prefix"), Some("folder/deep/")), (Some("object"), Some("folder/one")), (None, None)]
    );
    assert_eq!((&events[1]["bytes"], &events[2]["objects"]), (&1.into(), &1.into()));
}

#[test]
fn a_plain_server_without_ranges_is_one_stream() {
    let object = bytes(700_000);
    let expected = object.clone();
    let raw =
        Raw::start(move |_| Answer::new("200 OK", &[("Content-Length", &object.len().to_string())], &object));
    let folder = Folder::new();
    run(&mut flatout(&["cp", &raw.url("some/file.bin?x=1"), folder.path().to_str().unwrap()])).clean();
    assert!(fs::read(folder.path().join("file.bin")).unwrap() == expected);
}

#[test]
fn a_connection_that_breaks_is_made_again() {
    let object = bytes(MIB);
    let expected = object.clone();
    let breaks = move |asked: &Asked| {
        let mut answer = right(asked, &object, "\"one\"");
        if asked.number % 3 == 1 {
            answer.bytes.truncate(answer.bytes.len() / 2);
            answer.then = Then::Close;
        }
        answer
    };
    let raw = Raw::start(breaks);
    let ended =
        run(&mut flatout(&["cat", &raw.url("x"), "--part-size", "128KiB", "--retries", "20"])).clean();
    assert!(ended.stdout == expected);
}

#[test]
fn settings_come_from_flag_then_environment() {
    let origin = synthetic(1 << 20);
    let url = origin.url();
    let nowhere = "http://127.0.0.1:1";
    let check = |flags: &[&str], variables: &[(&str, &str)], code: i32| {
        let all = [&["stat", "s3://demo/object", "--retries", "0"], flags].concat();
        let ended = run(flatout(&all).envs(variables.iter().copied()));
        assert_eq!(ended.code, Some(code), "{flags:?} {variables:?}: {}", ended.stderr);
    };
    check(&["--endpoint-url", &url], &[("FLATOUT_ENDPOINT_URL", nowhere)], 0);
    check(&[], &[("FLATOUT_ENDPOINT_URL", &url), ("AWS_ENDPOINT_URL", nowhere)], 0);
    check(&[], &[("AWS_ENDPOINT_URL", &url), ("S3_ENDPOINT_URL", nowhere)], 0);
    check(&[], &[("AWS_ENDPOINT_URL", nowhere)], 1);
}

#[test]
fn help_names_every_knob_and_its_variable() {
    let help = |command| run(&mut flatout(&[command, "--help"])).clean().text().to_owned();
    let (cp, mount) = (help("cp"), help("mount"));
    for knob in flatout_settings::KNOBS {
        for expected in [format!("--{}", knob.name), knob.env()] {
            assert!(mount.contains(&expected), "mount --help lacks {expected}");
            // Those of a mount are flags of mount alone.
            let is_of_all = knob.group != flatout_settings::Group::Mount;
            assert_eq!(cp.contains(&expected), is_of_all, "cp --help and {expected}");
        }
    }
    for (command, says) in [("cp", "-COUNT"), ("cat", "-COUNT"), ("ls", r#"'select(.event=="entry").key'"#)] {
        let help = run(&mut flatout(&[command, "--help"])).clean();
        assert!(help.text().contains(says), "{command} --help lacks {says}");
    }
    let demo = run(&mut flatout(&["bench", "demo", "--help"])).clean();
    assert!(demo.text().contains("--parallel") && !demo.text().contains("--endpoint-url"), "{}", demo.text());
    for command in ["cp", "cat", "ls", "stat", "serve", "bench"] {
        let help = run(&mut flatout(&[command, "--help"])).clean();
        assert!(help.text().contains("Usage:"), "{command}");
    }
    let top = run(&mut flatout(&["--help"])).clean();
    assert!(top.text().contains("Exit codes:") && !top.text().contains("__"), "{}", top.text());
    let version = run(&mut flatout(&["version"])).clean();
    assert_eq!(version.text(), format!("flatout {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(run(&mut flatout(&[])).code, Some(4));
}

#[test]
fn serve_says_where_and_ends_on_a_signal() {
    let arguments = ["serve", "--synthetic", "bucket/k=1MiB", "--no-auth", "--listen", "127.0.0.1:0"];
    let mut server = flatout(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim_end().strip_prefix("listening on ").expect(&line).to_owned();
    let read = run(&mut flatout(&["cat", &format!("{url}/bucket/k")])).clean();
    let mut expected = vec![0; MIB];
    flatout_server::synthetic_bytes("bucket", "k", 0..MIB as u64, &mut expected);
    assert!(read.stdout == expected);
    signal("TERM", server.id());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn a_sink_says_at_its_end_what_it_took_and_what_that_cost() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 20 * MIB]).unwrap();
    let arguments = ["serve", "--memory", "--sink", "--no-auth", "--listen", "127.0.0.1:0"];
    let mut server = flatout(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let url = line.strip_prefix("listening on ").expect(&line);
    let to = ["s3://bucket/key", "--endpoint-url", url, "--no-sign-request"];
    run(&mut flatout(&[&["cp", file.to_str().unwrap()], &to[..]].concat())).clean();
    signal("TERM", server.id());
    let said = lines.next().unwrap().unwrap();
    assert!(said.starts_with("took 20MiB in ") && said.ends_with(" a GiB"), "{said}");
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn serve_was_silent_about_folders_that_are_no_buckets() {
    let root = tempfile::tempdir().unwrap();
    for name in ["models", "My_Models", "ab", ".hidden"] {
        fs::create_dir(root.path().join(name)).unwrap();
    }
    let path = root.path().to_str().unwrap();
    let arguments = ["serve", "--root", path, "--no-auth", "--listen", "localhost:0"];
    let mut server = flatout(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim_end().strip_prefix("listening on ").expect(&line);
    let refused = run(&mut flatout(&["ls", "s3://My_Models", "--endpoint-url", url]));
    assert!(refused.stderr.contains("bucket names have 3 to 63"), "{}", refused.stderr);
    signal("TERM", server.id());
    let said = String::from_utf8(server.wait_with_output().unwrap().stderr).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("/My_Models: ") && lines[1].contains("/ab: "), "{said}");
}

#[test]
fn serve_makes_the_weather_that_is_asked_for_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.jsonl");
    let arguments = [
        &[
            "serve",
            "--synthetic",
            "bucket/k-%07d=1KiB*1000000",
            "--synthetic",
            "bucket/one=1MiB",
            "--no-auth",
        ],
        &["--listen", "127.0.0.2:0,dead", "--listen", "127.0.0.1:0", "--seed", "7", "--flip", "0"][..],
        &["--error", "1:InternalError", "--log", log.to_str().unwrap()],
    ]
    .concat();
    let mut server = flatout(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let url = line.strip_prefix("listening on ").expect(&line);
    let refused = run(&mut flatout(&["cat", &format!("{url}/bucket/k-0999999"), "--retries", "1"]));
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    signal("TERM", server.id());
    let ended = server.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let said = String::from_utf8(ended.stderr).unwrap();
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said[0], "flatout: serve: bad weather on purpose: flip 0, error 1:InternalError; seed 7");
    assert!(said[1].starts_with("flatout: serve: bad weather on purpose: http://127.0.0.2:"), "{said:?}");
    assert!(said[1].ends_with(" never answers") && said.len() == 2, "{said:?}");
    assert!(url.starts_with("http://127.0.0.1:") && lines.next().is_none(), "the dead one is not announced");
    let log = fs::read_to_string(log).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty());
    for line in lines {
        let named = ["bucket", "key", "fault", "status", "listener"].map(|name| line[name].to_string());
        assert_eq!(named, ["\"bucket\"", "\"k-0999999\"", "\"error\"", "500", "1"], "{line}");
    }
}

#[test]
fn serve_refuses_weather_that_is_none() {
    let check = |arguments: &[&str], code: i32, says: &[&str]| {
        run(&mut flatout(&[&["serve", "--memory", "--no-auth"], arguments].concat())).refused(code, says);
    };
    check(&["--reset", "2"], 4, &["--reset", "0 to 1, or 0% to 100%"]);
    check(&["--error", "1:SlowDon"], 4, &["--error", "SlowDown"]);
    check(&["--listen", "127.0.0.1:0,late"], 4, &["late", ",dead"]);
    check(&["--total", "1MiB/s@5s"], 4, &["RATE@TIME:RATE"]);
    check(&["--log", "/proc/no/log", "--listen", "127.0.0.1:0"], 1, &["/proc/no/log", "No such file"]);
    check(&["--listen", "127.0.0.1:0,dead"], 4, &["no address to listen on that answers"]);
    let help = run(&mut flatout(&["serve", "--help"])).clean();
    assert!(
        help.text().contains("Wind tunnel:") && help.text().contains("--wrong-range <P>"),
        "{}",
        help.text()
    );
}

#[test]
fn serve_refuses_what_it_cannot_do() {
    let check = |arguments: &[&str], code: i32, says: &[&str]| {
        run(&mut flatout(&[&["serve"], arguments].concat())).refused(code, says);
    };
    check(&["--no-auth"], 4, &["--root", "--memory", "--synthetic"]);
    check(&["--memory"], 4, &["--no-auth, or --access-key and --secret-key"]);
    check(&["--memory", "--access-key", "", "--secret-key", "s"], 4, &["--access-key"]);
    check(&["--memory", "--access-key", "a", "--secret-key", ""], 4, &["--secret-key"]);
    for listen in ["foo", "127.0.0.1", ":99999"] {
        check(
            &["--memory", "--no-auth", "--listen", listen],
            4,
            &[listen, "as in 127.0.0.1:9000 or [::1]:0"],
        );
    }
    check(&["--memory", "--access-key", "a"], 4, &["--secret-key"]);
    check(&["--root", "/proc/nonexistent", "--no-auth"], 4, &["/proc/nonexistent", "is not a folder"]);
    check(&["--synthetic", "bucket", "--no-auth"], 4, &["BUCKET/KEY=SIZE"]);
    check(&["--memory", "--no-auth", "--listen", "192.0.2.1:1"], 1, &["192.0.2.1:1"]);
    let buckets = Buckets::new(&[]);
    let taken = buckets.url().replace("http://", "");
    check(
        &["--memory", "--no-auth", "--listen", &taken],
        1,
        &[&taken, "in use", "hint: choose another port"],
    );
    assert!(buckets.root().is_dir());
}

#[test]
fn arguments_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"d\xff/y");
    for arguments in [&["cp", "s3://b/k"][..], &["stat"], &["ls", "--json"]] {
        run(flatout(arguments).arg(odd)).refused(4, &["d\u{fffd}/y", "not UTF-8"]);
    }
}
