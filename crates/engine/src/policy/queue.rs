//! Who starts a part next where more would start one than may: what somebody waits for before what is fetched ahead. Pure: no
//! lock, no clock, no socket.
//!
//! ```text
//!   awaited:   transfer 7 ─ wish, wish      transfer 9 ─ wish        the next slot is for 7, the one after it for 9,
//!   ahead:     transfer 2 ─ wish, wish, …   transfer 3 ─ wish, …     then 7 again, then 2 and 3 in turn
//! ```
//! Within a class the transfers go round in the order in which they began to wait, one part each, so that a huge one does
//! not hold up a small one; the parts of a transfer go in the order of asking. Slots that nobody waits for are given to
//! whoever asks. A part that runs is not stopped: what is awaited starts with the next slot, after one part's time at most.

use std::collections::VecDeque;

/// Names a wish for a slot, until it is granted or withdrawn.
pub(crate) type Ticket = u64;

/// Names a transfer, or a get of many objects, all of which are one here.
pub(crate) type Asker = u64;

/// How urgent a transfer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Somebody waits for its bytes.
    #[default]
    Awaited,
    /// It is fetched before anybody has asked for it.
    Ahead,
}

/// So many parts that are awaited may start one after the other while one that is ahead waits; then it has its turn. A
/// seventeenth of the slots is enough not to stand still, and too little to be felt.
const AWAITED_IN_A_ROW: u32 = 16;

/// The slots of one place (a client, or an origin), and those who wait for one.
#[derive(Debug)]
pub(crate) struct Queue {
    limit: u32,
    running: u32,
    awaited: Round,
    ahead: Round,
    /// Awaited parts that started since one that is ahead did, while one waited.
    in_a_row: u32,
    next: u64,
}

/// One class: who waits, in turn.
#[derive(Debug, Default)]
struct Round(VecDeque<(Asker, VecDeque<Ticket>)>);

impl Queue {
    pub(crate) fn new(limit: u32) -> Queue {
        let (awaited, ahead) = (Round::default(), Round::default());
        Queue { limit, running: 0, awaited, ahead, in_a_row: 0, next: 0 }
    }

    /// So many may run from now on. Those that run beyond it are not stopped; what is granted by it.
    #[must_use]
    pub(crate) fn set_limit(&mut self, limit: u32) -> Vec<Ticket> {
        self.limit = limit;
        self.grant()
    }

    /// Asks for a slot; which tickets are granted by that, this one perhaps among them.
    #[must_use]
    pub(crate) fn ask(&mut self, asker: Asker, priority: Priority) -> (Ticket, Vec<Ticket>) {
        self.next += 1;
        let ticket = self.next;
        self.round(priority).push(asker, ticket);
        (ticket, self.grant())
    }

    /// Takes a slot past all who wait, as long as no more than `most` are taken: for what is too small to be a part.
    pub(crate) fn push_in(&mut self, most: u32) -> bool {
        let is_free = self.running < most;
        self.running += u32::from(is_free);
        is_free
    }

    /// A slot is free again; what is granted by that.
    #[must_use]
    pub(crate) fn finish(&mut self) -> Vec<Ticket> {
        self.running -= 1;
        self.grant()
    }

    /// Nobody wants this any more, which has not been granted.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) {
        if !self.awaited.remove(ticket) {
            self.ahead.remove(ticket);
        }
    }

    /// All that a transfer waits for changes its class, behind those that are there already.
    pub(crate) fn set_priority(&mut self, asker: Asker, priority: Priority) {
        let from = match priority {
            Priority::Awaited => &mut self.ahead,
            Priority::Ahead => &mut self.awaited,
        };
        let tickets = from.remove_asker(asker);
        let to = self.round(priority);
        tickets.into_iter().for_each(|ticket| to.push(asker, ticket));
    }

    /// How many slots are taken.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        let of = |round: &Round| round.0.iter().map(|(_, tickets)| tickets.len()).sum::<usize>();
        of(&self.awaited) + of(&self.ahead)
    }

    fn round(&mut self, priority: Priority) -> &mut Round {
        match priority {
            Priority::Awaited => &mut self.awaited,
            Priority::Ahead => &mut self.ahead,
        }
    }

    fn grant(&mut self) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        while self.running < self.limit {
            let Some(ticket) = self.take() else { break };
            self.running += 1;
            tickets.push(ticket);
        }
        tickets
    }

    fn take(&mut self) -> Option<Ticket> {
        let ahead_waits = !self.ahead.0.is_empty();
        if ahead_waits && (self.awaited.0.is_empty() || self.in_a_row >= AWAITED_IN_A_ROW) {
            self.in_a_row = 0;
            return self.ahead.take();
        }
        let ticket = self.awaited.take()?;
        self.in_a_row = if ahead_waits { self.in_a_row + 1 } else { 0 };
        Some(ticket)
    }
}

impl Round {
    fn push(&mut self, asker: Asker, ticket: Ticket) {
        match self.0.iter_mut().find(|(known, _)| *known == asker) {
            Some((_, tickets)) => tickets.push_back(ticket),
            None => self.0.push_back((asker, VecDeque::from([ticket]))),
        }
    }

    /// The first wish of whose turn it is, who goes behind the others with what else he waits for.
    fn take(&mut self) -> Option<Ticket> {
        let (asker, mut tickets) = self.0.pop_front()?;
        let ticket = tickets.pop_front();
        if !tickets.is_empty() {
            self.0.push_back((asker, tickets));
        }
        ticket
    }

    /// Whether it was there.
    fn remove(&mut self, ticket: Ticket) -> bool {
        let found = self.0.iter().enumerate().find_map(|(at, (_, tickets))| {
            Some((at, tickets.iter().position(|&waiting| waiting == ticket)?))
        });
        let Some((at, place)) = found else { return false };
        self.0[at].1.remove(place);
        if self.0[at].1.is_empty() {
            self.0.remove(at);
        }
        true
    }

    fn remove_asker(&mut self, asker: Asker) -> VecDeque<Ticket> {
        let at = self.0.iter().position(|(known, _)| *known == asker);
        at.and_then(|at| self.0.remove(at)).map(|(_, tickets)| tickets).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Priority::{Ahead, Awaited};
    use super::*;

    /// A queue with one slot, which is taken, and these wishes: the askers in the order of their turns.
    fn turns(wishes: &[(Asker, Priority)], then: impl FnOnce(&mut Queue, &[Ticket])) -> Vec<Asker> {
        let mut queue = Queue::new(1);
        assert_eq!(queue.ask(0, Ahead).1.len(), 1, "a free slot is for whoever asks");
        let asked: Vec<(Ticket, Asker)> =
            wishes.iter().map(|&(asker, priority)| (queue.ask(asker, priority).0, asker)).collect();
        then(&mut queue, &asked.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>());
        let mut turns = Vec::new();
        while queue.waiting() > 0 {
            let granted = queue.finish();
            assert_eq!(granted.len(), 1, "one slot, one part");
            turns.push(asked.iter().find(|(ticket, _)| *ticket == granted[0]).expect("it asked").1);
        }
        turns
    }

    #[test]
    fn what_is_awaited_goes_first_and_transfers_go_round() {
        let check = |wishes: &[(Asker, Priority)], expected: &[Asker]| {
            assert_eq!(turns(wishes, |_, _| {}), expected, "{wishes:?}");
        };
        check(&[(1, Ahead), (2, Awaited)], &[2, 1]);
        check(&[(1, Awaited), (1, Awaited), (1, Awaited), (2, Awaited)], &[1, 2, 1, 1]);
        check(&[(1, Ahead), (1, Ahead), (2, Ahead), (3, Ahead), (2, Ahead)], &[1, 2, 3, 1, 2]);
        check(&[(1, Ahead), (2, Awaited), (1, Ahead), (3, Awaited), (2, Awaited)], &[2, 3, 2, 1, 1]);
    }

    #[test]
    fn what_is_promoted_goes_before_what_is_ahead_and_behind_what_was_awaited() {
        let wishes = [(1, Ahead), (2, Ahead), (2, Ahead), (3, Awaited)];
        assert_eq!(turns(&wishes, |queue, _| queue.set_priority(2, Awaited)), [3, 2, 2, 1]);
        assert_eq!(turns(&wishes, |queue, _| queue.set_priority(3, Ahead)), [1, 2, 3, 2]);
        assert_eq!(turns(&wishes, |queue, _| queue.set_priority(9, Awaited)), [3, 1, 2, 2]);
    }

    #[test]
    fn what_is_withdrawn_is_in_nobodys_way() {
        let wishes = [(1, Awaited), (1, Awaited), (2, Ahead), (3, Ahead)];
        let without = |gone: &[usize]| {
            turns(&wishes, |queue, tickets| {
                for &at in gone {
                    queue.withdraw(tickets[at]);
                    queue.withdraw(tickets[at]);
                }
            })
        };
        assert_eq!(without(&[0]), [1, 2, 3]);
        assert_eq!(without(&[0, 1]), [2, 3]);
        assert_eq!(without(&[2]), [1, 1, 3]);
        assert_eq!(without(&[0, 1, 2, 3]), [] as [Asker; 0]);
    }

    #[test]
    fn what_is_ahead_does_not_stand_still() {
        let mut wishes = vec![(1, Ahead); 3];
        wishes.extend([(2, Awaited); 60]);
        let turns = turns(&wishes, |_, _| {});
        let ahead: Vec<usize> =
            turns.iter().enumerate().filter(|(_, asker)| **asker == 1).map(|(at, _)| at).collect();
        assert_eq!(ahead, [16, 33, 50]);
    }

    #[test]
    fn a_limit_that_changes_grants_and_stops_nothing() {
        let mut queue = Queue::new(2);
        let granted: usize = (0..5).map(|_| queue.ask(1, Ahead).1.len()).sum();
        assert_eq!((granted, queue.waiting()), (2, 3));
        assert_eq!(queue.set_limit(4).len(), 2);
        assert_eq!(queue.set_limit(1).len(), 0);
        assert_eq!([(); 3].map(|()| queue.finish().len()), [0; 3], "four ran, and one may");
        assert_eq!(queue.finish().len(), 1);
    }
}
