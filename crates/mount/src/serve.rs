//! The tree as what a session serves: its words become the session's, and its faults an errno, told with their reason.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flatout_engine::Error;
use flatout_tree::{Fault, FileKind, Known, Tree};

use crate::answer::ReadAnswer;
use crate::files::{Attributes, Cancel, Entry, Errno, Files, Opened, Statfs};
use crate::session::{Mounted, Session};
use crate::timings::{Timed, Timings};

/// Hears why an operation failed: a program only ever sees its errno.
pub type Tell = Arc<dyn Fn(&Error) + Send + Sync>;

impl Mounted {
    /// Serves the tree. INIT is done when this returns.
    pub fn serve(self, tree: Arc<Tree>) -> Result<Session, Error> {
        self.serve_telling(tree, Arc::new(|_| {}))
    }

    /// The same; `tell` hears each error of the origin's, on whichever thread met it.
    pub fn serve_telling(self, tree: Arc<Tree>, tell: Tell) -> Result<Session, Error> {
        self.serve_timed(tree, tell, Arc::default())
    }

    /// The same; `timings` hears how long answers took, and which errors they were.
    pub fn serve_timed(self, tree: Arc<Tree>, tell: Tell, timings: Arc<Timings>) -> Result<Session, Error> {
        self.serve_files(Arc::new(Served { tree, tell, timings }))
    }
}

struct Served {
    tree: Arc<Tree>,
    tell: Tell,
    timings: Arc<Timings>,
}

impl Served {
    fn errno(&self, fault: Fault) -> Errno {
        tell(&self.tell, fault)
    }

    /// What `work` answers, and how long that took.
    fn timed<T>(
        &self,
        operation: Timed,
        work: impl FnOnce() -> Option<Result<T, Errno>>,
    ) -> Option<Result<T, Errno>> {
        let began = Instant::now();
        let answer = work();
        // What memory does not know is asked again by a call that may wait: it counts then.
        if let Some(answer) = &answer {
            self.timings.answered(operation, began, answer.as_ref().err().copied());
        }
        answer
    }

    fn waited<T>(&self, operation: Timed, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let began = Instant::now();
        let answer = work();
        self.timings.answered(operation, began, answer.as_ref().err().copied());
        answer
    }

    fn entry(&self, known: Result<Known, Fault>) -> Result<Entry, Errno> {
        known.map(|known| entry(&known)).map_err(|fault| self.errno(fault))
    }

    fn opened(&self, opened: Result<flatout_tree::Opened, Fault>) -> Result<Opened, Errno> {
        let opened = opened.map_err(|fault| self.errno(fault))?;
        // The caller's `O_DIRECT` is in it already.
        let flatout_tree::Opened { handle, direct, keep_cache, is_news } = opened;
        Ok(Opened { handle, direct, keep_cache, is_news })
    }
}

impl Files for Served {
    fn lookup(&self, parent: u64, name: &OsStr) -> Result<Entry, Errno> {
        self.waited(Timed::Lookup, || self.entry(self.tree.lookup(parent, name)))
    }

    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Entry, Errno>> {
        self.timed(Timed::Lookup, || self.tree.lookup_known(parent, name).map(|known| self.entry(known)))
    }

    fn negative_lifetime(&self) -> Duration {
        self.tree.negative_lifetime()
    }

    fn attributes(&self, node: u64) -> Result<Entry, Errno> {
        self.waited(Timed::Attributes, || self.entry(self.tree.attributes(node)))
    }

    fn attributes_known(&self, node: u64) -> Option<Result<Entry, Errno>> {
        self.timed(Timed::Attributes, || self.tree.attributes_known(node).map(|known| self.entry(known)))
    }

    fn forget(&self, node: u64, times: u64) {
        self.tree.forget(node, times);
    }

    fn open_folder(&self, node: u64) -> Result<u64, Errno> {
        self.tree.open_folder(node).map_err(|fault| self.errno(fault))
    }

    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&OsStr, &Entry, u64) -> bool,
    ) -> Result<(), Errno> {
        self.waited(Timed::ReadFolder, || {
            self.tree
                .read_folder(handle, offset, plus, &mut |line| {
                    each(line.name, &entry(&line.known), line.next)
                })
                .map_err(|fault| self.errno(fault))
        })
    }

    fn release_folder(&self, handle: u64) {
        self.tree.release_folder(handle);
    }

    fn open(&self, node: u64, direct: bool) -> Result<Opened, Errno> {
        self.waited(Timed::Open, || self.opened(self.tree.open(node, direct)))
    }

    fn open_known(&self, node: u64, direct: bool) -> Option<Result<Opened, Errno>> {
        self.timed(Timed::Open, || self.tree.open_known(node, direct).map(|opened| self.opened(opened)))
    }

    fn read(&self, handle: u64, at: u64, bytes: usize, answer: ReadAnswer) -> Option<Cancel> {
        let (told, refused) = (self.tell.clone(), answer.clone());
        let (timings, began) = (self.timings.clone(), Instant::now());
        let done = move |read: Result<flatout_tree::Pieces, Fault>| {
            let errno = match read {
                Ok(pieces) => {
                    answer.send(pieces.slices());
                    None
                }
                Err(fault) => {
                    let errno = tell(&told, fault);
                    answer.fail(errno);
                    Some(errno)
                }
            };
            timings.answered(Timed::Read, began, errno);
        };
        match self.tree.read(handle, at, bytes, done) {
            Ok(reading) if reading.is_over() => None,
            Ok(reading) => Some(Box::new(move || {
                // Where it was too late, what came finds the request answered.
                reading.cancel();
            })),
            Err(fault) => {
                refused.fail(self.errno(fault));
                None
            }
        }
    }

    fn release(&self, handle: u64) {
        self.tree.release(handle);
    }

    fn statfs(&self) -> Statfs {
        let all = self.tree.statfs();
        Statfs {
            block_bytes: all.block_bytes,
            blocks: all.blocks,
            free_blocks: all.blocks,
            files: all.files,
            free_files: all.files,
            longest_name: all.name_bytes_max,
        }
    }
}

fn tell(tell: &Tell, fault: Fault) -> Errno {
    if let Some(cause) = &fault.cause {
        tell(cause);
    }
    fault.errno
}

fn entry(known: &Known) -> Entry {
    let of = &known.attributes;
    Entry {
        attributes: Attributes {
            node: of.ino,
            size: of.size,
            modified_s: of.modified_s,
            changed_s: of.changed_s,
            folder: of.kind == FileKind::Folder,
            mode: of.mode,
            uid: of.uid,
            gid: of.gid,
            links: of.links,
        },
        lifetime: known.lifetime,
    }
}
