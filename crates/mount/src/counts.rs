//! What a session counts while it serves.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted by all threads.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: AtomicU64,
    answers: AtomicU64,
    errors: AtomicU64,
    interrupted: AtomicU64,
    late: AtomicU64,
    malformed: AtomicU64,
    defects: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    largest_read_bytes: AtomicU64,
}

/// What a session has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// What the kernel asked.
    pub requests: u64,
    /// Answers that were no errors.
    pub answers: u64,
    /// Errors, a name that is not there included.
    pub errors: u64,
    /// Waits that a signal ended.
    pub interrupted: u64,
    /// Answers that the kernel did not want any more.
    pub late: u64,
    /// Requests that could not be understood.
    pub malformed: u64,
    /// Requests that a defect of ours left without an answer, and that got EIO.
    pub defects: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// The most bytes that one read asked for: 128 KiB where the kernel reads ahead no further.
    pub largest_read_bytes: u64,
    /// Requests that wait just now.
    pub waiting: u64,
    /// Threads that wait for origins just now, or have lately.
    pub pool_threads: u64,
}

impl Counts {
    pub fn request(&self) {
        add(&self.requests, 1);
    }

    /// Hands on whether the kernel took it.
    pub fn answered(&self, taken: bool) -> bool {
        add(if taken { &self.answers } else { &self.late }, 1);
        taken
    }

    pub fn failed(&self, taken: bool) -> bool {
        add(if taken { &self.errors } else { &self.late }, 1);
        taken
    }

    pub fn interrupted(&self) {
        add(&self.interrupted, 1);
    }

    pub fn malformed(&self) {
        add(&self.malformed, 1);
    }

    pub fn defect(&self) {
        add(&self.defects, 1);
    }

    pub fn read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    pub fn read_asked(&self, bytes: u32) {
        // Seldom more than was seen: a look costs less than a write that other cores must hear of.
        if u64::from(bytes) > self.largest_read_bytes.load(Ordering::Relaxed) {
            self.largest_read_bytes.fetch_max(u64::from(bytes), Ordering::Relaxed);
        }
    }

    pub fn stats(&self) -> SessionStats {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SessionStats {
            requests: now(&self.requests),
            answers: now(&self.answers),
            errors: now(&self.errors),
            interrupted: now(&self.interrupted),
            late: now(&self.late),
            malformed: now(&self.malformed),
            defects: now(&self.defects),
            reads: now(&self.reads),
            read_bytes: now(&self.read_bytes),
            largest_read_bytes: now(&self.largest_read_bytes),
            waiting: 0,
            pool_threads: 0,
        }
    }
}

fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}
