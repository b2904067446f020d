//! Supervised mounts: whoever dies, the mount goes on. What was acknowledged is there, what was lost is an
//! error, and nothing is left behind.
//!
//! FLATOUT_KILLS=50 cargo test -p flatout-cli --test it takeovers::     as many kills of each

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Place, User, is_alive};
use crate::folder::names;
use crate::objects::{Buckets, bytes};
use crate::program::{run, signal, wait_until};

/// Numbers by chance, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

/// The processes of a supervised mount: the one that serves, and its supervisor.
fn both(place: &Place) -> Option<(u32, u32)> {
    let ended = run(&mut place.flatout(&["top", "--once", "--json"]));
    let place = place.mnt().display().to_string();
    let events = ended.events();
    let stats = events.iter().find(|event| event["mount_point"] == *place)?;
    let number = |name: &str| stats[name].as_u64().and_then(|pid| u32::try_from(pid).ok());
    Some((number("pid")?, number("supervisor_pid")?))
}

/// Both, once both are there and neither is this one.
fn both_without(place: &Place, gone: u32) -> (u32, u32) {
    let mut found = None;
    wait_until("both are there", || {
        found = both(place).filter(|(serves, keeps)| ![*serves, *keeps].contains(&gone));
        found.is_some_and(|(serves, keeps)| is_alive(serves) && is_alive(keeps))
    });
    found.unwrap()
}

fn uploads(place: &Place, origin: &str) -> String {
    let args = ["uploads", "s3://bucket", "--endpoint-url", origin, "--no-sign-request"];
    run(&mut place.flatout(&args)).clean().text().to_owned()
}

#[test]
fn a_mount_outlives_the_process_that_serves_it() {
    let content = bytes(5 << 20);
    let (origin, place) = (Buckets::new(&[("bucket/f", &content), ("bucket/d/g", b"g")]), Place::new());
    let told = place.mounted("s3://bucket", &origin.url(), &["--supervise"]);
    let (serves, keeps) = both(&place).expect("both are shown");
    assert!(
        told.text().contains(&format!("(process {serves}, supervised by {keeps}, log ")),
        "{}",
        told.text()
    );
    let mut file = File::open(place.at("f")).unwrap();
    let mut head = vec![0; 100];
    file.read_exact(&mut head).unwrap();
    let mut log = OpenOptions::new().create(true).append(true).open(place.at("log")).unwrap();
    log.write_all(b"one ").unwrap();
    log.sync_all().unwrap();
    let mut lost = File::create(place.at("lost")).unwrap();
    lost.write_all(b"gone").unwrap();
    fs::create_dir(place.at("empty")).unwrap();
    // Killed one after the other, and the first one twice.
    for (round, is_supervisor) in [false, true, false].into_iter().enumerate() {
        let (serves, keeps) = both(&place).unwrap();
        let killed = if is_supervisor { keeps } else { serves };
        signal("KILL", killed);
        let since = Instant::now();
        let mut at = [0; 64];
        file.read_exact_at(&mut at, 1000 * round as u64).unwrap();
        assert_eq!(at, content[1000 * round..][..64]);
        assert!(since.elapsed() < Duration::from_secs(5), "a pause, no more: {:?}", since.elapsed());
        both_without(&place, killed);
    }
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).unwrap();
    assert!([head, rest].concat() == content);
    // What was published goes on, what was not is an error.
    log.write_all(b"two").unwrap();
    log.sync_all().unwrap();
    assert_eq!(fs::read(origin.root().join("bucket/log")).unwrap(), b"one two");
    for _ in 0..2 {
        assert_eq!(lost.write(b"more").unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(lost.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    drop((lost, log, file));
    assert_eq!(names(&place.mnt()), ["d", "empty", "f", "log"]);
    assert_eq!(names(&origin.root().join("bucket")), ["d", "f", "log"]);
    let said = place.log();
    assert!(
        said.contains("the process that served it died (signal: 9 (SIGKILL)): another goes on"),
        "{said}"
    );
    assert!(said.contains("s3://bucket/lost: what was written and not sent is gone"), "{said}");
    let both = both(&place).unwrap();
    place.unmounted();
    assert!(!is_alive(both.0) && !is_alive(both.1), "umount waits for both");
}

const WITHOUT_END: &str =
    "import sys\nwith open(sys.argv[1], 'w') as f:\n while True: f.write('x' * 1000000)";

/// What was synchronized is the version from which the next process goes on; what was not is an error.
#[test]
fn a_staged_file_is_written_on_by_the_next_process() {
    let mut content = bytes(20 << 20);
    let (origin, place) =
        (Buckets::new(&[("bucket/f", &content), ("bucket/g", b"0123456789")]), Place::new());
    let staging = place.path().join("staging");
    let kept = ["--supervise", "--attributes", "metadata", "--staging", staging.to_str().unwrap()];
    place.mounted("s3://bucket", &origin.url(), &kept);
    let open = |name: &str| OpenOptions::new().read(true).write(true).open(place.at(name)).unwrap();
    let (file, lost) = (open("f"), open("g"));
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    let mut put = |at: usize, new: &[u8]| {
        content[at..at + new.len()].copy_from_slice(new);
        file.write_all_at(new, at as u64).unwrap();
    };
    for round in 0..3 {
        put((9 - 4 * round) << 20, b"written and synchronized");
        file.sync_all().unwrap();
        let (serves, _) = both(&place).unwrap();
        // The last: a program that another test starts closes its copy of the file, and publishes it by that.
        if round == 2 {
            lost.write_all_at(b"x", 5).unwrap();
        }
        signal("KILL", serves);
        both_without(&place, serves);
    }
    put(30, b"the last");
    file.sync_all().unwrap();
    let is_lost = lost.write_at(b"y", 0).is_err_and(|error| error.raw_os_error() == Some(libc::EIO));
    drop((file, lost));
    assert!(fs::read(place.at("f")).unwrap() == content);
    assert_eq!(fs::metadata(place.at("f")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert!(fs::read(origin.root().join("bucket/f")).unwrap() == content);
    let stored = fs::read(origin.root().join("bucket/g")).unwrap();
    assert_eq!(stored, if is_lost { *b"0123456789" } else { *b"y1234x6789" }, "never in silence");
    place.unmounted();
}

/// Reads, lists, writes and logs while processes are killed. The readers see nothing but a pause; each file
/// whose close was well is in the bucket.
#[test]
fn whoever_is_killed_nothing_acknowledged_is_lost() {
    let kills: u64 = std::env::var("FLATOUT_KILLS").map_or(4, |kills| kills.parse().unwrap());
    let content = bytes(6 << 20);
    let fixed: Vec<(String, &[u8])> =
        (0..40).map(|number| (format!("bucket/fixed/{number:02}"), &content[..number * 100_000])).collect();
    let fixed: Vec<(&str, &[u8])> = fixed.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    let (origin, place) = (Buckets::new(&fixed), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--supervise", "--attribute-lifetime", "100ms"]);
    let is_over = AtomicBool::new(false);
    let (acknowledged, lines, reads) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let mut ledger = BTreeMap::new();
    let goes_on = || !is_over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for reader in 0..2 {
            let (place, content, reads, goes_on) = (&place, &content, &reads, &goes_on);
            scope.spawn(move || {
                let mut chance = Chance(reader);
                while goes_on() {
                    let number = chance.below(40) as usize;
                    let name = place.at(&format!("fixed/{number:02}"));
                    let found = fs::read(&name).unwrap_or_else(|error| panic!("{number}: {error}"));
                    assert!(found == content[..number * 100_000], "{number}: {}", found.len());
                    assert_eq!(names(&place.at("fixed")).len(), 40);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // A log: each line that fsync has acknowledged is there, in order. After an error it is opened again.
        scope.spawn(|| {
            let name = place.at("log");
            let mut file = None;
            while goes_on() {
                let next = lines.load(Ordering::Relaxed);
                let log = file
                    .get_or_insert_with(|| OpenOptions::new().create(true).append(true).open(&name).unwrap());
                let wrote = log.write_all(format!("line {next}\n").as_bytes()).and_then(|()| log.sync_all());
                match wrote {
                    Ok(()) => drop(lines.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => {
                        // What the dead process had sent may land after all: another version then.
                        let told = [Some(libc::EIO), Some(libc::ESTALE)].contains(&error.raw_os_error());
                        assert!(told, "{error} {}", place.log());
                        file = None;
                    }
                }
            }
        });
        // Small and large files, again and again under a few names.
        let writer = scope.spawn(|| {
            let (mut ledger, mut chance) = (BTreeMap::new(), Chance(9));
            while goes_on() {
                let name = format!("w{}", chance.below(6));
                let length = [100, 70_000, 5 << 20][chance.below(3) as usize] - chance.below(50) as usize;
                // The close is to tell, too: a duplicate's is not asked.
                let wrote = File::create(place.at(&name))
                    .and_then(|mut file| file.write_all(&content[..length]).and_then(|()| file.sync_all()));
                match wrote {
                    Ok(()) => {
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                        ledger.insert(name, Some(length));
                    }
                    // It may be there or not; whole, if it is.
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name}: {error}");
                        ledger.insert(name, None);
                    }
                }
            }
            ledger
        });
        let mut chance = Chance(4);
        for round in 0..4 * kills {
            thread::sleep(Duration::from_millis(100 + chance.below(400)));
            let (serves, keeps) = both_without(&place, 0);
            match round % 4 {
                0 => signal("KILL", serves),
                1 => signal("KILL", keeps),
                which => {
                    let path = place.at(if which == 2 { "fixed/39" } else { "killed" });
                    let path = path.to_str().unwrap();
                    let mut user = match which {
                        2 => User::start("cat", &[path]),
                        _ => User::start("python3", &["-c", WITHOUT_END, path]),
                    };
                    thread::sleep(Duration::from_millis(chance.below(300)));
                    signal("KILL", user.pid());
                    user.end();
                }
            }
        }
        both_without(&place, 0);
        is_over.store(true, Ordering::Relaxed);
        ledger = writer.join().unwrap();
    });
    assert!(acknowledged.into_inner() > kills && reads.into_inner() > kills);
    for (name, length) in ledger {
        let stored = fs::read(origin.root().join("bucket").join(&name));
        match length {
            Some(length) => assert!(stored.unwrap() == content[..length], "{name}"),
            None => {
                let stored = stored.unwrap_or_default();
                assert!(stored[..] == content[..stored.len()], "{name}: {}", stored.len());
            }
        }
    }
    let log = fs::read_to_string(origin.root().join("bucket/log")).unwrap();
    let mut found = log.lines().map(|line| line.strip_prefix("line ").unwrap().parse::<u64>().unwrap());
    // A line whose answer was an error may be there, and is written again.
    let mut next = 0;
    for number in found.by_ref() {
        assert!(number == next || number + 1 == next, "{number} at {next}: {log}");
        next = number + 1;
    }
    assert!(next >= lines.into_inner(), "{next}");
    wait_until("what was killed is gone", || !place.at("killed").exists());
    assert!(!origin.root().join("bucket/killed").exists(), "and never was there");
    wait_until("no upload is left", || uploads(&place, &origin.url()).is_empty());
    place.unmounted();
    assert_eq!(names(&place.path().join("run/flatout")), [""; 0], "no socket is left");
}

#[test]
fn a_mount_that_nobody_can_serve_ends_with_errors() {
    let (origin, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--supervise"]);
    let (_, keeps) = both(&place).unwrap();
    let user = File::open(place.at("f")).unwrap();
    // Each dies as soon as it serves, or before, as by a request that none of them survives.
    let start = Instant::now();
    for round in 0.. {
        if !is_alive(keeps) || start.elapsed() > Duration::from_secs(60) {
            break;
        }
        let serve = place.pids();
        let dies = |child: &u32| round % 3 == 0 || serve.contains(child);
        for child in children(keeps).into_iter().filter(dies) {
            // One that has just died is not there.
            let kill = ["-9", &child.to_string()];
            let _ = Command::new("kill").args(kill).stderr(Stdio::null()).status();
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!is_alive(keeps), "it gives up");
    assert!(user.read_at(&mut [0; 9], 0).is_err(), "and nobody waits for ever");
    drop(user);
    assert!(fs::read_dir(place.mnt()).is_err(), "the folder below it is not shown");
    let log = place.log();
    assert!(log.contains("it is given up") && log.contains("its users get errors from now on"), "{log}");
    place.unmounted();
}

fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn another_program_goes_on_with_a_mount() {
    let content = bytes(3 << 20);
    let (origin, place) = (Buckets::new(&[("bucket/f", &content)]), Place::new());
    let upgrade = || run(&mut place.flatout(&["mount", "--upgrade", &place.mnt_text()]));
    upgrade().refused(4, &["nothing is mounted there"]);
    place.mounted("s3://bucket", &origin.url(), &[]);
    upgrade().refused(4, &["it is not supervised", "mount it again with --supervise"]);
    place.unmounted();
    place.mounted("s3://bucket", &origin.url(), &["--supervise"]);
    let before = both(&place).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(fs::read(place.at("f")).unwrap() == content);
                fs::write(place.at("small"), b"small").unwrap();
            }
        });
        let mut log = OpenOptions::new().create(true).append(true).open(place.at("log")).unwrap();
        log.write_all(b"one ").unwrap();
        // It waits for what is being written.
        let upgrading = scope.spawn(upgrade);
        thread::sleep(Duration::from_millis(500));
        log.sync_all().unwrap();
        upgrading.join().unwrap().clean();
        log.write_all(b"two").unwrap();
        drop(log);
        let after = both_without(&place, before.1);
        assert_ne!(after.0, before.0);
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read(origin.root().join("bucket/log")).unwrap(), b"one two");
    assert!(!place.log().contains("died"), "{}", place.log());
    place.unmounted();
}

#[test]
fn an_upgrade_that_is_interrupted_or_refused_changes_nothing() {
    let (origin, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--supervise"]);
    let before = both(&place).unwrap();
    let upgrade = |more: &[&str]| {
        let mnt = place.mnt_text();
        place.flatout(&[&["mount", "--upgrade", &mnt], more].concat())
    };
    run(&mut upgrade(&["--memory", "1GiB"])).refused(4, &["--memory", "what it was mounted with"]);
    run(&mut upgrade(&["-o", "ro"])).refused(4, &["--upgrade and -o exclude each other"]);
    let nowhere = place.path().join("nowhere");
    run(upgrade(&[]).env("XDG_RUNTIME_DIR", &nowhere)).refused(1, &["answers in", "same XDG_RUNTIME_DIR"]);
    let mut log = File::create(place.at("log")).unwrap();
    log.write_all(b"one").unwrap();
    let mut waits = upgrade(&[]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(700));
    signal("INT", waits.id());
    let since = Instant::now();
    assert_eq!(waits.wait().unwrap().code(), Some(130));
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    let mut said = String::new();
    waits.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("interrupted: the process before serves it"), "{said}");
    log.write_all(b"two").unwrap();
    drop(log);
    assert_eq!(fs::read(origin.root().join("bucket/log")).unwrap(), b"onetwo");
    assert_eq!(both(&place).unwrap(), before);
    run(&mut upgrade(&[])).clean();
    assert_ne!(both_without(&place, before.0).0, before.0);
    place.unmounted();
}

/// The one that serves waits for a writer, and would be the last who has the mount.
#[test]
fn a_supervisor_that_dies_during_an_upgrade_loses_nothing() {
    let (origin, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--supervise"]);
    let (serves, keeps) = both(&place).unwrap();
    let mut log = File::create(place.at("log")).unwrap();
    log.write_all(b"one").unwrap();
    let mut upgrade = place.flatout(&["mount", "--upgrade", &place.mnt_text()]);
    let mut upgrading = upgrade.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_millis(700));
    signal("KILL", keeps);
    assert!(!upgrading.wait().unwrap().success());
    log.sync_all().unwrap();
    thread::sleep(Duration::from_millis(500));
    log.write_all(b"two").unwrap();
    log.sync_all().unwrap();
    assert_eq!(fs::read(origin.root().join("bucket/log")).unwrap(), b"onetwo");
    drop(log);
    assert_eq!(both_without(&place, keeps).0, serves, "it serves on, with another supervisor");
    place.unmounted();
}

#[test]
fn it_goes_on_where_it_was_started_in_its_own_folder() {
    let (origin, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
    let mut mount = place.flatout(&["mount", "s3://bucket", ".", "--supervise", "--no-sign-request"]);
    mount.args(["--endpoint-url", &origin.url(), "--attribute-lifetime", "0s", "--stats", "stats.json"]);
    run(mount.current_dir(place.mnt())).clean();
    let (serves, keeps) = both(&place).unwrap();
    signal("KILL", serves);
    assert_eq!(fs::read(place.at("f")).unwrap(), b"f");
    signal("KILL", keeps);
    let (serves, _) = both_without(&place, keeps);
    signal("KILL", serves);
    assert_eq!(fs::read(place.at("f")).unwrap(), b"f");
    both_without(&place, serves);
    place.unmounted();
}

#[test]
fn in_the_foreground_a_signal_ends_both() {
    let (origin, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
    let mount = place.in_foreground("s3://bucket", &origin.url(), &["--supervise"]);
    let (serves, keeps) = both(&place).unwrap();
    assert_eq!(keeps, mount.pid());
    assert_eq!(fs::read(place.at("f")).unwrap(), b"f");
    signal("KILL", serves);
    assert_eq!(fs::read(place.at("f")).unwrap(), b"f");
    signal("TERM", mount.pid());
    let ended = mount.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("another goes on"), "{}", ended.stderr);
    place.is_clear();
}

#[test]
fn what_cannot_be_mounted_is_said_by_the_command() {
    let (origin, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
    let failed = |source: &str| run(&mut place.mount(source, &origin.url(), &["--supervise"]));
    assert_ne!(failed("s3://nobody").code, Some(0));
    assert!(failed("s3://nobody").stderr.contains("nobody"), "{}", failed("s3://nobody").stderr);
    let over = Path::new("/dev/null");
    let mut command =
        place.flatout(&["mount", "s3://bucket", "/dev/null", "--supervise", "--no-sign-request"]);
    assert!(run(&mut command).stderr.contains("/dev/null") && over.exists());
    place.is_clear();
}
