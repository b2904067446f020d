//! Files that are being written: opened, created, published, closed. Each has one writer, which its handles
//! share (`writer.rs`).

mod described;
mod pending;
mod removal;
mod versions;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_engine::{Error, ErrorKind, setting, text};
use flatout_wire::object_options::Condition;

use crate::attributes::{Caller, FileKind, Node, OpenMode, OpenedFile};
use crate::buffers::Buffers;
use crate::fact::NameStatus;
use crate::files::WriteMoment;
use crate::fs_error::FsError;
use crate::hash::BuildIdentityHasher;
use crate::kept::{FileUse, KeptWriter};
use crate::namespace::Namespace;
use crate::open_files::{OpenFile, OpenFiles};
use crate::store::{ObjectStore, Stored};
use crate::version_bytes::{ReadFrom, read_now};
use crate::write_errors::{kept_aside, not_noted};
use crate::writer::{FileWriter, KeptOf, Work, Wrote};

pub(crate) use pending::{Wake, keep_trying};

pub(crate) struct Writers<S: ObjectStore> {
    names: Arc<Namespace<S>>,
    files: Arc<OpenFiles<S>>,
    pub(crate) buffers: Arc<Buffers<S::MemoryAccount>>,
    /// How many writes were taken. As long as it grows, a write that waits for room gets some.
    taken: AtomicU64,
    open: Mutex<OpenedByInode<S>>,
}

type OpenedByInode<S> = HashMap<u64, Opened<S>, BuildIdentityHasher>;

struct Opened<S: ObjectStore> {
    writer: Arc<FileWriter<S>>,
    handles: u32,
    /// Nobody has it open, and it waits to be published.
    is_pending: bool,
}

/// A handle that writes.
pub(crate) struct WriteHandle<S: ObjectStore> {
    pub(crate) writer: Arc<FileWriter<S>>,
    reads: bool,
    /// Its open has begun the writer.
    is_first: bool,
    owners: Mutex<Owners>,
}

/// Who writes by a handle: the process that opened it, and those that wrote. A child that was forked
/// meanwhile closes the handle, too, and publishes nothing by that.
#[derive(Default)]
struct Owners {
    last_thread: u32,
    processes: Vec<u32>,
    /// One of them is not known.
    any: bool,
}

impl Owners {
    fn add(&mut self, caller: Caller) {
        if caller.thread == self.last_thread && !self.processes.is_empty() {
            return;
        }
        self.last_thread = caller.thread;
        match (caller.look)(caller.thread).id {
            0 => self.any = true,
            id if !self.processes.contains(&id) => self.processes.push(id),
            _ => {}
        }
    }

    fn has(&self, process: u32) -> bool {
        self.any || process == 0 || self.processes.contains(&process)
    }
}

impl<S: ObjectStore> WriteHandle<S> {
    fn new(writer: Arc<FileWriter<S>>, reads: bool, is_first: bool, caller: Caller) -> WriteHandle<S> {
        let mut owners = Owners::default();
        owners.add(caller);
        WriteHandle { writer, reads, is_first, owners: Mutex::new(owners) }
    }

    /// One that another process has opened, for processes that are not known.
    fn taken_over(writer: Arc<FileWriter<S>>, reads: bool, is_first: bool) -> WriteHandle<S> {
        let owners = Mutex::new(Owners { any: true, ..Owners::default() });
        WriteHandle { writer, reads, is_first, owners }
    }

    pub(crate) fn for_another_process(&self) -> FileUse {
        FileUse::Writes { reads: self.reads, is_first: self.is_first }
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: ObjectStore> Writers<S> {
    pub(crate) fn new(names: Arc<Namespace<S>>, files: Arc<OpenFiles<S>>) -> Writers<S> {
        let buffers = Buffers::new(
            names.store.account(),
            names.config.buffers_bytes,
            names.config.upload_notes.clone(),
            names.config.staging.clone(),
        );
        Writers { names, files, buffers, taken: AtomicU64::new(0), open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, OpenedByInode<S>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self) -> u64 {
        self.open().len() as u64
    }

    /// Files whose last bytes are in this process alone. One that is in use counts.
    pub(crate) fn unsent(&self) -> Vec<String> {
        // One that nobody has open any more is staged, and the next process finds it there.
        let writers: Vec<(u64, Arc<FileWriter<S>>)> = {
            let open = self.open();
            let used = open.iter().filter(|(_, opened)| opened.handles > 0);
            used.map(|(ino, opened)| (*ino, opened.writer.clone())).collect()
        };
        let unsent = writers.into_iter().filter(|(_, writer)| writer.has_unsent());
        unsent.map(|(ino, _)| self.path(ino)).collect()
    }

    /// The writer of a file, if it is being written.
    pub(crate) fn of(&self, ino: u64) -> Option<Arc<FileWriter<S>>> {
        self.open().get(&ino).map(|opened| opened.writer.clone())
    }

    /// A handle on a file that is being written; `None` if it is not.
    pub(crate) fn open_written(&self, ino: u64, mode: OpenMode, caller: Caller) -> Option<OpenedFile> {
        let opened = {
            let mut open = self.open();
            let opened = open.get_mut(&ino)?;
            opened.handles += u32::from(mode.writes);
            opened.is_pending &= opened.handles == 0;
            let writer = opened.writer.clone();
            self.names.table().open(ino);
            let written = mode.writes.then(|| WriteHandle::new(writer, mode.reads, false, caller));
            // Before its writer can go: a reader is given its version then.
            self.opened(OpenFile::of_written(ino, written))
        };
        if mode.truncates {
            self.clear(ino);
            if let Some(writer) = self.of(ino) {
                writer.size.on_written_by(caller);
            }
        }
        Some(opened)
    }

    /// Opens a file that nobody writes to be written. What is known of it is true as far as anybody has to
    /// know.
    pub(crate) fn open_to_write(
        &self,
        ino: u64,
        mode: OpenMode,
        caller: Caller,
    ) -> Result<OpenedFile, FsError> {
        let stale = || FsError::of(libc::ESTALE);
        let store = &self.names.store;
        let open = self.open();
        if open.contains_key(&ino) {
            drop(open);
            return self.open_written(ino, mode, caller).ok_or_else(stale);
        }
        let mut table = self.names.table();
        let inode = table.get(ino).filter(|inode| !inode.is_replaced()).ok_or_else(stale)?;
        // The kernel would write at the end that it knows: it looks the name up again, and asks once more.
        if inode.has_changed && !mode.truncates {
            return Err(stale());
        }
        if table.is_moving(ino) {
            return Err(FsError::of(libc::EBUSY));
        }
        let (location, kept) = (self.names.object(&table, inode.parent, &inode.name)?, self.kept_of(ino));
        let kept = (kept, self.posix_to_write(&table, ino, mode, caller));
        let writer = Arc::new(match mode.truncates {
            true => {
                let replaced = inode.fact.version(location.clone());
                let buffers = &self.buffers;
                FileWriter::of_new(store.clone(), buffers, location, Condition::None, kept)
                    .replacing(replaced)
            }
            false => {
                let (object, modified_s) = (inode.fact.version(location), i64::from(inode.fact.modified_s));
                FileWriter::of_version(store.clone(), &self.buffers, object, modified_s, kept)
            }
        });
        table.open(ino);
        table.begin_writing(ino, writer.size.clone());
        drop(table);
        if mode.truncates {
            self.outdate_readers(ino);
        }
        Ok(self.begin(open, ino, writer, (mode, caller)))
    }

    /// Goes on with a file that another process has written, by as many handles as it had.
    pub(crate) fn take_over(&self, ino: u64, left: &KeptWriter, handles: u32) -> Result<(), FsError> {
        let (store, buffers, kept) = (self.names.store.clone(), &self.buffers, self.kept_of(ino));
        let mut open = self.open();
        let mut table = self.names.table();
        let inode = table.get(ino).ok_or_else(|| FsError::of(libc::ESTALE))?;
        let location = self.names.object(&table, inode.parent, &inode.name)?;
        let writer = match left {
            KeptWriter::New { exclusive, posix } => {
                let condition = if *exclusive { Condition::Absent } else { Condition::None };
                FileWriter::of_new(store, buffers, location, condition, (kept, posix.clone()))
            }
            KeptWriter::Published(version) => {
                let modified_s = i64::from(version.modified_s);
                FileWriter::of_version(store, buffers, version.object(location), modified_s, (kept, None))
            }
            KeptWriter::Unsent => FileWriter::of_lost(store, buffers, location, kept),
        };
        table.begin_writing(ino, writer.size.clone());
        open.insert(ino, Opened { writer: Arc::new(writer), handles, is_pending: false });
        Ok(())
    }

    /// A handle that another process has opened; `None` where nobody writes the file any more.
    pub(crate) fn handle_of(&self, ino: u64, use_: &FileUse) -> Option<OpenFile<S>> {
        let writer = self.of(ino)?;
        let written = match *use_ {
            FileUse::Writes { reads, is_first } => Some(WriteHandle::taken_over(writer, reads, is_first)),
            _ => None,
        };
        Some(OpenFile::of_written(ino, written))
    }

    pub(super) fn kept_of(&self, ino: u64) -> KeptOf {
        KeptOf { kept: self.names.kept.clone(), ino }
    }

    /// The first handle of a writer.
    fn begin(
        &self,
        mut open: MutexGuard<'_, OpenedByInode<S>>,
        ino: u64,
        writer: Arc<FileWriter<S>>,
        (mode, caller): (OpenMode, Caller),
    ) -> OpenedFile {
        open.insert(ino, Opened { writer: writer.clone(), handles: 1, is_pending: false });
        drop(open);
        let written = WriteHandle::new(writer, mode.reads, true, caller);
        self.opened(OpenFile::of_written(ino, Some(written)))
    }

    /// Makes a file of a name that nothing has.
    pub(crate) fn create(
        &self,
        (parent, name): (u64, &str),
        exclusive: bool,
        mode: OpenMode,
        caller: Caller,
    ) -> Result<(Node, OpenedFile), FsError> {
        let store = &self.names.store;
        let condition = if exclusive { Condition::Absent } else { Condition::None };
        let open = self.open();
        let mut table = self.names.table();
        if table.is_moving(parent) {
            return Err(FsError::of(libc::EBUSY));
        }
        let location = self.names.object(&table, parent, name)?;
        let fact = self.fact(&Stored { modified_s: store.unix_s(), ..Stored::default() });
        let ino = table.keep(parent, name, FileKind::File, fact.clone());
        if open.contains_key(&ino) {
            return Err(FsError::of(libc::EEXIST));
        }
        let posix = self.names.made_by(caller, mode.permissions, FileKind::File, (&table, parent));
        let kept = (self.kept_of(ino), posix.map(Arc::new));
        let writer = Arc::new(FileWriter::of_new(store.clone(), &self.buffers, location, condition, kept));
        table.rewrite(ino, fact.clone());
        let status = NameStatus::Present(FileKind::File, fact);
        let node = self.names.looked_up(&mut table, parent, name, status)?;
        table.open(ino);
        table.begin_writing(ino, writer.size.clone());
        // With the attributes of who has made it.
        let node = self.names.node_of(&mut table, ino).unwrap_or(node);
        self.names.touch(&mut table, &[parent]);
        drop(table);
        Ok((node, self.begin(open, ino, writer, (mode, caller))))
    }

    /// What is written passes the page cache: it would be copied once more, and nothing else.
    fn opened(&self, file: OpenFile<S>) -> OpenedFile {
        let handle = self.files.handles.add(file);
        OpenedFile { handle, direct: true, keep_cache: false, has_changed: false, is_written: true }
    }

    /// # Errors
    /// `EBADF` for one that does not write.
    fn handle(&self, handle: u64) -> Result<Arc<OpenFile<S>>, FsError> {
        let file = self.files.handles.get(handle)?;
        if file.written.is_some() { Ok(file) } else { Err(FsError::of(libc::EBADF)) }
    }

    pub(crate) fn write_known(
        &self,
        handle: u64,
        at: u64,
        bytes: &[u8],
        caller: Caller,
    ) -> Option<Result<bool, FsError>> {
        let file = match self.handle(handle) {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        let written = file.written.as_ref()?;
        written.owners().add(caller);
        match written.writer.write_at_once(at, bytes) {
            Ok(Wrote::WouldWait) => None,
            Ok(Wrote::All) => Some(Ok(self.took(&written.writer, caller))),
            Err(error) => Some(Err(error)),
        }
    }

    pub(crate) fn write(
        &self,
        handle: u64,
        at: u64,
        bytes: &[u8],
        caller: Caller,
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, FsError> {
        let file = self.handle(handle)?;
        let written = file.written.as_ref().ok_or_else(|| FsError::of(libc::EBADF))?;
        written.owners().add(caller);
        let (mut seen, mut since_ms, mut is_stuck) = (self.taken(), self.names.now_ms(), false);
        let mut waits = |moment| {
            let (taken, now_ms) = (self.taken(), self.names.now_ms());
            if taken != seen {
                (seen, since_ms) = (taken, now_ms);
            }
            is_stuck = moment == WriteMoment::Wait && now_ms.saturating_sub(since_ms) > STUCK_MS;
            !is_stuck && goes_on(moment)
        };
        // An upload that begins is described as the file that another process has left.
        self.names.learn_posix(&[file.ino])?;
        let told = |work: &Work<S>, stored: &Stored| self.on_published(file.ino, work, stored);
        let wrote = written.writer.write(at, bytes, &mut waits, told);
        match is_stuck && wrote.is_err() {
            true => Err(stuck(&written.writer)),
            false => wrote.map(|()| self.took(&written.writer, caller)),
        }
    }

    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn flush_known(&self, handle: u64, caller: Caller) -> Option<Result<(), FsError>> {
        let file = match self.files.handles.get(handle) {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        let Some(written) = &file.written else { return Some(Ok(())) };
        let process = (caller.look)(caller.thread);
        let is_done = !written.owners().has(process.id) || process.is_killed && written.writer.abandon();
        is_done.then_some(Ok(()))
    }

    pub(crate) fn flush(&self, handle: u64, caller: Caller) -> Result<(), FsError> {
        match self.flush_known(handle, caller) {
            Some(flushed) => flushed,
            None => self.sync(handle),
        }
    }

    pub(crate) fn sync(&self, handle: u64) -> Result<(), FsError> {
        let file = self.files.handles.get(handle)?;
        let Some(written) = &file.written else { return Ok(()) };
        let writer = &written.writer;
        loop {
            let mut work = writer.work();
            let published = self.publish(file.ino, &mut work);
            if published.is_ok() || !work.is_withdrawn {
                published?;
                break;
            }
            drop(work);
            // There is nothing to publish then, unless the removal fails.
            writer.withdrawal.wait_for_removal();
        }
        writer.revive();
        Ok(())
    }

    /// Makes what was written the object.
    pub(crate) fn publish(&self, ino: u64, work: &mut Work<S>) -> Result<(), FsError> {
        work.is_withdrawn = false;
        // Of a file that another process has left.
        let published = match self.names.learn_posix(&[ino]) {
            Ok(()) => work.publish(&self.names.store),
            Err(error) => Err(work.put_off(error)),
        };
        if let (Err(error), Some(staging)) = (&published, &self.buffers.staging)
            && work.may_be_retried()
            && !work.is_recorded()
        {
            staging.tell(&not_noted(work.location(), error));
        }
        if let (Some(path), Some(staging)) = (work.set_aside.take(), &self.buffers.staging) {
            staging.tell(&kept_aside(work.location(), &path));
        }
        // Also where it was published, and then could not be described.
        let made = work.untold.take().or_else(|| published.as_ref().ok().cloned().flatten());
        if let Some(stored) = made {
            self.names.counters.published.count();
            self.on_published(ino, work, &stored);
        }
        published.map(drop)
    }

    /// Whether a read has to be asked of the file's writer.
    pub(crate) fn has_to_be_asked(&self, handle: u64, at: u64, bytes: usize) -> bool {
        let Ok(file) = self.files.handles.get(handle) else { return false };
        if file.written.is_some() {
            return true;
        }
        // What is staged may differ anywhere from the version that was opened.
        let is_staging = self.buffers.staging.is_some();
        let is_staged = || self.of(file.ino).is_some_and(|writer| writer.is_staged());
        let is_of_version =
            file.content().is_some_and(|(_, length)| at.saturating_add(bytes as u64) <= length);
        let is_written = || self.open().contains_key(&file.ino);
        !file.is_stale() && (is_staging && is_staged() || !is_of_version && is_written())
    }

    pub(crate) fn read(&self, handle: u64, at: u64, bytes: usize) -> Result<Vec<u8>, FsError> {
        let file = self.files.handles.get(handle)?;
        let mut replaced = None;
        loop {
            let (writer, may_publish) = match &file.written {
                Some(written) if !written.reads => return Err(FsError::of(libc::EBADF)),
                Some(written) => (written.writer.clone(), true),
                None => match self.of(file.ino) {
                    Some(writer) => (writer, false),
                    // It has gone since.
                    None => {
                        let (content, _) = file.content().ok_or_else(|| FsError::of(libc::ESTALE))?;
                        return read_now(&content, at, bytes);
                    }
                },
            };
            let read = writer.read(at, bytes, may_publish, |work| self.publish(file.ino, work));
            let read = read.and_then(ReadFrom::now).map_err(of_open_file);
            // One that has ended meanwhile has left its readers a version.
            let has_ended = || file.written.is_none() && !self.is_of(file.ino, &writer);
            if read.is_ok() || !has_ended() && !is_stale(&read) {
                return read;
            }
            // This mount may have published another version while its bytes were on their way.
            if is_stale(&read) {
                let version = writer.work().version();
                if replaced.as_ref() == Some(&version) {
                    return read;
                }
                replaced = Some(version);
            }
        }
    }

    /// Whether closing a handle may wait.
    pub(crate) fn release_waits(&self, handle: u64) -> bool {
        self.files.handles.get(handle).is_ok_and(|file| file.written.is_some())
    }

    /// The last descriptor of a handle is closed.
    pub(crate) fn release(&self, file: &OpenFile<S>) -> Result<(), FsError> {
        let Some(written) = &file.written else { return Ok(()) };
        let is_last = self.open().get_mut(&file.ino).is_some_and(|opened| {
            opened.handles -= 1;
            opened.handles == 0
        });
        if !is_last {
            return Ok(());
        }
        // Always the turn first, and what is open after it: a turn may last as long as an upload.
        let mut work = written.writer.work();
        let mut published = Ok(());
        if written.writer.is_abandoned() {
            work.forget_record();
            published = Err(abandoned(&work));
        } else if let Some(failure) = work.failure() {
            // It was told before.
            published = Err(FsError::of(failure.errno));
        } else if work.is_dirty() {
            published = self.publish(file.ino, &mut work);
            if published.is_err() && work.may_be_retried() {
                // It is there for whoever opens it, and is tried again.
                self.set_pending(file.ino);
                return if work.is_withdrawn { Ok(()) } else { published };
            }
        }
        self.end_if_unused(file.ino, &written.writer, &mut work);
        published
    }

    fn set_pending(&self, ino: u64) {
        if let Some(opened) = self.open().get_mut(&ino) {
            opened.is_pending = opened.handles == 0;
        }
    }

    /// Nobody has it open any more, unless it was opened again meanwhile.
    fn end_if_unused(&self, ino: u64, writer: &FileWriter<S>, work: &mut Work<S>) {
        let mut open = self.open();
        if open.get(&ino).is_some_and(|opened| opened.handles == 0) {
            let gone = open.remove(&ino);
            let is_abandoned = writer.is_abandoned();
            let version = work.version().filter(|_| work.failure().is_none() && !is_abandoned);
            if let Some(object) = &version {
                // Whoever opened it while it was written has no version of its own yet.
                let mut readers = self.readers(ino);
                readers.retain(|file| file.content().is_none());
                self.hand_over(&readers, object);
            }
            let now_ms = self.names.now_ms();
            self.names.table().end_writing(ino, version.is_some(), now_ms);
            drop(open);
            // An upload that is given up waits until its parts are gone.
            work.let_go();
            drop(gone);
        }
    }

    /// The answer to an open was not taken: a file that was made or cut by it is as if it had not been.
    pub(crate) fn give_up(&self, file: &OpenFile<S>) {
        if let Some(written) = file.written.as_ref().filter(|written| written.is_first) {
            written.writer.abandon();
        }
    }
}

/// A write fails after so long without room, if no other write was taken meanwhile: each open file holds
/// some, and its writer may be the one that waits.
const STUCK_MS: u64 = 600_000;

fn stuck<S: ObjectStore>(writer: &FileWriter<S>) -> FsError {
    let cause = "all memory for files that are written is in use, and none of it is given back";
    let error = Error::new(ErrorKind::Usage, cause)
        .during("write", writer.work().location())
        .with_hint([text("close some of the files, or use a larger "), setting("memory")]);
    FsError::because(libc::ENOMEM, error)
}

fn is_stale(read: &Result<Vec<u8>, FsError>) -> bool {
    read.as_ref().is_err_and(|error| error.errno == libc::ESTALE)
}

/// read(2) knows no `ENOENT`.
fn of_open_file(error: FsError) -> FsError {
    let errno = if error.errno == libc::ENOENT { libc::ESTALE } else { error.errno };
    FsError { errno, ..error }
}

/// For the log: nobody else hears of it.
fn abandoned<S: ObjectStore>(work: &Work<S>) -> FsError {
    let cause = "its writer was killed before it had closed it: nothing was published";
    let error = Error::new(ErrorKind::Internal, cause).during("write", work.location());
    FsError::because(libc::EIO, error)
}
