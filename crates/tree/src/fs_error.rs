//! Errors of the tree: an errno and its cause. The one table from the engine's kinds of error to errnos.

use std::fmt;
use std::sync::Arc;

use flatout_engine::{Error, ErrorKind};

/// An errno, with the engine's error that caused it, if any.
#[derive(Clone, Debug)]
pub struct FsError {
    /// A positive errno of `libc`.
    pub errno: i32,
    pub cause: Option<Arc<Error>>,
}

impl FsError {
    /// An error of the tree's own, without a cause to report.
    pub fn of(errno: i32) -> FsError {
        FsError { errno, cause: None }
    }

    /// That errno, whatever the kind of its cause.
    pub(crate) fn because(errno: i32, cause: Error) -> FsError {
        FsError { errno, cause: Some(Arc::new(cause)) }
    }

    /// Of its cause.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        self.cause.as_ref().map(|cause| cause.kind())
    }

    /// Whether asking for something else would fail as well, and wait as long.
    pub(crate) fn is_of_origin_away(&self) -> bool {
        matches!(self.kind(), Some(ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Throttled))
    }

    /// `ENOENT`.
    pub(crate) fn absent() -> FsError {
        FsError::of(libc::ENOENT)
    }
}

/// The errno for a kind of error.
///
/// Programs try EAGAIN and EINTR again at once, in a loop. So an origin that throttles is EIO after the
/// engine's own retries, as in peers. Corrupt content is EIO, and never returned as bytes.
pub fn errno_of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::Denied | ErrorKind::Untrusted => libc::EACCES,
        ErrorKind::Changed => libc::ESTALE,
        ErrorKind::Timeout => libc::ETIMEDOUT,
        ErrorKind::Cancelled => libc::EINTR,
        ErrorKind::Usage => libc::EINVAL,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::Throttled
        | ErrorKind::Corrupt
        | ErrorKind::Network
        | ErrorKind::LocalIo
        | ErrorKind::Internal => libc::EIO,
        // A kind that is newer than this table.
        _ => libc::EIO,
    }
}

impl From<Arc<Error>> for FsError {
    fn from(cause: Arc<Error>) -> FsError {
        let errno = if cause.is_of_full_origin() { libc::ENOSPC } else { errno_of(cause.kind()) };
        FsError { errno, cause: Some(cause) }
    }
}

impl From<Error> for FsError {
    fn from(cause: Error) -> FsError {
        Arc::new(cause).into()
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => cause.fmt(f),
            None => std::io::Error::from_raw_os_error(self.errno).fmt(f),
        }
    }
}

impl std::error::Error for FsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_errno() {
        let rows = [
            (ErrorKind::NotFound, libc::ENOENT),
            (ErrorKind::Denied, libc::EACCES),
            (ErrorKind::Untrusted, libc::EACCES),
            (ErrorKind::Throttled, libc::EIO),
            (ErrorKind::Changed, libc::ESTALE),
            (ErrorKind::Corrupt, libc::EIO),
            (ErrorKind::Network, libc::EIO),
            (ErrorKind::Timeout, libc::ETIMEDOUT),
            (ErrorKind::LocalIo, libc::EIO),
            (ErrorKind::Cancelled, libc::EINTR),
            (ErrorKind::Usage, libc::EINVAL),
            (ErrorKind::Unsupported, libc::EOPNOTSUPP),
            (ErrorKind::Internal, libc::EIO),
        ];
        for (kind, errno) in rows {
            let error = FsError::from(Error::new(kind, "why"));
            assert_eq!(error.errno, errno, "{kind:?}");
            assert_eq!(error.to_string(), "why");
        }
    }
}
