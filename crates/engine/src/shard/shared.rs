//! What the threads of a client share: settings, keys, what is known of origins, and memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flatout_settings::Settings;
use flatout_wire::location::Location;

use crate::api::account::{Account, Operation};
use crate::base::blocking_pool::BlockingPool;
use crate::base::clock::Clock;
use crate::base::operation::Direction;
use crate::gate::{Bandwidth, Gate, Gates, origin_of};
use crate::memory::lease::Pool;
use crate::memory::plan::MemoryPlan;
use crate::net::endpoint::Endpoints;
use crate::net::interface::Binds;
use crate::net::proxy::Routes;
use crate::net::tls::Tls;

/// What the threads of a client share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) account: Arc<Account>,
    pub(crate) endpoints: Endpoints,
    pub(crate) binds: Binds,
    pub(crate) routes: Routes,
    pub(crate) tls: Tls,
    pub(crate) clock: Clock,
    pub(crate) pool: Arc<Pool>,
    pub(crate) memory_plan: MemoryPlan,
    pub(crate) gates: Gates,
    /// Threads that hash parts of files before they are sent: reading them may wait for a disk, and takes as
    /// long as sending them.
    pub(crate) hashing: BlockingPool,
    /// Where journals of uploads lie.
    pub(crate) upload_journals: Option<PathBuf>,
    /// `--bandwidth`, for all transfers together.
    pub(crate) bandwidth: Option<Bandwidth>,
}

impl Shared {
    /// The gate toward the origin of a location.
    pub(crate) fn gate_of(&self, location: &Location, direction: Direction) -> Arc<Gate> {
        // Whatever keeps a request from being made is told to whoever makes one.
        let endpoint = self.account.endpoint_of(location).ok();
        let bucket = location.in_bucket().map_or("", |(bucket, _)| bucket);
        self.gates.of(endpoint.map(|endpoint| origin_of(&endpoint, bucket)), direction, &self.settings)
    }

    /// The gate toward the origin that an operation is asked of.
    pub(crate) fn gate_for(&self, operation: &Operation) -> Arc<Gate> {
        let direction = operation.class().direction();
        match operation.location() {
            Some(location) => self.gate_of(location, direction),
            None => {
                let endpoint = self.account.endpoint_of_buckets(operation.dialect()).ok();
                self.gates.of(endpoint, direction, &self.settings)
            }
        }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.connect_timeout_ms)
    }

    pub(crate) fn stall_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.stall_timeout_ms)
    }
}
