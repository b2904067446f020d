//! The data path of Flatout: objects to where they are wanted, at the speed of the kernel.
//!
//! Its rooms and what each knows are in ARCHITECTURE.md; docs/life-of-a-get.md walks the road.
//! The engine knows nothing of the environment, of home folders, of command lines or terminals.

mod api;
mod base;
mod batch;
mod client;
mod disk;
mod gate;
mod http;
mod memory;
mod net;
mod read;
mod shard;
#[cfg(test)]
mod sim;
mod sink;
mod source;
mod transfer;

pub use api::account::{Dialect, OssSettings};
pub use api::credentials;
pub use api::service::{Patience, ServiceReply};
pub use base::blocking_pool::{BlockingCall, BlockingPool};
pub use base::error::{Error, ErrorKind, plain, remedy};
pub use base::hint::{Feature, Hint, Word, setting, setting_to, text};
pub use base::limited_by::{Bound, Host, LimitedBy};
pub use base::operation::Direction;
pub use base::report::{PartRecord, Progress, Report, Stat, Tails, Verified};
pub use base::version::{Object, Version};
pub use batch::puts::{FinishedPut, ManyPuts, ManyPutsProgress, WantedPut};
pub use batch::{Finished, Many, ManyProgress, ManyWatch, Wanted};
pub use client::Client;
pub use client::append::{AppendPosition, Appended};
pub use client::buckets::BucketStat;
pub use client::config::Config;
pub use client::delete::{Deleted, DeletedMany, Deletion};
pub use client::list::{Bucket, Entry, Listed, Listing};
pub use client::survey::{Handshake, Survey, Surveyed, Way};
pub use client::uploads::{UnfinishedUpload, UnfinishedUploads};
pub use disk::folder::Folder;
pub use disk::temporary::{is_temporary_name, left_behind_as, sweep_folder};
pub use flatout_policy::edit::{EditedPart, edited_parts};
pub use flatout_policy::outage::Waited;
pub use flatout_policy::pace::LEVEL_MOST as PARALLEL_FOUND_MAX;
pub use flatout_policy::queue::Priority;
pub use gate::{FoundPace, OriginOutage, OriginStats, OutageNews};
pub use memory::lease::MemoryCharge;
pub use net::interface::interfaces;
pub use net::proxy::Proxies;
#[doc(hidden)]
pub use net::tls::tls_config;
// For `crates/properties`, which holds them against rustls's own.
#[doc(hidden)]
pub use net::tls_incoming::{Incoming, Said};
#[doc(hidden)]
pub use net::tls_records::{APPLICATION_DATA, Opener, SEALING_BYTES_MAX, Sealer, TEXT_BYTES_MAX};
pub use read::{Pieces, Reader, ReaderStats, Reading};
pub use sink::landing::{Landing, Memory};
pub use sink::made::{AlignedBuffer, AllocatedBuffer};
pub use sink::stream::{StreamReader, StreamWriter, stream};
pub use source::Source;
pub use source::stream::{STREAM_ROOM_LEAST, StreamSource, StreamUploader, UploadEnded, upload_stream};
pub use transfer::get::Get;
pub use transfer::handle::{CancelSwitch, Transfer, Watch};
pub use transfer::put::Put;
pub use transfer::server_copy::ServerCopy;
