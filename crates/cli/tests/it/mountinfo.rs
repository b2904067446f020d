//! What is mounted, as the kernel has it: nobody is asked who might not answer. It is no part of the program,
//! which it checks.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mount points at a folder and below, the oldest first.
pub fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let table = fs::read("/proc/thread-self/mountinfo").unwrap();
    // `36 35 98:0 /root /mnt/point …`, a blank as `\040`.
    let point = |line: &[u8]| Some(plain(line.split(|byte| *byte == b' ').nth(4)?));
    let points = table.split(|byte| *byte == b'\n').filter_map(point);
    points.filter(|point| point.starts_with(folder)).collect()
}

pub fn is_mounted(point: &Path) -> bool {
    mounts_below(point).iter().any(|mounted| mounted == point)
}

/// Gives this thread a mount namespace of its own, which the processes that it starts inherit. The mounts in
/// it end with the last of them.
pub fn keep_mounts_from_others() {
    // SAFETY: it takes no pointer, and other threads keep the namespace that they have.
    let own = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    assert_eq!(own, 0, "{}", std::io::Error::last_os_error());
    let private = Command::new("mount").args(["--make-rprivate", "/"]).status();
    assert!(private.unwrap().success());
}

fn plain(word: &[u8]) -> PathBuf {
    let mut pieces = word.split(|byte| *byte == b'\\');
    let mut bytes = pieces.next().unwrap_or_default().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at(3);
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 8).unwrap());
        bytes.extend_from_slice(rest);
    }
    PathBuf::from(OsString::from_vec(bytes))
}
