//! An object that is replaced while it is being read: never a mixture, and nothing left behind.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bytes;
use crate::flatout;
use crate::folder::Folder;
use crate::minio::Bucket;
use crate::nginx::Site;
use crate::program::ended;

/// Far more than the window, the pipe and the socket's buffers hold together.
const SIZE: usize = 64 << 20;
const NARROW: [&str; 6] = ["--part-size", "64KiB", "--window", "256KiB", "--parallel", "2"];

/// `cat` is read a little, then the object is replaced, then the rest is read: an error, and only old bytes
/// before it.
#[track_caller]
fn check(command: &mut Command, replace: impl FnOnce(&[u8])) {
    let old = bytes(SIZE);
    let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut got = vec![0; 100_000];
    stdout.read_exact(&mut got).unwrap();
    replace(&new);
    stdout.read_to_end(&mut got).unwrap();
    ended(child.wait_with_output().unwrap()).refused(1, &["replaced", "hint:"]);
    assert!(got.len() < SIZE, "the whole object came");
    assert!(got[..] == old[..got.len()], "bytes of the other version");
}

#[test]
fn in_minio() {
    let bucket = Bucket::new("replaced");
    bucket.put("model", &bytes(SIZE), &[]);
    let source = bucket.s3("model");
    let arguments = [&["cat", &source], &NARROW[..]].concat();
    check(&mut bucket.flatout(&arguments), |new| bucket.put("model", new, &[]));
}

#[test]
fn in_nginx() {
    let site = Site::new("plain-replaced");
    let url = site.put("model", &bytes(SIZE));
    let arguments = [&["cat", &url], &NARROW[..]].concat();
    // nginx makes its ETag from size and time in seconds: one byte less is another version at any time.
    check(&mut flatout(&arguments), |new| drop(site.put("model", &new[1..])));
}

#[test]
fn while_it_lands_in_a_file() {
    let site = Site::new("slow-replaced");
    let url = site.put("model", &bytes(2 << 20));
    let folder = Folder::new();
    let arguments = ["cp", &url, &folder.at("model"), "--part-size", "512KiB", "--parallel", "1"];
    let child = flatout(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The temporary file appears with the first answer, when the version is pinned; three of four parts are
    // to come.
    let start = Instant::now();
    while folder.names().len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(30), "no temporary file");
        std::thread::sleep(Duration::from_millis(5));
    }
    let new = bytes((2 << 20) - 1);
    site.put("model", &new);
    // It is read once more.
    ended(child.wait_with_output().unwrap()).clean();
    assert_eq!(folder.names(), ["model"]);
    assert!(std::fs::read(folder.at("model")).unwrap() == new);
}
