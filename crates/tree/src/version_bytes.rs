//! The bytes of a version, for whoever waits for them.

use std::ops::Range;

use crate::fs_error::FsError;
use crate::store::VersionReader;

/// Hands the bytes of a version on, piece by piece.
pub(crate) fn read_whole<R: VersionReader>(
    reader: &R,
    size: usize,
    each: &mut dyn FnMut(&[u8]) -> Result<(), FsError>,
) -> Result<(), FsError> {
    const PIECE: usize = 1 << 20;
    let mut at = 0;
    while at < size {
        let bytes = read_now(reader, at as u64, PIECE.min(size - at))?;
        if bytes.is_empty() {
            return Err(FsError::of(libc::EIO));
        }
        each(&bytes)?;
        at += bytes.len();
    }
    Ok(())
}

/// Reads, and waits for the bytes.
pub(crate) fn read_now<R: VersionReader>(reader: &R, at: u64, bytes: usize) -> Result<Vec<u8>, FsError> {
    let wanted = at..at.saturating_add(bytes as u64);
    read_together(reader, std::slice::from_ref(&wanted))?.pop().ok_or_else(|| FsError::of(libc::EIO))
}

/// Reads all of these at once, and waits for the bytes of each.
pub(crate) fn read_together<R: VersionReader>(
    reader: &R,
    pieces: &[Range<u64>],
) -> Result<Vec<Vec<u8>>, FsError> {
    let (send, receive) = std::sync::mpsc::channel();
    let begin = |(number, piece): (usize, &Range<u64>)| {
        let send = send.clone();
        reader.read(piece.start, (piece.end - piece.start) as usize, move |read| {
            let read = read.map(|slices| {
                let mut bytes = Vec::new();
                slices.for_each(|slice| bytes.extend_from_slice(slice));
                bytes
            });
            let _ = send.send((number, read));
        })
    };
    let cancels: Vec<_> = pieces.iter().enumerate().map(begin).collect();
    drop(send);
    let mut found = vec![Vec::new(); pieces.len()];
    for _ in pieces {
        let (number, read) = receive.recv().map_err(|_| FsError::of(libc::EIO))?;
        found[number] = read?;
    }
    drop(cancels);
    Ok(found)
}

/// Where a read finds its bytes.
pub(crate) enum ReadFrom<R> {
    Bytes(Vec<u8>),
    /// Of this version, from that byte on, so many.
    Version(R, u64, usize),
    /// As before, and these behind them.
    VersionAnd(R, u64, usize, Vec<u8>),
}

impl<R: VersionReader> ReadFrom<R> {
    /// Waits for the bytes.
    pub(crate) fn now(self) -> Result<Vec<u8>, FsError> {
        match self {
            ReadFrom::Bytes(bytes) => Ok(bytes),
            ReadFrom::Version(reader, at, bytes) => read_now(&reader, at, bytes),
            ReadFrom::VersionAnd(reader, at, bytes, behind) => {
                Ok([read_now(&reader, at, bytes)?, behind].concat())
            }
        }
    }
}
