//! How a put begins: what is refused at once, the source, and the lead on its way to a shard.

use std::sync::Arc;

use crate::api::account::{Dialect, check_writable};
use crate::base::error::{Error, ErrorKind};
use crate::base::operation::Direction;
use crate::base::version::Object;
use crate::shard::shards::{Job, Shards, Task};
use crate::shard::shared::Shared;
use crate::source::Source;
use crate::transfer::guard::TransferGuard;
use crate::transfer::handle::Transfer;
use crate::transfer::put::{Edits, Put};
use crate::transfer::resources::{Resources, TransferOptions};
use crate::transfer::upload::{PART_LEAST, Upload};
use crate::transfer::upload_workers::{run_upload, work_source};

impl Put {
    /// Opens the source, and sends the lead to a shard.
    pub(crate) fn start(self, shared: &Arc<Shared>, shards: &Arc<Shards>) -> Result<Transfer, Error> {
        self.check().map_err(|error| error.during("upload", &self.location))?;
        let gate = shared.gate_of(&self.location, Direction::Write);
        let resources = Resources {
            slots: gate.slots(gate.new_transfer(), self.priority),
            gate: gate.clone(),
            shards: shards.clone(),
            care: TransferOptions::of(&shared.settings),
        };
        let running = Arc::new(Upload::start(self, shared.account.clone(), resources)?);
        let seat = gate.join_idlest(running.transfer.slots.transfer(), work_source(&running));
        let way =
            shards.way_to(seat.shard()).inspect_err(|_| gate.leave(running.transfer.slots.transfer()))?;
        let hold = TransferGuard::new(running.clone());
        let lead = Task::new(move |shard| run_upload(shard, hold, seat));
        if let Err(unsent) = way.send(Job::Task(lead)) {
            running.transfer.end.forget_call();
            drop(unsent);
            return Err(shards.unanswered().during("upload", &running.transfer.name));
        }
        Ok(Transfer::new(running))
    }

    /// What can be known to be refused before anything is sent.
    fn check(&self) -> Result<(), Error> {
        let checked = match check_writable(&self.location)? {
            Dialect::Oss => self.options.check_oss(),
            Dialect::S3 | Dialect::Plain => self.options.check_s3(),
        };
        checked.map_err(|wrong| Error::new(ErrorKind::Usage, wrong.to_string()))?;
        if let Some(object) = &self.continues {
            self.check_continued(object)?;
        }
        if let Some(edits) = &self.edits {
            self.check_edited(edits)?;
        }
        match Dialect::of(&self.location) {
            Dialect::Oss if !self.condition.is_kept_by_oss() => {
                let cause = "OSS cannot write on the condition that an object has a certain ETag";
                Err(Error::new(ErrorKind::Unsupported, cause))
            }
            _ => Ok(()),
        }
    }

    fn check_continued(&self, object: &Object) -> Result<(), Error> {
        let wrong = match &self.source {
            _ if Dialect::of(&object.location) != Dialect::of(&self.location) => "it is of another service",
            _ if object.size < PART_LEAST => "it is shorter than a part",
            _ if object.etag.is_none() => "it has no ETag that names one version of it",
            Source::Stream(_) => return Ok(()),
            _ => "only a stream continues an object",
        };
        let cause = format!("{} cannot be continued: {wrong}", object.location);
        Err(Error::new(ErrorKind::Usage, cause))
    }

    fn check_edited(&self, edits: &Edits) -> Result<(), Error> {
        let wrong = match &self.source {
            _ if Dialect::of(&edits.object.location) != Dialect::of(&self.location) => {
                "it is of another service"
            }
            _ if edits.object.etag.is_none() => "it has no ETag that names one version of it",
            Source::File(_) => return Ok(()),
            _ => "only a file edits an object",
        };
        let cause = format!("{} cannot be edited: {wrong}", edits.object.location);
        Err(Error::new(ErrorKind::Usage, cause))
    }
}
