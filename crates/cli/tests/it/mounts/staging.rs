//! Files of a mount that are written in any order, by programs that know no bucket; and what outlives a
//! killed writer, a killed mount, an origin that is away and a full disk.
//!
//! FLATOUT_KILLS=50 cargo test -p flatout-cli --test it staging::     as many kills of each

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flatout_server::{Options, Origin, Store};

use super::{Place, is_alive};
use crate::ends::disk::Disk;
use crate::objects::{Buckets, bytes};
use crate::program::{Ended, run, shell, signal, wait_until};

fn kills() -> u64 {
    std::env::var("FLATOUT_KILLS").map_or(4, |kills| kills.parse().unwrap())
}

fn errno<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> i32 {
    outcome.expect_err("it is refused").raw_os_error().expect("by the kernel")
}

fn staging(place: &Place) -> String {
    place.path().join("staging").to_str().unwrap().to_owned()
}

#[track_caller]
fn mounted(place: &Place, origin: &str, more: &[&str]) {
    place.mounted("s3://bucket", origin, &[&["--staging", &staging(place)], more].concat());
}

#[track_caller]
fn python(place: &Place, script: &str) -> Ended {
    run(Command::new("timeout").args(["240", "python3", "-c", script]).current_dir(place.mnt())).clean()
}

/// No file of the staging folder is left, but for locks.
fn is_clear(place: &Place) -> bool {
    let sessions = fs::read_dir(staging(place)).unwrap().flatten();
    let files = sessions.flat_map(|session| fs::read_dir(session.path()).unwrap().flatten());
    files.filter(|file| file.file_name() != "lock").count() == 0
}

const ANY_ORDER: &str = r#"
import mmap, os
with open('f', 'wb') as f:
    f.write(b'x' * 100000); f.seek(5); f.write(b'hello'); f.seek(200000); f.write(b'end')
assert os.stat('f').st_size == 200003
with open('f', 'r+b') as f:
    assert f.read(10) == b'xxxxxhello'
    f.truncate(1000); f.seek(0, 2); assert f.tell() == 1000
    f.truncate(5000); f.seek(990); assert f.read() == b'x' * 10 + bytes(4000)
os.truncate('f', 4000); os.truncate('f', 5000)
fd = os.open('f', os.O_RDWR)
with mmap.mmap(fd, 5000) as m: m[100:105] = b'MMAPS'; m.flush(); m[4990:4995] = b'LATER'
os.close(fd)
data = open('f', 'rb').read()
assert data[100:105] == b'MMAPS' and data[4990:4995] == b'LATER' and len(data) == 5000
fd = os.open('sparse', os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b'1', 3 << 30); assert os.pread(fd, 10, (3 << 30) - 5) == bytes(5) + b'1'
os.ftruncate(fd, 10); os.close(fd)
assert open('sparse', 'rb').read() == bytes(10)
"#;

#[test]
fn programs_write_in_any_order() {
    for dialect in ["s3", "oss"] {
        write_in_any_order(dialect);
    }
}

fn write_in_any_order(dialect: &str) {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    place.mounted_by(dialect, &origin.url(), &["--staging", &staging(&place)]);
    python(&place, ANY_ORDER);
    let stored = fs::read(origin.root().join("bucket/f")).unwrap();
    assert_eq!((&stored[100..105], &stored[4990..4995], stored.len()), (&b"MMAPS"[..], &b"LATER"[..], 5000));
    let line = "fio --name=v --filename=v --rw=randwrite --bs=4k-64k --bsrange=4k-64k --size=24m --verify=crc32c \
                --do_verify=1 --ioengine=psync --end_fsync=1 --fallocate=none --verify_fatal=1 --output=../fio";
    run(shell(line, &[]).current_dir(place.mnt())).clean();
    run(Command::new("cmp").arg(place.at("v")).arg(origin.root().join("bucket/v"))).clean();
    place.unmounted();
    assert!(is_clear(&place));
}

#[test]
fn git_collects_its_garbage() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    mounted(&place, &origin.url(), &["--attributes", "ignore"]);
    let git = "git -c user.name=x -c user.email=x@x -c init.defaultBranch=main -c core.fsync=all";
    let script = format!(
        "set -e; {git} init -q repo; cd repo
         for n in $(seq 20); do echo line $n >> file; seq $n > n$n; {git} add .; {git} commit -qm $n; done
         {git} gc -q --aggressive --prune=now; {git} repack -adq; git fsck --strict --full; git log --oneline | wc -l"
    );
    let ended = run(shell(&script, &[]).current_dir(place.mnt()).env("HOME", place.path())).clean();
    assert!(ended.text().ends_with("20\n"), "{}", ended.text());
    place.unmounted();
    // What others see is the same, but for folders that are empty.
    let script = "mkdir -p .git/refs; git fsck --strict --full && git log --oneline | wc -l";
    let bucket = origin.root().join("bucket/repo");
    let seen = run(shell(script, &[]).current_dir(bucket).env("HOME", place.path())).clean();
    assert!(seen.text().ends_with("20\n"), "{}", seen.text());
}

/// Commits rows, and says so of each once it is committed.
const COMMITS: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60)
db.execute('pragma journal_mode=' + sys.argv[2])
db.execute('pragma synchronous=full')
db.execute('create table if not exists rows(number integer primary key, text text)')
number = db.execute('select coalesce(max(number), 0) from rows').fetchone()[0]
print('begun', number, flush=True)
while True:
    number += 1
    with db: db.execute('insert into rows values(?, ?)', (number, 'row %d ' % number * 100))
    print('row', number, flush=True)
"#;

const CHECK: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60)
print(db.execute('pragma integrity_check').fetchone()[0], db.execute('select count(*), max(number) from rows').fetchone())
"#;

/// Runs commits until so many are acknowledged, then `kill`; the last number that was acknowledged.
fn commit_until(place: &Place, name: &str, mode: &str, count: usize, kill: impl FnOnce(u32)) -> u64 {
    let mut command = Command::new("python3");
    command.args(["-c", COMMITS, place.at(name).to_str().unwrap(), mode]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut last = 0;
    let mut take = |lines: usize| {
        for _ in 0..lines {
            let mut line = String::new();
            if std::io::BufRead::read_line(&mut reader, &mut line).unwrap_or(0) == 0 {
                break;
            }
            let number = line.split_whitespace().nth(1).and_then(|number| number.parse().ok());
            last = number.unwrap_or(last);
        }
        last
    };
    take(count);
    kill(child.id());
    // What was acknowledged meanwhile counts, too.
    let last = take(usize::MAX);
    let _ = child.kill();
    child.wait().unwrap();
    last
}

#[track_caller]
fn check(place: &Place, name: &str, acknowledged: u64) {
    let checked = run(Command::new("python3").args(["-c", CHECK]).arg(place.at(name)));
    assert_eq!(checked.code, Some(0), "{}{}", checked.stderr, place.log());
    let text = checked.text();
    let numbers: Vec<u64> = text
        .trim_start_matches("ok ")
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    assert!(text.starts_with("ok "), "{text}");
    assert!(numbers[0] == numbers[1] && numbers[1] >= acknowledged, "{text}: {acknowledged} were committed");
}

#[test]
fn a_database_survives_its_killed_process() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    mounted(&place, &origin.url(), &[]);
    for mode in ["delete", "wal", "truncate", "persist"] {
        for round in 0..kills() {
            let acknowledged = commit_until(&place, mode, mode, 3 + round as usize * 5 % 17, |pid| {
                signal("KILL", pid);
            });
            check(&place, mode, acknowledged);
        }
    }
    place.unmounted();
    for mode in ["delete", "truncate", "persist"] {
        let bucket = origin.root().join("bucket").join(mode);
        run(Command::new("python3").args(["-c", CHECK]).arg(bucket)).clean();
    }
}

/// fsync says that it is in the bucket: there it is, whatever the mount dies of.
#[test]
fn a_database_survives_the_killed_mount() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    for mode in ["delete", "wal"] {
        for round in 0..kills() {
            mounted(&place, &origin.url(), &[]);
            let served = place.pid();
            let acknowledged = commit_until(&place, mode, mode, 2 + round as usize * 7 % 23, |_| {
                signal("KILL", served);
            });
            wait_until("it is gone", || !is_alive(served));
            place.umount_as_it_is(&["--lazy"]);
            mounted(&place, &origin.url(), &[]);
            check(&place, mode, acknowledged);
            place.unmounted();
        }
    }
}

fn origin_at(folder: &Path, port: u16) -> Origin {
    let mut options = Options::new(Store::Root(folder.to_owned()));
    options.listen = vec![std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()];
    Origin::start(options).expect("an origin")
}

const HASTY: [&str; 4] = ["--outage-timeout", "1s", "--connect-timeout", "1s"];

#[test]
fn what_cannot_be_uploaded_is_kept_shown_and_uploaded_later() {
    let (folder, place) = (tempfile::tempdir().unwrap(), Place::new());
    fs::create_dir_all(folder.path().join("bucket/deep")).unwrap();
    let mut content = bytes(20 << 20);
    fs::write(folder.path().join("bucket/deep/file"), &content).unwrap();
    let origin = origin_at(folder.path(), 0);
    let url = origin.url();
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    mounted(&place, &url, &HASTY);
    let file = OpenOptions::new().read(true).write(true).open(place.at("deep/file")).unwrap();
    file.write_all_at(b"changed", 10 << 20).unwrap();
    content[10 << 20..(10 << 20) + 7].copy_from_slice(b"changed");
    drop(origin);
    assert!(file.sync_all().is_err(), "it is not in the bucket");
    drop(file);
    let mut numbers = place.stats();
    wait_until("it is shown", || {
        numbers = place.stats();
        numbers["staging"]["pending_now"] == 1
    });
    assert_eq!(numbers["staging"]["pending"][0], "deep/file");
    let top = run(&mut place.flatout(&["top", "--once"])).clean();
    assert!(top.text().contains("deep/file: not uploaded yet, and tried again"), "{}", top.text());
    let origin = origin_at(folder.path(), port);
    let stored = || fs::read(folder.path().join("bucket/deep/file")).unwrap();
    wait_until("it is uploaded", || stored() == content);
    // Once more, and the mount is killed with it.
    let file = OpenOptions::new().read(true).write(true).open(place.at("deep/file")).unwrap();
    file.write_all_at(b"CHANGED", 11 << 20).unwrap();
    content[11 << 20..(11 << 20) + 7].copy_from_slice(b"CHANGED");
    drop(origin);
    assert!(file.sync_all().is_err());
    let served = place.pid();
    signal("KILL", served);
    wait_until("it is gone", || !is_alive(served));
    drop(file);
    place.umount_as_it_is(&["--lazy"]);
    // Somebody who looks without mounting: first the origin is away.
    let recover = || {
        let staging = staging(&place);
        let arguments = ["mount", "s3://bucket", "--endpoint-url", &url, "--staging", &staging, "--recover"];
        let mut command = place.flatout(&arguments);
        command.args(HASTY).arg("--no-sign-request");
        run(&mut command)
    };
    assert_ne!(recover().code, Some(0));
    assert!(!is_clear(&place));
    let _origin = origin_at(folder.path(), port);
    let recovered = recover();
    assert_eq!(recovered.code, Some(0), "{}", recovered.stderr);
    assert!(stored() == content);
    assert!(is_clear(&place));
}

#[test]
fn the_next_mount_uploads_what_is_left() {
    let (folder, place) = (tempfile::tempdir().unwrap(), Place::new());
    fs::create_dir_all(folder.path().join("bucket")).unwrap();
    fs::write(folder.path().join("bucket/there"), b"there").unwrap();
    let origin = origin_at(folder.path(), 0);
    let url = origin.url();
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    mounted(&place, &url, &HASTY);
    let new = File::create(place.at("new")).unwrap();
    new.write_all_at(b"tail", 5).unwrap();
    drop(origin);
    assert!(new.sync_all().is_err());
    let served = place.pid();
    signal("KILL", served);
    wait_until("it is gone", || !is_alive(served));
    drop(new);
    place.umount_as_it_is(&["--lazy"]);
    let _origin = origin_at(folder.path(), port);
    mounted(&place, &url, &HASTY);
    // It is shown at once, and uploaded beside that.
    assert_eq!(fs::read(place.at("new")).unwrap(), b"\0\0\0\0\0tail");
    let stored = folder.path().join("bucket/new");
    wait_until("it is uploaded", || fs::read(&stored).is_ok_and(|read| read == b"\0\0\0\0\0tail"));
    place.unmounted();
    assert!(is_clear(&place));
}

#[test]
fn a_full_staging_folder_is_told_and_loses_nothing() {
    let (origin, place) = (Buckets::new(&[("bucket/f", &bytes(4 << 20))]), Place::new());
    mounted(&place, &origin.url(), &["--staging-size", "1MiB"]);
    let file = OpenOptions::new().read(true).write(true).open(place.at("f")).unwrap();
    file.write_all_at(&[7; 512 << 10], 1 << 20).unwrap();
    assert_eq!(errno(file.write_all_at(&[8; 1 << 20], 2 << 20)), libc::ENOSPC);
    file.sync_all().unwrap();
    let mut expected = bytes(4 << 20);
    expected[1 << 20..(1 << 20) + (512 << 10)].fill(7);
    let stored = fs::read(origin.root().join("bucket/f")).unwrap();
    assert!(stored[..2 << 20] == expected[..2 << 20]);
    drop(file);
    place.unmounted();
}

/// Not even a record fits then: what was written is published all the same.
#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let (origin, place, disk) =
        (Buckets::new(&[("bucket/f", &bytes(4 << 20))]), Place::new(), Disk::new(8 << 20));
    place.mounted("s3://bucket", &origin.url(), &["--staging", disk.seen("target").to_str().unwrap()]);
    let file = OpenOptions::new().read(true).write(true).open(place.at("f")).unwrap();
    file.write_all_at(&[7; 512 << 10], 1 << 20).unwrap();
    disk.fill();
    assert_eq!(errno(file.write_all_at(&[8; 1 << 20], 2 << 20)), libc::ENOSPC);
    let mut expected = bytes(4 << 20);
    expected[1 << 20..(1 << 20) + (512 << 10)].fill(7);
    let mut read = vec![0; 2 << 20];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read == expected[..2 << 20]);
    fs::remove_file(disk.seen("filler")).unwrap();
    file.sync_all().unwrap();
    let stored = fs::read(origin.root().join("bucket/f")).unwrap();
    assert!(stored[..2 << 20] == expected[..2 << 20]);
    drop(file);
    place.unmounted();
}

/// How many uploads the origin keeps that are neither completed nor aborted.
fn unfinished(origin: &Buckets) -> usize {
    let folders =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let origins = folders(&origin.root().join(".flatout/uploads"));
    origins.flat_map(|origin| folders(&origin).collect::<Vec<_>>()).filter(|path| path.is_dir()).count()
}

/// The upload would take 40 seconds. That of an fsync is another matter: the kernel lets nobody remove the
/// name meanwhile.
#[test]
fn a_removal_does_not_wait_for_the_upload() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    mounted(&place, &origin.url(), &["--bandwidth", "1MiB/s"]);
    let file = File::create_new(place.at("f")).unwrap();
    file.write_all_at(&bytes(40 << 20), 1).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    let closed = thread::spawn(move || drop(file));
    wait_until("an upload begins", || unfinished(&origin) == 1);
    let began = Instant::now();
    fs::remove_file(place.at("f")).unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    closed.join().unwrap();
    assert_eq!(unfinished(&origin), 0);
    place.unmounted();
    assert!(!origin.root().join("bucket/f").exists() && is_clear(&place));
}

const LOCKS: &str = r#"
import fcntl, os
with open('f', 'r+b') as mine, open('f', 'r+b') as whole:
    fcntl.lockf(mine, fcntl.LOCK_EX, 10, 5); fcntl.flock(whole, fcntl.LOCK_EX)
    def refused():
        with open('f', 'r+b') as theirs:
            fcntl.lockf(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)
            for lock in (lambda: fcntl.lockf(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 10),
                         lambda: fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)):
                try: lock()
                except BlockingIOError: continue
                return 1
        return 0
    child = os.fork()
    if child == 0: os._exit(refused())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"#;

/// Another mount, as another machine, knows nothing of them.
#[test]
fn locks_are_those_of_the_mount() {
    let (origin, place, other) = (Buckets::new(&[("bucket/f", &bytes(100))]), Place::new(), Place::new());
    mounted(&place, &origin.url(), &[]);
    other.mounted("s3://bucket", &origin.url(), &[]);
    python(&place, LOCKS);
    let line = "flock -n f flock -n $OTHER/f true && ! flock -n f flock -n f true";
    run(shell(line, &[]).current_dir(place.mnt()).env("OTHER", other.mnt())).clean();
    other.unmounted();
    place.unmounted();
}

/// A reader through another mount sees versions that were published, each whole.
#[test]
fn a_second_client_sees_whole_versions() {
    let (origin, place, other) = (Buckets::new(&[("bucket/f", &[0; 100_000])]), Place::new(), Place::new());
    mounted(&place, &origin.url(), &[]);
    other.mounted("s3://bucket", &origin.url(), &["--attribute-lifetime", "0s", "--close-to-open"]);
    let file = OpenOptions::new().read(true).write(true).open(place.at("f")).unwrap();
    let path = other.at("f");
    let reads = thread::spawn(move || {
        let mut seen = 0;
        for _ in 0..60 {
            // One that was replaced since it was opened says so.
            let Ok(read) = fs::read(&path) else { continue };
            let first = read[0];
            assert!(read.len() == 100_000 && read.iter().all(|byte| *byte == first), "{first}");
            seen = seen.max(first);
            thread::sleep(Duration::from_millis(5));
        }
        seen
    });
    for round in 1..=40_u8 {
        for at in [50_000, 0, 75_000, 25_000] {
            file.write_all_at(&[round; 25_000], at).unwrap();
        }
        file.sync_all().unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert!(reads.join().unwrap() > 1);
    drop(file);
    other.unmounted();
    place.unmounted();
}

/// The mount goes on in the background, in another working folder.
#[test]
fn a_staging_folder_may_be_named_from_the_working_folder() {
    let (origin, place) = (Buckets::new(&[("bucket/f", b"content")]), Place::new());
    let mut mount = place.mount("s3://bucket", &origin.url(), &["--staging", "staging"]);
    run(mount.current_dir(place.path())).clean();
    let file = OpenOptions::new().read(true).write(true).open(place.at("f")).unwrap();
    file.write_all_at(b"C", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(origin.root().join("bucket/f")).unwrap(), b"Content");
    drop(file);
    place.unmounted();
}

#[test]
fn a_folder_that_cannot_be_used_is_refused() {
    let (origin, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
    let file = place.path().join("file");
    File::create(&file).unwrap().write_all(b"x").unwrap();
    let refused = run(&mut place.mount("s3://bucket", &origin.url(), &["--staging", file.to_str().unwrap()]));
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("--staging"), "{}", refused.stderr);
    let none = run(&mut place.flatout(&["mount", "s3://bucket", "--recover"]));
    assert_eq!(none.code, Some(4));
    assert!(none.stderr.contains("name the one that the mount had: --staging DIR"), "{}", none.stderr);
    let missing = staging(&place);
    let recover = ["mount", "s3://bucket", "--recover", "--staging", &missing];
    let none = run(&mut place.flatout(&recover));
    assert_eq!((none.code, Path::new(&missing).exists()), (Some(4), false));
    assert!(none.stderr.contains("there is no such folder"), "{}", none.stderr);
    fs::create_dir(&missing).unwrap();
    let none = run(place.flatout(&recover).arg("--read-only"));
    assert_eq!(none.code, Some(4), "{}", none.stderr);
    assert!(none.stderr.contains("leave --read-only out"), "{}", none.stderr);
}

/// Who looks for it finds what was written, and which file it was.
#[test]
fn what_another_client_has_replaced_is_named() {
    let (origin, place) = (Buckets::new(&[("bucket/f", &bytes(20 << 20))]), Place::new());
    mounted(&place, &origin.url(), &[]);
    let file = OpenOptions::new().read(true).write(true).open(place.at("f")).unwrap();
    file.write_all_at(b"mine", 10 << 20).unwrap();
    fs::write(origin.root().join("bucket/f"), b"theirs").unwrap();
    assert_eq!(errno(file.sync_all()), libc::ESTALE);
    drop(file);
    let log = place.log();
    let kept = log.lines().find(|line| line.contains("s3://bucket/f: another client has replaced it"));
    let kept = kept.unwrap_or_else(|| panic!("{log}"));
    let data = kept.split_once("is kept in ").unwrap().1.split_once(',').unwrap().0;
    let mut written = [0; 4];
    File::open(data).unwrap().read_exact_at(&mut written, 10 << 20).unwrap();
    assert_eq!(&written, b"mine");
    place.unmounted();
    let recover = ["mount", "s3://bucket", "--endpoint-url", &origin.url(), "--recover", "--staging"];
    let told = run(place.flatout(&recover).arg(staging(&place)));
    assert_eq!(told.code, Some(1), "{}", told.stderr);
    assert!(told.stderr.contains("s3://bucket/f: another client has replaced it"), "{}", told.stderr);
    assert!(told.stderr.contains(data), "{}", told.stderr);
}

const BESIDE: &str = r"
import mmap, os, random, threading, time
def read(fd, at):
    page = mmap.mmap(-1, 4096); os.preadv(fd, [page], at)
reader = os.open('long', os.O_RDONLY | os.O_DIRECT); read(reader, 0)
for _ in range(2):
    time.sleep(1.1); os.utime('long')
    other = os.open('long', os.O_RDONLY | os.O_DIRECT)
    for fd in reader, other: [read(fd, at) for at in (0, 19 << 20, 39 << 20)]
    os.close(other)
failed = []
for number in range(40):
    with open(str(number), 'wb') as f: f.write(b'A' * 300000)
    reader, goes = os.open(str(number), os.O_RDONLY | os.O_DIRECT), threading.Event()
    def write():
        fd = os.open(str(number), os.O_RDWR); os.pwrite(fd, random.randbytes(512), 4096); goes.set(); os.close(fd)
    def reads():
        goes.wait()
        for at in range(0, 290000, 12288):
            try: read(reader, at)
            except OSError as error: failed.append(error)
    threads = [threading.Thread(target=write)] + [threading.Thread(target=reads) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert not failed, failed
";

/// Neither a change of attributes nor a publication of the same mount is in their way.
#[test]
fn readers_go_on_beside_a_writer() {
    let (origin, place) = (Buckets::new(&[("bucket/long", &bytes(40 << 20))]), Place::new());
    mounted(&place, &origin.url(), &["--attributes", "metadata", "--memory", "32MiB"]);
    python(&place, BESIDE);
    place.unmounted();
}

/// Each has a folder of its own in it, and lets that of the other be, as one does that only recovers.
#[test]
fn mounts_share_a_staging_folder() {
    let (folder, place, other) = (tempfile::tempdir().unwrap(), Place::new(), Place::new());
    fs::create_dir_all(folder.path().join("bucket")).unwrap();
    let origin = origin_at(folder.path(), 0);
    let url = origin.url();
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    let staging = staging(&place);
    for place in [&place, &other] {
        place.mounted("s3://bucket", &url, &[&["--staging", &staging], &HASTY[..]].concat());
    }
    let files = [&place, &other].map(|place| File::create(place.at(&format!("of {}", place.pid()))).unwrap());
    for file in &files {
        file.write_all_at(b"tail", 5).unwrap();
    }
    drop(origin);
    for file in &files {
        assert!(file.sync_all().is_err());
    }
    let _origin = origin_at(folder.path(), port);
    let recover = ["mount", "s3://bucket", "--endpoint-url", &url, "--staging", &staging, "--recover"];
    let said = run(place.flatout(&recover).arg("--no-sign-request"));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(!said.text().contains("uploaded") && !said.text().contains("nothing"), "{}", said.text());
    assert!(said.stderr.contains("2 files in"), "{}", said.stderr);
    assert!(said.stderr.contains("of a mount that stands, which uploads them itself"), "{}", said.stderr);
    for file in &files {
        file.write_all_at(b"head", 0).unwrap();
        file.sync_all().unwrap();
    }
    for place in [&place, &other] {
        let stored = fs::read(folder.path().join(format!("bucket/of {}", place.pid()))).unwrap();
        assert_eq!(stored, b"head\0tail");
    }
    drop(files);
    other.unmounted();
    place.unmounted();
    assert!(is_clear(&place));
}
