//! Indexes of random trees against a model, damaged indexes, and images judged by erofs-utils and the kernel.
// Test code throughout; clippy.toml's exception knows only functions marked #[test].
#![allow(clippy::unwrap_used)]

mod damage;
mod erofs;
mod model;
mod random;
mod refusals;
mod wide;
