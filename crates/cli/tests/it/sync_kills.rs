//! `flatout sync --delete` that is killed with -9 in its midst, and two syncs at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::cloud::{Cloud, now_s};
use crate::folder::{Folder, files};
use crate::program::{ended, run, signal, wait_until};
use crate::sync::{at, tree};

const HOUR_S: i64 = 3_600;
/// Names of the source alone, of both with other content, and of the target alone.
const EACH: usize = 12;
/// Moments of each direction: `make test` has these, one for each so many requests.
const MOMENTS: usize = 20;

type Bodies = BTreeMap<String, Vec<u8>>;

/// Where the two trees are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
    Between,
}

/// The trees: what the source has, and what the target has before.
fn trees() -> (Bodies, Bodies) {
    let name = |kind: &str, at: usize| {
        if at.is_multiple_of(2) { format!("{kind}/{at}") } else { format!("{kind}.{at}") }
    };
    let (mut source, mut target) = (Bodies::new(), Bodies::new());
    for at in 0..EACH {
        source.insert(name("new", at), format!("new {at}").into_bytes());
        source.insert(name("both", at), format!("a longer one, {at}").into_bytes());
        target.insert(name("both", at), format!("earlier {at}").into_bytes());
        target.insert(name("extra", at), b"extra".to_vec());
    }
    (source, target)
}

/// A sync of those trees, not yet begun.
struct Work {
    cloud: Cloud,
    disk: Folder,
    way: Way,
}

impl Work {
    fn new(way: Way, on_request: impl Fn() + Send + Sync + 'static) -> Work {
        let cloud = Cloud::start(move |_| {
            on_request();
            None
        });
        let (disk, (source, target)) = (tree(&[]), trees());
        let work = Work { cloud, disk, way };
        work.lay_down("from", way == Way::Up, &source);
        work.lay_down("to", way == Way::Down, &target);
        work
    }

    fn lay_down(&self, name: &str, is_on_disk: bool, bodies: &Bodies) {
        for (below, body) in bodies {
            if is_on_disk {
                let path = self.disk.path().join(name).join(below);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, body).unwrap();
            } else {
                self.cloud.put(&format!("bucket/{name}/{below}"), body, now_s() - HOUR_S);
            }
        }
    }

    fn command(&self) -> Command {
        let place = |name: &str, is_on_disk: bool| match is_on_disk {
            true => self.disk.at(name),
            false => format!("s3://bucket/{name}"),
        };
        let (from, to) = (place("from", self.way == Way::Up), place("to", self.way == Way::Down));
        at(&self.cloud.raw.url(""), &["sync", &from, &to, "--delete", "--json"])
    }

    fn spawn(&self) -> Child {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Files that carry a name of their own; those of an interrupted download have others.
    fn target(&self) -> Bodies {
        match self.way {
            Way::Down => named(&self.disk.path().join("to")),
            Way::Up | Way::Between => self.cloud.below("bucket/to/"),
        }
    }

    /// A run to the end: the target is the source, and another has nothing to do.
    fn converges(&self, told: &str) {
        let source = trees().0;
        run(&mut self.command()).clean();
        let found = match self.way {
            // Nothing else is left behind, either.
            Way::Down => files(&self.disk.path().join("to")),
            Way::Up | Way::Between => self.target(),
        };
        assert_eq!(found, source, "{told}");
        let summary = run(&mut self.command()).clean().events().pop().unwrap();
        assert_eq!((&summary["ok"], &summary["deleted"]), (&0.into(), &0.into()), "{told}: {summary}");
    }
}

fn named(folder: &Path) -> Bodies {
    let is_temporary = |name: &str| name.contains(".flatout-");
    files(folder).into_iter().filter(|(name, _)| !is_temporary(name)).collect()
}

/// How many requests a whole run makes.
fn requests(way: Way) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let work = Work::new(way, move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    run(&mut work.command()).clean();
    count.load(Ordering::SeqCst)
}

/// Kills a run when the origin has been asked so often, and a moment later.
fn check_killed(way: Way, asked: usize, later: Duration) {
    let (count, id) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU32::new(0)));
    let killer = id.clone();
    let work = Work::new(way, move || {
        // Slow enough that a run has moments.
        thread::sleep(Duration::from_millis(2));
        if count.fetch_add(1, Ordering::SeqCst) + 1 == asked {
            thread::sleep(later);
            let id = loop {
                match killer.load(Ordering::SeqCst) {
                    0 => thread::yield_now(),
                    id => break id,
                }
            };
            signal("KILL", id);
        }
    });
    let told = format!("{way:?}, killed at request {asked} and {later:?}");
    let child = work.spawn();
    id.store(child.id(), Ordering::SeqCst);
    let ended = ended(child.wait_with_output().unwrap());
    let (source, before) = trees();
    let after = work.target();
    for (name, body) in &after {
        let is_whole = before.get(name) == Some(body) || source.get(name) == Some(body);
        assert!(is_whole, "{told}: {name} holds {body:?}");
    }
    let is_copied = source.iter().all(|(name, body)| after.get(name) == Some(body));
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        assert!(!source.contains_key(name), "{told}: {name} vanished");
        assert!(is_copied, "{told}: {name} was deleted before all was copied");
    }
    assert!(ended.code.is_none() || ended.code == Some(0), "{told}: {:?} {}", ended.code, ended.stderr);
    work.converges(&told);
}

#[track_caller]
fn check_kills(way: Way) {
    let requests = requests(way);
    thread::scope(|scope| {
        let mut running = Vec::new();
        for moment in 0..MOMENTS {
            // The last ones are those of deletions.
            let asked = 1 + moment * requests / MOMENTS;
            let later = Duration::from_micros([0, 300, 1_000, 3_000][moment % 4]);
            running.push(scope.spawn(move || check_killed(way, asked, later)));
            if running.len() == 4 {
                running.drain(..).for_each(|one| one.join().unwrap());
            }
        }
        check_killed(way, requests, Duration::ZERO);
        running.drain(..).for_each(|one| one.join().unwrap());
    });
}

#[test]
fn a_killed_upload_loses_nothing_and_the_next_run_converges() {
    check_kills(Way::Up);
}

#[test]
fn a_killed_download_loses_nothing_and_the_next_run_converges() {
    check_kills(Way::Down);
}

#[test]
fn a_killed_copy_loses_nothing_and_the_next_run_converges() {
    check_kills(Way::Between);
}

#[test]
fn two_at_once_make_what_one_makes() {
    for way in [Way::Up, Way::Down, Way::Between] {
        let work = Work::new(way, || thread::sleep(Duration::from_millis(3)));
        let children = [work.spawn(), work.spawn()];
        for child in children {
            let ended = ended(child.wait_with_output().unwrap());
            assert_eq!(ended.code, Some(0), "{way:?}: {}{}", ended.text(), ended.stderr);
        }
        assert_eq!(work.target(), trees().0, "{way:?}");
        work.converges("two at once");
    }
}

/// A tree that goes up while it comes down: each name holds what one of the two had.
#[test]
fn both_directions_at_once_leave_every_name_whole() {
    let work = Work::new(Way::Up, || thread::sleep(Duration::from_millis(3)));
    let (from, url) = (work.disk.at("from"), "s3://bucket/to");
    let start = |source: &str, target: &str| {
        let mut command = at(&work.cloud.raw.url(""), &["sync", source, target, "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for child in [start(&from, url), start(url, &from)] {
        let ended = ended(child.wait_with_output().unwrap());
        assert!(ended.code.is_some(), "{}", ended.stderr);
    }
    let (source, target) = trees();
    for (place, found) in [("folder", files(&work.disk.path().join("from"))), ("bucket", work.target())] {
        for (name, body) in &found {
            let is_whole = [&source, &target].iter().any(|tree| tree.get(name) == Some(body));
            assert!(is_whole, "{place}: {name} holds {body:?}");
        }
        let all = source.keys().chain(target.keys());
        all.for_each(|name| assert!(found.contains_key(name), "{place}: {name} is missing"));
    }
}

/// A listing, or a question about an object, that is not answered: a signal ends the run in good order all
/// the same. The summary proves that: a run that is ended by the time limit of signals prints none.
#[test]
fn a_signal_ends_it_while_the_origin_is_silent() {
    for (way, silent_on) in
        [(Way::Up, "GET"), (Way::Down, "GET"), (Way::Between, "GET"), (Way::Up, "HEAD"), (Way::Up, "PUT")]
    {
        let silent = Arc::new(AtomicUsize::new(0));
        let (counted, disk) = (silent.clone(), tree(&[("from/a", "1"), ("to/a", "2")]));
        std::fs::create_dir(disk.at("from/empty")).unwrap();
        let cloud = Cloud::start(move |asked| {
            let is_later_page =
                asked.target().contains("continuation-token") || asked.target().contains("start-after");
            if asked.method() == silent_on && (silent_on != "GET" || is_later_page) {
                counted.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_secs(20));
            }
            None
        });
        for name in ["from", "to"] {
            for at in 0..12 {
                cloud.put(&format!("bucket/{name}/z{at}"), b"object", now_s());
            }
            cloud.put(&format!("bucket/{name}/a"), b"3", now_s() - HOUR_S);
        }
        let work = Work { cloud, disk, way };
        let mut command = work.command();
        command.args(["--empty-folders", "--stall-timeout", "60s"]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("a request", || silent.load(Ordering::SeqCst) > 0);
        signal("INT", child.id());
        let ended = ended(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(130), "{way:?} {silent_on}: {}", ended.stderr);
        assert!(ended.stderr.contains("interrupted before"), "{way:?} {silent_on}: {}", ended.stderr);
        let last = ended.events().pop().expect("a summary");
        assert_eq!((&last["event"], &last["exit"]), (&"summary".into(), &130.into()), "{way:?} {silent_on}");
    }
}
