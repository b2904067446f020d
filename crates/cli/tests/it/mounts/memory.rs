//! One budget for what is read ahead and for names: the daemon's peak of resident memory, as the kernel
//! counts it, under eight streams at once, many names, and readers that sleep. No timing: a peak is a peak
//! however long it takes. `scripts/memory.py FLATOUT streams names slow` has the same of a release build,
//! with a million names.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use flatout_server::{Options, Origin, Series, Store};

use super::Place;
use crate::program::{run, wait_until};

const MIB: u64 = 1 << 20;
/// The program itself, its threads' stacks, and what the allocator does not give back.
const BESIDES: u64 = 48 * MIB;
/// Of one name that the kernel knows, with what a listing keeps of it for a while; and what the first
/// requests take, once.
const NAME_BYTES: u64 = 320;
const FIRST: u64 = 16 * MIB;
/// Names in a folder.
const FOLDER: u64 = 15_000;

/// Objects `large-000` and so on in the root, and 15,000 small ones in each of so many folders.
fn origin(large: u64, bytes: u64, folders: u64) -> Origin {
    let large = Series::new("bucket", "large-%03d", large, bytes);
    let small = (0..folders).map(|n| Series::new("bucket", &format!("folder-{n:03}/name-%05d"), FOLDER, 1));
    let rows: Result<Vec<Series>, String> = std::iter::once(large).chain(small).collect();
    // As far away as an origin is: readers wait, and what is read ahead of them grows.
    let latency = Duration::from_millis(20);
    Origin::start(Options { latency, ..Options::new(Store::Synthetic(vec![], rows.unwrap())) }).unwrap()
}

/// `VmHWM` or `VmRSS` of the mount.
fn resident(place: &Place, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", place.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Its peak so far was no more than this and what it takes besides.
#[track_caller]
fn check(place: &Place, what: &str, promised: u64) {
    let peak = resident(place, "VmHWM");
    let (peak_mib, promised_mib) = (peak / MIB, promised / MIB);
    println!("{what}: {peak_mib} MiB at the peak, {promised_mib} MiB were promised");
    assert!(
        peak <= promised + BESIDES,
        "{what}: {peak_mib} MiB, promised {promised_mib} MiB\n{}",
        place.stats()
    );
}

fn open(place: &Place, number: u64, flags: i32) -> File {
    let name = place.at(&format!("large-{number:03}"));
    fs::OpenOptions::new().read(true).custom_flags(flags).open(name).unwrap()
}

/// How much there is up to the end, in reads of 1 MiB.
fn read_on(mut file: &File) -> u64 {
    let (mut buffer, mut all) = (vec![0; MIB as usize], 0);
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => return all,
            bytes => all += bytes as u64,
        }
    }
}

/// Eight large objects from beginning to end, all at once.
fn eight_streams(place: &Place, bytes: u64, flags: i32) {
    thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || assert_eq!(read_on(&open(place, number, flags)), bytes));
        }
    });
}

/// All names, so that the kernel knows them.
fn walk(folder: &Path) -> usize {
    let listed = run(Command::new("ls").arg("-lR").arg(folder)).clean();
    listed.text().lines().filter(|line| line.contains("name-")).count()
}

#[test]
fn eight_streams_stay_within_it() {
    const BYTES: u64 = 96 * MIB;
    let (origin, place) = (origin(8, BYTES, 0), Place::new());
    for (what, flags) in [("buffered", 0), ("direct", libc::O_DIRECT)] {
        place.mounted("s3://bucket", &origin.url(), &["--memory", "64MiB"]);
        eight_streams(&place, BYTES, flags);
        check(&place, what, 64 * MIB);
        place.unmounted();
    }
}

#[test]
fn readers_that_sleep_leave_it_to_others() {
    const BYTES: u64 = 64 * MIB;
    let (origin, place) = (origin(200, BYTES, 0), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--memory", "64MiB"]);
    // Each reads enough to be read ahead of.
    let slow: Vec<File> = (0..200).map(|number| open(&place, number, libc::O_DIRECT)).collect();
    let read_some = |mut file: &File| file.read_exact(&mut vec![0; MIB as usize]).unwrap();
    for _ in 0..2 {
        slow.iter().for_each(read_some);
    }
    assert_eq!(place.stats()["names"]["open_files_now"], 200);
    check(&place, "asleep", 64 * MIB);
    eight_streams(&place, BYTES, 0);
    check(&place, "asleep, and others read", 64 * MIB);
    // They go on where they were.
    slow.iter().for_each(read_some);
    assert_eq!(read_on(&slow[199]), BYTES - 3 * MIB);
    check(&place, "awake again", 64 * MIB);
    drop(slow);
    place.unmounted();
}

/// Names that the kernel knows have to stay: what is read ahead is less by their weight. When the kernel has
/// forgotten them, it is what it was.
#[test]
fn names_and_streams_have_one_budget() {
    const FOLDERS: u64 = 10;
    const NAMES: u64 = FOLDERS * FOLDER;
    const BYTES: u64 = 96 * MIB;
    let (origin, place) = (origin(8, BYTES, FOLDERS), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--memory", "64MiB"]);
    let before = resident(&place, "VmRSS");
    assert_eq!(walk(&place.mnt()) as u64, NAMES);
    let inodes = || place.stats()["names"]["inodes_now"].as_u64().unwrap();
    assert!(inodes() >= NAMES, "the kernel knows them: {}", place.stats());
    let taken = resident(&place, "VmHWM") - before;
    println!("{NAMES} names: {} MiB, {} bytes each", taken / MIB, taken / NAMES);
    assert!(taken <= FIRST + NAMES * NAME_BYTES, "{} bytes each: {}", taken / NAMES, place.stats());
    eight_streams(&place, BYTES, 0);
    check(&place, "streams beside names", 64 * MIB);

    // Dentries and inodes that nobody uses: the kernel tells the mount of each.
    let charged = || place.stats()["memory"]["names_bytes_now"].as_u64().unwrap();
    let before = charged();
    wait_until("the kernel to forget", || {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        inodes() <= 20_000
    });
    let after = charged();
    println!("names: {} MiB, then {} MiB", before / MIB, after / MIB);
    assert!(after < before / 2, "{}", place.stats());
    eight_streams(&place, BYTES, 0);
    // Some of what names took the allocator keeps for others; not the table itself.
    check(&place, "streams after names", 64 * MIB + taken / 2);
    place.unmounted();
}
