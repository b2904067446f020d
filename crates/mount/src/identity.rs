//! Where a connection is mounted, and how refusals of the system are told.

use std::fmt::Display;
use std::path::PathBuf;

use flatout_engine::{Error, ErrorKind, plain as words};

use crate::tuning;

/// Where a connection is mounted, as far as that is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountIdentity {
    /// Without links, so that no look at it is needed to unmount it.
    pub point: Option<PathBuf>,
    /// What its files have as their device.
    pub device: Option<tuning::DeviceNumber>,
}

/// What to do where /dev/fuse cannot be opened.
pub(crate) const NO_DEVICE: &str = "see `ls -l /dev/fuse`: mode 0666 lets everybody open it, a group its members; \
    a container needs `--device /dev/fuse`, a kernel without it `modprobe fuse`";

/// A local refusal in the system's words.
pub(crate) fn local(cause: impl Display, errno: impl Into<std::io::Error>) -> Error {
    Error::new(ErrorKind::LocalIo, format!("{cause}: {}", words(&errno.into())))
}
