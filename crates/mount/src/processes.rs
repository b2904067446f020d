//! Whose request it is: a thread's process, and whether a signal has ended it (proc_pid_status(5),
//! proc_pid_stat(5)).

use flatout_tree::Process;
use rustix::process::Signal;

/// The position of `exit_code` among the fields of /proc/PID/stat behind the name, of which `state` is the
/// first.
const EXIT_CODE: usize = 49;

/// What is known of the process of a thread. Nothing of one that is gone.
///
/// The thread may wait for the answer to a request within execve(2), which closes files, and hold a lock then
/// that /proc/PID/stat waits for (`exec_update_lock` in fs/exec.c): only `status` may be read. A process that
/// has no memory any more is on its way out, and executes nothing.
pub(crate) fn look(thread: u32) -> Process {
    if thread == 0 {
        return Process::default();
    }
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{thread}/{name}")).ok();
    let Some(status) = read("status") else { return Process::default() };
    let ends = !status.contains(MEMORY);
    let is_killed = ends && read("stat").and_then(|stat| exit_code(&stat)).is_some_and(is_abrupt);
    Process { id: group(&status).unwrap_or(0), is_killed }
}

fn group(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// A line of /proc/PID/status that a process with memory has.
const MEMORY: &str = "\nVmSize:";

/// As of wait(2); 0 of a process that runs.
fn exit_code(stat: &str) -> Option<i32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(EXIT_CODE)?.parse().ok()
}

/// Whether a process has ended by a signal that says nothing of its work: SIGKILL, or one of those that dump
/// core. Whoever is told to end by another, such as a logger, has written what it wanted to write.
fn is_abrupt(exit_code: i32) -> bool {
    let dumps = [
        Signal::KILL,
        Signal::QUIT,
        Signal::ILL,
        Signal::TRAP,
        Signal::ABORT,
        Signal::BUS,
        Signal::FPE,
        Signal::SEGV,
        Signal::SYS,
        Signal::XCPU,
        Signal::XFSZ,
    ];
    let signal = exit_code & 0x7f;
    dumps.iter().any(|dump| dump.as_raw() == signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_tells_its_process() {
        let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let own = Process { id: std::process::id(), is_killed: false };
        assert_eq!(look(rustix::thread::gettid().as_raw_nonzero().get() as u32), own);
        assert_eq!(look(0), Process::default());
        let gone = thread.join().unwrap();
        assert!([Process::default(), own].contains(&look(gone)));
    }

    #[test]
    fn a_name_with_blanks_and_brackets_hides_nothing() {
        let fields = |code: i32| {
            let zeros = vec!["0"; EXIT_CODE - 1].join(" ");
            format!("7 (a) b (c) R {zeros} {code}\n")
        };
        assert_eq!(exit_code(&fields(9)), Some(9));
        assert_eq!(exit_code("7 (x) R 1 2"), None);
        let ends = [0, 1 << 8, 9, 15, 2, 13, 11, 11 | 0x80, 6, 3].map(is_abrupt);
        assert_eq!(ends, [false, false, true, false, false, false, true, true, true, true]);
        assert_eq!(group("Name:\tx\nTgid:\t42\nPid:\t43\n"), Some(42));
    }
}
