//! What the two trees do not tell, asked of the origin and of the disk by a few threads.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use flatout_engine::{Client, ErrorKind, Stat};
use flatout_sync::decide::{Compare, Decision, Question, Rules, Way, Why, md5_of};
use flatout_sync::item::Entry;
use flatout_sync::join::Side;
use flatout_sync::walk;
use flatout_wire::checksum::{Checksum, Coverage};

use super::sums::{self, Sums};
use super::trees::Tree;
use crate::failure::Failure;
use crate::hashing::Algorithm;

/// Questions at a time: HEADs of some ten milliseconds, as many as `cp -r` copies at a time.
const THREADS: usize = 32;

/// The name of the metadata that keep a file's time, as rclone has it: seconds since 1970 with a fraction.
pub const STORED_TIME: &str = "mtime";

/// What has been found out.
pub enum Answer {
    Same(Entry),
    Differs(Entry, Why),
    /// It could not be asked.
    Unknown(Entry, Failure),
}

/// An answer that is on its way.
pub struct Asked {
    source: Entry,
    told: Receiver<Answer>,
}

impl Asked {
    pub fn answer(self) -> Answer {
        let nobody = |_| Answer::Unknown(self.source, Failure::internal("compare: nobody answered"));
        self.told.recv().unwrap_or_else(nobody)
    }
}

/// Asks for a plan. Its threads start with the first question and end with the last asker.
#[derive(Clone)]
pub struct Asker {
    shared: Arc<Shared>,
    questions: Option<Sender<Ask>>,
}

struct Shared {
    client: Arc<Client>,
    source: Tree,
    target: Tree,
    sums: Mutex<Sums>,
    /// Names whose content was asked for, and of which too little is stated.
    without_sums: AtomicU64,
}

struct Ask {
    source: Entry,
    target: Entry,
    question: Question,
    rules: Rules,
    tell: SyncSender<Answer>,
}

impl Asker {
    pub fn new(client: Arc<Client>, source: Tree, target: Tree, sums: Sums) -> Asker {
        let (sums, without_sums) = (Mutex::new(sums), AtomicU64::new(0));
        Asker { shared: Arc::new(Shared { client, source, target, sums, without_sums }), questions: None }
    }

    /// How many names had no checksums to compare.
    pub fn without_sums(&self) -> u64 {
        self.shared.without_sums.load(Ordering::Relaxed)
    }

    /// Keeps the checksums that were computed for the next run. With `is_whole`, those of files that this run
    /// did not ask for are forgotten.
    pub fn keep_sums(&self, is_whole: bool) {
        self.shared.sums().keep(is_whole);
    }

    pub fn ask(&mut self, source: Entry, target: Entry, question: Question, rules: Rules) -> Asked {
        let (tell, told) = mpsc::sync_channel(1);
        let questions = self.questions.get_or_insert_with(|| start(&self.shared));
        // Without threads nobody answers, which the answer says.
        let _ = questions.send(Ask { source: source.clone(), target, question, rules, tell });
        Asked { source, told }
    }
}

fn start(shared: &Arc<Shared>) -> Sender<Ask> {
    let (give, given) = mpsc::channel::<Ask>();
    let given = Arc::new(Mutex::new(given));
    for _ in 0..THREADS {
        let (shared, given) = (shared.clone(), given.clone());
        let work = move || {
            loop {
                let next = given.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(ask) = next else { return };
                // Who asked may be gone.
                let _ = ask.tell.send(shared.answer(ask.source, ask.target, ask.question, ask.rules));
            }
        };
        // Fewer do as well.
        let _ = thread::Builder::new().name("flatout-compare".to_owned()).spawn(work);
    }
    give
}

impl Shared {
    fn answer(&self, source: Entry, target: Entry, question: Question, rules: Rules) -> Answer {
        let found = match question {
            Question::StoredTime => self.by_stored_time(&source, &target, rules),
            Question::Content => self.by_content(&source, &target, rules),
        };
        match found {
            Ok(None) => Answer::Same(source),
            Ok(Some(why)) => Answer::Differs(source, why),
            Err(failure) => Answer::Unknown(source, failure),
        }
    }

    /// Whether the object was made of the file as it is, by the time that its metadata keep.
    fn by_stored_time(&self, source: &Entry, target: &Entry, rules: Rules) -> Result<Option<Why>, Failure> {
        let (objects, file) = match rules.way {
            Way::Down => (&self.source, target),
            Way::Up | Way::Between => (&self.target, source),
        };
        let stat = match (self.stat(objects, &file.name)?, rules.way) {
            (Some(stat), _) => stat,
            (None, Way::Up | Way::Between) => return Ok(Some(Why::New)),
            (None, Way::Down) => {
                let why = format!("stat: {}: the object is gone", objects.place(&file.name));
                return Err(Failure::not_found(why).with_hint("run it again"));
            }
        };
        let stored = stat.metadata.iter().find(|(name, _)| name == STORED_TIME);
        let stored_ns = stored.and_then(|(_, time)| parse_time(time));
        let why = if rules.compare == Compare::ExactTime { Why::Time } else { Why::Newer };
        if stored_ns.is_some() && stored_ns == file.modified_ns {
            return Ok(None);
        }
        // One that was fetched in the second of its upload has its object's time, and no later change to tell
        // it from one that was written in that second.
        if rules.way == Way::Up && source.modified_ns == target.modified_ns {
            let is_same = self.is_same_by_sums(source, target)?;
            return Ok((is_same != Some(true)).then_some(why));
        }
        Ok(Some(why))
    }

    /// Whether both have one content, by their checksums, or by their times where none are stated.
    fn by_content(&self, source: &Entry, target: &Entry, rules: Rules) -> Result<Option<Why>, Failure> {
        match self.is_same_by_sums(source, target)? {
            Some(true) => Ok(None),
            Some(false) => Ok(Some(Why::Content)),
            None => {
                self.without_sums.fetch_add(1, Ordering::Relaxed);
                self.by_time(source, target, rules)
            }
        }
    }

    /// Whether both have one content, by what is stated of objects and computed of files; `None` where too
    /// little is stated.
    fn is_same_by_sums(&self, source: &Entry, target: &Entry) -> Result<Option<bool>, Failure> {
        let of = |tree: &Tree, entry: &Entry| -> Result<Option<Content>, Failure> {
            match tree {
                Tree::Folder(path) => Ok(Some(Content::File(path.join(&entry.name)))),
                Tree::Objects(_) => {
                    Ok(self.stat(tree, &entry.name)?.map(|stat| Content::Object(full(&stat.checksums))))
                }
            }
        };
        let is_same_md5 = self.is_same_md5(source, target)?;
        if is_same_md5 == Some(true) {
            return Ok(Some(true));
        }
        // An object that is gone has no content.
        let (Some(a), Some(b)) = (of(&self.source, source)?, of(&self.target, target)?) else {
            return Ok(Some(false));
        };
        let is_same = match (a, b) {
            (Content::File(_), Content::File(_)) => unreachable!("one side is a bucket"),
            (Content::File(path), Content::Object(stated)) => self.is_same_crc(&path, source, &stated)?,
            (Content::Object(stated), Content::File(path)) => self.is_same_crc(&path, target, &stated)?,
            (Content::Object(a), Content::Object(b)) => a.iter().find_map(|one| {
                b.iter().find(|other| other.algorithm == one.algorithm).map(|other| one == other)
            }),
        };
        Ok(is_same.or(is_same_md5))
    }

    fn by_time(&self, source: &Entry, target: &Entry, rules: Rules) -> Result<Option<Why>, Failure> {
        let rules = Rules { compare: Compare::SizeAndTime, ..rules };
        match rules.decide(Side::Present(source.clone()), Side::Present(target.clone())) {
            Decision::Copy { why, .. } => Ok(Some(why)),
            Decision::Ask { .. } => self.by_stored_time(source, target, rules),
            _ => Ok(None),
        }
    }

    /// By an ETag that looks like an MD5 on one side, and that of the other or the file's. Only a match is
    /// proof: an object's that is encrypted with a key of one's own is no MD5.
    fn is_same_md5(&self, source: &Entry, target: &Entry) -> Result<Option<bool>, Failure> {
        let of = |tree: &Tree, entry: &Entry, other: &Entry| match tree {
            Tree::Folder(path) if md5_of(other).is_some() => {
                self.sum(&path.join(&entry.name), entry, Algorithm::Md5).map(Some)
            }
            Tree::Folder(_) => Ok(None),
            Tree::Objects(_) => Ok(md5_of(entry).and_then(|md5| u128::from_str_radix(md5, 16).ok())),
        };
        let pair = (of(&self.source, source, target)?, of(&self.target, target, source)?);
        Ok(match pair {
            (Some(a), Some(b)) => Some(a == b),
            _ => None,
        })
    }

    /// Whether the file has one of the checksums that are stated; `None` where none is.
    fn is_same_crc(&self, path: &Path, file: &Entry, stated: &[Checksum]) -> Result<Option<bool>, Failure> {
        let Some(stated) = stated.first() else { return Ok(None) };
        Ok(Some(self.sum(path, file, Algorithm::Crc(stated.algorithm))? == u128::from(stated.value)))
    }

    /// A file's checksum: kept from an earlier run, or computed.
    fn sum(&self, path: &Path, file: &Entry, algorithm: Algorithm) -> Result<u128, Failure> {
        if let Some(kept) = self.sums().get(file, algorithm) {
            return Ok(kept);
        }
        let refused = |error: io::Error| Failure::local("read", path.display(), &error);
        let value = sums::compute(path, algorithm).map_err(refused)?;
        let found = walk::entry(file.name.clone(), &path.metadata().map_err(refused)?);
        if found == *file && sums::is_settled(file) {
            self.sums().put(file, algorithm, value);
        }
        Ok(value)
    }

    fn sums(&self) -> std::sync::MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the origin says of the object; `None` where it is gone.
    fn stat(&self, tree: &Tree, name: &str) -> Result<Option<Stat>, Failure> {
        let location = tree.location(name).expect("an object is asked for");
        match self.client.stat(&location) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::from(error)),
        }
    }
}

enum Content {
    File(std::path::PathBuf),
    Object(Vec<Checksum>),
}

/// Those of the whole object's bytes, which a file's can be held against.
fn full(checksums: &[Checksum]) -> Vec<Checksum> {
    checksums.iter().filter(|checksum| checksum.kind == Coverage::Full).copied().collect()
}

/// Seconds since 1970 with a fraction of up to nine digits, in nanoseconds.
pub fn parse_time(text: &str) -> Option<i128> {
    let (sign, text) = match text.trim().strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.trim()),
    };
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if seconds.is_empty()
        || seconds.len() > 18
        || fraction.len() > 9
        || !is_number(seconds)
        || !is_number(fraction)
    {
        return None;
    }
    let nanoseconds: i128 = format!("{fraction:0<9}").parse().ok()?;
    Some(sign * (seconds.parse::<i128>().ok()? * 1_000_000_000 + nanoseconds))
}

/// As [`parse_time`] reads it.
pub fn time_text(ns: i128) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_times_are_those_of_rclone() {
        let check = |text: &str, expected: Option<i128>| assert_eq!(parse_time(text), expected, "{text:?}");
        check("1611234567.123456789", Some(1_611_234_567_123_456_789));
        check("1611234567.5", Some(1_611_234_567_500_000_000));
        check("1611234567", Some(1_611_234_567_000_000_000));
        check("-1.5", Some(-1_500_000_000));
        for wrong in ["", ".", "1.1234567890", "1e9", "x", "1.-5", "2026-11-24T00:00:00Z", "--1"] {
            check(wrong, None);
        }
        for ns in [0, 1, -1, 1_611_234_567_123_456_789, -1_500_000_000, i128::from(i64::MAX)] {
            check(&time_text(ns), Some(ns));
        }
    }
}
