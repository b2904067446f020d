//! A reader that compares what it read with the manifest.

use std::io::{self, Read};

use md5::{Digest, Md5};

/// Reads a data file, and fails at its end if its length or its MD5 is not the manifest's.
///
/// The rows before the end have been read by then: use them only once the end has come without an error.
#[derive(Debug)]
pub struct Checked<R> {
    reader: R,
    digest: Option<Md5>,
    read: u64,
    expected_size: u64,
    expected_md5: Option<[u8; 16]>,
}

impl<R> Checked<R> {
    pub(super) fn new(reader: R, expected_size: u64, expected_md5: Option<[u8; 16]>) -> Checked<R> {
        let digest = expected_md5.map(|_| Md5::new());
        Checked { reader, digest, read: 0, expected_size, expected_md5 }
    }

    /// What is wrong with the whole of the file, if anything.
    fn judge(&mut self) -> Option<String> {
        if self.expected_size != 0 && self.read != self.expected_size {
            return Some(format!("it has {} bytes, not the manifest's {}", self.read, self.expected_size));
        }
        let found: [u8; 16] = self.digest.take()?.finalize().into();
        (Some(found) != self.expected_md5).then(|| "its MD5 is not the manifest's".to_owned())
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.read += read as u64;
        if let Some(digest) = &mut self.digest {
            digest.update(&buffer[..read]);
        }
        if read == 0
            && !buffer.is_empty()
            && let Some(reason) = self.judge()
        {
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(read)
    }
}
