//! Heads of answers: how they arrive changes nothing, nothing is read beyond them, and their bodies are framed as a
//! second, simple-minded reading of RFC 9112 §6.3 says.

use flatout_wire::head::{Body, Head, HeadError, LONGEST_BYTES, parse};
use flatout_wire::request::Method;

use crate::pieces::Chance;

/// Every prefix is tried of a head up to this long, a sample of those of a longer one.
const EVERY_PREFIX_MAX: usize = 512;
const SAMPLE: usize = 64;

/// `bytes` are what came in answer to a GET and to a HEAD.
pub fn head(bytes: &[u8]) {
    for request in [Method::Get, Method::Head] {
        let whole = parse(bytes, request);
        no_prefix_differs(bytes, request, &whole);
        match &whole {
            Ok(Some((head, used))) => {
                assert!(*used <= bytes.len() && *used <= LONGEST_BYTES, "{used} of {}", bytes.len());
                is_framed_as_written(head, &bytes[..*used], request);
                is_sound(head);
            }
            Ok(None) => assert!(bytes.len() <= LONGEST_BYTES, "{} bytes and no end", bytes.len()),
            Err(error) => {
                let said = error.to_string();
                assert!(said.len() < 300 && !said.contains(char::is_control), "{said:?}");
            }
        }
    }
}

fn no_prefix_differs(bytes: &[u8], request: Method, whole: &Result<Option<(Head, usize)>, HeadError>) {
    let mut chance = Chance::of(bytes, 0);
    let used = whole.as_ref().ok().and_then(|parsed| parsed.as_ref()).map_or(0, |(_, used)| *used);
    let ends: Vec<usize> = match bytes.len() {
        few @ 0..=EVERY_PREFIX_MAX => (0..few).collect(),
        many => (0..SAMPLE).map(|_| chance.below(many)).chain([used.saturating_sub(1), used]).collect(),
    };
    for end in ends {
        match (parse(&bytes[..end], request), whole) {
            (Ok(None), Ok(Some((_, used)))) => assert!(end < *used, "{end} of {used} bytes are no head"),
            (Ok(None), _) => {}
            // An error may show early; which one may depend on how much was seen.
            (Err(early), _) => assert!(whole.is_err(), "{early} after {end} bytes, and then {whole:?}"),
            (found, _) => assert_eq!(&found, whole, "after {end} bytes"),
        }
    }
}

/// What the lines of a head say about its body, read without any of the parser's code.
#[derive(Default)]
pub(crate) struct Lines {
    lengths: Vec<String>,
    pub(crate) codings: Vec<String>,
}

impl Lines {
    pub(crate) fn of(head: &[u8]) -> Lines {
        let mut lines = Lines::default();
        for line in head.split(|byte| *byte == b'\n').skip(1) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let name = String::from_utf8_lossy(&line[..colon]).to_ascii_lowercase();
            let value = String::from_utf8_lossy(&line[colon + 1..]);
            let value = value.trim_matches([' ', '\t']).to_ascii_lowercase();
            match name.as_str() {
                "content-length" => lines.lengths.push(value),
                "transfer-encoding" => lines.codings.push(value),
                _ => {}
            }
        }
        lines
    }

    /// The one length that all lines agree on.
    fn length(&self) -> Option<u64> {
        let parse = |item: &str| {
            let item = item.trim_matches([' ', '\t']);
            let digits = !item.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| item.parse::<u64>().ok()).flatten()
        };
        let items = self.lengths.iter().flat_map(|line| line.split(','));
        let lengths: Option<Vec<u64>> = items.map(parse).collect();
        let lengths = lengths?;
        lengths.first().copied().filter(|first| lengths.iter().all(|length| length == first))
    }
}

/// A head that was taken: the rules against smuggled answers held.
fn is_framed_as_written(head: &Head, bytes: &[u8], request: Method) {
    let lines = Lines::of(bytes);
    // Empty elements of a list are none (RFC 9110 §5.6.1.2).
    let codings: Vec<&str> =
        lines.codings.iter().map(String::as_str).filter(|coding| !coding.is_empty()).collect();
    let coding = codings.join(",");
    let bodiless = request == Method::Head || matches!(head.status, 100..=199 | 204 | 304);
    match (head.body, coding.as_str()) {
        (Body::None, _) => assert!(bodiless, "no body of {lines:?}"),
        (_, _) if bodiless => panic!("a body where none can be: {head:?}"),
        (Body::Chunked, "chunked") => {
            assert_eq!(head.content_length, None, "a length beside chunks");
            assert!(
                !head.keep_alive || lines.lengths.is_empty(),
                "both framings, and the connection is kept"
            );
        }
        (Body::Length(length), "" | "identity") => {
            assert!(!lines.codings.iter().any(String::is_empty), "an empty coding");
            assert_eq!(Some(length), lines.length(), "{lines:?}");
            assert!(!head.keep_alive || lines.codings.is_empty(), "a coding, and the connection is kept");
        }
        (Body::UntilClose, "" | "identity") => {
            assert!(!lines.codings.iter().any(String::is_empty), "an empty coding");
            assert!(lines.lengths.is_empty() && !head.keep_alive, "{lines:?}");
        }
        (body, _) => panic!("{body:?} of {lines:?}"),
    }
}

/// What holds of any head.
fn is_sound(head: &Head) {
    if let Some(found) = &head.content_range {
        if let Some(range) = &found.range {
            assert!(range.start < range.end, "{range:?}");
            assert!(found.total.is_none_or(|total| range.end <= total), "{found:?}");
        } else {
            assert!(found.total.is_some(), "{found:?}");
        }
    }
    if let Some(etag) = head.strong_etag() {
        assert!(etag.len() > 2 && !etag.starts_with("W/"), "{etag}");
    }
    assert!((100..1000).contains(&head.status), "{}", head.status);
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "lengths {:?}, codings {:?}", self.lengths, self.codings)
    }
}
