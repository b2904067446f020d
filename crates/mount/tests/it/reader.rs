//! Programs that read from a mount, and are gone when the test is over.

use std::process::{Child, Command, Stdio};

use crate::held::{Held, until};

/// A reader in a process of its own; killed when the test fails.
pub struct Reader(pub Child);

impl Reader {
    pub fn of(held: &Held, script: &str) -> Reader {
        let mut command = Command::new("sh");
        let child = command.arg("-c").arg(script).current_dir("/").env("POINT", held.point());
        Reader(child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end, not longer than a hang guard.
    #[track_caller]
    pub fn end(&mut self) -> std::process::ExitStatus {
        until(|| self.0.try_wait().unwrap())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}
