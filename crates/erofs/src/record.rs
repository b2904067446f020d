//! Records: start block and ETag of a file or folder, by its number.

use crate::BLOCK;
use crate::etag::{PACKED_BYTES, PackedEtag};
use crate::fields::{field, u32_at};

pub const RECORD_BYTES: usize = 4 + PACKED_BYTES;
/// Records of a block; none crosses into the next.
pub const RECORDS_A_BLOCK: u32 = (BLOCK as usize / RECORD_BYTES) as u32;
/// The rest of a block behind them.
pub const PADDING: usize = BLOCK as usize - RECORDS_A_BLOCK as usize * RECORD_BYTES;

/// The first block of the data and the ETag. A folder has the start of the file that follows it.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub start_block: u32,
    pub etag: PackedEtag,
}

impl Record {
    pub fn bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.start_block.to_le_bytes());
        bytes[4..].copy_from_slice(&self.etag.0);
        bytes
    }

    /// The record at a place within a block.
    pub fn within(block: &[u8], place: u32) -> Record {
        let at = place as usize * RECORD_BYTES;
        Record { start_block: u32_at(block, at), etag: PackedEtag(field(block, at + 4)) }
    }
}
