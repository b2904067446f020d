//! What somebody has said will be read of a file: ranges asked for in order, held until they have been read, as far as memory
//! goes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flatout_engine::Reader;

use crate::answer::Answer;

/// What files of a client hold this way, together.
pub struct Allowance {
    limit: u64,
    held: AtomicU64,
}

impl Allowance {
    pub fn new(limit: u64) -> Allowance {
        Allowance { limit, held: AtomicU64::new(0) }
    }

    /// Takes so many bytes if there are as many.
    fn take(&self, bytes: u64) -> bool {
        let more = |held: u64| Some(held + bytes).filter(|held| *held <= self.limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// The ranges that will be read of one file.
pub struct Ahead {
    allowance: Arc<Allowance>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Not asked for yet.
    next: VecDeque<Range<u64>>,
    /// On their way, or there.
    asked: VecDeque<Asked>,
}

struct Asked {
    range: Range<u64>,
    answer: Answer,
    /// How many of its bytes have been read since; some perhaps twice.
    read_bytes: u64,
}

impl Ahead {
    pub fn new(allowance: Arc<Allowance>) -> Ahead {
        Ahead { allowance, queue: Mutex::default() }
    }

    /// These will be read, in this order, after those said before.
    pub fn say(&self, reader: &Reader, ranges: Vec<Range<u64>>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is longer than all there is would keep the others waiting for ever.
        let fits = |range: &Range<u64>| !range.is_empty() && range.end - range.start <= self.allowance.limit;
        queue.next.extend(ranges.into_iter().filter(fits));
        self.ask(reader, &mut queue);
    }

    /// Where the range is that holds these bytes, and its answer.
    pub fn find(&self, reader: &Reader, wanted: &Range<u64>) -> Option<(Range<u64>, Answer)> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |range: &Range<u64>| range.start <= wanted.start && wanted.end <= range.end;
        let Some(at) = queue.asked.iter().position(|asked| holds(&asked.range)) else {
            // Read past what is ahead of it: it will not be asked for a second time.
            queue.next.retain(|range| !holds(range));
            self.ask(reader, &mut queue);
            return None;
        };
        let asked = &mut queue.asked[at];
        asked.read_bytes += wanted.end - wanted.start;
        let found = (asked.range.clone(), asked.answer.clone());
        if asked.read_bytes >= asked.range.end - asked.range.start {
            self.forget(queue.asked.remove(at));
            self.ask(reader, &mut queue);
        }
        Some(found)
    }

    fn ask(&self, reader: &Reader, queue: &mut Queue) {
        while let Some(range) = queue.next.front() {
            let bytes = range.end - range.start;
            let Some(length) = usize::try_from(bytes).ok().filter(|_| self.allowance.take(bytes)) else {
                return;
            };
            let answer = Answer::default();
            let told = answer.clone();
            // Nobody gives it up: who has said that it will be read is likely to.
            let _ = reader.read(range.start, length, move |result| told.put(result));
            let range = queue.next.pop_front().expect("it is the front one");
            queue.asked.push_back(Asked { range, answer, read_bytes: 0 });
        }
    }

    fn forget(&self, asked: Option<Asked>) {
        let bytes = asked.map_or(0, |asked| asked.range.end - asked.range.start);
        self.allowance.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let queue = std::mem::take(self.queue.get_mut().unwrap_or_else(PoisonError::into_inner));
        for asked in queue.asked {
            self.forget(Some(asked));
        }
    }
}
