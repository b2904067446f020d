//! A file that is being written: what is in memory of it, and the upload that runs. All handles of the file
//! share it.
//!
//! ```text
//! up to BUFFERED_MOST:  a buffer ── close, fsync: PUT ── stays: more may follow, and it can be read
//! longer:               buffer ─▶ upload in parts ── close, fsync: complete
//! more after that:      an upload that continues the published object
//! an appendable object: a buffer ── full, close, fsync: append (`writer/appends.rs`)
//! written elsewhere:    staged on a local disk (`writer/staged.rs`)
//! ```

mod appends;
mod described;
mod kept_for_others;
mod names;
mod read;
mod size;
mod staged;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use flatout_engine::{Error, ErrorKind, Object};
use flatout_wire::location::Location;
use flatout_wire::object_options::Condition;

use crate::buffers::{BufferedBytes, Buffers};
use crate::files::WriteMoment;
use crate::fs_error::FsError;
use crate::posix::Posix;
use crate::staging::StagedFile;
use crate::store::{ObjectStore, ObjectUpload, Stored, UploadNotes};
use crate::version_bytes::read_whole;
use crate::withdrawal::Withdrawal;
use crate::write_errors::{ended, not_published};
use crate::writer::appends::Appends;
pub(crate) use kept_for_others::KeptOf;
pub(crate) use size::WrittenSize;

/// A file of up to this length is kept in memory until it is closed, and sent by one request.
const BUFFERED_MOST: usize = 1 << 20;
/// A file without a name, which is never sent, may have as much.
const NAMELESS_MOST: usize = 64 << 20;
/// An object of at least this length is continued by the origin; a shorter one is read and sent again.
const CONTINUED_FROM: u64 = 8 << 20;
/// Parts of one write(2) may come in another order than that of their offsets.
const OUT_OF_ORDER: Duration = Duration::from_millis(200);

pub(crate) struct FileWriter<S: ObjectStore> {
    store: Arc<S>,
    buffers: Arc<Buffers<S::MemoryAccount>>,
    pub(crate) size: Arc<WrittenSize>,
    /// Whoever holds it writes, publishes or reads; others wait. It may be held for as long as an upload
    /// takes.
    turn: Mutex<Work<S>>,
    /// The file has grown.
    grown: Condvar,
    /// An earlier version is part of what is written: what was added to it is of use by itself.
    goes_on: Arc<AtomicBool>,
    /// It is of no use to anybody: a new file whose writer was killed.
    is_abandoned: AtomicBool,
    /// Its content is staged.
    is_staged: AtomicBool,
    pub(crate) withdrawal: Arc<Withdrawal>,
    kept: KeptOf,
}

pub(crate) struct Work<S: ObjectStore> {
    location: Location,
    /// The version that the origin has, as far as this writer has made or found it, and its reader once
    /// somebody reads it.
    published: Option<Published<S>>,
    content: Content<S>,
    /// The origin may have an object of its name.
    is_at_origin: bool,
    /// What has been written is not all published.
    is_dirty: bool,
    /// What stat(2) shows, and what of it the published version is described by.
    shown: Arc<WrittenSize>,
    described: Option<Arc<Posix>>,
    condition: Condition,
    /// What went wrong; every later call fails with it.
    failure: Option<FsError>,
    /// Its name was removed: it is never published.
    is_nameless: bool,
    goes_on: Arc<AtomicBool>,
    notes: Option<Arc<dyn UploadNotes>>,
    kept: KeptOf,
    /// It is kept that bytes are in this process alone.
    is_kept_unsent: bool,
    /// The published version is known to take no appends.
    takes_no_appends: bool,
    /// A version that this very write has made, of which nobody has heard.
    pub(crate) untold: Option<Stored>,
    /// It is published later than it was asked for: another mount has left it, or an attempt has failed.
    is_late: bool,
    /// The version that was there when it was cut to nothing.
    replaces: Option<Object>,
    withdrawal: Arc<Withdrawal>,
    /// Where it was set aside just now, since another client has replaced the object.
    pub(crate) set_aside: Option<PathBuf>,
    /// The last upload was given up, since somebody removes the name.
    pub(crate) is_withdrawn: bool,
}

struct Published<S: ObjectStore> {
    object: Object,
    modified_s: i64,
    reader: Option<S::VersionReader>,
}

enum Content<S: ObjectStore> {
    /// All bytes of the file.
    Buffered(BufferedBytes<S::MemoryAccount>),
    /// The published version, and nothing more.
    Published,
    Upload(S::Upload),
    /// The published version, and what is to be appended to it.
    Appends(Appends<S::MemoryAccount>),
    /// The published version with changes, on a local disk.
    Staged(Box<StagedFile>),
    /// What was written is lost.
    Lost,
}

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Wrote {
    All,
    /// Nothing was written: the caller does not wait.
    WouldWait,
}

impl<S: ObjectStore> FileWriter<S> {
    /// A writer of a new file, or of one that is replaced.
    pub(crate) fn of_new(
        store: Arc<S>,
        buffers: &Arc<Buffers<S::MemoryAccount>>,
        location: Location,
        condition: Condition,
        (kept, posix): (KeptOf, Option<Arc<Posix>>),
    ) -> FileWriter<S> {
        let content = Content::Buffered(buffers.empty());
        FileWriter::of(store, buffers, (location, condition), None, content, (kept, posix))
    }

    /// Of a writer of a new file: the version that it replaces.
    pub(crate) fn replacing(self, version: Object) -> FileWriter<S> {
        self.work().replaces = Some(version);
        self.size.forget_times();
        self
    }

    /// A writer that goes on from a version.
    pub(crate) fn of_version(
        store: Arc<S>,
        buffers: &Arc<Buffers<S::MemoryAccount>>,
        object: Object,
        modified_s: i64,
        kept: (KeptOf, Option<Arc<Posix>>),
    ) -> FileWriter<S> {
        let to = (object.location.clone(), Condition::None);
        let published = Some(Published { object, modified_s, reader: None });
        FileWriter::of(store, buffers, to, published, Content::Published, kept)
    }

    fn of(
        store: Arc<S>,
        buffers: &Arc<Buffers<S::MemoryAccount>>,
        (location, condition): (Location, Condition),
        published: Option<Published<S>>,
        content: Content<S>,
        (kept, posix): (KeptOf, Option<Arc<Posix>>),
    ) -> FileWriter<S> {
        let (end, modified_s) = match &published {
            Some(published) => (published.object.size, published.modified_s),
            None => (0, store.unix_s()),
        };
        let described = posix.clone().filter(|_| published.is_some());
        let is_dirty = published.is_none();
        let is_unknown = is_dirty && posix.is_none();
        let shown = Arc::new(WrittenSize::new(end, modified_s, posix));
        if is_unknown {
            shown.forget_times();
        }
        let goes_on = Arc::new(AtomicBool::new(published.is_some()));
        let withdrawal = Arc::<Withdrawal>::default();
        let writer = FileWriter {
            store,
            buffers: buffers.clone(),
            size: shown.clone(),
            turn: Mutex::new(Work {
                location,
                // A new file that is to be exclusive is not there.
                is_at_origin: condition != Condition::Absent,
                published,
                content,
                is_dirty,
                shown,
                described,
                condition,
                failure: None,
                is_nameless: false,
                goes_on: goes_on.clone(),
                notes: buffers.notes.clone(),
                kept: kept.clone(),
                is_kept_unsent: false,
                takes_no_appends: false,
                untold: None,
                is_late: false,
                replaces: None,
                withdrawal: withdrawal.clone(),
                is_withdrawn: false,
                set_aside: None,
            }),
            grown: Condvar::new(),
            goes_on,
            is_abandoned: AtomicBool::new(false),
            is_staged: AtomicBool::new(false),
            withdrawal,
            kept,
        };
        writer.work().keep();
        writer
    }

    /// Waits for what others do with the file.
    pub(crate) fn work(&self) -> MutexGuard<'_, Work<S>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_work(&self) -> Option<MutexGuard<'_, Work<S>>> {
        match self.turn.try_lock() {
            Ok(work) => Some(work),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Writes all of `bytes` if that waits for nothing.
    ///
    /// # Errors
    /// As [`FileWriter::write`].
    pub(crate) fn write_at_once(&self, at: u64, bytes: &[u8]) -> Result<Wrote, FsError> {
        let Some(mut work) = self.try_work() else { return Ok(Wrote::WouldWait) };
        let is_elsewhere = work.failure.is_none() && at != self.size.end() && !work.is_staged();
        if is_elsewhere || !work.may_write_at_once(bytes.len()) {
            return Ok(Wrote::WouldWait);
        }
        let wrote = self.take(&mut work, at, bytes, &mut |moment| moment == WriteMoment::Take)?;
        Ok(if wrote { Wrote::All } else { Wrote::WouldWait })
    }

    /// Writes all of `bytes`; waits for room as long as `goes_on` says so. What was kept before may be
    /// published by that.
    ///
    /// # Errors
    /// `EOPNOTSUPP` elsewhere than at the end, without staging; `EINTR` where the wait was given up; what the
    /// upload failed with.
    pub(crate) fn write(
        &self,
        at: u64,
        bytes: &[u8],
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
        on_published: impl FnOnce(&Work<S>, &Stored),
    ) -> Result<(), FsError> {
        let mut work = self.work();
        if at > self.size.end() && work.failure.is_none() && !work.is_staged() {
            let early = |_: &mut Work<S>| at > self.size.end();
            let waited = self.grown.wait_timeout_while(work, OUT_OF_ORDER, early);
            work = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // Whoever waited for its turn may have been given up meanwhile.
        if !goes_on(WriteMoment::Wait) {
            return Err(FsError::of(libc::EINTR));
        }
        let wrote = match work.failure.is_none() && at != self.size.end() {
            true => self.stage_for(&mut work, at).and_then(|()| self.take(&mut work, at, bytes, goes_on)),
            false => self.take(&mut work, at, bytes, goes_on),
        };
        if let Some(stored) = work.untold.take() {
            on_published(&work, &stored);
        }
        match wrote? {
            true => Ok(()),
            false => Err(FsError::of(libc::EINTR)),
        }
    }

    /// All of `bytes`, or none and `false`. Where it is not staged, they are for its end.
    fn take(
        &self,
        work: &mut Work<S>,
        at: u64,
        bytes: &[u8],
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, FsError> {
        if let Some(failure) = &work.failure {
            return Err(failure.clone());
        }
        work.keep_unsent();
        if work.is_sent_again_whole() && self.buffers.staging.is_some() {
            work.stage(&self.store, &self.buffers)?;
        }
        let taken = match &mut work.content {
            Content::Staged(staged) if goes_on(WriteMoment::Take) => staged.write(at, bytes).map(|()| true),
            Content::Staged(_) => Ok(false),
            _ => work.try_append(&self.store, &self.buffers, bytes, goes_on),
        };
        self.is_staged.store(work.is_staged(), Ordering::Release);
        let wrote = taken.map_err(|error| work.fail(error))?;
        if wrote {
            work.is_dirty = true;
            self.is_abandoned.store(false, Ordering::Release);
            self.size.end.fetch_max(at + bytes.len() as u64, Ordering::AcqRel);
            self.size.on_written(self.store.unix_s());
            self.grown.notify_all();
        }
        Ok(wrote)
    }

    /// Cuts it to no bytes, and forgets what was not published.
    pub(crate) fn clear(&self, work: &mut Work<S>) {
        work.forget_record();
        work.content = Content::Buffered(self.buffers.empty());
        self.is_staged.store(false, Ordering::Release);
        work.is_dirty = true;
        work.failure = None;
        self.goes_on.store(false, Ordering::Release);
        // It is replaced, whichever version is there by then.
        work.condition = Condition::None;
        work.is_late = false;
        if let Some(Published { object, .. }) = work.published.take() {
            work.location = object.location.clone();
            work.replaces = Some(object);
        }
        work.keep();
        self.size.end.store(0, Ordering::Release);
        self.size.on_written(self.store.unix_s());
    }
}

impl<S: ObjectStore> Work<S> {
    /// Whether all of it would be brought and sent again by the next write, as by one after each fsync of a
    /// log: too long for a buffer, and too short to be continued by the origin. It was published by this
    /// writer before; a disk has its bytes from the next time on.
    fn is_sent_again_whole(&self) -> bool {
        let size = self.published.as_ref().map_or(0, |published| published.object.size);
        let is_between = size > BUFFERED_MOST as u64 && size < CONTINUED_FROM;
        matches!(self.content, Content::Published) && self.takes_no_appends && is_between
    }

    fn buffered_most(&self) -> usize {
        if self.is_nameless { NAMELESS_MOST } else { BUFFERED_MOST }
    }

    fn may_write_at_once(&self, bytes: usize) -> bool {
        match &self.content {
            Content::Buffered(buffer) => buffer.bytes().len() + bytes <= self.buffered_most(),
            Content::Upload(_) | Content::Staged(_) => true,
            Content::Appends(appends) => appends.has_room(bytes),
            Content::Published | Content::Lost => self.failure.is_some(),
        }
    }

    fn try_append(
        &mut self,
        store: &Arc<S>,
        buffers: &Arc<Buffers<S::MemoryAccount>>,
        bytes: &[u8],
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, FsError> {
        if matches!(self.content, Content::Published) && !self.go_on(store, buffers, goes_on)? {
            return Ok(false);
        }
        let buffered_most = self.buffered_most();
        if let Content::Buffered(buffer) = &mut self.content {
            if buffer.bytes().len() + bytes.len() <= buffered_most {
                return if goes_on(WriteMoment::Take) {
                    buffer.extend(bytes).map(|()| true)
                } else {
                    Ok(false)
                };
            }
            if self.is_nameless && buffers.staging.is_some() {
                let at = buffer.bytes().len() as u64;
                self.stage(store, buffers)?;
                let Content::Staged(staged) = &mut self.content else { return Err(FsError::of(libc::EIO)) };
                return if goes_on(WriteMoment::Take) {
                    staged.write(at, bytes).map(|()| true)
                } else {
                    Ok(false)
                };
            }
            if self.is_nameless {
                let cause = "a file whose name was removed is kept in memory, and has at most 64MiB";
                let error = Error::new(ErrorKind::Unsupported, cause).during("write", &self.location);
                return Err(FsError::because(libc::ENOSPC, error));
            }
            let first = std::mem::replace(buffer, buffers.empty());
            let condition = self.condition_now();
            let as_ = self.begin_described();
            let mut upload = store.upload(&self.location, &as_, condition, None, self.notes.clone())?;
            // These bytes were taken before.
            let mut waits = |moment| moment == WriteMoment::Take || goes_on(moment);
            match upload.write(first.bytes(), &mut waits) {
                Ok(true) => self.content = Content::Upload(upload),
                Ok(false) => {
                    self.content = Content::Buffered(first);
                    return Ok(false);
                }
                Err(_) => return Err(ended(upload)),
            }
        }
        if let Content::Appends(_) = self.content {
            return self.append_more(store, bytes, goes_on);
        }
        let Content::Upload(upload) = &mut self.content else { return Err(FsError::of(libc::EIO)) };
        match upload.write(bytes, goes_on) {
            Ok(wrote) => Ok(wrote),
            Err(_) => match std::mem::replace(&mut self.content, Content::Lost) {
                Content::Upload(upload) => Err(ended(upload)),
                _ => Err(FsError::of(libc::EIO)),
            },
        }
    }

    /// Before the first write after a published version: its bytes become those of the buffer, or of the
    /// upload. `false` where that was given up.
    fn go_on(
        &mut self,
        store: &Arc<S>,
        buffers: &Arc<Buffers<S::MemoryAccount>>,
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, FsError> {
        let Some(published) = &self.published else { return Err(FsError::of(libc::EIO)) };
        let object = published.object.clone();
        // Times that were set are over by what is to be written.
        self.shown.forget_times();
        if self.find_appends(store, buffers, &object)? {
            return Ok(true);
        }
        let condition = self.condition_now();
        if object.size >= CONTINUED_FROM && object.etag.is_some() {
            let as_ = self.begin_described();
            let upload = store.upload(&self.location, &as_, condition, Some(object), self.notes.clone())?;
            self.content = Content::Upload(upload);
            return Ok(true);
        }
        let size = usize::try_from(object.size).map_err(|_| FsError::of(libc::EFBIG))?;
        let reader = self.reader(store)?;
        if size <= BUFFERED_MOST {
            let mut buffer = buffers.empty();
            read_whole(&reader, size, &mut |bytes| buffer.extend(bytes))?;
            self.content = Content::Buffered(buffer);
            return Ok(true);
        }
        let as_ = self.begin_described();
        let mut upload = store.upload(&self.location, &as_, condition, None, self.notes.clone())?;
        // These bytes were taken long ago.
        let mut waits = |moment| moment == WriteMoment::Take || goes_on(moment);
        let mut went = Ok(true);
        read_whole(&reader, size, &mut |bytes| {
            if matches!(went, Ok(true)) {
                went = upload.write(bytes, &mut waits);
            }
            Ok(())
        })?;
        match went {
            Ok(true) => self.content = Content::Upload(upload),
            Ok(false) => return Ok(false),
            Err(_) => return Err(ended(upload)),
        }
        Ok(true)
    }

    /// On which condition the next version is made: an object that is continued must still be that version.
    fn condition_now(&self) -> Condition {
        let etag = self.published.as_ref().and_then(|published| published.object.etag.clone());
        let unchanged = etag.and_then(|etag| Condition::unchanged(&self.location, &etag));
        unchanged.unwrap_or_else(|| self.condition.clone())
    }

    /// Makes what has been written the object; the new version, unless there is none.
    ///
    /// # Errors
    /// Why it could not be made. Every later call fails with it, too.
    pub(crate) fn publish(&mut self, store: &Arc<S>) -> Result<Option<Stored>, FsError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.is_nameless {
            return Ok(None);
        }
        if !self.is_dirty {
            return self.describe(store);
        }
        self.is_at_origin = true;
        match self.content {
            Content::Appends(_) => {
                let sent = self.send_appends(store).map_err(|failure| self.fail(failure))?;
                return match sent {
                    Some(stored) => self.described_too(store, stored),
                    None => self.describe(store),
                };
            }
            Content::Staged(_) => return self.publish_staged(store),
            _ => {}
        }
        let stored = match std::mem::replace(&mut self.content, Content::Lost) {
            Content::Buffered(buffer) => {
                let as_ = self.begin_described();
                let put = store.put(&self.location, buffer.shared(), &as_, self.condition_now());
                self.content = Content::Buffered(buffer);
                put
            }
            Content::Upload(upload) => upload.finish(),
            content @ (Content::Published | Content::Appends(_) | Content::Staged(_) | Content::Lost) => {
                self.content = content;
                return Ok(None);
            }
        };
        let stored = stored.map_err(|error| self.fail(not_published(error)))?;
        if let Content::Lost = self.content {
            self.content = Content::Published;
        }
        self.takes_no_appends = true;
        self.on_published(&stored);
        // What was set since an upload has begun.
        self.described_too(store, stored)
    }

    fn version_of(&self, stored: &Stored) -> Object {
        let (location, etag) = (self.location.clone(), stored.etag.clone());
        Object { location, size: stored.size, etag, modified_s: None }
    }

    fn on_published(&mut self, stored: &Stored) {
        let object = self.version_of(stored);
        self.published = Some(Published { object, modified_s: stored.modified_s, reader: None });
        self.condition = Condition::None;
        self.is_dirty = false;
        self.untold = None;
        self.is_at_origin = true;
        self.goes_on.store(true, Ordering::Release);
        self.keep();
    }

    fn fail(&mut self, failure: FsError) -> FsError {
        // Memory that is short now may be there later, and what fits is published.
        if !matches!(failure.errno, libc::ENOMEM | libc::EFBIG) && !self.is_staged() {
            self.failure = Some(failure.clone());
        }
        failure
    }

    fn reader(&mut self, store: &Arc<S>) -> Result<S::VersionReader, FsError> {
        let Some(published) = &mut self.published else { return Err(FsError::of(libc::EIO)) };
        if published.reader.is_none() {
            published.reader = Some(store.content(published.object.clone())?);
        }
        Ok(published.reader.clone().expect("it was set just now"))
    }

    /// Whether something is written that is not published and not lost.
    pub(crate) fn is_dirty(&self) -> bool {
        (self.is_dirty || self.is_described_otherwise()) && !self.is_nameless && self.failure.is_none()
    }

    /// Whether the origin may have an object of its name.
    pub(crate) fn is_at_origin(&self) -> bool {
        self.is_at_origin
    }

    pub(crate) fn failure(&self) -> Option<&FsError> {
        self.failure.as_ref()
    }

    /// The version that this writer has made or found.
    pub(crate) fn version(&self) -> Option<Object> {
        self.published.as_ref().map(|published| published.object.clone())
    }

    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    /// Nobody writes any more: what was not published is given up, which may wait for the origin.
    pub(crate) fn let_go(&mut self) {
        self.content = Content::Lost;
        self.published = None;
    }
}
