//! A thread with a table of descriptors of its own.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{Dir, DirEntry};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Leaves this thread `kept` alone. It must use no other descriptor from then on, and end soon.
///
/// A thread that waits in the kernel for an answer of its own process survives a SIGKILL. It would keep the
/// process's descriptors open, and with them the connection on which nobody answers any more.
pub(crate) fn keep_alone(kept: BorrowedFd<'_>) {
    // SAFETY: the caller's thread observes no descriptor of another thread from then on, and has none that
    // another thread observes.
    if unsafe { unshare_unsafe(UnshareFlags::FILES) }.is_err() {
        // Then it is as any other thread.
        return;
    }
    let Ok(folder) = File::open("/proc/thread-self/fd") else { return };
    let (own, kept) = (folder.as_raw_fd(), kept.as_raw_fd());
    let Ok(entries) = Dir::new(folder) else { return };
    let number = |entry: DirEntry| entry.file_name().to_str().ok()?.parse().ok();
    let numbers: Vec<i32> = entries.flatten().filter_map(number).collect();
    // The folder's is closed already.
    for number in numbers.into_iter().filter(|number| ![own, kept].contains(number)) {
        // SAFETY: in the table of this thread alone, where nobody uses it.
        unsafe { rustix::io::close(number) };
    }
}
