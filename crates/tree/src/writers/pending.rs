//! Staged files that nobody has open and the origin lacks: those whose upload has failed, and those that a
//! killed mount has left. A thread tries them again.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use flatout_engine::ErrorKind;

use super::{Opened, Writers};
use crate::ROOT;
use crate::attributes::{AttributeSource, Caller, FileKind, OpenMode, Process};
use crate::etag::Etag;
use crate::fact::Fact;
use crate::fs_error::FsError;
use crate::staging::LeftFile;
use crate::store::ObjectStore;
use crate::write_errors::kept_aside;
use crate::writer::{FileWriter, Work};

/// How long the first wait is before it is tried again; each following one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How often is looked for what a mount has left that died meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Ends the thread when it is dropped.
pub(crate) type Wake = mpsc::Sender<()>;

/// Tries again what is pending, as long as there are writers.
pub(crate) fn keep_trying<S: ObjectStore>(writers: &Arc<Writers<S>>) -> Option<Wake> {
    writers.names.config.staging.as_ref()?;
    let (wake, woken) = mpsc::channel();
    let writers = Arc::downgrade(writers);
    let work = move || keep_trying_on(&writers, &woken);
    // Without a thread the next mount uploads them.
    std::thread::Builder::new().name("staged".to_owned()).spawn(work).ok()?;
    Some(wake)
}

fn keep_trying_on<S: ObjectStore>(writers: &Weak<Writers<S>>, woken: &Receiver<()>) {
    let mut wait = FIRST_WAIT;
    loop {
        match woken.recv_timeout(wait) {
            Ok(()) => {
                wait = FIRST_WAIT;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let Some(writers) = writers.upgrade() else { return };
        writers.take_left();
        let outcomes = writers.retry_pending();
        wait = match outcomes.iter().all(|(_, outcome)| outcome.is_ok()) {
            true => LOOK_EVERY,
            false => (2 * wait).min(LONGEST_WAIT),
        };
    }
}

impl<S: ObjectStore> Writers<S> {
    /// Takes over what killed mounts have left: it is shown, and waits to be uploaded.
    pub(crate) fn take_left(&self) {
        let Some(staging) = &self.names.config.staging else { return };
        for left in staging.take_left() {
            // What cannot be shown now stays on the disk, and is taken later.
            let _ = self.begin_left(left);
        }
    }

    fn begin_left(&self, left: LeftFile) -> Result<(), FsError> {
        let mut left = left;
        let names = self.names.root.names_of(&left.record.location).ok_or_else(FsError::absent)?;
        let (name, folders) = names.split_last().ok_or_else(FsError::absent)?;
        let (store, now_ms) = (&self.names.store, self.names.now_ms());
        let fact = match left.record.object() {
            Some((object, modified_s)) => Fact {
                size: object.size,
                asked_ms: now_ms,
                etag: Etag::of(object.etag.as_deref()),
                modified_s: u32::try_from(modified_s).unwrap_or(u32::MAX),
                source: AttributeSource::Written,
            },
            None => Fact {
                size: 0,
                asked_ms: now_ms,
                etag: Etag::None,
                modified_s: u32::try_from(store.unix_s()).unwrap_or(u32::MAX),
                source: AttributeSource::Written,
            },
        };
        let mut open = self.open();
        let mut table = self.names.table();
        let mut parent = Some(ROOT);
        for folder in folders {
            parent = parent.and_then(|parent| table.find(parent, FileKind::Folder, folder));
        }
        let known = parent.and_then(|parent| table.find(parent, FileKind::File, name));
        if let Some(known) = known {
            if open.contains_key(&known) || table.is_moving(known) {
                return Err(FsError::of(libc::EBUSY));
            }
            // This mount has seen or made a later version: what is left is not shown in its place.
            let later = table.get(known).map(|inode| inode.fact.etag.clone()).unwrap_or_default();
            if later != Etag::None && later != fact.etag && left.file.token().is_none() {
                if let (Some(path), Some(staging)) = (left.file.set_aside(), &self.names.config.staging) {
                    staging.tell(&kept_aside(&left.record.location, &path));
                }
                return Err(FsError::of(libc::ESTALE));
            }
        }
        let is_new = left.record.object().is_none();
        let mut parent = ROOT;
        for folder in folders {
            let there = table.find(parent, FileKind::Folder, folder).is_some();
            parent = table.keep(parent, folder, FileKind::Folder, Fact::folder(now_ms));
            // No key may say so yet.
            if is_new && !there {
                table.set_made_here(parent, true, now_ms);
            }
        }
        if table.is_moving(parent) {
            return Err(FsError::of(libc::EBUSY));
        }
        let ino = table.keep(parent, name, FileKind::File, fact.clone());
        let writer = FileWriter::of_left(store.clone(), &self.buffers, left, self.kept_of(ino));
        table.rewrite(ino, fact);
        table.begin_writing(ino, writer.size.clone());
        open.insert(ino, Opened { writer: Arc::new(writer), handles: 0, is_pending: true });
        Ok(())
    }

    /// Cuts a file to a length, or makes it longer. One that nobody writes is published at once.
    pub(crate) fn set_len(&self, ino: u64, size: u64) -> Result<(), FsError> {
        let cut = |writer: &FileWriter<S>, work: &mut Work<S>| {
            // What is published by that keeps its attributes.
            self.names.learn_posix(&[ino])?;
            writer.set_len(work, size, |work, stored| self.on_published(ino, work, stored))
        };
        if let Some(writer) = self.of(ino) {
            let mut work = writer.work();
            // It may have ended before the turn came.
            if self.is_of(ino, &writer) {
                cut(&writer, &mut work)?;
                drop(work);
                // One that waits to be published has no close that would.
                return if self.is_pending(ino) { self.publish_pending(ino, &writer) } else { Ok(()) };
            }
        }
        let nobody = Caller { thread: 0, look: |_| Process::default(), uid: 0, gid: 0 };
        let mode = OpenMode { writes: true, ..OpenMode::default() };
        let handle = self.open_to_write(ino, mode, nobody)?.handle;
        let Some(file) = self.files.handles.remove(handle) else { return Err(FsError::of(libc::EIO)) };
        let done = match &file.written {
            Some(written) => cut(&written.writer, &mut written.writer.work()),
            None => Err(FsError::of(libc::EIO)),
        };
        // The last handle publishes.
        let released = self.release(&file);
        drop(file);
        self.names.unpin(ino);
        done.and(released)
    }

    /// Publishes what is pending; each file's path, and what became of it.
    pub(crate) fn retry_pending(&self) -> Vec<(String, Result<(), FsError>)> {
        let closed: Vec<(u64, Arc<FileWriter<S>>)> = {
            let open = self.open();
            let closed = open.iter().filter(|(_, opened)| opened.is_pending);
            closed.map(|(ino, opened)| (*ino, opened.writer.clone())).collect()
        };
        let mut outcomes = Vec::new();
        for (ino, writer) in closed {
            let path = self.path(ino);
            let published = self.publish_pending(ino, &writer);
            // The others would wait as long for the same origin.
            let is_away = matches!(&published, Err(error) if error.is_of_origin_away());
            if let (Some(staging), Err(error)) = (&self.names.config.staging, &published)
                && let Some(cause) = &error.cause
                && cause.kind() != ErrorKind::Cancelled
            {
                staging.tell(cause);
            }
            outcomes.push((path, published));
            if is_away {
                break;
            }
        }
        outcomes
    }

    /// Publishes a file that nobody has open, and lets go of it once that is done or can never be.
    pub(crate) fn publish_pending(&self, ino: u64, writer: &FileWriter<S>) -> Result<(), FsError> {
        let mut work = writer.work();
        // Whoever has opened it since publishes it.
        if !self.is_pending(ino) {
            return Ok(());
        }
        let published = if work.may_be_retried() { self.publish(ino, &mut work) } else { Ok(()) };
        if !work.may_be_retried() {
            self.end_if_unused(ino, writer, &mut work);
        }
        published
    }

    pub(crate) fn is_pending(&self, ino: u64) -> bool {
        self.open().get(&ino).is_some_and(|opened| opened.is_pending)
    }

    pub(super) fn path(&self, ino: u64) -> String {
        self.names.table().path(ino).map_or_else(String::new, |names| names.join("/"))
    }

    /// Staged files that wait to be uploaded.
    pub(crate) fn pending(&self) -> Vec<(String, u64)> {
        let pending: Vec<(u64, u64)> = {
            let open = self.open();
            let closed = open.iter().filter(|(_, opened)| opened.is_pending);
            closed.map(|(ino, opened)| (*ino, opened.writer.size.end())).collect()
        };
        pending.into_iter().map(|(ino, size)| (self.path(ino), size)).collect()
    }
}
