//! Objects as a tree of files: names, inodes, folders, handles, errno. Nothing of FUSE in it.
#![forbid(unsafe_code)]

mod ahead;
mod attributes;
mod client;
mod etag;
mod fact;
mod fault;
mod files;
mod flights;
mod folders;
mod handles;
mod hash;
mod inodes;
mod listing;
mod lookup;
mod names;
mod page;
mod place;
mod series;
mod stats;
#[doc(hidden)]
pub mod store;
mod tree;

pub use attributes::{Attributes, FileKind, FolderEntry, Known, Opened, Source, Statfs};
pub use fault::{Fault, errno_of};
/// What reads bring: the engine's own.
pub use flatout_engine::{Pieces, Reading};
pub use stats::{Hidden, TreeStats};
pub use tree::{Config, Root, Tree, TreeOf};

/// The inode of the root.
pub const ROOT: u64 = 1;
