//! The data path of Flatout: objects to where they are wanted, at the speed of the kernel.
//!
//! The modules in the order in which the data meets them; docs/life-of-a-get.md walks the road.
//! The engine knows nothing of the environment, of home folders, of command lines or terminals.

mod account;
mod attempt;
mod budget;
mod callers;
mod client;
mod connection;
mod control;
pub mod credentials;
mod drive;
mod end;
mod endpoint;
mod error;
mod file;
mod flight;
mod folder;
mod gate;
mod get;
mod handle;
mod hedge;
mod hold;
mod interface;
mod journal;
mod landing;
mod lease;
mod list;
mod lumps;
mod made;
mod many;
mod memory;
mod object;
mod pace;
mod part;
mod pinned;
mod plan;
mod proxy;
mod queue;
mod rank;
mod reader;
mod refusal;
mod rest;
mod retry;
mod shard;
#[cfg(test)]
mod sim;
mod single;
mod slots;
mod stall;
mod stats;
mod stream;
mod survey;
mod temporary;
mod thread_clock;
mod tls;
mod tls_errors;
mod transfer;
mod verify;
mod waits;

pub use account::{Dialect, OssSettings};
pub use callers::{Called, Callers};
pub use client::{Client, Config};
pub use control::{Patience, Reply};
pub use error::{Error, ErrorKind, plain, remedy};
pub use folder::Folder;
pub use gate::{Bound, FoundPace, LimitedBy, OriginStats};
pub use get::Get;
pub use handle::{CancelSwitch, Transfer, Watch};
pub use interface::interfaces;
pub use landing::{Landing, Memory};
pub use list::{Bucket, Entry, Listed, Listing};
pub use made::{Block, Made};
pub use many::{Finished, Many, ManyProgress, ManyWatch, Wanted};
pub use pace::LEVEL_MOST as PARALLEL_FOUND_MAX;
pub use proxy::Proxies;
pub use queue::Priority;
pub use reader::{Object, Pieces, Reader, ReaderStats, Reading, Weight};
pub use stats::{PartRecord, Progress, Report, Stat, Tails, Verified, Version};
pub use stream::{StreamReader, StreamWriter, stream};
pub use survey::{Handshake, Survey, Surveyed, Way};
pub use temporary::is_temporary_name;
#[doc(hidden)]
pub use tls::tls_config;
