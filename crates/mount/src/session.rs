//! A session: one mount from its INIT to its end, the threads that read its requests, and the ways to end it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flatout_engine::{BlockingPool, Error, ErrorKind};
use flatout_tree::{Files, SharedTable};
use rustix::io::Errno;

use crate::abi;
use crate::attach::{Attached, attach};
use crate::connection::FuseConnection;
use crate::counts::SessionStats;
use crate::device::{ConnectionEnd, Device, DeviceRead};
use crate::dispatch::Dispatcher;
use crate::holders::{self, MountHolder};
use crate::identity::{MountIdentity, local};
use crate::image::{self, DetachedRoot};
use crate::init::{Negotiated, SessionLimits, SessionParameters, negotiate};
use crate::interrupts::Interrupts;
use crate::options::Options;
use crate::request::{FuseOperation, FuseRequest};
use crate::takeover::SharedMemory;
use crate::timings::Observer;
use crate::{tuning, unmount};

/// The kernel hands out requests only to a buffer with room for a header and a write.
const HEADER_BYTES: usize = 4096;
/// At the end, threads that still wait for an origin get this long. Later they end by themselves.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// A mount that is not served yet: programs that look at it wait. Dropping it unmounts it.
#[derive(Debug)]
pub struct UnservedMount {
    attached: Option<Attached>,
    options: Options,
}

/// What the kernel granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The protocol's minor version: 7.x.
    pub minor: u32,
    /// The most bytes of one read.
    pub request_bytes: u32,
    /// How far the kernel reads ahead in a file, in bytes, if known.
    pub read_ahead_bytes: Option<u64>,
    /// How many readahead requests may be pending.
    pub max_background: u16,
    /// Files that are open for direct I/O may be mapped.
    pub direct_mmap: bool,
    /// The device number of the mount's files: major, minor.
    pub device: Option<(u32, u32)>,
    /// How many threads read requests.
    pub threads: usize,
    /// The command to run as root if the kernel reads ahead less than was asked for: buffered reads stay
    /// small until then.
    pub remedy: Option<String>,
}

impl std::fmt::Display for Granted {
    /// For a log: `FUSE 7.45, requests of 1024 KiB, 4096 KiB read ahead, 128 of these waiting, 2 threads`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FUSE 7.{}, requests of {} KiB, ", self.minor, self.request_bytes >> 10)?;
        match self.read_ahead_bytes {
            Some(bytes) => write!(f, "{} KiB read ahead, ", bytes >> 10)?,
            None => f.write_str("an unknown readahead, ")?,
        }
        write!(f, "{} of these waiting, {} threads", self.max_background, self.threads)
    }
}

/// A served mount.
#[derive(Debug)]
pub struct Session {
    connection: Arc<FuseConnection>,
    blocking_pool: BlockingPool,
    write_pool: BlockingPool,
    interrupts: Interrupts,
    threads: Vec<JoinHandle<ConnectionEnd>>,
    /// One for each thread.
    pauses: Vec<Arc<Pause>>,
    serve: ServeOne,
    granted: Granted,
    unmounter: Unmounter,
}

/// A thread that answers nothing for a while, since another process is to.
#[derive(Debug, Default)]
struct Pause {
    is_asked_for: AtomicBool,
    /// The thread is at work on a request.
    is_busy: AtomicBool,
    /// The requests that have come since.
    left: Mutex<Option<Vec<Vec<u8>>>>,
}

impl Pause {
    fn left(&self) -> MutexGuard<'_, Option<Vec<Vec<u8>>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        *self.left() = Some(Vec::new());
        self.is_asked_for.store(true, Ordering::SeqCst);
    }

    /// The requests that have come.
    fn end(&self) -> Vec<Vec<u8>> {
        let mut left = self.left();
        self.is_asked_for.store(false, Ordering::SeqCst);
        left.take().unwrap_or_default()
    }

    /// `false` if it is over.
    fn leave(&self, request: &[u8]) -> bool {
        let mut left = self.left();
        left.as_mut().map(|left| left.push(request.to_vec())).is_some()
    }
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// It was unmounted.
    Unmounted,
    /// The connection was aborted.
    Aborted,
}

/// Ends a session from another thread, for example after a signal.
#[derive(Clone, Debug)]
pub struct Unmounter {
    identity: MountIdentity,
    /// Weak: an unmounter does not keep the connection open.
    connection: Weak<FuseConnection>,
    /// The session is over: a mount at its mount point is not ours.
    over: Arc<AtomicBool>,
    /// Another process goes on where this one breaks off.
    is_lasting: bool,
}

/// Mounts, by mount(2) where that is allowed, else by fusermount3; or takes over the descriptor of a mount
/// point `/dev/fd/N`.
pub fn mount(options: &Options) -> Result<UnservedMount, Error> {
    let attached = attach(options)?;
    Ok(UnservedMount { attached: Some(attached), options: options.clone() })
}

impl UnservedMount {
    /// A connection that is not mounted, for tests.
    #[doc(hidden)]
    pub fn of_descriptor(device: OwnedFd, options: Options) -> UnservedMount {
        let attached = Attached { device, identity: MountIdentity::default(), knows_pids: true, root: None };
        UnservedMount { attached: Some(attached), options }
    }

    /// A connection that serves an image, and its root: the caller mounts that.
    pub(crate) fn of_image(mut attached: Attached, options: Options) -> (UnservedMount, DetachedRoot) {
        let root = attached.root.take().expect("it serves an image");
        (UnservedMount { attached: Some(attached), options }, root)
    }

    /// Serves these files. INIT is done when this returns.
    pub fn serve<F: Files>(mut self, files: Arc<F>, observer: Observer) -> Result<Session, Error> {
        let source = self.options.source.clone();
        let Some(attached) = self.attached.take() else {
            return Err(Error::new(ErrorKind::Internal, "it is served already").during("mount", source));
        };
        let connection = FuseConnection::new(Device::new(attached.device));
        let unmounter = Unmounter::of(attached.identity, &connection, false);
        let served = first_request(&connection.device, &self.options).and_then(|agreed| {
            serve(connection, files, observer, &self.options, &unmounter, (agreed, attached.knows_pids))
        });
        let served = served.and_then(|session| {
            if let (Some(root), Some(image)) = (attached.root, self.options.image) {
                let shown = unmounter.identity.image.as_ref();
                let mounted = root.mount_image(&self.options, image, shown)?;
                image::place(&mounted, &self.options, image)?;
            }
            Ok(session)
        });
        if served.is_err() {
            // The first error says more than an error of this could.
            let _ = unmounter.unmount(true);
        }
        served.map_err(|error| error.during("mount", self.options.mount_point.display()))
    }
}

/// What a session goes on with.
pub(crate) struct TakeOver {
    pub parameters: SessionParameters,
    pub table: Arc<SharedMemory>,
    /// Another process has served the connection.
    pub takes_over: bool,
}

/// Serves a connection that had its answer to INIT, on a mount that outlives the session.
pub(crate) fn serve_lasting<F: Files>(
    (device, identity, knows_pids): (OwnedFd, MountIdentity, bool),
    files: Arc<F>,
    observer: Observer,
    options: &Options,
    lasting: TakeOver,
) -> Result<Session, Error> {
    let TakeOver { parameters, table, takes_over } = lasting;
    let resends = parameters.resends;
    let unanswered = (!resends).then_some(table as Arc<dyn SharedTable>);
    let connection = FuseConnection::of(Device::new(device), unanswered);
    let unmounter = Unmounter::of(identity, &connection, true);
    match (takes_over, resends) {
        (false, _) => {}
        // Before the first is read: what this process has read is sent again, too.
        (true, true) => drop(connection.device.notify(abi::notify::RESEND, &[])),
        (true, false) => connection.fail_unanswered(|unique| files.take_back(unique)),
    }
    serve(connection, files, observer, options, &unmounter, (parameters, knows_pids))
        .map_err(|error| error.during("mount", options.mount_point.display()))
}

impl Drop for UnservedMount {
    fn drop(&mut self) {
        if let Some(attached) = self.attached.take() {
            drop(attached.device);
            if let Some(point) = &attached.identity.point {
                let _ = unmount::detach(point, &attached.identity, true);
            }
        }
    }
}

fn serve<F: Files>(
    connection: Arc<FuseConnection>,
    files: Arc<F>,
    observer: Observer,
    options: &Options,
    unmounter: &Unmounter,
    (agreed, knows_pids): (SessionParameters, bool),
) -> Result<Session, Error> {
    let threads = options.reading_threads();
    let granted = tune(&agreed, options, unmounter.identity.device, threads);
    let dispatcher = Dispatcher {
        connection: connection.clone(),
        files,
        blocking_pool: BlockingPool::new("flatout-wait"),
        write_pool: BlockingPool::new("flatout-write"),
        interrupts: Interrupts::new(),
        observer,
        request_bytes: agreed.request_bytes as usize,
        knows_pids,
    };
    let (blocking_pool, interrupts) = (dispatcher.blocking_pool.clone(), dispatcher.interrupts.clone());
    let write_pool = dispatcher.write_pool.clone();
    let serves = dispatcher.clone();
    let serve = ServeOne(Arc::new(move |bytes| serves.serve(bytes)));
    // From here on, dropping the session ends what has begun.
    let mut session = Session {
        connection,
        blocking_pool,
        write_pool,
        interrupts,
        threads: Vec::new(),
        pauses: Vec::new(),
        serve,
        granted,
        unmounter: unmounter.clone(),
    };
    for at in 0..threads {
        let (dispatcher, unmounter, pause) = (dispatcher.clone(), unmounter.clone(), Arc::<Pause>::default());
        session.pauses.push(pause.clone());
        let buffer_bytes = agreed.write_bytes as usize + HEADER_BYTES;
        let thread = std::thread::Builder::new()
            .name(format!("flatout-fuse-{at}"))
            .spawn(move || read_requests(&dispatcher, unmounter, &pause, buffer_bytes))
            .map_err(|error| local("cannot start a thread", error))?;
        session.threads.push(thread);
    }
    Ok(session)
}

/// Answers INIT, once or twice.
pub(crate) fn first_request(device: &Device, options: &Options) -> Result<SessionParameters, Error> {
    let wanted = SessionLimits {
        max_background: options.max_background,
        read_ahead_bytes: options.read_ahead_bytes.unwrap_or(u64::MAX),
        pages_limit: tuning::pages_limit(),
        writes: options.writes(),
        page_bytes: rustix::param::page_size() as u32,
    };
    let mut buffer = vec![0; abi::MIN_READ_BUFFER];
    loop {
        let bytes = match device.next(&mut buffer) {
            DeviceRead::Request(bytes) => bytes,
            DeviceRead::End(ConnectionEnd::Broken(Errno::PERM)) => {
                return Err(Error::new(ErrorKind::Usage, "the connection is not mounted")
                    .with_hint("mount it with `fd=N` before it is handed over"));
            }
            DeviceRead::End(ConnectionEnd::Broken(errno)) => {
                return Err(local("cannot read requests", errno));
            }
            DeviceRead::End(_) => {
                return Err(Error::new(ErrorKind::LocalIo, "it was unmounted before it was served"));
            }
        };
        let init = match FuseRequest::parse(&buffer[..bytes]) {
            Ok(FuseRequest { unique, operation: FuseOperation::Init(init), .. }) => (unique, init),
            _ => {
                return Err(Error::new(ErrorKind::Usage, "the connection is in use already")
                    .with_hint("hand over one that nobody has served before"));
            }
        };
        match negotiate(&init.1, &wanted) {
            Negotiated::Agreed(body, agreed) => {
                device.answer(init.0, &body);
                return Ok(agreed);
            }
            Negotiated::Again(body) => drop(device.answer(init.0, &body)),
            Negotiated::Refused(why) => {
                device.fail(init.0, Errno::PROTO.raw_os_error());
                return Err(Error::new(ErrorKind::Unsupported, why).with_hint("a newer kernel is needed"));
            }
        }
    }
}

/// Has the kernel read as far ahead as `options` want, where it does not yet; what to do where this user may
/// not.
pub(crate) fn raise_read_ahead(
    agreed: &SessionParameters,
    options: &Options,
    device: Option<tuning::DeviceNumber>,
) -> Option<String> {
    let (device, wanted) = (device?, options.read_ahead_bytes?);
    let now = tuning::read_ahead(device).unwrap_or(agreed.read_ahead_bytes);
    let refused = wanted > now && tuning::set_read_ahead(device, wanted).is_err();
    refused.then(|| tuning::remedy(device, wanted))
}

/// Sets what INIT cannot. A refusal is no error; `Granted` says what to run.
fn tune(
    agreed: &SessionParameters,
    options: &Options,
    device: Option<tuning::DeviceNumber>,
    threads: usize,
) -> Granted {
    let remedy = raise_read_ahead(agreed, options, device);
    let read_ahead = device.and_then(tuning::read_ahead).or(Some(agreed.read_ahead_bytes));
    Granted {
        minor: agreed.minor,
        request_bytes: agreed.request_bytes,
        read_ahead_bytes: read_ahead,
        max_background: device.and_then(tuning::max_background).unwrap_or(options.max_background),
        direct_mmap: agreed.flags & abi::init::DIRECT_IO_ALLOW_MMAP != 0,
        device,
        threads,
        remedy,
    }
}

fn read_requests<F: Files>(
    dispatcher: &Dispatcher<F>,
    unmounter: Unmounter,
    pause: &Pause,
    buffer_bytes: usize,
) -> ConnectionEnd {
    /// A thread that leaves for another reason than the end of the connection ends it for all.
    struct EndAll(Option<Unmounter>);
    impl Drop for EndAll {
        fn drop(&mut self) {
            // On a mount that lasts the others serve on, and the last one ends the session.
            if let Some(unmounter) = self.0.as_ref().filter(|unmounter| !unmounter.is_lasting) {
                unmounter.end();
            }
        }
    }
    let mut end_all = EndAll(Some(unmounter));
    let mut buffer = vec![0; buffer_bytes.max(abi::MIN_READ_BUFFER)];
    loop {
        match dispatcher.connection.device.next(&mut buffer) {
            DeviceRead::Request(bytes) => {
                pause.is_busy.store(true, Ordering::SeqCst);
                let request = &buffer[..bytes];
                if !pause.is_asked_for.load(Ordering::SeqCst)
                    || !dispatcher.is_answered(request)
                    || !pause.leave(request)
                {
                    dispatcher.serve(request);
                }
                pause.is_busy.store(false, Ordering::SeqCst);
            }
            DeviceRead::End(end) => {
                if !matches!(end, ConnectionEnd::Broken(_)) {
                    end_all.0 = None;
                }
                return end;
            }
        }
    }
}

impl Session {
    /// What the kernel granted.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Its counters so far.
    pub fn stats(&self) -> SessionStats {
        stats(&self.connection, &self.blocking_pool)
    }

    /// A view of the session for other threads.
    pub fn watch(&self) -> SessionWatch {
        let (connection, blocking_pool) = (self.connection.clone(), self.blocking_pool.clone());
        SessionWatch { connection, blocking_pool, pauses: self.pauses.clone(), serve: self.serve.clone() }
    }

    /// A way to end it from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Serves until it is unmounted. Afterwards there is no mount point, and no thread, except one that an
    /// origin keeps waiting.
    pub fn wait(mut self) -> Result<SessionEnd, Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<SessionEnd, Error> {
        let mut ended = Ok(SessionEnd::Unmounted);
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(ConnectionEnd::Unmounted) => {}
                // Also the end of threads that were ended because another one broke; that one's reason
                // counts.
                Ok(ConnectionEnd::Aborted) => ended = ended.and(Ok(SessionEnd::Aborted)),
                Ok(ConnectionEnd::Broken(errno)) => ended = Err(local("cannot read requests", errno)),
                Err(_) => {
                    ended = Err(Error::new(ErrorKind::Internal, "a thread that reads requests panicked"));
                }
            }
        }
        self.interrupts.close();
        self.connection.interrupt_all();
        self.write_pool.close(LAST_WAIT);
        self.blocking_pool.close(LAST_WAIT);
        // An abort leaves the mount point; after umount(2), a mount there is not ours.
        if !matches!(ended, Ok(SessionEnd::Unmounted)) {
            let _ = self.unmounter.unmount(true);
        }
        self.unmounter.over.store(true, Ordering::Release);
        ended.map_err(|error| error.during("serve", self.place()))
    }

    fn place(&self) -> String {
        self.unmounter.identity.point.as_ref().map_or_else(String::new, |point| point.display().to_string())
    }
}

impl Drop for Session {
    /// Ends a session that was not waited for.
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        // Another process goes on with it.
        if self.unmounter.is_lasting {
            return;
        }
        // If it has ended by itself, its device number may be in use again.
        if self.threads.iter().all(JoinHandle::is_finished) || self.unmounter.end() {
            let _ = self.finish();
        }
    }
}

impl Unmounter {
    fn of(identity: MountIdentity, connection: &Arc<FuseConnection>, is_lasting: bool) -> Unmounter {
        let connection = Arc::downgrade(connection);
        Unmounter { identity, connection, over: Arc::default(), is_lasting }
    }

    /// Unmounts it; an error if it is in use. With `lazy` it is out of sight at once, and the session ends
    /// with its last user.
    pub fn unmount(&self, lazy: bool) -> Result<(), Error> {
        match &self.identity.point {
            Some(point) if !self.over.load(Ordering::Acquire) => unmount::detach(point, &self.identity, lazy)
                .map_err(|error| error.during("umount", point.display())),
            _ => Ok(()),
        }
    }

    /// The device number of what is mounted, major and minor, if it is known.
    pub fn device(&self) -> Option<tuning::DeviceNumber> {
        self.identity.shown()
    }

    /// What keeps an unmounted session from its end; empty if it is over. Waits at most two seconds.
    pub fn holders(&self) -> Vec<MountHolder> {
        let seen = match (self.identity.shown(), &self.identity.point) {
            (Some(device), Some(point)) => holders::holders(device, point),
            _ => Vec::new(),
        };
        // If it is over, its device number may be in use again.
        if self.over.load(Ordering::Acquire) { Vec::new() } else { seen }
    }

    /// Ends the session, with errors for its users, and unmounts it. `false` if the kernel allows neither.
    pub fn end(&self) -> bool {
        if self.over.load(Ordering::Acquire) {
            return true;
        }
        // As long as the connection exists, its number is not used again.
        let ours = || self.connection.upgrade().is_some_and(|connection| connection.device.is_connected());
        let aborted = self.identity.device.is_some_and(|device| tuning::abort(device, ours).is_ok());
        let unmounted = self.unmount(true).is_ok() && self.identity.point.is_some();
        aborted || unmounted
    }
}

/// A view of a session, for other threads.
#[derive(Clone, Debug)]
pub struct SessionWatch {
    connection: Arc<FuseConnection>,
    blocking_pool: BlockingPool,
    pauses: Vec<Arc<Pause>>,
    serve: ServeOne,
}

/// Answers the request of these bytes.
#[derive(Clone)]
struct ServeOne(Arc<ServeFn>);

type ServeFn = dyn Fn(&[u8]) + Send + Sync;

impl std::fmt::Debug for ServeOne {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServeOne")
    }
}

impl SessionWatch {
    /// Its counters so far.
    pub fn stats(&self) -> SessionStats {
        stats(&self.connection, &self.blocking_pool)
    }

    /// How long each pending request has waited.
    pub fn waits(&self) -> Vec<Duration> {
        self.connection.waits(Instant::now())
    }

    /// Answers no more requests: those that come wait for another process, to which the kernel sends them
    /// again ([`crate::LastingMount::resends`]), or for [`SessionWatch::resume`]. `true` once all that came
    /// before are answered, within `patience`.
    pub fn pause(&self, patience: Duration) -> bool {
        self.pauses.iter().for_each(|pause| pause.begin());
        let since = Instant::now();
        let is_busy = || {
            self.pauses.iter().any(|pause| pause.is_busy.load(Ordering::SeqCst))
                || self.connection.waiting_count() > 0
        };
        while is_busy() {
            if since.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Answers requests again, also those that came meanwhile.
    pub fn resume(&self) {
        for pause in &self.pauses {
            pause.end().iter().for_each(|request| (self.serve.0)(request));
        }
    }
}

fn stats(connection: &FuseConnection, blocking_pool: &BlockingPool) -> SessionStats {
    SessionStats {
        waiting: connection.waiting_count() as u64,
        pool_threads: blocking_pool.threads() as u64,
        ..connection.counts.stats()
    }
}
