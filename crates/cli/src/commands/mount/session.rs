//! A mount from its root's first listing to its end: the origin is asked, the folder mounted, numbers and signals have their doors.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use flatout_engine::{Client, Error, ErrorKind};
use flatout_mount::{Granted, MountHolder, Observer, SessionEnd, SessionWatch, Timings, Unmounter};
use flatout_settings::Settings;
use flatout_tree::{Config, Tree, TreeRoot};
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;

use crate::commands::mount::control::{Doors, Look};
use crate::commands::mount::daemon::{self, Report};
use crate::commands::mount::log::{self, Log};
use crate::commands::mount::numbers::{self, Numbers, Process};
use crate::commands::mount::plan::Plan;
use crate::commands::mount::{notify, stalls, stands};
use crate::console::Console;
use crate::events::Mounted;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::{origin, outages};

/// What the kernel reads ahead by itself.
const KERNELS_OWN_READ_AHEAD: u64 = 128 << 10;

/// Whether the origin shows the root, and what is to be said about it: nothing is mounted.
///
/// # Errors
/// The origin's refusal, or a signal.
pub fn try_root(plan: &Plan, console: &Console) -> Result<Option<String>, Failure> {
    let client = Arc::new(client(plan, console)?);
    first_look(plan, &client, console).map(|(_, note)| note)
}

/// Serves until it is unmounted. `in_background`: a parent process waits until the mount stands; messages then go to a log.
///
/// # Errors
/// The origin's refusal of the root, the kernel's of the mount, or a session that broke.
pub fn run(plan: Plan, console: &Console, in_background: bool) -> Result<Exit, Failure> {
    let _armed = console.interrupt.arm();
    let doors = Doors::make(plan.metrics)?;
    let client = Arc::new(client(&plan, console)?);
    let log = Arc::new(Log::terminal(console.is_quiet()));
    let told = log.clone();
    // Without a thread for it the log lacks outages, and nothing else.
    let _ = client.on_outages(move |news| told.say(&outages::line(&news)));
    let (tree, note) = first_look(&plan, &client, console)?;
    let tree = Arc::new(tree);
    note.iter().for_each(|note| log.say(note));
    if doors.socket().is_none() {
        log.say("mount: `flatout top` will not show it: no folder for its socket can be written to: set XDG_RUNTIME_DIR to one");
    }
    let observer = Observer { on_error: Some(teller(&log)), ..Observer::default() };
    let timings = observer.timings.clone();
    let ends = Ends::listen(console, &log, &plan.mount_point);
    let mounted = flatout_mount::mount(&options(&plan))?;
    let session = mounted.serve(tree.clone(), observer)?;
    ends.may_unmount(session.unmounter());
    let granted = session.granted().clone();
    warn_of_short_reads(&granted, &plan.settings, &log);

    let place = plan.mount_point.display().to_string();
    let mut said = Mounted {
        source: plan.source.clone(),
        mount_point: place,
        pid: std::process::id(),
        log: None,
        socket: doors.socket().map(|path| path.display().to_string()),
        metrics: doors.metrics(),
        note,
    };
    let _watched = stalls::watch(plan.source.clone(), session.watch(), tree.clone(), log.clone());
    let counted = Counted { plan, granted, watch: session.watch(), timings, tree, began: Instant::now() };
    let stats_file = counted.plan.stats.clone();
    let (silent, stats, log_file) = (counted.plan.silent, stats_file.clone(), counted.plan.log.clone());
    let look: Look = Arc::new(move || counted.now());
    let open = doors.open(&look).map_err(|error| Failure::local("mount", "threads", &error))?;
    write_on_request(&look, stats, &log);

    match in_background {
        false => stands_here(&said, silent, console)?,
        true => detach(&mut said, log_file.as_deref(), &log)?,
    }
    notify::tell("READY=1");
    let ended = session.wait();
    notify::tell("STOPPING=1");
    log.say(match &ended {
        Ok(SessionEnd::Aborted) => "the connection was aborted",
        Ok(_) => "unmounted",
        Err(_) => "broken off",
    });
    if let Some(path) = &stats_file {
        write(path, &look(), &log);
    }
    drop(open);
    origin::remember(&client);
    match ended {
        Ok(_) => Ok(Exit::Clean),
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

/// A program sees an errno only: why stands in the log.
fn teller(log: &Arc<Log>) -> Arc<dyn Fn(&Error) + Send + Sync> {
    let log = log.clone();
    Arc::new(move |error| {
        // Somebody who was killed does not want to know any more.
        if error.kind() != ErrorKind::Cancelled {
            let hint = match error.kind() {
                // Of a copy it would be to start again.
                ErrorKind::Changed => Some("open it again to read the new version"),
                _ => error.hint(),
            };
            let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            let about = format!("{} {}", error.doing(), error.object());
            log.say_some(exit::name(error.kind()), &about, &format!("{error}{hint}"));
        }
    })
}

fn client(plan: &Plan, console: &Console) -> Result<Client, Failure> {
    let client = origin::silent_client(&plan.knobs, &[plan.dialect])?;
    // What else is to be said of settings is among the plan's notes.
    if let Some(note) = client.note() {
        console.warn(note);
    }
    Ok(client)
}

/// The root's first listing, and what is to be said about it. A signal ends the wait for an origin that says nothing, and with
/// the program the request.
fn first_look(
    plan: &Plan,
    client: &Arc<Client>,
    console: &Console,
) -> Result<(Tree, Option<String>), Failure> {
    let (client, root, config) = (client.clone(), plan.root.clone(), config(plan));
    let (tell, told) = mpsc::channel();
    let armed = console.interrupt.arm();
    let ended = tell.clone();
    armed.on_signal(move || {
        // Nobody waits any more where the origin was faster.
        let _ = ended.send(Err(Failure::interrupted("mount: interrupted")));
    });
    let look = move || {
        let tree = Tree::new(client.clone(), root.clone(), config).map_err(|error| refused_root(&error))?;
        let note = look_for_object(&client, &root, &tree)?;
        Ok((tree, note))
    };
    let thread = std::thread::Builder::new().name("first-look".into()).spawn(move || {
        // As above.
        let _ = tell.send(look());
    });
    thread.map_err(|error| Failure::local("mount", "threads", &error))?;
    told.recv().unwrap_or_else(|_| Err(Failure::internal("mount: the root's first listing panicked")))
}

/// A prefix under which nothing lies may be the name of an object; what is to be said if it is not.
fn look_for_object(client: &Client, root: &TreeRoot, tree: &Tree) -> Result<Option<String>, Failure> {
    let TreeRoot::Under(prefix) = root else { return Ok(None) };
    if !tree.is_root_bare() {
        return Ok(None);
    }
    let key = prefix.key().trim_end_matches('/');
    let object = prefix.with_key(key).expect("what is in a bucket takes another key");
    // Who may list need not be let in to objects: an empty folder is all that is known then.
    if client.stat(&object).is_ok() {
        let above = key.rfind('/').map_or("", |slash| &key[..=slash]);
        let above = prefix.with_key(above).expect("as above");
        return Err(Failure::usage(format!("mount: {object}: is an object, and a folder is wanted"))
            .with_hint(format!("mount the folder that it lies in: {above}")));
    }
    Ok(Some(format!(
        "mount: {prefix}: nothing lies under this prefix: it is a folder all the same, empty until something does"
    )))
}

fn config(plan: &Plan) -> Config {
    let mount = &plan.settings.mount;
    Config {
        uid: mount.uid.unwrap_or_else(|| rustix::process::getuid().as_raw()),
        gid: mount.gid.unwrap_or_else(|| rustix::process::getgid().as_raw()),
        file_mode: mount.file_mode,
        folder_mode: mount.folder_mode,
        attribute_lifetime: Duration::from_millis(mount.attribute_lifetime_ms),
        negative_lifetime: Duration::from_millis(mount.negative_lifetime_ms),
        close_to_open: mount.close_to_open,
        direct_bytes: mount.direct_bytes,
    }
}

/// Who mounts has not asked for a listing: it is the mount that failed.
fn refused_root(error: &Error) -> Failure {
    let failure = Failure::from(error);
    match error.doing() {
        "list" => Failure { message: format!("mount: {}: {}", error.object(), error.cause()), ..failure },
        _ => failure,
    }
}

fn options(plan: &Plan) -> flatout_mount::Options {
    let mount = &plan.settings.mount;
    let cores = || std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8) as u32;
    flatout_mount::Options {
        allow_other: mount.allow_other,
        default_permissions: plan.default_permissions,
        threads: mount.threads.unwrap_or_else(cores),
        max_background: mount.max_background,
        read_ahead_bytes: (mount.read_ahead_bytes > 0).then_some(mount.read_ahead_bytes),
        options: plan.system.clone(),
        ..flatout_mount::Options::new(plan.source.clone(), plan.mount_point.clone())
    }
}

/// Once: buffered readers get 128 KiB at a time where nobody may raise it, and that is half the speed.
fn warn_of_short_reads(granted: &Granted, settings: &Settings, log: &Log) {
    let wanted = settings.mount.read_ahead_bytes;
    let stuck = granted.read_ahead_bytes.is_some_and(|bytes| bytes <= KERNELS_OWN_READ_AHEAD);
    if let Some(remedy) = granted.remedy.as_ref().filter(|_| stuck && wanted > KERNELS_OWN_READ_AHEAD) {
        log.say(&format!(
            "mount: buffered reads stay at 128 KiB: only root may raise what the kernel reads ahead: {remedy}"
        ));
    }
}

fn stands_here(said: &Mounted, silent: bool, console: &Console) -> Result<(), Failure> {
    // Whoever reads our output may go: the mount is for others, too.
    console.outlast_reader();
    stands(said, silent, console)
}

/// Tells the one that started us, and lets go of what it gave us. `asked`: where the log is to be.
fn detach(said: &mut Mounted, asked: Option<&Path>, log: &Log) -> Result<(), Failure> {
    let opened = match asked {
        Some(path) => {
            let refused = |error| {
                Failure::local("mount", path.display(), &error).with_hint("--log FILE names another place")
            };
            let path = std::path::absolute(path).map_err(refused)?;
            let file = log::open(&path).map_err(refused)?;
            Some((path, file))
        }
        None => log::open_first(Path::new(&said.mount_point)),
    };
    match &opened {
        Some((path, _)) => said.log = Some(path.display().to_string()),
        None => log.say(
            "mount: no log is kept: neither home nor any other folder for it can be written to: --log FILE names a place",
        ),
    }
    let file = opened.map(|(_, file)| file);
    let refused = |error| Failure::local("mount", "standard streams", &error);
    let out = file.as_ref().map(fs::File::try_clone).transpose().map_err(refused)?;
    daemon::report(&Report::Stands(said.clone()));
    daemon::let_go(file.as_ref()).map_err(refused)?;
    let nowhere = || fs::File::options().write(true).open("/dev/null");
    log.turn_to(out.map_or_else(nowhere, Ok).map_err(refused)?);
    log.say(&format!("{} is mounted on {} (process {})", said.source, said.mount_point, said.pid));
    Ok(())
}

/// What the numbers are made of.
struct Counted {
    plan: Plan,
    granted: Granted,
    watch: SessionWatch,
    timings: Arc<Timings>,
    tree: Arc<Tree>,
    began: Instant,
}

impl Counted {
    fn now(&self) -> Numbers {
        let Counted { plan, granted, watch, timings, tree, began } = self;
        let (asked, names, read) = (watch.stats(), tree.stats(), tree.client().reader_stats());
        Numbers {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            source: plan.source.clone(),
            mount_point: plan.mount_point.display().to_string(),
            uptime_s: began.elapsed().as_secs_f64(),
            kernel: numbers::Kernel {
                abi: format!("7.{}", granted.minor),
                request_bytes: granted.request_bytes.into(),
                read_ahead_bytes: granted.read_ahead_bytes.unwrap_or_default(),
                max_background: granted.max_background.into(),
                device: granted.device.map(|(major, minor)| format!("{major}:{minor}")),
            },
            requests: numbers::requests(&asked, timings),
            bytes: numbers::bytes(&asked, &read),
            reads: numbers::reads(&asked, &read),
            names: numbers::names(&names),
            origin: numbers::origin(&tree.client().origins()),
            memory: numbers::Memory {
                limit_bytes: plan.settings.memory_bytes,
                content_bytes_now: read.held_bytes,
                names_bytes_now: names.held_bytes_now,
            },
            process: Process::look(),
        }
    }
}

/// At each SIGUSR1 the numbers go to the file of `--stats`, else to the log.
fn write_on_request(look: &Look, stats: Option<PathBuf>, log: &Arc<Log>) {
    let (look, log) = (look.clone(), log.clone());
    // Without the thread a SIGUSR1 does what it always does; nobody asked for it yet.
    let Ok(mut signals) = Signals::new([SIGUSR1]) else { return };
    let _ = std::thread::Builder::new().name("stats".into()).spawn(move || {
        for _ in signals.forever() {
            match &stats {
                Some(path) => write(path, &look(), &log),
                None => log.say(look().json().trim_end()),
            }
        }
    });
}

fn write(path: &Path, numbers: &Numbers, log: &Log) {
    if let Err(error) = fs::write(path, numbers.json()) {
        log.say(&format!("stats: {}: {}", path.display(), flatout_engine::plain(&error)));
    }
}

/// The end by signals: the first unmounts unless somebody still uses it, the second takes it out of sight whoever does.
#[derive(Clone)]
struct Ends(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    unmounter: Option<Unmounter>,
    asked: u32,
}

impl Ends {
    /// From before there is a mount, so that no signal leaves one behind.
    fn listen(console: &Console, log: &Arc<Log>, place: &Path) -> Ends {
        let ends = Ends(Arc::default());
        let (told, log, place) = (ends.clone(), log.clone(), place.display().to_string());
        console.interrupt.take_over(move |count| told.on_signal(count, &log, &place));
        ends
    }

    fn may_unmount(&self, unmounter: Unmounter) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.asked > 0 {
            // Nobody can be using what stands for a moment.
            let _ = unmounter.unmount(true);
        }
        state.unmounter = Some(unmounter);
    }

    fn on_signal(&self, count: u32, log: &Log, place: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked = count;
        let Some(unmounter) = state.unmounter.clone() else { return };
        drop(state);
        let lazy = count > 1;
        match unmounter.unmount(lazy) {
            Ok(()) => {
                if let Some(list) = MountHolder::list(&unmounter.holders()) {
                    log.say(&format!(
                        "umount: {place}: no longer mounted here, but {list}: it is served until that ends"
                    ));
                }
            }
            Err(error) if !lazy => {
                log.say(&format!("{error}; it stays mounted: a second signal takes it out of sight now"))
            }
            Err(error) => log.say(&error.to_string()),
        }
    }
}
