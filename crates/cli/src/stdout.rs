//! Standard output as plain large writes: no line buffer, no lock, a wide pipe, and no silence about one that
//! is closed.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use crate::failure::Failure;
use crate::sys;

/// What an unprivileged process may ask for by default (`/proc/sys/fs/pipe-max-size`).
pub const PIPE_BYTES: usize = 1 << 20;

/// Standard output without std's buffer, and without its rule that a write to a closed one succeeds.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// To be called first. When standard output is closed (`>&-`), std opens /dev/null for reading and writing in
/// its place, and output would be lost without an error. This opens it for reading only: no other file gets
/// descriptor 1, and each write fails as it would on a closed descriptor.
pub fn keep_closed() {
    if !sys::started_with_stdout()
        && let Ok(nowhere) = File::open("/dev/null")
    {
        // Where that fails too, `check` still knows.
        let _ = rustix::stdio::dup2_stdout(&nowhere);
    }
}

/// To be called before something is written there.
///
/// # Errors
/// The program was started without one.
pub fn check() -> Result<(), Failure> {
    match sys::started_with_stdout() {
        true => Ok(()),
        false => Err(Failure::stdout(&rustix::io::Errno::BADF.into())),
    }
}

/// The descriptor itself, past the buffer that std puts in front of it.
pub fn raw() -> io::Result<File> {
    let descriptor = io::stdout().as_fd().try_clone_to_owned()?;
    sys::widen_pipe(descriptor.as_fd(), PIPE_BYTES);
    Ok(File::from(descriptor))
}

/// Writes everything, going on after a signal.
pub fn write(out: &mut File, chunk: &[u8]) -> io::Result<()> {
    out.write_all(chunk)
}
