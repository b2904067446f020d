//! What goes wrong: one clear line, the right exit code, nothing under the final name, nothing lost, nothing
//! left behind.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::folder::{Folder, names};
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY, bytes};
use crate::program::{ended, flatout, run, shell, signal, signal_until, wait_until};
use crate::raw::{Answer, Asked, Raw, Then, ranged, right};

const MIB: usize = 1 << 20;

/// `flatout cp SOURCE FOLDER/model` and more arguments fails as described, and the folder is as it was.
#[track_caller]
fn check(source: &str, more: &[&str], code: i32, says: &[&str]) {
    let folder = Folder::new();
    let target = folder.at("model");
    let arguments = [&["cp", source, &target], more].concat();
    let refused = run(&mut flatout(&arguments)).refused(code, says);
    assert_eq!(refused.text(), "", "{arguments:?}");
    folder.is_untouched();
}

/// Against an origin of the test's own.
#[track_caller]
fn check_raw(
    answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    more: &[&str],
    code: i32,
    says: &[&str],
) {
    let raw = Raw::start(answer);
    let quick = ["--retries", "1", "--part-size", "256KiB", "--parallel", "2", "--no-verify"];
    check(&raw.url("bucket/object"), &[&quick, more].concat(), code, says);
}

#[test]
fn a_wrong_url() {
    for (source, says) in [
        ("model.safetensors", "s3://model.safetensors"),
        ("s3:/bucket/key", "s3://bucket/key"),
        ("s4://bucket/key", "s4://"),
        ("s3://", "no bucket"),
        ("s3:///key", "no bucket"),
        ("s3://buc ket/key", "is no bucket name"),
        ("s3://bucket", "names a bucket"),
        ("oss://", "no bucket"),
        ("oss://bucket", "names a bucket"),
        ("oss://bucket/key", "oss:// needs a region or an endpoint"),
        ("https:///path", "is no host"),
        ("http://127.0.0.1:99999/x", "is no port"),
        ("http:///x", "is no host"),
    ] {
        check(source, &[], 4, &[says]);
    }
}

#[test]
fn an_origin_that_is_not_there() {
    // Nobody listens there, and no test can be given it.
    let address = "127.0.0.1:1";
    let url = format!("http://{address}");
    check(&format!("{url}/x"), &["--retries", "0"], 1, &[address, "hint:"]);
    check("s3://bucket/key", &["--retries", "0", "--endpoint-url", &url], 1, &[address]);
}

#[test]
fn a_wrong_bucket_or_key() {
    let buckets = Buckets::new(&[("bucket/key", b"bytes")]);
    let url = buckets.url();
    check("s3://nobucket/key", &["--endpoint-url", &url], 1, &["s3://nobucket/key", "NoSuchBucket", "hint:"]);
    check(
        "s3://bucket/nokey",
        &["--endpoint-url", &url],
        1,
        &["s3://bucket/nokey", "no such object", "hint:"],
    );
    check(&format!("{url}/bucket/nokey"), &[], 1, &["/bucket/nokey", "no such object"]);
}

#[test]
fn a_range_behind_the_end() {
    let buckets = Buckets::new(&[("bucket/key", b"bytes")]);
    let url = buckets.url();
    check("s3://bucket/key", &["--endpoint-url", &url, "--range", "5-"], 4, &["s3://bucket/key", "range"]);
    check("s3://bucket/key", &["--endpoint-url", &url, "--range", "9-3"], 4, &["--range"]);
}

#[test]
fn wrong_credentials() {
    let buckets = Buckets::locked(&[("bucket/key", b"bytes")]);
    let url = buckets.url();
    let check = |variables: &[(&str, &str)], code: i32, says: &[&str]| {
        let folder = Folder::new();
        let arguments = ["cp", "s3://bucket/key", &folder.at("model"), "--endpoint-url", &url];
        run(flatout(&arguments).envs(variables.iter().copied())).refused(code, says);
        folder.is_untouched();
    };
    let (id, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
    check(&[(id, ACCESS_KEY), (secret, "wrong")], 5, &["s3://bucket/key", "SignatureDoesNotMatch"]);
    check(&[(id, "AKIDNOBODY"), (secret, SECRET_KEY)], 5, &["s3://bucket/key", "hint:"]);
    check(&[], 5, &["s3://bucket/key", "hint:", "AWS_ACCESS_KEY_ID"]);
    check(
        &[("FLATOUT_NO_SIGN_REQUEST", "true"), (id, ACCESS_KEY), (secret, SECRET_KEY)],
        5,
        &["--no-sign-request"],
    );
    let half = "AWS_ACCESS_KEY_ID is set but AWS_SECRET_ACCESS_KEY is not: set AWS_SECRET_ACCESS_KEY as well";
    check(&[(id, ACCESS_KEY)], 5, &["s3://bucket/key", "environment: ", half]);
    check(&[(secret, SECRET_KEY)], 5, &["AWS_ACCESS_KEY_ID is not"]);
    check(&[("AWS_REGION", "a b"), (id, ACCESS_KEY), (secret, SECRET_KEY)], 4, &["region"]);
}

#[test]
fn an_unknown_option_or_a_wrong_value() {
    check("s3://b/k", &["--paralel", "3"], 4, &["'--paralel'", "'--parallel'"]);
    check("s3://b/k", &["--part-size", "8 bananas"], 4, &["--part-size", "8 bananas"]);
    check("s3://b/k", &["--parallel", "0"], 4, &["--parallel", "out of bounds"]);
    check("s3://b/k", &["--addressing", "paths"], 4, &["--addressing", "path"]);
    check(
        "s3://b/k",
        &["--window", "1MiB", "--part-size", "8MiB"],
        4,
        &["--window 16MiB", "smaller --part-size"],
    );
    check("s3://b/k", &["--endpoint-url", "ftp://x"], 4, &["ftp"]);
    let folder = Folder::new();
    let arguments = ["cp", "s3://b/k", &folder.at("model")];
    run(flatout(&arguments).env("FLATOUT_PARALLEL", "lots")).refused(4, &["FLATOUT_PARALLEL", "lots"]);
    folder.is_untouched();
    run(flatout(&arguments).env("FLATOUT_PARALEL", "3"))
        .refused(4, &["settings: FLATOUT_PARALEL: ", "FLATOUT_PARALLEL"]);
    run(&mut flatout(&["copy"])).refused(4, &["'copy'"]);
}

#[test]
fn settings_that_the_engine_refuses_did_not_say_that_they_are_settings() {
    for setting in [
        ["--endpoint-url", "localhost:1"],
        ["--endpoint-url", "ftp://x"],
        ["--resolve", "foo"],
        ["--part-size", "x"],
    ] {
        check("s3://b/k", &setting, 4, &["error: settings: "]);
    }
}

#[test]
fn a_part_size_above_half_the_default_window_was_refused() {
    let buckets = Buckets::new(&[("bucket/key", b"bytes")]);
    for command in ["stat", "cat"] {
        let arguments =
            [command, "s3://bucket/key", "--endpoint-url", &buckets.url(), "--part-size", "64MiB"];
        run(&mut flatout(&arguments)).clean();
    }
}

#[test]
fn targets_that_are_no_files() {
    for (target, says) in [
        ("", &["the target is empty", "- for standard output"][..]),
        ("https://b/k", &["a plain URL cannot be written to"]),
        ("file://o/x", &["a target is a path, without file://", "write o/x"]),
    ] {
        let refused = run(&mut flatout(&["cp", "http://127.0.0.1:1/x", target])).refused(4, says);
        assert_eq!(refused.text(), "", "{target}");
    }
    let folder = Folder::new();
    // A file that a shell has opened: a new one in its place would leave it empty.
    std::os::unix::fs::symlink("/dev/fd/3", folder.at("link")).unwrap();
    for target in ["/dev/fd/3", "/proc/self/fd/3", &folder.at("link")] {
        let line = "exec \"$0\" cp http://127.0.0.1:1/x \"$1\" 3> \"$2\"";
        run(&mut shell(line, &[target, &folder.at("open")]))
            .refused(4, &[target, "use - for standard output"]);
    }
    assert!(folder.path().join("link").is_symlink());
}

#[test]
fn an_endpoint_with_a_path_was_a_wrong_key() {
    let buckets = Buckets::new(&[("bucket/key", b"bytes")]);
    let endpoint = format!("{}/bucket", buckets.url());
    for arguments in [
        &["cat", "s3://bucket/key"][..],
        &["stat", "s3://bucket/key"],
        &["ls", "s3://bucket"],
        &["cat", "oss://bucket/key", "--oss-endpoint", &endpoint],
    ] {
        run(&mut flatout(&[arguments, &["--endpoint-url", &endpoint]].concat())).refused(
            1,
            &["the endpoint URL has a path", "/bucket comes before every bucket", "leave it out"],
        );
    }
    run(&mut flatout(&["ls", "--endpoint-url", &endpoint])).refused(1, &["the endpoint URL has a path"]);
    // A gateway's store lies below it.
    let raw = Raw::start(|asked| match asked.target() {
        "/gate/s3/bucket/key" => right(asked, b"bytes", "\"one\""),
        _ => Answer::new("404 Not Found", &[("Content-Length", "0")], b""),
    });
    let endpoint = format!("http://{}/gate/s3/", raw.address);
    let read = run(&mut flatout(&["cat", "s3://bucket/key", "--endpoint-url", &endpoint])).clean();
    assert_eq!(read.text(), "bytes");
}

#[test]
fn a_disk_that_is_full() {
    let buckets = Buckets::new(&[("bucket/object", &bytes(4 * MIB))]);
    let source = format!("{}/bucket/object", buckets.url());
    for name in ["model", "new"] {
        let folder = Folder::new();
        // 64 blocks are 32 or 64 KiB, whichever unit the shell takes.
        let command = &mut shell("ulimit -f 64; exec \"$0\" \"$@\"", &["cp", &source, &folder.at(name)]);
        run(command).refused(1, &[&folder.at(name), "File too large", "hint:"]);
        folder.is_untouched();
    }
}

#[test]
fn a_target_that_is_read_only() {
    let buckets = Buckets::new(&[("bucket/object", &bytes(MIB))]);
    let source = format!("{}/bucket/object", buckets.url());
    // No file can be made there, by root neither.
    let target = "/sys/flatout-test";
    run(&mut flatout(&["cp", &source, target])).refused(1, &[target, "hint:"]);
    assert!(!Path::new(target).exists());
}

#[test]
fn a_target_that_is_a_folder_or_in_none() {
    let buckets = Buckets::new(&[("bucket/object", &bytes(MIB))]);
    let source = format!("{}/bucket/object", buckets.url());
    let folder = Folder::new();
    fs::create_dir_all(folder.path().join("folder/object")).unwrap();
    let check = |target: &str, says: &[&str]| {
        run(&mut flatout(&["cp", &source, &folder.at(target)])).refused(1, says);
        assert_eq!(folder.names(), ["folder", "model"]);
        assert_eq!(names(&folder.path().join("folder")), ["object"]);
    };
    check("folder", &["folder/object", "is a folder", "hint:"]);
    check("missing/object", &["missing/object", "No such file", "hint:"]);
    check("model/object", &["model/object", "Not a directory"]);
    check("model/", &["model", "Not a directory"]);
    // What ends in '/' is a folder, which is made, and kept for a copy alone.
    let nothing = format!("{}/bucket/nothing", buckets.url());
    run(&mut flatout(&["cp", &nothing, &folder.at("new/deep/")])).refused(1, &["no such object"]);
    run(&mut flatout(&["cp", &source, &folder.at("new/deep/"), "--dry-run"])).clean();
    assert!(!folder.path().join("new").exists());
    run(&mut flatout(&["cp", &source, &folder.at("new/deep/")])).clean();
    assert_eq!(names(&folder.path().join("new/deep")), ["object"]);
    run(&mut flatout(&["cp", "http://127.0.0.1:1/", &folder.at("folder")])).refused(4, &["has no name"]);
}

#[test]
fn an_object_that_is_replaced_midway() {
    let object = bytes(MIB);
    let changed = "Precondition Failed";
    let refuses = move |asked: &Asked| match asked.header("if-match") {
        Some(_) if asked.number > 1 => {
            Answer::new(&format!("412 {changed}"), &[("Content-Length", "0")], b"")
        }
        _ => right(asked, &object, "\"one\""),
    };
    check_raw(refuses, &[], 1, &["/bucket/object", "replaced", "hint:"]);
    // An origin that does not know If-Match: the ETag of its answer tells.
    let object = bytes(MIB);
    let ignores = move |asked: &Asked| right(asked, &object, &format!("\"{}\"", asked.number.max(1)));
    check_raw(ignores, &[], 1, &["/bucket/object", "replaced"]);
}

#[test]
fn one_object_that_was_replaced_while_it_was_read_was_not_read_once_more_as_one_of_many_was() {
    let (one, two) = (bytes(MIB), bytes(MIB - 1));
    let after = two.clone();
    let raw = Raw::start(move |asked| match asked.number > 1 {
        true => right(asked, &two, "\"two\""),
        false => right(asked, &one, "\"one\""),
    });
    let (folder, url) = (Folder::new(), raw.url("bucket/object"));
    let arguments = ["cp", &url, &folder.at("new"), "--json", "--part-size", "256KiB", "--parallel", "2"];
    let done = run(&mut flatout(&[&arguments[..], &["--no-verify"]].concat())).clean();
    assert!(fs::read(folder.at("new")).unwrap() == after);
    let fetched = done.events()[0]["fetched"].as_u64().unwrap();
    assert!(fetched >= 256 << 10 && fetched > after.len() as u64, "those of the first time count: {fetched}");
    let raw_again = Raw::start({
        let (one, two) = (bytes(MIB), bytes(MIB - 1));
        move |asked| {
            if asked.number > 1 { right(asked, &two, "\"two\"") } else { right(asked, &one, "\"one\"") }
        }
    });
    let url = raw_again.url("bucket/object");
    let cat = ["cat", &url, "--part-size", "256KiB", "--parallel", "2", "--no-verify"];
    run(&mut flatout(&cat)).refused(1, &["replaced"]);
}

#[test]
fn a_body_that_is_truncated() {
    let object = bytes(MIB);
    let truncates = move |asked: &Asked| {
        let mut answer = right(asked, &object, "\"one\"");
        if asked.number > 1 {
            answer.bytes.truncate(answer.bytes.len() - 1000);
            answer.then = Then::Close;
        }
        answer
    };
    // What has come stays; it is the rest that never comes.
    check_raw(move |asked| starve(asked, &truncates), &[], 1, &["/bucket/object"]);
}

/// Lets an attempt that asks for the rest of a part have nothing of it.
fn starve(asked: &Asked, answer: &(impl Fn(&Asked) -> Answer + Sync)) -> Answer {
    let range = asked.range(MIB);
    match range.start % (256 << 10) {
        0 => answer(asked),
        _ => {
            let content_range = format!("bytes {}-{}/{MIB}", range.start, range.end - 1);
            let length = range.len().to_string();
            let headers =
                [("Content-Length", length.as_str()), ("Content-Range", &content_range), ("ETag", "\"one\"")];
            Answer::new("206 Partial Content", &headers, b"").then(Then::Close)
        }
    }
}

#[test]
fn a_content_range_that_does_not_match() {
    for wrong in [
        "bytes 1-262144/1048576",
        "bytes 0-99/1048576",
        "bytes 0-262143/2097152",
        "bytes */1048576",
        "nonsense",
    ] {
        let object = bytes(MIB);
        let lies = move |asked: &Asked| match asked.number {
            0 => right(asked, &object, "\"one\""),
            _ => ranged(&object[asked.range(MIB)], wrong, "\"one\""),
        };
        check_raw(lies, &[], 1, &["/bucket/object"]);
    }
}

#[test]
fn an_origin_that_throttles_or_fails() {
    let busy = |_: &Asked| Answer::new("503 Slow Down", &[("Content-Length", "0")], b"");
    check_raw(busy, &["--retries", "0"], 6, &["503", "hint:"]);
    let fails = |_: &Asked| Answer::new("500 Oops", &[("Content-Length", "0")], b"");
    check_raw(fails, &["--retries", "0"], 1, &["500"]);
    let nonsense = |_: &Asked| Answer { bytes: b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec(), then: Then::Close };
    check_raw(nonsense, &["--retries", "0"], 1, &["/bucket/object"]);
}

#[test]
fn bytes_that_are_not_those_stated() {
    let object = bytes(MIB);
    let raw = Raw::start(move |asked| {
        let mut answer = right(asked, &object, "\"one\"");
        if asked.method() == "HEAD" {
            let headers = [
                ("Content-Length", "1048576"),
                ("ETag", "\"one\""),
                ("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="),
                ("x-amz-checksum-type", "FULL_OBJECT"),
            ];
            answer = Answer::new("200 OK", &headers, b"");
        }
        answer
    });
    let endpoint = format!("http://{}", raw.address);
    check("s3://bucket/object", &["--endpoint-url", &endpoint], 1, &["s3://bucket/object", "crc64nvme"]);
}

#[test]
fn an_origin_that_falls_silent() {
    let object = bytes(MIB);
    let silent = move |asked: &Asked| {
        let mut answer = right(asked, &object, "\"one\"");
        if asked.number > 0 {
            answer.bytes.truncate(1000);
            answer.then = Then::Silence;
        }
        answer
    };
    check_raw(silent, &["--stall-timeout", "100ms", "--retries", "0"], 1, &["/bucket/object"]);
}

/// An object of which the first half comes and the second never.
fn halved(object: Vec<u8>) -> Raw {
    Raw::start(move |asked| {
        let mut answer = right(asked, &object, "\"one\"");
        if asked.number > 0 {
            answer.bytes.truncate(1000);
            answer.then = Then::Silence;
        }
        answer
    })
}

#[test]
fn control_c_while_it_runs() {
    for name in ["INT", "TERM", "HUP"] {
        let raw = halved(bytes(MIB));
        let folder = Folder::new();
        let (source, target) = (raw.url("bucket/object"), folder.at("model"));
        let arguments = ["cp", &source, &target, "--part-size", "256KiB"];
        let child = flatout(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("a temporary file", || folder.names().len() >= 2);
        signal(name, child.id());
        let stopped = ended(child.wait_with_output().unwrap()).refused(130, &["/bucket/object", "cancelled"]);
        assert_eq!(stopped.text(), "");
        folder.is_untouched();
    }
}

#[test]
fn control_c_while_nobody_reads() {
    let buckets = Buckets::new(&[("bucket/object", &bytes(8 * MIB))]);
    let source = format!("{}/bucket/object", buckets.url());
    let mut child = flatout(&["cat", &source]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The pipe fills and the write blocks; a second signal is not waited for.
    let mut first = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    let id = child.id();
    assert_eq!(signal_until("INT", id, || child.try_wait().unwrap()).code(), Some(130));
}
