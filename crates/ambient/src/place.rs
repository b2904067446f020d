//! Home, and how files are named where people read it: `~/.aws/config`, not `/home/somebody/.aws/config`.

use std::io;
use std::path::{Path, PathBuf};

use crate::{AmbientError, Environment, text};

/// The user's home, from the table of variables; none where `HOME` is not set.
pub(crate) struct Home(Option<PathBuf>);

impl Home {
    /// From `HOME`; no other way to a home is tried, as containers and services often have none on purpose.
    pub fn of(environment: &Environment) -> Result<Home, AmbientError> {
        Ok(Home(text(environment, "HOME")?.map(PathBuf::from)))
    }

    pub fn join(&self, below: &str) -> Option<PathBuf> {
        self.0.as_ref().map(|home| home.join(below))
    }

    /// A path out of a variable, where `~/` is the home, as AWS's tools have it.
    pub fn expand(&self, path: &str) -> PathBuf {
        path.strip_prefix("~/").and_then(|below| self.join(below)).unwrap_or_else(|| path.into())
    }

    /// With `~` for the home.
    pub fn short(&self, path: &Path) -> String {
        let below = self
            .0
            .as_ref()
            .filter(|home| home.parent().is_some())
            .and_then(|home| path.strip_prefix(home).ok());
        match below {
            Some(below) => format!("~/{}", below.display()),
            None => path.display().to_string(),
        }
    }
}

/// The operating system's words without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
