//! `/dev/fuse`, or what stands for it in a test: one request a read, one answer a write.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::abi::{MOST_ERRNO, OUT_HEADER};
use crate::reply;

/// `IOV_MAX` of Linux.
const MOST_SLICES: usize = 1024;

/// One connection to a kernel.
#[derive(Debug)]
pub(crate) struct Device {
    descriptor: OwnedFd,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A request of so many bytes.
    Request(usize),
    /// There will be no more.
    End(End),
}

/// Why there are no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was unmounted, and nobody uses it any more.
    Unmounted,
    /// Somebody aborted the connection; the mount point may still stand.
    Aborted,
    /// The descriptor refuses.
    Broken(Errno),
}

impl Device {
    pub fn new(descriptor: OwnedFd) -> Device {
        Device { descriptor }
    }

    /// The next request; waits for it.
    pub fn next(&self, buffer: &mut [u8]) -> Next {
        loop {
            match rustix::io::read(&self.descriptor, &mut *buffer) {
                // Only a test's socket has an end.
                Ok(0) => return Next::End(End::Unmounted),
                Ok(bytes) => return Next::Request(bytes),
                // A signal to us; who asked is gone while it was being copied.
                Err(Errno::INTR | Errno::NOENT) => {}
                // Somebody gave a descriptor that does not wait.
                Err(Errno::AGAIN) => self.wait(),
                Err(Errno::NODEV) => return Next::End(End::Unmounted),
                Err(Errno::CONNABORTED) => return Next::End(End::Aborted),
                Err(errno) => return Next::End(End::Broken(errno)),
            }
        }
    }

    /// False once it was unmounted by all, or aborted.
    pub fn is_connected(&self) -> bool {
        let mut looks = [PollFd::new(&self.descriptor, PollFlags::OUT)];
        let looked = rustix::event::poll(&mut looks, Some(&Timespec::default()));
        looked.is_ok() && !looks[0].revents().contains(PollFlags::ERR)
    }

    fn wait(&self) {
        let mut waits = [PollFd::new(&self.descriptor, PollFlags::IN)];
        // Whatever it says, the read says it better.
        let _ = rustix::event::poll(&mut waits, None);
    }

    /// One answer, in one write: whether the kernel took it. It does not where the request is gone, or the connection.
    pub fn answer(&self, unique: u64, body: &[u8]) -> bool {
        let header = reply::header(unique, 0, body.len());
        self.write(&[IoSlice::new(&header), IoSlice::new(body)])
    }

    /// The same of a body in several pieces, of which the first `most` bytes count: the kernel refuses more than it asked for.
    pub fn answer_slices<'a>(
        &self,
        unique: u64,
        pieces: impl Iterator<Item = &'a [u8]>,
        most: usize,
    ) -> bool {
        let mut slices = Vec::with_capacity(8);
        // The header's place: it says how many bytes follow.
        slices.push(IoSlice::new(&[]));
        let mut bytes = 0;
        for piece in pieces {
            let piece = &piece[..piece.len().min(most - bytes)];
            if !piece.is_empty() {
                slices.push(IoSlice::new(piece));
                bytes += piece.len();
            }
        }
        // What is beyond the most that one call takes is copied into one.
        let tail: Vec<u8> = match slices.len() > MOST_SLICES {
            true => slices.drain(MOST_SLICES - 1..).flat_map(|slice| slice.to_vec()).collect(),
            false => Vec::new(),
        };
        if !tail.is_empty() {
            slices.push(IoSlice::new(&tail));
        }
        let header = reply::header(unique, 0, bytes);
        slices[0] = IoSlice::new(&header);
        self.write(&slices)
    }

    /// An answer that is nothing but an error.
    pub fn fail(&self, unique: u64, errno: i32) -> bool {
        // The kernel takes no other number, and who asked would wait for ever.
        let errno = if (1..=MOST_ERRNO).contains(&errno) { errno } else { Errno::IO.raw_os_error() };
        self.write(&[IoSlice::new(&reply::header(unique, errno, 0))])
    }

    /// A notification; false where the kernel does not know what it is about.
    pub fn notify(&self, code: i32, body: &[&[u8]]) -> bool {
        let bytes = body.iter().map(|slice| slice.len()).sum();
        let header = reply::header(0, -code, bytes);
        let slices: Vec<IoSlice<'_>> =
            std::iter::once(&header[..]).chain(body.iter().copied()).map(IoSlice::new).collect();
        self.write(&slices)
    }

    /// Any error means that the kernel has ended the request by itself: ENOENT because it was gone, or the connection was;
    /// EINVAL or EFAULT because the answer cannot be read, which it hands on as EIO.
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
