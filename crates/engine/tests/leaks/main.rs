//! Thousands of transfers that go wrong in every way leave one process as it was: its descriptors, its
//! threads, its memory, and the folder. A binary of its own, since it counts what the whole process has.
//! `make leaks` takes ten thousand.
#![allow(clippy::unwrap_used)] // Test code throughout; clippy.toml's exception knows only functions marked #[test].

#[path = "../secure/certificates.rs"]
mod certificates;
mod faults;

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use certificates::{Authority, NOW};
use faults::{FAULTS, Faulty, SIZE};
use flatout_engine::{Client, Config, Error, Folder, Get, Landing, Wanted, stream};
use flatout_wire::location::Location;

/// Memory that may stay with the allocator and with the threads' stacks once they have been used: twice the
/// most that was seen (docs/numbers.md), and far under a KiB for each of ten thousand transfers.
const RSS_BYTES_MAX: u64 = 2 << 20;
const WARM_UP: usize = 600;
const PARALLEL: u32 = 4;
const SHARDS: u32 = 2;
/// Threads that call the one client.
const CALLERS: usize = 24;
/// Objects of one get of many: every fault a few times.
const MANY: usize = 60;

fn config(origin: &Faulty, authority: Option<&Authority>) -> Config {
    let mut config = Config::default();
    let scheme = if authority.is_some() { "https" } else { "http" };
    config.settings.endpoint_url = Some(format!("{scheme}://{}", origin.address));
    config.settings.ca_bundle = authority.map(Authority::bundle);
    config.settings.part_bytes = Some(SIZE / 4);
    config.settings.window_bytes = Some(SIZE);
    config.settings.parallel = Some(PARALLEL);
    config.settings.shards = SHARDS;
    config.settings.stall_timeout_ms = 20;
    config.settings.retries = 1;
    // Each failure is one of the attempts: an outage would be waited for.
    config.settings.outage_timeout_ms = 0;
    config
}

fn location(number: usize) -> Location {
    Location::parse(&format!("s3://bucket/{number}")).expect("a location")
}

/// One object by the landing that its number chooses, or cancelled on its way.
fn one(client: &Client, number: usize, folder: &Path) -> Result<(), Error> {
    let get = |landing| client.get(Get::new(location(number), landing));
    // Each fault meets each landing: the numbers of both have no common factor.
    match number % 5 {
        0 => get(Landing::Nowhere)?.wait().map(drop),
        1 => get(Landing::File(folder.join("file")))?.wait().map(drop),
        2 => client.get_into(&location(number), Default::default(), &mut vec![0; SIZE as usize]).map(drop),
        3 => {
            let (writer, mut reader) = stream();
            let transfer = get(Landing::Stream(writer))?;
            // Every other reader has enough after the first chunk.
            while reader.next().is_some() && number.is_multiple_of(2) {}
            drop(reader);
            transfer.wait().map(drop)
        }
        _ => {
            let transfer = get(Landing::File(folder.join("cancelled")))?;
            transfer.wait_timeout(Duration::from_millis(number as u64 % 3));
            drop(transfer);
            Ok(())
        }
    }
}

fn many(client: &Client, numbers: Range<usize>, folder: &Path) -> usize {
    let wanted = |number: usize| Wanted {
        location: location(number),
        size: Some(if number.is_multiple_of(2) { SIZE } else { SIZE / 8 }),
        name: format!("{number:06}"),
        keep_existing: false,
        modified_ns: None,
    };
    let wanted: Vec<_> = numbers.map(|number| Ok(wanted(number))).collect();
    let folder = Folder::open(folder).expect("the folder");
    let mut many = client.get_many(&location(0), wanted.into_iter(), Some(folder)).expect("it starts");
    let mut failed = 0;
    while let Some(ended) = many.next(Duration::from_millis(20)) {
        failed += ended.iter().filter(|finished| finished.result.is_err()).count();
    }
    failed
}

/// Runs `count` transfers by [`CALLERS`] threads and gives the number of those that failed.
fn transfers(client: &Client, count: usize) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let share = |caller: usize| caller * count / CALLERS..(caller + 1) * count / CALLERS;
    let failed = std::thread::scope(|scope| {
        let call = |caller| {
            scope.spawn({
                let folder = folder.path();
                let numbers = share(caller);
                move || calls(client, numbers, folder)
            })
        };
        let blocking_pool: Vec<_> = (0..CALLERS).map(call).collect();
        blocking_pool.into_iter().map(|caller| caller.join().expect("no panic")).sum()
    });
    let left = std::fs::read_dir(folder.path()).expect("the folder").flatten();
    let left: Vec<_> =
        left.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert!(left.is_empty(), "temporary files were left: {left:?}");
    failed
}

/// Objects one by one and many at once, in turn.
fn calls(client: &Client, numbers: Range<usize>, folder: &Path) -> usize {
    let (mut number, mut failed) = (numbers.start, 0);
    while number < numbers.end {
        if (number / MANY).is_multiple_of(2) {
            failed += usize::from(one(client, number, folder).is_err());
            number += 1;
        } else {
            let end = numbers.end.min(number + MANY);
            failed += many(client, number..end, folder);
            number = end;
        }
    }
    failed
}

#[derive(Debug, PartialEq, Eq)]
struct Counts {
    descriptors: usize,
    threads: usize,
}

fn counts() -> Counts {
    let entries = |folder: &str| std::fs::read_dir(folder).expect("proc is mounted").count();
    Counts { descriptors: entries("/proc/self/fd"), threads: entries("/proc/self/task") }
}

/// What each descriptor leads to.
fn descriptors() -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("proc is mounted").flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

/// What is left when connections and threads have had time to end.
fn settled(expected: &Counts) -> Counts {
    let start = Instant::now();
    while counts() != *expected && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    counts()
}

fn rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel tells it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn faulty_transfers_leave_the_process_as_it_was() {
    let count = std::env::var("FLATOUT_LEAKS").map_or(1_200, |count| count.parse().expect("a number"));
    // Where a crate of the workspace wants signals of it, tokio makes a pair of sockets for them, once for
    // the process.
    drop(tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"));
    round(count, None);
    // Most of these cost a handshake: a quarter of them is enough.
    round(count / 4, Some(&Authority::new()));
}

/// Transfers of one client, in plain or over TLS.
fn round(count: usize, authority: Option<&Authority>) {
    let identity = authority.map(|authority| authority.identity(&["127.0.0.1"], NOW));
    let origin = Faulty::start(identity.as_ref());
    let before = counts();
    let client = Client::new(config(&origin, authority)).expect("good settings");
    transfers(&client, WARM_UP.min(count));
    // With a client that lives on: what it keeps is its own threads and idle connections.
    let (threads, rss) = (counts().threads, rss_bytes());
    let begun = Instant::now();
    let failed = transfers(&client, count);
    let seconds = begun.elapsed().as_secs_f64();
    let grown = rss_bytes().saturating_sub(rss);
    let way = if authority.is_some() { "over TLS" } else { "in plain" };
    println!(
        "{count} transfers {way} in {seconds:.1} s, {failed} of them failed; resident memory grew by {} KiB",
        grown >> 10
    );
    let kept = counts().threads.saturating_sub(threads);
    // Of eleven kinds of answers one is right; of what is asked for one by one, which is half, a fifth is
    // cancelled.
    let share = failed * 100 / count;
    assert!((75..=90).contains(&share), "{failed} of {count} failed: {} kinds of answers", FAULTS.len());
    // AddressSanitizer keeps what was freed for a while, and looks for leaks itself.
    let is_counted = std::env::var_os("ASAN_OPTIONS").is_none();
    assert!(grown < RSS_BYTES_MAX || !is_counted, "{grown} bytes of memory more");
    // The origin has a thread for each connection, and a shard keeps so many idle ones.
    assert!(kept <= (PARALLEL * SHARDS) as usize, "{kept} threads more");
    drop(client);
    assert_eq!(settled(&before), before, "with the client all is gone: {:?}", descriptors());
}
