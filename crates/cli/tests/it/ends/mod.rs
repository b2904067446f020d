//! How `cp` ends on bad days: phases of a copy, each with every way to end it.

mod commit;
pub mod disk;
mod folders;
mod pipes;
mod signals;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::folder::names;
use super::objects::bytes;
use super::program::{Ended, ended, flatout, run, wait_until};
use super::raw::{Answer, Asked, Raw, right};

/// Of the one object; four parts.
const SIZE: usize = 700 << 10;
const PART: &str = "192KiB";
/// Of each of many.
const SMALL: usize = 100 << 10;
/// The keys of two pages of a listing.
const PAGES: [&[&str]; 2] = [&["a", "d/b"], &["d/c", "e"]];

/// Where a copy stands while its origin keeps an answer back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Of one object: nothing has come yet.
    FirstByte,
    /// Of one object: all parts but the last have landed.
    Middle,
    /// Of one object: its bytes are there, what they are checked against is not.
    Verifying,
    /// Of many: the first page of the listing.
    Listing,
    /// Of many: the second page, with the objects of the first there.
    NextPage,
    /// Of many: two objects are on their way.
    Amid,
    /// Of many: all but the last are there.
    NearEnd,
}

const OF_ONE: [Phase; 3] = [Phase::FirstByte, Phase::Middle, Phase::Verifying];
const OF_MANY: [Phase; 4] = [Phase::Listing, Phase::NextPage, Phase::Amid, Phase::NearEnd];

impl Phase {
    fn is_of_many(self) -> bool {
        OF_MANY.contains(&self)
    }

    /// Whether this request's answer is kept back.
    fn holds(self, asked: &Asked) -> bool {
        let is_listing = asked.path().contains("list-type=2");
        let is_of = |keys: &[&str]| !is_listing && keys.iter().any(|key| asked.path() == format!("/b/{key}"));
        match self {
            Phase::FirstByte => asked.method() == "GET",
            Phase::Middle => asked.method() == "GET" && asked.range(SIZE).end == SIZE,
            Phase::Verifying => asked.method() == "HEAD",
            Phase::Listing => is_listing && !asked.path().contains("continuation-token"),
            Phase::NextPage => is_listing && asked.path().contains("continuation-token"),
            Phase::Amid => is_of(&["d/b", "d/c"]),
            Phase::NearEnd => is_of(&["e"]),
        }
    }

    /// Requests that are kept back until no other comes.
    fn held(self) -> usize {
        if self == Phase::Amid { 2 } else { 1 }
    }

    /// Of many: the files that are there by then.
    fn landed(self) -> &'static [&'static str] {
        match self {
            Phase::NextPage => &["a", "d/b"],
            Phase::Amid => &["a", "e"],
            Phase::NearEnd => &["a", "d/b", "d/c"],
            _ => &[],
        }
    }
}

/// An origin that keeps back the answers of a phase until it is told to go on.
struct Held {
    raw: Raw,
    gate: Arc<Gate>,
    phase: Phase,
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
    served: AtomicUsize,
}

impl Held {
    fn at(phase: Phase) -> Held {
        let gate = Arc::<Gate>::default();
        let (at, object) = (gate.clone(), bytes(SIZE));
        let raw = Raw::start(move |asked| {
            if phase.holds(asked) {
                at.pass();
            }
            at.served.fetch_add(1, Ordering::SeqCst);
            answer(asked, &object)
        });
        Held { raw, gate, phase }
    }

    fn go_on(&self) {
        *self.gate.open.lock().unwrap() = true;
        self.gate.opened.notify_all();
    }

    /// The copy of the phase's one object to `target`, or of many into it.
    fn cp(&self, target: &str) -> Command {
        let endpoint = format!("http://{}", self.raw.address);
        let mut command = match self.phase.is_of_many() {
            true => flatout(&["cp", "-r", "s3://b", target]),
            false => flatout(&["cp", "s3://b/object", target, "--part-size", PART]),
        };
        command.args(["--endpoint-url", &endpoint]);
        command
    }

    /// Starts it, and waits until the phase is reached: the answers kept back are asked for, all others
    /// given.
    fn begin(&self, mut command: Command) -> Child {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let held = || self.gate.waiting.load(Ordering::SeqCst) == self.phase.held();
        wait_until("the phase", held);
        if !self.phase.is_of_many() {
            // Parts, and the HEAD, but for those that wait for the first.
            let others = if self.phase == Phase::FirstByte { 0 } else { 4 };
            wait_until("all other answers", || self.gate.served.load(Ordering::SeqCst) >= others);
        }
        child
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.go_on();
    }
}

impl Gate {
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        // Longer than a test waits for anything; a test that failed opens it.
        drop(self.opened.wait_timeout_while(open, Duration::from_secs(300), |open| !*open).unwrap());
    }
}

/// What is right: two pages of a listing, small objects as wholes, the large one by ranges.
fn answer(asked: &Asked, object: &[u8]) -> Answer {
    let path = asked.path();
    if path.contains("list-type=2") {
        return match path.contains("continuation-token") {
            true => page(PAGES[1], ""),
            false => page(
                PAGES[0],
                "<IsTruncated>true</IsTruncated><NextContinuationToken>2</NextContinuationToken>",
            ),
        };
    }
    if path == "/b/object" {
        return right(asked, object, "\"one\"");
    }
    Answer::new("200 OK", &[("Content-Length", &SMALL.to_string()), ("ETag", "\"e\"")], &bytes(SMALL))
}

fn page(keys: &[&str], more: &str) -> Answer {
    let entry =
        |key: &&str| format!("<Contents><Key>{key}</Key><Size>{SMALL}</Size><ETag>\"e\"</ETag></Contents>");
    let objects: String = keys.iter().map(entry).collect();
    let xml = format!("<ListBucketResult>{objects}{more}</ListBucketResult>");
    Answer::new("200 OK", &[("Content-Length", &xml.len().to_string())], xml.as_bytes())
}

/// How a child ended that was begun here.
fn end(child: Child) -> Ended {
    ended(child.wait_with_output().unwrap())
}

/// Every file below, by its relative path, hidden ones too.
fn files(folder: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(folder) {
        let path = folder.join(&name);
        match path.is_dir() {
            true => found.extend(files(&path).into_iter().map(|below| format!("{name}/{below}"))),
            false => found.push(name),
        }
    }
    found
}

fn is_temporary(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with('.') && name.contains(".flatout-"))
}

/// Many: whole files only, and no more than were there when it ended, besides what was let go on.
#[track_caller]
fn only_whole_files(folder: &std::path::Path) -> Vec<String> {
    let found = files(folder);
    for file in &found {
        assert!(!is_temporary(file), "{file} was left");
        assert_eq!(std::fs::read(folder.join(file)).unwrap(), bytes(SMALL), "{file} is not whole");
    }
    found
}

/// The copy once more, from an origin that keeps nothing back, ends well and leaves only what it should.
#[track_caller]
fn again(held: &Held, target: &str) {
    held.go_on();
    let again = run(&mut held.cp(target)).clean();
    assert!(again.text().contains(target), "{}", again.text());
}
