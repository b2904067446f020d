//! What must hold of every parser, whatever the bytes: one function for each, which panics where something does not.
//!
//! They are a crate of the workspace and not part of `fuzz/`, so that `make test` runs them over the corpora and over
//! proptest's inputs without libFuzzer, which is C++ and needs a workspace of its own. Nothing here ships. docs/fuzzing.md
//! says what each asserts.

#![forbid(unsafe_code)]

mod chunked;
mod config;
mod credentials;
mod differential;
mod documents;
mod head;
mod hyper_reader;
mod locations;
mod our_reader;
mod pieces;
mod ranges;
mod requests;
mod secret;

pub use chunked::chunked;
pub use config::config;
pub use credentials::credentials;
pub use differential::{ALLOWED, Allowed, differential};
pub use documents::documents;
pub use head::head;
pub use locations::locations;
pub use ranges::ranges;
pub use requests::requests;

/// What is tried with some bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also that of its corpus in `fuzz/corpus` and of its main in `fuzz/fuzz_targets`.
pub const TARGETS: [(&str, Target); 9] = [
    ("chunked", chunked),
    ("config", config),
    ("credentials", credentials),
    ("differential", differential),
    ("documents", documents),
    ("head", head),
    ("locations", locations),
    ("ranges", ranges),
    ("requests", requests),
];
