//! Flatout's development origin: a small, fast server of S3 and of Alibaba Cloud OSS for tests, demos and
//! benchmarks.
//!
//! The S3 protocol and its signature check come from the crate `s3s`; OSS, the storage behind both, the
//! sockets and their shaping are ours. [`Origin::start`] binds, starts its own threads and returns; dropping
//! the [`Origin`] closes every connection and joins them.
//!
//! What it is not: durable (nothing is synced to disk), hardened against the internet, or a full S3: it has
//! no versions, no access lists but the private one, no encryption, object lock, archive, website, or uploads
//! by form. A request that asks for one of these is refused by name, `501 NotImplemented`, and changes
//! nothing: a client that gets a 200 can rely on it.
//!
//! # Dialects
//!
//! One listener speaks both, over the same objects. The signature tells which: `AWS4-…` and `X-Amz-…` are
//! S3's, `OSS …` (version 1), `OSS4-HMAC-SHA256 …` (version 4), `OSSAccessKeyId` and `x-oss-credential`
//! OSS's. Unsigned, it is OSS when the host says so (`*.aliyuncs.com`, a name with a label `oss-…`) or a
//! header `x-oss-…` does, else S3. Either takes path style and `BUCKET.localhost`; OSS also
//! `BUCKET.oss-REGION.aliyuncs.com`. Any region is accepted, and security tokens are not checked. OSS here
//! has no versions, symbolic links, callbacks or processing, and an append writes its object anew.
//!
//! The ETag of an object is its MD5, of one that came in parts the MD5 of theirs. Conditions of writes and
//! deletions are checked together with the change: of two that exclude each other one wins, also when they
//! come to two origins over one root whose file system has flock(2). A multipart upload that is completed
//! twice gets the same answer for as long as the object is there.
//!
//! Keys may hold characters that XML 1.0 cannot (control characters, U+FFFE, U+FFFF). A listing without
//! `encoding-type=url` has references to them (`&#x1;`), as that of S3, and strict readers refuse it. A batch
//! of deletions that names such a key is refused as `MalformedXML` before anything is deleted, unless its
//! answer is URL-encoded, which OSS can do; a DELETE of the key itself works.
//!
//! When the disk under a root is full, or the quota used up, a write gets `507 XMinioStorageFull`, as from
//! MinIO, in both dialects: many clients retry a 500 for long.
//!
//! # Stores
//!
//! - [`Store::Root`]: each folder with a name that S3 allows is a bucket; keys are relative paths. Files
//!   that were not written through the origin have no checksum for S3, and an ETag of size, time and
//!   inode; OSS states a CRC with every answer, so its first question reads such a file once for it. What
//!   was written through the origin keeps ETag, checksums, content type, tags and metadata in the
//!   extended attribute `user.flatout`, or where there is none, or no room in it, in a file in the root's
//!   folder `.flatout`. There are also objects whose keys are no paths, or taken by a folder or file
//!   (`a/`, `a//b`, `a/../b`, `a` beside `a/b`, names of more than 255 bytes), and unfinished multipart
//!   uploads, which a later origin goes on with. A symbolic link is followed while it stays beneath the
//!   root and is as good as absent when it leads out; links to folders can be read through but are not
//!   listed, nor are names that are not UTF-8.
//! - [`Store::Memory`]: buckets and objects live as long as the origin.
//! - [`Store::Synthetic`]: objects of any size whose bytes are computed from their offset
//!   ([`synthetic_bytes`]) and whose CRCs are known without reading them. Read-only.
//!
//! [`Options::sink`] puts a sink in front of any of them. It takes objects into any bucket, computes their
//! checksums and forgets their bytes. It remembers names, sizes, ETags, checksums and metadata of the newest
//! ones within 512 MiB of memory: HEAD, listings, attributes, conditions and deletions answer from them, and
//! a GET or a copy of their bytes gets `501 NotImplemented`. Their ETag is an MD5 where the request stated
//! one. The store behind never changes: its objects can be read, and a deletion does not remove them.

#![forbid(unsafe_code)]

mod alarm;
mod aws_chunked;
mod backend;
mod buffer;
mod characters;
mod conditions;
mod crcs;
mod cursor;
mod draft;
mod faults;
mod folder;
mod front;
mod identity;
mod memory;
mod object;
mod origin;
mod oss;
mod page;
mod pattern;
mod placeholder;
mod rate;
mod s3;
mod series;
mod sink;
mod socket;
mod storage;
mod stream;
mod sums;
mod synthetic;
mod tags;
mod uploads;
mod version;

pub use backend::BUCKET_RULE;
pub use faults::{ErrorCode, Fault, FaultKind, FaultPlan, WriteFault, WriteStep};
pub use folder::unservable;
pub use identity::Identity;
pub use origin::{Listen, Options, Origin, Store};
pub use pattern::synthetic_bytes;
pub use rate::Rates;
pub use series::Series;
