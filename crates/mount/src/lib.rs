//! A session of FUSE from the kernel's ABI: the only crate that knows it. docs/life-of-a-request.md walks the
//! road.
//!
//! [`mount`] attaches a folder; [`UnservedMount::serve`] answers the kernel's requests. The files that it
//! serves know nothing of FUSE ([`flatout_tree::Files`]). Requests are bytes: one file checks and types them,
//! another answers them.

mod abi;
mod attach;
mod connection;
mod counts;
mod device;
mod dispatch;
mod fusermount;
mod holders;
mod identity;
mod image;
mod inherited_fd;
mod init;
mod interrupts;
mod nowhere;
mod options;
mod own_table;
mod point;
mod processes;
mod reply;
mod request;
mod session;
mod table;
mod takeover;
mod timings;
mod tuning;
mod unmount;

pub use counts::SessionStats;
pub use holders::{HolderKind, HolderProcess, MountHolder, holders, is_mounted_for, is_mounted_here};
pub use image::check_visible;
pub use nowhere::mount_nowhere;
pub use options::{ImageOptions, Options};
pub use point::MountPoint;
pub use session::{Granted, Session, SessionEnd, SessionWatch, Unmounter, UnservedMount, mount};
pub use table::{IMAGE_NAME, MountEntry, at as mount_at, stacked_at as mounts_at};
pub use takeover::{LastingMount, SharedMemory, receive, send};
pub use timings::{BOUNDS, Observer, OnError, Timed, Timing, Timings};
pub use unmount::{DaemonState, ExistingMount, daemon_at, unmount};
