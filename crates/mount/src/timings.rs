//! What a session reports: errors, and how long answers took, by operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flatout_engine::Error;
use flatout_tree::FsError;

/// Called with an error of the origin's.
pub type OnError = dyn Fn(&Error) + Send + Sync;

/// What a session reports while it serves.
#[derive(Clone, Default)]
pub struct Observer {
    /// Called with the origin's error behind a failed operation, on the thread that met it: a program only
    /// sees an errno.
    pub on_error: Option<Arc<OnError>>,
    pub timings: Arc<Timings>,
}

/// Operations that are timed. Requests that are refused at once are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    Lookup,
    Attributes,
    Open,
    Read,
    /// One part of a folder.
    ReadFolder,
    Write,
    /// What was written is published: close and fsync.
    Publish,
    /// A name is made, removed or changed, or attributes are set.
    Change,
}

/// Upper bounds of the buckets, from an answer from memory to one from a distant origin. The last bucket has
/// no bound.
pub const BOUNDS: [Duration; 6] = [
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];

/// All errnos are smaller (linux/errno.h ends at 133).
const ERRNOS: usize = 134;

/// Shared by all threads.
#[derive(Debug)]
pub struct Timings {
    operations: [Histogram; Timed::ALL.len()],
    errors: [AtomicU64; ERRNOS],
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

/// How long one operation took so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// How many were answered.
    pub count: u64,
    /// Their durations together.
    pub seconds: f64,
    /// How many took at most each of [`BOUNDS`]. Longer ones are in `count` only.
    pub at_most: [u64; BOUNDS.len()],
}

impl Default for Timings {
    fn default() -> Timings {
        Timings { operations: Default::default(), errors: [const { AtomicU64::new(0) }; ERRNOS] }
    }
}

impl Timed {
    /// All of them.
    pub const ALL: [Timed; 8] = [
        Timed::Lookup,
        Timed::Attributes,
        Timed::Open,
        Timed::Read,
        Timed::ReadFolder,
        Timed::Write,
        Timed::Publish,
        Timed::Change,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Timed::Lookup => "lookup",
            Timed::Attributes => "attributes",
            Timed::Open => "open",
            Timed::Read => "read",
            Timed::ReadFolder => "read_folder",
            Timed::Write => "write",
            Timed::Publish => "publish",
            Timed::Change => "change",
        }
    }
}

impl Observer {
    /// Notes how long an operation took that began then, and hands its answer on with an errno.
    pub(crate) fn answered<T>(
        &self,
        operation: Timed,
        began: Instant,
        answer: Result<T, FsError>,
    ) -> Result<T, i32> {
        let answer = answer.map_err(|error| self.errno(error));
        self.timings.answered(operation, began, answer.as_ref().err().copied());
        answer
    }

    pub(crate) fn errno(&self, error: FsError) -> i32 {
        if let (Some(on_error), Some(cause)) = (&self.on_error, &error.cause) {
            on_error(cause);
        }
        error.errno
    }
}

impl Timings {
    /// Notes an answer, with its errno if it is an error; `began` is when the operation began.
    pub(crate) fn answered(&self, operation: Timed, began: Instant, errno: Option<i32>) {
        let took = began.elapsed();
        let counts = &self.operations[operation as usize];
        let bucket = BOUNDS.iter().position(|bound| took <= *bound).unwrap_or(BOUNDS.len());
        counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        counts.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        let errno = errno.and_then(|errno| usize::try_from(errno).ok());
        if let Some(count) = errno.and_then(|errno| self.errors.get(errno)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So far.
    pub fn of(&self, operation: Timed) -> Timing {
        let counts = &self.operations[operation as usize];
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (mut timing, mut sum) = (Timing::default(), 0);
        for (at, bucket) in counts.buckets.iter().enumerate() {
            sum += now(bucket);
            if let Some(at_most) = timing.at_most.get_mut(at) {
                *at_most = sum;
            }
        }
        timing.count = sum;
        timing.seconds = now(&counts.nanoseconds) as f64 / 1e9;
        timing
    }

    /// Errnos that there were, and how often.
    pub fn errors(&self) -> impl Iterator<Item = (i32, u64)> {
        let counts = self.errors.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(errno, count)| (errno as i32, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_fall_into_buckets() {
        let timings = Timings::default();
        for (ago, errno) in
            [(0, None), (2, Some(2)), (11_000, Some(2)), (500, Some(999_999)), (500, Some(-1))]
        {
            let began = Instant::now().checked_sub(Duration::from_millis(ago)).expect("the clock is older");
            timings.answered(Timed::Read, began, errno);
        }
        let timing = timings.of(Timed::Read);
        assert_eq!(timing.count, 5);
        // A busy machine may be slow, so only the last bound is exact: one took longer.
        assert_eq!(timing.at_most[5], 4);
        assert!(timing.at_most.is_sorted() && timing.seconds > 11.0, "{timing:?}");
        assert_eq!(timings.of(Timed::Lookup), Timing::default());
        assert_eq!(timings.errors().collect::<Vec<_>>(), [(2, 2)]);
    }
}
