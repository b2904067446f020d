//! The same bytes to our HTTP reader and to hyper's. Where both deliver an answer, it is the same one; where one delivers
//! and the other does not, the reason stands in [`ALLOWED`].

use Difference::{HyperRefuses, TwoAnswers, WeRefuse};
use flatout_wire::head;
use flatout_wire::request::Method;

use crate::head::Lines;
use crate::hyper_reader;
use crate::our_reader::{self, Answer, Outcome};
use crate::pieces;

/// `bytes` are all that an origin says in answer to a GET, and to a HEAD, before it closes.
pub fn differential(bytes: &[u8]) {
    for request in [Method::Get, Method::Head] {
        let ours = our_reader::read(&[bytes], request);
        for way in 0..2 {
            let pieces = pieces::cut(bytes, way);
            let cut = our_reader::read(&pieces, request);
            // Which error shows may depend on how much was seen.
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

/// What came of the same bytes.
#[derive(Clone, Copy, Debug)]
enum Difference<'a> {
    /// Why we have no answer where hyper has one.
    WeRefuse(&'a str),
    /// Why hyper has no answer where we have one.
    HyperRefuses(&'a str),
    /// Two answers, and not the same: ours, and hyper's.
    TwoAnswers(&'a Answer, &'a Answer),
}

/// None where both refuse: each has its own words for it.
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

/// A difference that is meant.
pub struct Allowed {
    /// Who does what.
    pub what: &'static str,
    /// Why it stays so.
    pub why: &'static str,
    is_so: fn(Difference<'_>, &[u8]) -> bool,
}

/// All that are; docs/fuzzing.md shows them.
pub const ALLOWED: &[Allowed] = &[
    Allowed {
        what: "We refuse every transfer coding but chunked; hyper hands over what is coded, or reads it until the close.",
        why: "We ask for none, and coded bytes in a landing would be wrong bytes.",
        is_so: |difference, _| matches!(difference, WeRefuse(why) if why.contains("transfer coding")),
    },
    Allowed {
        what: "Of `Transfer-Encoding: identity` the body ends by Content-Length to us, which has to be one, and by the close to hyper.",
        why: "Old servers send it beside a right length. We do not use the connection again, so nothing hides behind it.",
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
        what: "We refuse a 101; hyper hands it over as the answer.",
        why: "Nobody asked for another protocol, and what follows is none that we speak.",
        is_so: |difference, _| matches!(difference, WeRefuse(why) if why.contains("another protocol")),
    },
    Allowed {
        what: "hyper refuses a Transfer-Encoding of HTTP/1.0; we read chunks and close.",
        why: "RFC 9112 §6.1 has the framing counted as doubtful, not the answer: old proxies write 1.0 and pass chunks on.",
        is_so: |difference, bytes| {
            matches!(difference, HyperRefuses(why) if why.contains("transfer-encoding"))
                && says(bytes, "http/1.0")
        },
    },
    Allowed {
        what: "hyper parses trailers, and refuses some; we pass over them, whatever they hold.",
        why: "Nothing of them is used, and where they end is never in doubt.",
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
        what: "hyper passes a bare LF within trailers; we refuse it.",
        why: "RFC 9112 §7.1.2 has CRLF there. hyper refuses one everywhere else in the coding, so trailers are meant.",
        is_so: |difference, _| matches!(difference, WeRefuse(why) if why.contains("does not end where")),
    },
    Allowed {
        what: "hyper takes 16 KiB of extensions in a body; we take as much in each line.",
        why: "Some servers sign each chunk in an extension, and bodies here have thousands of chunks.",
        is_so: |difference, _| matches!(difference, HyperRefuses(why) if why.contains("chunk extensions over limit")),
    },
    Allowed {
        what: "hyper takes 100 headers; we take what fits into 64 KiB, at most 4096.",
        why: "An object may have more than 100 words of metadata.",
        is_so: |difference, bytes| {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            matches!(difference, HyperRefuses(why) if why.contains("too large")) && lines > 100
        },
    },
    Allowed {
        what: "We take heads of at most 64 KiB; hyper takes more.",
        why: "The largest of S3 are a tenth of it.",
        is_so: |difference, bytes| {
            matches!(difference, WeRefuse(why) if why.contains("longer than 64 KiB"))
                && bytes.len() > 64 << 10
        },
    },
];

/// The transfer codings of the first final answer to a GET, also where it is refused.
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

/// Whether the bytes have these words, in any case.
fn says(bytes: &[u8], words: &str) -> bool {
    bytes.to_ascii_lowercase().windows(words.len()).any(|window| window == words.as_bytes())
}
