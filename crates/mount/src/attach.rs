//! From a folder to a connection: mount(2) where that is allowed, fusermount3 otherwise, or what somebody hands over.

use std::ffi::CString;
use std::fmt::Display;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use flatout_engine::{Error, ErrorKind, plain as words};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::options::{Options, Plain, TYPE, plain};
use crate::point::MountPoint;
use crate::{fusermount, given, table, tuning};

/// A connection that waits for its INIT, and where it is mounted.
#[derive(Debug)]
pub(crate) struct Attached {
    pub device: OwnedFd,
    pub anchor: Anchor,
    /// Whether the kernel names threads as this process does: by the namespace of whoever mounted.
    pub knows_pids: bool,
}

/// Where a connection is mounted, as far as that is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Anchor {
    /// Without links, so that no look at it is needed to unmount it.
    pub point: Option<PathBuf>,
    /// What its files have as their device.
    pub device: Option<tuning::DeviceNumber>,
}

pub(crate) fn attach(options: &Options) -> Result<Attached, Error> {
    attach_at(options).map_err(|error| error.during("mount", options.mount_point.display()))
}

fn attach_at(options: &Options) -> Result<Attached, Error> {
    let plain = plain(&options.options)?;
    let point = MountPoint::look(&options.mount_point, plain.nonempty)?.cleared(plain.nonempty)?;
    if let Some(number) = point.descriptor() {
        let device = given::take(number)?;
        let number = tuning::device_of(device.as_raw_fd());
        let point = number.and_then(table::of_device).map(|mount| mount.point);
        return Ok(Attached { device, anchor: Anchor { point, device: number }, knows_pids: false });
    }
    let point = point.path();
    let device = match by_mount(point, options, &plain) {
        // What root may not open, fusermount3 may not either.
        Err(Errno::ACCESS) if rustix::process::geteuid().is_root() => return Err(refused(Errno::ACCESS)),
        Err(Errno::PERM | Errno::ACCESS) => fusermount::mount(point, options, &plain)?,
        mounted => mounted.map_err(refused)?,
    };
    let number = table::at(point).map(|mount| mount.device);
    let anchor = Anchor { point: Some(point.to_owned()), device: number };
    Ok(Attached { device, anchor, knows_pids: true })
}

fn by_mount(point: &Path, options: &Options, plain: &Plain) -> Result<OwnedFd, Errno> {
    let open = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", open, Mode::empty()).map_err(|errno| match errno {
        // By a container's list of devices; by its mode it is EACCES already.
        Errno::PERM => Errno::ACCESS,
        errno => errno,
    })?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    for (set, name) in
        [(options.allow_other, ",allow_other"), (options.default_permissions, ",default_permissions")]
    {
        data += if set { name } else { "" };
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(&*options.source, point, TYPE, plain.flags, &*data)?;
    Ok(device)
}

/// What to do where /dev/fuse cannot be opened.
pub(crate) const NO_DEVICE: &str = "see `ls -l /dev/fuse`: mode 0666 lets everybody open it, a group its members; \
    a container needs `--device /dev/fuse`, a kernel without it `modprobe fuse`";

fn refused(errno: Errno) -> Error {
    let hint = match errno {
        Errno::NOENT => {
            "there is no /dev/fuse: run `modprobe fuse`, or give the container `--device /dev/fuse`"
        }
        Errno::ACCESS => NO_DEVICE,
        Errno::NODEV => "the kernel has no FUSE: run `modprobe fuse`",
        Errno::BUSY => "something else is mounted there: unmount it, or name another folder",
        _ => "run it as root, or install the package fuse3",
    };
    let what = if errno == Errno::ACCESS { "cannot open /dev/fuse" } else { "the kernel refuses the mount" };
    local(what, errno).with_hint(hint)
}

/// A local refusal in the system's words.
pub(crate) fn local(cause: impl Display, errno: impl Into<std::io::Error>) -> Error {
    Error::new(ErrorKind::LocalIo, format!("{cause}: {}", words(&errno.into())))
}
