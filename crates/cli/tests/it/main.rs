//! The program as its users meet it: arguments in; output, exit code and files out. Needs Rust alone.
#![allow(clippy::unwrap_used)] // Test code throughout; clippy.toml's exception knows only functions marked #[test].

mod bad_input;
mod bench;
mod bench_put;
mod commands;
mod config;
mod credentials;
mod doctor;
mod ends;
mod errors;
mod examples;
mod faults;
mod folder;
mod many;
mod memory;
mod mountinfo;
mod mounts;
mod objects;
mod open_files;
mod oss;
mod oss_served;
mod outputs;
mod paces;
mod peer;
mod program;
mod raw;
mod resume;
mod secrets;
mod sweep;
mod tails;
mod tls;
mod uploads;
mod uploads_days;
mod uploads_told;
mod verbs;
mod verbs_bad_days;
