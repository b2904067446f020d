//! What a command reports when it fails: a code, one line of what, which object and why, and a hint.

use std::fmt;
use std::io;

use flatout_ambient::AmbientError;
use flatout_engine::plain;
pub use flatout_wire::words::one_line;
use serde::{Deserialize, Serialize};

use crate::exit::{self, Exit};
use crate::hint;

/// How a failure of standard output begins.
const OF_STDOUT: &str = "write: standard output: ";

/// A failure ready to be shown. Serializable, since a bench child hands its own to the parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The code to exit with.
    pub exit: Exit,
    /// The kind's name in JSON.
    pub kind: String,
    /// `what: which object: why`; empty for an end that deserves no word.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// The command line or a URL is wrong.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, kind: "usage".into(), message: message.into(), hint: None }
    }

    /// A local file, pipe or process refused.
    pub fn local(what: &str, object: impl fmt::Display, cause: &io::Error) -> Failure {
        let why = plain(cause);
        Failure {
            exit: Exit::Failed,
            kind: "local_io".into(),
            message: format!("{what}: {object}: {why}"),
            hint: flatout_engine::remedy(cause).map(String::from),
        }
    }

    /// It cannot be done now.
    pub fn refused_now(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Failed, kind: "local_io".into(), message: message.into(), hint: None }
    }

    /// A defect: something that this program promised itself did not hold.
    pub fn internal(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Failed, kind: "internal".into(), message: message.into(), hint: None }
    }

    /// A signal ended it.
    pub fn interrupted(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Interrupted, kind: "cancelled".into(), message: message.into(), hint: None }
    }

    /// The reader of our output has enough (`flatout cat … | head`): a clean end without a word.
    pub fn reader_gone() -> Failure {
        Failure { exit: Exit::Clean, kind: "broken_pipe".into(), message: String::new(), hint: None }
    }

    /// An error of writing to standard output; a closed pipe is no failure.
    pub fn stdout(cause: &io::Error) -> Failure {
        match cause.kind() {
            io::ErrorKind::BrokenPipe => Failure::reader_gone(),
            _ if cause.raw_os_error() == Some(libc::EBADF) => Failure {
                message: format!("{OF_STDOUT}it is closed"),
                hint: Some("send it to a file or a pipe; where nobody wants it, to /dev/null".into()),
                ..Failure::local("write", "standard output", cause)
            },
            _ => Failure {
                hint: remedy_of_stdout(cause).map(String::from),
                ..Failure::local("write", "standard output", cause)
            },
        }
    }

    /// Whether it is standard output that refused.
    pub fn is_of_stdout(&self) -> bool {
        self.message.starts_with(OF_STDOUT)
    }

    /// What was asked for is not there.
    pub fn not_found(message: String) -> Failure {
        Failure { exit: Exit::Failed, kind: "not_found".into(), message, hint: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Whether there is anything to say.
    pub fn is_silent(&self) -> bool {
        self.message.is_empty()
    }
}

impl From<flatout_engine::Error> for Failure {
    fn from(error: flatout_engine::Error) -> Failure {
        Failure::from(&error)
    }
}

impl From<&flatout_engine::Error> for Failure {
    fn from(error: &flatout_engine::Error) -> Failure {
        Failure {
            exit: exit::of(error.kind()),
            kind: error.kind().name().into(),
            message: error.to_string(),
            hint: error.hint().map(hint::worded),
        }
    }
}

impl From<AmbientError> for Failure {
    fn from(error: AmbientError) -> Failure {
        let hint = error.hint().as_ref().map(hint::worded);
        Failure { hint, ..Failure::usage(format!("settings: {}", error.worded(hint::flag))) }
    }
}

/// As the user sees it on standard error: one line, and a second for the hint.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flatout: error: {}", one_line(&self.message))?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {}", one_line(hint)),
            None => Ok(()),
        }
    }
}

/// What can be done where standard output refuses: it was not chosen as a folder is.
fn remedy_of_stdout(cause: &io::Error) -> Option<&'static str> {
    match cause.raw_os_error()? {
        libc::ENOSPC | libc::EDQUOT => Some("free some space where it leads, or send it elsewhere"),
        libc::EFBIG => flatout_engine::remedy(cause),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_line_and_a_hint() {
        let check = |failure: Failure, expected: &str| assert_eq!(failure.to_string(), expected);
        check(Failure::usage("read: x: why"), "flatout: error: read: x: why");
        check(Failure::usage("a").with_hint("b"), "flatout: error: a\n  hint: b");
        check(Failure::usage("a\nb\x1b[31m"), "flatout: error: a\\nb\\u{1b}[31m");
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        check(
            Failure::local("write", "/disk/x", &full),
            "flatout: error: write: /disk/x: No space left on device\n  hint: free some space, or choose another folder",
        );
        check(
            Failure::stdout(&full),
            "flatout: error: write: standard output: No space left on device\n  hint: free some space where it leads, or send it elsewhere",
        );
        let closed = Failure::stdout(&io::Error::from_raw_os_error(libc::EBADF));
        assert!([Failure::stdout(&full), closed.clone()].iter().all(Failure::is_of_stdout));
        check(
            closed,
            "flatout: error: write: standard output: it is closed\n  hint: send it to a file or a pipe; where nobody wants it, to /dev/null",
        );
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let failure = Failure::stdout(&io::Error::from_raw_os_error(libc::EPIPE));
        assert!(failure.is_silent());
        assert_eq!(failure.exit, Exit::Clean);
    }
}
