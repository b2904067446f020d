//! A finding: what was found, how it stands, what it means for speed, and what to do about it.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::exit::Exit;

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Good,
    /// It costs speed, or may.
    Note,
    /// It keeps transfers from working.
    Bad,
}

impl Level {
    /// Four letters each, so that lines align.
    pub fn name(self) -> &'static str {
        match self {
            Level::Good => "good",
            Level::Note => "note",
            Level::Bad => "bad ",
        }
    }
}

/// What one look at one thing came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub level: Level,
    /// One or two words: `open files`.
    pub topic: &'static str,
    /// The fact, without a verdict.
    pub found: String,
    /// More of it, a line each.
    pub details: Vec<String>,
    /// What it means for speed; empty where the fact speaks for itself.
    pub means: String,
    /// What to do about it.
    pub advice: Option<String>,
    /// How a run ends in which this was found.
    pub exit: Exit,
    /// The facts as numbers and names, for programs.
    pub facts: Map<String, Value>,
}

impl Finding {
    pub fn good(topic: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            level: Level::Good,
            topic,
            found: found.into(),
            details: Vec::new(),
            means: String::new(),
            advice: None,
            exit: Exit::Clean,
            facts: Map::new(),
        }
    }

    pub fn note(topic: &'static str, found: impl Into<String>) -> Finding {
        Finding { level: Level::Note, ..Finding::good(topic, found) }
    }

    pub fn bad(topic: &'static str, found: impl Into<String>) -> Finding {
        Finding { level: Level::Bad, exit: Exit::Failed, ..Finding::good(topic, found) }
    }

    #[must_use]
    pub fn means(mut self, means: impl Into<String>) -> Finding {
        self.means = means.into();
        self
    }

    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }

    #[must_use]
    pub fn details(mut self, details: Vec<String>) -> Finding {
        self.details = details;
        self
    }

    /// `exit` is how a run ends that has found this.
    #[must_use]
    pub fn ending(mut self, exit: Exit) -> Finding {
        self.exit = exit;
        self
    }

    /// Adds a fact; one that is not known is left out.
    #[must_use]
    pub fn fact(mut self, name: &str, value: impl Into<Option<Value>>) -> Finding {
        if let Some(value) = value.into() {
            self.facts.insert(name.to_owned(), value);
        }
        self
    }
}

/// The gravest end of them all.
pub fn worst<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Exit {
    findings.into_iter().map(|finding| finding.exit).max().unwrap_or(Exit::Clean)
}
