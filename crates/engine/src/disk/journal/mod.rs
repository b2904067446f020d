//! The journal of a download: which blocks of a file have landed, so that the next run fetches the others
//! only (docs/decisions/journal.md).
//!
//! ```text
//!   .NAME.flatout-HASH-0           the file so far, with holes
//!   .NAME.flatout-HASH-0.journal   of which object and version, and block after block what has landed
//! ```
//! Nothing is believed because it is written there: a block counts when what is on disk has its CRC.

mod blocks;
mod kept;
mod log;
mod record;

pub(crate) use blocks::Piece;
pub(crate) use kept::Kept;
pub(crate) use log::{BATCH_AGE, Log};
pub(crate) use record::{DownloadIdentity, Journal, LandedBlock, Unreadable, read};

/// What is fetched again when any of it is missing or wrong.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;

/// Below this no journal is kept: an object of eight blocks is fetched again before somebody has typed the
/// command.
pub(crate) const SMALL_BYTES: u64 = 8 * BLOCK_BYTES;

/// Less than this is not left behind for the next run.
pub(crate) const WORTH_KEEPING_BYTES: u64 = 4 * BLOCK_BYTES;

/// Where block `number` of a file of `total_bytes` lies in it; `None` past its end.
pub(crate) fn block_range(number: u64, total_bytes: u64) -> Option<std::ops::Range<u64>> {
    let start = number.checked_mul(BLOCK_BYTES).filter(|start| *start < total_bytes)?;
    Some(start..start.saturating_add(BLOCK_BYTES).min(total_bytes))
}
