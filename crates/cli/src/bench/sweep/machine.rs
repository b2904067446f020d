//! The machine that measured, as a report describes it.

use std::path::Path;

use serde::Serialize;

use crate::commands::doctor::machine::Machine as Facts;

/// What figures depend on. Empty or 0 where the kernel does not say.
#[derive(Serialize)]
pub struct MachineFacts {
    cpu: String,
    /// As many as their time may be used of, by the process's mask and its control group.
    cores: usize,
    memory_gib: f64,
    kernel: String,
}

impl MachineFacts {
    pub fn this() -> MachineFacts {
        MachineFacts::from(Facts::look(Path::new("/")))
    }
}

impl From<Facts> for MachineFacts {
    fn from(facts: Facts) -> MachineFacts {
        MachineFacts {
            cores: (facts.usable_cores() as usize).max(1),
            cpu: if facts.cpu.is_empty() { std::env::consts::ARCH.to_owned() } else { facts.cpu },
            // To a tenth.
            memory_gib: (facts.memory_bytes as f64 / f64::from(1 << 30) * 10.0).round() / 10.0,
            kernel: facts.kernel,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_what_the_doctor_saw() {
        let check = |facts: Facts, cpu: &str, cores: usize, memory_gib: f64| {
            let machine = MachineFacts::from(facts);
            assert_eq!((machine.cpu.as_str(), machine.cores, machine.memory_gib), (cpu, cores, memory_gib));
        };
        let facts = Facts {
            cpu: "A CPU: fast".into(),
            allowed_cores: 4,
            memory_bytes: 24_641_536 << 10,
            ..Facts::default()
        };
        check(facts.clone(), "A CPU: fast", 4, 23.5);
        check(Facts { quota_cores: Some(1.5), ..facts.clone() }, "A CPU: fast", 1, 23.5);
        check(Facts { quota_cores: Some(0.5), ..facts }, "A CPU: fast", 1, 23.5);
        check(Facts::default(), std::env::consts::ARCH, 1, 0.0);
    }
}
