//! How mounts begin and end: by whom, in which order, and what remains.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use flatout_engine::ErrorKind;
use flatout_mount::{Observer, Options, SessionEnd, mount, unmount};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::held::{Held, is_mounted, options, until};
use crate::model::*;

/// Threads of this process that a session started, by name.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("flatout-")).collect()
}

#[test]
fn umount_by_anybody_is_a_clean_end() {
    let mut held = Held::new();
    fs::read(held.path("far")).unwrap();
    assert!(Command::new("umount").arg(held.point()).status().unwrap().success());
    assert_eq!(held.take().wait().unwrap(), SessionEnd::Unmounted);
    assert!(!is_mounted(held.point()));
}

#[test]
fn an_unmounter_ends_it_from_another_thread() {
    let mut held = Held::new();
    let unmounter = held.session().unmounter();
    let session = held.take();
    let waits = std::thread::spawn(move || session.wait().unwrap());
    unmounter.unmount(false).unwrap();
    assert_eq!(waits.join().unwrap(), SessionEnd::Unmounted);
    assert!(!is_mounted(held.point()));
    // Once more does nothing.
    unmounter.unmount(false).unwrap();
}

#[test]
fn who_uses_it_is_not_cut_off() {
    let mut held = Held::new();
    let file = File::open(held.path("hello")).unwrap();
    let unmounter = held.session().unmounter();
    let error = unmounter.unmount(false).expect_err("busy");
    assert!(error.to_string().contains("something still uses it"), "{error}");
    assert!(error.hint().unwrap().to_string().contains("UnmountLazily"));
    assert!(unmount(held.point(), false).is_err());
    assert!(is_mounted(held.point()));
    unmounter.unmount(true).unwrap();
    assert!(!is_mounted(held.point()));
    // Out of sight, and served until its last user goes.
    let mut text = String::new();
    std::io::Read::read_to_string(&mut &file, &mut text).unwrap();
    assert_eq!(text.as_bytes(), HELLO_TEXT);
    drop(file);
    assert_eq!(held.take().wait().unwrap(), SessionEnd::Unmounted);
}

#[test]
fn an_end_by_force_asks_nobody() {
    let mut held = Held::new();
    let file = File::open(held.path("big")).unwrap();
    assert!(held.session().unmounter().end());
    assert_eq!(held.take().wait().unwrap(), SessionEnd::Aborted);
    assert!(!is_mounted(held.point()));
    let error = std::os::unix::fs::FileExt::read_at(&file, &mut [0; 10], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
}

#[test]
fn the_next_mount_is_not_ended_for_one_that_is_gone() {
    // The kernel gives the number of a connection that is gone to the next mount.
    for _ in 0..50 {
        let mut gone = Held::new();
        let unmounter = gone.session().unmounter();
        let number = gone.session().granted().device;
        unmount(gone.point(), false).unwrap();
        let mut next = Held::new();
        let same = next.session().granted().device == number;
        // Still served: nobody has joined its threads.
        unmounter.end();
        assert_eq!(fs::read(next.path("hello")).unwrap(), HELLO_TEXT);
        drop(gone.take());
        assert_eq!(fs::read(next.path("hello")).unwrap(), HELLO_TEXT);
        unmount(next.point(), false).unwrap();
        assert_eq!(next.take().wait().unwrap(), SessionEnd::Unmounted);
        if same {
            return;
        }
    }
    panic!("no number was given again");
}

#[test]
fn an_abort_leaves_no_mount_point() {
    let mut held = Held::new();
    // As the administrator would, by the connection's file in fusectl.
    let minor = held.session().granted().device.unwrap().1;
    let control = tempfile::tempdir().unwrap();
    rustix::mount::mount("none", control.path(), "fusectl", MountFlags::empty(), None).unwrap();
    let aborted = fs::write(control.path().join(minor.to_string()).join("abort"), "1");
    rustix::mount::unmount(control.path(), UnmountFlags::DETACH).unwrap();
    aborted.unwrap();
    assert_eq!(held.take().wait().unwrap(), SessionEnd::Aborted);
    assert!(!is_mounted(held.point()));
}

#[test]
fn no_thread_remains() {
    // In a process of its own: other tests have threads of the same names.
    let this = std::env::current_exe().unwrap();
    let ran =
        Command::new(this).args(["--exact", "ends::alone_no_thread_remains", "--ignored"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run by no_thread_remains, alone"]
fn alone_no_thread_remains() {
    let mut held = Held::new();
    // Threads of all kinds: of the pool, and one that looks at who had a signal.
    fs::read(held.path("far")).unwrap();
    let mut stuck =
        Command::new("cat").arg(held.path("stuck")).stdout(std::process::Stdio::null()).spawn().unwrap();
    held.model.until("it waits", |state| state.waiting == 1);
    // A thread has its name once it runs.
    until(|| (threads().len() >= 3).then_some(()));
    stuck.kill().unwrap();
    stuck.wait().unwrap();
    held.model.let_go();
    held.session().unmounter().end();
    held.take().wait().unwrap();
    // The last words of a thread that has been counted out.
    until(|| threads().is_empty().then_some(()));
    assert!(!is_mounted(held.point()));
}

#[test]
fn what_is_never_served_is_unmounted() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = mount(&options(folder.path())).unwrap();
    assert!(is_mounted(folder.path()));
    drop(mounted);
    assert!(!is_mounted(folder.path()));
}

/// A mount whose daemon is gone when the device is dropped.
fn stale_mount(point: &Path) -> File {
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = std::ffi::CString::new(data).unwrap();
    rustix::mount::mount("stale", point, "fuse.flatout", MountFlags::RDONLY, &*data).unwrap();
    device
}

fn stale(point: &Path) {
    drop(stale_mount(point));
    let error = fs::metadata(point).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
}

#[test]
fn a_stale_mount_point_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    stale(folder.path());
    unmount(folder.path(), false).unwrap();
    assert!(!is_mounted(folder.path()));

    // Also one that somebody still stands in.
    let device = stale_mount(folder.path());
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let inside = rustix::fs::open(folder.path(), flags, rustix::fs::Mode::empty()).unwrap();
    drop(device);
    let umount = rustix::mount::unmount(folder.path(), UnmountFlags::empty());
    assert_eq!(umount, Err(rustix::io::Errno::BUSY));
    unmount(folder.path(), false).unwrap();
    assert!(!is_mounted(folder.path()));
    drop(inside);

    // A new mount does it by itself, however many there are.
    stale(folder.path());
    stale(folder.path());
    let mounted = mount(&options(folder.path())).unwrap();
    drop(mounted);
    assert!(!is_mounted(folder.path()));
}

#[test]
fn what_cannot_be_a_mount_point_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let held = Held::new();
    let table = [
        (folder.path().join("nothing"), "No such file or directory", "make the folder first"),
        (file, "is not a folder", "name an empty folder"),
        (folder.path().to_owned(), "is not empty", "-o nonempty"),
        (held.point().to_owned(), "has mounted something there already", "flatout umount"),
        ("/dev/fd/987654".into(), "descriptor 987654 is no open /dev/fuse", "open /dev/fuse"),
        ("/proc/self/fd/987654".into(), "descriptor 987654 is no open /dev/fuse", "open /dev/fuse"),
    ];
    for (point, cause, hint) in table {
        let error = mount(&options(&point)).expect_err(cause);
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
        assert!(error.to_string().starts_with(&format!("mount: {}: ", point.display())), "{error}");
        assert!(error.to_string().contains(cause), "{error}");
        assert!(error.hint().unwrap().to_string().contains(hint), "{:?}", error.hint());
    }
    let nonempty = Options { options: vec!["nonempty".to_owned()], ..options(folder.path()) };
    drop(mount(&nonempty).unwrap());
    assert!(folder.path().join("file").exists());
}

#[test]
fn only_what_is_ours_is_unmounted() {
    let folder = tempfile::tempdir().unwrap();
    let check = |path: &Path, cause: &str| {
        let error = unmount(path, false).expect_err(cause);
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains(cause), "{error}");
    };
    check(&folder.path().join("nothing"), "No such file or directory");
    check(folder.path(), "nothing is mounted there");
    check(Path::new("/proc"), "is a mount of proc, not of Flatout");
}

#[test]
fn links_lead_to_mount_points() {
    let folder = tempfile::tempdir().unwrap();
    let (point, link) = (folder.path().join("a b\\c"), folder.path().join("link"));
    fs::create_dir(&point).unwrap();
    std::os::unix::fs::symlink(&point, &link).unwrap();
    let model = Arc::new(Model::default());
    let session = mount(&options(&link)).unwrap().serve(model, Observer::default()).unwrap();
    assert_eq!(fs::read(point.join("hello")).unwrap(), HELLO_TEXT);
    assert!(session.granted().device.is_some());
    unmount(&link, false).unwrap();
    assert_eq!(session.wait().unwrap(), SessionEnd::Unmounted);
}

#[test]
fn a_descriptor_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = std::ffi::CString::new(data).unwrap();
    let number = std::os::fd::IntoRawFd::into_raw_fd(device);
    let at = format!("/dev/fd/{number}");
    rustix::mount::mount("given", folder.path(), "fuse.flatout", MountFlags::RDONLY, &*data).unwrap();
    let session =
        mount(&options(Path::new(&at))).unwrap().serve(Arc::<Model>::default(), Observer::default()).unwrap();
    assert_eq!(fs::read(folder.path().join("hello")).unwrap(), HELLO_TEXT);
    unmount(folder.path(), false).unwrap();
    assert_eq!(session.wait().unwrap(), SessionEnd::Unmounted);
}

#[test]
fn a_descriptor_that_is_not_mounted_is_refused() {
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let at = format!("/dev/fd/{}", std::os::fd::IntoRawFd::into_raw_fd(device));
    let error = mount(&options(Path::new(&at)))
        .unwrap()
        .serve(Arc::<Model>::default(), Observer::default())
        .expect_err("not mounted");
    assert!(error.to_string().contains("the connection is not mounted"), "{error}");
}
