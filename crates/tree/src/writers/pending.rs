//! Staged files that nobody has open and the origin lacks: those whose upload has failed, and those that a
//! killed mount has left. A thread tries them again.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Opened, Writers};
use crate::ROOT;
use crate::attributes::{AttributeSource, FileKind};
use crate::etag::Etag;
use crate::fact::Fact;
use crate::fs_error::FsError;
use crate::staging::LeftFile;
use crate::store::ObjectStore;
use crate::writer::FileWriter;

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
            // What cannot be shown stays on the disk.
            let _ = self.begin_left(left);
        }
    }

    fn begin_left(&self, left: LeftFile) -> Result<(), FsError> {
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
        let mut parent = ROOT;
        for folder in folders {
            parent = table.keep(parent, folder, FileKind::Folder, Fact::folder(now_ms));
            table.set_made_here(parent, true, now_ms);
        }
        let ino = table.keep(parent, name, FileKind::File, fact.clone());
        // The session is locked again once nobody writes it.
        if open.contains_key(&ino) {
            return Err(FsError::of(libc::EBUSY));
        }
        let writer = FileWriter::of_left(store.clone(), &self.buffers, left, self.kept_of(ino));
        table.rewrite(ino, fact);
        table.begin_writing(ino, writer.size.clone());
        open.insert(ino, Opened { writer: Arc::new(writer), handles: 0 });
        Ok(())
    }

    /// Publishes what is pending; each file's path, and what became of it.
    pub(crate) fn retry_pending(&self) -> Vec<(String, Result<(), FsError>)> {
        let closed: Vec<(u64, Arc<FileWriter<S>>)> = {
            let open = self.open();
            let closed = open.iter().filter(|(_, opened)| opened.handles == 0);
            closed.map(|(ino, opened)| (*ino, opened.writer.clone())).collect()
        };
        let mut outcomes = Vec::new();
        for (ino, writer) in closed {
            let mut work = writer.work();
            if work.may_be_retried() {
                let published = self.publish(ino, &mut work);
                if let (Some(staging), Err(error)) = (&self.names.config.staging, &published)
                    && let Some(cause) = &error.cause
                {
                    staging.tell(cause);
                }
                outcomes.push((self.path(ino), published));
            }
            if !work.may_be_retried() {
                self.end_if_unused(ino, &writer, &mut work);
            }
        }
        outcomes
    }

    pub(super) fn path(&self, ino: u64) -> String {
        self.names.table().path(ino).map_or_else(String::new, |names| names.join("/"))
    }

    /// Staged files that wait to be uploaded.
    pub(crate) fn pending(&self) -> Vec<(String, u64)> {
        let pending: Vec<(u64, u64)> = {
            let open = self.open();
            let closed = open.iter().filter(|(_, opened)| opened.handles == 0);
            closed.map(|(ino, opened)| (*ino, opened.writer.size.end())).collect()
        };
        pending.into_iter().map(|(ino, size)| (self.path(ino), size)).collect()
    }
}
