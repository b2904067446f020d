//! What the supervisor and the process that serves tell each other, over the socket that the latter was
//! started with as its standard input.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::events::Mounted;
use crate::failure::Failure;

#[derive(Debug, Serialize, Deserialize)]
pub enum ToDaemon {
    /// The first message.
    Begin {
        supervisor: u32,
        /// Another process has served the mount.
        takes_over: bool,
        /// The log, from its first line on; none in the foreground, and before the mount stands.
        #[serde(default)]
        log: Option<PathBuf>,
    },
    /// The mount comes next.
    Serve,
    /// It is known to stand. In the background the process lets go of its streams.
    Stands { in_background: bool, log: Option<PathBuf> },
    /// Another process is to go on: end, unless something would be lost.
    HandOver,
    /// It is not to, after all.
    GoOn,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// It could serve a mount of this format.
    Ready {
        format: u32,
    },
    Failed(Failure),
    Serves(Mounted),
    /// Something would be lost if it ended.
    Stays(Failure),
    /// Users are about to see another mount in this one's place, or by FUSE see it already. It comes next.
    Replaces,
    /// They see it now.
    Shows,
    /// The mount has ended.
    Ended(Option<Failure>),
}

/// What a process that serves tells a new supervisor. Its oldest mount comes next, then each newer one as
/// [`ToSupervisor::Replaces`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Adoption {
    pub pid: u32,
    pub log: Option<PathBuf>,
    /// Where the command line was typed.
    pub folder: PathBuf,
}

/// # Errors
/// The other side is gone.
pub fn send(socket: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    flatout_mount::send(socket, &serde_json::to_vec(message)?, &[])
}

/// Waits for the next message; `None` once the other side is gone.
///
/// # Errors
/// It is of another version (`InvalidData`), or the system's.
pub fn receive<M: DeserializeOwned>(socket: &UnixStream) -> io::Result<Option<M>> {
    match flatout_mount::receive(socket)? {
        Some((bytes, _)) => Ok(Some(serde_json::from_slice(&bytes)?)),
        None => Ok(None),
    }
}

/// The socket that this process was started with. No other program that it starts inherits it.
///
/// # Errors
/// It was started without one.
pub fn of_stdin() -> io::Result<UnixStream> {
    let socket = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    socket.peer_addr()?;
    rustix::stdio::dup2_stdin(&File::open("/dev/null")?)?;
    Ok(socket)
}

/// Whether the other side has closed the socket, or will say no more.
pub fn is_closed(socket: &UnixStream) -> bool {
    is_ready(socket, PollFlags::RDHUP)
}

/// Whether the other side has said more, or is gone.
pub fn has_news(socket: &UnixStream) -> bool {
    is_ready(socket, PollFlags::IN)
}

/// Without waiting.
fn is_ready(socket: &UnixStream, flags: PollFlags) -> bool {
    poll(&mut [PollFd::new(socket, flags)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Every message, until the other side is gone.
pub fn all<M: DeserializeOwned>(socket: &UnixStream) -> impl Iterator<Item = M> {
    std::iter::from_fn(move || {
        loop {
            match receive(socket) {
                Ok(message) => return message,
                // A newer program's.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(_) => return None,
            }
        }
    })
}
