//! The socket of a running mount, and finding those of others: `mount-PID.sock`, for its user alone.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatout_mount::{ExistingMount, MountHolder};

use crate::commands::mount::numbers::Numbers;
use crate::commands::mount::responder::{self, Answer, Routes};
use crate::failure::Failure;

/// Made before anything is mounted, so that a port that is taken is no surprise of later.
pub struct Doors {
    socket: Option<(UnixListener, Open)>,
    metrics: Option<TcpListener>,
}

/// Looks at the numbers of now.
pub type Look = Arc<dyn Fn() -> Numbers + Send + Sync>;

/// Removes the socket with itself.
pub struct Open {
    path: Option<PathBuf>,
}

impl Doors {
    /// The socket in the first folder that can be made, else none; the port that is asked for, or an error.
    ///
    /// # Errors
    /// The port cannot be had.
    pub fn make(metrics: Option<SocketAddr>) -> Result<Doors, Failure> {
        let metrics = metrics.map(|address| {
            TcpListener::bind(address).map_err(|error| {
                let failure = Failure::local("mount", format!("--metrics {address}"), &error);
                match error.kind() {
                    io::ErrorKind::AddrInUse => failure.with_hint("choose another port, or 0 for a free one"),
                    io::ErrorKind::AddrNotAvailable => {
                        failure.with_hint("name an address of this machine, or a port alone for 127.0.0.1")
                    }
                    io::ErrorKind::PermissionDenied => failure.with_hint("choose a port from 1024 on"),
                    _ => failure,
                }
            })
        });
        Ok(Doors {
            socket: flatout_ambient::runtime_folders().iter().find_map(|folder| bind(folder)),
            metrics: metrics.transpose()?,
        })
    }

    /// Where the socket is.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_ref()?.1.path.as_deref()
    }

    /// `http://ADDR:PORT/metrics`
    pub fn metrics(&self) -> Option<String> {
        let address = self.metrics.as_ref()?.local_addr().ok()?;
        Some(format!("http://{address}/metrics"))
    }

    /// Answers from now on.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn open(self, look: &Look) -> io::Result<Open> {
        let mut open = Open { path: None };
        if let Some((listener, socket)) = self.socket {
            open = socket;
            responder::answer_unix(listener, routes(look, true))?;
        }
        if let Some(listener) = self.metrics {
            responder::answer_tcp(listener, routes(look, false))?;
        }
        Ok(open)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// On the network there are numbers for a scraper alone.
fn routes(look: &Look, all: bool) -> Routes {
    let look = look.clone();
    Arc::new(move |path| match path {
        "/metrics" => Some(Answer {
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            body: look().prometheus(),
        }),
        "/stats" if all => Some(Answer { content_type: "application/json", body: look().json() }),
        _ => None,
    })
}

/// A socket in that folder, where it is ours.
fn bind(folder: &Path) -> Option<(UnixListener, Open)> {
    if !is_own_folder(folder) {
        return None;
    }
    let path = folder.join(format!("mount-{}.sock", std::process::id()));
    // Of a process of the same number that died.
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path).ok()?;
    let socket = Open { path: Some(path.clone()) };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).ok()?;
    Some((listener, socket))
}

/// Whether it is a folder that nobody else can write to; it is made where what it lies in is there. Below /tmp somebody else may
/// have made it: then it is not for what is ours.
pub fn is_own_folder(folder: &Path) -> bool {
    if !folder.parent().is_some_and(Path::is_dir) {
        return false;
    }
    // Where it is there already, or cannot be made, the look tells.
    let _ = fs::DirBuilder::new().mode(0o700).create(folder);
    let Ok(known) = fs::symlink_metadata(folder) else { return false };
    let own = fs::metadata("/proc/self").ok().map(|process| process.uid());
    known.is_dir() && own == Some(known.uid()) && known.mode() & 0o022 == 0
}

/// A mount that answered.
pub struct Running {
    pub socket: PathBuf,
    pub numbers: Numbers,
}

impl Running {
    /// Whether it serves what stands there. By the device, as one that is kept by others may have had the same mount point before.
    pub fn serves(&self, standing: &ExistingMount) -> bool {
        match self.numbers.kernel.device() {
            Some(device) => device == standing.device(),
            None => Path::new(&self.numbers.mount_point) == standing.path(),
        }
    }

    /// Who keeps it, where it is not mounted here any more; `None` where it is, or that is not known.
    pub fn held_elsewhere(&self) -> Option<Vec<MountHolder>> {
        let point = Path::new(&self.numbers.mount_point);
        let device = self.numbers.kernel.device()?;
        // One that was handed over is mounted where others wanted it.
        let is_handed_over = point.starts_with("/dev/fd") || point.starts_with("/proc/self/fd");
        if is_handed_over || flatout_mount::is_mounted_here(device) {
            return None;
        }
        let holders = flatout_mount::holders(device, point);
        match holders.is_empty() {
            false => Some(holders),
            // It may be about to end.
            true => look_again(&self.socket).map(|_| vec![MountHolder::unseen()]),
        }
    }
}

/// Every mount whose socket may be asked, by process id. Sockets that nobody listens on any more go.
pub fn running() -> Vec<Running> {
    let mut found: Vec<Running> =
        flatout_ambient::runtime_folders().iter().flat_map(|folder| sockets(folder)).collect();
    found.sort_by_key(|running| running.numbers.pid);
    found
}

/// The numbers of a mount, where it still answers.
pub fn look_again(socket: &Path) -> Option<Numbers> {
    serde_json::from_str(&responder::ask(socket, "/stats").ok()?).ok()
}

fn sockets(folder: &Path) -> Vec<Running> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("mount-") && name.ends_with(".sock")
    };
    let mut running = Vec::new();
    for socket in entries.filter(named) {
        match responder::ask(&socket, "/stats") {
            Ok(json) => {
                running.extend(serde_json::from_str(&json).ok().map(|numbers| Running { socket, numbers }))
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&socket);
            }
            Err(_) => {}
        }
    }
    running
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_write_to_is_not_ours() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("flatout");
        assert!(is_own_folder(&folder) && is_own_folder(&folder));
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(!is_own_folder(&folder));
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(!is_own_folder(&link), "a link that somebody has laid");
        assert!(!is_own_folder(&base.path().join("none/flatout")) && !base.path().join("none").exists());
        fs::write(base.path().join("file"), "x").unwrap();
        assert!(!is_own_folder(&base.path().join("file")) && !is_own_folder(Path::new("/proc/flatout")));
    }
}
