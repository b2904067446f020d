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

/// How long a mount may take to show another index.
const PATIENCE: Duration = Duration::from_secs(10);
/// A mount that nobody serves for so long has no other process that goes on.
const GONE_AFTER: Duration = Duration::from_secs(3);

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
    for mount in mounts_of(&found.path) {
        match renew(&mount) {
            Ok(()) => event.mounts = event.mounts.map(|mounts| mounts + 1),
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

/// Has it show the index that its file has now.
///
/// # Errors
/// Why it does not.
fn renew(mount: &RunningMount) -> Result<(), String> {
    let path = Path::new(&mount.stats.source);
    let index = flatout_volume::open_index("update", path).map_err(|error| error.to_string())?;
    let wanted = flatout_volume::index_id(&index).map_err(|error| error.to_string())?;
    let (mut told, since, mut seen) = (0, Instant::now(), Instant::now());
    while since.elapsed() < PATIENCE && seen.elapsed() < GONE_AFTER {
        // Another process may go on with it meanwhile.
        let now = mounts_of(path).into_iter().find(|now| now.stats.mount_point == mount.stats.mount_point);
        if let Some(RunningMount { stats, .. }) = now {
            seen = Instant::now();
            if stats.index.is_some_and(|index| index.id == wanted) {
                return Ok(());
            }
            if stats.pid != told {
                told = stats.pid;
                sys::renew(told);
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    if seen.elapsed() >= GONE_AFTER {
        return Err("its process is gone".to_owned());
    }
    Err("its process does not change to the new one; its log says why".to_owned())
}
