//! The tunnel's log: what was asked for, how often, and what it met with.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::cell::PART_BYTES;

/// Something that is asked for again and again until it is there: a range of an object, by its last byte; an
/// empty one has none, and a page of a listing has no key either. Of an upload: a step of it, and the
/// number of the part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    pub key: String,
    pub step: Option<String>,
    pub last: Option<u64>,
}

/// How it was answered, time after time.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    pub asked: usize,
    /// Of these, how many brought all of what was asked for, as it is.
    pub good: usize,
}

/// A request, in the order in which they came.
#[derive(Clone, Debug)]
struct Ask {
    /// In seconds since the origin started.
    t_s: f64,
    /// None of a HEAD.
    wanted: Option<Wanted>,
    fault: Option<String>,
    is_served: bool,
    listener: u64,
}

/// All requests of a run.
#[derive(Debug, Default)]
pub struct Log {
    asks: Vec<Ask>,
    gets: BTreeMap<Wanted, Answers>,
    /// Answers that met with a fault or were refused, HEADs included, whether or not anybody minds.
    pub hits: usize,
}

/// The byte that `bench peer` asks for before anything else: it lands nowhere.
const PROBE: Option<u64> = Some(0);

impl Log {
    /// `objects` are the keys and sizes of what there is.
    pub fn read(path: &Path, objects: &[(String, u64)]) -> Log {
        let mut log = Log::default();
        // The origin makes it when it starts.
        let text = fs::read_to_string(path).expect("the tunnel's log is there");
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|wrong| panic!("{wrong}: {line}"));
            log.add(&line, objects);
        }
        // They are written when their answers end.
        log.asks.sort_by(|one, other| one.t_s.total_cmp(&other.t_s));
        log
    }

    fn add(&mut self, line: &Value, objects: &[(String, u64)]) {
        let fault = line["fault"].as_str();
        let is_served = line["status"].as_u64().is_some_and(|status| (200..300).contains(&status));
        self.hits += usize::from(fault.is_some() || !is_served);
        let mut ask = Ask {
            t_s: line["t_s"].as_f64().expect("a time"),
            wanted: None,
            fault: fault.map(str::to_owned),
            is_served,
            listener: line["listener"].as_u64().expect("a listener"),
        };
        let step = line["step"].as_str().map(str::to_owned);
        if line["method"] != "GET" && step.is_none() {
            self.asks.push(ask);
            return;
        }
        let key = line["key"].as_str().expect("a key").to_owned();
        // Who asks for the whole asks for its last byte.
        let of_whole =
            || objects.iter().find(|(known, _)| *known == key).and_then(|(_, bytes)| bytes.checked_sub(1));
        let last = match step {
            None => line["range"].get(1).and_then(Value::as_u64).or_else(of_whole),
            Some(_) => line["part"].as_u64(),
        };
        let wanted = Wanted { key, step, last };
        ask.wanted = Some(wanted.clone());
        self.asks.push(ask);
        let answers = self.gets.entry(wanted).or_default();
        answers.asked += 1;
        answers.good += usize::from(is_served && matches!(fault, None | Some("slow" | "put-slow")));
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
            let wanted = Wanted { key: key.to_owned(), step: None, last };
            self.gets.get(&wanted).is_some_and(|answers| answers.good > 0)
        };
        match bytes {
            0 => is_good(None),
            _ => parts(bytes).all(|part| is_good(Some(part.end - 1))),
        }
    }

    /// Whether an origin has taken an object, and said so.
    pub fn stored(&self, key: &str) -> bool {
        let is_end = |wanted: &Wanted| matches!(wanted.step.as_deref(), Some("put" | "complete"));
        self.gets.iter().any(|(wanted, answers)| wanted.key == key && is_end(wanted) && answers.good > 0)
    }

    /// Uploads that were begun without the client's hearing of it: nobody can end them.
    pub fn lost_uploads(&self) -> usize {
        let begins = |ask: &&Ask| {
            let step = ask.wanted.as_ref().and_then(|wanted| wanted.step.as_deref());
            step == Some("create") && ask.fault.as_deref() == Some("put-lost") && ask.is_served
        };
        self.asks.iter().filter(begins).count()
    }

    /// What never came, or came more often than once, if that is more than `spare` answers too many in the
    /// whole run.
    pub fn unexplained(&self, spare: usize) -> Option<String> {
        let parts = || self.gets.iter().filter(|(wanted, _)| wanted.last != PROBE);
        let surplus: usize = parts().map(|(_, answers)| answers.good.saturating_sub(1)).sum();
        // A step of an upload may be over although its answer was lost: the object tells.
        let wrong = |wanted: &Wanted, good| good == 0 && wanted.step.is_none() || good > 1 && surplus > spare;
        let mut parts = parts();
        parts.find(|(wanted, answers)| wrong(wanted, answers.good)).map(|(wanted, Answers { asked, good })| {
            format!(
                "{wanted:?} was asked for {asked} times, of which {good} brought it; {surplus} came in vain"
            )
        })
    }

    /// What was refused for its being too much and asked for again before this time was over.
    pub fn hurried(&self, delay: Duration) -> Option<String> {
        let is_refused = |ask: &Ask| ask.fault.as_deref() == Some("throttle");
        let wanted =
            self.gets.keys().map(|wanted| self.asks.iter().filter(|ask| ask.wanted.as_ref() == Some(wanted)));
        let mut pairs = wanted.flat_map(|asks| asks.clone().zip(asks.skip(1)));
        let early = pairs.find(|(one, next)| is_refused(one) && next.t_s - one.t_s < delay.as_secs_f64());
        early.map(|(one, next)| format!("{:?} came back after {:.3} s", one.wanted, next.t_s - one.t_s))
    }

    /// How many tokens have expired that live so long from their first use on. Who still comes with the one
    /// before has not met with the end of another.
    pub fn expired_tokens(&self, life: Duration) -> usize {
        // The tunnel's watch and the log's are read one after the other.
        let life_s = life.as_secs_f64() - 0.02;
        let (mut first_s, mut expired) = (None, 0);
        for ask in &self.asks {
            match (ask.fault.as_deref(), first_s) {
                (Some("expire-token"), Some(first)) if ask.t_s - first >= life_s => {
                    (first_s, expired) = (None, expired + 1)
                }
                (Some("expire-token"), _) => {}
                (_, None) => first_s = Some(ask.t_s),
                _ => {}
            }
        }
        expired
    }

    /// How many bodies had another bit.
    pub fn flips(&self) -> usize {
        self.asks.iter().filter(|ask| ask.fault.as_deref() == Some("flip")).count()
    }

    /// Requests came before this time and after it.
    pub fn goes_across(&self, time: Duration) -> bool {
        let is_before = |ask: &Ask| ask.t_s < time.as_secs_f64();
        self.asks.first().is_some_and(is_before) && self.asks.last().is_some_and(|last| !is_before(last))
    }

    /// How many requests the first address had.
    pub fn at_first_address(&self) -> usize {
        self.asks.iter().filter(|ask| ask.listener == 0).count()
    }

    /// The one who asked for a checksum by HEAD was refused for good.
    pub fn has_refused_head(&self) -> bool {
        self.asks.iter().any(|ask| ask.wanted.is_none())
            && !self.asks.iter().any(|ask| ask.wanted.is_none() && ask.is_served)
    }
}

/// The parts of an object of so many bytes.
pub fn parts(bytes: u64) -> impl Iterator<Item = Range<u64>> {
    (0..bytes).step_by(PART_BYTES as usize).map(move |start| start..bytes.min(start + PART_BYTES))
}
