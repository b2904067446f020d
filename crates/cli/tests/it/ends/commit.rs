//! The last step: from whole bytes under a temporary name to the file's own. It is ended at many moments, of
//! which some fall before the rename, some into the sync that comes before it, and some after.

use std::fs;
use std::sync::mpsc;
use std::thread;

use super::super::folder::Folder;
use super::super::program::signal;
use super::*;

const LARGE: usize = 6 << 20;

/// Ends a copy over an earlier file so long after the last answer: what stands there is one or the other, and
/// whole.
#[track_caller]
fn check(kill: bool, wait: Duration) {
    let (told, answered) = mpsc::channel();
    let object = bytes(LARGE);
    let raw = Raw::start(move |asked| {
        if asked.method() == "HEAD" {
            // Last of all: the bytes are there before what they are checked against.
            thread::sleep(Duration::from_millis(40));
            told.send(()).unwrap();
        }
        right(asked, &object, "\"one\"")
    });
    let folder = Folder::new();
    let (earlier, target) = (fs::read(folder.path().join("model")).unwrap(), folder.at("model"));
    let endpoint = format!("http://{}", raw.address);
    let copy = || flatout(&["cp", "s3://b/object", &target, "--endpoint-url", &endpoint]);
    let mut child = copy().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    answered.recv_timeout(Duration::from_secs(60)).unwrap();
    thread::sleep(wait);
    match kill {
        true => child.kill().unwrap(),
        false => signal("TERM", child.id()),
    }
    let ended = end(child);
    let found = fs::read(&target).unwrap();
    assert!(found == earlier || found == bytes(LARGE), "{} bytes, {wait:?}: {}", found.len(), ended.stderr);
    match ended.code {
        Some(0) => assert!(found != earlier, "{wait:?}"),
        code if !kill => assert_eq!(code, Some(130), "{wait:?}: {}", ended.stderr),
        _ => {}
    }
    if !kill {
        assert_eq!(folder.names(), ["model"], "{wait:?}");
    }
    run(&mut copy()).clean();
    assert_eq!(folder.names(), ["model"], "{wait:?}");
    assert!(fs::read(&target).unwrap() == bytes(LARGE), "{wait:?}");
}

#[test]
fn kill_9_around_the_commit_leaves_one_or_the_other() {
    (0..12).for_each(|step| check(true, Duration::from_micros(step * step * 300)));
}

#[test]
fn a_signal_around_the_commit_leaves_one_or_the_other() {
    (0..6).for_each(|step| check(false, Duration::from_micros(step * step * 1000)));
}
