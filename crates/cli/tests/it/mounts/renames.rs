//! Mounts that are killed while they rename a folder, and what the next mount makes of that.

use std::fs;
use std::time::Duration;

use flatout_server::{Options, Origin, Store};

use super::{Place, is_alive};
use crate::folder::names;
use crate::program::{run, shell, signal, wait_until};

const OBJECTS: usize = 300;

/// Kills a mount in the middle of a rename, once `is_time` says so of the numbers of objects at both places;
/// returns these numbers once the next mount stands, or another process goes on and the rename has ended.
fn killed(source: &str, is_supervised: bool, is_time: impl Fn(usize, usize) -> bool) -> (usize, usize) {
    let (folder, place) = (tempfile::tempdir().unwrap(), Place::new());
    let at = |name: &str| folder.path().join("bucket").join(name);
    let local = place.path().join("old");
    for folder in [local.join("deep"), folder.path().join("bucket")] {
        fs::create_dir_all(folder).unwrap();
    }
    let name = |number: usize| format!("{}{number:03}", if number.is_multiple_of(2) { "" } else { "deep/" });
    for number in 0..OBJECTS {
        fs::write(local.join(name(number)), format!("content of {number}")).unwrap();
    }
    let options = Options::new(Store::Root(folder.path().to_path_buf()));
    let origin = Origin::start(Options { latency: Duration::from_millis(20), ..options }).unwrap();
    let url = origin.url();
    let flatout = |arguments: &[&str]| {
        let more = ["--oss-endpoint", &url, "--endpoint-url", &url, "--no-sign-request"];
        run(&mut place.flatout(&[arguments, &more].concat()))
    };
    // Through the origin, which keeps their checksums then.
    flatout(&["cp", "-rq", local.to_str().unwrap(), &format!("{source}/old/")]).clean();
    let mount = || match is_supervised {
        true => flatout(&["mount", source, &place.mnt_text(), "--supervise"]),
        false => flatout(&["mount", source, &place.mnt_text()]),
    };
    mount().clean();
    let mut rename = shell("mv old new", &[]).current_dir(place.mnt()).spawn().unwrap();
    let count = |folder: &str| {
        let files = |folder: &str| names(&at(folder)).into_iter().filter(|name| name != "deep").count();
        files(folder) + files(&format!("{folder}/deep"))
    };
    let is_there = |folder: &str| at(folder).join("deep").is_dir();
    wait_until("it is in the middle of the rename", || {
        is_there("new") && is_there("old") && is_time(count("old"), count("new"))
    });
    let pid = place.pid();
    signal("KILL", pid);
    wait_until("it is gone", || !is_alive(pid));
    let renamed = rename.wait().unwrap();
    let said = if is_supervised {
        assert!(renamed.success(), "{renamed}: {}", place.log());
        place.log()
    } else {
        place.umount(&[]).clean();
        mount().stderr
    };
    assert!(said.contains("by a mount that was killed, was"), "{said}");
    assert!(said.lines().all(|line| is_supervised != line.starts_with("flatout:")), "{said}");
    let counts = ["old", "new"].map(|folder| match fs::exists(place.at(folder)).unwrap() {
        true => {
            let files = |folder: &str| names(&place.at(folder)).into_iter().filter(|name| name != "deep");
            assert_eq!(files(folder).count(), files(&format!("{folder}/deep")).count());
            for number in 0..OBJECTS {
                let path = place.at(folder).join(name(number));
                assert_eq!(fs::read_to_string(path).unwrap(), format!("content of {number}"));
            }
            2 * files(folder).count()
        }
        false => 0,
    });
    place.unmounted();
    let records = place.path().join("state/flatout/mounts");
    assert!(names(&records).iter().all(|name| !name.starts_with("rename")), "{:?}", names(&records));
    counts.into()
}

#[test]
fn a_rename_that_was_killed_while_it_copied_is_undone() {
    for source in ["s3://bucket", "oss://bucket"] {
        assert_eq!(killed(source, false, |_, new| new > 40), (OBJECTS, 0), "{source}");
    }
}

#[test]
fn a_rename_that_was_killed_while_it_deleted_is_finished() {
    for source in ["s3://bucket", "oss://bucket"] {
        assert_eq!(killed(source, false, |old, _| old < OBJECTS - 40), (0, OBJECTS), "{source}");
    }
}

#[test]
fn a_supervised_rename_goes_on_whenever_it_was_killed() {
    assert_eq!(killed("s3://bucket", true, |_, new| new > 40), (0, OBJECTS), "while it copied");
    assert_eq!(killed("s3://bucket", true, |old, _| old < OBJECTS - 40), (0, OBJECTS), "while it deleted");
}
