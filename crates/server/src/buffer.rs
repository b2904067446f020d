//! Reused read buffers: bytes that are read from a file and sent at once should not leave the cache.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

/// Bytes in one buffer and in one frame of an answer. A quarter of the 1 MiB L2 cache of a server core: the
/// buffer being filled, those still queued on a connection and the kernel's copy stay in cache.
pub(crate) const FRAME_BYTES: usize = 256 * 1024;

/// Buffers that a thread keeps for its next reads; more than this are given back to the allocator.
const KEPT_BUFFERS: usize = 16;

thread_local! {
    static FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Reads `bytes` (at most [`FRAME_BYTES`]) from `offset`. A file that ends earlier is an error: it was cut
/// off after the answer had promised its length.
pub(crate) fn read_frame(file: &File, offset: u64, bytes: usize) -> io::Result<Bytes> {
    debug_assert!(bytes <= FRAME_BYTES);
    let mut lent = PooledBuffer::new(bytes);
    file.read_exact_at(&mut lent.memory[..bytes], offset)?;
    Ok(Bytes::from_owner(lent))
}

/// A buffer on loan; dropping it, with the last `Bytes` that points into it, brings it back.
struct PooledBuffer {
    memory: Box<[u8]>,
    bytes: usize,
}

impl PooledBuffer {
    fn new(bytes: usize) -> PooledBuffer {
        let kept = FREE.with_borrow_mut(Vec::pop);
        PooledBuffer { memory: kept.unwrap_or_else(|| vec![0; FRAME_BYTES].into_boxed_slice()), bytes }
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        // While a thread ends its buffers may outlive its pool: then they are simply freed.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT_BUFFERS {
                free.push(memory);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn buffers_come_back_and_short_files_are_errors() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 1000]).unwrap();
        let first = read_frame(&file, 0, 1000).unwrap();
        let at = first.as_ptr();
        assert_eq!(first, vec![7; 1000]);
        drop(first);
        assert_eq!(read_frame(&file, 990, 10).unwrap().as_ptr(), at);
        let short = read_frame(&file, 990, 11).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }
}
