//! The same bytes to our HTTP reader and to hyper's. Where both deliver an answer, it is the same one; where one delivers
//! and the other does not, the reason stands in [`ALLOWED`].

use Difference::{HyperRefuses, TwoAnswers, WeRefuse};
use flatout_wire::request::Method;

use crate::hyper_reader;
use crate::our_reader::{self, Outcome};
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
    /// Two answers, and not the same.
    TwoAnswers,
}

/// None where both refuse: each has its own words for it.
fn difference<'a>(ours: &'a Outcome, theirs: &'a Outcome) -> Option<Difference<'a>> {
    match (ours, theirs) {
        (Outcome::Refused(_), Outcome::Refused(_)) => None,
        (Outcome::Refused(why), _) => Some(WeRefuse(why)),
        (_, Outcome::Refused(why)) => Some(HyperRefuses(why)),
        _ => (ours != theirs).then_some(TwoAnswers),
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
        what: "Of `Transfer-Encoding: identity` the body ends by Content-Length to us, by the close to hyper.",
        why: "Old servers send it beside a right length. We do not use the connection again, so nothing hides behind it.",
        is_so: |_, bytes| says(bytes, "transfer-encoding:") && says(bytes, "identity"),
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
];

/// Whether the bytes have these words, in any case.
fn says(bytes: &[u8], words: &str) -> bool {
    bytes.to_ascii_lowercase().windows(words.len()).any(|window| window == words.as_bytes())
}
