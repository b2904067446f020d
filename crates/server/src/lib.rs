//! Flatout's development origin: a small, fast server of S3 and of Alibaba Cloud OSS for tests, demos and benchmarks.
//!
//! The S3 protocol and its signature check come from the crate `s3s`; OSS, the storage behind both, the sockets
//! and their shaping are ours. [`Origin::start`] binds, starts its own threads and returns; dropping the
//! [`Origin`] closes every connection and joins them.
//!
//! What it is not: durable (nothing is synced to disk), hardened against the internet, or a full S3
//! (no versions, no ACLs, no `UploadPartCopy`; unfinished multipart uploads are forgotten when it stops).
//!
//! # Dialects
//!
//! One listener speaks both, over the same objects. The signature tells which: `AWS4-…` and `X-Amz-…` are S3's,
//! `OSS …` (version 1), `OSS4-HMAC-SHA256 …` (version 4), `OSSAccessKeyId` and `x-oss-credential` OSS's. Unsigned, it is
//! OSS when the host says so (`*.aliyuncs.com`, a name with a label `oss-…`) or a header `x-oss-…` does, else S3.
//! Either takes path style and `BUCKET.localhost`; OSS also `BUCKET.oss-REGION.aliyuncs.com`.
//! Any region is accepted, and security tokens are not checked. OSS here has no versions, tags, symbolic links, callbacks
//! or processing, and an append writes its object anew.
//!
//! # Stores
//!
//! - [`Store::Root`]: each folder with a name that S3 allows is a bucket; keys are relative paths. Files that
//!   were not written through the origin have no CRC for S3; OSS states one with every answer, so its first question reads
//!   such a file once for it. What was written through the origin keeps CRC, content type and metadata in the extended
//!   attribute `user.flatout` where the file system has those. A symbolic link is
//!   followed while it stays beneath the root and is as good as absent when it leads out; links to folders
//!   can be read through but are not listed, nor are names that are not UTF-8. Uploads in progress are files
//!   in the root's folder `.flatout`, which an origin that is killed leaves behind.
//! - [`Store::Memory`]: buckets and objects live as long as the origin.
//! - [`Store::Synthetic`]: objects of any size whose bytes are computed from their offset
//!   ([`synthetic_bytes`]) and whose CRCs are known without reading them. Read-only.

#![forbid(unsafe_code)]

mod alarm;
mod aws_chunked;
mod buffer;
mod conditions;
mod crcs;
mod draft;
mod folder;
mod front;
mod identity;
mod memory;
mod object;
mod origin;
mod oss;
mod page;
mod pattern;
mod rate;
mod s3;
mod series;
mod shelf;
mod sink;
mod socket;
mod stand_in;
mod stock;
mod stream;
mod sums;
mod synthetic;
mod tunnel;
mod uploads;

pub use folder::unservable;
pub use identity::Identity;
pub use origin::{Listen, Options, Origin, Store};
pub use pattern::synthetic_bytes;
pub use rate::Rates;
pub use series::Series;
pub use shelf::BUCKET_RULE;
pub use tunnel::{ErrorCode, Fault, FaultKind, Tunnel};
