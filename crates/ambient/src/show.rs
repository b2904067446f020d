//! What was settled, for people: every value with its place, what follows from others filled in, secrets
//! masked.

use flatout_engine::credentials::{Grant, Refused};
use flatout_engine::{Client, Config, Dialect};
use flatout_settings::Settings;
use flatout_wire::oss::{EndpointKind, Oss};
use flatout_wire::s3::{Addressing, S3};

use crate::Ambient;
use crate::layers::{Layer, SettingRow};
use crate::mask::{masked, tail};

/// Whose requests are signed with what; never more of a key than its last four characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// `s3` or `oss`.
    pub dialect: &'static str,
    /// Where the keys come from; none when requests leave unsigned.
    pub provider: Option<String>,
    /// `…` and the end of the access key.
    pub key: Option<String>,
    /// Why there are none.
    pub note: Option<String>,
    /// When the keys end, in seconds since 1970; none for keys that stay.
    pub expires: Option<u64>,
    /// There are no keys because a provider failed: requests will fail, too.
    pub failed: bool,
}

impl Ambient {
    /// What an engine is made from.
    pub fn config(&self) -> Config {
        Config {
            settings: self.settings.clone(),
            aws_credentials: self.aws_credentials.clone(),
            oss_credentials: self.oss_credentials.clone(),
            proxies: self.proxies.clone(),
            oss: self.oss.clone(),
            upload_journals: self.upload_journals.clone(),
            paces: self.paces.clone(),
        }
    }

    /// Every knob's value and where it came from, in the order of the table of knobs.
    pub fn table(&self) -> Vec<SettingRow> {
        let mut rows = self.rows.clone();
        self.derive_s3(&mut rows);
        self.derive_oss(&mut rows);
        for value in rows.iter_mut().filter(|row| is_url(row.name)).flat_map(|row| &mut row.values) {
            *value = masked(value);
        }
        rows
    }

    /// Who has the keys for each dialect: asked now, as at the first request.
    pub fn signers(&self) -> Vec<Signer> {
        let config = self.config();
        // Settings that make no client are said by whoever needs one; the keys do not depend on an endpoint.
        let plain = Config { settings: Settings::default(), ..config.clone() };
        let Ok(client) = Client::new(config).or_else(|_| Client::new(plain)) else { return Vec::new() };
        signers_of(&client, &[Dialect::S3, Dialect::Oss])
    }

    /// `wire` takes S3's region from the endpoint's name and AWS's endpoint from the region; here it is said.
    fn derive_s3(&self, rows: &mut [SettingRow]) {
        let settings = &self.settings;
        let (endpoint, region) = (settings.endpoint_url.as_deref(), settings.region.as_deref());
        // What cannot be used is shown as it is; whoever uses it says what is wrong.
        let Ok(service) = S3::new(endpoint, region, Addressing::Auto) else { return };
        let host = &service.endpoint.host;
        if endpoint.is_none() {
            let url = format!("{}://{}", service.endpoint.scheme.name(), service.endpoint.host_header());
            fill(rows, "endpoint-url", url, Layer::Found, "AWS's own, from the region");
        }
        if region.is_none() {
            let named = host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
            match endpoint.is_some() && named {
                true => fill(rows, "region", service.region, Layer::Found, "from the endpoint's name"),
                false => fill(rows, "region", service.region, Layer::Default, ""),
            }
        }
    }

    /// Fills in the endpoint and region of OSS; without either there is none.
    fn derive_oss(&self, rows: &mut [SettingRow]) {
        let settings = &self.settings;
        let (endpoint, region) = (settings.oss_endpoint.as_deref(), settings.oss_region.as_deref());
        let Ok(service) = Oss::new(endpoint, region, Addressing::Auto) else { return };
        if endpoint.is_none() {
            let url = format!("{}://{}", service.endpoint.scheme.name(), service.endpoint.host_header());
            fill(rows, "oss-endpoint", url, Layer::Found, "the public one, from the region");
        }
        if region.is_none() {
            match service.kind {
                EndpointKind::Public | EndpointKind::Internal => {
                    fill(rows, "oss-region", service.region, Layer::Found, "from the endpoint's name");
                }
                EndpointKind::Accelerate | EndpointKind::Custom => {
                    fill(rows, "oss-region", service.region, Layer::Default, "");
                }
            }
        }
    }
}

/// Who has the keys that `client` signs with in some dialects: asked now, and kept for its requests. Plain
/// URLs are not signed.
pub fn signers_of(client: &Client, dialects: &[Dialect]) -> Vec<Signer> {
    let asked = |dialect: &Dialect| match dialect {
        Dialect::S3 => Some(signer("s3", client.who_has_aws_keys())),
        Dialect::Oss => Some(signer("oss", client.who_has_oss_keys())),
        Dialect::Plain => None,
    };
    dialects.iter().filter_map(asked).collect()
}

fn signer(dialect: &'static str, asked: Result<Grant, Refused>) -> Signer {
    match asked {
        Ok(Grant { credentials, provider, expires }) => {
            let key = Some(tail(&credentials.access_key));
            Signer { dialect, provider: Some(provider), key, note: None, expires, failed: false }
        }
        Err(refused) => {
            let failed = refused.0.iter().any(|tried| tried.failed);
            let note = Some(refused.to_string());
            Signer { dialect, provider: None, key: None, note, expires: None, failed }
        }
    }
}

fn fill(rows: &mut [SettingRow], name: &str, value: String, layer: Layer, place: &str) {
    let row = rows.iter_mut().find(|row| row.name == name).expect("the table has a row for every knob");
    *row = SettingRow { name: row.name, values: vec![value], layer, place: place.to_owned() };
}

fn is_url(name: &str) -> bool {
    matches!(name, "endpoint-url" | "oss-endpoint" | "proxy" | "http-proxy" | "https-proxy")
}
