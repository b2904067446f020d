//! The body of a request that is sent from where its bytes are.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::base::error::{Error, ErrorKind};

/// The body of a request. It can be sent from any byte on, and again.
#[derive(Clone)]
pub(crate) enum OutgoingBody<'a> {
    Bytes(&'a [u8]),
    /// A range of a file.
    File {
        file: &'a File,
        range: Range<u64>,
    },
    /// A range of one block that is repeated without end.
    Repeated {
        block: &'a [u8],
        range: Range<u64>,
    },
}

impl<'a> OutgoingBody<'a> {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            OutgoingBody::Bytes(bytes) => bytes.len() as u64,
            OutgoingBody::File { range, .. } | OutgoingBody::Repeated { range, .. } => {
                range.end - range.start
            }
        }
    }

    /// Bytes from `at` on: those in memory as they lie there, those of a file read into `scratch`.
    ///
    /// # Errors
    /// The file cannot be read, or ends before its range does.
    pub(crate) fn piece<'b>(&self, at: u64, scratch: &'b mut [u8]) -> Result<&'b [u8], Error>
    where
        'a: 'b,
    {
        let left = self.bytes() - at;
        match self {
            OutgoingBody::Bytes(bytes) => Ok(&bytes[at as usize..]),
            OutgoingBody::Repeated { block, range } => {
                let start = (range.start + at) as usize % block.len();
                Ok(&block[start..][..(block.len() - start).min(usize::try_from(left).unwrap_or(usize::MAX))])
            }
            OutgoingBody::File { file, range } => {
                let wanted = scratch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let piece = &mut scratch[..wanted];
                file.read_exact_at(piece, range.start + at).map_err(|refused| match refused.kind() {
                    std::io::ErrorKind::UnexpectedEof => shrank(),
                    _ => Error::local("cannot read it", refused),
                })?;
                Ok(piece)
            }
        }
    }
}

/// A file ended before its bytes were sent.
pub(crate) fn shrank() -> Error {
    Error::new(ErrorKind::Changed, "the file became shorter while it was sent")
        .with_hint("send it again when nothing writes to it any more")
}
