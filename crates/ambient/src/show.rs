//! What was settled, for people: every value with its place, what follows from others filled in, secrets masked.

use flatout_wire::s3::{Addressing, S3};

use crate::Ambient;
use crate::layers::{Layer, Row};
use crate::mask::{masked, tail};

/// Whose requests are signed with what; never more of a key than its last four characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// `s3` or `oss`.
    pub dialect: &'static str,
    /// Where the keys come from; none when requests leave unsigned.
    pub provider: Option<&'static str>,
    /// `…` and the end of the access key.
    pub key: Option<String>,
    /// Why there are none.
    pub note: Option<String>,
}

impl Ambient {
    /// Every knob's value and where it came from, in the order of the table of knobs.
    pub fn table(&self) -> Vec<Row> {
        let mut rows = self.rows.clone();
        self.derive_s3(&mut rows);
        self.derive_oss(&mut rows);
        for value in rows.iter_mut().filter(|row| is_url(row.name)).flat_map(|row| &mut row.values) {
            *value = masked(value);
        }
        rows
    }

    /// The credentials for each dialect. The seam for the chains of providers: each adds its name here.
    pub fn signers(&self) -> Vec<Signer> {
        let signer = match &self.credentials {
            Some(keys) => Signer {
                dialect: "s3",
                provider: Some("environment"),
                key: Some(tail(&keys.access_key)),
                note: None,
            },
            None => Signer { dialect: "s3", provider: None, key: None, note: self.credentials_note.clone() },
        };
        vec![signer]
    }

    /// `wire` takes S3's region from the endpoint's name and AWS's endpoint from the region; here it is said.
    fn derive_s3(&self, rows: &mut [Row]) {
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

    /// The same for OSS, once `wire::oss` says one from the other: the seam for `Oss::new` and its endpoint and region.
    fn derive_oss(&self, _rows: &mut [Row]) {}
}

fn fill(rows: &mut [Row], name: &str, value: String, layer: Layer, place: &str) {
    let row = rows.iter_mut().find(|row| row.name == name).expect("the table has a row for every knob");
    *row = Row { name: row.name, values: vec![value], layer, place: place.to_owned() };
}

fn is_url(name: &str) -> bool {
    matches!(name, "endpoint-url" | "oss-endpoint" | "proxy" | "http-proxy" | "https-proxy")
}
