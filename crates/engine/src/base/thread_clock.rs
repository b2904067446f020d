//! What a thread has had of the cores: how long it ran, and how long it could have run and others had them.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Reading it costs two system calls, which a receive of 256 KiB is not to have each time.
const READ_EVERY: Duration = Duration::from_millis(5);

/// The clock of the thread that made it.
#[derive(Debug)]
pub(crate) struct ThreadClock {
    /// `/proc/thread-self/schedstat`: nanoseconds run, nanoseconds spent waiting on a run queue, times
    /// scheduled (Documentation/scheduler/sched-stats.rst). Not there where the kernel was built without it,
    /// or /proc is not mounted.
    schedstat: Option<File>,
    read: Cell<Instant>,
}

impl ThreadClock {
    pub(crate) fn new() -> ThreadClock {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        ThreadClock { schedstat, read: Cell::new(Instant::now()) }
    }

    /// How long the thread has run, and how long it waited for a core, since it began; nothing if that was
    /// asked for within the last 5 ms.
    pub(crate) fn read_again(&self) -> Option<(Duration, Duration)> {
        let now = Instant::now();
        if now.duration_since(self.read.get()) < READ_EVERY {
            return None;
        }
        self.read.set(now);
        // The file's own first number is as old as the scheduler's last tick.
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
        let nanoseconds = u32::try_from(used.tv_nsec).unwrap_or(0);
        Some((Duration::new(seconds, nanoseconds), self.queued().unwrap_or_default()))
    }

    fn queued(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let length = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        Some(Duration::from_nanos(text.split_ascii_whitespace().nth(1)?.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_what_ran_and_what_waited() {
        let clock = ThreadClock::new();
        assert_eq!(clock.read_again(), None, "it is as young as that");
        std::thread::sleep(READ_EVERY);
        let before = clock.read_again().expect("5 ms have passed");
        let begun = Instant::now();
        while begun.elapsed() < 10 * READ_EVERY {
            std::hint::spin_loop();
        }
        let (used, queued) = clock.read_again().expect("50 ms have passed");
        let had = (used - before.0) + (queued - before.1);
        // A thread that spins has a core, or waits for one: there is nothing else, but for an interrupt.
        assert!(had > 5 * READ_EVERY, "{had:?} of 50 ms");
        assert!(had <= begun.elapsed() + READ_EVERY, "{had:?} of {:?}", begun.elapsed());
    }

    #[test]
    fn without_the_file_nothing_was_waited() {
        let clock = ThreadClock { schedstat: None, read: Cell::new(Instant::now() - READ_EVERY) };
        assert_eq!(clock.read_again().expect("it is old enough").1, Duration::ZERO);
    }
}
