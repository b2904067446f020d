//! Where the status of a mount can be asked for: a socket of its user's, `mount-PID.sock`, and a port for
//! Prometheus.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::http::{Routes, StatusDocument, StatusServer};
use crate::prometheus::prometheus;
use crate::stats::MountStats;

/// Bound before anything is mounted, so that a port that is taken is no surprise of later.
pub struct StatusEndpoints {
    socket: Option<(UnixListener, SocketGuard)>,
    metrics: Option<TcpListener>,
}

/// Looks at the statistics of now.
pub type StatsFn = Arc<dyn Fn() -> MountStats + Send + Sync>;

/// Removes the socket when it is dropped.
struct SocketGuard(PathBuf);

/// Endpoints that answer until they are dropped.
pub(crate) struct ServedEndpoints {
    _server: Option<StatusServer>,
    _socket: Option<SocketGuard>,
}

impl StatusEndpoints {
    /// The socket in the first of `folders` where one can be made, else none; the port of `metrics`, or an
    /// error.
    ///
    /// # Errors
    /// The address of `metrics` cannot be listened on.
    pub fn bind(folders: &[PathBuf], metrics: Option<SocketAddr>) -> io::Result<StatusEndpoints> {
        let metrics = metrics.map(TcpListener::bind).transpose()?;
        Ok(StatusEndpoints { socket: folders.iter().find_map(|folder| bind(folder)), metrics })
    }

    /// Where the socket is.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(|(_, guard)| guard.0.as_path())
    }

    /// `http://ADDR:PORT/metrics`
    pub fn metrics_url(&self) -> Option<String> {
        let address = self.metrics.as_ref()?.local_addr().ok()?;
        Some(format!("http://{address}/metrics"))
    }

    /// Answers from now on.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn serve(self, stats: &StatsFn) -> io::Result<ServedEndpoints> {
        if self.socket.is_none() && self.metrics.is_none() {
            return Ok(ServedEndpoints { _server: None, _socket: None });
        }
        let (listener, socket) = self.socket.unzip();
        let unix = listener.map(|listener| (listener, routes(stats, true)));
        let tcp = self.metrics.map(|listener| (listener, routes(stats, false)));
        Ok(ServedEndpoints { _server: Some(StatusServer::start(unix, tcp)?), _socket: socket })
    }
}

/// Metrics of several mounts, on one port, until it is dropped.
pub struct MetricsEndpoint {
    address: SocketAddr,
    _server: StatusServer,
}

impl MetricsEndpoint {
    /// Answers at `/metrics` with those of all `mounts` of then, at `/healthz`, and at `/readyz` where
    /// `is_ready`.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn serve(
        address: SocketAddr,
        mounts: impl Fn() -> Vec<MountStats> + Send + Sync + 'static,
        is_ready: impl Fn() -> bool + Send + Sync + 'static,
    ) -> io::Result<MetricsEndpoint> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let routes: Routes = Arc::new(move |path| match path {
            "/metrics" => Some(metrics(prometheus(&mounts()))),
            "/healthz" => Some(ok()),
            "/readyz" if is_ready() => Some(ok()),
            _ => None,
        });
        Ok(MetricsEndpoint { address, _server: StatusServer::start(None, Some((listener, routes)))? })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// For probes of life.
fn ok() -> StatusDocument {
    StatusDocument { content_type: "text/plain", body: "ok\n".to_owned() }
}

fn metrics(body: String) -> StatusDocument {
    StatusDocument { content_type: "text/plain; version=0.0.4; charset=utf-8", body }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// On the network there are metrics for a scraper alone.
fn routes(stats: &StatsFn, all: bool) -> Routes {
    let stats = stats.clone();
    Arc::new(move |path| match path {
        "/metrics" => Some(metrics(stats().prometheus())),
        "/stats" if all => Some(StatusDocument { content_type: "application/json", body: stats().json() }),
        _ => None,
    })
}

/// A socket in that folder, where it is ours.
fn bind(folder: &Path) -> Option<(UnixListener, SocketGuard)> {
    if !is_own_folder(folder) {
        return None;
    }
    let path = folder.join(format!("mount-{}.sock", std::process::id()));
    Some((listen_at(&path).ok()?, SocketGuard(path)))
}

/// A socket for this user alone, in place of what a process of the same number may have left. It gets its
/// name only once it listens: one that refuses connections counts as a dead process's, and is removed.
///
/// # Errors
/// The system's.
pub fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let beside = path.with_extension("new");
    let _ = fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside)?;
    let named = fs::set_permissions(&beside, fs::Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&beside, path));
    named.inspect_err(|_| drop(fs::remove_file(&beside)))?;
    Ok(listener)
}

/// Whether only this user can write to the folder. It is made if its parent is there. Below /tmp another user
/// may have made it: it is not used then.
pub fn is_own_folder(folder: &Path) -> bool {
    if !folder.parent().is_some_and(Path::is_dir) {
        return false;
    }
    // Whether this succeeded shows below.
    let _ = fs::DirBuilder::new().mode(0o700).create(folder);
    let Ok(known) = fs::symlink_metadata(folder) else { return false };
    let own = fs::metadata("/proc/self").ok().map(|process| process.uid());
    known.is_dir() && own == Some(known.uid()) && known.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_not_removed_before_it_listens() {
        let folder = tempfile::tempdir().unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    crate::running::running_mounts(&[folder.path().to_owned()]);
                }
            });
            let kept = (0..2000).all(|at| {
                let path = folder.path().join(format!("mount-{at}.sock"));
                let listener = listen_at(&path).unwrap();
                let kept = path.exists();
                drop(listener);
                let _ = fs::remove_file(&path);
                kept
            });
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(kept, "somebody has removed it");
        });
    }

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
