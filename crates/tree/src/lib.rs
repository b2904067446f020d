//! Objects as a tree of files: names, inodes, folders, handles, errnos. It knows nothing of FUSE.
#![forbid(unsafe_code)]

mod ahead;
mod attributes;
mod buffers;
mod changes;
mod client;
mod config;
mod etag;
mod fact;
mod files;
mod folder_location;
mod folder_rename;
mod fs_error;
mod handles;
mod hash;
mod inodes;
mod kept;
mod listing;
mod lookup;
mod names;
mod namespace;
mod open_files;
mod open_folders;
mod page;
mod posix;
mod posix_known;
mod series;
mod single_flight;
mod staging;
mod stats;
#[doc(hidden)]
pub mod store;
mod tree;
mod version_bytes;
mod withdrawal;
mod write_errors;
mod writer;
mod writers;

pub use attributes::{
    AttributeChanges, AttributeSource, Attributes, Caller, FileKind, FolderEntry, NOT_LOOKED_UP, Node,
    OpenMode, OpenedFile, Process, STATFS, Statfs, Time, TimeChange,
};
pub use config::{AttributeKeeping, Config};
pub use files::{Cancel, Files, Slices, WriteMoment, XattrNeeds};
pub use folder_location::TreeRoot;
pub use folder_rename::{
    CopyState, FolderRename, MadeCopy, RenameEnd, RenameJournal, RenameRecord, RenameState, end_rename,
};
pub use fs_error::{FsError, errno_of};
pub use kept::SharedTable;
pub use staging::{StagedFileLeft, StagedLeft, StagingFolder, Tell};
pub use stats::{Hidden, TreeStats};
pub use store::UploadNotes;
pub use tree::{Tree, TreeOf};

/// The inode of the root.
pub const ROOT: u64 = 1;
