//! A thread with a table of descriptors of its own.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{Dir, DirEntry};
use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this thread a table of descriptors of its own, with `kept` alone in it. It must use no other
/// descriptor from then on, and end soon. Those of other threads stay open.
///
/// A thread that waits in the kernel for an answer of its own process survives a SIGKILL. If it shared the
/// table of the process, the connection would stay open, and nobody would answer.
pub(crate) fn keep_only(kept: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    // SAFETY: this thread uses no descriptor that another one opens from now on, and no other thread uses one
    // that this one opens.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    let refused = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let folder = File::open("/proc/thread-self/fd").map_err(refused)?;
    let (own, kept) = (folder.as_raw_fd(), kept.map_or(-1, |kept| kept.as_raw_fd()));
    let number = |entry: DirEntry| entry.file_name().to_str().ok()?.parse().ok();
    let numbers: Vec<i32> = Dir::new(folder)?.flatten().filter_map(number).collect();
    // The folder's own is closed already.
    for number in numbers.into_iter().filter(|number| ![own, kept].contains(number)) {
        // SAFETY: it is closed in the table of this thread alone, which does not use it.
        unsafe { rustix::io::close(number) };
    }
    Ok(())
}
