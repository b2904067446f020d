//! The end of writing: checksums of all blocks, and block 0.

use std::io::{Read, Seek, SeekFrom, Write};

use crc_fast::CrcAlgorithm::{Crc64Nvme, Crc64Xz};
use crc_fast::Digest;

use crate::error::WriteError;
use crate::fields::{crc32c, put};
use crate::header::{self, Header};
use crate::inode::Inode;
use crate::superblock::{self, ROOT_AT, Superblock};
use crate::{BLOCK, ROOT};

/// Blocks of one read.
const PIECE_BLOCKS: u64 = 64;

/// Completes an index whose sections but the last are written. The header says everything but the checksums'.
pub fn seal<W: Read + Write + Seek>(mut file: W, header: Header, root: &Inode) -> Result<W, WriteError> {
    let sections = header.sections();
    let (first, checksums) = checksums(&mut file, sections.checksums)?;
    let header = Header { checksums_crc: crc32c(&checksums), ..header };
    file.seek(SeekFrom::Start(sections.checksums * BLOCK))?;
    file.write_all(&checksums)?;

    let mut block = first;
    let mut inode = Vec::new();
    root.write_extended(&mut inode);
    debug_assert_eq!(root.nid, ROOT);
    block[ROOT_AT as usize..][..inode.len()].copy_from_slice(&inode);
    let superblock = Superblock {
        inodes: u64::from(header.files) + u64::from(header.folders),
        // At most 2^24 and 2^32 - 2^24.
        blocks: header.metadata_blocks.saturating_add(header.data_blocks),
        uuid: [0; 16],
    };
    superblock.write(&mut block);
    header.write(&mut block);
    let uuid = uuid(&block, &checksums);
    Superblock { uuid, ..superblock }.write(&mut block);
    header.write(&mut block);
    file.rewind()?;
    file.write_all(&block)?;
    file.flush()?;
    Ok(file)
}

/// Block 0 as it is, and the section of checksums of `count` blocks. That of block 0 is in the header.
fn checksums(file: &mut (impl Read + Seek), count: u64) -> Result<(Vec<u8>, Vec<u8>), WriteError> {
    let mut section = Vec::with_capacity((count * 4).next_multiple_of(BLOCK) as usize);
    let mut first = Vec::new();
    let mut piece = vec![0; (PIECE_BLOCKS * BLOCK) as usize];
    file.rewind()?;
    let mut left = count;
    while left > 0 {
        let blocks = left.min(PIECE_BLOCKS);
        left -= blocks;
        let piece = &mut piece[..(blocks * BLOCK) as usize];
        file.read_exact(piece)?;
        for block in piece.chunks_exact(BLOCK as usize) {
            let is_first = section.is_empty();
            if is_first {
                first = block.to_vec();
            }
            let checksum = if is_first { 0 } else { crc32c(block) };
            section.extend_from_slice(&checksum.to_le_bytes());
        }
    }
    section.resize(section.len().next_multiple_of(BLOCK as usize), 0);
    Ok((first, section))
}

/// One that follows from the content, of version 8: from block 0, which has no UUID yet, and from the
/// checksums of the others.
fn uuid(first: &[u8], checksums: &[u8]) -> [u8; 16] {
    let mut first = first.to_vec();
    put(&mut first, header::CHECKSUM_AT, [0; 4]);
    put(&mut first, superblock::CHECKSUM_AT, [0; 4]);
    let crc = |algorithm| {
        let mut digest = Digest::new(algorithm);
        digest.update(&first);
        digest.update(checksums);
        digest.finalize().to_le_bytes()
    };
    let mut uuid = [0; 16];
    put(&mut uuid, 0, crc(Crc64Nvme));
    put(&mut uuid, 8, crc(Crc64Xz));
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
