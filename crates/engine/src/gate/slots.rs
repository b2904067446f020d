//! Slots: the right to have a part on its way toward an origin, and the one bound on what is in flight there.
//! `queue` says whose is the next: somebody's who waits for one, or a transfer's with parts left, for which a
//! worker is started then.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use crate::memory::waits::Waiters;
use flatout_policy::queue::{Grant, Priority, Queue, Ticket, TransferId};

/// A transfer with parts that any worker may carry.
pub(crate) trait WorkSource: Send + Sync {
    /// How many more workers could take a part now, and how urgent that is.
    fn wants(&self) -> (u64, Priority);

    /// Whether its bytes go through a window.
    fn is_stream(&self) -> bool;

    /// Starts one more worker, which begins with that slot.
    fn start(self: Arc<Self>, seat: Seat, slot: Slot);

    /// So many parts may be in flight. One that has workers of its own, each of which asks for its slots,
    /// starts those that are missing; whether it has as many.
    fn on_limit(self: Arc<Self>, _limit: u32) -> bool {
        false
    }
}

/// The slots of one origin, those who wait for one, and the workers that carry parts.
pub(crate) struct SlotQueue(Mutex<State>);

struct State {
    queue: Queue,
    waits: Waiters,
    sources: Vec<(TransferId, Weak<dyn WorkSource>)>,
    /// Workers by shard, with a slot or without.
    workers: Vec<u32>,
    /// Of those, the ones that no source was registered with.
    others: u32,
    /// Transfers that have been granted a slot for a worker which is to be started, and the shard of the
    /// worker that had it before, whose connection is warm.
    to_start: VecDeque<(TransferId, Option<usize>)>,
    is_starting: bool,
}

/// A worker's place on a shard, given up when it is dropped.
pub(crate) struct Seat {
    slots: Arc<SlotQueue>,
    shard: usize,
    is_other: bool,
}

impl Seat {
    pub(crate) fn shard(&self) -> usize {
        self.shard
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        state.workers[self.shard] -= 1;
        state.others -= u32::from(self.is_other);
    }
}

impl SlotQueue {
    pub(crate) fn new(limit: u32, shards: usize) -> SlotQueue {
        SlotQueue(Mutex::new(State {
            queue: Queue::new(limit),
            waits: Waiters::default(),
            sources: Vec::new(),
            workers: vec![0; shards.max(1)],
            others: 0,
            to_start: VecDeque::new(),
            is_starting: false,
        }))
    }

    /// At most `limit` parts may be on their way from now on. Nothing is granted yet: the caller may have
    /// locks.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.lock().queue.set_limit(limit);
    }

    /// How many slots are taken.
    pub(crate) fn running(&self) -> u32 {
        self.lock().queue.running()
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> u32 {
        self.lock().workers.iter().sum()
    }

    /// A new source with its first worker, on `shard`, else where there is least to do.
    pub(crate) fn join(
        self: &Arc<SlotQueue>,
        transfer: TransferId,
        source: Weak<dyn WorkSource>,
        shard: Option<usize>,
    ) -> Seat {
        let mut state = self.lock();
        state.sources.push((transfer, source));
        self.seat_in(&mut state, shard, false)
    }

    /// Whether there are workers of no source.
    pub(crate) fn has_others(&self) -> bool {
        self.lock().others > 0
    }

    /// A worker of no source, where there is least to do.
    pub(crate) fn seat(self: &Arc<SlotQueue>) -> Seat {
        self.seat_in(&mut self.lock(), None, true)
    }

    fn seat_in(self: &Arc<SlotQueue>, state: &mut State, shard: Option<usize>, is_other: bool) -> Seat {
        let idlest = || (0..state.workers.len()).min_by_key(|shard| state.workers[*shard]).unwrap_or(0);
        let shard = shard.unwrap_or_else(idlest);
        state.workers[shard] += 1;
        state.others += u32::from(is_other);
        Seat { slots: self.clone(), shard, is_other }
    }

    /// A source that has ended: nothing is started for it any more.
    pub(crate) fn leave(&self, transfer: TransferId) {
        let mut state = self.lock();
        state.sources.retain(|(known, _)| *known != transfer);
        state.queue.forget(transfer);
    }

    /// Those that are there.
    pub(crate) fn sources(&self) -> Vec<(TransferId, Arc<dyn WorkSource>)> {
        let alive =
            |(transfer, source): &(TransferId, Weak<dyn WorkSource>)| Some((*transfer, source.upgrade()?));
        self.lock().sources.iter().filter_map(alive).collect()
    }

    /// Gives away what slots there are: to those who wait, and to workers for the parts that each of `wanted`
    /// has left.
    pub(crate) fn offer(
        self: &Arc<SlotQueue>,
        wanted: impl IntoIterator<Item = (TransferId, (u64, Priority))>,
    ) {
        let mut state = self.lock();
        for (transfer, (parts, priority)) in wanted {
            state.queue.want(transfer, priority, parts);
        }
        let granted = state.queue.grant();
        self.pass_on(state, granted, None);
    }

    /// Wakes whoever was granted a slot, and starts the workers that slots were granted for.
    fn pass_on<'a>(
        self: &'a Arc<SlotQueue>,
        mut state: MutexGuard<'a, State>,
        granted: Vec<Grant>,
        shard: Option<usize>,
    ) {
        state.on_granted(granted, shard);
        self.start(state);
    }

    /// Starts the workers that slots were granted for, without the lock. One that cannot be started gives its
    /// slot back meanwhile, which another may get: this loop starts that, too, and not the one that gave it
    /// back.
    fn start<'a>(self: &'a Arc<SlotQueue>, mut state: MutexGuard<'a, State>) {
        if std::mem::replace(&mut state.is_starting, true) {
            return;
        }
        while let Some((transfer, shard)) = state.to_start.pop_front() {
            let known = state.sources.iter().find(|(known, _)| *known == transfer);
            let source = known.and_then(|(_, source)| source.upgrade());
            let slot = Slot::queued(self);
            let seat = self.seat_in(&mut state, shard, false);
            drop(state);
            // One that is gone lets go of its slot.
            if let Some(source) = source {
                source.start(seat, slot);
            } else {
                drop((seat, slot));
            }
            state = self.lock();
        }
        state.is_starting = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Wakes whoever was waiting, and notes for whom a worker is to be started. Under the lock by which it
    /// was granted: whoever stops waiting has a slot, or has none.
    fn on_granted(&mut self, granted: Vec<Grant>, shard: Option<usize>) {
        self.waits.on_granted(tickets(granted, &mut self.to_start, shard));
    }
}

/// The tickets among what was granted; the workers are noted in `to_start`, the first of them on `shard`.
fn tickets(
    granted: Vec<Grant>,
    to_start: &mut VecDeque<(TransferId, Option<usize>)>,
    mut shard: Option<usize>,
) -> Vec<Ticket> {
    let ticket = |grant| match grant {
        Grant::Ticket(ticket) => Some(ticket),
        Grant::Work(transfer) => {
            to_start.push_back((transfer, shard.take()));
            None
        }
    };
    granted.into_iter().filter_map(ticket).collect()
}

/// What one transfer has to do with slots. Many objects that are got together count as one.
pub(crate) struct TransferSlots {
    slots: Arc<SlotQueue>,
    transfer: TransferId,
    priority: Mutex<Priority>,
}

impl TransferSlots {
    pub(crate) fn new(slots: &Arc<SlotQueue>, transfer: TransferId, priority: Priority) -> TransferSlots {
        TransferSlots { slots: slots.clone(), transfer, priority: Mutex::new(priority) }
    }

    pub(crate) fn transfer(&self) -> TransferId {
        self.transfer
    }

    pub(crate) fn priority(&self) -> Priority {
        *self.priority.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot. Whoever is dropped while it waits lets go of its place in the queue.
    pub(crate) async fn acquire(&self) -> Slot {
        Acquire { of: self, ticket: None }.await;
        Slot::queued(&self.slots)
    }

    /// A slot past all who wait, as long as no more than `most` are taken: for what is too small to be a
    /// part.
    pub(crate) fn acquire_bypassing_queue(&self, most: u32) -> Option<Slot> {
        self.slots.lock().queue.bypass(most).then(|| Slot { queue: Some(self.slots.clone()), bypasses: true })
    }

    /// A worker on `shard` has carried a part by that slot, and `parts` are left: the slot, unless it is
    /// another's turn.
    pub(crate) fn keep(&self, mut slot: Slot, parts: u64, shard: usize) -> Option<Slot> {
        let priority = self.priority();
        let mut state = self.slots.lock();
        if std::mem::take(&mut slot.bypasses) {
            state.queue.count_bypassing();
        }
        let (stays, granted) = state.queue.go_on(self.transfer, priority, parts);
        self.slots.pass_on(state, granted, Some(shard));
        match stays {
            true => Some(slot),
            false => {
                // It has been passed on already.
                slot.queue = None;
                None
            }
        }
    }

    /// Begins or ends to be awaited, with all that it waits for.
    pub(crate) fn set_priority(&self, priority: Priority) {
        let mut now = self.priority.lock().unwrap_or_else(PoisonError::into_inner);
        *now = priority;
        self.slots.lock().queue.set_priority(self.transfer, priority);
    }
}

/// A slot, given back when it is dropped.
pub(crate) struct Slot {
    queue: Option<Arc<SlotQueue>>,
    /// It was taken past all who wait.
    bypasses: bool,
}

impl Slot {
    fn queued(queue: &Arc<SlotQueue>) -> Slot {
        Slot { queue: Some(queue.clone()), bypasses: false }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(slots) = self.queue.take() else { return };
        let mut state = slots.lock();
        if self.bypasses {
            state.queue.count_bypassing();
        }
        let granted = state.queue.finish();
        slots.pass_on(state, granted, None);
    }
}

/// Waits for a slot.
struct Acquire<'a> {
    of: &'a TransferSlots,
    ticket: Option<Ticket>,
}

impl Future for Acquire<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let TransferSlots { slots, transfer, priority } = this.of;
        // Held until it has asked, so that a change of priority reaches the request or comes before it.
        let priority = priority.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = slots.lock();
        let State { queue, waits, to_start, .. } = &mut *state;
        let polled = waits.poll_turn(&mut this.ticket, cx, || {
            let (ticket, granted) = queue.ask(*transfer, *priority);
            (ticket, tickets(granted, to_start, None))
        });
        drop(priority);
        slots.start(state);
        polled
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let slots = &self.of.slots;
        let mut state = slots.lock();
        let granted = match state.waits.leave(ticket) {
            true => state.queue.finish(),
            false => {
                state.queue.withdraw(ticket);
                Vec::new()
            }
        };
        slots.pass_on(state, granted, None);
    }
}

/// What comes of `wanted` if it need not wait.
pub(crate) async fn at_once<T>(wanted: impl Future<Output = T>) -> Option<T> {
    let mut wanted = std::pin::pin!(wanted);
    poll_fn(|cx| match wanted.as_mut().poll(cx) {
        Poll::Ready(there) => Poll::Ready(Some(there)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
