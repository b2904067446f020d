//! fusermount3, for those who may not mount.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use flatout_mount::{Observer, Options, Session, SessionEnd, mount, unmount};
use rustix::thread::CapabilitySet;

use crate::held::{Held, is_mounted, options, row};
use crate::model::*;
use crate::program;

/// On a thread that may not mount; programs that it starts may, as root's do.
fn without_rights<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    program("fusermount3");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut rights = rustix::thread::capabilities(None).unwrap();
            rights.effective.remove(CapabilitySet::SYS_ADMIN);
            rustix::thread::set_capabilities(None, rights).unwrap();
            run()
        });
        thread.join().unwrap()
    })
}

fn serve(point: &Path, change: impl FnOnce(&mut Options)) -> Session {
    let mut options = options(point);
    change(&mut options);
    mount(&options).unwrap().serve(Arc::<Model>::default(), Observer::default()).unwrap()
}

#[test]
fn it_mounts_and_unmounts() {
    let folder = tempfile::tempdir().unwrap();
    let ended = without_rights(|| {
        let session = serve(folder.path(), |options| {
            options.source = "s3://bucket/a,b\\c d".to_owned();
            options.options = vec!["ro".to_owned(), "noexec".to_owned()];
            options.allow_other = true;
        });
        assert_eq!(fs::read(folder.path().join("hello")).unwrap(), HELLO_TEXT);
        assert_eq!(session.granted().request_bytes, 1 << 20);
        let row = row(folder.path()).unwrap();
        let words: Vec<&str> = row.split(' ').collect();
        assert_eq!((words[0], words[2]), ("s3://bucket/a,b\\134c\\040d", "fuse.flatout"), "{row}");
        for option in ["ro", "nosuid", "nodev", "noexec", "noatime", "default_permissions", "allow_other"] {
            assert!(words[3].split(',').any(|word| word == option), "{option} in {row}");
        }
        // Busy, and then not.
        let file = fs::File::open(folder.path().join("hello")).unwrap();
        let error = unmount(folder.path(), false).expect_err("busy");
        assert!(error.to_string().contains("something still uses it"), "{error}");
        drop(file);
        unmount(folder.path(), false).unwrap();
        session.wait().unwrap()
    });
    assert_eq!(ended, SessionEnd::Unmounted);
    assert!(!is_mounted(folder.path()));
}

#[test]
fn it_takes_what_is_used_out_of_sight() {
    let folder = tempfile::tempdir().unwrap();
    without_rights(|| {
        let session = serve(folder.path(), |_| {});
        let file = fs::File::open(folder.path().join("hello")).unwrap();
        unmount(folder.path(), true).unwrap();
        assert!(!is_mounted(folder.path()));
        drop(file);
        assert_eq!(session.wait().unwrap(), SessionEnd::Unmounted);
    });
}

#[test]
fn a_session_that_is_dropped_is_unmounted_by_it() {
    let folder = tempfile::tempdir().unwrap();
    without_rights(|| {
        drop(serve(folder.path(), |_| {}));
        assert!(!is_mounted(folder.path()));
        drop(mount(&options(folder.path())).unwrap());
        assert!(!is_mounted(folder.path()));
    });
}

#[test]
fn umount_by_it_is_a_clean_end() {
    let mut held = Held::new();
    fs::read(held.path("far")).unwrap();
    assert!(program("fusermount3").arg("-u").arg(held.point()).status().unwrap().success());
    assert_eq!(held.take().wait().unwrap(), SessionEnd::Unmounted);
    assert!(!is_mounted(held.point()));
}
