//! `flatout cp FILE URL` and `flatout pipe`: what is said, what is there afterwards, and what is not.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flatout_server::{Fault, FaultKind, FaultPlan, Options, Origin, Store, WriteFault};

use crate::folder::Folder;
use crate::objects::{Buckets, bytes};
use crate::program::{ended, flatout, run, signal, wait_until};

const MIB: usize = 1 << 20;

/// The program with this origin.
pub fn at(buckets: &Buckets, arguments: &[&str]) -> Command {
    flatout(&[arguments, &["--endpoint-url", &buckets.url(), "--no-sign-request"]].concat())
}

pub fn stored(buckets: &Buckets, key: &str) -> Option<Vec<u8>> {
    fs::read(buckets.root().join("bucket").join(key)).ok()
}

/// Files of the uploads that the origin has not ended: what each is for, and its parts.
pub fn parts(buckets: &Buckets) -> usize {
    let below = |path: std::path::PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let own = below(buckets.root().join(".flatout/uploads")).flat_map(|origin| below(origin.path()));
    own.filter(|upload| upload.path().is_dir()).map(|upload| below(upload.path()).count()).sum()
}

#[test]
fn a_file_takes_the_name_that_the_target_says() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let (file, body) = (folder.at("model.json"), bytes(70_000));
    fs::write(&file, &body).unwrap();
    for (target, key) in [
        ("s3://bucket", "model.json"),
        ("s3://bucket/", "model.json"),
        ("s3://bucket/models/", "models/model.json"),
        ("s3://bucket/other", "other"),
    ] {
        let said = run(&mut at(&buckets, &["cp", &file, target])).clean();
        assert!(said.text().contains("verified: crc64nvme"), "{}", said.text());
        assert!(stored(&buckets, key) == Some(body.clone()), "{target}");
    }
    let stat = run(&mut at(&buckets, &["stat", "s3://bucket/model.json"])).clean();
    assert!(stat.text().contains("application/json"), "{}", stat.text());
    let options = ["--content-type", "a/b", "--metadata", "who=ann", "--metadata", "why="];
    run(&mut at(&buckets, &[&["cp", &file, "s3://bucket/other"][..], &options].concat())).clean();
    let stat = run(&mut at(&buckets, &["stat", "s3://bucket/other"])).clean();
    assert!(stat.text().contains("a/b") && stat.text().contains("ann"), "{}", stat.text());
}

/// What a shell makes of a pattern, and the other way.
#[test]
fn several_sources_go_into_one_folder() {
    let buckets = Buckets::new(&[("bucket/x", b""), ("bucket/d/other", b"other")]);
    let (folder, url) = (Folder::new(), buckets.url());
    let more = ["--endpoint-url", &url, "--oss-endpoint", &url, "--no-sign-request"];
    let ask = |arguments: &[&str]| run(&mut flatout(&[&["cp"], arguments, &more].concat()));
    let (a, b, c, none, new) =
        (folder.at("a"), folder.at("b"), folder.at("c"), folder.at("none"), folder.at("new/"));
    for file in [&a, &b, &c] {
        fs::write(file, file.as_bytes()).unwrap();
    }
    for scheme in ["s3", "oss"] {
        let prefix = format!("{scheme}://bucket/{scheme}/");
        let said = ask(&[&a, &b, &c, &prefix]).clean();
        assert_eq!(said.text().matches(" -> ").count(), 3, "{}", said.text());
        for file in [&a, &b, &c] {
            let name = Path::new(file).file_name().unwrap();
            let stored = fs::read(buckets.root().join("bucket").join(scheme).join(name)).unwrap();
            assert_eq!(stored, file.as_bytes());
        }
        // One that fails stops no other.
        let some = ask(&["-n", &a, &none, &b, &format!("{prefix}some/")]);
        assert_eq!(some.code, Some(1), "{}", some.stderr);
        assert!(some.stderr.contains("none: No such file"), "{}", some.stderr);
        assert!(buckets.root().join(format!("bucket/{scheme}/some/b")).exists());
        let (x, y) = (format!("{prefix}a"), format!("{prefix}b"));
        fs::create_dir(&new).unwrap();
        ask(&[&x, &y, &format!("{scheme}://bucket/d/*"), &new]).clean();
        for (name, bytes) in [("new/a", a.as_bytes()), ("new/b", b.as_bytes()), ("new/other", b"other")] {
            assert_eq!(fs::read(folder.at(name)).unwrap(), bytes, "{scheme} {name}");
        }
        fs::remove_dir_all(&new).unwrap();
        ask(&[&x, &y, &format!("{scheme}://bucket/copies/")]).clean();
        assert!(buckets.root().join("bucket/copies/b").exists());
        fs::remove_dir_all(buckets.root().join("bucket/copies")).unwrap();
    }
    for (arguments, says) in [
        (&[&a[..], &b, "s3://bucket/new"][..], "need a folder or a prefix"),
        (&["s3://bucket/x", "s3://bucket/d/other", &none], "need a folder or a prefix"),
        (&["s3://bucket/x", "s3://bucket/d/other", "-"], "need a folder or a prefix"),
        (&["-r", &a, &b, "s3://bucket/new/"], "one folder"),
        (&[&a, "-", "s3://bucket/new/"], "no name to use"),
        (&["s3://bucket/x", "s3://bucket/d/x", &folder.at("")], "the same name"),
        (&["s3://bucket/x", "s3://bucket/y", &folder.at(""), "--range", "0-1"], "about one object"),
    ] {
        ask(arguments).refused(4, &[says]);
        assert!(!buckets.root().join("bucket/new").exists() && !Path::new(&none).exists());
    }
}

#[test]
fn standard_input_and_pipes_are_sent_as_they_come() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    for (length, how) in [(0, "cp"), (5, "pipe"), (12 * MIB + 1, "cp"), (12 * MIB + 1, "pipe")] {
        let body = bytes(length);
        let arguments = match how {
            "cp" => vec!["cp", "-", "s3://bucket/in", "--part-size", "5MiB"],
            _ => vec!["pipe", "s3://bucket/in", "--part-size", "5MiB"],
        };
        let mut command = at(&buckets, &arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&body).unwrap();
        drop(input);
        ended(child.wait_with_output().unwrap()).clean();
        assert!(stored(&buckets, "in") == Some(body), "{how} of {length}");
    }
    let pipe = folder.at("pipe");
    run(Command::new("mkfifo").arg(&pipe)).clean();
    let body = bytes(300_000);
    let writer = std::thread::spawn({
        let (pipe, body) = (pipe.clone(), body.clone());
        move || fs::write(pipe, body).unwrap()
    });
    run(&mut at(&buckets, &["cp", &pipe, "s3://bucket/named"])).clean();
    writer.join().unwrap();
    assert!(stored(&buckets, "named") == Some(body));
}

#[test]
fn an_object_that_is_there_stays_where_that_is_wanted() {
    let (buckets, folder) = (Buckets::new(&[("bucket/key", b"first")]), Folder::new());
    let file = folder.at("file");
    fs::write(&file, b"second").unwrap();
    let left = run(&mut at(&buckets, &["cp", &file, "s3://bucket/key", "-n", "--json"])).clean();
    assert_eq!(left.events()[0]["status"], "skipped", "{}", left.text());
    run(&mut at(&buckets, &["cp", &file, "s3://bucket/key", "--if-match", "0123"]))
        .refused(1, &["ETag is not \"0123\"", "stays as it is"]);
    assert_eq!(stored(&buckets, "key").unwrap(), b"first");
    let planned = run(&mut at(&buckets, &["cp", &file, "s3://bucket/key", "--dry-run"])).clean();
    assert!(planned.text().starts_with("would copy "), "{}", planned.text());
    assert_eq!(stored(&buckets, "key").unwrap(), b"first");
    let done = run(&mut at(&buckets, &["cp", &file, "s3://bucket/key", "--json"])).clean();
    let events = done.events();
    assert_eq!((&events[0]["action"], &events[0]["bytes"]), (&"upload".into(), &6.into()), "{}", done.text());
    assert_eq!(stored(&buckets, "key").unwrap(), b"second");
    run(&mut at(&buckets, &["cp", &file, "s3://bucket/new", "--if-none-match"])).clean();
}

#[test]
fn what_cannot_be_sent_is_refused_in_a_line_and_changes_nothing() {
    let (buckets, folder) = (Buckets::new(&[("bucket/key", b"first")]), Folder::new());
    let file = folder.at("file");
    fs::write(&file, b"second").unwrap();
    let (absent, here) = (folder.at("absent"), folder.at(""));
    let long = format!("s3://bucket/{}", "k".repeat(1_025));
    // The file system in memory takes files of any length.
    let huge = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    huge.as_file().set_len(60 << 40).unwrap();
    let huge = huge.path().to_str().unwrap();
    let rows: &[(&[&str], i32, &[&str])] = &[
        (&[&absent, "s3://bucket/key"], 1, &["absent: No such file", "check the path"]),
        (&[&here, "s3://bucket/key"], 4, &["is a folder"]),
        (&["-", "s3://bucket/"], 4, &["names no object"]),
        (&[&file, "s3://nowhere/key"], 1, &["no such bucket"]),
        (&[&file, &long], 4, &["does not take this key", "1,024 bytes"]),
        (&[&file, "http://127.0.0.1:1/x"], 4, &["cannot be written to"]),
        (&[huge, "s3://bucket/key"], 4, &["it has 60TiB", "10000 parts of 5GiB", "split"]),
        (&[huge, "oss://bucket/key", "--oss-endpoint", &buckets.url()], 4, &["it has 60TiB"]),
        (&[&file, "s3://bucket/key", "--metadata", "x"], 4, &["no pair"]),
        (&[&file, "s3://bucket/key", "--metadata", "a b=c"], 4, &["no name of metadata"]),
        (&[&file, "s3://bucket/key", "--storage-class", "a b"], 4, &["no storage class"]),
        (&[&file, "s3://bucket/key", "--range", "0-1"], 4, &["--range is for downloads"]),
        (&[&file, "s3://bucket/key", "--include", "*"], 4, &["choose among many files"]),
        (&[&file, "s3://bucket/key", "-n", "--if-match", "x"], 4, &["leave one of them out"]),
        (&["s3://bucket/key", &absent, "--acl", "private"], 4, &["are for uploads"]),
    ];
    for (arguments, code, says) in rows {
        run(&mut at(&buckets, &[&["cp"], *arguments].concat())).refused(*code, says);
        assert_eq!(stored(&buckets, "key").unwrap(), b"first", "{arguments:?}");
    }
}

#[test]
fn ctrl_c_leaves_neither_object_nor_parts() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let file = folder.at("file");
    fs::write(&file, bytes(64 * MIB)).unwrap();
    let slowly = ["--bandwidth", "8MiB/s", "--part-size", "5MiB"];
    let mut command = at(&buckets, &[&["cp", &file, "s3://bucket/key"][..], &slowly].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // What an upload is for, and one part of it.
    wait_until("a part", || parts(&buckets) >= 2 || child.try_wait().unwrap().is_some());
    signal("INT", child.id());
    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert_eq!((stored(&buckets, "key"), parts(&buckets)), (None, 0));
}

/// A refusal for wrong bytes was once taken for one of the checksum's form: the next went without.
#[test]
fn a_wrong_bit_is_never_stored_for_want_of_a_checksum() {
    let (root, folder) = (tempfile::tempdir().unwrap(), Folder::new());
    fs::create_dir(root.path().join("bucket")).unwrap();
    let always = Fault { chance: 1.0, kind: FaultKind::Write(WriteFault::Flip) };
    let fault_plan = FaultPlan { faults: vec![always], ..FaultPlan::default() };
    let store = Store::Root(root.path().to_owned());
    let origin = Origin::start(Options { fault_plan, ..Options::new(store) }).unwrap();
    let file = folder.at("file");
    fs::write(&file, bytes(1_000)).unwrap();
    let mut copy = flatout(&["cp", &file, "s3://bucket/key", "--endpoint-url", &origin.url()]);
    copy.args(["--no-sign-request", "--retries", "3"]);
    run(&mut copy).refused(1, &["received other bytes than were sent", "(tried 4 times)"]);
    assert!(!root.path().join("bucket/key").exists());
}

/// Killed with -9 in its midst, and run again: little is sent twice.
#[test]
fn a_killed_upload_goes_on() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let (file, state, body) = (folder.at("file"), folder.at("state"), bytes(160 * MIB));
    fs::write(&file, &body).unwrap();
    let part = ["--part-size", "5MiB", "--parallel", "2"];
    let copy = |more: &[&str]| {
        let mut command =
            at(&buckets, &[&["cp", &file, "s3://bucket/key", "--json"][..], &part, more].concat());
        command.env("XDG_STATE_HOME", &state);
        command
    };
    let mut slow = copy(&["--bandwidth", "80MiB/s"]);
    let mut child = slow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let noted = || {
        let journals = fs::read_dir(format!("{state}/flatout/uploads")).into_iter().flatten().flatten();
        journals.map(|journal| fs::read(journal.path()).unwrap_or_default().len()).sum::<usize>()
    };
    // Some 100 bytes a part.
    wait_until("ten parts", || noted() > 1_500 || child.try_wait().unwrap().is_some());
    signal("KILL", child.id());
    child.wait().unwrap();
    assert_eq!(stored(&buckets, "key"), None);
    let done = run(&mut copy(&[])).clean();
    let event = &done.events()[0];
    let (resumed, sent) = (event["resumed"].as_u64().unwrap(), event["fetched"].as_u64().unwrap());
    assert!(resumed >= 40 * MIB as u64 && resumed + sent == body.len() as u64, "{}", done.text());
    assert!(stored(&buckets, "key") == Some(body));
    assert_eq!(fs::read_dir(format!("{state}/flatout/uploads")).unwrap().count(), 0, "nothing is left");
}

/// Killed with -9 at any moment, and run again: the right object. How much is sent twice of a long one,
/// scripts/resume_kill.py tells.
#[test]
fn an_upload_killed_at_any_moment_goes_on() {
    let (folder, body) = (Folder::new(), bytes(80 * MIB));
    let file = folder.at("file");
    fs::write(&file, &body).unwrap();
    let mut usual_s = None;
    for round in 1..=2 {
        let (buckets, state) = (Buckets::new(&[("bucket/x", b"")]), folder.at(&format!("state-{round}")));
        let copy = || {
            let mut command =
                at(&buckets, &["cp", &file, "s3://bucket/key", "--json", "--part-size", "8MiB"]);
            command.env("XDG_STATE_HOME", &state);
            command
        };
        let usual_s = *usual_s.get_or_insert_with(|| {
            let begun = Instant::now();
            run(&mut copy()).clean();
            fs::remove_file(buckets.root().join("bucket/key")).unwrap();
            begun.elapsed().as_secs_f64()
        });
        // The seed of a round: the golden ratio spreads them over the whole.
        let at_s = f64::from(round) * 0.618_034 % 1.0 * usual_s;
        let mut child = copy().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs_f64(at_s));
        signal("KILL", child.id());
        child.wait().unwrap();
        if let Some(there) = stored(&buckets, "key") {
            assert!(there == body, "{at_s} s: it is whole or not there");
        }
        let accepted = part_bytes(&buckets);
        let event = run(&mut copy()).clean().events()[0].clone();
        let (resumed, sent) = (event["resumed"].as_u64().unwrap(), event["fetched"].as_u64().unwrap());
        // What had been accepted but not noted, when it was killed, is sent twice: 8 parts in flight at most.
        let twice = accepted.saturating_sub(resumed);
        assert!(twice <= 64 * MIB as u64, "{at_s} s: {twice} bytes twice: {event}");
        assert_eq!(resumed + sent, body.len() as u64, "{at_s} s: {event}");
        assert!(stored(&buckets, "key") == Some(body.clone()), "{at_s} s: other bytes");
        let left = fs::read_dir(format!("{state}/flatout/uploads")).unwrap().count();
        assert_eq!((left, part_bytes(&buckets)), (0, 0), "{at_s} s: nothing is left");
    }
}

/// Bytes of the parts that the origin keeps.
fn part_bytes(buckets: &Buckets) -> u64 {
    let files = walkdir::WalkDir::new(buckets.root().join(".flatout/uploads")).into_iter().flatten();
    let parts = files.filter(|file| file.file_type().is_file()).filter_map(|file| file.metadata().ok());
    // Beside the parts lies what describes the upload, which is short.
    parts.map(|part| part.len()).filter(|bytes| *bytes >= MIB as u64).sum()
}

/// A folder with files of many kinds.
fn tree(folder: &Folder) -> String {
    let root = folder.at("data");
    for path in ["a/b", "empty", "with blanks/ü"] {
        fs::create_dir_all(format!("{root}/{path}")).unwrap();
    }
    for (path, length) in [("top.txt", 3), ("a/one.json", 70_000), ("a/b/none", 0), ("with blanks/ü/x+y", 5)]
    {
        fs::write(format!("{root}/{path}"), bytes(length)).unwrap();
    }
    fs::write(format!("{root}/a/large.bin"), bytes(17 * MIB)).unwrap();
    root
}

pub fn keys(buckets: &Buckets, prefix: &str) -> Vec<String> {
    let listed = run(&mut at(buckets, &["ls", "-r", &format!("s3://bucket/{prefix}"), "--json"])).clean();
    let entries = listed.events().into_iter().filter(|event| event["event"] == "entry");
    entries.map(|entry| entry["key"].as_str().unwrap().to_owned()).collect()
}

const ALL: [&str; 5] = ["a/b/none", "a/large.bin", "a/one.json", "top.txt", "with blanks/ü/x+y"];

#[test]
fn a_folder_goes_below_a_prefix() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let root = tree(&folder);
    for target in ["s3://bucket/up", "s3://bucket/up/"] {
        let said = run(&mut at(&buckets, &["cp", "-r", &root, target, "--part-size", "5MiB"])).clean();
        assert!(
            said.text().contains("5 objects") && said.text().contains("verified: 5 of 5"),
            "{}",
            said.text()
        );
        assert_eq!(keys(&buckets, "up/"), ALL.map(|key| format!("up/{key}")));
        for key in ALL {
            let sent = fs::read(format!("{root}/{key}")).unwrap();
            assert!(stored(&buckets, &format!("up/{key}")) == Some(sent), "{key}");
        }
    }
    let stat = run(&mut at(&buckets, &["stat", "s3://bucket/up/a/one.json"])).clean();
    assert!(stat.text().contains("application/json"), "{}", stat.text());
    // The whole bucket, and only some of it.
    let some =
        ["cp", "-r", &root, "s3://bucket", "--exclude", "/a/b/", "--include", "*.txt", "--include", "a/"];
    run(&mut at(&buckets, &some)).clean();
    assert_eq!(keys(&buckets, "a/"), ["a/large.bin", "a/one.json"]);
    assert_eq!((stored(&buckets, "top.txt").is_some(), stored(&buckets, "with blanks/ü/x+y")), (true, None));
}

#[test]
fn what_is_there_stays_and_a_plan_changes_nothing() {
    let (buckets, folder) = (Buckets::new(&[("bucket/up/top.txt", b"old")]), Folder::new());
    let root = tree(&folder);
    let planned = run(&mut at(&buckets, &["cp", "-r", &root, "s3://bucket/up", "--dry-run"])).clean();
    assert_eq!(planned.text().matches("would copy ").count(), 5, "{}", planned.text());
    assert_eq!(keys(&buckets, "up/"), ["up/top.txt"]);
    let done = run(&mut at(&buckets, &["cp", "-r", &root, "s3://bucket/up", "-n", "--json"])).clean();
    let summary = done.events().pop().unwrap();
    assert_eq!((&summary["ok"], &summary["skipped"]), (&4.into(), &1.into()), "{}", done.text());
    assert_eq!(stored(&buckets, "up/top.txt").unwrap(), b"old");
}

#[test]
fn what_is_no_file_is_left_out_and_named() {
    use std::os::unix::ffi::OsStrExt;
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let root = folder.at("data");
    fs::create_dir(&root).unwrap();
    fs::write(format!("{root}/good"), b"good").unwrap();
    let odd = std::path::Path::new(&root).join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    fs::write(odd, b"odd").unwrap();
    run(Command::new("mkfifo").arg(format!("{root}/pipe"))).clean();
    let left = run(&mut at(&buckets, &["cp", "-r", &root, "s3://bucket/up"]));
    assert_eq!(left.code, Some(2), "{}", left.stderr);
    for says in ["not UTF-8", "pipe: it is a pipe, a socket or a device"] {
        assert!(left.stderr.contains(says), "{says}: {}", left.stderr);
    }
    assert_eq!(keys(&buckets, "up/"), ["up/good"]);
    // Links: to a file, to nothing, to the folder itself.
    let root = folder.at("links");
    fs::create_dir(&root).unwrap();
    fs::write(format!("{root}/good"), b"good").unwrap();
    std::os::unix::fs::symlink("good", format!("{root}/link")).unwrap();
    run(&mut at(&buckets, &["cp", "-r", &root, "s3://bucket/followed"])).clean();
    assert_eq!(keys(&buckets, "followed/"), ["followed/good", "followed/link"]);
    std::os::unix::fs::symlink("absent", format!("{root}/nowhere")).unwrap();
    run(&mut at(&buckets, &["cp", "-r", &root, "s3://bucket/broken"])).refused(3, &["nowhere: No such file"]);
    assert_eq!(keys(&buckets, "broken/"), ["broken/good", "broken/link"]);
    fs::remove_file(format!("{root}/nowhere")).unwrap();
    std::os::unix::fs::symlink(".", format!("{root}/circle")).unwrap();
    run(&mut at(&buckets, &["cp", "-r", &root, "s3://bucket/circle"]))
        .refused(1, &["leads to a folder that holds it"]);
    let skipped = run(&mut at(&buckets, &["cp", "-r", &root, "s3://bucket/skipped", "--symlinks", "skip"]));
    assert_eq!(skipped.code, Some(2), "{}", skipped.stderr);
    assert!(skipped.stderr.contains("symbolic link"), "{}", skipped.stderr);
    assert_eq!(keys(&buckets, "skipped/"), ["skipped/good"]);
    let refused = run(&mut at(&buckets, &["cp", "-r", &root, "s3://bucket/refused", "--symlinks", "refuse"]));
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert_eq!(
        refused.stderr.matches("symbolic link, and --symlinks is refuse").count(),
        2,
        "{}",
        refused.stderr
    );
    let empty = folder.at("empty");
    fs::create_dir(&empty).unwrap();
    run(&mut at(&buckets, &["cp", "-r", &empty, "s3://bucket/up"])).refused(1, &["there is no file to copy"]);
    run(&mut at(&buckets, &["cp", "-r", &format!("{root}/good"), "s3://bucket/up"]))
        .refused(4, &["is no folder"]);
    run(&mut at(&buckets, &["cp", "-r", &folder.at("absent"), "s3://bucket/up"]))
        .refused(1, &["No such file"]);
    let nowhere = run(&mut at(&buckets, &["cp", "-r", &root, "s3://nowhere/up"]));
    assert_eq!(nowhere.code, Some(1), "{}", nowhere.stderr);
    assert!(nowhere.stderr.contains("no such bucket"), "{}", nowhere.stderr);
}
