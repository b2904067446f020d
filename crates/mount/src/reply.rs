//! Answers to the kernel: the structs after the header, in the machine's byte order.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use flatout_tree::{Attributes, FileKind, FolderEntry, NOT_LOOKED_UP, Node, Statfs};

use crate::abi::{mode, size};

/// The unit of a file's blocks in `stat(2)`.
const BLOCK_BYTES: u64 = 512;
/// The preferred size of a read in `stat(2)`. `cp` is faster with larger ones, but the buffers of Python and
/// stdio become as large, and a read of 100 bytes then fetches that much.
const PREFERRED_BYTES: u32 = 4096;

/// `struct fuse_entry_out`.
pub(crate) fn entry(node: &Node) -> [u8; size::ENTRY_OUT] {
    let (seconds, nanos) = lifetime(node.lifetime);
    attributes(
        StructWriter::new()
            .u64(node.id)
            .u64(node.generation.into())
            .u64(seconds)
            .u64(seconds)
            .u32(nanos)
            .u32(nanos),
        &node.attributes,
    )
    .done()
}

/// An entry without an inode: the name does not exist, and the kernel may believe that for this long.
pub(crate) fn absent(known_for: Duration) -> [u8; size::ENTRY_OUT] {
    let (seconds, nanos) = lifetime(known_for);
    StructWriter::new().u64(0).u64(0).u64(seconds).u64(0).u32(nanos).u32(0).zeros(size::ATTR).done()
}

/// `struct fuse_attr_out`.
pub(crate) fn attr(node: &Node) -> [u8; size::ATTR_OUT] {
    let (seconds, nanos) = lifetime(node.lifetime);
    attributes(StructWriter::new().u64(seconds).u32(nanos).u32(0), &node.attributes).done()
}

/// `struct fuse_open_out`.
pub(crate) fn open(handle: u64, flags: u32) -> [u8; size::OPEN_OUT] {
    StructWriter::new().u64(handle).u32(flags).u32(0).done()
}

/// The answer to CREATE.
pub(crate) fn create(node: &Node, handle: u64, flags: u32) -> [u8; size::CREATE_OUT] {
    StructWriter::new().put(&entry(node)).put(&open(handle, flags)).done()
}

/// `struct fuse_write_out`.
pub(crate) fn write(bytes: usize) -> [u8; size::WRITE_OUT] {
    StructWriter::new().u32(bytes as u32).u32(0).done()
}

/// `struct fuse_getxattr_out`.
pub(crate) fn xattr_length(bytes: usize) -> [u8; size::GETXATTR_OUT] {
    StructWriter::new().u32(bytes as u32).u32(0).done()
}

/// `struct fuse_statfs_out`.
pub(crate) fn statfs(all: &Statfs) -> [u8; size::STATFS_OUT] {
    StructWriter::new()
        .u64(all.blocks)
        .u64(all.blocks)
        .u64(all.blocks)
        .u64(all.files)
        .u64(all.files)
        .u32(all.block_bytes)
        .u32(all.name_bytes_max)
        .u32(all.block_bytes)
        .zeros(4 + 6 * 4)
        .done()
}

/// The answer to INIT.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InitReply {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u64,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub max_pages: u16,
}

/// `struct fuse_init_out`.
pub(crate) fn init(out: &InitReply) -> [u8; size::INIT_OUT] {
    StructWriter::new()
        .u32(out.major)
        .u32(out.minor)
        .u32(out.max_readahead)
        .u32(out.flags as u32)
        .u16(out.max_background)
        .u16(out.congestion_threshold)
        .u32(out.max_write)
        // The resolution of times, in nanoseconds.
        .u32(1)
        .u16(out.max_pages)
        .u16(0)
        .u32((out.flags >> 32) as u32)
        .zeros(28)
        .done()
}

/// `struct fuse_notify_inval_inode_out`: bytes `at..at + bytes`, all of them with `bytes` 0.
pub(crate) fn inval_inode(node: u64, at: i64, bytes: i64) -> [u8; 24] {
    StructWriter::new().u64(node).u64(at as u64).u64(bytes as u64).done()
}

fn attributes<const N: usize>(to: StructWriter<N>, of: &Attributes) -> StructWriter<N> {
    // The kernel takes them with their sign: what a program has set may be before 1970.
    let (modified, changed) = (of.modified_s as u64, of.changed_s as u64);
    let modified_ns = of.modified_ns;
    let (accessed, accessed_ns) =
        of.accessed.map_or((modified, modified_ns), |time| (time.s as u64, time.ns));
    to.u64(of.ino)
        .u64(of.size)
        .u64(of.size.div_ceil(BLOCK_BYTES))
        .u64(accessed)
        .u64(modified)
        .u64(changed)
        .u32(accessed_ns)
        .u32(modified_ns)
        .u32(0)
        .u32(kind(of) | of.mode & 0o7777)
        .u32(of.links)
        .u32(of.uid)
        .u32(of.gid)
        .u32(0)
        .u32(PREFERRED_BYTES)
        .u32(0)
}

/// The type bits of a mode.
fn kind(of: &Attributes) -> u32 {
    match of.kind {
        FileKind::File if of.is_link => mode::LINK,
        FileKind::File => mode::FILE,
        FileKind::Folder => mode::FOLDER,
    }
}

fn lifetime(of: Duration) -> (u64, u32) {
    (of.as_secs(), of.subsec_nanos())
}

/// Entries of a folder, up to the size of the kernel's buffer.
#[derive(Debug)]
pub(crate) struct DirectoryBuffer {
    bytes: Vec<u8>,
    most: usize,
    plus: bool,
    /// A file may be a symbolic link.
    has_links: bool,
    counted: Vec<u64>,
}

impl DirectoryBuffer {
    /// At most `most` bytes of entries; with `plus`, each with the answer to its lookup.
    pub fn new(most: usize, plus: bool, has_links: bool) -> DirectoryBuffer {
        DirectoryBuffer { bytes: Vec::new(), most, plus, has_links, counted: Vec::new() }
    }

    /// Adds a `struct fuse_dirent` or `fuse_direntplus`; `false` if it does not fit. `.`, `..` and what is
    /// [`NOT_LOOKED_UP`] have no entry: the kernel looks such a name up when somebody asks for it.
    pub fn push(&mut self, line: &FolderEntry<'_>) -> bool {
        let FolderEntry { node, name, next } = line;
        let ino = node.attributes.ino;
        let ahead = if self.plus { size::ENTRY_OUT } else { 0 };
        let length = (ahead + size::DIRENT + name.len()).next_multiple_of(8);
        if self.bytes.len() + length > self.most {
            return false;
        }
        let start = self.bytes.len();
        let is_looked_up = self.plus && !is_dot(name) && node.id != NOT_LOOKED_UP;
        if is_looked_up {
            self.counted.push(node.id);
        }
        if self.plus {
            self.bytes.extend_from_slice(&if is_looked_up { entry(node) } else { absent(Duration::ZERO) });
        }
        // DT_UNKNOWN: a listing does not say it, and whoever wants to know asks for it.
        let is_unsure = self.has_links && !is_looked_up && node.attributes.kind == FileKind::File;
        let dirent: [u8; size::DIRENT] = StructWriter::new()
            .u64(ino)
            .u64(*next)
            .u32(name.len() as u32)
            .u32(if is_unsure { 0 } else { kind(&node.attributes) >> 12 })
            .done();
        self.bytes.extend_from_slice(&dirent);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.resize(start + length, 0);
        true
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The nodes with a counted lookup, which must be taken back if the kernel does not take these bytes.
    pub fn counted(&self) -> &[u64] {
        &self.counted
    }
}

fn is_dot(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b"." | b"..")
}

/// Writes a struct of `N` bytes, field by field.
struct StructWriter<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> StructWriter<N> {
    fn new() -> StructWriter<N> {
        StructWriter { bytes: [0; N], at: 0 }
    }

    fn put(mut self, field: &[u8]) -> StructWriter<N> {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    fn u16(self, value: u16) -> StructWriter<N> {
        self.put(&value.to_ne_bytes())
    }

    fn u32(self, value: u32) -> StructWriter<N> {
        self.put(&value.to_ne_bytes())
    }

    fn u64(self, value: u64) -> StructWriter<N> {
        self.put(&value.to_ne_bytes())
    }

    fn zeros(mut self, bytes: usize) -> StructWriter<N> {
        self.at += bytes;
        self
    }

    fn done(self) -> [u8; N] {
        debug_assert_eq!(self.at, N, "a struct has all its fields");
        self.bytes
    }
}
