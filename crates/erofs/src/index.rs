//! The reader of an index: names, inodes, and the object at an address. Each block is compared with its
//! checksum when it is read; memory holds the checksums, a thousandth of the file.

use crate::block_cache::{BlockCache, Inodes};
use crate::error::{IndexError, malformed};
use crate::fields::{crc32c, field, u32_at};
use crate::files::Files;
use crate::header::{Header, Sections};
use crate::inode::{Inode, Kind, SLOT};
use crate::page::{Entry, partition};
use crate::read_at::ReadAt;
use crate::record::{RECORDS_A_BLOCK, Record};
use crate::{BLOCK, DATA_BLOCK, ROOT, blocks};

/// An open index.
#[derive(Debug)]
pub struct Index<R> {
    file: R,
    pub(crate) header: Header,
    pub(crate) sections: Sections,
    source: String,
    checksums: Vec<u32>,
    /// The start block of the first record of each block.
    record_fences: Vec<u32>,
    /// The first number of each block of folders.
    pub(crate) folder_fences: Vec<u32>,
}

/// An object, and where its data lie. An empty object has start block 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    /// The key, from the prefix of the index on.
    pub path: Vec<u8>,
    pub nid: u64,
    pub size: u64,
    pub modified_s: i64,
    /// As the origin sent it.
    pub etag: Option<String>,
    pub start_block: u32,
}

/// Counts of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    pub files: u64,
    /// The root included.
    pub folders: u64,
    /// Of all files together.
    pub file_bytes: u64,
}

impl<R: ReadAt> Index<R> {
    /// Checks header, version, length and checksums, but not yet the other blocks.
    pub fn open(file: R) -> Result<Index<R>, IndexError> {
        let length = file.length()?;
        let mut first = vec![0; length.min(BLOCK) as usize];
        file.read_at(&mut first, 0)?;
        let header = Header::parse(&first, length)?;
        let sections = header.sections();
        let mut section = vec![0; ((sections.end - sections.checksums) * BLOCK) as usize];
        file.read_at(&mut section, sections.checksums * BLOCK)?;
        if crc32c(&section) != header.checksums_crc {
            return Err(IndexError::Checksum { block: sections.checksums });
        }
        let mut checksums: Vec<u32> =
            (0..sections.checksums as usize).map(|block| u32_at(&section, block * 4)).collect();
        checksums[0] = crc32c(&first);
        let (record_fences, folder_fences) = (Vec::new(), Vec::new());
        let source = String::new();
        let mut index = Index { file, header, sections, source, checksums, record_fences, folder_fences };
        index.read_fences()?;
        index.read_source()?;
        Ok(index)
    }

    fn read_fences(&mut self) -> Result<(), IndexError> {
        let mut fences = Vec::new();
        for block in self.sections.fences..self.sections.checksums {
            fences.extend(self.block(block)?.chunks_exact(4).map(|fence| u32_at(fence, 0)));
        }
        let (of_records, of_folders) = self.header.fences();
        self.folder_fences = fences.split_off(of_records as usize);
        self.folder_fences.truncate(of_folders as usize);
        self.record_fences = fences;
        Ok(())
    }

    fn read_source(&mut self) -> Result<(), IndexError> {
        let bytes = self.header.source_bytes as usize;
        if bytes > 0 {
            let mut strings = self.block(self.sections.strings)?;
            strings.truncate(bytes);
            let Ok(source) = String::from_utf8(strings) else { return malformed("its source is not UTF-8") };
            self.source = source;
        }
        Ok(())
    }

    /// What the writer said that this is an index of.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Tells indexes with different content apart: the UUID of the image.
    pub fn id(&self) -> Result<[u8; 16], IndexError> {
        Ok(field(&self.block(0)?, crate::superblock::UUID_AT))
    }

    /// Counts of files and folders, and the bytes of all files.
    pub fn totals(&self) -> Totals {
        let Header { files, folders, file_bytes, .. } = self.header;
        Totals { files: files.into(), folders: folders.into(), file_bytes }
    }

    /// The bytes of the file that EROFS reads, from its start on.
    pub fn metadata_bytes(&self) -> u64 {
        u64::from(self.header.metadata_blocks) * BLOCK
    }

    /// The length of the file that EROFS mounts, with the data.
    pub fn image_bytes(&self) -> u64 {
        (u64::from(DATA_BLOCK) + u64::from(self.header.data_blocks)) * BLOCK
    }

    /// Compares all blocks with their checksums.
    pub fn verify(&self) -> Result<(), IndexError> {
        (0..self.sections.checksums).try_for_each(|block| self.block(block).map(drop))
    }

    /// Reads an inode. [`Index::inodes`] is cheaper for many that lie side by side.
    pub fn inode(&self, nid: u64) -> Result<Inode, IndexError> {
        BlockCache::new(self).inode(nid)
    }

    /// A reader of many inodes.
    pub fn inodes(&self) -> Inodes<'_, R> {
        Inodes::new(self)
    }

    pub(crate) fn inode_at(&self, nid: u64) -> Result<u64, IndexError> {
        match nid.checked_mul(SLOT).filter(|&at| at < self.metadata_bytes()) {
            Some(at) => Ok(at),
            None => malformed("the address of an inode lies outside the metadata"),
        }
    }

    /// The entry of a name.
    pub fn lookup(&self, folder: &Inode, name: &[u8]) -> Result<Option<Entry>, IndexError> {
        let mut cache = BlockCache::new(self);
        // A page whose first name is this one or comes before it; the last of them has the name.
        let after =
            partition(blocks(folder.size), |page| Ok(cache.page(folder, page)?.dirent(0)?.name <= name))?;
        let Some(page) = after.checked_sub(1) else { return Ok(None) };
        let page = cache.page(folder, page)?;
        let place = page.partition(|dirent| Ok(dirent.name < name))?;
        if place == page.len() {
            return Ok(None);
        }
        let dirent = page.dirent(place)?;
        Ok((dirent.name == name && !dirent.is_dots()).then(|| Entry::of(&dirent)))
    }

    /// The inode at a path from the root; `None` if there is no such file or folder.
    pub fn find(&self, path: &[u8]) -> Result<Option<Inode>, IndexError> {
        let mut inode = self.inode(ROOT)?;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let entry = match inode.kind {
                Kind::Folder => self.lookup(&inode, name)?,
                Kind::File => None,
            };
            let Some(entry) = entry else { return Ok(None) };
            inode = self.inode(entry.nid)?;
        }
        Ok(Some(inode))
    }

    /// The entries of a folder in the order of their names, without the dots.
    ///
    /// A crafted index can contain cycles of folders, or one folder many times. A walk of all folders should
    /// stop with an error when it has seen more entries than [`Totals`] counts files and folders.
    pub fn entries(&self, folder: &Inode) -> Entries<'_, R> {
        let cache = BlockCache::new(self);
        Entries { cache, folder: folder.clone(), next_page: 0, page: Vec::new().into_iter() }
    }

    /// The entries of one page of a folder's dirents, without the dots. A folder has as many pages as its
    /// size has blocks, the last one begun.
    pub fn page_entries(&self, folder: &Inode, page: u64) -> Result<Vec<Entry>, IndexError> {
        BlockCache::new(self).page(folder, page)?.entries()
    }

    /// All files in the order of their keys: that of the listing which the writer was given. Memory holds a
    /// page of each folder on the way to the current file.
    ///
    /// The walk ends with an error in an index with cycles of folders, or with names out of order.
    pub fn files(&self) -> Files<'_, R> {
        Files::new(self)
    }

    /// The object with data in a block; `None` if no object has.
    pub fn object_at(&self, block: u32) -> Result<Option<Object>, IndexError> {
        let after = self.record_fences.partition_point(|&first| first <= block) as u64;
        let Some(row) = after.checked_sub(1) else { return Ok(None) };
        let mut cache = BlockCache::new(self);
        let records = cache.block(self.sections.records + row)?;
        let first = row as u32 * RECORDS_A_BLOCK;
        let count = RECORDS_A_BLOCK.min(self.header.records - first);
        let starts_before = |place: u64| Ok(Record::within(records, place as u32).start_block <= block);
        let after = partition(count.into(), starts_before)?;
        let Some(place) = after.checked_sub(1) else { return Ok(None) };
        let object = cache.object_of(first + place as u32)?;
        let has = |object: &Object| {
            let after = block.checked_sub(object.start_block);
            after.is_some_and(|after| u64::from(after) < blocks(object.size))
        };
        Ok(object.filter(has))
    }

    /// The object of a file, by the number of its inode; `None` for a folder.
    pub fn object(&self, number: u32) -> Result<Option<Object>, IndexError> {
        BlockCache::new(self).object_of(number)
    }

    /// The ETag of a file, by the number of its inode.
    pub fn etag(&self, number: u32) -> Result<Option<String>, IndexError> {
        self.inodes().etag(number)
    }

    /// Reads a block, which has its checksum.
    pub(crate) fn read_block(&self, block: u64, bytes: &mut [u8]) -> Result<(), IndexError> {
        let Some(&checksum) = self.checksums.get(block as usize) else {
            return malformed("a block lies outside the index");
        };
        self.file.read_at(bytes, block * BLOCK)?;
        if crc32c(bytes) != checksum {
            return Err(IndexError::Checksum { block });
        }
        Ok(())
    }

    /// A block, which has its checksum. Those that EROFS reads come before [`Index::metadata_bytes`].
    pub fn block(&self, block: u64) -> Result<Vec<u8>, IndexError> {
        let mut bytes = vec![0; BLOCK as usize];
        self.read_block(block, &mut bytes)?;
        Ok(bytes)
    }
}

/// The entries of a folder, page by page. Ends after an error.
#[derive(Debug)]
pub struct Entries<'a, R> {
    cache: BlockCache<'a, R>,
    folder: Inode,
    next_page: u64,
    page: std::vec::IntoIter<Entry>,
}

impl<R: ReadAt> Entries<'_, R> {
    fn read_page(&mut self) -> Result<(), IndexError> {
        self.page = self.cache.page(&self.folder, self.next_page)?.entries()?.into_iter();
        self.next_page += 1;
        Ok(())
    }
}

impl<R: ReadAt> Iterator for Entries<'_, R> {
    type Item = Result<Entry, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.page.next() {
                return Some(Ok(entry));
            }
            if self.next_page >= blocks(self.folder.size) {
                return None;
            }
            if let Err(error) = self.read_page() {
                self.next_page = u64::MAX;
                return Some(Err(error));
            }
        }
    }
}
