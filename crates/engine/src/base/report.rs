//! What a transfer tells: progress while it runs, a report when it ends, a record per part.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use flatout_wire::body_checksum::ChecksumForm;
use flatout_wire::checksum::Algorithm;
use flatout_wire::head::{Checksum, Head};
use flatout_wire::object_options::ObjectOptions;

use crate::base::limited_by::LimitedBy;
use crate::base::version::Version;

/// How far a transfer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes at their landing.
    pub landed_bytes: u64,
    /// Bytes that the transfer will land; `None` until the first answer, or when the origin does not say.
    pub total_bytes: Option<u64>,
    /// Bytes of bodies received, those received twice included.
    pub fetched_bytes: u64,
    /// Parts in flight.
    pub in_flight: u32,
    /// Attempts that were tried again.
    pub retries: u32,
    /// Of a transfer that has failed: bytes in its unfinished file, which the next run goes on from.
    pub kept_bytes: u64,
    /// What holds the speed back now, at the gate of its origin; `None` before somebody looked.
    pub limited_by: Option<LimitedBy>,
}

/// How a transfer ended well.
#[derive(Clone, Debug)]
pub struct Report {
    /// The version that was read.
    pub version: Version,
    /// What the first answer told of the object; `None` where none was needed to begin. Of an upload, what
    /// the origin said of the object that it made; of a copy, what is known of its source.
    pub stat: Option<Stat>,
    /// The range of the object that was read.
    pub range: Range<u64>,
    /// Bytes landed.
    pub bytes: u64,
    /// Bytes of bodies received, those received twice included.
    pub fetched_bytes: u64,
    /// Of the bytes landed, those that an earlier run had left in the file, checked and not fetched again.
    pub resumed_bytes: u64,
    /// Why what an earlier run had left was not used, or not all of it; in words.
    pub resume_note: Option<String>,
    /// Whether the bytes are those that the origin states.
    pub verified: Verified,
    /// From the call to the end, landing committed.
    pub seconds: f64,
    /// Attempts that were tried again.
    pub retries: u32,
    /// What was done about parts that would have ended late.
    pub tails: Tails,
    /// Connections opened for it; a client that was used before may have had some.
    pub connections: u32,
    /// Shards that took part.
    pub shards: u32,
    /// What held the speed back longest; `None` of a transfer that was over before somebody looked.
    pub limited_by: Option<LimitedBy>,
    /// One record per part, when asked for by [`crate::Get::with_part_records`].
    pub parts: Vec<PartRecord>,
}

/// What was done about parts that would have ended late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tails {
    /// Parts whose bodies were silent, so that the rest was asked for a second time meanwhile; one as often
    /// as that was done.
    pub hedged: u32,
    /// Parts whose rest was asked for at another address, since theirs was slow beside others.
    pub moved: u32,
    /// Parts that were made of the rest of another when none was left.
    pub shared: u32,
    /// Bytes that had come when their connection was left for another: they came twice.
    pub duplicated_bytes: u64,
}

/// What verification found. Displays as `crc64nvme` or `none: the reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The whole object has the checksum that the origin states.
    Whole(Algorithm),
    /// The ETag that the origin gave an object that was sent is the MD5 of its bytes, or follows from those
    /// of its parts.
    Md5,
    /// Nothing was verified, and why.
    None(&'static str),
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verified::Whole(algorithm) => f.write_str(algorithm.name()),
            Verified::Md5 => f.write_str(ChecksumForm::Md5.name()),
            Verified::None(reason) => write!(f, "none: {reason}"),
        }
    }
}

/// The life of one part; times in seconds since the transfer started.
#[derive(Clone, Debug)]
pub struct PartRecord {
    /// Its number in the order in which parts were taken, from 0.
    pub index: u64,
    /// The address that served its last attempt.
    pub address: SocketAddr,
    /// The connection that carried its last attempt, numbered within the client.
    pub connection: u32,
    /// When the request was sent that was answered first: its waits for a connection and for `--request-rate`
    /// are over.
    pub start_s: f64,
    /// When the head of that answer had arrived.
    pub first_byte_s: f64,
    /// When its last byte had landed.
    pub end_s: f64,
    /// Its bytes.
    pub bytes: u64,
    /// Attempts that it took.
    pub attempts: u32,
}

/// What a HEAD, or the head of a GET, tells of an object.
#[derive(Clone, Debug, Default)]
pub struct Stat {
    /// ETag, Last-Modified and size.
    pub version: Version,
    /// The stored Content-Type.
    pub content_type: Option<String>,
    /// The checksums that the origin states.
    pub checksums: Vec<Checksum>,
    /// The storage class, when the origin names one.
    pub storage_class: Option<String>,
    /// Which of the object's versions it is, where the bucket keeps them.
    pub version_id: Option<String>,
    /// How an OSS object was made: `Normal`, `Multipart`, `Appendable`, `Symlink`.
    pub object_type: Option<String>,
    /// The `x-amz-meta-*` or `x-oss-meta-*` headers, without the prefix.
    pub metadata: Vec<(String, String)>,
    /// The other headers that describe its content, by their names in lower case: `cache-control` and so on.
    pub content_headers: Vec<(&'static str, String)>,
    /// How many parts the object was uploaded in, when the origin says.
    pub parts_count: Option<u32>,
}

impl Stat {
    /// What an object that is stored as this one is made with: its type, the other headers that describe its
    /// content, and its metadata.
    pub fn described(&self) -> ObjectOptions {
        let mut options = ObjectOptions { metadata: self.metadata.clone(), ..ObjectOptions::default() };
        let content_type = self.content_type.iter().map(|value| ("content-type", value));
        let headers = self.content_headers.iter().map(|(name, value)| (*name, value));
        content_type.chain(headers).for_each(|(name, value)| options.describe(name, value));
        options
    }

    /// What a head tells of an object of `size` bytes.
    pub(crate) fn of(head: &Head, size: Option<u64>) -> Stat {
        Stat {
            version: Version::of(head, size),
            content_type: head.content_type.clone(),
            checksums: head.checksums.clone(),
            storage_class: head.storage_class.clone(),
            version_id: head.version_id.clone(),
            object_type: head.object_type.clone(),
            metadata: head.metadata.clone(),
            content_headers: head.content_headers.clone(),
            parts_count: head.parts_count,
        }
    }
}

/// Counters of a running transfer, written by its shards, read by whoever watches.
#[derive(Default)]
pub(crate) struct Counters {
    /// Of bodies, into the landing; of an upload, sent and not known to be in vain.
    pub(crate) received_bytes: AtomicU64,
    /// Those that an earlier run had left, read again and found right.
    pub(crate) checked_bytes: AtomicU64,
    /// Of a stream that was asked for again: they had landed before; of an upload, sent in vain.
    pub(crate) passed_over_bytes: AtomicU64,
    pub(crate) in_flight: AtomicU32,
    pub(crate) retries: AtomicU32,
    pub(crate) hedged: AtomicU32,
    pub(crate) moved: AtomicU32,
    pub(crate) shared: AtomicU32,
    pub(crate) duplicated_bytes: AtomicU64,
    pub(crate) connections: AtomicU32,
}

impl Counters {
    /// Bytes were sent that the origin did not accept: they are sent again, or never.
    pub(crate) fn on_sent_in_vain(&self, bytes: u64) {
        self.received_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.passed_over_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn landed_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed) + self.checked_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn fetched_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed) + self.passed_over_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn tails(&self) -> Tails {
        Tails {
            hedged: self.hedged.load(Ordering::Relaxed),
            moved: self.moved.load(Ordering::Relaxed),
            shared: self.shared.load(Ordering::Relaxed),
            duplicated_bytes: self.duplicated_bytes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn progress(&self, total_bytes: Option<u64>, limited_by: Option<LimitedBy>) -> Progress {
        Progress {
            landed_bytes: self.landed_bytes(),
            total_bytes,
            fetched_bytes: self.fetched_bytes(),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            limited_by,
            ..Progress::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: &str, size: u64) -> Version {
        Version { etag: Some(etag.into()), last_modified: None, size: Some(size) }
    }

    #[test]
    fn a_version_differs_only_where_both_sides_say_something() {
        let ours = version("\"a\"", 9);
        assert_eq!(ours.difference(&version("\"a\"", 9)), None);
        assert_eq!(ours.difference(&Version::default()), None);
        assert_eq!(ours.difference(&version("a", 9)), None, "bare, as few send it");
        assert!(ours.difference(&version("W/\"a\"", 9)).is_some());
        assert!(ours.difference(&version("\"b\"", 9)).expect("another ETag").contains("ETag"));
        assert!(ours.difference(&version("\"a\"", 8)).expect("another size").contains("size"));
    }

    #[test]
    fn verified_names_the_algorithm_or_the_reason() {
        assert_eq!(Verified::Whole(Algorithm::Crc64Nvme).to_string(), "crc64nvme");
        assert_eq!(Verified::None("partial").to_string(), "none: partial");
    }
}
