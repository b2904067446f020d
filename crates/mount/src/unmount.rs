//! From a connection back to a folder: umount(2) or fusermount3, mounts whose daemon is gone included.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use flatout_engine::{Error, ErrorKind, Feature, Word, plain, text};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::holders::{self, Holder};
use crate::identity::{MountIdentity, local};
use crate::options::TYPE;
use crate::point::quoted;
use crate::tuning::DeviceNumber;
use crate::{fusermount, table};

/// A daemon that has not answered for so long is there, and does not answer.
const LOOK: Duration = Duration::from_secs(2);

/// Something that Flatout has mounted, served or left by a daemon that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    point: PathBuf,
    device: DeviceNumber,
    source: String,
}

impl Standing {
    /// What is mounted at this path. Nobody is asked who might not answer.
    ///
    /// # Errors
    /// `Usage` where there is nothing, or something of others; `LocalIo` where the system does not let it be looked at.
    pub fn at(path: &Path) -> Result<Standing, Error> {
        find(path).map_err(|error| error.during("umount", path.display()))
    }

    /// All that this user has mounted. Nobody is asked.
    pub fn all() -> Vec<Standing> {
        let user = rustix::process::getuid().as_raw();
        let own = table::of_kind(TYPE).into_iter().filter(|mount| mount.user == Some(user));
        own.map(Standing::of).collect()
    }

    fn of(mount: table::Mount) -> Standing {
        Standing { point: mount.point, device: mount.device, source: mount.source }
    }

    /// Without links and dots.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// What is mounted there: `s3://models`.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What its files have as their device: major and minor. Two mounts that stand at a time have two.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Whether somebody serves it. Waits at most two seconds for a daemon that does not answer, and leaves a thread with it.
    pub fn life(&self) -> Life {
        life(&self.point)
    }

    /// Whether its daemon is gone. Waits as [`Standing::life`].
    pub fn is_stale(&self) -> bool {
        self.life() == Life::Dead
    }

    /// What to run to unmount it, as a shell takes it.
    pub fn remedy(&self) -> String {
        format!("flatout umount {}", quoted(&self.point))
    }

    /// Unmounts it. `lazy`: it is out of sight at once, and ends when nobody uses it any more; so goes what has no daemon.
    ///
    /// # Errors
    /// `LocalIo` where something still uses it, or the system refuses.
    pub fn unmount(&self, lazy: bool) -> Result<(), Error> {
        detach(&self.point, &MountIdentity { point: None, device: Some(self.device) }, lazy)
            .map_err(|error| error.during("umount", self.point.display()))
    }
}

/// Unmounts what Flatout has mounted there: [`Standing::at`], [`Standing::unmount`].
///
/// # Errors
/// Those of both.
pub fn unmount(path: &Path, lazy: bool) -> Result<(), Error> {
    Standing::at(path)?.unmount(lazy)
}

fn find(path: &Path) -> Result<Standing, Error> {
    let shows = "`findmnt -t fuse.flatout` shows what is mounted";
    // Neither this nor umount(2) asks what is mounted there; with a slash at its end the path would.
    let bare: PathBuf = path.components().collect();
    let point = bare.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::new(ErrorKind::Usage, plain(&error)).with_hint(shows),
        _ => Error::new(ErrorKind::LocalIo, plain(&error)),
    })?;
    let Some(mount) = table::at(&point) else {
        return Err(Error::new(ErrorKind::Usage, "nothing is mounted there").with_hint(shows));
    };
    if mount.kind != TYPE {
        let cause = format!("is a mount of {}, not of Flatout", mount.kind);
        return Err(Error::new(ErrorKind::Usage, cause)
            .with_hint(format!("`umount {}` ends those of others", quoted(&point))));
    }
    Ok(Standing::of(mount))
}

/// Unmounts there what has this device; nothing where that is gone already.
pub(crate) fn detach(point: &Path, identity: &MountIdentity, lazy: bool) -> Result<(), Error> {
    let ours =
        || table::at(point).is_some_and(|mount| identity.device.is_none_or(|device| device == mount.device));
    if !ours() {
        return Ok(());
    }
    match by_umount(point, lazy) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => match fusermount::unmount(point, lazy) {
            Err(_) if !ours() => Ok(()),
            Err(_) if !lazy && life(point) == Life::Dead => fusermount::unmount(point, true),
            // Its words for EBUSY are the C library's.
            Err(error) if error.cause().contains("busy") => Err(busy(point, identity.device)),
            ended => ended,
        },
        // Files of a dead mount are open somewhere: they are of no use to anybody.
        Err(Errno::BUSY) if !lazy && life(point) == Life::Dead => {
            by_umount(point, true).map_err(|errno| local("it cannot be unmounted", errno))
        }
        Err(Errno::BUSY) => Err(busy(point, identity.device)),
        Err(_) if !ours() => Ok(()),
        Err(errno) => Err(local("it cannot be unmounted", errno)),
    }
}

/// Names who uses it, as far as that can be seen.
fn busy(point: &Path, device: Option<DeviceNumber>) -> Error {
    let users = device.map_or_else(Vec::new, |device| holders::users(device, point));
    let (cause, shows) = match Holder::list(&users) {
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

/// Whether somebody serves what is mounted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It answers, or says that this user may not look.
    Alive,
    /// "Transport endpoint is not connected".
    Dead,
    /// It does not answer.
    Silent,
}

/// Looks from a thread of its own, which a daemon that does not answer may keep. By statfs(2): what stat(2) shows the kernel may have
/// from before the daemon died.
pub(crate) fn life(point: &Path) -> Life {
    let (tell, told) = mpsc::channel();
    let point = point.to_owned();
    let look = move || {
        let dead = |errno| matches!(errno, Errno::NOTCONN | Errno::CONNABORTED);
        // Nobody listens any more where this took too long.
        let _ = tell.send(rustix::fs::statfs(&point).is_err_and(dead));
    };
    match std::thread::Builder::new().name("flatout-look".to_owned()).spawn(look) {
        Ok(_) => match told.recv_timeout(LOOK) {
            Ok(true) => Life::Dead,
            Ok(false) => Life::Alive,
            Err(_) => Life::Silent,
        },
        Err(_) => Life::Silent,
    }
}
