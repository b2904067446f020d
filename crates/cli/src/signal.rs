//! SIGINT, SIGTERM and the hang-up of a terminal: the first ends the work in good order, a second one, or too long a delay, at once.

use std::fs;
use std::io;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// How long the work may take to end in good order, for instance while a full pipe blocks a write.
const GRACE: Duration = Duration::from_secs(5);

/// Knows whether a signal came, and what is to be ended when one comes.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    raised: bool,
    next_id: u64,
    hooks: Vec<(u64, Option<Hook>)>,
}

type Hook = Box<dyn Fn() + Send>;

/// While this lives, a signal does not end the program but runs the hook.
pub struct Armed {
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
    pub fn arm(&self) -> Armed {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        state.hooks.push((id, None));
        Armed { interrupt: self.clone(), id }
    }

    /// Whether a signal came.
    pub fn raised(&self) -> bool {
        self.state().raised
    }

    /// With nothing to end in good order there is nothing to wait for.
    fn raise(&self) {
        let mut state = self.state();
        if state.raised || state.hooks.is_empty() {
            process::exit(Exit::Interrupted.code().into());
        }
        state.raised = true;
        state.hooks.iter().filter_map(|(_, hook)| hook.as_ref()).for_each(|hook| hook());
        thread::spawn(|| {
            thread::sleep(GRACE);
            process::exit(Exit::Interrupted.code().into());
        });
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether whoever started us, such as nohup, wants a closed terminal to mean nothing.
fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    ignored & 1 << (SIGHUP - 1) != 0
}

impl Armed {
    /// Runs `hook` when the first signal comes, or now if it has come already.
    pub fn on_signal(&self, hook: impl Fn() + Send + 'static) {
        let mut state = self.interrupt.state();
        if state.raised {
            hook();
        }
        let mine = state.hooks.iter_mut().find(|(id, _)| *id == self.id);
        mine.expect("it stays until it is dropped").1 = Some(Box::new(hook));
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.interrupt.state().hooks.retain(|(id, _)| *id != self.id);
    }
}
