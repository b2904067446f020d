//! One mount from its INIT to its end: threads that read requests, and whoever ends them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flatout_engine::{BlockingPool, Error, ErrorKind};
use flatout_tree::Files;
use rustix::io::Errno;

use crate::abi;
use crate::attach::{Attached, attach};
use crate::connection::FuseConnection;
use crate::counts::SessionStats;
use crate::device::{Device, End, Next};
use crate::dispatch::Dispatcher;
use crate::holders::{self, Holder};
use crate::identity::{MountIdentity, local};
use crate::init::{Agreed, InitRequest, MAX_WRITE, Negotiated, negotiate};
use crate::interrupts::Interrupts;
use crate::options::Options;
use crate::request::{Operation, Request};
use crate::timings::Observer;
use crate::{tuning, unmount};

/// A header and a write must fit, or the kernel refuses to hand out any request.
const BUFFER_BYTES: usize = MAX_WRITE as usize + 4096;
/// At the end, whoever still waits for an origin is waited for no longer than this; it ends with its wait.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// What is mounted and not served yet: whoever looks at it waits. Unmounted when dropped.
#[derive(Debug)]
pub struct Mounted {
    attached: Option<Attached>,
    options: Options,
}

/// What the kernel granted, and what it reads ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Of the protocol 7.x.
    pub minor: u32,
    /// The most bytes of one read.
    pub request_bytes: u32,
    /// What the kernel reads ahead in one file, as far as it is known.
    pub read_ahead_bytes: Option<u64>,
    /// Requests of readahead that may wait at a time.
    pub max_background: u16,
    /// What is open for direct I/O may be mapped.
    pub direct_mmap: bool,
    /// What the mount's files have as their device: major, minor.
    pub device: Option<(u32, u32)>,
    /// Threads that read requests.
    pub threads: usize,
    /// What to run as root where less is read ahead than was asked for: buffered reads stay as small as the kernel's own.
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

/// A mount that is served.
#[derive(Debug)]
pub struct Session {
    connection: Arc<FuseConnection>,
    blocking_pool: BlockingPool,
    interrupts: Interrupts,
    threads: Vec<JoinHandle<End>>,
    granted: Granted,
    unmounter: Unmounter,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was unmounted, by whomever.
    Unmounted,
    /// Somebody aborted the connection.
    Aborted,
}

/// Ends a session from elsewhere: another thread, when a signal came.
#[derive(Clone, Debug)]
pub struct Unmounter {
    identity: MountIdentity,
    /// Nobody keeps the connection open only to end it.
    connection: Weak<FuseConnection>,
    /// The session is over: what is mounted there now is somebody else's.
    over: Arc<AtomicBool>,
}

/// Mounts, by mount(2) where that is allowed, else by fusermount3; or takes the `/dev/fd/N` that is named as mount point.
pub fn mount(options: &Options) -> Result<Mounted, Error> {
    let attached = attach(options)?;
    Ok(Mounted { attached: Some(attached), options: options.clone() })
}

impl Mounted {
    /// A connection that is not mounted, for tests.
    #[doc(hidden)]
    pub fn of_descriptor(device: OwnedFd, options: Options) -> Mounted {
        let attached = Attached { device, identity: MountIdentity::default(), knows_pids: true };
        Mounted { attached: Some(attached), options }
    }

    /// Serves these files. INIT is done when this returns.
    pub fn serve<F: Files>(mut self, files: Arc<F>, observer: Observer) -> Result<Session, Error> {
        let source = self.options.source.clone();
        let Some(attached) = self.attached.take() else {
            return Err(Error::new(ErrorKind::Internal, "it is served already").during("mount", source));
        };
        let connection = FuseConnection::new(Device::new(attached.device));
        let unmounter = Unmounter {
            identity: attached.identity,
            connection: Arc::downgrade(&connection),
            over: Arc::default(),
        };
        let served = serve(connection, files, observer, &self.options, &unmounter, attached.knows_pids);
        if served.is_err() {
            // The error says more than one of this could.
            let _ = unmounter.unmount(true);
        }
        served.map_err(|error| error.during("mount", self.options.mount_point.display()))
    }
}

impl Drop for Mounted {
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
    knows_pids: bool,
) -> Result<Session, Error> {
    let agreed = first_request(&connection, options)?;
    let threads = options.reading_threads();
    let granted = tune(&agreed, options, unmounter.identity.device, threads);
    let dispatcher = Dispatcher {
        connection: connection.clone(),
        files,
        blocking_pool: BlockingPool::new("flatout-wait"),
        interrupts: Interrupts::new(),
        observer,
        request_bytes: agreed.request_bytes as usize,
        knows_pids,
    };
    let (blocking_pool, interrupts) = (dispatcher.blocking_pool.clone(), dispatcher.interrupts.clone());
    // From here on its drop ends whatever has begun.
    let mut session = Session {
        connection,
        blocking_pool,
        interrupts,
        threads: Vec::new(),
        granted,
        unmounter: unmounter.clone(),
    };
    for at in 0..threads {
        let (dispatcher, unmounter) = (dispatcher.clone(), unmounter.clone());
        let thread = std::thread::Builder::new()
            .name(format!("flatout-fuse-{at}"))
            .spawn(move || read_requests(&dispatcher, unmounter))
            .map_err(|error| local("cannot start a thread", error))?;
        session.threads.push(thread);
    }
    Ok(session)
}

/// INIT, once or twice.
fn first_request(connection: &FuseConnection, options: &Options) -> Result<Agreed, Error> {
    let wanted = InitRequest {
        max_background: options.max_background,
        read_ahead_bytes: options.read_ahead_bytes.unwrap_or(u64::MAX),
        pages_limit: tuning::pages_limit(),
        page_bytes: rustix::param::page_size() as u32,
    };
    let mut buffer = vec![0; abi::MIN_READ_BUFFER];
    loop {
        let bytes = match connection.device.next(&mut buffer) {
            Next::Request(bytes) => bytes,
            Next::End(End::Broken(Errno::PERM)) => {
                return Err(Error::new(ErrorKind::Usage, "the connection is not mounted")
                    .with_hint("mount it with `fd=N` before it is handed over"));
            }
            Next::End(End::Broken(errno)) => return Err(local("cannot read requests", errno)),
            Next::End(_) => {
                return Err(Error::new(ErrorKind::LocalIo, "it was unmounted before it was served"));
            }
        };
        let init = match Request::parse(&buffer[..bytes]) {
            Ok(Request { unique, operation: Operation::Init(init), .. }) => (unique, init),
            _ => {
                return Err(Error::new(ErrorKind::Usage, "the connection is in use already")
                    .with_hint("hand over one that nobody has served before"));
            }
        };
        match negotiate(&init.1, &wanted) {
            Negotiated::Agreed(body, agreed) => {
                connection.device.answer(init.0, &body);
                return Ok(agreed);
            }
            Negotiated::Again(body) => drop(connection.device.answer(init.0, &body)),
            Negotiated::Refused(why) => {
                connection.device.fail(init.0, Errno::PROTO.raw_os_error());
                return Err(Error::new(ErrorKind::Unsupported, why).with_hint("a newer kernel is needed"));
            }
        }
    }
}

/// What INIT cannot do. A refusal is no error: it is told, with what to run.
fn tune(agreed: &Agreed, options: &Options, device: Option<tuning::DeviceNumber>, threads: usize) -> Granted {
    let wanted = options.read_ahead_bytes;
    let mut read_ahead = Some(agreed.read_ahead_bytes);
    let mut remedy = None;
    if let (Some(device), Some(wanted)) = (device, wanted) {
        if wanted > agreed.read_ahead_bytes && tuning::set_read_ahead(device, wanted).is_err() {
            remedy = Some(tuning::remedy(device, wanted));
        }
        read_ahead = tuning::read_ahead(device).or(read_ahead);
    }
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

fn read_requests<F: Files>(dispatcher: &Dispatcher<F>, unmounter: Unmounter) -> End {
    /// Whoever leaves for another reason than the end of the connection ends it for all.
    struct EndAll(Option<Unmounter>);
    impl Drop for EndAll {
        fn drop(&mut self) {
            if let Some(unmounter) = &self.0 {
                unmounter.end();
            }
        }
    }
    let mut end_all = EndAll(Some(unmounter));
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match dispatcher.connection.device.next(&mut buffer) {
            Next::Request(bytes) => dispatcher.serve(&buffer[..bytes]),
            Next::End(end) => {
                if !matches!(end, End::Broken(_)) {
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

    /// What it has done so far.
    pub fn stats(&self) -> SessionStats {
        stats(&self.connection, &self.blocking_pool)
    }

    /// The same from elsewhere, as long as somebody asks.
    pub fn watch(&self) -> SessionWatch {
        SessionWatch { connection: self.connection.clone(), blocking_pool: self.blocking_pool.clone() }
    }

    /// Ends it from elsewhere.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Serves until it is unmounted. When this returns no mount point stands, and no thread is left but one that an origin keeps
    /// waiting, which ends with its wait.
    pub fn wait(mut self) -> Result<Ended, Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<Ended, Error> {
        let mut ended = Ok(Ended::Unmounted);
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(End::Unmounted) => {}
                // Also said by those who are ended because another one broke: its reason counts.
                Ok(End::Aborted) => ended = ended.and(Ok(Ended::Aborted)),
                Ok(End::Broken(errno)) => ended = Err(local("cannot read requests", errno)),
                Err(_) => {
                    ended = Err(Error::new(ErrorKind::Internal, "a thread that reads requests panicked"));
                }
            }
        }
        self.interrupts.close();
        self.connection.interrupt_all();
        self.blocking_pool.close(LAST_WAIT);
        // An abort leaves the mount point; after umount(2) what stands there is not this one.
        if !matches!(ended, Ok(Ended::Unmounted)) {
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
    /// Whoever does not wait for the end wants it now.
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        // Where it has ended by itself, its numbers may be another's by now.
        if self.threads.iter().all(JoinHandle::is_finished) || self.unmounter.end() {
            let _ = self.finish();
        }
    }
}

impl Unmounter {
    /// Unmounts. An error where somebody still uses it, unless `lazy`: then it is out of sight at once, and the session ends when
    /// nobody uses it any more.
    pub fn unmount(&self, lazy: bool) -> Result<(), Error> {
        match &self.identity.point {
            Some(point) if !self.over.load(Ordering::Acquire) => unmount::detach(point, &self.identity, lazy)
                .map_err(|error| error.during("umount", point.display())),
            _ => Ok(()),
        }
    }

    /// Who keeps the session from its end when it is unmounted; nobody where it is over. Waits two seconds at most.
    pub fn holders(&self) -> Vec<Holder> {
        let seen = match (self.identity.device, &self.identity.point) {
            (Some(device), Some(point)) => holders::holders(device, point),
            _ => Vec::new(),
        };
        // Over, its numbers may be another's.
        if self.over.load(Ordering::Acquire) { Vec::new() } else { seen }
    }

    /// Ends the session whoever uses it, they get errors, and unmounts. False where the kernel lets us do neither.
    pub fn end(&self) -> bool {
        if self.over.load(Ordering::Acquire) {
            return true;
        }
        // As long as the connection stands, its number is no other's.
        let ours = || self.connection.upgrade().is_some_and(|connection| connection.device.is_connected());
        let aborted = self.identity.device.is_some_and(|device| tuning::abort(device, ours).is_ok());
        let unmounted = self.unmount(true).is_ok() && self.identity.point.is_some();
        aborted || unmounted
    }
}

/// What a session does, seen from elsewhere.
#[derive(Clone, Debug)]
pub struct SessionWatch {
    connection: Arc<FuseConnection>,
    blocking_pool: BlockingPool,
}

impl SessionWatch {
    /// So far.
    pub fn stats(&self) -> SessionStats {
        stats(&self.connection, &self.blocking_pool)
    }

    /// For how long each request that waits now has.
    pub fn waits(&self) -> Vec<Duration> {
        self.connection.waits(Instant::now())
    }
}

fn stats(connection: &FuseConnection, blocking_pool: &BlockingPool) -> SessionStats {
    SessionStats {
        waiting: connection.waiting_count() as u64,
        pool_threads: blocking_pool.threads() as u64,
        ..connection.counts.stats()
    }
}
