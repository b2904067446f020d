//! Errors: of listings that become indexes, and of indexes.

use std::borrow::Cow;
use std::io;

use crate::names::Unnamable;

/// Why no index can be written. Keys are as the caller gave them; messages show them as text.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The caller can go on with the next key. Folders before the component in question are shown, as the
    /// mount shows them.
    #[error("{:?} cannot be shown as a file: {why}", lossy(.key))]
    Unnamable { key: Vec<u8>, why: Unnamable },
    /// The writer is as it was: the caller can go on with the next key.
    #[error("the listing has {:?} twice", lossy(.key))]
    Twice { key: Vec<u8> },
    /// The caller can go on with the next key.
    #[error("{:?} has {} bytes, {most} at most fit an index", lossy(.key), .key.len())]
    KeyTooLong { key: Vec<u8>, most: usize },
    /// The caller can go on with the next key. Folders on the way to the object are shown.
    #[error("the ETag of {:?} has {bytes} bytes, {most} at most fit an index", lossy(.key))]
    EtagTooLong { key: Vec<u8>, bytes: usize, most: usize },
    /// The writer is as it was: the caller can go on with the next key.
    #[error("{:?} does not end in a slash, so it marks no folder", lossy(.key))]
    NoSlash { key: Vec<u8> },
    /// Keys must come in the order of their bytes. The folder of this one may be written already.
    #[error("{:?} comes after {:?}: sort the listing by the bytes of its keys", lossy(.key), lossy(.last))]
    Order { key: Vec<u8>, last: Vec<u8> },
    #[error("the source of the index has {bytes} bytes, {most} at most fit an index")]
    SourceTooLong { bytes: usize, most: usize },
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
    /// Of metadata and map. The reader refuses such an index, too.
    #[error("the index takes {bytes} bytes, at most {most} are allowed: make several indexes, by prefix")]
    IndexTooLarge { bytes: u64, most: u64 },
    #[error("the names of one folder take more than {most} bytes: spread its keys over more folders")]
    FolderTooLarge { most: u64 },
    #[error("an earlier error has left the index incomplete: build it again")]
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
        "the index has format {version}, this program reads {supported}: {}",
        advice(*.version, *.supported)
    )]
    Version { version: u32, supported: u32 },
    #[error("the index is truncated: {actual} bytes of {expected}: build it again")]
    Truncated { expected: u64, actual: u64 },
    #[error("the index is longer than it says: {actual} bytes, not {expected}: build it again")]
    TooLong { expected: u64, actual: u64 },
    #[error("the index is damaged: block {block} does not have its checksum: build it again")]
    Checksum { block: u64 },
    /// The checksums match, so a faulty or hostile program wrote it.
    #[error("the index is malformed: {what}: build it again")]
    Malformed { what: &'static str },
    #[error("cannot read the index: {0}")]
    Io(#[from] io::Error),
}

impl WriteError {
    /// Whether it is about one key, and the writer goes on with the next.
    pub fn is_of_key(&self) -> bool {
        use WriteError::{EtagTooLong, KeyTooLong, NoSlash, Twice, Unnamable};
        matches!(
            self,
            Unnamable { .. } | Twice { .. } | KeyTooLong { .. } | EtagTooLong { .. } | NoSlash { .. }
        )
    }
}

pub(crate) fn malformed<T>(what: &'static str) -> Result<T, IndexError> {
    Err(IndexError::Malformed { what })
}

fn lossy(key: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(key)
}

fn advice(version: u32, supported: u32) -> &'static str {
    if version > supported { "use a newer program, or build it again" } else { "build it again" }
}

fn tib(bytes: &u64) -> String {
    format!("{:.2} TiB", *bytes as f64 / (1_u64 << 40) as f64)
}
