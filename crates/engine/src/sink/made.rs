//! Memory that the engine makes for a transfer, as long as what comes, and gives away at its end.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::base::error::{Error, ErrorKind};
use crate::memory::lease::Slab;

/// Where a transfer leaves the memory that it made: kept by whoever asks, and given to
/// [`crate::Landing::Allocated`].
///
/// The memory is the caller's from birth: `Settings::memory_bytes` does not bound it, and
/// [`crate::Client::memory_held`] does not count it. How much may come is for whoever asks to know, or to
/// bound by a range.
#[derive(Clone, Default)]
pub struct AllocatedBuffer(Arc<AllocatedSlot>);

#[derive(Default)]
struct AllocatedSlot {
    block: Mutex<Option<AlignedBuffer>>,
    at_most: Option<u64>,
    beyond: OnceLock<u64>,
}

/// Owned memory, for what lands there: aligned to 64 bytes, from 256 KiB on to pages; initialised, given back
/// on drop. [`AlignedBuffer::as_ptr`] may be written through by whoever sees to it that nobody reads there
/// meanwhile.
pub struct AlignedBuffer {
    /// None of an empty one.
    slab: Option<Slab>,
    bytes: usize,
}

impl AllocatedBuffer {
    /// Nothing is there yet.
    pub fn new() -> AllocatedBuffer {
        AllocatedBuffer::default()
    }

    /// For no more than so many bytes: where more would come, the transfer fails before any of them lands.
    pub fn at_most(bytes: u64) -> AllocatedBuffer {
        AllocatedBuffer(Arc::new(AllocatedSlot { at_most: Some(bytes), ..AllocatedSlot::default() }))
    }

    /// How many bytes would have come, where those were more than [`AllocatedBuffer::at_most`] allows: the
    /// transfer fails of it.
    pub fn beyond(&self) -> Option<u64> {
        self.0.beyond.get().copied()
    }

    /// What a transfer has left here, once: nothing before it has ended, nor where it failed. Of several that
    /// were given the same, what the last one left.
    pub fn take(&self) -> Option<AlignedBuffer> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<AlignedBuffer>> {
        self.0.block.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AlignedBuffer {
    /// As long as that, all zeros.
    ///
    /// # Errors
    /// [`crate::ErrorKind::LocalIo`] where the machine does not have it.
    pub fn new(bytes: u64) -> Result<AlignedBuffer, Error> {
        let slab = if bytes == 0 { None } else { Some(Slab::outright(bytes)?) };
        // What has been mapped can be addressed.
        Ok(AlignedBuffer { slab, bytes: bytes as usize })
    }

    /// Where it starts; valid for [`AlignedBuffer::len`] bytes as long as it lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.slab.as_ref().map_or_else(Slab::nowhere, Slab::start)
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.slab.as_ref().map_or(&[], |slab| &slab.as_slice()[..self.bytes])
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.slab.as_mut().map_or(&mut [], |slab| &mut slab.as_mut_slice()[..self.bytes])
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Block({} bytes)", self.bytes)
    }
}

/// A landing in memory that is made when the first answer has told how much will come.
pub(crate) struct Allocating {
    made: AllocatedBuffer,
    /// Of this transfer alone, until it is whole: the same `made` may serve another.
    block: Mutex<Option<AlignedBuffer>>,
}

impl Allocating {
    pub(crate) fn new(made: AllocatedBuffer) -> Allocating {
        Allocating { made, block: Mutex::new(None) }
    }

    /// Makes it.
    pub(crate) fn prepare(&self, bytes: u64) -> Result<(), Error> {
        if let Some(at_most) = self.made.0.at_most.filter(|at_most| bytes > *at_most) {
            let _ = self.made.0.beyond.set(bytes);
            let cause = format!("{bytes} bytes would come, and {at_most} are the most");
            return Err(Error::new(ErrorKind::Usage, cause).with_hint("ask for a shorter range"));
        }
        *self.lock() = Some(AlignedBuffer::new(bytes)?);
        Ok(())
    }

    /// Where it starts.
    pub(crate) fn start(&self) -> *mut u8 {
        self.lock().as_ref().expect("a part comes after the first answer").as_ptr()
    }

    /// It is whole, and nobody writes there any more: gives it away.
    pub(crate) fn commit(&self) {
        let before = std::mem::replace(&mut *self.made.lock(), self.lock().take());
        drop(before);
    }

    /// Nobody writes there any more: what was not given away is nobody's.
    pub(crate) fn close(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<AlignedBuffer>> {
        self.block.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
