//! Files: written under a temporary name beside their own, put in place only when they are whole, removed otherwise.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};
use crate::folder::{self, Folder};

/// Below this a reservation costs as much as the write itself, and a full disk is found by the first write.
const SMALL_BYTES: u64 = 1 << 20;

/// A file that is written under a temporary name, and removed unless it is committed.
pub(crate) struct FileGround {
    file: File,
    folder: Arc<OwnedFd>,
    name: OsString,
    temporary: OsString,
    /// As errors name it.
    shown: PathBuf,
    reserved_bytes: AtomicU64,
    committed: AtomicBool,
    process: u32,
}

impl FileGround {
    /// A file at `path`, whose links are followed.
    pub(crate) fn create(path: &Path) -> Result<FileGround, Error> {
        let path = final_path(path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder::open(parent).map_err(refused_there)?;
        let name = path.file_name().unwrap_or_default().to_os_string();
        FileGround::create_in(Arc::new(folder), name, path)
    }

    /// A file beneath `folder`, at the relative path `name`; folders on the way are made. A link under the file's own
    /// name is replaced, not followed.
    pub(crate) fn create_beneath(folder: &Folder, name: &str) -> Result<FileGround, Error> {
        let shown = folder.path().join(name);
        let (parent, file_name) = name.rsplit_once('/').unwrap_or(("", name));
        let opened = folder
            .below(parent)
            .and_then(|opened| FileGround::create_in(opened, file_name.into(), shown.clone()));
        opened.map_err(|error| error.during("write", shown.display()))
    }

    fn create_in(folder: Arc<OwnedFd>, name: OsString, shown: PathBuf) -> Result<FileGround, Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let process = std::process::id();
        loop {
            let temporary = temporary_beside(&name, process);
            match rustix::fs::openat(&*folder, &temporary, flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => {
                    return Ok(FileGround {
                        file: file.into(),
                        folder,
                        name,
                        temporary,
                        shown,
                        reserved_bytes: AtomicU64::new(0),
                        committed: AtomicBool::new(false),
                        process,
                    });
                }
                // Left by a killed process that had our number, as happens in containers: take the next name.
                Err(Errno::EXIST) => {}
                Err(refused) => return Err(refused_there(refused.into())),
            }
        }
    }

    /// Where the file will be, for messages.
    pub(crate) fn shown(&self) -> std::path::Display<'_> {
        self.shown.display()
    }

    /// Reserves the space, so that a full disk is found before the transfer and writes do not extend the file.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Error> {
        if bytes < SMALL_BYTES {
            return Ok(());
        }
        let refused = |refused: Errno| {
            Error::local(&format!("cannot reserve {bytes} bytes"), refused.into())
                .during("write", self.shown())
        };
        loop {
            match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
                Ok(()) => {
                    self.reserved_bytes.store(bytes, Ordering::Relaxed);
                    return Ok(());
                }
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(refused(error)),
            }
        }
    }

    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> Result<(), Error> {
        self.file
            .write_all_at(bytes, at)
            .map_err(|refused| Error::local("cannot write", refused).during("write", self.shown()))
    }

    /// Puts the whole file under its name. Where that takes an earlier file's place, its mode is kept, and the bytes are
    /// on disk before.
    pub(crate) fn commit(&self, bytes: u64) -> Result<(), Error> {
        if self.reserved_bytes.load(Ordering::Relaxed) > bytes {
            self.file.set_len(bytes).map_err(|refused| Error::local("cannot set the length", refused))?;
        }
        // Where nothing stands under the name this is all, and nothing that appears meanwhile is overwritten.
        let fresh = RenameFlags::NOREPLACE;
        if rustix::fs::renameat_with(&*self.folder, &self.temporary, &*self.folder, &self.name, fresh).is_ok()
        {
            self.committed.store(true, Ordering::Relaxed);
            return Ok(());
        }
        if let Some(mode) = self.earlier_mode()? {
            rustix::fs::fchmod(&self.file, mode).map_err(|refused| {
                Error::local("cannot keep the earlier file's permissions", refused.into())
            })?;
            self.file.sync_all().map_err(|refused| Error::local("cannot sync to disk", refused))?;
        }
        rustix::fs::renameat(&*self.folder, &self.temporary, &*self.folder, &self.name)
            .map_err(|refused| Error::local("cannot put the file under its name", refused.into()))?;
        self.committed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The mode of the regular file that stands there; what is neither a file nor a link is not to be replaced.
    fn earlier_mode(&self) -> Result<Option<Mode>, Error> {
        let stat: Stat = match rustix::fs::statat(&*self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(refused) => return Err(Error::local("cannot look at the target", refused.into())),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(Mode::from_raw_mode(stat.st_mode))),
            FileType::Symlink => Ok(None),
            FileType::Directory => Err(is_folder()),
            _ => Err(is_special()),
        }
    }

    /// After a commit the temporary name is gone and this does nothing; in a forked child it is not ours.
    pub(crate) fn remove_temporary(&self) {
        if !self.committed.load(Ordering::Relaxed) && self.process == std::process::id() {
            let _ = rustix::fs::unlinkat(&*self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

impl Drop for FileGround {
    fn drop(&mut self) {
        self.remove_temporary();
    }
}

fn refused_there(refused: io::Error) -> Error {
    Error::local("cannot create a file there", refused)
}

fn is_folder() -> Error {
    let error = Error::new(ErrorKind::LocalIo, "the target is a folder");
    error.with_hint("name a file, or end the path with `/` to keep the object's name")
}

fn is_special() -> Error {
    let error =
        Error::new(ErrorKind::LocalIo, "the target is not a regular file, and would be replaced by one");
    error.with_hint("use `flatout cat` and redirect its output there")
}

/// The path that a rename may replace: links are followed, and only regular files or nothing may be there.
fn final_path(path: &Path) -> Result<PathBuf, Error> {
    let path = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            // A link to nothing yet: what it names is what is written.
            return Ok(match std::fs::read_link(path) {
                Ok(named) => path.parent().unwrap_or(Path::new("")).join(named),
                Err(_) => path.to_path_buf(),
            });
        }
        Err(refused) => return Err(Error::local("cannot look at the target", refused)),
    };
    let kind = std::fs::metadata(&path)
        .map_err(|refused| Error::local("cannot look at the target", refused))?
        .file_type();
    if kind.is_dir() {
        return Err(is_folder());
    }
    if kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket() {
        return Err(is_special());
    }
    Ok(path)
}

/// `.NAME.flatout-PID-N` in the same folder, so that a rename can replace the target at once.
pub(crate) fn temporary_beside(name: &OsStr, process: u32) -> OsString {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // A name may have 255 bytes; ours adds up to 40.
    let name: String = name.to_string_lossy().chars().take(50).collect();
    format!(".{name}.flatout-{process}-{number}").into()
}
