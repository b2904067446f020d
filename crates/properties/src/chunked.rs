//! Chunked bodies: however they arrive they mean the same, and the same as to a second decoder, which has all of the
//! body before it and reads it line by line.

use flatout_wire::chunked::{ChunkError, Chunked, Step};

use crate::pieces;

/// `bytes` are a body from its first size on, and what stands behind it.
pub fn chunked(bytes: &[u8]) {
    let wanted = reference(bytes);
    for pieces in pieces::ways(bytes) {
        let found = decode(&pieces);
        match (&found, &wanted) {
            // The second decoder knows no limits: lines and trailers over theirs are refused by the first alone.
            (Decoded::Broken(ChunkError::TooLong), _) => {
                assert!(bytes.len() > 16 << 10, "{} bytes", bytes.len())
            }
            (Decoded::Broken(_), Meaning::Broken) => {}
            (Decoded::Ended(payload, rest), Meaning::Ended(expected, behind)) => {
                assert_eq!((payload, *rest), (expected, *behind));
            }
            (Decoded::Open(payload), Meaning::Open(expected)) => assert_eq!(payload, expected),
            _ => panic!("{found:?}, and to the reference {wanted:?}"),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Decoded {
    /// The payload, and how many bytes stand behind the body.
    Ended(Vec<u8>, usize),
    Open(Vec<u8>),
    Broken(ChunkError),
}

/// Decodes as the engine does: framing is handed in, payload is moved past the decoder.
fn decode(pieces: &[&[u8]]) -> Decoded {
    let (mut decoder, mut payload, mut owed) = (Chunked::new(), Vec::new(), 0u64);
    let mut behind = None;
    for mut piece in pieces.iter().copied() {
        while !piece.is_empty() && behind.is_none() {
            let moved = owed.min(piece.len() as u64) as usize;
            payload.extend_from_slice(&piece[..moved]);
            (owed, piece) = (owed - moved as u64, &piece[moved..]);
            if piece.is_empty() {
                break;
            }
            let consumed = match decoder.next(piece) {
                Err(error) => return Decoded::Broken(error),
                Ok(Step::NeedMore { consumed }) => {
                    assert_eq!(consumed, piece.len(), "more is wanted, and not all was read");
                    consumed
                }
                Ok(Step::Data { consumed, take }) => {
                    assert!(take > 0 && consumed > 0, "{take} bytes behind {consumed}");
                    owed = take;
                    consumed
                }
                Ok(Step::End { consumed }) => {
                    assert_eq!(decoder.next(b"HTTP/1.1"), Ok(Step::End { consumed: 0 }), "it goes on");
                    behind = Some(0);
                    consumed
                }
            };
            piece = &piece[consumed..];
        }
        behind = behind.map(|before| before + piece.len());
    }
    match behind {
        Some(rest) => Decoded::Ended(payload, rest),
        None => Decoded::Open(payload),
    }
}

#[derive(Debug)]
enum Meaning {
    Ended(Vec<u8>, usize),
    /// Well so far, and not at its end.
    Open(Vec<u8>),
    Broken,
}

/// The grammar of RFC 9112 §7.1 over a body that is there as a whole.
fn reference(mut body: &[u8]) -> Meaning {
    let mut payload = Vec::new();
    loop {
        let (line, behind) = match line(body) {
            Line::Whole(line, behind) => (line, behind),
            Line::Open([]) => return Meaning::Open(payload),
            Line::Open(line) | Line::Returned(line) if size(line).is_some() => return Meaning::Open(payload),
            _ => return Meaning::Broken,
        };
        let Some(size) = size(line) else { return Meaning::Broken };
        if size == 0 {
            return trailers(behind, payload);
        }
        let take = usize::try_from(size).unwrap_or(usize::MAX).min(behind.len());
        payload.extend_from_slice(&behind[..take]);
        body = match &behind[take..] {
            [] | [b'\r'] => return Meaning::Open(payload),
            [b'\r', b'\n', rest @ ..] => rest,
            _ => return Meaning::Broken,
        };
    }
}

fn trailers(mut body: &[u8], payload: Vec<u8>) -> Meaning {
    loop {
        match line(body) {
            Line::Whole([], behind) => return Meaning::Ended(payload, behind.len()),
            Line::Whole(_, behind) => body = behind,
            Line::Open(_) | Line::Returned(_) => return Meaning::Open(payload),
            Line::Broken => return Meaning::Broken,
        }
    }
}

enum Line<'a> {
    /// Without its CRLF, and what stands behind.
    Whole(&'a [u8], &'a [u8]),
    /// Its end has not come.
    Open(&'a [u8]),
    /// Its end has come but for the LF.
    Returned(&'a [u8]),
    /// A CR or an LF by itself.
    Broken,
}

fn line(bytes: &[u8]) -> Line<'_> {
    let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return Line::Open(bytes);
    };
    match &bytes[end..] {
        [b'\r'] => Line::Returned(&bytes[..end]),
        [b'\r', b'\n', behind @ ..] => Line::Whole(&bytes[..end], behind),
        _ => Line::Broken,
    }
}

/// Digits, then nothing, or white space and perhaps an extension behind a semicolon.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (number, behind) = line.split_at(digits);
    let blanks = behind.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let behind = &behind[blanks..];
    let number = std::str::from_utf8(number).ok()?;
    let fits = behind.is_empty() || behind[0] == b';';
    fits.then(|| u64::from_str_radix(number, 16).ok()).flatten()
}
