//! One file in a folder: the image that EROFS mounts.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use flatout_erofs::{BLOCK, DATA_BLOCK};
use flatout_tree::{
    AttributeSource, Attributes, Caller, Cancel, FileKind, Files, FolderEntry, FsError, Node, OpenMode,
    OpenedFile, ROOT, STATFS, Slices, Statfs,
};

use crate::FOR_EVER;

/// The inode of the file, and the handle by which it is read.
const FILE: u64 = 2;

/// What an image is made of.
pub trait ImageContent: Send + Sync + 'static {
    /// The bytes of the image, with the data.
    fn image_bytes(&self) -> u64;

    /// The bytes that EROFS reads before the data.
    fn metadata_bytes(&self) -> u64;

    /// A block of them.
    ///
    /// # Errors
    /// `EIO`.
    fn metadata_block(&self, block: u64) -> Result<Vec<u8>, FsError>;

    /// Reads from the data, as [`Files::read`], and in full.
    fn read_data(
        self: &Arc<Self>,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel>;
}

/// An image as a file.
pub struct Image<C> {
    content: Arc<C>,
    name: &'static str,
}

impl<C: ImageContent> Image<C> {
    /// With `name` as the name of the file.
    pub fn new(content: Arc<C>, name: &'static str) -> Image<C> {
        Image { content, name }
    }

    pub fn content(&self) -> &Arc<C> {
        &self.content
    }

    fn node(&self, id: u64) -> Result<Node, FsError> {
        let (kind, size, mode) = match id {
            ROOT => (FileKind::Folder, 0, 0o500),
            FILE => (FileKind::File, self.content.image_bytes(), 0o400),
            _ => return Err(FsError::of(libc::ESTALE)),
        };
        let attributes = Attributes {
            ino: id,
            size,
            modified_s: 0,
            modified_ns: 0,
            accessed: None,
            changed_s: 0,
            kind,
            is_link: false,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
            source: AttributeSource::Implied,
        };
        Ok(Node { id, generation: 0, attributes, lifetime: FOR_EVER })
    }

    /// A range of the space before the data: what the index has there, and zeros behind its end.
    fn metadata(&self, at: u64, bytes: usize) -> Result<Vec<u8>, FsError> {
        let end = at + bytes as u64;
        let mut read = Vec::with_capacity(bytes);
        for block in at / BLOCK..end.min(self.content.metadata_bytes()).div_ceil(BLOCK) {
            let content = self.content.metadata_block(block)?;
            let start = block * BLOCK;
            let from = at.saturating_sub(start) as usize;
            read.extend_from_slice(&content[from..(end - start).min(BLOCK) as usize]);
        }
        read.resize(bytes, 0);
        Ok(read)
    }
}

impl<C: ImageContent> Files for Image<C> {
    fn lookup(&self, parent: u64, name: &OsStr) -> Result<Node, FsError> {
        match parent == ROOT && name == self.name {
            true => self.node(FILE),
            false => Err(FsError::of(libc::ENOENT)),
        }
    }

    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Node, FsError>> {
        Some(self.lookup(parent, name))
    }

    fn negative_lifetime(&self) -> Duration {
        FOR_EVER
    }

    fn attributes(&self, node: u64) -> Result<Node, FsError> {
        self.node(node)
    }

    fn attributes_known(&self, node: u64) -> Option<Result<Node, FsError>> {
        Some(self.node(node))
    }

    fn forget(&self, _node: u64, _times: u64) {}

    fn open_folder(&self, node: u64) -> Result<u64, FsError> {
        Err(FsError::of(if node == ROOT { libc::EACCES } else { libc::ENOTDIR }))
    }

    fn read_folder(
        &self,
        _handle: u64,
        _offset: u64,
        _plus: bool,
        _each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), FsError> {
        Err(FsError::of(libc::EBADF))
    }

    fn release_folder(&self, _handle: u64) {}

    fn open(&self, node: u64, mode: OpenMode, _caller: Caller) -> Result<OpenedFile, FsError> {
        self.open_known(node, mode).expect("it is always known")
    }

    fn open_known(&self, node: u64, mode: OpenMode) -> Option<Result<OpenedFile, FsError>> {
        Some(match node == FILE {
            _ if mode.changes() => Err(FsError::of(libc::EROFS)),
            true => Ok(OpenedFile {
                handle: FILE,
                direct: false,
                keep_cache: true,
                has_changed: false,
                is_written: false,
            }),
            false => Err(FsError::of(libc::EISDIR)),
        })
    }

    fn read(
        &self,
        _handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        // A read that is answered short would cut the file for the kernel, for good.
        let bytes = self.content.image_bytes().saturating_sub(at).min(bytes as u64) as usize;
        let data = u64::from(DATA_BLOCK) * BLOCK;
        let before = data.saturating_sub(at).min(bytes as u64) as usize;
        if before == 0 {
            return self.content.read_data(at, bytes, done);
        }
        match self.metadata(at, before) {
            Err(error) => {
                done(Err(error));
                None
            }
            Ok(metadata) if before == bytes => {
                done(Ok(&mut [&metadata[..]].into_iter()));
                None
            }
            Ok(metadata) => self.content.read_data(data, bytes - before, move |read| match read {
                Ok(slices) => {
                    #[expect(clippy::map_identity, reason = "slices that live as long as the metadata")]
                    let slices = slices.map(|slice| slice);
                    done(Ok(&mut [&metadata[..]].into_iter().chain(slices)));
                }
                Err(error) => done(Err(error)),
            }),
        }
    }

    fn release(&self, _handle: u64) -> Result<(), FsError> {
        Ok(())
    }

    fn statfs(&self) -> Statfs {
        STATFS
    }
}
