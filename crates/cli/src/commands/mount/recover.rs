//! `flatout mount --recover`: what killed mounts have left in the folder for staged files is uploaded.

use std::path::Path;
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
    if command.plan.settings.mount.read_only {
        return Err(Failure::usage("mount: --recover uploads, and --read-only refuses that")
            .with_hint("leave --read-only out"));
    }
    if !Path::new(&folder).is_dir() {
        return Err(Failure::usage(format!("mount: --staging {folder}: there is no such folder"))
            .with_hint("name the one that the mount had"));
    }
    let client = Arc::new(serve::client(&command, console)?);
    // Each failure is told below.
    let log = Arc::new(MountLog::new(|_| {}, hint::worded));
    let (tree, _) = serve::first_look(&command, &client, &log, console)?;
    let outcomes = tree.tree().map(|tree| tree.publish_pending()).unwrap_or_default();
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
    let left = flatout_mounting::staged_of(&command.plan);
    let files = if failed == 0 { &left.files[..] } else { &[] };
    for file in files {
        let object = file.object.as_ref().map_or_else(|| "an object".to_owned(), ToString::to_string);
        let (record, data) = (file.path.display(), file.path.with_extension("data"));
        let data = data.display();
        console.warn(&match file.is_conflict {
            true => format!(
                "{object}: another client has replaced it: what was written here is kept in {data}, and {record} says \
                 which bytes (delete both once they are of no use)"
            ),
            false => format!("{object}: cannot be uploaded, and stays in {data}"),
        });
    }
    if left.of_mounts > 0 {
        let count = left.of_mounts;
        console.warn(&format!(
            "{count} files in {folder} are of a mount that stands, which uploads them itself"
        ));
    }
    if left.of_others > 0 {
        let count = left.of_others;
        console.warn(&format!(
            "{count} files in {folder} are of another source, or of another endpoint, and stay"
        ));
    }
    if failed == 0 && files.is_empty() {
        if left.of_mounts == 0 {
            console.say(&format!("nothing of {source} is left in {folder}"))?;
        }
        return Ok(Exit::Clean);
    }
    Ok(Exit::Failed)
}
