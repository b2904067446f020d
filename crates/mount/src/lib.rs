//! A session of FUSE from the kernel's ABI: the only crate that knows it. docs/life-of-a-request.md walks the road.
//!
//! [`mount`] attaches a folder, [`Mounted::serve`] answers what the kernel asks about it. What is served knows nothing of FUSE
//! ([`Files`]); what the kernel asks is bytes, typed and checked in one file and answered in another.

mod abi;
mod anchor;
mod answer;
mod attach;
mod counts;
mod device;
mod files;
mod fusermount;
mod given;
mod holders;
mod init;
mod interrupts;
mod operations;
mod options;
mod point;
mod reply;
mod request;
mod serve;
mod session;
mod table;
mod timings;
mod tuning;
mod unmount;

pub use answer::ReadAnswer;
pub use counts::SessionStats;
pub use files::{Cancel, Errno, Files};
/// What [`Files`] speak of: the tree's own.
pub use flatout_tree::{Attributes, FileKind, FolderEntry, Known, Opened, Source, Statfs};
pub use holders::{Holder, Process, Way, holders, is_mounted_here};
pub use options::Options;
pub use point::MountPoint;
pub use serve::Tell;
pub use session::{Ended, Granted, Mounted, Session, SessionWatch, Unmounter, mount};
pub use timings::{BOUNDS, Timed, Timing, Timings};
pub use unmount::{Life, Standing, unmount};
