//! A file as the source of an upload: opened once, and the same at the end as at the beginning.

use std::fs::{File, Metadata};
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::base::error::{Error, ErrorKind};
use crate::disk::upload_journal::FileIdentity;

/// The page cache is probed at one byte of each such block: readahead fills about a block at a time.
const LOOK_EVERY: usize = 1 << 20;
/// `f_type` of tmpfs (statfs(2)).
const TMPFS: u64 = 0x0102_1994;

/// An open file that is to be sent.
pub(crate) struct FileSource {
    path: PathBuf,
    content: File,
    identity: FileIdentity,
}

fn identity_of(found: &Metadata) -> FileIdentity {
    let ns = |seconds: i64, nanoseconds: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    FileIdentity {
        device: found.dev(),
        inode: found.ino(),
        bytes: found.size(),
        modified_ns: ns(found.mtime(), found.mtime_nsec()),
        changed_ns: ns(found.ctime(), found.ctime_nsec()),
    }
}

impl FileSource {
    /// # Errors
    /// It cannot be opened, or is no regular file.
    pub(crate) fn open(path: PathBuf) -> Result<FileSource, Error> {
        let refused = |error: Error| error.during("read", path.display());
        // A pipe would be waited for.
        let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let content = opened.map_err(|why| refused(Error::local("cannot open it", why)))?;
        let found = content.metadata().map_err(|why| refused(Error::local("cannot look at it", why)))?;
        if !found.is_file() {
            let what = if found.is_dir() { "this is a folder" } else { "this is no regular file" };
            return Err(refused(Error::new(ErrorKind::Usage, what)));
        }
        let identity = identity_of(&found);
        Ok(FileSource { path, content, identity })
    }

    pub(crate) fn content(&self) -> &File {
        &self.content
    }

    /// What it was when it was opened.
    pub(crate) fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// Its length when it was opened.
    pub(crate) fn bytes(&self) -> u64 {
        self.identity.bytes
    }

    /// Whether the page cache most likely has that range, so that reading it waits for no disk. False on file
    /// systems that do not support `RWF_NOWAIT`, but for tmpfs.
    pub(crate) fn is_cached(&self, range: &Range<u64>) -> bool {
        let is_there = |at| {
            let mut byte = [0];
            let into = &mut [IoSliceMut::new(&mut byte)];
            match preadv2(&self.content, into, at, ReadWriteFlags::NOWAIT) {
                // 0 is the end of the file: it became shorter, which shows when it is read.
                Ok(_) => true,
                Err(Errno::OPNOTSUPP) => self.is_on_tmpfs(),
                Err(_) => false,
            }
        };
        range.clone().step_by(LOOK_EVERY).all(is_there)
    }

    fn is_on_tmpfs(&self) -> bool {
        rustix::fs::fstatfs(&self.content).is_ok_and(|on| on.f_type as u64 == TMPFS)
    }

    /// # Errors
    /// It has changed since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), Error> {
        let found = self.content.metadata().map_err(|why| Error::local("cannot look at it", why))?;
        let now = identity_of(&found);
        // The attributes alone may change: a hard link, a mode.
        if (now.bytes, now.modified_ns) == (self.identity.bytes, self.identity.modified_ns) {
            return Ok(());
        }
        let cause = format!("{} changed while it was sent", self.path.display());
        Err(Error::new(ErrorKind::Changed, cause)
            .with_hint("nothing was published: send it again when nothing writes to it any more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_tmpfs_waits_for_no_disk() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder on tmpfs");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 3 << 20]).expect("a file");
        let file = FileSource::open(path).expect("it is there");
        assert!(file.is_cached(&(0..3 << 20)) && file.is_cached(&(5..6)));
    }
}
