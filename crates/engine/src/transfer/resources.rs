//! What a transfer needs of its client.

use std::sync::Arc;

use flatout_settings::Settings;

use crate::gate::Gate;
use crate::gate::slots::TransferSlots;
use crate::shard::shards::Shards;

/// What a transfer needs of its client.
pub(crate) struct Resources {
    pub(crate) gate: Arc<Gate>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) slots: TransferSlots,
    pub(crate) care: TransferOptions,
}

/// What is done besides moving bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferOptions {
    /// The bytes are compared with the checksum that the origin states.
    pub(crate) verify: bool,
    /// A large file goes on from what an earlier run left, and leaves something for the next one.
    pub(crate) resume: bool,
}

impl TransferOptions {
    pub(crate) fn of(settings: &Settings) -> TransferOptions {
        TransferOptions { verify: settings.verify, resume: settings.resume }
    }
}
