//! Sources: where the bytes of an upload come from. The counterpart of a landing.

pub(crate) mod body;
pub(crate) mod cursor;
pub(crate) mod file;
pub(crate) mod stream;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use flatout_wire::body_checksum::{BodyChecksum, ChecksumForm};

use crate::base::error::Error;
use crate::source::body::OutgoingBody;
use crate::source::file::FileSource;
use crate::source::stream::{StreamSource, UploadRing};

/// Hashed and sent again and again by [`Source::Synthetic`].
const BLOCK_BYTES: usize = 1 << 20;

/// Where the bytes of an upload come from.
pub enum Source {
    /// A regular file. One that changes meanwhile fails the upload.
    File(PathBuf),
    /// Memory that is shared until the upload has ended. Its bytes must not change meanwhile.
    Memory(Arc<dyn AsRef<[u8]> + Send + Sync>),
    /// Bytes that a [`crate::StreamUploader`] writes, of unknown length.
    Stream(StreamSource),
    /// That many bytes of a fixed pattern, made by no disk: for measurements.
    Synthetic(u64),
}

/// A source that has been opened.
pub(crate) enum OpenSource {
    File(FileSource),
    Memory { memory: Arc<dyn AsRef<[u8]> + Send + Sync>, bytes: u64 },
    Stream(Arc<UploadRing>),
    Synthetic { block: Vec<u8>, bytes: u64 },
}

impl OpenSource {
    /// # Errors
    /// A file that cannot be opened or is no regular file.
    pub(crate) fn open(source: Source) -> Result<OpenSource, Error> {
        Ok(match source {
            Source::File(path) => OpenSource::File(FileSource::open(path)?),
            Source::Memory(memory) => {
                let bytes = (*memory).as_ref().len() as u64;
                OpenSource::Memory { memory, bytes }
            }
            Source::Stream(stream) => OpenSource::Stream(stream.into_ring()),
            Source::Synthetic(bytes) => OpenSource::Synthetic { block: pattern(), bytes },
        })
    }

    /// How many bytes there are; `None` of a stream.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            OpenSource::File(file) => Some(file.bytes()),
            // Not asked of the memory, which may be lent no more.
            OpenSource::Memory { bytes, .. } => Some(*bytes),
            OpenSource::Stream(_) => None,
            OpenSource::Synthetic { bytes, .. } => Some(*bytes),
        }
    }

    /// A part, ready to be sent as often as need be. Of a stream each part has a room of its own instead.
    pub(crate) fn body(&self, range: &Range<u64>) -> OutgoingBody<'_> {
        match self {
            OpenSource::File(file) => OutgoingBody::File { file: file.content(), range: range.clone() },
            OpenSource::Memory { memory, .. } => {
                OutgoingBody::Bytes(&(**memory).as_ref()[range.start as usize..range.end as usize])
            }
            OpenSource::Synthetic { block, .. } => OutgoingBody::Repeated { block, range: range.clone() },
            OpenSource::Stream(_) => OutgoingBody::Bytes(&[]),
        }
    }

    /// Whether reading that range waits for nothing.
    pub(crate) fn is_in_memory(&self, range: &Range<u64>) -> bool {
        match self {
            OpenSource::File(file) => file.is_cached(range),
            OpenSource::Memory { .. } | OpenSource::Stream(_) | OpenSource::Synthetic { .. } => true,
        }
    }

    /// What it says of itself when all has been sent.
    ///
    /// # Errors
    /// A file that is not what it was when it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), Error> {
        match self {
            OpenSource::File(file) => file.check_unchanged(),
            OpenSource::Memory { .. } | OpenSource::Stream(_) | OpenSource::Synthetic { .. } => Ok(()),
        }
    }
}

/// The checksum of what is to be sent. `scratch` is what a file is read into, piece by piece.
///
/// # Errors
/// A file that cannot be read, or is shorter than it was.
pub(crate) fn checksum(
    body: &OutgoingBody<'_>,
    form: ChecksumForm,
    scratch: &mut [u8],
) -> Result<BodyChecksum, Error> {
    let mut hasher = form.hasher();
    let mut at = 0;
    while at < body.bytes() {
        let piece = body.piece(at, scratch)?;
        hasher.update(piece);
        at += piece.len() as u64;
    }
    Ok(hasher.finish())
}

/// Bytes that no proxy or disk on the way makes fewer of.
fn pattern() -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    while block.len() < BLOCK_BYTES {
        // Xorshift64 (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend_from_slice(&state.to_le_bytes());
    }
    block
}
