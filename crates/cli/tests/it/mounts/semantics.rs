//! docs/semantics.md as programs meet it: what the kernel makes of the tree's answers.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::Place;
use crate::folder::names;
use crate::objects::{Buckets, bytes};
use crate::program::{quoted, run, wait_until};

fn errno<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> i32 {
    outcome.expect_err("it is refused").raw_os_error().expect("by the kernel")
}

#[test]
fn keys_are_files_and_folders() {
    let large = bytes(2 << 20);
    let objects: &[(&str, &[u8])] =
        &[("bucket/a/b/c", b"deep"), ("bucket/a/d", &large), ("bucket/a ü\n.txt", b"odd"), ("bucket/z", b"")];
    let (origin, place) = (Buckets::new(objects), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    assert_eq!(names(&place.mnt()), ["a", "a ü\n.txt", "z"]);
    assert_eq!(fs::read(place.at("a ü\n.txt")).unwrap(), b"odd");
    let (folder, file) = (fs::metadata(place.at("a")).unwrap(), fs::metadata(place.at("a/d")).unwrap());
    assert!(folder.is_dir() && file.is_file());
    assert_eq!((file.len(), file.nlink(), folder.nlink()), (2 << 20, 1, 1));
    assert_eq!((file.mode() & 0o7777, folder.mode() & 0o7777), (0o644, 0o755));
    let of_origin = fs::metadata(origin.root().join("bucket/a/d")).unwrap();
    assert_eq!(file.mtime(), of_origin.mtime());
    assert_eq!(errno(File::open(place.at("z/x"))), libc::ENOTDIR);
    assert_eq!(errno(fs::read(place.at("a"))), libc::EISDIR);
    assert_eq!(errno(fs::read_dir(place.at("z")).map(drop)), libc::ENOTDIR);
    assert_eq!(errno(File::open(place.at("none"))), libc::ENOENT);
    assert_eq!(errno(File::open(place.at(&"n".repeat(256)))), libc::ENAMETOOLONG);
    // The same in every mount.
    let other = Place::new();
    other.mounted("s3://bucket", &origin.url(), &[]);
    for name in ["a", "a/b", "a/b/c", "a/d"] {
        assert_eq!(
            fs::metadata(place.at(name)).unwrap().ino(),
            fs::metadata(other.at(name)).unwrap().ino(),
            "{name}"
        );
    }
    other.unmounted();
    place.unmounted();
}

#[test]
fn nothing_is_written_where_that_was_asked_for() {
    let (origin, place) =
        (Buckets::new(&[("bucket/folder/file", b"content"), ("bucket/file", b"x")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--read-only"]);
    let (file, new) = (place.at("file"), place.at("new"));
    let write = |path: &Path| errno(OpenOptions::new().write(true).open(path));
    let tried = [
        ("create", errno(File::create(&new))),
        ("write", write(&file)),
        ("append", errno(OpenOptions::new().append(true).open(&file))),
        ("truncate", errno(OpenOptions::new().write(true).truncate(true).open(&file))),
        ("unlink", errno(fs::remove_file(&file))),
        ("rename", errno(fs::rename(&file, &new))),
        ("mkdir", errno(fs::create_dir(&new))),
        ("rmdir", errno(fs::remove_dir(place.at("folder")))),
        ("chmod", errno(fs::set_permissions(&file, fs::Permissions::from_mode(0o600)))),
        ("chown", errno(std::os::unix::fs::chown(&file, Some(1), Some(1)))),
        ("link", errno(fs::hard_link(&file, &new))),
        ("symlink", errno(symlink("file", &new))),
        ("utimens", errno(File::open(&file).unwrap().set_modified(std::time::SystemTime::now()))),
    ];
    for (what, got) in tried {
        assert_eq!(got, libc::EROFS, "{what}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"x");
    place.unmounted();
    assert_eq!(fs::read(origin.root().join("bucket/file")).unwrap(), b"x");
}

#[test]
fn what_programs_ask_besides() {
    let (origin, place) = (Buckets::new(&[("bucket/file", &bytes(100_000))]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    let mut file = File::open(place.at("file")).unwrap();
    // Data to the end, and then the one hole that every file has.
    assert_eq!(seek(&place.at("file"), 10, "SEEK_DATA"), 10);
    assert_eq!(seek(&place.at("file"), 10, "SEEK_HOLE"), 100_000);
    assert_eq!(file.seek(SeekFrom::End(-5)).unwrap(), 99_995);
    let mut end = Vec::new();
    file.read_to_end(&mut end).unwrap();
    assert_eq!(end, bytes(100_000)[99_995..]);
    assert_eq!(file.read_at(&mut [0; 10], 100_000).unwrap(), 0, "behind the end there is nothing");
    assert_eq!(file.read_at(&mut [0; 10], 1 << 40).unwrap(), 0);
    file.sync_all().unwrap();
    // Locks are the kernel's own.
    file.lock_shared().unwrap();
    file.unlock().unwrap();
    assert_eq!(errno(fs::read_link(place.at("file"))), libc::EINVAL);
    let size =
        run(Command::new("stat").args(["--file-system", "--format=%s %l %T"]).arg(place.mnt())).clean();
    assert!(size.text().starts_with("4096 255 "), "{}", size.text());
    let xattr = run(Command::new("python3")
        .args(["-c", "import os,sys\nprint(os.listxattr(sys.argv[1]))"])
        .arg(place.at("file")));
    assert!(
        xattr.text() == "[]\n" || xattr.stderr.contains("not supported"),
        "{}{}",
        xattr.text(),
        xattr.stderr
    );
    drop(file);
    place.unmounted();
}

/// By a program that has such seeks: std has none.
fn seek(path: &Path, at: i64, whence: &str) -> i64 {
    let script =
        format!("import os,sys\nprint(os.lseek(os.open(sys.argv[1], os.O_RDONLY), {at}, os.{whence}))");
    run(Command::new("python3").args(["-c", &script]).arg(path)).clean().text().trim().parse().unwrap()
}

fn put(origin: &Buckets, key: &str, content: &[u8]) {
    // In one step, as an origin does it.
    let (beside, path) = (origin.root().join("beside"), origin.root().join("bucket").join(key));
    fs::write(&beside, content).unwrap();
    fs::rename(beside, path).unwrap();
}

#[test]
fn without_lifetimes_everything_is_as_it_is_now() {
    let (origin, place) = (Buckets::new(&[("bucket/file", b"old")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--attribute-lifetime", "0s", "--negative-lifetime", "0s"]);
    assert_eq!(fs::read(place.at("file")).unwrap(), b"old");
    assert_eq!(errno(File::open(place.at("new"))), libc::ENOENT);
    put(&origin, "file", b"newer and longer");
    put(&origin, "new", b"here");
    assert_eq!(fs::metadata(place.at("file")).unwrap().len(), 16);
    assert_eq!(fs::read(place.at("file")).unwrap(), b"newer and longer");
    assert_eq!(fs::read(place.at("new")).unwrap(), b"here");
    fs::remove_file(origin.root().join("bucket/new")).unwrap();
    assert_eq!(errno(File::open(place.at("new"))), libc::ENOENT);
    place.unmounted();
}

#[test]
fn within_a_lifetime_what_is_known_holds_and_after_it_not() {
    let (origin, place) = (Buckets::new(&[("bucket/file", b"old")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--attribute-lifetime", "1h", "--negative-lifetime", "1h"]);
    assert_eq!(fs::metadata(place.at("file")).unwrap().len(), 3);
    assert_eq!(errno(File::open(place.at("new"))), libc::ENOENT);
    put(&origin, "file", b"newer and longer");
    put(&origin, "new", b"here");
    assert_eq!(fs::metadata(place.at("file")).unwrap().len(), 3);
    assert_eq!(errno(File::open(place.at("new"))), libc::ENOENT);
    // Never the old size with new bytes: who reads finds out.
    let read = fs::read(place.at("file"));
    assert!(matches!(&read, Err(error) if error.raw_os_error() == Some(libc::ESTALE)), "{read:?}");
    place.unmounted();
    place.mounted(
        "s3://bucket",
        &origin.url(),
        &["--attribute-lifetime", "100ms", "--negative-lifetime", "100ms"],
    );
    put(&origin, "later", b"later");
    wait_until("the name", || fs::read(place.at("later")).is_ok_and(|read| read == b"later"));
    put(&origin, "later", b"and later still");
    wait_until("the size", || fs::metadata(place.at("later")).is_ok_and(|known| known.len() == 15));
    place.unmounted();
}

/// The kernel believes the name for its lifetime, and the open finds out: ESTALE, once; whoever looks again
/// is told that it is gone.
#[test]
fn within_a_lifetime_what_is_gone_is_stale_once() {
    let (origin, place) = (Buckets::new(&[("bucket/file", b"here"), ("bucket/other", b"x")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--attribute-lifetime", "1h", "--negative-lifetime", "1h"]);
    assert_eq!(fs::metadata(place.at("file")).unwrap().len(), 4);
    fs::remove_file(origin.root().join("bucket/file")).unwrap();
    assert_eq!(fs::metadata(place.at("file")).unwrap().len(), 4);
    let outcomes: Vec<_> = (0..3).map(|_| errno(fs::read(place.at("file")))).collect();
    assert_eq!(outcomes, [libc::ESTALE, libc::ENOENT, libc::ENOENT]);
    place.unmounted();
}

/// The kernel asks again for what failed, page by page: the reason is in the log all the same once.
#[test]
fn a_replaced_file_is_told_once_with_what_to_do() {
    let (origin, place) = (Buckets::new(&[("bucket/file", b"old"), ("bucket/other", b"old")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--attribute-lifetime", "1h"]);
    for name in ["file", "other"] {
        assert_eq!(fs::metadata(place.at(name)).unwrap().len(), 3);
        put(&origin, name, b"newer and longer");
        assert_eq!(errno(fs::read(place.at(name))), libc::ESTALE);
    }
    let log = place.log();
    for name in ["file", "other"] {
        let told: Vec<&str> =
            log.lines().filter(|line| line.contains(&format!("s3://bucket/{name}"))).collect();
        assert_eq!(told.len(), 1, "{log}");
        assert!(told[0].ends_with("(open it again to read the new version)"), "{log}");
    }
    place.unmounted();
}

#[test]
fn close_to_open_sees_what_was_finished_before_the_open() {
    let (origin, place) = (Buckets::new(&[("bucket/file", b"old")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--close-to-open", "--attribute-lifetime", "1h"]);
    for content in [&b"old"[..], b"new!", b"and a third that is longer", b"-"] {
        put(&origin, "file", content);
        assert_eq!(fs::read(place.at("file")).unwrap(), content);
    }
    place.unmounted();
}

#[test]
fn an_open_file_is_one_version() {
    let old = bytes(8 << 20);
    let (origin, place) = (Buckets::new(&[("bucket/file", &old)]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--kernel-readahead", "0", "--attribute-lifetime", "0s"]);
    let file = File::open(place.at("file")).unwrap();
    let mut piece = vec![0; 4096];
    file.read_exact_at(&mut piece, 0).unwrap();
    assert_eq!(piece, old[..4096]);
    put(&origin, "file", &vec![7; 8 << 20]);
    // Far ahead of what was fetched: the origin is asked, and says that it is another.
    let outcomes: Vec<_> =
        (0..8).map(|at| file.read_exact_at(&mut piece, at << 20).map(|()| piece[0])).collect();
    for (at, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(byte) => assert_eq!(*byte, old[at << 20], "a mixture"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESTALE)),
        }
    }
    assert!(outcomes.iter().any(Result::is_err), "it was read of nobody knows what");
    drop(file);
    assert_eq!(fs::read(place.at("file")).unwrap(), vec![7; 8 << 20]);
    place.unmounted();
}

#[test]
fn programs_of_every_day_read_it() {
    let objects: Vec<(String, Vec<u8>)> =
        (0..60).map(|n| (format!("bucket/d{}/f{n}", n % 7), bytes(n * 3_001))).collect();
    let objects: Vec<(&str, &[u8])> =
        objects.iter().map(|(key, bytes)| (key.as_str(), bytes.as_slice())).collect();
    let (origin, place) = (Buckets::new(&objects), Place::new());
    put(&origin, "module.py", b"ANSWER = 42\n");
    place.mounted("s3://bucket", &origin.url(), &[]);
    let script = format!(
        "set -e; cd {}; root={}/bucket
        cp -r mnt copy; diff -r copy \"$root\"
        tar cf all.tar -C mnt .; mkdir untarred; tar xf all.tar -C untarred; diff -r untarred \"$root\"
        test $(find mnt -type f | wc -l) = 61
        PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=mnt python3 -c 'import module; assert module.ANSWER == 42'
        grep -rl ANSWER mnt
        chmod -R u+w copy untarred",
        quoted(place.path()),
        quoted(origin.root())
    );
    let ended = run(Command::new("sh").args(["-c", &script])).clean();
    assert_eq!(ended.text(), "mnt/module.py\n");
    place.unmounted();
}

/// What another reader has of the new version in the page cache is not for who opened the old one, nor for
/// who mapped it.
#[test]
fn an_old_handle_never_reads_the_new_version() {
    let (old, new) = (vec![b'A'; 4 << 20], vec![b'B'; 5 << 20]);
    let buckets = Buckets::new(&[("bucket/key", &old)]);
    let place = Place::new();
    place.mounted("s3://bucket", &buckets.url(), &["--close-to-open"]);
    let key = place.at("key");
    let opened = fs::File::open(&key).unwrap();
    let mut first = [0; 1000];
    opened.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(first, [b'A'; 1000]);
    let next = buckets.root().join("next");
    fs::write(&next, &new).unwrap();
    fs::rename(&next, buckets.root().join("bucket/key")).unwrap();
    for _ in 0..2 {
        assert!(fs::read(&key).unwrap() == new, "who opens it now has the version of now");
        for at in [0, 2 << 20, 4 << 20] {
            let mut piece = vec![0; 64 << 10];
            let read = opened.read_at(&mut piece, at);
            let is_right = read.as_ref().is_ok_and(|bytes| piece[..*bytes].iter().all(|byte| *byte == b'A'));
            assert!(
                is_right || read.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ESTALE)),
                "{at}: {read:?}"
            );
        }
    }
    drop(opened);
    assert!(fs::read(&key).unwrap() == new && fs::read(&key).unwrap() == new, "and from the page cache");
    place.unmounted();
}
