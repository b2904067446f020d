//! Slots: the right to have a part on its way toward an origin. Each origin has a desk where they are handed out, as many as
//! may be in flight; `queue` says whose is the next.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use flatout_wire::endpoint::Endpoint;
use flatout_wire::location::Location;

use crate::queue::{Asker, Priority, Queue, Ticket};
use crate::waits::Waits;

/// The desks of a client, one for each origin: what is asked of one waits for none of another's parts.
pub(crate) struct Desks {
    limit: u32,
    desks: Mutex<HashMap<Origin, Arc<Desk>>>,
    next_asker: AtomicU64,
}

/// What is one origin here. All buckets of a dialect have one endpoint.
#[derive(PartialEq, Eq, Hash)]
enum Origin {
    Dialect(&'static str),
    Server(Endpoint),
}

impl Origin {
    fn of(location: &Location) -> Origin {
        match location {
            Location::Http { url } => Origin::Server(url.endpoint.clone()),
            bucket => Origin::Dialect(bucket.scheme()),
        }
    }
}

impl Desks {
    /// With so many slots at each.
    pub(crate) fn new(limit: u32) -> Desks {
        Desks { limit, desks: Mutex::default(), next_asker: AtomicU64::new(0) }
    }

    /// A number for a transfer, or for many that are to count as one.
    pub(crate) fn new_asker(&self) -> Asker {
        self.next_asker.fetch_add(1, Ordering::Relaxed)
    }

    /// The turns of a transfer of that number which reads `location`.
    pub(crate) fn turns(&self, location: &Location, asker: Asker, priority: Priority) -> Turns {
        let mut desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
        let desk = desks.entry(Origin::of(location)).or_insert_with(|| Arc::new(Desk::new(self.limit)));
        Turns { desk: desk.clone(), asker, priority: Mutex::new(priority) }
    }
}

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
    /// A slot for one part, once it is its turn. A wait that is dropped is over.
    pub(crate) async fn slot(&self) -> Slot {
        Asking { turns: self, ticket: None }.await;
        Slot(self.desk.clone())
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
