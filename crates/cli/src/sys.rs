//! The few system calls that std lacks, each behind a safe function: the program's only file with `unsafe`.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use flatout_engine::{Error, Get, Landing, Memory, Report, Transfer, Watch};
use flatout_wire::location::Location;

/// Whether standard output was open when the program was started. By `main` std has opened /dev/null in place of a closed one,
/// as which nobody can tell it from one that was passed on: Python's `subprocess.DEVNULL` is open for reading, too.
pub fn started_with_stdout() -> bool {
    STARTED_WITH_STDOUT.load(Ordering::Relaxed)
}

static STARTED_WITH_STDOUT: AtomicBool = AtomicBool::new(true);

extern "C" fn look_at_stdout() {
    // SAFETY: F_GETFD takes a number and no pointer; of one that is no descriptor it says so. libc is ready by now, and
    // nothing of std is used.
    let is_open = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } >= 0;
    STARTED_WITH_STDOUT.store(is_open, Ordering::Relaxed);
}

// SAFETY: the section holds addresses of functions that the C library calls before `main`, on the only thread there is; of
// their three arguments a function may take none. std's own arguments come the same way.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

/// CPU seconds that this process has used, user and system, over all its threads.
pub fn cpu_seconds() -> f64 {
    // SAFETY: rusage is plain integers, for which all zero bits are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a live rusage that the call fills; RUSAGE_SELF with a valid pointer cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Clock ticks per second, the unit of CPU time in `/proc/PID/stat`.
pub fn ticks_per_second() -> f64 {
    // SAFETY: sysconf takes no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

/// Asks for a pipe that holds `bytes`; an unprivileged process may be given less, which is no error.
pub fn widen_pipe(pipe: BorrowedFd, bytes: u32) {
    // SAFETY: F_SETPIPE_SZ takes an integer and the descriptor is borrowed for the call; on anything but a
    // pipe it fails and changes nothing.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, bytes as libc::c_int) };
}

/// Columns of a terminal; `None` when it is none or does not say.
pub fn columns(terminal: BorrowedFd) -> Option<u16> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ fills the winsize behind the pointer, which is live; the descriptor is borrowed for the call.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &mut size) }).ok()?;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

/// Reserves `bytes` of disk for a new file.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: the descriptor is open for the call, which takes no pointers.
    check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) }).map(drop)
}

/// Has the kernel end the child when the thread that starts it ends, however that comes.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec and makes one system call, which is async-signal-safe.
    unsafe { command.pre_exec(|| check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM)).map(drop)) };
}

/// Fetches an object into a buffer and gives the buffer back; `start` starts the transfer, and may give something to hold until its end. One function: only the report of this very transfer says
/// that nobody writes there any more. After an error the buffer stays with the engine.
pub fn get_into<A>(
    buffer: &'static mut [u8],
    location: &Location,
    start: impl FnOnce(Get) -> Result<(Transfer, A), Error>,
    watched: impl FnOnce(Watch),
) -> Result<(Report, &'static mut [u8]), Error> {
    let lent: *mut [u8] = buffer;
    // SAFETY: the bytes are initialised and writable, they are there for ever, and the only reference to them is spent
    // on `lent`, from which none is made again before the transfer has reported.
    let memory = unsafe { Memory::new(lent.cast(), lent.len()) };
    let get = Get::new(location.clone(), Landing::Memory(memory)).with_part_records();
    let (transfer, _armed) = start(get)?;
    watched(transfer.watch());
    let report = transfer.wait()?;
    // SAFETY: `lent` came from a reference that lives for ever and was given away for it; the engine is done with a
    // landing when it reports.
    Ok((report, unsafe { &mut *lent }))
}

/// The version of the C library, where it is glibc.
#[cfg(target_env = "gnu")]
pub fn c_library() -> String {
    // SAFETY: it returns a C string that is part of the library.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

/// The C library, where it does not tell its version.
#[cfg(not(target_env = "gnu"))]
pub fn c_library() -> String {
    if cfg!(target_env = "musl") { "musl".into() } else { "unknown".into() }
}

/// Asks a child that has not been waited for to end.
pub fn terminate(child: u32) {
    // SAFETY: kill takes no pointers. An id that has just been waited for is at worst unknown by now.
    unsafe { libc::kill(child as libc::pid_t, libc::SIGTERM) };
}

/// An epoll set; the key of each socket is the caller's number.
pub struct Epoll {
    set: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    /// An empty set that reports up to `capacity` sockets at a time.
    pub fn new(capacity: usize) -> io::Result<Epoll> {
        // SAFETY: epoll_create1 takes no pointers.
        let set = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just made and nobody else holds it.
        let set = unsafe { OwnedFd::from_raw_fd(set) };
        Ok(Epoll { set, events: vec![libc::epoll_event { events: 0, u64: 0 }; capacity] })
    }

    /// Watches `socket` for bytes to receive, level-triggered; closing the socket takes it out of the set.
    pub fn add(&self, socket: BorrowedFd, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: key };
        let (set, socket) = (self.set.as_raw_fd(), socket.as_raw_fd());
        // SAFETY: both descriptors are open, and `event` outlives the call, which copies it.
        check(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, socket, &mut event) }).map(drop)
    }

    /// Watches `socket` no more.
    pub fn remove(&self, socket: BorrowedFd) -> io::Result<()> {
        let (set, socket) = (self.set.as_raw_fd(), socket.as_raw_fd());
        // SAFETY: both descriptors are open; removing takes no event.
        check(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, socket, std::ptr::null_mut()) }).map(drop)
    }

    /// Waits up to `timeout_ms` and returns the keys that have bytes; none when the time is over.
    pub fn wait(&mut self, timeout_ms: i32) -> io::Result<impl Iterator<Item = u64> + '_> {
        let capacity = self.events.len() as i32;
        // SAFETY: `events` is a live array of `capacity` elements that the call fills from the front.
        let ready =
            unsafe { libc::epoll_wait(self.set.as_raw_fd(), self.events.as_mut_ptr(), capacity, timeout_ms) };
        let ready = match check(ready) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        Ok(self.events[..ready as usize].iter().map(|event| event.u64))
    }
}

fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
