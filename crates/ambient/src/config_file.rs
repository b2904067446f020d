//! Our own config.toml: keys of the default profile at the top, `[profile.NAME]` tables for others, each
//! value with its place. Every key and value of every profile is checked, whichever is chosen: an error shows
//! at once.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use flatout_engine::plain;
use flatout_settings::{KNOBS, Kind, Knob, Settings, knob, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{AmbientError, ConfigError};
use crate::place::Home;
use crate::{Environment, daemon, text};

/// Names another file than the default one.
pub(crate) const VARIABLE: &str = "FLATOUT_CONFIG";

/// The profile whose keys stand at the top of the file.
pub(crate) const DEFAULT_PROFILE: &str = "default";

/// The file as read; without profiles when it is not there.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    pub profiles: Vec<Profile>,
    /// Why it is as if it were not there.
    pub passed_over: Option<String>,
}

/// The keys of one profile.
#[derive(Debug)]
pub(crate) struct Profile {
    pub name: String,
    pub entries: Vec<ConfigEntry>,
}

/// One key.
#[derive(Debug)]
pub(crate) struct ConfigEntry {
    pub knob: &'static Knob,
    /// As a user would write it on the command line; several only for a repeatable knob.
    pub values: Vec<String>,
    /// `FILE:LINE:COLUMN`
    pub place: String,
}

impl ConfigFile {
    /// The keys of that profile; none when the file has no such profile.
    pub fn profile(&self, name: &str) -> &[ConfigEntry] {
        self.profiles.iter().find(|profile| profile.name == name).map_or(&[], |profile| &profile.entries)
    }
}

/// Where the file is or would be: `FLATOUT_CONFIG`, else under `XDG_CONFIG_HOME`, else `~/.config`. None
/// without a home.
///
/// # Errors
/// A variable that is no text.
pub(crate) fn path(environment: &Environment) -> Result<Option<PathBuf>, AmbientError> {
    if let Some(named) = text(environment, VARIABLE)? {
        return Ok(Some(named.into()));
    }
    // The XDG specification has a relative path ignored.
    let base = text(environment, "XDG_CONFIG_HOME")?.map(PathBuf::from).filter(|base| base.is_absolute());
    let home = Home::of(environment)?;
    Ok(base.or_else(|| home.join(".config")).map(|base| base.join("flatout/config.toml")))
}

/// Reads it. A default file that is not there is an empty one, and so is one that may not be read in a home
/// that is not this user's, as services have it.
///
/// # Errors
/// Unreadable, no TOML, unknown keys, wrong values, secrets.
pub(crate) fn read(environment: &Environment) -> Result<ConfigFile, AmbientError> {
    let Some(path) = path(environment)? else { return Ok(ConfigFile::default()) };
    let file = Home::of(environment)?.short(&path);
    let named = text(environment, VARIABLE)?.is_some();
    match std::fs::read_to_string(&path) {
        Ok(text) => parse(&file, &text),
        Err(error) if !named && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(ConfigFile::default())
        }
        Err(error) if !named && error.kind() == ErrorKind::PermissionDenied && !is_own(environment)? => {
            let passed_over = Some(format!("{file}: {}, passed over", plain(&error)));
            Ok(ConfigFile { passed_over, ..ConfigFile::default() })
        }
        Err(error) => Err(ConfigError::Unreadable { file, why: plain(&error), named }.into()),
    }
}

/// Whether the folder that settings are looked for in, or the home that it would be made in, is this user's.
fn is_own(environment: &Environment) -> Result<bool, AmbientError> {
    let base = text(environment, "XDG_CONFIG_HOME")?.map(PathBuf::from).filter(|base| base.is_absolute());
    let home = base.or_else(|| Home::of(environment).ok()?.join(""));
    // One that cannot even be looked at lies in somebody else's.
    Ok(home.and_then(|home| home.metadata().ok()).is_some_and(|home| home.uid() == daemon::uid()))
}

/// Parses the text of the file; `file` names it in places.
pub(crate) fn parse(file: &str, text: &str) -> Result<ConfigFile, AmbientError> {
    let source = ConfigSource { file, text };
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        place: source.place(error.span().map_or(0, |span| span.start)),
        why: error.message().trim().replace('\n', "; "),
    })?;
    let mut top = Profile { name: DEFAULT_PROFILE.into(), entries: Vec::new() };
    let mut others = Vec::new();
    for (key, value) in table.get_ref() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("profile", DeValue::Table(profiles)) => others = source.profiles(profiles)?,
            (name, DeValue::Table(_)) if knob(name).is_none() => {
                let hint = "write [profile.NAME] for a profile";
                let what = "the only tables are those of profiles";
                let place = source.place(key.span().start);
                return Err(ConfigError::Misplaced { place, what, hint }.into());
            }
            _ => top.entries.push(source.entry(key, value)?),
        }
    }
    others.insert(0, top);
    Ok(ConfigFile { profiles: others, passed_over: None })
}

type Key<'a> = Spanned<toml::de::DeString<'a>>;

struct ConfigSource<'a> {
    file: &'a str,
    text: &'a str,
}

impl ConfigSource<'_> {
    fn profiles(&self, tables: &DeTable<'_>) -> Result<Vec<Profile>, AmbientError> {
        let mut profiles = Vec::new();
        for (name, value) in tables {
            let place = || self.place(name.span().start);
            let DeValue::Table(table) = value.get_ref() else {
                let hint = "write [profile.NAME] and below it the profile's keys";
                let what = "under 'profile' stand tables, one for each profile";
                return Err(ConfigError::Misplaced { place: place(), what, hint }.into());
            };
            if name.get_ref() == DEFAULT_PROFILE {
                let hint = "write its keys at the top of the file, above every table";
                let what = "the default profile has no table of its own";
                return Err(ConfigError::Misplaced { place: place(), what, hint }.into());
            }
            let entries =
                table.iter().map(|(key, value)| self.entry(key, value)).collect::<Result<_, _>>()?;
            profiles.push(Profile { name: name.get_ref().to_string(), entries });
        }
        Ok(profiles)
    }

    /// One key, its value of the right kind and within the knob's bounds.
    fn entry(&self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Result<ConfigEntry, AmbientError> {
        let name = key.get_ref().as_ref();
        let place = self.place(key.span().start);
        if name == "profile" {
            return Err(ConfigError::ChoosesProfile { place }.into());
        }
        let Some(knob) = knob(name) else {
            let key = name.to_owned();
            let names = KNOBS.iter().map(|knob| knob.name).filter(|name| *name != "profile");
            return Err(match names_a_secret(name) {
                true => ConfigError::Secret { place, key },
                false => ConfigError::UnknownKey { place, key, nearest: nearest(name, names) },
            }
            .into());
        };
        let values = self.values(knob, value)?;
        let mut scratch = Settings::default();
        for value in &values {
            let place = || format!("{place}: {name}");
            scratch
                .set(knob.name, value)
                .map_err(|cause| AmbientError::Setting { place: place(), cause: Box::new(cause) })?;
        }
        Ok(ConfigEntry { knob, values, place })
    }

    fn values(&self, knob: &Knob, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, ConfigError> {
        match value.get_ref() {
            DeValue::Array(items) if knob.kind == Kind::Many => {
                items.iter().map(|item| self.one(knob, item, "a string")).collect()
            }
            _ if knob.kind == Kind::Many => {
                Ok(vec![self.one(knob, value, "a string or an array of strings")?])
            }
            _ => Ok(vec![self.one(knob, value, "a string, a whole number, true or false")?]),
        }
    }

    fn one(
        &self,
        knob: &Knob,
        value: &Spanned<DeValue<'_>>,
        wanted: &'static str,
    ) -> Result<String, ConfigError> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Boolean(on) => Ok(on.to_string()),
            // In hexadecimal and beyond 64 bits it stays as written, and the knob refuses it.
            DeValue::Integer(number) => Ok(i64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.to_string(), |number| number.to_string())),
            other => Err(ConfigError::Kind {
                place: self.place(value.span().start),
                key: knob.name.into(),
                found: with_article(other.type_str()),
                wanted,
            }),
        }
    }

    /// Line and column, both from 1, the column in characters.
    fn place(&self, at_bytes: usize) -> String {
        let before = self.text.get(..at_bytes).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = before.matches('\n').count() + 1;
        format!("{}:{line}:{}", self.file, before[line_start..].chars().count() + 1)
    }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {kind}")
}

/// Whether a key has the name that some tool gives to a part of an account: people copy such lines from other
/// files.
fn names_a_secret(key: &str) -> bool {
    let plain: String = key.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    ["accesskey", "secret", "password", "token", "credential"].iter().any(|part| plain.contains(part))
}
