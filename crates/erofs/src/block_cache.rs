//! Blocks of an index through a small cache: who reads inodes and records in their order reads each block,
//! and compares it with its checksum, about once.

use crate::error::{IndexError, malformed};
use crate::etag::{ETAG_BYTES_MAX, Unpacked};
use crate::index::{Index, Object};
use crate::inode::{Inode, Kind};
use crate::page::Page;
use crate::read_at::ReadAt;
use crate::record::{RECORDS_A_BLOCK, Record};
use crate::{BLOCK, blocks};

/// Blocks that a cache holds: of inodes and dirents at a few depths, of records, and of strings.
const KEPT: usize = 8;

/// The blocks of an index that were used last.
#[derive(Debug)]
pub struct BlockCache<'a, R> {
    pub index: &'a Index<R>,
    /// The last one used comes first.
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    block: u64,
    bytes: Vec<u8>,
}

impl<'a, R: ReadAt> BlockCache<'a, R> {
    /// An empty cache. It allocates when it reads.
    pub fn new(index: &'a Index<R>) -> BlockCache<'a, R> {
        BlockCache { index, kept: Vec::new() }
    }

    /// A block, which has its checksum.
    pub fn block(&mut self, block: u64) -> Result<&[u8], IndexError> {
        let place = match self.kept.iter().position(|kept| kept.block == block) {
            Some(place) => place,
            None => self.read(block)?,
        };
        self.kept[..=place].rotate_right(1);
        Ok(&self.kept[0].bytes)
    }

    /// Reads a block in the place of the one that was not used for longest.
    fn read(&mut self, block: u64) -> Result<usize, IndexError> {
        let mut bytes = match self.kept.len() {
            KEPT => self.kept.pop().map(|kept| kept.bytes).unwrap_or_default(),
            _ => vec![0; BLOCK as usize],
        };
        self.index.read_block(block, &mut bytes)?;
        self.kept.push(Kept { block, bytes });
        Ok(self.kept.len() - 1)
    }

    pub fn inode(&mut self, nid: u64) -> Result<Inode, IndexError> {
        let at = self.index.inode_at(nid)?;
        let block = self.block(at / BLOCK)?;
        let inode = Inode::parse(nid, &block[(at % BLOCK) as usize..]);
        inode.ok_or(IndexError::Malformed { what: "an inode has an unknown type or layout" })
    }

    pub fn record(&mut self, number: u32) -> Result<Record, IndexError> {
        if number >= self.index.header.records {
            return malformed("the number of an inode lies outside the records");
        }
        let block = self.block(self.index.sections.records + u64::from(number / RECORDS_A_BLOCK))?;
        Ok(Record::within(block, number % RECORDS_A_BLOCK))
    }

    /// The object of a file by its number; `None` for a folder.
    pub fn object_of(&mut self, number: u32) -> Result<Option<Object>, IndexError> {
        // Outside the records there is none, and the path is not looked for.
        self.record(number)?;
        let (path, nid) = self.path(number)?;
        let inode = self.inode(nid)?;
        if inode.kind == Kind::Folder {
            return Ok(None);
        }
        self.object(path, &inode).map(Some)
    }

    /// The object of a file's inode.
    pub fn object(&mut self, path: Vec<u8>, inode: &Inode) -> Result<Object, IndexError> {
        let record = self.record(inode.number)?;
        // Empty files have no address.
        let expected = if inode.size == 0 { 0 } else { record.start_block };
        if inode.start_block != expected {
            return malformed("a file and its record have different addresses");
        }
        let etag = self.etag(&record)?;
        let &Inode { nid, size, modified_s, start_block, .. } = inode;
        Ok(Object { path, nid, size, modified_s, etag, start_block })
    }

    pub fn etag(&mut self, record: &Record) -> Result<Option<String>, IndexError> {
        let (at, bytes) = match record.etag.unpack() {
            Unpacked::None => return Ok(None),
            Unpacked::Whole(etag) => return Ok(Some(etag)),
            Unpacked::String { at, bytes } => (at, u64::from(bytes)),
        };
        if bytes > ETAG_BYTES_MAX as u64 {
            return malformed("an ETag is longer than the format allows");
        }
        let (start, end) = (self.index.header.source_bytes.into(), self.index.header.string_bytes);
        if at < start || at.checked_add(bytes).is_none_or(|etag_end| etag_end > end) {
            return malformed("the address of an ETag lies outside the strings");
        }
        let mut etag = Vec::with_capacity(bytes as usize);
        for block in at / BLOCK..blocks(at + bytes) {
            let from = at.saturating_sub(block * BLOCK) as usize;
            let to = (at + bytes - block * BLOCK).min(BLOCK) as usize;
            etag.extend_from_slice(&self.block(self.index.sections.strings + block)?[from..to]);
        }
        String::from_utf8(etag).map_or_else(|_| malformed("an ETag is not UTF-8"), |etag| Ok(Some(etag)))
    }

    /// A page of a folder's dirents. Its last one may follow the inode.
    pub fn page(&mut self, folder: &Inode, page: u64) -> Result<Page, IndexError> {
        let bytes = folder.size.saturating_sub(page.saturating_mul(BLOCK)).min(BLOCK) as usize;
        if folder.kind != Kind::Folder || bytes == 0 {
            return malformed("a page of dirents lies outside its folder");
        }
        if folder.is_inline && page + 1 == blocks(folder.size) {
            let at = self.index.inode_at(folder.nid)?;
            let inode = (at % BLOCK) as usize;
            let block = self.block(at / BLOCK)?;
            let start = inode + Inode::weight_in(&block[inode..]);
            let tail = block.get(start..start + bytes);
            return Page::new(tail.unwrap_or_default().to_vec());
        }
        let block = u64::from(folder.start_block).saturating_add(page);
        if block >= self.index.header.metadata_blocks.into() {
            return malformed("the address of a folder lies outside the metadata");
        }
        Page::new(self.block(block)?[..bytes].to_vec())
    }
}

/// Reads inodes one after the other, such as those of a folder's entries: the blocks that it used last stay
/// in memory, 32 KiB at most. [`Index::inode`] reads and checks a block each time.
#[derive(Debug)]
pub struct Inodes<'a, R>(BlockCache<'a, R>);

impl<'a, R: ReadAt> Inodes<'a, R> {
    pub(crate) fn new(index: &'a Index<R>) -> Inodes<'a, R> {
        Inodes(BlockCache::new(index))
    }

    /// Reads an inode.
    pub fn inode(&mut self, nid: u64) -> Result<Inode, IndexError> {
        self.0.inode(nid)
    }

    /// The ETag of a file, by the number of its inode.
    pub fn etag(&mut self, number: u32) -> Result<Option<String>, IndexError> {
        let record = self.0.record(number)?;
        self.0.etag(&record)
    }
}
