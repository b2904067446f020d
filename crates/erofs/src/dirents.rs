//! Dirents as they are written: 12 bytes each and then the names, page by page, in the order of names.

use crate::BLOCK;
use crate::inode::{COMPACT_BYTES, EXTENDED_BYTES, Kind};

pub const DIRENT_BYTES: usize = 12;
const FILE: u8 = 1;
const FOLDER: u8 = 2;

/// The size of a folder's dirents: whole pages, and a last one that is rarely full.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    whole_pages: u64,
    /// Bytes of the last page: at most a block.
    last: usize,
}

impl Extent {
    /// Counts a name in.
    pub fn add(&mut self, name: &[u8]) {
        let bytes = DIRENT_BYTES + name.len();
        if self.last + bytes > BLOCK as usize {
            self.whole_pages += 1;
            self.last = 0;
        }
        self.last += bytes;
    }

    pub fn size(&self) -> u64 {
        self.whole_pages * BLOCK + self.last as u64
    }

    /// Whether the last page fits behind its inode. The kernel reads both at once, so they must lie within
    /// one block.
    pub fn has_tail(&self, inode_bytes: usize) -> bool {
        debug_assert!(inode_bytes == COMPACT_BYTES || inode_bytes == EXTENDED_BYTES);
        inode_bytes + self.last <= BLOCK as usize
    }

    /// Bytes of the last page behind the inode.
    pub fn tail(&self, is_inline: bool) -> usize {
        if is_inline { self.last } else { 0 }
    }

    /// Blocks that hold pages alone.
    pub fn page_blocks(&self, is_inline: bool) -> u64 {
        self.whole_pages + u64::from(!is_inline)
    }
}

/// A page that is being filled.
#[derive(Debug, Default)]
pub struct DraftPage {
    /// With the places of names counted from the first name.
    dirents: Vec<u8>,
    names: Vec<u8>,
}

impl DraftPage {
    pub fn fits(&self, name: &[u8]) -> bool {
        self.dirents.len() + self.names.len() + DIRENT_BYTES + name.len() <= BLOCK as usize
    }

    /// Adds a dirent, and says where in the page it is.
    pub fn push(&mut self, name: &[u8], nid: u64, kind: Kind) -> u64 {
        let at = self.dirents.len() as u64;
        self.dirents.extend_from_slice(&nid.to_le_bytes());
        self.dirents.extend_from_slice(&(self.names.len() as u16).to_le_bytes());
        self.dirents.extend_from_slice(&[if kind == Kind::Folder { FOLDER } else { FILE }, 0]);
        self.names.extend_from_slice(name);
        at
    }

    /// Writes the page to the end of `to`, and begins another.
    pub fn write(&mut self, to: &mut Vec<u8>) {
        let names_at = self.dirents.len() as u16;
        for dirent in self.dirents.chunks_exact_mut(DIRENT_BYTES) {
            let at = u16::from_le_bytes([dirent[8], dirent[9]]) + names_at;
            dirent[8..10].copy_from_slice(&at.to_le_bytes());
        }
        to.extend_from_slice(&self.dirents);
        to.extend_from_slice(&self.names);
        self.dirents.clear();
        self.names.clear();
    }
}

/// The kind of a file type on disk.
pub fn kind_of(file_type: u8) -> Option<Kind> {
    match file_type {
        FILE => Some(Kind::File),
        FOLDER => Some(Kind::Folder),
        _ => None,
    }
}
