//! A mount as a library: from options and a source to a folder that is served, with its log, its numbers and its end.
//!
//! A face (the command line, a CSI driver) reads arguments, environment and keys, and makes a client; it hands over a [`Plan`] and
//! decides where lines go. [`list_root`] asks the origin for the root, [`Session::start`] mounts the folder, [`Shutdown`] ends it
//! from elsewhere. Nothing here writes to a terminal, reads argv or the environment, or ends the process.

#![forbid(unsafe_code)]

mod endpoints;
mod foreign;
mod http;
mod libfuse;
mod limited;
pub mod log;
pub mod options;
mod ossfs;
mod plan;
mod session;
mod stalls;
pub mod stats;

pub use endpoints::{Doors, Look, Open, Running, is_own_folder, look_again, running};
pub use limited::Limited;
pub use plan::{MountSource, Plan};
pub use session::{Session, Shutdown, list_root};
