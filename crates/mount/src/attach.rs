//! From a folder to a connection: by mount(2) where that is allowed, else by fusermount3; or a descriptor
//! that was handed over.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use flatout_engine::Error;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::identity::{MountIdentity, NO_DEVICE, ShownDevice, local};
use crate::image::DetachedRoot;
use crate::options::{KernelOptions, Options, TYPE, kernel_options};
use crate::point::MountPoint;
use crate::{fusermount, inherited_fd, table, tuning};

/// A connection before its INIT, and where it is mounted.
#[derive(Debug)]
pub(crate) struct Attached {
    pub device: OwnedFd,
    pub identity: MountIdentity,
    /// Whether the kernel's thread numbers are those of this process's namespace: they are those of the
    /// mounting process's.
    pub knows_pids: bool,
    /// Of a connection that serves an image, until that is mounted.
    pub root: Option<DetachedRoot>,
}

pub(crate) fn attach(options: &Options) -> Result<Attached, Error> {
    attach_at(options).map_err(|error| error.during("mount", options.mount_point.display()))
}

fn attach_at(options: &Options) -> Result<Attached, Error> {
    let kernel = kernel_options(&options.options)?;
    if options.image.is_some_and(|image| image.replaces.is_some()) {
        return attach_image(options, &options.mount_point);
    }
    let point = MountPoint::look(&options.mount_point, kernel.nonempty)?.cleared(kernel.nonempty)?;
    if let Some(number) = point.descriptor() {
        let device = inherited_fd::take(number)?;
        let number = tuning::device_of(device.as_raw_fd());
        let point = number.and_then(table::of_device).map(|mount| mount.point);
        let identity = MountIdentity { point, device: number, image: None };
        return Ok(Attached { device, identity, knows_pids: false, root: None });
    }
    let point = point.path();
    if options.image.is_some() {
        return attach_image(options, point);
    }
    let device = match open_device() {
        // If root may not open it, fusermount3 may not either.
        Err(Errno::PERM | Errno::ACCESS) if !rustix::process::geteuid().is_root() => None,
        Err(errno) => return Err(no_device(errno)),
        Ok(device) => match by_mount(&device, point, options, &kernel) {
            Err(Errno::PERM) => None,
            mounted => Some(mounted.map(|()| device).map_err(refused)?),
        },
    };
    let device = device.map_or_else(|| fusermount::mount(point, options, &kernel), Ok)?;
    let number = table::at(point).map(|mount| mount.device);
    let identity = MountIdentity { point: Some(point.to_owned()), device: number, image: None };
    Ok(Attached { device, identity, knows_pids: true, root: None })
}

/// A connection that serves an image for `point`.
pub(crate) fn attach_image(options: &Options, point: &Path) -> Result<Attached, Error> {
    let device = open_device().map_err(no_device)?;
    let root = DetachedRoot::new(&device, &options.source).map_err(refused)?;
    let number = root.device();
    let image = Some(ShownDevice::default());
    // Without a place, for a look at it, it is mounted nowhere.
    let point = (!point.as_os_str().is_empty()).then(|| point.to_owned());
    let identity = MountIdentity { point, device: number, image };
    Ok(Attached { device, identity, knows_pids: true, root: Some(root) })
}

fn open_device() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

fn by_mount(device: &OwnedFd, point: &Path, options: &Options, kernel: &KernelOptions) -> Result<(), Errno> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    for (set, name) in
        [(options.allow_other, ",allow_other"), (options.default_permissions, ",default_permissions")]
    {
        data += if set { name } else { "" };
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(&*options.source, point, TYPE, kernel.flags, &*data)
}

fn no_device(errno: Errno) -> Error {
    let hint = match errno {
        Errno::NOENT => {
            "there is no /dev/fuse: run `modprobe fuse`, or give the container `--device /dev/fuse`"
        }
        // A container's list of devices is EPERM, its mode EACCES.
        Errno::PERM | Errno::ACCESS => NO_DEVICE,
        _ => "run `modprobe fuse`",
    };
    local("cannot open /dev/fuse", errno).with_hint(hint)
}

fn refused(errno: Errno) -> Error {
    let hint = match errno {
        Errno::NODEV => "the kernel has no FUSE: run `modprobe fuse`",
        Errno::BUSY => "something else is mounted there: unmount it, or name another folder",
        Errno::ACCESS => {
            "a security module may forbid it: a container needs `--security-opt apparmor=unconfined`"
        }
        _ => "run it as root, or install the package fuse3",
    };
    local("the kernel refuses the mount", errno).with_hint(hint)
}
