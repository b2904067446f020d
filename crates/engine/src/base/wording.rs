//! Sentences about connections that several rooms say, and what can be done then.

use std::io;

use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{Hint, setting, text};

pub(crate) fn broke(refused: io::Error) -> Error {
    let hint = match refused.kind() {
        io::ErrorKind::TimedOut => {
            Hint::from([text("an origin that is slower than that needs a longer "), setting("stall-timeout")])
        }
        _ => LOOK_BETWEEN.into(),
    };
    Error::network("the connection broke", refused).with_hint(hint)
}

/// What a stall is called.
pub(crate) fn silence() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no byte came in time")
}

/// What can be done where something else than HTTP comes.
pub(crate) const LOOK_AT_THE_PORT: &str =
    "check host and port: something else than an origin of objects may listen there";

/// What can be done where a connection ends too early.
pub(crate) const LOOK_BETWEEN: &str =
    "try again later; if it stays so, look at the origin and at what stands between";

pub(crate) fn closed_early(when: &str) -> Error {
    Error::new(ErrorKind::Network, format!("the origin closed the connection {when}")).with_hint(LOOK_BETWEEN)
}
