//! `flatout mount --recover`: what killed mounts have left in the folder for staged files is uploaded.

use std::sync::Arc;

use flatout_mounting::MountLog;

use crate::args::Mount;
use crate::commands::mount::command::MountCommand;
use crate::commands::mount::serve;
use crate::console::{Carries, Console};
use crate::events::Recovered;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::hint;

/// Mounts nothing.
///
/// # Errors
/// There is no folder, the origin's refusal of the root, or a signal.
pub fn run(args: &Mount, console: &Console) -> Result<Exit, Failure> {
    let mut command = MountCommand::of_standing(args)?;
    // Those that the mount may have kept are not lost by a command line that does not name them.
    command.plan.settings.mount.attributes = "metadata".to_owned();
    let source = command.plan.source.to_string();
    let Some(folder) = command.plan.settings.mount.staging.clone() else {
        return Err(Failure::usage("mount: --recover has no folder to look in")
            .with_hint("name the one that the mount had: --staging DIR"));
    };
    let client = Arc::new(serve::client(&command, console)?);
    // Each failure is told below.
    let log = Arc::new(MountLog::new(|_| {}, hint::worded));
    let (tree, _) = serve::first_look(&command, &client, &log, console)?;
    let outcomes = tree.publish_pending();
    let failed = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).count();
    for (path, outcome) in outcomes {
        let error = outcome.err().map(|error| error.to_string());
        match &error {
            None => console.say(&format!("uploaded {path}"))?,
            Some(error) => console.warn(&format!("{path}: {error}: it stays in {folder}")),
        }
        console.event(Carries::Lines, &Recovered { source: source.clone(), path, error })?;
    }
    drop(tree);
    // Another client's objects are in the place of some, or a mount of an older version has left them.
    let left = if failed == 0 { flatout_mounting::staged_of(&command.plan) } else { Vec::new() };
    for path in &left {
        console.warn(&format!("{}: cannot be uploaded, and stays", path.display()));
    }
    if failed == 0 && left.is_empty() {
        console.say(&format!("nothing of {source} is left in {folder}"))?;
        return Ok(Exit::Clean);
    }
    Ok(Exit::Failed)
}
