//! A folder whose keys still come, with its children in two blocks of memory: 44 bytes each, and the names.

use crate::error::WriteError;
use crate::etag::PackedEtag;

/// A folder on the current path.
#[derive(Debug, Default)]
pub struct OpenFolder {
    /// Bytes of the keys' common start, the folder's own slash included.
    pub prefix_bytes: usize,
    /// When its marker object was written, if there is one.
    pub marked_s: Option<i64>,
    /// The newest of what is in it.
    pub newest_s: Option<i64>,
    names: Vec<u8>,
    /// Where each name ends; it begins where the previous one ends.
    ends: Vec<u32>,
    children: Vec<Child>,
}

#[derive(Clone, Copy, Debug)]
pub enum Child {
    File {
        size: u64,
        modified_s: i64,
        etag: PackedEtag,
    },
    /// It is written, except for what it says of its parent.
    Folder {
        nid: u32,
        /// Where its dirent of the parent is in the file.
        parent_at: u64,
    },
}

impl OpenFolder {
    pub fn push(&mut self, name: &[u8], child: Child) -> Result<(), WriteError> {
        let end = u32::try_from(self.names.len() + name.len())
            .map_err(|_| WriteError::FolderTooLarge { most: u32::MAX.into() })?;
        self.names.extend_from_slice(name);
        self.ends.push(end);
        self.children.push(child);
        Ok(())
    }

    /// Takes the time of something in the folder into account.
    pub fn saw(&mut self, modified_s: i64) {
        self.newest_s = self.newest_s.max(Some(modified_s));
    }

    pub fn modified_s(&self) -> i64 {
        self.marked_s.or(self.newest_s).unwrap_or(0)
    }

    /// Empty, with the memory of a folder that was small.
    pub fn cleared(mut self) -> OpenFolder {
        if self.names.capacity() > 1 << 20 {
            return OpenFolder::default();
        }
        self.names.clear();
        self.ends.clear();
        self.children.clear();
        OpenFolder { names: self.names, ends: self.ends, children: self.children, ..OpenFolder::default() }
    }

    fn name(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.names[start as usize..self.ends[row] as usize]
    }

    /// The children in the order of their names. A file whose name a folder has, too, is left out: the mount
    /// shows the folder.
    pub fn sorted(&self) -> Children<'_> {
        let rows = self.ends.len();
        let is_sorted = (1..rows).all(|row| self.name(row - 1) < self.name(row));
        if is_sorted {
            return Children { folder: self, order: None, shadowed: Vec::new() };
        }
        // Keys come in the order of keys, in which the folder `a` is `a/`, behind `a-b`.
        let mut order: Vec<u32> = (0..rows as u32).collect();
        let sort_key = |&row: &u32| (self.name(row as usize), self.is_file(row as usize));
        order.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        let mut shadowed = Vec::new();
        // A folder comes before the file of its name.
        order.dedup_by(|second, first| {
            let is_shadowed = self.name(*second as usize) == self.name(*first as usize);
            shadowed.extend(is_shadowed.then_some(*second));
            is_shadowed
        });
        Children { folder: self, order: Some(order), shadowed }
    }

    fn is_file(&self, row: usize) -> bool {
        matches!(self.children[row], Child::File { .. })
    }
}

/// The children of a folder in the order of their names, each name once.
#[derive(Debug)]
pub struct Children<'a> {
    folder: &'a OpenFolder,
    /// Their rows; `None` if they are in order.
    order: Option<Vec<u32>>,
    /// The rows of files that were left out.
    shadowed: Vec<u32>,
}

impl Children<'_> {
    pub fn len(&self) -> usize {
        self.order.as_ref().map_or(self.folder.ends.len(), Vec::len)
    }

    /// The names of files that were left out.
    pub fn shadowed(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.shadowed.iter().map(|&row| self.folder.name(row as usize))
    }

    pub fn name(&self, place: usize) -> &[u8] {
        self.folder.name(self.row(place))
    }

    pub fn child(&self, place: usize) -> Child {
        self.folder.children[self.row(place)]
    }

    fn row(&self, place: usize) -> usize {
        self.order.as_ref().map_or(place, |order| order[place] as usize)
    }

    /// The number of names before this one.
    pub fn before(&self, name: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.name(middle) < name { low = middle + 1 } else { high = middle }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_takes_forty_bytes() {
        assert_eq!(size_of::<Child>(), 40);
    }
}
