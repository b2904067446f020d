//! What is known of a name, and when the origin was asked for it. What was asked for later is the truth.

use crate::attributes::{FileKind, Source};
use crate::etag::Etag;
use crate::page::Said;

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

    /// Whether both are of one version. Where one has no ETag, size and time must do.
    pub(crate) fn is_same_version(&self, other: &Fact) -> bool {
        match (&self.etag, &other.etag) {
            (Etag::None, _) | (_, Etag::None) => {
                (self.size, self.modified_s) == (other.size, other.modified_s)
            }
            (ours, theirs) => ours == theirs && self.size == other.size,
        }
    }

    /// A number for the version: never 0, and another for another as far as 32 bits can tell.
    pub(crate) fn tag(&self) -> u32 {
        let mut hash = crate::hash::Hash::new();
        match &self.etag {
            Etag::None => hash.add(&self.modified_s.to_le_bytes()),
            etag => hash.add(etag.sent().unwrap_or_default().as_bytes()),
        }
        hash.add(&self.size.to_le_bytes());
        (hash.end() as u32).max(1)
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
