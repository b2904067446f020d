//! The socket on which Kubernetes calls: gRPC over a unix socket.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::transport::server::Router;

use crate::controller::{Controller, ControllerService};
use crate::identity::IdentityService;
use crate::node::{NodeService, Plugin};
use crate::proto::controller_server::ControllerServer;
use crate::proto::identity_server::IdentityServer;
use crate::proto::node_server::NodeServer;

/// How long a plugin that is to end waits for an engine that holds its mounts, too: less than kubelet's
/// patience.
const ALONE_AT_MOST: Duration = Duration::from_secs(25);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long calls may take that are under way when a plugin is to end.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// Where a plugin is called.
#[derive(Debug)]
pub struct Socket(PathBuf);

impl Socket {
    /// `unix:///csi/csi.sock`, `unix:/csi/csi.sock`, or the path alone.
    ///
    /// # Errors
    /// It is no path from the root; the end of a sentence.
    pub fn parse(endpoint: &str) -> Result<Socket, String> {
        let path =
            endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:")).unwrap_or(endpoint);
        match path.starts_with('/') && !path.ends_with('/') {
            true => Ok(Socket(path.into())),
            false => Err(format!("'{endpoint}' is no socket: write unix:///csi/csi.sock")),
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Listens in the place of a plugin that died. One that lives keeps its socket.
    fn listen(&self) -> io::Result<std::os::unix::net::UnixListener> {
        let is_socket = fs::symlink_metadata(&self.0).is_ok_and(|about| about.file_type().is_socket());
        if is_socket {
            match UnixStream::connect(&self.0) {
                Ok(_) => {
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, "another plugin answers there"));
                }
                Err(_) => fs::remove_file(&self.0)?,
            }
        }
        let listener = std::os::unix::net::UnixListener::bind(&self.0)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

/// Answers kubelet until `end` comes.
///
/// # Errors
/// The socket cannot be listened on.
pub async fn serve_node(
    socket: &Socket,
    plugin: Arc<Plugin>,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let probed = plugin.clone();
    let probe = Arc::new(move || probed.probe());
    let identity = IdentityService { driver: plugin.driver().to_owned(), probe };
    let router = Server::builder()
        .add_service(IdentityServer::new(identity))
        .add_service(NodeServer::new(NodeService::new(plugin.clone())));
    serve(router, socket, end).await?;
    // An engine that is just started anew takes over first.
    let since = Instant::now();
    while plugin.is_alone() && since.elapsed() < ALONE_AT_MOST {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// Answers external-provisioner until `end` comes.
///
/// # Errors
/// The socket cannot be listened on.
pub async fn serve_controller(
    socket: &Socket,
    controller: Controller,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let identity = IdentityService { driver: controller.driver().to_owned(), probe: Arc::new(|| Ok(true)) };
    let router = Server::builder()
        .add_service(IdentityServer::new(identity))
        .add_service(ControllerServer::new(ControllerService::new(controller)));
    serve(router, socket, end).await
}

async fn serve(router: Router, socket: &Socket, end: impl Future<Output = ()>) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(socket.listen()?)?;
    let is_to_end = Notify::new();
    let ends = async {
        end.await;
        is_to_end.notify_one();
    };
    let served = router.serve_with_incoming_shutdown(UnixListenerStream::new(listener), ends);
    // A client that keeps its connection keeps nobody.
    let has_ended = async {
        is_to_end.notified().await;
        tokio::time::sleep(ENDS_WITHIN).await;
    };
    let served = tokio::select! {
        served = served => served,
        () = has_ended => Ok(()),
    };
    // Whoever calls now is to try the next plugin.
    let _ = fs::remove_file(&socket.0);
    served.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_paths_from_the_root() {
        for endpoint in ["unix:///csi/csi.sock", "unix:/csi/csi.sock", "/csi/csi.sock"] {
            assert_eq!(Socket::parse(endpoint).unwrap().path(), Path::new("/csi/csi.sock"), "{endpoint}");
        }
        for endpoint in ["", "csi.sock", "unix://csi.sock", "tcp://1.2.3.4:1", "unix:///csi/"] {
            assert!(Socket::parse(endpoint).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn a_dead_plugins_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let socket = Socket(folder.path().join("csi.sock"));
        drop(socket.listen().unwrap());
        let living = socket.listen().unwrap();
        assert_eq!(socket.listen().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(living);
        fs::remove_file(&socket.0).unwrap();
        fs::write(&socket.0, "a file of somebody else").unwrap();
        assert!(socket.listen().is_err());
        assert!(fs::read(&socket.0).unwrap().starts_with(b"a file"));
    }
}
