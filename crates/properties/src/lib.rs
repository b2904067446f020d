//! The properties of every parser for any bytes: one function each, which panics on a violation.
//!
//! They are a crate of the workspace, not part of `fuzz/`, so that `make test` runs them over the corpora
//! and over proptest's inputs without libFuzzer, which is C++ and needs its own workspace. Nothing here
//! ships. docs/fuzzing.md lists the properties.

#![forbid(unsafe_code)]

mod chunked;
mod config;
mod credentials;
mod differential;
mod documents;
mod head;
mod hyper_reader;
mod indexes;
mod layouts;
mod locations;
mod our_reader;
mod pieces;
mod ranges;
mod records;
mod requests;
mod secret;

pub use chunked::chunked;
pub use config::config;
pub use credentials::credentials;
pub use differential::{ALLOWED, Allowed, differential};
pub use documents::documents;
pub use head::head;
pub use indexes::{indexes, packed};
pub use layouts::layouts;
pub use locations::locations;
pub use ranges::ranges;
pub use records::records;
pub use requests::requests;

/// A function that tests some bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, which its corpus in `fuzz/corpus` and its main in `fuzz/fuzz_targets` share.
pub const TARGETS: [(&str, Target); 12] = [
    ("chunked", chunked),
    ("config", config),
    ("credentials", credentials),
    ("differential", differential),
    ("documents", documents),
    ("head", head),
    ("indexes", indexes),
    ("layouts", layouts),
    ("locations", locations),
    ("ranges", ranges),
    ("records", records),
    ("requests", requests),
];
