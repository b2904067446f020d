//! `flatout umount`: ends a mount and waits until its process has gone, or clears what one that died has left.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use flatout_mount::Standing;

use crate::args::Umount;
use crate::commands::mount::control;
use crate::console::{Carries, Console};
use crate::events::Unmounted;
use crate::exit::Exit;
use crate::failure::Failure;

/// How long its process may take to end when nothing is mounted any more.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(args: &Umount, console: &Console) -> Result<Exit, Failure> {
    let standing = Standing::at(&args.mount_point)?;
    // Whom to wait for; asked before it goes.
    let served_by = control::running()
        .into_iter()
        .find(|running| Path::new(&running.numbers.mount_point) == standing.path());
    let stale = standing.is_stale();
    standing.unmount(args.lazy)?;
    if let Some(running) = served_by.filter(|_| !args.lazy) {
        wait_for(running.numbers.pid, &running.socket)?;
    }
    let shown = standing.path().display().to_string();
    console.say(&format!("unmounted {shown}{}", if stale { ": its process had died" } else { "" }))?;
    console.event(Carries::Lines, &Unmounted { mount_point: shown, lazy: args.lazy, stale })?;
    Ok(Exit::Clean)
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
