//! Where the floor's bytes land, handed out part by part.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::slice::ChunksMut;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{FloorJob, closed_early};

/// The landing of a whole fetch.
pub enum FloorSink {
    /// Received into a scratch that is used again.
    Nowhere,
    /// Received straight into its place.
    Memory(&'static mut [u8]),
    /// Received into a scratch, then written where it belongs in a file that has its size already.
    File(File),
    /// In order: with one connection as it comes, with several a part at a time.
    Pipe(File),
}

/// The parts of an object in order, each with its place.
pub struct PartQueue<'a> {
    next: Mutex<(u64, SinkPlaces<'a>)>,
    bytes: u64,
    part_bytes: u64,
    order: PipeOrder<'a>,
    straight: bool,
}

enum SinkPlaces<'a> {
    Nowhere,
    Memory(ChunksMut<'a, u8>),
    File(&'a File),
    Pipe(&'a File),
}

/// One part on its way.
pub struct FloorPart<'a> {
    pub index: u64,
    pub range: Range<u64>,
    place: PartPlace<'a>,
    filled: usize,
}

enum PartPlace<'a> {
    Nowhere,
    Memory(&'a mut [u8]),
    File(&'a File),
    /// Straight on, as this is the only connection.
    Pipe(&'a File),
    /// Kept until the parts before it are written.
    Kept(Vec<u8>),
}

impl FloorSink {
    /// Cut into the parts of `job`, for that many connections.
    pub fn parts(&mut self, job: &FloorJob, connections: u32) -> PartQueue<'_> {
        let part_bytes = usize::try_from(job.part_bytes).expect("parts are smaller than memory");
        let mut out = None;
        let places = match self {
            FloorSink::Nowhere => SinkPlaces::Nowhere,
            FloorSink::Memory(buffer) => SinkPlaces::Memory(buffer.chunks_mut(part_bytes)),
            FloorSink::File(file) => SinkPlaces::File(file),
            FloorSink::Pipe(file) => {
                let file = &*file;
                out = Some(file);
                SinkPlaces::Pipe(file)
            }
        };
        PartQueue {
            next: Mutex::new((0, places)),
            bytes: job.bytes,
            part_bytes: job.part_bytes,
            order: PipeOrder { out, state: Mutex::default(), turn: Condvar::new() },
            straight: connections == 1,
        }
    }
}

impl<'a> PartQueue<'a> {
    /// The next part; `spare` is an earlier part's buffer to be used again.
    pub fn next(&self, spare: Option<Vec<u8>>) -> Option<FloorPart<'a>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, places) = &mut *next;
        let start = *index * self.part_bytes;
        if start >= self.bytes {
            return None;
        }
        let range = start..(start + self.part_bytes).min(self.bytes);
        let place = match places {
            SinkPlaces::Nowhere => PartPlace::Nowhere,
            SinkPlaces::Memory(chunks) => {
                PartPlace::Memory(chunks.next().expect("the buffer has the object's size"))
            }
            SinkPlaces::File(file) => PartPlace::File(file),
            SinkPlaces::Pipe(file) if self.straight => PartPlace::Pipe(file),
            SinkPlaces::Pipe(_) => {
                let mut buffer = spare.unwrap_or_default();
                buffer.resize((range.end - range.start) as usize, 0);
                PartPlace::Kept(buffer)
            }
        };
        let part = FloorPart { index: *index, range, place, filled: 0 };
        *index += 1;
        Some(part)
    }

    /// Where parts that were kept leave in order.
    pub fn order(&self) -> &PipeOrder<'a> {
        &self.order
    }
}

impl FloorPart<'_> {
    pub fn is_whole(&self) -> bool {
        self.left() == 0
    }

    /// Where to receive next: the landing itself, or `scratch`.
    pub fn room<'b>(&'b mut self, scratch: &'b mut [u8]) -> &'b mut [u8] {
        let wanted = scratch.len().min(self.left());
        let filled = self.filled;
        match &mut self.place {
            PartPlace::Memory(slice) => &mut slice[filled..filled + wanted],
            PartPlace::Kept(buffer) => &mut buffer[filled..filled + wanted],
            PartPlace::Nowhere | PartPlace::File(_) | PartPlace::Pipe(_) => &mut scratch[..wanted],
        }
    }

    /// Takes over what was received into the room.
    pub fn take(&mut self, received: usize, scratch: &[u8]) -> io::Result<()> {
        if received == 0 {
            return Err(closed_early());
        }
        match &mut self.place {
            PartPlace::File(file) => {
                file.write_all_at(&scratch[..received], self.range.start + self.filled as u64)?
            }
            PartPlace::Pipe(file) => file.write_all(&scratch[..received])?,
            PartPlace::Nowhere | PartPlace::Memory(_) | PartPlace::Kept(_) => {}
        }
        self.filled += received;
        Ok(())
    }

    /// Copies what came along with the head.
    pub fn copy(&mut self, mut bytes: &[u8], scratch: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.room(scratch);
            let fits = room.len().min(bytes.len());
            if fits == 0 {
                return Err(io::Error::other("the origin sent more than was asked for"));
            }
            room[..fits].copy_from_slice(&bytes[..fits]);
            self.take(fits, scratch)?;
            bytes = &bytes[fits..];
        }
        Ok(())
    }

    /// The buffer of a part that was kept.
    pub fn into_kept(self) -> Option<Vec<u8>> {
        match self.place {
            PartPlace::Kept(buffer) => Some(buffer),
            _ => None,
        }
    }

    fn left(&self) -> usize {
        (self.range.end - self.range.start) as usize - self.filled
    }
}

/// Parts leave through the pipe in their order.
pub struct PipeOrder<'a> {
    out: Option<&'a File>,
    state: Mutex<PipeState>,
    turn: Condvar,
}

#[derive(Default)]
struct PipeState {
    next: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    failed: bool,
}

impl PipeOrder<'_> {
    /// Waits for the part's turn and writes it: for threads of their own.
    pub fn write_in_turn(&self, index: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        while state.next != index && !state.failed {
            state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.failed {
            return Err(io::Error::other("another connection failed"));
        }
        // Written under the lock: it is this part's turn and nobody else's.
        self.write(bytes)?;
        state.next += 1;
        self.turn.notify_all();
        Ok(())
    }

    /// Writes what can be written and keeps the rest: for one thread. Returns a buffer to be used again.
    pub fn write_or_keep(&self, index: u64, bytes: Vec<u8>) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.state();
        state.waiting.insert(index, bytes);
        let mut spare = None;
        loop {
            let next = state.next;
            let Some(bytes) = state.waiting.remove(&next) else { return Ok(spare) };
            self.write(&bytes)?;
            state.next += 1;
            spare = Some(bytes);
        }
    }

    /// Wakes those who wait for a turn that will not come.
    pub fn fail(&self) {
        self.state().failed = true;
        self.turn.notify_all();
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = self.out.expect("only a pipe keeps parts");
        out.write_all(bytes)
    }

    fn state(&self) -> MutexGuard<'_, PipeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
