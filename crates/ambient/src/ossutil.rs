//! `~/.ossutilconfig`: ossutil 1 writes `[Credentials]`, ossutil 2 `[default]` and `[profile NAME]`.

use crate::files::read_named;
use crate::ini::{self, IniSection};
use crate::place::Home;
use crate::{AmbientError, Environment};

/// The file as it was read.
pub(crate) struct OssutilFile {
    /// As people know it.
    pub(crate) name: String,
    sections: Vec<IniSection>,
    /// What is wrong with a line of it.
    pub(crate) syntax_error: Option<String>,
}

impl OssutilFile {
    /// `None` where there is no file, or no home; the inner error is why it cannot be read.
    ///
    /// # Errors
    /// `HOME` is no text.
    pub(crate) fn read(
        environment: &Environment,
    ) -> Result<Result<Option<OssutilFile>, String>, AmbientError> {
        let home = Home::of(environment)?;
        let Some(path) = home.join(".ossutilconfig") else { return Ok(Ok(None)) };
        let name = home.short(&path);
        Ok(read_named(&path, &name).map(|text| {
            let (sections, syntax_error) = ini::parse(&text?);
            let syntax_error = syntax_error
                .map(|syntax_error| format!("{name}: line {}: {}", syntax_error.line, syntax_error.what));
            Some(OssutilFile { name, sections, syntax_error })
        }))
    }

    /// The names of its profiles.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.sections.iter().filter_map(|section| section.name.strip_prefix("profile "))
    }

    /// Whether the profile is one of the file's own; its first ones are the default.
    pub(crate) fn has(&self, profile: &str) -> bool {
        let is_first = |section: &IniSection| profile == "default" && section.name == "Credentials";
        self.sections.iter().any(|section| is_of(section, profile) || is_first(section))
    }

    /// Of the profile that was asked for, or of the first ones where the file has none of that name: the
    /// section that has the key.
    pub(crate) fn with(&self, profile: Option<&str>, key: &str) -> Option<&IniSection> {
        let has = |section: &&IniSection| section.get(key).is_some_and(|entry| !entry.value.is_empty());
        let sections = self.sections.iter();
        match profile.filter(|name| self.has(name) && *name != "default") {
            Some(name) => sections.filter(|section| is_of(section, name)).find(has),
            None => sections.filter(|section| matches!(&*section.name, "default" | "Credentials")).find(has),
        }
    }
}

fn is_of(section: &IniSection, profile: &str) -> bool {
    section.name == profile || section.name.strip_prefix("profile ") == Some(profile)
}
