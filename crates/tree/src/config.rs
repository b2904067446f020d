//! The settings of a tree: owners, modes, lifetimes.

use std::sync::Arc;
use std::time::Duration;

use crate::folder_rename::RenameJournal;
use crate::staging::StagingFolder;
use crate::store::UploadNotes;

#[derive(Clone, Debug)]
pub struct Config {
    pub uid: u32,
    pub gid: u32,
    /// Permission bits of files.
    pub file_mode: u32,
    /// Permission bits of folders.
    pub folder_mode: u32,
    /// How old shown attributes and names may be, with the time in the kernel's own caches.
    pub attribute_lifetime: Duration,
    /// How long a missing name counts as missing, with the time in the kernel's own caches.
    pub negative_lifetime: Duration,
    /// Each open asks the origin which version there is now.
    pub close_to_open: bool,
    /// Files of at least this size are opened for direct I/O.
    pub direct_bytes: Option<u64>,
    /// What becomes of modes, owners and times that programs set.
    pub attributes: AttributeKeeping,
    /// A folder that is made has an object of its own.
    pub folder_markers: bool,
    /// The most objects that a folder may have to be renamed.
    pub rename_most: u64,
    /// Keeps records of renames of folders. Without it none with objects is renamed.
    pub rename_journal: Option<Arc<dyn RenameJournal>>,
    /// What files that are kept whole until they are closed may take together, in bytes.
    pub buffers_bytes: u64,
    /// Hears of uploads in parts.
    pub upload_notes: Option<Arc<dyn UploadNotes>>,
    /// Where files are kept that are written in any order. Without it they are written from their start to
    /// their end.
    pub staging: Option<Arc<StagingFolder>>,
}

/// What becomes of modes, owners, times, symbolic links and extended attributes, which no object has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttributeKeeping {
    #[default]
    Refuse,
    /// A program is told that it is done, and nothing is.
    Ignore,
    /// They are kept in the object's metadata.
    Metadata,
}

impl Default for Config {
    /// Owned by root, readable by all; attributes live for a minute, missing names are asked for each time.
    fn default() -> Config {
        Config {
            uid: 0,
            gid: 0,
            file_mode: 0o444,
            folder_mode: 0o555,
            attribute_lifetime: Duration::from_secs(60),
            negative_lifetime: Duration::ZERO,
            close_to_open: false,
            direct_bytes: None,
            attributes: AttributeKeeping::Refuse,
            folder_markers: false,
            rename_most: 0,
            rename_journal: None,
            buffers_bytes: 64 << 20,
            upload_notes: None,
            staging: None,
        }
    }
}
