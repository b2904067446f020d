//! A mount in the background: the program starts itself again in a session of its own, and waits until that
//! process reports.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::supervise::launch::behind_command;
use crate::args::Mount;
use crate::console::Console;
use crate::events::Mounted;
use crate::failure::Failure;

/// The report of the process in the background: one line on its standard output, before it lets go of that.
#[derive(Serialize, Deserialize)]
pub enum BackgroundReport {
    Stands(Mounted),
    Failed(Failure),
}

/// Starts the same command line again, in the background.
///
/// # Errors
/// The failure of that process; or it could not be started, or ended without a report.
pub fn start(args: &Mount, console: &Console) -> Result<Mounted, Failure> {
    let refused = |error: &io::Error| Failure::local("mount", "the process in the background", error);
    let program = std::env::current_exe().map_err(|error| refused(&error))?;
    let mut arguments: Vec<_> = std::env::args_os().collect();
    if let Some(line) = super::helper::command_line(&arguments) {
        arguments = line;
    }
    let behind = behind_command(&arguments);
    arguments.insert(behind, "--__reports".into());
    arguments.splice(behind..behind, args.hidden());
    // Armed before there is anything to end: a signal now ends that process, too.
    let armed = console.interrupt.arm();
    let start = |program: &Path| {
        let mut command = Command::new(program);
        command.args(&arguments[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
    };
    // A user whom root has started it as may not reach it by its path. The link's name would be that of the
    // process.
    let child = start(&program).or_else(|unreached| match unreached.kind() {
        io::ErrorKind::PermissionDenied => start(Path::new("/proc/self/exe")),
        _ => Err(unreached),
    });
    let mut child = child.map_err(|error| refused(&error))?;
    let out = child.stdout.take().expect("it was asked for");
    let child = Arc::new(Mutex::new(child));
    let ended = child.clone();
    armed.on_signal(move || {
        // It unmounts if it has mounted by then.
        crate::sys::terminate(lock(&ended).id());
    });
    let mut line = String::new();
    let read = BufReader::new(out).read_line(&mut line);
    if console.interrupt.raised() {
        let _ = lock(&child).wait();
        return Err(Failure::interrupted("mount: interrupted"));
    }
    match read.ok().and_then(|_| serde_json::from_str(&line).ok()) {
        Some(BackgroundReport::Stands(mounted)) => Ok(mounted),
        Some(BackgroundReport::Failed(failure)) => Err(failure),
        None => {
            let how = lock(&child).wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(Failure::internal(format!(
                "mount: the process in the background ended without a word: {how}"
            ))
            .with_hint("--foreground shows what it says"))
        }
    }
}

fn lock(child: &Mutex<Child>) -> std::sync::MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves the terminal's session. The process in the background calls this before anything else.
pub fn leave_session() {
    // A leader of a process group, such as a shell's job, needs no session of its own.
    let _ = rustix::process::setsid();
}

/// Reports to the process that started this one.
pub fn report(report: &BackgroundReport) {
    let line = serde_json::to_string(report).expect("reports are maps with text for keys");
    // That process may have gone meanwhile: the mount stands all the same.
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Lets go of the terminal, pipe or log that the process was started in, so that no process waits for its
/// end, and of the folder, so that it can be unmounted. Standard error, such as a panic's message, goes to
/// `log` from here on.
///
/// # Errors
/// The kernel's own.
pub fn let_go(log: Option<&File>) -> io::Result<()> {
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(log.unwrap_or(&nowhere))?;
    std::env::set_current_dir(Path::new("/"))
}
