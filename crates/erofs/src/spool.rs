//! Streams that are written side by side, and follow the metadata one after the other: they wait in a second
//! file.

use std::io::{Read, Seek, SeekFrom, Write};

use crate::error::WriteError;
use crate::output::Output;
use crate::{BLOCK, blocks};

const PIECE_BYTES: usize = 256 << 10;

/// The sections behind the metadata, in their order.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    Records,
    Folders,
    Strings,
    Fences,
}

#[derive(Debug)]
pub struct Spool<S> {
    file: S,
    file_bytes: u64,
    streams: [Waiting; 4],
}

#[derive(Debug, Default)]
struct Waiting {
    /// Where its full pieces are in the file.
    pieces: Vec<u64>,
    buffer: Vec<u8>,
}

impl Waiting {
    fn bytes(&self) -> u64 {
        (self.pieces.len() * PIECE_BYTES + self.buffer.len()) as u64
    }
}

impl<S: Read + Write + Seek> Spool<S> {
    pub fn new(file: S) -> Spool<S> {
        Spool { file, file_bytes: 0, streams: Default::default() }
    }

    /// The length of a stream so far.
    pub fn bytes(&self, stream: Stream) -> u64 {
        self.streams[stream as usize].bytes()
    }

    pub fn append(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), WriteError> {
        let waiting = &mut self.streams[stream as usize];
        waiting.buffer.extend_from_slice(bytes);
        while waiting.buffer.len() >= PIECE_BYTES {
            self.file.seek(SeekFrom::Start(self.file_bytes))?;
            self.file.write_all(&waiting.buffer[..PIECE_BYTES])?;
            waiting.buffer.drain(..PIECE_BYTES);
            waiting.pieces.push(self.file_bytes);
            self.file_bytes += PIECE_BYTES as u64;
        }
        Ok(())
    }

    /// Moves all streams to the end of `output`, each in blocks of its own.
    pub fn pour<W: Read + Write + Seek>(mut self, output: &mut Output<W>) -> Result<(), WriteError> {
        let mut piece = vec![0; PIECE_BYTES];
        for waiting in &self.streams {
            let end = output.end() + blocks(waiting.bytes()) * BLOCK;
            for &at in &waiting.pieces {
                self.file.seek(SeekFrom::Start(at))?;
                self.file.read_exact(&mut piece)?;
                output.append(&piece)?;
            }
            output.append(&waiting.buffer)?;
            output.pad(BLOCK)?;
            debug_assert_eq!(output.end(), end);
        }
        Ok(())
    }
}
