//! Signals to those who wait: whoever is being killed goes at once, whoever only handles a signal may wait a little longer.
//!
//! The kernel sends one INTERRUPT for a request, at the first signal of any kind, and none when SIGKILL follows. EINTR for every one
//! would fail reads that no disk ever fails: Go's runtime, profilers and timers send signals all the time, to programs that are not
//! made for an EINTR from a file. So one that is only handled counts after a while, and until then the thread is looked at. One
//! that is not handled, as of whoever is stopped, does not count.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::connection::PendingRequest;

/// Who handles a signal gets EINTR after this: Ctrl-C in Python must not wait for a dead origin.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often those are looked at that had a signal; a killed reader is to be gone within a second.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub(crate) struct Interrupts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    closed: Condvar,
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    signalled: Vec<(Instant, Weak<PendingRequest>)>,
    /// Runs as long as there is somebody to look at.
    watch: Option<JoinHandle<()>>,
    watching: bool,
    closed: bool,
}

impl Interrupts {
    pub fn new() -> Interrupts {
        Interrupts::of(PATIENCE)
    }

    pub fn of(patience: Duration) -> Interrupts {
        Interrupts(Arc::new(Shared { state: Mutex::default(), closed: Condvar::new(), patience }))
    }

    /// Somebody who waits for this got a signal.
    pub fn on_signal(&self, request: &Arc<PendingRequest>) {
        if pending(request) == Pending::Fatal {
            return request.interrupt();
        }
        let mut state = self.0.state();
        state.signalled.push((Instant::now() + self.0.patience, Arc::downgrade(request)));
        if state.watching || state.closed {
            return;
        }
        let shared = self.0.clone();
        let thread =
            std::thread::Builder::new().name("flatout-signal".to_owned()).spawn(move || shared.watch());
        match thread {
            Ok(thread) => {
                state.watching = true;
                // The one before has left its loop.
                state.watch = Some(thread);
            }
            Err(_) => {
                drop(state);
                request.interrupt();
            }
        }
    }

    /// Nobody is looked at any more, and no thread remains.
    pub fn close(&self) {
        let mut state = self.0.state();
        state.closed = true;
        state.signalled.clear();
        let watch = state.watch.take();
        drop(state);
        self.0.closed.notify_all();
        if let Some(watch) = watch {
            let _ = watch.join();
        }
    }
}

impl Shared {
    fn watch(&self) {
        loop {
            let state = self.state();
            let mut state = self.closed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            let now = Instant::now();
            let mut due = Vec::new();
            state.signalled.retain(|(until, request)| match request.upgrade() {
                Some(request) if request.is_answered() => false,
                Some(request) => match pending(&request) {
                    Pending::Handled if now < *until => true,
                    Pending::Harmless => true,
                    Pending::Fatal | Pending::Handled => {
                        due.push(request);
                        false
                    }
                },
                None => false,
            });
            let done = state.signalled.is_empty();
            state.watching = !done;
            drop(state);
            due.iter().for_each(|request| request.interrupt());
            if done {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the signals of a thread will do to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// End it.
    Fatal,
    /// Be handled by it.
    Handled,
    /// Neither.
    Harmless,
}

/// Of the thread that waits; one that cannot be looked at may be ending.
fn pending(request: &PendingRequest) -> Pending {
    let status = request.pid().and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok());
    status.map_or(Pending::Fatal, |status| pending_in(&status))
}

/// SIGKILL is fatal, and any other signal that is neither caught nor ignored nor blocked, and not one of those that end nobody.
///
/// One whose default is to end the process becomes SIGKILL for each of its threads, as Ctrl-C does (`complete_signal` in
/// kernel/signal.c); one that also dumps core stays itself.
fn pending_in(status: &str) -> Pending {
    let mask = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    let bit = |signal: Signal| 1u64 << (signal.as_raw() - 1);
    let harmless = [
        Signal::CHILD,
        Signal::CONT,
        Signal::STOP,
        Signal::TSTP,
        Signal::TTIN,
        Signal::TTOU,
        Signal::URG,
        Signal::WINCH,
    ];
    let harmless = harmless.iter().fold(0, |all, &signal| all | bit(signal));
    let (blocked, caught) = (mask("SigBlk"), mask("SigCgt"));
    let pending = mask("SigPnd") | mask("ShdPnd");
    if pending & (bit(Signal::KILL) | !(harmless | blocked | mask("SigIgn") | caught)) != 0 {
        Pending::Fatal
    } else if pending & caught & !blocked != 0 {
        Pending::Handled
    } else {
        Pending::Harmless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_signals_do_is_seen() {
        const KILL: u64 = 1 << 8;
        const QUIT: u64 = 1 << 2;
        const USR1: u64 = 1 << 9;
        const CHLD: u64 = 1 << 16;
        const STOP: u64 = 1 << 18;
        // Pending for the thread, for its process, blocked, ignored, caught.
        let table = [
            ([KILL, 0, 0, 0, 0], Pending::Fatal),
            ([0, KILL, KILL, KILL, KILL], Pending::Fatal),
            ([QUIT, 0, 0, 0, 0], Pending::Fatal),
            ([0, QUIT, 0, 0, 0], Pending::Fatal),
            ([0, QUIT, 0, 0, QUIT], Pending::Handled),
            ([0, QUIT, QUIT, 0, 0], Pending::Harmless),
            ([0, QUIT, QUIT, 0, QUIT], Pending::Harmless),
            ([USR1, 0, 0, USR1, 0], Pending::Harmless),
            ([USR1 | KILL, 0, 0, 0, USR1], Pending::Fatal),
            ([CHLD, CHLD, 0, 0, 0], Pending::Harmless),
            ([CHLD, 0, 0, 0, CHLD], Pending::Handled),
            ([STOP, 0, 0, 0, 0], Pending::Harmless),
            ([0, 0, 0, 0, 0], Pending::Harmless),
        ];
        for (masks, want) in table {
            let names = ["SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"];
            let lines = names.iter().zip(masks).map(|(name, mask)| format!("{name}:\t{mask:016x}\n"));
            let status: String = lines.collect();
            assert_eq!(pending_in(&status), want, "{status}");
        }
        assert_eq!(pending_in(""), Pending::Harmless);
        assert_eq!(pending_in("SigPnd:\tnonsense\n"), Pending::Harmless);
    }
}
