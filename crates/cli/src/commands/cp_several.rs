//! `flatout cp` of several sources, as a shell's pattern makes them: each is a copy of its own, in order.

use std::collections::HashSet;
use std::path::Path;

use flatout_wire::location::Location;

use crate::args::Cp;
use crate::commands::cp;
use crate::console::{Carries, Console};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::origin;
use crate::select::Source;

/// One that fails stops no other; the worst decides about the exit code.
pub fn run(args: &Cp, console: &Console) -> Result<Exit, Failure> {
    refuse_what_is_for_one(args)?;
    refuse_names_that_meet(args)?;
    let mut exit = Exit::Clean;
    for source in std::iter::once(&args.source).chain(&args.more) {
        let one = Cp { source: source.clone(), more: Vec::new(), ..args.clone() };
        let copied = cp::run(&one, console).unwrap_or_else(|failure| {
            console.failure(Carries::Lines, &failure);
            failure.exit
        });
        exit = exit.max(copied);
        console.flush()?;
        if console.interrupt.raised() {
            break;
        }
    }
    Ok(exit)
}

fn refuse_what_is_for_one(args: &Cp) -> Result<(), Failure> {
    let target = origin::masked(&args.target);
    let is_url = args.target.contains("://");
    let is_folder = match Location::parse(&args.target) {
        Ok(to) if is_url => to.key().is_empty() || to.key().ends_with('/'),
        _ => args.target.ends_with('/') || Path::new(&args.target).is_dir(),
    };
    let refused = |why: &str, hint: &str| {
        Err(Failure::usage(format!("cp: {target}: {why}")).with_hint(hint.to_owned()))
    };
    if !is_folder {
        let hint = "name an existing folder, or write a / behind its name";
        return refused("several sources need a folder or a prefix", hint);
    }
    if args.recursive {
        return refused("-r copies one folder", "write a command for each, or a pattern of keys");
    }
    if args.version_id.is_some() || args.range.is_some() || args.stored_as.if_match.is_some() {
        return refused("--version-id, --range and --if-match are about one object", "name one source");
    }
    if std::iter::once(&args.source).chain(&args.more).any(|source| source == "-") {
        return refused("standard input has no name to use there", "copy it by a command of its own");
    }
    Ok(())
}

/// Of two sources with one name the second would replace the first. What a pattern matches is not known yet.
fn refuse_names_that_meet(args: &Cp) -> Result<(), Failure> {
    let mut names = HashSet::new();
    for source in std::iter::once(&args.source).chain(&args.more) {
        let location = Location::parse(source).ok().filter(|_| source.contains("://"));
        if location.as_ref().is_some_and(Source::is_pattern) {
            continue;
        }
        let name = match &location {
            Some(location) => location.name().to_owned(),
            None => Path::new(source).file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        if !names.insert(name) {
            let why = format!("cp: {}: another source has the same name", origin::masked(source));
            return Err(Failure::usage(why).with_hint("copy it by a command of its own"));
        }
    }
    Ok(())
}
