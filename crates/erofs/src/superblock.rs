//! The superblock of EROFS: 128 bytes at byte 1,024 of block 0, before the root's inode.

use crate::fields::{crc32c, put};
use crate::inode::SLOT;

pub const SUPERBLOCK_AT: u64 = 1024;
/// Where its checksum lies in block 0.
pub const CHECKSUM_AT: usize = SUPERBLOCK_AT as usize + 4;
/// Where the UUID lies in block 0.
pub const UUID_AT: usize = SUPERBLOCK_AT as usize + 48;
/// Where the root's inode lies. The superblock has 16 bits for the root's nid, so its place is near the
/// start, and fixed before anything is known of the root but that it exists.
pub const ROOT_AT: u64 = 1152;
/// Where the other metadata begin.
pub const METADATA_AT: u64 = ROOT_AT + 64;

const MAGIC: u32 = 0xE0F5_E1E2;
/// `SB_CHKSUM` and `MTIME`.
const COMPATIBLE_FEATURES: u32 = 0x1 | 0x2;
const BLOCK_BITS: u8 = 12;

/// The fields that differ from image to image.
#[derive(Clone, Copy, Debug)]
pub struct Superblock {
    pub inodes: u64,
    /// For statfs(2) only: metadata and data, without the gap between them.
    pub blocks: u32,
    pub uuid: [u8; 16],
}

impl Superblock {
    /// Writes it into block 0, which must hold everything else from byte 1,024 on: its checksum covers that.
    pub fn write(&self, block: &mut [u8]) {
        let bytes = &mut block[SUPERBLOCK_AT as usize..];
        bytes[..128].fill(0);
        put(bytes, 0, MAGIC.to_le_bytes());
        put(bytes, 8, COMPATIBLE_FEATURES.to_le_bytes());
        bytes[12] = BLOCK_BITS;
        put(bytes, 14, ((ROOT_AT / SLOT) as u16).to_le_bytes());
        put(bytes, 16, self.inodes.to_le_bytes());
        // The epoch of compact inodes, at 24, is 0: their times are Unix seconds. Nanoseconds are 0, too.
        put(bytes, 36, self.blocks.to_le_bytes());
        // The metadata begin at block 0.
        put(bytes, 48, self.uuid);
        // EROFS does not invert the CRC at its end.
        let checksum = !crc32c(bytes);
        put(block, CHECKSUM_AT, checksum.to_le_bytes());
    }
}
