//! Calls that asyncio awaits: what is in flight, what becomes of it, and how the loop learns that it has
//! ended.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_engine::{BlockingCall, CancelSwitch, Reading, Report};
use pyo3::prelude::*;

use crate::call_progress::CallProgress;
use crate::destination::{Destination, OwnedTransfer};
use crate::engine::{Engine, OnClose};
use crate::errors::Failure;
use crate::log;

/// Turns the end of a transfer into the result of its call.
pub type SettleTransfer =
    Box<dyn FnOnce(Python<'_>, Result<Report, Failure>, Destination) -> PyResult<Py<PyAny>> + Send>;

/// Returns the result of a call that has ended.
pub type Settle = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// What is in flight.
pub enum Work {
    Transfer(OwnedTransfer, SettleTransfer),
    /// On a thread of the engine's.
    Call(#[allow(dead_code, reason = "dropped, it is not begun any more")] BlockingCall, Settle),
    /// Of a file; `None` for bytes that were prefetched, which this call must not cancel.
    Read(Option<Reading>, Settle),
}

/// A call that is awaited.
pub struct PendingCall {
    pub work: Work,
    pub progress: Option<CallProgress>,
    pub engine: Arc<Engine>,
}

impl PendingCall {
    pub fn switch(&self) -> Option<CancelSwitch> {
        match &self.work {
            Work::Transfer(transfer, _) => Some(transfer.cancel_switch()),
            Work::Call(..) | Work::Read(..) => None,
        }
    }

    pub fn settle(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let PendingCall { work, progress, engine } = self;
        let end = |py: Python<'_>| {
            log::report(py, &engine);
            if let Some(progress) = progress {
                progress.end(py);
            }
        };
        match work {
            Work::Transfer(transfer, settle) => {
                let (result, destination) = transfer.wait();
                end(py);
                settle(
                    py,
                    result.map_err(|failure| if engine.is_closed() { Engine::closed() } else { failure }),
                    destination,
                )
            }
            Work::Call(_, settle) | Work::Read(_, settle) => {
                end(py);
                settle(py)
            }
        }
    }
}

/// The tickets of calls that have ended, and an eventfd that wakes the loop.
pub struct EndedTickets {
    pub event: OwnedFd,
    pub tickets: Mutex<Vec<u64>>,
}

impl EndedTickets {
    pub fn add(&self, ticket: u64) {
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

/// Adds a ticket to those that have ended when it is dropped.
pub struct NotifyOnDrop {
    pub ended: Arc<EndedTickets>,
    pub ticket: u64,
}

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.ended.add(self.ticket);
    }
}

/// The calls of one loop, which end when their client is closed.
pub struct AwaitedCalls {
    pub ended: Arc<EndedTickets>,
    pub calls: Mutex<CallTable>,
}

#[derive(Default)]
pub struct CallTable {
    pub next: u64,
    pub pending: HashMap<u64, PendingCall>,
    /// Ended before they were entered here.
    pub early: HashSet<u64>,
    /// Cancelled, with their end still to come.
    pub cancelled: HashSet<u64>,
    pub is_closed: bool,
}

impl AwaitedCalls {
    pub fn calls(&self) -> MutexGuard<'_, CallTable> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a call as soon as possible: one without a transfer at once, whatever its thread still does.
    pub fn end(&self, ticket: u64, call: &PendingCall) {
        match call.switch() {
            Some(switch) => switch.cancel(),
            None => self.ended.add(ticket),
        }
    }
}

impl OnClose for AwaitedCalls {
    fn on_close(&self, engine: &Engine) {
        let calls = self.calls();
        for (ticket, call) in &calls.pending {
            if std::ptr::eq(&*call.engine, engine) {
                self.end(*ticket, call);
            }
        }
    }
}
