//! The process that serves a supervised mount.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flatout_engine::Client;
use flatout_mount::LastingMount;
use flatout_mounting::{Handover, KeepMount, MountLog, MountSession, NotNow, Shutdown, StandingMount};

use super::kept::KeptMounts;
use super::launch::{ADOPTS, Launcher};
use super::messages::{self, Adoption, ToDaemon, ToSupervisor};
use crate::args::Mount;
use crate::commands::mount::command::MountCommand;
use crate::commands::mount::{daemon, serve};
use crate::console::Console;
use crate::events::Mounted;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::origin;

/// How long an upgrade waits for files that are being written.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long requests may take that came before: those that come later wait meanwhile.
const QUIET_WITHIN: Duration = Duration::from_secs(2);
/// The pause between two attempts, and between two supervisors that died at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves what the supervisor hands over, until it is unmounted.
///
/// # Errors
/// None that the supervisor was not told.
pub fn run(args: &Mount, console: &Console) -> Result<Exit, Failure> {
    let socket = messages::of_stdin().map_err(|_| {
        Failure::usage("mount: this process was started without a supervisor")
            .with_hint("`flatout mount --supervise` starts both")
    })?;
    let ended = serve(args, console, &socket);
    if let Err(failure) = &ended {
        // A supervisor that is gone has nobody to tell.
        let _ = messages::send(&socket, &ToSupervisor::Failed(failure.clone()));
    }
    // It is told elsewhere.
    Ok(ended.unwrap_or(Exit::Failed))
}

fn serve(args: &Mount, console: &Console, socket: &UnixStream) -> Result<Exit, Failure> {
    let gone = || Failure::interrupted("mount: the supervisor is gone");
    let told = |error: io::Error| Failure::local("mount", "the supervisor", &error);
    let Some(ToDaemon::Begin { supervisor, takes_over, log: path }) =
        messages::receive(socket).map_err(told)?
    else {
        return Err(gone());
    };
    let mut launcher = Launcher::of_this_process(args)?;
    let _armed = console.interrupt.arm();
    let mut command = if takes_over { MountCommand::of_standing(args)? } else { MountCommand::of(args)? };
    command.plan.supervisor.store(supervisor, Ordering::Relaxed);
    let (client, log) = serve::client_and_log(&command, console)?;
    if let Some(file) = path.and_then(|path| flatout_mounting::open_log(&path).ok()) {
        log.turn_to(file);
    }
    // Of a mount that stands nothing is asked, and the process before may still have the port.
    let begun = match takes_over {
        true => None,
        false => {
            let endpoints = serve::endpoints(command.metrics)?;
            Some((endpoints, serve::first_look(&command, &client, &log, console)?))
        }
    };
    messages::send(socket, &ToSupervisor::Ready { format: LastingMount::FORMAT }).map_err(told)?;
    let Some(ToDaemon::Serve) = messages::receive(socket).map_err(told)? else { return Err(gone()) };
    let mount = LastingMount::receive(socket).map_err(told)?;
    if let Some(point) = mount.point() {
        command.plan.mount_point = point.to_owned();
    }
    command.plan.serve_as_before(mount.is_image());
    launcher.stay_out_of(&command.plan.mount_point);
    let (endpoints, tree, note) = match begun {
        Some((endpoints, (tree, note))) => {
            let files = flatout_mounting::begin_kept(tree, &client, &command.plan, &mount)?;
            files.keep_in(&mount);
            (endpoints, files, note)
        }
        None => {
            let tree = flatout_mounting::take_over(&client, &command.plan, &mount, &log)?;
            (serve::endpoints_or_less(command.metrics, &log)?, tree, None)
        }
    };
    let said = serve::mounted(&command.plan, &endpoints, note);
    let kept = mount.try_clone().map_err(told)?;
    let shutdown = Shutdown::default();
    serve::unmount_on_signal(console, &shutdown, &log, &said.mount_point);
    let (stats_file, supervisor) = (command.stats.clone(), command.plan.supervisor.clone());
    let standing = Some(StandingMount { mount, takes_over });
    let renewals = serve::renewal_signals();
    let mut session = MountSession::start(command.plan, tree, endpoints, &log, &shutdown, standing)?;
    let stats = session.stats();
    serve::write_on_request(&stats, stats_file.clone(), &log);
    messages::send(socket, &ToSupervisor::Serves(said.clone())).map_err(told)?;
    let link = Arc::new(Link {
        socket: Mutex::new(Some(socket.try_clone().map_err(told)?)),
        supervisor,
        launcher,
        mounts: Mutex::new(KeptMounts::of(kept)),
        handover: session.handover(),
        client: client.clone(),
        log: log.clone(),
        said,
        log_path: Mutex::default(),
    });
    serve::renew_on_request(&session, renewals, Some(Box::new(Keeper(link.clone()))));
    let listens = link.clone();
    let _ = thread::Builder::new().name("supervisor".into()).spawn(move || listens.listen());
    session.clear_unfinished();
    let ended = session.wait();
    // From here on no supervisor is started.
    let socket = link.socket().take();
    if let Some(path) = &stats_file {
        serve::write(path, &stats(), &log);
    }
    drop(session);
    origin::remember(&client);
    let failure = ended.err().map(Failure::from);
    if let Some(failure) = &failure {
        log.say(&failure.message);
    }
    let exit = if failure.is_some() { Exit::Failed } else { Exit::Clean };
    if let Some(socket) = socket {
        let _ = messages::send(&socket, &ToSupervisor::Ended(failure));
    }
    Ok(exit)
}

/// The link to the supervisor, and what it takes to have another one.
struct Link {
    /// None once the mount has ended.
    socket: Mutex<Option<UnixStream>>,
    supervisor: Arc<AtomicU32>,
    launcher: Launcher,
    mounts: Mutex<KeptMounts>,
    handover: Handover,
    client: Arc<Client>,
    log: Arc<MountLog>,
    said: Mounted,
    log_path: Mutex<Option<PathBuf>>,
}

impl Link {
    fn socket(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mounts(&self) -> MutexGuard<'_, KeptMounts> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_path(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.log_path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the supervisor says; where it dies, starts another.
    fn listen(&self) {
        let mut started: Option<Child> = None;
        loop {
            let socket = match self.socket().as_ref().map(UnixStream::try_clone) {
                None => return,
                Some(Ok(socket)) => socket,
                // Without it nobody would see that the supervisor dies.
                Some(Err(error)) => {
                    self.say_unsupervised(&error);
                    continue;
                }
            };
            for message in messages::all(&socket) {
                match message {
                    ToDaemon::Stands { in_background, log } => self.on_stands(in_background, log),
                    ToDaemon::HandOver => self.hand_over(&socket),
                    ToDaemon::Begin { .. } | ToDaemon::Serve | ToDaemon::GoOn => {}
                }
            }
            drop(socket);
            if let Some(mut child) = started.take() {
                let _ = child.wait();
                thread::sleep(PAUSE);
            }
            let mut link = self.socket();
            if link.is_none() {
                return;
            }
            match self.start_supervisor() {
                Ok((socket, child)) => {
                    self.log.say(&format!(
                        "mount: its supervisor is gone: another keeps it (process {})",
                        child.id()
                    ));
                    self.supervisor.store(child.id(), Ordering::Relaxed);
                    (*link, started) = (Some(socket), Some(child));
                }
                Err(error) => {
                    drop(link);
                    self.say_unsupervised(&error);
                }
            }
        }
    }

    /// And waits a little.
    fn say_unsupervised(&self, error: &io::Error) {
        let why = flatout_engine::plain(error);
        self.log.say_limited("supervisor", "it", &format!("mount: no supervisor can be started: {why}"));
        self.supervisor.store(0, Ordering::Relaxed);
        thread::sleep(10 * PAUSE);
    }

    fn start_supervisor(&self) -> io::Result<(UnixStream, Child)> {
        let (socket, theirs) = UnixStream::pair()?;
        let mut child = self.launcher.spawn(ADOPTS, theirs)?;
        let (log, folder) = (self.log_path().clone(), self.launcher.folder.clone());
        let adoption = Adoption { pid: std::process::id(), log, folder };
        let tell = || {
            messages::send(&socket, &adoption)?;
            for (at, mount) in self.mounts().all().iter().enumerate() {
                if at > 0 {
                    messages::send(&socket, &ToSupervisor::Replaces)?;
                }
                mount.send(&socket)?;
            }
            Ok(())
        };
        if let Err(error) = tell() {
            let _ = child.kill().and_then(|()| child.wait());
            return Err(error);
        }
        Ok((socket, child))
    }

    fn on_stands(&self, in_background: bool, log: Option<PathBuf>) {
        // The supervisor has mounted the first image by now. Its device is looked up for the next one.
        let _ = self.mounts().newest().device();
        if !in_background {
            return;
        }
        let file = log.as_ref().and_then(|path| flatout_mounting::open_log(path).ok());
        *self.log_path() = log;
        let nowhere = || fs::File::options().write(true).open("/dev/null");
        let out = file.as_ref().map(fs::File::try_clone).and_then(Result::ok).map_or_else(nowhere, Ok);
        // Where it cannot, a terminal is kept waiting, and nothing else.
        let _ = daemon::let_go(file.as_ref());
        if let Ok(out) = out {
            self.log.turn_to(out);
        }
    }

    /// Tells the supervisor that this process goes on. The supervisor may be gone.
    fn stay(&self, socket: &UnixStream, why: Failure) {
        // Not between a message and what comes with it.
        let _whole = self.socket();
        let _ = messages::send(socket, &ToSupervisor::Stays(why));
    }

    /// Answers nothing more, and shows no other index.
    ///
    /// # Errors
    /// Something would be lost.
    fn pause(&self) -> Result<(), NotNow> {
        // The lock is not held meanwhile: an update that begins to be shown needs it.
        let is_earlier_used = || self.mounts().is_earlier_used();
        if is_earlier_used() {
            return Err(NotNow::Earlier);
        }
        self.handover.pause(QUIET_WITHIN)?;
        if is_earlier_used() {
            self.handover.resume();
            return Err(NotNow::Earlier);
        }
        Ok(())
    }

    /// Ends this process, so that another goes on, unless something would be lost by that, or the supervisor
    /// says so, or is gone.
    fn hand_over(&self, socket: &UnixStream) {
        let since = Instant::now();
        loop {
            match self.pause() {
                Ok(()) if messages::has_news(socket) => {
                    self.handover.resume();
                    return self.stay(socket, Failure::interrupted("mount --upgrade: it goes on as before"));
                }
                Ok(()) => {
                    origin::remember(&self.client);
                    if let Some(path) = &self.said.socket {
                        let _ = fs::remove_file(path);
                    }
                    // Nothing is unmounted, and no thread ends what it does.
                    std::process::exit(Exit::Clean.code().into());
                }
                Err(not_now) if since.elapsed() > PATIENCE || messages::has_news(socket) => {
                    return self.stay(socket, refused(&self.said, not_now));
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }
}

/// Has the supervisor keep another mount, too.
struct Keeper(Arc<Link>);

impl KeepMount for Keeper {
    fn keep(&self, mount: &LastingMount) -> io::Result<()> {
        let kept = mount.try_clone()?;
        let socket = self.0.socket();
        self.0.mounts().keep(kept);
        let Some(socket) = &*socket else { return Ok(()) };
        let told = messages::send(socket, &ToSupervisor::Replaces).and_then(|()| mount.send(socket));
        match told {
            Err(error) if !is_gone(&error) => Err(error),
            // The next supervisor gets every mount.
            _ => Ok(()),
        }
    }

    fn shown(&self) {
        let socket = self.0.socket();
        self.0.mounts().note_shown();
        if let Some(socket) = &*socket {
            let _ = messages::send(socket, &ToSupervisor::Shows);
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

fn refused(said: &Mounted, not_now: NotNow) -> Failure {
    Failure::refused_now(format!("mount --upgrade: {}: {not_now}", said.mount_point))
        .with_hint("it is served as before; try again when these files are closed")
}
