//! Writers on their bad days: origins that fail, processes that are killed. What was acknowledged is in the
//! bucket, and nothing else looks as if it were.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use flatout_server::{Fault, FaultKind, FaultPlan, Options, Origin, Store, WriteFault, WriteStep};

use super::{Place, is_alive};
use crate::folder::names;
use crate::objects::{Buckets, bytes};
use crate::program::{run, signal, wait_until};

fn errno<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> i32 {
    outcome.expect_err("it is refused").raw_os_error().expect("by the kernel")
}

fn faulty(folder: &Path, faults: &[(f64, WriteFault)]) -> Origin {
    fs::create_dir_all(folder.join("bucket")).unwrap();
    fs::write(folder.join("bucket/there"), b"there").unwrap();
    let faults = faults.iter().map(|&(chance, fault)| Fault { chance, kind: FaultKind::Write(fault) });
    let fault_plan = FaultPlan { seed: 11, faults: faults.collect(), ..FaultPlan::default() };
    Origin::start(Options { fault_plan, ..Options::new(Store::Root(folder.to_owned())) }).unwrap()
}

const PATIENT: [&str; 4] = ["--stall-timeout", "500ms", "--retries", "20"];

/// Writes files, and says of each whether its close was well.
const LEDGER: &str = r#"
import sys
for number in range(24):
    name, length = f'file{number % 8}', [100, 200000, 12 << 20][number % 3] - number
    content = open(sys.argv[2], 'rb').read(length)
    try:
        with open(f'{sys.argv[1]}/{name}', 'wb', buffering=0) as file:
            for at in range(0, length, 1 << 20): file.write(content[at:at + (1 << 20)])
        print(name, length)
    except OSError: print(name, -1)
"#;

/// The ledger: each file of which a close said that it was well is in the bucket with its bytes; one of which
/// it said otherwise may be there or not, but is whole if it is.
#[test]
fn a_close_tells_the_truth_whatever_the_origin_does() {
    let code = |code: &str| code.parse().unwrap();
    let second = Duration::from_secs(2);
    for faults in [
        &[
            (0.2, WriteFault::Reset),
            (0.1, WriteFault::Error(code("503"), None)),
            (0.1, WriteFault::Lost(None)),
            (0.05, WriteFault::Stall(second)),
        ][..],
        &[(0.3, WriteFault::Error(code("500"), None)), (0.2, WriteFault::Error(code("403"), None))],
        &[
            (0.3, WriteFault::Error(code("503"), Some(WriteStep::Complete))),
            (0.3, WriteFault::Lost(Some(WriteStep::Complete))),
            (0.2, WriteFault::Forgotten),
        ],
        &[
            (0.3, WriteFault::Flip),
            (0.2, WriteFault::EarlyError(code("503"))),
            (0.2, WriteFault::HiddenError(code("500"))),
        ],
        &[(0.5, WriteFault::Error(code("507"), None))],
    ] {
        let (folder, place) = (tempfile::tempdir().unwrap(), Place::new());
        let origin = faulty(folder.path(), faults);
        let content = bytes(12 << 20);
        fs::write(place.path().join("content"), &content).unwrap();
        place.mounted("s3://bucket", &origin.url(), &[&PATIENT[..], &["--outage-timeout", "3s"]].concat());
        let mut command = Command::new("python3");
        let told = run(command.args(["-c", LEDGER]).arg(place.mnt()).arg(place.path().join("content")));
        let mut ledger = BTreeMap::new();
        for line in told.clean().text().lines() {
            let (name, length) = line.split_once(' ').unwrap();
            match length.parse::<usize>() {
                Ok(length) => ledger.insert(name.to_owned(), length),
                // Whether it is there is not known to its writer.
                Err(_) => ledger.remove(name),
            };
        }
        let stored = |name: &str| fs::read(folder.path().join("bucket").join(name)).unwrap();
        for (name, length) in &ledger {
            assert!(
                stored(name) == content[..*length],
                "{faults:?} {name}: {} of {length}",
                stored(name).len()
            );
        }
        for name in names(&folder.path().join("bucket")).iter().filter(|name| *name != "there") {
            let stored = stored(name);
            let is_whole =
                [100, 200_000, 12 << 20].iter().any(|most| (most - 24..=*most).contains(&stored.len()));
            assert!(is_whole && stored[..] == content[..stored.len()], "{name}: {}", stored.len());
        }
        place.unmounted();
    }
}

#[test]
fn an_origin_that_is_away_is_an_error_at_the_end() {
    let (folder, place) = (tempfile::tempdir().unwrap(), Place::new());
    let origin = faulty(folder.path(), &[]);
    place.mounted("s3://bucket", &origin.url(), &["--outage-timeout", "1s", "--connect-timeout", "1s"]);
    let mut small = File::create(place.at("small")).unwrap();
    small.write_all(b"small").unwrap();
    let mut large = File::create(place.at("large")).unwrap();
    large.write_all(&bytes(9 << 20)).unwrap();
    drop(origin);
    assert_eq!(errno(small.sync_all()), libc::EIO);
    assert_eq!(errno(small.write(b"more")), libc::EIO, "and from then on");
    assert_eq!(errno(small.sync_all()), libc::EIO);
    drop(small);
    // More than there is memory for: the writer hears of it.
    let mut end = Ok(());
    for _ in 0..2000 {
        end = large.write_all(&bytes(1 << 20));
        if end.is_err() {
            break;
        }
    }
    assert_eq!(errno(end), libc::EIO);
    assert_eq!(errno(large.sync_all()), libc::EIO);
    drop(large);
    assert!(place.log().contains("s3://bucket/small"), "{}", place.log());
    place.unmounted();
}

#[test]
fn a_full_origin_is_no_space_left() {
    let code = |code: &str| code.parse().unwrap();
    for fault in [WriteFault::Error(code("507"), None), WriteFault::Error(code("QuotaExceeded"), None)] {
        let (folder, place) = (tempfile::tempdir().unwrap(), Place::new());
        let origin = faulty(folder.path(), &[(1.0, fault)]);
        let staging = place.path().join("staging");
        let kept = ["--staging", staging.to_str().unwrap(), "--attributes", "metadata"];
        place.mounted("s3://bucket", &origin.url(), &kept);
        for length in [5, 12 << 20] {
            let mut file = File::create(place.at("new")).unwrap();
            let told = file.write_all(&bytes(length)).and_then(|()| file.sync_all());
            assert_eq!(errno(told), libc::ENOSPC, "{fault:?} {length}");
        }
        assert_eq!(errno(fs::create_dir(place.at("folder"))), libc::ENOSPC);
        let there = File::options().read(true).write(true).open(place.at("there")).unwrap();
        there.write_all_at(b"T", 0).unwrap();
        assert_eq!(errno(there.sync_all()), libc::ENOSPC);
        assert_eq!(fs::read(place.at("there")).unwrap(), b"There", "what was staged stays");
        assert_eq!(fs::read(folder.path().join("bucket/there")).unwrap(), b"there");
        drop(there);
        place.umount_as_it_is(&["--lazy"]);
    }
}

/// A process that writes without end; its name is its file's.
fn writer(path: &Path) -> std::process::Child {
    let write = "import sys\nwith open(sys.argv[1], sys.argv[2]) as f:\n while True: f.write('x' * 1000000); f.flush()";
    Command::new("python3").args(["-c", write]).arg(path).arg("w").stdin(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_killed_writer_leaves_nothing_half_done() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--bandwidth", "40MiB/s"]);
    for round in 0..8_u64 {
        let mut child = writer(&place.at("new"));
        wait_until("it writes", || {
            fs::metadata(place.at("new")).is_ok_and(|about| about.len() > round * 4_000_000)
        });
        signal("KILL", child.id());
        child.wait().unwrap();
        wait_until("its file is gone", || fs::metadata(place.at("new")).is_err());
        assert_eq!(names(&origin.root().join("bucket")), ["there"]);
        let url = origin.url();
        let uploads = ["uploads", "s3://bucket", "--endpoint-url", &url, "--no-sign-request"];
        wait_until("no part of it is paid for", || {
            run(&mut place.flatout(&uploads)).clean().text().is_empty()
        });
    }
    // One that is told to end has its file.
    let mut child = writer(&place.at("log"));
    wait_until("it writes", || fs::metadata(place.at("log")).is_ok_and(|about| about.len() > 2_000_000));
    signal("TERM", child.id());
    child.wait().unwrap();
    wait_until("it is published", || origin.root().join("bucket/log").exists());
    place.unmounted();
}

/// A mount whose process is killed: what was closed is there, and the next mount begins with that.
#[test]
fn a_killed_mount_loses_nothing_that_was_closed() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    let uploads = || {
        let args = ["uploads", "s3://bucket", "--endpoint-url", &origin.url(), "--no-sign-request"];
        run(&mut place.flatout(&args)).clean().text().to_owned()
    };
    let mut closed = vec!["there".to_owned()];
    for round in 0..5 {
        place.mounted("s3://bucket", &origin.url(), &[]);
        for number in 0..20 {
            let name = format!("{round}-{number:02}");
            fs::write(place.at(&name), &bytes(50_000)[..]).unwrap();
            closed.push(name);
        }
        let mut open = File::create(place.at("open")).unwrap();
        open.write_all(&bytes(20 << 20)).unwrap();
        // One whose answer was not read yet has no id that anybody could note.
        wait_until("its upload has begun", || !uploads().is_empty());
        let pid = place.pid();
        signal("KILL", pid);
        wait_until("it is gone", || !is_alive(pid));
        assert!(open.write_all(b"x").is_err());
        drop(open);
        closed.sort();
        assert_eq!(names(&origin.root().join("bucket")), closed, "and no half of what was open");
        place.umount(&[]).clean();
    }
    // The next mount has the parts deleted that were sent.
    place.mounted("s3://bucket", &origin.url(), &[]);
    wait_until("no upload is left", || uploads().is_empty());
    wait_until("the log says so", || place.log().contains("uploads of a mount that was killed were aborted"));
    place.unmounted();
}

#[test]
fn a_writer_that_is_faster_than_the_link_waits_and_can_be_killed() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--memory", "64MiB", "--bandwidth", "2MiB/s"]);
    let mut child = writer(&place.at("new"));
    let waits = || place.stats()["requests"]["waiting_now"].as_u64().unwrap_or(0) > 0;
    wait_until("it waits", waits);
    signal("KILL", child.id());
    let mut ended = false;
    for _ in 0..100 {
        ended = child.try_wait().unwrap().is_some();
        if ended {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(ended, "a killed writer is gone within seconds");
    let held = place.stats()["process"]["resident_bytes_peak"].as_u64().unwrap();
    assert!(held < (64 + 48 + 40) << 20, "{held}");
    wait_until("its file is gone", || fs::metadata(place.at("new")).is_err());
    place.unmounted();
}

#[test]
fn many_files_are_written_at_once() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--memory", "256MiB"]);
    let content = bytes(9 << 20);
    std::thread::scope(|scope| {
        for thread in 0..40 {
            let (place, content) = (&place, &content);
            scope.spawn(move || {
                for number in 0..10 {
                    let length = if number == 0 { 9 << 20 } else { 1000 * thread + number };
                    fs::write(place.at(&format!("{thread}-{number}")), &content[..length]).unwrap();
                }
            });
        }
    });
    for (thread, number) in (0..40).flat_map(|thread| (0..10).map(move |number| (thread, number))) {
        let length = if number == 0 { 9 << 20 } else { 1000 * thread + number };
        let stored = fs::read(origin.root().join(format!("bucket/{thread}-{number}"))).unwrap();
        assert!(stored == content[..length], "{thread}-{number}");
    }
    place.unmounted();
}
