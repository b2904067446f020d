//! `flatout version`.

use crate::console::{Carries, Console};
use crate::events::Version;
use crate::exit::Exit;
use crate::failure::Failure;

pub fn run(console: &Console) -> Result<Exit, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    console.answer(&format!("flatout {version}"))?;
    console.event(Carries::Lines, &Version { program: "flatout", version })?;
    Ok(Exit::Clean)
}
