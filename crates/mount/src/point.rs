//! The mount point: checked before the origin is asked for anything, and again when it is mounted.

use std::io;
use std::path::{Path, PathBuf};

use flatout_engine::{Error, ErrorKind, plain, remedy};

use crate::identity::MountIdentity;
use crate::options::TYPE;
use crate::unmount::{DaemonState, daemon_at, detach};
use crate::{inherited_fd, table};

/// Where Flatout can mount: a free folder, or a connection that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    path: PathBuf,
    kind: PointKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PointKind {
    /// Flatout has mounted nothing there.
    Free,
    /// A mount whose daemon is gone; it is unmounted first.
    Stale((u32, u32)),
    /// `/dev/fd/N`
    Descriptor(i32),
}

impl MountPoint {
    /// Checks the mount point, and changes nothing. `nonempty`: the folder need not be empty.
    ///
    /// Waits at most two seconds for a daemon that does not answer.
    ///
    /// # Errors
    /// `Usage` where it is missing, is no folder, holds something, has a mount of Flatout's that is served,
    /// or is a descriptor of something else than `/dev/fuse`; `LocalIo` where the system does not let it be
    /// looked at.
    pub fn look(path: &Path, nonempty: bool) -> Result<MountPoint, Error> {
        look(path, nonempty).map_err(|error| error.during("mount", path.display()))
    }

    /// Without links and dots; a descriptor's path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor of a connection that was handed over.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        match self.kind {
            PointKind::Descriptor(number) => Some(number),
            PointKind::Free | PointKind::Stale(_) => None,
        }
    }

    /// Unmounts what killed daemons have left there.
    pub(crate) fn cleared(mut self, nonempty: bool) -> Result<MountPoint, Error> {
        while let PointKind::Stale(device) = self.kind {
            detach(&self.path, &MountIdentity { device: Some(device), ..MountIdentity::default() }, true)?;
            self = look(&self.path, nonempty)?;
        }
        Ok(self)
    }
}

fn look(path: &Path, nonempty: bool) -> Result<MountPoint, Error> {
    if let Some(number) = inherited_fd::number(path) {
        inherited_fd::check(number)?;
        return Ok(MountPoint { path: path.to_owned(), kind: PointKind::Descriptor(number) });
    }
    // Without a slash at its end: with one, the system would ask the file system that is mounted there.
    let bare: PathBuf = path.components().collect();
    let path = bare.canonicalize().map_err(|error| unreadable(path, &error))?;
    // The table first: looking at the mount itself may wait for a daemon that does not answer.
    if let Some(mount) = table::at(&path).filter(|mount| mount.kind == TYPE || mount.is_image()) {
        return match daemon_at(&path) {
            DaemonState::Dead => Ok(MountPoint { path, kind: PointKind::Stale(mount.device) }),
            DaemonState::Alive | DaemonState::Silent => {
                Err(usage("Flatout has mounted something there already")
                    .with_hint(format!("run `flatout umount {}` first", quoted(&path))))
            }
        };
    }
    let about = path.metadata().map_err(|error| unreadable(&path, &error))?;
    if !about.is_dir() {
        return Err(usage("is not a folder").with_hint("name an empty folder to mount on"));
    }
    if !nonempty && path.read_dir().map_err(|error| unreadable(&path, &error))?.next().is_some() {
        return Err(usage("is not empty, and what is in it would be hidden")
            .with_hint("name an empty folder, or write -o nonempty"));
    }
    Ok(MountPoint { path, kind: PointKind::Free })
}

fn usage(cause: &str) -> Error {
    Error::new(ErrorKind::Usage, cause)
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound {
        return usage(&plain(error)).with_hint(format!("make the folder first: mkdir -p {}", quoted(path)));
    }
    let refused = Error::new(ErrorKind::LocalIo, plain(error));
    match remedy(error) {
        Some(hint) => refused.with_hint(hint),
        None => refused,
    }
}

/// Quoted for a shell, if needed.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    match text.chars().all(|character| character.is_alphanumeric() || "/._-+@:,".contains(character)) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_folder_is_a_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("it is there");
        let look = |path: &Path, nonempty| MountPoint::look(path, nonempty);
        let is = |path: &Path, nonempty| assert_eq!(look(path, nonempty).expect("a place").path(), path);
        let says = |path: &Path, nonempty, cause: &str, hint: &str| {
            let error = look(path, nonempty).expect_err(cause);
            assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
            assert_eq!(error.to_string(), format!("mount: {}: {cause}", path.display()));
            assert!(error.hint().is_some_and(|said| said.to_string().contains(hint)), "{:?}", error.hint());
        };
        is(&path, false);
        std::fs::write(path.join("file"), "x").expect("room");
        says(&path, false, "is not empty, and what is in it would be hidden", "-o nonempty");
        is(&path, true);
        says(&path.join("file"), true, "is not a folder", "an empty folder");
        says(&path.join("my models"), true, "No such file or directory", "my models'");
        let within = look(&path.join("file/x"), true).expect_err("not a folder");
        assert_eq!((within.kind(), within.cause()), (ErrorKind::LocalIo, "Not a directory"));
        // Dots and links are gone, so that no look at it is needed to unmount it.
        std::os::unix::fs::symlink(&path, path.join("link")).expect("room");
        assert_eq!(look(&path.join("./link/."), true).expect("a place").path(), path);
    }

    #[test]
    fn descriptors_are_looked_at_in_both_forms() {
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let number = std::os::fd::AsRawFd::as_raw_fd(&null);
        for path in [format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}")] {
            let error = MountPoint::look(Path::new(&path), false).expect_err("it is no /dev/fuse");
            assert_eq!(error.to_string(), format!("mount: {path}: descriptor {number} is no open /dev/fuse"));
        }
    }

    #[test]
    fn paths_are_quoted_where_a_shell_wants_it() {
        for (path, want) in [
            ("/mnt/x-1", "/mnt/x-1"),
            ("/mnt/Modelle-ä", "/mnt/Modelle-ä"),
            ("/mnt/my models", "'/mnt/my models'"),
            ("/mnt/it's", r"'/mnt/it'\''s'"),
        ] {
            assert_eq!(quoted(Path::new(path)), want);
        }
    }
}
