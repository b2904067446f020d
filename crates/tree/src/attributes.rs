//! What is told of a name: attributes, each with where it came from and for how long it may be used.

use std::ffi::OsStr;
use std::time::Duration;

/// An inode with its attributes, and for how long they may be taken as true from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// What calls name the inode by. A file that was opened stays one version: another version of its object is another node,
    /// since the kernel keeps one page cache for a node.
    pub node: u64,
    /// Another for each inode that has the same node, one after the other; 0 for a folder.
    pub generation: u32,
    pub attributes: Attributes,
    /// What is left of the attribute lifetime, counted from when the origin was asked; zero where nothing is.
    pub lifetime: Duration,
}

/// What stat(2) shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode number that stat(2) shows. The same in every mount and for every version: a hash of the key. The root's is 1.
    pub ino: u64,
    /// In bytes; 0 for a folder.
    pub size: u64,
    /// When the content changed last, in seconds since 1970. Of a folder its marker's, where that is known, else when the
    /// mount began.
    pub modified_s: i64,
    /// What a program compares to see whether something changed meanwhile: `modified_s` of a file, when the mount began of a
    /// folder. A folder's marker may become known while tar(1) packs it, and tar takes another ctime for a change.
    pub changed_s: i64,
    pub kind: FileKind,
    /// Permission bits, without the type.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// 1 for a file. Also for a folder, whose subfolders nobody has counted: find(1) takes 2 as "no subfolders".
    pub links: u32,
    pub source: Source,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Folder,
}

/// Where attributes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A listing of the folder, or of the one name.
    Listing,
    /// A HEAD of the object.
    Head,
    /// Nobody was asked: a folder is there because keys lie under it, and the root because it was mounted.
    Implied,
}

/// A line of a folder.
#[derive(Clone, Copy, Debug)]
pub struct FolderEntry<'a> {
    pub known: Known,
    pub name: &'a OsStr,
    /// The offset to go on from behind this entry.
    pub next: u64,
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub handle: u64,
    /// Reads should pass the page cache by.
    pub direct: bool,
    /// What the page cache holds of this node is of this very version.
    pub keep_cache: bool,
    /// The attributes that were told last are of another version, which nobody has opened. The kernel would read no further than
    /// its size: it must be told to ask for them again (`FUSE_NOTIFY_INVAL_INODE` with a negative offset) before the open is
    /// answered.
    pub is_news: bool,
}

/// What statfs(2) shows. A bucket has no size: large numbers, so that nobody refuses to write for want of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    pub block_bytes: u32,
    /// Blocks in all, and as many of them free.
    pub blocks: u64,
    /// Inodes in all, and as many of them free.
    pub files: u64,
    /// The longest name, in bytes.
    pub name_bytes_max: u32,
}

/// 4 EiB, which a signed 64-bit number of bytes still holds: tools add and multiply these.
pub(crate) const STATFS: Statfs =
    Statfs { block_bytes: 4096, blocks: 1 << 50, files: 1 << 40, name_bytes_max: 255 };
