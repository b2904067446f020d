//! From a connection back to a folder: umount(2) or fusermount3, mounts whose daemon is gone included.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use flatout_engine::{Error, ErrorKind};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::attach::{Anchor, local};
use crate::options::TYPE;
use crate::{fusermount, table};

/// A daemon that has not answered for so long is there, and does not answer.
const LOOK: Duration = Duration::from_secs(2);

/// Unmounts what Flatout has mounted there, and repairs a mount point whose daemon is gone. `lazy`: it is out of sight at once, and
/// ends when nobody uses it any more.
pub fn unmount(path: &Path, lazy: bool) -> Result<(), Error> {
    by_path(path, lazy).map_err(|error| error.during("umount", path.display()))
}

fn by_path(path: &Path, lazy: bool) -> Result<(), Error> {
    // Neither this nor umount(2) asks what is mounted there.
    let point = path.canonicalize().map_err(|error| {
        Error::new(ErrorKind::Usage, flatout_engine::plain(&error))
            .with_hint("name the folder it is mounted at")
    })?;
    let Some(mount) = table::at(&point) else {
        return Err(Error::new(ErrorKind::Usage, "nothing is mounted there")
            .with_hint("`findmnt -t fuse.flatout` shows what is mounted"));
    };
    // One that somebody else mounted and handed over may have the plain type.
    if mount.kind != TYPE && mount.kind != "fuse" {
        return Err(Error::new(
            ErrorKind::Usage,
            format!("what is mounted there is {}, not Flatout's", mount.kind),
        )
        .with_hint("use `umount` for it"));
    }
    detach(&point, &Anchor { point: None, device: Some(mount.device) }, lazy)
}

/// Unmounts there what has this device; nothing where that is gone already.
pub(crate) fn detach(point: &Path, anchor: &Anchor, lazy: bool) -> Result<(), Error> {
    let ours =
        || table::at(point).is_some_and(|mount| anchor.device.is_none_or(|device| device == mount.device));
    if !ours() {
        return Ok(());
    }
    match by_umount(point, lazy) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => match fusermount::unmount(point, lazy) {
            Err(_) if !ours() => Ok(()),
            Err(_) if !lazy && life(point) == Life::Dead => fusermount::unmount(point, true),
            // Its words for EBUSY are the C library's.
            Err(error) if error.cause().contains("busy") => Err(busy(point)),
            ended => ended,
        },
        // Files of a dead mount are open somewhere: they are of no use to anybody.
        Err(Errno::BUSY) if !lazy && life(point) == Life::Dead => {
            by_umount(point, true).map_err(|errno| local("it cannot be unmounted", errno))
        }
        Err(Errno::BUSY) => Err(busy(point)),
        Err(_) if !ours() => Ok(()),
        Err(errno) => Err(local("it cannot be unmounted", errno)),
    }
}

fn busy(point: &Path) -> Error {
    Error::new(ErrorKind::LocalIo, "something still uses it").with_hint(format!(
        "`fuser -vm {0}` shows who; `flatout umount --lazy {0}` takes it out of sight now, and ends it when they are done",
        point.display()
    ))
}

fn by_umount(point: &Path, lazy: bool) -> Result<(), Errno> {
    let lazily = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    rustix::mount::unmount(point, UnmountFlags::NOFOLLOW | lazily)
}

/// Whether somebody serves what is mounted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    /// "Transport endpoint is not connected".
    Dead,
    /// It does not answer.
    Silent,
}

/// Looks from a thread of its own, which a daemon that does not answer may keep.
pub(crate) fn life(point: &Path) -> Life {
    let (tell, told) = mpsc::channel();
    let point = point.to_owned();
    let look = move || {
        let dead = |error: std::io::Error| {
            matches!(Errno::from_io_error(&error), Some(Errno::NOTCONN | Errno::CONNABORTED))
        };
        // Nobody listens any more where this took too long.
        let _ = tell.send(std::fs::metadata(point).is_err_and(dead));
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
