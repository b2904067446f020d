//! `flatout volume mount`: the files of an index as a read-only folder.

use std::time::SystemTime;

use super::find::Place;
use crate::args::VolumeMount;
use crate::commands::mount;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

pub fn run(args: &VolumeMount, console: &Console) -> Result<Exit, Failure> {
    // A process that another one has started is told.
    let path = match &args.path {
        Some(path) => path.clone(),
        None => {
            let place = Place::of("mount", &args.index, &args.knobs, console)?;
            let found = place.file("mount", &args.knobs, console)?;
            if let (Place::Prefix(location), true) = (&place, found.is_kept) {
                let age = found.path.metadata().and_then(|about| about.modified()).ok();
                let age = age.and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default();
                console.warn(&format!(
                    "mount: {location}: the index that is kept is {} old: `flatout volume update {location}` lists again",
                    indicatif::HumanDuration(age)
                ));
            }
            std::path::absolute(&found.path)
                .map_err(|error| Failure::local("mount", found.path.display(), &error))?
        }
    };
    mount::run(&args.mount(path), console)
}
