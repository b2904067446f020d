//! The machine that measured, as a report describes it.

use std::fs;
use std::thread;

use serde::Serialize;

/// What figures depend on. Empty or 0 where the kernel does not say.
#[derive(Serialize)]
pub struct Machine {
    cpu: String,
    cores: usize,
    memory_gib: f64,
    kernel: String,
}

impl Machine {
    pub fn this() -> Machine {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Machine {
            cpu: field(&read("/proc/cpuinfo"), "model name")
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: thread::available_parallelism().map_or(0, usize::from),
            memory_gib: memory_gib(&read("/proc/meminfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

/// `MemTotal: 24610036 kB`, to a tenth.
fn memory_gib(meminfo: &str) -> f64 {
    let total = field(meminfo, "MemTotal").unwrap_or_default();
    let kib: f64 = total.trim_end_matches(" kB").parse().unwrap_or(0.0);
    (kib / f64::from(1 << 20) * 10.0).round() / 10.0
}

/// The value of the first line `NAME : VALUE`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = pairs.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU: fast\nprocessor\t: 1\nmodel name\t: Another\n";
        assert_eq!(field(cpuinfo, "model name").as_deref(), Some("A CPU: fast"));
        assert_eq!(field(cpuinfo, "name"), None);
        assert_eq!(memory_gib("MemTotal:       24641536 kB\nMemFree: 1 kB\n"), 23.5);
        assert_eq!(memory_gib(""), 0.0);
    }
}
