//! SIGINT, SIGTERM and the hang-up of a terminal. The first signal ends the work in good order; a second one,
//! or too long a delay, ends the program at once.

use std::fs;
use std::io;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::exit::Exit;
use crate::temporary_files::TemporaryFiles;

/// How long the work may take to end in good order, for instance while a full pipe blocks a write. Parts of
/// an upload are deleted meanwhile, for which there are five seconds, and the error is said after them.
const GRACE: Duration = Duration::from_secs(7);

/// Signals closer together are one: timeout(1) tells the program and then its group.
const TOGETHER: Duration = Duration::from_millis(300);

/// Knows whether a signal came, and what is to be ended when one comes.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<InterruptState>>);

#[derive(Default)]
struct InterruptState {
    /// When the first signal came.
    raised: Option<Instant>,
    /// Whether a second signal means no more than the first.
    patient: bool,
    next_id: u64,
    hooks: Vec<(u64, Option<Hook>)>,
    temporary: TemporaryFiles,
    handler: Option<SignalHandler>,
}

type Hook = Box<dyn Fn() + Send>;

/// Hears of every signal, and sees to the end of the program.
struct SignalHandler {
    run: Arc<dyn Fn(u32) + Send + Sync>,
    count: u32,
    last: Option<Instant>,
}

/// While this lives, a signal does not end the program but runs the hook.
pub struct CancelOnSignal {
    interrupt: Interrupt,
    id: u64,
}

impl Interrupt {
    /// Starts the thread that waits for signals.
    pub fn listen() -> io::Result<Interrupt> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        if !ignores_hang_up() {
            signals.add_signal(SIGHUP)?;
        }
        // A write past `ulimit -f` is to be an error like a full disk, not a death that leaves things behind.
        flag::register(SIGXFSZ, Arc::default())?;
        let interrupt = Interrupt::default();
        let raised = interrupt.clone();
        thread::Builder::new().name("signals".into()).spawn(move || {
            for _ in signals.forever() {
                raised.raise();
            }
        })?;
        Ok(interrupt)
    }

    /// To be called before there is anything to end: from here on a signal leaves the program time for it.
    pub fn arm(&self) -> CancelOnSignal {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        state.hooks.push((id, None));
        CancelOnSignal { interrupt: self.clone(), id }
    }

    /// From here on neither a second signal nor a delay ends the program: `run` is called for each signal,
    /// counted from 1, and sees to the end. It is called for a signal that came before, too.
    pub fn handle(&self, run: impl Fn(u32) + Send + Sync + 'static) {
        let mut state = self.state();
        let was_raised = state.raised.is_some();
        state.handler = Some(SignalHandler { run: Arc::new(run), count: 0, last: None });
        drop(state);
        if was_raised {
            self.raise();
        }
    }

    /// Whether a signal came.
    pub fn raised(&self) -> bool {
        self.state().raised.is_some()
    }

    /// For a child: a terminal tells it what its parent tells it too, and that is one interrupt, not two.
    pub fn be_patient(&self) {
        self.state().patient = true;
    }

    /// The files that go with a program that a signal ends at once.
    pub fn temporary_files(&self) -> TemporaryFiles {
        self.state().temporary.clone()
    }

    /// With nothing to end in good order there is nothing to wait for.
    fn raise(&self) {
        let mut state = self.state();
        if let Some(handler) = &mut state.handler {
            if handler.last.is_some_and(|last| last.elapsed() < TOGETHER) {
                return;
            }
            (handler.count, handler.last) = (handler.count + 1, Some(Instant::now()));
            let (run, count) = (handler.run.clone(), handler.count);
            // The handler may take long, and takes this lock.
            drop(state);
            return run(count);
        }
        match state.raised {
            Some(first) if state.patient || first.elapsed() < TOGETHER => return,
            None if !state.hooks.is_empty() => {}
            _ => end(&state),
        }
        state.raised = Some(Instant::now());
        state.hooks.iter().filter_map(|(_, hook)| hook.as_ref()).for_each(|hook| hook());
        let interrupt = self.clone();
        thread::spawn(move || {
            thread::sleep(GRACE);
            let state = interrupt.state();
            if state.handler.is_none() {
                end(&state);
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, InterruptState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the program at once.
fn end(state: &InterruptState) -> ! {
    let _nothing_is_made = state.temporary.remove_all();
    process::exit(Exit::Interrupted.code().into())
}

/// Whether whoever started us, such as nohup, wants a closed terminal to mean nothing.
fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    ignored & 1 << (SIGHUP - 1) != 0
}

impl CancelOnSignal {
    /// Runs `hook` when the first signal comes, or now if it has come already.
    pub fn on_signal(&self, hook: impl Fn() + Send + 'static) {
        let mut state = self.interrupt.state();
        if state.raised.is_some() {
            hook();
        }
        let mine = state.hooks.iter_mut().find(|(id, _)| *id == self.id);
        mine.expect("it stays until it is dropped").1 = Some(Box::new(hook));
    }
}

impl Drop for CancelOnSignal {
    fn drop(&mut self) {
        self.interrupt.state().hooks.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_hears_of_every_signal_and_nothing_else_ends() {
        let interrupt = Interrupt::default();
        let guard = interrupt.arm();
        interrupt.raise();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        interrupt.handle(move |count| hears.lock().unwrap().push(count));
        assert_eq!(*heard.lock().unwrap(), [1], "the one before");
        interrupt.raise();
        assert_eq!(*heard.lock().unwrap(), [1], "closer together are one");
        interrupt.state().handler.as_mut().unwrap().last = None;
        interrupt.raise();
        assert_eq!(*heard.lock().unwrap(), [1, 2]);
        drop(guard);
    }
}
