//! What control groups grant a process: the least of its own group and of those around it. Version 2, and 1
//! where that has the controller.

use std::fs;
use std::path::{Path, PathBuf};

/// What is granted; `None` is no limit, or none that can be seen from here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupLimits {
    /// Cores' worth of time.
    pub cores: Option<f64>,
    pub memory_bytes: Option<u64>,
}

impl GroupLimits {
    /// Of this process, by what stands under `root`.
    pub fn look(root: &Path) -> GroupLimits {
        let table = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let mut grants = GroupLimits::default();
        for line in table.lines() {
            let mut columns = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (columns.next(), columns.next(), columns.next())
            else {
                continue;
            };
            for controller in controllers.split(',') {
                let mounts = match controller {
                    "" => vec![root.join("sys/fs/cgroup"), root.join("sys/fs/cgroup/unified")],
                    "cpu" | "memory" => {
                        let names = [controllers, controller];
                        names.map(|name| root.join("sys/fs/cgroup").join(name)).into()
                    }
                    _ => continue,
                };
                for mount in mounts {
                    grants.take(&mount, path);
                }
            }
        }
        grants
    }

    /// The group and all around it, up to where the hierarchy is mounted. In a container that sees its own
    /// group as the root, the path may lead nowhere: then the root is its group.
    ///
    /// In a namespace of control groups the path begins at the namespace's own root, and of a process that
    /// was moved out of it since with `..`: what lies there cannot be seen.
    fn take(&mut self, mount: &Path, path: &str) {
        let path = if path.split('/').any(|name| name == "..") { "" } else { path };
        let own = mount.join(path.trim_start_matches('/'));
        for group in own.ancestors().take_while(|group| group.starts_with(mount)) {
            let group = GroupFolder(group.to_owned());
            self.cores = least(self.cores, group.cores());
            self.memory_bytes = least(self.memory_bytes, group.memory_bytes());
        }
    }
}

struct GroupFolder(PathBuf);

impl GroupFolder {
    /// Version 2 writes `QUOTA PERIOD` or `max PERIOD`, version 1 a file for each and -1.
    fn cores(&self) -> Option<f64> {
        let (quota, period) = match self.text("cpu.max") {
            Some(both) => {
                let (quota, period) = both.split_once(' ')?;
                (quota.to_owned(), period.to_owned())
            }
            None => (self.text("cpu.cfs_quota_us")?, self.text("cpu.cfs_period_us")?),
        };
        let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    }

    /// Version 2 writes bytes or `max`, to `memory.high` where it slows down who takes more; version 1 bytes,
    /// with a number beyond any machine for no limit, and with the least on the path to its root, of which a
    /// container may not see the rest.
    fn memory_bytes(&self) -> Option<u64> {
        let number = |file: &str| self.text(file)?.parse().ok();
        let around = self.text("memory.stat").and_then(|stat| {
            let line = stat.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?;
            line.parse().ok()
        });
        let numbers = [number("memory.max"), number("memory.high"), number("memory.limit_in_bytes"), around];
        numbers.into_iter().fold(None, least)
    }

    fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.0.join(file)).ok().map(|text| text.trim().to_owned())
    }
}

fn least<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other < one { other } else { one }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], cores: Option<f64>, memory_bytes: Option<u64>) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(GroupLimits::look(folder.path()), GroupLimits { cores, memory_bytes }, "{files:?}");
    }

    #[test]
    fn the_least_around_counts() {
        check(
            &[
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.max", "4096\n"),
            ],
            Some(2.5),
            Some(4096),
        );
    }

    #[test]
    fn version_1_has_a_folder_for_each_controller() {
        check(
            &[
                ("proc/self/cgroup", "4:memory:/x\n2:cpu,cpuacct:/x\n0::/\n"),
                ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1048576\n"),
            ],
            Some(0.5),
            Some(1_048_576),
        );
        check(
            &[
                ("proc/self/cgroup", "4:memory:/docker/1\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                (
                    "sys/fs/cgroup/memory/memory.stat",
                    "cache 1\nhierarchical_memory_limit 4096\ntotal_cache 1\n",
                ),
            ],
            None,
            Some(4096),
        );
    }

    #[test]
    fn where_a_group_is_slowed_down_it_is_full() {
        check(
            &[
                ("proc/self/cgroup", "0::/a\n"),
                ("sys/fs/cgroup/a/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.high", "8192\n"),
                ("sys/fs/cgroup/memory.max", "16384\n"),
            ],
            None,
            Some(8192),
        );
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        check(
            &[("proc/self/cgroup", "0::/kubepods/pod1\n"), ("sys/fs/cgroup/cpu.max", "400000 100000\n")],
            Some(4.0),
            None,
        );
        check(
            &[
                ("proc/self/cgroup", "0::/../other\n"),
                ("sys/fs/cgroup/memory.max", "8192\n"),
                ("sys/fs/other/memory.max", "4096\n"),
            ],
            None,
            Some(8192),
        );
        check(&[], None, None);
        check(&[("proc/self/cgroup", "nonsense\n0::/\n"), ("sys/fs/cgroup/cpu.max", "x\n")], None, None);
    }
}
