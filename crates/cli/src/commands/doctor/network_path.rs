//! Facts about the path to an origin: its endpoint, the addresses behind that, and the interface that leads
//! there. Nothing is asked of the origin itself but connections and handshakes.

use std::path::Path;

use flatout_engine::{Client, Dialect, Error, Survey, Way};
use flatout_settings::Settings;
use flatout_wire::location::Location;
use flatout_wire::oss::{EndpointKind, Oss};
use flatout_wire::s3::Addressing;

use super::nic::{ELSEWHERE, Nic};
use crate::failure::Failure;

/// Enough to see how the round trips spread; a sixth would tell nothing new.
const CONNECTS: u32 = 5;

/// What leads to an origin.
pub struct NetworkPath {
    pub dialect: Dialect,
    pub way: Way,
    /// What the name of an OSS endpoint tells.
    pub oss: Option<OssName>,
    /// The addresses, tried; `None` where they were not to be tried.
    pub survey: Option<Result<Survey, Failure>>,
    pub nic: Option<Nic>,
}

/// What the name of an OSS endpoint tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OssName {
    pub kind: EndpointKind,
    pub region: String,
    /// The endpoint that machines of the same region should use, where this is not it.
    pub internal: Option<String>,
}

impl NetworkPath {
    /// The path to a location, with every address tried.
    ///
    /// # Errors
    /// Settings that lead nowhere.
    pub fn survey(client: &Client, settings: &Settings, location: &Location) -> Result<NetworkPath, Error> {
        let way = client.way(location)?;
        let survey = client.survey(&way, CONNECTS);
        let reached = survey.as_ref().ok().and_then(|survey| Some(survey.addresses.first()?.address.ip()));
        let nic = Nic::towards(Path::new("/"), reached.unwrap_or(ELSEWHERE)).ok().flatten();
        let dialect = Dialect::of(location);
        let survey = survey.map_err(|error| Failure::from(error.during("look up", way.nearest())));
        Ok(NetworkPath { dialect, oss: oss_name(dialect, settings), survey: Some(survey), nic, way })
    }

    /// The path to what the settings name, of which only the name is looked at.
    ///
    /// # Errors
    /// As [`NetworkPath::survey`].
    pub fn by_name(client: &Client, settings: &Settings, dialect: Dialect) -> Result<NetworkPath, Error> {
        let way = client.way_to_buckets(dialect)?;
        let literal = way.nearest().host.parse().unwrap_or(ELSEWHERE);
        let nic = Nic::towards(Path::new("/"), literal).ok().flatten();
        Ok(NetworkPath { dialect, oss: oss_name(dialect, settings), survey: None, nic, way })
    }

    /// Whether at least one address can be talked to.
    pub fn is_open(&self) -> bool {
        let Some(Ok(survey)) = &self.survey else { return false };
        survey.addresses.iter().any(|surveyed| surveyed.failure.is_none())
    }

    /// The median round trip of the nearest address, in seconds.
    pub fn round_trip_s(&self) -> Option<f64> {
        let survey = self.survey.as_ref()?.as_ref().ok()?;
        survey.addresses.iter().filter_map(|surveyed| median(&surveyed.connects_s)).min_by(f64::total_cmp)
    }
}

fn oss_name(dialect: Dialect, settings: &Settings) -> Option<OssName> {
    let (endpoint, region) = (settings.oss_endpoint.as_deref(), settings.oss_region.as_deref());
    let oss = Oss::new(endpoint, region, Addressing::Auto).ok().filter(|_| dialect == Dialect::Oss)?;
    let internal = oss.internal_host();
    Some(OssName { kind: oss.kind, region: oss.region, internal })
}

/// The one in the middle; of an even number the lower of both.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}
