//! What a program finds around itself: the only crate that reads the environment.
//! It puts settings together (flag, then `FLATOUT_*`, then `AWS_*`, then default) and answers the engine's question for keys.
//! It knows nothing of argv, terminals or sockets.
#![forbid(unsafe_code)]

mod aws_profile;
mod credentials;
mod files;
mod keys;
mod layers;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use flatout_engine::Config;
use flatout_engine::credentials::{Anonymous, Provider};
use flatout_settings::{SettingError, Settings};

use credentials::{AlibabaKeys, AwsKeys};

/// Variables by name.
pub type Environment = BTreeMap<OsString, OsString>;

/// Everything found: enough for an engine to start.
#[derive(Debug)]
pub struct Ambient {
    /// Every knob, checked one by one and together.
    pub settings: Settings,
    /// Who has the keys for S3.
    pub aws_credentials: Arc<dyn Provider>,
    /// Who has the keys for OSS.
    pub oss_credentials: Arc<dyn Provider>,
}

/// What stands in the way, said in terms of what the user wrote.
#[derive(Debug, thiserror::Error)]
pub enum AmbientError {
    /// A value that its knob does not take, and where the value came from.
    #[error("{place}: {}", without_name(.cause))]
    Setting {
        /// `--part-size` or `FLATOUT_PART_SIZE`.
        place: String,
        /// What is wrong with the value.
        cause: Box<SettingError>,
    },
    /// Values that are each right and wrong together.
    #[error(transparent)]
    Together(Box<SettingError>),
    /// A variable of our prefix that no knob has.
    #[error("{name}: there is no such setting")]
    Unknown {
        /// The variable.
        name: String,
        /// What was most likely meant.
        nearest: Option<String>,
    },
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

impl AmbientError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            AmbientError::Unknown { nearest: Some(nearest), .. } => Some(format!("did you mean {nearest}?")),
            AmbientError::Unknown { name, nearest: None } => {
                Some(format!("unset {name}; flatout cp --help names every variable"))
            }
            AmbientError::HalfPair { missing, .. } => {
                Some(format!("set {missing} as well, or pass --no-sign-request for a public bucket"))
            }
            AmbientError::BadKey { .. } => Some("set it again without quotes, spaces or line ends".into()),
            AmbientError::NotText(name) => Some(format!("unset {name}, or set it to plain text")),
            AmbientError::Setting { .. } | AmbientError::Together(_) => None,
        }
    }
}

/// Reads the surroundings of this process. `flags` are knobs given on the command line, by name.
///
/// # Errors
/// When a value is wrong, a `FLATOUT_*` variable unknown, or a pair of keys half set.
pub fn gather(flags: &[(&str, String)]) -> Result<Ambient, AmbientError> {
    gather_from(flags, &std::env::vars_os().collect())
}

/// The same from a table instead of the process's environment.
///
/// # Errors
/// As [`gather`].
pub fn gather_from(flags: &[(&str, String)], environment: &Environment) -> Result<Ambient, AmbientError> {
    let settings = layers::settings(flags, environment)?;
    let [aws_credentials, oss_credentials] = providers(&settings, environment)?;
    Ok(Ambient { settings, aws_credentials, oss_credentials })
}

/// Who is asked for the keys of S3 and of OSS. Nothing is read yet but the environment of AWS, where half a pair is an error of the user's.
fn providers(settings: &Settings, environment: &Environment) -> Result<[Arc<dyn Provider>; 2], AmbientError> {
    if settings.no_sign_request {
        let nobody = Arc::new(Anonymous { why: "--no-sign-request is on".into() });
        return Ok([nobody.clone(), nobody]);
    }
    keys::find(environment)?;
    let profile = settings.profile.as_deref();
    Ok([Arc::new(AwsKeys::new(environment, profile)), Arc::new(AlibabaKeys::new(environment, profile))])
}

impl From<Ambient> for Config {
    fn from(found: Ambient) -> Config {
        Config {
            settings: found.settings,
            aws_credentials: found.aws_credentials,
            oss_credentials: found.oss_credentials,
            ..Config::default()
        }
    }
}

/// The cause without the knob's name in front, which the place says already.
fn without_name(cause: &SettingError) -> String {
    let text = cause.to_string();
    match cause {
        SettingError::Value { knob, .. } | SettingError::Bounds { knob, .. } => {
            text.strip_prefix(&format!("{knob}: ")).unwrap_or(&text).to_owned()
        }
        _ => text,
    }
}

/// A variable's text; set but empty counts as not set, as it does in AWS's own tools.
fn text(environment: &Environment, name: &str) -> Result<Option<String>, AmbientError> {
    match environment.get(OsStr::new(name)).map(|value| value.to_str()) {
        None | Some(Some("")) => Ok(None),
        Some(Some(value)) => Ok(Some(value.to_owned())),
        Some(None) => Err(AmbientError::NotText(name.to_owned())),
    }
}
