//! Who works at a gate: how many workers each transfer has, who gets the next one, and who has to leave. Pure: no lock, no
//! thread.
//!
//! ```text
//!   limit 8:   ████▓▓▓▓     two crews have four each; a third comes with its lead, whatever the limit is,
//!   crews:     A   B  C     and one worker after the other of A and B leaves at the end of its part
//! ```
//! What is fetched ahead has the workers that what is awaited has no use for, and its lead in any case: those beyond the limit
//! wait for slots, which `queue` gives to what is awaited first.

use crate::policy::queue::Priority;

/// The workers of one transfer, or of one get of many objects.
#[derive(Debug)]
struct Crew<T> {
    number: u64,
    of: T,
    workers: u32,
    /// As it was when workers were hired last.
    priority: Priority,
}

/// Everybody at a gate.
#[derive(Debug)]
pub(crate) struct Staff<T> {
    crews: Vec<Crew<T>>,
    next_number: u64,
    /// On each shard.
    by_shard: Vec<u32>,
    /// Of what is awaited, and of what is ahead: some crew has less than its share, and has more to do.
    hungers: [bool; 2],
}

impl<T: Clone> Staff<T> {
    pub(crate) fn new(shards: usize) -> Staff<T> {
        Staff { crews: Vec::new(), next_number: 0, by_shard: vec![0; shards.max(1)], hungers: [false; 2] }
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> u32 {
        self.by_shard.iter().sum()
    }

    pub(crate) fn crews(&self) -> impl Iterator<Item = &T> {
        self.crews.iter().map(|crew| &crew.of)
    }

    /// The shard with the fewest workers.
    pub(crate) fn idlest_shard(&self) -> usize {
        (0..self.by_shard.len()).min_by_key(|shard| self.by_shard[*shard]).unwrap_or(0)
    }

    /// A new crew, with one worker on `shard`: nobody waits for others to end before he begins. Its number.
    pub(crate) fn join(&mut self, of: T, shard: usize) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.crews.push(Crew { number, of, workers: 1, priority: Priority::default() });
        self.by_shard[shard] += 1;
        number
    }

    /// Those who are to begin now, each with the number of its crew and its shard, until there are `limit` for what is awaited,
    /// and with what is ahead besides; counted as if they had begun. `wants` tells how many more a crew could use, and how urgent
    /// it is. The second is whether `limit` is out of reach.
    pub(crate) fn hire(
        &mut self,
        limit: u32,
        wants: impl Fn(&T) -> (u64, Priority),
    ) -> (Vec<(u64, usize, T)>, bool) {
        let mut wanted = Vec::with_capacity(self.crews.len());
        for crew in &mut self.crews {
            let (more, priority) = wants(&crew.of);
            crew.priority = priority;
            wanted.push(more);
        }
        let mut hired = Vec::new();
        for ahead in [false, true] {
            while self.workers_before(ahead) < limit {
                let hungriest = (0..self.crews.len())
                    .filter(|at| wanted[*at] > 0 && self.crews[*at].is_ahead() == ahead)
                    .min_by_key(|at| self.crews[*at].workers);
                let Some(at) = hungriest else { break };
                let shard = self.idlest_shard();
                self.by_shard[shard] += 1;
                self.crews[at].workers += 1;
                wanted[at] -= 1;
                hired.push((self.crews[at].number, shard, self.crews[at].of.clone()));
            }
        }
        let hungers = |ahead: bool| {
            let share = self.share(limit, ahead);
            let mut crews = self.crews.iter().zip(&wanted).filter(|(crew, _)| crew.is_ahead() == ahead);
            crews.any(|(crew, wanted)| crew.workers < share && *wanted > 0)
        };
        self.hungers = [hungers(false), hungers(true)];
        (hired, self.workers() < limit)
    }

    /// Whether a worker may take another part; one who may not has left. The last of a crew always may.
    pub(crate) fn goes_on(&mut self, crew: u64, shard: usize, limit: u32) -> bool {
        let Some(own) = self.crews.iter().find(|one| one.number == crew) else { return true };
        let (workers, ahead) = (own.workers, own.is_ahead());
        let hungers = self.hungers[usize::from(ahead)] && workers > self.share(limit, ahead);
        let leaves = workers > 1 && (hungers || self.workers_before(ahead) > limit);
        if leaves {
            self.leave(crew, shard);
        }
        !leaves
    }

    /// A worker has left.
    pub(crate) fn leave(&mut self, crew: u64, shard: usize) {
        self.by_shard[shard] -= 1;
        if let Some(at) = self.crews.iter().position(|one| one.number == crew) {
            self.crews[at].workers -= 1;
            if self.crews[at].workers == 0 {
                self.crews.remove(at);
            }
        }
    }

    /// How many of `limit` a crew may count on: what is ahead shares what is left of it.
    fn share(&self, limit: u32, ahead: bool) -> u32 {
        let crews = self.crews.iter().filter(|crew| crew.is_ahead() == ahead).count();
        let taken = if ahead { self.workers_before(false) } else { 0 };
        limit.saturating_sub(taken).div_ceil(crews.max(1) as u32).max(1)
    }

    /// All workers; or those of what is awaited, in whose way those of what is ahead do not stand: slots are theirs first.
    fn workers_before(&self, ahead: bool) -> u32 {
        match ahead {
            true => self.workers(),
            false => self.crews.iter().filter(|crew| !crew.is_ahead()).map(|crew| crew.workers).sum(),
        }
    }
}

impl<T> Crew<T> {
    fn is_ahead(&self) -> bool {
        self.priority == Priority::Ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hire(staff: &mut Staff<char>, limit: u32, wants: &[(char, u64)]) -> (String, bool) {
        // Capitals are ahead.
        let wanted = |of: &char| {
            let wanted = wants.iter().find(|(name, _)| name == of).map_or(0, |(_, wanted)| *wanted);
            (wanted, if of.is_uppercase() { Priority::Ahead } else { Priority::Awaited })
        };
        let (hired, out_of_reach) = staff.hire(limit, wanted);
        (
            hired.iter().map(|(_, shard, of)| format!("{of}{shard}")).collect::<Vec<_>>().join(" "),
            out_of_reach,
        )
    }

    #[test]
    fn workers_come_until_there_are_enough_or_nothing_is_left_to_do() {
        let mut staff = Staff::new(2);
        staff.join('a', 0);
        assert_eq!(hire(&mut staff, 4, &[('a', 9)]), ("a1 a0 a1".into(), false));
        assert_eq!(hire(&mut staff, 4, &[('a', 9)]), (String::new(), false));
        assert_eq!(hire(&mut staff, 8, &[('a', 2)]), ("a0 a1".into(), true));
        assert_eq!(staff.workers(), 6);
    }

    #[test]
    fn a_new_crew_gets_its_share_as_parts_end() {
        let mut staff = Staff::new(1);
        let a = staff.join('a', 0);
        hire(&mut staff, 4, &[('a', 100)]);
        let b = staff.join('b', 0);
        assert_eq!(staff.workers(), 5, "its lead waits for nobody");
        assert!(!staff.goes_on(a, 0, 4), "one too many");
        assert!(staff.goes_on(a, 0, 4), "until it is known that the other wants more");
        assert_eq!(hire(&mut staff, 4, &[('a', 90), ('b', 9)]).0, "");
        assert!(!staff.goes_on(a, 0, 4), "more than its share");
        assert_eq!(hire(&mut staff, 4, &[('a', 90), ('b', 9)]).0, "b0");
        assert!(staff.goes_on(a, 0, 4) && staff.goes_on(b, 0, 4), "two each");
    }

    #[test]
    fn what_is_ahead_has_what_is_left() {
        let mut staff = Staff::new(1);
        let ahead = staff.join('A', 0);
        assert_eq!(hire(&mut staff, 4, &[('A', 100)]).0, "A0 A0 A0");
        let awaited = staff.join('b', 0);
        assert_eq!(hire(&mut staff, 4, &[('A', 97), ('b', 2)]).0, "b0 b0", "whatever is on its way");
        let stay = [(); 5].map(|()| staff.goes_on(ahead, 0, 4));
        assert_eq!(stay, [false, false, false, true, true], "the last one stays");
        assert!(staff.goes_on(awaited, 0, 4));
        assert_eq!(hire(&mut staff, 5, &[('A', 97), ('b', 0)]).0, "A0");
    }

    #[test]
    fn workers_leave_one_after_the_other_and_never_the_last() {
        let mut staff = Staff::new(2);
        let a = staff.join('a', 0);
        hire(&mut staff, 6, &[('a', 100)]);
        let left =
            [0, 1, 0, 1, 0, 1].map(|shard| !staff.goes_on(a, shard, 2)).iter().filter(|left| **left).count();
        assert_eq!((left, staff.workers()), (4, 2));
        let b = staff.join('b', 0);
        assert!(staff.goes_on(b, 0, 1), "the only one of its crew");
        staff.leave(b, 0);
        assert_eq!(staff.crews().collect::<Vec<_>>(), [&'a']);
        assert!(!staff.goes_on(a, 0, 1) && staff.goes_on(a, 1, 1));
        staff.leave(a, 1);
        assert_eq!((staff.workers(), staff.crews().count()), (0, 0));
    }
}
