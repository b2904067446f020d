//! The transfers of one call: started by number, taken as they end, ended together.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flatout_engine::Report;
use pyo3::prelude::*;

use crate::destination::{Destination, OwnedTransfer, Request};
use crate::engine::Engine;
use crate::errors::Failure;
use crate::exit;
use crate::waiting;

/// Transfers in flight, each with an item of the caller's. Dropping the set cancels them and waits until no
/// thread writes to any destination.
///
/// The caller bounds how many run and how much memory they take: [`TransferSet::running`] shows what there
/// is.
pub struct TransferSet<T> {
    // Dropped before the engine.
    running: BTreeMap<u64, (OwnedTransfer, T)>,
    engine: Arc<Engine>,
    /// The numbers of those that have ended, unless they are taken in order of their numbers.
    ended: Option<(Sender<u64>, Mutex<Receiver<u64>>)>,
}

/// Which transfer is taken next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The one with the lowest number.
    Number,
    /// The one that ends first.
    End,
}

/// A transfer that has ended.
pub struct Ended<T> {
    pub number: u64,
    pub result: Result<Report, Failure>,
    pub destination: Destination,
    pub item: T,
}

impl<T: Send + Sync> TransferSet<T> {
    pub fn new(engine: Arc<Engine>, order: Order) -> TransferSet<T> {
        let ended = (order == Order::End).then(|| {
            let (sender, receiver) = mpsc::channel();
            (sender, Mutex::new(receiver))
        });
        TransferSet { running: BTreeMap::new(), engine, ended }
    }

    /// Starts a transfer under a number that no other one in flight has.
    ///
    /// # Errors
    /// The outer one concerns the whole call (the interpreter ends), the inner one this transfer alone.
    pub fn start(
        &mut self,
        py: Python<'_>,
        number: u64,
        request: impl Into<Request>,
        destination: Destination,
        item: T,
    ) -> PyResult<Result<&OwnedTransfer, Failure>> {
        let mut request = request.into();
        if let Some((sender, _)) = &self.ended {
            let sender = sender.clone();
            request = request.on_end(move || {
                // The set may be gone.
                let _ = sender.send(number);
            });
        }
        let engine = &self.engine;
        let started = waiting::without_gil(py, || OwnedTransfer::start(engine, request, destination))?;
        Ok(started.map_err(Failure::from).map(|transfer| {
            let entry = self.running.entry(number).insert_entry((transfer, item));
            &entry.into_mut().0
        }))
    }

    /// Waits for the next one in the order of this set; `None` where none is in flight.
    ///
    /// # Errors
    /// Those of [`waiting::wait_until`]; all transfers then still run.
    pub fn next(&mut self, py: Python<'_>) -> PyResult<Option<Ended<T>>> {
        let Some((&first, (transfer, _))) = self.running.first_key_value() else { return Ok(None) };
        let mut number = first;
        match &mut self.ended {
            None => waiting::wait_until(py, &self.engine, |slice| transfer.wait_timeout(slice))?,
            Some((_, receiver)) => {
                let receiver = receiver.get_mut().unwrap_or_else(PoisonError::into_inner);
                let (running, found) = (&self.running, &mut number);
                waiting::wait_until(py, &self.engine, move |slice| {
                    let Ok(ended) = receiver.recv_timeout(slice) else { return false };
                    *found = ended;
                    // A number may be that of a transfer which was taken out, and used again.
                    running.get(&ended).is_some_and(|(transfer, _)| transfer.wait_timeout(Duration::ZERO))
                })?;
            }
        }
        let (transfer, item) = self.running.remove(&number).expect("it was there a moment ago");
        let (result, destination) = transfer.wait();
        Ok(Some(Ended { number, result, destination, item }))
    }

    /// Takes out those whose object turned out to be larger than their destination allows: each number, the
    /// object's size, and the item.
    pub fn take_too_large(&mut self, py: Python<'_>) -> Vec<(u64, u64, T)> {
        if self.running.values().all(|(transfer, _)| transfer.destination().beyond().is_none()) {
            return Vec::new();
        }
        let (mut taken, mut transfers) = (Vec::new(), Vec::new());
        let is_too_large =
            |_: &u64, (transfer, _): &mut (OwnedTransfer, T)| transfer.destination().beyond().is_some();
        for (number, (transfer, item)) in self.running.extract_if(.., is_too_large) {
            let bytes = transfer.destination().beyond().expect("it was a moment ago");
            taken.push((number, bytes, item));
            transfers.push(transfer);
        }
        exit::detached(py, || drop(transfers));
        taken
    }

    /// Those in flight, in order of their numbers.
    pub fn running(&self) -> impl ExactSizeIterator<Item = &(OwnedTransfer, T)> {
        self.running.values()
    }

    /// The lowest number in flight.
    pub fn first(&self) -> Option<u64> {
        self.running.first_key_value().map(|(number, _)| *number)
    }
}

impl<T> TransferSet<T> {
    /// Cancels all transfers, and returns when no thread writes to any destination.
    pub fn clear(&mut self) {
        let running = std::mem::take(&mut self.running);
        if running.is_empty() {
            return;
        }
        if self.engine.is_foreign() {
            // Started by the process that forked this one: perhaps under locks that no thread opens here.
            std::mem::forget(running);
            return;
        }
        running.values().for_each(|(transfer, _)| transfer.cancel_switch().cancel());
        let (transfers, items): (Vec<_>, Vec<_>) = running.into_values().unzip();
        let mut left = Some(transfers);
        Python::try_attach(|py| exit::detached(py, || drop(left.take())));
        // Without an interpreter no lock has to be left.
        drop(left);
        drop(items);
    }
}

impl<T> Drop for TransferSet<T> {
    fn drop(&mut self) {
        self.clear();
    }
}
