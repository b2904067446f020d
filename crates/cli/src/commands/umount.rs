//! `flatout umount`: ends a mount and waits until its process has gone, or names its users; clears the mount
//! of a process that died.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use flatout_mount::{ExistingMount, MountHolder};
use flatout_mounting::RunningMount;

use crate::args::Umount;
use crate::console::{Carries, Console};
use crate::events::{HeldBy, Unmounted};
use crate::exit::Exit;
use crate::failure::Failure;

/// How long the process may take to end after the unmount.
const PATIENCE: Duration = Duration::from_secs(30);
/// A process that still answers this long after the unmount serves somebody.
const STILL_SERVES: Duration = Duration::from_secs(5);
/// When holders are looked for first; each further look is after twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(50);

pub fn run(args: &Umount, console: &Console) -> Result<Exit, Failure> {
    let standing = ExistingMount::at(&args.mount_point)
        .map_err(|error| with_those_who_keep_it(Failure::from(error), &args.mount_point))?;
    // Whom to wait for; asked before it goes.
    let served_by = flatout_mounting::running_mounts(&flatout_ambient::runtime_folders())
        .into_iter()
        .find(|running| running.serves(&standing));
    let stale = standing.is_stale();
    standing.unmount(args.lazy)?;
    let held_by = match &served_by {
        Some(running) => wait_for(running, &standing, args.lazy)?,
        None => Vec::new(),
    };
    let shown = standing.path().display().to_string();
    console.say(&format!("unmounted {shown}{}", if stale { ": its process had died" } else { "" }))?;
    if let Some(running) = served_by.filter(|_| !held_by.is_empty()) {
        console.flush()?;
        console.warn(&format!(
            "umount: {shown}: no longer mounted here, but {}: process {} serves it until that ends",
            MountHolder::list(&held_by).unwrap_or_default(),
            running.stats.pid
        ));
    }
    let held_by = held_by.iter().map(HeldBy::from).collect();
    console.event(Carries::Lines, &Unmounted { mount_point: shown, lazy: args.lazy, stale, held_by })?;
    Ok(Exit::Clean)
}

/// Names the holders of a mount that is no longer there, if its process still serves them.
fn with_those_who_keep_it(failure: Failure, mount_point: &Path) -> Failure {
    let path = mount_point.canonicalize().unwrap_or_else(|_| mount_point.to_owned());
    let kept = flatout_mounting::running_mounts(&flatout_ambient::runtime_folders()).into_iter().find_map(
        |running| {
            let was_there = Path::new(&running.stats.mount_point) == path;
            let holders = was_there.then(|| running.held_elsewhere())??;
            Some((running.stats.pid, MountHolder::list(&holders)?))
        },
    );
    match kept {
        Some((pid, list)) => failure.with_hint(format!("{list}: process {pid} serves it until that ends")),
        None => failure,
    }
}

/// Waits until the process has gone, or until holders are found, which it returns. With `lazy` it looks once
/// and does not wait.
fn wait_for(
    running: &RunningMount,
    standing: &ExistingMount,
    lazy: bool,
) -> Result<Vec<MountHolder>, Failure> {
    let RunningMount { socket, stats } = running;
    // Its socket goes with the process, and so does its number. A supervisor goes last.
    let is_there = || {
        let serves = is_alive(stats.pid) || socket.exists() && flatout_mounting::stats_of(socket).is_some();
        serves || stats.supervisor_pid.is_some_and(is_alive)
    };
    let (start, mut next_look) = (Instant::now(), if lazy { Duration::ZERO } else { FIRST_LOOK });
    while is_there() {
        if start.elapsed() >= next_look {
            let holders = flatout_mount::holders(standing.device(), standing.path());
            // It may have ended meanwhile, and what was seen with it.
            if lazy || !holders.is_empty() {
                return Ok(if is_there() { holders } else { Vec::new() });
            }
            next_look = 2 * start.elapsed();
        }
        // The socket of one that serves nobody any more is closed.
        if start.elapsed() > STILL_SERVES && flatout_mounting::stats_of(socket).is_some() {
            return Ok(vec![MountHolder::unseen()]);
        }
        if start.elapsed() > PATIENCE {
            let (place, pid) = (standing.path().display(), stats.pid);
            return Err(Failure::internal(format!(
                "umount: {place}: nothing is mounted there any more, and process {pid}, which served it, does not end"
            ))
            .with_hint(format!("`kill -9 {pid}` ends it")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(Vec::new())
}

/// Whether the process is there and is Flatout's: in another namespace of processes the number is another
/// program's.
fn is_alive(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended; only its parent has not collected its status.
    let is_zombie = state.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'));
    ["flatout", "mount.flatout", "exe"].contains(&name.trim_end()) && !is_zombie
}
