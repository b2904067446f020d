//! What is mounted where and how. Options have the names that mount(8) uses, and are checked before anything
//! is mounted.

use std::path::PathBuf;

use flatout_engine::{Error, ErrorKind};
use rustix::mount::MountFlags;

/// What the type is called in /proc/mounts.
pub(crate) const TYPE: &str = "fuse.flatout";

/// What is mounted where, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The source in /proc/mounts; without secrets.
    pub source: String,
    /// An empty folder; or `/dev/fd/N` or `/proc/self/fd/N`, a connection that another process has opened and
    /// mounted for this one.
    pub mount_point: PathBuf,
    /// Users other than the mounting one have access.
    pub allow_other: bool,
    /// The kernel checks modes and owners; without this, every user with access may read.
    pub default_permissions: bool,
    /// Threads that read requests; 0: as many as cores, 2 to 16.
    pub threads: u32,
    /// How many readahead requests may be pending.
    pub max_background: u16,
    /// How far the kernel reads ahead in an open file, in bytes. Only root may set more than the kernel's own
    /// 128 KiB. `None`: the kernel's own.
    pub read_ahead_bytes: Option<u64>,
    /// `ro`, `noexec`, `relatime` and the like, and `nonempty`.
    pub options: Vec<String>,
    /// The root has one file, [`crate::IMAGE_NAME`], and the mount point gets the EROFS image that it is.
    pub image: Option<ImageOptions>,
}

/// How an image is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageOptions {
    /// Data bypass the page cache of the connection: they are kept once, by EROFS.
    pub direct: bool,
    /// The mount point has an older image with this device number, which this one takes out of sight. Files
    /// of it that are open stay as they are.
    pub replaces: Option<(u32, u32)>,
}

/// The kernel refuses whatever would write.
const READ_ONLY: &str = "ro";

impl Options {
    /// `source` at `mount_point`, with the usual values for the rest.
    pub fn new(source: impl Into<String>, mount_point: impl Into<PathBuf>) -> Options {
        Options {
            source: source.into(),
            mount_point: mount_point.into(),
            allow_other: false,
            default_permissions: true,
            threads: 0,
            max_background: 128,
            read_ahead_bytes: Some(4 << 20),
            options: Vec::new(),
            image: None,
        }
    }

    /// Whether files can be written.
    pub(crate) fn writes(&self) -> bool {
        !self.options.iter().any(|option| option == READ_ONLY)
    }

    /// How many threads read requests.
    pub(crate) fn reading_threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 16),
            threads => threads as usize,
        }
    }
}

/// The options of mount(8) that the kernel knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelOptions {
    /// For mount(2).
    pub flags: MountFlags,
    /// For fusermount3.
    pub names: Vec<&'static str>,
    /// The folder need not be empty.
    pub nonempty: bool,
}

/// Name, the flags that it sets, the flags that it clears.
const KNOWN: &[(&str, MountFlags, MountFlags)] = &[
    (READ_ONLY, MountFlags::RDONLY, MountFlags::empty()),
    ("nosuid", MountFlags::NOSUID, MountFlags::empty()),
    ("suid", MountFlags::empty(), MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV, MountFlags::empty()),
    ("dev", MountFlags::empty(), MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC, MountFlags::empty()),
    ("exec", MountFlags::empty(), MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME, MountFlags::RELATIME),
    ("relatime", MountFlags::RELATIME, MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME, MountFlags::empty()),
    ("sync", MountFlags::SYNCHRONOUS, MountFlags::empty()),
    ("async", MountFlags::empty(), MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC, MountFlags::empty()),
];

/// The names as flags. A mount is `nosuid`, `nodev` and `noatime` unless they say otherwise, because an
/// origin must not grant rights, and has no access times.
pub(crate) fn kernel_options(options: &[String]) -> Result<KernelOptions, Error> {
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    let mut nonempty = false;
    for option in options {
        if option == "nonempty" {
            nonempty = true;
            continue;
        }
        let Some((_, sets, takes)) = KNOWN.iter().find(|(name, ..)| name == option) else {
            let known: Vec<&str> = KNOWN.iter().map(|row| row.0).collect();
            return Err(Error::new(ErrorKind::Usage, format!("`{option}` is no option of a mount"))
                .with_hint(format!("write one of {}, nonempty", known.join(", "))));
        };
        flags = flags.difference(*takes).union(*sets);
    }
    let names = KNOWN.iter().filter(|(_, sets, _)| !sets.is_empty() && flags.contains(*sets));
    Ok(KernelOptions { flags, names: names.map(|row| row.0).collect(), nonempty })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(options: &[&str], want: &str) {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let said = match kernel_options(&options) {
            Ok(kernel) => kernel.names.join(","),
            Err(error) => error.to_string(),
        };
        assert_eq!(said, want, "{options:?}");
    }

    #[test]
    fn options_become_flags() {
        check(&[], "nosuid,nodev,noatime");
        check(&["ro"], "ro,nosuid,nodev,noatime");
        check(&["noexec", "relatime"], "nosuid,nodev,noexec,relatime");
        check(&["suid", "dev", "noexec", "exec", "nonempty"], "noatime");
        check(&["ro", "sync", "async", "dirsync"], "ro,nosuid,nodev,noatime,dirsync");
        check(&["rw"], "`rw` is no option of a mount");
        check(&["noatime,suid"], "`noatime,suid` is no option of a mount");
    }
}
