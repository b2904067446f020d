//! `flatout mount`: from a command line to a folder, in the foreground or not.

pub mod control;
mod daemon;
mod foreign;
pub mod helper;
mod libfuse;
mod log;
mod notify;
pub mod numbers;
mod options;
mod ossfs;
mod plan;
mod responder;
mod session;
mod stalls;

use crate::args::Mount;
use crate::commands::mount::daemon::Report;
use crate::commands::mount::plan::Plan;
use crate::console::{Carries, Console};
use crate::events::{Mountable, Mounted};
use crate::exit::Exit;
use crate::failure::Failure;

/// In the foreground until it is unmounted; else until it stands.
pub fn run(args: &Mount, console: &Console) -> Result<Exit, Failure> {
    if args.reports {
        return in_background(args, console);
    }
    let plan = Plan::of(args)?;
    // Once, and not again by the process in the background.
    plan.notes.iter().for_each(|note| console.warn(note));
    if args.dry_run {
        let note = session::try_root(&plan, console)?;
        note.iter().for_each(|note| console.warn(note));
        console.say(&format!("{} can be mounted", plan.source))?;
        let mount_point = plan.mount_point.display().to_string();
        console.event(Carries::Lines, &Mountable { source: plan.source, mount_point, note })?;
        return Ok(Exit::Clean);
    }
    if plan.foreground {
        return session::run(plan, console, false);
    }
    stands(&daemon::start(console)?, args.is_silent, console)?;
    Ok(Exit::Clean)
}

/// The one that serves, started by the other.
fn in_background(args: &Mount, console: &Console) -> Result<Exit, Failure> {
    daemon::leave_session();
    let outcome = Plan::of(args).and_then(|plan| session::run(plan, console, true));
    // What fails once the mount stands is in the log.
    outcome.map_err(|failure| {
        let exit = failure.exit;
        daemon::report(&Report::Failed(failure));
        // Said by the other.
        Failure { exit, ..Failure::reader_gone() }
    })
}

/// Says that it stands.
fn stands(mounted: &Mounted, is_silent: bool, console: &Console) -> Result<(), Failure> {
    if !is_silent {
        let log = mounted.log.as_ref().map(|log| format!(", log {log}")).unwrap_or_default();
        console.say(&format!(
            "{} is mounted on {} (process {}{log})",
            mounted.source, mounted.mount_point, mounted.pid
        ))?;
    }
    console.event(Carries::Lines, mounted)?;
    console.flush()
}
