//! A process that does nothing but start the engine, and start it again where it dies: within milliseconds,
//! where Kubernetes takes seconds.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Log;

/// An engine that lived for less than this has died of something that it met at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// After so many short lives in a row Kubernetes is left to try.
const SHORT_LIVES_MOST: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the engine by `command`, until a signal has ended it or it cannot live. `on_signal` is handed what
/// is to be done with every signal.
///
/// # Errors
/// It cannot be started.
pub fn keep(
    mut command: Command,
    log: &Log,
    on_signal: impl FnOnce(Box<dyn Fn() + Send + Sync>),
) -> io::Result<ExitStatus> {
    let (child, is_to_end) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (told, wanted) = (child.clone(), is_to_end.clone());
    on_signal(Box::new(move || {
        wanted.store(true, Ordering::SeqCst);
        let pid = told.load(Ordering::SeqCst);
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }));
    let mut short_lives = 0;
    loop {
        let since = Instant::now();
        let mut engine: Child = command.spawn()?;
        child.store(engine.id(), Ordering::SeqCst);
        if is_to_end.load(Ordering::SeqCst) {
            // The signal came before its number was known.
            let _ = engine.kill();
        }
        let status = engine.wait()?;
        child.store(0, Ordering::SeqCst);
        if is_to_end.load(Ordering::SeqCst) {
            return Ok(status);
        }
        short_lives = if since.elapsed() < SHORT_LIFE { short_lives + 1 } else { 0 };
        if short_lives >= SHORT_LIVES_MOST {
            log.say(&format!("engine: it died {short_lives} times in a row at once ({status}): given up"));
            return Ok(status);
        }
        log.say(&format!("engine: it died ({status}): another goes on"));
        thread::sleep(PAUSE * short_lives);
    }
}
