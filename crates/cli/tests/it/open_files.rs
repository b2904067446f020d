//! Few files may be open (`ulimit -n`): less is done at a time, and all of it is done.

use std::fs;

use crate::folder::{Folder, names};
use crate::objects::{Buckets, bytes};
use crate::program::{Ended, run, shell};

const MANY: usize = 2_000;

/// Small ones, each tenth in a folder of its own, and some of several parts.
fn many() -> Buckets {
    let large = bytes(300 << 10);
    let name = |at: usize| format!("bucket/{:03}/{at:04}", if at.is_multiple_of(10) { at } else { at % 10 });
    let names: Vec<String> = (0..MANY).map(name).collect();
    let content = |at: usize| if at.is_multiple_of(50) { &large[..] } else { &large[..at] };
    let objects: Vec<(&str, &[u8])> =
        names.iter().enumerate().map(|(at, name)| (name.as_str(), content(at))).collect();
    Buckets::new(&objects)
}

/// Runs the program where a shell has set the limits.
fn limited(limits: &str, arguments: &[&str]) -> Ended {
    run(&mut shell(&format!("{limits} && exec \"$0\" \"$@\""), arguments))
}

/// The note on `--parallel 200`, and nothing else.
#[track_caller]
fn is_noted(done: &Ended, limit: u32) {
    let (start, end) = ("flatout: --parallel 200: ", format!("may have {limit} files open (ulimit -n)\n"));
    let said = &done.stderr;
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with(start) && said.ends_with(&end), "{said}");
    assert_eq!(done.code, Some(0), "{said}");
}

#[test]
fn more_in_parallel_than_files_may_be_open_lost_objects() {
    let buckets = many();
    let url = buckets.url();
    for limit in [64, 40] {
        let folder = Folder::new();
        let target = folder.at("all");
        let copy = ["cp", "-r", "s3://bucket", &target, "--parallel", "200", "--part-size", "64KiB"];
        let copy = [&copy[..], &["--endpoint-url", &url]].concat();
        let done = limited(&format!("ulimit -n {limit}"), &copy);
        is_noted(&done, limit);
        assert!(done.text().contains(&format!("{MANY} objects")), "{}", done.text());
        for below in names(folder.path().join("all").as_path()) {
            for name in names(&folder.path().join("all").join(&below)) {
                let (from, to) = (buckets.root().join("bucket"), folder.path().join("all"));
                let read = |root: std::path::PathBuf| fs::read(root.join(&below).join(&name)).unwrap();
                assert_eq!(read(to), read(from), "{below}/{name}");
            }
        }
        // As many as it finds best: nobody asked for more than there can be.
        fs::remove_dir_all(&target).unwrap();
        let auto: Vec<&str> =
            copy.iter().copied().filter(|word| !["--parallel", "200"].contains(word)).collect();
        let done = limited(&format!("ulimit -n {limit}"), &auto).clean();
        assert!(done.text().contains(&format!("{MANY} objects")), "{}", done.text());
    }
}

#[test]
fn one_object_in_more_parts_than_files_may_be_open() {
    let object = bytes(8 << 20);
    let buckets = Buckets::new(&[("bucket/object", &object)]);
    let source = format!("{}/bucket/object", buckets.url());
    let folder = Folder::new();
    let how = ["--parallel", "200", "--part-size", "32KiB"];
    for limit in [64, 40] {
        let done = limited(&format!("ulimit -n {limit}"), &[&["cat", &source][..], &how].concat());
        is_noted(&done, limit);
        assert_eq!(done.stdout, object, "{limit}");
        let done =
            limited(&format!("ulimit -n {limit}"), &[&["cp", &source, &folder.at("new")][..], &how].concat());
        is_noted(&done, limit);
        assert_eq!(fs::read(folder.at("new")).unwrap(), object, "{limit}");
    }
}

/// It panicked, or took it for an outage of the origin, or lost objects.
#[test]
fn a_limit_that_nothing_can_be_done_with_is_said_at_once_and_above_it_all_is_done() {
    let objects: Vec<String> = (0..100).map(|at| format!("bucket/{at}")).collect();
    let objects: Vec<(&str, &[u8])> = objects.iter().map(|name| (name.as_str(), &b"bytes"[..])).collect();
    let buckets = Buckets::new(&objects);
    let (folder, url) = (Folder::new(), buckets.url());
    let (mut refused, mut done) = (0, 0);
    for limit in (6..=40).step_by(2) {
        let target = folder.at(&format!("all{limit}"));
        for arguments in [
            &["cat", "s3://bucket/7"][..],
            &["cp", "s3://bucket/7", &folder.at("one")],
            &["cp", "-r", "s3://bucket", &target],
            &["ls", "s3://bucket"],
        ] {
            let arguments = [arguments, &["--endpoint-url", &url]].concat();
            let ended = limited(&format!("ulimit -n {limit}"), &arguments);
            if ended.code == Some(0) {
                assert_eq!(ended.stderr, "", "{limit}: {arguments:?}");
                done += 1;
            } else {
                ended.refused(
                    1,
                    &[
                        &format!("error: open: files: this process may have {limit} files open (ulimit -n)"),
                        "raise it to 64 or more",
                    ],
                );
                assert!(limit < 40 && done == 0, "{limit}: {arguments:?}");
                refused += 1;
            }
        }
        if done > 0 {
            assert_eq!(names(target.as_ref()).len(), 100, "{limit}");
        }
    }
    assert!(refused > 0 && done > 0);
}

/// The soft limit of shells is 1,024 for the sake of programs that call select(2).
#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let buckets = Buckets::new(&[("bucket/object", b"bytes")]);
    let source = format!("{}/bucket/object", buckets.url());
    limited("ulimit -Sn 64", &["cat", &source, "--parallel", "200"]).clean();
    let said = limited("ulimit -n 64", &["cat", &source, "--parallel", "200", "--quiet"]).clean();
    assert_eq!(said.text(), "bytes");
    limited("ulimit -n 64", &["cat", &source, "--parallel", "4"]).clean();
}
