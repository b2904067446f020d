//! Large files that go on from where an earlier run was cut off, however that was, and never with a wrong
//! byte.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatout_server::{Options, Origin, Store, synthetic_bytes};
use serde_json::Value;

use super::folder::{EARLIER, Folder, names};
use super::objects::bytes;
use super::program::{Ended, ended, flatout, run, signal, wait_until};
use super::raw::{Answer, Asked, Raw, Then, right};

pub const MIB: u64 = 1 << 20;
/// A journal's record of one block.
const RECORD_BYTES: u64 = 24;

/// An origin that gives a made-up object at a rate that leaves time to be killed in.
pub fn slow(size: u64, rate: u64) -> Origin {
    let objects = vec![("demo".into(), "object".into(), size)];
    let mut options = Options::new(Store::Synthetic(objects, vec![]));
    options.total = Some(rate.into());
    Origin::start(options).expect("an origin on a free port")
}

pub fn made_up(key: &str, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    synthetic_bytes("demo", key, 0..size, &mut bytes);
    bytes
}

/// An object of which everything comes but the end of the last part, unless told otherwise.
pub struct Stuck {
    raw: Raw,
    pub object: Vec<u8>,
}

/// Thirteen blocks, the last a short one.
pub const SIZE: u64 = 12 * MIB + 12_345;

impl Stuck {
    pub fn new() -> Stuck {
        Stuck::ending(Then::Silence)
    }

    /// How the last part's answer goes on after half of it.
    fn ending(then: Then) -> Stuck {
        let object = bytes(SIZE as usize);
        let served = object.clone();
        let raw = Raw::start(move |asked| {
            let mut answer = right(asked, &served, "\"one\"");
            let range = asked.range(served.len());
            if asked.method() == "GET" && range.end == served.len() {
                answer.bytes.truncate(answer.bytes.len() - range.len() / 2);
                answer.then = then;
            }
            answer
        });
        Stuck { raw, object }
    }

    pub fn cp(&self, target: &str) -> Command {
        cp(&self.raw, target)
    }

    /// Starts it, and waits until all is there that comes.
    fn begin(&self, target: &str) -> Child {
        begin(&mut self.cp(target), || noted(target) >= 12)
    }
}

/// A copy in parts of a block each, so that only the last lacks anything.
pub fn cp(raw: &Raw, target: &str) -> Command {
    let endpoint = format!("http://{}", raw.address);
    flatout(&["cp", "s3://b/object", target, "--endpoint-url", &endpoint, "--part-size", "1MiB", "--json"])
}

pub fn whole(object: &[u8], etag: &'static str) -> Raw {
    let object = object.to_vec();
    Raw::start(move |asked| right(asked, &object, etag))
}

pub fn begin(command: &mut Command, until: impl Fn() -> bool) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("what is to have landed", until);
    child
}

pub fn kill(mut child: Child) {
    child.kill().unwrap();
    assert_eq!(end(child).code, None, "by the signal");
}

fn end(child: Child) -> Ended {
    ended(child.wait_with_output().unwrap())
}

/// Temporary files beside a target, those of journals last.
fn pair(target: &str) -> Option<(PathBuf, PathBuf)> {
    let target = Path::new(target);
    let (folder, name) = (target.parent()?, target.file_name()?.to_str()?);
    let is_it =
        |found: &&String| found.starts_with(&format!(".{name}.flatout-")) && found.ends_with("-0.journal");
    let journal = names(folder).iter().find(is_it)?.clone();
    let pair = (folder.join(journal.strip_suffix(".journal")?), folder.join(&journal));
    pair.0.exists().then_some(pair)
}

/// Blocks that stand in a journal; its beginning is as long as this one's.
pub fn noted(target: &str) -> u64 {
    let Some((_, journal)) = pair(target) else { return 0 };
    let Ok(content) = fs::read(journal) else { return 0 };
    let Some(body) = content.get(12..16) else { return 0 };
    let head = 20 + u64::from(u32::from_le_bytes(body.try_into().unwrap()));
    (content.len() as u64).saturating_sub(head) / RECORD_BYTES
}

pub fn temporaries(folder: &Path) -> Vec<String> {
    names(folder).into_iter().filter(|name| name.contains(".flatout-")).collect()
}

/// The object's event of a run that ended well.
#[track_caller]
pub fn object_of(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.events().into_iter().find(|event| event["event"] == "object").expect("an object's event")
}

#[track_caller]
fn number(event: &Value, field: &str) -> u64 {
    event[field].as_u64().unwrap_or_else(|| panic!("{field} of {event}"))
}

#[test]
fn killed_at_any_moment_it_goes_on_and_fetches_nothing_twice_that_was_noted() {
    let size = 40 * MIB + 4_321;
    let origin = slow(size, 48 * MIB);
    let right = made_up("object", size);
    let copy = |target: &str| {
        flatout(&[
            "cp",
            "s3://demo/object",
            target,
            "--endpoint-url",
            &origin.url(),
            "--json",
            "--part-size",
            "3MiB",
        ])
    };
    let mut resumed_ever = 0;
    for seed in 0..12_u64 {
        let folder = Folder::new();
        // Over an earlier file, and where there is none.
        let target = folder.at(if seed % 2 == 0 { "model" } else { "new" });
        let is_done = || fs::metadata(&target).is_ok_and(|found| found.len() == size);
        let is_time = || match seed {
            // Before anything is there.
            0 | 1 => true,
            // As soon as there is a file.
            2 | 3 => !temporaries(folder.path()).is_empty(),
            _ => noted(&target) >= (seed - 3) * 4,
        };
        let child = begin(&mut copy(&target), || is_done() || is_time());
        // The next batch may be half written by then.
        std::thread::sleep(Duration::from_millis((seed * 37) % 130));
        let before = noted(&target);
        kill_if_alive(child);
        let was_cut = pair(&target).is_some();
        if seed % 2 == 0 && was_cut {
            assert_eq!(fs::read(&target).unwrap(), EARLIER, "seed {seed}");
        }
        let mut ended = run(&mut copy(&target));
        // Killed between the making of the journal and its first bytes.
        if before == 0 && ended.stderr.contains("it is no journal") {
            ended.stderr.clear();
        }
        let ended = ended.clean();
        let object = object_of(&ended);
        let (resumed, fetched) = (number(&object, "resumed"), number(&object, "fetched"));
        // The last block is a short one.
        let worth = before.saturating_sub(1) * MIB;
        assert!(resumed >= worth || !was_cut, "seed {seed}: {before} blocks were noted: {object}");
        assert!(resumed + fetched <= size, "seed {seed}: {object}");
        assert_eq!(
            (number(&object, "bytes"), number(&object, "retries")),
            (size, 0),
            "seed {seed}: {object}"
        );
        assert!(!object["verified"].as_str().unwrap().starts_with("none"), "seed {seed}: {object}");
        assert!(fs::read(&target).unwrap() == right, "seed {seed}: other bytes");
        assert_eq!(temporaries(folder.path()), [""; 0], "seed {seed}");
        resumed_ever += resumed;
    }
    assert!(resumed_ever > size, "of twelve runs hardly one went on: {resumed_ever}");
}

/// It may have ended meanwhile.
fn kill_if_alive(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_again_and_again_it_comes_to_an_end() {
    let stuck = Stuck::new();
    let folder = Folder::new();
    let target = folder.at("new");
    for _ in 0..3 {
        kill(stuck.begin(&target));
    }
    let raw = whole(&stuck.object, "\"one\"");
    let object = object_of(&run(&mut cp(&raw, &target)).clean());
    assert_eq!(number(&object, "resumed"), 12 * MIB);
    assert_eq!(number(&object, "fetched"), SIZE - 12 * MIB);
    assert_eq!(fs::read(&target).unwrap(), stuck.object);
    assert_eq!(temporaries(folder.path()), [""; 0]);
}

#[test]
fn the_large_ones_of_many_go_on() {
    let size = 24 * MIB;
    let objects = [("d/large", size), ("d/small", 1000), ("e", 2000)];
    let listed = objects.map(|(key, size)| ("demo".to_owned(), key.to_owned(), size));
    let mut options = Options::new(Store::Synthetic(listed.to_vec(), vec![]));
    options.total = Some((24 * MIB).into());
    let origin = Origin::start(options).expect("an origin on a free port");
    for end_by in ["KILL", "INT"] {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("new");
        let path = folder.to_str().unwrap();
        let copy = || {
            flatout(&[
                "cp",
                "-r",
                "s3://demo/",
                path,
                "--endpoint-url",
                &origin.url(),
                "--json",
                "--part-size",
                "2MiB",
            ])
        };
        let large = folder.join("d/large");
        let large = large.to_str().unwrap();
        let there = || folder.join("d").exists() && noted(large) >= 5 && folder.join("e").exists();
        let child = begin(&mut copy(), there);
        signal(end_by, child.id());
        let ended = end(child);
        if end_by == "INT" {
            assert_eq!(ended.code, Some(130), "{}", ended.stderr);
            assert!(ended.stderr.contains("hint: run it again: of the large files"), "{}", ended.stderr);
        }
        assert_eq!(temporaries(&folder.join("d")).len(), 2, "{:?}", names(&folder.join("d")));
        let ended = run(&mut copy()).clean();
        let events = ended.events();
        let summary = events.last().unwrap();
        assert!(number(summary, "resumed") >= 5 * MIB, "{end_by}: {summary}");
        assert!(number(summary, "fetched") < size, "{end_by}: {summary}");
        for (key, size) in objects {
            assert!(fs::read(folder.join(key)).unwrap() == made_up(key, size), "{end_by}: {key}");
        }
        assert_eq!(temporaries(&folder.join("d")), [""; 0]);
    }
}

#[test]
fn of_many_a_changed_one_starts_over_and_says_so() {
    let of = |size| {
        let objects = vec![("demo".into(), "object".into(), size), ("demo".into(), "small".into(), 1000)];
        let mut options = Options::new(Store::Synthetic(objects, vec![]));
        options.total = Some((6 * MIB).into());
        Origin::start(options).expect("an origin on a free port")
    };
    for size in [20 * MIB, 5000] {
        let (before, after, base) = (of(24 * MIB), of(size), tempfile::tempdir().unwrap());
        let copy = |origin: &Origin| {
            let path = base.path().to_str().unwrap();
            flatout(&["cp", "-r", "s3://demo/", path, "--endpoint-url", &origin.url(), "--json"])
        };
        let large = base.path().join("object");
        kill(begin(&mut copy(&before), || noted(large.to_str().unwrap()) >= 5));
        let ended = run(&mut copy(&after));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("s3://demo/object: started over"), "{}", ended.stderr);
        let events = ended.events();
        let event = events.iter().find(|event| event["key"] == "object").expect("its event");
        let note = event["note"].as_str().unwrap_or_default();
        assert!(note.contains("ETag was") || note.contains("size was"), "{event}");
        assert!(fs::read(&large).unwrap() == made_up("object", size), "{size}: other bytes");
        assert_eq!(temporaries(base.path()), [""; 0]);
    }
}

#[test]
fn what_is_cut_off_says_what_it_is_worth_and_keeps_no_more_than_that() {
    for name in ["INT", "TERM"] {
        let (stuck, folder) = (Stuck::new(), Folder::new());
        let target = folder.at("new");
        let child = stuck.begin(&target);
        signal(name, child.id());
        let says = ["s3://b/object", "cancelled", "hint: run it again to go on from 12MiB"];
        let said = end(child).refused(130, &says).stderr;
        let (file, journal) = pair(&target).expect("a pair");
        let where_it_lies = format!("the unfinished file is {}: removing", folder.at(".new.flatout-*"));
        assert!(
            said.contains(&where_it_lies) && file.display().to_string().contains("/.new.flatout-"),
            "{said}"
        );
        assert_eq!(fs::metadata(&file).unwrap().len(), 12 * MIB, "what was reserved is given back");
        assert!(fs::metadata(&journal).unwrap().len() < 1000);
        assert_eq!(temporaries(folder.path()).len(), 2);
        // In words, too.
        let raw = whole(&stuck.object, "\"one\"");
        let endpoint = format!("http://{}", raw.address);
        let ended = run(&mut flatout(&["cp", "s3://b/object", &target, "--endpoint-url", &endpoint])).clean();
        assert!(ended.text().contains("12MiB, resumed: 12MiB of it in"), "{}", ended.text());
        assert_eq!(fs::read(&target).unwrap(), stuck.object);
        assert_eq!(temporaries(folder.path()), [""; 0]);
    }
}

#[test]
fn what_the_network_broke_off_goes_on_and_what_is_worthless_goes() {
    let folder = Folder::new();
    let target = folder.at("new");
    let broken = Stuck::ending(Then::Close);
    let failed = run(broken.cp(&target).args(["--retries", "0", "--parallel", "1"]));
    failed.refused(1, &["s3://b/object", "run it again to go on from 12MiB"]);
    assert_eq!(temporaries(folder.path()).len(), 2);
    // Not there any more: it is of no use, and its room is needed.
    let gone = Raw::start(|_| Answer::new("404 Not Found", &[("Content-Length", "0")], b""));
    run(&mut cp(&gone, &target)).refused(1, &["s3://b/object"]);
    assert_eq!(temporaries(folder.path()), [""; 0]);
    // Whole, and not what the origin says it is.
    let object = bytes(SIZE as usize);
    let other = Raw::start(move |asked| match asked.method() {
        "HEAD" => {
            let length = SIZE.to_string();
            let headers = [
                ("Content-Length", length.as_str()),
                ("ETag", "\"one\""),
                ("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="),
                ("x-amz-checksum-type", "FULL_OBJECT"),
            ];
            Answer::new("200 OK", &headers, b"")
        }
        _ => right(asked, &object, "\"one\""),
    });
    run(&mut cp(&other, &target)).refused(1, &["not those of the origin"]);
    folder.is_untouched();
}

#[test]
fn without_resume_nothing_is_kept_and_nothing_used() {
    let (stuck, folder) = (Stuck::new(), Folder::new());
    let target = folder.at("new");
    kill(stuck.begin(&target));
    let raw = whole(&stuck.object, "\"one\"");
    let object = object_of(&run(cp(&raw, &target).arg("--no-resume")).clean());
    assert_eq!((number(&object, "resumed"), number(&object, "fetched")), (0, SIZE));
    assert_eq!(temporaries(folder.path()), [""; 0]);

    let broken = Stuck::ending(Then::Close);
    let failed =
        run(broken.cp(&folder.at("other")).args(["--retries", "0", "--parallel", "1", "--no-resume"]))
            .refused(1, &[]);
    assert!(!failed.stderr.contains("run it again"), "{}", failed.stderr);
    assert_eq!(temporaries(folder.path()), [""; 0]);
}

#[test]
fn another_version_or_object_starts_over_and_says_so() {
    let other: Vec<u8> = bytes(SIZE as usize).into_iter().rev().collect();
    let shorter = other[..9 << 20].to_vec();
    let small = other[..100].to_vec();
    for (object, etag, says) in [
        (&other, "\"two\"", "ETag was \"one\", now \"two\""),
        (&shorter, "\"one\"", "size was 12595257, now 9437184"),
        (&other, "W/\"one\"", "does not tell by an ETag"),
        (&small, "\"two\"", "ETag was \"one\", now \"two\""),
    ] {
        let (stuck, folder) = (Stuck::new(), Folder::new());
        let target = folder.at("new");
        kill(stuck.begin(&target));
        let raw = whole(object, etag);
        let ended = run(&mut cp(&raw, &target));
        let event = object_of(&ended);
        assert!(ended.stderr.contains("started over"), "{}", ended.stderr);
        assert!(event["note"].as_str().unwrap_or_default().contains(says), "{event}");
        assert_eq!(number(&event, "resumed"), 0, "{event}");
        assert!(fs::read(&target).unwrap() == *object, "{etag}: other bytes");
        assert_eq!(temporaries(folder.path()), [""; 0]);
    }
    // The same target, and another object.
    let (stuck, folder) = (Stuck::new(), Folder::new());
    let target = folder.at("new");
    kill(stuck.begin(&target));
    let raw = whole(&other, "\"one\"");
    let endpoint = format!("http://{}", raw.address);
    let ended = run(&mut flatout(&["cp", "s3://b/another", &target, "--endpoint-url", &endpoint, "--json"]));
    let event = object_of(&ended);
    assert!(event["note"].as_str().unwrap_or_default().contains("it was s3://b/object"), "{event}");
    assert!(fs::read(&target).unwrap() == other);
}

#[test]
fn whatever_is_damaged_never_a_wrong_byte() {
    let (stuck, base) = (Stuck::new(), Folder::new());
    kill(stuck.begin(&base.at("new")));
    let (file, journal) = pair(&base.at("new")).expect("a pair");
    let raw = whole(&stuck.object, "\"one\"");
    let left = [&file, &journal].map(|path| fs::read(path).unwrap());
    let mut resumed_sometimes = 0;
    for seed in 0..48_u64 {
        let folder = Folder::new();
        let mut damaged = left.clone();
        let mut chance = seed;
        let mut below = |bound: usize| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) as usize % bound
        };
        let which = (seed % 2) as usize;
        for _ in 0..=below(3) {
            let at = below(damaged[which].len());
            match seed % 6 {
                // A byte, a page of zeros, the end.
                0 | 1 => damaged[which][at] ^= 1 + below(255) as u8,
                2 | 3 => damaged[which].iter_mut().skip(at).take(4096).for_each(|byte| *byte = 0),
                _ => damaged[which].truncate(at.max(1)),
            }
            if damaged[which].len() < 2 {
                break;
            }
        }
        for (path, content) in [&file, &journal].into_iter().zip(&damaged) {
            fs::write(folder.path().join(path.file_name().unwrap()), content).unwrap();
        }
        let ended = run(&mut cp(&raw, &folder.at("new")));
        let event = object_of(&ended);
        assert!(fs::read(folder.at("new")).unwrap() == stuck.object, "seed {seed}: wrong bytes");
        let (resumed, fetched) = (number(&event, "resumed"), number(&event, "fetched"));
        assert!(resumed + fetched <= SIZE && resumed <= 12 * MIB, "seed {seed}: {event}");
        let lost = resumed < 12 * MIB;
        let is_torn = which == 1 && seed % 6 > 3;
        assert!(!lost || event["note"].is_string() || is_torn, "seed {seed}: {event}");
        assert_eq!(temporaries(folder.path()), [""; 0], "seed {seed}");
        resumed_sometimes += u64::from(resumed > 0);
    }
    assert!(resumed_sometimes > 20, "{resumed_sometimes} of 48");
}

/// What stands beside a target, and what becomes of it.
fn check_left(what: &str, change: impl Fn(&mut Vec<u8>, &mut Vec<u8>), resumed: u64, says: Option<&str>) {
    let (stuck, folder) = (Stuck::new(), Folder::new());
    let target = folder.at("new");
    kill(stuck.begin(&target));
    let (file, journal) = pair(&target).expect("a pair");
    let [mut content, mut noted] = [&file, &journal].map(|path| fs::read(path).unwrap());
    change(&mut content, &mut noted);
    fs::write(&file, content).unwrap();
    fs::write(&journal, noted).unwrap();
    let ended = run(&mut cp(&whole(&stuck.object, "\"one\""), &target));
    let event = object_of(&ended);
    assert_eq!(number(&event, "resumed"), resumed, "{what}: {event}");
    match says {
        None => assert!(event["note"].is_null() && ended.stderr.is_empty(), "{what}: {event}"),
        Some(says) => {
            assert!(event["note"].as_str().is_some_and(|note| note.contains(says)), "{what}: {event}");
            assert!(ended.stderr.contains(says), "{what}: {}", ended.stderr);
        }
    }
    assert!(fs::read(&target).unwrap() == stuck.object, "{what}: wrong bytes");
    assert_eq!(temporaries(folder.path()), [""; 0], "{what}");
}

#[test]
fn a_journal_in_any_state_goes_on_or_starts_over_and_says_why() {
    let all = 12 * MIB;
    let block = RECORD_BYTES as usize;
    check_left("as it was", |_, _| (), all, None);
    check_left(
        "empty",
        |_, noted| noted.clear(),
        0,
        Some("started over: what an earlier run left is of no use"),
    );
    check_left("foreign", |_, noted| *noted = b"{\"some\": \"json\"}".repeat(9), 0, Some("it is no journal"));
    check_left("newer", |_, noted| noted[8] += 1, 0, Some("another version of flatout wrote it"));
    check_left("a head cut off", |_, noted| noted.truncate(40), 0, Some("its beginning is damaged"));
    check_left("another name in the head", |_, noted| noted[50] ^= 1, 0, Some("its beginning is damaged"));
    check_left("a record torn", |_, noted| noted.truncate(noted.len() - 5), all - MIB, None);
    check_left("no records", |_, noted| noted.truncate(noted.len() - 12 * block), 0, None);
    let spoil = |_: &mut Vec<u8>, noted: &mut Vec<u8>| {
        let at = noted.len() - 3 * block;
        noted[at] ^= 1;
    };
    check_left("a record spoilt", spoil, all - MIB, Some("is damaged: one of its blocks"));
    let zeros = |_: &mut Vec<u8>, noted: &mut Vec<u8>| {
        let at = noted.len() - 3 * block;
        noted[at..].fill(0);
    };
    check_left(
        "records that never reached the disk",
        zeros,
        all - 3 * MIB,
        Some("is damaged: 3 of its blocks"),
    );
    let shorter = |content: &mut Vec<u8>, _: &mut Vec<u8>| content.truncate(5 << 20);
    check_left("a file shorter than noted", shorter, 5 * MIB, Some("7MiB of what an earlier run left"));
    check_left("an empty file", |content, _| content.clear(), 0, Some("12MiB of what an earlier run left"));
    let other = |content: &mut Vec<u8>, _: &mut Vec<u8>| content[3 << 20] ^= 1;
    check_left("a file with another byte", other, all - MIB, Some("1MiB of what an earlier run left"));
}

/// It was longer than its object when it got its name.
#[test]
fn a_file_longer_than_its_object_is_cut_to_it() {
    let longer = |content: &mut Vec<u8>, _: &mut Vec<u8>| content.resize(SIZE as usize + 5000, 7);
    check_left("longer", longer, 12 * MIB, None);
}

/// Either of the pair was lost.
#[test]
fn one_without_the_other_is_of_no_use_and_goes() {
    for lost in [0, 1] {
        let (stuck, folder) = (Stuck::new(), Folder::new());
        let target = folder.at("new");
        kill(stuck.begin(&target));
        let (file, journal) = pair(&target).expect("a pair");
        fs::remove_file([file, journal][lost].as_path()).unwrap();
        let object = object_of(&run(&mut cp(&whole(&stuck.object, "\"one\""), &target)).clean());
        assert_eq!((number(&object, "resumed"), number(&object, "fetched")), (0, SIZE));
        assert_eq!(fs::read(&target).unwrap(), stuck.object);
        assert_eq!(temporaries(folder.path()), [""; 0]);
    }
}

/// Resume was off then, and nobody said so.
#[test]
fn a_folder_in_the_place_of_the_journal_is_named() {
    let (stuck, folder) = (Stuck::new(), Folder::new());
    let target = folder.at("new");
    kill(stuck.begin(&target));
    let (file, journal) = pair(&target).expect("a pair");
    fs::remove_file(file).unwrap();
    fs::remove_file(&journal).unwrap();
    fs::create_dir(&journal).unwrap();
    let ended = run(&mut cp(&whole(&stuck.object, "\"one\""), &target));
    let object = object_of(&ended);
    let note = object["note"].as_str().expect("a note");
    assert!(ended.stderr.contains(note), "{}", ended.stderr);
    assert!(note.contains(journal.to_str().unwrap()) && note.ends_with(": remove it"), "{note}");
    assert_eq!(fs::read(&target).unwrap(), stuck.object);
    assert!(journal.is_dir(), "it is not ours to remove");
}

/// Killed while the object's checksum was asked for: nothing is left to fetch.
#[test]
fn what_was_whole_is_verified_and_put_in_place() {
    let folder = Folder::new();
    let target = folder.at("new");
    let object = bytes(SIZE as usize);
    let served = object.clone();
    let silent = Raw::start(move |asked| match asked.method() {
        "HEAD" => Answer { bytes: Vec::new(), then: Then::Silence },
        _ => right(asked, &served, "\"one\""),
    });
    kill(begin(&mut cp(&silent, &target), || noted(&target) == 13));
    let event = object_of(&run(&mut cp(&whole(&object, "\"one\""), &target)).clean());
    assert_eq!((number(&event, "resumed"), number(&event, "fetched")), (SIZE, 0), "{event}");
    assert_eq!(fs::read(&target).unwrap(), object);
    assert_eq!(temporaries(folder.path()), [""; 0]);
}

/// A key, or a range, that is not there.
#[test]
fn a_slip_in_what_was_typed_loses_nothing() {
    let (stuck, folder) = (Stuck::new(), Folder::new());
    let target = folder.at("new");
    kill(stuck.begin(&target));
    let object = stuck.object.clone();
    let raw = Raw::start(move |asked| match asked.path() {
        "/b/object" if asked.header("range").is_some_and(|range| range.starts_with("bytes=999")) => {
            let whole = format!("bytes */{SIZE}");
            let headers = [("Content-Length", "0"), ("Content-Range", &whole)];
            Answer::new("416 Range Not Satisfiable", &headers, b"")
        }
        "/b/object" => right(asked, &object, "\"one\""),
        _ => Answer::new("404 Not Found", &[("Content-Length", "0")], b""),
    });
    let endpoint = format!("http://{}", raw.address);
    let slip = run(&mut flatout(&["cp", "s3://b/objcet", &target, "--endpoint-url", &endpoint]));
    let slip = slip.refused(1, &["s3://b/objcet", "404"]);
    assert!(!slip.stderr.contains("go on from"), "{}", slip.stderr);
    assert_eq!(temporaries(folder.path()).len(), 2);
    let slip = run(cp(&raw, &target).args(["--range", "99999999999-"]));
    assert_ne!(slip.code, Some(0));
    assert!(slip.stderr.contains("s3://b/object") && !slip.stderr.contains("go on from"), "{}", slip.stderr);
    assert_eq!(number(&object_of(&run(&mut cp(&raw, &target)).clean()), "resumed"), 12 * MIB);
    assert_eq!(fs::read(&target).unwrap(), stuck.object);
}

/// Of two to one target the first has the name that is gone on from.
#[test]
fn of_two_at_once_what_the_second_leaves_is_cleared() {
    let (stuck, folder) = (Stuck::new(), Folder::new());
    let target = folder.at("new");
    let first = begin(stuck.cp(&target).arg("--no-resume"), || !temporaries(folder.path()).is_empty());
    kill(begin(&mut stuck.cp(&target), || temporaries(folder.path()).len() == 2));
    signal("INT", first.id());
    end(first).refused(130, &["cancelled"]);
    let object = object_of(&run(&mut cp(&whole(&stuck.object, "\"one\""), &target)).clean());
    assert_eq!(number(&object, "resumed"), 0);
    assert_eq!(fs::read(&target).unwrap(), stuck.object);
    assert_eq!(temporaries(folder.path()), [""; 0]);
}

#[test]
fn two_at_once_never_touch_each_others() {
    let (stuck, folder) = (Stuck::new(), Folder::new());
    let target = folder.at("new");
    let first = stuck.begin(&target);
    let before = fs::read(pair(&target).expect("a pair").1).unwrap();
    // A second one to the same target comes to its end beside it.
    let raw = whole(&stuck.object, "\"one\"");
    let object = object_of(&run(&mut cp(&raw, &target)).clean());
    assert_eq!(number(&object, "resumed"), 0);
    assert_eq!(fs::read(&target).unwrap(), stuck.object);
    assert_eq!(fs::read(pair(&target).expect("a pair").1).unwrap(), before);
    kill(first);
    // And of two that find a dead one only one goes on from it.
    let ends = [(); 2].map(|()| begin(&mut cp(&raw, &target), || true)).map(end);
    let resumed = ends.iter().map(|end| number(&object_of(end), "resumed"));
    assert!([0, 12 * MIB].contains(&resumed.min().unwrap()));
    assert_eq!(fs::read(&target).unwrap(), stuck.object);
    assert_eq!(temporaries(folder.path()), [""; 0]);
}

#[test]
fn where_nothing_can_be_put_in_place_nothing_is_fetched_and_nothing_lost() {
    let (stuck, folder) = (Stuck::new(), Folder::new());
    let target = folder.at("new");
    kill(stuck.begin(&target));
    let asked = Arc::new(AtomicUsize::new(0));
    let (object, counted) = (stuck.object.clone(), asked.clone());
    let raw = Raw::start(move |asked| {
        counted.fetch_add(1, Ordering::SeqCst);
        right(asked, &object, "\"one\"")
    });
    let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    // Root may write anywhere.
    let may = fs::write(folder.path().join("probe"), b"").is_ok();
    let ended = run(&mut cp(&raw, &target));
    mode(0o755);
    if may {
        assert_eq!(number(&object_of(&ended), "resumed"), 12 * MIB);
        return;
    }
    ended.refused(1, &[&target, "Permission denied"]);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(number(&object_of(&run(&mut cp(&raw, &target)).clean()), "resumed"), 12 * MIB);
}

#[test]
fn a_range_goes_on_as_that_range_only() {
    let (stuck, folder) = (Stuck::new(), Folder::new());
    let target = folder.at("new");
    let range = format!("1000-{}", SIZE - 1);
    let mut copy = stuck.cp(&target);
    let child = begin(copy.args(["--range", &range]), || noted(&target) >= 11);
    kill(child);
    let raw = whole(&stuck.object, "\"one\"");
    let ended = run(&mut cp(&raw, &target));
    assert!(ended.stderr.contains("another range of it was read"), "{}", ended.stderr);
    assert_eq!(fs::read(&target).unwrap(), stuck.object);

    let mut copy = stuck.cp(&target);
    kill(begin(copy.args(["--range", &range]), || noted(&target) >= 11));
    let object = object_of(&run(cp(&raw, &target).args(["--range", &range])).clean());
    assert!(number(&object, "resumed") >= 11 * MIB, "{object}");
    assert_eq!(fs::read(&target).unwrap(), &stuck.object[1000..]);
}

/// A server without ranges: what landed of it is of no use.
#[test]
fn without_ranges_there_is_no_journal() {
    let object = bytes(SIZE as usize);
    let whole = move |_: &Asked| {
        let length = object.len().to_string();
        let mut answer = Answer::new("200 OK", &[("Content-Length", &length), ("ETag", "\"one\"")], &object);
        answer.bytes.truncate(answer.bytes.len() - 1000);
        answer.then(Then::Close)
    };
    let (raw, folder) = (Raw::start(whole), Folder::new());
    run(cp(&raw, &folder.at("new")).args(["--retries", "0"])).refused(1, &["s3://b/object"]);
    folder.is_untouched();
}
