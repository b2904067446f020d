//! What each shard counts for a gate, on a cache line of its own: bytes, and how attempts stand.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::base::time::now;
use flatout_policy::pace::{Gated, Sample, WaitReason};

/// The counters of one shard. Only its thread writes; a tick reads them all.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Cell {
    wire_bytes: AtomicU64,
    /// When the origin last sent some of a body, or took some, in nanoseconds since `born`; 0 before it did.
    progressed_ns: AtomicU64,
    born: Born,
    /// From request to first byte, of all answers so far, and how many they are.
    first_byte_us: AtomicU64,
    first_bytes: AtomicU64,
    /// How long requests, once sent whole, waited for their answers, and how many were answered.
    waited_us: AtomicU64,
    answers: AtomicU64,
    /// Spent in writing to files.
    disk_us: AtomicU64,
    /// What the thread has used of its core since it began, and how long it had to wait for one.
    cpu_us: AtomicU64,
    queued_us: AtomicU64,
    moving: AtomicU32,
    memory: AtomicU32,
    reader: AtomicU32,
    bandwidth: AtomicU32,
    requests: AtomicU32,
    retrying: AtomicU32,
}

/// When counting began.
#[derive(Debug)]
struct Born(Instant);

impl Default for Born {
    fn default() -> Born {
        Born(now())
    }
}

/// Counts one as long as it lives.
#[must_use]
pub(crate) struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicU32) -> Counted<'a> {
        counter.fetch_add(1, Ordering::Relaxed);
        Counted(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Cell {
    /// A body is under way.
    pub(crate) fn moving(&self) -> Counted<'_> {
        Counted::new(&self.moving)
    }

    /// A worker that has something to do waits for something of ours. Waiting for a disk is not counted so:
    /// whoever writes blocks his thread, see [`Cell::on_received`].
    pub(crate) fn waiting(&self, waits: WaitReason) -> Counted<'_> {
        Counted::new(match waits {
            WaitReason::Memory | WaitReason::Disk => &self.memory,
            WaitReason::Reader => &self.reader,
            WaitReason::Bandwidth => &self.bandwidth,
            WaitReason::Requests => &self.requests,
        })
    }

    /// Workers without a slot: they wait for room in a stream, for memory, or to try again.
    pub(crate) fn waiting_without_slot(&self) -> u32 {
        [&self.memory, &self.reader, &self.retrying].map(|count| count.load(Ordering::Relaxed)).iter().sum()
    }

    /// A worker waits to try again.
    pub(crate) fn retrying(&self) -> Counted<'_> {
        Counted::new(&self.retrying)
    }

    /// Bytes of a body have come; writing them to a file took `writing`.
    pub(crate) fn on_received(&self, bytes: u64, writing: Duration) {
        add(&self.wire_bytes, bytes);
        add(&self.disk_us, writing.as_micros() as u64);
        self.on_progress();
    }

    /// Bytes of a body have gone to the system.
    pub(crate) fn on_sent(&self, bytes: u64) {
        add(&self.wire_bytes, bytes);
    }

    /// The origin has sent some of a body, or taken some.
    pub(crate) fn on_progress(&self) {
        let ns = now().saturating_duration_since(self.born.0).as_nanos() as u64;
        self.progressed_ns.store(ns.max(1), Ordering::Relaxed);
    }

    /// When bytes of a body came, or were taken, last.
    pub(crate) fn progressed(&self) -> Option<Instant> {
        let ns = self.progressed_ns.load(Ordering::Relaxed);
        (ns > 0).then(|| self.born.0 + Duration::from_nanos(ns))
    }

    /// An answer began so long after its request.
    pub(crate) fn on_first_byte(&self, after: Duration) {
        add(&self.first_byte_us, after.as_micros() as u64);
        add(&self.first_bytes, 1);
        self.on_answered(after);
    }

    /// A request was answered so long after its end.
    pub(crate) fn on_answered(&self, after: Duration) {
        add(&self.waited_us, after.as_micros() as u64);
        add(&self.answers, 1);
    }

    /// The thread has used so much of its core since it began, and waited so long for one.
    pub(crate) fn on_cpu(&self, used: Duration, queued: Duration) {
        self.cpu_us.store(used.as_micros() as u64, Ordering::Relaxed);
        self.queued_us.store(queued.as_micros() as u64, Ordering::Relaxed);
    }
}

/// The thread is the only one that writes: no locked instruction is needed.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// A shard whose thread spends more than this share of its time in writing waits for the disk; less is what
/// copying into the page cache costs beside an origin that is as fast as this machine.
const DISK_SHARE: f64 = 0.75;

/// The sums over all shards at the last tick.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    wire_bytes: u64,
    first_byte_us: u64,
    first_bytes: u64,
    waited_us: u64,
    answers: u64,
    disk_us: u64,
    cpu_us: u64,
    queued_us: u64,
}

/// MemoryPlan of their time that the threads of the shards ran, and that they could have run and had no core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cores {
    pub(crate) used: f64,
    pub(crate) queued: f64,
}

impl Sums {
    /// What happened in `elapsed` since these sums were taken, and what the threads had of the cores; the
    /// sums are those of now afterwards. `slots` are taken: workers that wait for room in a stream have none
    /// yet, and are in flight all the same.
    pub(crate) fn advance(&mut self, cells: &[Cell], elapsed: Duration, slots: u32) -> (Sample, Cores) {
        let sum = |of: fn(&Cell) -> &AtomicU64| -> u64 {
            cells.iter().map(|cell| of(cell).load(Ordering::Relaxed)).sum()
        };
        let count = |of: fn(&Cell) -> &AtomicU32| -> u32 {
            cells.iter().map(|cell| of(cell).load(Ordering::Relaxed)).sum()
        };
        let before = std::mem::replace(
            self,
            Sums {
                wire_bytes: sum(|cell| &cell.wire_bytes),
                first_byte_us: sum(|cell| &cell.first_byte_us),
                first_bytes: sum(|cell| &cell.first_bytes),
                waited_us: sum(|cell| &cell.waited_us),
                answers: sum(|cell| &cell.answers),
                disk_us: sum(|cell| &cell.disk_us),
                cpu_us: sum(|cell| &cell.cpu_us),
                queued_us: sum(|cell| &cell.queued_us),
            },
        );
        let answers = self.first_bytes - before.first_bytes;
        let first_byte = (answers > 0)
            .then(|| Duration::from_micros((self.first_byte_us - before.first_byte_us) / answers));
        let (memory, reader) = (count(|cell| &cell.memory), count(|cell| &cell.reader));
        let in_flight = slots + memory + reader;
        let threads_us = (elapsed.as_micros() as f64 * cells.len() as f64).max(1.0);
        let share = (self.disk_us - before.disk_us) as f64 / threads_us;
        // What a thread had used before it first counted here is not of this time.
        let used = self.cpu_us.saturating_sub(before.cpu_us) as f64 / threads_us;
        let queued = self.queued_us.saturating_sub(before.queued_us) as f64 / threads_us;
        let cores = if used + queued <= 1.2 { Cores { used, queued } } else { Cores::default() };
        let gated = Gated {
            disk: if share > DISK_SHARE { (f64::from(in_flight) * share.min(1.0)) as u32 } else { 0 },
            memory,
            reader,
            bandwidth: count(|cell| &cell.bandwidth),
            requests: count(|cell| &cell.requests),
        };
        let sample = Sample {
            bytes: self.wire_bytes - before.wire_bytes,
            in_flight,
            moving: count(|cell| &cell.moving),
            gated,
            starved: false,
            first_byte,
            answers: (self.answers - before.answers) as u32,
            waited: Duration::from_micros(self.waited_us - before.waited_us),
            busy: cores.used + cores.queued,
        };
        (sample, cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_what_happened_since_the_last_one() {
        let (cells, tick) = ([Cell::default(), Cell::default()], Duration::from_millis(25));
        let mut sums = Sums::default();
        cells[0].on_received(100, Duration::ZERO);
        cells[1].on_received(11, Duration::ZERO);
        cells[0].on_first_byte(Duration::from_millis(10));
        cells[1].on_first_byte(Duration::from_millis(20));
        let moving = cells[1].moving();
        let waits = cells[0].waiting(WaitReason::Reader);
        cells[1].on_cpu(Duration::from_millis(10), Duration::from_millis(5));
        let (sample, cores) = sums.advance(&cells, tick, 1);
        assert_eq!((sample.bytes, sample.in_flight, sample.moving), (111, 2, 1));
        assert_eq!((cores, sample.busy), (Cores { used: 0.2, queued: 0.1 }, 0.2 + 0.1));
        assert_eq!(sample.gated, Gated { reader: 1, ..Gated::default() });
        assert_eq!(sample.first_byte, Some(Duration::from_millis(15)));
        assert_eq!((sample.answers, sample.waited), (2, Duration::from_millis(30)));
        drop((moving, waits));
        cells[0].on_received(5, Duration::ZERO);
        let (sample, cores) = sums.advance(&cells, tick, 0);
        assert_eq!((sample.bytes, sample.in_flight, sample.first_byte), (5, 0, None));
        assert_eq!(cores, Cores::default());
        // A thread that has worked for others before.
        cells[0].on_cpu(Duration::from_secs(100), Duration::ZERO);
        assert_eq!(sums.advance(&cells, tick, 0).1, Cores::default());
    }

    #[test]
    fn threads_that_do_little_but_write_wait_for_the_disk() {
        let (cells, tick) = ([Cell::default(), Cell::default()], Duration::from_millis(25));
        let mut sums = Sums::default();
        for (each_ms, waiting) in [(10, 0), (18, 0), (20, 8), (25, 10), (40, 10)] {
            cells.iter().for_each(|cell| cell.on_received(0, Duration::from_millis(each_ms)));
            assert_eq!(sums.advance(&cells, tick, 10).0.gated.disk, waiting, "{each_ms} ms of each tick");
        }
    }
}
