//! What Python's `logging` is told of origins: by whoever waits for one, since no thread of the engine's takes the interpreter's lock.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flatout_engine::OriginStats;
use pyo3::prelude::*;

use crate::engine::Engine;
use crate::exit;

/// How often origins are looked at, at most.
const EVERY: Duration = Duration::from_millis(200);

/// An outage of a fraction of a second is nobody's news.
const OUTAGE_AFTER: Duration = Duration::from_secs(1);

/// `logging.WARNING`.
const WARNING: i32 = 30;

/// What was told, and when that was looked at last.
#[derive(Default)]
pub struct Told {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the settings, to be told first.
    warnings: Vec<String>,
    looked: Option<Instant>,
    /// Of each origin.
    counts: HashMap<String, Counts>,
}

/// What was told of an origin: attempts that were tried again, answers that asked for less, and that it is away.
#[derive(Default)]
struct Counts {
    retries: u64,
    throttled: u64,
    is_away: bool,
}

impl Told {
    /// Begins with what is most likely not as it was meant.
    pub fn with(warnings: Vec<String>) -> Told {
        Told { state: Mutex::new(State { warnings, ..State::default() }) }
    }

    /// Whether it is time to look again, and nobody does.
    fn is_due(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.looked.is_none_or(|looked| looked.elapsed() >= EVERY))
    }

    /// What there is to tell.
    fn news(&self, engine: &Engine) -> Vec<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.looked = Some(Instant::now());
        let mut news = std::mem::take(&mut state.warnings);
        news.extend(engine.origins().into_iter().flat_map(|origin| state.of(origin)));
        news
    }
}

impl State {
    fn of(&mut self, now: OriginStats) -> Vec<String> {
        let OriginStats { origin, retries, throttled, outage, limited_by, .. } = now;
        let told = self.counts.entry(origin.clone()).or_default();
        let (again, less) = (retries - told.retries.min(retries), throttled - told.throttled.min(throttled));
        (told.retries, told.throttled) = (retries, throttled);
        let mut news = Vec::new();
        match outage {
            Some(outage) if !told.is_away && outage.waited.so_far >= OUTAGE_AFTER => {
                told.is_away = true;
                let timeout = outage.waited.timeout.as_secs().max(1);
                news.push(format!("{origin}: waiting for it, up to {timeout} s: {}", outage.why));
            }
            Some(_) => {}
            None if std::mem::take(&mut told.is_away) => news.push(format!("{origin}: is back")),
            None => {}
        }
        if again > 0 {
            let limit = limited_by.map_or_else(String::new, |limit| format!("; limited by {limit}"));
            news.push(format!("{origin}: {again} requests were tried again{limit}"));
        }
        if less > 0 {
            news.push(format!("{origin}: asked {less} times for less"));
        }
        news
    }
}

/// Tells it, to whoever listens.
pub fn tell(py: Python<'_>, engine: &Engine) {
    if engine.is_foreign() || !engine.told.is_due() {
        return;
    }
    let news = exit::detached(py, || engine.told.news(engine));
    if news.is_empty() {
        return;
    }
    let told = py.import("flatout._log").and_then(|module| {
        let logger = module.getattr("logger")?;
        news.iter().try_for_each(|line| logger.call_method1("log", (WARNING, "%s", line)).map(drop))
    });
    if let Err(error) = told {
        // A handler of the program's that fails says nothing about the call.
        error.write_unraisable(py, None);
    }
}
