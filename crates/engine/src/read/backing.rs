//! Where a segment's bytes come from: the network, by one transfer for each segment.
//!
//! Nothing else in `read/` knows of requests. A verified cache on disk would be a second source, and
//! `Network::fetch` the method that both have: bring this range into that segment.

use std::ops::Range;
use std::sync::Arc;

use crate::api::pinned::Pinned;
use crate::api::template::RequestTemplate;
use crate::base::operation::Direction;
use crate::base::version::Object;
use crate::gate::Gate;
use crate::shard::shards::{Shards, Task};
use crate::shard::shared::Shared;
use crate::sink::landing::{SharedMemory, Sink};
use crate::transfer::Download;
use crate::transfer::guard::TransferGuard;
use crate::transfer::resources::{Resources, TransferOptions};
use crate::transfer::workers::run_segment;
use flatout_policy::queue::Priority;

/// One version of an object at its origin.
pub(super) struct Network {
    pub(super) gate: Arc<Gate>,
    shards: Arc<Shards>,
    care: TransferOptions,
    requests: Arc<RequestTemplate>,
    /// For the whole by one plain GET, whose answer states the checksum.
    requests_whole: Arc<RequestTemplate>,
    pinned: Arc<Pinned>,
}

impl Network {
    pub(super) fn new(
        shared: &Arc<Shared>,
        shards: &Arc<Shards>,
        object: &Object,
        version_id: &Option<Arc<str>>,
    ) -> Network {
        let location = &object.location;
        let requests =
            || RequestTemplate::of_object(shared.account.clone(), location.clone(), version_id.clone());
        let mut requests_whole = requests();
        requests_whole.ask_for_the_whole();
        Network {
            gate: shared.gate_of(location, Direction::Read),
            shards: shards.clone(),
            care: TransferOptions::of(&shared.settings),
            requests: Arc::new(requests()),
            requests_whole: Arc::new(requests_whole),
            pinned: Arc::new(Pinned::new(object)),
        }
    }

    /// A transfer of a range into a segment; [`Network::start`] starts it.
    pub(super) fn fetch(
        &self,
        range: Range<u64>,
        is_whole: bool,
        priority: Priority,
        segment: Box<dyn SharedMemory>,
    ) -> Arc<Download> {
        let resources = Resources {
            gate: self.gate.clone(),
            shards: self.shards.clone(),
            slots: self.gate.slots(self.gate.new_transfer(), priority),
            care: self.care,
        };
        let requests = if is_whole { &self.requests_whole } else { &self.requests };
        let landing = Sink::Shared(segment);
        Arc::new(Download::of_version(requests.clone(), self.pinned.clone(), range, landing, resources))
    }

    /// Sends a transfer to the least busy shard. If the client has been closed the transfer is dropped there,
    /// and that is its end: call it without a lock.
    pub(super) fn start(&self, transfer: Arc<Download>) {
        let seat = self.gate.seat();
        let (hold, shard) = (TransferGuard::new(transfer), seat.shard());
        let _ = self.shards.send(shard, Task::new(|shard| run_segment(shard, hold, seat)));
    }
}
