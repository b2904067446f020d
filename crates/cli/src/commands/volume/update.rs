//! `flatout volume update`: a new index in place of an old one, also in the mounts of this machine that
//! show it.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use flatout_mount::ExistingMount;
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
/// A mount that has left the mount table counts as unmounted after this time. An update by FUSE removes it
/// for a moment.
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
                console.warn(&format!("update: {}: {why}", mount.stats.mount_point));
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

/// Has it show the index that its file has now; `false` if it was unmounted before. `all` are the mounts that
/// showed the old index.
///
/// # Errors
/// What it does instead.
fn renew(mount: &RunningMount, all: &[RunningMount]) -> Result<bool, String> {
    let path = Path::new(&mount.stats.source);
    // Where its process dies, another may go on with the mount.
    let goes_on = |other: &RunningMount| {
        other.stats.mount_point == mount.stats.mount_point
            && other.is_mounted()
            && all.iter().all(|before| before.stats.pid != other.stats.pid)
    };
    let mut now = RunningMount { socket: mount.socket.clone(), stats: mount.stats.clone() };
    let (mut told, since, mut mounted) = (None, Instant::now(), Instant::now());
    loop {
        let is_served = if let Some(stats) = flatout_mounting::stats_of(&now.socket) {
            now.stats = stats;
            true
        } else if let Some(next) = mounts_of(path).into_iter().find(goes_on) {
            now = next;
            true
        } else {
            false
        };
        // Another update may have replaced the index once more.
        let index = flatout_volume::open_index("update", path).map_err(|error| error.to_string())?;
        let wanted = flatout_volume::index_id(&index).map_err(|error| error.to_string())?;
        if is_served && now.stats.index.as_ref().is_some_and(|index| index.id == wanted) {
            return Ok(true);
        }
        let pid = now.stats.pid;
        // A process that died may have shown the new index before.
        let is_standing = || !is_served && ExistingMount::at(Path::new(&now.stats.mount_point)).is_ok();
        if now.is_mounted() || is_standing() {
            mounted = Instant::now();
            if is_served && told.replace(pid) != Some(pid) {
                sys::renew(pid);
            }
        }
        let is_unmounted = mounted.elapsed() > UNMOUNTED_AFTER;
        if is_unmounted && told.is_none() {
            return Ok(false);
        }
        if since.elapsed() > PATIENCE || (is_unmounted && !is_served) {
            return Err(match (is_unmounted, is_served) {
                (true, _) => "it is not mounted any more; its log says why".to_owned(),
                (false, true) => "it shows the old index; its log says why".to_owned(),
                (false, false) => "no process serves it".to_owned(),
            });
        }
        thread::sleep(LOOK_AGAIN);
    }
}
