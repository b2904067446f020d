//! Who works at a gate: how many workers each transfer has, who gets the next one, and who has to leave. Pure: no lock, no
//! thread.
//!
//! ```text
//!   limit 8:   ████▓▓▓▓     two crews have four each; a third comes with its lead, whatever the limit is,
//!   crews:     A   B  C     and one worker after the other of A and B leaves at the end of its part
//! ```

/// The workers of one transfer, or of one get of many objects.
#[derive(Debug)]
struct Crew<T> {
    number: u64,
    of: T,
    workers: u32,
}

/// Everybody at a gate.
#[derive(Debug)]
pub(crate) struct Staff<T> {
    crews: Vec<Crew<T>>,
    next_number: u64,
    /// On each shard.
    by_shard: Vec<u32>,
    /// Some crew has less than its share, and has more to do.
    is_hungry: bool,
}

impl<T: Clone> Staff<T> {
    pub(crate) fn new(shards: usize) -> Staff<T> {
        Staff { crews: Vec::new(), next_number: 0, by_shard: vec![0; shards.max(1)], is_hungry: false }
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> u32 {
        self.by_shard.iter().sum()
    }

    pub(crate) fn crews(&self) -> impl Iterator<Item = &T> {
        self.crews.iter().map(|crew| &crew.of)
    }

    /// A new crew, with one worker on `shard`: nobody waits for others to end before he begins. Its number.
    pub(crate) fn join(&mut self, of: T, shard: usize) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.crews.push(Crew { number, of, workers: 1 });
        self.by_shard[shard] += 1;
        number
    }

    /// Those who are to begin now, each with the number of its crew and its shard, until there are `limit`; counted as if
    /// they had begun. `wants` tells how many more a crew could use. The second is whether `limit` is out of reach.
    pub(crate) fn hire(&mut self, limit: u32, wants: impl Fn(&T) -> u64) -> (Vec<(u64, usize, T)>, bool) {
        let mut wanted: Vec<u64> = self.crews.iter().map(|crew| wants(&crew.of)).collect();
        let mut hired = Vec::new();
        while self.workers() < limit {
            let hungriest = (0..self.crews.len()).filter(|at| wanted[*at] > 0);
            let Some(at) = hungriest.min_by_key(|at| self.crews[*at].workers) else {
                self.is_hungry = false;
                return (hired, true);
            };
            let shard = (0..self.by_shard.len()).min_by_key(|shard| self.by_shard[*shard]).unwrap_or(0);
            self.by_shard[shard] += 1;
            self.crews[at].workers += 1;
            wanted[at] -= 1;
            hired.push((self.crews[at].number, shard, self.crews[at].of.clone()));
        }
        let share = self.share(limit);
        self.is_hungry =
            self.crews.iter().zip(&wanted).any(|(crew, wanted)| crew.workers < share && *wanted > 0);
        (hired, false)
    }

    /// Whether a worker may take another part; one who may not has left. The last of a crew always may.
    pub(crate) fn goes_on(&mut self, crew: u64, shard: usize, limit: u32) -> bool {
        let (total, share) = (self.workers(), self.share(limit));
        let own = self.crews.iter().find(|one| one.number == crew).map_or(0, |one| one.workers);
        let leaves = own > 1 && (total > limit || (self.is_hungry && own > share));
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

    fn share(&self, limit: u32) -> u32 {
        limit.div_ceil(self.crews.len().max(1) as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hire(staff: &mut Staff<char>, limit: u32, wants: &[(char, u64)]) -> (String, bool) {
        let wanted = |of: &char| wants.iter().find(|(name, _)| name == of).map_or(0, |(_, wanted)| *wanted);
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
