//! Who starts a part next where more would start one than may: what somebody waits for before what is fetched
//! ahead. Pure: no lock, no clock, no socket.
//!
//! ```text awaited:   transfer 7 ─ ticket, ticket  transfer 9 ─ 12 parts    the next slot is for 7, the one
//! after it for 9, ahead:     transfer 2 ─ 300 parts       transfer 3 ─ ticket, …   then 7 again, then 2 and
//! 3 in turn ``` A transfer waits by tickets (a first answer, an attempt again), or has parts that any worker
//! may carry. Within a class the transfers go round in the order in which they began to wait, one part each,
//! so that a huge one does not hold up a small one; the tickets of a transfer go before its parts, in the
//! order of asking. Slots that nobody waits for are given to whoever asks. A part that runs is not stopped:
//! what is awaited starts with the next slot, after one part's time at most.

use std::collections::VecDeque;

/// Names somebody who waits for a slot, until it is granted or withdrawn.
pub type Ticket = u64;

/// Names a transfer, or a get of many objects, all of which are one here.
pub type TransferId = u64;

/// How urgent a transfer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Somebody waits for its bytes.
    #[default]
    Awaited,
    /// It is fetched before anybody has asked for it.
    Ahead,
}

/// Whose a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The waiter with that ticket.
    Ticket(Ticket),
    /// A worker for a part of that transfer.
    Work(TransferId),
}

/// At most this many awaited parts start one after the other while one that is ahead waits; then it has its
/// turn. A seventeenth of the slots is enough not to stand still, and too little to be felt.
const AWAITED_IN_A_ROW: u32 = 16;

/// The slots of one origin, and those who wait for one.
#[derive(Debug)]
pub struct Queue {
    limit: u32,
    running: u32,
    /// Those among them that went past all who wait. They take no slot from parts.
    bypassing: u32,
    awaited: Round,
    ahead: Round,
    /// Awaited parts that started since one that is ahead did, while one waited.
    in_a_row: u32,
    next: u64,
}

/// One class: who waits, in turn.
#[derive(Debug, Default)]
struct Round(VecDeque<Waiting>);

/// What one transfer waits for.
#[derive(Debug, Default)]
struct Waiting {
    transfer: TransferId,
    tickets: VecDeque<Ticket>,
    /// Parts that any worker may carry.
    parts: u64,
}

impl Queue {
    pub fn new(limit: u32) -> Queue {
        let (awaited, ahead) = (Round::default(), Round::default());
        Queue { limit, running: 0, bypassing: 0, awaited, ahead, in_a_row: 0, next: 0 }
    }

    /// At most `limit` may run from now on. Those that run beyond it are not stopped; nothing is granted yet.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Asks for a slot; what is granted by that, this ticket perhaps among it.
    #[must_use]
    pub fn ask(&mut self, transfer: TransferId, priority: Priority) -> (Ticket, Vec<Grant>) {
        self.next += 1;
        let ticket = self.next;
        self.round(priority).of(transfer).tickets.push_back(ticket);
        (ticket, self.grant())
    }

    /// A transfer has so many parts that other workers might carry, whatever it had before. Nothing is
    /// granted yet.
    pub fn want(&mut self, transfer: TransferId, priority: Priority, parts: u64) {
        let round = self.round(priority);
        if parts > 0 || round.0.iter().any(|waiting| waiting.transfer == transfer) {
            round.of(transfer).parts = parts;
            round.tidy();
        }
    }

    /// Takes a slot past all who wait, as long as no more than `most` are taken: for what is too small to be
    /// a part.
    pub fn bypass(&mut self, most: u32) -> bool {
        let is_free = self.running < most;
        self.running += u32::from(is_free);
        self.bypassing += u32::from(is_free);
        is_free
    }

    /// A slot that was taken by `bypass` counts as any other from now on. To be called before it is given
    /// back or kept.
    pub fn count_bypassing(&mut self) {
        self.bypassing -= 1;
    }

    /// A slot is free again; what is granted by that.
    #[must_use]
    pub fn finish(&mut self) -> Vec<Grant> {
        self.running -= 1;
        self.grant()
    }

    /// A worker has carried a part of a transfer, which has so many left: whether its slot stays with it, and
    /// what else is granted.
    #[must_use]
    pub fn go_on(&mut self, transfer: TransferId, priority: Priority, parts: u64) -> (bool, Vec<Grant>) {
        self.running -= 1;
        self.want(transfer, priority, parts);
        let mut granted = self.grant();
        let own = granted.iter().position(|grant| *grant == Grant::Work(transfer));
        if let Some(at) = own {
            granted.remove(at);
        }
        (own.is_some(), granted)
    }

    /// Nobody wants this any more, which has not been granted.
    pub fn withdraw(&mut self, ticket: Ticket) {
        if !self.awaited.remove(ticket) {
            self.ahead.remove(ticket);
        }
    }

    /// No worker is to be started for it any more.
    pub fn forget(&mut self, transfer: TransferId) {
        for round in [&mut self.awaited, &mut self.ahead] {
            round.0.iter_mut().filter(|waiting| waiting.transfer == transfer).for_each(|gone| gone.parts = 0);
            round.tidy();
        }
    }

    /// All that a transfer waits for changes its class, behind those that are there already.
    pub fn set_priority(&mut self, transfer: TransferId, priority: Priority) {
        let from = match priority {
            Priority::Awaited => &mut self.ahead,
            Priority::Ahead => &mut self.awaited,
        };
        let Some(at) = from.0.iter().position(|waiting| waiting.transfer == transfer) else { return };
        let Some(moved) = from.0.remove(at) else { return };
        let to = self.round(priority).of(transfer);
        to.tickets.extend(moved.tickets);
        to.parts = to.parts.max(moved.parts);
    }

    /// How many slots are taken.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// How many wait by tickets.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        let of = |round: &Round| round.0.iter().map(|waiting| waiting.tickets.len()).sum::<usize>();
        of(&self.awaited) + of(&self.ahead)
    }

    /// Gives slots away as long as there are some, and somebody waits.
    #[must_use]
    pub fn grant(&mut self) -> Vec<Grant> {
        let mut granted = Vec::new();
        while self.running - self.bypassing < self.limit {
            let Some(grant) = self.take() else { break };
            self.running += 1;
            granted.push(grant);
        }
        granted
    }

    fn take(&mut self) -> Option<Grant> {
        let ahead_waits = !self.ahead.0.is_empty();
        if ahead_waits && (self.awaited.0.is_empty() || self.in_a_row >= AWAITED_IN_A_ROW) {
            self.in_a_row = 0;
            return self.ahead.take();
        }
        let grant = self.awaited.take()?;
        self.in_a_row = if ahead_waits { self.in_a_row + 1 } else { 0 };
        Some(grant)
    }

    fn round(&mut self, priority: Priority) -> &mut Round {
        match priority {
            Priority::Awaited => &mut self.awaited,
            Priority::Ahead => &mut self.ahead,
        }
    }
}

impl Round {
    /// What a transfer waits for; behind the others if it did not wait before.
    fn of(&mut self, transfer: TransferId) -> &mut Waiting {
        let known = self.0.iter().position(|waiting| waiting.transfer == transfer);
        let at = known.unwrap_or_else(|| {
            self.0.push_back(Waiting { transfer, ..Waiting::default() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// The first of what the transfer waits for whose turn it is, which goes behind the others with the rest.
    fn take(&mut self) -> Option<Grant> {
        let mut waiting = self.0.pop_front()?;
        let grant = match waiting.tickets.pop_front() {
            Some(ticket) => Grant::Ticket(ticket),
            None => {
                waiting.parts -= 1;
                Grant::Work(waiting.transfer)
            }
        };
        if !waiting.is_over() {
            self.0.push_back(waiting);
        }
        Some(grant)
    }

    /// Whether it was there.
    fn remove(&mut self, ticket: Ticket) -> bool {
        let found = self.0.iter_mut().find_map(|waiting| {
            let at = waiting.tickets.iter().position(|&known| known == ticket)?;
            waiting.tickets.remove(at)
        });
        self.tidy();
        found.is_some()
    }

    /// Whoever waits for nothing any more has no turn.
    fn tidy(&mut self) {
        self.0.retain(|waiting| !waiting.is_over());
    }
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.tickets.is_empty() && self.parts == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Grant::Work;
    use super::Priority::{Ahead, Awaited};
    use super::*;

    /// A queue with one slot, which is taken, and these tickets: the transfers in the order of their turns.
    fn turns(wishes: &[(TransferId, Priority)], then: impl FnOnce(&mut Queue, &[Ticket])) -> Vec<TransferId> {
        let mut queue = Queue::new(1);
        assert_eq!(queue.ask(0, Ahead).1.len(), 1, "a free slot is for whoever asks");
        let asked: Vec<(Ticket, TransferId)> =
            wishes.iter().map(|&(transfer, priority)| (queue.ask(transfer, priority).0, transfer)).collect();
        then(&mut queue, &asked.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>());
        let mut turns = Vec::new();
        while queue.waiting() > 0 {
            let granted = queue.finish();
            assert_eq!(granted.len(), 1, "one slot, one part");
            turns.push(
                asked.iter().find(|(ticket, _)| Grant::Ticket(*ticket) == granted[0]).expect("it asked").1,
            );
        }
        turns
    }

    #[test]
    fn what_is_awaited_goes_first_and_transfers_go_round() {
        let check = |wishes: &[(TransferId, Priority)], expected: &[TransferId]| {
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
        assert_eq!(without(&[0, 1, 2, 3]), [] as [TransferId; 0]);
    }

    #[test]
    fn what_is_ahead_does_not_stand_still() {
        let mut wishes = vec![(1, Ahead); 3];
        wishes.extend([(2, Awaited); 60]);
        let turns = turns(&wishes, |_, _| {});
        let ahead: Vec<usize> =
            turns.iter().enumerate().filter(|(_, transfer)| **transfer == 1).map(|(at, _)| at).collect();
        assert_eq!(ahead, [16, 33, 50]);
    }

    #[test]
    fn a_limit_that_changes_grants_and_stops_nothing() {
        let mut queue = Queue::new(2);
        let granted: usize = (0..5).map(|_| queue.ask(1, Ahead).1.len()).sum();
        assert_eq!((granted, queue.waiting()), (2, 3));
        let mut granted_by = |limit| {
            queue.set_limit(limit);
            queue.grant().len()
        };
        assert_eq!((granted_by(4), granted_by(1)), (2, 0));
        assert_eq!([(); 3].map(|()| queue.finish().len()), [0; 3], "four ran, and one may");
        assert_eq!(queue.finish().len(), 1);
    }

    /// Who works next, by a queue with one slot: each part that ends has its worker ask whether to go on.
    fn works(queue: &mut Queue, mut left: Vec<(TransferId, Priority, u64)>, parts: usize) -> Vec<TransferId> {
        for (transfer, priority, parts) in &left {
            queue.want(*transfer, *priority, *parts);
        }
        let mut granted = queue.grant();
        let mut works = Vec::new();
        while works.len() < parts {
            let [Work(now)] = granted[..] else { panic!("one slot, one part: {granted:?}") };
            works.push(now);
            let own = left.iter_mut().find(|(transfer, ..)| *transfer == now).expect("it has parts");
            own.2 -= 1;
            let (stays, others) = queue.go_on(now, own.1, own.2);
            granted = if stays { vec![Work(now)] } else { others };
        }
        works
    }

    #[test]
    fn transfers_with_parts_take_turns_by_the_part() {
        let turns = |left: &[(TransferId, Priority, u64)]| {
            let parts = left.iter().map(|(.., parts)| *parts as usize).sum();
            works(&mut Queue::new(1), left.to_vec(), parts)
        };
        assert_eq!(turns(&[(1, Awaited, 3)]), [1, 1, 1]);
        assert_eq!(turns(&[(1, Awaited, 4), (2, Awaited, 2)]), [1, 2, 1, 2, 1, 1]);
        assert_eq!(turns(&[(1, Ahead, 2), (2, Awaited, 2)]), [2, 2, 1, 1]);
    }

    #[test]
    fn no_more_workers_are_started_than_there_are_slots_and_parts() {
        let mut queue = Queue::new(4);
        queue.want(1, Awaited, 2);
        queue.want(2, Awaited, 9);
        assert_eq!(queue.grant(), [Work(1), Work(2), Work(1), Work(2)]);
        queue.set_limit(6);
        assert_eq!(queue.grant(), [Work(2), Work(2)]);
        queue.want(2, Awaited, 0);
        queue.set_limit(9);
        assert_eq!(queue.grant(), [], "it has nothing left");
        queue.want(2, Awaited, 9);
        queue.forget(2);
        assert_eq!(queue.grant(), []);
    }

    #[test]
    fn a_ticket_of_another_ends_a_worker() {
        let mut queue = Queue::new(1);
        queue.want(1, Awaited, 9);
        assert_eq!(queue.grant(), [Work(1)]);
        let (ticket, granted) = queue.ask(2, Awaited);
        assert_eq!(granted, []);
        assert_eq!(queue.go_on(1, Awaited, 8), (true, vec![]), "it waited before the other came");
        assert_eq!(queue.go_on(1, Awaited, 7), (false, vec![Grant::Ticket(ticket)]));
        assert_eq!(queue.finish(), [Work(1)]);
        let (_, granted) = queue.ask(3, Ahead);
        assert_eq!(granted, []);
        assert_eq!(queue.go_on(1, Awaited, 6), (true, vec![]), "what is ahead waits");
    }
}
