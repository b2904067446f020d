//! Tells a service manager that the mount stands, by one datagram: systemd's `Type=notify`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state` (`READY=1`) if a service manager waits for it. If it cannot be reached, the mount stands all
/// the same.
pub fn send(state: &str) {
    if let Some(socket) = flatout_ambient::notify_socket() {
        let _ = send_to(&socket, state);
    }
}

/// A name that begins with `@` is one of the abstract name space.
fn send_to(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_datagram_arrives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("flatout-test-{}", std::process::id());
        let check = |listener: UnixDatagram, socket: &OsStr| {
            send_to(socket, "READY=1").unwrap();
            let mut got = [0; 64];
            let bytes = listener.recv(&mut got).unwrap();
            assert_eq!(&got[..bytes], b"READY=1");
        };
        check(UnixDatagram::bind(&path).unwrap(), path.as_os_str());
        let hidden = SocketAddr::from_abstract_name(&name).unwrap();
        check(UnixDatagram::bind_addr(&hidden).unwrap(), OsStr::new(&format!("@{name}")));
        assert!(send_to(folder.path().join("nobody").as_os_str(), "READY=1").is_err());
    }
}
