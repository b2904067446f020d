//! `flatout mount --upgrade`: the socket where a supervisor is told of another program, and the command that
//! tells it.

use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flatout_mount::ExistingMount;
use flatout_mounting::RunningMount;
use serde::{Deserialize, Serialize};

use super::messages;
use crate::args::Mount;
use crate::console::{Carries, Console};
use crate::events::Mounted;
use crate::exit::Exit;
use crate::failure::Failure;

/// Longer than a supervisor takes to wait for files that are being written.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that takes over answers within this time, unless it ends renames.
const TAKES_OVER_WITHIN: Duration = Duration::from_secs(3);

/// A client that is slower keeps no other waiting.
const ASKS_WITHIN: Duration = Duration::from_secs(2);

/// What a supervisor is asked to do.
pub struct UpgradeRequest {
    pub program: PathBuf,
    /// Whether the caller has withdrawn the upgrade.
    pub is_withdrawn: Box<dyn Fn() -> bool + Send>,
    pub answer: Box<dyn FnOnce(Result<Mounted, Failure>) + Send>,
}

#[derive(Serialize, Deserialize)]
struct Upgrade {
    program: PathBuf,
}

/// Listens until it is dropped, which removes the socket.
pub struct ControlSocket(PathBuf);

impl ControlSocket {
    /// In the first of these folders where a socket can be made, which only this user can write to.
    pub fn listen(
        folders: &[PathBuf],
        each: impl Fn(UpgradeRequest) + Send + 'static,
    ) -> Option<ControlSocket> {
        let (listener, path) = folders.iter().find_map(|folder| bind(folder))?;
        let socket = ControlSocket(path);
        let hear = move || {
            for stream in listener.incoming().flatten() {
                let is_prompt = stream.set_read_timeout(Some(ASKS_WITHIN)).is_ok();
                if is_prompt
                    && is_own_or_root(&stream)
                    && let Ok(Some(Upgrade { program })) = messages::receive(&stream)
                {
                    let stream = Arc::new(stream);
                    let asker = stream.clone();
                    let is_withdrawn = Box::new(move || messages::is_closed(&asker));
                    let answer = Box::new(move |answer| {
                        // Whoever asked may be gone.
                        let _ = messages::send(&stream, &answer);
                    });
                    each(UpgradeRequest { program, is_withdrawn, answer });
                }
            }
        };
        thread::Builder::new().name("control".into()).spawn(hear).ok()?;
        Some(socket)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The mount's own process. One that takes over just now cannot be asked for a moment.
fn who_serves(standing: &ExistingMount, folders: &[PathBuf]) -> Option<RunningMount> {
    let since = Instant::now();
    loop {
        let running = flatout_mounting::running_mounts(folders);
        let found = running.into_iter().find(|running| running.serves(standing));
        if found.is_some() || since.elapsed() > TAKES_OVER_WITHIN || !is_any_alive(folders) {
            return found;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// A supervisor that has just been started listens in a moment.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let since = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && since.elapsed() < TAKES_OVER_WITHIN => {
                thread::sleep(Duration::from_millis(20));
            }
            connected => return connected,
        }
    }
}

/// Whether there is any supervisor.
fn is_any_alive(folders: &[PathBuf]) -> bool {
    folders.iter().flat_map(|folder| sockets(folder)).any(|path| UnixStream::connect(path).is_ok())
}

fn bind(folder: &Path) -> Option<(UnixListener, PathBuf)> {
    if !flatout_mounting::is_own_folder(folder) {
        return None;
    }
    remove_dead(folder);
    let path = folder.join(name(std::process::id()));
    Some((flatout_mounting::listen_at(&path).ok()?, path))
}

fn name(supervisor: u32) -> String {
    format!("supervisor-{supervisor}.sock")
}

/// Those of supervisors.
fn sockets(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("supervisor-") && name.ends_with(".sock")
    })
}

/// Supervisors that were killed have left theirs.
fn remove_dead(folder: &Path) {
    for path in sockets(folder) {
        if UnixStream::connect(&path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_own_or_root(stream: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream).map(|peer| peer.uid);
    peer.is_ok_and(|uid| uid.is_root() || uid == rustix::process::geteuid())
}

/// `flatout mount --upgrade MOUNT_POINT`: this program goes on with a mount that stands.
///
/// # Errors
/// The mount is not supervised, or something would be lost.
pub fn upgrade(args: &Mount, console: &Console) -> Result<Exit, Failure> {
    if let Some((name, _)) = args.knobs.given().first() {
        return Err(Failure::usage(format!(
            "mount --upgrade: --{name}: the mount keeps what it was mounted with"
        ))
        .with_hint("unmount it, and mount it again with other settings"));
    }
    let place = Path::new(&args.source);
    let standing = ExistingMount::at(place).map_err(|error| {
        let failure = Failure::from(error);
        // It has looked for something to unmount.
        Failure { message: failure.message.replacen("umount: ", "mount --upgrade: ", 1), ..failure }
    })?;
    let folders = flatout_ambient::runtime_folders();
    let place = standing.path().display();
    let Some(running) = who_serves(&standing, &folders) else {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let folders = folders.join(", ");
        return Err(Failure::refused_now(format!(
            "mount --upgrade: {place}: no process that serves it answers in {folders}"
        ))
        .with_hint(
            "call it as the user who has mounted it, with the same XDG_RUNTIME_DIR; where its processes have died, unmount it, and mount it again",
        ));
    };
    let Some(supervisor) = running.stats.supervisor_pid else {
        return Err(Failure::usage(format!("mount --upgrade: {place}: it is not supervised"))
            .with_hint("unmount it, and mount it again with --supervise"));
    };
    let refused = |error: io::Error| {
        Failure::local("mount --upgrade", format!("the supervisor, process {supervisor}"), &error)
    };
    let stream = connect(&running.socket.with_file_name(name(supervisor))).map_err(refused)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(refused)?;
    let program = std::env::current_exe().map_err(refused)?;
    let shown = program.display().to_string();
    messages::send(&stream, &Upgrade { program }).map_err(refused)?;
    let armed = console.interrupt.arm();
    let asking = stream.try_clone().map_err(refused)?;
    armed.on_signal(move || {
        // The answer says what has become of it.
        let _ = asking.shutdown(Shutdown::Write);
    });
    match messages::receive::<Result<Mounted, Failure>>(&stream).map_err(refused)? {
        Some(Ok(mounted)) => {
            let Mounted { source, mount_point, pid, .. } = &mounted;
            console.say(&format!("{shown} goes on with {source} on {mount_point} (process {pid})"))?;
            console.event(Carries::Lines, &mounted)?;
            Ok(Exit::Clean)
        }
        Some(Err(failure)) => Err(failure),
        None => Err(Failure::internal("mount --upgrade: the supervisor died")),
    }
}
