//! `flatout bench peer`: the lab's handle. What it says, when it says it, and that the bytes are what it
//! says.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::folder::{Folder, names};
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY, bytes};
use crate::program::{Ended, flatout, run, signal, wait_until};
use crate::raw::{Answer, Raw, Then, right};
use crate::tls::Served;

const BYTES: usize = (3 << 20) + 5;

/// A peer, and the lab's two ends.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(arguments: &[&str]) -> Peer {
        let keys = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)];
        let mut command = flatout(&[&["bench", "peer"], arguments].concat());
        command.envs(keys).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Peer { child, input, output }
    }

    #[track_caller]
    fn says(&mut self, expected: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(line.starts_with(expected) && line.ends_with('\n'), "{line:?} is not {expected:?}");
    }

    fn go(&mut self) {
        writeln!(self.input, "go").unwrap();
    }

    /// Closes its standard input and waits.
    fn end(self) -> Ended {
        let Peer { mut child, input, mut output } = self;
        drop(input);
        let (mut stdout, mut stderr) = (Vec::new(), String::new());
        output.read_to_end(&mut stdout).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ended { code: child.wait().unwrap().code(), stdout, stderr }
    }
}

/// A whole run as the lab has it.
#[track_caller]
fn check(arguments: &[&str], bytes: usize) {
    let mut peer = Peer::start(arguments);
    peer.says("ready\n");
    peer.go();
    peer.says(&format!("done {bytes}\n"));
    // Its figures can still be read.
    assert!(peer.child.try_wait().unwrap().is_none(), "{arguments:?}");
    let ended = peer.end().clean();
    assert_eq!(ended.text(), "", "{arguments:?}");
}

#[test]
fn every_landing_by_everyone_delivers_the_object() {
    let object = bytes(BYTES);
    let buckets = Buckets::locked(&[("bucket/object", &object)]);
    let url = buckets.url();
    let common = ["s3://bucket/object", "--endpoint-url", &url, "--part-size", "256KiB"];
    for by in
        [&[][..], &["--floor", "recv:4:256KiB"], &["--floor", "epoll:3:1MiB"], &["--floor", "recv:64:4KiB"]]
    {
        for landing in ["nowhere", "memory", "file"] {
            let folder = Folder::new();
            let (target, shown) = (folder.at("target"), folder.at("shown"));
            let landing = if landing == "file" { format!("file:{target}") } else { landing.to_owned() };
            let arguments = [&common, by, &["--landing", &landing]].concat();
            check(&[&arguments[..], &["--check", &shown]].concat(), BYTES);
            assert!(fs::read(&shown).unwrap() == object, "{arguments:?}");
            fs::remove_file(&shown).unwrap();
            if landing.starts_with("file") {
                assert!(fs::read(&target).unwrap() == object, "{arguments:?}");
                fs::remove_file(&target).unwrap();
            }
            folder.is_untouched();
            check(&arguments, BYTES);
        }
    }
}

#[test]
fn over_tls_the_floor_has_threads() {
    let served = Served::start(&[]);
    let (source, authority) = (format!("{}/bucket/key", served.url), served.authority());
    let trusted = [source.as_str(), "--ca-bundle", &authority];
    for by in [&[][..], &["--floor", "recv:2:256KiB"]] {
        let folder = Folder::new();
        let shown = folder.at("shown");
        check(&[&trusted, by, &["--check", &shown]].concat(), 3_000_000);
        assert!(fs::read(&shown).unwrap() == bytes(3_000_000), "{by:?}");
    }
    let mut peer = Peer::start(&[&trusted[..], &["--floor", "epoll:2:256KiB"]].concat());
    peer.says("failed ");
    peer.end().refused(4, &["no epoll", "hint:"]);
}

#[test]
fn a_file_is_sent_by_everyone() {
    let content = bytes(BYTES);
    let buckets = Buckets::locked(&[("bucket/other", b"")]);
    let (url, folder) = (buckets.url(), Folder::new());
    let (path, stored) = (folder.at("sent"), buckets.root().join("bucket/sent"));
    fs::write(&path, &content).unwrap();
    let common = ["s3://bucket/sent", "--send", &path, "--endpoint-url", &url];
    let shapes = ["send:1:1MiB", "send:4:256KiB", "sendfile:1:1MiB", "sendfile:2:256KiB"];
    let floors: Vec<[&str; 2]> = shapes.iter().map(|shape| ["--floor", shape]).collect();
    for by in [&[][..]].into_iter().chain(floors.iter().map(|floor| &floor[..])) {
        check(&[&common, by].concat(), BYTES);
        assert!(fs::read(&stored).unwrap() == content, "{by:?}");
        // The floor sends this one again: none is taken for that of a run before.
        fs::remove_file(&stored).unwrap();
    }
    fs::remove_file(&path).unwrap();
    folder.is_untouched();
}

#[test]
fn a_file_is_sent_over_tls_from_memory() {
    let served = Served::start(&[]);
    let (folder, authority) = (Folder::new(), served.authority());
    let path = folder.at("sent");
    fs::write(&path, bytes(BYTES)).unwrap();
    let common =
        ["s3://bucket/sent", "--send", &path, "--endpoint-url", &served.url, "--ca-bundle", &authority];
    for by in [&[][..], &["--floor", "send:2:1MiB"]] {
        check(&[&common, by].concat(), BYTES);
        let stat =
            ["stat", "s3://bucket/sent", "--json", "--endpoint-url", &served.url, "--ca-bundle", &authority];
        let stated = run(&mut flatout(&stat)).clean();
        assert_eq!(stated.events()[0]["bytes"], BYTES, "{by:?}");
    }
    let mut peer = Peer::start(&[&common[..], &["--floor", "sendfile:2:1MiB"]].concat());
    peer.says("failed ");
    peer.end().refused(4, &["does not encrypt", "hint:"]);
}

#[test]
fn a_file_that_cannot_be_sent_is_refused() {
    let buckets = Buckets::locked(&[("bucket/model", b"precious")]);
    let (url, folder) = (buckets.url(), Folder::new());
    let (path, missing) = (folder.at("sent"), folder.at("missing"));
    fs::write(&path, b"bytes").unwrap();
    let refused = |target: &str, file: &str, more: &[&str], code: i32, says: &[&str]| {
        let mut peer = Peer::start(&[&[target, "--send", file, "--endpoint-url", &url], more].concat());
        peer.says("failed ");
        peer.end().refused(code, says);
    };
    refused("s3://bucket/new", &missing, &[], 1, &["missing"]);
    refused("s3://bucket/new", &path, &["--floor", "recv:1:1MiB"], 4, &["fetches, and this sends", "hint:"]);
    refused("s3://bucket/new", &path, &["--floor", "epoll:1:1MiB"], 4, &["fetches, and this sends", "hint:"]);
    // Whoever wrote it, it was no measurement.
    refused("s3://bucket/model", &path, &[], 4, &["exists already"]);
    let mut peer = Peer::start(&["s3://bucket/new", "--send", &path, "--endpoint-url", &url, "-r"]);
    peer.output.read_line(&mut String::new()).unwrap();
    peer.end().refused(4, &["--send and --recursive exclude each other"]);
    assert_eq!(fs::read(buckets.root().join("bucket/model")).unwrap(), b"precious");
}

#[test]
fn many_objects_land_under_their_keys() {
    let (small, large) = (bytes(1000), bytes(300_000));
    let buckets = Buckets::new(&[
        ("bucket/a/1", &small),
        ("bucket/a/sub/2", &large),
        ("bucket/a/3", b""),
        ("bucket/b", b"no"),
    ]);
    let url = buckets.url();
    let common = ["-r", "s3://bucket/a/", "--endpoint-url", &url, "--no-sign-request"];
    let holds = |folder: &Path| {
        assert_eq!(
            (names(folder), names(&folder.join("sub"))),
            (vec!["1".into(), "3".into(), "sub".into()], vec!["2".into()])
        );
        assert!(
            fs::read(folder.join("1")).unwrap() == small && fs::read(folder.join("sub/2")).unwrap() == large
        );
    };
    for by in [&[][..], &["--floor", "recv:2:256KiB"]] {
        let folder = Folder::new();
        let (target, shown) = (folder.at("target"), folder.at("shown"));
        let landing = format!("file:{target}");
        // A folder that the lab has made is its own.
        fs::create_dir(&shown).unwrap();
        check(&[&common, by, &["--check", &shown]].concat(), 301_000);
        holds(Path::new(&shown));
        fs::remove_dir_all(&shown).unwrap();
        check(&[&common, by, &["--landing", &landing, "--check", &shown]].concat(), 301_000);
        holds(Path::new(&shown));
        holds(Path::new(&target));
        check(&[&common, by].concat(), 301_000);
    }
}

#[test]
fn a_failure_is_a_line_and_a_code() {
    let buckets = Buckets::new(&[("bucket/object", &bytes(1000))]);
    let url = buckets.url();
    let folder = Folder::new();
    let (taken, landing) = (folder.at("model"), format!("file:{}", folder.at("model")));
    let refused = |source: &str, more: &[&str], code: i32, says: &[&str]| {
        let mut peer = Peer::start(&[&[source, "--endpoint-url", &url, "--no-sign-request"], more].concat());
        peer.says("failed ");
        peer.end().refused(code, says);
    };
    let object = "s3://bucket/object";
    refused("s3://bucket/no", &[], 1, &["s3://bucket/no"]);
    refused(object, &["--landing", "stream"], 4, &["bench peer", "hint:"]);
    refused(object, &["--landing", &landing], 4, &["exists already"]);
    refused(object, &["--check", &taken], 4, &["exists already"]);
    // One file for both became an empty one.
    let (same, below) = (format!("file:{}", folder.at("new")), folder.at("new/below"));
    refused(
        object,
        &["--landing", &same, "--check", &folder.at("./new")],
        4,
        &["is where the bytes land", "hint:"],
    );
    refused("s3://bucket/", &["-r", "--landing", &same, "--check", &below], 4, &["is where the bytes land"]);
    refused("s3://bucket/", &["-r", "--landing", "memory"], 4, &["many objects"]);
    refused("s3://bucket/", &["-r", "--floor", "epoll:4:1MiB"], 4, &["no epoll"]);
    let mut peer = Peer::start(&[object, "--endpoint-url", &url, "--floor", "recv:1000:1MiB"]);
    peer.output.read_line(&mut String::new()).unwrap();
    peer.end().refused(4, &["CALL:N:SIZE", "256"]);
    folder.is_untouched();
}

#[test]
fn a_failure_on_the_way_comes_after_go() {
    let raw = Raw::start(|asked| match asked.range(1000).len() {
        1 => right(asked, &[7; 1000], "\"one\""),
        _ => Answer::new("403 Forbidden", &[("Content-Length", "0")], b""),
    });
    let source = raw.url("x");
    for (by, code) in [(&[][..], 5), (&["--floor", "recv:1:256KiB"], 1)] {
        let mut peer = Peer::start(&[&[source.as_str()], by].concat());
        peer.says("ready\n");
        peer.go();
        peer.says("failed ");
        peer.end().refused(code, &["403"]);
    }
    let mut peer = Peer::start(&[&source]);
    peer.says("ready\n");
    // The lab is gone before it said go.
    peer.end().refused(4, &["'go' was awaited"]);
}

#[test]
fn a_signal_ends_it_whatever_it_waits_for() {
    let object = bytes(1 << 20);
    let raw = Raw::start(move |asked| {
        let answer = right(asked, &object, "\"one\"");
        if asked.number > 0 { answer.then(Then::Silence) } else { answer }
    });
    let folder = Folder::new();
    let (source, shown) = (raw.url("x"), folder.at("shown"));
    let arguments = [source.as_str(), "--part-size", "256KiB", "--parallel", "1", "--check", &shown];
    let mut peer = Peer::start(&arguments);
    peer.says("ready\n");
    signal("TERM", peer.child.id());
    // Its input stays open until then: the end of that would be another reason to go.
    assert_eq!(peer.child.wait().unwrap().code(), Some(130));
    let mut peer = Peer::start(&arguments);
    peer.says("ready\n");
    peer.go();
    wait_until("a file beside the model", || folder.names().len() >= 2);
    signal("INT", peer.child.id());
    peer.says("failed ");
    assert_eq!(peer.end().code, Some(130));
    folder.is_untouched();
}
