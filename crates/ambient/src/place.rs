//! Home, and how files are named where people read it: `~/.aws/config`, not `/home/somebody/.aws/config`.

use std::path::{Path, PathBuf};

use crate::files::at_home;
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

    /// The file that a variable names, else the one at its place below home.
    pub fn named(
        &self,
        environment: &Environment,
        variable: &str,
        below: &str,
    ) -> Result<Option<PathBuf>, AmbientError> {
        Ok(match text(environment, variable)? {
            Some(path) => Some(at_home(environment, &path)),
            None => self.join(below),
        })
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
