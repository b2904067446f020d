//! A session as its kernel sees it: raw bytes over a socket, and real mounts.

mod held;
mod model;
mod operations;
mod mounts;
mod raw;
mod signals;
mod ends;
