//! A file that is written in any order: its bytes are staged on a local disk (`staging/`), and what differs
//! from the published version is uploaded when it is published. The origin copies the rest.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use flatout_engine::{EditedPart, Error, ErrorKind, Object, STREAM_ROOM_LEAST, edited_parts};
use flatout_wire::location::Location;
use flatout_wire::object_options::Condition;

use super::{Content, FileWriter, KeptOf, Published, Work};
use crate::buffers::Buffers;
use crate::fs_error::FsError;
use crate::posix::TOKEN;
use crate::staging::{Base, KnownVersion, LeftFile, Record};
use crate::store::{FilePut, Head, ObjectStore, Stored};
use crate::version_bytes::{read_now, read_together};
use crate::write_errors::{cannot_cut, elsewhere, not_published, replaced_since, withdrawn};

/// What is read from the version is kept on the disk in such blocks.
const BLOCK: u64 = 256 << 10;
/// What is brought before a file can be published is read in such pieces.
const PIECE: u64 = 1 << 20;
/// Of these so many at once: a round trip for each would take longer than the upload.
const PIECES_AT_ONCE: usize = 16;
/// How often a read looks again whose bytes meant something else by the time that they had come.
const READS_MOST: usize = 100;

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
        let replaces = record.replaces();
        let published = record.object();
        let published = published.map(|(object, modified_s)| Published { object, modified_s, reader: None });
        let size = file.size();
        let content = Content::Staged(Box::new(file));
        let to = (record.location, condition);
        let writer = FileWriter::of(store, buffers, to, published, content, (kept, record.posix.clone()));
        if record.posix.is_none() {
            writer.size.forget_times();
        }
        {
            let mut work = writer.work();
            (work.is_dirty, work.is_late, work.is_at_origin) = (true, true, true);
            work.replaces = replaces;
            work.described = None;
            work.keep_unsent();
        }
        // It was asked to be published: nobody who opens it and is killed takes that back.
        writer.goes_on.store(true, Ordering::Release);
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
        work: &mut Work<S>,
        size: u64,
        on_published: impl FnOnce(&Work<S>, &Stored),
    ) -> Result<(), FsError> {
        if let Some(failure) = &work.failure {
            return Err(failure.clone());
        }
        let staged = self.stage(work, |work| cannot_cut(&work.location, self.size.end(), size));
        if let Some(stored) = work.untold.take() {
            on_published(work, &stored);
        }
        staged?;
        work.keep_unsent();
        let Content::Staged(staged) = &mut work.content else { return Err(FsError::of(libc::EIO)) };
        let is_recorded = staged.is_recorded() && size < staged.size();
        staged.set_len(size)?;
        work.is_dirty = true;
        self.size.end.store(size, Ordering::Release);
        self.size.on_written(self.store.unix_s());
        match is_recorded {
            // The next mount would take what was cut off for zeros.
            true => work.record(false),
            false => Ok(()),
        }
    }

    /// As [`FileWriter::read`], of a file that is staged; `None` where it is not any more. What is not on the
    /// disk is brought without the turn: others read and write meanwhile.
    pub(super) fn read_staged(&self, at: u64, bytes: usize) -> Result<Option<Vec<u8>>, FsError> {
        for _ in 0..READS_MOST {
            let (reader, wanted, generation) = {
                let mut work = self.work();
                let Content::Staged(staged) = &work.content else { return Ok(None) };
                let range = at..at.saturating_add(bytes as u64).min(staged.size());
                let Some(wanted) = span(&staged.missing_in(&range)) else {
                    return staged.read(&range).map(Some);
                };
                let end = wanted.end.next_multiple_of(BLOCK).min(staged.base_end());
                let (wanted, generation) = (wanted.start / BLOCK * BLOCK..end, staged.generation());
                (work.reader(&self.store)?, wanted, generation)
            };
            let brought = read_now(&reader, wanted.start, (wanted.end - wanted.start) as usize);
            if brought.is_err() {
                let work = self.work();
                let Content::Staged(staged) = &work.content else { return Ok(None) };
                // It is of another version by now.
                if staged.generation() != generation {
                    continue;
                }
            }
            let brought = brought?;
            if brought.len() as u64 != wanted.end - wanted.start {
                return Err(FsError::of(libc::EIO));
            }
            let mut work = self.work();
            let Content::Staged(staged) = &mut work.content else { return Ok(None) };
            // It was cut, published or cut to nothing meanwhile.
            if staged.generation() != generation {
                continue;
            }
            let range = at..at.saturating_add(bytes as u64).min(staged.size());
            let is_kept = staged.keep_base(wanted.start, &brought, false)?;
            let mut read = staged.read(&range)?;
            for missing in staged.missing_in(&range).iter().filter(|_| !is_kept) {
                let of_read = (missing.start - at) as usize..(missing.end - at) as usize;
                let of_brought =
                    (missing.start - wanted.start) as usize..(missing.end - wanted.start) as usize;
                read[of_read].copy_from_slice(&brought[of_brought]);
            }
            return Ok(Some(read));
        }
        Err(FsError::of(libc::EIO))
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

    /// Whether the next mount finds it.
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(&self.content, Content::Staged(staged) if staged.is_recorded())
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
                    staged.set_unchanged();
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

    /// What is staged is not published now; nothing is lost by that.
    pub(crate) fn put_off(&mut self, error: FsError) -> FsError {
        self.keep_for_later();
        error
    }

    /// It is to be published later than it was asked for.
    pub(crate) fn keep_for_later(&mut self) {
        if self.may_be_retried() {
            self.is_late = true;
            // Also from a loss of power, before anybody hears of it. Where that fails, it is in this process,
            // which goes on trying.
            let _ = self.record(true);
        }
    }

    /// As [`Work::publish`]. A withdrawn upload has made no object and changed nothing. A failed one stays on
    /// the disk and is tried again, unless another client has replaced the object.
    pub(super) fn publish_staged(&mut self, store: &Arc<S>) -> Result<Option<Stored>, FsError> {
        let uploaded = self.look_again(store).and_then(|made| self.upload_staged(store, made));
        match uploaded {
            Err(error) if self.is_withdrawn => Err(error),
            Ok(stored) => {
                self.takes_no_appends = true;
                self.is_late = false;
                self.replaces = None;
                self.on_published(&stored);
                self.described_too(store, stored)
            }
            Err(error) => {
                let error = self.put_off(error);
                if matches!(error.errno, libc::ESTALE | libc::EEXIST) {
                    self.failure = Some(error.clone());
                    if let Content::Staged(staged) = &mut self.content {
                        self.set_aside = staged.set_aside();
                    }
                }
                Err(error)
            }
        }
    }

    pub(super) fn record(&mut self, synced: bool) -> Result<(), FsError> {
        let version = |object: &Object, modified_s| KnownVersion {
            size: object.size,
            modified_s,
            etag: object.etag.clone(),
        };
        let base = match (&self.published, &self.replaces) {
            (Some(Published { object, modified_s, .. }), _) => Base::Version(version(object, *modified_s)),
            (None, _) if self.condition == Condition::Absent => Base::Absent,
            (None, Some(replaced)) => {
                let modified_s = replaced.modified_s.and_then(|at| i64::try_from(at).ok());
                Base::New(Some(version(replaced, modified_s.unwrap_or(0))))
            }
            (None, None) => Base::New(None),
        };
        let record = Record::new(self.location.clone(), base, self.shown.posix());
        let Content::Staged(staged) = &mut self.content else { return Ok(()) };
        staged.record(record, synced)?;
        // It was asked to be published: a killed writer takes that back no more.
        self.goes_on.store(true, Ordering::Release);
        Ok(())
    }

    /// `made`: what an attempt before has made, whose answer was lost. Without changes since then, that is
    /// all.
    fn upload_staged(&mut self, store: &Arc<S>, made: Option<Stored>) -> Result<Stored, FsError> {
        if let Some(made) = made {
            self.on_attempt(&made);
            if !matches!(&self.content, Content::Staged(staged) if staged.is_changed()) {
                return Ok(made);
            }
        }
        let token = next_token();
        if let Content::Staged(staged) = &mut self.content {
            staged.begin_attempt(token.clone());
        }
        // Where this process is killed meanwhile, the next mount goes on. What cannot be noted is published
        // all the same.
        let _ = self.record(false);
        let edits = self.edits();
        let wanted: Vec<Range<u64>> = match &edits {
            Some((_, parts)) => {
                parts.iter().filter(|part| !part.is_copied).map(|part| part.range.clone()).collect()
            }
            None => std::iter::once(0..u64::MAX).collect(),
        };
        self.bring(store, &wanted)?;
        let (condition, mut as_) = (self.condition_now(), self.begin_described());
        as_.metadata.push((TOKEN.to_owned(), token));
        let Content::Staged(staged) = &self.content else { return Err(FsError::of(libc::EIO)) };
        let put = store.put_file(FilePut {
            to: &self.location,
            path: staged.path(),
            as_: &as_,
            edits,
            condition,
            notes: self.notes.clone(),
            withdrawal: &self.withdrawal,
        });
        let is_cancelled = |error: &Error| error.kind() == ErrorKind::Cancelled;
        self.is_withdrawn = put.as_ref().is_err_and(is_cancelled) && self.withdrawal.was_stopped();
        let stored = put.map_err(not_published)?;
        self.on_attempt(&stored);
        Ok(stored)
    }

    /// The last attempt has made this version.
    fn on_attempt(&mut self, stored: &Stored) {
        let object = self.version_of(stored);
        self.published = Some(Published { object, modified_s: stored.modified_s, reader: None });
        self.condition = Condition::None;
        if let Content::Staged(staged) = &mut self.content {
            staged.on_published(stored.size);
        }
    }

    /// What of the published version the origin can copy, if that is worth it.
    fn edits(&self) -> Option<(Object, Vec<EditedPart>)> {
        let Content::Staged(staged) = &self.content else { return None };
        let object = &self.published.as_ref()?.object;
        object.etag.as_ref().filter(|etag| !etag.starts_with("W/"))?;
        let parts = edited_parts(STREAM_ROOM_LEAST, staged.size(), staged.base_end(), &staged.changed())?;
        Some((object.clone(), parts))
    }

    /// Brings what the disk lacks of these ranges.
    fn bring(&mut self, store: &Arc<S>, ranges: &[Range<u64>]) -> Result<(), FsError> {
        let Content::Staged(staged) = &self.content else { return Ok(()) };
        let missing = ranges.iter().flat_map(|range| staged.missing_in(range));
        let pieces: Vec<Range<u64>> = missing.flat_map(in_pieces).collect();
        if pieces.is_empty() {
            return Ok(());
        }
        let reader = self.reader(store)?;
        for pieces in pieces.chunks(PIECES_AT_ONCE) {
            if self.withdrawal.is_removing() {
                self.is_withdrawn = true;
                return Err(withdrawn(&self.location));
            }
            let brought = read_together(&reader, pieces)?;
            let Content::Staged(staged) = &mut self.content else { return Ok(()) };
            for (piece, bytes) in pieces.iter().zip(brought) {
                if bytes.len() as u64 != piece.end - piece.start {
                    return Err(FsError::of(libc::EIO));
                }
                staged.keep_base(piece.start, &bytes, true)?;
            }
        }
        Ok(())
    }

    /// Before a file is published later than it was asked for, and where the origin keeps no condition: the
    /// object as it is now, if it is that of an attempt whose answer was lost. What another client has made
    /// since is not replaced.
    ///
    /// # Errors
    /// `ESTALE`: another client has replaced or removed it; the origin could not be asked.
    fn look_again(&mut self, store: &Arc<S>) -> Result<Option<Stored>, FsError> {
        let base = self.published.as_ref().map(|published| published.object.clone());
        let has_no_condition = matches!(self.location, Location::Oss { .. }) && base.is_some();
        if !self.is_late && !has_no_condition {
            return Ok(None);
        }
        let head = match store.head(&self.location) {
            Ok(head) => Some(head),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(not_published(error)),
        };
        let token = match &self.content {
            Content::Staged(staged) => staged.token().map(str::to_owned),
            _ => None,
        };
        let is_attempt = |head: &Head| {
            let named = head.metadata.iter().find(|(name, _)| name.eq_ignore_ascii_case(TOKEN));
            token.is_some() && named.map(|(_, value)| value) == token.as_ref()
        };
        match head {
            Some(head) if is_attempt(&head) => {
                let modified_s = i64::try_from(head.modified_s).unwrap_or(i64::MAX);
                Ok(Some(Stored { size: head.size, etag: head.etag, modified_s }))
            }
            Some(head) => match base.as_ref().or(self.replaces.as_ref()) {
                Some(known) if is_version(&head, known) => {
                    // Also of a new file: that version is replaced, and no other.
                    if let (None, Some(etag)) = (&base, &head.etag)
                        && let Some(unchanged) = Condition::unchanged(&self.location, etag)
                    {
                        self.condition = unchanged;
                    }
                    Ok(None)
                }
                _ => Err(replaced_since(&self.location)),
            },
            None if base.is_some() => Err(replaced_since(&self.location)),
            None => {
                self.condition = Condition::Absent;
                Ok(None)
            }
        }
    }

    /// Nothing of it is to be published any more, by nobody.
    pub(crate) fn forget_record(&mut self) {
        if let Content::Staged(staged) = &mut self.content {
            staged.forget_record();
        }
    }
}

/// Of no other upload.
fn next_token() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let (count, process) = (COUNT.fetch_add(1, Ordering::Relaxed), std::process::id());
    format!("{since:016x}{process:08x}{count:08x}")
}

/// Whether an object is that version, as far as can be told.
fn is_version(head: &Head, version: &Object) -> bool {
    let is_one = match (&head.etag, &version.etag) {
        (Some(one), Some(other)) => one == other,
        _ => version.modified_s.is_none_or(|at| at == head.modified_s),
    };
    is_one && head.size == version.size
}

/// Each as long as it is read at once.
fn in_pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let starts = (range.start..range.end).step_by(PIECE as usize);
    starts.map(move |start| start..range.end.min(start + PIECE))
}

/// From the first to the last of them.
fn span(ranges: &[Range<u64>]) -> Option<Range<u64>> {
    Some(ranges.first()?.start..ranges.last()?.end)
}
