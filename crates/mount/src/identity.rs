//! Where a connection is mounted, and errors of system calls.

use std::fmt::Display;
use std::path::PathBuf;

use flatout_engine::{Error, ErrorKind, plain as words};

use crate::tuning;

/// Where a connection is mounted, as far as known.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountIdentity {
    /// Without links, so that it can be unmounted without looking at it.
    pub point: Option<PathBuf>,
    /// The device number of its files.
    pub device: Option<tuning::DeviceNumber>,
}

/// The hint where /dev/fuse cannot be opened.
pub(crate) const NO_DEVICE: &str = "see `ls -l /dev/fuse`: mode 0666 lets everybody open it, a group its members; \
    a container needs `--device /dev/fuse`, a kernel without it `modprobe fuse`";

/// An error of a system call.
pub(crate) fn local(cause: impl Display, errno: impl Into<std::io::Error>) -> Error {
    Error::new(ErrorKind::LocalIo, format!("{cause}: {}", words(&errno.into())))
}
