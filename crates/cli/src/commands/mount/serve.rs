//! The command's part of serving a mount: signals, the terminal or the log, the report to the process that
//! started it.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use flatout_engine::Client;
use flatout_mount::MountHolder;
use flatout_mounting::MountedFiles;
use flatout_mounting::stats::MountStats;
use flatout_mounting::{KeepMount, MountLog, MountPlan, MountSession, Shutdown, StatsFn, StatusEndpoints};
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::commands::mount::command::MountCommand;
use crate::commands::mount::daemon::{self, BackgroundReport};
use crate::commands::mount::{notify, stands};
use crate::console::Console;
use crate::events::Mounted;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{hint, origin};

/// Lists the root, and returns the line to show about it. Nothing is mounted.
///
/// # Errors
/// The origin's refusal, or a signal.
pub fn try_root(command: &MountCommand, console: &Console) -> Result<Option<String>, Failure> {
    let client = Arc::new(client(command, console)?);
    list_root(command, &client, None, console, |_, _| {}).map(|(_, note)| note)
}

/// Serves until it is unmounted. `in_background`: a parent process waits until the mount stands; messages
/// then go to a log.
///
/// # Errors
/// The origin's refusal of the root, the kernel's of the mount, or a session that broke.
pub fn run(command: MountCommand, console: &Console, in_background: bool) -> Result<Exit, Failure> {
    let _armed = console.interrupt.arm();
    let endpoints = endpoints(command.metrics)?;
    let (client, log) = client_and_log(&command, console)?;
    let (tree, note) = first_look(&command, &client, &log, console)?;
    note.iter().for_each(|note| log.say(note));
    say_unless_shown(&endpoints, &log);
    let MountCommand { plan, silent, log: log_file, stats: stats_file, .. } = command;
    let mut said = mounted(&plan, &endpoints, note);
    // From before there is a mount, so that no signal leaves one behind.
    let shutdown = Shutdown::default();
    unmount_on_signal(console, &shutdown, &log, &said.mount_point);
    // From before anybody can look for it.
    let renewals = renewal_signals();
    let mut session = MountSession::start(plan, tree, endpoints, &log, &shutdown, None)?;
    let stats = session.stats();
    write_on_request(&stats, stats_file.clone(), &log);
    renew_on_request(&session, renewals, None);

    match in_background {
        false => stands_here(&said, silent, console)?,
        true => detach(&mut said, log_file.as_deref(), &log)?,
    }
    // What it says is for the log.
    session.clear_unfinished();
    notify::send("READY=1");
    let ended = session.wait();
    notify::send("STOPPING=1");
    if let Some(path) = &stats_file {
        write(path, &stats(), &log);
    }
    drop(session);
    origin::remember(&client);
    match ended {
        Ok(()) => Ok(Exit::Clean),
        Err(error) => {
            let failure = Failure::from(error);
            if said.log.is_some() {
                // In the foreground it is said as every failure of a command.
                log.say(&failure.message);
            }
            Err(failure)
        }
    }
}

/// A client that reports its outages, and where.
pub fn client_and_log(
    command: &MountCommand,
    console: &Console,
) -> Result<(Arc<Client>, Arc<MountLog>), Failure> {
    let client = Arc::new(client(command, console)?);
    let log = Arc::new(MountLog::new(on_terminal(console.is_quiet()), hint::worded));
    let outage_log = log.clone();
    // Without a thread for it the log lacks outages, and nothing else.
    let _ = client.on_outages(move |news| outage_log.say(&news.to_string()));
    Ok((client, log))
}

/// What is said of a mount of this process.
pub fn mounted(plan: &MountPlan, endpoints: &StatusEndpoints, note: Option<String>) -> Mounted {
    Mounted {
        source: plan.source.to_string(),
        mount_point: plan.mount_point.display().to_string(),
        pid: std::process::id(),
        supervisor_pid: None,
        log: None,
        socket: endpoints.socket().map(|path| path.display().to_string()),
        metrics: endpoints.metrics_url(),
        note,
    }
}

pub fn say_unless_shown(endpoints: &StatusEndpoints, log: &MountLog) {
    if endpoints.socket().is_none() {
        log.say("mount: `flatout top` will not show it: no folder for its socket can be written to: set XDG_RUNTIME_DIR to one");
    }
}

/// Of a mount that stands: a port that is taken meanwhile does not end it.
pub fn endpoints_or_less(metrics: Option<SocketAddr>, log: &MountLog) -> Result<StatusEndpoints, Failure> {
    endpoints(metrics).or_else(|failure| {
        log.say(&failure.to_string());
        endpoints(None)
    })
}

/// Binds the endpoints before anything is mounted: a port may be taken.
pub fn endpoints(metrics: Option<SocketAddr>) -> Result<StatusEndpoints, Failure> {
    StatusEndpoints::bind(&flatout_ambient::runtime_folders(), metrics).map_err(|error| {
        let address = metrics.map(|address| address.to_string()).unwrap_or_default();
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
}

/// Writes lines to standard error, unless `quiet`.
pub fn on_terminal(quiet: bool) -> impl FnMut(&str) {
    move |line| {
        if !quiet {
            // A closed standard error has nowhere to be reported.
            let _ = io::stderr().lock().write_all(format!("flatout: {line}\n").as_bytes());
        }
    }
}

pub fn client(command: &MountCommand, console: &Console) -> Result<Client, Failure> {
    let client = origin::silent_client(&command.knobs, &[command.plan.source.dialect])?;
    // Other notes about settings are among the command's.
    if let Some(note) = client.note() {
        console.warn(&hint::worded(note));
    }
    Ok(client)
}

/// Lists the root, after renames that a killed mount has left are ended.
pub fn first_look(
    command: &MountCommand,
    client: &Arc<Client>,
    log: &Arc<MountLog>,
    console: &Console,
) -> Result<(MountedFiles, Option<String>), Failure> {
    let ends = log.clone();
    list_root(command, client, Some(log), console, move |client, plan| {
        flatout_mounting::end_renames(client, plan, &ends);
    })
}

/// Lists the root, after what is to be done `first`. A signal ends the wait for a silent origin, and the end
/// of the program ends the request.
fn list_root(
    command: &MountCommand,
    client: &Arc<Client>,
    log: Option<&Arc<MountLog>>,
    console: &Console,
    first: impl FnOnce(&Arc<Client>, &MountPlan) + Send + 'static,
) -> Result<(MountedFiles, Option<String>), Failure> {
    let (client, plan, log) = (client.clone(), command.plan.clone(), log.cloned());
    let (listed, outcome) = mpsc::channel();
    let armed = console.interrupt.arm();
    let interrupted = listed.clone();
    armed.on_signal(move || {
        // Nobody waits any more where the origin was faster.
        let _ = interrupted.send(Err(Failure::interrupted("mount: interrupted")));
    });
    let thread = std::thread::Builder::new().name("first-look".into()).spawn(move || {
        first(&client, &plan);
        // Nobody waits any more where a signal was faster.
        let _ = listed.send(flatout_mounting::list_root(&client, &plan, log.as_ref()).map_err(Failure::from));
    });
    thread.map_err(|error| Failure::local("mount", "threads", &error))?;
    outcome.recv().unwrap_or_else(|_| Err(Failure::internal("mount: the root's first listing panicked")))
}

fn stands_here(said: &Mounted, silent: bool, console: &Console) -> Result<(), Failure> {
    // The reader of our output may go: the mount is for others, too.
    console.outlast_reader();
    stands(said, silent, console)
}

/// Reports to the process that started this one, and lets go of its streams. `asked` is the file of `--log`.
fn detach(said: &mut Mounted, asked: Option<&Path>, log: &MountLog) -> Result<(), Failure> {
    let (path, file) = open_log(asked, Path::new(&said.mount_point), log)?.unzip();
    said.log = path.map(|path: PathBuf| path.display().to_string());
    let_go(said, file, log)
}

/// The log of a mount in the background: `asked`, or one of its own; none where no place can be written to.
pub fn open_log(
    asked: Option<&Path>,
    mount_point: &Path,
    log: &MountLog,
) -> Result<Option<(PathBuf, fs::File)>, Failure> {
    if let Some(path) = asked {
        let refused = |error| {
            Failure::local("mount", path.display(), &error).with_hint("--log FILE names another place")
        };
        let path = std::path::absolute(path).map_err(refused)?;
        let file = flatout_mounting::open_log(&path).map_err(refused)?;
        return Ok(Some((path, file)));
    }
    // A service often has no home to write to; the folder of the sockets does then.
    let state = flatout_ambient::log_folder().into_iter();
    let beside = flatout_ambient::runtime_folders().into_iter();
    let folders = state.chain(beside.filter(|folder| flatout_mounting::is_own_folder(folder)));
    let opened = flatout_mounting::open_first_log(mount_point, folders);
    if opened.is_none() {
        log.say(
            "mount: no log is kept: neither home nor any other folder for it can be written to: --log FILE names a place",
        );
    }
    Ok(opened)
}

/// Reports to the process that started this one, and lets go of its streams. `file` is the log from then on.
pub fn let_go(said: &Mounted, file: Option<fs::File>, log: &MountLog) -> Result<(), Failure> {
    let refused = |error| Failure::local("mount", "standard streams", &error);
    let out = file.as_ref().map(fs::File::try_clone).transpose().map_err(refused)?;
    daemon::report(&BackgroundReport::Stands(said.clone()));
    daemon::let_go(file.as_ref()).map_err(refused)?;
    let nowhere = || fs::File::options().write(true).open("/dev/null");
    log.turn_to(out.map_or_else(nowhere, Ok).map_err(refused)?);
    log.say(&format!("{} is mounted on {} (process {})", said.source, said.mount_point, said.pid));
    Ok(())
}

/// Writes the statistics at each SIGUSR1, to the file of `--stats`, else to the log.
pub fn write_on_request(stats: &StatsFn, file: Option<PathBuf>, log: &Arc<MountLog>) {
    let (stats, log) = (stats.clone(), log.clone());
    // Without the thread a SIGUSR1 keeps its default.
    let Ok(mut signals) = Signals::new([SIGUSR1]) else { return };
    let _ = std::thread::Builder::new().name("stats".into()).spawn(move || {
        for _ in signals.forever() {
            match &file {
                Some(path) => write(path, &stats(), &log),
                None => log.say(stats().json().trim_end()),
            }
        }
    });
}

/// Takes SIGUSR2 from now on, which ends a process otherwise.
pub fn renewal_signals() -> Option<Signals> {
    Signals::new([SIGUSR2]).ok()
}

/// Shows the index that its file has now at each SIGUSR2, where one is shown. `keep`: the mount is to outlive
/// this process.
pub fn renew_on_request(session: &MountSession, signals: Option<Signals>, keep: Option<Box<dyn KeepMount>>) {
    let (Some(renewal), Some(mut signals)) = (session.renewal(), signals) else { return };
    let renew = move || signals.forever().for_each(|_| renewal.renew(keep.as_deref()));
    let _ = std::thread::Builder::new().name("renewal".into()).spawn(renew);
}

pub fn write(path: &Path, stats: &MountStats, log: &MountLog) {
    if let Err(error) = fs::write(path, stats.json()) {
        log.say(&format!("stats: {}: {}", path.display(), flatout_engine::plain(&error)));
    }
}

/// The first signal unmounts unless somebody still uses it, the second takes it out of sight all the same.
pub fn unmount_on_signal(console: &Console, shutdown: &Shutdown, log: &Arc<MountLog>, place: &str) {
    let (shutdown, log, place) = (shutdown.clone(), log.clone(), place.to_owned());
    console.interrupt.handle(move |count| {
        let lazy = count > 1;
        match shutdown.request(lazy) {
            Ok(holders) => {
                if let Some(list) = MountHolder::list(&holders) {
                    log.say(&format!(
                        "umount: {place}: no longer mounted here, but {list}: it is served until that ends"
                    ));
                }
            }
            Err(error) if !lazy => {
                log.say(&format!("{error}; it stays mounted: a second signal takes it out of sight now"));
            }
            Err(error) => log.say(&error.to_string()),
        }
    });
}
