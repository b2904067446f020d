//! A version that is read by many transfers: what a listing told of it, and what the answers have added since.

use std::sync::{Mutex, PoisonError};

use crate::stats::Version;

/// The version that every transfer of a reader's object is held against.
pub(crate) struct Pinned {
    /// The object's, for people.
    pub(crate) name: String,
    /// The ETag that pins requests: a strong one, or none.
    pub(crate) pin: Option<String>,
    /// Where there is no ETag, Last-Modified of the first answer has to do.
    version: Mutex<Version>,
}

impl Pinned {
    pub(crate) fn new(name: String, etag: Option<String>, size: u64) -> Pinned {
        let pin = etag.clone().filter(|etag| etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"'));
        let version = Version { etag, last_modified: None, size: Some(size) };
        Pinned { name, pin, version: Mutex::new(version) }
    }

    pub(crate) fn version(&self) -> Version {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What differs in the version of an answer; where nothing does, what it says and we did not know is known from now on.
    pub(crate) fn learn(&self, found: &Version) -> Option<String> {
        let mut known = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        let difference = known.difference(found);
        if difference.is_none() {
            let Version { etag, last_modified, .. } = &mut *known;
            *etag = etag.take().or_else(|| found.etag.clone());
            *last_modified = last_modified.take().or_else(|| found.last_modified.clone());
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_says_what_was_not_known() {
        let pinned = Pinned::new("s3://b/k".into(), None, 9);
        let answer =
            |day: &str, size| Version { etag: None, last_modified: Some(day.into()), size: Some(size) };
        assert_eq!(pinned.learn(&answer("Monday", 9)), None);
        assert_eq!(pinned.learn(&answer("Monday", 9)), None);
        assert!(pinned.learn(&answer("Monday", 8)).is_some());
        assert!(pinned.learn(&answer("Tuesday", 9)).is_some());
        assert_eq!(pinned.version(), answer("Monday", 9));
    }

    #[test]
    fn only_a_strong_etag_pins() {
        let pin = |etag: &str| Pinned::new(String::new(), Some(etag.into()), 1).pin;
        assert_eq!(pin("\"a\""), Some("\"a\"".into()));
        assert_eq!([pin("W/\"a\""), pin("\"\""), pin("a")], [None, None, None]);
    }
}
