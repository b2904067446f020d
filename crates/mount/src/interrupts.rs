//! Signals to waiting threads: a thread that is being killed is answered at once; one that handles a signal
//! waits a little longer.
//!
//! The kernel sends one INTERRUPT for a request, at the first signal of any kind, and none when SIGKILL
//! follows. EINTR for each of them would fail reads that never fail on a disk: Go's runtime, profilers and
//! timers send signals all the time, and programs do not expect EINTR from a file. So a handled signal counts
//! after a while; until then the thread is watched. A signal that is not handled, such as one that stops the
//! thread, does not count.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::connection::PendingRequest;

/// A thread that handles a signal gets EINTR after this time: Ctrl-C in Python must not wait for a dead
/// origin.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often threads with a signal are checked: a killed reader must end within a second.
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
    /// Runs as long as there is a thread to watch.
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

    /// The thread that waits for this request got a signal.
    pub fn on_signal(&self, request: &Arc<PendingRequest>) {
        if effect(request) == SignalEffect::Fatal {
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
                // The previous thread has left its loop.
                state.watch = Some(thread);
            }
            Err(_) => {
                drop(state);
                request.interrupt();
            }
        }
    }

    /// Stops watching, and joins the thread.
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
                Some(request) => match effect(&request) {
                    SignalEffect::Handled if now < *until => true,
                    SignalEffect::Harmless => true,
                    SignalEffect::Fatal | SignalEffect::Handled => {
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

/// What its pending signals do to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignalEffect {
    /// They end it.
    Fatal,
    /// It handles one of them.
    Handled,
    /// Neither.
    Harmless,
}

/// A thread that cannot be looked at may be ending.
fn effect(request: &PendingRequest) -> SignalEffect {
    let status = request.pid().and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok());
    status.map_or(SignalEffect::Fatal, |status| effect_in(&status))
}

/// From /proc/PID/status. SIGKILL is fatal, and so is any signal that is not caught, ignored, blocked or
/// harmless by default.
///
/// A signal that ends the process, such as Ctrl-C's, becomes SIGKILL for each thread (`complete_signal` in
/// kernel/signal.c); one that dumps core stays itself.
fn effect_in(status: &str) -> SignalEffect {
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
        SignalEffect::Fatal
    } else if pending & caught & !blocked != 0 {
        SignalEffect::Handled
    } else {
        SignalEffect::Harmless
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
        // Pending for the thread, pending for its process, blocked, ignored, caught.
        let table = [
            ([KILL, 0, 0, 0, 0], SignalEffect::Fatal),
            ([0, KILL, KILL, KILL, KILL], SignalEffect::Fatal),
            ([QUIT, 0, 0, 0, 0], SignalEffect::Fatal),
            ([0, QUIT, 0, 0, 0], SignalEffect::Fatal),
            ([0, QUIT, 0, 0, QUIT], SignalEffect::Handled),
            ([0, QUIT, QUIT, 0, 0], SignalEffect::Harmless),
            ([0, QUIT, QUIT, 0, QUIT], SignalEffect::Harmless),
            ([USR1, 0, 0, USR1, 0], SignalEffect::Harmless),
            ([USR1 | KILL, 0, 0, 0, USR1], SignalEffect::Fatal),
            ([CHLD, CHLD, 0, 0, 0], SignalEffect::Harmless),
            ([CHLD, 0, 0, 0, CHLD], SignalEffect::Handled),
            ([STOP, 0, 0, 0, 0], SignalEffect::Harmless),
            ([0, 0, 0, 0, 0], SignalEffect::Harmless),
        ];
        for (masks, want) in table {
            let names = ["SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"];
            let lines = names.iter().zip(masks).map(|(name, mask)| format!("{name}:\t{mask:016x}\n"));
            let status: String = lines.collect();
            assert_eq!(effect_in(&status), want, "{status}");
        }
        assert_eq!(effect_in(""), SignalEffect::Harmless);
        assert_eq!(effect_in("SigPnd:\tnonsense\n"), SignalEffect::Harmless);
    }
}
