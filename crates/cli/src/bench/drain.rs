//! The far end of a measured stream: a process that reads its standard input and drops it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::stdout::PIPE_BYTES;
use crate::sys;

/// A pipe to a drain. Its CPU is its own process's, as that of whatever reads from `flatout cat` is.
pub struct Drain {
    process: Child,
}

impl Drain {
    /// Starts a drain and returns the end to write to.
    pub fn start() -> io::Result<(Drain, File)> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("__drain").stdin(Stdio::piped()).stdout(Stdio::null());
        sys::die_with_parent(&mut command);
        let mut process = command.spawn()?;
        let input: OwnedFd = process.stdin.take().expect("its standard input is piped").into();
        sys::widen_pipe(input.as_fd(), PIPE_BYTES);
        Ok((Drain { process }, File::from(input)))
    }

    /// Waits until it has read everything; the writing end must have been dropped.
    pub fn finish(mut self) -> io::Result<()> {
        self.process.wait().map(drop)
    }
}

/// The hidden command `__drain`.
pub fn drain() -> Result<Exit, Failure> {
    let failed = |error: io::Error| Failure::local("read", "standard input", &error);
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let mut scratch = vec![0; PIPE_BYTES];
    while input.read(&mut scratch).map_err(failed)? > 0 {}
    Ok(Exit::Clean)
}
