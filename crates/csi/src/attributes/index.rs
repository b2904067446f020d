//! `kind: index`: a volume whose names come from an index.

use flatout_wire::location::Location;

use super::table::Field;
use super::{AttributeError, Attributes, Pod};
use crate::volume::VolumeIndex;

/// What else is known of the volume.
pub struct About<'a> {
    pub source: &'a Location,
    /// Options that mount(2) has a flag for.
    pub system: &'a [String],
    pub pod: &'a Pod,
}

/// Where the volume's index comes from; `None` for a volume without one.
///
/// # Errors
/// Another kind; a volume that somebody may write to; an index that is no object of the same service.
pub fn of(
    given: &Attributes,
    is_read_only: bool,
    about: &About<'_>,
) -> Result<Option<VolumeIndex>, AttributeError> {
    match given.get(Field::Kind).map(str::to_ascii_lowercase).as_deref() {
        None | Some("bucket") => match given.get(Field::Index) {
            None => return Ok(None),
            Some(_) => return given.refuse(Field::Index, "write kind: index with it"),
        },
        Some("index") => {}
        Some(other) => {
            return given.refuse(Field::Kind, format!("'{other}' is neither bucket nor index"));
        }
    }
    if !is_read_only {
        return given.refuse(
            Field::Kind,
            "an index is read only: write accessModes: [ReadOnlyMany], readOnly: true of the pod's claim, or \
             the mount option ro",
        );
    }
    if let Some(option) = about.system.iter().find(|option| ["suid", "dev"].contains(&option.as_str())) {
        return given
            .refuse(Field::Kind, format!("the files of an index grant no rights: {option}: leave it out"));
    }
    match given.get(Field::Index) {
        None => Ok(Some(VolumeIndex::Listed)),
        // The node's kernel mounts what it says.
        Some(_) if about.pod.is_ephemeral => {
            given.refuse(Field::Index, "is for volumes of an administrator: leave it out, and the node lists")
        }
        Some(typed) => object(given, typed, about.source).map(|url| Some(VolumeIndex::Object(url))),
    }
}

/// The URL of the object.
fn object(given: &Attributes, typed: &str, source: &Location) -> Result<String, AttributeError> {
    let location = match typed.contains("://") {
        true => Location::parse(typed).map_err(|error| error.to_string()),
        false => source.with_key(typed.trim_start_matches('/')).ok_or_else(|| "is no key".to_owned()),
    };
    let location = match location {
        Ok(location) => location,
        Err(why) => return given.refuse(Field::Index, format!("'{typed}': {why}")),
    };
    let key = location.in_bucket().map(|(_, key)| key);
    if key.is_none_or(|key| key.is_empty() || key.ends_with('/')) {
        return given
            .refuse(Field::Index, format!("'{typed}' is no object: write s3://BUCKET/KEY, or a key"));
    }
    if location.scheme() != source.scheme() {
        return given.refuse(
            Field::Index,
            format!("'{typed}' is not of the service of the volume, whose keys it is read with"),
        );
    }
    Ok(location.to_string())
}
