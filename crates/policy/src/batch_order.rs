//! What the workers of a batch choose from. Pure: no lock, no clock, no socket.
//!
//! Small objects and the parts of large ones share one pace. Half of the workers look for small objects first
//! and half for parts, so neither waits behind the other, and no worker is idle while there is anything to
//! do. The next large object is begun when those before it have no part left to take, or still wait for their
//! first answer: few files are open at a time, and the tail of one overlaps with the beginning of the next.

use std::collections::VecDeque;

/// An object's turn to be fetched.
#[derive(Debug, PartialEq, Eq)]
pub struct Item<W> {
    pub wanted: W,
    /// It was replaced while it was read, and is read once more.
    pub again: bool,
}

/// What a worker does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Work<W, O> {
    /// Begin an object.
    Object(Item<W>),
    /// Fetch a part of one that others have begun.
    Part(O),
}

/// Whether another object may be begun: each holds open files, and a large one that waits for its checksum
/// alone holds them without a worker.
#[derive(Clone, Copy, Debug)]
pub struct MayBegin {
    pub small: bool,
    pub large: bool,
}

/// Objects that wait, and objects that have parts to take.
pub struct Queue<W, O> {
    small: VecDeque<Item<W>>,
    large: VecDeque<Item<W>>,
    open: VecDeque<O>,
}

impl<W, O> Default for Queue<W, O> {
    fn default() -> Queue<W, O> {
        Queue { small: VecDeque::new(), large: VecDeque::new(), open: VecDeque::new() }
    }
}

impl<W, O: Clone> Queue<W, O> {
    /// A task waits for its turn.
    pub fn push(&mut self, task: Item<W>, is_small: bool) {
        if is_small { self.small.push_back(task) } else { self.large.push_back(task) }
    }

    /// An object has parts to take.
    pub fn open(&mut self, object: O) {
        self.open.push_back(object);
    }

    /// Objects have no part left: they are given back, since they may have to be dropped elsewhere.
    #[must_use]
    pub fn close(&mut self, is_closed: impl Fn(&O) -> bool) -> Option<O> {
        let at = self.open.iter().position(is_closed)?;
        self.open.remove(at)
    }

    /// Whether anything is there beside one object that is open.
    pub fn has_more(&self) -> bool {
        !self.small.is_empty() || !self.large.is_empty() || self.open.len() > 1
    }

    /// Everything that was open, given back for the same reason.
    #[must_use]
    pub fn clear(&mut self) -> VecDeque<O> {
        self.small.clear();
        self.large.clear();
        std::mem::take(&mut self.open)
    }

    /// `may` says whether another object may be begun.
    pub fn take(&mut self, prefers_parts: bool, may: MayBegin) -> Option<Work<W, O>> {
        match prefers_parts {
            true => self.take_large(may.large).or_else(|| self.take_small(may.small)),
            false => self.take_small(may.small).or_else(|| self.take_large(may.large)),
        }
    }

    fn take_large(&mut self, may_begin: bool) -> Option<Work<W, O>> {
        match self.open.front() {
            Some(object) => Some(Work::Part(object.clone())),
            None if may_begin => self.large.pop_front().map(Work::Object),
            None => None,
        }
    }

    fn take_small(&mut self, may_begin: bool) -> Option<Work<W, O>> {
        if may_begin { self.small.pop_front().map(Work::Object) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: MayBegin = MayBegin { small: true, large: true };
    const NO_LARGE: MayBegin = MayBegin { small: true, large: false };

    fn object(wanted: u32) -> Option<Work<u32, char>> {
        Some(Work::Object(Item { wanted, again: false }))
    }

    #[test]
    fn neither_small_objects_nor_parts_wait_behind_the_other() {
        let mut queue = Queue::default();
        for (wanted, is_small) in [(1, false), (2, false), (3, true), (4, true)] {
            queue.push(Item { wanted, again: false }, is_small);
        }
        assert_eq!(queue.take(true, ANY), object(1));
        queue.open('a');
        assert_eq!(queue.take(true, ANY), Some(Work::Part('a')));
        assert_eq!(queue.take(false, ANY), object(3));
        assert_eq!(queue.take(false, ANY), object(4));
        assert_eq!(queue.take(false, ANY), Some(Work::Part('a')), "nobody is idle");
        assert_eq!(queue.close(|open| *open == 'a'), Some('a'));
        assert_eq!(queue.close(|open| *open == 'a'), None);
        assert_eq!(queue.take(false, NO_LARGE), None, "enough are open");
        assert_eq!(
            queue.take(false, ANY),
            object(2),
            "the next large one begins when the first has no part left"
        );
        assert_eq!(queue.take(true, ANY), None);
        queue.push(Item { wanted: 5, again: false }, true);
        let none = MayBegin { small: false, large: false };
        assert_eq!(
            (queue.take(true, none), queue.take(false, none)),
            (None, None),
            "no more files may be open"
        );
        assert_eq!(queue.take(true, NO_LARGE), object(5));
    }
}
