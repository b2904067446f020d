//! One violation: its place, and what to write instead.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    /// Relative to the workspace.
    pub path: String,
    /// From 1; 0 for the whole file.
    pub line: usize,
    pub say: String,
}

impl Complaint {
    pub fn new(path: &str, line: usize, say: impl Into<String>) -> Complaint {
        Complaint { path: path.to_owned(), line, say: say.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.say),
            line => write!(out, "{}:{line}: {}", self.path, self.say),
        }
    }
}
