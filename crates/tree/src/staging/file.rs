//! One file that is staged: which of its bytes are on the disk, and which differ from the version that the
//! origin has.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatout_engine::{Error, ErrorKind, plain};
use flatout_policy::ranges::RangeSet;

use super::{Budget, Record, Session};
use crate::fs_error::FsError;

pub(crate) struct StagedFile {
    /// As long as what is written.
    data: File,
    path: PathBuf,
    size: u64,
    /// How much of the version is part of the file: from there on, what is not on the disk is zeros.
    base_end: u64,
    /// On the disk.
    local: RangeSet,
    /// Differs from the version, or may.
    changed: RangeSet,
    /// Whether there is a record: then the files stay when this is dropped.
    is_recorded: bool,
    budget: Arc<Budget>,
    session: Arc<Session>,
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
            base_end: base_bytes,
            local: RangeSet::default(),
            changed: RangeSet::default(),
            is_recorded: false,
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
        // What was written since the record was made is not in it.
        data.set_len(record.size)?;
        let mut changed = RangeSet::default();
        record.changed.iter().for_each(|range| changed.add(range));
        changed.cut(record.size);
        budget.take_any(changed.bytes());
        let (size, base_end) = (record.size, record.base_end);
        Ok(StagedFile {
            data,
            path,
            size,
            base_end,
            local: changed.clone(),
            changed,
            is_recorded: true,
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
    /// `ENOSPC`: nothing of it counts as written then.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FsError> {
        let end = at.checked_add(bytes.len() as u64).ok_or_else(|| FsError::of(libc::EFBIG))?;
        let range = at..end;
        let new = bytes_of(&self.local.missing_in(&range));
        self.budget.take(new)?;
        if let Err(error) = self.data.write_all_at(bytes, at) {
            self.budget.give_back(new);
            // What was cut off must not be longer than is told.
            let _ = self.data.set_len(self.size);
            return Err(failed(&self.path, &error));
        }
        self.local.add(&range);
        self.changed.add(&range);
        self.size = self.size.max(end);
        Ok(())
    }

    /// Keeps bytes of the version, unless there are others since; `false` where there is no room for them.
    ///
    /// # Errors
    /// `EIO`.
    pub(crate) fn keep_base(&mut self, at: u64, bytes: &[u8], must: bool) -> Result<bool, FsError> {
        for range in self.missing_in(&(at..at + bytes.len() as u64)) {
            let new = range.end - range.start;
            match self.budget.take(new) {
                Ok(()) => {}
                Err(_) if must => self.budget.take_any(new),
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
    /// `EIO`, `EFBIG`, `ENOSPC`.
    pub(crate) fn set_len(&mut self, size: u64) -> Result<(), FsError> {
        self.data.set_len(size).map_err(|error| failed(&self.path, &error))?;
        let before = self.local.bytes();
        self.local.cut(size);
        self.changed.cut(size);
        self.budget.give_back(before - self.local.bytes());
        self.base_end = self.base_end.min(size);
        self.size = size;
        Ok(())
    }

    /// The origin has a version of all of it.
    pub(crate) fn on_published(&mut self) {
        self.changed = RangeSet::default();
        // What was neither written nor part of the version before is zeros in both.
        self.base_end = self.size;
        self.forget_record();
    }

    /// Keeps for the next mount what the origin lacks. `synced`: also from a loss of power.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn record(&mut self, mut record: Record, synced: bool) -> Result<(), FsError> {
        record.size = self.size;
        record.base_end = self.base_end;
        record.changed = self.changed.iter().collect();
        let write = || -> io::Result<()> {
            if synced {
                self.data.sync_data()?;
            }
            let (path, new) = (self.path.with_extension("record"), self.path.with_extension("new"));
            let text = record.text(synced)?;
            fs::write(&new, text)?;
            if synced {
                File::open(&new)?.sync_all()?;
            }
            fs::rename(&new, &path)?;
            if synced {
                File::open(&self.session.folder)?.sync_all()?;
            }
            Ok(())
        };
        write().map_err(|error| failed(&self.path, &error))?;
        self.is_recorded = true;
        Ok(())
    }

    /// Nothing is left that the next mount would have to publish.
    pub(crate) fn forget_record(&mut self) {
        if std::mem::take(&mut self.is_recorded) {
            let _ = fs::remove_file(self.path.with_extension("record"));
        }
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        self.budget.give_back(self.local.bytes());
        if !self.is_recorded {
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
