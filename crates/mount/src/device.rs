//! `/dev/fuse`, or a socket in tests: one request per read, one answer per write.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::abi::{MOST_ERRNO, OUT_HEADER};

/// `IOV_MAX` of Linux.
const MOST_SLICES: usize = 1024;

/// A connection to the kernel.
#[derive(Debug)]
pub(crate) struct Device {
    descriptor: OwnedFd,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceRead {
    /// A request of this many bytes.
    Request(usize),
    /// There are no more requests.
    End(ConnectionEnd),
}

/// Why there are no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// It was unmounted, and is not in use any more.
    Unmounted,
    /// The connection was aborted; the mount point may still exist.
    Aborted,
    /// The read failed.
    Broken(Errno),
}

impl Device {
    pub fn new(descriptor: OwnedFd) -> Device {
        Device { descriptor }
    }

    pub fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    /// Waits for the next request.
    pub fn next(&self, buffer: &mut [u8]) -> DeviceRead {
        let mut is_over = false;
        loop {
            match rustix::io::read(&self.descriptor, &mut *buffer) {
                // Only a test's socket has an end.
                Ok(0) => return DeviceRead::End(ConnectionEnd::Unmounted),
                Ok(bytes) => return DeviceRead::Request(bytes),
                // A signal to us; or the request was withdrawn while the kernel copied it.
                Err(Errno::INTR | Errno::NOENT) => {}
                // The descriptor is non-blocking.
                Err(Errno::AGAIN) => self.wait(),
                Err(Errno::NODEV) => return DeviceRead::End(ConnectionEnd::Unmounted),
                // Also an unmount says so to a read that has just taken a request from the queue
                // (fs/fuse/dev.c, `fuse_dev_do_read`). A read that starts when the connection is over says
                // which it was.
                Err(Errno::CONNABORTED) if !is_over => is_over = !self.is_connected(),
                Err(Errno::CONNABORTED) => return DeviceRead::End(ConnectionEnd::Aborted),
                Err(errno) => return DeviceRead::End(ConnectionEnd::Broken(errno)),
            }
        }
    }

    /// `false` once it was unmounted everywhere, or aborted.
    pub fn is_connected(&self) -> bool {
        Device::is_connected_by(&self.descriptor)
    }

    /// As [`Device::is_connected`], of a descriptor that is none yet.
    pub fn is_connected_by(descriptor: &OwnedFd) -> bool {
        let mut looks = [PollFd::new(descriptor, PollFlags::OUT)];
        let looked = rustix::event::poll(&mut looks, Some(&Timespec::default()));
        looked.is_ok() && !looks[0].revents().contains(PollFlags::ERR)
    }

    fn wait(&self) {
        let mut waits = [PollFd::new(&self.descriptor, PollFlags::IN)];
        // An error shows at the next read.
        let _ = rustix::event::poll(&mut waits, None);
    }

    /// Writes an answer; `false` if the kernel did not take it, because the request or the connection is
    /// gone.
    pub fn answer(&self, unique: u64, body: &[u8]) -> bool {
        let header = header(unique, 0, body.len());
        self.write(&[IoSlice::new(&header), IoSlice::new(body)])
    }

    /// Writes an answer whose body is the first `most` bytes of these slices: the kernel refuses more than it
    /// asked for.
    pub fn answer_slices<'a>(
        &self,
        unique: u64,
        slices: impl Iterator<Item = &'a [u8]>,
        most: usize,
    ) -> bool {
        let mut parts = Vec::with_capacity(8);
        // The header comes here when the number of bytes is known.
        parts.push(IoSlice::new(&[]));
        let mut bytes = 0;
        for slice in slices {
            let slice = &slice[..slice.len().min(most - bytes)];
            if !slice.is_empty() {
                parts.push(IoSlice::new(slice));
                bytes += slice.len();
            }
        }
        // Slices beyond the limit of one call are copied into one.
        let tail: Vec<u8> = match parts.len() > MOST_SLICES {
            true => parts.drain(MOST_SLICES - 1..).flat_map(|slice| slice.to_vec()).collect(),
            false => Vec::new(),
        };
        if !tail.is_empty() {
            parts.push(IoSlice::new(&tail));
        }
        let header = header(unique, 0, bytes);
        parts[0] = IoSlice::new(&header);
        self.write(&parts)
    }

    /// Writes an error as the answer.
    pub fn fail(&self, unique: u64, errno: i32) -> bool {
        // The kernel takes no other number, and the waiting thread would wait for ever.
        let errno = if (1..=MOST_ERRNO).contains(&errno) { errno } else { Errno::IO.raw_os_error() };
        self.write(&[IoSlice::new(&header(unique, errno, 0))])
    }

    /// Writes a notification; `false` if the kernel does not know its inode.
    pub fn notify(&self, code: i32, body: &[&[u8]]) -> bool {
        let bytes = body.iter().map(|slice| slice.len()).sum();
        let header = header(0, -code, bytes);
        let slices: Vec<IoSlice<'_>> =
            std::iter::once(&header[..]).chain(body.iter().copied()).map(IoSlice::new).collect();
        self.write(&slices)
    }

    /// After any error the kernel has ended the request: ENOENT if the request or the connection is gone,
    /// EINVAL or EFAULT if the answer is malformed, which the program sees as EIO.
    fn write(&self, slices: &[IoSlice<'_>]) -> bool {
        loop {
            match rustix::io::writev(&self.descriptor, slices) {
                Ok(written) => {
                    debug_assert!(written >= OUT_HEADER);
                    return true;
                }
                Err(Errno::INTR) => {}
                // Only a test's socket is ever full.
                Err(Errno::AGAIN) => std::thread::yield_now(),
                Err(_) => return false,
            }
        }
    }
}

/// `struct fuse_out_header`. `errno` is 0 or positive. A notification has the number 0, and its code,
/// negated, as `errno`.
fn header(unique: u64, errno: i32, body_bytes: usize) -> [u8; OUT_HEADER] {
    let mut header = [0; OUT_HEADER];
    header[..4].copy_from_slice(&((OUT_HEADER + body_bytes) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}
