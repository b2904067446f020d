//! A mount that an outage falls into: readers and lookups wait for it, can be killed meanwhile, and go on
//! with the right bytes.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::lab::{Fault, Lab, Road};
use super::origin::{BUCKET, LARGE, LARGE_BODY, TREE, TREE_COUNT, small_body, small_name};
use super::runs::PATIENCE;
use crate::mounts::Mount;
use crate::program::signal;

/// Reads the file of the mount as it is told, compares it with the truth, and counts on standard output how
/// far it is: four hundred steps in all. Pages come whole, so that a step of a random reader is a request.
const READER: &str = r#"
import mmap, os, random, sys
how, path, truth = sys.argv[1:]
truth = open(truth, "rb").read()
file = os.open(path, os.O_RDONLY | (os.O_DIRECT if how == "random" else 0))
step = len(truth) // 400 // 4096 * 4096
places = [number * step for number in range(400)]
if how == "random":
    random.Random(1).shuffle(places)
if how == "mapped":
    whole = mmap.mmap(file, 0, prot=mmap.PROT_READ)
def read(at):
    if how == "mapped":
        return whole[at:at + step]
    # What ends at an error is shorter; the error comes with the rest.
    got = b""
    while len(got) < step:
        more = os.pread(file, step - len(got), at + len(got))
        assert more, f"the file ends at {at + len(got)}"
        got += more
    return got
for at in places:
    assert read(at) == truth[at:at + step], f"other bytes at {at}"
    os.write(1, b"\n")
"#;

/// Asks for each folder and what is in it.
const FINDER: &str = r#"cd "$1" && exec stdbuf --output=L find . -name inside -size +0 -print"#;

const KINDS: [&str; 4] = ["in order", "random", "mapped", "find"];

/// A program that reads below a mount, and what it has put out.
struct Reader {
    kind: &'static str,
    child: Child,
    mount: Mount,
    said: std::path::PathBuf,
}

impl Reader {
    /// With a mount of its own, which is slow enough for an outage to fall into it.
    fn start(lab: &Lab, kind: &'static str, more: &[&str]) -> Reader {
        let bandwidth = format!("{}KiB/s", LARGE_BODY.len() / 6 / 1024);
        // With little memory, so that not much of it is fetched ahead.
        let slow = match kind {
            "find" => ["--request-rate", "10", "--memory", "16MiB"],
            _ => ["--bandwidth", &bandwidth, "--memory", "16MiB"],
        };
        let origin: Vec<&str> = lab.arguments().iter().map(String::as_str).collect();
        let arguments = [&origin, &slow[..], more].concat();
        let mount = Mount::start(&lab.flatout(&[]), &format!("s3://{BUCKET}"), &arguments);
        let said = mount.beside("said");
        let mut command = if kind == "find" {
            let mut command = Command::new("sh");
            command.args(["-c", FINDER, "find"]).arg(mount.at(TREE));
            command
        } else {
            let truth = mount.beside("truth");
            fs::write(&truth, &*LARGE_BODY).unwrap();
            let mut command = Command::new("/usr/bin/python3");
            command.args(["-c", READER, kind]).arg(mount.at(LARGE)).arg(truth);
            command
        };
        command.stdin(Stdio::null()).stdout(fs::File::create(&said).unwrap());
        let child = command.stderr(fs::File::create(mount.beside("errors")).unwrap()).spawn().unwrap();
        Reader { kind, child, mount, said }
    }

    /// Lines that it has put out.
    fn steps(&self) -> usize {
        fs::read(&self.said).unwrap().iter().filter(|byte| **byte == b'\n').count()
    }

    /// Waits until it is in the middle of its work, and stops it there: others may need longer to begin. But
    /// for find(1), which takes a look-up that a signal interrupts for an error, and is slow.
    fn stop_in_the_middle(&mut self) {
        let begun = if self.kind == "find" { 10 } else { 40 };
        self.wait(|reader| reader.steps() >= begun);
        assert!(self.child.try_wait().unwrap().is_none(), "{}: ended before the outage", self.kind);
        if self.kind != "find" {
            signal("STOP", self.child.id());
        }
    }

    fn wait(&mut self, mut is_so: impl FnMut(&mut Reader) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < PATIENCE, "{}: stays at {} steps", self.kind, self.steps());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// It read all of it, and all was right.
    fn ends_well(&mut self) -> Option<String> {
        self.wait(|reader| reader.child.try_wait().unwrap().is_some());
        let status = self.child.wait().unwrap();
        let want = if self.kind == "find" { TREE_COUNT } else { 400 };
        let right = status.success() && self.steps() == want;
        (!right)
            .then(|| format!("{}: {status}, {} of {want} steps: {}", self.kind, self.steps(), self.errors()))
    }

    fn errors(&self) -> String {
        let folder = self.said.parent().unwrap();
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let errors = files.filter(|path| path.to_string_lossy().ends_with("-errors"));
        errors.map(|path| fs::read_to_string(path).unwrap()).collect()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reader of each kind, all in the middle of their work.
#[track_caller]
fn start_all(lab: &Lab, more: &[&str]) -> Vec<Reader> {
    let mut readers: Vec<Reader> = KINDS.iter().map(|kind| Reader::start(lab, kind, more)).collect();
    for reader in &mut readers {
        reader.stop_in_the_middle();
    }
    for reader in &readers {
        signal("CONT", reader.child.id());
    }
    readers
}

/// Readers of every kind ride out an outage of this length.
#[track_caller]
fn check(road: Road, fault: Fault, lasts: Duration) {
    let mut lab = Lab::new(road, fault);
    let mut readers = start_all(&lab, &[]);
    lab.go_away();
    thread::sleep(lasts);
    let before: Vec<usize> = readers.iter().map(Reader::steps).collect();
    let back = lab.come_back();
    for (reader, before) in readers.iter_mut().zip(before) {
        reader.wait(|reader| reader.steps() > before || reader.child.try_wait().unwrap().is_some());
        println!("{road:?}, {fault:?} for {lasts:?}, {}: on after {:?}", reader.kind, back.elapsed());
    }
    let wrong: Vec<String> = readers.iter_mut().filter_map(Reader::ends_well).collect();
    assert!(wrong.is_empty(), "{road:?}, {fault:?}:\n{}", wrong.join("\n"));
}

#[test]
fn readers_ride_out_refused_connections() {
    check(Road::Plain, Fault::Refused, Duration::from_secs(5));
}

#[test]
fn readers_ride_out_a_restart_of_minio() {
    check(Road::Plain, Fault::Killed, Duration::from_secs(5));
}

/// While the origin is away, and stays so, a signal ends who waits for it. The mount serves others when it is
/// back.
#[test]
fn a_reader_that_waits_for_an_origin_can_be_killed() {
    let mut lab = Lab::new(Road::Plain, Fault::Refused);
    let mut readers = start_all(&lab, &[]);
    lab.go_away();
    // Each has met the outage when it makes no step for a while: a step takes some 15 ms.
    for reader in &mut readers {
        let mut last = (reader.steps(), Instant::now());
        reader.wait(|reader| {
            let steps = reader.steps();
            if steps != last.0 {
                last = (steps, Instant::now());
            }
            last.1.elapsed() > Duration::from_secs(2)
        });
        assert!(reader.child.try_wait().unwrap().is_none(), "{} gave up: {}", reader.kind, reader.errors());
        signal("KILL", reader.child.id());
    }
    for reader in &mut readers {
        let start = Instant::now();
        reader.wait(|reader| reader.child.try_wait().unwrap().is_some());
        // The outage has no end here: it was the signal.
        assert!(start.elapsed() < Duration::from_secs(20), "{}: {:?}", reader.kind, start.elapsed());
    }
    lab.come_back();
    for reader in &readers {
        check_serves(&reader.mount);
    }
}

/// The mount reads the right bytes, from where nobody has read yet.
#[track_caller]
fn check_serves(mount: &Mount) {
    let number = TREE_COUNT - 1;
    let inside = fs::read(mount.at(&format!("{TREE}folder-{number:02}/inside"))).unwrap();
    assert!(inside == small_body(0), "other bytes");
    let file = fs::File::open(mount.at(LARGE)).unwrap();
    let mut page = [0; 4096];
    let at = LARGE_BODY.len() as u64 / 4096 * 4096 - 4096;
    file.read_exact_at(&mut page, at).unwrap();
    assert!(page[..8] == at.to_be_bytes(), "other bytes");
}

/// An outage longer than `--outage-timeout` is an error for who reads, and the mount serves again after it.
#[test]
fn a_longer_outage_is_an_error_of_the_mount() {
    let mut lab = Lab::new(Road::Plain, Fault::Refused);
    let patience = ["-o", "outage-timeout=2s"];
    let mut readers = start_all(&lab, &patience);
    lab.go_away();
    for reader in &mut readers {
        reader.wait(|reader| reader.child.try_wait().unwrap().is_some());
        let (status, said) = (reader.child.wait().unwrap(), reader.errors());
        let told = ["Input/output error", "timed out"].iter().any(|words| said.contains(words));
        // A page that cannot be had is SIGBUS: 7.
        let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(7);
        assert!(
            !status.success() && (told || reader.kind == "mapped" && killed),
            "{}: {status}: {said}",
            reader.kind
        );
    }
    lab.come_back();
    for reader in &readers {
        check_serves(&reader.mount);
    }
}

/// The mount waits from its first request on: an origin that is away when a name is looked up is waited for.
#[test]
fn a_first_lookup_waits_for_the_origin() {
    let mut lab = Lab::new(Road::Plain, Fault::Killed);
    let origin: Vec<&str> = lab.arguments().iter().map(String::as_str).collect();
    let mount = Mount::start(&lab.flatout(&[]), &format!("s3://{BUCKET}"), &origin);
    assert!(fs::read(mount.at(&format!("small/{}", small_name(7)))).unwrap() == small_body(7));
    lab.go_away();
    let inside = mount.at(&format!("{TREE}folder-42/inside"));
    let lookup = thread::spawn(move || fs::read(inside));
    thread::sleep(Duration::from_secs(5));
    assert!(!lookup.is_finished(), "{:?}", lookup.join().unwrap());
    lab.come_back();
    assert!(lookup.join().unwrap().unwrap() == small_body(0), "other bytes");
}
