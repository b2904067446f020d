//! `flatout volume`: indexes of millions of small objects, and mounts of them.

mod build;
mod find;
mod info;
mod keys;
mod ls;
mod mount;
mod update;
mod verify;

use crate::args::Volume;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

pub fn run(args: &Volume, console: &Console) -> Result<Exit, Failure> {
    match args {
        Volume::Build(args) => build::run(args, console),
        Volume::Mount(args) => mount::run(args, console),
        Volume::Ls(args) => ls::run(args, console),
        Volume::Info(args) => info::run(args, console),
        Volume::Verify(args) => verify::run(args, console),
        Volume::Update(args) => update::run(args, console),
    }
}
