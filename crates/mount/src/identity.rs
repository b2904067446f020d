//! Where a connection is mounted, and errors of system calls.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use flatout_engine::{Error, ErrorKind, plain as words};

use crate::table::{self, MountEntry};
use crate::tuning;

/// Where a connection is mounted, as far as known.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountIdentity {
    /// Without links, so that it can be unmounted without looking at it.
    pub point: Option<PathBuf>,
    /// The device number of the connection, which its files have, too, unless they are an image.
    pub device: Option<tuning::DeviceNumber>,
    /// What is mounted there is an image that the connection serves.
    pub image: Option<ShownDevice>,
}

impl MountIdentity {
    /// The device number of what is mounted there.
    pub fn shown(&self) -> Option<tuning::DeviceNumber> {
        match (&self.image, &self.point) {
            (None, _) => self.device,
            (Some(image), Some(point)) => image.at(point),
            (Some(_), None) => None,
        }
    }
}

/// The device of the mount that users see. By default it is not mounted yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShownDevice {
    device: Arc<OnceLock<tuning::DeviceNumber>>,
    is_of_another: bool,
}

impl ShownDevice {
    /// Of a mount that another process makes, if it has said which.
    pub fn of_another(device: Option<tuning::DeviceNumber>) -> ShownDevice {
        let shown = ShownDevice { is_of_another: true, ..ShownDevice::default() };
        shown.set(device);
        shown
    }

    /// It, without a look.
    pub fn known(&self) -> Option<tuning::DeviceNumber> {
        self.device.get().copied()
    }

    pub fn set(&self, device: Option<tuning::DeviceNumber>) {
        if let Some(device) = device {
            self.device.get_or_init(|| device);
        }
    }

    /// It, if it is mounted; that of another process is looked for at the mount point the first time.
    pub fn at(&self, point: &Path) -> Option<tuning::DeviceNumber> {
        self.known().or_else(|| {
            let mounted = self.is_of_another.then(|| table::at(point))?;
            let device = mounted.filter(MountEntry::is_image)?.device;
            Some(*self.device.get_or_init(|| device))
        })
    }
}

/// The hint where /dev/fuse cannot be opened.
pub(crate) const NO_DEVICE: &str = "see `ls -l /dev/fuse`: mode 0666 lets everybody open it, a group its members; \
    a container needs `--device /dev/fuse`, a kernel without it `modprobe fuse`";

/// An error of a system call.
pub(crate) fn local(cause: impl Display, errno: impl Into<std::io::Error>) -> Error {
    Error::new(ErrorKind::LocalIo, format!("{cause}: {}", words(&errno.into())))
}
