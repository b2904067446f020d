//! A file that has no name before it is whole. Whatever ends the program before leaves nothing.

use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tempfile::TempPath;

/// A new file in the folder of its target.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    folder: PathBuf,
    /// Its name until then, where the file system has no files without one.
    named: Option<TempPath>,
}

impl NewFile {
    /// In the folder of `target`.
    pub fn create(target: &Path) -> io::Result<NewFile> {
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(&folder, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(NewFile { file: file.into(), folder, named: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                // As the umask has it, like a file without a name.
                let mode = Permissions::from_mode(0o666);
                let named = tempfile::Builder::new().permissions(mode).tempfile_in(&folder)?;
                let (file, path) = named.into_parts();
                Ok(NewFile { file, folder, named: Some(path) })
            }
            Err(errno) => Err(errno.into()),
        }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// The name that it has until it is whole, if it has one.
    pub fn named(&self) -> Option<&Path> {
        self.named.as_deref()
    }

    /// A file beside it that never gets a name.
    pub fn scratch(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.folder)
    }

    /// Gives it the name `target`, in place of what has it; on disk when this returns.
    pub fn publish(self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        match self.named {
            Some(path) => path.persist(target)?,
            None => {
                // A link replaces nothing, a rename does.
                let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let chance = RandomState::new().build_hasher().finish();
                let beside = self.folder.join(format!(".flatout-{chance:016x}.tmp"));
                rustix::fs::linkat(CWD, &unnamed, CWD, &beside, AtFlags::SYMLINK_FOLLOW)?;
                fs::rename(&beside, target).inspect_err(|_| drop(fs::remove_file(&beside)))?;
            }
        }
        File::open(&self.folder)?.sync_all()
    }
}
