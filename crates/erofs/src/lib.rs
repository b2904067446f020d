//! Indexes of remote objects: an EROFS image of their names, sizes and times, without their data, and a map
//! from the addresses of that data to the objects. Written from a listing, read by positioned reads.
//!
//! Pure: it knows no network, no mount and no clock. docs/decisions/erofs.md has the reasons and figures.
//!
//! An index is one file of blocks of 4 KiB, in this order:
//!
//! | section | content |
//! |---|---|
//! | block 0 | the index's header, the superblock at byte 1,024, the root's inode at byte 1,152 |
//! | metadata | inodes and dirents, folder by folder, each folder when it is complete |
//! | records | 21 bytes for each file and folder by its number: start block and ETag, 195 a block |
//! | folders | 8 bytes for each folder with children: the number of its first child, its nid |
//! | strings | the source of the index, and ETags that do not fit a record |
//! | fences | the first start block of each block of records, the first number of each block of folders |
//! | checksums | the CRC32C of each block before them |
//!
//! EROFS mounts it as it is, and reads no further than the metadata. The data of files begin at
//! [`DATA_BLOCK`], far behind the end of the file. Whoever serves the image answers reads there with the
//! bytes of objects, and with zeros from an object's end to the end of its last block.

#![forbid(unsafe_code)]

mod block_cache;
mod dirents;
mod error;
mod etag;
mod fields;
mod files;
mod header;
mod index;
mod inode;
mod mend;
mod names;
mod open_folder;
mod output;
mod page;
mod paths;
mod read_at;
mod record;
mod seal;
mod spool;
mod superblock;
mod writer;

pub use block_cache::Inodes;
pub use error::{IndexError, WriteError};
pub use files::Files;
pub use index::{Entries, Index, Object, Totals};
pub use inode::{Inode, Kind};
#[doc(hidden)]
pub use mend::mend;
pub use names::{Unnamable, check_path};
pub use page::Entry;
pub use read_at::ReadAt;
pub use writer::{Options, Summary, Writer};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// Where the data of files begins. The 64 GiB before it take the metadata of about a billion files; a fixed
/// address is what lets inodes be written before the length of the metadata is known.
pub const DATA_BLOCK: u32 = 1 << 24;

/// The nid of the root folder.
pub const ROOT: u64 = superblock::ROOT_AT / inode::SLOT;

/// The blocks that `bytes` occupy.
fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK)
}
