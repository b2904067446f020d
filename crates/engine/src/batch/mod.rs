//! Many objects at once: one pace for all, small ones by one request each, the parts of large ones among
//! them.

pub(crate) mod puts;
mod shared;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use flatout_wire::location::Location;

pub(crate) use shared::Batch;
#[cfg(test)]
pub(crate) use shared::WEIGHT_STEP_BYTES;
pub(crate) use workers::run_batch_worker;

use crate::base::error::{Error, ErrorKind};
use crate::base::limited_by::LimitedBy;
use crate::base::report::Report;

/// One of many objects.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The object.
    pub location: Location,
    /// Its size in bytes where a listing told it: an object of at most one part is then asked for by one
    /// plain GET.
    pub size: Option<u64>,
    /// Where it lands: a path relative to the target folder. Nowhere else can be reached by it.
    pub name: String,
    /// A file that appears under that name meanwhile stays, and the object fails.
    pub keep_existing: bool,
    /// The file's time of change, in nanoseconds since 1970; without it that of its writing.
    pub modified_ns: Option<i128>,
}

/// What became of one of many objects.
#[derive(Debug)]
pub struct Finished {
    /// The object.
    pub wanted: Wanted,
    /// Its report, or why it failed; its file is then as it was before.
    pub result: Result<Report, Error>,
    /// Bytes of bodies received, also when it failed.
    pub fetched_bytes: u64,
    /// Attempts that were tried again.
    pub retries: u32,
    /// From its first request to its end.
    pub seconds: f64,
}

/// How far a get of many objects is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManyProgress {
    /// Objects known so far.
    pub objects: u64,
    /// Their bytes, as far as they are known.
    pub total_bytes: u64,
    /// Whether all objects are known: both totals stay from then on.
    pub is_complete: bool,
    /// Objects that have landed.
    pub ok: u64,
    /// Objects that failed.
    pub failed: u64,
    /// Bytes at their landing: of small objects when they are whole, of large ones as they come.
    pub landed_bytes: u64,
    /// Bytes of bodies received, as `landed_bytes` counts them; those that an earlier run had left are not
    /// among them.
    pub fetched_bytes: u64,
    /// Connections opened.
    pub connections: u32,
    /// Bytes of large objects that failed or were cut off and are kept for the next run.
    pub kept_bytes: u64,
    /// What holds the speed back now; `None` before somebody looked.
    pub limited_by: Option<LimitedBy>,
    /// What held it back longest so far.
    pub mostly_limited_by: Option<LimitedBy>,
}

/// A running get of many objects. Dropping it cancels, and waits until every shard has let go.
///
/// What became of each object is kept for [`Many::next`]; while nobody asks, the transfer goes a few thousand
/// objects ahead and then waits.
pub struct Many(Arc<Batch>);

impl Many {
    /// Starts the workers, and the thread that reads what is wanted.
    pub(crate) fn start(
        batch: Batch,
        wanted: impl Iterator<Item = Result<Wanted, Error>> + Send + 'static,
    ) -> Result<Many, Error> {
        let batch = Arc::new(batch);
        let many = Many(batch.clone());
        batch.open_for_work()?;
        let feeder = std::thread::Builder::new().name("flatout-feed".into());
        feeder
            .spawn(move || batch.feed(wanted))
            .map_err(|refused| Error::local("cannot start a thread", refused))?;
        Ok(many)
    }

    /// The objects that have ended since the last call: as soon as there are many of them, or after `within`,
    /// and then perhaps none. `None` when all is over.
    pub fn next(&mut self, within: Duration) -> Option<Vec<Finished>> {
        self.0.next(within)
    }

    /// Why it ended before all objects were asked for, where the listing broke off or the origin was away for
    /// too long ([`Error::is_outage`]): to be asked when all is over.
    pub fn incomplete(&self) -> Option<Error> {
        self.0.take_incomplete()
    }

    /// How far it is.
    pub fn progress(&self) -> ManyProgress {
        self.0.progress()
    }

    /// A handle that tells progress and cancels, from any thread.
    pub fn watch(&self) -> ManyWatch {
        ManyWatch(self.0.clone())
    }
}

impl Drop for Many {
    /// A child process that inherited it has no shard to wait for.
    fn drop(&mut self) {
        if self.0.is_ours() {
            self.0.cancel();
            self.0.wait();
        }
    }
}

/// Tells the progress of a get of many objects, and cancels it.
#[derive(Clone)]
pub struct ManyWatch(Arc<Batch>);

impl ManyWatch {
    /// How far it is.
    pub fn progress(&self) -> ManyProgress {
        self.0.progress()
    }

    /// Ends it: what is on its way is dropped, nothing more is begun. Objects that have landed stay.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

fn closed_meanwhile() -> Error {
    Error::new(ErrorKind::Cancelled, "the client was closed while objects were fetched")
}

/// An object in a queue, besides its names; measured as the weights in `memory/plan.rs` are.
const OBJECT_BYTES: u64 = 1_216;

/// What an object weighs from when it is known until its end is told.
pub(crate) fn weight(wanted: &Wanted) -> u64 {
    // Its key is in its location and its file's name, and in the report's words.
    OBJECT_BYTES + 3 * wanted.location.key().len() as u64 + 2 * wanted.name.len() as u64
}
