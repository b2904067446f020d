//! `flatout man`: the manual pages, printed or written where `man` looks for them.

use std::fs;
use std::path::Path;

use crate::args::Man;
use crate::console::{Carries, Console};
use crate::events::Written;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::manual::{self, ManualPage};
use crate::stdout;

/// Without a folder the first page goes to standard output.
pub fn run(args: &Man, console: &Console) -> Result<Exit, Failure> {
    let pages = manual::pages();
    let Some(folder) = &args.folder else {
        let mut out = stdout::raw().map_err(|error| Failure::stdout(&error))?;
        let first = pages.first().expect("flatout itself has a page");
        stdout::write(&mut out, first.text.as_bytes()).map_err(|error| Failure::stdout(&error))?;
        return Ok(Exit::Clean);
    };
    // It is not made: `flatout man cp` would be a new folder, where the page of cp is meant.
    match folder.metadata() {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(refused(folder, &std::io::Error::from_raw_os_error(libc::ENOTDIR))),
        Err(error) => return Err(refused(folder, &error)),
    }
    for ManualPage { name, text } in pages {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| refused(&path, &error))?;
        let path = path.display().to_string();
        console.say(&one_line(&path))?;
        console.event(Carries::Lines, &Written { path })?;
    }
    Ok(Exit::Clean)
}

fn refused(path: &Path, error: &std::io::Error) -> Failure {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "create the folder first; of one command `flatout COMMAND --help` tells"
        }
        _ => "name a folder that can be written to",
    };
    Failure::local("man", path.display(), error).with_hint(hint)
}
