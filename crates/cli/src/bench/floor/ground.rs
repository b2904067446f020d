//! Where the floor's bytes land, handed out part by part.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::slice::ChunksMut;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{Job, closed_early};

/// The landing of a whole fetch.
pub enum Ground {
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
pub struct Parts<'a> {
    next: Mutex<(u64, Places<'a>)>,
    bytes: u64,
    part_bytes: u64,
    order: Order<'a>,
    straight: bool,
}

enum Places<'a> {
    Nowhere,
    Memory(ChunksMut<'a, u8>),
    File(&'a File),
    Pipe(&'a File),
}

/// One part on its way.
pub struct Part<'a> {
    pub index: u64,
    pub range: Range<u64>,
    place: Place<'a>,
    filled: usize,
}

enum Place<'a> {
    Nowhere,
    Memory(&'a mut [u8]),
    File(&'a File),
    /// Straight on, as this is the only connection.
    Pipe(&'a File),
    /// Kept until the parts before it are written.
    Kept(Vec<u8>),
}

impl Ground {
    /// Cut into the parts of `job`, for that many connections.
    pub fn parts(&mut self, job: &Job, connections: u32) -> Parts<'_> {
        let part_bytes = usize::try_from(job.part_bytes).expect("parts are smaller than memory");
        let mut out = None;
        let places = match self {
            Ground::Nowhere => Places::Nowhere,
            Ground::Memory(buffer) => Places::Memory(buffer.chunks_mut(part_bytes)),
            Ground::File(file) => Places::File(file),
            Ground::Pipe(file) => {
                let file = &*file;
                out = Some(file);
                Places::Pipe(file)
            }
        };
        Parts {
            next: Mutex::new((0, places)),
            bytes: job.bytes,
            part_bytes: job.part_bytes,
            order: Order { out, state: Mutex::default(), turn: Condvar::new() },
            straight: connections == 1,
        }
    }
}

impl<'a> Parts<'a> {
    /// The next part; `spare` is an earlier part's buffer to be used again.
    pub fn next(&self, spare: Option<Vec<u8>>) -> Option<Part<'a>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, places) = &mut *next;
        let start = *index * self.part_bytes;
        if start >= self.bytes {
            return None;
        }
        let range = start..(start + self.part_bytes).min(self.bytes);
        let place = match places {
            Places::Nowhere => Place::Nowhere,
            Places::Memory(chunks) => Place::Memory(chunks.next().expect("the buffer has the object's size")),
            Places::File(file) => Place::File(file),
            Places::Pipe(file) if self.straight => Place::Pipe(file),
            Places::Pipe(_) => {
                let mut buffer = spare.unwrap_or_default();
                buffer.resize((range.end - range.start) as usize, 0);
                Place::Kept(buffer)
            }
        };
        let part = Part { index: *index, range, place, filled: 0 };
        *index += 1;
        Some(part)
    }

    /// Where parts that were kept leave in order.
    pub fn order(&self) -> &Order<'a> {
        &self.order
    }
}

impl Part<'_> {
    pub fn is_whole(&self) -> bool {
        self.left() == 0
    }

    /// Where to receive next: the landing itself, or `scratch`.
    pub fn room<'b>(&'b mut self, scratch: &'b mut [u8]) -> &'b mut [u8] {
        let wanted = scratch.len().min(self.left());
        let filled = self.filled;
        match &mut self.place {
            Place::Memory(slice) => &mut slice[filled..filled + wanted],
            Place::Kept(buffer) => &mut buffer[filled..filled + wanted],
            Place::Nowhere | Place::File(_) | Place::Pipe(_) => &mut scratch[..wanted],
        }
    }

    /// Takes over what was received into the room.
    pub fn take(&mut self, received: usize, scratch: &[u8]) -> io::Result<()> {
        if received == 0 {
            return Err(closed_early());
        }
        match &mut self.place {
            Place::File(file) => {
                file.write_all_at(&scratch[..received], self.range.start + self.filled as u64)?
            }
            Place::Pipe(file) => file.write_all(&scratch[..received])?,
            Place::Nowhere | Place::Memory(_) | Place::Kept(_) => {}
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
            Place::Kept(buffer) => Some(buffer),
            _ => None,
        }
    }

    fn left(&self) -> usize {
        (self.range.end - self.range.start) as usize - self.filled
    }
}

/// Parts leave through the pipe in their order.
pub struct Order<'a> {
    out: Option<&'a File>,
    state: Mutex<Turn>,
    turn: Condvar,
}

#[derive(Default)]
struct Turn {
    next: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    failed: bool,
}

impl Order<'_> {
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

    fn state(&self) -> MutexGuard<'_, Turn> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
