//! The one error of the engine: a kind by what the caller should do, what was being done to which object, the
//! cause, a hint.

use std::fmt;
use std::time::Duration;

use crate::base::hint::{Hint, setting, text};

/// What the caller should do about an error; each face maps it in one file (exit codes, errno, exceptions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request itself makes no sense: mend the call.
    Usage,
    /// No such object or bucket.
    NotFound,
    /// The origin refuses access: mend the keys or the policy.
    Denied,
    /// The origin could not prove by its certificate who it is: mend the trust, the name or the origin.
    Untrusted,
    /// The origin kept asking for less until retries ran out: come back later.
    Throttled,
    /// The object was replaced while it was read: start over.
    Changed,
    /// The bytes are not those that the origin states.
    Corrupt,
    /// The origin could not be reached, broke off, or answered nonsense.
    Network,
    /// The origin let a deadline pass.
    Timeout,
    /// A local file, disk or memory refused.
    LocalIo,
    /// The caller stopped it.
    Cancelled,
    /// Asked for something that this version or this origin cannot do.
    Unsupported,
    /// A defect of ours.
    Internal,
}

impl ErrorKind {
    /// The name of the kind in JSON events and logs: part of schema v1.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Usage => "usage",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Denied => "denied",
            ErrorKind::Untrusted => "untrusted",
            ErrorKind::Throttled => "throttled",
            ErrorKind::Changed => "changed",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Network => "network",
            ErrorKind::Timeout => "timeout",
            ErrorKind::LocalIo => "local_io",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Internal => "internal",
        }
    }
}

/// An error of the engine. Displays as `doing: object: cause`; no secret is ever part of it.
#[derive(Debug)]
pub struct Error(Box<Body>);

#[derive(Debug)]
struct Body {
    kind: ErrorKind,
    doing: &'static str,
    object: String,
    cause: String,
    hint: Option<Hint>,
    particular: Option<Particular>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What callers tell apart within a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Particular {
    Outage,
    There,
    MissingBucket,
    FullOrigin,
}

/// What an error about a setting was doing: its object is the knob's name.
pub(crate) const SETTINGS: &str = "settings";

impl Error {
    /// An error of `kind` with its cause in words; say what was being done with [`Error::during`].
    pub fn new(kind: ErrorKind, cause: impl Into<String>) -> Error {
        Error(Box::new(Body {
            kind,
            doing: "",
            object: String::new(),
            cause: cause.into(),
            hint: None,
            particular: None,
            source: None,
        }))
    }

    /// An object is there already, and was to stay.
    pub(crate) fn there() -> Error {
        let cause = "an object of that name is there already: it stays as it is";
        let mut error = Error::new(ErrorKind::Changed, cause);
        error.0.particular = Some(Particular::There);
        error
    }

    /// There is no bucket of that name.
    pub(crate) fn in_no_bucket(mut self) -> Error {
        self.0.particular = Some(Particular::MissingBucket);
        self
    }

    /// The origin has no room for more.
    pub(crate) fn in_full_origin(mut self) -> Error {
        self.0.particular = Some(Particular::FullOrigin);
        self
    }

    /// A local I/O error, its errno in words.
    pub(crate) fn local(cause: &str, source: std::io::Error) -> Error {
        let mut error = Error::new(ErrorKind::LocalIo, format!("{cause}: {}", plain(&source)));
        error.0.hint = remedy(&source).map(Hint::from);
        error.0.source = Some(Box::new(source));
        error
    }

    /// A network error, with the socket's own word.
    pub(crate) fn network(cause: impl fmt::Display, source: std::io::Error) -> Error {
        let kind = match source.kind() {
            std::io::ErrorKind::TimedOut => ErrorKind::Timeout,
            _ => ErrorKind::Network,
        };
        let mut error = Error::new(kind, format!("{cause}: {}", plain(&source)));
        error.0.source = Some(Box::new(source));
        error
    }

    /// Adds what was being done to what; an inner statement is kept.
    #[must_use]
    pub fn during(mut self, doing: &'static str, object: impl fmt::Display) -> Error {
        if self.0.doing.is_empty() {
            self.0.doing = doing;
            self.0.object = object.to_string();
        }
        self
    }

    /// Adds what the user can do about it; an earlier hint is kept.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Hint>) -> Error {
        self.0.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Adds one thing more that the user can do.
    #[must_use]
    pub(crate) fn with_further_hint(mut self, hint: impl Into<Hint>) -> Error {
        self.0.hint = Some(match self.0.hint.take() {
            Some(earlier) => earlier.then("; then ", hint),
            None => hint.into(),
        });
        self
    }

    /// Adds something to look at first.
    #[must_use]
    pub(crate) fn with_hint_before(mut self, hint: impl Into<Hint>) -> Error {
        self.0.hint = Some(match self.0.hint.take() {
            Some(later) => hint.into().then("; else ", later),
            None => hint.into(),
        });
        self
    }

    /// Adds how often it was tried.
    #[must_use]
    pub(crate) fn after_attempts(mut self, attempts: u32) -> Error {
        if attempts > 1 {
            self.0.cause += &format!(" (tried {attempts} times)");
        }
        self
    }

    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// A copy for another waiter, without the system's own error behind it.
    pub(crate) fn clone_without_source(&self) -> Error {
        let Body { kind, doing, object, cause, hint, particular, source: _ } = &*self.0;
        let (kind, particular) = (*kind, *particular);
        let (object, cause, hint) = (object.clone(), cause.clone(), hint.clone());
        Error(Box::new(Body { kind, doing, object, cause, hint, particular, source: None }))
    }

    /// Marks it as the end of an outage, in which the origin was waited for that long.
    #[must_use]
    pub(crate) fn after_outage(mut self, waited: Duration) -> Error {
        self.0.cause += &format!(" (waited {} s for the origin)", waited.as_secs().max(1));
        self.0.particular = Some(Particular::Outage);
        if self.kind() == ErrorKind::Timeout {
            // That of a stall would not help: to wait longer for each byte.
            self.0.hint = Some("check that the origin is running and can be reached".into());
        }
        self.with_further_hint([text("raise "), setting("outage-timeout"), text(" to wait longer")])
    }

    /// Whether the origin was away for `--outage-timeout`: nothing else that is asked of it will do better.
    pub fn is_outage(&self) -> bool {
        self.0.particular == Some(Particular::Outage)
    }

    /// Whether another attempt may succeed a moment later, or at another address.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.kind(), ErrorKind::Network | ErrorKind::Timeout)
    }

    /// Whether bytes that landed before it can be resumed from: as far as is known, the object has not
    /// changed.
    pub(crate) fn keeps_partial_data(&self) -> bool {
        match self.kind() {
            ErrorKind::Network
            | ErrorKind::Timeout
            | ErrorKind::Throttled
            | ErrorKind::Cancelled
            | ErrorKind::Denied
            | ErrorKind::Untrusted
            | ErrorKind::LocalIo => true,
            ErrorKind::Changed
            | ErrorKind::Corrupt
            | ErrorKind::NotFound
            | ErrorKind::Usage
            | ErrorKind::Unsupported
            | ErrorKind::Internal => false,
        }
    }

    /// Whether it says that an object is there already, which was to stay
    /// ([`crate::object_options::Condition::Absent`]).
    pub fn is_there(&self) -> bool {
        self.0.particular == Some(Particular::There)
    }

    /// Whether the bucket does not exist: no other object of it can be read or written either.
    pub fn is_missing_bucket(&self) -> bool {
        self.0.particular == Some(Particular::MissingBucket)
    }

    /// Whether the origin has no room for more: its disk is full, or a quota is used up.
    pub fn is_of_full_origin(&self) -> bool {
        self.0.particular == Some(Particular::FullOrigin)
    }

    /// The knob that it is about, by its name.
    pub fn setting(&self) -> Option<&str> {
        (self.0.doing == SETTINGS).then_some(&*self.0.object)
    }

    /// What was being done: "read", "write", "list", …; empty when unknown.
    pub fn doing(&self) -> &str {
        self.0.doing
    }

    /// The object or file that it was done to; empty when unknown.
    pub fn object(&self) -> &str {
        &self.0.object
    }

    /// Why it failed.
    pub fn cause(&self) -> &str {
        &self.0.cause
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&Hint> {
        self.0.hint.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.doing.is_empty() {
            write!(f, "{}: {}: ", self.0.doing, self.0.object)?;
        }
        f.write_str(&self.0.cause)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

/// The system's sentence without Rust's "(os error 28)", nor what it says of its resolver.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.trim_start_matches("failed to lookup address information: ");
    match text.find(" (os error") {
        Some(at) => text[..at].to_string(),
        None => text.to_string(),
    }
}

/// What can be done where a local file, folder or disk refuses.
pub fn remedy(error: &std::io::Error) -> Option<&'static str> {
    match error.raw_os_error()? {
        libc::ENOSPC => Some("free some space, or choose another folder"),
        libc::EDQUOT => Some("the disk quota is used up: free some space, or choose another folder"),
        libc::EFBIG => Some("the file system or `ulimit -f` does not allow a file of this size"),
        libc::EACCES | libc::EPERM => Some("check the folder's permissions, or choose another folder"),
        libc::EROFS => Some("the file system is mounted read-only: choose another folder"),
        libc::ENOENT => Some("create the folder first"),
        libc::ENOTDIR => Some("a file stands where a folder is meant: choose another folder"),
        libc::EMFILE => Some("this process may open no more files: raise `ulimit -n`"),
        libc::ENFILE => Some("this machine may open no more files: raise sysctl fs.file-max"),
        libc::ENAMETOOLONG => Some("choose a shorter name"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_which_why_and_what_to_do() {
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let error = Error::local("cannot reserve 4 GiB", full).during("write", "/tmp/x");
        assert_eq!(error.to_string(), "write: /tmp/x: cannot reserve 4 GiB: No space left on device");
        assert_eq!(error.kind(), ErrorKind::LocalIo);
        assert!(error.hint().expect("a full disk has a remedy").to_string().contains("free some space"));
    }

    #[test]
    fn the_inner_statement_wins() {
        let error =
            Error::new(ErrorKind::Network, "closed").during("connect", "h:1").during("read", "s3://b/k");
        assert_eq!(error.to_string(), "connect: h:1: closed");
    }
}
