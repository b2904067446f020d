//! A file as the source of an upload: opened once, and the same at the end as at the beginning.

use std::fs::{File, Metadata};
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::io::{ReadWriteFlags, preadv2};

use crate::base::error::{Error, ErrorKind};
use crate::disk::upload_journal::FileIdentity;

/// Distance between the bytes that are looked for in the page cache: readahead fills about that much.
const LOOK_EVERY: usize = 1 << 20;
/// `f_type` of tmpfs (statfs(2)).
const TMPFS: u64 = 0x0102_1994;

/// An open file that is to be sent.
pub(crate) struct FileSource {
    path: PathBuf,
    content: File,
    identity: FileIdentity,
    /// It is on tmpfs, which does not know `RWF_NOWAIT`.
    is_memory: bool,
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
        let is_memory = rustix::fs::fstatfs(&content).is_ok_and(|on| on.f_type as u64 == TMPFS);
        Ok(FileSource { path, content, identity, is_memory })
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

    /// Whether that range can most likely be read without waiting for a disk: it is in the page cache, as
    /// what was just written is. False on file systems without `RWF_NOWAIT`.
    pub(crate) fn is_cached(&self, range: &Range<u64>) -> bool {
        let is_there = |at| {
            let mut byte = [0];
            let into = &mut [IoSliceMut::new(&mut byte)];
            // 0 is the end of the file: it became shorter, which shows when it is read.
            preadv2(&self.content, into, at, ReadWriteFlags::NOWAIT).is_ok()
        };
        self.is_memory || range.clone().step_by(LOOK_EVERY).all(is_there)
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
