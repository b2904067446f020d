//! One file that is staged: which of its bytes are on the disk, and which differ from the version that the
//! origin has.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flatout_engine::{Error, ErrorKind, plain};
use flatout_policy::ranges::RangeSet;

use super::{Budget, Record, Session};
use crate::fs_error::FsError;

/// 10,000 parts of 5 GiB: no service takes more.
const OBJECT_MOST: u64 = 10_000 * (5 << 30);

pub(crate) struct StagedFile {
    /// As long as what is written.
    data: File,
    path: PathBuf,
    size: u64,
    /// Of the version.
    base_size: u64,
    /// How much of the version is part of the file: from there on, what is not on the disk is zeros.
    base_end: u64,
    /// On the disk.
    local: RangeSet,
    /// Differs from the version, or may.
    changed: RangeSet,
    /// An upload whose end is not known.
    attempt: Option<Attempt>,
    /// Another one whenever bytes of the version may mean something else than before.
    generation: u64,
    recorded: Recorded,
    budget: Arc<Budget>,
    session: Arc<Session>,
}

/// An upload whose end is not known: the origin may have what was there when it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Its object has it in its metadata.
    pub(crate) token: String,
    /// How much of its object is part of the file by now.
    pub(crate) end: u64,
    /// What was changed since.
    pub(crate) changed: RangeSet,
}

/// What is left for the next mount when this one is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Recorded {
    Nothing,
    /// A record that holds for this boot.
    Noted,
    /// A record that outlives a loss of power.
    Synced,
    /// Something for people.
    Aside,
}

/// Tells all generations of all files apart.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

fn next_generation() -> u64 {
    GENERATIONS.fetch_add(1, Ordering::Relaxed)
}

impl StagedFile {
    pub(super) fn new(
        session: Arc<Session>,
        budget: Arc<Budget>,
        number: u64,
        base_bytes: u64,
    ) -> Result<StagedFile, FsError> {
        let path = session.folder.join(format!("{number}.data"));
        let opened = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let data = opened.map_err(|error| failed(&path, &error))?;
        data.set_len(base_bytes).map_err(|error| failed(&path, &error))?;
        Ok(StagedFile {
            data,
            path,
            size: base_bytes,
            base_size: base_bytes,
            base_end: base_bytes,
            local: RangeSet::default(),
            changed: RangeSet::default(),
            attempt: None,
            generation: next_generation(),
            recorded: Recorded::Nothing,
            budget,
            session,
        })
    }

    /// One that another mount has left.
    pub(super) fn left(
        session: Arc<Session>,
        budget: Arc<Budget>,
        number: u64,
        record: &Record,
    ) -> io::Result<StagedFile> {
        let path = session.folder.join(format!("{number}.data"));
        let data = File::options().read(true).write(true).open(&path)?;
        // What was added since the record was made was asked of nobody.
        data.set_len(record.size)?;
        let mut changed = RangeSet::default();
        record.changed.iter().for_each(|range| changed.add(range));
        changed.cut(record.size);
        budget.count(changed.bytes());
        let recorded = if record.boot.is_some() { Recorded::Noted } else { Recorded::Synced };
        Ok(StagedFile {
            data,
            path,
            size: record.size,
            base_size: record.object().map_or(0, |(object, _)| object.size),
            base_end: record.base_end,
            local: changed.clone(),
            changed,
            attempt: record.attempt.clone(),
            generation: next_generation(),
            recorded,
            budget,
            session,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn base_end(&self) -> u64 {
        self.base_end
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// What differs from the version, in order.
    pub(crate) fn changed(&self) -> Vec<Range<u64>> {
        let mut changed = self.changed.clone();
        changed.add(&(self.base_end..self.size));
        changed.iter().collect()
    }

    /// What has to be brought from the version before the range can be read.
    pub(crate) fn missing_in(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let end = range.end.min(self.base_end);
        if range.start < end { self.local.missing_in(&(range.start..end)) } else { Vec::new() }
    }

    /// # Errors
    /// `EFBIG`; `ENOSPC`, `EIO`: as after a failed pwrite(2), some of the bytes may be there.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FsError> {
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= OBJECT_MOST);
        let end = end.ok_or_else(|| FsError::of(libc::EFBIG))?;
        let range = at..end;
        let new = bytes_of(&self.local.missing_in(&range));
        self.budget.take(new)?;
        if let Err(error) = self.data.write_all_at(bytes, at) {
            self.budget.give_back(new);
            // It must not be longer than is told.
            let _ = self.data.set_len(self.size);
            return Err(failed(&self.path, &error));
        }
        self.local.add(&range);
        self.changed.add(&range);
        if let Some(attempt) = &mut self.attempt {
            attempt.changed.add(&range);
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// Keeps bytes of the version, unless there are others since; `false` where there is no room for them.
    /// Those that `must` be there are not refused for lack of a budget.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub(crate) fn keep_base(&mut self, at: u64, bytes: &[u8], must: bool) -> Result<bool, FsError> {
        for range in self.missing_in(&(at..at + bytes.len() as u64)) {
            let new = range.end - range.start;
            match self.budget.take(new) {
                Ok(()) => {}
                Err(_) if must => self.budget.count(new),
                Err(_) => return Ok(false),
            }
            let of_range = &bytes[(range.start - at) as usize..(range.end - at) as usize];
            if let Err(error) = self.data.write_all_at(of_range, range.start) {
                self.budget.give_back(new);
                return if must { Err(failed(&self.path, &error)) } else { Ok(false) };
            }
            self.local.add(&range);
        }
        Ok(true)
    }

    /// What the disk has of a range; zeros where it has nothing.
    ///
    /// # Errors
    /// `EIO`.
    pub(crate) fn read(&self, range: &Range<u64>) -> Result<Vec<u8>, FsError> {
        let end = range.end.min(self.size);
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(range.start)).unwrap_or(0)];
        self.data.read_exact_at(&mut bytes, range.start).map_err(|error| failed(&self.path, &error))?;
        Ok(bytes)
    }

    /// # Errors
    /// `EIO`, `EFBIG`, `ENOSPC`: it is as long as before.
    pub(crate) fn set_len(&mut self, size: u64) -> Result<(), FsError> {
        if size > OBJECT_MOST {
            return Err(FsError::of(libc::EFBIG));
        }
        // A file that is too long shows nothing: what is told comes first where it becomes shorter.
        if size > self.size {
            self.data.set_len(size).map_err(|error| failed(&self.path, &error))?;
        }
        let shorter = size < self.size;
        let before = self.local.bytes();
        self.local.cut(size);
        self.changed.cut(size);
        if let Some(attempt) = &mut self.attempt {
            attempt.end = attempt.end.min(size);
            attempt.changed.cut(size);
        }
        self.budget.give_back(before - self.local.bytes());
        self.base_end = self.base_end.min(size);
        self.size = size;
        self.generation = next_generation();
        match shorter {
            true => self.data.set_len(size).map_err(|error| failed(&self.path, &error)),
            false => Ok(()),
        }
    }

    /// An upload of all of it begins.
    pub(crate) fn begin_attempt(&mut self, token: String) {
        self.attempt = Some(Attempt { token, end: self.size, changed: RangeSet::default() });
    }

    /// Of the last upload whose end is not known.
    pub(crate) fn token(&self) -> Option<&str> {
        self.attempt.as_ref().map(|attempt| attempt.token.as_str())
    }

    /// The object is that of the last attempt: what differs from it is what was changed since.
    pub(crate) fn on_published(&mut self, version_size: u64) {
        let Some(Attempt { end, changed, .. }) = self.attempt.take() else { return };
        self.changed = changed;
        // What was neither written nor part of the version before is zeros in both.
        (self.base_size, self.base_end) = (version_size, end);
        self.generation = next_generation();
        if !self.is_changed() {
            self.forget_record();
        }
    }

    /// Whether anything differs from the version.
    pub(crate) fn is_changed(&self) -> bool {
        !self.changed.is_empty() || self.base_end < self.size || self.base_end < self.base_size
    }

    /// All of it is in the version: nothing has to be sent.
    pub(crate) fn set_unchanged(&mut self) {
        self.changed = RangeSet::default();
        (self.base_size, self.base_end) = (self.size, self.size);
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded != Recorded::Nothing
    }

    /// Keeps for the next mount what the origin lacks. `synced`: also from a loss of power, and so is what
    /// takes the place of such a record.
    ///
    /// # Errors
    /// The system's: an earlier record stays.
    pub(crate) fn record(&mut self, mut record: Record, synced: bool) -> Result<(), FsError> {
        record.size = self.size;
        record.base_end = self.base_end;
        record.changed = self.changed.iter().collect();
        record.attempt = self.attempt.clone();
        if self.recorded == Recorded::Aside {
            return Ok(());
        }
        let recorded = if synced { Recorded::Synced } else { Recorded::Noted.max(self.recorded) };
        let synced = recorded == Recorded::Synced;
        let (path, new) = (self.path.with_extension("record"), self.path.with_extension("new"));
        let write = || -> io::Result<()> {
            if synced {
                self.data.sync_data()?;
            }
            fs::write(&new, record.text(synced)?)?;
            if synced {
                File::open(&new)?.sync_all()?;
            }
            fs::rename(&new, &path)?;
            if synced { self.sync_folder() } else { Ok(()) }
        };
        if let Err(error) = write() {
            let _ = fs::remove_file(&new);
            return Err(failed(&self.path, &error));
        }
        self.recorded = recorded;
        Ok(())
    }

    /// Nothing is left that the next mount would have to publish.
    pub(crate) fn forget_record(&mut self) {
        if self.recorded == Recorded::Aside {
            return;
        }
        let before = std::mem::replace(&mut self.recorded, Recorded::Nothing);
        if before != Recorded::Nothing {
            let _ = fs::remove_file(self.path.with_extension("record"));
        }
        if before == Recorded::Synced {
            // After a loss of power it would be published again.
            let _ = self.sync_folder();
        }
    }

    /// Another client has replaced the object: it is kept for people, and no mount takes it. Where its bytes
    /// are, if there is a record.
    pub(crate) fn set_aside(&mut self) -> Option<PathBuf> {
        let path = self.is_recorded().then(|| self.path.clone());
        if path.is_some() {
            let _ = fs::rename(self.path.with_extension("record"), self.path.with_extension("conflict"));
            let _ = self.sync_folder();
            self.recorded = Recorded::Aside;
        }
        path
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.session.folder)?.sync_all()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        self.budget.give_back(self.local.bytes());
        if !self.is_recorded() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bytes_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn failed(path: &Path, error: &io::Error) -> FsError {
    let errno = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => libc::ENOSPC,
        Some(libc::EFBIG) => libc::EFBIG,
        _ => libc::EIO,
    };
    let error = Error::new(ErrorKind::LocalIo, plain(error)).during("stage", path.display());
    FsError::because(errno, error)
}

#[cfg(test)]
mod tests {
    use flatout_wire::location::Location;

    use super::*;
    use crate::staging::{Base, StagingFolder, Tell};

    /// What was promised to outlive a loss of power is never replaced by a note that does not.
    #[test]
    fn a_record_that_was_synchronized_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        let tell = Tell(Box::new(|_| {}));
        let staging = StagingFolder::open(folder.path(), ("a", "b"), None, tell).unwrap();
        let mut file = staging.file(0).unwrap();
        let location = Location::parse("s3://bucket/key").unwrap();
        let record = || Record::new(location.clone(), Base::New(None), None);
        let text = |file: &StagedFile| fs::read_to_string(file.path().with_extension("record")).unwrap();
        file.write(5, b"x").unwrap();
        file.record(record(), false).unwrap();
        assert!(text(&file).contains("\nboot ") && text(&file).contains("\nchanged 5 6\n"));
        file.record(record(), true).unwrap();
        assert!(!text(&file).contains("\nboot "));
        file.write(7, b"x").unwrap();
        file.record(record(), false).unwrap();
        assert!(!text(&file).contains("\nboot ") && text(&file).contains("\nchanged 7 8\n"));
        file.forget_record();
        assert!(!file.path().with_extension("record").exists());
    }
}
