//! The tree as what a session serves: answers are timed, and faults become an errno, told with their reason.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flatout_engine::Error;
use flatout_tree::{Fault, FolderEntry, Known, Opened, Statfs, Tree};

use crate::answer::ReadAnswer;
use crate::files::{Cancel, Errno, Files};
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

    fn told<T>(&self, answer: Result<T, Fault>) -> Result<T, Errno> {
        answer.map_err(|fault| tell(&self.tell, fault))
    }
}

impl Files for Served {
    fn lookup(&self, parent: u64, name: &OsStr) -> Result<Known, Errno> {
        self.waited(Timed::Lookup, || self.told(self.tree.lookup(parent, name)))
    }

    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Known, Errno>> {
        self.timed(Timed::Lookup, || self.tree.lookup_known(parent, name).map(|known| self.told(known)))
    }

    fn negative_lifetime(&self) -> Duration {
        self.tree.negative_lifetime()
    }

    fn attributes(&self, node: u64) -> Result<Known, Errno> {
        self.waited(Timed::Attributes, || self.told(self.tree.attributes(node)))
    }

    fn attributes_known(&self, node: u64) -> Option<Result<Known, Errno>> {
        self.timed(Timed::Attributes, || self.tree.attributes_known(node).map(|known| self.told(known)))
    }

    fn forget(&self, node: u64, times: u64) {
        self.tree.forget(node, times);
    }

    fn open_folder(&self, node: u64) -> Result<u64, Errno> {
        self.told(self.tree.open_folder(node))
    }

    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        self.waited(Timed::ReadFolder, || self.told(self.tree.read_folder(handle, offset, plus, each)))
    }

    fn release_folder(&self, handle: u64) {
        self.tree.release_folder(handle);
    }

    fn open(&self, node: u64, direct: bool) -> Result<Opened, Errno> {
        self.waited(Timed::Open, || self.told(self.tree.open(node, direct)))
    }

    fn open_known(&self, node: u64, direct: bool) -> Option<Result<Opened, Errno>> {
        self.timed(Timed::Open, || self.tree.open_known(node, direct).map(|opened| self.told(opened)))
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
                let errno = tell(&self.tell, fault);
                refused.fail(errno);
                self.timings.answered(Timed::Read, began, Some(errno));
                None
            }
        }
    }

    fn release(&self, handle: u64) {
        self.tree.release(handle);
    }

    fn statfs(&self) -> Statfs {
        self.tree.statfs()
    }
}

fn tell(tell: &Tell, fault: Fault) -> Errno {
    if let Some(cause) = &fault.cause {
        tell(cause);
    }
    fault.errno
}
