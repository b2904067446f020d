//! The statistics of a mount as Prometheus reads them, its text format 0.0.4.

use std::fmt::Write;

use crate::stats::{MountStats, OperationStats};

/// Name behind `flatout_mount_`, kind, help, value.
type Metric = (&'static str, &'static str, &'static str, fn(&MountStats) -> u64);

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

/// Whole numbers with no label but the mount.
const METRICS: &[Metric] = &[
    ("kernel_request_bytes", GAUGE, "The most bytes of one request of the kernel.", |s| {
        s.kernel.request_bytes
    }),
    ("kernel_read_ahead_bytes", GAUGE, "What the kernel reads ahead.", |s| s.kernel.read_ahead_bytes),
    ("kernel_max_background", GAUGE, "Requests of reading ahead at a time.", |s| s.kernel.max_background),
    ("requests_total", COUNTER, "What the kernel asked.", |s| s.requests.total),
    ("requests_waiting", GAUGE, "Requests that wait now.", |s| s.requests.waiting_now),
    ("requests_interrupted_total", COUNTER, "Waits that a signal ended.", |s| s.requests.interrupted),
    ("served_bytes_total", COUNTER, "Bytes given to readers.", |s| s.bytes.served),
    ("fetched_bytes_total", COUNTER, "Bytes that came from the origin.", |s| s.bytes.fetched),
    ("wasted_bytes_total", COUNTER, "Bytes fetched ahead and given up unread.", |s| s.bytes.wasted),
    ("reads_total", COUNTER, "Reads of the kernel.", |s| s.reads.total),
    ("read_hits_total", COUNTER, "Reads whose bytes were there.", |s| s.reads.hits),
    ("read_waits_total", COUNTER, "Reads that waited for the origin.", |s| s.reads.waits),
    ("random_reads_total", COUNTER, "Reads that followed no pattern.", |s| s.reads.random),
    ("whole_files_total", COUNTER, "Small files that came whole.", |s| s.reads.whole),
    ("lanes", GAUGE, "Patterns of reading that are followed now.", |s| s.reads.lanes_now),
    ("listing_pages_total", COUNTER, "Pages of listings asked for.", |s| s.names.listing_pages),
    ("lookups_total", COUNTER, "Requests about one name.", |s| s.names.lookups),
    ("heads_total", COUNTER, "HEADs, at opens.", |s| s.names.heads),
    ("attribute_heads_total", COUNTER, "HEADs for attributes in metadata.", |s| s.names.attribute_heads),
    ("origin_failures_total", COUNTER, "Requests about names that failed for good.", |s| s.names.failures),
    ("names_answered_total", COUNTER, "Questions about names answered without a request.", |s| {
        s.names.answered
    }),
    ("replaced_total", COUNTER, "Reads that found their object replaced.", |s| s.names.replaced),
    ("hidden_keys", GAUGE, "Keys that no name can stand for.", |s| s.names.hidden),
    ("inodes", GAUGE, "Inodes in memory.", |s| s.names.inodes_now),
    ("open_files", GAUGE, "Files open now.", |s| s.names.open_files_now),
    ("in_flight", GAUGE, "Requests for content at the origin now.", |s| s.origin.in_flight_now),
    ("parallel", GAUGE, "How many of them there may be.", |s| s.origin.parallel_now),
    ("connections", GAUGE, "Connections that are open now.", |s| s.origin.connections_now),
    ("connections_opened_total", COUNTER, "Connections that were opened.", |s| s.origin.connections),
    ("retries_total", COUNTER, "Requests that were tried again.", |s| s.origin.retries),
    ("throttled_total", COUNTER, "Answers by which the origin asked for less.", |s| s.origin.throttled),
    ("memory_limit_bytes", GAUGE, "--memory", |s| s.memory.limit_bytes),
    ("memory_content_bytes", GAUGE, "Content that is held.", |s| s.memory.content_bytes_now),
    ("memory_names_bytes", GAUGE, "Names that are held.", |s| s.memory.names_bytes_now),
    ("resident_bytes", GAUGE, "Resident memory of the process.", |s| s.process.resident_bytes_now),
];

impl MountStats {
    /// The metrics page.
    pub fn prometheus(&self) -> String {
        prometheus(std::slice::from_ref(self))
    }
}

/// The metrics page of several mounts: of each family once what it is, then the samples of all.
pub fn prometheus(mounts: &[MountStats]) -> String {
    let mut page = MetricsPage { text: String::new(), mounts };
    page.family("info", GAUGE, "The mount, and which Flatout serves it.", |mount, sample| {
        let labels =
            [("source", mount.source.as_str()), ("version", &mount.version), ("abi", &mount.kernel.abi)];
        sample("", &labels, 1.0);
    });
    page.metric("uptime_seconds", GAUGE, "Since the mount began.", |mount| mount.uptime_s);
    page.metric("cpu_seconds_total", COUNTER, "CPU time, user and system.", |mount| {
        mount.process.cpu_seconds
    });
    for (name, kind, help, value) in METRICS {
        page.metric(name, kind, help, |mount| value(mount) as f64);
    }
    let help = "From reading a request to answering it, by operation.";
    page.family("request_seconds", "histogram", help, |mount, sample| {
        for (operation, OperationStats { count, seconds: sum, buckets }) in &mount.requests.operations {
            let label = ("operation", operation.as_str());
            for (bound, below) in buckets {
                sample("_bucket", &[label, ("le", bound)], *below as f64);
            }
            sample("_sum", &[label], *sum);
            sample("_count", &[label], *count as f64);
        }
    });
    page.family("errors_total", COUNTER, "Answers that were errors, by errno.", |mount, sample| {
        for (name, count) in &mount.requests.errors {
            sample("", &[("errno", name)], *count as f64);
        }
    });
    let help = "For how long what has held the speed back.";
    page.family("limited_seconds_total", COUNTER, help, |mount, sample| {
        for (name, seconds) in &mount.origin.limited_seconds {
            sample("", &[("by", name)], *seconds);
        }
    });
    page.text
}

/// Text as it grows; every sample names its mount.
struct MetricsPage<'a> {
    text: String,
    mounts: &'a [MountStats],
}

/// Takes a sample: what follows the family's name, labels, value.
type TakeSample<'a> = dyn FnMut(&str, &[(&str, &str)], f64) + 'a;

impl MetricsPage<'_> {
    fn metric(&mut self, name: &str, kind: &str, help: &str, value: impl Fn(&MountStats) -> f64) {
        self.family(name, kind, help, |mount, sample| sample("", &[], value(mount)));
    }

    /// A family, and its samples.
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Fn(&MountStats, &mut TakeSample<'_>),
    ) {
        let text = &mut self.text;
        let name = format!("flatout_mount_{name}");
        // A line in memory takes everything.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for mount in self.mounts {
            samples(mount, &mut |suffix, labels, value| {
                let own = [("mount", mount.mount_point.as_str())];
                let labels: Vec<String> = own
                    .iter()
                    .chain(labels)
                    .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                    .collect();
                let _ = writeln!(text, "{name}{suffix}{{{}}} {value}", labels.join(","));
            });
        }
    }
}

/// The value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use crate::stats::tests::numbers;

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
