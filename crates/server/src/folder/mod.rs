//! A store in a folder: each folder in it is a bucket, keys are relative paths. Objects whose keys are none
//! are beside them.
//!
//! Nothing outside the root is ever reached: every path is opened by `openat2(2)` with `RESOLVE_BENEATH`, so
//! the kernel refuses `..`, absolute links and links that lead out, with no gap between check and use.

mod beside;
mod list;
mod locks;
mod notes;
mod upload_store;

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use s3s::{S3Error, S3Result, s3_error};

use crate::backend::{About, Backend, ListVisitor, disk_failed, no_bucket, no_key, shown};
use crate::crcs::KnownCrcs;
use crate::draft::{Blob, BlobPlace, Draft, TemporaryFile, at};
use crate::object::{ByteSource, Object, ObjectMetadata};
pub(crate) use locks::{Locks, unlock};
use notes::NotesPlace;
pub(crate) use upload_store::UploadStore;

/// Holds unfinished files, and whatever else is no plain file of a bucket, on the same file system as those.
/// S3 allows no bucket of this name.
const OWN: &str = ".flatout";

/// How often a rename is tried again when a DELETE next door removed the folder that it goes to.
const RENAME_ATTEMPTS: u32 = 5;

pub(crate) struct Folder {
    root: PathBuf,
    beneath: OwnedFd,
}

impl Folder {
    /// Fails, naming the path, unless it is a folder.
    pub(crate) fn open(root: &Path) -> io::Result<Folder> {
        let named = at(root);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let beneath = rustix::fs::open(root, flags, Mode::empty()).map_err(|error| named(error.into()))?;
        let folder = Folder { root: root.canonicalize().map_err(&named)?, beneath };
        folder.remove_stale_drafts().map_err(named)?;
        Ok(folder)
    }

    /// The uploads that are noted in this root.
    pub(crate) fn upload_store(&self) -> UploadStore {
        UploadStore::new(&self.root)
    }

    /// The locks that all origins over this root share.
    pub(crate) fn locks(&self) -> Locks {
        Locks::new(&self.root)
    }

    /// Removes drafts that killed origins left. A draft that is still written is locked.
    fn remove_stale_drafts(&self) -> io::Result<()> {
        let entries = match std::fs::read_dir(self.root.join(OWN)) {
            Err(error) if is_absence(&error) => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type().is_ok_and(|kind| kind.is_file())
                && is_draft(entry.file_name().to_str().unwrap_or_default())
                && let Ok(file) = File::open(entry.path())
                && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(())
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

    fn make_draft(&self) -> io::Result<TemporaryFile> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = self.root.join(OWN);
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = folder.join(format!("{}-{number}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(TemporaryFile { file, path })
    }

    /// A new file of all the blobs, by `copy_file_range(2)` where it can. The blobs stay, so that a failure
    /// can be retried.
    fn join(&self, blobs: &[&Blob]) -> io::Result<TemporaryFile> {
        let mut whole = self.make_draft()?;
        for blob in blobs {
            let mut file = match &blob.place {
                BlobPlace::File(draft) => draft.file.try_clone()?,
                BlobPlace::Persistent(path) => File::open(path)?,
                BlobPlace::Memory(_) | BlobPlace::Nowhere => {
                    unreachable!("the drafts of this store are files")
                }
            };
            io::Seek::rewind(&mut file)?;
            let copied = io::copy(&mut file, &mut whole.file)?;
            if copied != blob.bytes {
                return Err(io::Error::other(format!("a part has {copied} bytes and had {}", blob.bytes)));
            }
        }
        Ok(whole)
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

impl Folder {
    /// The file of an object: in its bucket's folder, or beside.
    fn find(&self, bucket: &str, key: &str) -> io::Result<Option<(File, Metadata)>> {
        // Not every way here comes past the dialects' check: the source of a copy is named in a header.
        if !s3s::path::check_bucket_name(bucket) {
            return Ok(None);
        }
        if let Ok(path) = path_of(bucket, key)
            && let Some(found) = or_absent(self.open_file(&path))?
        {
            return Ok(Some(found));
        }
        or_absent(self.open_file(&beside::path_of(bucket, key)))
    }

    /// Puts a whole file under its key. Of a file and a folder of one name the one that comes second goes
    /// beside.
    fn place(&self, bucket: &str, key: &str, whole: &TemporaryFile) -> rustix::io::Result<()> {
        let beside = beside::path_of(bucket, key);
        let Ok(path) = path_of(bucket, key) else { return self.rename(whole, &beside) };
        match self.rename(whole, &path) {
            Ok(()) => {
                // From now on it is not found any more.
                self.remove(&beside)?;
                Ok(())
            }
            Err(Errno::ISDIR | Errno::NOTDIR | Errno::EXIST | Errno::NOTEMPTY | Errno::NAMETOOLONG) => {
                self.rename(whole, &beside)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a file and the folders that it leaves empty.
    fn remove(&self, path: &str) -> rustix::io::Result<()> {
        let Some((parent, name)) = path.rsplit_once('/') else { return Ok(()) };
        let Ok(parent) = self.open_folder(parent) else { return Ok(()) };
        match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) => self.prune(path),
            Err(Errno::NOENT | Errno::ISDIR | Errno::NOTDIR | Errno::NAMETOOLONG) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The version of an open file: the noted one, or one made from its size, time and inode.
    fn object(&self, file: File, about: &Metadata) -> Object {
        let noted = self.notes(&file, about);
        let (etag, known_crcs, provenance) = match noted.version {
            Some(version) => (version.etag, KnownCrcs::Written(version.crcs), version.provenance),
            None => (etag(about), KnownCrcs::No, Arc::default()),
        };
        Object {
            size: about.len(),
            etag,
            modified: about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            metadata: Arc::new(noted.metadata),
            source: ByteSource::File(Arc::new(file)),
            known_crcs,
            provenance,
        }
    }
}

impl Backend for Folder {
    fn buckets(&self) -> S3Result<Vec<(String, SystemTime)>> {
        let mut buckets = Vec::new();
        for entry in std::fs::read_dir(&self.root).map_err(|error| self.failed(error))? {
            let Ok(name) = entry.map_err(|error| self.failed(error))?.file_name().into_string() else {
                continue;
            };
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
            made => made.map_err(|error| self.failed(error)),
        }
    }

    fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        if !beside::keys(self, bucket).map_err(|error| self.failed(error))?.is_empty() {
            return Err(s3_error!(BucketNotEmpty, "the bucket {bucket} is not empty"));
        }
        match rustix::fs::unlinkat(&self.beneath, bucket, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT) => Err(no_bucket(bucket)),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                Err(s3_error!(BucketNotEmpty, "the folder of the bucket {bucket} is not empty"))
            }
            removed => removed.map_err(|error| self.failed(error)),
        }
    }

    fn open(&self, bucket: &str, key: &str) -> S3Result<Object> {
        match self.find(bucket, key) {
            Ok(Some((file, about))) => Ok(self.object(file, &about)),
            Ok(None) => {
                self.check_bucket(bucket)?;
                Err(no_key(bucket, key))
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(s3_error!(error, AccessDenied, "the origin may not read {bucket}/{}", shown(key)))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut ListVisitor<'_>) -> S3Result<()> {
        self.check_bucket(bucket)?;
        list::list(self, bucket, prefix, after, visit).map_err(|error| self.failed(error))
    }

    fn draft(&self, bucket: &str, _: &str) -> S3Result<Draft> {
        self.check_bucket(bucket)?;
        let file = self.make_draft().map_err(|error| self.failed(error))?;
        Ok(Draft::new(BlobPlace::File(file)))
    }

    fn publish(&self, bucket: &str, key: &str, blobs: &[&Blob], about: About) -> S3Result<()> {
        // A key that lies beside would be taken where the bucket is gone.
        self.check_bucket(bucket)?;
        let joined;
        let whole = match blobs {
            [Blob { place: BlobPlace::File(whole), .. }] => whole,
            parts => {
                joined = self.join(parts).map_err(|error| self.failed(error))?;
                &joined
            }
        };
        self.note(&whole.file, &about.metadata, Some(&about.version)).map_err(|error| self.failed(error))?;
        let replaced = self.find(bucket, key).ok().flatten();
        self.place(bucket, key, whole).map_err(|error| match error {
            Errno::NOENT => no_bucket(bucket),
            Errno::XDEV | Errno::LOOP => {
                s3_error!(AccessDenied, "{} leads out of the root, or to another file system", shown(key))
            }
            other => self.failed(other),
        })?;
        replaced.iter().for_each(|(_, about)| self.forget_notes(about));
        Ok(())
    }

    fn describe(&self, bucket: &str, key: &str, metadata: Arc<ObjectMetadata>) -> S3Result<()> {
        let found = self.find(bucket, key).map_err(|error| self.failed(error))?;
        let (file, about) = found.ok_or_else(|| no_key(bucket, key))?;
        let version = self.notes(&file, &about).version;
        if self.note(&file, &metadata, version.as_ref()).map_err(|error| self.failed(error))?
            == NotesPlace::Attribute
        {
            self.forget_notes(&about);
        }
        Ok(())
    }

    fn delete(&self, bucket: &str, key: &str) -> S3Result<()> {
        self.check_bucket(bucket)?;
        let removed = self.find(bucket, key).ok().flatten();
        if let Ok(path) = path_of(bucket, key) {
            self.remove(&path).map_err(|error| self.failed(error))?;
        }
        self.remove(&beside::path_of(bucket, key)).map_err(|error| self.failed(error))?;
        removed.iter().for_each(|(_, about)| self.forget_notes(about));
        Ok(())
    }
}

impl Folder {
    fn failed(&self, error: impl Into<io::Error>) -> S3Error {
        disk_failed("the origin's folder", &at(&self.root)(error.into()))
    }

    fn open_bucket(&self, bucket: &str) -> S3Result<OwnedFd> {
        if !s3s::path::check_bucket_name(bucket) {
            return Err(no_bucket(bucket));
        }
        self.open_folder(bucket).map_err(|_| no_bucket(bucket))
    }
}

/// Folders of a root that are no buckets because of their names ([`crate::BUCKET_RULE`]), in order; hidden
/// ones are not meant to be.
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
        // It stays while another origin has drafts in it, and for what lies beside.
        for empty in ["locks", "uploads", "notes", "beside", ""] {
            let _ = std::fs::remove_dir(self.root.join(OWN).join(empty));
        }
    }
}

/// Where a key lies in its bucket's folder, under the root; an error where it is no path.
fn path_of(bucket: &str, key: &str) -> Result<String, NoPath> {
    // An empty name, one that means something else to a file system, one that is too long for it.
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains('\0');
    match s3s::path::check_bucket_name(bucket) && key.split('/').all(is_name) {
        true => Ok(format!("{bucket}/{key}")),
        false => Err(NoPath),
    }
}

#[derive(Debug)]
struct NoPath;

/// Whether a name is one of [`Folder::make_draft`]: other files there are not the origin's to remove.
fn is_draft(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('-').is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// A file of the origin's own, there at once or not at all.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    let written = std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(&unfinished, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&unfinished)))
}

/// The ETag of a file that was not written through the origin. It changes whenever the file is replaced or
/// written to: size, time to the nanosecond, inode. It is no MD5, and its hyphens say so.
fn etag(about: &Metadata) -> String {
    let modified_ns = i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec());
    format!("{modified_ns:x}-{:x}-{:x}", about.ino(), about.len())
}

/// The result, or None where the path does not exist.
fn or_absent<T>(found: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match found {
        Err(error) if is_absence(&error) => Ok(None),
        found => found,
    }
}

/// Whether the error means that nothing of that name can be read: absent, below a file, a link in a circle,
/// a link that leads out of the root (`EXDEV`).
fn is_absence(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV, Errno::NAMETOOLONG, Errno::NXIO]
        .iter()
        .any(|absence| error.raw_os_error() == Some(absence.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_no_paths_are_known() {
        let long = "x".repeat(256);
        for key in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "../b", "a/..", "a/./b", "a\0b", &long] {
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
        assert_eq!(std::fs::read_dir(root.path().join(OWN)).unwrap().count(), 1);
        drop(draft);
        assert_eq!(std::fs::read_dir(root.path().join(OWN)).unwrap().count(), 0);
        drop(folder);
        assert!(!root.path().join(OWN).exists());
    }

    #[test]
    fn drafts_of_a_killed_origin_go_and_those_of_a_living_one_stay() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("bucket")).unwrap();
        let living = Folder::open(root.path()).unwrap();
        let draft = living.draft("bucket", "key").unwrap();
        for name in ["1-0", "somebody's", "1-", "-1", "1-0.txt"] {
            std::fs::write(root.path().join(OWN).join(name), b"left").unwrap();
        }
        let names = || std::fs::read_dir(root.path().join(OWN)).unwrap().count();
        assert_eq!(names(), 6);
        let second = Folder::open(root.path()).unwrap();
        assert_eq!(names(), 5);
        living.publish("bucket", "key", &[&draft.finish()], about()).unwrap();
        assert_eq!(second.open("bucket", "key").unwrap().size, 0);
    }

    fn about() -> About {
        let version = crate::version::Version::of(&[], Default::default(), Default::default());
        About { metadata: Arc::default(), version }
    }
}
