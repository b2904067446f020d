//! What the kernel is answered: the structs behind a reply's header, as bytes of the machine's order.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use flatout_tree::{Attributes, FileKind, FolderEntry, Known, Statfs};

use crate::abi::{OUT_HEADER, mode, size};

/// What a file's blocks are counted in, by `stat(2)`.
const BLOCK_BYTES: u64 = 512;
/// What is told as the preferred size of a read. Larger ones go well with `cp`, but Python's and stdio's buffers become as
/// large, and a read of 100 bytes then fetches that much.
const PREFERRED_BYTES: u32 = 4096;

/// `struct fuse_out_header`. `errno` is 0 or positive; of a notification the unique number is 0 and `errno` its code, negated.
pub(crate) fn header(unique: u64, errno: i32, body_bytes: usize) -> [u8; OUT_HEADER] {
    Layout::new().u32((OUT_HEADER + body_bytes) as u32).u32((-errno) as u32).u64(unique).done()
}

/// `struct fuse_entry_out`.
pub(crate) fn entry(known: &Known) -> [u8; size::ENTRY_OUT] {
    let (seconds, nanos) = lifetime(known.lifetime);
    attributes(
        Layout::new()
            .u64(known.node)
            .u64(known.generation.into())
            .u64(seconds)
            .u64(seconds)
            .u32(nanos)
            .u32(nanos),
        &known.attributes,
    )
    .done()
}

/// An entry without an inode: the name is not there, and the kernel may remember that for so long.
pub(crate) fn absent(known_for: Duration) -> [u8; size::ENTRY_OUT] {
    let (seconds, nanos) = lifetime(known_for);
    Layout::new().u64(0).u64(0).u64(seconds).u64(0).u32(nanos).u32(0).zeros(size::ATTR).done()
}

/// `struct fuse_attr_out`.
pub(crate) fn attr(known: &Known) -> [u8; size::ATTR_OUT] {
    let (seconds, nanos) = lifetime(known.lifetime);
    attributes(Layout::new().u64(seconds).u32(nanos).u32(0), &known.attributes).done()
}

/// `struct fuse_open_out`.
pub(crate) fn open(handle: u64, flags: u32) -> [u8; size::OPEN_OUT] {
    Layout::new().u64(handle).u32(flags).u32(0).done()
}

/// `struct fuse_statfs_out`.
pub(crate) fn statfs(all: &Statfs) -> [u8; size::STATFS_OUT] {
    Layout::new()
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

/// What INIT answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InitOut {
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
pub(crate) fn init(out: &InitOut) -> [u8; size::INIT_OUT] {
    Layout::new()
        .u32(out.major)
        .u32(out.minor)
        .u32(out.max_readahead)
        .u32(out.flags as u32)
        .u16(out.max_background)
        .u16(out.congestion_threshold)
        .u32(out.max_write)
        // Times are of this many nanoseconds.
        .u32(1)
        .u16(out.max_pages)
        .u16(0)
        .u32((out.flags >> 32) as u32)
        .zeros(28)
        .done()
}

/// `struct fuse_notify_inval_inode_out`: bytes `at..at + bytes`, all of them with `bytes` 0.
pub(crate) fn inval_inode(node: u64, at: i64, bytes: i64) -> [u8; 24] {
    Layout::new().u64(node).u64(at as u64).u64(bytes as u64).done()
}

fn attributes<const N: usize>(to: Layout<N>, of: &Attributes) -> Layout<N> {
    // Before 1970 is what no object is; a negative number would be read as one far ahead.
    let (modified, changed) = (of.modified_s.max(0) as u64, of.changed_s.max(0) as u64);
    to.u64(of.ino)
        .u64(of.size)
        .u64(of.size.div_ceil(BLOCK_BYTES))
        .u64(modified)
        .u64(modified)
        .u64(changed)
        .zeros(3 * 4)
        .u32(kind(of.kind) | of.mode & 0o7777)
        .u32(of.links)
        .u32(of.uid)
        .u32(of.gid)
        .u32(0)
        .u32(PREFERRED_BYTES)
        .u32(0)
}

/// As a mode has it.
fn kind(of: FileKind) -> u32 {
    match of {
        FileKind::File => mode::FILE,
        FileKind::Folder => mode::FOLDER,
    }
}

fn lifetime(of: Duration) -> (u64, u32) {
    (of.as_secs(), of.subsec_nanos())
}

/// Entries of a folder, as many as the kernel's buffer takes.
#[derive(Debug)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    most: usize,
    plus: bool,
    counted: Vec<u64>,
}

impl Names {
    /// At most `most` bytes of them, with what a lookup of each would tell if `plus`.
    pub fn new(most: usize, plus: bool) -> Names {
        Names { bytes: Vec::new(), most, plus, counted: Vec::new() }
    }

    /// `struct fuse_dirent` or `fuse_direntplus`; false where there is no room for it. `.` and `..` are no lookups: they carry
    /// no entry.
    pub fn push(&mut self, line: &FolderEntry<'_>) -> bool {
        let FolderEntry { known, name, next } = line;
        let Attributes { ino, kind: of, .. } = known.attributes;
        let ahead = if self.plus { size::ENTRY_OUT } else { 0 };
        let length = (ahead + size::DIRENT + name.len()).next_multiple_of(8);
        if self.bytes.len() + length > self.most {
            return false;
        }
        let start = self.bytes.len();
        if self.plus {
            let entry = match is_dot(name) {
                true => absent(Duration::ZERO),
                false => {
                    self.counted.push(known.node);
                    entry(known)
                }
            };
            self.bytes.extend_from_slice(&entry);
        }
        let dirent: [u8; size::DIRENT] =
            Layout::new().u64(ino).u64(*next).u32(name.len() as u32).u32(kind(of) >> 12).done();
        self.bytes.extend_from_slice(&dirent);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.resize(start + length, 0);
        true
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The nodes of which a lookup was counted, for whom nobody will forget it if these bytes are not taken.
    pub fn counted(&self) -> &[u64] {
        &self.counted
    }
}

fn is_dot(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b"." | b"..")
}

/// A struct of `N` bytes, filled from the front.
struct Layout<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Layout<N> {
    fn new() -> Layout<N> {
        Layout { bytes: [0; N], at: 0 }
    }

    fn put(mut self, field: &[u8]) -> Layout<N> {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    fn u16(self, value: u16) -> Layout<N> {
        self.put(&value.to_ne_bytes())
    }

    fn u32(self, value: u32) -> Layout<N> {
        self.put(&value.to_ne_bytes())
    }

    fn u64(self, value: u64) -> Layout<N> {
        self.put(&value.to_ne_bytes())
    }

    fn zeros(mut self, bytes: usize) -> Layout<N> {
        self.at += bytes;
        self
    }

    fn done(self) -> [u8; N] {
        debug_assert_eq!(self.at, N, "a struct has all its fields");
        self.bytes
    }
}
