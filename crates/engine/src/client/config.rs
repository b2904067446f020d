//! What a client is made from.

use std::path::PathBuf;
use std::sync::Arc;

use flatout_settings::Settings;

use crate::api::account::OssSettings;
use crate::api::credentials::{Anonymous, Provider};
use crate::gate::FoundPace;
use crate::net::proxy::Proxies;

/// What a client is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Every knob.
    pub settings: Settings,
    /// Who is asked for the keys of S3 calls.
    pub aws_credentials: Arc<dyn Provider>,
    /// Who is asked for the keys of OSS calls.
    pub oss_credentials: Arc<dyn Provider>,
    /// Proxies found around, for where the settings name none.
    pub proxies: Proxies,
    /// Settings in which `oss://` differs.
    pub oss: OssSettings,
    /// What earlier runs found of origins; see [`Client::paces`](crate::Client::paces).
    pub paces: Vec<FoundPace>,
    /// The folder for journals of uploads, by which a later run goes on with one that was broken off; `None`:
    /// none does.
    pub upload_journals: Option<PathBuf>,
}

impl Default for Config {
    /// The default of every knob, and no keys.
    fn default() -> Config {
        let nobody: Arc<dyn Provider> = Arc::new(Anonymous);
        Config {
            settings: Settings::default(),
            aws_credentials: nobody.clone(),
            oss_credentials: nobody,
            proxies: Proxies::default(),
            oss: OssSettings::default(),
            paces: Vec::new(),
            upload_journals: None,
        }
    }
}
