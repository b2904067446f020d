//! `flatout umount`: ends a mount and waits until its process has gone, or clears what one that died has left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Umount;
use crate::commands::mount::control;
use crate::commands::mount::place::{self, quoted};
use crate::console::{Carries, Console};
use crate::events::Unmounted;
use crate::exit::Exit;
use crate::failure::Failure;

/// How long its process may take to end when nothing is mounted any more.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(args: &Umount, console: &Console) -> Result<Exit, Failure> {
    let path = absolute(&args.mount_point)?;
    let entry = place::entry_at(&path).ok_or_else(|| nothing_there(&path))?;
    if !entry.is_ours() {
        let shown = path.display();
        return Err(Failure::usage(format!("umount: {shown}: is a mount of {}, not of Flatout", entry.kind))
            .with_hint(format!("`umount {}` ends those of others", quoted(&path))));
    }
    // Whom to wait for; asked before it goes.
    let served_by =
        control::running().into_iter().find(|running| Path::new(&running.numbers.mount_point) == path);
    let stale = is_stale(&path);
    flatout_mount::unmount(&path, args.lazy)?;
    if let Some(running) = served_by.filter(|_| !args.lazy) {
        wait_for(running.numbers.pid, &running.socket)?;
    }
    let shown = path.display().to_string();
    console.say(&format!("unmounted {shown}{}", if stale { ": its process had died" } else { "" }))?;
    console.event(Carries::Lines, &Unmounted { mount_point: shown, lazy: args.lazy, stale })?;
    Ok(Exit::Clean)
}

/// The path without links, also where what is mounted there does not answer: only its parent is looked at.
fn absolute(typed: &Path) -> Result<PathBuf, Failure> {
    let refused = |error: &io::Error| missing(typed, error);
    let whole = std::path::absolute(typed).map_err(|error| refused(&error))?;
    let plain: PathBuf = whole.components().collect();
    match (plain.parent(), plain.file_name()) {
        (Some(parent), Some(name)) => {
            let below = fs::canonicalize(parent).map_err(|error| refused(&error))?.join(name);
            // A link to the mount point; one that a dead mount keeps from being read is none.
            Ok(match below.symlink_metadata().is_ok_and(|known| known.is_symlink()) {
                true => fs::canonicalize(&below).unwrap_or(below),
                false => below,
            })
        }
        // `..` at the end, and the root.
        _ => fs::canonicalize(&plain).map_err(|error| refused(&error)),
    }
}

fn nothing_there(path: &Path) -> Failure {
    let shown = path.display();
    match path.symlink_metadata() {
        Err(error) => missing(path, &error),
        Ok(_) => Failure::usage(format!("umount: {shown}: nothing is mounted there"))
            .with_hint("`flatout top --once` shows the mounts that there are"),
    }
}

fn missing(path: &Path, error: &io::Error) -> Failure {
    Failure::local("umount", path.display(), error)
        .with_hint("`flatout top --once` shows the mounts that there are")
}

fn is_stale(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}

/// Whether the process is there, where its number is one of ours: in another name space of processes it is somebody else's.
fn is_alive(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Of a zombie nothing is left but that nobody has asked how it ended.
    let is_zombie = state.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'));
    ["flatout", "mount.flatout", "exe"].contains(&name.trim_end()) && !is_zombie
}

/// Its socket goes with the process, and so does its number.
fn wait_for(pid: u32, socket: &Path) -> Result<(), Failure> {
    let start = Instant::now();
    while socket.exists() && control::look_again(socket).is_some() || is_alive(pid) {
        if start.elapsed() > PATIENCE {
            return Err(Failure::internal(format!(
                "umount: process {pid}: serves nothing any more and does not end"
            ))
            .with_hint(format!("`kill -9 {pid}` ends it")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
