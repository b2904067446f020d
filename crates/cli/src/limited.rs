//! What held a run's speed back, as lines and events say it.

use flatout_engine::LimitedBy;
use serde::{Deserialize, Serialize};

/// What limits, in words and figures; also from a bench child to its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limited {
    /// One word: `network`, `cpu`, …
    pub by: String,
    /// For people.
    pub says: String,
    /// The figures of the words, by name.
    #[serde(flatten)]
    figures: serde_json::Map<String, serde_json::Value>,
}

/// Runs under this end before there is much to say about them.
const WORTH_SAYING_S: f64 = 1.0;

impl From<LimitedBy> for Limited {
    fn from(by: LimitedBy) -> Limited {
        let figures = by.figures().into_iter().map(|(name, figure)| (name.to_owned(), figure.into()));
        Limited { by: by.name().to_owned(), says: says(by), figures: figures.collect() }
    }
}

/// In a sentence; a setting is named by its flag.
pub fn says(by: LimitedBy) -> String {
    let dashes = by.setting().map_or("", |_| "--");
    format!("{dashes}{by}")
}

/// The line at the end of a run that took so long.
pub fn line(by: Option<LimitedBy>, seconds: f64) -> Option<String> {
    by.filter(|_| seconds >= WORTH_SAYING_S).map(|by| format!("limited by {}", says(by)))
}

#[cfg(test)]
mod tests {
    use flatout_engine::Bound;

    use super::*;

    #[test]
    fn figures_stand_beside_the_words_and_come_back() {
        let by = LimitedBy::Parallel { bound: Bound::Parallel, parallel: 8, bytes_per_s: 2048 };
        let limited = Limited::from(by);
        let json = serde_json::to_string(&limited).unwrap();
        let expected = r#"{"by":"parallel","says":"--parallel: 8 in flight carry 2KiB/s","bytes_per_s":2048,"parallel":8}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<Limited>(&json).unwrap(), limited);
        let says = "limited by --parallel: 8 in flight carry 2KiB/s";
        assert_eq!(
            (line(Some(by), 2.0).as_deref(), line(Some(by), 0.5), line(None, 2.0)),
            (Some(says), None, None)
        );
    }
}
