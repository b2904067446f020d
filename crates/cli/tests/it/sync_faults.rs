//! `flatout sync` against an origin that fails: random trees, every direction, dialect and comparison,
//! filters and limits of deletions, and a fault in any request. What no such run may do is held against both
//! trees, and a run without faults after it has to converge.
//!
//! A seed is a course of cases, as in the fault matrix (`faults`); `scripts/soak.sh seeds` runs both:
//!
//! ```text
//! FLATOUT_SEEDS=100 cargo test -p flatout-cli --test it sync_faults::     a hundred courses
//! FLATOUT_SEED=7 FLATOUT_CASE=31 cargo test … sync_faults::               one case of one again
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::cloud::{Cloud, Fault, now_s};
use crate::faults;
use crate::program::{Ended, run, without_override};
use crate::sync::at;

/// What a seed is.
const CASES: u64 = 150;
/// Runs wait for answers and for each other.
const AT_ONCE: usize = 8;

const HOUR_S: i64 = 3_600;
/// Names of which a tree has some: `.` and `-` sort before `/`, `0` behind it.
const NAMES: [&str; 14] = [
    "a.b",
    "a-1",
    "a/b",
    "a/c/d",
    "a0",
    "b/x",
    "b/y.z",
    "b.c",
    "c/d/e",
    "c/d.e",
    "k",
    "z/1",
    "z/10",
    "blank + %41 ü&<é>",
];
/// Keys that no file can have, of a target that is a bucket.
const ODD: [&str; 3] = ["a//b", "/etc/passwd", "b/../a.b"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    Default,
    Size,
    Exact,
    Checksum,
}

/// A name's content in one tree, and when that was changed, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    body: Vec<u8>,
    modified_s: i64,
}

type Tree = BTreeMap<String, Content>;
type Bodies = BTreeMap<String, Vec<u8>>;

type LeavesOut = fn(&str) -> bool;
/// Filters, and the names that each leaves out.
const EXCLUDES: [(&str, LeavesOut); 2] =
    [("b/", |name| name.starts_with("b/")), ("*.b", |name| name.ends_with(".b"))];

/// A case: two trees, how they are compared, and how bad the day is.
struct Case {
    way: Way,
    /// Of the URLs.
    scheme: &'static str,
    compare: Compare,
    delete: bool,
    /// Which of [`EXCLUDES`], and whether what it leaves out is deleted.
    exclude: Option<usize>,
    delete_excluded: bool,
    max_delete: Option<usize>,
    /// The first run is a dry one.
    is_dry_first: bool,
    source: Tree,
    target: Tree,
    /// Folders of the one tree that is on disk which may not be read.
    closed: BTreeSet<&'static str>,
    /// Of a thousand requests so many fail.
    bad: u64,
}

#[test]
fn no_day_is_so_bad_that_a_sync_loses_anything() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let one = number("FLATOUT_CASE");
    let cases: Vec<(u64, u64)> = faults::seeds(1)
        .flat_map(|seed| (0..CASES).map(move |case| (seed, case)))
        .filter(|(_, case)| one.is_none_or(|one| one == *case))
        .collect();
    let (next, wrong, met) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Met::default());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((seed, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = Case::new(&mut Random::new(*seed, *case)).check(*seed, *case, &met) {
                        let again = format!("FLATOUT_SEED={seed} FLATOUT_CASE={case}");
                        wrong.lock().unwrap().push(format!("{again}: {why}\n"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.concat());
    // A test in which nothing went wrong, or nothing was deleted, would prove nothing.
    let met =
        [&met.clean, &met.incomplete, &met.failed, &met.deleting].map(|count| count.load(Ordering::Relaxed));
    println!("clean, incomplete, otherwise failed, deleting: {met:?}");
    assert!(one.is_some() || met.iter().all(|count| *count > 0), "{met:?}");
}

/// How runs with faults ended.
#[derive(Default)]
struct Met {
    clean: AtomicU64,
    incomplete: AtomicU64,
    failed: AtomicU64,
    deleting: AtomicU64,
}

impl Case {
    fn new(random: &mut Random) -> Case {
        let way = [Way::Up, Way::Down, Way::Between][random.below(3)];
        let compare = match random.below(6) {
            0 => Compare::Size,
            1 => Compare::Checksum,
            2 if way != Way::Between => Compare::Exact,
            _ => Compare::Default,
        };
        let (mut source, mut target) = (Tree::new(), Tree::new());
        let now_s = now_s();
        for name in NAMES {
            let here = Content { body: body(name, 0, random.below(4)), modified_s: now_s - 3 * HOUR_S };
            let there = match random.below(6) {
                // Another size, the same, or other content of one size; older or newer.
                0 => Content { body: body(name, 1, random.below(4)), ..here.clone() },
                1 => here.clone(),
                2 => Content { body: body(name, 1, here.body.len()), ..here.clone() },
                _ => here.clone(),
            };
            let there_s = now_s - [HOUR_S, 5 * HOUR_S][random.below(2)];
            let (has_source, has_target) =
                [(true, true), (true, false), (false, true), (true, true)][random.below(4)];
            if has_source {
                source.insert(name.to_owned(), here);
            }
            if has_target {
                target.insert(name.to_owned(), Content { modified_s: there_s, ..there });
            }
        }
        // A sync from nothing is refused.
        let kept = Content { body: b"kept".to_vec(), modified_s: now_s - 3 * HOUR_S };
        source.insert("kept".into(), kept);
        if way == Way::Up {
            let odd = ODD.into_iter().filter(|_| random.below(4) == 0);
            target.extend(
                odd.map(|name| (name.to_owned(), Content { body: b"odd".to_vec(), modified_s: now_s })),
            );
        }
        let on_disk = match way {
            Way::Up => &source,
            Way::Down => &target,
            Way::Between => &Tree::new(),
        };
        let is_there = |folder: &&str| on_disk.keys().any(|name| name.starts_with(&format!("{folder}/")));
        let closed =
            ["a", "b", "c/d"].into_iter().filter(|_| random.below(8) == 0).filter(is_there).collect();
        let bad = [0, 20, 100, 300][random.below(4)];
        Case {
            way,
            scheme: ["s3", "oss"][random.below(2)],
            compare,
            delete: random.below(3) > 0,
            exclude: [None, None, Some(0), Some(1)][random.below(4)],
            delete_excluded: random.below(3) == 0,
            max_delete: [None, None, Some(random.below(6))][random.below(3)],
            is_dry_first: random.below(2) == 0,
            source,
            target,
            closed,
            bad,
        }
    }

    fn takes(&self, name: &str) -> bool {
        self.exclude.is_none_or(|exclude| !EXCLUDES[exclude].1(name))
    }

    /// What only the target has, as far as the filters let it be seen.
    fn extras(&self) -> BTreeSet<&String> {
        let is_source = |name: &str| self.takes(name) && self.source.contains_key(name);
        let is_seen = |name: &str| self.takes(name) || self.delete_excluded;
        self.target.keys().filter(|name| is_seen(name) && !is_source(name)).collect()
    }

    /// Those that a run without faults deletes.
    fn deleted(&self) -> BTreeSet<&String> {
        match self.delete && !self.is_too_much() {
            true => self.extras(),
            false => BTreeSet::new(),
        }
    }

    fn is_too_much(&self) -> bool {
        self.delete && self.max_delete.is_some_and(|most| self.extras().len() > most)
    }

    /// What a run without faults leaves: of names that are alike to the comparison, the target's.
    fn expected(&self) -> Bodies {
        let mut bodies = Bodies::new();
        let deleted = self.deleted();
        for (name, there) in &self.target {
            if !deleted.contains(name) {
                bodies.insert(name.clone(), there.body.clone());
            }
        }
        for (name, here) in self.source.iter().filter(|(name, _)| self.takes(name)) {
            let is_newer = |there: &Content| here.modified_s > there.modified_s;
            let differs = self.target.get(name).is_none_or(|there| {
                let is_other_size = here.body.len() != there.body.len();
                is_other_size
                    || match self.compare {
                        Compare::Default => is_newer(there),
                        Compare::Size => false,
                        Compare::Exact | Compare::Checksum => here.body != there.body,
                    }
            });
            if differs {
                bodies.insert(name.clone(), here.body.clone());
            }
        }
        bodies
    }

    fn check(&self, seed: u64, case: u64, met: &Met) -> Result<(), String> {
        let (is_bad, random) = (Arc::new(AtomicU64::new(0)), Mutex::new(Random::new(seed, case + 1_000)));
        let bad = is_bad.clone();
        let cloud = Cloud::start(move |asked| {
            let mut random = random.lock().unwrap();
            if random.below(1_000) as u64 >= bad.load(Ordering::SeqCst) {
                return None;
            }
            Some(match (asked.method(), random.below(6)) {
                ("POST", 0) => Fault::Some,
                ("PUT" | "POST", 1 | 2) => Fault::LateError,
                ("GET", 3) => Fault::Cut,
                (_, 4) => Fault::Denied,
                ("GET" | "PUT", 5) => Fault::Busy,
                _ => Fault::Error,
            })
        });
        let disk = tempfile::tempdir().unwrap();
        for (tree, place) in [(&self.source, self.source_place()), (&self.target, self.target_place())] {
            match place {
                Some(prefix) => tree.iter().for_each(|(name, content)| {
                    cloud.put(&format!("{prefix}{name}"), &content.body, content.modified_s);
                }),
                None => lay_down(&disk.path().join("tree"), tree),
            }
        }
        let work = Work { case: self, cloud: &cloud, disk: disk.path() };
        let before = work.target();
        let planned = self.is_dry_first.then(|| work.run(&["--dry-run"]));
        if work.target() != before {
            return Err("a dry run changed something".to_owned());
        }
        is_bad.store(self.bad, Ordering::SeqCst);
        work.set_closed(0o000);
        let ended = work.run(&[]);
        work.set_closed(0o755);
        is_bad.store(0, Ordering::SeqCst);
        let after = work.target();
        let events = ended.events();
        let told = format!(
            "{:?} {} {:?}, delete {}, exclude {:?} {}, at most {:?}, closed {:?}, bad {}:\n\
             source {:?}\nbefore {before:?}\nafter {after:?}\n{}{}",
            self.way,
            self.scheme,
            self.compare,
            self.delete,
            self.exclude,
            self.delete_excluded,
            self.max_delete,
            self.closed,
            self.bad,
            self.source,
            ended.text(),
            ended.stderr
        );
        self.is_allowed(&before, &after, &ended, &events).map_err(|why| format!("{why}\n{told}"))?;
        if let Some(planned) = planned.filter(|_| self.bad == 0 && self.closed.is_empty()) {
            let steps = |ended: &Ended, status: &str| -> BTreeSet<String> {
                let of = |event: &&Value| event["event"] == "object" && event["status"] == status;
                let step = |event: &Value| format!("{} {}", event["action"], event["key"]);
                ended.events().iter().filter(of).map(step).collect()
            };
            let (planned, done) = (steps(&planned, "planned"), steps(&ended, "ok"));
            if planned != done {
                return Err(format!("a dry run says {planned:?}, and a run did {done:?}\n{told}"));
            }
        }
        match ended.code {
            Some(0) => &met.clean,
            Some(3) => &met.incomplete,
            _ => &met.failed,
        }
        .fetch_add(1, Ordering::Relaxed);
        let has_deleted = before.keys().any(|name| !after.contains_key(name));
        met.deleting.fetch_add(u64::from(has_deleted), Ordering::Relaxed);

        for (round, does) in ["converges", "does nothing"].into_iter().enumerate() {
            let ended = work.run(&[]);
            let events = ended.events();
            let summary = events.last().ok_or("nothing was said")?;
            let copied = ["ok", "deleted"].map(|name| summary[name].as_u64());
            let found = work.target();
            if ended.code != Some(self.clean())
                || found != self.expected()
                || (round == 1 && copied != [Some(0); 2])
            {
                let more =
                    format!("{:?} {found:?}, expected {:?}\n{}", ended.code, self.expected(), ended.text());
                return Err(format!("no run without faults {does}: {more}{}\nfirst {told}", ended.stderr));
            }
        }
        Ok(())
    }

    /// How a run without faults ends.
    fn clean(&self) -> i32 {
        i32::from(self.is_too_much())
    }

    /// What a run with faults may have done.
    fn is_allowed(
        &self,
        before: &Bodies,
        after: &Bodies,
        ended: &Ended,
        events: &[Value],
    ) -> Result<(), String> {
        let code = ended.code.ok_or("it was killed")?;
        let is_closed = |name: &str| self.closed.iter().any(|folder| name.starts_with(&format!("{folder}/")));
        for (name, body) in after {
            let is_earlier = before.get(name) == Some(body);
            let is_wanted = self.source.get(name).is_some_and(|wanted| wanted.body == *body);
            if !is_earlier && !is_wanted {
                return Err(format!("{name} holds something else"));
            }
            if is_closed(name) && !is_earlier {
                return Err(format!("{name} could not be read, and was changed"));
            }
        }
        let gone: Vec<&String> = before.keys().filter(|name| !after.contains_key(*name)).collect();
        for name in &gone {
            if !self.deleted().contains(*name) || is_closed(name) {
                return Err(format!("{name} vanished"));
            }
        }
        let is = |event: &Value, name: &str, value: &str| event[name] == value;
        let first = events.iter().position(|event| is(event, "action", "delete"));
        let error = events.iter().position(|event| is(event, "event", "error"));
        let summary = events.last().filter(|event| is(event, "event", "summary"));
        let count = |name: &str| summary.map_or(0, |summary| summary[name].as_u64().unwrap());
        if first.is_none() && !gone.is_empty() {
            return Err("it was not said what was deleted".to_owned());
        }
        if first.is_some() && (count("unknown") > 0 || error < first && error.is_some()) {
            return Err("something was deleted after an error".to_owned());
        }
        if count("unknown") > 0 && ![3, 5, 6].contains(&code) {
            return Err(format!("exit code {code}, and something is unknown"));
        }
        if code == 0 && *after != self.expected() {
            return Err(format!("exit code 0, and the target should be {:?}", self.expected()));
        }
        if code == 0 && error.is_some() {
            return Err("exit code 0 after an error".to_owned());
        }
        // The first page may have been refused: then there is no summary.
        if ![0, 1, 3, 5, 6].contains(&code) || (summary.is_none() && error.is_none()) {
            return Err(format!("exit code {code}"));
        }
        Ok(())
    }

    fn source_place(&self) -> Option<&'static str> {
        (self.way != Way::Up).then_some("bucket/from/")
    }

    fn target_place(&self) -> Option<&'static str> {
        (self.way != Way::Down).then_some("bucket/to/")
    }
}

/// A case that is being tried.
struct Work<'a> {
    case: &'a Case,
    cloud: &'a Cloud,
    disk: &'a Path,
}

impl Work<'_> {
    fn target(&self) -> Bodies {
        match self.case.target_place() {
            Some(prefix) => self.cloud.below(prefix),
            None => crate::folder::files(&self.disk.join("tree")),
        }
    }

    fn run(&self, more: &[&str]) -> Ended {
        let (case, tree) = (self.case, self.disk.join("tree").to_str().unwrap().to_owned());
        let place =
            |place: Option<&str>| place.map_or(tree.clone(), |place| format!("{}://{place}", case.scheme));
        let (from, to) = (place(case.source_place()), place(case.target_place()));
        let mut arguments = vec!["sync", &from, &to, "--json", "--retries", "0", "--outage-timeout", "1s"];
        arguments.extend(more);
        let most = case.max_delete.map(|most| most.to_string());
        if case.delete {
            arguments.push("--delete");
            arguments.extend(case.delete_excluded.then_some("--delete-excluded"));
            arguments.extend(most.iter().flat_map(|most| ["--max-delete", most]));
        }
        arguments.extend(case.exclude.iter().flat_map(|exclude| ["--exclude", EXCLUDES[*exclude].0]));
        arguments.extend(match case.compare {
            Compare::Default => None,
            Compare::Size => Some("--size-only"),
            Compare::Exact => Some("--exact-timestamps"),
            Compare::Checksum => Some("--checksum"),
        });
        let command = at(&self.cloud.raw.url(""), &arguments);
        run(&mut if case.closed.is_empty() { command } else { without_override(command) })
    }

    fn set_closed(&self, mode: u32) {
        for folder in &self.case.closed {
            let path = self.disk.join("tree").join(folder);
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
    }
}

/// Bytes of a name: two versions of each size.
fn body(name: &str, version: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| name.as_bytes()[at % name.len()] ^ version as u8).collect()
}

fn lay_down(folder: &Path, tree: &Tree) {
    fs::create_dir_all(folder).unwrap();
    for (name, content) in tree {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &content.body).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(content.modified_s as u64);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn new(seed: u64, case: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ case);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
