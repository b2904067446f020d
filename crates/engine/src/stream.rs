//! The stream landing: an ordered, bounded window. Bytes are received straight into a ring of slots, each large enough
//! for any part.
//!
//! ```text
//!   plan:   0  1  2  3 | 4  5  6 …          slots = window / longest part
//!           ^head      ^ not asked for before part 0 has been read and its permit came back
//! ```
//! Backpressure is a permit held, never a message: a part is asked for only when a slot is free for all of it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
#[cfg(test)]
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::error::{Error, ErrorKind};
use crate::lease::{Lease, Pool, addressable};

/// The largest piece handed to a reader at once: large enough for few writes, small enough to be still in the cache.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The reader is woken when this much is there, or a part is whole: fewer hand-offs between its thread and the shard's.
const WAKE_BYTES: usize = 512 << 10;
/// Less than that is looked for this often, so that a trickle is passed on, too.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

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
        let (head, taken, bytes) = loop {
            match self.ring.look(&mut state) {
                Look::Bytes(head, taken, bytes) => break (head, taken, bytes),
                Look::End => return None,
                Look::Nothing => {}
            }
            state.reader_waits = true;
            let waited = self.ring.readable.wait_timeout(state, LOOK_AGAIN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.reader_waits = false;
        };
        drop(state);
        self.lent_bytes = bytes;
        Some(self.ring.filled(head, taken, bytes))
    }

    /// As [`StreamReader::next`] for a reader whose clock stands still while it waits: `Pending` where that would wait.
    #[cfg(test)]
    pub(crate) fn try_next(&mut self) -> Poll<Option<&[u8]>> {
        let mut state = self.ring.lock();
        state.taken += std::mem::take(&mut self.lent_bytes);
        let (head, taken, bytes) = match self.ring.look(&mut state) {
            Look::Bytes(head, taken, bytes) => (head, taken, bytes),
            Look::End => return Poll::Ready(None),
            Look::Nothing => return Poll::Pending,
        };
        drop(state);
        self.lent_bytes = bytes;
        Poll::Ready(Some(self.ring.filled(head, taken, bytes)))
    }
}

/// What a reader finds.
enum Look {
    /// Of this part, from this byte on, so many bytes.
    Bytes(u64, usize, usize),
    Nothing,
    End,
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = self.ring.lock();
        state.abandoned = true;
        if let Some(space) = self.ring.space.get() {
            space.permits.close();
        }
        if let Some(stop) = self.ring.stop.get() {
            stop.close();
        }
    }
}

/// Nobody wants the rest.
pub(crate) fn reader_has_gone() -> Error {
    Error::new(ErrorKind::Cancelled, "the reader of the stream has gone")
}

/// The ring itself, shared by reader and shards.
#[derive(Default)]
pub(crate) struct Ring {
    space: OnceLock<Space>,
    state: Mutex<State>,
    readable: Condvar,
    /// The transfer's, closed when the reader leaves: an origin that is silent would not let it notice.
    stop: OnceLock<Arc<Semaphore>>,
}

/// The memory of a ring, taken when the first answer tells how much there is to come.
struct Space {
    memory: Lease,
    slot_bytes: usize,
    slots: usize,
    permits: Semaphore,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    /// The part being read, and how much of it has been.
    head: u64,
    taken: usize,
    reader_waits: bool,
    ended: bool,
    /// The reader has gone.
    abandoned: bool,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    filled: usize,
    complete: bool,
}

impl State {
    fn head_slot(&self) -> usize {
        slot_of(self.head, self.slots.len())
    }
}

fn slot_of(part: u64, slots: usize) -> usize {
    (part % slots.max(1) as u64) as usize
}

impl Ring {
    /// Takes the memory for `window_bytes`, in whole slots and no more than `total_bytes` need. `part_bytes` are those of
    /// the longest part: shorter ones leave the rest of their slot empty.
    pub(crate) fn prepare(
        &self,
        pool: &Arc<Pool>,
        window_bytes: u64,
        part_bytes: u64,
        total_bytes: Option<u64>,
    ) -> Result<(), Error> {
        let part_bytes = part_bytes.min(total_bytes.unwrap_or(part_bytes)).max(1);
        let parts = total_bytes.map_or(u64::MAX, |total| total.div_ceil(part_bytes));
        let slots = addressable((window_bytes / part_bytes).min(parts).max(1))?;
        let slot_bytes = addressable(part_bytes)?;
        let memory = pool.lease(slot_bytes.saturating_mul(slots))?;
        let space = Space { memory, slot_bytes, slots, permits: Semaphore::new(slots) };
        let fresh = self.space.set(space).is_ok();
        assert!(fresh, "a transfer prepares its landing once");
        let mut state = self.lock();
        state.slots = vec![Slot::default(); slots];
        match state.abandoned {
            true => Err(reader_has_gone()),
            false => Ok(()),
        }
    }

    pub(crate) fn stop_when_abandoned(&self, stop: &Arc<Semaphore>) {
        let state = self.lock();
        let fresh = self.stop.set(stop.clone()).is_ok();
        assert!(fresh, "a writer lands one transfer");
        if state.abandoned {
            stop.close();
        }
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().abandoned
    }

    /// Waits until a slot is free for the next part; `false` when the reader has gone.
    pub(crate) async fn admit(&self) -> bool {
        match self.space().permits.acquire().await {
            Ok(permit) => {
                permit.forget();
                true
            }
            Err(_closed) => false,
        }
    }

    /// How long a part may be.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.space().slot_bytes as u64
    }

    /// Gives back a permit for which no part was left.
    pub(crate) fn dismiss(&self) {
        self.space().permits.add_permits(1);
    }

    /// Where part `index` lands: the slot that its permit reserved.
    pub(crate) fn slot(&self, index: u64) -> *mut u8 {
        let space = self.space();
        // SAFETY: the slot's number is below the number of slots, all of which lie within the lease.
        unsafe { space.memory.as_ptr().add(slot_of(index, space.slots) * space.slot_bytes) }
    }

    /// Tells the reader that `filled` bytes of part `index` are there; an error when it has gone.
    pub(crate) fn publish(&self, index: u64, filled: usize) -> Result<(), Error> {
        match self.update(index, |slot| slot.filled = filled) {
            true => Ok(()),
            false => Err(reader_has_gone()),
        }
    }

    /// Tells the reader that part `index` ends where it is filled.
    pub(crate) fn complete(&self, index: u64) {
        self.update(index, |slot| slot.complete = true);
    }

    /// Nothing more will come.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.readable.notify_all();
    }

    /// Changes a slot and wakes the reader if that is what it waits for; whether there is one.
    fn update(&self, index: u64, change: impl FnOnce(&mut Slot)) -> bool {
        let mut state = self.lock();
        let slots = state.slots.len();
        let slot = &mut state.slots[slot_of(index, slots)];
        change(slot);
        let slot = *slot;
        let wanted = state.reader_waits && state.head == index;
        if wanted && (slot.complete || slot.filled - state.taken >= WAKE_BYTES) {
            self.readable.notify_one();
        }
        !state.abandoned
    }

    /// Goes on to the next part when the one at the head has been read to its end; its permit comes back.
    fn advance(&self, state: &mut State) {
        let at = state.head_slot();
        let Some(slot) = state.slots.get_mut(at) else { return };
        if slot.complete && slot.filled == state.taken {
            *slot = Slot::default();
            state.head += 1;
            state.taken = 0;
            self.space().permits.add_permits(1);
        }
    }

    fn look(&self, state: &mut State) -> Look {
        self.advance(state);
        let slot = state.slots.get(state.head_slot()).copied().unwrap_or_default();
        match slot.filled > state.taken {
            true => Look::Bytes(state.head, state.taken, (slot.filled - state.taken).min(CHUNK_BYTES_MAX)),
            false if state.ended => Look::End,
            false => Look::Nothing,
        }
    }

    fn filled(&self, part: u64, from: usize, bytes: usize) -> &[u8] {
        let start = self.slot(part);
        // SAFETY: `publish` was called, under the lock, after these bytes were written; nobody writes to them again
        // before the permit of their part comes back, which needs the `&mut` reader that borrows this slice.
        unsafe { std::slice::from_raw_parts(start.add(from), bytes) }
    }

    fn space(&self) -> &Space {
        self.space.get().expect("the ring is prepared before parts are asked for")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills parts of these sizes, none longer than `longest`, through a window of `slots`, and reads them back.
    fn check(slots: u64, longest: usize, sizes: &[usize]) {
        let (writer, mut reader) = stream();
        let total: usize = sizes.iter().sum();
        let pool = Arc::new(Pool::default());
        writer.0.prepare(&pool, slots * longest as u64, longest as u64, Some(total as u64)).expect("memory");
        assert_eq!(writer.0.slot_bytes(), longest as u64);
        let parts = sizes.to_vec();
        let filler = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            for (index, bytes) in (0..).zip(parts) {
                assert!(runtime.block_on(writer.0.admit()));
                for filled in 1..=bytes {
                    // SAFETY: the slot is ours until it is complete, and `filled` stays within it.
                    unsafe { *writer.0.slot(index).add(filled - 1) = index as u8 };
                    writer.0.publish(index, filled).expect("a reader");
                }
                writer.0.complete(index);
            }
        });
        let mut seen = Vec::new();
        while let Some(bytes) = reader.next() {
            seen.extend_from_slice(bytes);
        }
        filler.join().expect("the filler ends");
        let expected: Vec<u8> =
            (0..).zip(sizes).flat_map(|(index, &bytes)| std::iter::repeat_n(index, bytes)).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn bytes_come_in_order_through_any_window() {
        check(1, 10, &[10, 10, 10, 10, 10, 10, 3]);
        check(3, 10, &[10; 7]);
        check(16, 5, &[5, 1]);
    }

    #[test]
    fn parts_may_be_shorter_than_their_slots() {
        check(3, 8, &[8, 2, 4, 8, 1, 1, 8, 3, 5]);
        check(1, 8, &[1, 8, 2]);
    }

    #[test]
    fn a_reader_that_leaves_closes_the_window() {
        let (writer, reader) = stream();
        writer.0.prepare(&Arc::new(Pool::default()), 8, 8, None).expect("memory");
        drop(reader);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert!(!runtime.block_on(writer.0.admit()));
    }
}
