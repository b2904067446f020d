//! What a machine's facts mean for transfers with these settings.

use flatout_engine::PARALLEL_FOUND_MAX;
use flatout_settings::{Settings, format_size};

use super::{PLAIN_GBIT_PER_CORE, TLS_GBIT_PER_CORE, speed};
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::machine::{Limit, Machine, WritableFolder};

/// Under this much free memory, buffers and the page cache of files get into each other's way.
const MEMORY_BYTES_MIN: u64 = 512 << 20;
/// Linux's default ceiling of a receive buffer; half of it is the window that a sender sees.
const RECEIVE_BYTES_MIN: u64 = 6 << 20;
/// What is found by itself to bring most is seldom more.
const PARALLEL_USUAL_MAX: u64 = 128;
/// A folder with less has room for nothing that is worth a doctor.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// Everything about the machine itself.
pub fn machine(machine: &Machine, settings: &Settings) -> Vec<Finding> {
    let findings = [
        Some(cores(machine)),
        machine.has_aes.map(aes),
        Some(memory(machine)),
        machine.open_files.map(|limit| open_files(limit, settings.parallel)),
        machine.locked_bytes.map(locked_memory),
        machine.huge_pages.as_deref().map(huge_pages),
        machine.receive_bytes.map(receive_buffer),
        machine.congestion.as_deref().map(congestion),
        machine.container.map(container),
    ];
    findings.into_iter().flatten().collect()
}

fn cores(machine: &Machine) -> Finding {
    let Machine { cores, allowed_cores, quota_cores, .. } = *machine;
    let usable = machine.usable_cores();
    let carries = format!(
        "enough for about {} without TLS, {} with it",
        speed(usable * PLAIN_GBIT_PER_CORE),
        speed(usable * TLS_GBIT_PER_CORE)
    );
    let finding = if let Some(quota) = quota_cores.filter(|quota| *quota < f64::from(allowed_cores)) {
        Finding::note("cores", format!("{quota:.1} of {cores} by the control group's quota"))
            .means(format!(
                "{carries}; a process that has used up its share stands still until the next period"
            ))
            .advise("raise the CPU limit of the container or service (cpu.max, resources.limits.cpu)")
    } else if allowed_cores < cores {
        Finding::note("cores", format!("{allowed_cores} of {cores} allowed to this process"))
            .means(carries)
            .advise("if that is not meant, look for taskset, numactl or a cpuset around it")
    } else {
        Finding::good("cores", format!("{cores}, all allowed")).means(carries)
    };
    let cpu = Some(machine.cpu.clone()).filter(|cpu| !cpu.is_empty());
    finding
        .details(cpu.iter().cloned().collect())
        .fact("cores", Some(cores.into()))
        .fact("usable", Some(usable.into()))
        .fact("cpu", cpu.map(Into::into))
}

fn aes(has_aes: bool) -> Finding {
    let finding = match has_aes {
        true => {
            Finding::good("AES", "in hardware").means("TLS costs about as much again as the transfer itself")
        }
        false => Finding::note("AES", "not in hardware")
            .means("TLS is done by ChaCha20, several times as expensive")
            .advise("use http:// inside a network that you trust"),
    };
    finding.fact("hardware", Some(has_aes.into()))
}

fn memory(machine: &Machine) -> Finding {
    let usable = machine.usable_memory_bytes();
    let found = match machine.memory_limit_bytes {
        Some(limit) => format!(
            "{} of {} by the control group, {} free on the machine",
            format_size(limit),
            format_size(machine.memory_bytes),
            format_size(machine.available_bytes)
        ),
        None => {
            format!("{}, {} free", format_size(machine.memory_bytes), format_size(machine.available_bytes))
        }
    };
    let finding = match usable < MEMORY_BYTES_MIN {
        true => Finding::note("memory", found)
            .means(
                "a transfer takes little, but files that are written take page cache, and stall without it",
            )
            .advise("raise the memory limit, or stop what uses it; a smaller --memory for cat and pipes"),
        false => Finding::good("memory", found),
    };
    finding
        .fact("bytes", Some(machine.memory_bytes.into()))
        .fact("available_bytes", Some(machine.available_bytes.into()))
        .fact("limit_bytes", machine.memory_limit_bytes.map(Into::into))
}

/// A connection and perhaps a file for each part in flight, and what a program has open anyway.
fn open_files(limit: Limit, parallel: Option<u32>) -> Finding {
    let (least, wanted) = match parallel {
        Some(parallel) => (u64::from(parallel) + 32, 2 * u64::from(parallel) + 64),
        None => (96, 2 * PARALLEL_USUAL_MAX + 64),
    };
    let shown = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let found = format!("{} (at most {})", shown(limit.soft), shown(limit.hard));
    let raise = match limit.hard.is_none_or(|hard| hard >= wanted) {
        true => {
            format!("ulimit -n {}", wanted.next_power_of_two().max(4_096).min(limit.hard.unwrap_or(u64::MAX)))
        }
        false => format!(
            "as root raise the hard limit to {wanted} or more (limits.conf, LimitNOFILE=, --ulimit nofile=)"
        ),
    };
    let (fails, slows, enough) = match parallel {
        Some(parallel) => (
            format!(
                "--parallel {parallel} alone needs {least}: no more parts are in flight than there are files for"
            ),
            format!("many files at --parallel {parallel} need up to {wanted}"),
            format!("enough for --parallel {parallel}"),
        ),
        None => {
            let most = u64::from(PARALLEL_FOUND_MAX);
            let had = limit.soft.map_or(most, |soft| soft.saturating_sub(64) / 2).min(most);
            (
                "hardly a transfer can run with so few".to_owned(),
                format!(
                    "no more than {had} parts are in flight at a time, which is few for a store that is far away"
                ),
                format!("enough for {had} parts in flight"),
            )
        }
    };
    let finding = match limit.soft {
        Some(soft) if soft < least => Finding::bad("open files", found).means(fails).advise(raise),
        Some(soft) if soft < wanted => Finding::note("open files", found).means(slows).advise(raise),
        _ => Finding::good("open files", found).means(enough),
    };
    finding.fact("soft", limit.soft.map(Into::into)).fact("hard", limit.hard.map(Into::into))
}

fn locked_memory(limit: Limit) -> Finding {
    let found = limit.soft.map_or("unlimited".into(), format_size);
    Finding::good("locked memory", found)
        .means("flatout locks none; loaders that pin memory for a GPU may want more (ulimit -l)")
        .fact("soft_bytes", limit.soft.map(Into::into))
}

fn huge_pages(mode: &str) -> Finding {
    let finding = match mode {
        "never" => Finding::note("huge pages", mode)
            .means("large buffers are touched 4 KiB at a time: a fault for each, which costs more than receiving them")
            .advise("as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        _ => Finding::good("huge pages", mode).means("buffers of 2 MiB and more get them"),
    };
    finding.fact("mode", Some(mode.into()))
}

fn receive_buffer(bytes: u64) -> Finding {
    let found = format!("up to {}", format_size(bytes));
    let finding = match bytes < RECEIVE_BYTES_MIN {
        true => Finding::note("TCP buffers", found)
            .means("half of that is the most a connection has on its way: far origins are slow by it")
            .advise("as root: sysctl -w net.ipv4.tcp_rmem=\"4096 131072 33554432\""),
        false => Finding::good("TCP buffers", found),
    };
    finding.fact("receive_bytes", Some(bytes.into()))
}

fn congestion(name: &str) -> Finding {
    Finding::good("congestion", name)
        .means("of what is sent; for what is received the origin's counts")
        .fact("control", Some(name.into()))
}

fn container(kind: &str) -> Finding {
    let found = if kind == "a container" { "yes".to_owned() } else { kind.to_owned() };
    Finding::good("container", found)
        .means("the limits above are the container's; keys of its pod or task go before the machine's")
        .fact("kind", Some(kind.into()))
}

/// A folder that files may be written to.
pub fn place(place: &WritableFolder) -> Finding {
    let (path, kind) = (place.path.display(), place.file_system.as_str());
    let free = place.free_bytes.map_or(String::new(), |free| format!(", {} free", format_size(free)));
    let found = format!("{path} on {}{free}", if kind.is_empty() { "an unknown file system" } else { kind });
    let over_network = ["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "9p", "gpfs", "beegfs", "virtiofs"]
        .contains(&kind)
        || kind.starts_with("fuse.");
    let finding = if place.free_bytes.is_some_and(|free| free < FREE_BYTES_MIN) {
        Finding::note(place.name, found)
            .means("there is little room for files")
            .advise("free some space, or copy to another folder")
    } else if over_network {
        Finding::note(place.name, found)
            .means("what is copied there leaves again by the network or another program")
            .advise("copy to a local disk or to /dev/shm, or read with flatout cat")
    } else if kind == "overlay" {
        Finding::note(place.name, found)
            .means("the container's writable layer: slow for large files, and gone with the container")
            .advise("copy to a mounted volume")
    } else if matches!(kind, "tmpfs" | "ramfs") {
        Finding::good(place.name, found).means("memory: the fastest, and what is copied there takes memory")
    } else {
        Finding::good(place.name, found)
    };
    finding
        .fact("path", Some(place.path.display().to_string().into()))
        .fact("file_system", Some(kind.into()))
        .fact("free_bytes", place.free_bytes.map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::Level::{self, Bad, Good, Note};

    fn usual() -> Machine {
        Machine {
            cores: 8,
            allowed_cores: 8,
            has_aes: Some(true),
            memory_bytes: 32 << 30,
            available_bytes: 16 << 30,
            open_files: Some(Limit { soft: Some(1_024), hard: Some(524_288) }),
            locked_bytes: Some(Limit { soft: None, hard: None }),
            huge_pages: Some("madvise".into()),
            receive_bytes: Some(6_291_456),
            congestion: Some("cubic".into()),
            ..Machine::default()
        }
    }

    /// The finding of that topic is of that level and holds all of `says`.
    #[track_caller]
    fn check(facts: &Machine, parallel: impl Into<Option<u32>>, topic: &str, level: Level, says: &[&str]) {
        let settings = Settings { parallel: parallel.into(), ..Settings::default() };
        let findings = machine(facts, &settings);
        let finding = findings.iter().find(|finding| finding.topic == topic).expect(topic);
        assert_eq!(finding.level, level, "{finding:?}");
        for part in says {
            assert!(format!("{finding:?}").contains(part), "{finding:?} lacks {part}");
        }
        assert_eq!(finding.advice.is_some(), level != Good, "{finding:?}");
    }

    #[test]
    fn a_usual_machine_is_good() {
        let findings = machine(&usual(), &Settings::default());
        assert_eq!(findings.len(), 8);
        assert!(findings.iter().all(|finding| finding.level == Good), "{findings:?}");
        assert_eq!(
            machine(&Machine::default(), &Settings::default()).len(),
            2,
            "what is not known is not judged"
        );
    }

    #[test]
    fn cores_that_are_there_and_not_ours() {
        check(&usual(), 8, "cores", Good, &["8, all allowed", "320 Gbit/s", "160 Gbit/s"]);
        check(
            &Machine { quota_cores: Some(1.5), ..usual() },
            8,
            "cores",
            Note,
            &["1.5 of 8", "30 Gbit/s", "cpu.max"],
        );
        check(&Machine { quota_cores: Some(16.0), ..usual() }, 8, "cores", Good, &[]);
        check(&Machine { allowed_cores: 2, ..usual() }, 8, "cores", Note, &["2 of 8", "taskset"]);
        check(&Machine { has_aes: Some(false), ..usual() }, 8, "AES", Note, &["ChaCha20", "http://"]);
    }

    #[test]
    fn limits_that_are_too_low_for_the_settings() {
        let with = |soft, hard| Machine { open_files: Some(Limit { soft, hard }), ..usual() };
        check(&with(Some(1_024), Some(4_096)), 8, "open files", Good, &["--parallel 8"]);
        check(&with(Some(1_024), Some(4_096)), None, "open files", Good, &["enough for 480"]);
        check(&with(Some(256), Some(4_096)), None, "open files", Note, &["no more than 96", "ulimit -n"]);
        check(&with(Some(4_096), Some(4_096)), None, "open files", Good, &["enough for 512"]);
        check(&with(Some(20), Some(20)), None, "open files", Bad, &["so few"]);
        check(&with(Some(1_024), Some(4_096)), 500, "open files", Note, &["1064", "ulimit -n 4096"]);
        check(&with(Some(256), Some(4_096)), 256, "open files", Bad, &["288", "ulimit -n 4096"]);
        check(&with(Some(256), Some(256)), 256, "open files", Bad, &["as root", "LimitNOFILE="]);
        check(&with(None, None), 4_096, "open files", Good, &["unlimited"]);
        check(
            &Machine { available_bytes: 1 << 20, ..usual() },
            8,
            "memory",
            Note,
            &["1MiB free", "--memory"],
        );
        let small = Machine { memory_limit_bytes: Some(256 << 20), ..usual() };
        check(&small, 8, "memory", Note, &["256MiB of 32GiB"]);
        check(
            &Machine { huge_pages: Some("never".into()), ..usual() },
            8,
            "huge pages",
            Note,
            &["madvise >"],
        );
        check(
            &Machine { receive_bytes: Some(212_992), ..usual() },
            8,
            "TCP buffers",
            Note,
            &["208KiB", "tcp_rmem"],
        );
        check(&Machine { container: Some("Kubernetes"), ..usual() }, 8, "container", Good, &["Kubernetes"]);
    }

    #[test]
    fn folders() {
        let check = |file_system: &str, free_bytes: u64, level: Level, says: &str| {
            let (path, file_system) = ("/data".into(), file_system.to_owned());
            let finding =
                place(&WritableFolder { name: "here", path, file_system, free_bytes: Some(free_bytes) });
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(format!("{finding:?}").contains(says), "{finding:?} lacks {says}");
        };
        check("ext4", 1 << 40, Good, "/data on ext4, 1TiB free");
        check("", 1 << 40, Good, "unknown");
        check("tmpfs", 1 << 40, Good, "memory");
        check("nfs4", 1 << 40, Note, "local disk");
        check("fuse.ossfs", 1 << 40, Note, "local disk");
        check("overlay", 1 << 40, Note, "volume");
        check("ext4", 1 << 20, Note, "little room");
    }
}
