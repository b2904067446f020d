//! The header of an index, in the first bytes of the file, which EROFS leaves to others.

use crate::error::IndexError;
use crate::etag::ETAG_BYTES_MAX;
use crate::fields::{crc32c, field, put, u32_at, u64_at};
use crate::record::RECORDS_A_BLOCK;
use crate::{BLOCK, DATA_BLOCK, blocks};

const MAGIC: [u8; 8] = *b"flatidx\n";
const VERSION: u32 = 1;
/// The longest source of an index, in bytes.
pub const SOURCE_BYTES_MAX: usize = 2048;
pub const CHECKSUM_AT: usize = 12;
/// Where the checksum of the checksums lies.
pub const CHECKSUMS_CRC_AT: usize = 64;
/// Folders of a block of their section, 8 bytes each.
pub const FOLDERS_A_BLOCK: u32 = (BLOCK / 8) as u32;
/// Fences or checksums of a block of their sections.
const WORDS_A_BLOCK: u64 = BLOCK / 4;

/// The fields of the header. Magic, version and checksum keep their places in later versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub files: u32,
    pub folders: u32,
    /// Of all files together.
    pub file_bytes: u64,
    /// Blocks of data, from [`crate::DATA_BLOCK`] on.
    pub data_blocks: u32,
    /// Block 0 included.
    pub metadata_blocks: u32,
    pub records: u32,
    /// Folders with children.
    pub folders_with_children: u32,
    pub string_bytes: u64,
    /// The CRC32C of the section of checksums.
    pub checksums_crc: u32,
    /// The source is the first of the strings, with this many bytes.
    pub source_bytes: u32,
}

/// Where the sections begin, in blocks.
#[derive(Clone, Copy, Debug)]
pub struct Sections {
    pub records: u64,
    pub folders: u64,
    pub strings: u64,
    pub fences: u64,
    pub checksums: u64,
    pub end: u64,
}

impl Header {
    pub fn sections(&self) -> Sections {
        let records = u64::from(self.metadata_blocks);
        let (of_records, of_folders) = self.fences();
        let folders = records + of_records;
        let strings = folders + of_folders;
        let fences = strings + blocks(self.string_bytes);
        let checksums = fences + (of_records + of_folders).div_ceil(WORDS_A_BLOCK);
        let end = checksums + checksums.div_ceil(WORDS_A_BLOCK);
        Sections { records, folders, strings, fences, checksums, end }
    }

    /// Whether the data begin behind the index, and all sections are as long as their content can be. Before
    /// this is known, offsets of sections may overflow.
    pub fn is_within_limits(&self) -> bool {
        let strings_most = SOURCE_BYTES_MAX as u64 + u64::from(self.records) * ETAG_BYTES_MAX as u64;
        self.metadata_blocks <= DATA_BLOCK
            && self.data_blocks <= u32::MAX - DATA_BLOCK
            && self.folders_with_children <= self.records
            && self.string_bytes <= strings_most
            && u64::from(self.source_bytes) <= self.string_bytes.min(SOURCE_BYTES_MAX as u64)
            && self.sections().end <= DATA_BLOCK.into()
    }

    /// The blocks of records and of folders: each has a fence.
    pub fn fences(&self) -> (u64, u64) {
        let of_folders = self.folders_with_children.div_ceil(FOLDERS_A_BLOCK);
        (self.records.div_ceil(RECORDS_A_BLOCK).into(), of_folders.into())
    }

    /// Writes it into block 0, which must hold everything else: its checksum covers the block.
    pub fn write(&self, block: &mut [u8]) {
        put(block, 0, MAGIC);
        put(block, 8, VERSION.to_le_bytes());
        put(block, CHECKSUM_AT, [0; 4]);
        put(block, 16, (self.sections().end * BLOCK).to_le_bytes());
        put(block, 24, self.files.to_le_bytes());
        put(block, 28, self.folders.to_le_bytes());
        put(block, 32, self.file_bytes.to_le_bytes());
        put(block, 40, self.data_blocks.to_le_bytes());
        put(block, 44, self.metadata_blocks.to_le_bytes());
        put(block, 48, self.records.to_le_bytes());
        put(block, 52, self.folders_with_children.to_le_bytes());
        put(block, 56, self.string_bytes.to_le_bytes());
        put(block, CHECKSUMS_CRC_AT, self.checksums_crc.to_le_bytes());
        put(block, 68, self.source_bytes.to_le_bytes());
        let checksum = crc32c(block);
        put(block, CHECKSUM_AT, checksum.to_le_bytes());
    }

    /// Reads it from block 0 of a file of `length` bytes.
    pub fn parse(block: &[u8], length: u64) -> Result<Header, IndexError> {
        if field(block, 0) != MAGIC {
            return Err(IndexError::NotAnIndex);
        }
        if block.len() as u64 != BLOCK {
            return Err(IndexError::Truncated { expected: BLOCK, actual: length });
        }
        let mut cleared = block.to_vec();
        put(&mut cleared, CHECKSUM_AT, [0; 4]);
        if crc32c(&cleared) != u32_at(block, CHECKSUM_AT) {
            return Err(IndexError::Checksum { block: 0 });
        }
        match u32_at(block, 8) {
            VERSION => {}
            version => return Err(IndexError::Version { version, supported: VERSION }),
        }
        let header = Header {
            files: u32_at(block, 24),
            folders: u32_at(block, 28),
            file_bytes: u64_at(block, 32),
            data_blocks: u32_at(block, 40),
            metadata_blocks: u32_at(block, 44),
            records: u32_at(block, 48),
            folders_with_children: u32_at(block, 52),
            string_bytes: u64_at(block, 56),
            checksums_crc: u32_at(block, CHECKSUMS_CRC_AT),
            source_bytes: u32_at(block, 68),
        };
        let expected = u64_at(block, 16);
        if length < expected {
            return Err(IndexError::Truncated { expected, actual: length });
        }
        if length > expected {
            return Err(IndexError::TooLong { expected, actual: length });
        }
        if !header.is_within_limits() {
            return Err(IndexError::Malformed { what: "a section is longer than the format allows" });
        }
        if u64::from(header.files) + u64::from(header.folders) != header.records.into() {
            return Err(IndexError::Malformed { what: "its records are not as many as files and folders" });
        }
        // The limits keep this far from overflow.
        if header.sections().end * BLOCK != length || header.metadata_blocks == 0 || header.records == 0 {
            return Err(IndexError::Malformed { what: "its sections do not have the length of the file" });
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_sections() {
        let plain =
            Header { metadata_blocks: 1, records: 1 << 30, folders_with_children: 9, ..Header::default() };
        // Of this many records, strings may have a TiB; 41 GiB fit before the data.
        let most = u64::from(DATA_BLOCK) * BLOCK - (41 << 30);
        let table = [
            (plain, true),
            (Header { metadata_blocks: DATA_BLOCK + 1, ..plain }, false),
            (Header { metadata_blocks: u32::MAX, ..plain }, false),
            (Header { data_blocks: u32::MAX - DATA_BLOCK, ..plain }, true),
            (Header { data_blocks: u32::MAX, ..plain }, false),
            (Header { folders_with_children: u32::MAX, ..plain }, false),
            (Header { string_bytes: most, ..plain }, true),
            (Header { string_bytes: 64 << 30, ..plain }, false),
            (Header { string_bytes: u64::MAX, ..plain }, false),
            (Header { records: 4, folders_with_children: 4, string_bytes: 6144, ..plain }, true),
            (Header { records: 4, folders_with_children: 4, string_bytes: 6145, ..plain }, false),
            (Header { string_bytes: 2048, source_bytes: 2048, ..plain }, true),
            (Header { string_bytes: 2047, source_bytes: 2048, ..plain }, false),
            (Header { string_bytes: 4096, source_bytes: 2049, ..plain }, false),
        ];
        for (header, expected) in table {
            assert_eq!(header.is_within_limits(), expected, "{header:?}");
        }
    }
}
