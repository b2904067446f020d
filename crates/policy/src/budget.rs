//! Who may hold how much memory. Pure: no thread, no clock, and not a byte of its own.
//!
//! ```text
//!   limit: │ charged, or set aside for it │ granted ────────────► │ the last sixteenth │
//! ```
//! What is small and bounded by something else (connections, names in a queue, a listing's page) is
//! **charged** at once: if it had to wait, it might wait for what it is to free. What is large (the parts of
//! a stream) is **asked for**, and granted in the order of asking, with one exception. A holder that has
//! nothing goes before those that have something, and may have of the last sixteenth, which they may not: it
//! cannot go on without, while they can. So no waiter ever depends on another waiter: a stream that nobody
//! reads keeps its memory, and the sixteenth lets the others make progress.

use std::collections::{HashMap, VecDeque};

/// Names what was asked for, until it is granted or withdrawn.
pub type Ticket = u64;

/// Somebody who asks again and again: a stream.
pub type Holder = u64;

/// What of the limit only a holder that has nothing may have.
pub const LAST: u64 = 16;

/// The account of one client.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    set_aside: u64,
    charged: u64,
    granted: u64,
    /// What each has; those that have nothing are left out.
    holders: HashMap<Holder, u64>,
    /// In the order of asking.
    wishes: VecDeque<Wish>,
    /// The next ticket or holder.
    next: u64,
}

#[derive(Debug)]
struct Wish {
    ticket: Ticket,
    holder: Holder,
    bytes: u64,
}

impl Budget {
    /// Of `limit` bytes, of which so many are kept for what is charged.
    pub fn new(limit: u64, set_aside: u64) -> Budget {
        Budget {
            limit,
            set_aside,
            charged: 0,
            granted: 0,
            holders: HashMap::new(),
            wishes: VecDeque::new(),
            next: 0,
        }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that are held, charged and granted.
    pub fn held(&self) -> u64 {
        self.charged + self.granted
    }

    /// Bytes that are granted now.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Whether more is held than the limit, since so much was charged: what need not be kept should go.
    pub fn is_over(&self) -> bool {
        self.held() > self.limit
    }

    /// Whether something was asked for that has not been granted.
    pub fn is_waited_for(&self) -> bool {
        !self.wishes.is_empty()
    }

    pub fn new_holder(&mut self) -> Holder {
        self.next += 1;
        self.next
    }

    /// Counts bytes that are taken now.
    pub fn charge(&mut self, bytes: u64) {
        self.charged += bytes;
    }

    /// They are free again; what is granted by that.
    #[must_use]
    pub fn discharge(&mut self, bytes: u64) -> Vec<Ticket> {
        self.charged -= bytes;
        self.grant()
    }

    /// Asks for bytes. Tickets that are granted by that may be others' than the one it gives, and that one
    /// may be among them.
    #[must_use]
    pub fn ask(&mut self, holder: Holder, bytes: u64) -> (Ticket, Vec<Ticket>) {
        self.next += 1;
        let ticket = self.next;
        self.wishes.push_back(Wish { ticket, holder, bytes });
        (ticket, self.grant())
    }

    /// Takes bytes for a holder that will not wait for them: where nobody waits, and so many are left beside
    /// them.
    pub fn take_at_once(&mut self, holder: Holder, bytes: u64, left: u64) -> bool {
        let fits = self.wishes.is_empty() && bytes.saturating_add(left) <= self.free();
        if fits {
            *self.holders.entry(holder).or_default() += bytes;
            self.granted += bytes;
        }
        fits
    }

    /// What may still be granted.
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.charged.max(self.set_aside) + self.granted)
    }

    /// Nobody wants this any more, which has not been granted.
    #[must_use]
    pub fn withdraw(&mut self, ticket: Ticket) -> Vec<Ticket> {
        self.wishes.retain(|wish| wish.ticket != ticket);
        self.grant()
    }

    /// Granted bytes come back.
    #[must_use]
    pub fn give_back(&mut self, holder: Holder, bytes: u64) -> Vec<Ticket> {
        self.granted -= bytes;
        let has = self.holders.get_mut(&holder).expect("who gives back has something");
        *has -= bytes;
        if *has == 0 {
            self.holders.remove(&holder);
        }
        self.grant()
    }

    fn grant(&mut self) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        while let Some(at) = self.next_wish() {
            let Wish { ticket, holder, bytes } = self.wishes.remove(at).expect("it was found there");
            *self.holders.entry(holder).or_default() += bytes;
            self.granted += bytes;
            tickets.push(ticket);
        }
        tickets
    }

    /// The wish whose turn it is, if there is room for it.
    fn next_wish(&self) -> Option<usize> {
        let free = self.free();
        let has_nothing = |wish: &Wish| !self.holders.contains_key(&wish.holder);
        if let Some(at) = self.wishes.iter().position(has_nothing) {
            // Where nobody has anything, nothing could come back: whatever is charged, one goes on.
            return (self.wishes[at].bytes <= free || self.granted == 0).then_some(at);
        }
        let first = self.wishes.front()?;
        (first.bytes.saturating_add(self.limit / LAST) <= free).then_some(0)
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
