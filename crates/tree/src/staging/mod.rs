//! Files that are written in any order: their bytes are in a folder of a local disk until the origin has
//! them.
//!
//! ```text
//! DIR/flatout-HASH-N/      of one mount, which holds a lock on it; HASH is that of what is mounted
//!     1.data               a sparse file: what was written, and what was read
//!     1.record             there as long as the origin lacks something that was asked to be published
//!     1.conflict           instead, where another client has replaced the object: left for people
//! ```
//!
//! A mount that is killed leaves its records. The next mount of the same source takes them over
//! ([`StagingFolder::take_left`]), and uploads them.

mod file;
mod record;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use flatout_engine::{Error, ErrorKind, plain, setting, text};
use flatout_settings::format_size;
use flatout_wire::location::Location;

use crate::fs_error::FsError;
use crate::hash::StableHash;
pub(crate) use file::{Attempt, StagedFile};
pub(crate) use record::{Base, KnownVersion, Record};

/// The file of a session that its mount holds a lock on.
const LOCK: &str = "lock";

/// Where a mount keeps what is written in any order.
#[derive(Debug)]
pub struct StagingFolder {
    folder: PathBuf,
    /// What the names of all sessions of this source begin with.
    prefix: String,
    session: Arc<Session>,
    budget: Arc<Budget>,
    count: AtomicU64,
    /// Serialises those who look for what was left.
    taking: Mutex<()>,
    tell: Tell,
}

/// Hears why an upload failed that nobody waits for.
pub struct Tell(pub Box<dyn Fn(&Error) + Send + Sync>);

impl std::fmt::Debug for Tell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tell")
    }
}

/// The folder of one mount. It goes with its last file, unless something is left in it.
#[derive(Debug)]
pub(crate) struct Session {
    folder: PathBuf,
    /// Locked as long as it is open.
    lock: File,
}

/// What all files may take on the disk.
#[derive(Debug)]
pub(crate) struct Budget {
    most: Option<u64>,
    used: AtomicU64,
}

/// What is left in a folder for staged files.
#[derive(Debug, Default)]
pub struct StagedLeft {
    /// Of this source.
    pub files: Vec<StagedFileLeft>,
    /// How many files a mount of this source has that stands.
    pub of_mounts: usize,
    /// How many files are of another source, or another endpoint.
    pub of_others: usize,
}

/// A staged file that is not uploaded.
#[derive(Debug)]
pub struct StagedFileLeft {
    /// Its record. What was written is beside it, with the extension `data`.
    pub path: PathBuf,
    pub object: Option<Location>,
    /// Another client has replaced the object.
    pub is_conflict: bool,
}

/// A file that another mount has left.
pub(crate) struct LeftFile {
    pub(crate) record: Record,
    pub(crate) file: StagedFile,
}

impl StagingFolder {
    /// For a mount of `source` at `origin`. All of its files together take `most` bytes.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn open(
        folder: &Path,
        (source, origin): (&str, &str),
        most: Option<u64>,
        tell: Tell,
    ) -> Result<Arc<StagingFolder>, Error> {
        let prefix = prefix(source, origin);
        // A mount in the background goes to another working folder.
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let session = Session::begin(&folder, &prefix).map_err(|error| {
            Error::new(ErrorKind::LocalIo, plain(&error)).during("use", folder.display()).with_hint([
                text("name a folder of a local disk that can be written to by "),
                setting("staging"),
            ])
        })?;
        Ok(Arc::new(StagingFolder {
            folder,
            prefix,
            session: Arc::new(session),
            budget: Arc::new(Budget { most, used: AtomicU64::new(0) }),
            count: AtomicU64::new(0),
            taking: Mutex::default(),
            tell,
        }))
    }

    /// A file without bytes, of a version that has `base_bytes`.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`.
    pub(crate) fn file(&self, base_bytes: u64) -> Result<StagedFile, FsError> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        StagedFile::new(self.session.clone(), self.budget.clone(), number, base_bytes)
    }

    /// What killed mounts of this source have left, and nobody has taken since.
    pub(crate) fn take_left(&self) -> Vec<LeftFile> {
        let _alone = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let is_of_source = entry.file_name().to_str().is_some_and(|name| name.starts_with(&self.prefix));
            if is_of_source
                && entry.path() != self.session.folder
                && let Ok(session) = Session::take(entry.path())
            {
                left.extend(self.files_of(&Arc::new(session)));
            }
        }
        left
    }

    fn files_of(&self, session: &Arc<Session>) -> Vec<LeftFile> {
        let entries = fs::read_dir(&session.folder).into_iter().flatten().flatten();
        let names: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        let mut left = Vec::new();
        for path in names.iter().filter(|path| is_a(path, "record")) {
            // One that cannot be read stays where it is, for people to look at.
            let record = fs::read_to_string(path).ok().and_then(|text| Record::parse(&text));
            let Some(record) = record.filter(Record::holds) else { continue };
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            let file = number.and_then(|number| {
                StagedFile::left(session.clone(), self.budget.clone(), number, &record).ok()
            });
            left.extend(file.map(|file| LeftFile { record, file }));
        }
        // What was never asked to be published goes, and so does what the disk may have lost.
        let holds = |path: &PathBuf| {
            let record = fs::read_to_string(path).ok().and_then(|text| Record::parse(&text));
            record.as_ref().is_none_or(Record::holds)
        };
        for path in names.iter().filter(|path| is_a(path, "data")) {
            let record = path.with_extension("record");
            let is_kept = path.with_extension("conflict").exists() || record.exists() && holds(&record);
            if !is_kept {
                let _ = fs::remove_file(&record);
                let _ = fs::remove_file(path);
            }
        }
        names.iter().filter(|path| is_a(path, "new")).for_each(|path| drop(fs::remove_file(path)));
        left
    }

    /// What is left in a folder once its source was recovered.
    pub fn left(folder: &Path, (source, origin): (&str, &str)) -> StagedLeft {
        let prefix = prefix(source, origin);
        let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        let mut left = StagedLeft::default();
        for session in entries(folder) {
            let is_of_source = session.file_name().to_str().is_some_and(|name| name.starts_with(&prefix));
            let taken = is_of_source.then(|| Session::take(session.path()));
            for path in entries(&session.path()).map(|file| file.path()) {
                let is_conflict = is_a(&path, "conflict");
                match &taken {
                    _ if !is_conflict && !is_a(&path, "record") => {}
                    Some(Ok(_)) => {
                        let record = fs::read_to_string(&path).ok().and_then(|text| Record::parse(&text));
                        let object = record.map(|record| record.location);
                        left.files.push(StagedFileLeft { path, object, is_conflict });
                    }
                    Some(Err(_)) => left.of_mounts += 1,
                    None => left.of_others += 1,
                }
            }
        }
        left
    }

    pub(crate) fn tell(&self, error: &Error) {
        (self.tell.0)(error);
    }

    /// Bytes on the disk.
    pub fn used_bytes(&self) -> u64 {
        self.budget.used.load(Ordering::Relaxed)
    }
}

/// What the names of all sessions of a source begin with.
fn prefix(source: &str, origin: &str) -> String {
    let mut hash = StableHash::new();
    hash.add(source.as_bytes());
    hash.add(b"\n");
    hash.add(origin.as_bytes());
    format!("flatout-{:016x}-", hash.end())
}

fn is_a(path: &Path, kind: &str) -> bool {
    path.extension().is_some_and(|found| found == kind)
}

impl Session {
    fn begin(folder: &Path, prefix: &str) -> io::Result<Session> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let name = format!("{prefix}{}-{since}", std::process::id());
        // Nobody looks at it before it is locked.
        let (new, named) = (folder.join(format!("new-{name}")), folder.join(name));
        DirBuilder::new().mode(0o700).create(&new)?;
        let session = Session::take(new.clone())?;
        fs::rename(&new, &named)?;
        File::open(folder)?.sync_all()?;
        let lock = session.lock.try_clone()?;
        // Its folder is no more where it was: nothing is removed by this.
        drop(session);
        Ok(Session { folder: named, lock })
    }

    /// # Errors
    /// Another mount has it.
    fn take(folder: PathBuf) -> io::Result<Session> {
        let lock = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK))?;
        lock.try_lock()?;
        Ok(Session { folder, lock })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let others = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        if others.filter(|entry| entry.file_name() != LOCK).count() == 0 {
            let _ = fs::remove_file(self.folder.join(LOCK));
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

impl Budget {
    /// # Errors
    /// `ENOSPC`: nothing is counted then.
    fn take(&self, bytes: u64) -> Result<(), FsError> {
        let most = self.most.unwrap_or(u64::MAX);
        let grown = |used: u64| used.checked_add(bytes).filter(|used| *used <= most);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => Ok(()),
            Err(_) => {
                let cause = format!(
                    "the files that are staged take {}, which is all that they may",
                    format_size(most)
                );
                let error = Error::new(ErrorKind::LocalIo, cause)
                    .with_hint([text("close some of them, or allow more by "), setting("staging-size")]);
                Err(FsError::because(libc::ENOSPC, error))
            }
        }
    }

    /// Counts what has to be there, whether there is room or not.
    fn count(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
