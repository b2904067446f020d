//! `flatout mount --supervise`: a small process keeps the mount while another one serves it, and starts a new
//! one where that dies (docs/life-of-a-takeover.md).

mod control;
mod kept;
pub mod launch;
mod messages;
pub mod serving;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use flatout_engine::plain;
use flatout_mount::LastingMount;
use flatout_mounting::MountLog;
use rustix::process::Signal;

pub use self::control::upgrade;
use self::control::{ControlSocket, UpgradeRequest};
use self::kept::KeptMounts;
use self::launch::{Daemon, Launcher, Program};
use self::messages::{Adoption, ToDaemon, ToSupervisor};
use crate::args::Mount;
use crate::commands::mount::command::MountCommand;
use crate::commands::mount::{daemon, notify, serve, stands};
use crate::console::Console;
use crate::events::Mounted;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::hint;

/// A process that served for less than this has died of something that it met at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// After so many short lives in a row the mount is given up.
const SHORT_LIVES_MOST: u32 = 10;
/// The longest pause between two of them.
const PAUSE_MOST: Duration = Duration::from_secs(1);

/// How often it is asked whether an upgrade is still wanted.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What happens while a mount is supervised.
enum Event {
    /// A message of this process.
    Says(u32, ToSupervisor),
    /// Users are about to see this mount of that process, or by FUSE see it already.
    Replaces(u32, LastingMount),
    /// That process is gone.
    Gone(u32),
    Upgrade(UpgradeRequest),
}

/// Mounts, and supervises until it is unmounted. `in_background`: a parent process waits until the mount
/// stands.
///
/// # Errors
/// The origin's refusal of the root, the kernel's of the mount, or a mount that nobody could serve any more.
pub fn run(
    args: &Mount,
    command: MountCommand,
    console: &Console,
    in_background: bool,
) -> Result<Exit, Failure> {
    let _armed = console.interrupt.arm();
    let mut supervisor = Supervisor::new(Launcher::of_this_process(args)?, console, in_background)?;
    let begun = supervisor.launcher.start(false, None, &supervisor.serving);
    let mut daemon = begun?;
    daemon.until_ready()?;
    let mount = flatout_mounting::lasting_mount(&command.plan)?;
    let own = mount.try_clone().inspect_err(|_| drop(mount.unmount(true)));
    let own = own.map_err(|error| Failure::local("mount", "the descriptor", &error))?;
    supervisor.launcher.stay_out_of(&command.plan.mount_point);
    let stands = supervisor.first(&mut daemon, mount, &command, console);
    let mount = stands.inspect_err(|_| drop(own.unmount(true)))?;
    drop(own);
    notify::send("READY=1");
    let ended = supervisor.supervise(daemon, mount);
    notify::send("STOPPING=1");
    ended
}

/// Goes on for a supervisor that died: the process that serves has started this one, and tells it what there
/// is.
///
/// # Errors
/// A mount that nobody could serve any more.
pub fn adopt(args: &Mount, console: &Console) -> Result<Exit, Failure> {
    daemon::leave_session();
    let _armed = console.interrupt.arm();
    let refused = |error: &std::io::Error| Failure::local("mount", "the process that serves", error);
    let socket = messages::of_stdin().map_err(|error| refused(&error))?;
    let told = messages::receive::<Adoption>(&socket).map_err(|error| refused(&error))?;
    let Some(Adoption { pid, log, folder }) = told else {
        return Err(Failure::internal("mount: the process that serves is gone"));
    };
    let mount = LastingMount::receive(&socket).map_err(|error| refused(&error))?;
    let mut launcher = Launcher::of_this_process(args)?;
    launcher.folder = folder;
    let mut supervisor = Supervisor::new(launcher, console, true)?;
    // The one before may have been in the foreground.
    let file = supervisor.open_log(log.as_deref(), mount.point().unwrap_or(Path::new("mount")))?;
    daemon::let_go(file.as_ref()).map_err(|error| refused(&error))?;
    if let Some(file) = file {
        supervisor.log.turn_to(file);
    }
    supervisor.serving.store(pid, Ordering::SeqCst);
    let mut daemon = Daemon::adopted(socket, pid);
    // The supervisor before may have died before it said so.
    daemon.stands(true, supervisor.log_path.clone());
    supervisor.watch(&mut daemon);
    supervisor.supervise(daemon, mount)
}

fn taken_back() -> Failure {
    Failure::interrupted("mount --upgrade: interrupted: the process before serves it")
}

struct Supervisor {
    launcher: Launcher,
    in_background: bool,
    log: Arc<MountLog>,
    log_path: Option<PathBuf>,
    /// The process that serves, for signals; 0 while there is none.
    serving: Arc<AtomicU32>,
    /// A signal wants the mount to end.
    is_to_end: Arc<AtomicBool>,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    _control: Option<ControlSocket>,
}

impl Supervisor {
    fn new(launcher: Launcher, console: &Console, in_background: bool) -> Result<Supervisor, Failure> {
        let (sender, events) = mpsc::channel();
        let log = Arc::new(MountLog::new(serve::on_terminal(console.is_quiet()), hint::worded));
        let (serving, is_to_end) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (told, wanted) = (serving.clone(), is_to_end.clone());
        console.interrupt.handle(move |_| match told.load(Ordering::SeqCst) {
            // The next one hears of it.
            0 => wanted.store(true, Ordering::SeqCst),
            serving => launch::signal(serving, Signal::TERM),
        });
        launch::pass_usr1_on(serving.clone());
        let asked = sender.clone();
        let control = ControlSocket::listen(&flatout_ambient::runtime_folders(), move |request| {
            // Nobody hears it any more where the mount has ended.
            let _ = asked.send(Event::Upgrade(request));
        });
        let log_path = None;
        Ok(Supervisor {
            launcher,
            in_background,
            log,
            log_path,
            serving,
            is_to_end,
            sender,
            events,
            _control: control,
        })
    }

    /// Has the mount served for the first time, and says so.
    fn first(
        &mut self,
        daemon: &mut Daemon,
        mount: LastingMount,
        command: &MountCommand,
        console: &Console,
    ) -> Result<LastingMount, Failure> {
        let mut said = daemon.serve(&mount)?;
        let mount = flatout_mounting::show(mount, &command.plan, || daemon.is_there())?;
        said.supervisor_pid = Some(std::process::id());
        let (asked, place) = (command.log.as_deref(), &command.plan.mount_point);
        let log = if self.in_background { self.open_log(asked, place)? } else { None };
        said.log = self.log_path.as_ref().map(|path| path.display().to_string());
        self.watch(daemon);
        daemon.stands(self.in_background, self.log_path.clone());
        if self.in_background {
            serve::let_go(&said, log, &self.log)?;
        } else {
            console.outlast_reader();
            stands(&said, command.silent, console)?;
        }
        Ok(mount)
    }

    fn open_log(&mut self, asked: Option<&Path>, mount_point: &Path) -> Result<Option<File>, Failure> {
        let opened = serve::open_log(asked, mount_point, &self.log)?;
        let (path, file) = opened.unzip();
        self.log_path = path;
        Ok(file)
    }

    /// Hears what the process says from now on. One that cannot be heard, or whose mount cannot be received,
    /// is ended, and another goes on.
    fn watch(&self, daemon: &mut Daemon) {
        let (pid, sender, log) = (daemon.pid, self.sender.clone(), self.log.clone());
        let heard = daemon.socket.try_clone().and_then(|socket| {
            let hear = move || {
                for message in messages::all(&socket) {
                    let event = match message {
                        ToSupervisor::Replaces => match LastingMount::receive(&socket) {
                            Ok(mount) => Event::Replaces(pid, mount),
                            Err(error) => {
                                let why = plain(&error);
                                log.say(&format!("mount: another index could not be kept: {why}"));
                                break;
                            }
                        },
                        message => Event::Says(pid, message),
                    };
                    // Nobody hears it any more where the mount has ended.
                    let _ = sender.send(event);
                }
                let _ = sender.send(Event::Gone(pid));
            };
            thread::Builder::new().name("hears".into()).spawn(hear)
        });
        daemon.is_heard = true;
        if heard.is_err() {
            daemon.kill();
            let _ = self.sender.send(Event::Gone(pid));
        }
        // A signal that came when nobody served.
        if self.is_to_end.swap(false, Ordering::SeqCst) {
            launch::signal(pid, Signal::TERM);
        }
    }

    /// Until it is unmounted.
    fn supervise(&mut self, daemon: Daemon, mount: LastingMount) -> Result<Exit, Failure> {
        let mut mounts = KeptMounts::of(mount);
        let ended = self.until_end(daemon, &mut mounts);
        if let Err(failure) = &ended {
            self.log.say(&format!("{}; its users get errors from now on", failure.message));
            mounts.abort();
        }
        ended
    }

    fn until_end(&mut self, mut daemon: Daemon, mounts: &mut KeptMounts) -> Result<Exit, Failure> {
        let (mut since, mut short_lives) = (Instant::now(), 0);
        loop {
            let event = self.events.recv().expect("this process has a sender itself");
            match event {
                Event::Says(pid, ToSupervisor::Ended(failure)) if pid == daemon.pid => {
                    daemon.wait();
                    return failure.map_or(Ok(Exit::Clean), Err);
                }
                Event::Replaces(pid, mount) if pid == daemon.pid => mounts.keep(mount),
                // The process keeps those before it, and their files end with it.
                Event::Says(pid, ToSupervisor::Shows) if pid == daemon.pid => mounts.only_newest(),
                Event::Gone(pid) if pid == daemon.pid => {
                    self.serving.store(0, Ordering::SeqCst);
                    let how = daemon.kill();
                    short_lives = if since.elapsed() < SHORT_LIFE { short_lives + 1 } else { 0 };
                    self.log.say(&format!("mount: the process that served it died ({how}): another goes on"));
                    mounts.only_placed();
                    daemon = match self.start_again(mounts.newest(), &mut short_lives)? {
                        Some(next) => next,
                        None => return Ok(Exit::Clean),
                    };
                    since = Instant::now();
                }
                Event::Upgrade(request) => {
                    let upgraded = self.upgrade(&mut daemon, mounts, &request);
                    let leaves = upgraded.is_ok() && self.in_background;
                    if upgraded.is_ok() {
                        since = Instant::now();
                    }
                    (request.answer)(upgraded);
                    if leaves {
                        // The new program starts a supervisor of its own.
                        return Ok(Exit::Clean);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether somebody can use the mount, and nobody has wanted it to end meanwhile.
    fn is_to_be_served(&self, mount: &LastingMount) -> bool {
        if !mount.is_connected() {
            self.log.say("mount: it was unmounted, or its connection aborted");
            return false;
        }
        // Where it is in use it goes on: the next signal is told to the process that serves then.
        !self.is_to_end.swap(false, Ordering::SeqCst) || mount.unmount(false).is_err()
    }

    /// Another process that goes on; `None` where the mount has ended meanwhile.
    ///
    /// # Errors
    /// Too many have died at once.
    fn start_again(&self, mount: &LastingMount, short_lives: &mut u32) -> Result<Option<Daemon>, Failure> {
        loop {
            if !self.is_to_be_served(mount) {
                return Ok(None);
            }
            if *short_lives >= SHORT_LIVES_MOST {
                let cause =
                    format!("it is given up: {SHORT_LIVES_MOST} processes in a row have died at once");
                return Err(
                    Failure::internal(format!("mount: {cause}")).with_hint("unmount it, and mount it again")
                );
            }
            if *short_lives > 0 {
                thread::sleep(PAUSE_MOST.min(Duration::from_millis(20 << (*short_lives).min(6))));
            }
            match self.take_over(mount) {
                Ok(daemon) => return Ok(Some(daemon)),
                Err(failure) => {
                    self.serving.store(0, Ordering::SeqCst);
                    *short_lives += 1;
                    self.log.say(&format!("mount: it could not go on: {failure}"));
                }
            }
        }
    }

    fn take_over(&self, mount: &LastingMount) -> Result<Daemon, Failure> {
        let mut daemon = self.launcher.start(true, self.log_path.clone(), &self.serving)?;
        daemon.until_ready()?;
        daemon.serve(mount)?;
        daemon.stands(self.in_background, self.log_path.clone());
        self.watch(&mut daemon);
        Ok(daemon)
    }

    /// Has another program go on. Where that cannot, the one before does.
    fn upgrade(
        &mut self,
        daemon: &mut Daemon,
        mounts: &mut KeptMounts,
        request: &UpgradeRequest,
    ) -> Result<Mounted, Failure> {
        let program = &request.program;
        if !mounts.newest().resends() {
            return Err(Failure::usage(
                "mount --upgrade: this kernel cannot hand requests to another process",
            )
            .with_hint("Linux 6.9 is needed; unmount it, and mount it again with the new program"));
        }
        let mut launcher = self.launcher.clone();
        let unread = |error| Failure::local("mount --upgrade", program.display(), &error);
        launcher.program = Program::at(program).map_err(unread)?;
        // Before anything is given up: it may not even start.
        let mut next = launcher.start(true, self.log_path.clone(), &AtomicU32::new(0))?;
        next.until_ready()?;
        if (request.is_withdrawn)() {
            return Err(taken_back());
        }
        self.until_handed_over(daemon, mounts, request)?;
        self.serving.store(0, Ordering::SeqCst);
        daemon.kill();
        mounts.only_placed();
        match next.serve(mounts.newest()) {
            Ok(mut said) => {
                next.stands(self.in_background, self.log_path.clone());
                self.watch(&mut next);
                self.launcher = launcher;
                self.serving.store(next.pid, Ordering::SeqCst);
                *daemon = next;
                // In the background the new program starts another.
                said.supervisor_pid = Some(std::process::id()).filter(|_| !self.in_background);
                said.log = self.log_path.as_ref().map(|path| path.display().to_string());
                self.log.say(&format!("mount: {} goes on (process {})", program.display(), said.pid));
                Ok(said)
            }
            Err(failure) => {
                // The program before goes on, as after a death.
                let _ = self.sender.send(Event::Gone(daemon.pid));
                Err(failure)
            }
        }
    }

    /// Has the process end and leave the kernel's connection open, unless the caller withdraws the upgrade.
    fn until_handed_over(
        &self,
        daemon: &Daemon,
        mounts: &mut KeptMounts,
        request: &UpgradeRequest,
    ) -> Result<(), Failure> {
        daemon.tell(&ToDaemon::HandOver);
        let mut is_withdrawn = false;
        loop {
            let Ok(event) = self.events.recv_timeout(LOOK_AGAIN) else {
                if !is_withdrawn && (request.is_withdrawn)() {
                    is_withdrawn = true;
                    daemon.tell(&ToDaemon::GoOn);
                }
                continue;
            };
            match event {
                Event::Says(pid, ToSupervisor::Stays(failure)) if pid == daemon.pid => {
                    return Err(if is_withdrawn { taken_back() } else { failure });
                }
                Event::Says(pid, ToSupervisor::Ended(failure)) if pid == daemon.pid => {
                    let _ = self.sender.send(Event::Says(pid, ToSupervisor::Ended(failure)));
                    return Err(Failure::refused_now("mount --upgrade: it was unmounted meanwhile"));
                }
                Event::Replaces(pid, mount) if pid == daemon.pid => mounts.keep(mount),
                Event::Says(pid, ToSupervisor::Shows) if pid == daemon.pid => mounts.only_newest(),
                // Also where it died: it is to be gone.
                Event::Gone(pid) if pid == daemon.pid => return Ok(()),
                Event::Upgrade(other) => {
                    (other.answer)(Err(Failure::refused_now(
                        "mount --upgrade: another upgrade is under way",
                    )));
                }
                _ => {}
            }
        }
    }
}
