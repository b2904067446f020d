//! Objects as a tree of files: names, inodes, folders, handles, errno. Nothing of FUSE in it.
#![forbid(unsafe_code)]

mod ahead;
mod attributes;
mod client;
mod config;
mod etag;
mod fact;
mod fault;
mod files;
mod flights;
mod handles;
mod hash;
mod inodes;
mod listing;
mod lookup;
mod names;
mod namespace;
mod open_files;
mod open_folders;
mod page;
mod place;
mod series;
mod stats;
#[doc(hidden)]
pub mod store;
mod tree;

pub use attributes::{Attributes, FileKind, FolderEntry, Known, Opened, Source, Statfs};
pub use config::Config;
pub use fault::{Fault, errno_of};
pub use files::{Cancel, Files, Slices};
pub use place::Root;
pub use stats::{Hidden, TreeStats};
pub use tree::{Tree, TreeOf};

/// The inode of the root.
pub const ROOT: u64 = 1;
