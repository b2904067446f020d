//! All files of an index in the order of their keys.
//!
//! A folder's dirents are sorted by name, keys as if a folder's name ended in a slash: the folder `a` comes
//! before the file `a-b`, its files `a/…` after that. So a folder waits until the next name is not its own
//! with a byte below the slash behind it. Those that wait extend each other's names, and are a stack.

use crate::block_cache::BlockCache;
use crate::error::{IndexError, malformed};
use crate::index::{Index, Object};
use crate::inode::{Inode, Kind};
use crate::names::PATH_BYTES_MAX;
use crate::page::Page;
use crate::read_at::ReadAt;
use crate::{ROOT, blocks};

/// The files of an index. Ends after an error.
///
/// The last item is an error if there were fewer files and folders than [`crate::Totals`] counts.
#[derive(Debug)]
pub struct Files<'a, R> {
    cache: BlockCache<'a, R>,
    /// The folders on the way to the next file, from the root down.
    path: Vec<Folder>,
    /// The prefix of the last of them.
    prefix: Vec<u8>,
    /// Files and folders that were not seen yet.
    files_left: u64,
    folders_left: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Walking,
    Ended,
}

/// A folder whose entries are being read.
#[derive(Debug)]
struct Folder {
    inode: Inode,
    /// Bytes of its prefix, the slash included.
    prefix_bytes: usize,
    /// The page that is being read, and its next dirent.
    page: Option<Page>,
    place: usize,
    next_page: u64,
    /// The last name that was read.
    last: Vec<u8>,
    /// Folders that come after later names: each name continues the one before.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    name: Vec<u8>,
    nid: u64,
}

/// What a folder has next.
enum Next {
    Folder(Waiting),
    /// Its name is the last that was read.
    File(u64),
    End,
}

impl<'a, R: ReadAt> Files<'a, R> {
    pub(crate) fn new(index: &'a Index<R>) -> Files<'a, R> {
        let totals = index.totals();
        Files {
            cache: BlockCache::new(index),
            path: Vec::new(),
            prefix: Vec::new(),
            files_left: totals.files,
            folders_left: totals.folders,
            state: State::New,
        }
    }

    fn step(&mut self) -> Result<Option<Object>, IndexError> {
        if self.state == State::New {
            self.state = State::Walking;
            self.enter(ROOT)?;
        }
        while let Some(folder) = self.path.last_mut() {
            match folder.next(&mut self.cache)? {
                Next::File(nid) => return self.file(nid).map(Some),
                Next::Folder(Waiting { name, nid }) => {
                    self.prefix.extend_from_slice(&name);
                    self.prefix.push(b'/');
                    self.enter(nid)?;
                }
                Next::End => {
                    self.path.pop();
                    self.prefix.truncate(self.path.last().map_or(0, |parent| parent.prefix_bytes));
                }
            }
        }
        if self.files_left > 0 || self.folders_left > 0 {
            return malformed("its folders list fewer files and folders than it has");
        }
        Ok(None)
    }

    /// Enters the folder of the current prefix.
    fn enter(&mut self, nid: u64) -> Result<(), IndexError> {
        self.folders_left = counted(self.folders_left)?;
        if self.prefix.len() > PATH_BYTES_MAX {
            return malformed("a path is longer than the format allows");
        }
        let inode = self.cache.inode(nid)?;
        check_kind(&inode, Kind::Folder)?;
        self.path.push(Folder {
            inode,
            prefix_bytes: self.prefix.len(),
            page: None,
            place: 0,
            next_page: 0,
            last: Vec::new(),
            waiting: Vec::new(),
        });
        Ok(())
    }

    /// The file of the last name that was read.
    fn file(&mut self, nid: u64) -> Result<Object, IndexError> {
        self.files_left = counted(self.files_left)?;
        let name = self.path.last().map_or(&[][..], |folder| &folder.last);
        if self.prefix.len() + name.len() > PATH_BYTES_MAX {
            return malformed("a path is longer than the format allows");
        }
        let path = [&self.prefix, name].concat();
        let inode = self.cache.inode(nid)?;
        check_kind(&inode, Kind::File)?;
        self.cache.object(path, &inode)
    }
}

fn counted(left: u64) -> Result<u64, IndexError> {
    left.checked_sub(1).map_or_else(|| malformed("its folders list more files and folders than it has"), Ok)
}

fn check_kind(inode: &Inode, kind: Kind) -> Result<(), IndexError> {
    if inode.kind == kind { Ok(()) } else { malformed("a name and its inode are of different kinds") }
}

impl Folder {
    fn next<R: ReadAt>(&mut self, cache: &mut BlockCache<'_, R>) -> Result<Next, IndexError> {
        loop {
            let is_at_end = !self.fill(cache)?;
            let dirent = match &self.page {
                Some(page) if !is_at_end => page.dirent(self.place)?,
                _ => return Ok(self.waiting.pop().map_or(Next::End, Next::Folder)),
            };
            let is_waiting_over = |waiting: &mut Waiting| !comes_before(dirent.name, &waiting.name);
            if let Some(waiting) = self.waiting.pop_if(is_waiting_over) {
                return Ok(Next::Folder(waiting));
            }
            if !self.last.is_empty() && *self.last >= *dirent.name {
                return malformed("the names of a folder are out of order");
            }
            self.last.clear();
            self.last.extend_from_slice(dirent.name);
            self.place += 1;
            match dirent.kind {
                _ if dirent.is_dots() => {}
                Kind::File => return Ok(Next::File(dirent.nid)),
                Kind::Folder => self.waiting.push(Waiting { name: self.last.clone(), nid: dirent.nid }),
            }
        }
    }

    /// Reads the next page if the current one has no more dirents; `false` if there is none.
    fn fill<R: ReadAt>(&mut self, cache: &mut BlockCache<'_, R>) -> Result<bool, IndexError> {
        if self.page.as_ref().is_some_and(|page| self.place < page.len()) {
            return Ok(true);
        }
        if self.next_page >= blocks(self.inode.size) {
            return Ok(false);
        }
        self.page = Some(cache.page(&self.inode, self.next_page)?);
        self.place = 0;
        self.next_page += 1;
        Ok(true)
    }
}

/// Whether the keys of a name, which comes after the folder's in the order of names, come before the keys in
/// the folder.
fn comes_before(name: &[u8], folder: &[u8]) -> bool {
    name.strip_prefix(folder).is_some_and(|rest| rest.first().is_some_and(|&byte| byte < b'/'))
}

impl<R: ReadAt> Iterator for Files<'_, R> {
    type Item = Result<Object, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Ended {
            return None;
        }
        let step = self.step().transpose();
        if !matches!(step, Some(Ok(_))) {
            self.state = State::Ended;
        }
        step
    }
}
