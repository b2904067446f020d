//! A mount as a library: from options and a source to a folder that is served, with its log, statistics and
//! end.
//!
//! A face (the command line, a CSI driver) reads arguments, environment and keys, makes a client and a
//! [`MountPlan`], and decides where lines go. [`end_renames`] ends what a killed mount has left,
//! [`list_root`] asks the origin for the root, [`MountSession::start`] mounts the folder and serves it,
//! [`Shutdown`] ends it from another thread. This crate does not write to a terminal, read argv or the
//! environment, or end the process.

#![forbid(unsafe_code)]

mod endpoints;
mod files;
mod foreign;
mod http;
mod image_support;
mod libfuse;
mod limited;
mod log;
mod options;
mod ossfs;
mod ossfs1;
mod plan;
mod prometheus;
mod renames;
mod running;
mod session;
mod sessions;
mod stalls;
pub mod stats;
mod tables;
mod unfinished;

pub use endpoints::{MetricsEndpoint, StatsFn, StatusEndpoints, is_own_folder, listen_at};
pub use files::MountedFiles;
pub use image_support::image_support;
pub use limited::{Limited, says};
pub use log::{MountLog, open_first_log, open_log};
pub use options::{MountOptions, OptionError};
pub use plan::{IndexRoot, MountPlan, MountRoot, MountSource};
pub use renames::end_renames;
pub use running::{RunningMount, running_mounts, stats_of};
pub use session::{
    Handover, MountSession, NotNow, Shutdown, StandingMount, begin_kept, lasting_mount, list_root, show,
    staged_of, take_over,
};
pub use sessions::{KeepMount, Renewal};
