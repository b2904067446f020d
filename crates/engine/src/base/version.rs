//! Objects and their versions, as far as origins tell of them.

use std::fmt;

use flatout_wire::head::{Head, quoted};
use flatout_wire::location::Location;

/// An object's version, as far as the origin tells: every answer of a transfer is held against it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The entity tag as sent, quotes and `W/` included.
    pub etag: Option<String>,
    /// The Last-Modified header as sent.
    pub last_modified: Option<String>,
    /// The whole object's size in bytes; `None` when the origin does not say (a stream).
    pub size: Option<u64>,
}

impl Version {
    pub(crate) fn of(head: &Head, size: Option<u64>) -> Version {
        Version { etag: head.etag.clone(), last_modified: head.last_modified.clone(), size }
    }

    /// What differs between this version and a later answer; `None` when it may be the same object. Where
    /// both have one strong ETag they have the same bytes, whatever their times: whoever sets metadata copies
    /// an object onto itself.
    pub(crate) fn difference(&self, later: &Version) -> Option<String> {
        fn differs<T: PartialEq + fmt::Display>(
            name: &str,
            ours: &Option<T>,
            theirs: &Option<T>,
        ) -> Option<String> {
            match (ours, theirs) {
                (Some(a), Some(b)) if a != b => Some(format!("{name} was {a}, now {b}")),
                _ => None,
            }
        }
        let (ours, theirs) = (self.etag.as_deref().map(quoted), later.etag.as_deref().map(quoted));
        let is_told_by_etag = ours == theirs && ours.as_deref().is_some_and(|etag| !etag.starts_with("W/"));
        differs("ETag", &ours, &theirs).or_else(|| differs("size", &self.size, &later.size)).or_else(|| {
            let by_time = || differs("Last-Modified", &self.last_modified, &later.last_modified);
            if is_told_by_etag { None } else { by_time() }
        })
    }
}

/// A version of an object, as a listing or a HEAD told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The object.
    pub location: Location,
    /// Its size in bytes.
    pub size: u64,
    /// Its entity tag as sent, with its quotes. Without one, what the first answer says stands in.
    pub etag: Option<String>,
    /// When it was changed last, in seconds since 1970, where that is known. Without a strong ETag it tells
    /// versions apart: an answer of another time is of another version. Without either, nobody shares what is
    /// read of it.
    pub modified_s: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_tell_versions_apart_where_no_strong_etag_does() {
        let version = |etag: Option<&str>, day: &str| Version {
            etag: etag.map(str::to_owned),
            last_modified: Some(day.to_owned()),
            size: Some(7),
        };
        let between = |etag| version(etag, "Monday").difference(&version(etag, "Tuesday"));
        assert_eq!(between(Some("\"a\"")), None);
        for etag in [None, Some("W/\"a\"")] {
            assert_eq!(between(etag).as_deref(), Some("Last-Modified was Monday, now Tuesday"));
        }
        let other = version(Some("\"a\""), "Monday").difference(&version(Some("\"b\""), "Monday"));
        assert_eq!(other.as_deref(), Some("ETag was \"a\", now \"b\""));
        let longer = Version { size: Some(8), ..version(Some("\"a\""), "Monday") };
        assert!(version(Some("\"a\""), "Monday").difference(&longer).is_some());
    }
}
