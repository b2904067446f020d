//! A session as its kernel sees it: raw bytes over a socket, and real mounts.

mod ends;
mod held;
mod model;
mod mounts;
mod operations;
mod raw;
mod reader;
mod served;
mod signals;
