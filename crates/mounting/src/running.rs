//! The mounts of this machine that answer on their sockets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use flatout_mount::{ExistingMount, MountHolder};

use crate::http;
use crate::stats::MountStats;

/// A mount that answered.
pub struct RunningMount {
    pub socket: PathBuf,
    pub stats: MountStats,
}

impl RunningMount {
    /// Whether it serves the mount that stands there. The device decides: another mount that is still held
    /// elsewhere may have had the same mount point.
    pub fn serves(&self, standing: &ExistingMount) -> bool {
        match self.stats.kernel.device() {
            Some(device) => device == standing.device(),
            None => Path::new(&self.stats.mount_point) == standing.path(),
        }
    }

    /// Who holds the mount elsewhere when it is no longer mounted here; `None` if it is mounted here, or that
    /// is unknown.
    pub fn held_elsewhere(&self) -> Option<Vec<MountHolder>> {
        let device = self.stats.kernel.device()?;
        if self.is_handed_over() || flatout_mount::is_mounted_here(device) {
            return None;
        }
        let holders = flatout_mount::holders(device, Path::new(&self.stats.mount_point));
        match holders.is_empty() {
            false => Some(holders),
            // It may be about to end.
            true => stats_of(&self.socket).map(|_| vec![MountHolder::unseen()]),
        }
    }

    /// Whether its process sees it mounted; `true` if that cannot be known.
    pub fn is_mounted(&self) -> bool {
        let is_mounted = |device| flatout_mount::is_mounted_for(self.stats.pid, device);
        self.is_handed_over() || self.stats.kernel.device().is_none_or(is_mounted)
    }

    fn is_handed_over(&self) -> bool {
        is_handed_over(Path::new(&self.stats.mount_point))
    }
}

/// Whether this names a connection that another process has opened, and mounted where it wanted.
pub(crate) fn is_handed_over(mount_point: &Path) -> bool {
    mount_point.starts_with("/dev/fd") || mount_point.starts_with("/proc/self/fd")
}

/// Every mount with a socket in these folders that answers, by process id. Sockets without a listener are
/// removed.
pub fn running_mounts(folders: &[PathBuf]) -> Vec<RunningMount> {
    let mut found: Vec<RunningMount> = folders.iter().flat_map(|folder| sockets(folder)).collect();
    found.sort_by_key(|running| running.stats.pid);
    found
}

/// The statistics of the mount at this socket, where it still answers.
pub fn stats_of(socket: &Path) -> Option<MountStats> {
    serde_json::from_str(&http::get(socket, "/stats").ok()?).ok()
}

fn sockets(folder: &Path) -> Vec<RunningMount> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("mount-") && name.ends_with(".sock")
    };
    let mut running = Vec::new();
    for socket in entries.filter(named) {
        match http::get(&socket, "/stats") {
            Ok(json) => {
                running.extend(serde_json::from_str(&json).ok().map(|stats| RunningMount { socket, stats }))
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&socket);
            }
            Err(_) => {}
        }
    }
    running
}
