//! The steps of a plan, made by a thread of its own: where a listing or a question hangs, the reader can
//! still end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use super::plan::{Plan, Step};
use crate::failure::Failure;
use crate::progress::POLL;
use crate::signal::Interrupt;

/// Steps that are made ahead.
const AHEAD_MOST: usize = 1024;

/// What has to be done, in the order of names. It ends early where the program is interrupted.
pub struct Steps {
    /// `None` is the end of the plan.
    made: Receiver<Option<Step>>,
    interrupt: Interrupt,
    is_stopped: Arc<AtomicBool>,
    is_over: bool,
}

/// Ends steps that are read elsewhere, at the latest when it is dropped.
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.now();
    }
}

impl Steps {
    /// # Errors
    /// No thread can be started.
    pub fn of(plan: Plan, interrupt: Interrupt) -> Result<Steps, Failure> {
        let (make, made) = mpsc::sync_channel(AHEAD_MOST);
        let work = move || {
            // A reader that has stopped drops its end of the channel.
            let _ = plan.map(Some).chain([None]).all(|step| make.send(step).is_ok());
        };
        let builder = thread::Builder::new().name("flatout-plan".to_owned());
        builder.spawn(work).map_err(|refused| Failure::local("start", "a thread", &refused))?;
        Ok(Steps { made, interrupt, is_stopped: Arc::default(), is_over: false })
    }

    pub fn stop(&self) -> Stop {
        Stop(self.is_stopped.clone())
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        while !self.is_over && !self.is_stopped.load(Ordering::Relaxed) && !self.interrupt.raised() {
            match self.made.recv_timeout(POLL) {
                Ok(Some(step)) => return Some(step),
                Ok(None) => self.is_over = true,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.is_over = true;
                    let why = "compare: a thread ended early, and what it had still to compare is unknown";
                    return Some(Step::Unread(Failure::internal(why)));
                }
            }
        }
        None
    }
}
