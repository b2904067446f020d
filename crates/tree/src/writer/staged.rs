//! A file that is written in any order: its bytes are staged on a local disk (`staging/`), and what differs
//! from the published version is uploaded when it is published. The origin copies the rest.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flatout_engine::{EditedPart, Object, STREAM_ROOM_LEAST, edited_parts};
use flatout_wire::object_options::Condition;

use super::{Content, FileWriter, KeptOf, Published, Work};
use crate::buffers::Buffers;
use crate::fs_error::FsError;
use crate::staging::{Base, LeftFile, Record};
use crate::store::{ObjectStore, Stored};
use crate::version_bytes::read_now;
use crate::write_errors::{cannot_cut, elsewhere, not_published};

/// What is read from the version is kept on the disk in such blocks.
const BLOCK: u64 = 256 << 10;
/// What is brought before a file can be published is read in such pieces.
const PIECE: u64 = 1 << 20;

impl<S: ObjectStore> FileWriter<S> {
    /// A writer of a file that another mount has left.
    pub(crate) fn of_left(
        store: Arc<S>,
        buffers: &Arc<Buffers<S::MemoryAccount>>,
        left: LeftFile,
        kept: KeptOf,
    ) -> FileWriter<S> {
        let LeftFile { record, file } = left;
        let condition = if record.base == Base::Absent { Condition::Absent } else { Condition::None };
        let published = record.object();
        let published = published.map(|(object, modified_s)| Published { object, modified_s, reader: None });
        let size = file.size();
        let content = Content::Staged(Box::new(file));
        let writer = FileWriter::of(store, buffers, (record.location, condition), published, content, kept);
        {
            let mut work = writer.work();
            work.is_dirty = true;
            work.is_left = true;
            work.keep_unsent();
        }
        writer.size.end.store(size, Ordering::Release);
        writer.is_staged.store(true, Ordering::Release);
        writer
    }

    /// Whether it is written in any order: then all that is read of the file is asked of this.
    pub(crate) fn is_staged(&self) -> bool {
        self.is_staged.load(Ordering::Acquire)
    }

    /// Stages it from now on, if it is not staged yet. What was sent of it before is published by that, since
    /// it cannot be read otherwise.
    ///
    /// # Errors
    /// `refused` without staging; `ENOSPC`; what the upload failed with.
    pub(super) fn stage(
        &self,
        work: &mut Work<S>,
        refused: impl FnOnce(&Work<S>) -> FsError,
    ) -> Result<(), FsError> {
        if !work.is_staged() {
            if self.buffers.staging.is_none() {
                return Err(refused(work));
            }
            work.stage(&self.store, &self.buffers)?;
            self.is_staged.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// As [`FileWriter::stage`], for a write at `at`.
    pub(super) fn stage_for(&self, work: &mut Work<S>, at: u64) -> Result<(), FsError> {
        self.stage(work, |work| elsewhere(&work.location, at, self.size.end()))
    }

    /// Cuts it, or makes it longer by zeros.
    ///
    /// # Errors
    /// `EOPNOTSUPP` without staging; `ENOSPC`; what the upload failed with.
    pub(crate) fn set_len(
        &self,
        size: u64,
        on_published: impl FnOnce(&Work<S>, &Stored),
    ) -> Result<(), FsError> {
        let mut work = self.work();
        if let Some(failure) = &work.failure {
            return Err(failure.clone());
        }
        work.keep_unsent();
        let staged = self.stage(&mut work, |work| cannot_cut(&work.location, self.size.end(), size));
        if let Some(stored) = work.untold.take() {
            on_published(&work, &stored);
        }
        staged?;
        let Content::Staged(staged) = &mut work.content else { return Err(FsError::of(libc::EIO)) };
        staged.set_len(size)?;
        work.is_dirty = true;
        self.size.end.store(size, Ordering::Release);
        self.size.modified_s.store(self.store.unix_s(), Ordering::Relaxed);
        Ok(())
    }

    /// As [`FileWriter::read`], of a file that is staged; `None` where it is not any more. What is not on the
    /// disk is brought without the turn: others read and write meanwhile.
    pub(super) fn read_staged(&self, at: u64, bytes: usize) -> Result<Option<Vec<u8>>, FsError> {
        let (reader, wanted) = {
            let mut work = self.work();
            let Content::Staged(staged) = &work.content else { return Ok(None) };
            let range = at..at.saturating_add(bytes as u64).min(staged.size());
            let Some(wanted) = span(&staged.missing_in(&range)) else { return staged.read(&range).map(Some) };
            let wanted =
                wanted.start / BLOCK * BLOCK..wanted.end.next_multiple_of(BLOCK).min(staged.base_end());
            (work.reader(&self.store)?, wanted)
        };
        let brought = read_now(&reader, wanted.start, (wanted.end - wanted.start) as usize)?;
        let mut work = self.work();
        let Content::Staged(staged) = &mut work.content else { return Ok(None) };
        let range = at..at.saturating_add(bytes as u64).min(staged.size());
        let is_kept = staged.keep_base(wanted.start, &brought, false)?;
        let mut read = staged.read(&range)?;
        if !is_kept {
            for missing in staged.missing_in(&range) {
                let of_read = (missing.start - at) as usize..(missing.end - at) as usize;
                let from = (missing.start.checked_sub(wanted.start)).map(|from| from as usize);
                let of_brought = from.and_then(|from| brought.get(from..from + of_read.len()));
                read[of_read].copy_from_slice(of_brought.ok_or_else(|| FsError::of(libc::EIO))?);
            }
        }
        Ok(Some(read))
    }
}

impl<S: ObjectStore> Work<S> {
    pub(super) fn is_staged(&self) -> bool {
        matches!(self.content, Content::Staged(_))
    }

    /// Whether it is staged and waits to be published, since that has failed so far.
    pub(crate) fn may_be_retried(&self) -> bool {
        self.is_staged() && self.is_dirty()
    }

    pub(super) fn stage(
        &mut self,
        store: &Arc<S>,
        buffers: &Arc<Buffers<S::MemoryAccount>>,
    ) -> Result<(), FsError> {
        let folder = buffers.staging.as_ref().ok_or_else(|| FsError::of(libc::EOPNOTSUPP))?;
        if let Content::Upload(_) | Content::Appends(_) = self.content
            && let Some(stored) = self.publish(store)?
        {
            self.untold = Some(stored);
        }
        let staged = match &self.content {
            Content::Buffered(buffer) => {
                // It is short: all of it is sent again if anything is.
                let mut staged = folder.file(0)?;
                staged.write(0, buffer.bytes())?;
                if !self.is_dirty {
                    staged.on_published();
                }
                staged
            }
            Content::Published | Content::Appends(_) => {
                let size = self.published.as_ref().map_or(0, |published| published.object.size);
                folder.file(size)?
            }
            _ => return Err(FsError::of(libc::EIO)),
        };
        self.content = Content::Staged(Box::new(staged));
        Ok(())
    }

    /// As [`Work::publish`]. What fails is kept on the disk, and can be tried again: only where the object is
    /// another by now nothing more is tried.
    pub(super) fn publish_staged(&mut self, store: &Arc<S>) -> Result<Option<Stored>, FsError> {
        // Where this process is killed meanwhile, the next mount goes on. A name that cannot be noted is
        // published all the same.
        let noted = self.record(false);
        match self.upload_staged(store).or_else(|error| self.was_published(store).ok_or(error)) {
            Ok(stored) => {
                if let Content::Staged(staged) = &mut self.content {
                    staged.on_published();
                }
                self.takes_no_appends = true;
                self.is_left = false;
                self.on_published(&stored);
                Ok(Some(stored))
            }
            Err(error) => {
                // Also from a loss of power, before anybody hears of it.
                let _ = noted.and_then(|()| self.record(true));
                if matches!(error.errno, libc::ESTALE | libc::EEXIST) {
                    self.failure = Some(error.clone());
                }
                Err(error)
            }
        }
    }

    fn record(&mut self, synced: bool) -> Result<(), FsError> {
        let base = match &self.published {
            Some(Published { object, modified_s, .. }) => {
                Base::Version { size: object.size, modified_s: *modified_s, etag: object.etag.clone() }
            }
            None if self.condition == Condition::Absent => Base::Absent,
            None => Base::Any,
        };
        let record = Record::new(self.location.clone(), base);
        let Content::Staged(staged) = &mut self.content else { return Ok(()) };
        staged.record(record, synced)
    }

    fn upload_staged(&mut self, store: &Arc<S>) -> Result<Stored, FsError> {
        let edits = self.edits();
        let wanted: Vec<Range<u64>> = match &edits {
            Some((_, parts)) => {
                parts.iter().filter(|part| !part.is_copied).map(|part| part.range.clone()).collect()
            }
            None => std::iter::once(0..u64::MAX).collect(),
        };
        for range in wanted {
            self.bring(store, &range)?;
        }
        let condition = self.condition_now();
        let Content::Staged(staged) = &self.content else { return Err(FsError::of(libc::EIO)) };
        let put = store.put_file(&self.location, staged.path(), edits, condition, self.notes.clone());
        put.map_err(not_published)
    }

    /// What of the published version the origin can copy, if that is worth it.
    fn edits(&self) -> Option<(Object, Vec<EditedPart>)> {
        let Content::Staged(staged) = &self.content else { return None };
        let object = &self.published.as_ref()?.object;
        object.etag.as_ref().filter(|etag| !etag.starts_with("W/"))?;
        let parts = edited_parts(STREAM_ROOM_LEAST, staged.size(), staged.base_end(), &staged.changed())?;
        Some((object.clone(), parts))
    }

    /// Brings what the disk lacks of a range.
    fn bring(&mut self, store: &Arc<S>, range: &Range<u64>) -> Result<(), FsError> {
        let Content::Staged(staged) = &self.content else { return Ok(()) };
        for missing in staged.missing_in(range) {
            let reader = self.reader(store)?;
            let mut at = missing.start;
            while at < missing.end {
                let bytes = read_now(&reader, at, PIECE.min(missing.end - at) as usize)?;
                let Content::Staged(staged) = &mut self.content else { return Ok(()) };
                if bytes.is_empty() {
                    return Err(FsError::of(libc::EIO));
                }
                staged.keep_base(at, &bytes, true)?;
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }

    /// What another mount has left may have been published by it, just before it was killed: then the object
    /// has what was changed.
    fn was_published(&mut self, store: &Arc<S>) -> Option<Stored> {
        let Content::Staged(staged) = &self.content else { return None };
        let head =
            store.head(&self.location).ok().filter(|head| self.is_left && head.size == staged.size())?;
        let object = Object {
            location: self.location.clone(),
            size: head.size,
            etag: head.etag.clone(),
            modified_s: Some(head.modified_s),
        };
        let reader = store.content(object).ok()?;
        for range in staged.changed() {
            let mut at = range.start;
            while at < range.end {
                let piece = at..(at + PIECE).min(range.end);
                let there = read_now(&reader, at, (piece.end - at) as usize).ok()?;
                if there != staged.read(&piece).ok()? {
                    return None;
                }
                at = piece.end;
            }
        }
        Some(Stored { size: head.size, etag: head.etag, modified_s: i64::try_from(head.modified_s).ok()? })
    }

    /// Nothing of it is to be published any more, by nobody.
    pub(crate) fn forget_record(&mut self) {
        if let Content::Staged(staged) = &mut self.content {
            staged.forget_record();
        }
    }
}

/// From the first to the last of them.
fn span(ranges: &[Range<u64>]) -> Option<Range<u64>> {
    Some(ranges.first()?.start..ranges.last()?.end)
}
