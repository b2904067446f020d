//! How a tree looks, and how long it believes an answer.

use std::time::Duration;

/// How a tree looks, and for how long it believes what it was told.
#[derive(Clone, Debug)]
pub struct Config {
    pub uid: u32,
    pub gid: u32,
    /// Permission bits of files.
    pub file_mode: u32,
    /// Permission bits of folders.
    pub folder_mode: u32,
    /// How old what is shown may be, the time in the kernel's own caches included.
    pub attribute_lifetime: Duration,
    /// For how long a name that was not there may be taken to be missing still, the time in the kernel's own caches included.
    pub negative_lifetime: Duration,
    /// Each open asks the origin which version there is now.
    pub close_to_open: bool,
    /// Files of so many bytes and more are opened for direct I/O.
    pub direct_bytes: Option<u64>,
}

impl Default for Config {
    /// Owned by root, readable by all; attributes live for a minute, absence not at all.
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
        }
    }
}
