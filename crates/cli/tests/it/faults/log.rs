//! The tunnel's log: what was asked for, how often, and what it met with.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use super::cell::PART_BYTES;

/// Something that is asked for again and again until it is there: a range of an object, by its last byte; an empty one has
/// none, and a page of a listing has no key either.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    pub key: String,
    pub last: Option<u64>,
}

/// How it was answered, time after time.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    pub asked: usize,
    /// Of these, how many brought all of what was asked for, as it is.
    pub good: usize,
}

/// All GETs of a run.
#[derive(Debug, Default)]
pub struct Log {
    gets: BTreeMap<Wanted, Answers>,
    /// Answers that met with something, HEADs included.
    pub hits: usize,
}

/// The byte that `bench peer` asks for before anything else: it lands nowhere.
const PROBE: Option<u64> = Some(0);

impl Log {
    /// `objects` are the keys and sizes of what there is.
    pub fn read(path: &Path, objects: &[(String, u64)]) -> Log {
        let mut log = Log::default();
        // Without a request there is no file.
        let text = fs::read_to_string(path).unwrap_or_default();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|wrong| panic!("{wrong}: {line}"));
            log.add(&line, objects);
        }
        log
    }

    fn add(&mut self, line: &Value, objects: &[(String, u64)]) {
        let fault = line["fault"].as_str();
        let is_served = line["status"].as_u64().is_some_and(|status| (200..300).contains(&status));
        self.hits += usize::from(fault.is_some() || !is_served);
        if line["method"] != "GET" {
            return;
        }
        let key = line["key"].as_str().expect("a key").to_owned();
        // Who asks for the whole asks for its last byte.
        let of_whole =
            || objects.iter().find(|(known, _)| *known == key).and_then(|(_, bytes)| bytes.checked_sub(1));
        let last = line["range"].get(1).and_then(Value::as_u64).or_else(of_whole);
        let answers = self.gets.entry(Wanted { key, last }).or_default();
        answers.asked += 1;
        answers.good += usize::from(is_served && matches!(fault, None | Some("slow")));
    }

    /// How often that which was asked for most often was asked for.
    pub fn most_asked(&self) -> usize {
        self.gets.values().map(|answers| answers.asked).max().unwrap_or(0)
    }

    /// Whether every page of the listing came.
    pub fn is_listed(&self) -> bool {
        self.gets.iter().all(|(wanted, answers)| !wanted.key.is_empty() || answers.good > 0)
    }

    /// Whether all of an object came.
    pub fn came(&self, key: &str, bytes: u64) -> bool {
        let is_good = |last| {
            let wanted = Wanted { key: key.to_owned(), last };
            self.gets.get(&wanted).is_some_and(|answers| answers.good > 0)
        };
        match bytes {
            0 => is_good(None),
            _ => parts(bytes).all(|part| is_good(Some(part.end - 1))),
        }
    }

    /// What was asked for too seldom, or more often than its bad answers are a reason for.
    pub fn unexplained(&self, slack: usize) -> Option<String> {
        self.gets.iter().filter(|(wanted, _)| wanted.last != PROBE).find_map(|(wanted, answers)| {
            let Answers { asked, good } = *answers;
            (good == 0 || good > 1 + slack)
                .then(|| format!("{wanted:?} was asked for {asked} times, of which {good} brought it"))
        })
    }
}

/// The parts of an object of so many bytes.
pub fn parts(bytes: u64) -> impl Iterator<Item = Range<u64>> {
    (0..bytes).step_by(PART_BYTES as usize).map(move |start| start..bytes.min(start + PART_BYTES))
}
