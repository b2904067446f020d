//! How much memory may be taken where no setting says: a share of what control group or machine have.

use std::fs;
use std::path::Path;

use flatout_settings::format_size;

use crate::cgroup::GroupLimits;
use crate::found::FoundSetting;

/// A quarter: there are others on the machine, and the page cache that files are written through needs room,
/// too.
const SHARE: u64 = 4;
const LEAST_BYTES: u64 = 256 << 20;
const MOST_BYTES: u64 = 8 << 30;

/// The value of `memory` by what stands under `root`, which is `/` but in tests; `None` where the kernel
/// tells nothing.
pub(crate) fn look(root: &Path) -> Option<FoundSetting> {
    let machine_bytes = total_bytes(&fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default());
    let (bytes, place) = share(GroupLimits::look(root).memory_bytes, machine_bytes)?;
    // In whole MiB, so that the text is exact.
    Some(FoundSetting { knob: "memory", value: format!("{}MiB", bytes >> 20), place })
}

/// The share of the smaller of the two, and in words of what.
fn share(granted: Option<u64>, machine: Option<u64>) -> Option<(u64, String)> {
    let (of, whose) = match (granted, machine) {
        (Some(granted), None) => (granted, "the control group"),
        (Some(granted), Some(machine)) if granted < machine => (granted, "the control group"),
        (_, machine) => (machine?, "the machine"),
    };
    let bytes = (of / SHARE).clamp(LEAST_BYTES, MOST_BYTES);
    let what = match bytes {
        LEAST_BYTES => "the least, of",
        MOST_BYTES => "the most, of",
        _ => "a quarter of",
    };
    Some((bytes, format!("{what} {whose}'s {}", format_size(of))))
}

/// `MemTotal:       24641536 kB`
fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_quarter_within_bounds() {
        let check = |granted: Option<u64>, machine: Option<u64>, expected: Option<(u64, &str)>| {
            let expected = expected.map(|(mib, place)| (mib << 20, place.to_owned()));
            assert_eq!(share(granted, machine), expected, "{granted:?} {machine:?}");
        };
        check(None, Some(24 * GIB), Some((6 << 10, "a quarter of the machine's 24GiB")));
        check(Some(2 * GIB), Some(24 * GIB), Some((512, "a quarter of the control group's 2GiB")));
        check(Some(512 << 20), Some(24 * GIB), Some((256, "the least, of the control group's 512MiB")));
        check(Some(GIB), Some(24 * GIB), Some((256, "the least, of the control group's 1GiB")));
        check(None, Some(512 * GIB), Some((8 << 10, "the most, of the machine's 512GiB")));
        // Version 1 writes a number beyond any machine where there is no limit.
        check(Some(u64::MAX / 2), Some(8 * GIB), Some((2 << 10, "a quarter of the machine's 8GiB")));
        check(Some(8 * GIB), None, Some((2 << 10, "a quarter of the control group's 8GiB")));
        check(None, None, None);
    }

    #[test]
    fn a_tree_tells_it() {
        let check = |files: &[(&str, &str)], expected: Option<&str>| {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            assert_eq!(look(folder.path()).map(|found| found.value).as_deref(), expected, "{files:?}");
        };
        let meminfo = ("proc/meminfo", "MemFree: 1 kB\nMemTotal:       24641537 kB\n");
        check(&[meminfo], Some("6016MiB"));
        let group = ("proc/self/cgroup", "0::/pod/x\n");
        check(&[meminfo, group, ("sys/fs/cgroup/pod/memory.max", "4294967296\n")], Some("1024MiB"));
        check(&[("proc/meminfo", "MemTotal: many\n")], None);
        check(&[], None);
    }
}
