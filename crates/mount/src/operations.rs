//! From a request to its answer: what is known at once, what waits on a thread of the engine's
//! `BlockingPool`, what is refused.

use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use flatout_engine::BlockingPool;
use flatout_tree::{Known, Opened};
use rustix::fs::OFlags;
use rustix::io::Errno as Number;

use crate::abi::{fopen, notify};
use crate::answer::{Link, ReadAnswer};
use crate::files::{Errno, Files};
use crate::interrupts::Interrupts;
use crate::reply::{self, Names};
use crate::request::{Malformed, Operation, Request};

/// All that answers the requests of one connection.
#[derive(Debug)]
pub(crate) struct Server<F> {
    pub link: Arc<Link>,
    pub files: Arc<F>,
    pub blocking_pool: BlockingPool,
    pub interrupts: Interrupts,
    /// The most bytes that a read may ask for.
    pub request_bytes: usize,
    /// Whether threads are named as this process names them.
    pub knows_pids: bool,
}

impl<F: Files> Server<F> {
    /// Answers one request, or sees to it that it will be. Whatever the bytes, and whatever the files do, this returns.
    pub fn serve(&self, bytes: &[u8]) {
        self.link.counts.request();
        match Request::parse(bytes) {
            Ok(request) => {
                let unique = request.unique;
                let panicked = catch_unwind(AssertUnwindSafe(|| self.answer(request))).is_err();
                // A read's ticket has seen to itself. Where there was an answer, or none is wanted, the kernel takes none.
                if panicked && !matches!(request.operation, Operation::Read { .. }) {
                    self.link.counts.defect();
                    self.link.fail(unique, Number::IO.raw_os_error());
                }
            }
            Err(malformed) => {
                self.link.counts.malformed();
                if let Malformed::Body { unique, answered: true } = malformed {
                    self.link.fail(unique, Number::INVAL.raw_os_error());
                }
            }
        }
    }

    fn answer(&self, request: Request<'_>) {
        let (unique, node) = (request.unique, request.node);
        let refuse = |number: Number| {
            self.link.fail(unique, number.raw_os_error());
        };
        match request.operation {
            Operation::Lookup { name } => self.lookup(&request, name),
            Operation::Attributes => self.attributes(&request),
            Operation::Forget(forgets) => {
                forgets.pairs().for_each(|(node, times)| self.files.forget(node, times));
            }
            Operation::Open { flags } => self.open(&request, flags),
            Operation::Read { handle, at, bytes } => self.read(&request, handle, at, bytes),
            Operation::Release { handle } => {
                self.files.release(handle);
                self.link.answer(unique, &[]);
            }
            Operation::OpenFolder => match self.files.open_folder(node) {
                Ok(handle) => {
                    if !self.link.answer(unique, &reply::open(handle, 0)) {
                        self.files.release_folder(handle);
                    }
                }
                Err(errno) => {
                    self.link.fail(unique, errno);
                }
            },
            Operation::ReadFolder { handle, offset, bytes, plus } => {
                self.read_folder(&request, handle, offset, bytes, plus);
            }
            Operation::ReleaseFolder { handle } => {
                self.files.release_folder(handle);
                self.link.answer(unique, &[]);
            }
            Operation::Statfs => {
                self.link.answer(unique, &reply::statfs(&self.files.statfs()));
            }
            Operation::Sync | Operation::Destroy => {
                self.link.answer(unique, &[]);
            }
            Operation::Interrupt { unique: about } => self.interrupt(unique, about),
            Operation::ReadLink => refuse(Number::INVAL),
            Operation::Ioctl => refuse(Number::NOTTY),
            Operation::Write => refuse(Number::ROFS),
            // A connection has one, and it was answered.
            Operation::Init(_) => refuse(Number::PROTO),
            // The kernel asks once, and from then on does what is right without asking: permissions by itself, no extended
            // attributes, holes by size, whatever may be read is ready.
            Operation::Unknown { .. } => refuse(Number::NOSYS),
        }
    }

    fn lookup(&self, request: &Request<'_>, name: &OsStr) {
        let parent = request.node;
        if let Some(found) = self.files.lookup_known(parent, name) {
            let link = &self.link;
            let send = |body: &[u8]| link.answer(request.unique, body);
            return self.found(found, send, |errno| {
                link.fail(request.unique, errno);
            });
        }
        let name = name.to_owned();
        self.wait(request, move |server, answer| {
            let found = server.files.lookup(parent, &name);
            server.found(found, |body| answer.send(body), |errno| answer.fail(errno));
        });
    }

    fn found(&self, found: Result<Known, Errno>, send: impl FnOnce(&[u8]) -> bool, fail: impl FnOnce(Errno)) {
        let known_for = self.files.negative_lifetime();
        match found {
            Ok(known) => {
                if !send(&reply::entry(&known)) {
                    self.files.forget(known.node, 1);
                }
            }
            Err(errno) if errno == Number::NOENT.raw_os_error() && !known_for.is_zero() => {
                send(&reply::absent(known_for));
            }
            Err(errno) => fail(errno),
        }
    }

    fn attributes(&self, request: &Request<'_>) {
        let node = request.node;
        match self.files.attributes_known(node) {
            Some(Ok(known)) => {
                self.link.answer(request.unique, &reply::attr(&known));
            }
            Some(Err(errno)) => {
                self.link.fail(request.unique, errno);
            }
            None => self.wait(request, move |server, answer| match server.files.attributes(node) {
                Ok(known) => {
                    answer.send(&reply::attr(&known));
                }
                Err(errno) => answer.fail(errno),
            }),
        }
    }

    fn open(&self, request: &Request<'_>, flags: u32) {
        let flags = OFlags::from_bits_retain(flags);
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC) {
            self.link.fail(request.unique, Number::ROFS.raw_os_error());
            return;
        }
        let (node, direct) = (request.node, flags.contains(OFlags::DIRECT));
        match self.files.open_known(node, direct) {
            Some(Ok(opened)) => {
                self.tell_news(node, &opened);
                if !self.link.answer(request.unique, &open_out(&opened)) {
                    self.files.release(opened.handle);
                }
            }
            Some(Err(errno)) => {
                self.link.fail(request.unique, errno);
            }
            None => self.wait(request, move |server, answer| match server.files.open(node, direct) {
                Ok(opened) => {
                    server.tell_news(node, &opened);
                    if !answer.send(&open_out(&opened)) {
                        server.files.release(opened.handle);
                    }
                }
                Err(errno) => answer.fail(errno),
            }),
        }
    }

    /// Before the open is answered: an answer to an open holds no attributes. A negative offset makes the kernel forget what it
    /// knows of the inode, and no page of it: that waits for nobody (`fuse_reverse_inval_inode` in fs/fuse/inode.c).
    fn tell_news(&self, node: u64, opened: &Opened) {
        if opened.is_news {
            self.link.device.notify(notify::INVAL_INODE, &[&reply::inval_inode(node, -1, 0)]);
        }
    }

    fn read(&self, request: &Request<'_>, handle: u64, at: u64, bytes: u32) {
        self.link.counts.read_asked(bytes);
        let bytes = (bytes as usize).min(self.request_bytes);
        let answer = self.link.wait(request.unique, self.pid(request));
        if let Some(cancel) = self.files.read(handle, at, bytes, ReadAnswer::new(answer.clone(), bytes)) {
            answer.on_interrupt(cancel);
        }
    }

    fn read_folder(&self, request: &Request<'_>, handle: u64, offset: u64, bytes: u32, plus: bool) {
        let most = (bytes as usize).min(self.request_bytes);
        self.wait(request, move |server, answer| {
            let mut names = Names::new(most, plus);
            let mut full = false;
            let read = server.files.read_folder(handle, offset, plus, &mut |line| {
                full = !names.push(line);
                !full
            });
            match read {
                // What is there is told first; the error comes again with the next question.
                Err(errno) if names.bytes().is_empty() => answer.fail(errno),
                // No bytes would mean that the folder ends here.
                Ok(()) if full && names.bytes().is_empty() => answer.fail(Number::INVAL.raw_os_error()),
                _ => {
                    if !answer.send(names.bytes()) {
                        names.counted().iter().for_each(|&node| server.files.forget(node, 1));
                    }
                }
            }
        });
    }

    /// An answer to an INTERRUPT itself is wanted only where the request is not known: it may be with another thread that has
    /// read it and got no further, and the kernel sends an INTERRUPT that is answered EAGAIN again. It does not where the request
    /// has been answered (Documentation/filesystems/fuse, "Interrupting filesystem operations").
    fn interrupt(&self, unique: u64, about: u64) {
        match self.link.waiting(about) {
            Some(ticket) => self.interrupts.on_signal(&ticket),
            None => {
                self.link.device.fail(unique, Number::AGAIN.raw_os_error());
            }
        }
    }

    /// The thread that waits; 0 where that is not known.
    fn pid(&self, request: &Request<'_>) -> u32 {
        if self.knows_pids { request.pid } else { 0 }
    }

    /// Goes on with a thread of the engine's `BlockingPool`, so that this one can read the next request.
    fn wait(
        &self,
        request: &Request<'_>,
        work: impl FnOnce(&Server<F>, crate::answer::Answer) + Send + 'static,
    ) {
        let answer = self.link.wait(request.unique, self.pid(request));
        let server = self.clone();
        self.blocking_pool.run(move || {
            // Who was interrupted in the queue wants nothing any more.
            if !answer.is_answered() {
                work(&server, answer);
            }
        });
    }
}

impl<F> Clone for Server<F> {
    fn clone(&self) -> Server<F> {
        Server {
            link: self.link.clone(),
            files: self.files.clone(),
            blocking_pool: self.blocking_pool.clone(),
            interrupts: self.interrupts.clone(),
            request_bytes: self.request_bytes,
            knows_pids: self.knows_pids,
        }
    }
}

fn open_out(opened: &Opened) -> [u8; crate::abi::size::OPEN_OUT] {
    let direct = if opened.direct { fopen::DIRECT_IO } else { 0 };
    let keep = if opened.keep_cache { fopen::KEEP_CACHE } else { 0 };
    // Nothing is written, so there is nothing to flush.
    reply::open(opened.handle, direct | keep | fopen::NOFLUSH)
}
