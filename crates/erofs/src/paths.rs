//! From the number of a file or folder to its path: number → folder → page, guessed by proportion → name.

use std::ops::Range;

use crate::block_cache::BlockCache;
use crate::error::{IndexError, malformed};
use crate::fields::u32_at;
use crate::header::FOLDERS_A_BLOCK;
use crate::inode::Inode;
use crate::names::PATH_BYTES_MAX;
use crate::page::{Entry, Page, partition, partition_near};
use crate::read_at::ReadAt;
use crate::{ROOT, blocks};

impl<R: ReadAt> BlockCache<'_, R> {
    /// The path and nid of a file or folder by its number.
    pub fn path(&mut self, number: u32) -> Result<(Vec<u8>, u64), IndexError> {
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
    fn folder_of(&mut self, number: u32) -> Result<(u64, Range<u32>), IndexError> {
        let index = self.index;
        let after = index.folder_fences.partition_point(|&first| first <= number) as u64;
        let Some(row) = after.checked_sub(1) else { return malformed("a file belongs to no folder") };
        let block = self.block(index.sections.folders + row)?;
        let first = row as u32 * FOLDERS_A_BLOCK;
        let count = FOLDERS_A_BLOCK.min(index.header.folders_with_children - first) as usize;
        let first_number = |place: usize| u32_at(block, place * 8);
        let after = partition(count as u64, |place| Ok(first_number(place as usize) <= number))? as usize;
        let Some(place) = after.checked_sub(1) else { return malformed("a file belongs to no folder") };
        let end = match after < count {
            true => first_number(after),
            false => index.folder_fences.get(row as usize + 1).copied().unwrap_or(index.header.records),
        };
        Ok((u32_at(block, place * 8 + 4).into(), first_number(place)..end))
    }

    /// The entry of the child with this number. Numbers follow each other as names do.
    fn child(&mut self, folder: &Inode, number: u32, numbers: Range<u32>) -> Result<Entry, IndexError> {
        let pages = blocks(folder.size);
        // Names are about as long everywhere.
        let (before, all) = (number - numbers.start, numbers.end.saturating_sub(numbers.start).max(1));
        let guess = (u128::from(pages) * u128::from(before) / u128::from(all)) as u64;
        let after = partition_near(pages, guess, |page| {
            let page = self.page(folder, page)?;
            Ok(self.first_number(&page)?.is_some_and(|first| first <= number))
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
    fn first_number(&mut self, page: &Page) -> Result<Option<u32>, IndexError> {
        for place in 0..page.len() {
            let dirent = page.dirent(place)?;
            if !dirent.is_dots() {
                return self.inode(dirent.nid).map(|inode| Some(inode.number));
            }
        }
        Ok(None)
    }
}
