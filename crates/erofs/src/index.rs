//! The reader of an index: names, inodes, and the object at an address. Each block is compared with its
//! checksum when it is read; memory holds the checksums, a thousandth of the file.

use std::ops::Range;

use crate::error::IndexError;
use crate::etag::{ETAG_BYTES_MAX, Unpacked};
use crate::fields::{crc32c, u32_at};
use crate::header::{FOLDERS_A_BLOCK, Header, Sections};
use crate::inode::{Inode, Kind, SLOT};
use crate::names::PATH_BYTES_MAX;
use crate::page::{Page, partition, partition_near};
use crate::read_at::ReadAt;
use crate::record::{RECORDS_A_BLOCK, Record};
use crate::{BLOCK, DATA_BLOCK, ROOT, blocks};

/// An open index.
#[derive(Debug)]
pub struct Index<R> {
    file: R,
    header: Header,
    sections: Sections,
    source: String,
    checksums: Vec<u32>,
    /// The start block of the first record of each block.
    record_fences: Vec<u32>,
    /// The first number of each block of folders.
    folder_fences: Vec<u32>,
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    pub name: Vec<u8>,
    pub nid: u64,
    pub kind: Kind,
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

fn malformed<T>(what: &'static str) -> Result<T, IndexError> {
    Err(IndexError::Malformed { what })
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

    /// Reads an inode.
    pub fn inode(&self, nid: u64) -> Result<Inode, IndexError> {
        let at = self.inode_at(nid)?;
        let block = self.block(at / BLOCK)?;
        let inode = Inode::parse(nid, &block[(at % BLOCK) as usize..]);
        inode.ok_or(IndexError::Malformed { what: "an inode has an unknown type or layout" })
    }

    fn inode_at(&self, nid: u64) -> Result<u64, IndexError> {
        match nid.checked_mul(SLOT).filter(|&at| at < self.metadata_bytes()) {
            Some(at) => Ok(at),
            None => malformed("the address of an inode lies outside the metadata"),
        }
    }

    /// The entry of a name.
    pub fn lookup(&self, folder: &Inode, name: &[u8]) -> Result<Option<Entry>, IndexError> {
        // A page whose first name is this one or comes before it; the last of them has the name.
        let after =
            partition(blocks(folder.size), |page| Ok(self.page(folder, page)?.dirent(0)?.name <= name))?;
        let Some(page) = after.checked_sub(1) else { return Ok(None) };
        let page = self.page(folder, page)?;
        let place = page.partition(|dirent| Ok(dirent.name < name))?;
        if place == page.len() {
            return Ok(None);
        }
        let dirent = page.dirent(place)?;
        Ok((dirent.name == name && !dirent.is_dots()).then(|| Entry::of(&dirent)))
    }

    /// The entries of a folder in the order of their names, without the dots.
    ///
    /// A crafted index can contain cycles of folders, or one folder many times. A walk of all folders should
    /// stop with an error when it has seen more entries than [`Totals`] counts files and folders.
    pub fn entries(&self, folder: &Inode) -> Entries<'_, R> {
        Entries { index: self, folder: folder.clone(), next_page: 0, page: Vec::new().into_iter() }
    }

    /// The object with data in a block; `None` if no object has.
    pub fn object_at(&self, block: u32) -> Result<Option<Object>, IndexError> {
        let after = self.record_fences.partition_point(|&first| first <= block) as u64;
        let Some(row) = after.checked_sub(1) else { return Ok(None) };
        let records = self.block(self.sections.records + row)?;
        let first = row as u32 * RECORDS_A_BLOCK;
        let count = RECORDS_A_BLOCK.min(self.header.records - first);
        let starts_before = |place: u64| Ok(Record::within(&records, place as u32).start_block <= block);
        let after = partition(count.into(), starts_before)?;
        let Some(place) = after.checked_sub(1) else { return Ok(None) };
        let object = self.object(first + place as u32)?;
        let has = |object: &Object| u64::from(block - object.start_block) < blocks(object.size);
        Ok(object.filter(has))
    }

    /// The object of a file, by the number of its inode; `None` for a folder.
    pub fn object(&self, number: u32) -> Result<Option<Object>, IndexError> {
        let record = self.record(number)?;
        let (path, nid) = self.path(number)?;
        let inode = self.inode(nid)?;
        if inode.kind == Kind::Folder {
            return Ok(None);
        }
        // Empty files have no address.
        if inode.size > 0 && inode.start_block != record.start_block {
            return malformed("a file and its record have different addresses");
        }
        let etag = self.etag_of(&record)?;
        let Inode { size, modified_s, start_block, .. } = inode;
        Ok(Some(Object { path, nid, size, modified_s, etag, start_block }))
    }

    /// The ETag of a file, by the number of its inode.
    pub fn etag(&self, number: u32) -> Result<Option<String>, IndexError> {
        self.etag_of(&self.record(number)?)
    }

    fn etag_of(&self, record: &Record) -> Result<Option<String>, IndexError> {
        let (at, bytes) = match record.etag.unpack() {
            Unpacked::None => return Ok(None),
            Unpacked::Whole(etag) => return Ok(Some(etag)),
            Unpacked::String { at, bytes } => (at, u64::from(bytes)),
        };
        if bytes > ETAG_BYTES_MAX as u64 {
            return malformed("an ETag is longer than the format allows");
        }
        let (start, end) = (self.header.source_bytes.into(), self.header.string_bytes);
        if at < start || at.checked_add(bytes).is_none_or(|etag_end| etag_end > end) {
            return malformed("the address of an ETag lies outside the strings");
        }
        let first = at / BLOCK;
        let mut read = Vec::new();
        for block in first..blocks(at + bytes) {
            read.extend_from_slice(&self.block(self.sections.strings + block)?);
        }
        let start = (at - first * BLOCK) as usize;
        let etag = read.get(start..start + bytes as usize).unwrap_or_default();
        String::from_utf8(etag.to_vec())
            .map_or_else(|_| malformed("an ETag is not UTF-8"), |etag| Ok(Some(etag)))
    }

    /// The path and nid of a file or folder by its number.
    fn path(&self, number: u32) -> Result<(Vec<u8>, u64), IndexError> {
        let (mut names, mut number, mut own) = (Vec::new(), number, None);
        let mut path_bytes = 0;
        while number != 0 {
            let (nid, numbers) = self.folder_of(number)?;
            let folder = self.inode(nid)?;
            let entry = self.child(&folder, number, numbers)?;
            own = own.or(Some(entry.nid));
            path_bytes += entry.name.len() + usize::from(!names.is_empty());
            if path_bytes > PATH_BYTES_MAX {
                return malformed("a path is longer than the format allows");
            }
            names.push(entry.name);
            // A folder is written when its children are, so the way to the root leads to greater numbers.
            if folder.nid != ROOT && folder.number <= number {
                return malformed("a folder contains itself");
            }
            number = if folder.nid == ROOT { 0 } else { folder.number };
        }
        names.reverse();
        Ok((names.join(&b'/'), own.unwrap_or(ROOT)))
    }

    /// The nid of the folder that has the child with this number, and the numbers of all its children.
    fn folder_of(&self, number: u32) -> Result<(u64, Range<u32>), IndexError> {
        let after = self.folder_fences.partition_point(|&first| first <= number) as u64;
        let Some(row) = after.checked_sub(1) else { return malformed("a file belongs to no folder") };
        let block = self.block(self.sections.folders + row)?;
        let first = row as u32 * FOLDERS_A_BLOCK;
        let count = FOLDERS_A_BLOCK.min(self.header.folders_with_children - first) as usize;
        let first_number = |place: usize| u32_at(&block, place * 8);
        let after = partition(count as u64, |place| Ok(first_number(place as usize) <= number))? as usize;
        let Some(place) = after.checked_sub(1) else { return malformed("a file belongs to no folder") };
        let end = match after < count {
            true => first_number(after),
            false => self.folder_fences.get(row as usize + 1).copied().unwrap_or(self.header.records),
        };
        Ok((u32_at(&block, place * 8 + 4).into(), first_number(place)..end))
    }

    /// The entry of the child with this number. Numbers follow each other as names do.
    fn child(&self, folder: &Inode, number: u32, numbers: Range<u32>) -> Result<Entry, IndexError> {
        let pages = blocks(folder.size);
        // Names are about as long everywhere.
        let (before, all) = (number - numbers.start, numbers.end.saturating_sub(numbers.start).max(1));
        let guess = (u128::from(pages) * u128::from(before) / u128::from(all)) as u64;
        let after = partition_near(pages, guess, |page| {
            Ok(self.first_number(&self.page(folder, page)?)?.is_some_and(|first| first <= number))
        })?;
        let Some(page) = after.checked_sub(1) else {
            return malformed("a folder does not list one of its files");
        };
        let page = self.page(folder, page)?;
        let mut left = self.first_number(&page)?.map_or(0, |first| number - first);
        for place in 0..page.len() {
            let dirent = page.dirent(place)?;
            match left {
                _ if dirent.is_dots() => {}
                0 if self.inode(dirent.nid)?.number == number => return Ok(Entry::of(&dirent)),
                0 => break,
                _ => left -= 1,
            }
        }
        malformed("a folder does not list one of its files")
    }

    /// The number of the first child of a page. Pages without one are the last, and contain nothing but dots.
    fn first_number(&self, page: &Page) -> Result<Option<u32>, IndexError> {
        for place in 0..page.len() {
            let dirent = page.dirent(place)?;
            if !dirent.is_dots() {
                return self.inode(dirent.nid).map(|inode| Some(inode.number));
            }
        }
        Ok(None)
    }

    fn record(&self, number: u32) -> Result<Record, IndexError> {
        if number >= self.header.records {
            return malformed("the number of an inode lies outside the records");
        }
        let block = self.block(self.sections.records + u64::from(number / RECORDS_A_BLOCK))?;
        Ok(Record::within(&block, number % RECORDS_A_BLOCK))
    }

    /// A page of a folder's dirents. Its last one may follow the inode.
    fn page(&self, folder: &Inode, page: u64) -> Result<Page, IndexError> {
        let bytes = folder.size.saturating_sub(page * BLOCK).min(BLOCK) as usize;
        if folder.kind != Kind::Folder || bytes == 0 {
            return malformed("a page of dirents lies outside its folder");
        }
        if folder.is_inline && page + 1 == blocks(folder.size) {
            let at = self.inode_at(folder.nid)?;
            let block = self.block(at / BLOCK)?;
            let inode = (at % BLOCK) as usize;
            let start = inode + Inode::weight_in(&block[inode..]);
            return Page::new(block, start..start + bytes);
        }
        let block = u64::from(folder.start_block) + page;
        if block >= self.header.metadata_blocks.into() {
            return malformed("the address of a folder lies outside the metadata");
        }
        Page::new(self.block(block)?, 0..bytes)
    }

    /// A block, which has its checksum.
    fn block(&self, block: u64) -> Result<Vec<u8>, IndexError> {
        let Some(&checksum) = self.checksums.get(block as usize) else {
            return malformed("a block lies outside the index");
        };
        let mut bytes = vec![0; BLOCK as usize];
        self.file.read_at(&mut bytes, block * BLOCK)?;
        if crc32c(&bytes) != checksum {
            return Err(IndexError::Checksum { block });
        }
        Ok(bytes)
    }
}

impl Entry {
    fn of(dirent: &crate::page::Dirent<'_>) -> Entry {
        Entry { name: dirent.name.to_vec(), nid: dirent.nid, kind: dirent.kind }
    }
}

/// The entries of a folder, page by page. Ends after an error.
#[derive(Debug)]
pub struct Entries<'a, R> {
    index: &'a Index<R>,
    folder: Inode,
    next_page: u64,
    page: std::vec::IntoIter<Entry>,
}

impl<R: ReadAt> Entries<'_, R> {
    fn read_page(&mut self) -> Result<(), IndexError> {
        let page = self.index.page(&self.folder, self.next_page)?;
        let mut entries = Vec::with_capacity(page.len());
        for place in 0..page.len() {
            let dirent = page.dirent(place)?;
            if !dirent.is_dots() {
                entries.push(Entry::of(&dirent));
            }
        }
        self.page = entries.into_iter();
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
