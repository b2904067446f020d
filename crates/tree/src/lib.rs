//! Objects as a tree of files: names, inodes, folders, handles, errno. Nothing of FUSE in it.
#![forbid(unsafe_code)]

mod attributes;
mod etag;
mod fault;
mod interim;
mod names;
mod stats;
#[doc(hidden)]
pub mod store;
mod tree;

pub use attributes::{Attributes, FileKind, FolderEntry, Known, Opened, Source, Statfs};
pub use fault::{Fault, errno_of};
pub use interim::{Object, Pieces, Reading};
pub use stats::{Hidden, TreeStats};
pub use tree::{Config, Root, Tree, TreeOf};

/// The inode of the root.
pub const ROOT: u64 = 1;
