//! An image of EROFS that a connection serves: the connection has no mount point, and its only file is what
//! the kernel mounts. Names and attributes cost nothing after that, and reads ask for bytes of the image.
//!
//! Needs root, and Linux 6.12.7 (Documentation/filesystems/erofs.rst, fs/erofs/super.c).

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::thread;

use flatout_engine::{Error, ErrorKind};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::identity::{ShownDevice, local};
use crate::options::{ImageOptions, Options, kernel_options};
use crate::own_table::keep_only;
use crate::table::{self, IMAGE_NAME, IMAGE_TYPE};
use crate::tuning::DeviceNumber;

/// A connection that is mounted nowhere. The mount lasts as long as this, or a file of it that is open.
#[derive(Debug)]
pub(crate) struct DetachedRoot(OwnedFd);

impl DetachedRoot {
    /// Connects the device.
    pub fn new(device: &OwnedFd, source: &str) -> Result<DetachedRoot, Errno> {
        let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let options = [
            ("source", source.to_owned()),
            ("subtype", "flatout".to_owned()),
            ("fd", device.as_raw_fd().to_string()),
            ("rootmode", "40000".to_owned()),
            ("user_id", uid.to_string()),
            ("group_id", gid.to_string()),
        ];
        for (name, value) in &options {
            fsconfig_set_string(&context, *name, value.as_str())?;
        }
        fsconfig_create(&context)?;
        let flags = shared_flags() | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags).map(DetachedRoot)
    }

    /// The device number of the connection.
    pub fn device(&self) -> Option<DeviceNumber> {
        device_of(&self.0)
    }

    /// Mounts the image of a connection that is served, as the options say, nowhere yet. `shown` gets its
    /// device.
    pub fn mount_image(
        &self,
        options: &Options,
        image: ImageOptions,
        shown: Option<&ShownDevice>,
    ) -> Result<OwnedFd, Error> {
        let noexec = kernel_options(&options.options)?.flags.contains(MountFlags::NOEXEC);
        let mounted = self.mount_image_with(image.direct, noexec).map_err(refused)?;
        shown.inspect(|shown| shown.set(device_of(&mounted)));
        Ok(mounted)
    }

    fn mount_image_with(&self, direct: bool, noexec: bool) -> Result<OwnedFd, Errno> {
        let context = fsopen(IMAGE_TYPE, FsOpenFlags::FSOPEN_CLOEXEC)?;
        let path = format!("/proc/self/fd/{}/{IMAGE_NAME}", self.0.as_raw_fd());
        fsconfig_set_string(&context, "source", path.as_str())?;
        // Linux 6.12 does not know `directio`: there, data are in the page cache twice. Where the others are
        // not built in, there is nothing to do without: `ls -l` then asks for the ACL of one file alone.
        let wanted = [(direct, "directio"), (true, "noacl"), (true, "nouser_xattr")];
        for (_, option) in wanted.iter().filter(|(is_wanted, _)| *is_wanted) {
            match fsconfig_set_flag(&context, *option) {
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno),
            }
        }
        create(&context)?;
        let more = if noexec { MountAttrFlags::MOUNT_ATTR_NOEXEC } else { MountAttrFlags::empty() };
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, shared_flags() | more)
    }
}

/// Mounts an image, which is mounted nowhere yet, where the options say.
pub(crate) fn place(mounted: &OwnedFd, options: &Options, image: ImageOptions) -> Result<(), Error> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    let point = &options.mount_point;
    let place = |flags| move_mount(mounted, "", CWD, point, flags).map_err(refused);
    let Some(old) = image.replaces else { return place(flags) };
    check_visible(point, old)?;
    // Beneath the old one, so that the mount point is never bare.
    place(flags | MoveMountFlags::MOVE_MOUNT_BENEATH)?;
    // Somebody may have mounted over it meanwhile, and umount(2) takes the mount on top.
    check_visible(point, old)?;
    rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).map_err(refused)
}

/// The kernel reads the image's beginning meanwhile, which this very process may serve: see [`keep_only`].
fn create(context: &OwnedFd) -> Result<(), Errno> {
    let create = || {
        keep_only(Some(context.as_fd()))?;
        fsconfig_create(context)
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("flatout-image".to_owned()).spawn_scoped(scope, create);
        let created = thread.map_err(|_| Errno::AGAIN)?.join();
        created.unwrap_or(Err(Errno::IO))
    })
}

/// Checks that users see the mount with this device there, so that it can be replaced.
///
/// # Errors
/// It is not mounted there, or something else is mounted over it.
pub fn check_visible(point: &Path, device: (u32, u32)) -> Result<(), Error> {
    match table::at(point) {
        Some(mount) if mount.device == device => Ok(()),
        Some(_) => {
            Err(Error::new(ErrorKind::Usage, "something else is mounted over it")
                .with_hint("unmount that first"))
        }
        None => Err(Error::new(ErrorKind::Usage, "it is not mounted there any more")),
    }
}

/// The device number of a mount. No request is sent to the process that serves it.
fn device_of(mount: &OwnedFd) -> Option<DeviceNumber> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let about = rustix::fs::statx(mount, "", flags, StatxFlags::empty()).ok()?;
    Some((about.stx_dev_major, about.stx_dev_minor))
}

/// An origin must not grant rights.
fn shared_flags() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOATIME
}

fn refused(errno: Errno) -> Error {
    let hint = match errno {
        Errno::NODEV => "the kernel has no EROFS: run `modprobe erofs`",
        Errno::NOTBLK => {
            "the kernel mounts no image from a file: Linux 6.12 is needed, with EROFS_FS_BACKED_BY_FILE"
        }
        Errno::PERM => "only root may mount an image",
        _ => "`dmesg` may say more",
    };
    let error = local("the kernel refuses the image", errno);
    match errno {
        Errno::NODEV | Errno::NOTBLK | Errno::PERM | Errno::NOSYS => {
            Error::new(ErrorKind::Unsupported, error.cause()).with_hint(hint)
        }
        _ => error.with_hint(hint),
    }
}
