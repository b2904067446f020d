//! Standard output as plain large writes: no line buffer, no lock, a wide pipe, and no silence about one that is closed.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use crate::failure::Failure;
use crate::sys;

/// What an unprivileged process may ask for by default (`/proc/sys/fs/pipe-max-size`).
pub const PIPE_BYTES: u32 = 1 << 20;

/// Standard output without std's buffer, and without its rule that a write to a closed one succeeds.
pub struct Out;

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// To be called first. A program that is started without a standard output (`>&-`) finds /dev/null open for reading and
/// writing in its place, which std puts there: all that is written would be lost, and nobody told. Open for reading alone,
/// it keeps other files from that number, and each write fails as it would on the closed one.
pub fn keep_closed() {
    if !sys::started_with_stdout()
        && let Ok(nowhere) = File::open("/dev/null")
    {
        // Where that fails too, `check` still knows.
        let _ = rustix::stdio::dup2_stdout(&nowhere);
    }
}

/// For whoever has something to write there.
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
