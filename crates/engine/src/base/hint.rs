//! What can be done about an error, in words that each face completes: a flag of the command line is a
//! keyword in Python.

use std::borrow::Cow;
use std::fmt;

/// A sentence about what can be done. The engine knows no flag and no command: each face words
/// [`Word::Setting`] and [`Word::Feature`] itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint(Vec<Word>);

/// A piece of a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Text for every face.
    Text(Cow<'static, str>),
    /// A knob of docs/settings.md, and the value to set it to.
    Setting {
        /// As in the table of knobs: `oss-region`.
        name: &'static str,
        /// As the user would write it.
        value: Option<Cow<'static, str>>,
    },
    /// A function, command or option that every face has under a name of its own.
    Feature(Feature),
}

/// See [`Word::Feature`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feature {
    /// What is known of one object.
    Stat,
    /// The objects of a bucket.
    List,
    /// An object's bytes, in order.
    Read,
    /// Each setting, and where it and the keys come from.
    ShowSettings,
    /// The names of all settings and of their variables.
    NameSettings,
    /// Leave a file alone that appeared under the target's name meanwhile.
    KeepExisting,
    /// Where config.toml is.
    ConfigPath,
    /// Take the mount on this folder out of sight, though it is in use.
    UnmountLazily(String),
}

/// Text for every face.
pub fn text(text: impl Into<Cow<'static, str>>) -> Word {
    Word::Text(text.into())
}

/// The knob of that name.
pub fn setting(name: &'static str) -> Word {
    debug_assert!(flatout_settings::knob(name).is_some(), "there is no setting {name}");
    Word::Setting { name, value: None }
}

/// The knob of that name with a value for it.
pub fn setting_to(name: &'static str, value: impl Into<Cow<'static, str>>) -> Word {
    debug_assert!(flatout_settings::knob(name).is_some(), "there is no setting {name}");
    Word::Setting { name, value: Some(value.into()) }
}

impl Hint {
    /// Its words, in order: a face joins what it makes of them.
    pub fn words(&self) -> &[Word] {
        &self.0
    }

    /// This hint, `between`, then another one.
    #[must_use]
    pub(crate) fn then(mut self, between: &'static str, other: impl Into<Hint>) -> Hint {
        self.0.push(text(between));
        self.0.extend(other.into().0);
        self
    }
}

impl<const N: usize> From<[Word; N]> for Hint {
    fn from(words: [Word; N]) -> Hint {
        Hint(words.into())
    }
}

impl From<&'static str> for Hint {
    fn from(words: &'static str) -> Hint {
        Hint::from([text(words)])
    }
}

impl From<String> for Hint {
    fn from(words: String) -> Hint {
        Hint::from([text(words)])
    }
}

/// In no face's words: for logs and tests.
impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|word| match word {
            Word::Text(text) => f.write_str(text),
            Word::Setting { name, value: None } => write!(f, "{name}"),
            Word::Setting { name, value: Some(value) } => write!(f, "{name} = {value}"),
            Word::Feature(feature) => write!(f, "{feature:?}"),
        })
    }
}
