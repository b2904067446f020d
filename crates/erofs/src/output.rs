//! The file of an index while it is written: an end that grows, and places behind it that are patched.

use std::io::{Read, Seek, SeekFrom, Write};

use crate::BLOCK;
use crate::error::WriteError;

/// The end is written in pieces of about this size.
const BUFFER_BYTES: usize = 1 << 20;
/// Patches come in ascending order, mostly: this much around one is kept for the next.
const WINDOW_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub struct Output<W> {
    file: W,
    buffer: Vec<u8>,
    /// Bytes in the file: everything before the buffer, in whole blocks.
    written: u64,
    window: Window,
}

/// A part of the file that was read to be patched.
#[derive(Debug, Default)]
struct Window {
    at: u64,
    bytes: Vec<u8>,
    is_patched: bool,
}

impl<W: Read + Write + Seek> Output<W> {
    /// An index at the start of `file`, which is empty.
    pub fn new(file: W) -> Output<W> {
        Output { file, buffer: Vec::with_capacity(BUFFER_BYTES), written: 0, window: Window::default() }
    }

    /// Where the end is.
    pub fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.buffer.extend_from_slice(bytes);
        self.flush_beyond(BUFFER_BYTES)
    }

    /// Lets `write` put something at the end.
    pub fn append_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), WriteError> {
        write(&mut self.buffer);
        self.flush_beyond(BUFFER_BYTES)
    }

    /// Zeros to the next multiple of `unit`, which divides a block.
    pub fn pad(&mut self, unit: u64) -> Result<(), WriteError> {
        let zeros = self.end().next_multiple_of(unit) - self.end();
        self.buffer.resize(self.buffer.len() + zeros as usize, 0);
        self.flush_beyond(BUFFER_BYTES)
    }

    fn flush_beyond(&mut self, bytes: usize) -> Result<(), WriteError> {
        if self.buffer.len() <= bytes {
            return Ok(());
        }
        // In whole blocks, so that nothing to patch lies on both sides.
        let whole = self.buffer.len() / BLOCK as usize * BLOCK as usize;
        self.file.seek(SeekFrom::Start(self.written))?;
        self.file.write_all(&self.buffer[..whole])?;
        self.buffer.drain(..whole);
        self.written += whole as u64;
        Ok(())
    }

    /// Replaces bytes within one block.
    pub fn patch(&mut self, at: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let place = match at.checked_sub(self.written) {
            Some(place) => &mut self.buffer[place as usize..],
            None => {
                self.open_window(at)?;
                self.window.is_patched = true;
                &mut self.window.bytes[(at - self.window.at) as usize..]
            }
        };
        place[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn open_window(&mut self, around: u64) -> Result<(), WriteError> {
        let window = &self.window;
        if (window.at..window.at + window.bytes.len() as u64).contains(&around) {
            return Ok(());
        }
        self.close_window()?;
        let at = around / WINDOW_BYTES * WINDOW_BYTES;
        let bytes = (self.written - at).min(WINDOW_BYTES);
        self.window.at = at;
        self.window.bytes.resize(bytes as usize, 0);
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_exact(&mut self.window.bytes)?;
        Ok(())
    }

    fn close_window(&mut self) -> Result<(), WriteError> {
        if self.window.is_patched {
            self.file.seek(SeekFrom::Start(self.window.at))?;
            self.file.write_all(&self.window.bytes)?;
        }
        self.window.bytes.clear();
        self.window.is_patched = false;
        Ok(())
    }

    /// The file, with all that was appended, in whole blocks, and patched.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.pad(BLOCK)?;
        self.flush_beyond(0)?;
        self.close_window()?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn patches_reach_the_file_and_the_buffer() {
        let mut output = Output::new(Cursor::new(Vec::new()));
        let mut expected = Vec::new();
        for piece in 0..3000_u32 {
            let bytes = [piece as u8; 1000];
            output.append(&bytes).unwrap();
            expected.extend_from_slice(&bytes);
        }
        for at in [0, 8, 70_000, 1_000_000, 16, 2_999_000, 2_999_992] {
            output.patch(at, &[0xee; 8]).unwrap();
            expected[at as usize..at as usize + 8].fill(0xee);
        }
        output.append(&[7; 1 << 20]).unwrap();
        expected.extend_from_slice(&[7; 1 << 20]);
        expected.resize(expected.len().next_multiple_of(BLOCK as usize), 0);
        assert!(output.finish().unwrap().into_inner() == expected);
    }
}
