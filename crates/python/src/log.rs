//! Reports trouble with origins to Python's `logging`. The threads that wait for a call do it: no thread of
//! the engine's takes the interpreter's lock.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flatout_engine::{Direction, OriginStats};
use pyo3::prelude::*;

use crate::engine::Engine;
use crate::exit;

/// The least time between two looks at the origins.
const EVERY: Duration = Duration::from_millis(200);

/// A shorter outage is not worth a message.
const OUTAGE_AFTER: Duration = Duration::from_secs(1);

/// `logging.WARNING`.
const WARNING: i32 = 30;

/// What was logged so far.
#[derive(Default)]
pub struct OriginLog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the settings; logged first.
    warnings: Vec<String>,
    looked_at: Option<Instant>,
    /// By origin.
    counts: HashMap<(String, Direction), OriginCounts>,
}

/// What was logged of one origin: attempts tried again, answers that asked for less, and whether it is away.
#[derive(Default)]
struct OriginCounts {
    retries: u64,
    throttled: u64,
    is_away: bool,
}

impl OriginLog {
    /// With warnings of the settings.
    pub fn with(warnings: Vec<String>) -> OriginLog {
        OriginLog { state: Mutex::new(State { warnings, ..State::default() }) }
    }

    /// Whether it is time to look again, and no other thread does.
    fn is_due(&self) -> bool {
        self.state
            .try_lock()
            .is_ok_and(|state| state.looked_at.is_none_or(|looked_at| looked_at.elapsed() >= EVERY))
    }

    /// What is new.
    fn news(&self, engine: &Engine) -> Vec<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.looked_at = Some(Instant::now());
        let mut news = std::mem::take(&mut state.warnings);
        news.extend(engine.origins().into_iter().flat_map(|origin| state.of(origin)));
        news
    }
}

impl State {
    fn of(&mut self, now: OriginStats) -> Vec<String> {
        let OriginStats { origin, direction, retries, throttled, outage, limited_by, .. } = now;
        let known = self.counts.entry((origin.clone(), direction)).or_default();
        let (again, less) =
            (retries - known.retries.min(retries), throttled - known.throttled.min(throttled));
        (known.retries, known.throttled) = (retries, throttled);
        let mut news = Vec::new();
        match outage {
            Some(outage) if !known.is_away && outage.waited.so_far >= OUTAGE_AFTER => {
                known.is_away = true;
                let timeout = outage.waited.timeout.as_secs().max(1);
                news.push(format!("{origin}: waiting for it, up to {timeout} s: {}", outage.why));
            }
            Some(_) => {}
            None if std::mem::take(&mut known.is_away) => news.push(format!("{origin}: is back")),
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

/// Logs what is new.
pub fn report(py: Python<'_>, engine: &Engine) {
    if engine.is_foreign() || !engine.log.is_due() {
        return;
    }
    let news = exit::detached(py, || engine.log.news(engine));
    if news.is_empty() {
        return;
    }
    let logged = py.import("flatout._log").and_then(|module| {
        let logger = module.getattr("logger")?;
        news.iter().try_for_each(|line| logger.call_method1("log", (WARNING, "%s", line)).map(drop))
    });
    if let Err(error) = logged {
        // A handler of the program's that fails is no failure of the call.
        error.write_unraisable(py, None);
    }
}
