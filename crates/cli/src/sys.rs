//! System calls that std lacks, each behind a safe function: the program's only file with `unsafe`.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use flatout_engine::{Error, Get, Landing, Memory, Report, Transfer, Watch};
use flatout_wire::location::Location;
use memmap2::{Mmap, MmapOptions};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use rustix::time::ClockId;

/// Whether standard output was open when the program was started. By `main` std has opened /dev/null in place
/// of a closed one, as which nobody can tell it from one that was passed on: Python's `subprocess.DEVNULL` is
/// open for reading, too.
pub fn started_with_stdout() -> bool {
    STARTED_WITH_STDOUT.load(Ordering::Relaxed)
}

static STARTED_WITH_STDOUT: AtomicBool = AtomicBool::new(true);

extern "C" fn look_at_stdout() {
    // SAFETY: F_GETFD takes a number and no pointer; of one that is no descriptor it says so. libc is ready
    // by now, and nothing of std is used.
    let is_open = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } >= 0;
    STARTED_WITH_STDOUT.store(is_open, Ordering::Relaxed);
}

// SAFETY: the section holds addresses of functions that the C library calls before `main`, on the only thread
// there is; of their three arguments a function may take none. std's own arguments come the same way.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

/// CPU seconds that this process has used, user and system, over all its threads.
pub fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Clock ticks per second, the unit of CPU time in `/proc/PID/stat`.
pub fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Asks for a pipe that holds `bytes`; an unprivileged process may be given less, which is no error.
pub fn widen_pipe(pipe: BorrowedFd, bytes: usize) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, bytes);
}

/// Columns of a terminal; `None` when it is none or does not say.
pub fn columns(terminal: BorrowedFd) -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

/// Has the kernel end the child when the thread that starts it ends, however that comes.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec and makes one system call, which is async-signal-safe.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?)) };
}

/// Fetches an object into a buffer and gives the buffer back; `start` starts the transfer, and may give
/// something to hold until its end. One function: only the report of this very transfer says that nothing
/// writes there any more. After an error the buffer stays with the engine.
pub fn get_into<A>(
    buffer: &'static mut [u8],
    location: &Location,
    start: impl FnOnce(Get) -> Result<(Transfer, A), Error>,
    watched: impl FnOnce(Watch),
) -> Result<(Report, &'static mut [u8]), Error> {
    let lent: *mut [u8] = buffer;
    // SAFETY: the bytes are initialised and writable, they are there for ever, and the only reference to them
    // is spent on `lent`, from which none is made again before the transfer has reported.
    let memory = unsafe { Memory::new(lent.cast(), lent.len()) };
    let get = Get::new(location.clone(), Landing::Memory(memory)).with_part_records();
    let (transfer, _armed) = start(get)?;
    watched(transfer.watch());
    let report = transfer.wait()?;
    // SAFETY: `lent` came from a reference that lives for ever and was given away for it; the engine is done
    // with a landing when it reports.
    Ok((report, unsafe { &mut *lent }))
}

/// A file in memory, all its pages there. The file must keep its length while it is mapped.
pub fn map_file(file: &File) -> io::Result<Mmap> {
    // SAFETY: the bytes are only sent, and mean nothing to the program: another process that writes to the
    // file changes what is sent. One that shortens it ends this process by a signal (SIGBUS).
    unsafe { MmapOptions::new().populate().map(file) }
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

/// Has the process of a mount, which has just answered, show the index that its file has now.
pub fn renew(mount: u32) {
    if let Some(mount) = Pid::from_raw(mount as i32) {
        // One that is gone shows nothing any more.
        let _ = kill_process(mount, Signal::USR2);
    }
}

/// Asks a child that has not been waited for to end.
pub fn terminate(child: u32) {
    let child = Pid::from_raw(child as i32).expect("no child has the number 0");
    // One that has just been waited for is at worst unknown by now.
    let _ = kill_process(child, Signal::TERM);
}
