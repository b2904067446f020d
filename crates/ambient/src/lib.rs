//! What a program finds around itself: the only crate that reads the environment, home, config files and
//! control groups. It puts settings together (flag, `FLATOUT_*`, our config file, what others have set,
//! default), remembers where each came from, and answers the engine's question for keys. It knows nothing of
//! argv, terminals or sockets.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod answers;
mod aws_profile;
mod cgroup;
mod config_file;
mod credentials;
mod daemon;
mod error;
mod files;
mod found;
mod ini;
mod keys;
mod layers;
mod mask;
mod memory;
mod ossutil;
mod paces;
mod place;
mod proxies;
mod show;

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatout_engine::credentials::{Anonymous, Provider};
use flatout_engine::{Config, Dialect, FoundPace, OssSettings, Proxies};
use flatout_settings::{Settings, knob, nearest};

use credentials::{AlibabaKeys, AwsKeys};

use config_file::{ConfigFile, DEFAULT_PROFILE};
use found::Discovered;
use layers::Layers;

pub use cgroup::GroupLimits;
pub use error::{AmbientError, ConfigError};
pub use layers::{Layer, SettingRow};
pub use mask::masked;
pub use show::{Signer, signers_of};

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
    /// Proxies by scheme; `settings.proxy`, where it is set, is both.
    pub proxies: Proxies,
    /// Settings in which `oss://` differs.
    pub oss: OssSettings,
    /// What earlier runs found of origins; see [`remember`].
    pub paces: Vec<FoundPace>,
    /// Where journals of uploads lie; none where no home is known.
    pub upload_journals: Option<PathBuf>,
    /// Files that could not be read, and why: those of other tools, and ours in a home that is not this
    /// user's.
    pub notes: Vec<String>,
    /// What is most likely not as it was meant, and for which dialect: to be shown to users of that dialect.
    pub warnings: Vec<(Dialect, String)>,
    /// Where each value came from, one row for each knob; [`Ambient::table`] shows them.
    rows: Vec<SettingRow>,
}

/// What holds for `oss://` where two knobs serve both dialects: the same, unless AWS's own variables or files
/// said it. A bucket of MinIO in the path, or agreement to pay AWS, says nothing about OSS.
fn oss_settings(rows: &[SettingRow]) -> OssSettings {
    // Only AWS's are found for these two.
    let found = |name| rows.iter().any(|row| row.name == name && row.layer == Layer::Found);
    OssSettings {
        addressing: found("addressing").then(|| Settings::default().addressing),
        request_payer: found("request-payer").then_some(false),
    }
}

/// Reads the surroundings of this process. `flags` are knobs given on the command line, by name.
///
/// # Errors
/// When a value is wrong or a `FLATOUT_*` variable unknown.
pub fn gather(flags: &[(&str, String)]) -> Result<Ambient, AmbientError> {
    gather_from(flags, &std::env::vars_os().collect())
}

/// The variables of this process, for [`gather_from`].
pub fn environment() -> Environment {
    std::env::vars_os().collect()
}

/// Gathers as [`gather`] does, from a table instead of the process's environment; the table also names home
/// and config files.
///
/// # Errors
/// As [`gather`].
pub fn gather_from(flags: &[(&str, String)], environment: &Environment) -> Result<Ambient, AmbientError> {
    layers::refuse_unknown(environment)?;
    let config = config_file::read(environment)?;
    // The profile chooses what other layers hold, so it is looked for before them, in those that cannot
    // depend on it.
    let ours = Layers { flags, environment, profile: &[], found: &[] };
    let chosen = ours.row(knob("profile").expect("profile is a knob"))?;
    let profile = chosen.values.last().map(String::as_str).filter(|name| !name.is_empty());
    let mut around = found::look(environment, profile)?;
    around.found.extend(memory::look(Path::new("/")));
    around.notes.extend(config.passed_over.clone());
    if let Some(name) = profile {
        refuse_missing(name, &chosen.place, &config, &around)?;
    }
    let entries = config.profile(profile.unwrap_or(DEFAULT_PROFILE));
    let (settings, mut rows) = layers::settle(&Layers { profile: entries, found: &around.found, ..ours })?;
    let (proxies, found) = proxies::find(environment, &settings)?;
    let behind_proxy = rows.iter().position(|row| row.name == "proxy").map_or(rows.len(), |at| at + 1);
    rows.splice(behind_proxy..behind_proxy, found);
    let oss = oss_settings(&rows);
    let [aws_credentials, oss_credentials] = providers(&settings, environment);
    let paces = paces::recall(environment);
    let upload_journals = daemon::state_folder(environment).map(|state| state.join("uploads"));
    let Discovered { notes, warnings, .. } = around;
    Ok(Ambient {
        settings,
        aws_credentials,
        oss_credentials,
        proxies,
        oss,
        paces,
        upload_journals,
        notes,
        warnings,
        rows,
    })
}

/// Who is asked for the keys of S3 and of OSS. Nothing is read yet: half a pair of one is nothing to the
/// other.
fn providers(settings: &Settings, environment: &Environment) -> [Arc<dyn Provider>; 2] {
    if settings.no_sign_request {
        let nobody = Arc::new(Anonymous);
        return [nobody.clone(), nobody];
    }
    let profile = settings.profile.as_deref();
    [Arc::new(AwsKeys::new(environment, profile)), Arc::new(AlibabaKeys::new(environment, profile))]
}

/// Keeps what a client found of origins ([`flatout_engine::Client::paces`]) in the user's cache folder, for
/// the next run. Where there is none, or it cannot be written, the next run begins without.
pub fn remember(found: &[FoundPace]) {
    paces::remember(&std::env::vars_os().collect(), found);
}

/// Removes what was kept; the file's path where there was one.
///
/// # Errors
/// When it is there and cannot be removed.
pub fn forget() -> std::io::Result<Option<PathBuf>> {
    paces::forget(&std::env::vars_os().collect())
}

/// The folder for what makes later runs faster and nothing else: below `XDG_CACHE_HOME` or `~/.cache`. `None`
/// where there is no home. It may have to be made.
pub fn cache_folder() -> Option<PathBuf> {
    paces::cache_folder(&std::env::vars_os().collect())
}

/// Where other programs put what is temporary: `TMPDIR`, or `/tmp`.
pub fn temporary_folder() -> PathBuf {
    std::env::temp_dir()
}

/// Folders for the sockets of running mounts, and for their logs where [`log_folder`] cannot be written to:
/// the first that can be made is used, and mounts may be found in all.
pub fn runtime_folders() -> Vec<PathBuf> {
    daemon::runtime_folders(&std::env::vars_os().collect(), daemon::uid())
}

/// The folder for logs of what runs in the background; none where no home is known.
pub fn log_folder() -> Option<PathBuf> {
    daemon::log_folder(&std::env::vars_os().collect(), daemon::uid())
}

/// The folder for what a mount has begun and must not forget if it is killed; none where no home is known.
pub fn mounts_folder() -> Option<PathBuf> {
    daemon::state_folder(&std::env::vars_os().collect()).map(|state| state.join("mounts"))
}

/// The socket on which a service manager (systemd's `Type=notify`) waits to hear that we stand.
pub fn notify_socket() -> Option<OsString> {
    daemon::notify_socket(&std::env::vars_os().collect())
}

/// Where our config file is or would be; none where neither `FLATOUT_CONFIG` nor a home says so.
///
/// # Errors
/// A variable that is no text.
pub fn config_path() -> Result<Option<PathBuf>, AmbientError> {
    config_file::path(&std::env::vars_os().collect())
}

/// A profile that was asked for has to be somewhere: in our file or in another tool's.
fn refuse_missing(
    name: &str,
    place: &str,
    config: &ConfigFile,
    around: &Discovered,
) -> Result<(), AmbientError> {
    let ours = config.profiles.iter().map(|profile| &profile.name);
    let theirs = around.aws_profiles.iter().chain(&around.alibaba_profiles);
    let mut known: Vec<String> = ours.chain(theirs).cloned().collect();
    if known.iter().any(|known| known == name) || name == DEFAULT_PROFILE {
        return Ok(());
    }
    known.retain(|known| known != DEFAULT_PROFILE);
    known.sort();
    known.dedup();
    let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
    Err(AmbientError::NoProfile { place: place.to_owned(), name: name.to_owned(), nearest, known })
}

impl From<Ambient> for Config {
    fn from(found: Ambient) -> Config {
        Config {
            settings: found.settings,
            aws_credentials: found.aws_credentials,
            oss_credentials: found.oss_credentials,
            proxies: found.proxies,
            oss: found.oss,
            paces: found.paces,
            upload_journals: found.upload_journals,
        }
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
