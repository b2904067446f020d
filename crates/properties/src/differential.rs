//! Gives one stream of bytes to our HTTP reader and to hyper's. Where both deliver an answer, the answers are
//! equal; where only one delivers, [`ALLOWED`] has the reason.

use Difference::{HyperRefuses, TwoAnswers, WeRefuse};
use flatout_wire::head;
use flatout_wire::request::Method;

use crate::head::Lines;
use crate::hyper_reader;
use crate::our_reader::{self, Answer, Outcome};
use crate::pieces;

/// `bytes` are everything that an origin sends in answer to a GET, and to a HEAD, before it closes.
pub fn differential(bytes: &[u8]) {
    for request in [Method::Get, Method::Head] {
        let ours = our_reader::read(&[bytes], request);
        for way in 0..2 {
            let pieces = pieces::cut(bytes, way);
            let cut = our_reader::read(&pieces, request);
            // The error may depend on how many bytes the parser has seen.
            let both_refuse = matches!((&ours, &cut), (Outcome::Refused(_), Outcome::Refused(_)));
            assert!(both_refuse || cut == ours, "whole {ours:?}, in pieces {cut:?}");
        }
        let theirs = hyper_reader::read(&pieces::cut(bytes, 2), request);
        if let Some(difference) = difference(&ours, &theirs) {
            let known = ALLOWED.iter().any(|allowed| (allowed.is_so)(difference, bytes));
            assert!(
                known,
                "{difference:?}:\n ours {ours:?}\n hyper {theirs:?}\n of {:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }
}

/// How the two readers differ.
#[derive(Clone, Copy, Debug)]
enum Difference<'a> {
    /// Why we have no answer where hyper has one.
    WeRefuse(&'a str),
    /// Why hyper has no answer where we have one.
    HyperRefuses(&'a str),
    /// Two different answers: ours, and hyper's.
    TwoAnswers(&'a Answer, &'a Answer),
}

/// None if both refuse: each words it differently.
fn difference<'a>(ours: &'a Outcome, theirs: &'a Outcome) -> Option<Difference<'a>> {
    match (ours, theirs) {
        (Outcome::Refused(_), Outcome::Refused(_)) => None,
        (Outcome::Refused(why), Outcome::Delivered(_)) => Some(WeRefuse(why)),
        (Outcome::Delivered(_), Outcome::Refused(why)) => Some(HyperRefuses(why)),
        (Outcome::Delivered(ours), Outcome::Delivered(theirs)) => {
            (ours != theirs).then_some(TwoAnswers(ours, theirs))
        }
    }
}

/// An intended difference.
pub struct Allowed {
    /// The behaviour of each.
    pub what: &'static str,
    /// Why we keep it.
    pub why: &'static str,
    is_so: fn(Difference<'_>, &[u8]) -> bool,
}

/// Every accepted difference; docs/fuzzing.md lists them.
pub const ALLOWED: &[Allowed] = &[
    Allowed {
        what: "We refuse every transfer coding but chunked; hyper returns the coded bytes, or reads them until the close.",
        why: "We request no coding, and coded bytes in a landing would be wrong bytes.",
        is_so: |difference, _| matches!(difference, WeRefuse(why) if why.contains("transfer coding")),
    },
    Allowed {
        what: "With `Transfer-Encoding: identity` we end the body by Content-Length, which must be there; hyper ends it at the close.",
        why: "Old servers send it beside a correct length. We do not reuse the connection, so no bytes can hide after the body.",
        is_so: |difference, bytes| {
            let is_length_or_close = match difference {
                TwoAnswers(ours, theirs) => {
                    ours.status == theirs.status && theirs.body.starts_with(&ours.body)
                }
                WeRefuse(why) => {
                    why == our_reader::CLOSED_WITHIN_BODY || why.contains("no usable Content-Length")
                }
                HyperRefuses(_) => false,
            };
            is_length_or_close && codings(bytes) == ["identity"]
        },
    },
    Allowed {
        what: "We refuse a 101; hyper returns it as the answer.",
        why: "We requested no other protocol, and do not speak the one that follows.",
        is_so: |difference, _| matches!(difference, WeRefuse(why) if why.contains("another protocol")),
    },
    Allowed {
        what: "hyper refuses a Transfer-Encoding of HTTP/1.0; we read chunks and close.",
        why: "RFC 9112 §6.1 calls the framing faulty, not the answer: old proxies write 1.0 and forward chunks.",
        is_so: |difference, bytes| {
            matches!(difference, HyperRefuses(why) if why.contains("transfer-encoding"))
                && says(bytes, "http/1.0")
        },
    },
    Allowed {
        what: "hyper parses trailers, and refuses some; we skip them unread.",
        why: "We use none of them, and their end is never ambiguous.",
        is_so: |difference, _| {
            let words = [
                "invalid header name",
                "invalid header value",
                "invalid new line",
                "invalid token",
                "Partial header",
                "chunk trailers",
            ];
            let is_of_body = |why: &str| why.starts_with("error reading a body");
            let HyperRefuses(why) = difference else { return false };
            is_of_body(why) && words.into_iter().any(|word| why.contains(word))
        },
    },
    Allowed {
        what: "hyper accepts a bare LF within trailers; we refuse it.",
        why: "RFC 9112 §7.1.2 requires CRLF there. hyper refuses a bare LF everywhere else in the coding.",
        is_so: |difference, _| matches!(difference, WeRefuse(why) if why.contains("does not end where")),
    },
    Allowed {
        what: "hyper accepts 16 KiB of extensions per body; we accept that in each line.",
        why: "Some servers sign each chunk in an extension, and bodies here have thousands of chunks.",
        is_so: |difference, _| matches!(difference, HyperRefuses(why) if why.contains("chunk extensions over limit")),
    },
    Allowed {
        what: "hyper accepts 100 headers; we accept at most 4096 within 64 KiB.",
        why: "An object may have more than 100 metadata entries.",
        is_so: |difference, bytes| {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            matches!(difference, HyperRefuses(why) if why.contains("too large")) && lines > 100
        },
    },
    Allowed {
        what: "We accept heads of at most 64 KiB; hyper accepts more.",
        why: "The largest heads of S3 are a tenth of that.",
        is_so: |difference, bytes| {
            matches!(difference, WeRefuse(why) if why.contains("longer than 64 KiB"))
                && bytes.len() > 64 << 10
        },
    },
];

/// The transfer codings of the first final answer to a GET, also if that is refused.
fn codings(mut bytes: &[u8]) -> Vec<String> {
    while let Ok(Some((head, used))) = head::parse(bytes, Method::Get) {
        if head.status >= 200 {
            return Lines::of(&bytes[..used]).codings;
        }
        bytes = &bytes[used..];
    }
    let is_empty = |line: &&[u8]| matches!(line, [] | [b'\r']);
    let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').take_while(|line| !is_empty(line)).collect();
    Lines::of(&lines.join(&b'\n')).codings
}

/// Whether the bytes contain these words, ignoring case.
fn says(bytes: &[u8], words: &str) -> bool {
    bytes.to_ascii_lowercase().windows(words.len()).any(|window| window == words.as_bytes())
}
