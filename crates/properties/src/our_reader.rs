//! Our own reading of an answer, by what `wire` says about its framing: what the engine's `Connection` and `Incoming` do,
//! with pieces in place of a socket. Tests of the engine hold those two against
//! hyper, and this against those two.

use flatout_wire::chunked::{Chunked, Step};
use flatout_wire::head::{self, Body};
use flatout_wire::request::Method;

/// What a reader makes of all the bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// An answer, whole.
    Delivered(Answer),
    /// Why there is none.
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer where fewer bytes came than its Content-Length says.
pub(crate) const CLOSED_WITHIN_BODY: &str = "closed within the body";

/// Reads the first final answer to a request; the end of the pieces is a closed connection.
pub(crate) fn read(pieces: &[&[u8]], request: Method) -> Outcome {
    let mut wire = Wire { pieces: pieces.iter(), ahead: Vec::new() };
    let head = loop {
        match head::parse(&wire.ahead, request) {
            Err(error) => return Outcome::Refused(error.to_string()),
            Ok(Some((head, used))) => {
                wire.ahead.drain(..used);
                if head.status >= 200 {
                    break head;
                }
            }
            Ok(None) if wire.more() => {}
            Ok(None) => return Outcome::Refused("closed within the head".into()),
        }
    };
    match body(&mut wire, head.body) {
        Ok(body) => Outcome::Delivered(Answer { status: head.status, body }),
        Err(why) => Outcome::Refused(why),
    }
}

struct Wire<'a> {
    pieces: std::slice::Iter<'a, &'a [u8]>,
    ahead: Vec<u8>,
}

impl Wire<'_> {
    /// `false` when the origin has closed.
    fn more(&mut self) -> bool {
        let piece = self.pieces.next();
        self.ahead.extend_from_slice(piece.copied().unwrap_or(b""));
        piece.is_some()
    }

    /// Moves `bytes` of payload, or what there is before a close.
    fn take(&mut self, bytes: u64, payload: &mut Vec<u8>) -> bool {
        let mut left = bytes;
        loop {
            let moved = left.min(self.ahead.len() as u64);
            payload.extend(self.ahead.drain(..moved as usize));
            left -= moved;
            if left == 0 || !self.more() {
                return left == 0;
            }
        }
    }
}

fn body(wire: &mut Wire<'_>, body: Body) -> Result<Vec<u8>, String> {
    let mut payload = Vec::new();
    match body {
        Body::None => {}
        Body::Length(bytes) if wire.take(bytes, &mut payload) => {}
        Body::Length(_) => return Err(CLOSED_WITHIN_BODY.into()),
        Body::UntilClose => drop(wire.take(u64::MAX, &mut payload)),
        Body::Chunked => chunks(wire, &mut payload)?,
    }
    Ok(payload)
}

fn chunks(wire: &mut Wire<'_>, payload: &mut Vec<u8>) -> Result<(), String> {
    let mut decoder = Chunked::new();
    loop {
        match decoder.next(&wire.ahead).map_err(|error| error.to_string())? {
            Step::NeedMore { consumed } => {
                wire.ahead.drain(..consumed);
                if !wire.more() {
                    return Err("closed between chunks".into());
                }
            }
            Step::Data { consumed, take } => {
                wire.ahead.drain(..consumed);
                if !wire.take(take, payload) {
                    return Err("closed within a chunk".into());
                }
            }
            Step::End { consumed } => {
                wire.ahead.drain(..consumed);
                return Ok(());
            }
        }
    }
}
