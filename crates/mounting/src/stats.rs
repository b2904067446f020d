//! What a mount counts, as one document: `/stats`, `--stats`, `flatout top --json`; and for Prometheus, `/metrics`.

use std::collections::BTreeMap;
use std::fmt::Write;

use flatout_engine::{OriginStats, ReaderStats};
use flatout_mount::{BOUNDS, SessionStats, Timed, Timing, Timings};
use flatout_tree::TreeStats;
use serde::{Deserialize, Serialize};

use crate::limited::Limited;

/// Of the schema of docs/json.md.
const VERSION: u32 = 1;

/// Of one mount. Counts are since it began, but those that say `now`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename = "mount_stats")]
pub struct Numbers {
    pub pid: u32,
    pub version: String,
    pub source: String,
    pub mount_point: String,
    pub uptime_s: f64,
    pub kernel: Kernel,
    pub requests: Requests,
    pub bytes: Bytes,
    pub reads: Reads,
    pub names: Names,
    #[serde(default)]
    pub origin: Origin,
    pub memory: Memory,
    pub process: Process,
}

/// What kernel and program agreed upon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// `7.45`
    pub abi: String,
    /// The most bytes of one request.
    pub request_bytes: u64,
    /// What the kernel reads ahead of buffered readers.
    pub read_ahead_bytes: u64,
    pub max_background: u64,
    /// What its files have as their device: `0:47`. Absent where the kernel does not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<String>,
}

impl Kernel {
    /// Major and minor.
    pub fn device(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.device.as_ref()?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

/// What the kernel asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    pub total: u64,
    pub waiting_now: u64,
    /// Waits that a signal ended.
    pub interrupted: u64,
    /// Could not be understood, or were left without an answer by a defect.
    pub malformed: u64,
    pub defects: u64,
    /// By operation: `read`, `lookup`.
    pub operations: BTreeMap<String, Operation>,
    /// Answers by errno's name: `ENOENT`.
    pub errors: BTreeMap<String, u64>,
}

/// One kind of request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    pub count: u64,
    /// From when it was taken up to its answer, all together.
    pub seconds: f64,
    /// How many took at most so many seconds; the keys are bounds, in order, the last `+Inf`.
    pub buckets: Vec<(String, u64)>,
}

/// What went through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bytes {
    /// To readers.
    pub served: u64,
    /// From the origin.
    pub fetched: u64,
    /// Fetched ahead and given up unread.
    pub wasted: u64,
    /// Fetched for each byte served; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub amplification: Option<f64>,
}

/// How reads were served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    pub total: u64,
    /// The bytes were there.
    pub hits: u64,
    /// They had to be waited for.
    pub waits: u64,
    /// Taken for random: a request of their own.
    pub random: u64,
    /// Small files that came whole.
    pub whole: u64,
    pub lanes_now: u64,
    /// The most bytes that one read asked for.
    pub largest_bytes: u64,
}

/// Names and folders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Names {
    /// Pages of listings asked for.
    pub listing_pages: u64,
    /// Requests about one name.
    pub lookups: u64,
    pub heads: u64,
    /// Requests that failed for good.
    pub failures: u64,
    /// Answered without a request.
    pub answered: u64,
    /// Joined a question that was under way.
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

/// What is asked of the origin, and what holds it back; of all origins together, where a store has sent us on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Requests for content.
    pub in_flight_now: u64,
    /// How many there may be.
    pub parallel_now: u64,
    /// Open, idle ones included.
    pub connections_now: u64,
    /// Opened so far.
    pub connections: u64,
    /// Requests that were tried again.
    pub retries: u64,
    /// Answers by which it asked for less.
    pub throttled: u64,
    /// What holds the speed back now; absent while nothing is asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limited_by: Option<Limited>,
    /// For how long each has, by its name.
    pub limited_seconds: BTreeMap<String, f64>,
}

/// What is held, of what may be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    pub limit_bytes: u64,
    /// Content that was fetched.
    pub content_bytes_now: u64,
    /// Names, inodes, listings.
    pub names_bytes_now: u64,
}

/// As the kernel counts the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub resident_bytes_now: u64,
    pub resident_bytes_peak: u64,
    pub cpu_seconds: f64,
    pub threads_now: u64,
}

/// From what a session counts.
pub fn requests(asked: &SessionStats, timings: &Timings) -> Requests {
    let operations = Timed::ALL.map(|timed| (timed.name().to_owned(), operation(&timings.of(timed))));
    Requests {
        operations: operations.into(),
        errors: timings.errors().map(|(errno, count)| (errno_name(errno), count)).collect(),
        total: asked.requests,
        waiting_now: asked.waiting,
        interrupted: asked.interrupted,
        malformed: asked.malformed,
        defects: asked.defects,
    }
}

fn operation(timing: &Timing) -> Operation {
    let bounds = BOUNDS.iter().map(|bound| bound.as_secs_f64().to_string());
    let mut buckets: Vec<(String, u64)> = bounds.zip(timing.at_most).collect();
    buckets.push(("+Inf".to_owned(), timing.count));
    Operation { count: timing.count, seconds: timing.seconds, buckets }
}

/// From what session and reader count.
pub fn bytes(asked: &SessionStats, read: &ReaderStats) -> Bytes {
    let served = asked.read_bytes;
    let amplification = (served > 0).then(|| read.fetched_bytes as f64 / served as f64);
    Bytes { served, fetched: read.fetched_bytes, wasted: read.wasted_bytes, amplification }
}

/// From what session and reader count.
pub fn reads(asked: &SessionStats, read: &ReaderStats) -> Reads {
    Reads {
        total: asked.reads,
        hits: read.hits,
        waits: read.waits,
        random: read.random,
        whole: read.whole,
        lanes_now: read.lanes,
        largest_bytes: asked.largest_read_bytes,
    }
}

/// From what a tree counts.
pub fn names(names: &TreeStats) -> Names {
    Names {
        listing_pages: names.pages,
        lookups: names.lookups,
        heads: names.heads,
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

/// From what the engine counts of each origin.
pub fn origin(origins: &[OriginStats]) -> Origin {
    let mut all = Origin::default();
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
    // Of several the busiest.
    let busiest = origins.iter().max_by_key(|one| (one.limited_by.is_some(), one.in_flight));
    all.limited_by = busiest.and_then(|one| one.limited_by).map(Limited::from);
    all
}

impl Process {
    /// Of this process, now.
    pub fn look() -> Process {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
        };
        Process {
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

impl Numbers {
    /// As one line of JSON.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            v: u32,
            #[serde(flatten)]
            numbers: &'a Numbers,
        }
        let document = Document { v: VERSION, numbers: self };
        serde_json::to_string(&document).expect("numbers are maps with text for keys") + "\n"
    }

    /// As Prometheus reads it.
    pub fn prometheus(&self) -> String {
        let mut page = Page { text: String::new(), mount: self.mount_point.clone() };
        let Numbers {
            version, source, kernel, requests, bytes, reads, names, origin, memory, process, ..
        } = self;
        page.family("flatout_mount_info", "gauge", "The mount, and which Flatout serves it.");
        let labels = [("source", source.as_str()), ("version", version), ("abi", &kernel.abi)];
        page.sample("flatout_mount_info", &labels, 1.0);
        page.gauge("uptime_seconds", "Since the mount began.", self.uptime_s);
        page.gauge(
            "kernel_request_bytes",
            "The most bytes of one request of the kernel.",
            kernel.request_bytes as f64,
        );
        page.gauge("kernel_read_ahead_bytes", "What the kernel reads ahead.", kernel.read_ahead_bytes as f64);
        page.gauge(
            "kernel_max_background",
            "Requests of reading ahead at a time.",
            kernel.max_background as f64,
        );
        page.counter("requests_total", "What the kernel asked.", requests.total);
        page.gauge("requests_waiting", "Requests that wait now.", requests.waiting_now as f64);
        page.counter("requests_interrupted_total", "Waits that a signal ended.", requests.interrupted);
        page.operations(&requests.operations);
        page.family("flatout_mount_errors_total", "counter", "Answers that were errors, by errno.");
        for (name, count) in &requests.errors {
            page.sample("flatout_mount_errors_total", &[("errno", name)], *count as f64);
        }
        page.counter("served_bytes_total", "Bytes given to readers.", bytes.served);
        page.counter("fetched_bytes_total", "Bytes that came from the origin.", bytes.fetched);
        page.counter("wasted_bytes_total", "Bytes fetched ahead and given up unread.", bytes.wasted);
        page.counter("reads_total", "Reads of the kernel.", reads.total);
        page.counter("read_hits_total", "Reads whose bytes were there.", reads.hits);
        page.counter("read_waits_total", "Reads that waited for the origin.", reads.waits);
        page.counter("random_reads_total", "Reads that followed no pattern.", reads.random);
        page.counter("whole_files_total", "Small files that came whole.", reads.whole);
        page.gauge("lanes", "Patterns of reading that are followed now.", reads.lanes_now as f64);
        page.counter("listing_pages_total", "Pages of listings asked for.", names.listing_pages);
        page.counter("lookups_total", "Requests about one name.", names.lookups);
        page.counter("heads_total", "HEADs.", names.heads);
        page.counter("origin_failures_total", "Requests about names that failed for good.", names.failures);
        page.counter(
            "names_answered_total",
            "Questions about names answered without a request.",
            names.answered,
        );
        page.counter("replaced_total", "Reads that found their object replaced.", names.replaced);
        page.gauge("hidden_keys", "Keys that no name can stand for.", names.hidden as f64);
        page.gauge("inodes", "Inodes in memory.", names.inodes_now as f64);
        page.gauge("open_files", "Files open now.", names.open_files_now as f64);
        page.origin(origin);
        page.gauge("memory_limit_bytes", "--memory", memory.limit_bytes as f64);
        page.gauge("memory_content_bytes", "Content that is held.", memory.content_bytes_now as f64);
        page.gauge("memory_names_bytes", "Names that are held.", memory.names_bytes_now as f64);
        page.gauge("resident_bytes", "Resident memory of the process.", process.resident_bytes_now as f64);
        page.family("flatout_mount_cpu_seconds_total", "counter", "CPU time, user and system.");
        page.sample("flatout_mount_cpu_seconds_total", &[], process.cpu_seconds);
        page.text
    }
}

/// Text as it grows; every sample names the mount.
struct Page {
    text: String,
    mount: String,
}

impl Page {
    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        let name = format!("flatout_mount_{name}");
        self.family(&name, "gauge", help);
        self.sample(&name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let name = format!("flatout_mount_{name}");
        self.family(&name, "counter", help);
        self.sample(&name, &[], value as f64);
    }

    fn operations(&mut self, operations: &BTreeMap<String, Operation>) {
        const NAME: &str = "flatout_mount_request_seconds";
        self.family(NAME, "histogram", "From reading a request to answering it, by operation.");
        for (operation, Operation { count, seconds, buckets }) in operations {
            let label = ("operation", operation.as_str());
            for (bound, below) in buckets {
                self.sample(&format!("{NAME}_bucket"), &[label, ("le", bound)], *below as f64);
            }
            self.sample(&format!("{NAME}_sum"), &[label], *seconds);
            self.sample(&format!("{NAME}_count"), &[label], *count as f64);
        }
    }

    fn origin(&mut self, origin: &Origin) {
        const SECONDS: &str = "flatout_mount_limited_seconds_total";
        self.gauge("in_flight", "Requests for content at the origin now.", origin.in_flight_now as f64);
        self.gauge("parallel", "How many of them there may be.", origin.parallel_now as f64);
        self.gauge("connections", "Connections that are open now.", origin.connections_now as f64);
        self.counter("connections_opened_total", "Connections that were opened.", origin.connections);
        self.counter("retries_total", "Requests that were tried again.", origin.retries);
        self.counter("throttled_total", "Answers by which the origin asked for less.", origin.throttled);
        self.family(SECONDS, "counter", "For how long what has held the speed back.");
        for (name, seconds) in &origin.limited_seconds {
            self.sample(SECONDS, &[("by", name)], *seconds);
        }
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // A line in memory takes everything.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let mount = [("mount", self.mount.as_str())];
        let labels: Vec<String> = mount
            .iter()
            .chain(labels)
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let _ = writeln!(self.text, "{name}{{{}}} {value}", labels.join(","));
    }
}

/// Of a label's value.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// `ENOENT` of 2; the number itself of one that has no everyday name.
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
mod tests {
    use std::time::Duration;

    use flatout_engine::LimitedBy;

    use super::*;

    fn at_origin(in_flight: u32, limited_by: Option<LimitedBy>, ms: &[(&'static str, u64)]) -> OriginStats {
        let limited = ms.iter().map(|(name, ms)| (*name, Duration::from_millis(*ms))).collect();
        OriginStats {
            origin: "http://127.0.0.1:1".into(),
            in_flight,
            parallel: 8,
            connections: 4,
            connected: 9,
            retries: 2,
            throttled: 1,
            outage: None,
            limited_by,
            limited,
        }
    }

    fn numbers() -> Numbers {
        let operation =
            Operation { count: 3, seconds: 0.5, buckets: vec![("0.001".into(), 1), ("+Inf".into(), 3)] };
        Numbers {
            pid: 7,
            source: "s3://b/x".into(),
            mount_point: "/mnt/a \"b\"\\".into(),
            requests: Requests {
                total: 5,
                operations: [("read".into(), operation)].into(),
                errors: [("ENOENT".into(), 2)].into(),
                ..Requests::default()
            },
            bytes: Bytes { served: 10, fetched: 11, wasted: 1, amplification: Some(1.1) },
            origin: origin(&[
                at_origin(3, Some(LimitedBy::Ramp { in_flight: 3 }), &[("ramp", 500)]),
                at_origin(0, None, &[("ramp", 250), ("network", 2000)]),
            ]),
            ..Numbers::default()
        }
    }

    #[test]
    fn json_comes_back_as_it_went() {
        let json = numbers().json();
        assert!(json.ends_with("}\n") && json.contains("\"event\":\"mount_stats\""), "{json}");
        assert_eq!(serde_json::from_str::<Numbers>(&json).unwrap(), numbers());
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
        assert_eq!(serde_json::from_str::<Numbers>(&json).unwrap(), numbers());
        let mut older: serde_json::Value = serde_json::from_str(&json).unwrap();
        older.as_object_mut().unwrap().remove("origin");
        let without = Numbers { origin: Origin::default(), ..numbers() };
        assert_eq!(serde_json::from_value::<Numbers>(older).unwrap(), without);
    }

    #[test]
    fn every_line_is_one_that_prometheus_reads() {
        let page = numbers().prometheus();
        let mut families = Vec::new();
        for line in page.lines() {
            match line.strip_prefix("# ") {
                Some(comment) => {
                    let mut words = comment.split(' ');
                    let (word, name) = (words.next().unwrap(), words.next().unwrap());
                    if word == "TYPE" {
                        assert!(!families.contains(&name.to_owned()), "{name} twice");
                        families.push(name.to_owned());
                    }
                }
                None => {
                    let (name, value) = line.rsplit_once(' ').unwrap();
                    value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
                    assert!(name.contains("{mount=\"/mnt/a \\\"b\\\"\\\\\""), "{line}");
                    let family = families.last().unwrap();
                    assert!(name.starts_with(family.as_str()), "{line} is not of {family}");
                }
            }
        }
        for sample in [
            "flatout_mount_request_seconds_bucket{mount=\"/mnt/a \\\"b\\\"\\\\\",operation=\"read\",le=\"+Inf\"} 3",
            "flatout_mount_errors_total{mount=\"/mnt/a \\\"b\\\"\\\\\",errno=\"ENOENT\"} 2",
        ] {
            assert!(page.contains(sample), "{page}");
        }
    }
}
