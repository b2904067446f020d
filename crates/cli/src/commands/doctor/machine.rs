//! Facts about this machine, as the kernel tells them under /proc and /sys. Nothing is judged here; what is
//! not told is `None`.

use std::fs;
use std::path::{Path, PathBuf};

use flatout_ambient::GroupLimits;

/// What transfers run on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    pub kernel: String,
    /// The processor's name; empty where the kernel has none.
    pub cpu: String,
    /// Cores that are switched on.
    pub cores: u32,
    /// Those of them that this process may run on.
    pub allowed_cores: u32,
    /// How many cores' worth of time the control group grants.
    pub quota_cores: Option<f64>,
    /// Whether the processor has instructions for AES.
    pub has_aes: Option<bool>,
    pub memory_bytes: u64,
    pub available_bytes: u64,
    /// What the control group grants.
    pub memory_limit_bytes: Option<u64>,
    pub open_files: Option<Limit>,
    pub locked_bytes: Option<Limit>,
    /// `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// How far the kernel lets the receive buffer of a TCP connection grow.
    pub receive_bytes: Option<u64>,
    /// The congestion control of what is sent.
    pub congestion: Option<String>,
    /// What kind of container this is.
    pub container: Option<&'static str>,
}

/// A limit of the process; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// A folder that files may be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritableFolder {
    /// `current folder`
    pub name: &'static str,
    pub path: PathBuf,
    /// `ext4`; empty where it is not known.
    pub file_system: String,
    pub free_bytes: Option<u64>,
}

impl Machine {
    /// Looks under `root`, which is `/` but in tests.
    pub fn look(root: &Path) -> Machine {
        let (cpuinfo, meminfo) = (read(root, "proc/cpuinfo"), read(root, "proc/meminfo"));
        let (status, limits) = (read(root, "proc/self/status"), read(root, "proc/self/limits"));
        let groups = GroupLimits::look(root);
        let memory_bytes = kib(&meminfo, "MemTotal");
        let cores = list_length(&read(root, "sys/devices/system/cpu/online"));
        let allowed = field(&status, "Cpus_allowed_list").map_or(0, |list| list_length(&list));
        Machine {
            kernel: read(root, "proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: field(&cpuinfo, "model name").unwrap_or_default(),
            cores,
            allowed_cores: if allowed == 0 { cores } else { allowed.min(cores.max(1)) },
            quota_cores: groups.cores,
            has_aes: has_aes(&cpuinfo),
            memory_bytes,
            available_bytes: kib(&meminfo, "MemAvailable"),
            // Where nothing is granted, the number is larger than any machine.
            memory_limit_bytes: groups.memory_bytes.filter(|bytes| *bytes < memory_bytes),
            open_files: limit(&limits, "Max open files"),
            locked_bytes: limit(&limits, "Max locked memory"),
            huge_pages: chosen(&read(root, "sys/kernel/mm/transparent_hugepage/enabled")),
            receive_bytes: last_number(&read(root, "proc/sys/net/ipv4/tcp_rmem")),
            congestion: some(read(root, "proc/sys/net/ipv4/tcp_congestion_control").trim()),
            container: container(root),
        }
    }

    /// How many cores' worth of work it can do for this process.
    pub fn usable_cores(&self) -> f64 {
        let allowed = f64::from(self.allowed_cores.max(1));
        self.quota_cores.map_or(allowed, |quota| quota.min(allowed))
    }

    /// What may still be taken, by the control group or by the machine.
    pub fn usable_memory_bytes(&self) -> u64 {
        self.memory_limit_bytes.map_or(self.available_bytes, |limit| limit.min(self.available_bytes))
    }
}

impl WritableFolder {
    /// `root` is where the table of mounts is; the folder is this machine's.
    pub fn look(root: &Path, name: &'static str, path: PathBuf) -> WritableFolder {
        let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
        let file_system = file_system(&read(root, "proc/self/mounts"), &whole).unwrap_or_default();
        let free_bytes = rustix::fs::statvfs(&path).ok().map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        WritableFolder { name, path, file_system, free_bytes }
    }
}

/// The seconds that all cores together have worked and been idle since the machine started, in ticks.
pub fn ticks(root: &Path) -> Option<(u64, u64)> {
    let stat = read(root, "proc/stat");
    let numbers: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in user already.
    let all: u64 = numbers.iter().take(8).sum();
    let idle = numbers.get(3)? + numbers.get(4)?;
    Some((all - idle, all))
}

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

/// The value of the first line `NAME : VALUE`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn kib(meminfo: &str, name: &str) -> u64 {
    let value = field(meminfo, name).unwrap_or_default();
    value.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
}

/// How many numbers a list as `0-3,8` holds.
fn list_length(list: &str) -> u32 {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)
    });
    ranges.map(|more| more + 1).sum()
}

/// x86 lists `flags`, Arm `Features`.
fn has_aes(cpuinfo: &str) -> Option<bool> {
    let flags = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features"))?;
    Some(flags.split_whitespace().any(|flag| flag == "aes"))
}

/// `Max open files   1024   524288   files`
fn limit(limits: &str, name: &str) -> Option<Limit> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = rest.split_whitespace();
    let mut next = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Limit { soft: next()?, hard: next()? })
}

/// `always [madvise] never`
fn chosen(choices: &str) -> Option<String> {
    some(choices.split_once('[')?.1.split_once(']')?.0)
}

fn last_number(line: &str) -> Option<u64> {
    line.split_whitespace().last()?.parse().ok()
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// What container tools leave in a container's own file system.
fn container(root: &Path) -> Option<&'static str> {
    let there = |path: &str| root.join(path).exists();
    let root_is_layered =
        || read(root, "proc/self/mounts").lines().any(|line| line.starts_with("overlay / overlay "));
    match () {
        () if there("var/run/secrets/kubernetes.io") => Some("Kubernetes"),
        () if there(".dockerenv") => Some("Docker"),
        () if there("run/.containerenv") => Some("Podman"),
        () if root_is_layered() => Some("a container"),
        () => None,
    }
}

/// The type of what is mounted nearest above `path`.
fn file_system(mounts: &str, path: &Path) -> Option<String> {
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        // Blanks in names are written as in octal numbers of C.
        let on = PathBuf::from(words.next()?.replace("\\040", " "));
        Some((on, words.next()?)).filter(|(on, _)| path.starts_with(on))
    });
    // Of what is mounted on the same place, the last is seen.
    mounted.max_by_key(|(on, _)| on.components().count()).map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of files as the kernel has them.
    pub fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_machine_tells_what_it_is() {
        let tree = tree(&[
            ("proc/sys/kernel/osrelease", "6.18.44\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU: fast\nflags\t\t: fpu aes avx\n"),
            ("proc/meminfo", "MemTotal:       24641536 kB\nMemAvailable:   1048576 kB\n"),
            ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-2,5\n"),
            (
                "proc/self/limits",
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max open files            1024                 unlimited            files     \n\
                 Max locked memory         8388608              8388608              bytes     \n",
            ),
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
            ("proc/self/cgroup", "0::/pod/x\n"),
            ("sys/fs/cgroup/pod/x/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/pod/memory.max", "1073741824\n"),
            (".dockerenv", ""),
        ]);
        let machine = Machine::look(tree.path());
        assert_eq!(
            machine,
            Machine {
                kernel: "6.18.44".into(),
                cpu: "A CPU: fast".into(),
                cores: 8,
                allowed_cores: 4,
                quota_cores: Some(1.5),
                has_aes: Some(true),
                memory_bytes: 24_641_536 << 10,
                available_bytes: 1 << 30,
                memory_limit_bytes: Some(1 << 30),
                open_files: Some(Limit { soft: Some(1024), hard: None }),
                locked_bytes: Some(Limit { soft: Some(8 << 20), hard: Some(8 << 20) }),
                huge_pages: Some("madvise".into()),
                receive_bytes: Some(6_291_456),
                congestion: Some("cubic".into()),
                container: Some("Docker"),
            }
        );
        assert_eq!(machine.usable_cores(), 1.5);
    }

    #[test]
    fn a_kernel_that_tells_nothing_is_no_error() {
        let empty = tree(&[("proc/stat", "cpu  x\n")]);
        let machine = Machine::look(empty.path());
        assert_eq!((machine.cores, machine.open_files, machine.has_aes), (0, None, None));
        assert_eq!(machine.usable_cores(), 1.0);
        assert_eq!(ticks(empty.path()), None);
    }

    #[test]
    fn this_machine_tells_the_most_of_it() {
        let machine = Machine::look(Path::new("/"));
        assert!(machine.cores >= 1 && machine.allowed_cores >= 1 && machine.memory_bytes > 0, "{machine:?}");
        assert!(machine.open_files.is_some() && !machine.kernel.is_empty(), "{machine:?}");
        assert!(ticks(Path::new("/")).is_some_and(|(busy, all)| busy <= all && all > 0));
        let here = WritableFolder::look(Path::new("/"), "current folder", std::env::current_dir().unwrap());
        assert!(here.free_bytes.is_some() && !here.file_system.is_empty(), "{here:?}");
    }

    #[test]
    fn lists_limits_and_mounts() {
        for (list, length) in [("0-3,8", 5), ("0", 1), ("", 0), ("3-1", 0), ("0-3,x", 4)] {
            assert_eq!(list_length(list), length, "{list}");
        }
        assert_eq!(limit("Max open files  x y", "Max open files"), None);
        assert_eq!(chosen("always madvise never"), None);
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /data tmpfs rw 0 0\nserver:/x /data nfs4 rw 0 0\n\
                      /dev/vdb /my\\040disk xfs rw 0 0\n";
        let check = |path: &str, kind: &str| {
            assert_eq!(file_system(mounts, Path::new(path)).as_deref(), Some(kind), "{path}");
        };
        check("/home/me", "ext4");
        check("/data/sets", "nfs4");
        check("/database", "ext4");
        check("/my disk/x", "xfs");
    }
}
