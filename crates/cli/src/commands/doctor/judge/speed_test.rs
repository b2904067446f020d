//! What a second of reading means: how fast, and what limits it.

use flatout_settings::format_size;
use flatout_wire::endpoint::Scheme;

use super::speed;
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::network_path::NetworkPath;
use crate::commands::doctor::speed_test::{SpeedTest, is_throttled};

/// Of what there is, this much counts as all of it.
const FULL: f64 = 0.85;
/// An interface that carries more than this much of what it states does not know how fast it is.
const BELIEVED: f64 = 1.1;
/// Less than this in a second tells of waiting, not of speed.
const BYTES_MIN: u64 = 1 << 20;
/// The knob's upper bound.
const PARALLEL_MAX: u32 = 4_096;

/// How fast it was, and why not faster.
pub fn speed_test(speed_test: &SpeedTest, path: &NetworkPath, machine: &Machine) -> Vec<Finding> {
    if let Some(failure) = &speed_test.failure {
        let advice =
            failure.hint.clone().unwrap_or_else(|| "try again, then with a smaller --parallel".into());
        let finding = Finding::bad("probe", failure.message.clone())
            .means("transfers like this one fail")
            .advise(advice)
            .ending(failure.exit);
        return vec![if is_throttled(failure) {
            finding.fact("throttled", Some(true.into()))
        } else {
            finding
        }];
    }
    vec![fast(speed_test), limit(speed_test, path, machine)]
}

fn fast(speed_test: &SpeedTest) -> Finding {
    let found = format!("{}, {} in the best 100 ms", speed(speed_test.gbit()), speed(speed_test.gbit_peak));
    let others = speed_test.other_cores.map_or(String::new(), |cores| format!(", {cores:.1} by all else"));
    let connections = match speed_test.connections {
        0 | 1 => "1 connection".to_owned(),
        several => format!("{several} connections, {:.0} MB/s each", speed_test.mb_per_connection()),
    };
    let details = vec![
        format!("{} of {} in {:.2} s", format_size(speed_test.bytes), speed_test.object, speed_test.seconds),
        format!("{connections}; {} retries", speed_test.retries),
        format!("{:.1} cores kept busy{others}", speed_test.own_cores),
    ];
    Finding::good("speed", found)
        .details(details)
        .fact("gbit", Some(speed_test.gbit().into()))
        .fact("gbit_peak", Some(speed_test.gbit_peak.into()))
        .fact("bytes", Some(speed_test.bytes.into()))
        .fact("seconds", Some(speed_test.seconds.into()))
        .fact("connections", Some(speed_test.connections.max(1).into()))
        .fact("mb_per_s_each", Some(speed_test.mb_per_connection().into()))
        .fact("retries", Some(speed_test.retries.into()))
        .fact("own_cores", Some(speed_test.own_cores.into()))
        .fact("other_cores", speed_test.other_cores.map(Into::into))
}

/// The first of these that holds; each hides those behind it.
fn limit(speed_test: &SpeedTest, path: &NetworkPath, machine: &Machine) -> Finding {
    too_few_bytes(speed_test)
        .or_else(|| full_network(speed_test, path))
        .or_else(|| small_object(speed_test))
        .or_else(|| one_stream(speed_test))
        .or_else(|| full_cores(speed_test, path, machine))
        .or_else(|| full_shards(speed_test, machine))
        .or_else(|| shared_cores(speed_test, path, machine))
        .or_else(|| unsteady(speed_test))
        .unwrap_or_else(|| neither(speed_test, path, machine))
}

fn by(name: &str, finding: Finding) -> Option<Finding> {
    Some(finding.fact("by", Some(name.into())))
}

fn too_few_bytes(speed_test: &SpeedTest) -> Option<Finding> {
    if speed_test.bytes >= BYTES_MIN {
        return None;
    }
    small_object(speed_test).or_else(|| too_small(speed_test, "too few bytes came to tell".to_owned()))
}

fn small_object(speed_test: &SpeedTest) -> Option<Finding> {
    let filling_bytes = speed_test.filling_bytes();
    let bytes = speed_test.object_bytes.filter(|bytes| *bytes < filling_bytes)?;
    too_small(speed_test, format!("the object of {} is too small to tell", format_size(bytes)))
}

fn too_small(speed_test: &SpeedTest, found: String) -> Option<Finding> {
    by(
        "object",
        Finding::note("limit", found)
            .means(format!("{} or more would be in flight at once", format_size(speed_test.filling_bytes())))
            .advise("name a larger object for a figure that holds"),
    )
}

fn full_network(speed_test: &SpeedTest, path: &NetworkPath) -> Option<Finding> {
    let gbit = nic_gbit(path).filter(|gbit| (gbit * FULL..=gbit * BELIEVED).contains(&speed_test.gbit()))?;
    let found = format!("the network: {} of the interface's {}", speed(speed_test.gbit()), speed(gbit));
    by("network", Finding::good("limit", found).means("this is as fast as the machine can be reached"))
}

fn one_stream(speed_test: &SpeedTest) -> Option<Finding> {
    if speed_test.serves_ranges {
        return None;
    }
    by(
        "stream",
        Finding::note("limit", "the origin: it sends one stream and no ranges")
            .means("one connection carries everything, whatever --parallel says")
            .advise("a server that answers ranges, or a store that speaks S3 or OSS"),
    )
}

fn full_cores(speed_test: &SpeedTest, path: &NetworkPath, machine: &Machine) -> Option<Finding> {
    let usable = machine.usable_cores();
    if speed_test.own_cores < usable * FULL {
        return None;
    }
    let (means, advice) = match path.way.endpoint.scheme {
        Scheme::Https => (
            "TLS is the greater part of it",
            "more cores; http:// inside a network that you trust halves the work",
        ),
        Scheme::Http => (
            "the kernel's receive path is the greater part of it",
            "more cores, or larger parts (--part-size 16MiB)",
        ),
    };
    let found = format!("the cores: flatout keeps {:.1} of {usable:.1} busy", speed_test.own_cores);
    by("cpu", Finding::note("limit", found).means(means).advise(advice))
}

fn full_shards(speed_test: &SpeedTest, machine: &Machine) -> Option<Finding> {
    let (shards, usable) = (f64::from(speed_test.shards), machine.usable_cores());
    if speed_test.own_cores < shards * FULL || usable < shards + 1.0 {
        return None;
    }
    by(
        "shards",
        Finding::note("limit", format!("the shards: {} of them are busy all the time", speed_test.shards))
            .means(format!("{usable:.1} cores could work"))
            .advise(format!("--shards {:.0}", usable.floor())),
    )
}

fn shared_cores(speed_test: &SpeedTest, path: &NetworkPath, machine: &Machine) -> Option<Finding> {
    let others = speed_test.other_cores?;
    if speed_test.own_cores + others < f64::from(machine.cores.max(1)) * FULL {
        return None;
    }
    let found = format!(
        "the cores: flatout keeps {:.1} of {} busy, others {others:.1}",
        speed_test.own_cores, machine.cores
    );
    let at_home = path.nic.as_ref().is_some_and(|nic| nic.is_loopback);
    let (means, advice) = match at_home {
        true => ("the origin is on this machine, and one of the others", "measure from another machine"),
        false => ("other programs take a part of them", "stop them, or measure when they rest"),
    };
    by("machine", Finding::note("limit", found).means(means).advise(advice))
}

fn unsteady(speed_test: &SpeedTest) -> Option<Finding> {
    if speed_test.retries == 0 {
        return None;
    }
    by(
        "origin",
        Finding::note("limit", format!("the origin: {} requests were sent again", speed_test.retries))
            .means("it throttles, or connections to it break")
            .advise("a smaller --parallel; the store's own metrics tell which of both"),
    )
}

fn neither(speed_test: &SpeedTest, path: &NetworkPath, machine: &Machine) -> Finding {
    let interface = match nic_gbit(path) {
        Some(gbit) if speed_test.gbit() > gbit * BELIEVED => {
            format!("the interface carries more than the {} that it states", speed(gbit))
        }
        Some(gbit) => format!("the interface could take {}", speed(gbit)),
        None => "how fast the interface is, it does not say".to_owned(),
    };
    let (own, usable) = (speed_test.own_cores, machine.usable_cores());
    let advice = match speed_test.parallel {
        None => "flatout bench sweep shows what fixed numbers in flight bring".to_owned(),
        Some(PARALLEL_MAX..) => "--parallel goes no higher; flatout bench sweep finds the best".to_owned(),
        Some(parallel) => format!(
            "see whether it doubles with --parallel {}; flatout bench sweep finds the best",
            (parallel * 2).min(PARALLEL_MAX)
        ),
    };
    Finding::note("limit", "the origin, the network between, or too few connections")
        .means(format!("{own:.1} of {usable:.1} cores worked, and {interface}"))
        .advise(advice)
        .fact("by", Some("connections".into()))
}

fn nic_gbit(path: &NetworkPath) -> Option<f64> {
    let nic = path.nic.as_ref().filter(|nic| !nic.is_loopback)?;
    nic.mbit_per_s.map(|mbit| mbit as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use flatout_engine::{Dialect, Way};
    use flatout_wire::endpoint::Endpoint;

    use super::*;
    use crate::commands::doctor::finding::Level::{self, Bad, Good, Note};
    use crate::commands::doctor::nic::Nic;
    use crate::exit::Exit;
    use crate::failure::Failure;

    /// A second that brought 8 Gbit/s by 8 connections with one busy core of four.
    fn usual() -> SpeedTest {
        SpeedTest {
            object: "s3://bucket/key".into(),
            object_bytes: Some(4 << 30),
            seconds: 1.0,
            bytes: 1_000_000_000,
            gbit_peak: 9.0,
            connections: 8,
            serves_ranges: true,
            retries: 0,
            own_cores: 1.0,
            other_cores: Some(0.2),
            failure: None,
            parallel: Some(8),
            part_bytes: Some(8 << 20),
            shards: 2,
        }
    }

    fn over(url: &str, mbit_per_s: Option<u64>, is_loopback: bool) -> NetworkPath {
        let nic = Nic { name: "eth0".into(), mtu: Some(9_001), mbit_per_s, driver: None, is_loopback };
        let (endpoint, _) = Endpoint::parse(url).unwrap();
        NetworkPath {
            dialect: Dialect::S3,
            way: Way { endpoint, proxy: None },
            oss: None,
            survey: None,
            nic: Some(nic),
        }
    }

    #[track_caller]
    fn check(facts: &SpeedTest, path: &NetworkPath, level: Level, by: &str, says: &str) {
        let machine = Machine { cores: 4, allowed_cores: 4, ..Machine::default() };
        let findings = speed_test(facts, path, &machine);
        let [speed, limit] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((speed.level, speed.topic), (Good, "speed"));
        assert_eq!((limit.level, limit.facts["by"].as_str()), (level, Some(by)), "{limit:?}");
        assert!(format!("{limit:?}").contains(says), "{limit:?} lacks {says}");
    }

    #[test]
    fn what_limits() {
        let (plain, tls) = (over("http://h", None, false), over("https://h", None, false));
        check(&usual(), &plain, Note, "connections", "--parallel 16");
        check(&usual(), &over("http://h", Some(10_000), false), Note, "connections", "could take 10 Gbit/s");
        check(
            &SpeedTest { bytes: 1_200_000_000, ..usual() },
            &over("http://h", Some(10_000), false),
            Good,
            "network",
            "9.6 Gbit/s of",
        );
        // A small object can fill a slow link; a handful of bytes tells nothing of it.
        let small = SpeedTest { object_bytes: Some(50 << 20), bytes: 118_000_000, ..usual() };
        check(&small, &over("http://h", Some(1_000), false), Good, "network", "0.9 Gbit/s of");
        let few = SpeedTest { bytes: 100_000, seconds: 0.001, ..small };
        check(&few, &over("http://h", Some(1_000), false), Note, "object", "of 50MiB is too small");
        // What carries more than it states has stated nothing.
        check(
            &usual(),
            &over("http://h", Some(1_000), false),
            Note,
            "connections",
            "more than the 1.0 Gbit/s",
        );
        let many = |parallel| SpeedTest { parallel: Some(parallel), part_bytes: Some(1 << 20), ..usual() };
        check(&many(3_000), &plain, Note, "connections", "--parallel 4096");
        check(&many(4_096), &plain, Note, "connections", "no higher");
        check(&SpeedTest { own_cores: 3.6, ..usual() }, &tls, Note, "cpu", "http://");
        check(&SpeedTest { own_cores: 3.6, ..usual() }, &plain, Note, "cpu", "receive path");
        check(&SpeedTest { own_cores: 1.9, ..usual() }, &plain, Note, "shards", "--shards 4");
        check(&SpeedTest { other_cores: Some(2.6), ..usual() }, &plain, Note, "machine", "when they rest");
        check(
            &SpeedTest { other_cores: Some(2.6), ..usual() },
            &over("http://h", None, true),
            Note,
            "machine",
            "on this machine",
        );
        check(&SpeedTest { serves_ranges: false, ..usual() }, &plain, Note, "stream", "no ranges");
        check(&SpeedTest { retries: 3, ..usual() }, &plain, Note, "origin", "3 requests");
        check(
            &SpeedTest { object_bytes: Some(1 << 20), ..usual() },
            &plain,
            Note,
            "object",
            "of 1MiB is too small",
        );
        check(
            &SpeedTest { bytes: 100, object_bytes: None, ..usual() },
            &plain,
            Note,
            "object",
            "too few bytes",
        );
    }

    #[test]
    fn a_probe_that_fails_is_bad() {
        let failure = Failure {
            exit: Exit::Throttled,
            kind: "throttled".into(),
            ..Failure::usage("read: x: asks for less")
        };
        let findings = speed_test(
            &SpeedTest { failure: Some(failure), ..usual() },
            &over("http://h", None, false),
            &Machine::default(),
        );
        assert_eq!((findings.len(), findings[0].level, findings[0].exit), (1, Bad, Exit::Throttled));
    }

    #[test]
    fn figures_of_a_second() {
        let speed_test = usual();
        assert_eq!((speed_test.gbit(), speed_test.mb_per_connection()), (8.0, 125.0));
        let finding = fast(&speed_test);
        assert_eq!(finding.found, "8.0 Gbit/s, 9.0 Gbit/s in the best 100 ms");
        assert!(finding.details[1].contains("8 connections, 125 MB/s each"), "{finding:?}");
        assert_eq!(SpeedTest { seconds: 0.0, ..usual() }.gbit(), 0.0);
    }
}
