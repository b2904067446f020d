//! What can be set for one mount beside INIT: how far the kernel reads ahead, and an end by force.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// The device number of a mount's files: major, minor.
pub(crate) type DeviceNumber = (u32, u32);

/// How far the kernel reads ahead in a file of this mount, in bytes.
pub(crate) fn read_ahead(device: DeviceNumber) -> Option<u64> {
    let text = std::fs::read_to_string(read_ahead_path(device)).ok()?;
    Some(text.trim().parse::<u64>().ok()? << 10)
}

/// Needs root, and a /sys that may be written.
pub(crate) fn set_read_ahead(device: DeviceNumber, bytes: u64) -> io::Result<()> {
    let mut file = File::options().write(true).open(read_ahead_path(device))?;
    file.write_all((bytes >> 10).to_string().as_bytes())
}

/// The command to run as root if that was refused.
pub(crate) fn remedy(device: DeviceNumber, bytes: u64) -> String {
    format!("echo {} | sudo tee {}", bytes >> 10, read_ahead_path(device))
}

fn read_ahead_path((major, minor): DeviceNumber) -> String {
    format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")
}

/// `fs.fuse.max_pages_limit`, from Linux 6.13 on.
pub(crate) fn pages_limit() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit").ok()?.trim().parse().ok()
}

/// How many readahead requests may be pending. The kernel lowers what users other than root ask for.
pub(crate) fn max_background(device: DeviceNumber) -> Option<u16> {
    let mut text = String::new();
    control(device, "max_background", OFlags::RDONLY).ok()?.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Ends the connection: pending requests fail, and reads of its device give ECONNABORTED. The kernel reuses
/// the number of a connection that is gone; so `ours`, which says whether ours still exists, is called when
/// the file is open and belongs to one connection.
pub(crate) fn abort(device: DeviceNumber, ours: impl FnOnce() -> bool) -> io::Result<()> {
    let mut file = control(device, "abort", OFlags::WRONLY)?;
    if ours() { file.write_all(b"1") } else { Err(io::ErrorKind::NotFound.into()) }
}

/// A file of the connection in fusectl, which need not be mounted.
fn control(device: DeviceNumber, name: &str, flags: OFlags) -> io::Result<File> {
    let name = format!("{}/{name}", device.1);
    let open = |folder: &OwnedFd| rustix::fs::openat(folder, &name, flags | OFlags::CLOEXEC, Mode::empty());
    let mounted = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let file = rustix::fs::open("/sys/fs/fuse/connections", mounted, Mode::empty())
        .and_then(|folder| open(&folder))
        .or_else(|_| open(&own_fusectl()?))?;
    Ok(File::from(file))
}

/// A mount of fusectl without a mount point; it ends with its descriptor. Needs root, and Linux 5.2.
fn own_fusectl() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

/// The connection of a descriptor of `/dev/fuse`, if the kernel shows it (Linux 6.17 and later).
pub(crate) fn device_of(descriptor: i32) -> Option<DeviceNumber> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    let minor = text.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    Some((0, minor.trim().parse().ok()?))
}
