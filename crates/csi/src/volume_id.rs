//! The name of a volume that the controller has made. It says where the volume lies and how to get there,
//! since whoever deletes a volume is told nothing else: `s3://BUCKET/PREFIX/NAME?endpoint-url=URL`.

use flatout_wire::location::Location;
use flatout_wire::percent;

use crate::volume::Identity;

/// Knobs without which the bucket is not found.
pub const OF_PLACES: [&str; 9] = [
    "endpoint-url",
    "region",
    "addressing",
    "oss-endpoint",
    "oss-region",
    "oss-signature",
    "request-payer",
    "ca-bundle",
    "resolve",
];
const IDENTITY: &str = "identity";
const STAYS: &str = "stays";
const NAME: &str = "name";

/// A folder of a bucket that was made for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeId {
    /// With a slash at its end.
    pub folder: Location,
    /// Those of [`OF_PLACES`] that were chosen.
    pub knobs: Vec<(String, String)>,
    /// None: the keys of the Secret, else the driver's own.
    pub identity: Option<Identity>,
    /// It was there before, or is to stay: nothing of it is deleted.
    pub stays: bool,
    /// Of a volume that shares its folder with others: two of them in one pod are two.
    pub name: Option<String>,
}

impl VolumeId {
    /// `None` for what no controller of ours has made.
    pub fn parse(id: &str) -> Option<VolumeId> {
        let decoded = |text: &str| String::from_utf8(percent::decode(text).into_owned()).ok();
        let (place, query) = id.split_once('?').unwrap_or((id, ""));
        let folder = Location::parse(&format!("{}/", decoded(place)?)).ok()?;
        let (bucket, key) = folder.in_bucket()?;
        if bucket.is_empty() {
            return None;
        }
        let is_bucket = key.trim_matches('/').is_empty();
        let mut parsed = VolumeId { folder, knobs: Vec::new(), identity: None, stays: false, name: None };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=')?;
            let value = decoded(value)?;
            match name {
                IDENTITY => parsed.identity = Some(serde_json::from_str(&value).ok()?),
                STAYS => parsed.stays = true,
                NAME => parsed.name = Some(value),
                name if OF_PLACES.contains(&name) => parsed.knobs.push((name.to_owned(), value)),
                _ => return None,
            }
        }
        // No volume of its own is a whole bucket.
        (!is_bucket || parsed.name.is_some()).then_some(parsed)
    }

    /// The text of it.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}://", self.folder.scheme());
        let (bucket, key) = self.folder.in_bucket().unwrap_or_default();
        text.push_str(bucket);
        for part in key.trim_end_matches('/').split('/').filter(|part| !part.is_empty() || !key.is_empty()) {
            text.push('/');
            percent::encode_query(part, &mut text);
        }
        let identity = self.identity.as_ref().and_then(|identity| serde_json::to_string(identity).ok());
        let knobs = self.knobs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let identity = identity.as_deref().map(|identity| (IDENTITY, identity));
        let pairs = knobs.chain(identity).chain(self.stays.then_some((STAYS, "1")));
        let pairs = pairs.chain(self.name.as_deref().map(|name| (NAME, name)));
        for (at, (name, value)) in pairs.enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            percent::encode_query(value, &mut text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_say_where_a_volume_lies() {
        let check = |folder: &str, endpoint: Option<&str>, stays: bool, text: &str| {
            let knobs = endpoint.map(|url| ("oss-endpoint".to_owned(), url.to_owned()));
            let id = VolumeId {
                folder: Location::parse(folder).unwrap(),
                knobs: knobs.into_iter().collect(),
                identity: None,
                stays,
                name: None,
            };
            assert_eq!(id.to_text(), text);
            assert_eq!(VolumeId::parse(text), Some(id), "{text}");
        };
        check("s3://data/teams/pvc-1/", None, false, "s3://data/teams/pvc-1");
        check(
            "oss://data/pvc-1/",
            Some("http://127.0.0.1:9000"),
            true,
            "oss://data/pvc-1?oss-endpoint=http%3A%2F%2F127.0.0.1%3A9000&stays=1",
        );
        check("s3://data/a?b %/", None, false, "s3://data/a%3Fb%20%25");
        for text in ["pv-ossfs2", "", "s3://data", "s3://data?stays=1", "http://host/x", "s3://data/x?more=1"]
        {
            assert_eq!(VolumeId::parse(text), None, "{text}");
        }
        for shared in ["s3://data?stays=1&name=pvc-1", "s3://data/teams?stays=1&name=pvc-1"] {
            let id = VolumeId::parse(shared).unwrap();
            assert_eq!(
                (id.name.as_deref(), id.stays, id.to_text()),
                (Some("pvc-1"), true, shared.to_owned())
            );
        }
        let role = Identity::Machine { role: "reader".into() };
        let id = VolumeId { identity: Some(role), ..VolumeId::parse("oss://data/pvc-1").unwrap() };
        assert_eq!(VolumeId::parse(&id.to_text()), Some(id));
    }
}
