//! Locks that all origins over a root share: of two origins, too, only one writes an object at a time.
//!
//! An origin holds flock(2) on `ROOT/.flatout/locks/GROUP` while it checks an object of the group and changes
//! it. Only the holder of the lock removes the file, so that a lock is good as long as its file has a name.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::retry_on_intr;

use super::OWN;

/// How often a lock file is opened again because an origin that ended removed it, before its lock is done
/// without.
const ATTEMPTS: u32 = 100;

/// Where the file system has no locks, or the origin may not write, the lock is skipped.
pub(crate) struct Locks {
    folder: PathBuf,
}

impl Locks {
    pub(crate) fn new(root: &Path) -> Locks {
        Locks { folder: root.join(OWN).join("locks") }
    }

    /// Waits for the lock of a group. It is held until `file` is unlocked; what stays in `file` makes the
    /// next time cheap.
    pub(crate) fn lock(&self, group: usize, file: &mut Option<File>) {
        for _ in 0..ATTEMPTS {
            let open = match file.take().map_or_else(|| self.open(group), Ok) {
                Ok(open) => open,
                // The folder was removed in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => return,
            };
            let locked = retry_on_intr(|| rustix::fs::flock(&open, FlockOperation::LockExclusive));
            if locked.is_err() || has_name(&open) {
                *file = Some(open);
                return;
            }
        }
    }

    fn open(&self, group: usize) -> io::Result<File> {
        std::fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(group.to_string());
        // NFS locks only what may be written; the file of another user may only be read.
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        opened.or_else(|_| File::open(&path))
    }
}

/// Lets the next origin have the lock.
pub(crate) fn unlock(file: &File) {
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

impl Drop for Locks {
    /// Removes the files that no origin holds; one that has them open makes them again.
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.parse::<usize>().is_ok())
                && let Ok(file) = File::options().read(true).write(true).open(entry.path())
                && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                && has_name(&file)
            {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn has_name(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.nlink() > 0)
}
