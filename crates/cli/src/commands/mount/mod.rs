//! `flatout mount`: from a command line to a folder, in the foreground or in the background.

mod command;
mod daemon;
pub mod helper;
mod notify;
mod recover;
mod serve;
mod supervise;

use crate::args::Mount;
use crate::commands::mount::command::MountCommand;
use crate::commands::mount::daemon::BackgroundReport;
use crate::console::{Carries, Console};
use crate::events::{Mountable, Mounted};
use crate::exit::Exit;
use crate::failure::Failure;

/// Returns in the foreground when it is unmounted, else when it stands.
pub fn run(args: &Mount, console: &Console) -> Result<Exit, Failure> {
    if args.serving.serves {
        return supervise::serving::run(args, console);
    }
    if args.serving.adopts {
        return supervise::adopt(args, console);
    }
    if args.upgrade {
        return supervise::upgrade(args, console);
    }
    if args.recover {
        return recover::run(args, console);
    }
    if args.serving.reports {
        return in_background(args, console);
    }
    let command = MountCommand::of(args)?;
    // The process in the background does not repeat them.
    command.notes.iter().for_each(|note| console.warn(note));
    if args.dry_run {
        let note = serve::try_root(&command, console)?;
        note.iter().for_each(|note| console.warn(note));
        let source = command.plan.source.to_string();
        console.say(&format!("{source} can be mounted"))?;
        let mount_point = command.plan.mount_point.display().to_string();
        console.event(Carries::Lines, &Mountable { source, mount_point, note })?;
        return Ok(Exit::Clean);
    }
    if command.foreground {
        return served(args, command, console, false);
    }
    stands(&daemon::start(args, console)?, args.is_silent, console)?;
    Ok(Exit::Clean)
}

/// The process in the background, which serves.
fn in_background(args: &Mount, console: &Console) -> Result<Exit, Failure> {
    daemon::leave_session();
    let outcome = MountCommand::of(args).and_then(|command| served(args, command, console, true));
    // A failure after the mount stands is in the log.
    outcome.map_err(|failure| {
        let exit = failure.exit;
        daemon::report(&BackgroundReport::Failed(failure));
        // The other process shows it.
        Failure { exit, ..Failure::reader_gone() }
    })
}

fn served(
    args: &Mount,
    command: MountCommand,
    console: &Console,
    in_background: bool,
) -> Result<Exit, Failure> {
    match command.supervise {
        true => supervise::run(args, command, console, in_background),
        false => serve::run(command, console, in_background),
    }
}

/// Reports that the mount stands.
fn stands(mounted: &Mounted, is_silent: bool, console: &Console) -> Result<(), Failure> {
    if !is_silent {
        let log = mounted.log.as_ref().map(|log| format!(", log {log}")).unwrap_or_default();
        let kept = mounted.supervisor_pid.map(|pid| format!(", supervised by {pid}")).unwrap_or_default();
        console.say(&format!(
            "{} is mounted on {} (process {}{kept}{log})",
            mounted.source, mounted.mount_point, mounted.pid
        ))?;
    }
    console.event(Carries::Lines, mounted)?;
    console.flush()
}
