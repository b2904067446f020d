//! `--memory` is kept: the peak of the program's resident memory, as the kernel counts it, is never over the
//! promise and 64 MiB. No timing: a peak is a peak however long it takes.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flatout_server::{Options, Origin, Series, Store};

use crate::folder::Folder;
use crate::objects::{bytes, start, synthetic};
use crate::program::{Ended, ended, flatout, wait_until};

const MIB: u64 = 1 << 20;
/// The program itself, its threads' stacks, and what the allocator does not give back.
const BESIDES: u64 = 64 * MIB;

/// A run whose peak is looked at until it ends.
struct Watched {
    child: Child,
    peak: Arc<AtomicU64>,
    watch: JoinHandle<()>,
}

impl Watched {
    fn start(mut command: Command, input: Stdio) -> Watched {
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let (peak, id) = (Arc::<AtomicU64>::default(), child.id());
        let seen = peak.clone();
        // The peak only grows, so that the last look before the end has nearly all of it.
        let watch = thread::spawn(move || {
            while let Some(bytes) = peak_bytes(id) {
                seen.store(bytes, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
        Watched { child, peak, watch }
    }

    fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Its end, which is a good one, and its peak.
    #[track_caller]
    fn end(self, promised: u64) -> (Ended, u64) {
        let ended = ended(self.child.wait_with_output().unwrap());
        self.watch.join().unwrap();
        let peak = self.peak.load(Ordering::Relaxed);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let (peak_mib, promised_mib) = (peak / MIB, promised / MIB);
        println!("{peak_mib} MiB at the peak, {promised_mib} MiB were promised");
        assert!(peak > 0 && peak <= promised + BESIDES, "{peak_mib} MiB, promised {promised_mib} MiB");
        (ended, peak)
    }
}

/// `VmHWM` of a process; `None` once it has ended.
fn peak_bytes(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

fn begin(arguments: &[&str], origin: &Origin) -> Watched {
    begin_with(Stdio::null(), arguments, origin)
}

fn begin_with(input: Stdio, arguments: &[&str], origin: &Origin) -> Watched {
    let mut command = flatout(arguments);
    command.args(["--endpoint-url", &origin.url(), "--no-progress"]);
    Watched::start(command, input)
}

/// How many bytes there are until the end.
fn read_all(stdout: &mut ChildStdout) -> u64 {
    std::io::copy(stdout, &mut std::io::sink()).unwrap()
}

/// As much in flight as `--memory 64MiB` holds four times.
const MUCH: [&str; 4] = ["--parallel", "32", "--part-size", "8MiB"];

#[test]
fn a_stream_stays_within_its_memory() {
    const SIZE: u64 = 384 * MIB;
    let origin = synthetic(SIZE);
    let mut run = begin(&[&["cat", "s3://demo/object", "--memory", "64MiB"], &MUCH[..]].concat(), &origin);
    assert_eq!(read_all(&mut run.child.stdout.take().unwrap()), SIZE);
    run.end(64 * MIB);
}

#[test]
fn a_stream_whose_reader_sleeps_stays_within_its_memory() {
    const SIZE: u64 = 384 * MIB;
    let origin = synthetic(SIZE);
    let mut run = begin(&[&["cat", "s3://demo/object", "--memory", "96MiB"], &MUCH[..]].concat(), &origin);
    let mut stdout = run.child.stdout.take().unwrap();
    // It reads ahead as far as it may, and then waits.
    wait_until("the window to fill", || run.peak() > 72 * MIB);
    thread::sleep(Duration::from_millis(500));
    let mut some = vec![0; 3 * MIB as usize];
    stdout.read_exact(&mut some).unwrap();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(read_all(&mut stdout), SIZE - some.len() as u64);
    run.end(96 * MIB);
}

#[test]
fn a_file_takes_hardly_any() {
    let (origin, folder) = (synthetic(256 * MIB), tempfile::tempdir().unwrap());
    let target = folder.path().join("file");
    let arguments = ["cp", "s3://demo/object", target.to_str().unwrap(), "--memory", "16MiB"];
    begin(&[&arguments, &MUCH[..]].concat(), &origin).end(16 * MIB);
    assert_eq!(target.metadata().unwrap().len(), 256 * MIB);
}

/// Keys of 600 bytes and a number.
fn row(count: u64) -> Series {
    let name = "n".repeat(200);
    Series::new("demo", &format!("{name}/{name}/{name}%07d"), count, 100).unwrap()
}

/// Their keys alone are more than what was promised.
#[test]
fn many_small_objects_stay_within_their_memory() {
    const COUNT: u64 = 40_000;
    let origin = start(Store::Synthetic(vec![], vec![row(COUNT)]), None);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().to_str().unwrap();
    let run = begin(&["cp", "-r", "s3://demo", target, "--memory", "16MiB", "--parallel", "16"], &origin);
    run.end(16 * MIB);
    let name = "n".repeat(200);
    let files = std::fs::read_dir(folder.path().join(format!("{name}/{name}"))).unwrap();
    assert_eq!(files.count() as u64, COUNT);
}

#[test]
fn a_listing_is_shown_page_by_page() {
    let origin = start(Store::Synthetic(vec![], vec![row(30_000)]), None);
    let mut run = begin(&["ls", "-r", "s3://demo/", "--memory", "16MiB"], &origin);
    assert!(read_all(&mut run.child.stdout.take().unwrap()) > 30_000 * 600);
    run.end(16 * MIB);
}

/// An origin that takes what it is sent and keeps none of it.
fn sink() -> Origin {
    Origin::start(Options { sink: true, ..Options::new(Store::Memory) }).unwrap()
}

/// How many bytes the program says that it has sent.
fn sent(ended: &Ended) -> u64 {
    ended.events().last().unwrap()["bytes"].as_u64().unwrap()
}

/// As fast as the origin takes it: whoever writes is faster.
#[test]
fn a_stream_that_is_sent_stays_within_its_memory() {
    const SIZE: u64 = 384 * MIB;
    let origin = sink();
    let arguments = ["cp", "-", "s3://demo/object", "--json", "--memory", "64MiB"];
    let mut run = begin_with(Stdio::piped(), &[&arguments, &MUCH[..]].concat(), &origin);
    let mut input = run.child.stdin.take().unwrap();
    let piece = bytes(MIB as usize);
    for _ in 0..SIZE / MIB {
        input.write_all(&piece).unwrap();
    }
    drop(input);
    let (ended, _) = run.end(64 * MIB);
    assert_eq!(sent(&ended), SIZE);
}

#[test]
fn a_file_that_is_sent_takes_hardly_any() {
    const SIZE: u64 = 256 * MIB;
    let (origin, folder) = (sink(), Folder::new());
    let (path, piece) = (folder.at("file"), bytes(MIB as usize));
    let mut file = fs::File::create(&path).unwrap();
    for _ in 0..SIZE / MIB {
        file.write_all(&piece).unwrap();
    }
    let arguments = ["cp", &path, "s3://demo/object", "--json", "--memory", "64MiB"];
    let (ended, _) = begin(&[&arguments, &MUCH[..]].concat(), &origin).end(64 * MIB);
    assert_eq!(sent(&ended), SIZE);
}

/// Each is read whole before it is sent: four of them are what was promised.
#[test]
fn many_files_that_are_sent_stay_within_their_memory() {
    const COUNT: u64 = 24;
    let (origin, folder) = (sink(), Folder::new());
    let root = folder.at("data");
    fs::create_dir(&root).unwrap();
    let first = format!("{root}/00");
    fs::write(&first, bytes(15 * MIB as usize)).unwrap();
    // Names of one file: only the program's memory matters here.
    (1..COUNT).for_each(|number| fs::hard_link(&first, format!("{root}/{number:02}")).unwrap());
    let arguments = ["cp", "-r", &root, "s3://demo/many", "--json", "--memory", "64MiB", "--parallel", "32"];
    let (ended, _) = begin(&arguments, &origin).end(64 * MIB);
    assert_eq!(sent(&ended), COUNT * 15 * MIB);
}
