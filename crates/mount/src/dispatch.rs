//! From a request to its answer: at once from memory, later on a thread of the engine's `BlockingPool`, or a
//! refusal.

mod posix;

use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flatout_engine::BlockingPool;
use flatout_tree::{Caller, Files, FsError, Node, OpenMode, OpenedFile, Slices, WriteMoment};
use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;

use crate::abi::{fopen, notify};
use crate::connection::{FuseConnection, FuseReply};
use crate::interrupts::Interrupts;
use crate::processes;
use crate::reply::{self, DirectoryBuffer};
use crate::request::{FuseOperation, FuseRequest, Malformed};
use crate::timings::{Observer, Timed};

/// Answers the requests of one connection.
pub(crate) struct Dispatcher<F> {
    pub connection: Arc<FuseConnection>,
    pub files: Arc<F>,
    pub blocking_pool: BlockingPool,
    /// For writes that wait for room: whoever gives room, by a close, must find a thread.
    pub write_pool: BlockingPool,
    pub interrupts: Interrupts,
    pub observer: Observer,
    /// The most bytes that a read may ask for.
    pub request_bytes: usize,
    /// Whether the kernel's thread numbers are those of this process's namespace.
    pub knows_pids: bool,
}

impl<F: Files> Dispatcher<F> {
    /// Answers one request, now or later. It returns without a panic, whatever the bytes are and whatever the
    /// files do.
    pub fn serve(&self, bytes: &[u8]) {
        self.connection.counts.request();
        match FuseRequest::parse(bytes) {
            Ok(request) => {
                let unique = request.unique;
                if !matches!(request.operation, FuseOperation::Forget(_) | FuseOperation::Interrupt { .. }) {
                    self.connection.was_read(unique);
                }
                if request.is_resent() {
                    self.files.take_back(request.number());
                }
                let panicked = catch_unwind(AssertUnwindSafe(|| self.answer(request))).is_err();
                // A read answers itself when its last reply is dropped. If there was an answer, or there is
                // to be none, the kernel ignores this one.
                if panicked && !matches!(request.operation, FuseOperation::Read { .. }) {
                    self.connection.counts.defect();
                    self.connection.fail(unique, Errno::IO.raw_os_error());
                }
            }
            Err(malformed) => {
                self.connection.counts.malformed();
                if let Malformed::Body { unique, answered: true } = malformed {
                    self.connection.fail(unique, Errno::INVAL.raw_os_error());
                }
            }
        }
    }

    /// Whether a request has an answer: the others are never sent again.
    pub fn is_answered(&self, bytes: &[u8]) -> bool {
        !matches!(FuseRequest::parse(bytes), Ok(FuseRequest { operation: FuseOperation::Forget(_), .. }))
    }

    fn answer(&self, request: FuseRequest<'_>) {
        let (unique, node) = (request.unique, request.node);
        let refuse = |errno: Errno| {
            self.connection.fail(unique, errno.raw_os_error());
        };
        match request.operation {
            FuseOperation::Lookup { name } => self.lookup(&request, name),
            FuseOperation::Attributes => self.attributes(&request),
            FuseOperation::Forget(forgets) => {
                forgets.pairs().for_each(|(node, times)| self.files.forget(node, times));
            }
            FuseOperation::Open { flags } => self.open(&request, flags),
            FuseOperation::Read { handle, at, bytes } => self.read(&request, handle, at, bytes),
            FuseOperation::Release { handle } => self.release(&request, handle),
            FuseOperation::Create { flags, permissions, name } => {
                self.create(&request, OpenMode { permissions, ..open_mode(flags) }, flags, name);
            }
            FuseOperation::Write { handle, at, bytes } => self.write(&request, handle, at, bytes),
            FuseOperation::Flush { handle } => {
                let caller = self.caller(&request);
                if let Some(flushed) = self.files.flush_known(handle, caller) {
                    match flushed.map_err(|error| self.observer.errno(error)) {
                        Ok(()) => self.connection.answer(unique, &[]),
                        Err(errno) => self.connection.fail(unique, errno),
                    };
                    return;
                }
                self.change(&request, Timed::Publish, move |files| files.flush(handle, caller));
            }
            FuseOperation::Sync { handle } => {
                self.change(&request, Timed::Publish, move |files| files.sync(handle));
            }
            FuseOperation::SetAttributes(changes) => {
                self.wait(&request, move |own, reply| {
                    let began = Instant::now();
                    let changed = own.files.change_attributes(node, changes);
                    match own.observer.answered(Timed::Change, began, changed) {
                        Ok(node) => {
                            reply.send(&reply::attr(&node));
                        }
                        Err(errno) => reply.fail(errno),
                    }
                });
            }
            FuseOperation::RemoveFile { name } => {
                let (name, again) = (name.to_owned(), request.is_resent());
                self.change(&request, Timed::Change, move |files| {
                    gone_already(again, files.remove_file(node, &name))
                });
            }
            FuseOperation::RemoveFolder { name } => {
                let (name, again) = (name.to_owned(), request.is_resent());
                self.change(&request, Timed::Change, move |files| {
                    gone_already(again, files.remove_folder(node, &name))
                });
            }
            FuseOperation::MakeFolder { permissions, name } => {
                let (name, again, caller) = (name.to_owned(), request.is_resent(), self.caller(&request));
                self.wait(&request, move |own, reply| {
                    let began = Instant::now();
                    let made = own.files.make_folder(node, &name, permissions, caller);
                    let made = made_already(again, made, || own.files.lookup(node, &name));
                    let made = own.observer.answered(Timed::Change, began, made);
                    own.found(made, |body| reply.send(body), |errno| reply.fail(errno));
                });
            }
            FuseOperation::Rename { name, new_parent, new_name, flags } => {
                let flags = RenameFlags::from_bits_retain(flags);
                if flags.difference(RenameFlags::NOREPLACE) != RenameFlags::empty() {
                    return refuse(Errno::INVAL);
                }
                let exclusive = flags.contains(RenameFlags::NOREPLACE);
                let (name, new_name, again) = (name.to_owned(), new_name.to_owned(), request.is_resent());
                self.change(&request, Timed::Change, move |files| {
                    let (from, to) = ((node, &*name), (new_parent, &*new_name));
                    let since = Instant::now();
                    loop {
                        match files.rename(from, to, exclusive) {
                            Err(error) if again && is_absent(&error) => {
                                return if files.was_renamed(from, to)? { Ok(()) } else { Err(error) };
                            }
                            // What the process before had begun is being ended.
                            Err(error) if again && is_busy(&error) && since.elapsed() < ENDS_WITHIN => {
                                std::thread::sleep(LOOK_AGAIN);
                            }
                            renamed => return renamed,
                        }
                    }
                });
            }
            FuseOperation::OpenFolder => match self.files.open_folder(node) {
                Ok(handle) => {
                    self.files.keep_folder(handle, request.number());
                    if !self.connection.answer(unique, &reply::open(handle, 0)) {
                        self.files.release_folder(handle);
                    }
                }
                Err(error) => {
                    self.connection.fail(unique, self.observer.errno(error));
                }
            },
            FuseOperation::ReadFolder { handle, offset, bytes, plus } => {
                self.read_folder(&request, handle, offset, bytes, plus);
            }
            FuseOperation::ReleaseFolder { handle } => {
                self.files.release_folder(handle);
                self.connection.answer(unique, &[]);
            }
            FuseOperation::Statfs => {
                self.connection.answer(unique, &reply::statfs(&self.files.statfs()));
            }
            FuseOperation::SyncFolder | FuseOperation::Destroy => {
                self.connection.answer(unique, &[]);
            }
            FuseOperation::Interrupt { unique: about } => self.interrupt(unique, about),
            FuseOperation::MakeFile { permissions, name } => {
                let (name, again, caller) = (name.to_owned(), request.is_resent(), self.caller(&request));
                let mode = OpenMode { writes: true, permissions, ..OpenMode::default() };
                self.wait(&request, move |own, reply| {
                    let began = Instant::now();
                    let made =
                        own.files.create(node, &name, true, mode, caller).and_then(|(node, opened)| {
                            let published = own.files.sync(opened.handle);
                            own.released(node.id, opened.handle);
                            published.map(|()| node).inspect_err(|_| own.files.forget(node.id, 1))
                        });
                    let made = made_already(again, made, || own.files.lookup(node, &name));
                    let made = own.observer.answered(Timed::Change, began, made);
                    own.found(made, |body| reply.send(body), |errno| reply.fail(errno));
                });
            }
            FuseOperation::MakeLink { .. }
            | FuseOperation::ReadLink
            | FuseOperation::Xattr { .. }
            | FuseOperation::Xattrs { .. }
            | FuseOperation::SetXattr { .. } => self.posix(&request),
            FuseOperation::Ioctl => refuse(Errno::NOTTY),
            FuseOperation::Refused => refuse(Errno::OPNOTSUPP),
            // A connection has one INIT, which was answered.
            FuseOperation::Init(_) => refuse(Errno::PROTO),
            // The kernel asks once, and does without from then on: it checks permissions by itself, has no
            // extended attributes, and takes files as without holes and always ready.
            FuseOperation::Unknown { .. } => refuse(Errno::NOSYS),
        }
    }

    fn lookup(&self, request: &FuseRequest<'_>, name: &OsStr) {
        let (unique, parent, began) = (request.unique, request.node, Instant::now());
        if let Some(found) = self.files.lookup_known(parent, name) {
            let found = self.observer.answered(Timed::Lookup, began, found);
            let send = |body: &[u8]| self.connection.answer(unique, body);
            return self.found(found, send, |errno| {
                self.connection.fail(unique, errno);
            });
        }
        let name = name.to_owned();
        self.wait(request, move |own, reply| {
            let began = Instant::now();
            let found = own.observer.answered(Timed::Lookup, began, own.files.lookup(parent, &name));
            own.found(found, |body| reply.send(body), |errno| reply.fail(errno));
        });
    }

    fn found(&self, found: Result<Node, i32>, send: impl FnOnce(&[u8]) -> bool, fail: impl FnOnce(i32)) {
        let known_for = self.files.negative_lifetime();
        match found {
            Ok(node) => {
                if !send(&reply::entry(&node)) {
                    self.files.forget(node.id, 1);
                }
            }
            Err(errno) if errno == Errno::NOENT.raw_os_error() && !known_for.is_zero() => {
                send(&reply::absent(known_for));
            }
            Err(errno) => fail(errno),
        }
    }

    fn attributes(&self, request: &FuseRequest<'_>) {
        let (unique, node, began) = (request.unique, request.node, Instant::now());
        let Some(known) = self.files.attributes_known(node) else {
            return self.wait(request, move |own, reply| {
                let began = Instant::now();
                match own.observer.answered(Timed::Attributes, began, own.files.attributes(node)) {
                    Ok(node) => {
                        reply.send(&reply::attr(&node));
                    }
                    Err(errno) => reply.fail(errno),
                }
            });
        };
        match self.observer.answered(Timed::Attributes, began, known) {
            Ok(node) => self.connection.answer(unique, &reply::attr(&node)),
            Err(errno) => self.connection.fail(unique, errno),
        };
    }

    fn open(&self, request: &FuseRequest<'_>, flags: u32) {
        let (unique, node, began) = (request.unique, request.node, Instant::now());
        let (mode, number) = (open_mode(flags), request.number());
        let caller = self.caller(request);
        let Some(opened) = self.files.open_known(node, mode) else {
            return self.wait(request, move |own, reply| {
                let began = Instant::now();
                let opened = own.observer.answered(Timed::Open, began, own.files.open(node, mode, caller));
                own.opened((node, number), opened, |body| reply.send(body), |errno| reply.fail(errno));
            });
        };
        let opened = self.observer.answered(Timed::Open, began, opened);
        let send = |body: &[u8]| self.connection.answer(unique, body);
        self.opened((node, number), opened, send, |errno| {
            self.connection.fail(unique, errno);
        });
    }

    fn create(&self, request: &FuseRequest<'_>, mode: OpenMode, flags: u32, name: &OsStr) {
        let (parent, name, caller) = (request.node, name.to_owned(), self.caller(request));
        let number = request.number();
        let exclusive = OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
        self.wait(request, move |own, reply| {
            let began = Instant::now();
            let created =
                own.files.create(parent, &name, exclusive, OpenMode { writes: true, ..mode }, caller);
            match own.observer.answered(Timed::Open, began, created) {
                Ok((node, opened)) => {
                    own.notify_changed(node.id, &opened);
                    own.files.keep_file(opened.handle, number);
                    if !reply.send(&reply::create(&node, opened.handle, open_flags(&opened))) {
                        own.given_up(node.id, opened.handle);
                        own.files.forget(node.id, 1);
                    }
                }
                Err(errno) => reply.fail(errno),
            }
        });
    }

    /// A write that has to wait is copied: the buffer is needed for the next request.
    fn write(&self, request: &FuseRequest<'_>, handle: u64, at: u64, bytes: &[u8]) {
        let (unique, began, caller) = (request.unique, Instant::now(), self.caller(request));
        self.connection.counts.write_asked(bytes.len());
        if let Some(written) = self.files.write_known(handle, at, bytes, caller) {
            match self.observer.answered(Timed::Write, began, written) {
                Ok(has_changed) => {
                    self.forget_attributes_if(has_changed, request.node);
                    self.connection.answer(unique, &reply::write(bytes.len()))
                }
                Err(errno) => self.connection.fail(unique, errno),
            };
            return;
        }
        let (bytes, node) = (bytes.to_vec(), request.node);
        self.wait_on(&self.write_pool, request, move |own, reply| {
            let (began, mut is_taken) = (Instant::now(), false);
            let mut goes_on = |moment| match moment {
                WriteMoment::Wait => is_taken || !reply.is_answered(),
                WriteMoment::Take => {
                    is_taken = is_taken || reply.take();
                    is_taken
                }
            };
            let written = own.files.write(handle, at, &bytes, caller, &mut goes_on);
            let answer = own.observer.answered(Timed::Write, began, written);
            own.forget_attributes_if(answer == Ok(true), node);
            match (answer, is_taken) {
                (Ok(_), true) => reply.send_taken(Ok(&reply::write(bytes.len()))),
                (Err(errno), true) => reply.send_taken(Err(errno)),
                (Ok(_), false) => {
                    reply.send(&reply::write(bytes.len()));
                }
                (Err(errno), false) => reply.fail(errno),
            }
        });
    }

    fn release(&self, request: &FuseRequest<'_>, handle: u64) {
        let node = request.node;
        if !self.files.release_waits(handle) {
            self.released(node, handle);
            self.connection.answer(request.unique, &[]);
            return;
        }
        self.wait(request, move |own, reply| {
            own.released(node, handle);
            reply.send(&[]);
        });
    }

    /// A failure goes to the log alone. The kernel forgets the attributes of a file that was not
    /// published.
    fn released(&self, node: u64, handle: u64) {
        self.on_released(node, self.files.release(handle));
    }

    /// The kernel did not take the answer to an open.
    fn given_up(&self, node: u64, handle: u64) {
        self.on_released(node, self.files.release_unopened(handle));
    }

    fn on_released(&self, node: u64, released: Result<(), FsError>) {
        if let Err(error) = released {
            self.observer.errno(error);
            self.forget_attributes_if(true, node);
        }
    }

    /// An operation whose answer has no body. It may wait.
    fn change(
        &self,
        request: &FuseRequest<'_>,
        operation: Timed,
        work: impl FnOnce(&F) -> Result<(), FsError> + Send + 'static,
    ) {
        self.wait(request, move |own, reply| {
            let began = Instant::now();
            match own.observer.answered(operation, began, work(&own.files)) {
                Ok(()) => {
                    reply.send(&[]);
                }
                Err(errno) => reply.fail(errno),
            }
        });
    }

    /// Who waits for the answer.
    fn caller(&self, request: &FuseRequest<'_>) -> Caller {
        let FuseRequest { uid, gid, .. } = *request;
        Caller { thread: self.pid(request), look: processes::look, uid, gid }
    }

    fn opened(
        &self,
        (node, request): (u64, u64),
        opened: Result<OpenedFile, i32>,
        send: impl FnOnce(&[u8]) -> bool,
        fail: impl FnOnce(i32),
    ) {
        match opened {
            Ok(opened) => {
                self.notify_changed(node, &opened);
                self.files.keep_file(opened.handle, request);
                if !send(&open_out(&opened)) {
                    self.given_up(node, opened.handle);
                }
            }
            Err(errno) => fail(errno),
        }
    }

    /// Before an open is answered: the answer has no attributes.
    fn notify_changed(&self, node: u64, opened: &OpenedFile) {
        self.forget_attributes_if(opened.has_changed, node);
    }

    /// Makes the kernel ask for the attributes again. With a negative offset it forgets only these, and no
    /// pages, so it does not wait (`fuse_reverse_inval_inode` in fs/fuse/inode.c).
    fn forget_attributes_if(&self, has_changed: bool, node: u64) {
        if has_changed {
            self.connection.device.notify(notify::INVAL_INODE, &[&reply::inval_inode(node, -1, 0)]);
        }
    }

    fn read(&self, request: &FuseRequest<'_>, handle: u64, at: u64, bytes: u32) {
        self.connection.counts.read_asked(bytes);
        let bytes = (bytes as usize).min(self.request_bytes);
        if self.files.is_written(handle, at, bytes) {
            return self.wait(request, move |own, reply| {
                let began = Instant::now();
                let read = own.files.read_written(handle, at, bytes);
                match own.observer.answered(Timed::Read, began, read) {
                    Ok(read) => reply.send_slices(std::iter::once(&read[..]), bytes),
                    Err(errno) => reply.fail(errno),
                }
            });
        }
        let (reply, began) = (self.connection.wait(request.unique, self.pid(request)), Instant::now());
        let (own, observer) = (reply.clone(), self.observer.clone());
        let done = move |read: Result<Slices<'_, '_>, FsError>| {
            let errno = match read {
                Ok(slices) => {
                    own.send_slices(slices, bytes);
                    None
                }
                Err(error) => {
                    let errno = observer.errno(error);
                    own.fail(errno);
                    Some(errno)
                }
            };
            observer.timings.answered(Timed::Read, began, errno);
        };
        if let Some(cancel) = self.files.read(handle, at, bytes, done) {
            reply.on_interrupt(cancel);
        }
    }

    fn read_folder(&self, request: &FuseRequest<'_>, handle: u64, offset: u64, bytes: u32, plus: bool) {
        let most = (bytes as usize).min(self.request_bytes);
        self.wait(request, move |own, reply| {
            let (mut names, mut full, began) =
                (DirectoryBuffer::new(most, plus, own.files.has_xattrs()), false, Instant::now());
            let read = own.files.read_folder(handle, offset, plus, &mut |line| {
                full = !names.push(line);
                !full
            });
            match own.observer.answered(Timed::ReadFolder, began, read) {
                // The names that there are go first; the error comes again with the next request.
                Err(errno) if names.bytes().is_empty() => reply.fail(errno),
                // No bytes would mean that the folder ends here.
                Ok(()) if full && names.bytes().is_empty() => reply.fail(Errno::INVAL.raw_os_error()),
                _ => {
                    if !reply.send(names.bytes()) {
                        names.counted().iter().for_each(|&node| own.files.forget(node, 1));
                    }
                }
            }
        });
    }

    /// An INTERRUPT is answered only if its request is not known. Another thread may have read the request
    /// and not noted it yet: the kernel repeats an INTERRUPT that is answered EAGAIN, unless the request was
    /// answered (Documentation/filesystems/fuse, "Interrupting filesystem operations").
    fn interrupt(&self, unique: u64, about: u64) {
        match self.connection.waiting(about) {
            Some(request) => self.interrupts.on_signal(&request),
            None => {
                self.connection.device.fail(unique, Errno::AGAIN.raw_os_error());
            }
        }
    }

    /// The waiting thread; 0 if that is not known.
    fn pid(&self, request: &FuseRequest<'_>) -> u32 {
        if self.knows_pids { request.pid } else { 0 }
    }

    /// Continues on a thread of the engine's `BlockingPool`, so that this one can read the next request.
    fn wait(&self, request: &FuseRequest<'_>, work: impl FnOnce(&Dispatcher<F>, FuseReply) + Send + 'static) {
        self.wait_on(&self.blocking_pool, request, work);
    }

    fn wait_on(
        &self,
        pool: &BlockingPool,
        request: &FuseRequest<'_>,
        work: impl FnOnce(&Dispatcher<F>, FuseReply) + Send + 'static,
    ) {
        let reply = self.connection.wait(request.unique, self.pid(request));
        let own = self.clone();
        pool.run(move || {
            // A request that was interrupted in the queue is answered.
            if !reply.is_answered() {
                work(&own, reply);
            }
        });
    }
}

impl<F> Clone for Dispatcher<F> {
    fn clone(&self) -> Dispatcher<F> {
        Dispatcher {
            connection: self.connection.clone(),
            files: self.files.clone(),
            blocking_pool: self.blocking_pool.clone(),
            write_pool: self.write_pool.clone(),
            interrupts: self.interrupts.clone(),
            observer: self.observer.clone(),
            request_bytes: self.request_bytes,
            knows_pids: self.knows_pids,
        }
    }
}

/// How long a rename that is asked for again waits for the end of what was begun.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

fn is_busy(error: &FsError) -> bool {
    error.errno == Errno::BUSY.raw_os_error()
}

fn is_absent(error: &FsError) -> bool {
    error.errno == Errno::NOENT.raw_os_error()
}

/// What was to be removed is gone: where it is asked for again, the process before has done it.
fn gone_already(again: bool, removed: Result<(), FsError>) -> Result<(), FsError> {
    removed.or_else(|error| if again && is_absent(&error) { Ok(()) } else { Err(error) })
}

/// What was to be made is there: where it is asked for again, the process before has done it.
fn made_already(
    again: bool,
    made: Result<Node, FsError>,
    look: impl FnOnce() -> Result<Node, FsError>,
) -> Result<Node, FsError> {
    match made {
        Err(error) if again && error.errno == Errno::EXIST.raw_os_error() => look(),
        made => made,
    }
}

fn open_out(opened: &OpenedFile) -> [u8; crate::abi::size::OPEN_OUT] {
    reply::open(opened.handle, open_flags(opened))
}

fn open_flags(opened: &OpenedFile) -> u32 {
    let direct = if opened.direct { fopen::DIRECT_IO } else { 0 };
    let keep = if opened.keep_cache { fopen::KEEP_CACHE } else { 0 };
    // What is only read has nothing to flush.
    let flush = if opened.is_written { 0 } else { fopen::NOFLUSH };
    direct | keep | flush
}

fn open_mode(flags: u32) -> OpenMode {
    let flags = OFlags::from_bits_retain(flags);
    let access = flags & OFlags::RWMODE;
    OpenMode {
        reads: access != OFlags::WRONLY,
        writes: access != OFlags::RDONLY,
        truncates: flags.contains(OFlags::TRUNC),
        direct: flags.contains(OFlags::DIRECT),
        permissions: 0,
    }
}
