//! Drives origins over loopback, with a client that knows nothing of their code.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends; helpers of tests are no exception")]

mod auth;
mod client;
mod faults;
mod full;
mod life;
mod listing;
mod objects;
mod oss;
mod root;
mod shaping;
mod sink;
mod synthetic;
mod tls;
mod uploads;
