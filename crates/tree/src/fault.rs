//! What a caller gets instead of an answer: an errno, and why. The one table from the engine's kinds of error to errno.

use std::fmt;
use std::sync::Arc;

use flatout_engine::{Error, ErrorKind};

/// An errno with the engine's error behind it, where there is one.
#[derive(Clone, Debug)]
pub struct Fault {
    /// A positive errno of `libc`.
    pub errno: i32,
    pub cause: Option<Arc<Error>>,
}

impl Fault {
    /// One of the tree's own: nothing behind it needs to be told.
    pub fn of(errno: i32) -> Fault {
        Fault { errno, cause: None }
    }

    /// Nothing of that name.
    pub(crate) fn absent() -> Fault {
        Fault::of(libc::ENOENT)
    }
}

/// The errno for an engine's error.
///
/// Programs try EAGAIN and EINTR again at once, in a loop: an origin that throttles is EIO after the engine's own retries,
/// as in peers. What is damaged on its way is EIO and never bytes.
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
        // A kind that came after this table.
        _ => libc::EIO,
    }
}

impl From<Arc<Error>> for Fault {
    fn from(cause: Arc<Error>) -> Fault {
        Fault { errno: errno_of(cause.kind()), cause: Some(cause) }
    }
}

impl From<Error> for Fault {
    fn from(cause: Error) -> Fault {
        Arc::new(cause).into()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => cause.fmt(f),
            None => std::io::Error::from_raw_os_error(self.errno).fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

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
            let fault = Fault::from(Error::new(kind, "why"));
            assert_eq!(fault.errno, errno, "{kind:?}");
            assert_eq!(fault.to_string(), "why");
        }
    }
}
