//! Unmounting, by umount(2) or fusermount3; also of mounts whose daemon is gone.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use flatout_engine::{Error, ErrorKind, Feature, Word, plain, text};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::holders::{self, MountHolder};
use crate::identity::{MountIdentity, local};
use crate::options::TYPE;
use crate::own_table::keep_only;
use crate::point::quoted;
use crate::tuning::DeviceNumber;
use crate::{fusermount, table};

/// A daemon that has not answered for this long counts as silent.
const LOOK: Duration = Duration::from_secs(2);

/// A mount of Flatout's: served, or left by a daemon that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingMount {
    point: PathBuf,
    device: DeviceNumber,
    source: String,
}

impl ExistingMount {
    /// The mount at this path. Does not wait for its daemon.
    ///
    /// # Errors
    /// `Usage` if there is none, or one of another type; `LocalIo` if the system refuses to show it.
    pub fn at(path: &Path) -> Result<ExistingMount, Error> {
        find(path).map_err(|error| error.during("umount", path.display()))
    }

    /// All mounts of this user. Does not wait for their daemons.
    pub fn all() -> Vec<ExistingMount> {
        let user = rustix::process::getuid().as_raw();
        let own = table::all().into_iter().filter(|mount| match mount.is_image() {
            // Only root can mount one.
            true => user == 0,
            false => mount.kind == TYPE && mount.user == Some(user),
        });
        own.map(ExistingMount::of).collect()
    }

    fn of(mount: table::MountEntry) -> ExistingMount {
        ExistingMount { point: mount.point, device: mount.device, source: mount.source }
    }

    /// Without links and dots.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// What is mounted there: `s3://models`.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The device number of its files: major, minor. No two mounts have one at a time.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Whether a daemon serves it. Waits at most two seconds for a silent one, which then keeps a thread.
    pub fn daemon(&self) -> DaemonState {
        daemon_at(&self.point)
    }

    /// Whether its daemon is gone. Waits at most two seconds for a silent one.
    pub fn is_stale(&self) -> bool {
        self.daemon() == DaemonState::Dead
    }

    /// The command that unmounts it.
    pub fn remedy(&self) -> String {
        format!("flatout umount {}", quoted(&self.point))
    }

    /// Unmounts it. `lazy`: it is out of sight at once, and ends with its last user; a mount without a daemon
    /// always goes so.
    ///
    /// # Errors
    /// `LocalIo` if it is in use, or the system refuses.
    pub fn unmount(&self, lazy: bool) -> Result<(), Error> {
        detach(&self.point, &MountIdentity { device: Some(self.device), ..MountIdentity::default() }, lazy)
            .map_err(|error| error.during("umount", self.point.display()))
    }
}

/// Unmounts the mount of Flatout's at this path: [`ExistingMount::at`], [`ExistingMount::unmount`].
///
/// # Errors
/// Those of both.
pub fn unmount(path: &Path, lazy: bool) -> Result<(), Error> {
    ExistingMount::at(path)?.unmount(lazy)
}

fn find(path: &Path) -> Result<ExistingMount, Error> {
    let shows = "`findmnt -t fuse.flatout,erofs` shows what is mounted";
    // With a slash at its end, the path would ask the file system that is mounted there; umount(2) does not.
    let bare: PathBuf = path.components().collect();
    let point = bare.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::new(ErrorKind::Usage, plain(&error)).with_hint(shows),
        _ => Error::new(ErrorKind::LocalIo, plain(&error)),
    })?;
    let Some(mount) = table::at(&point) else {
        return Err(Error::new(ErrorKind::Usage, "nothing is mounted there").with_hint(shows));
    };
    if mount.kind != TYPE && !mount.is_image() {
        let cause = format!("is a mount of {}, not of Flatout", mount.kind);
        return Err(Error::new(ErrorKind::Usage, cause)
            .with_hint(format!("`umount {}` ends those of others", quoted(&point))));
    }
    Ok(ExistingMount::of(mount))
}

/// Unmounts the mount with this device; nothing if it is gone already.
pub(crate) fn detach(point: &Path, identity: &MountIdentity, lazy: bool) -> Result<(), Error> {
    let device = identity.shown();
    let is_ours = |mount: table::MountEntry| match device {
        Some(device) => mount.device == device,
        // Something else is mounted where an image is not yet.
        None => identity.image.is_none(),
    };
    let ours = || table::at(point).is_some_and(is_ours);
    if !ours() {
        return Ok(());
    }
    match by_umount(point, lazy) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => match fusermount::unmount(point, lazy) {
            Err(_) if !ours() => Ok(()),
            Err(_) if !lazy && daemon_at(point) == DaemonState::Dead => fusermount::unmount(point, true),
            // Its words for EBUSY are the C library's.
            Err(error) if error.cause().contains("busy") => Err(busy(point, device)),
            ended => ended,
        },
        // Files of a dead mount are open somewhere. They are useless.
        Err(Errno::BUSY) if !lazy && daemon_at(point) == DaemonState::Dead => {
            by_umount(point, true).map_err(|errno| local("it cannot be unmounted", errno))
        }
        Err(Errno::BUSY) => Err(busy(point, device)),
        Err(_) if !ours() => Ok(()),
        Err(errno) => Err(local("it cannot be unmounted", errno)),
    }
}

/// The error that names its users, as far as they can be seen.
fn busy(point: &Path, device: Option<DeviceNumber>) -> Error {
    let users = device.map_or_else(Vec::new, |device| holders::users(device, point));
    let (cause, shows) = match MountHolder::list(&users) {
        Some(list) => (format!("something still uses it: {list}"), String::new()),
        None => ("something still uses it".to_owned(), format!("`fuser -vm {}` shows who; ", quoted(point))),
    };
    Error::new(ErrorKind::LocalIo, cause).with_hint([
        text(shows),
        Word::Feature(Feature::UnmountLazily(quoted(point))),
        text(" takes it out of sight now, and ends it when they are done"),
    ])
}

fn by_umount(point: &Path, lazy: bool) -> Result<(), Errno> {
    let lazily = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    rustix::mount::unmount(point, UnmountFlags::NOFOLLOW | lazily)
}

/// Whether a mount's daemon serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonState {
    /// It answers, also by refusing access to this user.
    Alive,
    /// "Transport endpoint is not connected".
    Dead,
    /// It does not answer.
    Silent,
}

/// Asks on a thread of its own, which a silent daemon keeps. By statfs(2): the kernel may answer stat(2) from
/// its cache after the daemon died.
pub fn daemon_at(point: &Path) -> DaemonState {
    let (sender, receiver) = mpsc::channel();
    let point = point.to_owned();
    let look = move || {
        // If that fails, the look still works.
        let _ = keep_only(None);
        let dead = |errno| matches!(errno, Errno::NOTCONN | Errno::CONNABORTED);
        // Too late: there is no receiver any more.
        let _ = sender.send(rustix::fs::statfs(&point).is_err_and(dead));
    };
    match std::thread::Builder::new().name("flatout-look".to_owned()).spawn(look) {
        Ok(_) => match receiver.recv_timeout(LOOK) {
            Ok(true) => DaemonState::Dead,
            Ok(false) => DaemonState::Alive,
            Err(_) => DaemonState::Silent,
        },
        Err(_) => DaemonState::Silent,
    }
}
