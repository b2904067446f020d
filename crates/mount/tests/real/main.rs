//! Real mounts beside programs that nobody here wrote: fusermount3, Python.
#![allow(clippy::unwrap_used)] // Test code throughout; clippy.toml's exception knows only functions marked #[test].

#[path = "../it/held.rs"]
#[allow(dead_code, reason = "shared with the tests that need no program")]
mod held;
#[path = "../it/model.rs"]
#[allow(dead_code, reason = "shared with the tests that need no program")]
mod model;
#[path = "../it/reader.rs"]
#[allow(dead_code, reason = "shared with the tests that need no program")]
mod reader;

mod fusermount;
mod python;

/// A program that the tests need.
fn program(name: &str) -> std::process::Command {
    let found = std::process::Command::new(name).arg("--version").output();
    assert!(found.is_ok(), "{name} is not installed: run `sudo make deps`");
    std::process::Command::new(name)
}
