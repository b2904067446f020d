//! A stream as the source of an upload: its writer fills rooms, and each full room is a part. Backpressure is
//! a room that is not there yet. A room is given back when its part has been acknowledged, so that the part
//! can be sent again.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::memory::lease::Lease;

/// The shortest room that a writer gets; only its last part may be shorter.
pub const STREAM_ROOM_LEAST: u64 = flatout_policy::upload::PART_LEAST;

/// How often a writer that waits for a room is asked whether it goes on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A pair of ends: the source goes into [`crate::Put`], bytes go into the uploader.
pub fn upload_stream() -> (StreamUploader, StreamSource) {
    let ring = Arc::new(UploadRing::default());
    (
        StreamUploader { ring: ring.clone(), room: None, filled: 0, beyond: Vec::new(), is_finished: false },
        StreamSource(Some(ring)),
    )
}

/// The end that an upload takes its bytes from.
pub struct StreamSource(Option<Arc<UploadRing>>);

impl StreamSource {
    /// The upload takes over.
    pub(crate) fn into_ring(mut self) -> Arc<UploadRing> {
        self.0.take().expect("it is taken once, with the source itself")
    }
}

impl Drop for StreamSource {
    /// Without an upload nothing takes the bytes.
    fn drop(&mut self) {
        if let Some(ring) = &self.0 {
            ring.end();
        }
    }
}

/// The end that takes the bytes of a stream. Dropped before [`StreamUploader::finish`], it fails the upload,
/// and nothing is published.
pub struct StreamUploader {
    ring: Arc<UploadRing>,
    room: Option<Lease>,
    filled: usize,
    /// What [`StreamUploader::write_reserved`] had no room for: it comes first in the next.
    beyond: Vec<u8>,
    is_finished: bool,
}

/// The upload has ended before all of its stream was written: [`crate::Transfer::wait`] tells why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadEnded;

impl StreamUploader {
    /// Where the next bytes go, at least one byte long; blocks while there is no room.
    ///
    /// # Errors
    /// The upload has ended.
    pub fn space(&mut self) -> Result<&mut [u8], UploadEnded> {
        if self.room.as_ref().is_some_and(|room| room.len() == self.filled) {
            self.pass_on();
        }
        if self.room.is_none() {
            let room = self.ring.wait_for_room()?;
            self.begin(room);
        }
        let room = self.room.as_mut().expect("there is one by now");
        Ok(&mut room.as_mut_slice()[self.filled..])
    }

    /// Waits until [`StreamUploader::write_reserved`] may be called; nothing is written yet, so that a writer
    /// that gives up has written all of its bytes or none. `goes_on` is asked before each wait of a tenth of
    /// a second at most; false from it ends the wait, and is what this returns.
    ///
    /// # Errors
    /// The upload has ended.
    pub fn reserve(&mut self, mut goes_on: impl FnMut() -> bool) -> Result<bool, UploadEnded> {
        loop {
            if self.room.as_ref().is_some_and(|room| room.len() == self.filled) {
                self.pass_on();
            }
            if self.room.is_some() {
                return if self.ring.lock().has_ended { Err(UploadEnded) } else { Ok(true) };
            }
            match self.ring.take_room()? {
                Some(room) => self.begin(room),
                None if goes_on() => self.ring.wait_for_room_within(LOOK_EVERY),
                None => return Ok(false),
            }
        }
    }

    /// Writes after [`StreamUploader::reserve`], without a wait: a full room is passed on at once, and what
    /// is left of `bytes` waits here for the next. Whoever holds a room that is almost full needs no second
    /// one for that: many writers that all did would wait for each other.
    ///
    /// # Panics
    /// Without a room, or with more bytes than the shortest room has ([`crate::STREAM_ROOM_LEAST`]).
    pub fn write_reserved(&mut self, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= STREAM_ROOM_LEAST, "{} bytes are more than a room", bytes.len());
        let room = self.room.as_mut().expect("it was reserved");
        let now = bytes.len().min(room.len() - self.filled);
        room.as_mut_slice()[self.filled..][..now].copy_from_slice(&bytes[..now]);
        self.filled += now;
        self.beyond.extend_from_slice(&bytes[now..]);
        if self.room.as_ref().is_some_and(|room| room.len() == self.filled) {
            self.pass_on();
        }
    }

    /// Takes a room, and puts into it what waits for one.
    fn begin(&mut self, mut room: Lease) {
        self.filled = self.beyond.len();
        room.as_mut_slice()[..self.filled].copy_from_slice(&self.beyond);
        self.beyond.clear();
        self.room = Some(room);
    }

    /// As [`StreamUploader::space`] for a writer whose clock stands still while it waits: `Pending` where
    /// that would wait.
    #[cfg(test)]
    pub(crate) fn try_space(&mut self) -> std::task::Poll<Result<&mut [u8], UploadEnded>> {
        let is_full = self.room.as_ref().is_none_or(|room| room.len() == self.filled);
        if is_full {
            self.pass_on();
            match self.ring.take_room() {
                Err(ended) => return std::task::Poll::Ready(Err(ended)),
                Ok(None) => return std::task::Poll::Pending,
                Ok(Some(room)) => self.begin(room),
            }
        }
        std::task::Poll::Ready(self.space())
    }

    /// The first `bytes` of [`StreamUploader::space`] have been filled.
    ///
    /// # Panics
    /// When that is more than the space.
    pub fn advance(&mut self, bytes: usize) {
        let space = self.room.as_ref().map_or(0, |room| room.len() - self.filled);
        assert!(bytes <= space, "{bytes} bytes in a space of {space}");
        self.filled += bytes;
    }

    /// Copies `bytes` into the stream; blocks while there is no room.
    ///
    /// # Errors
    /// The upload has ended.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), UploadEnded> {
        while !bytes.is_empty() {
            let space = self.space()?;
            let now = space.len().min(bytes.len());
            space[..now].copy_from_slice(&bytes[..now]);
            self.advance(now);
            bytes = &bytes[now..];
        }
        Ok(())
    }

    /// All bytes have been written: the object may appear.
    pub fn finish(mut self) {
        if !self.beyond.is_empty()
            && let Ok(room) = self.ring.wait_for_room()
        {
            self.begin(room);
        }
        self.pass_on();
        self.is_finished = true;
        let mut state = self.ring.lock();
        state.is_finished = true;
        self.ring.filled.notify_one();
    }

    fn pass_on(&mut self) {
        let Some(memory) = self.room.take() else { return };
        let bytes = std::mem::take(&mut self.filled);
        let mut state = self.ring.lock();
        if bytes > 0 {
            state.filled.push_back(FilledRoom { memory, bytes });
        }
        self.ring.filled.notify_one();
    }
}

impl Drop for StreamUploader {
    fn drop(&mut self) {
        if !self.is_finished {
            self.ring.lock().is_abandoned = true;
            self.ring.filled.notify_one();
        }
    }
}

/// A part of a stream, ready to be sent.
pub(crate) struct FilledRoom {
    memory: Lease,
    bytes: usize,
}

impl FilledRoom {
    /// The length of the room, of which the content may fill less.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn content(&mut self) -> &[u8] {
        &self.memory.as_mut_slice()[..self.bytes]
    }
}

/// What comes next out of a stream.
pub(crate) enum Next {
    Room(FilledRoom),
    /// Its writer has finished it.
    End,
    /// Its writer has gone before the end.
    Abandoned,
}

/// What writer and shards share.
#[derive(Default)]
pub(crate) struct UploadRing {
    state: Mutex<State>,
    /// Wakes the writer: a room has come, or the upload has ended.
    room: Condvar,
    /// Wakes the upload: a room has been filled, or none will be.
    filled: Notify,
    /// Wakes the upload: its writer looks for a room.
    wanted: Notify,
}

#[derive(Default)]
struct State {
    free: VecDeque<Lease>,
    filled: VecDeque<FilledRoom>,
    /// The writer has looked for a room since it got the last one.
    is_wanted: bool,
    is_finished: bool,
    is_abandoned: bool,
    has_ended: bool,
}

impl UploadRing {
    /// A room for the writer.
    pub(crate) fn give(&self, room: Lease) {
        let mut state = self.lock();
        if !state.has_ended {
            state.free.push_back(room);
            state.is_wanted = false;
        }
        self.room.notify_one();
    }

    /// Whether the writer waits for a room.
    pub(crate) fn is_wanted(&self) -> bool {
        self.lock().is_wanted
    }

    /// Waits until the writer looks for a room, and there is none.
    pub(crate) async fn wanted(&self) {
        loop {
            let mut woken = std::pin::pin!(self.wanted.notified());
            woken.as_mut().enable();
            if self.is_wanted() {
                return;
            }
            woken.await;
        }
    }

    /// The next part.
    pub(crate) async fn next(&self) -> Next {
        loop {
            let mut woken = std::pin::pin!(self.filled.notified());
            {
                let mut state = self.lock();
                if state.is_abandoned {
                    return Next::Abandoned;
                }
                if let Some(room) = state.filled.pop_front() {
                    return Next::Room(room);
                }
                if state.is_finished {
                    return Next::End;
                }
                // Before the lock is given back: what comes after it wakes us.
                woken.as_mut().enable();
            }
            woken.await;
        }
    }

    /// Whether no more than the room that is taken now will be filled.
    pub(crate) fn is_finished(&self) -> bool {
        let state = self.lock();
        state.is_finished && state.filled.is_empty()
    }

    /// The upload has ended: nothing is taken any more.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        let rooms = (std::mem::take(&mut state.free), std::mem::take(&mut state.filled));
        drop(state);
        drop(rooms);
        self.room.notify_all();
    }

    /// A room, where there is one.
    fn take_room(&self) -> Result<Option<Lease>, UploadEnded> {
        let mut state = self.lock();
        if state.has_ended { Err(UploadEnded) } else { Ok(self.room_of(&mut state)) }
    }

    /// A free room; without one the upload hears that one is wanted.
    fn room_of(&self, state: &mut State) -> Option<Lease> {
        let room = state.free.pop_front();
        if room.is_none() && !state.is_wanted {
            state.is_wanted = true;
            self.wanted.notify_one();
        }
        room
    }

    fn wait_for_room_within(&self, time: Duration) {
        let waits = |state: &mut State| state.free.is_empty() && !state.has_ended;
        drop(self.room.wait_timeout_while(self.lock(), time, waits));
    }

    fn wait_for_room(&self) -> Result<Lease, UploadEnded> {
        let mut state = self.lock();
        loop {
            if state.has_ended {
                return Err(UploadEnded);
            }
            if let Some(room) = self.room_of(&mut state) {
                return Ok(room);
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
