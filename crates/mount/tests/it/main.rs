//! A session as its kernel sees it: raw bytes over a socket, and real mounts.
#![allow(clippy::unwrap_used)] // Test code throughout; clippy.toml's exception knows only functions marked #[test].

mod ends;
mod held;
mod lasting;
mod model;
mod mounts;
mod operations;
mod raw;
mod reader;
mod served;
mod signals;
