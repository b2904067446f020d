//! Standard output as plain large writes: no line buffer, no lock, a wide pipe.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use crate::sys;

/// What an unprivileged process may ask for by default (`/proc/sys/fs/pipe-max-size`).
pub const PIPE_BYTES: u32 = 1 << 20;

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
