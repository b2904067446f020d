//! What the kernel lets be set beside INIT, for one mount only: how far it reads ahead, and an end by force.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// What a mount's files have as their device.
pub(crate) type DeviceNumber = (u32, u32);

/// What the kernel reads ahead in one file of this mount, in bytes.
pub(crate) fn read_ahead(device: DeviceNumber) -> Option<u64> {
    let text = std::fs::read_to_string(read_ahead_path(device)).ok()?;
    Some(text.trim().parse::<u64>().ok()? << 10)
}

/// Needs root, and a /sys that may be written.
pub(crate) fn set_read_ahead(device: DeviceNumber, bytes: u64) -> io::Result<()> {
    let mut file = File::options().write(true).open(read_ahead_path(device))?;
    file.write_all((bytes >> 10).to_string().as_bytes())
}

/// What to run where that was refused.
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

/// How many requests of readahead may wait: the kernel lowers what others than root ask for.
pub(crate) fn max_background(device: DeviceNumber) -> Option<u16> {
    let mut text = String::new();
    control(device, "max_background", OFlags::RDONLY).ok()?.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Ends the connection: whoever waits for it gets an error, whoever reads its device ECONNABORTED. `ours` says whether the connection
/// that is meant still stands: the kernel gives the number of one that is gone to the next mount, so it is asked when the file is
/// open, which stays that connection's.
pub(crate) fn abort(device: DeviceNumber, ours: impl FnOnce() -> bool) -> io::Result<()> {
    let mut file = control(device, "abort", OFlags::WRONLY)?;
    if ours() { file.write_all(b"1") } else { Err(io::ErrorKind::NotFound.into()) }
}

/// A file of the connection's in fusectl, whether that is mounted or not.
fn control(device: DeviceNumber, name: &str, flags: OFlags) -> io::Result<File> {
    let name = format!("{}/{name}", device.1);
    let open = |folder: &OwnedFd| rustix::fs::openat(folder, &name, flags | OFlags::CLOEXEC, Mode::empty());
    let mounted = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let file = rustix::fs::open("/sys/fs/fuse/connections", mounted, Mode::empty())
        .and_then(|folder| open(&folder))
        .or_else(|_| open(&own_fusectl()?))?;
    Ok(File::from(file))
}

/// Mounted nowhere, and gone with its descriptor. Needs root, and Linux 5.2.
fn own_fusectl() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

/// The connection behind a descriptor of `/dev/fuse`, where the kernel tells (Linux 6.17 and later).
pub(crate) fn device_of(descriptor: i32) -> Option<DeviceNumber> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    let minor = text.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    Some((0, minor.trim().parse().ok()?))
}
