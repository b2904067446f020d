//! The segments of one version that are there or on their way, and the reads that wait for them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Object;
use super::readers::Readers;
use super::segment::{Landed, Pieces, Segment};
use crate::client::Core;
use crate::error::Error;
use crate::gate::{Gate, Team};
use crate::hold::Hold;
use crate::landing::Ground;
use crate::object::ObjectRequests;
use crate::pinned::Pinned;
use crate::queue::Priority;
use crate::shard::Job;
use crate::transfer::Running;

/// What a read calls when it is over.
pub(super) type Done = Box<dyn FnOnce(Result<Pieces, Error>) + Send>;
/// What says which object comes next.
pub(super) type Next = Box<dyn FnOnce() -> Option<Object> + Send>;

/// One version of an object, and what is there of it.
pub(crate) struct Shelf {
    pub(crate) object: Object,
    core: Arc<Core>,
    gate: Arc<Gate>,
    requests: Arc<ObjectRequests>,
    pinned: Arc<Pinned>,
    state: Mutex<State>,
}

/// One of those who read it.
pub(crate) struct Handle(Arc<Shelf>);

impl Handle {
    pub(super) fn new(shelf: Arc<Shelf>) -> Handle {
        shelf.lock().handles += 1;
        Handle(shelf)
    }

    pub(super) fn shelf(&self) -> &Arc<Shelf> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut after = After::default();
        {
            let mut state = self.0.lock();
            state.handles -= 1;
            if state.handles == 0 {
                state.clear(&mut after);
            }
        }
        after.run(&self.0);
    }
}

#[derive(Default)]
struct State {
    handles: u32,
    /// By where they start; they do not overlap.
    places: BTreeMap<u64, Place>,
    waits: HashMap<u64, Wait>,
    next_wait: u64,
    next: Option<Next>,
}

/// A segment in its place.
struct Place {
    segment: Arc<Segment>,
    /// Its transfer, as long as that runs.
    running: Weak<Running>,
    /// Reads that wait until so many of its bytes have landed.
    waits: Vec<(u64, u64)>,
}

/// A read that waits.
struct Wait {
    range: Range<u64>,
    done: Done,
    /// Where its bytes are, or will be.
    pieces: Pieces,
    /// In how many segments they have not all landed.
    missing: usize,
}

/// What is done when the lock has been given back.
#[derive(Default)]
struct After {
    start: Vec<Arc<Running>>,
    cancel: Vec<Arc<Running>>,
    calls: Vec<(Done, Result<Pieces, Error>)>,
    gone: Vec<Arc<Segment>>,
}

impl After {
    fn run(self, shelf: &Arc<Shelf>) {
        for running in self.start {
            shelf.start(running);
        }
        for running in self.cancel {
            running.fail(Error::new(crate::error::ErrorKind::Cancelled, "nobody reads it any more"));
        }
        drop(self.gone);
        for (done, result) in self.calls {
            done(result);
        }
    }
}

impl Shelf {
    pub(super) fn new(core: &Arc<Core>, object: Object) -> Shelf {
        let Object { location, size, etag } = &object;
        let requests = ObjectRequests::new(core.account.clone(), location.clone());
        Shelf {
            core: core.clone(),
            gate: core.gate_of(location),
            requests: Arc::new(requests),
            pinned: Arc::new(Pinned::new(location.to_string(), etag.clone(), *size)),
            object,
            state: Mutex::default(),
        }
    }

    /// Reads; the number of the wait where it is not over when this returns.
    pub(super) fn read(
        self: &Arc<Shelf>,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Pieces, Error>) + Send + 'static,
    ) -> Option<u64> {
        let end = at.saturating_add(bytes as u64).min(self.object.size);
        if at >= end {
            done(Ok(Pieces::default()));
            return None;
        }
        let mut after = After::default();
        let wait = self.lock().wait(self, at..end, Box::new(done), &mut after);
        self.readers().counts.waits.fetch_add(1, Ordering::Relaxed);
        after.run(self);
        Some(wait)
    }

    /// Whether the read was still waiting.
    pub(super) fn cancel(self: &Arc<Shelf>, wait: u64) -> bool {
        let mut after = After::default();
        let waited = self.lock().cancel(wait, &mut after);
        after.run(self);
        waited
    }

    pub(super) fn set_next(&self, next: Next) {
        self.lock().next = Some(next);
    }

    /// Bytes of a segment have landed that somebody waits for.
    pub(super) fn on_landed(self: &Arc<Shelf>, segment: &Arc<Segment>) {
        let mut after = After::default();
        self.lock().on_landed(segment, &mut after);
        self.count_served(&after);
        after.run(self);
    }

    /// The transfer of a segment has ended.
    pub(super) fn on_end(self: &Arc<Shelf>, segment: &Arc<Segment>, result: Result<(), Error>, fetched: u64) {
        self.readers().counts.fetched_bytes.fetch_add(fetched, Ordering::Relaxed);
        let mut after = After::default();
        match result {
            Ok(()) => self.lock().on_landed(segment, &mut after),
            Err(error) => self.lock().on_failed(segment, error, &mut after),
        }
        self.count_served(&after);
        after.run(self);
    }

    fn count_served(&self, after: &After) {
        let served =
            |(_, result): &(Done, Result<Pieces, Error>)| result.as_ref().map_or(0, Pieces::len) as u64;
        let served: u64 = after.calls.iter().map(served).sum();
        self.readers().counts.served_bytes.fetch_add(served, Ordering::Relaxed);
    }

    /// A transfer for a segment.
    fn transfer(self: &Arc<Shelf>, segment: &Arc<Segment>, priority: Priority) -> Arc<Running> {
        let landed = Landed { segment: segment.clone(), shelf: self.clone(), is_whole: false };
        let turns = self.gate.turns(self.gate.new_asker(), priority);
        Arc::new(Running::of_version(
            self.requests.clone(),
            self.pinned.clone(),
            segment.range.clone(),
            Ground::Segment(landed),
            self.gate.clone(),
            self.core.care(),
            turns,
        ))
    }

    /// Sends a transfer to the shard that has least to do.
    fn start(&self, running: Arc<Running>) {
        let post = self.gate.join_anywhere(Team::Transfer(Arc::downgrade(&running)));
        let (hold, shard) = (Hold::new(running.clone()), post.shard());
        if let Err(error) = self.core.send(shard, Job::Segment(hold, post)) {
            running.fail(error);
        }
    }

    fn readers(&self) -> &Readers {
        &self.core.readers
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.core.readers.forget(&self.object);
    }
}

impl State {
    /// A read that is not all there: whatever is missing of it is asked for.
    fn wait(&mut self, shelf: &Arc<Shelf>, range: Range<u64>, done: Done, after: &mut After) -> u64 {
        self.next_wait += 1;
        let wait = self.next_wait;
        let memory = match shelf.readers().lease(range.end - range.start) {
            Ok(Some(memory)) => Ok(memory),
            Ok(None) => shelf.readers().overdraw(range.end - range.start),
            Err(error) => Err(error),
        };
        let memory = match memory {
            Ok(memory) => memory,
            Err(error) => {
                after.calls.push((done, Err(error)));
                return wait;
            }
        };
        let segment = Arc::new(Segment::new(range.clone(), memory));
        segment.wait_for(Some(segment.bytes()));
        let running = shelf.transfer(&segment, Priority::Awaited);
        let mut pieces = Pieces::default();
        pieces.push(&segment, &range);
        let place =
            Place { waits: vec![(segment.bytes(), wait)], segment, running: Arc::downgrade(&running) };
        self.places.insert(wait, place);
        self.waits.insert(wait, Wait { range, done, pieces, missing: 1 });
        after.start.push(running);
        wait
    }

    fn at(&mut self, segment: &Arc<Segment>) -> Option<u64> {
        self.places.iter().find(|(_, place)| Arc::ptr_eq(&place.segment, segment)).map(|(at, _)| *at)
    }

    fn on_landed(&mut self, segment: &Arc<Segment>, after: &mut After) {
        let Some(at) = self.at(segment) else { return };
        let Some(place) = self.places.remove(&at) else { return };
        for (_, wait) in place.waits {
            if let Some(wait) = self.waits.remove(&wait) {
                after.calls.push((wait.done, Ok(wait.pieces)));
            }
        }
        after.gone.push(place.segment);
    }

    fn on_failed(&mut self, segment: &Arc<Segment>, error: Error, after: &mut After) {
        let Some(at) = self.at(segment) else { return };
        let Some(place) = self.places.remove(&at) else { return };
        for (_, wait) in place.waits {
            if let Some(wait) = self.waits.remove(&wait) {
                after.calls.push((wait.done, Err(error.once_more())));
            }
        }
        after.gone.push(place.segment);
    }

    fn cancel(&mut self, wait: u64, after: &mut After) -> bool {
        let Some(_wait) = self.waits.remove(&wait) else { return false };
        if let Some(place) = self.places.remove(&wait) {
            after.cancel.extend(place.running.upgrade());
            after.gone.push(place.segment);
        }
        true
    }

    fn clear(&mut self, _after: &mut After) {}
}
