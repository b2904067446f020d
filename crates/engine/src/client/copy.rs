//! Copies within a service, started.

use std::sync::Arc;

use flatout_wire::location::Location;
use flatout_wire::object_options::ObjectOptions;

use crate::api::account::{Dialect, Target, check_object};
use crate::base::error::{Error, ErrorKind};
use crate::base::operation::Direction;
use crate::client::Client;
use crate::shard::shards::{Job, Task};
use crate::transfer::copy::{CopyTransfer, run_copy, tags_of};
use crate::transfer::guard::TransferGuard;
use crate::transfer::handle::Transfer;
use crate::transfer::resources::{Resources, TransferOptions};
use crate::transfer::server_copy::ServerCopy;

impl Client {
    /// Whether an object of one location can be copied to the other without its bytes passing through here:
    /// both are asked of the same service.
    pub fn copies_within_service(&self, from: &Location, to: &Location) -> bool {
        Dialect::of(from) == Dialect::of(to) && Dialect::of(from) != Dialect::Plain
    }

    /// The tags of a bucket's object; none of a server that has no tags.
    ///
    /// # Errors
    /// The origin's refusal, or the network's.
    pub fn tags(&self, location: &Location) -> Result<Vec<(String, String)>, Error> {
        check_object(location)?;
        let target = Target::from(location.clone());
        self.shards.wait_for(|shard| async move { tags_of(&shard, &target, None).await })
    }

    /// Starts a copy within a service: no byte of the object passes through here. The object appears whole or
    /// not at all. It is of one version of its source: where that is replaced meanwhile, the copy fails with
    /// [`ErrorKind::Changed`].
    ///
    /// The progress counts bytes that the origin has copied.
    ///
    /// # Errors
    /// What can be known before anything is sent: locations that are no objects of one service, options that
    /// no origin would take.
    pub fn copy(&self, copy: ServerCopy) -> Result<Transfer, Error> {
        let name = copy.name();
        self.check_copy(&copy).map_err(|error| error.during("copy", &name))?;
        let gate = self.shared.gate_of(&copy.to, Direction::Write);
        let resources = Resources {
            slots: gate.slots(gate.new_transfer(), Default::default()),
            gate,
            shards: self.shards.clone(),
            care: TransferOptions::of(&self.shared.settings),
        };
        let running = Arc::new(CopyTransfer::new(copy, resources));
        let first = self.shards.way_to(0)?;
        let hold = TransferGuard::new(running.clone());
        let lead = Task::new(move |shard| run_copy(shard, hold));
        if let Err(unsent) = first.send(Job::Task(lead)) {
            running.forget_call();
            drop(unsent);
            return Err(self.shards.unanswered().during("copy", &name));
        }
        Ok(Transfer::new(running))
    }

    fn check_copy(&self, copy: &ServerCopy) -> Result<(), Error> {
        check_object(&copy.from)?;
        check_object(&copy.to)?;
        if !self.copies_within_service(&copy.from, &copy.to) {
            let cause = "objects of different services cannot be copied by one of them";
            return Err(
                Error::new(ErrorKind::Unsupported, cause).with_hint("read the one, and write the other")
            );
        }
        // One that describes it anew is no copy for nothing.
        let changes_nothing = copy.version_id.is_none() && copy.options == ObjectOptions::default();
        if copy.from == copy.to && changes_nothing {
            let cause = "source and target are the same object";
            return Err(Error::new(ErrorKind::Usage, cause).with_hint("name another target"));
        }
        let checked = match Dialect::of(&copy.to) {
            Dialect::Oss => copy.options.check_oss(),
            _ => copy.options.check_s3(),
        };
        checked.map_err(|wrong| Error::new(ErrorKind::Usage, wrong.to_string()))?;
        match Dialect::of(&copy.to) {
            Dialect::Oss if !copy.condition.is_kept_by_oss() => {
                let cause = "OSS cannot write on the condition that an object has a certain ETag";
                Err(Error::new(ErrorKind::Unsupported, cause))
            }
            _ => Ok(()),
        }
    }
}
