//! How a complete folder is written: inodes of its files until the folder's own inode and last dirents fit
//! the block, then those, then the other files.
//!
//! The kernel wants a folder's last dirents directly behind its inode, in one block. The dirents of a folder
//! of ten files take 0.4 KiB this way, and a block of their own otherwise. Files close the gap before the
//! inode, so that almost nothing is padded. Where dirents fill blocks, files close the gap before these.

use std::io::{Read, Seek, Write};
use std::iter::once;

use super::Writer;
use crate::dirents::{DraftPage, Extent};
use crate::error::WriteError;
use crate::etag::PackedEtag;
use crate::inode::{COMPACT_BYTES, EXTENDED_BYTES, Inode, Kind, NUMBER_AT, SLOT, is_small};
use crate::open_folder::{Child, Children, OpenFolder};
use crate::{BLOCK, DATA_BLOCK, ROOT, blocks};

/// A dirent of a folder.
enum Listed {
    Own,
    Parent,
    Child(usize),
}

/// Where the parts of a folder lie.
struct Places {
    /// The first inode of a file.
    files_at: u64,
    /// The number of children that are written before the folder's own inode.
    filled: usize,
    pages_at: u64,
    inode_at: u64,
    /// The inodes of the other files.
    rest_at: u64,
}

impl<W: Read + Write + Seek, S: Read + Write + Seek> Writer<W, S> {
    /// Its number and its parent's nid are patched when the parent is written.
    pub(super) fn write_folder(&mut self, folder: &OpenFolder) -> Result<Child, WriteError> {
        let (inode, parent_at) = self.write_any(folder, false)?;
        Ok(Child::Folder { nid: inode.nid as u32, parent_at })
    }

    /// Everything but its inode, which lies in block 0.
    pub(super) fn write_root(&mut self, folder: &OpenFolder) -> Result<Inode, WriteError> {
        let (root, parent_at) = self.write_any(folder, true)?;
        self.output.patch(parent_at, &ROOT.to_le_bytes())?;
        Ok(root)
    }

    /// Writes a folder and its files; returns its inode and where its dirent of the parent is.
    fn write_any(&mut self, folder: &OpenFolder, is_root: bool) -> Result<(Inode, u64), WriteError> {
        let children = folder.sorted();
        self.note_shadowed(&children, folder.prefix_bytes);
        let mut extent = Extent::default();
        listed(&children).for_each(|entry| extent.add(name(&children, &entry)));
        let mut inode = self.folder_inode(folder, &children, extent);
        let weight = inode.weight();
        inode.is_inline = !is_root && extent.has_tail(weight);
        let tail = extent.tail(inode.is_inline);
        let page_blocks = extent.page_blocks(inode.is_inline);

        let first_number = self.next_number;
        let files_at = self.output.end();
        let room = if page_blocks > 0 { BLOCK as usize } else { weight + tail };
        let filled = self.fill(&children, room)?;
        let pages_at = self.output.end();
        let inode_at = pages_at + page_blocks * BLOCK;
        let own = if is_root { 0 } else { (weight + tail) as u64 };
        let rest_at = (inode_at + own).next_multiple_of(SLOT);
        let places = Places { files_at, filled, pages_at, inode_at, rest_at };
        inode.nid = if is_root { ROOT } else { inode_at / SLOT };
        inode.start_block = if page_blocks > 0 { (pages_at / BLOCK) as u32 } else { 0 };

        let (last_page, parent_at) = self.write_pages(&children, &places, &inode)?;
        debug_assert_eq!(self.output.end(), inode_at);
        if !is_root {
            self.output.append_with(|end| inode.write(end))?;
            self.output.append(&last_page)?;
            self.output.pad(SLOT)?;
        }
        for place in filled..children.len() {
            self.write_child(children.child(place))?;
        }
        self.name_parent(&children, inode.nid, first_number)?;
        if children.len() > 0 {
            self.push_parent(first_number, inode.nid)?;
        }
        if self.output.end() > u64::from(DATA_BLOCK) * BLOCK {
            return Err(WriteError::TooMuchMetadata { most: u64::from(DATA_BLOCK) * BLOCK });
        }
        Ok((inode, parent_at))
    }

    fn note_shadowed(&mut self, children: &Children<'_>, prefix_bytes: usize) {
        let names = children.shadowed();
        self.shadowed += names.len() as u64;
        // Still the prefix of this folder.
        let prefix = &self.prefix[..prefix_bytes];
        self.shadowed_paths.extend(names.map(|name| [prefix, name].concat()));
    }

    fn folder_inode(&self, folder: &OpenFolder, children: &Children<'_>, extent: Extent) -> Inode {
        let is_folder = |&place: &usize| matches!(children.child(place), Child::Folder { .. });
        Inode {
            nid: 0,
            kind: Kind::Folder,
            size: extent.size(),
            modified_s: folder.modified_s(),
            permissions: self.options.folder_mode,
            uid: self.options.uid,
            gid: self.options.gid,
            // A folder's own dirent, that in its parent, and one in each folder within.
            links: 2 + (0..children.len()).filter(is_folder).count() as u32,
            start_block: 0,
            number: 0,
            is_inline: false,
        }
    }

    /// Writes children until the block has room for so many bytes, and returns their number.
    fn fill(&mut self, children: &Children<'_>, room: usize) -> Result<usize, WriteError> {
        let mut filled = 0;
        while self.output.end() % BLOCK + room as u64 > BLOCK {
            if filled == children.len() {
                self.output.pad(BLOCK)?;
                break;
            }
            self.write_child(children.child(filled))?;
            filled += 1;
        }
        Ok(filled)
    }

    /// Writes the inode of a file, and the record of a file or folder.
    fn write_child(&mut self, child: Child) -> Result<(), WriteError> {
        let Child::File { size, modified_s, etag } = child else {
            return self.push_record(PackedEtag::NONE);
        };
        let inode = Inode {
            nid: 0,
            kind: Kind::File,
            size,
            modified_s,
            permissions: self.options.file_mode,
            uid: self.options.uid,
            gid: self.options.gid,
            links: 1,
            start_block: if size == 0 { 0 } else { self.next_block },
            number: self.next_number,
            is_inline: false,
        };
        if place_of(self.output.end(), inode.weight()) != self.output.end() {
            self.output.pad(BLOCK)?;
        }
        self.output.append_with(|end| inode.write(end))?;
        self.push_record(etag)?;
        // `add` has counted the blocks.
        self.next_block += blocks(size) as u32;
        self.header.files += 1;
        self.header.file_bytes += size;
        Ok(())
    }

    /// Writes the pages of dirents that have blocks of their own. Returns the last one if it follows the
    /// inode, and where the parent's dirent is.
    fn write_pages(
        &mut self,
        children: &Children<'_>,
        places: &Places,
        inode: &Inode,
    ) -> Result<(Vec<u8>, u64), WriteError> {
        let mut page = DraftPage::default();
        let mut page_at = places.pages_at;
        let (mut parent_page, mut parent_place) = (0, 0);
        let mut file_at = places.files_at;
        for entry in listed(children) {
            let name = name(children, &entry);
            if !page.fits(name) {
                self.output.append_with(|end| page.write(end))?;
                self.output.pad(BLOCK)?;
                page_at += BLOCK;
            }
            match entry {
                Listed::Own => {
                    page.push(name, inode.nid, Kind::Folder);
                }
                // It has no nid yet.
                Listed::Parent => (parent_page, parent_place) = (page_at, page.push(name, 0, Kind::Folder)),
                Listed::Child(place) => {
                    if place == places.filled {
                        file_at = places.rest_at;
                    }
                    match children.child(place) {
                        Child::Folder { nid, .. } => page.push(name, nid.into(), Kind::Folder),
                        Child::File { size, modified_s, .. } => {
                            let weight = self.file_weight(size, modified_s);
                            let at = place_of(file_at, weight);
                            file_at = at + weight as u64;
                            page.push(name, at / SLOT, Kind::File)
                        }
                    };
                }
            }
        }
        let mut last_page = Vec::new();
        if inode.is_inline {
            page.write(&mut last_page);
            if parent_page == page_at {
                parent_page = places.inode_at + inode.weight() as u64;
            }
        } else {
            self.output.append_with(|end| page.write(end))?;
            self.output.pad(BLOCK)?;
        }
        Ok((last_page, parent_page + parent_place))
    }

    fn file_weight(&self, size: u64, modified_s: i64) -> usize {
        let fits = |id: u32| u16::try_from(id).is_ok();
        let is_compact = is_small(size, modified_s) && fits(self.options.uid) && fits(self.options.gid);
        if is_compact { COMPACT_BYTES } else { EXTENDED_BYTES }
    }

    /// Tells the folders within a folder its nid, and their numbers.
    fn name_parent(
        &mut self,
        children: &Children<'_>,
        nid: u64,
        first_number: u32,
    ) -> Result<(), WriteError> {
        for (place, number) in (0..children.len()).zip(first_number..) {
            if let Child::Folder { nid: own, parent_at } = children.child(place) {
                self.output.patch(parent_at, &nid.to_le_bytes())?;
                self.output.patch(u64::from(own) * SLOT + NUMBER_AT, &number.to_le_bytes())?;
            }
        }
        Ok(())
    }
}

/// The dirents of a folder in the order of their names. `!` comes before the dots.
fn listed(children: &Children<'_>) -> impl Iterator<Item = Listed> {
    let (own, parent) = (children.before(b"."), children.before(b".."));
    let child = Listed::Child;
    (0..own)
        .map(child)
        .chain(once(Listed::Own))
        .chain((own..parent).map(child))
        .chain(once(Listed::Parent))
        .chain((parent..children.len()).map(child))
}

fn name<'a>(children: &'a Children<'_>, entry: &Listed) -> &'a [u8] {
    match entry {
        Listed::Own => b".",
        Listed::Parent => b"..",
        Listed::Child(place) => children.name(*place),
    }
}

/// The place of an inode at `at` or behind: none crosses into the next block.
fn place_of(at: u64, weight: usize) -> u64 {
    let crosses = at % BLOCK + weight as u64 > BLOCK;
    if crosses { at.next_multiple_of(BLOCK) } else { at }
}
