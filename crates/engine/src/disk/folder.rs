//! A target folder: files are made beneath it and never outside of it, whatever their names and whatever
//! links lie there.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::base::error::{Error, ErrorKind};
use crate::base::files;
use crate::disk::temporary::Temporary;

/// A folder that many files go into.
#[derive(Clone, Debug)]
pub struct Folder(Arc<Root>);

#[derive(Debug)]
struct Root {
    path: PathBuf,
    root: Arc<OwnedFd>,
    /// How many of those beneath it are kept open.
    open_max: usize,
    /// Folders beneath it by their relative paths.
    below: Mutex<HashMap<String, Arc<OwnedFd>>>,
}

impl Folder {
    /// Opens the folder at `path`, whose own links are followed; it is made where it is missing.
    ///
    /// # Errors
    /// [`ErrorKind::LocalIo`] when it cannot be made or opened.
    pub fn open(path: &Path) -> Result<Folder, Error> {
        let opened = std::fs::create_dir_all(path).and_then(|()| open(path));
        let root = opened.map_err(|refused| {
            Error::local("cannot use it as the target folder", refused).during("write", path.display())
        })?;
        Ok(Folder(Arc::new(Root {
            path: path.to_path_buf(),
            root: Arc::new(root),
            open_max: files::folders_max(),
            below: Mutex::default(),
        })))
    }

    /// Where it is, as it was opened.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether the file system takes `a` and `A` for one name, found by trying.
    ///
    /// # Errors
    /// [`ErrorKind::LocalIo`] when no file can be made in it.
    pub fn folds_case(&self) -> Result<bool, Error> {
        let root = &*self.0.root;
        let lower = Temporary::create(root, "case".as_ref(), false).map_err(|refused| {
            Error::local("cannot create a file there", refused.into()).during("write", self.path().display())
        })?;
        let upper = lower.name.to_string_lossy().to_uppercase();
        let folds = rustix::fs::statat(root, upper, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        // What cannot be removed is seen by whoever looks; there is nothing else to do about it.
        let _ = rustix::fs::unlinkat(root, &lower.name, AtFlags::empty());
        Ok(folds)
    }

    /// Makes the folder at a relative path beneath this one, where it is missing.
    ///
    /// # Errors
    /// [`ErrorKind::LocalIo`] when it cannot be made, for instance where a file has its name.
    pub fn make(&self, path: &str) -> Result<(), Error> {
        self.below(path).map(drop).map_err(|error| error.during("write", self.path().join(path).display()))
    }

    /// Removes the file at a relative path beneath this one, as long as it has that size and that time, in
    /// nanoseconds since 1970. One that is not there counts as removed.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] for another file than that; [`ErrorKind::LocalIo`] when it cannot be removed.
    pub fn remove_file(&self, path: &str, bytes: u64, modified_ns: i128) -> Result<(), Error> {
        let refused = |error: Error| error.during("delete", self.path().join(path).display());
        let local = |why: Errno| refused(Error::local("cannot remove it", why.into()));
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = match self.existing(parent) {
            Ok(parent) => parent,
            Err(Errno::NOENT) => return Ok(()),
            Err(why) => return Err(local(why)),
        };
        let found = match rustix::fs::statat(&*parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(()),
            Err(why) => return Err(local(why)),
        };
        let found_ns = i128::from(found.st_mtime) * 1_000_000_000 + i128::from(found.st_mtime_nsec);
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_file || found.st_size as u64 != bytes || found_ns != modified_ns {
            let changed = Error::new(ErrorKind::Changed, "it was changed since it was looked at, and stays");
            return Err(refused(changed));
        }
        match rustix::fs::unlinkat(&*parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(why) => Err(local(why)),
        }
    }

    /// Removes the folder at a relative path beneath this one where it is empty: whether it is gone.
    ///
    /// # Errors
    /// [`ErrorKind::LocalIo`] when it cannot be removed.
    pub fn remove_empty(&self, path: &str) -> Result<bool, Error> {
        self.lock().remove(path);
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let removed =
            self.existing(parent).and_then(|parent| rustix::fs::unlinkat(&*parent, name, AtFlags::REMOVEDIR));
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(why) => {
                let refused = Error::local("cannot remove it", why.into());
                Err(refused.during("delete", self.path().join(path).display()))
            }
        }
    }

    /// The folder at a relative path beneath this one, made where it is missing.
    pub(crate) fn below(&self, path: &str) -> Result<Arc<OwnedFd>, Error> {
        if path.is_empty() {
            return Ok(self.0.root.clone());
        }
        if let Some(open) = self.lock().get(path) {
            return Ok(open.clone());
        }
        let opened = match self.open_below(path) {
            Err(Errno::NOENT) => self.make_below(path)?,
            opened => opened.map_err(|refused| refusal(path, refused))?,
        };
        let opened = Arc::new(opened);
        let mut below = self.lock();
        if below.len() >= self.0.open_max {
            below.clear();
        }
        below.insert(path.to_owned(), opened.clone());
        Ok(opened)
    }

    /// The folder at a relative path beneath this one, where it is there already.
    pub(crate) fn existing(&self, path: &str) -> Result<Arc<OwnedFd>, Errno> {
        match path.is_empty() {
            true => Ok(self.0.root.clone()),
            false => self.open_below(path).map(Arc::new),
        }
    }

    fn make_below(&self, path: &str) -> Result<OwnedFd, Error> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.below(parent)?;
        match rustix::fs::mkdirat(&*parent, name, Mode::from_raw_mode(0o777)) {
            // Another worker was quicker.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(refused) => return Err(refusal(path, refused)),
        }
        self.open_below(path).map_err(|refused| refusal(path, refused))
    }

    /// The kernel keeps the look-up beneath the root, links included (openat2(2)). One that cannot is asked
    /// step by step, and then follows no link at all.
    fn open_below(&self, path: &str) -> Result<OwnedFd, Errno> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&*self.0.root, path, FLAGS, Mode::empty(), beneath) {
            // Older kernels, and sandboxes that do not know the call.
            Err(Errno::NOSYS | Errno::PERM) => self.open_step_by_step(path),
            opened => opened,
        }
    }

    fn open_step_by_step(&self, path: &str) -> Result<OwnedFd, Errno> {
        let mut at = self.0.root.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            if name == ".." {
                return Err(Errno::XDEV);
            }
            at = Arc::new(rustix::fs::openat(&*at, name, FLAGS | OFlags::NOFOLLOW, Mode::empty())?);
        }
        rustix::io::fcntl_dupfd_cloexec(&*at, 0)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<OwnedFd>>> {
        self.0.below.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder by its path, links followed.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, FLAGS, Mode::empty())?)
}

fn refusal(path: &str, refused: Errno) -> Error {
    match refused {
        Errno::XDEV => {
            let cause = format!("the link in {path:?} leads out of the target folder");
            Error::new(ErrorKind::LocalIo, cause)
                .with_hint("remove the link, or name the folder that it leads to as the target")
        }
        Errno::NOTDIR | Errno::LOOP => {
            let cause = format!("something else stands where the folder {path:?} is needed");
            Error::new(ErrorKind::LocalIo, cause).with_hint("remove it, or choose another target folder")
        }
        _ => Error::local(&format!("cannot make the folder {path:?}"), refused.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::landing::{Landing, Sink};
    use crate::sink::verify::Ledger;

    fn put(folder: &Folder, name: &str) -> Result<(), Error> {
        let sink = Sink::open(Landing::Beneath(folder.clone(), name.into()), true)?;
        sink.place(0, 0, Ledger::default().start_part()).fill(b"new", 3)?;
        sink.commit(3)
    }

    #[test]
    fn files_land_beneath_and_nowhere_else() {
        let base = tempfile::tempdir().expect("a folder");
        let target = base.path().join("made/target");
        let folder = Folder::open(&target).expect("a new folder");
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, target.join(name)).expect("a link");
        };
        std::fs::write(base.path().join("outside"), b"earlier").expect("a file");
        std::fs::create_dir(target.join("inside")).expect("a folder");
        std::fs::write(target.join("file"), b"earlier").expect("a file");
        link("inside", "in");
        link("../..", "out");
        link("/tmp", "absolute");
        link("../../outside", "own");
        for (name, refused) in [
            ("plain", None),
            ("a/b/c", None),
            ("a/b/d", None),
            ("in/x", None),
            ("own", None),
            ("out/x", Some("leads out of the target folder")),
            ("absolute/x", Some("leads out of the target folder")),
            ("../x", Some("leads out of the target folder")),
            ("file/x", Some("something else stands where")),
            ("inside", Some("the target is a folder")),
        ] {
            let error = put(&folder, name).err().map(|error| error.to_string());
            match refused {
                None => {
                    assert_eq!(error, None, "{name}");
                    assert_eq!(std::fs::read(target.join(name)).expect("the file"), b"new", "{name}");
                }
                Some(why) => {
                    assert!(error.as_deref().is_some_and(|error| error.contains(why)), "{name}: {error:?}")
                }
            }
        }
        assert!(target.join("inside/x").is_file(), "a link that stays beneath is followed");
        assert_eq!(std::fs::read(base.path().join("outside")).expect("the file"), b"earlier");
        let left = std::fs::read_dir(&target).expect("the folder").flatten();
        assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().contains("flatout")));
    }

    #[test]
    fn step_by_step_no_link_is_followed() {
        let base = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(base.path()).expect("the folder");
        std::fs::create_dir_all(base.path().join("a/b")).expect("folders");
        std::os::unix::fs::symlink("a", base.path().join("link")).expect("a link");
        for (path, expected) in [
            ("a/b", None),
            ("link/b", Some(Errno::NOTDIR)),
            ("a/../..", Some(Errno::XDEV)),
            ("c", Some(Errno::NOENT)),
        ] {
            assert_eq!(folder.open_step_by_step(path).err(), expected, "{path}");
        }
    }

    #[test]
    fn the_probe_for_case_leaves_nothing() {
        let base = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(base.path()).expect("the folder");
        std::fs::write(base.path().join("x"), b"").expect("a file");
        let folds = base.path().join("X").exists();
        std::fs::remove_file(base.path().join("x")).expect("the file goes");
        assert_eq!(folder.folds_case().expect("a probe"), folds);
        assert_eq!(std::fs::read_dir(base.path()).expect("the folder").count(), 0);
    }
}
