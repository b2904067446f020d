//! What is known of a name, and when the origin was asked for it. What was asked for later is the truth.

use flatout_wire::location::Location;

use crate::attributes::{FileKind, Source};
use crate::etag::Etag;
use crate::page::Said;
use crate::store::Version;

/// What an origin told of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    /// In bytes; 0 of a folder.
    pub(crate) size: u64,
    /// When the origin was asked: whatever was true of it was true at some moment since.
    pub(crate) told_ms: u64,
    pub(crate) etag: Etag,
    /// In seconds since 1970, until 2106; 0 where nobody said.
    pub(crate) modified_s: u32,
    pub(crate) source: Source,
}

/// Whether a name is there, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    There(FileKind, Fact),
    /// As of that time.
    Absent(u64),
}

impl Fact {
    /// A folder that is there because something was seen beneath it.
    pub(crate) fn folder(told_ms: u64) -> Fact {
        Fact { size: 0, told_ms, etag: Etag::None, modified_s: 0, source: Source::Implied }
    }

    pub(crate) fn of_said(said: Said, told_ms: u64) -> (FileKind, Fact) {
        match said {
            Said::Folder => (FileKind::Folder, Fact::folder(told_ms)),
            Said::File { size, modified_s, etag } => {
                (FileKind::File, Fact { size, told_ms, etag, modified_s, source: Source::Listing })
            }
        }
    }

    /// The object's version at `location`, to be read.
    pub(crate) fn version(&self, location: Location) -> Version {
        // Neither what nobody said nor what has no place here is a time.
        let modified_s = Some(self.modified_s).filter(|at| !matches!(*at, 0 | u32::MAX)).map(u64::from);
        Version { location, size: self.size, etag: self.etag.sent(), modified_s }
    }

    /// Whether both are of one version. Where one has no ETag, size and time must do; where it is a weak one, these too.
    pub(crate) fn is_same_version(&self, other: &Fact) -> bool {
        let is_one_etag = [&self.etag, &other.etag].contains(&&Etag::None) || self.etag == other.etag;
        let is_one_time =
            self.etag.is_strong() && other.etag.is_strong() || self.modified_s == other.modified_s;
        is_one_etag && is_one_time && self.size == other.size
    }
}

impl Finding {
    pub(crate) fn told_ms(&self) -> u64 {
        match self {
            Finding::There(_, fact) => fact.told_ms,
            Finding::Absent(told_ms) => *told_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(etag: Option<&str>, size: u64, modified_s: u32) -> Fact {
        Fact { size, told_ms: 0, etag: Etag::of(etag), modified_s, source: Source::Listing }
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
