//! Calls that somebody awaits: what is under way, what becomes of it, and how it is known that it has ended.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_engine::{BlockingCall, CancelSwitch, Error, Reading, Report, Transfer};
use pyo3::prelude::*;

use crate::engine::{Closing, Engine};
use crate::errors::Failure;
use crate::log;
use crate::watching::Watching;

/// Makes of what has ended what Python is to get; a report comes from a transfer alone.
pub type Settle = Box<dyn FnOnce(Python<'_>, Result<Option<Report>, Failure>) -> PyResult<Py<PyAny>> + Send>;

/// What is under way.
pub enum Work {
    Transfer(Transfer),
    /// On a thread of the engine's blocking pool, until nobody awaits it any more.
    Call(Option<BlockingCall>),
    /// Of a file; none where it is not this call's to give up.
    Reading(Option<Reading>),
}

/// A call that somebody awaits.
pub struct Pending {
    /// Goes before what it lands in, which `settle` holds.
    pub work: Work,
    pub settle: Settle,
    pub watching: Option<Watching>,
    pub engine: Arc<Engine>,
}

impl Pending {
    pub fn switch(&self) -> Option<CancelSwitch> {
        match &self.work {
            Work::Transfer(transfer) => Some(transfer.cancel_switch()),
            Work::Call(_) | Work::Reading(_) => None,
        }
    }

    pub fn settle(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Pending { work, settle, watching, engine } = self;
        let end = match work {
            Work::Transfer(transfer) => transfer.wait().map(Some),
            Work::Call(_) | Work::Reading(_) => Ok(None),
        };
        log::tell(py, &engine);
        if let Some(watching) = watching {
            watching.end(py);
        }
        settle(
            py,
            end.map_err(|error: Error| match engine.is_closed() {
                true => Engine::closed(),
                false => error.into(),
            }),
        )
    }
}

/// Whoever ends writes here.
pub struct Ended {
    pub event: OwnedFd,
    pub tickets: Mutex<Vec<u64>>,
}

impl Ended {
    pub fn note(&self, ticket: u64) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.push(ticket);
        if tickets.len() == 1 {
            // A counter that is full wakes the loop as well.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    pub fn take(&self) -> Vec<u64> {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        std::mem::take(&mut *tickets)
    }
}

/// Says that a call has ended when it is dropped.
pub struct NotedAtEnd {
    pub ended: Arc<Ended>,
    pub ticket: u64,
}

impl Drop for NotedAtEnd {
    fn drop(&mut self) {
        self.ended.note(self.ticket);
    }
}

/// What a client that is closed has to end as well.
pub struct Awaited {
    pub ended: Arc<Ended>,
    pub calls: Mutex<Calls>,
}

#[derive(Default)]
pub struct Calls {
    pub next: u64,
    pub pending: HashMap<u64, Pending>,
    /// Ended before it was known that they had begun.
    pub early: HashSet<u64>,
    /// Nobody awaits them any more, and their end is still to come.
    pub given_up: HashSet<u64>,
    pub is_closed: bool,
}

impl Awaited {
    pub fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a call as soon as may be: one without a transfer at once, whatever its thread still does.
    pub fn end(&self, ticket: u64, pending: &Pending) {
        match pending.switch() {
            Some(switch) => switch.cancel(),
            None => self.ended.note(ticket),
        }
    }
}

impl Closing for Awaited {
    fn closed(&self, engine: &Engine) {
        let calls = self.calls();
        for (ticket, pending) in &calls.pending {
            if std::ptr::eq(&*pending.engine, engine) {
                self.end(*ticket, pending);
            }
        }
    }
}
