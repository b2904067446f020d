//! A version that is known before it is read, by one transfer or many: what was told of it, and what the
//! answers have added since.

use std::sync::{Mutex, PoisonError};

use flatout_wire::head::{quoted, strong};
use flatout_wire::time::{format_http, parse_http};

use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{Feature, Word, text};
use crate::base::version::{Object, Version};

/// The version that a transfer is held against, or every transfer of a reader's object.
pub(crate) struct Pinned {
    /// The object's, for people.
    pub(crate) name: String,
    /// The ETag that pins requests: a strong one, or none.
    pub(crate) pin: Option<String>,
    /// Where nothing pins, the time that was told has to do, in seconds since 1970.
    modified_s: Option<u64>,
    /// And where no time was told either, Last-Modified of the first answer.
    version: Mutex<Version>,
    /// Nothing else will do: an answer that has no ETag is of another version.
    pub(crate) is_condition: bool,
}

impl Pinned {
    pub(crate) fn new(object: &Object) -> Pinned {
        let Object { location, size, etag, modified_s } = object;
        let pin = etag.as_deref().and_then(strong).map(String::from);
        let modified_s = modified_s.filter(|_| pin.is_none());
        let version = Version { etag: etag.clone(), last_modified: None, size: Some(*size) };
        Pinned {
            name: location.to_string(),
            pin,
            modified_s,
            version: Mutex::new(version),
            is_condition: false,
        }
    }

    /// The version of an object that has this ETag, and no other.
    pub(crate) fn of_etag(name: String, etag: &str) -> Result<Pinned, Error> {
        let etag = quoted(etag.trim());
        if !is_etag(&etag) {
            let usage = Error::new(ErrorKind::Usage, "this is no ETag to hold the object against");
            return Err(usage.with_hint([
                text("name it as "),
                Word::Feature(Feature::Stat),
                text(" tells it"),
            ]));
        }
        let pin = strong(&etag).map(String::from);
        let version = Version { etag: Some(etag.into_owned()), last_modified: None, size: None };
        Ok(Pinned { name, pin, modified_s: None, version: Mutex::new(version), is_condition: true })
    }

    pub(crate) fn version(&self) -> Version {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What differs in the version of an answer; where nothing does, what it says and we did not know is
    /// known from now on.
    pub(crate) fn learn(&self, found: &Version) -> Option<String> {
        let mut known = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        let difference = known
            .difference(found)
            .or_else(|| self.other_time(found))
            .or_else(|| self.no_etag(&known, found));
        if difference.is_none() {
            let Version { etag, last_modified, .. } = &mut *known;
            *etag = etag.take().or_else(|| found.etag.clone());
            *last_modified = last_modified.take().or_else(|| found.last_modified.clone());
        }
        difference
    }

    fn no_etag(&self, known: &Version, found: &Version) -> Option<String> {
        let told = known.etag.as_deref().filter(|_| self.is_condition && found.etag.is_none())?;
        Some(format!("ETag was {told}, now it has none"))
    }

    /// What differs between the time that was told and that of an answer.
    fn other_time(&self, found: &Version) -> Option<String> {
        let told_s = self.modified_s?;
        let now = found.last_modified.as_deref()?;
        let is_other = parse_http(now).is_some_and(|now_s| now_s != told_s);
        is_other.then(|| format!("Last-Modified was {}, now {now}", format_http(told_s)))
    }
}

/// RFC 9110 §8.8.3, without what is not ASCII. `*` is no ETag: any version matches it.
fn is_etag(etag: &str) -> bool {
    let opaque = etag.strip_prefix("W/").unwrap_or(etag);
    let inner = opaque.strip_prefix('"').and_then(|opaque| opaque.strip_suffix('"'));
    inner.is_some_and(|inner| {
        !matches!(inner, "" | "*") && inner.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
    })
}

#[cfg(test)]
mod tests {
    use flatout_wire::location::Location;

    use super::*;

    fn object(etag: Option<&str>, modified_s: Option<u64>) -> Object {
        let location = Location::parse("s3://b/k").expect("a good URL");
        Object { location, size: 9, etag: etag.map(String::from), modified_s }
    }

    #[test]
    fn the_first_answer_says_what_was_not_known() {
        let pinned = Pinned::new(&object(None, None));
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
        let pin = |etag: &str| Pinned::new(&object(Some(etag), None)).pin;
        assert_eq!(pin("\"a\""), Some("\"a\"".into()));
        assert_eq!([pin("W/\"a\""), pin("\"\""), pin("a")], [None, None, None]);
    }

    #[test]
    fn the_time_that_was_told_counts_where_nothing_pins() {
        let check = |etag: Option<&str>, told_s: Option<u64>, answer: Option<&str>, is_other: bool| {
            let pinned = Pinned::new(&object(etag, told_s));
            let found = Version { etag: None, last_modified: answer.map(String::from), size: Some(9) };
            assert_eq!(pinned.learn(&found).is_some(), is_other, "{etag:?} {told_s:?} {answer:?}");
        };
        let (time, other) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT");
        check(None, Some(784_111_777), Some(time), false);
        check(None, Some(784_111_777), Some("Sunday, 06-Nov-94 08:49:37 GMT"), false);
        check(None, Some(784_111_777), Some(other), true);
        check(Some("W/\"a\""), Some(784_111_777), Some(other), true);
        check(Some("\"a\""), Some(784_111_777), Some(other), false);
        check(None, None, Some(other), false);
        check(None, Some(784_111_777), None, false);
        check(None, Some(784_111_777), Some("yesterday"), false);
    }

    #[test]
    fn a_condition_holds_for_its_etag_alone() {
        let check = |etag: &str, answer: Option<&str>, is_other: bool| {
            let pinned = Pinned::of_etag("s3://b/k".into(), etag).expect(etag);
            let found = Version { etag: answer.map(String::from), last_modified: None, size: Some(9) };
            assert_eq!(pinned.learn(&found).is_some(), is_other, "{etag} {answer:?}");
            pinned.pin
        };
        assert_eq!(check("\"a\"", Some("\"a\""), false).as_deref(), Some("\"a\""));
        assert_eq!(check(" a-1\n", Some("\"a-1\""), false).as_deref(), Some("\"a-1\""), "quotes left out");
        assert_eq!(check("W/\"a\"", Some("W/\"a\""), false), None);
        for answer in [None, Some("\"b\""), Some("W/\"a\"")] {
            check("a", answer, true);
        }
        check("W/\"a\"", Some("\"a\""), true);
        for nonsense in ["", "*", "\"a", "a\"", "a b", "\"a\"\r\nx: y", "W/a", "\"a\", \"b\"", "ä"] {
            let refused = Pinned::of_etag("s3://b/k".into(), nonsense).err();
            assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::Usage), "{nonsense:?}");
        }
    }
}
