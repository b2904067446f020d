//! `flatout volume verify`: an index against its checksums, and its objects against the origin's.

use flatout_volume::{Difference, ListedObjects, index_error};

use super::find::{self, Place};
use crate::args::VolumeVerify;
use crate::commands::repeats::{counted, grouped};
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};

pub fn run(args: &VolumeVerify, console: &Console) -> Result<Exit, Failure> {
    let found =
        Place::of("verify", &args.index, &args.knobs, console)?.file("verify", &args.knobs, console)?;
    let index = flatout_volume::open_index("verify", &found.path)?;
    let failed = |error| Failure::from(index_error(&error).during("verify", found.path.display()));
    index.verify().map_err(failed)?;
    let totals = index.totals();
    // The checksums say that it is as it was written; the walk, that it is one tree of names.
    let walked = index.files().try_fold(0, |files, file| file.map(|_| files + 1)).map_err(failed)?;
    if walked != totals.files {
        let cause = format!("it has {walked} files and says {}", totals.files);
        return Err(Failure::usage(format!("verify: {}: {cause}: build it again", args.index)));
    }
    let mut event = events::VolumeVerified { index: args.index.clone(), files: walked, ..Default::default() };
    console.say(&format!("{}: {} files, all blocks have their checksums", args.index, grouped(walked)))?;
    let mut exit = Exit::Clean;
    if args.objects {
        let source = find::in_bucket("verify", index.source())?;
        let client = find::client(&source, &args.knobs, console)?;
        let listed = ListedObjects::under(&client, &source)?;
        let differs = flatout_volume::compare(&index, source.key(), listed, |change, path| {
            console.warn(&format!("verify: {}: {change}", one_line(path)));
        })?;
        let Difference { added, changed, removed } = differs;
        (event.added, event.changed, event.removed) = (Some(added), Some(changed), Some(removed));
        match differs.is_none() {
            true => console.say(&format!("{source}: the same objects"))?,
            false => {
                exit = Exit::LeftOut;
                console.say(&format!(
                    "{source}: {} new, {} changed, {} gone: `flatout volume update {}` makes it new",
                    counted(added, "object"),
                    grouped(changed),
                    grouped(removed),
                    args.index
                ))?;
            }
        }
    }
    console.event(Carries::Lines, &event)?;
    Ok(exit)
}
