//! Mounts, seen and changed without asking the file system that is mounted: it may be dead, and whoever asks
//! it would wait.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use flatout_mount::{DaemonState, MountEntry};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

/// How long umount(2) may take, which should take none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a driver of volumes has mounted it: this one, or the one that was here before it.
pub fn is_of_a_driver(mount: &MountEntry) -> bool {
    mount.kind == "fuse" || mount.kind.starts_with("fuse.") || mount.is_image()
}

/// Whether nobody serves what is mounted there, and nobody will. A mount that does not answer may be served
/// again. Of an image this is not seen: its names are answered by the kernel alone.
pub fn is_dead(point: &Path) -> bool {
    at(point).is_none() || flatout_mount::daemon_at(point) == DaemonState::Dead
}

/// The mount at that path, from the kernel's list.
pub fn at(path: &Path) -> Option<MountEntry> {
    flatout_mount::mount_at(path)
}

/// Makes the folder. What is mounted there is not looked at.
///
/// # Errors
/// The system's.
pub fn make(target: &Path) -> io::Result<()> {
    if at(target).is_some() {
        return Ok(());
    }
    match fs::create_dir(target) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && target.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(target),
        made => made,
    }
}

/// Shows `source` at `target`, too. Above a mount that has died, which stays: without it whoever writes there
/// meanwhile would write to the node's own disk.
///
/// It is bound by way of a mount that nothing propagates to or from. Targets that are bound from one mount
/// would be peers: what is mounted above one of them when it has died, or unmounted there, would be so at
/// all of them, whatever their rights. And a remount that forbids writing holds in this mount namespace
/// alone, where a bind of a mount that forbids it forbids it everywhere.
///
/// # Errors
/// The system's.
pub fn bind(source: &Path, target: &Path, read_only: bool, system: &[String]) -> io::Result<()> {
    let between = source.with_extension("bind");
    unmount(&between)?;
    make(&between)?;
    let has = |name: &str| system.iter().any(|option| option == name);
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOATIME;
    // A remount that leaves these out would allow what the mount forbids.
    flags |= if has("suid") { MountFlags::empty() } else { MountFlags::NOSUID };
    flags |= if has("dev") { MountFlags::empty() } else { MountFlags::NODEV };
    flags |= if has("noexec") { MountFlags::NOEXEC } else { MountFlags::empty() };
    let forbid = || match read_only {
        true => rustix::mount::mount_remount(&between, flags, ""),
        false => Ok(()),
    };
    let shown = rustix::mount::mount_bind(source, &between)
        .and_then(|()| rustix::mount::mount_change(&between, MountPropagationFlags::PRIVATE))
        .and_then(|()| forbid())
        .and_then(|()| rustix::mount::mount_bind(&between, target));
    // What is left of it is cleared the next time.
    let _ = unmount(&between).and_then(|_| remove(&between));
    Ok(shown?)
}

/// How an unmount went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody used it, or nothing was mounted.
    Cleanly,
    /// Somebody uses it still: it is out of sight, and ends when they do.
    InUse,
}

/// Unmounts what drivers of volumes have mounted there, several times where it is there several times.
///
/// # Errors
/// Something else is mounted there, the system's refusal, or no answer in time.
pub fn unmount(path: &Path) -> io::Result<Unmounted> {
    let mut how = Unmounted::Cleanly;
    while let Some(mount) = at(path) {
        if !is_of_a_driver(&mount) {
            return Err(io::Error::other(format!("a mount of another kind is there: {}", mount.kind)));
        }
        how = match call(path, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) => {
                call(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?;
                Unmounted::InUse
            }
            Err(Errno::INVAL) => how,
            done => done.map(|()| how)?,
        };
    }
    Ok(how)
}

/// umount(2) on a thread of its own, which a stuck one keeps.
fn call(path: &Path, flags: UnmountFlags) -> Result<(), Errno> {
    let (sender, done) = mpsc::channel();
    let path = path.to_owned();
    let work = move || {
        // Nobody waits for it any more where it took too long.
        let _ = sender.send(rustix::mount::unmount(&path, flags));
    };
    thread::Builder::new().name("umount".into()).spawn(work).map_err(|_| Errno::AGAIN)?;
    done.recv_timeout(PATIENCE).unwrap_or(Err(Errno::TIMEDOUT))
}

/// Removes the folder, if it is there. It must be empty, and nothing mounted on it.
///
/// # Errors
/// The system's: it holds files.
pub fn remove(target: &Path) -> io::Result<()> {
    match fs::remove_dir(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
