//! `flatout volume update`: a new index in place of an old one, also in the mounts of this machine that
//! show it.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use flatout_mounting::RunningMount;
use flatout_volume::Difference;

use super::build;
use super::find::{self, Place};
use crate::args::VolumeUpdate;
use crate::commands::repeats::grouped;
use crate::console::{Carries, Console};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sys;

/// How long a mount may take to show another index, and how long another process may take to go on with it
/// where the one before has died.
const PATIENCE: Duration = Duration::from_secs(10);
/// By FUSE, an update unmounts the old one before it mounts the new one.
const UNMOUNTED_AFTER: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub fn run(args: &VolumeUpdate, console: &Console) -> Result<Exit, Failure> {
    let place = Place::of("update", &args.index, &args.knobs, console)?;
    if let Place::Prefix(location) = &place
        && (args.from.names.is_some() || args.from.inventory.is_some())
    {
        return Err(Failure::usage(format!("update: {location}: what is kept for a prefix has all of it"))
            .with_hint("build an index of some names into a file: `flatout volume build`"));
    }
    let found = place.file("update", &args.knobs, console)?;
    let before = flatout_volume::open_index("update", &found.path)?;
    let source = find::in_bucket("update", before.source())?;
    let built = build::build("update", &source, &found.path, &args.from, &args.knobs, console)?;
    let difference = built.index.difference(&before);
    let Difference { added, changed, removed } =
        difference.map_err(|error| error.during("update", found.path.display()))?;
    let mut event = build::event(&source, &args.index, &built);
    (event.added, event.changed, event.removed) = (Some(added), Some(changed), Some(removed));
    let mut exit = if built.left_out > 0 { Exit::LeftOut } else { Exit::Clean };
    let mut uploaded = None;
    if let Place::Object(location, stat) = &place {
        let condition = build::in_place_of(location, stat);
        uploaded = build::upload(location, &built, condition, &args.knobs, console)?;
    }
    built.publish()?;
    if uploaded.is_some() {
        find::note_version(&found.path, uploaded.as_deref());
    }
    event.mounts = Some(0);
    let shown = mounts_of(&found.path);
    for mount in &shown {
        match renew(mount, &shown) {
            Ok(true) => event.mounts = event.mounts.map(|mounts| mounts + 1),
            Ok(false) => {}
            Err(why) => {
                exit = exit.max(Exit::LeftOut);
                console.warn(&format!("update: {}: it shows the old index: {why}", mount.stats.mount_point));
            }
        }
    }
    console.say(&format!(
        "{}; {} new, {} changed, {} gone",
        build::says(&event),
        grouped(added),
        grouped(changed),
        grouped(removed)
    ))?;
    console.event(Carries::Lines, &event)?;
    Ok(exit)
}

/// The mounts of this user that show the index at this path.
fn mounts_of(path: &Path) -> Vec<RunningMount> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // A socket in a folder of another user's would name a process of its choice.
    let folders = flatout_ambient::runtime_folders().into_iter();
    let own: Vec<PathBuf> = folders.filter(|folder| flatout_mounting::is_own_folder(folder)).collect();
    let running = flatout_mounting::running_mounts(&own);
    let shows = |mount: &RunningMount| mount.stats.index.is_some() && Path::new(&mount.stats.source) == path;
    running.into_iter().filter(shows).collect()
}

/// Has it show the index that its file has now; `false` if it was unmounted. `all` are the mounts that showed
/// the index before.
///
/// # Errors
/// Why it does not.
fn renew(mount: &RunningMount, all: &[RunningMount]) -> Result<bool, String> {
    let path = Path::new(&mount.stats.source);
    // Where its process dies, another may go on with the mount.
    let goes_on = |other: &RunningMount| {
        other.stats.mount_point == mount.stats.mount_point
            && all.iter().all(|before| before.stats.pid != other.stats.pid)
    };
    let (mut now, mut told) = (mount.clone(), 0);
    let (since, mut mounted) = (Instant::now(), Instant::now());
    loop {
        let answer = flatout_mounting::stats_of(&now.socket);
        let next = match answer {
            Some(stats) => Some(RunningMount { stats, ..now.clone() }),
            None => mounts_of(path).into_iter().find(goes_on),
        };
        let is_served = next.is_some();
        now = next.unwrap_or(now);
        // Another update may have replaced the index once more.
        let index = flatout_volume::open_index("update", path).map_err(|error| error.to_string())?;
        let wanted = flatout_volume::index_id(&index).map_err(|error| error.to_string())?;
        if now.stats.index.as_ref().is_some_and(|index| index.id == wanted) {
            return Ok(true);
        }
        if now.is_mounted() {
            mounted = Instant::now();
            if is_served && now.stats.pid != told {
                told = now.stats.pid;
                sys::renew(told);
            }
        } else if mounted.elapsed() > UNMOUNTED_AFTER {
            return Ok(false);
        }
        if since.elapsed() > PATIENCE {
            return Err(match is_served {
                true => "its process does not change to the new one; its log says why".to_owned(),
                false => "no process serves it".to_owned(),
            });
        }
        thread::sleep(LOOK_AGAIN);
    }
}
