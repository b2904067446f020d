//! What stands in the way of settings, said in terms of what the user wrote.

use flatout_engine::{Feature, Hint, Word, setting, text};
use flatout_settings::SettingError;

/// What stands in the way.
#[derive(Debug, thiserror::Error)]
pub enum AmbientError {
    /// A value that its knob does not take, and where the value came from.
    #[error("{place}: {}", without_name(.cause))]
    Setting {
        /// `--part-size`, `FLATOUT_PART_SIZE` or `~/.config/flatout/config.toml:3:1: part-size`.
        place: String,
        /// What is wrong with the value.
        cause: Box<SettingError>,
    },
    /// A variable of our prefix that no knob has.
    #[error("{name}: there is no such setting")]
    Unknown {
        /// The variable.
        name: String,
        /// What was most likely meant.
        nearest: Option<String>,
    },
    /// A profile that no file has.
    #[error("{place}: there is no profile '{name}'")]
    NoProfile {
        /// `--profile` or `FLATOUT_PROFILE`.
        place: String,
        /// What was asked for.
        name: String,
        /// What was most likely meant.
        nearest: Option<String>,
        /// Every profile that there is.
        known: Vec<String>,
    },
    /// Our own config file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// One key without the other.
    #[error("{present} is set but {missing} is not")]
    HalfPair {
        /// The variable that was found.
        present: &'static str,
        /// The variable that it needs beside it.
        missing: &'static str,
    },
    /// A key that could not be sent as a header.
    #[error("{variable} holds {what}")]
    BadKey {
        /// The variable; its value is never quoted.
        variable: &'static str,
        /// The kind of character in the way.
        what: &'static str,
    },
    /// A variable whose bytes are no text.
    #[error("{0} is not valid UTF-8")]
    NotText(String),
}

/// What is wrong with config.toml. A place is `FILE:LINE:COLUMN`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file that `FLATOUT_CONFIG` names, or one that is there, cannot be read.
    #[error("{file}: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// The operating system's reason.
        why: String,
        /// Whether `FLATOUT_CONFIG` named it.
        named: bool,
    },
    /// No TOML.
    #[error("{place}: this is no TOML: {why}")]
    Syntax {
        /// Where.
        place: String,
        /// The parser's reason, in one line.
        why: String,
    },
    /// A key that no knob has.
    #[error("{place}: there is no setting '{key}'")]
    UnknownKey {
        /// Where.
        place: String,
        /// As written.
        key: String,
        /// What was most likely meant.
        nearest: Option<&'static str>,
    },
    /// A value of a kind that no knob takes there.
    #[error("{place}: {key}: {found} where {wanted} belongs")]
    Kind {
        /// Where.
        place: String,
        /// The key.
        key: String,
        /// What stands there.
        found: String,
        /// What to write.
        wanted: &'static str,
    },
    /// A key of an account; its value is never quoted.
    #[error("{place}: '{key}' names a secret, and this file holds none")]
    Secret {
        /// Where.
        place: String,
        /// As written.
        key: String,
    },
    /// The choice of a profile, which a file of profiles cannot make.
    #[error("{place}: a profile is not chosen in the file")]
    ChoosesProfile {
        /// Where.
        place: String,
    },
    /// A key that stands where it cannot take effect.
    #[error("{place}: {what}")]
    Misplaced {
        /// Where.
        place: String,
        /// What and why.
        what: &'static str,
        /// What to do about it.
        hint: &'static str,
    },
}

impl AmbientError {
    /// What stands in the way, where `spell` names a setting, and its value where there is one, as the user
    /// writes them.
    pub fn worded(&self, spell: impl Fn(&str, Option<&str>) -> String) -> String {
        match self {
            AmbientError::Setting { place, cause } => match &**cause {
                SettingError::Together(clash) => format!("{place}: {}", clash.worded(spell)),
                _ => self.to_string(),
            },
            _ => self.to_string(),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<Hint> {
        Some(match self {
            AmbientError::Unknown { nearest: Some(nearest), .. } => format!("did you mean {nearest}?").into(),
            AmbientError::Unknown { name, nearest: None } => {
                let names = Word::Feature(Feature::NameSettings);
                [text(format!("unset {name}; ")), names, text(" names every variable")].into()
            }
            AmbientError::NoProfile { nearest: Some(nearest), .. } => {
                format!("did you mean '{nearest}'?").into()
            }
            AmbientError::NoProfile { known, nearest: None, .. } => match known.is_empty() {
                true => [
                    text("a profile is [profile.NAME] in config.toml ("),
                    Word::Feature(Feature::ConfigPath),
                    text(" says where), or one of ~/.aws/config or ~/.aliyun/config.json"),
                ]
                .into(),
                false => format!("there is {}", known.join(", ")).into(),
            },
            AmbientError::Config(error) => return error.hint(),
            AmbientError::HalfPair { missing, .. } => format!("set {missing} as well").into(),
            AmbientError::BadKey { .. } => "set it again without quotes, spaces or line ends".into(),
            AmbientError::NotText(name) => format!("unset {name}, or set it to plain text").into(),
            AmbientError::Setting { .. } => return None,
        })
    }
}

impl ConfigError {
    fn hint(&self) -> Option<Hint> {
        Some(match self {
            ConfigError::Unreadable { named: true, .. } => "FLATOUT_CONFIG names this file".into(),
            ConfigError::Unreadable { named: false, .. } => {
                "make it a file that you may read, or name another one with FLATOUT_CONFIG".into()
            }
            ConfigError::UnknownKey { nearest: Some(nearest), .. } => {
                format!("did you mean '{nearest}'?").into()
            }
            ConfigError::UnknownKey { nearest: None, .. } => {
                [text("keys are the names of settings: "), Word::Feature(Feature::NameSettings), text(" has them")].into()
            }
            ConfigError::Secret { .. } => {
                "keep keys in ~/.aws/credentials, ~/.aliyun/config.json or variables like AWS_SECRET_ACCESS_KEY, \
                 and choose them here by profile"
                    .into()
            }
            ConfigError::ChoosesProfile { .. } => [
                text("choose it with "),
                setting("profile"),
                text(" or FLATOUT_PROFILE; [profile.NAME] begins one"),
            ]
            .into(),
            ConfigError::Misplaced { hint, .. } => (*hint).into(),
            ConfigError::Syntax { .. } => {
                "a setting is a line as region = \"eu-west-1\" or parallel = 64: text stands in quotes".into()
            }
            ConfigError::Kind { .. } => return None,
        })
    }
}

/// The cause without the knob's name in front, which the place says already.
fn without_name(cause: &SettingError) -> String {
    let text = cause.to_string();
    match cause {
        SettingError::Together(_) => text.trim_start_matches("window ").to_owned(),
        SettingError::Value { knob, .. } | SettingError::Bounds { knob, .. } => {
            text.strip_prefix(&format!("{knob}: ")).unwrap_or(&text).to_owned()
        }
        _ => text,
    }
}
