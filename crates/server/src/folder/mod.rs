//! A store in a folder: each folder in it is a bucket, keys are relative paths.
//!
//! Nothing outside the root is ever reached: every path is opened by `openat2(2)` with `RESOLVE_BENEATH`, so
//! the kernel refuses `..`, absolute links and links that lead out, with no gap between check and use.

mod list;
mod notes;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use s3s::{S3Error, S3Result, s3_error};

use crate::crcs::Known;
use crate::draft::{self, Draft, Place, TemporaryFile};
use crate::object::{Content, Kept, Object};
use crate::shelf::{Shelf, Visit, no_bucket, no_key};

/// Holds unfinished files, on the same file system as the buckets. S3 allows no bucket of this name.
const DRAFTS: &str = ".flatout";

/// How often a rename is tried again when a DELETE next door removed the folder that it goes to.
const RENAME_ATTEMPTS: u32 = 5;

pub(crate) struct Folder {
    root: PathBuf,
    beneath: OwnedFd,
}

impl Folder {
    /// Fails, naming the path, unless it is a folder.
    pub(crate) fn open(root: &Path) -> io::Result<Folder> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", root.display()));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let beneath = rustix::fs::open(root, flags, Mode::empty()).map_err(|error| named(error.into()))?;
        Ok(Folder { root: root.canonicalize().map_err(named)?, beneath })
    }

    fn open_beneath(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.beneath, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    fn open_folder(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        self.open_beneath(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// The regular file at `path`, which may be a link; `None` for anything else.
    fn open_file(&self, path: &str) -> io::Result<Option<(File, std::fs::Metadata)>> {
        // Without NONBLOCK the open of a FIFO would wait for its writer.
        let file = File::from(self.open_beneath(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let about = file.metadata()?;
        Ok(about.is_file().then_some((file, about)))
    }

    /// The folder that a key lies in, made where it is missing; the bucket itself must be there.
    fn make_folder(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        match (self.open_folder(path), path.rsplit_once('/')) {
            (Err(Errno::NOENT), Some((parent, name))) => {
                match rustix::fs::mkdirat(self.make_folder(parent)?, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => self.open_folder(path),
                    Err(error) => Err(error),
                }
            }
            (opened, _) => opened,
        }
    }

    fn make_draft(&self) -> io::Result<Draft> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = self.root.join(DRAFTS);
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = folder.join(format!("{}-{number}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Draft::new(Place::File(TemporaryFile { file, path })))
    }

    /// Renames `draft` to `path`, whose last component replaces what is there.
    fn rename(&self, draft: &TemporaryFile, path: &str) -> rustix::io::Result<()> {
        let (parent, name) = path.rsplit_once('/').ok_or(Errno::INVAL)?;
        let mut attempts = RENAME_ATTEMPTS;
        loop {
            let parent = self.make_folder(parent)?;
            match rustix::fs::renameat(rustix::fs::CWD, &draft.path, parent, name) {
                Err(Errno::NOENT) if attempts > 0 => attempts -= 1,
                done => return done,
            }
        }
    }

    /// Removes the folders that a removed key leaves empty, up to the bucket: S3 has no empty folders.
    fn prune(&self, path: &str) {
        let mut path = path;
        while let Some((folder, _)) = path.rsplit_once('/')
            && let Some((parent, name)) = folder.rsplit_once('/')
            && let Ok(parent) = self.open_folder(parent)
            && rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).is_ok()
        {
            path = folder;
        }
    }
}

impl Shelf for Folder {
    fn buckets(&self) -> S3Result<Vec<(String, SystemTime)>> {
        let mut buckets = Vec::new();
        for entry in std::fs::read_dir(&self.root).map_err(internal)? {
            let Ok(name) = entry.map_err(internal)?.file_name().into_string() else { continue };
            if let Ok(folder) = self.open_bucket(&name)
                && let Ok(about) = File::from(folder).metadata()
            {
                buckets.push((name, about.modified().unwrap_or(SystemTime::UNIX_EPOCH)));
            }
        }
        buckets.sort();
        Ok(buckets)
    }

    fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        self.open_bucket(bucket).map(drop)
    }

    fn create_bucket(&self, bucket: &str) -> S3Result<()> {
        match rustix::fs::mkdirat(&self.beneath, bucket, Mode::from_raw_mode(0o777)) {
            Err(Errno::EXIST) => {
                Err(s3_error!(BucketAlreadyOwnedByYou, "the bucket {bucket} is there already"))
            }
            made => made.map_err(internal),
        }
    }

    fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        match rustix::fs::unlinkat(&self.beneath, bucket, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT) => Err(no_bucket(bucket)),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                Err(s3_error!(BucketNotEmpty, "the folder of the bucket {bucket} is not empty"))
            }
            removed => removed.map_err(internal),
        }
    }

    fn open(&self, bucket: &str, key: &str) -> S3Result<Object> {
        let found = path_of(bucket, key).map(|path| self.open_file(&path));
        let (file, about) = match found {
            Ok(Ok(Some(found))) => found,
            Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(s3_error!(error, AccessDenied, "the origin may not read {bucket}/{key}"));
            }
            Ok(Err(error)) if !is_absence(&error) => return Err(internal(error)),
            Ok(_) | Err(_) => {
                self.check_bucket(bucket)?;
                return Err(no_key(bucket, key));
            }
        };
        let (kept, crcs) = notes::read(&file, &about);
        Ok(Object {
            size: about.len(),
            etag: etag(&about),
            modified: about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            kept: Arc::new(kept),
            content: Content::File(Arc::new(file)),
            known: crcs.map_or(Known::No, Known::Written),
        })
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut Visit<'_>) -> S3Result<()> {
        self.check_bucket(bucket)?;
        list::list(self, bucket, prefix, after, visit).map_err(internal)
    }

    fn draft(&self, bucket: &str, key: &str) -> S3Result<Draft> {
        self.check_bucket(bucket)?;
        path_of(bucket, key).map_err(|why| s3_error!(InvalidArgument, "{key} cannot be a file: {why}"))?;
        self.make_draft().map_err(internal)
    }

    fn publish(&self, bucket: &str, key: &str, drafts: Vec<Draft>, kept: Arc<Kept>) -> S3Result<String> {
        let path = path_of(bucket, key).map_err(|why| s3_error!(InvalidArgument, "{why}"))?;
        let (_, crcs) = draft::total(&drafts);
        let whole = join(drafts).map_err(internal)?;
        notes::write(&whole.file, &kept, crcs).map_err(internal)?;
        self.rename(&whole, &path).map_err(|error| match error {
            Errno::NOENT => no_bucket(bucket),
            Errno::ISDIR | Errno::NOTDIR | Errno::EXIST | Errno::NOTEMPTY => {
                s3_error!(
                    InvalidArgument,
                    "{key} cannot be a file: a folder or file of that name is in the way"
                )
            }
            Errno::XDEV | Errno::LOOP => {
                s3_error!(AccessDenied, "{key} leads out of the root, or to another file system")
            }
            other => internal(other),
        })?;
        Ok(etag(&whole.file.metadata().map_err(internal)?))
    }

    fn delete(&self, bucket: &str, key: &str) -> S3Result<()> {
        self.check_bucket(bucket)?;
        // A path that cannot be is not there, and what is not there is no error.
        let Ok(path) = path_of(bucket, key) else { return Ok(()) };
        let Some((parent, name)) = path.rsplit_once('/') else { return Ok(()) };
        let Ok(parent) = self.open_folder(parent) else { return Ok(()) };
        match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) => self.prune(&path),
            Err(Errno::NOENT | Errno::ISDIR | Errno::NOTDIR | Errno::NAMETOOLONG) => {}
            Err(error) => return Err(internal(error)),
        }
        Ok(())
    }
}

impl Folder {
    fn open_bucket(&self, bucket: &str) -> S3Result<OwnedFd> {
        if !s3s::path::check_bucket_name(bucket) {
            return Err(no_bucket(bucket));
        }
        self.open_folder(bucket).map_err(|_| no_bucket(bucket))
    }
}

/// Folders of a root that are no buckets because of their names ([`crate::BUCKET_RULE`]), in order; hidden ones are
/// not meant to be.
///
/// # Errors
/// The root cannot be read.
pub fn unservable(root: &Path) -> io::Result<Vec<PathBuf>> {
    let is_bucket = |name: &str| name.starts_with('.') || s3s::path::check_bucket_name(name);
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if entry.path().is_dir() && !entry.file_name().to_str().is_some_and(is_bucket) {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It stays while another origin still has drafts in it.
        let _ = std::fs::remove_dir(self.root.join(DRAFTS));
    }
}

/// Where a key lies under the root; an error says why it cannot lie anywhere.
fn path_of(bucket: &str, key: &str) -> Result<String, &'static str> {
    if !s3s::path::check_bucket_name(bucket) {
        return Err("S3 allows no bucket of this name");
    }
    for component in key.split('/') {
        match component {
            "" => return Err("an empty name, a leading or a trailing slash"),
            "." | ".." => return Err("the names . and .. mean something else to a file system"),
            name if name.len() > 255 => return Err("a name of more than 255 bytes"),
            name if name.contains('\0') => return Err("a name with a zero byte"),
            _ => {}
        }
    }
    Ok(format!("{bucket}/{key}"))
}

/// Changes whenever the file is replaced or written to: size, time to the nanosecond, inode.
fn etag(about: &std::fs::Metadata) -> String {
    let modified_ns = i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec());
    format!("{modified_ns:x}-{:x}-{:x}", about.ino(), about.len())
}

/// One file of all the drafts: the first, with the others appended (`copy_file_range(2)` where it can).
fn join(drafts: Vec<Draft>) -> io::Result<TemporaryFile> {
    let mut files = drafts.into_iter().map(|draft| match draft.into_place() {
        Place::File(file) => file,
        Place::Memory(_) | Place::Nowhere => unreachable!("the drafts of this store are files"),
    });
    let mut whole = files.next().ok_or(io::ErrorKind::InvalidInput)?;
    for mut part in files {
        io::Seek::rewind(&mut part.file)?;
        io::copy(&mut part.file, &mut whole.file)?;
    }
    Ok(whole)
}

/// Whether the error means that nothing of that name can be read: absent, below a file, a link in a circle,
/// a link that leads out of the root (`EXDEV`).
fn is_absence(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV, Errno::NAMETOOLONG, Errno::NXIO]
        .iter()
        .any(|absence| error.raw_os_error() == Some(absence.raw_os_error()))
}

fn internal(error: impl Into<io::Error>) -> S3Error {
    let error = error.into();
    s3_error!(InternalError, "the origin's folder: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_no_paths_are_refused() {
        for key in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "../b", "a/..", "a/./b", "a\0b"] {
            assert!(path_of("bucket", key).is_err(), "{key:?}");
        }
        for bucket in ["..", ".flatout", "a/b", "UPPER", "x", ""] {
            assert!(path_of(bucket, "key").is_err(), "{bucket:?}");
        }
        assert_eq!(path_of("bucket", "a/..b/.c").unwrap(), "bucket/a/..b/.c");
    }

    #[test]
    fn drafts_leave_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bucket")).unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let mut draft = folder.draft("bucket", "key").unwrap();
        draft.write(b"half").unwrap();
        assert_eq!(std::fs::read_dir(root.path().join(DRAFTS)).unwrap().count(), 1);
        drop(draft);
        assert_eq!(std::fs::read_dir(root.path().join(DRAFTS)).unwrap().count(), 0);
        drop(folder);
        assert!(!root.path().join(DRAFTS).exists());
    }
}
