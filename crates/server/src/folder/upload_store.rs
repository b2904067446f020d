//! Unfinished multipart uploads as files, so that they outlive the origin.
//!
//! `ROOT/.flatout/uploads/ORIGIN/ID/about` says what the upload is for; `NUMBER-TIME` are the bytes of a
//! part, and `NUMBER-TIME.note`, written after them, makes the part count. Of several of one number the
//! latest counts. An origin holds the lock of its folder; the next one takes up the uploads in folders
//! without a lock.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::FlockOperation;

use super::notes::NotesText;
use super::{OWN, unlock, write_whole};
use crate::crcs::Crcs;
use crate::draft::{Blob, BlobPlace, at, hex};
use crate::object::ObjectMetadata;
use crate::sums::{ChecksumScope, SumAlgorithm};
use crate::uploads::{Upload, UploadedPart};
use crate::version::Version;

/// The uploads of one origin over a root; there may be other origins.
pub(crate) struct UploadStore {
    /// Of all origins. Its lock is held while the folder of one is made or taken over.
    folder: PathBuf,
    /// From the first upload on.
    own: Mutex<Option<OriginFolder>>,
}

/// The folder of an origin. Where directories cannot be locked, as on NFS, nobody takes it over.
struct OriginFolder {
    folder: PathBuf,
    lock: File,
}

impl Drop for OriginFolder {
    fn drop(&mut self) {
        // It stays while there are uploads in it.
        let _ = std::fs::remove_dir(&self.folder);
        // A process that this one has just forked holds the file, too, until it calls exec(2).
        unlock(&self.lock);
    }
}

impl UploadStore {
    pub(crate) fn new(root: &Path) -> UploadStore {
        UploadStore { folder: root.join(OWN).join("uploads"), own: Mutex::default() }
    }

    /// The uploads that earlier origins left, by id, which are this one's now. What is no upload is removed;
    /// where the origin may not write, nothing is taken up.
    pub(crate) fn load(&self) -> io::Result<Vec<(String, Upload)>> {
        let all = match File::open(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.map_err(at(&self.folder))?,
        };
        let _ = rustix::fs::flock(&all, FlockOperation::LockExclusive);
        let mut left = Vec::new();
        for folder in folders_in(&self.folder)? {
            let lock = File::open(&folder).map_err(at(&folder))?;
            if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                left.push((folder, lock));
            }
        }
        let mut uploads = Vec::new();
        for (folder, _lock) in left {
            for from in folders_in(&folder)? {
                let Some(id) = from.file_name().and_then(|id| id.to_str()) else { continue };
                let to = match self.own(&all) {
                    Err(error) if is_read_only(&error) => return Ok(Vec::new()),
                    own => own?.join(id),
                };
                std::fs::rename(&from, &to).map_err(at(&from))?;
                match load_upload(&to).map_err(at(&to))? {
                    Some(upload) => uploads.push((id.to_owned(), upload)),
                    None => std::fs::remove_dir_all(&to).map_err(at(&to))?,
                }
            }
            let _ = std::fs::remove_dir(&folder);
        }
        Ok(uploads)
    }

    /// This origin's folder, made if need be. `_all` is locked.
    fn own(&self, _all: &File) -> io::Result<PathBuf> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = &*own {
            return Ok(own.folder.clone());
        }
        for number in 0_u64.. {
            let folder = self.folder.join(format!("{}-{number}", std::process::id()));
            match std::fs::create_dir(&folder) {
                // Of another origin of this process, or of one that was killed and had its number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let lock = File::open(&folder)?;
            let _ = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
            *own = Some(OriginFolder { folder: folder.clone(), lock });
            return Ok(folder);
        }
        unreachable!("there is always a next number")
    }

    fn folder_of(&self, id: &str) -> io::Result<PathBuf> {
        if let Some(own) = &*self.own.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(own.folder.join(id));
        }
        std::fs::create_dir_all(&self.folder)?;
        let all = File::open(&self.folder)?;
        let _ = rustix::fs::flock(&all, FlockOperation::LockExclusive);
        Ok(self.own(&all)?.join(id))
    }

    pub(crate) fn begin(&self, id: &str, upload: &Upload) -> io::Result<()> {
        let mut lines = NotesText(String::new());
        lines.add("bucket", &upload.bucket);
        lines.add("key", &upload.key);
        lines.add("started", &since_1970(upload.started));
        if let Some((algorithm, scope)) = upload.sum {
            lines.add("sum", &format!("{}:{}", algorithm.name(), scope.name()));
        }
        lines.add_metadata(&upload.metadata);
        let folder = self.folder_of(id).map_err(at(&self.folder))?;
        std::fs::create_dir(&folder).map_err(at(&self.folder))?;
        write_whole(&folder.join("about"), &lines.0).map_err(|error| {
            // The client never got the id, so it could not abort the upload.
            let _ = std::fs::remove_dir_all(&folder);
            at(&self.folder)(error)
        })
    }

    /// Takes the part's file among those of its upload.
    pub(crate) fn keep(
        &self,
        id: &str,
        number: i32,
        blob: &mut Blob,
        modified: SystemTime,
    ) -> io::Result<()> {
        let BlobPlace::File(file) = &blob.place else { return Ok(()) };
        let path = self.folder_of(id)?.join(format!("{number:05}-{}", since_1970(modified)));
        std::fs::rename(&file.path, &path).map_err(at(&self.folder))?;
        blob.place = BlobPlace::Persistent(path.clone());
        let mut lines = NotesText(String::new());
        lines.add("bytes", &blob.bytes.to_string());
        lines.add("md5", &blob.md5.map(|md5| hex(&md5)).unwrap_or_default());
        lines.add_crcs(blob.crcs);
        for (algorithm, value) in &blob.sums {
            lines.add(algorithm.name(), value);
        }
        write_whole(&note_of(&path), &lines.0).map_err(|error| {
            // It does not count, and a full disk needs its room.
            let _ = std::fs::remove_file(&path);
            at(&self.folder)(error)
        })
    }

    /// Removes a part that was replaced.
    pub(crate) fn drop_part(&self, part: &UploadedPart) {
        if let BlobPlace::Persistent(path) = &part.blob.place {
            let _ = std::fs::remove_file(note_of(path));
            let _ = std::fs::remove_file(path);
        }
    }

    /// Removes the files of an upload that was completed or aborted.
    pub(crate) fn end(&self, id: &str) -> io::Result<()> {
        match std::fs::remove_dir_all(self.folder_of(id)?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn load_upload(folder: &Path) -> io::Result<Option<Upload>> {
    // The origin was killed while it began the upload, before it sent the id.
    let Some(about) = text_of(&folder.join("about"))? else { return Ok(None) };
    let (mut bucket, mut key, mut metadata) = (None, None, ObjectMetadata::default());
    let (mut started, mut sum) = (SystemTime::UNIX_EPOCH, None);
    for (name, value) in NotesText::pairs(&about) {
        match name.as_str() {
            "bucket" => bucket = Some(value),
            "key" => key = Some(value),
            "started" => started = time_of(&value).unwrap_or(started),
            "sum" => {
                let words = value.split_once(':');
                sum = words.and_then(|(algorithm, scope)| {
                    Some((SumAlgorithm::named(algorithm)?, ChecksumScope::named(scope)?))
                });
            }
            name => metadata.take(name, &value),
        }
    }
    let Some((bucket, key)) = bucket.zip(key) else { return Ok(None) };
    let mut upload =
        Upload { bucket, key, metadata: Arc::new(metadata), started, sum, parts: Default::default() };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    // By number, then by time.
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_none() && !path.ends_with("about")) {
        match load_part(path)? {
            Some((number, part)) => drop(upload.parts.insert(number, part)),
            // Its note never came, or part of its bytes did not.
            None => drop(std::fs::remove_file(path)),
        }
    }
    Ok(Some(upload))
}

fn load_part(path: &Path) -> io::Result<Option<(i32, UploadedPart)>> {
    let Some(note) = text_of(&note_of(path))? else { return Ok(None) };
    let found = std::fs::metadata(path)?.len();
    Ok(parse_part(path, &note).filter(|(_, part)| part.blob.bytes == found))
}

fn parse_part(path: &Path, note: &str) -> Option<(i32, UploadedPart)> {
    let (number, modified) = path.file_name()?.to_str()?.split_once('-')?;
    let (mut bytes, mut md5, mut sums, mut nvme, mut xz) = (None, None, Vec::new(), None, None);
    for (name, value) in NotesText::pairs(note) {
        match name.as_str() {
            "bytes" => bytes = value.parse().ok(),
            "md5" => md5 = Version::md5_of(&value).and_then(|md5| md5.try_into().ok()),
            "crc64nvme" => nvme = u64::from_str_radix(&value, 16).ok(),
            "crc64xz" => xz = u64::from_str_radix(&value, 16).ok(),
            name => sums.extend(SumAlgorithm::named(name).map(|algorithm| (algorithm, value))),
        }
    }
    let (crcs, place) = (Crcs { nvme: nvme?, xz: xz? }, BlobPlace::Persistent(path.to_owned()));
    let blob = Arc::new(Blob { place, bytes: bytes?, crcs, md5, sums });
    Some((number.parse().ok()?, UploadedPart { blob, modified: time_of(modified)? }))
}

/// A whole file; None where there is none.
fn text_of(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(at(path)),
    }
}

fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(at(folder))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn note_of(path: &Path) -> PathBuf {
    path.with_extension("note")
}

/// Nanoseconds, with as many digits for all times.
fn since_1970(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:020}", since.as_nanos())
}

fn time_of(text: &str) -> Option<SystemTime> {
    Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(text.parse().ok()?))
}
