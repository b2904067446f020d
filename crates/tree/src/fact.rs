//! What is known of a name, and when the origin was asked for it. The later question has the truer answer.

use flatout_engine::Object;
use flatout_wire::location::Location;

use crate::attributes::{AttributeSource, FileKind};
use crate::etag::Etag;
use crate::page::PageEntry;

/// An origin's answer about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    /// In bytes; 0 for a folder.
    pub(crate) size: u64,
    /// When the origin was asked. The answer was true at some moment since then.
    pub(crate) asked_ms: u64,
    pub(crate) etag: Etag,
    /// In seconds since 1970, until 2106; 0 if unknown.
    pub(crate) modified_s: u32,
    pub(crate) source: AttributeSource,
}

/// Whether a name exists, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameStatus {
    Present(FileKind, Fact),
    /// It did not when the origin was asked, at this time in milliseconds.
    Absent(u64),
}

impl Fact {
    /// A folder that exists because something lies under it.
    pub(crate) fn folder(asked_ms: u64) -> Fact {
        Fact { size: 0, asked_ms, etag: Etag::None, modified_s: 0, source: AttributeSource::Implied }
    }

    pub(crate) fn of_entry(entry: PageEntry, asked_ms: u64) -> (FileKind, Fact) {
        match entry {
            PageEntry::Folder => (FileKind::Folder, Fact::folder(asked_ms)),
            PageEntry::File { size, modified_s, etag } => {
                (FileKind::File, Fact { size, asked_ms, etag, modified_s, source: AttributeSource::Listing })
            }
        }
    }

    /// The version at `location`, to be read.
    pub(crate) fn version(&self, location: Location) -> Object {
        // 0 stands for an unknown time, and the maximum for one after 2106.
        let modified_s = Some(self.modified_s).filter(|at| !matches!(*at, 0 | u32::MAX)).map(u64::from);
        Object { location, size: self.size, etag: self.etag.sent(), modified_s }
    }

    /// Whether both are of one version. Size and time decide where an ETag is missing or weak.
    pub(crate) fn is_same_version(&self, other: &Fact) -> bool {
        let is_one_etag = [&self.etag, &other.etag].contains(&&Etag::None) || self.etag == other.etag;
        let is_one_time =
            self.etag.is_strong() && other.etag.is_strong() || self.modified_s == other.modified_s;
        is_one_etag && is_one_time && self.size == other.size
    }
}

impl NameStatus {
    pub(crate) fn asked_ms(&self) -> u64 {
        match self {
            NameStatus::Present(_, fact) => fact.asked_ms,
            NameStatus::Absent(asked_ms) => *asked_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(etag: Option<&str>, size: u64, modified_s: u32) -> Fact {
        Fact { size, asked_ms: 0, etag: Etag::of(etag), modified_s, source: AttributeSource::Listing }
    }

    #[test]
    fn versions_are_told_apart() {
        let (strong, weak) = (Some("\"a\""), Some("W/\"a\""));
        let check = |one: Fact, other: Fact, same: bool| {
            assert_eq!(
                [one.is_same_version(&other), other.is_same_version(&one)],
                [same; 2],
                "{one:?} {other:?}"
            );
        };
        check(fact(strong, 1, 5), fact(strong, 1, 6), true);
        check(fact(strong, 1, 5), fact(strong, 2, 5), false);
        check(fact(strong, 1, 5), fact(Some("\"b\""), 1, 5), false);
        for etag in [None, weak] {
            check(fact(etag, 1, 5), fact(etag, 1, 5), true);
            check(fact(etag, 1, 5), fact(etag, 1, 6), false);
            check(fact(etag, 1, 5), fact(etag, 2, 5), false);
            check(fact(etag, 1, 5), fact(None, 1, 5), true);
            check(fact(etag, 1, 5), fact(None, 1, 6), false);
        }
        check(fact(None, 1, 5), fact(strong, 1, 5), true);
        check(fact(None, 1, 5), fact(strong, 1, 6), false);
    }
}
