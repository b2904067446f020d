//! Processes that serve: how they are started, what they answer, how they ended.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use flatout_mount::LastingMount;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;

use super::messages::{self, ToDaemon, ToSupervisor};
use crate::commands::mount::helper;
use crate::events::Mounted;
use crate::failure::Failure;

/// A process that serves.
pub const SERVES: &str = "--__serves";
/// A supervisor that is started by a process that serves.
pub const ADOPTS: &str = "--__adopts";
/// Flags of one process alone.
const OWN: [&str; 3] = [SERVES, ADOPTS, "--__reports"];

/// How processes of this command line are started.
#[derive(Clone, Debug)]
pub struct Launcher {
    pub program: PathBuf,
    /// Without the program.
    arguments: Vec<OsString>,
    /// Where the command line was typed: its paths may begin there.
    pub folder: PathBuf,
}

/// A process that serves, or is about to.
pub struct Daemon {
    pub socket: UnixStream,
    pub pid: u32,
    /// What it says is heard elsewhere.
    pub is_heard: bool,
    /// None of one that another process has started.
    child: Option<Child>,
}

impl Launcher {
    /// # Errors
    /// The program or the folder of this process is not known.
    pub fn of_this_process() -> Result<Launcher, Failure> {
        let refused = |error: io::Error| Failure::local("mount", "this program", &error);
        let mut arguments: Vec<OsString> = std::env::args_os().collect();
        if let Some(line) = helper::command_line(&arguments) {
            arguments = line;
        }
        let folder = std::env::current_dir().map_err(refused)?;
        Ok(Launcher { program: this_program(), arguments: arguments.split_off(1), folder })
    }

    /// Starts it with `role` behind the command's name, and this socket as its standard input.
    ///
    /// # Errors
    /// The system's.
    pub fn spawn(&self, role: &str, socket: UnixStream) -> io::Result<Child> {
        let own = |argument: &&OsString| !OWN.iter().any(|flag| argument.as_os_str() == OsStr::new(flag));
        let mut arguments: Vec<OsString> = self.arguments.iter().filter(own).cloned().collect();
        let behind =
            arguments.iter().position(|argument| argument == "mount").map_or(arguments.len(), |at| at + 1);
        arguments.insert(behind, role.into());
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::from(OwnedFd::from(socket))).stdout(Stdio::null());
        // Signals of a terminal go to the supervisor, which passes them on. The folder may be gone.
        command.process_group(0).current_dir(if self.folder.is_dir() {
            &self.folder
        } else {
            Path::new("/")
        });
        command.spawn()
    }

    /// Starts a process that serves, whose number is to be told to signals from then on.
    ///
    /// # Errors
    /// The system's.
    pub fn start(&self, supervisor: u32, takes_over: bool, serving: &AtomicU32) -> Result<Daemon, Failure> {
        let refused = |error: io::Error| Failure::local("mount", self.program.display(), &error);
        let (socket, theirs) = UnixStream::pair().map_err(refused)?;
        let child = self.spawn(SERVES, theirs).map_err(refused)?;
        serving.store(child.id(), Ordering::SeqCst);
        let daemon = Daemon { socket, pid: child.id(), is_heard: false, child: Some(child) };
        daemon.tell(&ToDaemon::Begin { supervisor, takes_over });
        Ok(daemon)
    }
}

/// This program by its path, as long as that is this program: it may have been replaced by a newer one.
fn this_program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    let is_same = |path: &PathBuf| {
        let file = |path: &Path| path.metadata().map(|about| (about.dev(), about.ino())).ok();
        file(path) == file(&own)
    };
    std::env::current_exe().ok().filter(is_same).unwrap_or(own)
}

impl Daemon {
    /// One that another process has started.
    pub fn adopted(socket: UnixStream, pid: u32) -> Daemon {
        Daemon { socket, pid, is_heard: false, child: None }
    }

    /// Where it is gone, that is seen elsewhere.
    pub fn tell(&self, message: &ToDaemon) {
        let _ = messages::send(&self.socket, message);
    }

    fn answer(&mut self) -> Result<ToSupervisor, Failure> {
        match messages::receive(&self.socket) {
            Ok(Some(ToSupervisor::Failed(failure))) => {
                self.wait();
                Err(failure)
            }
            Ok(Some(message)) => Ok(message),
            Ok(None) => {
                let how = self.wait();
                Err(Failure::internal(format!("mount: the process that was to serve it ended: {how}")))
            }
            Err(error) => Err(Failure::local("mount", "the process that is to serve it", &error)),
        }
    }

    /// Waits until it could serve the mount.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn until_ready(&mut self) -> Result<(), Failure> {
        match self.answer()? {
            ToSupervisor::Ready => Ok(()),
            other => Err(Failure::internal(format!("mount: not ready, but {other:?}"))),
        }
    }

    /// Has it serve the mount.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn serve(&mut self, mount: &LastingMount) -> Result<Mounted, Failure> {
        self.tell(&ToDaemon::Serve);
        mount.send(&self.socket).map_err(|error| Failure::local("mount", "the descriptor", &error))?;
        match self.answer()? {
            ToSupervisor::Serves(said) => Ok(said),
            other => Err(Failure::internal(format!("mount: not served, but {other:?}"))),
        }
    }

    pub fn stands(&self, in_background: bool, log: Option<PathBuf>) {
        self.tell(&ToDaemon::Stands { in_background, log });
    }

    /// Waits for its end, and says how it was.
    pub fn wait(&mut self) -> String {
        match self.child.as_mut().map(Child::wait) {
            Some(Ok(status)) => status.to_string(),
            _ => format!("process {}", self.pid),
        }
    }
}

impl Drop for Daemon {
    /// One that nobody hears, because it could not serve, ends.
    fn drop(&mut self) {
        if !self.is_heard
            && let Some(child) = &mut self.child
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Nothing where there is no such process.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// The numbers of the process that serves are written by itself.
pub fn pass_usr1_on(serving: Arc<AtomicU32>) {
    // Without the thread a SIGUSR1 keeps its default.
    let Ok(mut signals) = Signals::new([SIGUSR1]) else { return };
    let _ = thread::Builder::new().name("stats".into()).spawn(move || {
        for _ in signals.forever() {
            signal(serving.load(Ordering::SeqCst), Signal::USR1);
        }
    });
}
