//! A run of the program, with whatever it starts in a group of its own.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::table::Work;
use crate::program::signal;

/// Longer than any run takes, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a run ended.
pub struct Run {
    command: String,
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub took: Duration,
    /// A process that it started is there still.
    pub left_processes: bool,
}

/// Runs it to its end, with this as its input; one that hangs is ended, and has no code.
pub fn run(command: &mut Command, work: Work, input: Option<File>) -> Run {
    command
        .stdin(input.map_or_else(Stdio::piped, Stdio::from))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let begun = Instant::now();
    let mut child = command.spawn().expect("the program starts");
    let id = child.id();
    if matches!(work, Work::Memory | Work::Nowhere) {
        // One that failed before it was ready has closed the pipe.
        let _ = child.stdin.as_mut().expect("it is piped").write_all(b"go\n");
    }
    let (ended, end) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            signal("KILL", id);
        }
    });
    let output = child.wait_with_output().expect("the program can be waited for");
    let took = begun.elapsed();
    drop(ended);
    watchdog.join().expect("the watchdog ends");
    Run {
        command: shown(command),
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).expect("errors are text"),
        took,
        left_processes: is_there(id),
    }
}

/// As one would type it, but for the keys.
fn shown(command: &Command) -> String {
    let words = command.get_args().map(|word| word.to_string_lossy());
    words.fold("flatout".to_owned(), |line, word| line + " " + &word)
}

/// Whether a process of that group is there still.
fn is_there(group: u32) -> bool {
    let is_of_group = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name in parentheses: state, parent, group.
        let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let (state, found) = (words.next()?, words.nth(1)?);
        Some(state != "Z" && found.parse() == Ok(group))
    };
    let mut processes = fs::read_dir("/proc").expect("Linux has /proc").filter_map(Result::ok);
    processes.any(|entry| is_of_group(entry) == Some(true))
}

impl Run {
    /// All that it said; an object's bytes are no words.
    pub fn said(&self) -> String {
        let words = std::str::from_utf8(&self.stdout).unwrap_or_default();
        format!("{words}{}", self.stderr)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { command, code, stdout, stderr, .. } = self;
        let text = match std::str::from_utf8(stdout) {
            Ok(text) if text.len() < 2_000 => text.to_owned(),
            _ => format!("{} bytes", stdout.len()),
        };
        writeln!(out, "  {command}\n  exit {code:?}, standard output: {text}\n  standard error: {stderr}")
    }
}
