//! What the kernel gets to know of a file or folder.

use std::ffi::OsStr;
use std::time::Duration;

pub use crate::posix::Time;

/// A file or folder as the kernel knows it: its node, its attributes, and how long the kernel may believe
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The number by which the kernel names it. A file that was opened stays one version: another version of
    /// its object is another node, because the kernel keeps one page cache for each node. [`NOT_LOOKED_UP`]
    /// in an entry of a folder whose attributes could not be had.
    pub id: u64,
    /// Tells apart inodes that have the same node one after the other; 0 for a folder.
    pub generation: u32,
    pub attributes: Attributes,
    /// The rest of the attribute lifetime, which begins when the origin is asked.
    pub lifetime: Duration,
}

/// What stat(2) shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode number in stat(2): a hash of the key, equal in every mount and for every version. The root's
    /// is 1.
    pub ino: u64,
    /// In bytes; 0 for a folder.
    pub size: u64,
    /// Last change of the content, in seconds since 1970. For a folder: that of its marker object, if known,
    /// else the start of the mount.
    pub modified_s: i64,
    /// Beside those seconds.
    pub modified_ns: u32,
    /// What a program has set as the time of the last access; else it is `modified_s`.
    pub accessed: Option<Time>,
    /// The ctime: `modified_s` for a file, the start of the mount for a folder. A folder's marker may become
    /// known while tar(1) packs the folder, and tar takes another ctime for a change.
    pub changed_s: i64,
    pub kind: FileKind,
    /// A file that is a symbolic link.
    pub is_link: bool,
    /// Permission bits, without the type.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// 1, and 0 once the name has gone. The subfolders of a folder are not counted, and find(1) takes 2 as
    /// "no subfolders".
    pub links: u32,
    pub source: AttributeSource,
}

impl Attributes {
    /// Of a folder whose names this mount has changed since its times were set, unless another client has set
    /// them (`changed`) later.
    pub(crate) fn show_touched(&mut self, touched_s: i64, changed: Option<Time>) {
        if changed.is_none_or(|changed| changed.s <= touched_s) {
            (self.modified_s, self.modified_ns, self.changed_s) = (touched_s, 0, touched_s);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Folder,
}

/// Where attributes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeSource {
    /// A listing of the folder, or of one name.
    Listing,
    /// A HEAD of the object.
    Head,
    /// No answer of its own: a folder exists because keys lie under it, the root because it was mounted.
    Implied,
    /// This mount has written it, or is about to.
    Written,
}

/// In place of a node's number: the entry is no lookup, and its attributes are not those of the file.
pub const NOT_LOOKED_UP: u64 = 0;

/// One entry of a folder.
#[derive(Clone, Copy, Debug)]
pub struct FolderEntry<'a> {
    pub node: Node,
    pub name: &'a OsStr,
    /// The offset of the next entry.
    pub next: u64,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    pub reads: bool,
    pub writes: bool,
    /// `O_TRUNC`: what is there is replaced.
    pub truncates: bool,
    /// `O_DIRECT`
    pub direct: bool,
    /// Permission bits of a file that is made by it.
    pub permissions: u32,
}

impl OpenMode {
    /// To be read.
    pub fn read(direct: bool) -> OpenMode {
        OpenMode { reads: true, direct, ..OpenMode::default() }
    }

    /// Whether the file may be another one afterwards.
    pub fn changes(self) -> bool {
        self.writes || self.truncates
    }
}

/// Who calls: a thread, and a way to look at its process.
#[derive(Clone, Copy)]
pub struct Caller {
    /// Its number; 0 if it is not known.
    pub thread: u32,
    pub look: fn(u32) -> Process,
    /// Whose is what it makes.
    pub uid: u32,
    pub gid: u32,
}

/// A process, as a look at one of its threads tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number; 0 if it is not known.
    pub id: u32,
    /// A signal has ended it, and it is on its way out.
    pub is_killed: bool,
}

/// What setattr(2) and its kin are to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChanges {
    pub size: Option<u64>,
    /// Permission bits, without the type.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Of the last change of the content.
    pub time: TimeChange,
    pub accessed: TimeChange,
}

/// What a time is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeChange {
    /// As it is.
    #[default]
    None,
    Now,
    To(Time),
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedFile {
    pub handle: u64,
    /// Reads should bypass the page cache.
    pub direct: bool,
    /// The node's pages in the page cache are of this version.
    pub keep_cache: bool,
    /// The kernel has the attributes of an older version, and would read no further than that version's size.
    /// It must be told to ask for them again (`FUSE_NOTIFY_INVAL_INODE` with a negative offset) before the
    /// open is answered.
    pub has_changed: bool,
    /// It is written, or reads what is written: closing it has to be told.
    pub is_written: bool,
}

/// The answer to statfs(2). A bucket has no size; the numbers are large, so that no program refuses to write
/// for lack of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    pub block_bytes: u32,
    /// All blocks; all of them are free.
    pub blocks: u64,
    /// All inodes; all of them are free.
    pub files: u64,
    /// The longest name, in bytes.
    pub name_bytes_max: u32,
}

/// What every mount says of its size, which a bucket has not. 4 EiB: as bytes it still fits a signed 64-bit
/// number, which tools compute.
pub const STATFS: Statfs = Statfs { block_bytes: 4096, blocks: 1 << 50, files: 1 << 40, name_bytes_max: 255 };
