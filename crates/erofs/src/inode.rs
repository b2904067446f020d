//! Inodes on disk: 32 bytes, or 64 where a field does not fit.

use crate::fields::{put, u16_at, u32_at, u64_at};

/// An inode lies at 32 times its nid.
pub const SLOT: u64 = 32;
pub const COMPACT_BYTES: usize = 32;
pub const EXTENDED_BYTES: usize = 64;
/// Where the number lies, in both forms: the field that EROFS keeps for 32-bit stat(2) and does not read.
pub const NUMBER_AT: u64 = 20;
/// Where the number of slots of extended attributes lies. They would follow the inode.
const XATTRS_AT: usize = 2;

const IS_EXTENDED: u16 = 1;
const LAYOUT_BIT: u16 = 1;
const PLAIN: u16 = 0;
const INLINE: u16 = 2;

const TYPE_MASK: u16 = 0o170000;
const FOLDER_TYPE: u16 = 0o040000;
const FILE_TYPE: u16 = 0o100000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inode {
    pub nid: u64,
    pub kind: Kind,
    /// Of a folder: of its dirents, on disk.
    pub size: u64,
    /// Seconds since 1970.
    pub modified_s: i64,
    /// The lower 12 bits: permissions.
    pub permissions: u16,
    pub uid: u32,
    pub gid: u32,
    /// Of a folder: 2, and one for each folder in it.
    pub links: u32,
    /// The first block: of the data, or of a folder's whole blocks of dirents. 0 without any.
    pub start_block: u32,
    /// Its place among the records.
    pub number: u32,
    /// Whether the last dirents of a folder follow the inode.
    pub(crate) is_inline: bool,
}

impl Inode {
    /// Whether 32 bytes suffice.
    fn is_compact(&self) -> bool {
        let fits = |field: u32| u16::try_from(field).is_ok();
        is_small(self.size, self.modified_s) && fits(self.uid) && fits(self.gid) && fits(self.links)
    }

    /// Bytes on disk.
    pub(crate) fn weight(&self) -> usize {
        if self.is_compact() { COMPACT_BYTES } else { EXTENDED_BYTES }
    }

    /// Appends its form on disk.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let is_compact = self.is_compact();
        self.write_as(is_compact, to);
    }

    /// Appends its extended form: the root's, whose place is chosen before its fields are known.
    pub(crate) fn write_extended(&self, to: &mut Vec<u8>) {
        self.write_as(false, to);
    }

    fn write_as(&self, is_compact: bool, to: &mut Vec<u8>) {
        let mut bytes = [0; EXTENDED_BYTES];
        let layout = if self.is_inline { INLINE } else { PLAIN };
        let version = if is_compact { 0 } else { IS_EXTENDED };
        put(&mut bytes, 0, (version | layout << LAYOUT_BIT).to_le_bytes());
        let file_type = if self.kind == Kind::Folder { FOLDER_TYPE } else { FILE_TYPE };
        put(&mut bytes, 4, (file_type | self.permissions & !TYPE_MASK).to_le_bytes());
        put(&mut bytes, 16, self.start_block.to_le_bytes());
        put(&mut bytes, 20, self.number.to_le_bytes());
        if is_compact {
            put(&mut bytes, 6, (self.links as u16).to_le_bytes());
            put(&mut bytes, 8, (self.size as u32).to_le_bytes());
            // Read since Linux 6.15; older ones show the epoch.
            put(&mut bytes, 12, (self.modified_s as u32).to_le_bytes());
            put(&mut bytes, 24, (self.uid as u16).to_le_bytes());
            put(&mut bytes, 26, (self.gid as u16).to_le_bytes());
            to.extend_from_slice(&bytes[..COMPACT_BYTES]);
        } else {
            put(&mut bytes, 8, self.size.to_le_bytes());
            put(&mut bytes, 24, self.uid.to_le_bytes());
            put(&mut bytes, 28, self.gid.to_le_bytes());
            put(&mut bytes, 32, self.modified_s.to_le_bytes());
            put(&mut bytes, 44, self.links.to_le_bytes());
            to.extend_from_slice(&bytes);
        }
    }

    /// The inode in bytes that may hold more; `None` if the writer makes no such inode.
    pub(crate) fn parse(nid: u64, bytes: &[u8]) -> Option<Inode> {
        let (format, mode) = (u16_at(bytes, 0), u16_at(bytes, 4));
        let is_extended = format & IS_EXTENDED != 0;
        if bytes.len() < if is_extended { EXTENDED_BYTES } else { COMPACT_BYTES } {
            return None;
        }
        let kind = match mode & TYPE_MASK {
            FOLDER_TYPE => Kind::Folder,
            FILE_TYPE => Kind::File,
            _ => return None,
        };
        let is_inline = match format >> LAYOUT_BIT {
            PLAIN => false,
            INLINE if kind == Kind::Folder => true,
            // Other layouts, and bits of later formats above them.
            _ => return None,
        };
        if u16_at(bytes, XATTRS_AT) != 0 {
            return None;
        }
        let compact = Inode {
            nid,
            kind,
            size: u32_at(bytes, 8).into(),
            modified_s: u32_at(bytes, 12).into(),
            permissions: mode & !TYPE_MASK,
            uid: u16_at(bytes, 24).into(),
            gid: u16_at(bytes, 26).into(),
            links: u16_at(bytes, 6).into(),
            start_block: u32_at(bytes, 16),
            number: u32_at(bytes, 20),
            is_inline,
        };
        Some(match is_extended {
            false => compact,
            true => Inode {
                size: u64_at(bytes, 8),
                modified_s: u64_at(bytes, 32) as i64,
                uid: u32_at(bytes, 24),
                gid: u32_at(bytes, 28),
                links: u32_at(bytes, 44),
                ..compact
            },
        })
    }

    /// Bytes of its form on disk, whose last dirents follow if it is inline.
    pub(crate) fn weight_in(bytes: &[u8]) -> usize {
        if u16_at(bytes, 0) & IS_EXTENDED != 0 { EXTENDED_BYTES } else { COMPACT_BYTES }
    }
}

/// Whether size and time fit a compact inode.
pub fn is_small(size: u64, modified_s: i64) -> bool {
    u32::try_from(size).is_ok() && u32::try_from(modified_s).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_that_are_not_ours() {
        let parsed = |kind: Kind, at: usize, byte: u8| {
            let inode = Inode {
                nid: 40,
                kind,
                size: 9,
                modified_s: 7,
                permissions: 0o444,
                uid: 1,
                gid: 2,
                links: 2,
                start_block: 3,
                number: 4,
                is_inline: false,
            };
            let mut bytes = Vec::new();
            inode.write(&mut bytes);
            bytes[at] |= byte;
            Inode::parse(40, &bytes)
        };
        let table = [
            (Kind::File, 0, 0, true),
            (Kind::Folder, 0, 0, true),
            (Kind::Folder, 0, (INLINE << LAYOUT_BIT) as u8, true),
            (Kind::File, 0, (INLINE << LAYOUT_BIT) as u8, false),
            (Kind::Folder, 0, 1 << LAYOUT_BIT, false),
            (Kind::Folder, 0, 1 << 4, false),
            (Kind::File, 1, 1 << 7, false),
            (Kind::File, 2, 1, false),
            (Kind::Folder, 3, 1, false),
            (Kind::File, 5, 0o010, true),
            (Kind::File, 5, 0o020, false),
        ];
        for (kind, at, byte, is_ours) in table {
            assert_eq!(parsed(kind, at, byte).is_some(), is_ours, "{kind:?}, {byte} at {at}");
        }
    }
}
