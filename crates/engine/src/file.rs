//! Files: written under a temporary name beside their own, put in place only when they are whole, removed otherwise.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};
use crate::folder::{self, Folder};
use crate::temporary::Temporary;

/// Below this a reservation costs as much as the write itself, and a full disk is found by the first write.
const SMALL_BYTES: u64 = 1 << 20;

/// A file that is written under a temporary name, and removed unless it is committed.
pub(crate) struct FileGround {
    temporary: Temporary,
    folder: Arc<OwnedFd>,
    name: OsString,
    /// As errors name it.
    shown: PathBuf,
    reserved_bytes: AtomicU64,
    /// The temporary name leads to this file no more: it has its own, or was removed. It may be another's by now.
    is_unnamed: AtomicBool,
    process: u32,
}

impl FileGround {
    /// A file at `path`, whose links are followed.
    pub(crate) fn create(path: &Path) -> Result<FileGround, Error> {
        let path = final_path(path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder::open(parent).map_err(refused_there)?;
        let name = path.file_name().unwrap_or_default().to_os_string();
        let ground = FileGround::create_in(Arc::new(folder), name, path)?;
        // Of many files a `Sweeper` does it.
        ground.temporary.clear_behind(&ground.folder, &ground.name);
        Ok(ground)
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
        let temporary = Temporary::create(&folder, &name).map_err(|refused| refused_there(refused.into()))?;
        Ok(FileGround {
            temporary,
            folder,
            name,
            shown,
            reserved_bytes: AtomicU64::new(0),
            is_unnamed: AtomicBool::new(false),
            process: std::process::id(),
        })
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
            match rustix::fs::fallocate(&self.temporary.file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
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
        self.temporary
            .file
            .write_all_at(bytes, at)
            .map_err(|refused| Error::local("cannot write", refused).during("write", self.shown()))
    }

    /// Puts the whole file under its name. Where that takes an earlier file's place, its mode is kept, and the bytes are
    /// on disk before.
    pub(crate) fn commit(&self, bytes: u64) -> Result<(), Error> {
        let file = &self.temporary.file;
        if self.reserved_bytes.load(Ordering::Relaxed) > bytes {
            file.set_len(bytes).map_err(|refused| Error::local("cannot set the length", refused))?;
        }
        if !self.temporary.is_ours(&self.folder) {
            return Err(match self.is_folder_gone() {
                true => Error::local("cannot put the file under its name", Errno::NOENT.into()),
                false => {
                    Error::new(ErrorKind::LocalIo, "its temporary file was taken away while it was written")
                }
            });
        }
        // Where nothing stands under the name this is all, and nothing that appears meanwhile is overwritten.
        let (folder, from) = (&*self.folder, &self.temporary.name);
        if rustix::fs::renameat_with(folder, from, folder, &self.name, RenameFlags::NOREPLACE).is_ok() {
            self.is_unnamed.store(true, Ordering::Relaxed);
            return Ok(());
        }
        if let Some(mode) = self.earlier_mode()? {
            rustix::fs::fchmod(file, mode).map_err(|refused| {
                Error::local("cannot keep the earlier file's permissions", refused.into())
            })?;
            file.sync_all().map_err(|refused| Error::local("cannot sync to disk", refused))?;
        }
        rustix::fs::renameat(folder, from, folder, &self.name)
            .map_err(|refused| Error::local("cannot put the file under its name", refused.into()))?;
        self.is_unnamed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// A folder that was removed can be held, and has no name any more.
    fn is_folder_gone(&self) -> bool {
        rustix::fs::fstat(&self.folder).is_ok_and(|stat| stat.st_nlink == 0)
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

    /// Once at most, and not after a commit; in a forked child it is not ours.
    pub(crate) fn remove_temporary(&self) {
        let is_named = self.process == std::process::id() && !self.is_unnamed.swap(true, Ordering::Relaxed);
        if is_named && self.temporary.is_ours(&self.folder) {
            let _ = rustix::fs::unlinkat(&*self.folder, &self.temporary.name, AtFlags::empty());
        }
    }
}

impl Drop for FileGround {
    fn drop(&mut self) {
        self.remove_temporary();
    }
}

fn refused_there(refused: io::Error) -> Error {
    let taken = refused.kind() == io::ErrorKind::AlreadyExists;
    let error = Error::local("cannot create a file there", refused);
    match taken {
        true => error.with_hint("remove what killed runs left beside it: .NAME.flatout-*"),
        false => error,
    }
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
