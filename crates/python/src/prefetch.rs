//! Ranges of a file that its user has said will be read: fetched in order as far as memory goes, and held
//! until they are read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flatout_engine::Reader;

use crate::read_result::ReadResult;

/// The memory that the prefetched ranges of all files of a client share.
pub struct PrefetchBudget {
    limit: u64,
    held: AtomicU64,
}

impl PrefetchBudget {
    pub fn new(limit: u64) -> PrefetchBudget {
        PrefetchBudget { limit, held: AtomicU64::new(0) }
    }

    /// Takes that many bytes if they are left; whether they were.
    fn take(&self, bytes: u64) -> bool {
        let more = |held: u64| Some(held + bytes).filter(|held| *held <= self.limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// The prefetched ranges of one file.
pub struct Prefetcher {
    budget: Arc<PrefetchBudget>,
    queue: Mutex<PrefetchQueue>,
}

#[derive(Default)]
struct PrefetchQueue {
    /// Not requested yet.
    next: VecDeque<Range<u64>>,
    /// In flight, or there.
    requested: VecDeque<PrefetchedRange>,
}

struct PrefetchedRange {
    range: Range<u64>,
    result: ReadResult,
    /// How many of its bytes have been read; some perhaps twice.
    read_bytes: u64,
}

impl Prefetcher {
    pub fn new(budget: Arc<PrefetchBudget>) -> Prefetcher {
        Prefetcher { budget, queue: Mutex::default() }
    }

    /// Adds ranges behind those added before, and requests as many as memory allows.
    pub fn add(&self, reader: &Reader, ranges: Vec<Range<u64>>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // A range that is longer than the whole budget would block those behind it for ever.
        let fits = |range: &Range<u64>| !range.is_empty() && range.end - range.start <= self.budget.limit;
        queue.next.extend(ranges.into_iter().filter(fits));
        self.request(reader, &mut queue);
    }

    /// The requested range that holds the bytes `wanted`, and its result. Counts them as read.
    pub fn find(&self, reader: &Reader, wanted: &Range<u64>) -> Option<(Range<u64>, ReadResult)> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |range: &Range<u64>| range.start <= wanted.start && wanted.end <= range.end;
        let Some(at) = queue.requested.iter().position(|requested| holds(&requested.range)) else {
            // A range that is read before its turn is not fetched a second time.
            queue.next.retain(|range| !holds(range));
            self.request(reader, &mut queue);
            return None;
        };
        let requested = &mut queue.requested[at];
        requested.read_bytes += wanted.end - wanted.start;
        let found = (requested.range.clone(), requested.result.clone());
        if requested.read_bytes >= requested.range.end - requested.range.start {
            self.forget(queue.requested.remove(at));
            self.request(reader, &mut queue);
        }
        Some(found)
    }

    fn request(&self, reader: &Reader, queue: &mut PrefetchQueue) {
        while let Some(range) = queue.next.front() {
            let bytes = range.end - range.start;
            let Some(length) = usize::try_from(bytes).ok().filter(|_| self.budget.take(bytes)) else {
                return;
            };
            let result = ReadResult::default();
            let put = result.clone();
            // Never cancelled: a range that was announced is likely to be read.
            let _ = reader.read(range.start, length, move |result| put.put(result));
            let range = queue.next.pop_front().expect("it is the front one");
            queue.requested.push_back(PrefetchedRange { range, result, read_bytes: 0 });
        }
    }

    fn forget(&self, read: Option<PrefetchedRange>) {
        let bytes = read.map_or(0, |read| read.range.end - read.range.start);
        self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        let queue = std::mem::take(self.queue.get_mut().unwrap_or_else(PoisonError::into_inner));
        for requested in queue.requested {
            self.forget(Some(requested));
        }
    }
}
