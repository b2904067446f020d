//! The statistics of a mount as one document: `/stats`, `--stats`, `flatout top --json`.

use std::collections::BTreeMap;

use flatout_engine::{OriginStats, ReaderStats};
use flatout_mount::{BOUNDS, SessionStats, Timed, Timing, Timings};
use flatout_tree::TreeStats;
use serde::{Deserialize, Serialize};

use crate::limited::Limited;

/// The version of the schema in docs/json.md.
const VERSION: u32 = 1;

/// The statistics of one mount. Counts are since it began, except those that end in `_now`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename = "mount_stats")]
pub struct MountStats {
    pub pid: u32,
    /// The process that keeps the mount if this one dies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervisor_pid: Option<u32>,
    pub version: String,
    pub source: String,
    pub mount_point: String,
    pub uptime_s: f64,
    pub kernel: KernelStats,
    pub requests: RequestStats,
    pub bytes: ByteStats,
    pub reads: ReadStats,
    pub names: NameStats,
    #[serde(default)]
    pub origin: OriginTotals,
    pub memory: MemoryStats,
    /// With a folder for staged files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<StagingStats>,
    /// Of a mount of an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<IndexStats>,
    pub process: ProcessStats,
}

/// The index that is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IndexStats {
    /// Another index has another one.
    pub id: String,
    /// What it is an index of.
    pub of: String,
    pub files: u64,
    /// `erofs` or `fuse`: who shows its files.
    pub shown_by: String,
}

/// What kernel and program agreed on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelStats {
    /// `7.45`
    pub abi: String,
    /// The most bytes of one request.
    pub request_bytes: u64,
    /// What the kernel reads ahead of buffered readers.
    pub read_ahead_bytes: u64,
    pub max_background: u64,
    /// The device of its files: `0:47`. Absent if the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<String>,
}

impl KernelStats {
    /// Major and minor.
    pub fn device(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.device.as_ref()?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

/// Requests of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestStats {
    pub total: u64,
    pub waiting_now: u64,
    /// Waits that a signal ended.
    pub interrupted: u64,
    /// Requests that could not be parsed.
    pub malformed: u64,
    pub defects: u64,
    /// By operation: `read`, `lookup`.
    pub operations: BTreeMap<String, OperationStats>,
    /// Answers by errno's name: `ENOENT`.
    pub errors: BTreeMap<String, u64>,
}

/// One kind of request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationStats {
    pub count: u64,
    /// The sum of the seconds from reading a request to answering it.
    pub seconds: f64,
    /// How many took at most as long as each bound, in seconds and in order; the last bound is `+Inf`.
    pub buckets: Vec<(String, u64)>,
}

/// Bytes of content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ByteStats {
    /// Given to readers.
    pub served: u64,
    /// Received from the origin.
    pub fetched: u64,
    /// Prefetched and dropped unread.
    pub wasted: u64,
    /// Fetched for each byte served; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub amplification: Option<f64>,
}

/// How reads were served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadStats {
    pub total: u64,
    /// The bytes were there.
    pub hits: u64,
    /// The bytes had to be waited for.
    pub waits: u64,
    /// Followed no pattern: a request of their own.
    pub random: u64,
    /// Small files that were fetched whole.
    pub whole: u64,
    pub lanes_now: u64,
    /// The most bytes that one read asked for.
    pub largest_bytes: u64,
}

/// Names and folders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NameStats {
    /// Pages of listings asked for.
    pub listing_pages: u64,
    /// Requests about one name.
    pub lookups: u64,
    pub heads: u64,
    /// HEADs for the attributes that objects keep in their metadata.
    #[serde(default)]
    pub attribute_heads: u64,
    /// Requests that failed for good.
    pub failures: u64,
    /// Answered without a request.
    pub answered: u64,
    /// Joined a request that was in flight.
    pub joined: u64,
    /// Reads that found their object replaced.
    pub replaced: u64,
    /// Keys that no name can stand for (docs/names.md).
    pub hidden: u64,
    pub inodes_now: u64,
    pub listings_now: u64,
    pub open_files_now: u64,
    pub open_folders_now: u64,
    pub held_bytes_now: u64,
}

/// Requests for content at the origin, and what limits them. If a store redirected us, the sum over all
/// origins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OriginTotals {
    /// In flight.
    pub in_flight_now: u64,
    /// How many may be in flight.
    pub parallel_now: u64,
    /// Connections that are open, idle ones included.
    pub connections_now: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// Requests that were tried again.
    pub retries: u64,
    /// Answers by which the origin asked for less.
    pub throttled: u64,
    /// What limits the speed now; absent while nothing is asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limited_by: Option<Limited>,
    /// How long each limit held, by its name.
    pub limited_seconds: BTreeMap<String, f64>,
}

/// Memory that is held, and its limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryStats {
    pub limit_bytes: u64,
    /// Fetched content.
    pub content_bytes_now: u64,
    /// Names, inodes, listings.
    pub names_bytes_now: u64,
}

/// Files that are written in any order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StagingStats {
    /// On the local disk.
    pub bytes_now: u64,
    /// Closed files that wait to be uploaded, and the first of them by their paths.
    pub pending_now: u64,
    pub pending: Vec<String>,
}

/// The process, as the kernel counts it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStats {
    pub resident_bytes_now: u64,
    pub resident_bytes_peak: u64,
    pub cpu_seconds: f64,
    pub threads_now: u64,
}

/// Counts of the FUSE session.
pub fn requests(asked: &SessionStats, timings: &Timings) -> RequestStats {
    let operations = Timed::ALL.map(|timed| (timed.name().to_owned(), operation(&timings.of(timed))));
    RequestStats {
        operations: operations.into(),
        errors: timings.errors().map(|(errno, count)| (errno_name(errno), count)).collect(),
        total: asked.requests,
        waiting_now: asked.waiting,
        interrupted: asked.interrupted,
        malformed: asked.malformed,
        defects: asked.defects,
    }
}

fn operation(timing: &Timing) -> OperationStats {
    let bounds = BOUNDS.iter().map(|bound| bound.as_secs_f64().to_string());
    let mut buckets: Vec<(String, u64)> = bounds.zip(timing.at_most).collect();
    buckets.push(("+Inf".to_owned(), timing.count));
    OperationStats { count: timing.count, seconds: timing.seconds, buckets }
}

/// Bytes, as session and reader count them.
pub fn bytes(asked: &SessionStats, read: &ReaderStats) -> ByteStats {
    let served = asked.read_bytes;
    let amplification = (served > 0).then(|| read.fetched_bytes as f64 / served as f64);
    ByteStats { served, fetched: read.fetched_bytes, wasted: read.wasted_bytes, amplification }
}

/// Reads, as session and reader count them.
pub fn reads(asked: &SessionStats, read: &ReaderStats) -> ReadStats {
    ReadStats {
        total: asked.reads,
        hits: read.hits,
        waits: read.waits,
        random: read.random,
        whole: read.whole,
        lanes_now: read.lanes,
        largest_bytes: asked.largest_read_bytes,
    }
}

/// Counts of the tree.
pub fn names(names: &TreeStats) -> NameStats {
    NameStats {
        listing_pages: names.pages,
        lookups: names.lookups,
        heads: names.heads,
        attribute_heads: names.attribute_heads,
        failures: names.failures,
        answered: names.answered,
        joined: names.joined,
        replaced: names.replaced,
        hidden: names.hidden.total(),
        inodes_now: names.inodes_now,
        listings_now: names.listings_now,
        open_files_now: names.open_files_now,
        open_folders_now: names.open_folders_now,
        held_bytes_now: names.held_bytes_now,
    }
}

/// The sum of what the engine counts of each origin.
pub fn origin(origins: &[OriginStats]) -> OriginTotals {
    let mut all = OriginTotals::default();
    for one in origins {
        all.in_flight_now += u64::from(one.in_flight);
        all.parallel_now += u64::from(one.parallel);
        all.connections_now += u64::from(one.connections);
        all.connections += one.connected;
        all.retries += one.retries;
        all.throttled += one.throttled;
        for (name, time) in &one.limited {
            *all.limited_seconds.entry((*name).to_owned()).or_default() += time.as_secs_f64();
        }
    }
    // The busiest origin's.
    let busiest = origins.iter().max_by_key(|one| (one.limited_by.is_some(), one.in_flight));
    all.limited_by = busiest.and_then(|one| one.limited_by).map(Limited::from);
    all
}

impl ProcessStats {
    /// This process, now.
    pub fn look() -> ProcessStats {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
        };
        ProcessStats {
            resident_bytes_now: field("VmRSS:") << 10,
            resident_bytes_peak: field("VmHWM:") << 10,
            cpu_seconds: cpu_seconds(),
            threads_now: field("Threads:"),
        }
    }
}

/// CPU time of all threads of this process, user and system.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl MountStats {
    /// One line of JSON.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            v: u32,
            #[serde(flatten)]
            stats: &'a MountStats,
        }
        let document = Document { v: VERSION, stats: self };
        serde_json::to_string(&document).expect("statistics are maps with text for keys") + "\n"
    }
}

/// The name of an errno, `ENOENT` for 2; the number if it has no everyday name.
pub fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::EINVAL => "EINVAL",
        libc::ENOTTY => "ENOTTY",
        libc::EROFS => "EROFS",
        libc::ENOSYS => "ENOSYS",
        libc::ENAMETOOLONG => "ENAMETOOLONG",
        libc::EPROTO => "EPROTO",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::ESTALE => "ESTALE",
        other => return other.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use flatout_engine::LimitedBy;

    use super::*;

    fn at_origin(in_flight: u32, limited_by: Option<LimitedBy>, ms: &[(&'static str, u64)]) -> OriginStats {
        let limited = ms.iter().map(|(name, ms)| (*name, Duration::from_millis(*ms))).collect();
        OriginStats {
            origin: "http://127.0.0.1:1".into(),
            direction: flatout_engine::Direction::Read,
            in_flight,
            parallel: 8,
            connections: 4,
            connected: 9,
            answers: 0,
            retries: 2,
            throttled: 1,
            outage: None,
            limited_by,
            limited,
        }
    }

    pub(crate) fn numbers() -> MountStats {
        let operation =
            OperationStats { count: 3, seconds: 0.5, buckets: vec![("0.001".into(), 1), ("+Inf".into(), 3)] };
        MountStats {
            pid: 7,
            supervisor_pid: None,
            source: "s3://b/x".into(),
            mount_point: "/mnt/a \"b\"\\".into(),
            requests: RequestStats {
                total: 5,
                operations: [("read".into(), operation)].into(),
                errors: [("ENOENT".into(), 2)].into(),
                ..RequestStats::default()
            },
            bytes: ByteStats { served: 10, fetched: 11, wasted: 1, amplification: Some(1.1) },
            origin: origin(&[
                at_origin(3, Some(LimitedBy::Ramp { in_flight: 3 }), &[("ramp", 500)]),
                at_origin(0, None, &[("ramp", 250), ("network", 2000)]),
            ]),
            ..MountStats::default()
        }
    }

    #[test]
    fn json_comes_back_as_it_went() {
        let json = numbers().json();
        assert!(json.ends_with("}\n") && json.contains("\"event\":\"mount_stats\""), "{json}");
        assert_eq!(serde_json::from_str::<MountStats>(&json).unwrap(), numbers());
    }

    #[test]
    fn origins_are_one_in_the_numbers() {
        let all = numbers().origin;
        assert_eq!((all.in_flight_now, all.parallel_now, all.connections_now), (3, 16, 8));
        assert_eq!((all.connections, all.retries, all.throttled), (18, 4, 2));
        assert_eq!(all.limited_by.map(|by| by.by), Some("ramp".into()));
        let seconds = [("network".to_owned(), 2.0), ("ramp".to_owned(), 0.75)];
        assert_eq!(all.limited_seconds, BTreeMap::from(seconds));
    }

    #[test]
    fn documents_of_other_versions_are_read_too() {
        let json = numbers().json().replacen("\"v\":1", "\"v\":2,\"news\":{\"x\":1}", 1);
        assert_eq!(serde_json::from_str::<MountStats>(&json).unwrap(), numbers());
        let mut older: serde_json::Value = serde_json::from_str(&json).unwrap();
        older.as_object_mut().unwrap().remove("origin");
        let without = MountStats { origin: OriginTotals::default(), ..numbers() };
        assert_eq!(serde_json::from_value::<MountStats>(older).unwrap(), without);
    }
}
