//! A page of dirents as it is read: nothing in it is believed.

use std::ops::Range;

use crate::dirents::{DIRENT_BYTES, kind_of};
use crate::error::IndexError;
use crate::fields::{u16_at, u64_at};
use crate::inode::Kind;

/// Bytes of a block that are one page.
#[derive(Debug)]
pub struct Page {
    block: Vec<u8>,
    range: Range<usize>,
    dirents: usize,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub struct Dirent<'a> {
    pub name: &'a [u8],
    pub nid: u64,
    pub kind: Kind,
}

const MALFORMED: IndexError = IndexError::Malformed { what: "a page of dirents is not one" };

impl Page {
    pub fn new(block: Vec<u8>, range: Range<usize>) -> Result<Page, IndexError> {
        let bytes = block.get(range.clone()).ok_or(MALFORMED)?;
        let names_at = usize::from(u16_at(bytes, 8));
        if names_at < DIRENT_BYTES || names_at % DIRENT_BYTES != 0 || names_at > bytes.len() {
            return Err(MALFORMED);
        }
        Ok(Page { block, range, dirents: names_at / DIRENT_BYTES })
    }

    /// At least one.
    pub fn len(&self) -> usize {
        self.dirents
    }

    pub fn dirent(&self, place: usize) -> Result<Dirent<'_>, IndexError> {
        let bytes = &self.block[self.range.clone()];
        let at = place * DIRENT_BYTES;
        let start = usize::from(u16_at(bytes, at + 8));
        let is_last = place + 1 >= self.dirents;
        let end = if is_last { bytes.len() } else { usize::from(u16_at(bytes, at + DIRENT_BYTES + 8)) };
        let mut name = bytes.get(start..end).ok_or(MALFORMED)?;
        if is_last && let Some(padding) = name.iter().position(|&byte| byte == 0) {
            name = &name[..padding];
        }
        let kind = bytes.get(at + 10).and_then(|&byte| kind_of(byte)).ok_or(MALFORMED)?;
        Ok(Dirent { name, nid: u64_at(bytes, at), kind })
    }

    /// How many entries, from the first on, satisfy `is_before`, which must be true of a first part only.
    pub fn partition(
        &self,
        mut is_before: impl FnMut(Dirent<'_>) -> Result<bool, IndexError>,
    ) -> Result<usize, IndexError> {
        partition(self.len() as u64, |place| is_before(self.dirent(place as usize)?)).map(|place| place as usize)
    }
}

impl Dirent<'_> {
    /// Whether it is the folder itself or its parent.
    pub fn is_dots(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// How many of `count` things satisfy `is_before`, which must be true of a first part only.
pub fn partition(
    count: u64,
    mut is_before: impl FnMut(u64) -> Result<bool, IndexError>,
) -> Result<u64, IndexError> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle)? { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}
