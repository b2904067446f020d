//! Counters of a session.

use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct SessionCounters {
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
    writes: AtomicU64,
    write_bytes: AtomicU64,
}

/// Counters of a session so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Requests of the kernel.
    pub requests: u64,
    /// Answers other than errors.
    pub answers: u64,
    /// Errors, with those for missing names.
    pub errors: u64,
    /// Requests that a signal ended.
    pub interrupted: u64,
    /// Answers that came too late for the kernel.
    pub late: u64,
    /// Requests that could not be parsed.
    pub malformed: u64,
    /// Requests that got EIO because of a defect of Flatout.
    pub defects: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// The most bytes that one read asked for: 128 KiB if the kernel reads ahead no further.
    pub largest_read_bytes: u64,
    /// Writes that came.
    pub writes: u64,
    /// Bytes of these writes.
    pub write_bytes: u64,
    /// Requests that wait now.
    pub waiting: u64,
    /// Threads of the pool that waits for origins.
    pub pool_threads: u64,
}

impl SessionCounters {
    pub fn request(&self) {
        add(&self.requests, 1);
    }

    /// Returns `taken`: whether the kernel took the answer.
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
        // A new maximum is rare, and a load costs less than a write that other cores must see.
        if u64::from(bytes) > self.largest_read_bytes.load(Ordering::Relaxed) {
            self.largest_read_bytes.fetch_max(u64::from(bytes), Ordering::Relaxed);
        }
    }

    pub fn write_asked(&self, bytes: usize) {
        add(&self.writes, 1);
        add(&self.write_bytes, bytes as u64);
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
            writes: now(&self.writes),
            write_bytes: now(&self.write_bytes),
            waiting: 0,
            pool_threads: 0,
        }
    }
}

fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}
