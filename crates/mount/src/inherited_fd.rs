//! `/dev/fd/N`, `/proc/self/fd/N`: a connection that a privileged process has opened and mounted for this
//! one, which needs no rights.

use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use flatout_engine::{Error, ErrorKind};
use rustix::io::FdFlags;

/// `/dev/fuse`, major and minor (Documentation/admin-guide/devices.txt).
const DEV_FUSE: (u32, u32) = (10, 229);

/// The number of the descriptor in such a path.
pub(crate) fn number(mount_point: &Path) -> Option<i32> {
    let path = mount_point.to_str()?;
    let number = path.strip_prefix("/dev/fd/").or_else(|| path.strip_prefix("/proc/self/fd/"))?;
    number.parse().ok().filter(|&number| number >= 0)
}

/// Fails unless it is an open /dev/fuse.
pub(crate) fn check(number: i32) -> Result<(), Error> {
    let about = std::fs::metadata(format!("/proc/self/fd/{number}"));
    let is_fuse = |rdev: u64| (rustix::fs::major(rdev), rustix::fs::minor(rdev)) == DEV_FUSE;
    match about.is_ok_and(|about| about.file_type().is_char_device() && is_fuse(about.rdev())) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Usage, format!("descriptor {number} is no open /dev/fuse"))
            .with_hint("open /dev/fuse, mount it with `fd=N`, and start this process with N open")),
    }
}

/// Takes the descriptor over.
pub(crate) fn take(number: i32) -> Result<OwnedFd, Error> {
    check(number)?;
    // SAFETY: it is open, as was just seen, and whoever names it as a mount point hands it over: nobody else
    // in this process holds what the process was started with, and a mount point is taken once.
    let device = unsafe { OwnedFd::from_raw_fd(number) };
    // What is started later, a program that prints keys for example, must not keep the connection open. It is
    // as good without.
    let _ = rustix::io::fcntl_setfd(&device, FdFlags::CLOEXEC);
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_descriptors() {
        let table = [
            ("/dev/fd/3", Some(3)),
            ("/proc/self/fd/17", Some(17)),
            ("/dev/fd/", None),
            ("/dev/fd/-1", None),
            ("/dev/fd/3/x", None),
            ("/dev/fd/99999999999", None),
            ("/mnt/dev/fd/3", None),
        ];
        for (path, want) in table {
            assert_eq!(number(Path::new(path)), want, "{path}");
        }
    }

    #[test]
    fn only_the_device_is_taken() {
        let error = take(1 << 20).expect_err("no such descriptor");
        assert_eq!(error.to_string(), format!("descriptor {} is no open /dev/fuse", 1 << 20));
        let file = std::fs::File::open("/dev/null").expect("it is there");
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(take(number).is_err());
        // And is still open: nothing was closed that is not ours.
        assert!(file.metadata().is_ok());
    }
}
