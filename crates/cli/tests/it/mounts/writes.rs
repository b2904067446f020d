//! Programs that write to a mount, as users run them, and what others find in the bucket then.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use super::Place;
use crate::folder::names;
use crate::objects::{Buckets, bytes};
use crate::program::{Ended, quoted, run, shell};

fn errno<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> i32 {
    outcome.expect_err("it is refused").raw_os_error().expect("by the kernel")
}

/// A folder of 300 files of many sizes, some of them empty.
fn tree(below: &Path) {
    for number in 0..300_usize {
        let folder = below.join(format!("{}/{}", number % 7, number % 3));
        fs::create_dir_all(&folder).unwrap();
        let length = [0, 1, 4096, 100_000, 3_000_000][if number < 290 { number % 4 } else { 4 }];
        fs::write(folder.join(format!("file {number}")), &bytes(length)[..length]).unwrap();
    }
}

#[track_caller]
fn script(place: &Place, script: &str) -> Ended {
    run(shell(script, &[]).current_dir(place.mnt()).env("HOME", place.path()))
}

/// A folder has these files, whichever way one looks: through the mount, and in the bucket's own folder.
#[track_caller]
fn holds(place: &Place, origin: &Buckets, name: &str, as_in: &Path) {
    for there in [place.at(name), origin.root().join("bucket").join(name)] {
        run(Command::new("diff").arg("-r").arg(as_in).arg(there)).clean();
    }
}

#[test]
fn programs_write_to_it() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    let source = place.path().join("source");
    tree(&source);
    run(Command::new("tar").arg("cf").arg(place.path().join("x.tar")).arg("-C").arg(&source).arg("."));
    place.mounted("s3://bucket", &origin.url(), &["--attributes", "ignore"]);
    let (from, tar) = (quoted(&source), quoted(place.path().join("x.tar")));
    script(&place, &format!("set -e; mkdir tar; tar xf {tar} -C tar")).clean();
    holds(&place, &origin, "tar", &source);
    script(&place, &format!("cp -a {from} copy; cp -r copy/0 copy/again; rm -r copy/again")).clean();
    holds(&place, &origin, "copy", &source);
    script(&place, &format!("rsync -a {from}/ synced/")).clean();
    holds(&place, &origin, "synced", &source);
    let twice = script(&place, &format!("rsync -a --size-only --stats {from}/ synced/")).clean();
    assert!(twice.text().contains("Number of regular files transferred: 0"), "{}", twice.text());
    script(&place, "rm -r tar synced; mv copy moved").clean();
    holds(&place, &origin, "moved", &source);
    script(&place, "rm -r moved").clean();
    assert_eq!(names(&place.mnt()), ["there"]);
    // What the shell does: a descriptor is copied, closed, and written by children.
    let lines = script(
        &place,
        "set -e; echo one > log; echo two >> log; for n in 3 4; do echo $n; sh -c \"echo child $n\"; done >> log; \
         : > none; cat log",
    );
    assert_eq!(lines.text(), "one\ntwo\n3\nchild 3\n4\nchild 4\n");
    assert_eq!(fs::read(origin.root().join("bucket/log")).unwrap(), lines.text().as_bytes());
    assert_eq!(fs::read(origin.root().join("bucket/none")).unwrap(), b"");
    place.unmounted();
    let log = place.log();
    assert_eq!(log.lines().count(), 2 + usize::from(log.contains("rename:")), "{log}");
}

#[test]
fn git_clones_into_it() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    let source = place.path().join("source");
    tree(&source);
    let git = "git -c user.name=x -c user.email=x@x -c init.defaultBranch=main";
    run(shell(&format!("set -e; {git} init -q; {git} add .; {git} commit -qm first"), &[])
        .current_dir(&source))
    .clean();
    place.mounted("s3://bucket", &origin.url(), &[]);
    let from = quoted(&source);
    script(
        &place,
        &format!(
            "set -e; git clone -q file://{from} clone; cd clone; git fsck --strict; test -z \"$(git status --short)\"
             echo more > more; {git} add more; {git} commit -qm second; git fsck --strict; git log --oneline | wc -l"
        ),
    )
    .clean();
    assert_eq!(fs::read(origin.root().join("bucket/clone/more")).unwrap(), b"more\n");
    let again = place.path().join("again");
    let bucket = origin.root().join("bucket/clone");
    run(Command::new("git").arg("clone").arg("-q").arg(&bucket).arg(&again).env("HOME", place.path()));
    run(shell("git log --oneline | wc -l", &[]).current_dir(&again)).clean();
    place.unmounted();
}

const PYTHON: &str = r#"
import os, shutil, subprocess, sys, tempfile, zipfile
os.chdir(sys.argv[1])
class Pipe:
    "Without seek: members are written once."
    def __init__(self, file): self.write, self.flush = file.write, file.flush
with open('open', 'wb') as file:
    file.write(b'1'); file.flush()
    # The child closes it within execve(2), and publishes nothing by that.
    subprocess.run(['true'], check=True)
    file.write(b'2')
os.remove('open')
with tempfile.TemporaryFile(dir='.') as file:
    file.write(b'hello'); file.seek(0); assert file.read() == b'hello'
with tempfile.NamedTemporaryFile(dir='.') as file:
    file.write(b'hello'); file.flush()
    with open(file.name, 'rb') as other: assert other.read() == b'hello'
with tempfile.TemporaryDirectory(dir='.') as folder:
    os.mkdir(folder + '/d'); open(folder + '/d/x', 'w').close()
assert os.listdir('.') == ['there'], os.listdir('.')
with open('zip', 'wb') as file, zipfile.ZipFile(Pipe(file), 'w') as archive:
    archive.writestr('small', 'x' * 1000); archive.writestr('large', 'y' * 5000000)
with zipfile.ZipFile('zip') as archive: assert archive.testzip() is None
shutil.copyfile('zip', 'copy'); os.replace('copy', 'zip'); shutil.move('zip', 'moved')
os.makedirs('a/b'); shutil.copy('moved', 'a/b'); shutil.copytree('a', 'c', copy_function=shutil.copy)
assert os.path.getsize('c/b/moved') == os.path.getsize('moved')
with open('moved', 'ab') as file: file.write(b'tail'); file.flush(); assert file.tell() == os.fstat(file.fileno()).st_size
shutil.rmtree('a'); shutil.rmtree('c'); os.remove('moved')
with open('new', 'x') as file: file.write('text')
try: open('new', 'x')
except FileExistsError: pass
else: raise SystemExit('it is there')
os.truncate('new', 0); assert os.stat('new').st_size == 0
os.remove('new'); assert os.listdir('.') == ['there'], os.listdir('.')
"#;

#[test]
fn python_writes_to_it() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    run(Command::new("python3").args(["-c", PYTHON]).arg(place.mnt())).clean();
    place.unmounted();
    assert_eq!(names(&origin.root().join("bucket")), ["there"]);
}

/// `pip install --target` of a package that needs no registry.
#[test]
fn a_package_is_installed_into_it() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    let make = "import zipfile, sys\n\
                with zipfile.ZipFile(sys.argv[1] + '/thing-1.0-py3-none-any.whl', 'w') as wheel:\n\
                \x20 for number in range(50): wheel.writestr(f'thing/m{number}.py', f'NUMBER = {number}\\n')\n\
                \x20 wheel.writestr('thing/__init__.py', '')\n\
                \x20 about = 'thing-1.0.dist-info/'\n\
                \x20 wheel.writestr(about + 'METADATA', 'Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n')\n\
                \x20 wheel.writestr(about + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
                \x20 wheel.writestr(about + 'RECORD', '')\n";
    run(Command::new("python3").args(["-c", make]).arg(place.path())).clean();
    place.mounted("s3://bucket", &origin.url(), &["--attributes", "ignore"]);
    let wheel = quoted(place.path().join("thing-1.0-py3-none-any.whl"));
    let install = format!(
        "set -e; python3 -m pip install -q --no-index --no-deps --root-user-action ignore --disable-pip-version-check \
         --target packages {wheel}; PYTHONPATH=packages python3 -c 'import thing.m49; print(thing.m49.NUMBER)'"
    );
    assert_eq!(script(&place, &install).clean().text(), "49\n");
    place.unmounted();
    assert_eq!(fs::read(origin.root().join("bucket/packages/thing/m7.py")).unwrap(), b"NUMBER = 7\n");
}

#[test]
fn others_see_a_file_when_it_is_whole() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--negative-lifetime", "0s", "--attribute-lifetime", "0s"]);
    let other = Place::new();
    other.mounted("s3://bucket", &origin.url(), &["--negative-lifetime", "0s", "--attribute-lifetime", "0s"]);
    let content = bytes(20 << 20);
    for length in [0, 1000, 3 << 20, 20 << 20] {
        let mut file = File::create(place.at("new")).unwrap();
        for piece in content[..length].chunks(777_777) {
            file.write_all(piece).unwrap();
        }
        assert_eq!(fs::metadata(place.at("new")).unwrap().len(), length as u64);
        assert_eq!(errno(fs::metadata(other.at("new"))), libc::ENOENT, "{length}");
        file.sync_all().unwrap();
        assert!(fs::read(other.at("new")).unwrap() == content[..length], "{length}");
        file.write_all(b"more").unwrap();
        assert_eq!(fs::metadata(other.at("new")).unwrap().len(), length as u64);
        drop(file);
        assert!(fs::read(other.at("new")).unwrap() == [&content[..length], b"more"].concat(), "{length}");
        fs::remove_file(other.at("new")).unwrap();
        assert_eq!(errno(fs::metadata(place.at("new"))), libc::ENOENT, "{length}");
    }
    other.unmounted();
    place.unmounted();
}

#[test]
fn every_way_of_writing_gives_the_same_bytes() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    let (content, stored) = (bytes((33 << 20) + 4096), |name: &str| origin.root().join("bucket").join(name));
    for (name, block, flags) in [
        ("one byte", 1, 0),
        ("small", 4096, 0),
        ("odd", 300_001, 0),
        ("large", 8 << 20, 0),
        ("direct", 4096, libc::O_DIRECT),
        ("direct and large", 4 << 20, libc::O_DIRECT),
        ("synchronous", 1 << 20, libc::O_SYNC),
        ("append", 100_000, libc::O_APPEND),
    ] {
        let length = if block == 1 {
            5000
        } else if flags == libc::O_SYNC {
            3 << 20
        } else {
            content.len()
        };
        let mut file =
            OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(place.at(name)).unwrap();
        for piece in content[..length].chunks(block) {
            file.write_all(piece).unwrap();
        }
        drop(file);
        assert!(fs::read(stored(name)).unwrap() == content[..length], "{name}");
        assert!(fs::read(place.at(name)).unwrap() == content[..length], "{name}");
    }
    // As fio writes and verifies it, by several threads.
    let fio = "--name=w --rw=write --bs=256k --size=20m --numjobs=4 --verify=crc32c --do_verify=1 --verify_fatal=1 \
               --ioengine=psync --fallocate=none --file_append=0 --create_on_open=1";
    let ended = run(Command::new("fio")
        .args(fio.split_whitespace())
        .arg("--directory")
        .arg(place.mnt())
        .current_dir(place.path()));
    assert_eq!(ended.code, Some(0), "{}{}", ended.text(), ended.stderr);
    place.unmounted();
}

#[test]
fn what_cannot_be_written_is_refused_and_named() {
    let (origin, place) = (Buckets::new(&[("bucket/there", &bytes(5 << 20))]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    let file = OpenOptions::new().read(true).write(true).open(place.at("there")).unwrap();
    assert_eq!(errno(file.write_at(b"x", 100)), libc::EOPNOTSUPP);
    assert_eq!(errno(file.set_len(100)), libc::EOPNOTSUPP);
    assert_eq!(errno(file.set_len(100 << 20)), libc::EOPNOTSUPP);
    file.set_len(5 << 20).unwrap();
    drop(file);
    let refused = [
        (
            "chmod",
            errno(fs::set_permissions(
                place.at("there"),
                std::os::unix::fs::PermissionsExt::from_mode(0o600),
            )),
        ),
        ("chown", errno(std::os::unix::fs::chown(place.at("there"), Some(1), Some(1)))),
        ("link", errno(fs::hard_link(place.at("there"), place.at("new")))),
        ("symlink", errno(std::os::unix::fs::symlink("there", place.at("new")))),
    ];
    for (what, got) in refused {
        assert_eq!(got, libc::EOPNOTSUPP, "{what}");
    }
    assert_eq!(errno(fs::rename(place.at("there"), place.at("no/folder"))), libc::ENOENT);
    let exchange = rustix::fs::renameat_with(
        rustix::fs::CWD,
        place.at("there"),
        rustix::fs::CWD,
        place.at("there2"),
        rustix::fs::RenameFlags::EXCHANGE,
    );
    assert!(exchange.is_err());
    assert_eq!(names(&place.mnt()), ["there"]);
    assert!(fs::read(place.at("there")).unwrap() == bytes(5 << 20));
    let log = place.log();
    for says in
        ["s3://bucket/there: a write at byte 100 of a file that ends at 5242880", "--attributes ignore"]
    {
        assert!(log.contains(says), "{says}\n{log}");
    }
    place.unmounted();
}

#[test]
fn what_was_written_is_read_back() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    let content = bytes(12 << 20);
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(place.at("new")).unwrap();
    let mut piece = [0; 1000];
    for (number, part) in content.chunks(3 << 20).enumerate() {
        file.write_all(part).unwrap();
        let at = (number * (3 << 20)) as u64 + 500;
        file.read_exact_at(&mut piece, at).unwrap();
        assert!(piece == content[at as usize..at as usize + 1000], "{number}");
    }
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut all = Vec::new();
    file.read_to_end(&mut all).unwrap();
    assert!(all == content);
    drop(file);
    // A reader that was there before an append goes on.
    let mut reader = File::open(place.at("new")).unwrap();
    let mut read = vec![0; 12 << 20];
    reader.read_exact(&mut read).unwrap();
    OpenOptions::new().append(true).open(place.at("new")).unwrap().write_all(b"appended").unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "appended");
    // One of a file that is replaced does not.
    fs::write(place.at("new"), b"replaced").unwrap();
    assert_eq!(errno(reader.read_at(&mut [0; 10], 0)), libc::ESTALE);
    assert_eq!(fs::read(place.at("new")).unwrap(), b"replaced");
    drop(reader);
    place.unmounted();
}

#[test]
fn oss_is_written_to_as_well() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    let mut command = place.flatout(&["mount", "oss://bucket", &place.mnt_text(), "--no-sign-request"]);
    run(command.args(["--oss-endpoint", &origin.url(), "--rename-limit", "1000"])).clean();
    let (source, content) = (place.path().join("source"), bytes(30 << 20));
    tree(&source);
    script(&place, &format!("set -e; cp -r {} copy; mv copy moved", quoted(&source))).clean();
    holds(&place, &origin, "moved", &source);
    fs::write(place.at("large"), &content[..9 << 20]).unwrap();
    let mut file = OpenOptions::new().append(true).open(place.at("large")).unwrap();
    file.write_all(&content[9 << 20..]).unwrap();
    drop(file);
    assert!(fs::read(origin.root().join("bucket/large")).unwrap() == content);
    fs::rename(place.at("large"), place.at("there")).unwrap();
    assert!(fs::read(origin.root().join("bucket/there")).unwrap() == content);
    script(&place, "rm -r moved there").clean();
    assert!(names(&place.mnt()).is_empty());
    place.unmounted();
}

/// Two mounts of one bucket, each with the changes of the other, after the lifetimes at the latest.
#[test]
fn changes_of_another_mount_are_seen() {
    let (origin, one, other) = (Buckets::new(&[("bucket/f/a", b"a")]), Place::new(), Place::new());
    for place in [&one, &other] {
        place.mounted("s3://bucket", &origin.url(), &["--attribute-lifetime", "0s", "--rename-limit", "10"]);
    }
    fs::write(one.at("f/b"), b"b").unwrap();
    assert_eq!(names(&other.at("f")), ["a", "b"]);
    fs::rename(other.at("f/b"), other.at("f/c")).unwrap();
    assert_eq!(names(&one.at("f")), ["a", "c"]);
    fs::rename(one.at("f"), one.at("g")).unwrap();
    assert_eq!(names(&other.at("g")), ["a", "c"]);
    assert_eq!(errno(fs::metadata(other.at("f"))), libc::ENOENT);
    // A writer whose file another client replaces does not replace that.
    let mut file = OpenOptions::new().append(true).open(one.at("g/a")).unwrap();
    file.write_all(b"lost").unwrap();
    fs::write(other.at("g/a"), b"of the other").unwrap();
    assert_eq!(errno(file.sync_all()), libc::ESTALE);
    drop(file);
    assert_eq!(fs::read(one.at("g/a")).unwrap(), b"of the other");
    for place in [&one, &other] {
        place.unmounted();
    }
}
