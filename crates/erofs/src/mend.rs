//! Right checksums for wrong indexes: what somebody can make who means harm, and what tests and fuzzers need
//! to reach the content.

use crate::BLOCK;
use crate::fields::{crc32c, put};
use crate::header::{CHECKSUM_AT, CHECKSUMS_CRC_AT};

/// Gives header and blocks the checksums of what they hold. Bytes that are not at least two blocks stay as
/// they are.
#[doc(hidden)]
pub fn mend(bytes: &mut [u8]) {
    let block = BLOCK as usize;
    let blocks = bytes.len() / block;
    if blocks < 2 || !bytes.len().is_multiple_of(block) {
        return;
    }
    // A block has the checksums of 1,024 others.
    let (covered, checksums) = bytes.split_at_mut((blocks - blocks.div_ceil(1025)) * block);
    for (place, block) in covered.chunks_exact(block).enumerate().skip(1) {
        put(checksums, place * 4, crc32c(block).to_le_bytes());
    }
    let first = &mut covered[..block];
    put(first, CHECKSUMS_CRC_AT, crc32c(checksums).to_le_bytes());
    put(first, CHECKSUM_AT, [0; 4]);
    let checksum = crc32c(first);
    put(first, CHECKSUM_AT, checksum.to_le_bytes());
}
