//! The program against servers and clients that nobody here wrote: nginx, MinIO, curl, ossutil, the SDKs of
//! OSS and S3; shells that complete it, and readers of manual pages.
//!
//! Not part of a plain `cargo test`, which needs Rust alone: `cargo test -p flatout-cli --test real`. A part
//! that is missing fails its tests and names the command that installs it.
#![allow(clippy::unwrap_used)] // Test code throughout; clippy.toml's exception knows only functions marked #[test].

use std::process::Command;

mod both_ways;
mod bucket;
mod clients;
mod csi;
mod curl;
mod guard;
mod keys;
mod listing;
mod many;
mod minio;
mod mount_writes;
mod mounts;
mod nginx;
mod oss_clients;
mod outages;
mod plain;
mod refused;
mod region;
mod replaced;
mod s3_clients;
mod s3fs;
mod served;
mod shells;
mod staging;
mod sync;
mod tls;
mod uploads;
mod verbs;
mod versitygw;

#[allow(dead_code)]
#[path = "../../../engine/tests/secure/certificates.rs"]
mod certificates;
#[path = "../it/folder.rs"]
mod folder;
#[path = "../it/mountinfo.rs"]
mod mountinfo;
// Shared with the tests that need Rust alone; some of it is used only there.
#[path = "../it/program.rs"]
#[allow(dead_code, clippy::wrong_self_convention)]
mod program;

/// The program with these arguments, no variables but `PATH`, and a limit to its time: a test may fail, not
/// hang.
fn flatout(arguments: &[&str]) -> Command {
    let bare = program::flatout(&[]);
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60"]).arg(bare.get_program()).args(arguments).env_clear();
    command.envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// Bytes that repeat at no power of two, so that no part looks like another.
fn bytes(length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (at / 251) as u8)
        .collect()
}
