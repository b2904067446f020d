//! Where a transfer writes, or what it reads, owned by the transfer until it has ended: the one place that
//! lends memory to the engine.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use flatout_engine::{
    AlignedBuffer, AllocatedBuffer, Client, Error, Get, Landing, Memory, Put, Report, ServerCopy, Source,
    Transfer,
};
use flatout_wire::location::Location;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::borrowed_buffer::{BorrowedBuffer, ReadableBuffer};
use crate::buffer::Buffer;
use crate::errors::Failure;
use crate::uninit_bytes::UninitBytes;

/// Where a transfer writes, or what it reads.
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
    /// The origin: the bytes come from a buffer of the caller's.
    Uploaded(ReadableBuffer),
    /// The origin: the bytes come from elsewhere.
    Origin,
}

/// What is asked of the engine.
pub enum Request {
    Get(Get),
    Put(Put),
    Copy(ServerCopy, Location),
}

impl From<Get> for Request {
    fn from(get: Get) -> Request {
        Request::Get(get)
    }
}

impl From<Put> for Request {
    fn from(put: Put) -> Request {
        Request::Put(put)
    }
}

impl Request {
    /// The name of the object, for people.
    pub fn name(&self) -> &str {
        match self {
            Request::Get(get) => get.location.name(),
            Request::Put(put) => put.location.name(),
            Request::Copy(_, to) => to.name(),
        }
    }

    /// As [`Get::on_end`].
    #[must_use]
    pub fn on_end(self, on_end: impl FnOnce() + Send + 'static) -> Request {
        match self {
            Request::Get(get) => Request::Get(get.on_end(on_end)),
            Request::Put(put) => Request::Put(put.on_end(on_end)),
            Request::Copy(copy, to) => Request::Copy(copy.on_end(on_end), to),
        }
    }
}

/// The bytes of a buffer that [`Destination::Uploaded`] keeps.
struct LentBytes {
    start: *const u8,
    bytes: usize,
}

// SAFETY: nothing is written through it, and `OwnedTransfer` keeps the buffer until nothing is read any more.
unsafe impl Send for LentBytes {}
// SAFETY: as above.
unsafe impl Sync for LentBytes {}

impl AsRef<[u8]> for LentBytes {
    fn as_ref(&self) -> &[u8] {
        match self.bytes {
            // An empty buffer may have no address.
            0 => &[],
            // SAFETY: the exporter keeps that many bytes there. Code is told not to write to them meanwhile;
            // what it writes is sent or not, and fails the upload where the checksum does not match.
            bytes => unsafe { std::slice::from_raw_parts(self.start, bytes) },
        }
    }
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
        match self {
            Destination::Borrowed(buffer) => buffer.release(py),
            Destination::Uploaded(buffer) => buffer.release(py),
            _ => {}
        }
    }

    fn landing(&self) -> Landing {
        let (start, bytes) = match self {
            Destination::AllocatedBuffer(made) => return Landing::Allocated(made.clone()),
            Destination::File(path) => return Landing::File(path.clone()),
            Destination::Uploaded(_) | Destination::Origin => return Landing::Nowhere,
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
    /// Starts what is asked for, with `destination` in place of the landing that a get names, and the bytes
    /// of a buffer there in place of a put's source.
    ///
    /// # Errors
    /// What the engine refuses at once; see [`Client::get`], [`Client::put`], [`Client::copy`].
    pub fn start(
        client: &Client,
        request: impl Into<Request>,
        destination: Destination,
    ) -> Result<OwnedTransfer, Error> {
        let transfer = match request.into() {
            Request::Get(mut get) => {
                get.landing = destination.landing();
                client.get(get)
            }
            Request::Put(mut put) => {
                if let Destination::Uploaded(buffer) = &destination {
                    put.source =
                        Source::Memory(Arc::new(LentBytes { start: buffer.start(), bytes: buffer.len() }));
                }
                client.put(put)
            }
            Request::Copy(copy, _) => client.copy(copy),
        };
        Ok(OwnedTransfer { transfer: transfer?, destination })
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
