//! The files of an index as a tree: for kernels that cannot mount its image.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use flatout_erofs::{BLOCK, Entry, IndexError, Inode, Kind, ReadAt};
use flatout_tree::{
    AttributeSource, Attributes, Caller, Cancel, FileKind, Files, FolderEntry, FsError, Node, OpenMode,
    OpenedFile, ROOT, STATFS, Slices, Statfs,
};

use crate::FOR_EVER;
use crate::objects::Objects;

/// Entries of one page of dirents at most: their offsets have a page and a place in it.
const ENTRIES_A_PAGE: u64 = 512;
/// The first offsets are those of `.` and `..`.
const DOTS: u64 = 2;

/// An index as a tree. It holds nothing of its own: nodes and handles are the nids of inodes.
pub struct Names<R> {
    objects: Arc<Objects<R>>,
}

impl<R: ReadAt + Send + Sync + 'static> Names<R> {
    pub fn new(objects: Arc<Objects<R>>) -> Names<R> {
        Names { objects }
    }

    pub fn objects(&self) -> &Arc<Objects<R>> {
        &self.objects
    }

    fn inode(&self, node: u64) -> Result<Inode, FsError> {
        let nid = if node == ROOT { flatout_erofs::ROOT } else { node };
        self.objects.index().inode(nid).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &IndexError) -> FsError {
        self.objects.unreadable(error)
    }

    fn folder(&self, node: u64) -> Result<Inode, FsError> {
        let inode = self.inode(node)?;
        if inode.kind == Kind::Folder { Ok(inode) } else { Err(FsError::of(libc::ENOTDIR)) }
    }
}

fn node_of(inode: &Inode) -> Node {
    let id = if inode.nid == flatout_erofs::ROOT { ROOT } else { inode.nid };
    let kind = if inode.kind == Kind::Folder { FileKind::Folder } else { FileKind::File };
    let attributes = Attributes {
        ino: id,
        size: if kind == FileKind::Folder { 0 } else { inode.size },
        modified_s: inode.modified_s,
        modified_ns: 0,
        accessed: None,
        changed_s: inode.modified_s,
        kind,
        is_link: false,
        mode: inode.permissions.into(),
        uid: inode.uid,
        gid: inode.gid,
        links: inode.links,
        source: AttributeSource::Listing,
    };
    Node { id, generation: 0, attributes, lifetime: FOR_EVER }
}

impl<R: ReadAt + Send + Sync + 'static> Files for Names<R> {
    fn lookup(&self, parent: u64, name: &OsStr) -> Result<Node, FsError> {
        let folder = self.folder(parent)?;
        let found = self.objects.index().lookup(&folder, name.as_bytes());
        let entry = found.map_err(|error| self.unreadable(&error))?;
        let entry = entry.ok_or_else(|| FsError::of(libc::ENOENT))?;
        Ok(node_of(&self.inode(entry.nid)?))
    }

    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Node, FsError>> {
        Some(self.lookup(parent, name))
    }

    fn negative_lifetime(&self) -> Duration {
        FOR_EVER
    }

    fn attributes(&self, node: u64) -> Result<Node, FsError> {
        Ok(node_of(&self.inode(node)?))
    }

    fn attributes_known(&self, node: u64) -> Option<Result<Node, FsError>> {
        Some(self.attributes(node))
    }

    fn forget(&self, _node: u64, _times: u64) {}

    fn open_folder(&self, node: u64) -> Result<u64, FsError> {
        self.folder(node).map(|_| node)
    }

    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        _plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), FsError> {
        let folder = self.folder(handle)?;
        let index = self.objects.index();
        for (at, dots) in [".", ".."].into_iter().enumerate().skip(offset as usize) {
            // The kernel knows the parent itself.
            let entry = FolderEntry { node: node_of(&folder), name: OsStr::new(dots), next: at as u64 + 1 };
            if !each(&entry) {
                return Ok(());
            }
        }
        let after = offset.max(DOTS) - DOTS;
        let (first, mut skipped) = (after / ENTRIES_A_PAGE, after % ENTRIES_A_PAGE);
        let mut inodes = index.inodes();
        for page in first..folder.size.div_ceil(BLOCK) {
            let entries = index.page_entries(&folder, page).map_err(|error| self.unreadable(&error))?;
            for (place, entry) in entries.iter().enumerate().skip(skipped as usize) {
                let Entry { name, nid, .. } = entry;
                let node = node_of(&inodes.inode(*nid).map_err(|error| self.unreadable(&error))?);
                let next = DOTS + page * ENTRIES_A_PAGE + place as u64 + 1;
                if !each(&FolderEntry { node, name: OsStr::from_bytes(name), next }) {
                    return Ok(());
                }
            }
            skipped = 0;
        }
        Ok(())
    }

    fn release_folder(&self, _handle: u64) {}

    fn open(&self, node: u64, mode: OpenMode, _caller: Caller) -> Result<OpenedFile, FsError> {
        if mode.changes() {
            return Err(FsError::of(libc::EROFS));
        }
        match self.inode(node)?.kind {
            Kind::Folder => Err(FsError::of(libc::EISDIR)),
            Kind::File => Ok(OpenedFile {
                handle: node,
                direct: mode.direct,
                keep_cache: true,
                has_changed: false,
                is_written: false,
            }),
        }
    }

    fn open_known(&self, node: u64, mode: OpenMode) -> Option<Result<OpenedFile, FsError>> {
        let nobody = Caller { thread: 0, look: |_| flatout_tree::Process::default(), uid: 0, gid: 0 };
        Some(self.open(node, mode, nobody))
    }

    fn read(
        &self,
        handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        match self.inode(handle) {
            Ok(inode) => {
                let bytes = inode.size.saturating_sub(at).min(bytes as u64) as usize;
                self.objects.read(u64::from(inode.start_block) * BLOCK + at, bytes, done)
            }
            Err(error) => {
                done(Err(error));
                None
            }
        }
    }

    fn release(&self, _handle: u64) -> Result<(), FsError> {
        Ok(())
    }

    fn statfs(&self) -> Statfs {
        STATFS
    }
}
