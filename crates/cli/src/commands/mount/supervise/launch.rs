//! Processes that serve: how they are started, what they answer, how they ended.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use flatout_mount::LastingMount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;

use super::messages::{self, ToDaemon, ToSupervisor};
use crate::args::Mount;
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
#[derive(Clone)]
pub struct Launcher {
    pub program: Program,
    /// Without the program.
    arguments: Vec<OsString>,
    /// Where the command line was typed: its paths may begin there.
    pub folder: PathBuf,
}

/// A program by its path, which may name another one by now; and the file as it was.
#[derive(Clone)]
pub struct Program {
    path: PathBuf,
    file: Arc<File>,
}

impl Program {
    /// # Errors
    /// There is no such file.
    pub fn at(path: &Path) -> io::Result<Program> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        Ok(Program { path: path.to_owned(), file: Arc::new(file) })
    }

    /// This one, whatever has become of its path.
    fn of_this_process() -> io::Result<Program> {
        let own = Program::at(Path::new("/proc/self/exe"))?;
        Ok(Program { path: std::env::current_exe().unwrap_or(own.path), file: own.file })
    }

    /// A path that names this very file. As long as it is the usual one, that is the name of the process.
    fn path(&self) -> PathBuf {
        let of = |about: Metadata| (about.dev(), about.ino());
        match self.path.metadata().map(of).ok() == self.file.metadata().map(of).ok() {
            true => self.path.clone(),
            false => format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into(),
        }
    }

    pub fn display(&self) -> std::path::Display<'_> {
        self.path.display()
    }
}

/// A process that serves, or is about to.
pub struct Daemon {
    pub socket: UnixStream,
    pub pid: u32,
    /// What it says is heard elsewhere.
    pub is_heard: bool,
    /// None of one that another process has started.
    child: Option<Child>,
    process: Option<OwnedFd>,
}

/// A process that goes on asks the origin for nothing that takes longer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// How long a process that was killed, or has said that it ends, is waited for. A killed one runs none of its
/// code any more, even if the kernel keeps it.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

impl Launcher {
    /// # Errors
    /// The program or the folder of this process is not known.
    pub fn of_this_process(args: &Mount) -> Result<Launcher, Failure> {
        let refused = |error: io::Error| Failure::local("mount", "this program", &error);
        let mut arguments: Vec<OsString> = std::env::args_os().collect();
        if let Some(line) = helper::command_line(&arguments) {
            arguments = line;
        }
        let folder = std::env::current_dir().map_err(refused)?;
        let program = Program::of_this_process().map_err(refused)?;
        let mut arguments = arguments.split_off(1);
        if let Some(hidden) = args.hidden().filter(|hidden| !arguments.contains(hidden)) {
            let behind = behind_command(&arguments);
            arguments.insert(behind, hidden);
        }
        Ok(Launcher { program, arguments, folder })
    }

    /// A process that is started in the mount would wait for itself.
    pub fn stay_out_of(&mut self, mount_point: &Path) {
        if self.folder.starts_with(mount_point) {
            self.folder = "/".into();
        }
    }

    /// Starts it with `role` behind the command's name, and this socket as its standard input.
    ///
    /// # Errors
    /// The system's.
    pub fn spawn(&self, role: &str, socket: UnixStream) -> io::Result<Child> {
        let own = |argument: &&OsString| !OWN.iter().any(|flag| argument.as_os_str() == OsStr::new(flag));
        let mut arguments: Vec<OsString> = self.arguments.iter().filter(own).cloned().collect();
        arguments.insert(behind_command(&arguments), role.into());
        let mut command = Command::new(self.program.path());
        command.args(arguments).stdin(Stdio::from(OwnedFd::from(socket))).stdout(Stdio::null());
        // Signals of a terminal go to the supervisor, which passes them on.
        command.process_group(0).current_dir(&self.folder);
        match command.spawn() {
            // The folder may be gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => command.current_dir("/").spawn(),
            started => started,
        }
    }

    /// Starts a process that serves, whose number is to be told to signals from then on.
    ///
    /// # Errors
    /// The system's.
    pub fn start(
        &self,
        takes_over: bool,
        log: Option<PathBuf>,
        serving: &AtomicU32,
    ) -> Result<Daemon, Failure> {
        let refused = |error: io::Error| Failure::local("mount", self.program.display(), &error);
        let (socket, theirs) = UnixStream::pair().map_err(refused)?;
        let child = self.spawn(SERVES, theirs).map_err(refused)?;
        serving.store(child.id(), Ordering::SeqCst);
        let (pid, process) = (child.id(), process(child.id()));
        let daemon = Daemon { socket, pid, is_heard: false, child: Some(child), process };
        if takes_over {
            daemon.socket.set_read_timeout(Some(ANSWERS_WITHIN)).map_err(refused)?;
        }
        daemon.tell(&ToDaemon::Begin { supervisor: std::process::id(), takes_over, log });
        Ok(daemon)
    }
}

/// Where flags of the command may stand.
pub fn behind_command(arguments: &[OsString]) -> usize {
    arguments.iter().position(|argument| argument == "mount").map_or(arguments.len(), |at| at + 1)
}

impl Daemon {
    /// One that another process has started.
    pub fn adopted(socket: UnixStream, pid: u32) -> Daemon {
        let mut daemon = Daemon { socket, pid, is_heard: false, child: None, process: process(pid) };
        if !daemon.is_there() {
            // Another process may have its number.
            daemon.process = None;
        }
        daemon
    }

    /// Whether its end of the socket is open: a process that has closed it serves nobody.
    pub fn is_there(&self) -> bool {
        !messages::is_closed(&self.socket)
    }

    /// Where it is gone, that is seen elsewhere.
    pub fn tell(&self, message: &ToDaemon) {
        let _ = messages::send(&self.socket, message);
    }

    fn answer(&mut self) -> Result<ToSupervisor, Failure> {
        match messages::receive(&self.socket) {
            Ok(Some(ToSupervisor::Failed(failure))) => Err(failure),
            Ok(Some(message)) => Ok(message),
            Ok(None) => {
                let how = self.kill();
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
            ToSupervisor::Ready { format } if format == LastingMount::FORMAT => Ok(()),
            ToSupervisor::Ready { .. } => Err(Failure::usage(
                "mount: the other program is of a version that cannot go on with this mount",
            )
            .with_hint("unmount it, and mount it again with that program")),
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
        let answer = self.answer()?;
        let _ = self.socket.set_read_timeout(None);
        match answer {
            ToSupervisor::Serves(said) => Ok(said),
            other => Err(Failure::internal(format!("mount: not served, but {other:?}"))),
        }
    }

    pub fn stands(&self, in_background: bool, log: Option<PathBuf>) {
        self.tell(&ToDaemon::Stands { in_background, log });
    }

    /// Ends it where it has not ended, and says how it ended.
    pub fn kill(&mut self) -> String {
        // It may have ended already.
        if let Some(process) = &self.process {
            let _ = pidfd_send_signal(process, Signal::KILL);
        } else if let Some(child) = &mut self.child {
            let _ = child.kill();
        } else if self.is_there() {
            signal(self.pid, Signal::KILL);
        }
        self.wait()
    }

    /// Waits a while for its end, and says how it was.
    pub fn wait(&mut self) -> String {
        let limit = Timespec { tv_sec: ENDS_WITHIN.as_secs() as i64, tv_nsec: 0 };
        // It can be read when it is over.
        let ends = |process| retry_on_intr(|| poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)));
        if self.process.as_ref().is_some_and(|process| ends(process) == Ok(0)) {
            return format!("process {} has not ended yet", self.pid);
        }
        match self.child.as_mut().map(Child::wait) {
            Some(Ok(status)) => status.to_string(),
            _ => format!("process {}", self.pid),
        }
    }
}

impl Drop for Daemon {
    /// One that nobody hears, because it could not serve, ends.
    fn drop(&mut self) {
        if !self.is_heard && self.child.is_some() {
            self.kill();
        }
    }
}

/// The pidfd of whatever process has this number.
fn process(pid: u32) -> Option<OwnedFd> {
    number(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
}

fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// Nothing where there is no such process.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = number(pid) {
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
