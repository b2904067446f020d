//! Positioned reads: all that a reader asks of a file.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Something that holds an index.
pub trait ReadAt {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills `bytes` from `at` on. An error if there are fewer.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(bytes, at)
    }
}

impl ReadAt for [u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..));
        let found = rest.and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn length(&self) -> io::Result<u64> {
        self.as_slice().length()
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.as_slice().read_at(bytes, at)
    }
}

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        (**self).read_at(bytes, at)
    }
}

impl<R: ReadAt + ?Sized> ReadAt for Arc<R> {
    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        (**self).read_at(bytes, at)
    }
}
