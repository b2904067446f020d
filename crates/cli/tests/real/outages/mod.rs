//! Outages with real parts: toxiproxy before MinIO cuts and refuses connections, MinIO is killed and started
//! again, nginx answers 5xx in its place. Transfers, listings and mounts wait for it and go on.
//!
//! `FLATOUT_OUTAGES=all` runs every length on every road, which takes minutes, and leaves the tables of how
//! soon each run went on in `target/tmp/outages`; a few of them run otherwise.

mod away;
mod between;
mod lab;
mod mounts;
mod origin;
mod runs;
mod toxiproxy;
mod transfers;
