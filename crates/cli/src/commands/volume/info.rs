//! `flatout volume info`: what an index has.

use flatout_settings::format_size;
use flatout_wire::time;

use super::find::Place;
use crate::args::VolumeInfo;
use crate::commands::repeats::grouped;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};

pub fn run(args: &VolumeInfo, console: &Console) -> Result<Exit, Failure> {
    let found = Place::of("show", &args.index, &args.knobs, console)?.file("show", &args.knobs, console)?;
    let index = flatout_volume::open_index("show", &found.path)?;
    let about =
        found.path.metadata().map_err(|error| Failure::local("show", found.path.display(), &error))?;
    let written = about.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let totals = index.totals();
    let event = events::VolumeInfo {
        index: args.index.clone(),
        path: found.path.display().to_string(),
        source: index.source().to_owned(),
        files: totals.files,
        folders: totals.folders,
        bytes: totals.file_bytes,
        index_bytes: about.len(),
        metadata_bytes: index.metadata_bytes(),
        written: time::format_iso_seconds(written.unwrap_or_default().as_secs()),
    };
    console.answer(&one_line(&event.index))?;
    let rows = [
        ("source", one_line(&event.source)),
        ("files", grouped(event.files)),
        ("folders", grouped(event.folders)),
        ("bytes", format!("{} ({})", grouped(event.bytes), format_size(event.bytes))),
        ("index bytes", format!("{} ({})", grouped(event.index_bytes), format_size(event.index_bytes))),
        ("written", event.written.clone()),
    ];
    for (name, value) in rows {
        console.answer(&format!("  {name:14} {value}"))?;
    }
    console.event(Carries::Lines, &event)?;
    Ok(Exit::Clean)
}
