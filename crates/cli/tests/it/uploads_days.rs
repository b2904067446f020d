//! Uploads whose files change, cannot be read or are none, and uploads that a signal ends: what is said, what
//! is there afterwards, and what is not.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use crate::folder::Folder;
use crate::objects::{Buckets, bytes};
use crate::program::{ended, run, signal, wait_until, without_override};
use crate::uploads::{at, keys, parts, stored};

const MIB: usize = 1 << 20;
/// More than are open at a time with `--parallel 1`.
const SMALL: usize = 48;
const SMALL_BYTES: usize = 256 << 10;

fn begin(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A folder with a long file before many small ones, `0-long` and `1-small-00` to `1-small-47`.
fn long_and_small(folder: &Folder) -> String {
    let root = folder.at("data");
    fs::create_dir(&root).unwrap();
    fs::write(format!("{root}/0-long"), bytes(12 * MIB)).unwrap();
    for number in 0..SMALL {
        fs::write(format!("{root}/{}", small(number)), bytes(SMALL_BYTES + number)).unwrap();
    }
    root
}

fn small(number: usize) -> String {
    format!("1-small-{number:02}")
}

/// Slowly enough that a test may come between: 3 s for all.
const SLOWLY: [&str; 6] = ["--bandwidth", "8MiB/s", "--part-size", "5MiB", "--parallel", "1"];

/// A file that has changed by the end is no object, and one that is gone neither; each is named, and the
/// others are there.
#[test]
fn files_that_change_under_the_copy_are_named_and_stop_no_other() {
    for more in [&[][..], &["--no-clobber"]] {
        check_files_that_change(more);
    }
}

fn check_files_that_change(more: &[&str]) {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let root = long_and_small(&folder);
    let (long, last) = (format!("{root}/0-long"), format!("{root}/2-last"));
    fs::write(&last, b"it will be gone").unwrap();
    let mut child =
        begin(at(&buckets, &[&["cp", "-r", &root, "s3://bucket/up"], &SLOWLY[..], more].concat()));
    // The long one has begun, and is opened; the last one is far from it.
    wait_until("the long file", || parts(&buckets) > 0 || child.try_wait().unwrap().is_some());
    OpenOptions::new().append(true).open(&long).unwrap().write_all(b"more").unwrap();
    fs::remove_file(&last).unwrap();
    assert!(
        stored(&buckets, "up/0-long").is_none() && stored(&buckets, "up/2-last").is_none(),
        "it was too fast"
    );
    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let says = |words: &[&str]| {
        let named = |line: &&str| words.iter().all(|word| line.contains(word));
        assert_eq!(ended.stderr.lines().filter(named).count(), 1, "{words:?}: {}", ended.stderr);
    };
    says(&["flatout: error: ", "0-long", "changed while it was sent"]);
    says(&["flatout: error: ", "2-last", "No such file"]);
    assert_eq!(ended.stderr.matches("flatout: error: ").count(), 2, "{}", ended.stderr);
    let others: Vec<String> = (0..SMALL).map(|number| format!("up/{}", small(number))).collect();
    assert_eq!(keys(&buckets, "up/"), others);
    for number in [0, SMALL - 1] {
        let there = stored(&buckets, &format!("up/{}", small(number))).unwrap();
        assert!(there == bytes(SMALL_BYTES + number), "{number}: other bytes");
    }
    assert_eq!(parts(&buckets), 0, "an upload is left");
}

/// An excluded link to nothing is no error, and neither is an excluded folder that may not be read.
#[test]
fn what_is_excluded_is_no_error() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let root = folder.at("data");
    let (skip, closed) = (format!("{root}/a/skip"), format!("{root}/closed"));
    for path in [&skip, &closed] {
        fs::create_dir_all(path).unwrap();
    }
    fs::write(format!("{root}/a/good"), b"good").unwrap();
    std::os::unix::fs::symlink("nothing", format!("{skip}/broken")).unwrap();
    std::os::unix::fs::symlink("nothing", format!("{root}/dead.lnk")).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    let exclude = ["--exclude", "skip/", "--exclude", "*.lnk", "--exclude", "/closed/"];
    let copy = [&["cp", "-r", &root, "s3://bucket/up"], &exclude[..]].concat();
    let ended = run(&mut without_override(at(&buckets, &copy)));
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
    ended.clean();
    assert_eq!(keys(&buckets, "up/"), ["up/a/good"]);
    // A link to nothing may have been a folder with something to take.
    let ended = run(&mut at(&buckets, &["cp", "-r", &root, "s3://bucket/in", "--include", "good"]));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("dead.lnk") && ended.stderr.contains("broken"), "{}", ended.stderr);
    assert_eq!(keys(&buckets, "in/"), ["in/a/good"]);
}

/// One answer is enough: no other file is tried, and that is said.
#[test]
fn a_bucket_that_is_not_there_is_asked_for_once() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let root = long_and_small(&folder);
    let ended = run(&mut at(&buckets, &["cp", "-r", &root, "s3://nowhere/up", "--json", "--parallel", "2"]));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let events = ended.events();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert!(of("error") <= 4, "{} errors: {}", of("error"), ended.stderr);
    assert!(ended.stderr.contains("no such bucket"), "{}", ended.stderr);
    assert!(ended.stderr.contains("no other file was tried"), "{}", ended.stderr);
}

/// A run that never began leaves no journal.
#[test]
fn nothing_is_noted_of_an_upload_that_never_began() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let (file, state) = (folder.at("file"), folder.at("state"));
    fs::write(&file, bytes(20 * MIB)).unwrap();
    let mut command = at(&buckets, &["cp", &file, "s3://nowhere/key"]);
    run(command.env("XDG_STATE_HOME", &state)).refused(1, &["no such bucket"]);
    assert_eq!(fs::read_dir(format!("{state}/flatout/uploads")).unwrap().count(), 0);
}

#[test]
fn a_socket_is_left_out_with_a_warning() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let root = folder.at("data");
    fs::create_dir(&root).unwrap();
    fs::write(format!("{root}/good"), b"good").unwrap();
    let _socket = UnixListener::bind(format!("{root}/socket")).unwrap();
    let left = run(&mut at(&buckets, &["cp", "-r", &root, "s3://bucket/up"]));
    assert_eq!(left.code, Some(2), "{}", left.stderr);
    let says = format!("flatout: left out: {root}/socket: it is a pipe, a socket or a device\n");
    assert_eq!(left.stderr, says);
    assert_eq!(keys(&buckets, "up/"), ["up/good"]);
}

/// What lies there is unknown, so that the copy is incomplete.
#[test]
fn a_folder_that_may_not_be_read_is_an_error_and_stops_no_other() {
    let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
    let root = folder.at("data");
    let closed = format!("{root}/closed");
    fs::create_dir_all(&closed).unwrap();
    for name in ["closed/hidden", "before", "good"] {
        fs::write(format!("{root}/{name}"), b"good").unwrap();
    }
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    let ended = run(&mut without_override(at(&buckets, &["cp", "-r", &root, "s3://bucket/up"])));
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let says = format!("flatout: error: read: {closed}: Permission denied");
    assert!(ended.stderr.starts_with(&says), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("flatout: error: ").count(), 1, "{}", ended.stderr);
    assert_eq!(keys(&buckets, "up/"), ["up/before", "up/good"]);
}

#[test]
fn a_signal_ends_a_stream_that_goes_on_and_nothing_is_left() {
    for name in ["INT", "TERM"] {
        let buckets = Buckets::new(&[("bucket/x", b"")]);
        let mut child = begin(at(&buckets, &["cp", "-", "s3://bucket/key", "--part-size", "5MiB"]));
        let mut input = child.stdin.take().unwrap();
        input.write_all(&bytes(11 * MIB)).unwrap();
        // What the upload is for, and one part of it.
        wait_until("a part", || parts(&buckets) >= 2 || child.try_wait().unwrap().is_some());
        signal(name, child.id());
        let ended = ended(child.wait_with_output().unwrap());
        // It has been open until here.
        drop(input);
        assert_eq!(ended.code, Some(130), "{name}: {}", ended.stderr);
        assert_eq!((stored(&buckets, "key"), parts(&buckets)), (None, 0), "{name}");
    }
}

#[test]
fn a_signal_ends_a_copy_of_many_files_and_leaves_whole_objects_alone() {
    for name in ["INT", "TERM"] {
        let (buckets, folder) = (Buckets::new(&[("bucket/x", b"")]), Folder::new());
        let root = long_and_small(&folder);
        let mut child = begin(at(&buckets, &[&["cp", "-r", &root, "s3://bucket/up"], &SLOWLY[..]].concat()));
        let is_one_there =
            || fs::read_dir(buckets.root().join("bucket/up")).is_ok_and(|mut up| up.next().is_some());
        wait_until("the long file and an object", || {
            parts(&buckets) > 0 && is_one_there() || child.try_wait().unwrap().is_some()
        });
        signal(name, child.id());
        let ended = ended(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(130), "{name}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("interrupted: files that were not sent by then are missing"),
            "{}",
            ended.stderr
        );
        let there = keys(&buckets, "up/");
        assert!(there.len() < SMALL && !there.contains(&"up/0-long".to_owned()), "{name}: {there:?}");
        for key in there {
            let sent = fs::read(format!("{root}/{}", key.trim_start_matches("up/"))).unwrap();
            assert!(stored(&buckets, &key) == Some(sent), "{name}: {key} is not whole");
        }
        assert_eq!(parts(&buckets), 0, "{name}: an upload is left");
    }
}
