//! What limits a speed, as it stands in JSON.

use flatout_engine::LimitedBy;
use serde::{Deserialize, Serialize};

/// What limits a speed, in words and figures; a bench child also sends it to its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limited {
    /// One word: `network`, `cpu`, …
    pub by: String,
    /// A sentence for people.
    pub says: String,
    /// The figures of the sentence, by name.
    #[serde(flatten)]
    figures: serde_json::Map<String, serde_json::Value>,
}

impl From<LimitedBy> for Limited {
    fn from(by: LimitedBy) -> Limited {
        let figures = by.figures().into_iter().map(|(name, figure)| (name.to_owned(), figure.into()));
        Limited { by: by.name().to_owned(), says: says(by), figures: figures.collect() }
    }
}

/// In a sentence; a setting is named by its flag, as in all JSON.
pub fn says(by: LimitedBy) -> String {
    let dashes = by.setting().map_or("", |_| "--");
    format!("{dashes}{by}")
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
    }
}
