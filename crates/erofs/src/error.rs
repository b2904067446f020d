//! What can be wrong with a listing that becomes an index, and with an index.

use std::io;

use crate::names::Unnamable;

/// Why no index can be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The caller can go on with the next key. Folders before the component in question are shown, as the
    /// mount shows them.
    #[error("{key:?} cannot be shown as a file: {why}")]
    Unnamable { key: String, why: Unnamable },
    /// The writer is as it was: the caller can go on with the next key.
    #[error("{key:?} is there twice")]
    Twice { key: String },
    /// Keys must come in the order of their bytes.
    #[error("{key:?} comes after {last:?}: the listing is not in the order of keys")]
    Order { key: String, last: String },
    /// EROFS addresses blocks by 32 bits.
    #[error(
        "the files take {} in blocks of 4 KiB, {} at most fit one index: make several, by prefix",
        tib(.bytes), tib(.most)
    )]
    TooLarge { bytes: u64, most: u64 },
    #[error("more than {most} files and folders: make several indexes, by prefix")]
    TooMany { most: u64 },
    /// Of names, sizes and times.
    #[error("the metadata take more than {most} bytes: make several indexes, by prefix")]
    TooMuchMetadata { most: u64 },
    #[error("the names of one folder take more than {most} bytes")]
    FolderTooLarge { most: u64 },
    #[error("an earlier error has left the index incomplete")]
    Broken,
    #[error("cannot write the index: {0}")]
    Io(#[from] io::Error),
}

/// Why an index cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("not an index, or one whose build did not end")]
    NotAnIndex,
    #[error(
        "the index has format {version}, this program reads {supported}: use a newer program, or build it anew"
    )]
    Newer { version: u32, supported: u32 },
    #[error("the index is truncated: {actual} bytes of {expected}")]
    Truncated { expected: u64, actual: u64 },
    #[error("the index is longer than it says: {actual} bytes, not {expected}")]
    TooLong { expected: u64, actual: u64 },
    #[error("the index is damaged: block {block} does not have its checksum")]
    Checksum { block: u64 },
    /// The checksums are right, so whoever wrote it did so.
    #[error("the index is malformed: {what}")]
    Malformed { what: &'static str },
    #[error("cannot read the index: {0}")]
    Io(#[from] io::Error),
}

impl WriteError {
    /// Whether it is about one key, and the writer goes on with the next.
    pub fn is_of_key(&self) -> bool {
        matches!(self, WriteError::Unnamable { .. } | WriteError::Twice { .. } | WriteError::Order { .. })
    }
}

fn tib(bytes: &u64) -> String {
    format!("{:.2} TiB", *bytes as f64 / (1_u64 << 40) as f64)
}
