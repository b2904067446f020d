//! The stream landing: in order, through a bounded window. Each part has a room of its own from the client's
//! memory, from when it is taken until it has been read; bytes are received straight into it.
//!
//! ```text
//!   plan:   0  1  2  3 | 4  5  6 …
//!           ^head      ^ not asked for before the window and the memory have room for it
//! ```
//! Backpressure is a room not given, never a message: a part is asked for only when there is one for all of
//! it. Rooms are given before parts are taken, and parts are taken in order, so the part at the head always
//! has one. A stream that is read as fast as it comes uses few rooms again and again, whatever the window.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
#[cfg(test)]
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::base::cancellation::Cancellation;
use crate::base::error::{Error, ErrorKind};
use crate::base::time::now;
use crate::memory::lease::{Holder, Lease, Pool, addressable};
use flatout_policy::latency::ReadAhead;

/// The largest piece handed to a reader at once: large enough for few writes, small enough to be still in the
/// cache.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The reader is woken when this much is there, or a part is whole: fewer hand-offs between its thread and
/// the shard's.
const WAKE_BYTES: usize = 512 << 10;
/// Less than that is looked for this often, so that a trickle is passed on, too.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A shorter wait of the reader is no reason for another window.
const LONG_WAIT: Duration = Duration::from_millis(2);
/// A window grows by that, up to what a window without a bound of its own may have.
const GROWS: u64 = 4;
const WINDOW_MOST: u64 = 1 << 30;
/// A pair of ends: the writer goes into [`crate::Landing::Stream`], the reader gives the bytes in order.
pub fn stream() -> (StreamWriter, StreamReader) {
    let ring = Arc::new(Ring::default());
    (StreamWriter(ring.clone()), StreamReader { ring, lent_bytes: 0 })
}

/// The end that a transfer lands in.
pub struct StreamWriter(pub(crate) Arc<Ring>);

impl Drop for StreamWriter {
    /// Without a transfer nothing will come.
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The end that gives the bytes in order. Dropping it cancels the transfer.
pub struct StreamReader {
    ring: Arc<Ring>,
    lent_bytes: usize,
}

impl StreamReader {
    /// The next bytes, at most 1 MiB, waiting for them if need be; they count as read at the next call.
    /// `None` at the end or after a failure: [`crate::Transfer::wait`] tells which.
    #[allow(clippy::should_implement_trait)] // An iterator cannot lend from itself.
    pub fn next(&mut self) -> Option<&[u8]> {
        let mut state = self.ring.lock();
        state.taken += std::mem::take(&mut self.lent_bytes);
        let mut begun = None;
        let (start, bytes) = loop {
            match self.ring.look(&mut state) {
                Look::Bytes(start, bytes) => break (start, bytes),
                Look::End => return None,
                Look::Nothing => {}
            }
            state.reader_waits = true;
            let begun = *begun.get_or_insert_with(now);
            let waited = self.ring.readable.wait_timeout(state, LOOK_AGAIN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.reader_waits = false;
            if begun.elapsed() >= LONG_WAIT {
                self.ring.on_wait(&mut state);
            }
        };
        drop(state);
        self.lent_bytes = bytes;
        // SAFETY: as `lent` asks; `&mut self` is borrowed as long as the slice.
        Some(unsafe { lent(start, bytes) })
    }

    /// As [`StreamReader::next`] for a reader whose clock stands still while it waits: `Pending` where that
    /// would wait.
    #[cfg(test)]
    pub(crate) fn try_next(&mut self) -> Poll<Option<&[u8]>> {
        let mut state = self.ring.lock();
        state.taken += std::mem::take(&mut self.lent_bytes);
        let (start, bytes) = match self.ring.look(&mut state) {
            Look::Bytes(start, bytes) => (start, bytes),
            Look::End => return Poll::Ready(None),
            Look::Nothing => return Poll::Pending,
        };
        drop(state);
        self.lent_bytes = bytes;
        // SAFETY: as in `next`.
        Poll::Ready(Some(unsafe { lent(start, bytes) }))
    }
}

/// The bytes that a reader is lent.
///
/// # Safety
/// They are those of [`Look::Bytes`]: published under the lock after they were written, and nobody writes to
/// them again. The room that they are in stays until the reader looks again; nothing may be lent for longer.
unsafe fn lent<'a>(start: *const u8, bytes: usize) -> &'a [u8] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(start, bytes) }
}

/// What a reader finds.
enum Look {
    /// From here on, so many bytes.
    Bytes(*const u8, usize),
    Nothing,
    End,
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = self.ring.lock();
        state.abandoned = true;
        self.ring.room.notify_waiters();
        if let Some(stop) = self.ring.stop.get() {
            stop.cancel();
        }
    }
}

/// Nobody wants the rest.
pub(crate) fn reader_has_gone() -> Error {
    Error::new(ErrorKind::Cancelled, "the reader of the stream has gone")
}

/// What reader and shards share.
#[derive(Default)]
pub(crate) struct Ring {
    /// Where rooms come from; set when the first answer is there.
    holder: OnceLock<Holder>,
    /// Set with it, where the window follows how soon bytes come.
    ahead: OnceLock<ReadAhead>,
    state: Mutex<State>,
    /// Wakes workers that wait for the window.
    room: Notify,
    readable: Condvar,
    /// The transfer's, closed when the reader leaves: an origin that is silent would not let it notice.
    stop: OnceLock<Arc<Cancellation>>,
}

#[derive(Default)]
struct State {
    /// The parts from the head on, as far as any has been taken.
    slots: VecDeque<Slot>,
    /// The part being read, and how much of it has been.
    head: u64,
    taken: usize,
    /// Of all rooms, also those that are still waited for.
    rooms_bytes: u64,
    /// How far it may be read ahead, if there is a bound beside memory and settings.
    window: Option<u64>,
    /// Since the window changed.
    read_bytes: u64,
    reader_waits: bool,
    ended: bool,
    /// The reader has gone.
    abandoned: bool,
}

/// A part: taken where it has memory, and else yet to be.
#[derive(Default)]
struct Slot {
    memory: Option<Lease>,
    room_bytes: u64,
    filled: usize,
    complete: bool,
    taken_at: Option<Instant>,
}

/// A room for one part. Dropped, it is free again.
pub(crate) struct Room<'a> {
    ring: &'a Ring,
    bytes: u64,
    memory: Option<Lease>,
}

impl Room<'_> {
    /// The part of that number lands in it.
    pub(crate) fn seat(mut self, part: u64) {
        let mut state = self.ring.lock();
        let at = usize::try_from(part - state.head).expect("a part is taken before it is read");
        if state.slots.len() <= at {
            state.slots.resize_with(at + 1, Slot::default);
        }
        let slot = &mut state.slots[at];
        assert!(slot.memory.is_none(), "a part is taken once");
        (slot.memory, slot.room_bytes) = (self.memory.take(), std::mem::take(&mut self.bytes));
        slot.taken_at = Some(now());
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.ring.lock().rooms_bytes -= self.bytes;
            self.ring.room.notify_one();
        }
    }
}

impl Ring {
    /// Says where rooms come from, and how far to read ahead.
    pub(crate) fn prepare(&self, pool: &Arc<Pool>, ahead: Option<ReadAhead>) -> Result<(), Error> {
        let fresh = self.holder.set(pool.holder()).is_ok();
        assert!(fresh, "a transfer prepares its landing once");
        if let Some(ahead) = ahead {
            self.lock().window = Some(ahead.least());
            let _ = self.ahead.set(ahead);
        }
        match self.is_abandoned() {
            true => Err(reader_has_gone()),
            false => Ok(()),
        }
    }

    pub(crate) fn stop_when_abandoned(&self, stop: &Arc<Cancellation>) {
        let state = self.lock();
        let fresh = self.stop.set(stop.clone()).is_ok();
        assert!(fresh, "a writer lands one transfer");
        if state.abandoned {
            stop.cancel();
        }
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().abandoned
    }

    /// A room for a part of so many bytes, once a window of `window_bytes` and the client's memory have it; a
    /// stream that has none is given one in any case.
    ///
    /// # Errors
    /// The reader has gone, or the machine has no memory.
    pub(crate) async fn admit(&self, part_bytes: u64, window_bytes: u64) -> Result<Room<'_>, Error> {
        let mut room = self.wait_for_window(part_bytes, window_bytes).await?;
        room.memory = Some(self.holder().lease(addressable(part_bytes)?).await?);
        match self.is_abandoned() {
            true => Err(reader_has_gone()),
            false => Ok(room),
        }
    }

    async fn wait_for_window(&self, bytes: u64, window_bytes: u64) -> Result<Room<'_>, Error> {
        loop {
            let mut woken = std::pin::pin!(self.room.notified());
            {
                let mut state = self.lock();
                if state.abandoned {
                    return Err(reader_has_gone());
                }
                let (wanted, window) =
                    (state.rooms_bytes + bytes, state.window.unwrap_or(u64::MAX).min(window_bytes));
                if wanted <= window || state.rooms_bytes == 0 {
                    state.rooms_bytes = wanted;
                    // Whoever was woken before may have wanted more than there was.
                    if wanted + bytes <= window {
                        self.room.notify_one();
                    }
                    return Ok(Room { ring: self, bytes, memory: None });
                }
                // Before the lock is given back: what comes after it wakes us.
                woken.as_mut().enable();
            }
            woken.await;
        }
    }

    /// How long the next part may be: those in flight share the link and land together, so the shorter they
    /// are, the less the reader waits for the first of them.
    pub(crate) fn part_bytes_max(&self) -> u64 {
        self.ahead
            .get()
            .zip(self.lock().window)
            .map_or(u64::MAX, |(ahead, window)| (window / ahead.parts).max(1))
    }

    /// The reader has waited for the part at the head.
    fn on_wait(&self, state: &mut State) {
        let (Some(window), Some(ahead)) = (state.window, self.ahead.get()) else { return };
        let head = state.slots.front().filter(|slot| slot.filled > state.taken);
        let Some((bytes, at)) = head.and_then(|slot| Some((slot.filled as u64, slot.taken_at?))) else {
            return;
        };
        let came = ahead.latency.how(bytes, now().saturating_duration_since(at));
        let bounds = ahead.least()..WINDOW_MOST;
        if let Some(window) = came.next_window(window, state.read_bytes, GROWS, &bounds) {
            (state.window, state.read_bytes) = (Some(window), 0);
            self.room.notify_waiters();
        }
    }

    /// Whether most of what rooms hold is there to be read: whoever waits for one waits for the reader.
    pub(crate) fn is_mostly_unread(&self) -> bool {
        let state = self.lock();
        let filled: usize = state.slots.iter().map(|slot| slot.filled).sum();
        2 * (filled - state.taken.min(filled)) as u64 > state.rooms_bytes
    }

    /// Where a part lands that has its room.
    pub(crate) fn start_of(&self, part: u64) -> *mut u8 {
        let state = self.lock();
        let slot = usize::try_from(part - state.head).ok().and_then(|at| state.slots.get(at));
        let memory = slot.and_then(|slot| slot.memory.as_ref());
        memory.expect("a part is taken with its room").as_ptr()
    }

    /// Tells the reader that `filled` bytes of a part are there; an error when it has gone.
    pub(crate) fn publish(&self, part: u64, filled: usize) -> Result<(), Error> {
        match self.update(part, |slot| slot.filled = filled) {
            true => Ok(()),
            false => Err(reader_has_gone()),
        }
    }

    /// Tells the reader that a part ends where it is filled.
    pub(crate) fn complete(&self, part: u64) {
        self.update(part, |slot| slot.complete = true);
    }

    /// Nothing more will come, and nobody writes any more. What lies behind a part that is not whole cannot
    /// be read.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        let readable = state.slots.iter().position(|slot| !slot.complete).map_or(usize::MAX, |at| at + 1);
        state.slots.truncate(readable);
        self.readable.notify_all();
    }

    /// Changes a slot and wakes the reader if that is what it waits for; whether there is one.
    fn update(&self, part: u64, change: impl FnOnce(&mut Slot)) -> bool {
        let mut state = self.lock();
        let is_head = part == state.head;
        let at = usize::try_from(part - state.head).expect("a part is filled before it is read");
        let slot = &mut state.slots[at];
        change(slot);
        let (complete, filled) = (slot.complete, slot.filled);
        if state.reader_waits && is_head && (complete || filled - state.taken >= WAKE_BYTES) {
            self.readable.notify_one();
        }
        !state.abandoned
    }

    /// Goes on to the next part when the one at the head has been read to its end; its room is free again.
    fn advance(&self, state: &mut State) {
        if state.slots.front().is_some_and(|slot| slot.complete && slot.filled == state.taken) {
            let read = state.slots.pop_front().expect("it was looked at");
            state.head += 1;
            state.taken = 0;
            state.read_bytes += read.filled as u64;
            state.rooms_bytes -= read.room_bytes;
            // Its memory goes first, so that it is there for whoever is woken.
            drop(read);
            self.room.notify_one();
        }
    }

    fn look(&self, state: &mut State) -> Look {
        self.advance(state);
        match state.slots.front() {
            Some(Slot { memory: Some(memory), filled, .. }) if *filled > state.taken => {
                // SAFETY: what has been filled lies within the room.
                let start = unsafe { memory.as_ptr().add(state.taken) };
                Look::Bytes(start, (filled - state.taken).min(CHUNK_BYTES_MAX))
            }
            _ if state.ended => Look::End,
            _ => Look::Nothing,
        }
    }

    fn holder(&self) -> &Holder {
        self.holder.get().expect("the ring is prepared before parts are asked for")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use flatout_policy::latency::Latency;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    /// Fills parts of these sizes, none longer than `longest`, through a window of so many of those, and
    /// reads them back.
    fn check(parts_at_once: u64, longest: u64, sizes: &[usize]) {
        let (writer, mut reader) = stream();
        let pool = Arc::new(Pool::new(parts_at_once * 4096, 0));
        writer.0.prepare(&pool, None).expect("a reader");
        let (parts, held) = (sizes.to_vec(), pool.clone());
        let filler = std::thread::spawn(move || {
            let runtime = runtime();
            for (part, bytes) in (0..).zip(parts) {
                let admitted = runtime.block_on(writer.0.admit(bytes as u64, parts_at_once * longest));
                admitted.expect("a room").seat(part);
                assert!(held.held_bytes() <= parts_at_once * 4096);
                let start = writer.0.start_of(part);
                for filled in 1..=bytes {
                    // SAFETY: the room is ours until it is complete, and `filled` stays within it.
                    unsafe { *start.add(filled - 1) = part as u8 };
                    writer.0.publish(part, filled).expect("a reader");
                }
                writer.0.complete(part);
            }
        });
        let mut seen = Vec::new();
        while let Some(bytes) = reader.next() {
            seen.extend_from_slice(bytes);
        }
        filler.join().expect("the filler ends");
        let expected: Vec<u8> =
            (0..).zip(sizes).flat_map(|(part, &bytes)| std::iter::repeat_n(part, bytes)).collect();
        assert_eq!(seen, expected);
        assert_eq!(pool.held_bytes(), 0, "what has been read is held no more");
    }

    #[test]
    fn bytes_come_in_order_through_any_window() {
        check(1, 10, &[10, 10, 10, 10, 10, 10, 3]);
        check(3, 10, &[10; 7]);
        check(16, 5, &[5, 1]);
    }

    #[test]
    fn parts_may_be_shorter_than_the_longest() {
        check(3, 8, &[8, 2, 4, 8, 1, 1, 8, 3, 5]);
        check(1, 8, &[1, 8, 2]);
    }

    #[test]
    fn a_window_is_as_long_as_the_way_to_the_origin() {
        const PART: u64 = 512 << 10;
        let begun = now();
        let latency = Arc::new(Latency::new(begun));
        latency.on_first(Duration::from_micros(200), begun);
        latency.on_range(PART, Duration::from_micros(300), begun);
        let (writer, mut reader) = stream();
        let ahead = ReadAhead { latency: latency.clone(), parts: 4, part_bytes: PART };
        let (pool, ring, runtime) = (Arc::new(Pool::default()), writer.0.clone(), runtime());
        ring.prepare(&pool, Some(ahead)).expect("a reader");
        let mut parts = 0;
        // Reads one part that comes so much later than it was asked for.
        let mut read = |after: Duration| {
            runtime.block_on(ring.admit(PART, 1 << 40)).expect("a room").seat(parts);
            let (writes, part) = (ring.clone(), parts);
            let comes = std::thread::spawn(move || {
                std::thread::sleep(after);
                writes.publish(part, PART as usize).expect("a reader");
                writes.complete(part);
            });
            assert_eq!(reader.next().map(<[u8]>::len), Some(PART as usize));
            comes.join().expect("no panic");
            parts += 1;
            ring.part_bytes_max()
        };
        assert_eq!(read(Duration::from_millis(20)), PART, "it was in a queue: the least is kept");
        // After a silence the origin is 20 ms away, and its old latency is forgotten.
        latency.on_first(Duration::from_millis(20), begun + Duration::from_secs(60));
        latency.on_range(PART, Duration::from_millis(21), begun + Duration::from_secs(60));
        let grown = read(Duration::from_millis(20));
        assert_eq!(grown, 4 * PART, "20 ms are the way");
    }

    #[test]
    fn a_reader_that_leaves_closes_the_window() {
        let (writer, reader) = stream();
        writer.0.prepare(&Arc::new(Pool::default()), None).expect("a reader");
        drop(reader);
        assert!(runtime().block_on(writer.0.admit(8, 8)).is_err());
    }

    #[test]
    fn a_room_for_which_there_is_no_part_is_free_again() {
        let (writer, _reader) = stream();
        let pool = Arc::new(Pool::default());
        writer.0.prepare(&pool, None).expect("a reader");
        let (runtime, ring) = (runtime(), &writer.0);
        let first = runtime.block_on(ring.admit(8, 16)).expect("a room");
        let second = runtime.block_on(ring.admit(8, 16)).expect("a room");
        assert_eq!(pool.held_bytes(), 2 * 4096);
        drop(first);
        let third = runtime.block_on(ring.admit(8, 16)).expect("the room that came back");
        second.seat(1);
        third.seat(0);
        // The transfer ends with a part that is not whole: what lies behind it is of no use.
        ring.complete(1);
        ring.end();
        assert_eq!(pool.held_bytes(), 4096);
    }

    #[test]
    fn a_stream_that_is_read_as_it_comes_takes_one_room_again_and_again() {
        let (writer, mut reader) = stream();
        let pool = Arc::new(Pool::default());
        writer.0.prepare(&pool, None).expect("a reader");
        let (runtime, mut places) = (runtime(), std::collections::HashSet::new());
        for part in 0..100 {
            runtime.block_on(writer.0.admit(8, 800)).expect("a room").seat(part);
            places.insert(writer.0.start_of(part));
            writer.0.publish(part, 8).expect("a reader");
            writer.0.complete(part);
            assert_eq!(reader.next().map(<[u8]>::len), Some(8));
        }
        assert!(places.len() <= 2, "what was lent last, and the next: {places:?}");
    }
}
