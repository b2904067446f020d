//! The messages and services of CSI, made from crates/csi/proto/csi.proto by `cargo xtask proto`. None can be
//! printed, since many hold secrets.

#![allow(missing_docs, clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)]

include!("generated/csi.v1.rs");
