//! What the downloads of `flatout run` know of each other: lines say neither how long objects are nor which
//! folder gets many of them, and those before tell.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use flatout_engine::{Get, sweep_folder};

/// What the next object is taken for.
#[derive(Default)]
pub struct DownloadsOfRun {
    /// The last one was longer than [`SMALL_BYTES`].
    was_large: AtomicBool,
    /// Folders, and how many objects went into each.
    folders: Mutex<HashMap<PathBuf, u32>>,
}

/// The usual length of a part: up to it one request is enough, without a HEAD for the checksum.
const SMALL_BYTES: u64 = 8 << 20;

/// To look for what killed runs left of one file takes 16 system calls, to read a folder as many as it has
/// thousands of names: from this many objects on the folder is read, once.
const SWEPT_FROM: u32 = 32;

/// Of more folders than this all are forgotten: one that comes again is swept again.
const FOLDERS_MAX: usize = 4096;

impl DownloadsOfRun {
    /// The get as it is best for a line that copies into the file at `path`.
    pub fn prepared(&self, get: Get, path: &Path) -> Get {
        let get = if self.is_in_swept_folder(path) { get.into_swept_folder() } else { get };
        if self.was_large.load(Ordering::Relaxed) { get } else { get.likely_small() }
    }

    /// An object of so many bytes has come.
    pub fn on_end(&self, bytes: u64) {
        let is_large = bytes > SMALL_BYTES;
        if self.was_large.load(Ordering::Relaxed) != is_large {
            self.was_large.store(is_large, Ordering::Relaxed);
        }
    }

    fn is_in_swept_folder(&self, path: &Path) -> bool {
        let Some(folder) = path.parent() else { return false };
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match folders.get_mut(folder) {
            Some(count) => {
                *count = count.saturating_add(1);
                *count
            }
            None => {
                if folders.len() == FOLDERS_MAX {
                    folders.clear();
                }
                folders.insert(folder.to_path_buf(), 1);
                1
            }
        };
        drop(folders);
        if count == SWEPT_FROM {
            sweep_folder(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
        }
        count >= SWEPT_FROM
    }
}
