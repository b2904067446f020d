//! Where a transfer writes, owned by the transfer until it has ended: the one place that lends memory to the
//! engine.

use std::ops::Deref;
use std::path::PathBuf;

use flatout_engine::{AlignedBuffer, AllocatedBuffer, Client, Error, Get, Landing, Memory, Report, Transfer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::borrowed_buffer::BorrowedBuffer;
use crate::buffer::Buffer;
use crate::errors::Failure;
use crate::uninit_bytes::UninitBytes;

/// Where a transfer writes.
pub enum Destination {
    /// Memory that the engine allocates once it knows how much comes.
    AllocatedBuffer(AllocatedBuffer),
    /// A buffer of the caller's.
    Borrowed(BorrowedBuffer),
    /// A `bytes` object that no Python code has seen yet.
    Bytes(UninitBytes),
    /// Our own memory, to be copied from.
    Scratch(AlignedBuffer),
    /// A file, which appears under its name when it is whole and verified.
    File(PathBuf),
}

impl Destination {
    /// Memory that the engine allocates.
    pub fn made() -> Destination {
        Destination::AllocatedBuffer(AllocatedBuffer::new())
    }

    /// How many bytes would have come, where those were more than the destination allows.
    pub fn beyond(&self) -> Option<u64> {
        match self {
            Destination::AllocatedBuffer(made) => made.beyond(),
            _ => None,
        }
    }

    /// The bytes of a transfer that ended well, where the engine allocated the memory for them.
    pub fn into_buffer(self) -> Result<Buffer, Failure> {
        match self {
            Destination::AllocatedBuffer(made) => made.take().map(Buffer::from).ok_or_else(Failure::panicked),
            _ => Err(Failure::panicked()),
        }
    }

    /// The `bytes` of a transfer that ended well.
    pub fn into_bytes(self, py: Python<'_>) -> Result<Bound<'_, PyBytes>, Failure> {
        match self {
            Destination::Bytes(bytes) => Ok(bytes.into_bytes(py)),
            _ => Err(Failure::panicked()),
        }
    }

    /// Gives a borrowed buffer back. Dropping it does so too, and has to take the interpreter's lock first.
    pub fn release(self, py: Python<'_>) {
        if let Destination::Borrowed(buffer) = self {
            buffer.release(py);
        }
    }

    fn landing(&self) -> Landing {
        let (start, bytes) = match self {
            Destination::AllocatedBuffer(made) => return Landing::Allocated(made.clone()),
            Destination::File(path) => return Landing::File(path.clone()),
            Destination::Borrowed(buffer) => (buffer.start(), buffer.len()),
            Destination::Bytes(bytes) => (bytes.start(), bytes.len()),
            Destination::Scratch(block) => (block.as_ptr(), block.len()),
        };
        // SAFETY: all three are initialised and writable, and stay where they are however `self` is moved.
        // `OwnedTransfer`, the only caller, keeps `self` and hands it to nobody until the transfer has ended.
        Landing::Memory(unsafe { Memory::new(start, bytes) })
    }
}

/// A transfer and its destination. Dropping it cancels the transfer, waits for its end, and then lets go of
/// the destination.
pub struct OwnedTransfer {
    // Dropped before the destination that it writes to.
    transfer: Transfer,
    destination: Destination,
}

impl OwnedTransfer {
    /// Starts `get`, with `destination` in place of the landing that it names.
    ///
    /// # Errors
    /// What the engine refuses at once; see [`Client::get`].
    pub fn start(client: &Client, mut get: Get, destination: Destination) -> Result<OwnedTransfer, Error> {
        get.landing = destination.landing();
        let transfer = client.get(get)?;
        Ok(OwnedTransfer { transfer, destination })
    }

    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Waits for the end of the transfer, which no longer needs the destination then.
    pub fn wait(self) -> (Result<Report, Failure>, Destination) {
        let OwnedTransfer { transfer, destination } = self;
        (transfer.wait().map_err(Failure::from), destination)
    }
}

impl Deref for OwnedTransfer {
    type Target = Transfer;

    fn deref(&self) -> &Transfer {
        &self.transfer
    }
}
