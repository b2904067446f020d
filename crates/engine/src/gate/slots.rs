//! Slots: the right to have a part on its way toward an origin. The gate of each has a desk where they are handed out, as many
//! as may be in flight; `queue` says whose is the next.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::memory::waits::Waits;
use crate::policy::queue::{Asker, Priority, Queue, Ticket};

/// Where the slots of one origin are handed out.
pub(crate) struct Desk(Mutex<State>);

struct State {
    queue: Queue,
    waits: Waits,
}

impl Desk {
    pub(crate) fn new(limit: u32) -> Desk {
        Desk(Mutex::new(State { queue: Queue::new(limit), waits: Waits::default() }))
    }

    /// So many slots from now on.
    pub(crate) fn set_limit(&self, limit: u32) {
        let mut state = self.lock();
        let granted = state.queue.set_limit(limit);
        state.waits.on_granted(granted);
    }

    /// How many slots are taken.
    pub(crate) fn running(&self) -> u32 {
        self.lock().queue.running()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn finish(&mut self) {
        let granted = self.queue.finish();
        self.waits.on_granted(granted);
    }
}

/// What one transfer asks by.
pub(crate) struct Turns {
    desk: Arc<Desk>,
    asker: Asker,
    priority: Mutex<Priority>,
}

impl Turns {
    pub(crate) fn new(desk: &Arc<Desk>, asker: Asker, priority: Priority) -> Turns {
        Turns { desk: desk.clone(), asker, priority: Mutex::new(priority) }
    }

    pub(crate) fn priority(&self) -> Priority {
        *self.priority.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for one part, once it is its turn. A wait that is dropped is over.
    pub(crate) async fn slot(&self) -> Slot {
        Asking { turns: self, ticket: None }.await;
        Slot(self.desk.clone())
    }

    /// A slot past all who wait, as long as no more than `most` are taken.
    pub(crate) fn push_in(&self, most: u32) -> Option<Slot> {
        self.desk.lock().queue.push_in(most).then(|| Slot(self.desk.clone()))
    }

    /// From now on it is this urgent, also in what it waits for already.
    pub(crate) fn set_priority(&self, priority: Priority) {
        let mut now = self.priority.lock().unwrap_or_else(PoisonError::into_inner);
        *now = priority;
        self.desk.lock().queue.set_priority(self.asker, priority);
    }
}

/// The right to have a part on its way, for as long as it lives.
pub(crate) struct Slot(Arc<Desk>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.lock().finish();
    }
}

/// A wish on its way.
struct Asking<'a> {
    turns: &'a Turns,
    ticket: Option<Ticket>,
}

impl Future for Asking<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Turns { desk, asker, priority } = this.turns;
        // Held until it has asked, so that a change of priority reaches the wish or comes before it.
        let priority = priority.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = desk.lock();
        let State { queue, waits } = &mut *state;
        waits.poll_turn(&mut this.ticket, cx, || queue.ask(*asker, *priority))
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut state = self.turns.desk.lock();
        match state.waits.leave(ticket) {
            true => state.finish(),
            false => state.queue.withdraw(ticket),
        }
    }
}

/// What is there without waiting.
pub(crate) async fn at_once<T>(wanted: impl Future<Output = T>) -> Option<T> {
    let mut wanted = std::pin::pin!(wanted);
    poll_fn(|cx| match wanted.as_mut().poll(cx) {
        Poll::Ready(there) => Poll::Ready(Some(there)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
