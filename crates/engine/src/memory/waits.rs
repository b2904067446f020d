//! Those who wait for their turn: the wakers behind the tickets of a pure queue.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};

/// Who has asked and has not had the answer, by ticket. Lives under the lock of the queue that it belongs to.
#[derive(Default)]
pub(crate) struct Waiters(HashMap<u64, Turn>);

enum Turn {
    Waits(Option<Waker>),
    Granted,
}

impl Waiters {
    /// Asks once, by the first poll, for the ticket that is then kept; ready, and the ticket gone, once it is
    /// granted. `ask` gives the ticket and those that are granted by that.
    pub(crate) fn poll_turn(
        &mut self,
        kept: &mut Option<u64>,
        cx: &mut Context<'_>,
        ask: impl FnOnce() -> (u64, Vec<u64>),
    ) -> Poll<()> {
        let ticket = *kept.get_or_insert_with(|| {
            let (ticket, granted) = ask();
            self.0.insert(ticket, Turn::Waits(None));
            self.on_granted(granted);
            ticket
        });
        let polled = self.poll(ticket, cx);
        if polled.is_ready() {
            *kept = None;
        }
        polled
    }

    /// Wakes those whose turn it is.
    pub(crate) fn on_granted(&mut self, tickets: impl IntoIterator<Item = u64>) {
        for ticket in tickets {
            if let Some(Turn::Waits(Some(waker))) = self.0.insert(ticket, Turn::Granted) {
                waker.wake();
            }
        }
    }

    /// Ready, and gone from here, once it is granted.
    fn poll(&mut self, ticket: u64, cx: &mut Context<'_>) -> Poll<()> {
        match self.0.get_mut(&ticket) {
            Some(Turn::Waits(waker)) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            granted => {
                assert!(granted.is_some(), "polled after it was ready");
                self.0.remove(&ticket);
                Poll::Ready(())
            }
        }
    }

    /// Somebody waits no more; whether it had been granted to him already.
    #[must_use]
    pub(crate) fn leave(&mut self, ticket: u64) -> bool {
        matches!(self.0.remove(&ticket), Some(Turn::Granted))
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
